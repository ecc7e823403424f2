r"""Joint rotations and three-vectors of affine forms whose private remainder is a ball.

A vector is an array (3, K + 2) whose three remainders are *equal*, rho: the private part is any vector of length at
most rho (so each component's is at most rho: components may be used as forms of their own). A rotation leaves that
ball as it is; component-wise remainders would grow by up to ``sqrt(3)`` with every joint: a factor 100 for nine.

Rotation matrices are ``R(q) = A_0 + A_1 cos q + A_2 sin q`` with the A's nearly exact.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError
from safe_sysid.reachability.affine import add_constant, add_scaled, dot, put, sin_cos
from safe_sysid.robot.model import Kinematics

__all__ = [
    "fill_rotation",
    "rotate",
    "rotation_parts",
    "to_ball",
    "vector_add_cross",
    "vector_add_scaled",
    "vector_project",
]

_EPS = 2.0**-52
_TINY = 1e-150
#: Room for the rounding of a few operations on a positive number.
_UP = 1.0 + 16.0 * _EPS


def rotation_parts(kin: Kinematics) -> tuple[FloatArray, float, float]:
    """``A`` (n, 3, 3, 3) with ``R_j = A[j, 0] + A[j, 1] cos + A[j, 2] sin``, an error bound of its entries, and of |R|.

    Rodrigues' formula: ``F a a^T``, ``F (1 - a a^T)``, ``F [a]x`` for the fixed rotation F and the axis a. The last
    number bounds the norm of every R: 1 but for the rounding of F (``|F|^2 <= |F^T F|_inf``) and of a's length.

    Raises:
        ModelError: a prismatic joint: whoever encloses motions by these takes all joints as turning.
    """
    if np.any(kin.sliding):
        raise ModelError(
            f"joint {int(np.argmax(kin.sliding))} is prismatic: expected turning joints only, to enclose motions of"
        )
    n = len(kin.axis)
    parts = np.empty((n, 3, 3, 3))
    stretch = 0.0
    for j in range(n):
        a, fixed = kin.axis[j], kin.rotation[j]
        outer = np.outer(a, a)
        skew = np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])
        parts[j, 0], parts[j, 1], parts[j, 2] = fixed @ outer, fixed @ (np.eye(3) - outer), fixed @ skew
        off_length = abs(float(a @ a) - 1.0)
        norm = np.sqrt(np.abs(fixed.T @ fixed).sum(axis=1).max())
        stretch = max(stretch, float(norm) * (1.0 + 4.0 * off_length + 1e-13))
    # Three products of numbers below 2, at most six roundings each, three times, plus the use of a float identity.
    size = float(np.max(np.abs(kin.rotation).sum(axis=2)))
    return parts, 64 * _EPS * max(size, 1.0), stretch


@njit(cache=True, nogil=True)
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
            put(row, transposed[k, i])


@njit(cache=True, nogil=True)
def to_ball(x: FloatArray) -> None:
    """Turn component-wise remainders of (3, K + 2) into the ball that holds them."""
    last = x.shape[1] - 1
    a, b, c = x[0, last], x[1, last], x[2, last]
    x[:, last] = math.sqrt(a * a + b * b + c * c) * _UP + _TINY


@njit(cache=True, nogil=True)
def rotate(rotation: FloatArray, stretch: float, vector: FloatArray, n: int, out: FloatArray) -> None:
    """``out = rotation vector`` for forms (3, 3, K + 2) and a vector; out must not alias.

    ``R (v + ball) = R v + R ball``: the second is a ball again, whatever R is; only R v needs the form of R.
    """
    last = vector.shape[1] - 1
    ball = vector[0, last]
    vector[:, last] = 0.0
    for i in range(3):
        dot(rotation[i], vector, n, out[i])
    vector[:, last] = ball
    to_ball(out)
    out[:, last] = (out[0, last] + ball * stretch) * _UP


@njit(cache=True, nogil=True)
def vector_add_scaled(x: FloatArray, factor: float, out: FloatArray) -> None:
    """``out += factor x`` for vectors and an exact float; out must not alias x."""
    if factor == 0.0:
        return
    last = x.shape[1] - 1
    total = 0.0
    for i in range(3):
        for k in range(last):
            step = factor * x[i, k]
            out[i, k] += step
            total += abs(out[i, k]) + abs(step)
    rho = out[0, last] + abs(factor) * x[0, last]
    out[:, last] = rho * _UP + total * 4.0 * _EPS + _TINY


@njit(cache=True, nogil=True)
def vector_add_cross(x: FloatArray, t: FloatArray, factor: float, out: FloatArray) -> None:
    """``out += factor (x x t)`` for vectors x, out and a constant t (3,); factor 1, -1 (then t x x) or 0.5: exact."""
    last = x.shape[1] - 1
    total = 0.0
    for i in range(3):
        a, b = (i + 1) % 3, (i + 2) % 3
        for k in range(last):
            first, second = x[a, k] * t[b], x[b, k] * t[a]
            out[i, k] += factor * (first - second)
            total += abs(out[i, k]) + abs(first) + abs(second)
    length = math.sqrt(t[0] * t[0] + t[1] * t[1] + t[2] * t[2])
    rho = out[0, last] + abs(factor) * length * x[0, last] * _UP
    out[:, last] = rho * _UP + total * 6.0 * _EPS + _TINY


@njit(cache=True, nogil=True)
def vector_project(x: FloatArray, axis: FloatArray, out: FloatArray) -> None:
    """``out = axis . x``, a form (K + 2), for a vector x and a constant axis (3,)."""
    last = x.shape[1] - 1
    total = 0.0
    for k in range(last):
        first, second, third = axis[0] * x[0, k], axis[1] * x[1, k], axis[2] * x[2, k]
        out[k] = first + second + third
        total += abs(first) + abs(second) + abs(third)
    length = math.sqrt(axis[0] * axis[0] + axis[1] * axis[1] + axis[2] * axis[2])
    out[last] = length * x[0, last] * _UP + total * 6.0 * _EPS + _TINY
