r"""Momentum regressors of a serial arm in outward-rounded interval arithmetic, derived from the kinetic energy.

Shares nothing with :mod:`safe_sysid.dynamics.recursion` (a recursion of spatial forces) and needs no Pinocchio. For
every link l by itself, everything seen in its own frame: ``Z_k`` is the axis of joint k <= l, ``J_k = Z_k x (p_l -
p_k)``; of a prismatic joint ``J_k`` is its axis and ``Z_k = 0``. ``W_k`` and ``V_k`` are the sums of ``Z_i qd_i`` and
``J_i qd_i`` over i <= k, so that ``W = W_l`` and ``V = V_l`` are the velocities of the link and ``T = m V.V/2 + V.(W
x mc) + W.I W/2``.

- ``p_i = dT/dqd_i``: the derivatives of (V, W) are ``(J_i, Z_i)``.
- ``dT/dq_i``: seen from the link, joint i turns or shifts, the other way, what the joints up to i contribute:
  ``V' = V_i x Z_i + W_i x J_i`` and ``W' = W_i x Z_i`` (Jacobi's identity joins the motion of axes and of levers).
- gravity G, in the link's frame: ``-dU/dq_i = m G.J_i + mc.(G x Z_i)``.

A directional derivative (V', W') of T is ``m V.V' + mc.(V' x W + V x W') + W'.I W``: the ten columns of link l.

A rotor that turns about z in link l, geared to joint j with ``gear = 1 / ratio``, adds ``gear qd_j z.W`` to the energy
for each unit of Ia_j: ``gear qd_j z.Z_i`` to p_i and ``gear qd_j z.W'`` to dT/dq_i for i <= l, and ``gear z.W`` to p_j
unless torques are measured behind j's gear. These make one more column per motor, after the rigid ones.

What is enclosed: all q, qd in their intervals, and all exact rotations and unit axes within :data:`PLACEMENT_ERROR`
of the floats of the kinematics, entry by entry. Translations and gravity are exact floats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.intervals import check_interval, cos_interval, iadd, imul, isub, sin_interval
from safe_sysid.robot.model import Kinematics

__all__ = [
    "PLACEMENT_ERROR",
    "IntervalKinematics",
    "IntervalMotors",
    "add_columns",
    "along_spin",
    "columns_kernel",
    "interval_kinematics",
    "interval_momentum",
    "interval_momentum_rate",
    "link_motions",
    "local_frames",
    "motion_cross",
]


#: A float rotation matrix is orthogonal, a float axis a unit vector, only up to rounding: the true one is within this.
PLACEMENT_ERROR = 2.0**-49


class IntervalMotors(NamedTuple):
    """Rotors that turn in moving links, M of them; last axis of intervals: lower, upper."""

    joint: IntArray  #: (M,) indices
    carrier: IntArray  #: (M,) indices
    gear: FloatArray  #: (M, 2)
    axis: FloatArray  #: (M, 3, 2) in the carrier's frame
    own: bool  #: whether a joint's row holds what its own rotor does


#: rotation (n, 3, 3, 2), translation (n, 3), axis (n, 3, 2), gravity (3,), sliding (n,), motors; last axis of
#: intervals: lower, upper.
IntervalKinematics = tuple[FloatArray, FloatArray, FloatArray, FloatArray, BoolArray, IntervalMotors]


def interval_kinematics(kin: Kinematics, own: bool = True) -> IntervalKinematics:
    """Enclose the placements, after checking that exact rotations and unit axes exist within the enclosure.

    A matrix with ``|R^T R - 1|_F <= d`` has singular values within d of 1, so its polar factor is within d in
    the Frobenius norm, and so in every entry; d is computed here with an error below 1e-15.

    ``own``: whether a joint's row holds what its own rotor does.

    Raises:
        ModelError: a rotation that is not orthogonal, or an axis that is no unit vector, up to rounding.
    """
    rotation, axis = np.array(kin.rotation, float), np.array(kin.axis, float)
    spins = np.array(kin.motors.axis, float).reshape(-1, 3)
    for j, length in zip(kin.motors.joint, np.linalg.norm(spins, axis=1), strict=True):
        if not abs(length - 1.0) <= 1e-14:
            raise ModelError(f"motor of joint {j}: axis has length {length!r}: expected a unit vector to 1e-14")
    for j in range(len(axis)):
        defect = float(np.linalg.norm(rotation[j].T @ rotation[j] - np.eye(3)))
        if not (defect <= 1e-14 and np.linalg.det(rotation[j]) > 0.0):
            raise ModelError(f"joint {j}: rotation is off by {defect:.1e}: expected a rotation to 1e-14")
        length = float(np.linalg.norm(axis[j]))
        if not abs(length - 1.0) <= 1e-14:
            raise ModelError(f"joint {j}: axis has length {length!r}: expected a unit vector to 1e-14")
    error = max(
        PLACEMENT_ERROR,
        max(float(np.linalg.norm(r.T @ r - np.eye(3))) for r in rotation) + 1e-15,
        float(np.max(np.abs(np.linalg.norm(np.vstack([axis, spins]), axis=1) - 1.0))) + 1e-15,
    )

    def around(values: FloatArray) -> FloatArray:
        lower, upper = np.nextafter(values - error, -np.inf), np.nextafter(values + error, np.inf)
        return np.ascontiguousarray(np.stack([np.maximum(lower, -1.0), np.minimum(upper, 1.0)], axis=-1))

    translation, gravity = np.array(kin.translation, float), np.array(kin.gravity, float)
    gear = np.array(kin.motors.gear, float)
    motors = IntervalMotors(
        np.array(kin.motors.joint, np.int64),
        np.array(kin.motors.carrier, np.int64),
        np.stack([np.nextafter(gear, -np.inf), np.nextafter(gear, np.inf)], axis=-1),
        around(spins),
        own,
    )
    return around(rotation), translation, around(axis), gravity, np.array(kin.sliding), motors


@njit(cache=True)
def _cross(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """``out = a x b``, each (3, 2); out must not alias."""
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        pl, ph = imul(a[j, 0], a[j, 1], b[k, 0], b[k, 1])
        ql, qh = imul(a[k, 0], a[k, 1], b[j, 0], b[j, 1])
        out[i, 0], out[i, 1] = isub(pl, ph, ql, qh)


@njit(cache=True)
def _dot(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """``a . b``."""
    sl, sh = imul(a[0, 0], a[0, 1], b[0, 0], b[0, 1])
    for i in range(1, 3):
        pl, ph = imul(a[i, 0], a[i, 1], b[i, 0], b[i, 1])
        sl, sh = iadd(sl, sh, pl, ph)
    return sl, sh


@njit(cache=True)
def _turn(matrix: FloatArray, vector: FloatArray, out: FloatArray) -> None:
    """``out = matrix @ vector``."""
    for i in range(3):
        out[i, 0], out[i, 1] = _dot(matrix[i], vector)


@njit(cache=True)
def _product(a: FloatArray, b: FloatArray, out: FloatArray, transposed: bool) -> None:
    """``out = a @ b``, or ``a @ b^T``, of (3, 3, 2), cut to [-1, 1]: all are rotations."""
    for i in range(3):
        for j in range(3):
            column = b[j] if transposed else b[:, j]
            sl, sh = _dot(a[i], column)
            out[i, j, 0], out[i, j, 1] = max(sl, -1.0), min(sh, 1.0)


@njit(cache=True)
def _axis_turn(axis: FloatArray, ql: float, qh: float, out: FloatArray) -> None:
    """Rotation about a unit axis by an angle: ``c + (1 - c) a a^T + s [a]``; ``c + (1-c) x^2 = x^2 + c (1-x^2)``."""
    cl, ch = cos_interval(ql, qh)
    sl, sh = sin_interval(ql, qh)
    tl, th = isub(1.0, 1.0, cl, ch)
    for i in range(3):
        for j in range(3):
            pl, ph = imul(axis[i, 0], axis[i, 1], axis[j, 0], axis[j, 1])
            if i == j:
                pl = max(pl, 0.0)  # a square
                rl, rh = isub(1.0, 1.0, pl, ph)
                rl, rh = imul(cl, ch, rl, rh)
                out[i, j, 0], out[i, j, 1] = iadd(pl, ph, rl, rh)
            else:
                k = 3 - i - j
                al, ah = imul(tl, th, pl, ph)
                bl, bh = imul(sl, sh, axis[k, 0], axis[k, 1])
                if (j - i) % 3 == 1:
                    out[i, j, 0], out[i, j, 1] = isub(al, ah, bl, bh)
                else:
                    out[i, j, 0], out[i, j, 1] = iadd(al, ah, bl, bh)


@njit(cache=True)
def local_frames(
    rotation: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    sliding: BoolArray,
    q: FloatArray,
    local: FloatArray,
    steps: FloatArray,
) -> None:
    """``local`` (n, 3, 3, 2), ``steps`` (n, 3, 2): every joint frame in the one before it, at positions q (n, 2)."""
    turn, along = np.empty((3, 3, 2)), np.empty((3, 2))
    for j in range(axis.shape[0]):
        for i in range(3):
            steps[j, i, 0] = steps[j, i, 1] = translation[j, i]
        if not sliding[j]:
            _axis_turn(axis[j], q[j, 0], q[j, 1], turn)
            _product(rotation[j], turn, local[j], False)
            continue
        for i in range(3):
            for k in range(3):
                local[j, i, k, 0], local[j, i, k, 1] = rotation[j, i, k, 0], rotation[j, i, k, 1]
        _turn(rotation[j], axis[j], along)
        for i in range(3):
            lo, hi = imul(along[i, 0], along[i, 1], q[j, 0], q[j, 1])
            steps[j, i, 0], steps[j, i, 1] = iadd(steps[j, i, 0], steps[j, i, 1], lo, hi)


@njit(cache=True)
def link_motions(
    local: FloatArray,
    steps: FloatArray,
    axis: FloatArray,
    gravity: FloatArray,
    sliding: BoolArray,
    qd: FloatArray,
    link: int,
    screws: FloatArray,
    motions: FloatArray,
    fall: FloatArray,
) -> None:
    """Everything that moves a link, seen in its own frame; motions are (linear (3, 2), angular (3, 2)).

    Args:
        local: of :func:`local_frames`, as ``steps``.
        steps: m.
        axis: of :func:`interval_kinematics`, as the next two.
        gravity: m/s^2.
        sliding: (n,).
        qd: (n, 2).
        screws: (n, 2, 3, 2) result, ``(J_j, Z_j)`` for j up to the link.
        motions: (n, 2, 3, 2) result, ``(V_j, W_j)``: sums of ``qd_i (J_i, Z_i)`` over i <= j.
        fall: (2, 3, 2) result, ``(G, 0)``.
    """
    to_link, further = np.empty((3, 3, 2)), np.empty((3, 3, 2))
    offset, step, moved = np.zeros((3, 2)), np.empty((3, 2)), np.empty((3, 2))
    # From the link inwards: to_link takes vectors of frame j to the link's frame, offset is p_l - p_j there.
    own = 0 if sliding[link] else 1
    for i in range(3):
        for end in range(2):
            screws[link, own, i, end] = axis[link, i, end]
            screws[link, 1 - own, i, end] = offset[i, end]
        for j in range(3):
            to_link[i, j, 0] = to_link[i, j, 1] = 1.0 if i == j else 0.0
    for j in range(link, -1, -1):
        _product(to_link, local[j], further, True)
        to_link, further = further, to_link
        if j == 0:
            break
        _turn(to_link, steps[j], moved)
        for i in range(3):
            offset[i, 0], offset[i, 1] = iadd(offset[i, 0], offset[i, 1], moved[i, 0], moved[i, 1])
        if sliding[j - 1]:
            _turn(to_link, axis[j - 1], screws[j - 1, 0])
            screws[j - 1, 1] = 0.0
        else:
            _turn(to_link, axis[j - 1], screws[j - 1, 1])
            _cross(screws[j - 1, 1], offset, screws[j - 1, 0])
    for i in range(3):
        step[i, 0] = step[i, 1] = gravity[i]
    _turn(to_link, step, fall[0])
    fall[1] = 0.0
    for j in range(link + 1):
        for part in range(2):
            for i in range(3):
                lo, hi = imul(screws[j, part, i, 0], screws[j, part, i, 1], qd[j, 0], qd[j, 1])
                if j > 0:
                    lo, hi = iadd(lo, hi, motions[j - 1, part, i, 0], motions[j - 1, part, i, 1])
                motions[j, part, i, 0], motions[j, part, i, 1] = lo, hi


@njit(cache=True)
def motion_cross(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """``(a_v x b_w + a_w x b_v, a_w x b_w)`` of motions (2, 3, 2): what b's motion does to a, seen from the link."""
    first, second = np.empty((3, 2)), np.empty((3, 2))
    _cross(a[0], b[1], first)
    _cross(a[1], b[0], second)
    for i in range(3):
        out[0, i, 0], out[0, i, 1] = iadd(first[i, 0], first[i, 1], second[i, 0], second[i, 1])
    _cross(a[1], b[1], out[1])


@njit(cache=True)
def add_columns(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """``out`` (10, 2) += columns of the bilinear form ``m a_v.b_v + mc.(b_v x a_w + a_v x b_w) + b_w.I a_w``."""
    first, second = np.empty((3, 2)), np.empty((3, 2))
    lo, hi = _dot(a[0], b[0])
    out[0, 0], out[0, 1] = iadd(out[0, 0], out[0, 1], lo, hi)
    _cross(b[0], a[1], first)
    _cross(a[0], b[1], second)
    for i in range(3):
        lo, hi = iadd(first[i, 0], first[i, 1], second[i, 0], second[i, 1])
        out[1 + i, 0], out[1 + i, 1] = iadd(out[1 + i, 0], out[1 + i, 1], lo, hi)
    at = 4
    for i in range(3):  # Ixx, Ixy, Iyy, Ixz, Iyz, Izz: column by column of the upper triangle
        for j in range(i + 1):
            lo, hi = imul(b[1, j, 0], b[1, j, 1], a[1, i, 0], a[1, i, 1])
            if i != j:
                pl, ph = imul(b[1, i, 0], b[1, i, 1], a[1, j, 0], a[1, j, 1])
                lo, hi = iadd(lo, hi, pl, ph)
            out[at, 0], out[at, 1] = iadd(out[at, 0], out[at, 1], lo, hi)
            at += 1


@njit(cache=True)
def along_spin(motors: IntervalMotors, m: int, speed: FloatArray, vector: FloatArray) -> tuple[float, float]:
    """``gear speed (z . vector)`` of motor m, speed (2,) and vector (3, 2) in the carrier's frame."""
    lo, hi = _dot(motors.axis[m], vector)
    lo, hi = imul(lo, hi, motors.gear[m, 0], motors.gear[m, 1])
    return imul(lo, hi, speed[0], speed[1])


@njit(cache=True)
def columns_kernel(
    rotation: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    gravity: FloatArray,
    sliding: BoolArray,
    motors: IntervalMotors,
    q: FloatArray,
    qd: FloatArray,
    momentum: FloatArray,
    rate: FloatArray,
) -> None:
    """Rigid columns of W_m and W_c, and those of motors, at N states; either result may be empty and is left out.

    Args:
        rotation: of :func:`interval_kinematics`, as the next five.
        translation: m.
        axis: unit vectors.
        gravity: m/s^2.
        sliding: (n,).
        q: (N, n, 2) intervals, rad.
        qd: (N, n, 2) likewise, rad/s.
        momentum: (N, n, 10 n + M, 2) or (0, n, 10 n + M, 2) result, zero at the start.
        rate: likewise.
    """
    n = axis.shape[0]
    local, steps = np.empty((n, 3, 3, 2)), np.empty((n, 3, 2))
    screws, motions, fall = np.empty((n, 2, 3, 2)), np.empty((n, 2, 3, 2)), np.empty((2, 3, 2))
    turned, one = np.empty((2, 3, 2)), np.ones(2)
    for k in range(q.shape[0]):
        local_frames(rotation, translation, axis, sliding, q[k], local, steps)
        for link in range(n):
            link_motions(local, steps, axis, gravity, sliding, qd[k], link, screws, motions, fall)
            for i in range(link + 1):
                if momentum.shape[0] > 0:
                    add_columns(motions[link], screws[i], momentum[k, i, PER_LINK * link : PER_LINK * (link + 1)])
                if rate.shape[0] > 0:
                    columns = rate[k, i, PER_LINK * link : PER_LINK * (link + 1)]
                    motion_cross(motions[i], screws[i], turned)
                    add_columns(motions[link], turned, columns)
                    add_columns(fall, screws[i], columns)
            for m in range(motors.joint.shape[0]):
                if motors.carrier[m] != link:
                    continue
                driven, c = motors.joint[m], PER_LINK * n + m
                for i in range(link + 1):
                    if momentum.shape[0] > 0:
                        lo, hi = along_spin(motors, m, qd[k, driven], screws[i, 1])
                        momentum[k, i, c, 0], momentum[k, i, c, 1] = lo, hi
                    if rate.shape[0] > 0:
                        motion_cross(motions[i], screws[i], turned)
                        lo, hi = along_spin(motors, m, qd[k, driven], turned[1])
                        rate[k, i, c, 0], rate[k, i, c, 1] = lo, hi
                if momentum.shape[0] > 0 and motors.own:
                    lo, hi = along_spin(motors, m, one, motions[link, 1])
                    momentum[k, driven, c, 0], momentum[k, driven, c, 1] = lo, hi


def _states(n: int, *arrays: FloatArray) -> list[FloatArray]:
    out = []
    for lower, upper in zip(arrays[::2], arrays[1::2], strict=True):
        both = np.stack([np.atleast_2d(np.asarray(x, float)) for x in (lower, upper)], axis=-1)
        if both.ndim != 3 or both.shape[1] != n or not np.all(np.isfinite(both)):
            raise ParameterError(f"states of shape {both.shape[:-1]}: expected finite numbers, (N, {n})")
        check_interval(both[..., 0].ravel(), both[..., 1].ravel(), "states")
        out.append(np.ascontiguousarray(both))
    return out


def _batch(
    kin: Kinematics, states: tuple[FloatArray, FloatArray, FloatArray, FloatArray], momentum: bool
) -> tuple[FloatArray, FloatArray]:
    n = len(kin.axis)
    q, qd = _states(n, *states)
    columns = PER_LINK * n + len(kin.motors.joint)
    out, none = np.zeros((len(q), n, columns, 2)), np.zeros((0, n, columns, 2))
    columns_kernel(*interval_kinematics(kin), q, qd, *((out, none) if momentum else (none, out)))
    return out[..., 0], out[..., 1]


def interval_momentum(
    kin: Kinematics, q_lower: FloatArray, q_upper: FloatArray, qd_lower: FloatArray, qd_upper: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds (N, n, 10 n + M) of W_m's rigid columns, and M motors', over all states of N boxes.

    Args:
        q_lower: (N, n) rad.
        q_upper: (N, n) rad.
        qd_lower: (N, n) rad/s.
        qd_upper: (N, n) rad/s.

    Raises:
        ParameterError: shapes, numbers that are not finite, or lower > upper.
        ModelError: kinematics that are no rotations and unit axes up to rounding.
    """
    return _batch(kin, (q_lower, q_upper, qd_lower, qd_upper), True)


def interval_momentum_rate(
    kin: Kinematics, q_lower: FloatArray, q_upper: FloatArray, qd_lower: FloatArray, qd_upper: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """As :func:`interval_momentum`, for the rigid columns of W_c (N m)."""
    return _batch(kin, (q_lower, q_upper, qd_lower, qd_upper), False)
