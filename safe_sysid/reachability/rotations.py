"""Rotation matrices of joints as affine forms: ``R(q) = A_0 + A_1 cos q + A_2 sin q`` with the A's nearly exact."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.reachability.affine import add_constant, add_scaled, dot, sin_cos
from safe_sysid.robot.model import Kinematics

__all__ = ["fill_rotation", "rotate", "rotation_parts"]

FloatArray = NDArray[np.float64]


def rotation_parts(kin: Kinematics) -> tuple[FloatArray, float]:
    """``A`` (n, 3, 3, 3) with ``R_j = A[j, 0] + A[j, 1] cos + A[j, 2] sin``, and a bound of the error of each entry.

    Rodrigues' formula: ``F a a^T``, ``F (1 - a a^T)``, ``F [a]x`` for the fixed rotation F and the axis a.
    """
    n = len(kin.axis)
    parts = np.empty((n, 3, 3, 3))
    for j in range(n):
        a = kin.axis[j]
        outer = np.outer(a, a)
        skew = np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])
        parts[j, 0] = kin.rotation[j] @ outer
        parts[j, 1] = kin.rotation[j] @ (np.eye(3) - outer)
        parts[j, 2] = kin.rotation[j] @ skew
    # Three products of numbers below 2, at most six roundings each, three times, plus the use of a float identity.
    size = float(np.max(np.abs(kin.rotation).sum(axis=2)))
    return parts, 64 * 2.0**-52 * max(size, 1.0)


@njit(cache=True)
def fill_rotation(
    parts: FloatArray,
    error: float,
    angle: FloatArray,
    n: int,
    work: FloatArray,
    out: FloatArray,
    transposed: FloatArray,
) -> None:
    """Joint rotation (3, 3, K + 2) and its transpose for one joint's parts (3, 3, 3); ``work`` (2, K + 2)."""
    last = angle.shape[0] - 1
    sin_cos(angle, n, work[0], work[1])
    for i in range(3):
        for k in range(3):
            row = out[i, k]
            row[:] = 0.0
            add_constant(parts[0, i, k], row)
            add_scaled(work[1], parts[1, i, k], row)
            add_scaled(work[0], parts[2, i, k], row)
            row[last] += error
            transposed[k, i] = row


@njit(cache=True)
def rotate(rotation: FloatArray, vector: FloatArray, n: int, out: FloatArray) -> None:
    """``out = rotation vector`` for forms (3, 3, K + 2) and (3, K + 2); out must not alias."""
    for i in range(3):
        dot(rotation[i], vector, n, out[i])
