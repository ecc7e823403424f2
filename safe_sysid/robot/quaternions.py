"""Rotations as unit quaternions, scalar first, as MuJoCo and viser have them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation

from safe_sysid.core.arrays import FloatArray

__all__ = ["quaternion_wxyz"]


def quaternion_wxyz(rotation: ArrayLike) -> FloatArray:
    """Unit quaternions (w, x, y, z) of rotation matrices.

    ``rotation``: (..., 3, 3) with at most one leading dimension; read-only arrays, too, which scipy 1.13 refuses.
    Returns (..., 4).
    """
    return np.roll(Rotation.from_matrix(np.array(rotation)).as_quat(), 1, axis=-1)
