"""Rotations as unit quaternions, scalar first, as MuJoCo and viser have them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

__all__ = ["quaternion_wxyz"]


def quaternion_wxyz(rotation: ArrayLike) -> NDArray[np.float64]:
    """Unit quaternions (w, x, y, z) of rotation matrices.

    Args:
        rotation: (..., 3, 3) with at most one leading dimension; read-only arrays, too, which scipy 1.13 refuses.

    Returns:
        (..., 4)
    """
    return np.roll(Rotation.from_matrix(np.array(rotation)).as_quat(), 1, axis=-1)
