"""Torque and inertia over a whole parameter box at many states, with slopes, for the optimiser: no guarantee."""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import COULOMB, PER_LINK
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.recursion import slotine_li_kernel
from safe_sysid.dynamics.spatial import cross
from safe_sysid.planning.costs.excitation import regressor_gradient
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import Kinematics, PackedKinematics
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["box_effort_kernel", "effort_slopes", "inertia_share_kernel", "share_slopes"]

_STEP = 1e-6


@njit(cache=True)
def box_effort_kernel(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    qdd: FloatArray,
    transition: float,
    mid: FloatArray,
    rad: FloatArray,
    inertia_lower: FloatArray,
    effort: FloatArray,
    measure: FloatArray,
) -> None:
    """Largest |torque| over the box, ``effort`` (N, n), and ``S = | |W| rad |_*``, ``measure`` (N,).

    The regressor of one state at a time stays in the cache; as a batch it would be megabytes.
    """
    n, size = q.shape[1], mid.shape[0]
    regressor = np.empty((1, n, size))
    for k in range(q.shape[0]):
        one = slice(k, k + 1)
        slotine_li_kernel(arm, q[one], qd[one], qd[one], qdd[one], transition, regressor)
        square = 0.0
        for j in range(n):
            middle, spread = 0.0, 0.0
            row = regressor[0, j]
            for p in range(size):
                middle += row[p] * mid[p]
                spread += abs(row[p]) * rad[p]
            effort[k, j] = abs(middle) + spread
            square += spread * spread / inertia_lower[j]
        measure[k] = np.sqrt(square)


@njit(cache=True)
def _largest_eigenvalue(matrix: FloatArray, x: FloatArray, y: FloatArray) -> float:
    """Of a symmetric positive semidefinite matrix, by power iteration: good to a few per cent or better."""
    n = matrix.shape[0]
    x[:] = 1.0
    value = 0.0
    for _ in range(15):
        length = 0.0
        for i in range(n):
            y[i] = 0.0
            for j in range(n):
                y[i] += matrix[i, j] * x[j]
            length += y[i] * y[i]
        length = np.sqrt(length)
        if length == 0.0:
            return 0.0
        value = length / np.sqrt(np.sum(x * x))
        for i in range(n):
            x[i] = y[i] / length
    return value


@njit(cache=True)
def inertia_share_kernel(
    axis: FloatArray, r: FloatArray, p: FloatArray, mid: FloatArray, rad: FloatArray, spare: FloatArray, out: FloatArray
) -> None:
    """Largest eigenvalue (N,) of ``D^-1/2 M D^-1/2``, D = diag(spare), M the inertia without rotors, over the box.

    As :func:`safe_sysid.dynamics.magnitudes.inertia_share` bounds it at a point: middle plus norm of the spread.
    """
    n = axis.shape[0]
    z, d, v = np.empty((n, 3)), np.empty(3), np.empty(3)
    lin, ang, c = np.empty((n, 3)), np.empty((n, 3)), np.empty(10)
    u, w = np.empty(3), np.empty(3)
    centre, spread = np.empty((n, n)), np.empty((n, n))
    x, y = np.empty(n), np.empty(n)
    for k in range(r.shape[0]):
        centre[:, :] = 0.0
        spread[:, :] = 0.0
        for i in range(n):
            for a in range(3):
                z[i, a] = r[k, i, a, 0] * axis[i, 0] + r[k, i, a, 1] * axis[i, 1] + r[k, i, a, 2] * axis[i, 2]
        for link in range(n):
            first = PER_LINK * link
            for i in range(link + 1):
                for a in range(3):
                    d[a] = p[k, link, a] - p[k, i, a]
                cross(z[i], d, v)
                for a in range(3):
                    rot = r[k, link]
                    lin[i, a] = rot[0, a] * v[0] + rot[1, a] * v[1] + rot[2, a] * v[2]
                    ang[i, a] = rot[0, a] * z[i, 0] + rot[1, a] * z[i, 1] + rot[2, a] * z[i, 2]
                for j in range(i + 1):
                    cross(lin[i], ang[j], u)
                    cross(lin[j], ang[i], w)
                    s, t = ang[i], ang[j]
                    c[0] = lin[i, 0] * lin[j, 0] + lin[i, 1] * lin[j, 1] + lin[i, 2] * lin[j, 2]
                    c[1], c[2], c[3] = u[0] + w[0], u[1] + w[1], u[2] + w[2]
                    c[4], c[6], c[9] = s[0] * t[0], s[1] * t[1], s[2] * t[2]
                    c[5] = s[0] * t[1] + s[1] * t[0]
                    c[7] = s[0] * t[2] + s[2] * t[0]
                    c[8] = s[1] * t[2] + s[2] * t[1]
                    for e in range(10):
                        centre[i, j] += c[e] * mid[first + e]
                        spread[i, j] += abs(c[e]) * rad[first + e]
        for i in range(n):
            for j in range(i + 1):
                scale = 1.0 / np.sqrt(spare[i] * spare[j])
                centre[i, j] *= scale
                spread[i, j] *= scale
                centre[j, i], spread[j, i] = centre[i, j], spread[i, j]
        out[k] = _largest_eigenvalue(centre, x, y) + _largest_eigenvalue(spread, x, y)


def effort_slopes(
    kin: Kinematics,
    state: tuple[FloatArray, FloatArray, FloatArray],
    transition: float,
    box: ParameterBox,
    inertia_lower: FloatArray,
    torque_at: IntArray,
    measure_at: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Derivatives of :func:`box_effort_kernel`'s results by q, qd and qdd, at some of the samples.

    The largest torque of a row is that of one corner of the box, which stays the same near by; so it is linear in the
    regressor, and the regressor's adjoint does the rest.

    Returns (B, n, 3, n) of the torques and (B, 3, n) of the measure.

    Args:
        state: position, velocity, acceleration, each (N, n).
        transition: of friction, rad/s.
        inertia_lower: (n,) weights of the measure.
        torque_at: (B, n) samples at which each joint's torque is asked for.
        measure_at: (B,) samples at which the measure is asked for.
    """
    blocks, n = torque_at.shape
    pairs = np.concatenate([torque_at.ravel(), measure_at])
    q, qd, qdd = (np.ascontiguousarray(x[pairs]) for x in state)
    regressor = dynamics_of(kin).torque_regressor(q, qd, qdd, transition)
    weight = np.zeros_like(regressor)
    rows, joints = np.arange(blocks * n), np.tile(np.arange(n), blocks)
    own = regressor[rows, joints]
    weight[rows, joints] = np.sign(own @ box.mid)[:, None] * box.mid + np.sign(own) * box.rad
    last = regressor[blocks * n :]
    spread = np.abs(last) @ box.rad
    norm = np.sqrt(np.square(spread) @ (1.0 / inertia_lower))
    share = spread / inertia_lower / np.maximum(norm, 1e-12)[:, None]
    weight[blocks * n :] = np.sign(last) * box.rad * share[:, :, None]
    by_state = regressor_gradient(kin, q, qd, qdd, weight)
    if transition > 0.0:
        # The costs take Coulomb's columns as constant; here they may be what limits a slow joint.
        sliding = (np.abs(qd) < transition) / transition
        by_state[:, 1] += weight[:, np.arange(n), COULOMB * n + np.arange(n)] * sliding
    return by_state[: blocks * n].reshape(blocks, n, 3, n), by_state[blocks * n :]


def share_slopes(kin: Kinematics, q: FloatArray, box: ParameterBox, spare: FloatArray) -> FloatArray:
    """Derivatives (N, n) of :func:`inertia_share_kernel`'s result by q (N, n): forward differences."""
    count, n = q.shape
    moved = np.repeat(q, n + 1, axis=0).reshape(count, n + 1, n)
    moved[:, 1:] += _STEP * np.eye(n)
    flat = moved.reshape(-1, n)
    (r, p), share = forward_kinematics(kin, flat), np.empty(len(flat))
    inertia_share_kernel(kin.axis, r, p, box.mid, box.rad, spare, share)
    by_joint = share.reshape(count, n + 1)
    return np.asarray((by_joint[:, 1:] - by_joint[:, :1]) / _STEP, dtype=np.float64)
