r"""Slotine-Li recursion on affine forms: the compiled part of :mod:`safe_sysid.reachability.torque`.

Per link, in its own joint frame: angular velocities ``w`` (of qd) and ``u`` (of qd_a), the polarised centripetal matrix
``Q_ab = (w_a u_b + u_a w_b) / 2``, angular acceleration ``alpha`` and the *classical* acceleration ``a`` of the origin
(minus gravity). With the link's ten parameters ``m, h, I``:

``f = m a + alpha x h + Q h - tr(Q) h``,  ``n = h x a + I alpha + (Q : I)``,

where ``(Q : I) = (w x I u + u x I w) / 2`` is linear in Q. That is Newton-Euler polarised in (qd, qd_a), which is
what Christoffel's C needs, without spatial vectors: code and formulas differ from :mod:`safe_sysid.dynamics.recursion`.

A rotor on a moving link (:class:`~safe_sysid.robot.model.Motors`) adds to the column of its inertia, per unit, the
moment ``gear (qdd_a z + (qd u x z + qd_a w x z) / 2)`` on the carrier and ``gear z . alpha`` on its own joint; z in
the carrier's frame, w, u and alpha the carrier's, the rates those of the joint that it drives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS
from safe_sysid.reachability.affine import add_scaled, put, reach
from safe_sysid.reachability.entries import inner, norm_and_size
from safe_sysid.reachability.magnitudes import add_magnitude, quadratic_bound
from safe_sysid.reachability.rotations import to_ball, vector_add_cross, vector_add_scaled, vector_project
from safe_sysid.reachability.turns import apply_matrix, joint_matrix, small_turn
from safe_sysid.robot.model import Motors

__all__ = ["EnclosedArm", "EnclosedLaw", "EnclosedMotion", "TorqueForms", "torque_kernel"]

_EPS = 2.0**-52
_TINY = 1e-150


class EnclosedArm(NamedTuple):
    """The arm: ``parts``, ``error`` and ``stretch`` are from :func:`rotation_parts`, the rest its other kinematics."""

    parts: FloatArray
    error: float
    stretch: float
    translation: FloatArray
    axis: FloatArray
    gravity: FloatArray
    motors: Motors


class EnclosedMotion(NamedTuple):
    """M cells of a motion."""

    #: q, qd, qd_a, qdd_a: (M, n, 5) centre, time, e, r, remainder (of the own joint's errors only)
    q: FloatArray
    qd: FloatArray
    qd_a: FloatArray
    qdd_a: FloatArray
    sigma: FloatArray  #: (M, n, 2) range of the friction sign


class EnclosedLaw(NamedTuple):
    """The box, ``mid`` and ``rad`` (14 n,), and the law: K_d in ``damping`` (n,), bounds ``r_bound`` (n,)."""

    mid: FloatArray
    rad: FloatArray
    damping: FloatArray
    r_bound: FloatArray


class TorqueForms(NamedTuple):
    """What the kernel fills."""

    nominal: FloatArray  #: (M, n, K + 2), forms of ``W_s mid + K_d r``
    spread: FloatArray  #: (M, n, K + 2), forms above ``sum_p |W_jp| rad_p``
    regressor: FloatArray  #: (M, n, 14 n, 2), ranges of W_s; (0, n, 14 n, 2) if they are not wanted


@njit(cache=True, nogil=True)
def _products(
    left: FloatArray, right: FloatArray, n: int, first: int, last: int, outs: FloatArray, row: int, out: int
) -> None:
    """``outs[row, out] = sum_i left[0, i] right[0, i]`` of forms whose remainders are component-wise."""
    rest = left.shape[2] - 1
    private, total = 0.0, 0.0
    for i in range(left.shape[1]):
        x, y = left[0, i], right[0, i]
        x_reach, y_reach = reach(x, n), reach(y, n)
        private += x[rest] * (abs(y[0]) + y_reach + y[rest]) + (abs(x[0]) + x_reach) * y[rest]
        # Sums of n magnitudes are at most sqrt(n) times the Euclidean ones.
        total += (abs(x[0]) + n * x_reach + x[rest]) * (abs(y[0]) + n * y_reach + y[rest])
    zero = np.int64(0)
    inner(left, zero, right, zero, zero, left.shape[1], n, first, first, last, private, total, outs, row, out)


@njit(cache=True, nogil=True)
def _centripetal(
    w: FloatArray, u: FloatArray, n: int, last: int, left: FloatArray, right: FloatArray, out: FloatArray
) -> None:
    """``out`` (3, 3, K + 2) = symmetric part of ``w u^T``, rates of the first ``last`` joints.

    ``left``, ``right`` (1, 2, K + 2) are work space.
    """
    for a in range(3):
        for b in range(a, 3):
            for k in range(w.shape[1]):
                left[0, 0, k], left[0, 1, k] = 0.5 * w[a, k], 0.5 * w[b, k]  # halving a float is exact
            put(u[b], right[0, 0])
            put(u[a], right[0, 1])
            _products(left, right, n, np.int64(0), last, out, a, b)
            if a != b:
                put(out[a, b], out[b, a])


@njit(cache=True, nogil=True)
def _columns(
    alpha: FloatArray,
    acc: FloatArray,
    q: FloatArray,
    unit: FloatArray,
    work: FloatArray,
    force: FloatArray,
    moment: FloatArray,
) -> None:
    """Force (4, 3, K + 2) of the parameters m, hx, hy, hz and moment (10, 3, K + 2) of all ten, at the link's frame.

    ``unit`` is the identity (3, 3); ``work`` a vector.
    """
    last = alpha.shape[1] - 1
    force[:] = 0.0
    moment[:] = 0.0
    for i in range(3):
        put(acc[i], force[0, i])
    for h in range(3):
        a, b = (h + 1) % 3, (h + 2) % 3
        # Q e_h - tr(Q) e_h, then alpha x e_h, and the moment e_h x acc.
        column = force[1 + h]
        put(q[a, h], column[a])
        put(q[b, h], column[b])
        add_scaled(q[a, a], -1.0, column[h])
        add_scaled(q[b, b], -1.0, column[h])
        to_ball(column)
        vector_add_cross(alpha, unit[h], 1.0, column)
        vector_add_cross(acc, unit[h], -1.0, moment[1 + h])
    # Ixx, Ixy, Iyy, Ixz, Iyz, Izz: I = E a symmetric unit; (w x E u)_i = eps_ijk w_j (E u)_k.
    for a in range(3):
        for b in range(a, 3):
            column = moment[4 + b * (b + 1) // 2 + a]
            work[:] = 0.0
            for turn in range(1 if a == b else 2):
                r, c = (a, b) if turn == 0 else (b, a)
                # E e_c = e_r: e_j x e_r Q_jc for each j, and alpha_c e_r.
                add_scaled(q[(r + 2) % 3, c], 1.0, column[(r + 1) % 3])
                add_scaled(q[(r + 1) % 3, c], -1.0, column[(r + 2) % 3])
                put(alpha[c], work[r])
            # |E| = 1: E alpha's private part is no longer than alpha's.
            work[:, last] = alpha[0, last]
            to_ball(column)
            vector_add_scaled(work, 1.0, column)


@njit(cache=True, nogil=True)
def _own_rate(
    w: FloatArray,
    u: FloatArray,
    axis: FloatArray,
    rates: FloatArray,
    n: int,
    joint: int,
    left: FloatArray,
    right: FloatArray,
    half: FloatArray,
    turned: FloatArray,
    out: FloatArray,
) -> None:
    """``out += (w x axis qd_a + u x axis qd) / 2``, w and u without the joint's own rate; ``rates`` (2, 5) qd_a, qd.

    ``left``, ``right`` (1, 2, K + 2), ``half`` (2, 3, K + 2) and ``turned`` (1, 3, K + 2) are work space.
    """
    half[:] = 0.0
    vector_add_cross(w, axis, 0.5, half[0])
    vector_add_cross(u, axis, 0.5, half[1])
    left[:] = 0.0
    turned[:] = 0.0
    for i in range(2):
        left[0, i, 0], left[0, i, 1], left[0, i, -1] = rates[i, 0], rates[i, 1], rates[i, 4]
        left[0, i, 2 + joint], left[0, i, 2 + n + joint] = rates[i, 2], rates[i, 3]
    for i in range(3):
        put(half[0, i], right[0, 0])
        put(half[1, i], right[0, 1])
        _products(left, right, n, joint, joint + 1, turned, np.int64(0), i)
    to_ball(turned[0])
    vector_add_scaled(turned[0], 1.0, out)


@njit(cache=True, nogil=True)
def _add_rate(rate: FloatArray, axis: FloatArray, n: int, joint: int, out: FloatArray) -> None:
    """``out += rate axis`` for a joint's motion (5,): centre, time, e, r, remainder."""
    last = out.shape[1] - 1
    total = 0.0
    for part in range(4):
        k = part if part < 2 else (2 + joint if part == 2 else 2 + n + joint)
        for i in range(3):
            out[i, k] += rate[part] * axis[i]
            total += abs(out[i, k]) + abs(rate[part])
    out[:, last] = (out[0, last] + rate[4]) * (1.0 + 16.0 * _EPS) + 8.0 * _EPS * total + _TINY


@njit(cache=True, nogil=True)
def torque_kernel(arm: EnclosedArm, motion: EnclosedMotion, law: EnclosedLaw, out: TorqueForms) -> None:
    """Enclose W_s theta over M cells: fill ``out``."""
    parts, parts_error, stretch, translation, axis, gravity, motors = arm
    q, qd, qd_a, qdd_a, sigma = motion
    mid, rad, damping, r_bound = law
    nominal, spread, regressor = out
    want_regressor = regressor.shape[0] > 0
    # Not literals: each combination of those would be compiled anew, for seconds.
    zero, three, inverse, forward = np.int64(0), np.int64(3), np.bool_(True), np.bool_(False)
    cells, n, size = nominal.shape
    # Of a rotation's entries: what rotation_parts declares, libm, and their sum in floats.
    error = parts_error + 64.0 * _EPS
    longest = stretch**n * (1.0 + 1e-12)
    mats = np.zeros((n, 3, 3))
    w, u = np.zeros((n, 3, size)), np.zeros((n, 3, size))
    alpha, acc = np.zeros((n, 3, size)), np.zeros((n, 3, size))
    cent = np.zeros((n, 3, 3, size))
    vec, unit = np.zeros((3, size)), np.eye(3)
    force, moment, column = np.zeros((4, 3, size)), np.zeros((10, 3, size)), np.zeros((10, 6, size))
    norms, totals = np.zeros((10, 2)), np.zeros((10, 2))
    screws, moved = np.zeros((n, 6, size)), np.zeros((3, size))
    own_f, own_n = np.zeros((n, 3, size)), np.zeros((n, 3, size))
    sum_f, sum_n = np.zeros((3, size)), np.zeros((3, size))
    entry, square = np.zeros(size), np.zeros((n, n))
    left, right, half = np.zeros((1, 2, size)), np.zeros((1, 2, size)), np.zeros((2, 3, size))
    turned, rates, reaches = np.zeros((1, 3, size)), np.zeros((2, 5)), np.zeros((n, mid.size))
    blocks, timed = np.zeros((n, 2, n, n)), np.zeros(n)
    entries = np.zeros((n, mid.size, size))
    reaction, carried = np.zeros((1, 3, size)), np.zeros((n, size))
    for m in range(cells):
        wide = spread[m]
        wide[:], nominal[m], blocks[:], timed[:] = 0.0, 0.0, 0.0, 0.0
        for link in range(n):
            joint_matrix(parts[link], q[m, link, 0], mats[link])
            t = translation[link]
            # Screws of all joints before, at this link's origin: s + z x t in the parent's frame, then turned.
            for j in range(link):
                z, s = screws[j, :3], screws[j, 3:]
                vector_add_cross(z, t, 1.0, s)
                for v in (z, s):
                    # What the turn adds to must be zero.
                    moved[:] = 0.0
                    apply_matrix(mats[link], inverse, error, stretch, v, n, j + 1, link, zero, moved)
                    small_turn(moved, axis[link], q[m, link], -1.0, link, n, j + 1, link, zero)
                    for i in range(3):
                        v[i, 0], v[i, 1] = moved[i, 0], moved[i, 1]
                        v[i, size - 1] = moved[i, size - 1]
                        for k in range(2 + j + 1, 2 + link + 1):
                            v[i, k] = moved[i, k]
            screws[link] = 0.0
            for i in range(3):
                screws[link, i, 0] = axis[link, i]
            if link == 0:
                w[0], u[0], alpha[0], vec[:], acc[0] = 0.0, 0.0, 0.0, 0.0, 0.0
                for i in range(3):
                    vec[i, 0] = -gravity[i]
                apply_matrix(mats[0], inverse, error, stretch, vec, n, zero, zero, zero, acc[0])
                small_turn(acc[0], axis[0], q[m, 0], -1.0, zero, n, zero, zero, zero)
            else:
                # a + alpha x t + Q t - tr(Q) t in the parent's frame.
                vec[:] = 0.0
                for a in range(3):
                    for b in range(3):
                        add_scaled(cent[link - 1, a, b], t[b], vec[a])
                        add_scaled(cent[link - 1, b, b], -t[a], vec[a])
                to_ball(vec)
                vector_add_scaled(acc[link - 1], 1.0, vec)
                vector_add_cross(alpha[link - 1], t, 1.0, vec)
                for which in range(4):
                    if which == 0:
                        source, target = w[link - 1], w[link]
                    elif which == 1:
                        source, target = u[link - 1], u[link]
                    elif which == 2:
                        source, target = alpha[link - 1], alpha[link]
                    else:
                        source, target = vec, acc[link]
                    target[:] = 0.0
                    apply_matrix(mats[link], inverse, error, stretch, source, n, zero, link, link, target)
                    small_turn(target, axis[link], q[m, link], -1.0, link, n, zero, link, link)
            # Before the joint's own rate is added (axis x axis = 0 anyway).
            put(qd_a[m, link], rates[0])
            put(qd[m, link], rates[1])
            _own_rate(w[link], u[link], axis[link], rates, n, link, left, right, half, turned, alpha[link])
            _add_rate(qdd_a[m, link], axis[link], n, link, alpha[link])
            _add_rate(qd[m, link], axis[link], n, link, w[link])
            _add_rate(qd_a[m, link], axis[link], n, link, u[link])
            _centripetal(w[link], u[link], n, link + 1, left, right, cent[link])
            _columns(alpha[link], acc[link], cent[link], unit, vec, force, moment)
            own_f[link], own_n[link] = 0.0, 0.0
            for c in range(10):
                value = mid[PER_LINK * link + c]
                if c < 4:
                    vector_add_scaled(force[c], value, own_f[link])
                vector_add_scaled(moment[c], value, own_n[link])
                for i in range(3):
                    put(moment[c, i], column[c, i])
                norms[c, 0], totals[c, 0] = norm_and_size(moment[c], n, zero, link + 1, link + 1)
                if c < 4:
                    for i in range(3):
                        put(force[c, i], column[c, 3 + i])
                    norms[c, 1], totals[c, 1] = norm_and_size(force[c], n, zero, link + 1, link + 1)
            for j in range(link + 1):
                z, s = screws[j, :3], screws[j, 3:]
                z_norm, z_total = norm_and_size(z, n, j + 1, link + 1, zero)
                s_norm, s_total = norm_and_size(s, n, j + 1, link + 1, zero)
                z_rho, s_rho = z[0, size - 1], s[0, size - 1]
                # z is an axis, turned: its length is known better than its form says. NaN is in the form, too.
                length = min(z_norm + z_rho, longest)
                for c in range(10):
                    p = PER_LINK * link + c
                    private = length * moment[c, 0, size - 1] + z_rho * norms[c, 0]
                    total = z_total * totals[c, 0]
                    if c < 4:
                        private += (s_norm + s_rho) * force[c, 0, size - 1] + s_rho * norms[c, 1]
                        total += s_total * totals[c, 1]
                    begin, end = (3 if c == 0 else 0), (6 if c < 4 else 3)
                    reaches[j, p] = inner(
                        screws, j, column, c, begin, end, n, j + 1, link + 1, link + 1, private, total, entries, j, p
                    )
                    lo, hi = add_magnitude(entries, j, p, reaches[j, p], link + 1, rad[p], timed, blocks, wide)
                    if want_regressor:
                        regressor[m, j, p, 0], regressor[m, j, p, 1] = lo, hi
            for motor in range(motors.joint.shape[0]):
                if motors.carrier[motor] != link:
                    continue
                # The rotor's moment on this link: on the joints up to it, by their screws.
                driven, z = motors.joint[motor], motors.axis[motor]
                p, active = ROTOR * n + driven, driven + 1
                put(qd_a[m, driven], rates[0])
                put(qd[m, driven], rates[1])
                vec[:], reaction[:] = 0.0, 0.0
                _own_rate(w[link], u[link], z, rates, n, driven, left, right, half, turned, vec)
                _add_rate(qdd_a[m, driven], z, n, driven, vec)
                vector_add_scaled(vec, motors.gear[motor], reaction[0])
                vector_add_scaled(reaction[0], mid[p], own_n[link])
                vector_project(alpha[link], z, carried[driven])
                norm, size_total = norm_and_size(reaction[0], n, zero, active, active)
                for j in range(link + 1):
                    z_norm, z_total = norm_and_size(screws[j, :3], n, j + 1, link + 1, zero)
                    z_rho = screws[j, 0, size - 1]
                    private = min(z_norm + z_rho, longest) * reaction[0, 0, size - 1] + z_rho * norm
                    reaches[j, p] = inner(
                        screws,
                        j,
                        reaction,
                        zero,
                        zero,
                        three,
                        n,
                        j + 1,
                        active,
                        active,
                        private,
                        z_total * size_total,
                        entries,
                        j,
                        p,
                    )
                    lo, hi = add_magnitude(entries, j, p, reaches[j, p], active, rad[p], timed, blocks, wide)
                    if want_regressor:
                        regressor[m, j, p, 0], regressor[m, j, p, 1] = lo, hi
        sum_f[:], sum_n[:] = 0.0, 0.0
        for link in range(n - 1, -1, -1):
            # Nominal: this link's force at theta_mid plus what its child passes down, summed before any rotation.
            vector_add_scaled(sum_f, 1.0, own_f[link])
            vector_add_scaled(sum_n, 1.0, own_n[link])
            vector_project(own_n[link], axis[link], nominal[m, link])
            if link > 0:
                small_turn(own_f[link], axis[link], q[m, link], 1.0, link, n, zero, n, n)
                small_turn(own_n[link], axis[link], q[m, link], 1.0, link, n, zero, n, n)
                apply_matrix(mats[link], forward, error, stretch, own_f[link], n, zero, n, n, sum_f)
                apply_matrix(mats[link], forward, error, stretch, own_n[link], n, zero, n, n, sum_n)
                # t x f
                vector_add_cross(sum_f, translation[link], -1.0, sum_n)
        for j in range(n):
            # Friction sign, velocity, rotor inertia, offset: one column each, on the diagonal.
            for kind in (COULOMB, VISCOUS, ROTOR, OFFSET):
                p = kind * n + j
                entry[:] = 0.0
                if kind == COULOMB:
                    lo, hi = sigma[m, j, 0], sigma[m, j, 1]
                    entry[0] = 0.5 * (lo + hi)
                    entry[size - 1] = max(hi - entry[0], entry[0] - lo) * (1.0 + 4.0 * _EPS)
                elif kind == OFFSET:
                    entry[0] = 1.0
                else:
                    rate = qd_a[m, j] if kind == VISCOUS else qdd_a[m, j]
                    entry[0], entry[1], entry[size - 1] = rate[0], rate[1], rate[4]
                    entry[2 + j], entry[2 + n + j] = rate[2], rate[3]
                    if kind == ROTOR:
                        for motor in range(motors.joint.shape[0]):
                            if motors.joint[motor] == j:
                                add_scaled(carried[j], motors.gear[motor], entry)
                add_scaled(entry, mid[p], nominal[m, j])
                put(entry, entries[j, p])
                reaches[j, p] = reach(entry, n)
                lo, hi = add_magnitude(entries, j, p, reaches[j, p], n, rad[p], timed, blocks, wide)
                if want_regressor:
                    regressor[m, j, p, 0], regressor[m, j, p, 1] = lo, hi
            entry[:] = 0.0
            entry[2 + n + j] = r_bound[j]
            add_scaled(entry, damping[j], nominal[m, j])
            # The quadratic is between zero and its bound: half of it is a shift.
            bound = 0.5 * quadratic_bound(timed[j], blocks, j, square)
            wide[j, 0] += bound
            wide[j, size - 1] += bound + 4.0 * _EPS * (abs(wide[j, 0]) + bound)
