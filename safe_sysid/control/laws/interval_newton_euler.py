r"""Interval Newton-Euler recursion: bounds of the torque over a box of parameters, as ARMOUR's law takes them.

Every quantity of the recursion is an interval with outward rounding (:mod:`safe_sysid.intervals`): motions are thin,
the forces carry the width of ``[m], [m c], [I]`` from link to link. The result holds ``W_s theta`` for every theta of
the box; it is wider than the exact range ``W_s [theta]``, because a parameter enters a link's force up to three times
and interval vectors grow when they are turned from frame to frame.

An interval vector is an array (3, 2), lower and upper bound last; a motion or force is (2, 3, 2), linear part first.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS
from safe_sysid.dynamics.spatial import friction_sign
from safe_sysid.intervals import cos_interval, down, iadd, imul, isub, sin_interval, up
from safe_sysid.robot.frames import unpacked
from safe_sysid.robot.model import PackedKinematics

__all__ = ["interval_newton_euler"]


@njit(cache=True)
def _plus(lo: float, hi: float, al: float, ah: float, bl: float, bh: float, sign: float) -> tuple[float, float]:
    """``[lo, hi] + sign [al, ah] [bl, bh]``, sign 1 or -1."""
    # Adding an exact zero is exact; rounding it outward would also fill the recursion with slow subnormal numbers.
    if (al == 0.0 and ah == 0.0) or (bl == 0.0 and bh == 0.0):
        return lo, hi
    pl, ph = imul(al, ah, bl, bh)
    if sign > 0.0:
        return iadd(lo, hi, pl, ph)
    return isub(lo, hi, pl, ph)


@njit(cache=True)
def _add_cross(a: FloatArray, b: FloatArray, sign: float, out: FloatArray) -> None:
    """``out += sign a x b``; out must not alias."""
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        lo, hi = out[i, 0], out[i, 1]
        lo, hi = _plus(lo, hi, a[j, 0], a[j, 1], b[k, 0], b[k, 1], sign)
        out[i, 0], out[i, 1] = _plus(lo, hi, a[k, 0], a[k, 1], b[j, 0], b[j, 1], -sign)


@njit(cache=True)
def _add_scaled(sl: float, sh: float, a: FloatArray, out: FloatArray) -> None:
    """``out += [sl, sh] a``."""
    for i in range(3):
        out[i, 0], out[i, 1] = _plus(out[i, 0], out[i, 1], a[i, 0], a[i, 1], sl, sh, 1.0)


@njit(cache=True)
def _add_turned(rotation: FloatArray, a: FloatArray, transposed: bool, out: FloatArray) -> None:
    """``out += rotation a`` (or its transpose's) for an interval matrix (3, 3, 2)."""
    for i in range(3):
        lo, hi = out[i, 0], out[i, 1]
        for k in range(3):
            r = rotation[k, i] if transposed else rotation[i, k]
            lo, hi = _plus(lo, hi, r[0], r[1], a[k, 0], a[k, 1], 1.0)
        out[i, 0], out[i, 1] = lo, hi


@njit(cache=True)
def _thin(values: FloatArray, out: FloatArray) -> None:
    """Copy a float vector (3,) to an interval vector."""
    for i in range(3):
        out[i, 0] = values[i]
        out[i, 1] = values[i]


@njit(cache=True)
def _rotation(fixed: FloatArray, axis: FloatArray, angle: float, turn: FloatArray, out: FloatArray) -> None:
    """``out = fixed exp([axis] angle)`` (3, 3, 2) by Rodrigues' formula; ``turn`` (3, 3, 2) is scratch."""
    cl, ch = cos_interval(angle, angle)
    sl, sh = sin_interval(angle, angle)
    tl, th = isub(1.0, 1.0, cl, ch)
    for i in range(3):
        for k in range(3):
            lo, hi = (cl, ch) if i == k else (0.0, 0.0)
            al, ah = imul(axis[i], axis[i], axis[k], axis[k])
            lo, hi = _plus(lo, hi, tl, th, al, ah, 1.0)
            if i != k:
                m = 3 - i - k
                lo, hi = _plus(lo, hi, sl, sh, axis[m], axis[m], -1.0 if (k - i) % 3 == 1 else 1.0)
            turn[i, k, 0], turn[i, k, 1] = lo, hi
    for i in range(3):
        for k in range(3):
            lo, hi = 0.0, 0.0
            for m in range(3):
                lo, hi = _plus(lo, hi, fixed[i, m], fixed[i, m], turn[m, k, 0], turn[m, k, 1], 1.0)
            out[i, k, 0], out[i, k, 1] = lo, hi


@njit(cache=True)
def _placement(
    fixed: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    sliding: bool,
    q: float,
    turn: FloatArray,
    rotation: FloatArray,
    shift: FloatArray,
) -> None:
    """Frame of a joint in the one before it, (3, 3, 2) and (3, 2); ``turn`` (3, 3, 2) is scratch."""
    _thin(translation, shift)
    if not sliding:
        _rotation(fixed, axis, q, turn, rotation)
        return
    for i in range(3):
        lo, hi = 0.0, 0.0
        for k in range(3):
            rotation[i, k, 0] = rotation[i, k, 1] = fixed[i, k]
            lo, hi = _plus(lo, hi, fixed[i, k], fixed[i, k], axis[k], axis[k], 1.0)
        shift[i, 0], shift[i, 1] = _plus(shift[i, 0], shift[i, 1], lo, hi, q, q, 1.0)


@njit(cache=True)
def _to_child(rotation: FloatArray, shift: FloatArray, motion: FloatArray, moved: FloatArray, out: FloatArray) -> None:
    """Motion (2, 3, 2) of the parent's origin, re-expressed in and at the child; ``moved`` (3, 2) is scratch."""
    for i in range(3):
        moved[i, 0], moved[i, 1] = motion[0, i, 0], motion[0, i, 1]
    _add_cross(motion[1], shift, 1.0, moved)
    out[:] = 0.0
    _add_turned(rotation, moved, True, out[0])
    _add_turned(rotation, motion[1], True, out[1])


@njit(cache=True)
def _momentum(theta: FloatArray, link: int, v: FloatArray, out: FloatArray) -> None:
    """Spatial momentum (2, 3, 2) of a link with parameters ``theta`` (14 n, 2) that moves with ``v``."""
    p = theta[PER_LINK * link : PER_LINK * (link + 1)]
    out[:] = 0.0
    _add_scaled(p[0, 0], p[0, 1], v[0], out[0])
    _add_cross(v[1], p[1:4], 1.0, out[0])
    _add_cross(p[1:4], v[0], 1.0, out[1])
    rows = ((4, 5, 7), (5, 6, 8), (7, 8, 9))
    for i in range(3):
        lo, hi = out[1, i, 0], out[1, i, 1]
        for k in range(3):
            entry = p[rows[i][k]]
            lo, hi = _plus(lo, hi, entry[0], entry[1], v[1, k, 0], v[1, k, 1], 1.0)
        out[1, i, 0], out[1, i, 1] = lo, hi


@njit(cache=True)
def _add_half_force_cross(v: FloatArray, h: FloatArray, part: FloatArray, out: FloatArray) -> None:
    """``out += v x* h / 2``; ``part`` (3, 2) is scratch. Halving is exact."""
    part[:] = 0.0
    _add_cross(v[1], h[0], 1.0, part)
    for i in range(3):
        out[0, i, 0], out[0, i, 1] = iadd(out[0, i, 0], out[0, i, 1], 0.5 * part[i, 0], 0.5 * part[i, 1])
    part[:] = 0.0
    _add_cross(v[1], h[1], 1.0, part)
    _add_cross(v[0], h[0], 1.0, part)
    for i in range(3):
        out[1, i, 0], out[1, i, 1] = iadd(out[1, i, 0], out[1, i, 1], 0.5 * part[i, 0], 0.5 * part[i, 1])


@njit(cache=True)
def interval_newton_euler(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    friction_velocity: FloatArray,
    transition: float,
    with_offset: bool,
    theta: FloatArray,
    torque: FloatArray,
) -> None:
    """Fill ``torque`` (n, 2) with bounds, N m, of :func:`..newton_euler.newton_euler` over a box.

    Args:
        arm: packed, exact as it is; with zero gravity, no velocities and no offset the inertia is left:
            then ``H qdd_a``.
        q: (n,) rad.
        qd: (n,) first velocity of the Coriolis form, rad/s.
        qd_a: (n,) its second velocity, rad/s.
        qdd_a: (n,) rad/s^2.
        friction_velocity: (n,) rad/s.
        transition: friction transition velocity, rad/s.
        with_offset: whether the joints' offsets beta count.
        theta: (14 n, 2) lower and upper bounds of the parameters.
        torque: output.
    """
    kin = unpacked(arm)
    axis, motors = kin.axis, kin.motors
    n = axis.shape[0]
    rot = np.empty((n, 3, 3, 2))
    x, y, acc, force = (np.zeros((n, 2, 3, 2)), np.zeros((n, 2, 3, 2)), np.zeros((n, 2, 3, 2)), np.zeros((n, 2, 3, 2)))
    base, momentum = np.zeros((2, 3, 2)), np.empty((2, 3, 2))
    turn, part = np.empty((3, 3, 2)), np.empty((3, 2))
    shift, unit, product = np.empty((n, 3, 2)), np.empty((3, 2)), np.empty((3, 2))
    moment = np.empty((3, 2))
    for i in range(3):
        base[0, i, 0] = base[0, i, 1] = -kin.gravity[i]
    for j in range(n):
        sliding = np.isfinite(kin.travel[j, 0])
        _placement(kin.rotation[j], kin.translation[j], axis[j], sliding, q[j], turn, rot[j], shift[j])
        _thin(axis[j], unit)
        if j == 0:
            _to_child(rot[j], shift[j], base, part, acc[j])
        else:
            _to_child(rot[j], shift[j], x[j - 1], part, x[j])
            _to_child(rot[j], shift[j], y[j - 1], part, y[j])
            _to_child(rot[j], shift[j], acc[j - 1], part, acc[j])
        own = 0 if sliding else 1
        _add_scaled(qd[j], qd[j], unit, x[j, own])
        _add_scaled(qd_a[j], qd_a[j], unit, y[j, own])
        _add_scaled(qdd_a[j], qdd_a[j], unit, acc[j, own])
        # v x S: the linear part from v's angular part alone if S slides.
        for o in range(own + 1):
            source = 1 if sliding else o
            product[:] = 0.0
            _add_cross(x[j, source], unit, 1.0, product)
            _add_scaled(0.5 * qd_a[j], 0.5 * qd_a[j], product, acc[j, o])
            product[:] = 0.0
            _add_cross(y[j, source], unit, 1.0, product)
            _add_scaled(0.5 * qd[j], 0.5 * qd[j], product, acc[j, o])
        _momentum(theta, j, acc[j], force[j])
        _momentum(theta, j, y[j], momentum)
        _add_half_force_cross(x[j], momentum, part, force[j])
        _momentum(theta, j, x[j], momentum)
        _add_half_force_cross(y[j], momentum, part, force[j])
    reaction = np.zeros((n, 2))
    for m in range(motors.joint.shape[0]):
        j, c = motors.joint[m], motors.carrier[m]
        rotor, gear = theta[ROTOR * n + j], motors.gear[m]
        sl, sh = imul(rotor[0], rotor[1], gear, gear)
        _thin(motors.axis[m], unit)
        # The moment (qdd_a z + (qd u x z + qd_a w x z) / 2) on what carries the rotor, z . alpha on its own joint.
        moment[:] = 0.0
        _add_scaled(qdd_a[j], qdd_a[j], unit, moment)
        product[:] = 0.0
        _add_cross(y[c, 1], unit, 1.0, product)
        _add_scaled(0.5 * qd[j], 0.5 * qd[j], product, moment)
        product[:] = 0.0
        _add_cross(x[c, 1], unit, 1.0, product)
        _add_scaled(0.5 * qd_a[j], 0.5 * qd_a[j], product, moment)
        _add_scaled(sl, sh, moment, force[c, 1])
        lo, hi = 0.0, 0.0
        for i in range(3):
            lo, hi = _plus(lo, hi, unit[i, 0], unit[i, 1], acc[c, 1, i, 0], acc[c, 1, i, 1], 1.0)
        reaction[j, 0], reaction[j, 1] = _plus(0.0, 0.0, lo, hi, sl, sh, 1.0)
    for j in range(n - 1, -1, -1):
        lo, hi = reaction[j, 0], reaction[j, 1]
        own = 0 if np.isfinite(kin.travel[j, 0]) else 1
        for i in range(3):
            lo, hi = _plus(lo, hi, axis[j, i], axis[j, i], force[j, own, i, 0], force[j, own, i, 1], 1.0)
        v = friction_velocity[j]
        sign = friction_sign(v, transition)
        c, f = theta[COULOMB * n + j], theta[VISCOUS * n + j]
        r, b = theta[ROTOR * n + j], theta[OFFSET * n + j]
        lo, hi = _plus(lo, hi, c[0], c[1], max(down(sign), -1.0), min(up(sign), 1.0), 1.0)
        lo, hi = _plus(lo, hi, f[0], f[1], v, v, 1.0)
        lo, hi = _plus(lo, hi, r[0], r[1], qdd_a[j], qdd_a[j], 1.0)
        if with_offset:
            lo, hi = iadd(lo, hi, b[0], b[1])
        torque[j, 0], torque[j, 1] = lo, hi
        if j > 0:
            product[:] = 0.0
            _add_turned(rot[j], force[j, 0], False, product)
            for i in range(3):
                force[j - 1, 0, i, 0], force[j - 1, 0, i, 1] = iadd(
                    force[j - 1, 0, i, 0], force[j - 1, 0, i, 1], product[i, 0], product[i, 1]
                )
            _add_cross(shift[j], product, 1.0, force[j - 1, 1])
            _add_turned(rot[j], force[j, 1], False, force[j - 1, 1])
