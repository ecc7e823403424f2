"""Joint frames: placements of joints and forward kinematics, compiled and batched."""

from __future__ import annotations

import numpy as np
import pinocchio as pin  # not scipy.spatial: a node's start takes 0.3 s longer with it
from numba import njit
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.kinematics import NO_EXCESS, Kinematics, Motors, PackedKinematics

__all__ = [
    "as_batch",
    "forward_kinematics",
    "joint_placement",
    "quaternion_wxyz",
    "rotation_from_quaternion",
    "unpacked",
]


def quaternion_wxyz(rotation: ArrayLike) -> FloatArray:
    """Unit quaternions (w, x, y, z) of rotation matrices ``rotation`` (..., 3, 3). Returns (..., 4)."""
    matrices = np.asarray(rotation, dtype=np.float64)
    turns = [pin.Quaternion(matrix).coeffs() for matrix in matrices.reshape(-1, 3, 3)]
    return np.roll(np.reshape(turns, (*matrices.shape[:-2], 4)), 1, axis=-1)


def rotation_from_quaternion(quaternion: FloatArray) -> FloatArray:
    """Rotation matrix (3, 3) of a unit quaternion (x, y, z, w), the order of ROS messages."""
    x, y, z, w = quaternion
    return np.array(pin.Quaternion(w, x, y, z).toRotationMatrix())


@njit(cache=True, inline="always")
def unpacked(arm: PackedKinematics) -> Kinematics:
    """The arm of :attr:`Kinematics.packed`, in compiled code."""
    motors = arm[6]
    motors_of = Motors(motors[0], motors[1], motors[2], motors[3])
    return Kinematics(arm[0], arm[1], arm[2], arm[3], arm[4], arm[5], NO_EXCESS, motors_of)


@njit(cache=True)
def joint_rotation(fixed: FloatArray, axis: FloatArray, angle: float, out: FloatArray) -> None:
    """``out = fixed @ exp([axis] angle)`` (3, 3), Rodrigues' formula for a unit axis."""
    c, s = np.cos(angle), np.sin(angle)
    x, y, z = axis[0], axis[1], axis[2]
    t = 1.0 - c
    r00, r01, r02 = c + t * x * x, t * x * y - s * z, t * x * z + s * y
    r10, r11, r12 = t * x * y + s * z, c + t * y * y, t * y * z - s * x
    r20, r21, r22 = t * x * z - s * y, t * y * z + s * x, c + t * z * z
    for i in range(3):
        a, b, d = fixed[i, 0], fixed[i, 1], fixed[i, 2]
        out[i, 0] = a * r00 + b * r10 + d * r20
        out[i, 1] = a * r01 + b * r11 + d * r21
        out[i, 2] = a * r02 + b * r12 + d * r22


@njit(cache=True)
def joint_placement(
    fixed: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    sliding: bool,
    q: float,
    rotation: FloatArray,
    origin: FloatArray,
) -> None:
    """Frame of a joint in the one before it: ``rotation`` (3, 3) and ``origin`` (3,), at q rad or, if sliding, m."""
    if sliding:
        for i in range(3):
            for k in range(3):
                rotation[i, k] = fixed[i, k]
            origin[i] = translation[i] + q * (fixed[i, 0] * axis[0] + fixed[i, 1] * axis[1] + fixed[i, 2] * axis[2])
    else:
        joint_rotation(fixed, axis, q, rotation)
        for i in range(3):
            origin[i] = translation[i]


@njit(cache=True)
def kinematics_kernel(
    parent: IntArray,
    rotation: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    travel: FloatArray,
    q: FloatArray,
    r: FloatArray,
    p: FloatArray,
) -> None:
    """Joint frames in the world: ``r`` (N, n, 3, 3) and ``p`` (N, n, 3), of N positions ``q`` (N, n)."""
    n = axis.shape[0]
    local, shift = np.empty((3, 3)), np.empty(3)
    for k in range(q.shape[0]):
        for j in range(n):
            sliding = np.isfinite(travel[j, 0])
            joint_placement(rotation[j], translation[j], axis[j], sliding, q[k, j], local, shift)
            before = parent[j]
            if before < 0:
                for a in range(3):
                    p[k, j, a] = shift[a]
                    for b in range(3):
                        r[k, j, a, b] = local[a, b]
            else:
                for a in range(3):
                    p[k, j, a] = p[k, before, a]
                    for b in range(3):
                        p[k, j, a] += r[k, before, a, b] * shift[b]
                        r[k, j, a, b] = 0.0
                        for c in range(3):
                            r[k, j, a, b] += r[k, before, a, c] * local[c, b]


def as_batch(kin: Kinematics, *arrays: FloatArray) -> tuple[list[FloatArray], bool]:
    """Joint states (n,) or (N, n) as float64 arrays (N, n), C-ordered and writeable, and whether they were single.

    Kernels are compiled for this one kind of array.

    Raises:
        ParameterError: shapes do not match.
    """
    n = len(kin.axis)
    single = np.ndim(arrays[0]) == 1
    batch = [np.ascontiguousarray(np.atleast_2d(np.asarray(a, dtype=np.float64))) for a in arrays]
    batch = [a if a.flags.writeable else a.copy() for a in batch]
    for a in batch:
        if a.shape != batch[0].shape or a.shape[1] != n:
            raise ParameterError(f"joint states of shapes {[x.shape for x in batch]}: expected all (N, {n})")
    return batch, single


def forward_kinematics(kin: Kinematics, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Joint frames in the world: rotations (n, 3, 3) and origins (n, 3), with a leading N for (N, n) input."""
    (q,), single = as_batch(kin, q)
    n = len(kin.axis)
    r, p = np.empty((len(q), n, 3, 3)), np.empty((len(q), n, 3))
    # One by one: kin as a whole costs a single state half as much again on its way from Python.
    kinematics_kernel(kin.parent, kin.rotation, kin.translation, kin.axis, kin.travel, q, r, p)
    return (r[0], p[0]) if single else (r, p)
