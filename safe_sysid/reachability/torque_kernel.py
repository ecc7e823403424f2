r"""Slotine-Li recursion on affine forms: the compiled part of :mod:`safe_sysid.reachability.torque`.

Per link, in its own joint frame: angular velocities ``w`` (of qd) and ``u`` (of qd_a), the polarised centripetal matrix
``Q_ab = (w_a u_b + u_a w_b) / 2``, angular acceleration ``alpha`` and the *classical* acceleration ``a`` of the origin
(minus gravity). With the link's ten parameters ``m, h, I``:

``f = m a + alpha x h + Q h - tr(Q) h``,  ``n = h x a + I alpha + (Q : I)``,

where ``(Q : I) = (w x I u + u x I w) / 2`` is linear in Q. That is Newton-Euler polarised in (qd, qd_a), which is what
Christoffel's C needs, written without spatial vectors: code and formulas differ from :mod:`safe_sysid.robot.regressors`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.reachability.affine import add_constant, add_scaled, affine_range, dot, mul, reach
from safe_sysid.reachability.rotations import (
    fill_rotation,
    rotate,
    to_ball,
    vector_add_along,
    vector_add_cross,
    vector_add_scaled,
    vector_project,
)

__all__ = ["torque_kernel"]

FloatArray = NDArray[np.float64]
_EPS = 2.0**-52
_TINY = 1e-150


@njit(cache=True)
def _centripetal(w: FloatArray, u: FloatArray, n: int, pair: FloatArray, swap: FloatArray, out: FloatArray) -> None:
    """``out`` (3, 3, K + 2) = symmetric part of ``w u^T``; ``pair``, ``swap`` (2, K + 2) are work space."""
    for a in range(3):
        for b in range(a, 3):
            if a == b:
                mul(w[a], u[a], n, out[a, a])
                continue
            pair[0], pair[1] = 0.5 * w[a], 0.5 * w[b]  # halving a float is exact
            swap[0], swap[1] = u[b], u[a]
            dot(pair, swap, n, out[a, b])
            out[b, a] = out[a, b]


@njit(cache=True)
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
    force[0] = acc
    for h in range(3):
        a, b = (h + 1) % 3, (h + 2) % 3
        # Q e_h - tr(Q) e_h, then alpha x e_h, and the moment e_h x acc.
        column = force[1 + h]
        column[a], column[b] = q[a, h], q[b, h]
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
                work[r] = alpha[c]
            # |E| = 1: E alpha's private part is no longer than alpha's.
            work[:, last] = alpha[0, last]
            to_ball(column)
            vector_add_scaled(work, 1.0, column)


@njit(cache=True)
def _accumulate_magnitude(w: FloatArray, radius: float, n: int, out: FloatArray) -> tuple[float, float]:
    """``out += radius |w|`` from above: by w itself where its sign is known, else by the chord of ``|.|`` over its range.

    Returns the range of w. A chord ``s w + b`` of a convex function over [lo, hi] lies above it if it does at both ends.
    """
    lo, hi = affine_range(w, n)
    if radius == 0.0:
        return lo, hi
    if lo >= 0.0:
        add_scaled(w, radius, out)
    elif hi <= 0.0:
        add_scaled(w, -radius, out)
    else:
        slope = (hi + lo) / (hi - lo)
        # NaN (from an overflow above) stays NaN in out, which then certifies nothing.
        offset = max(hi - slope * hi, -lo - slope * lo)
        offset += 8.0 * _EPS * (abs(hi) + abs(lo)) + _TINY
        step = radius * slope
        add_scaled(w, step, out)
        # |radius slope - step| |w| is below two units of radius |w|.
        add_constant(radius * offset + 4.0 * _EPS * radius * (abs(lo) + abs(hi)) + _TINY, out)
    return lo, hi


@njit(cache=True)
def _ball_eigenvalue(block: FloatArray, square: FloatArray) -> float:
    """Upper bound of the largest eigenvalue of a positive semidefinite block: ``|B^8|_F^(1/8)``, scaled by |B|_F.

    Rounding: each squaring errs by at most ``n gamma_n`` relative to its norm, which is at least that of the largest
    eigenvalue's power over sqrt(n); 1e-11 covers all. ``square`` is work space; block is destroyed.
    """
    n = block.shape[0]
    norm = 0.0
    for i in range(n):
        for k in range(n):
            norm += block[i, k] * block[i, k]
    norm = math.sqrt(norm)
    if not norm > 1e-100:
        return norm + 1e-100
    for i in range(n):
        for k in range(n):
            block[i, k] /= norm
    power = 1.0
    for _ in range(3):
        for i in range(n):
            for k in range(n):
                total = 0.0
                for h in range(n):
                    total += block[i, h] * block[h, k]
                square[i, k] = total
        block[:] = square
        power *= 0.5
    top = 0.0
    for i in range(n):
        for k in range(n):
            top += block[i, k] * block[i, k]
    return norm * math.sqrt(top) ** power * (1.0 + 1e-11)


@njit(cache=True)
def _measure(
    entries: FloatArray, rad: FloatArray, inverse_inertia: FloatArray, linear: FloatArray, block: FloatArray
) -> float:
    r"""Upper bound of ``S = sum_p rad_p |W_p|``, ``|W_p|^2 = sum_j W_jp^2 / inertia_j``, from forms (n, 14 n, K + 2).

    Columns cannot all be at their worst at once. With ``W_p = c + D eps + rho`` and any a > 0,
    ``|c + D eps| <= (|c + D eps|^2 + a^2) / (2 a)``: summed over p that is one quadratic in eps, bounded by its linear
    part's reach plus ``(sum over balls of sqrt(largest eigenvalue))^2`` (triangle inequality in the semi-norm of a
    positive semidefinite matrix). The sum of the columns' own bounds is the fall-back: the smaller of both counts.
    ``linear`` (K + 2) and ``block`` (4, n, n) are work space.
    """
    n, count, size = entries.shape
    last = size - 1
    single, constant, timed, magnitude = 0.0, 0.0, 0.0, 0.0
    linear[:] = 0.0
    block[:] = 0.0
    for p in range(count):
        if rad[p] == 0.0:
            continue
        centre, radius, rest = 0.0, 0.0, 0.0
        sup = 0.0
        # A link moves only the joints before it; the last four columns of a joint are on the diagonal.
        first_row, rows = (0, p // 10 + 1) if p < 10 * n else (p % n, p % n + 1)
        for j in range(first_row, rows):
            w = entries[j, p]
            r = reach(w, n)
            centre += w[0] * w[0] * inverse_inertia[j]
            radius += r * r * inverse_inertia[j]
            rest += w[last] * w[last] * inverse_inertia[j]
            top = abs(w[0]) + r + w[last]
            sup += top * top * inverse_inertia[j]
        single += rad[p] * math.sqrt(sup)
        # Any a > 0 will do; this one is good if eps is somewhere inside.
        a = math.sqrt(centre + 0.3 * radius) + 1e-100
        t = rad[p] / (2.0 * a)
        constant += t * (centre + a * a) + rad[p] * math.sqrt(rest)
        magnitude += t * (centre + radius) + rad[p] * (a + math.sqrt(rest))
        for j in range(first_row, rows):
            w = entries[j, p]
            weight = t * inverse_inertia[j]
            for k in range(1, last):
                linear[k] += 2.0 * weight * w[0] * w[k]
            timed += weight * w[1] * w[1]
            for i in range(n):
                first, second = weight * w[2 + i], weight * w[2 + n + i]
                for k in range(i + 1):
                    block[0, i, k] += first * w[2 + k]
                    block[1, i, k] += second * w[2 + n + k]
    for i in range(n):
        for k in range(i):
            block[0, k, i], block[1, k, i] = block[0, i, k], block[1, i, k]
    root = math.sqrt(timed) + math.sqrt(_ball_eigenvalue(block[0], block[2]))
    root += math.sqrt(_ball_eigenvalue(block[1], block[3]))
    joint = constant + reach(linear, n) + root * root
    # Fewer than 2000 roundings on any term; the terms of `linear` are below 2 t |c| |D| <= t (|c|^2 + |D|^2).
    slack = 1e-12 * (magnitude + single + root * root) + _TINY
    # A NaN in one of them must not be dropped by the comparison.
    if single != single or joint != joint:
        return math.nan
    return min(single, joint) + slack


@njit(cache=True)
def torque_kernel(
    parts: FloatArray,
    parts_error: float,
    stretch: float,
    translation: FloatArray,
    axis: FloatArray,
    gravity: FloatArray,
    q: FloatArray,
    qd: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    sigma: FloatArray,
    mid: FloatArray,
    rad: FloatArray,
    damping: FloatArray,
    r_form: FloatArray,
    inverse_inertia: FloatArray,
    want_regressor: bool,
    nominal: FloatArray,
    spread: FloatArray,
    measure: FloatArray,
    regressor: FloatArray,
) -> None:
    """Enclose W_s theta over M cells.

    Args:
        parts, parts_error, stretch: from :func:`rotation_parts`.
        translation, axis, gravity: kinematics.
        q, qd, qd_a, qdd_a: (M, n, K + 2) forms; sigma: (M, n, 2) range of the friction sign.
        mid, rad: (14 n,) of the parameter box; damping: (n,) K_d; r_form: (M, n, K + 2) form of r.
        inverse_inertia: (n,) upper bounds of 1 / inertia_lower.
        nominal: out (M, n, K + 2), form of ``W_s mid + K_d r``.
        spread: out (M, n, K + 2), form above ``sum_p |W_jp| rad_p``.
        measure: out (M,), upper bound of ``sum_p rad_p sqrt(sum_j W_jp^2 / inertia_j)``.
        regressor: out (M, n, 14 n, 2) ranges of W_s if wanted.
    """
    cells, n, size = q.shape
    rot, inv = np.zeros((n, 3, 3, size)), np.zeros((n, 3, 3, size))
    w, u = np.zeros((n, 3, size)), np.zeros((n, 3, size))
    alpha, acc = np.zeros((n, 3, size)), np.zeros((n, 3, size))
    cent = np.zeros((n, 3, 3, size))
    work, pair, swap, vec = np.zeros((2, size)), np.zeros((2, size)), np.zeros((2, size)), np.zeros((3, size))
    force, moment, turned = np.zeros((4, 3, size)), np.zeros((10, 3, size)), np.zeros((3, size))
    half, unit = np.zeros((2, 3, size)), np.eye(3)
    own_f, own_n = np.zeros((3, size)), np.zeros((3, size))
    sum_f, sum_n = np.zeros((3, size)), np.zeros((3, size))
    entry, linear, block = np.zeros(size), np.zeros(size), np.zeros((4, n, n))
    entries = np.zeros((n, 14 * n, size))
    for m in range(cells):
        for j in range(n):
            fill_rotation(parts[j], parts_error, q[m, j], n, work, rot[j], inv[j])
            if j == 0:
                w[0], u[0], alpha[0], vec[:] = 0.0, 0.0, 0.0, 0.0
                for i in range(3):
                    vec[i, 0] = -gravity[i]
                rotate(inv[0], stretch, vec, n, acc[0])
            else:
                rotate(inv[j], stretch, w[j - 1], n, w[j])
                rotate(inv[j], stretch, u[j - 1], n, u[j])
                rotate(inv[j], stretch, alpha[j - 1], n, alpha[j])
                # a + alpha x t + Q t - tr(Q) t in the parent's frame.
                t = translation[j]
                vec[:] = 0.0
                for a in range(3):
                    for b in range(3):
                        add_scaled(cent[j - 1, a, b], t[b], vec[a])
                        add_scaled(cent[j - 1, b, b], -t[a], vec[a])
                to_ball(vec)
                vector_add_scaled(acc[j - 1], 1.0, vec)
                vector_add_cross(alpha[j - 1], t, 1.0, vec)
                rotate(inv[j], stretch, vec, n, acc[j])
            # (w x axis qd_a + u x axis qd) / 2, before the joint's own rate is added (axis x axis = 0 anyway).
            half[:] = 0.0
            vector_add_cross(w[j], axis[j], 0.5, half[0])
            vector_add_cross(u[j], axis[j], 0.5, half[1])
            pair[0], pair[1] = qd_a[m, j], qd[m, j]
            for i in range(3):
                swap[0], swap[1] = half[0, i], half[1, i]
                dot(pair, swap, n, turned[i])
            to_ball(turned)
            vector_add_scaled(turned, 1.0, alpha[j])
            vector_add_along(qdd_a[m, j], axis[j], alpha[j])
            vector_add_along(qd[m, j], axis[j], w[j])
            vector_add_along(qd_a[m, j], axis[j], u[j])
            _centripetal(w[j], u[j], n, pair, swap, cent[j])
        spread[m] = 0.0
        sum_f[:], sum_n[:] = 0.0, 0.0
        for link in range(n - 1, -1, -1):
            _columns(alpha[link], acc[link], cent[link], unit, vec, force, moment)
            # Nominal: this link's force at theta_mid plus what its child passes down, summed before any rotation.
            own_f[:], own_n[:] = sum_f, sum_n
            for c in range(10):
                value = mid[10 * link + c]
                if c < 4:
                    vector_add_scaled(force[c], value, own_f)
                vector_add_scaled(moment[c], value, own_n)
            vector_project(own_n, axis[link], nominal[m, link])
            if link > 0:
                rotate(rot[link], stretch, own_f, n, sum_f)
                rotate(rot[link], stretch, own_n, n, sum_n)
                # t x f
                vector_add_cross(sum_f, translation[link], -1.0, sum_n)
            # Columns, one by one, down to the base.
            for j in range(link, -1, -1):
                for c in range(10):
                    vector_project(moment[c], axis[j], entry)
                    p = 10 * link + c
                    lo, hi = _accumulate_magnitude(entry, rad[p], n, spread[m, j])
                    entries[j, p] = entry
                    if want_regressor:
                        regressor[m, j, p, 0], regressor[m, j, p, 1] = lo, hi
                if j > 0:
                    for c in range(10):
                        rotate(rot[j], stretch, moment[c], n, turned)
                        moment[c] = turned
                        if c < 4:
                            rotate(rot[j], stretch, force[c], n, turned)
                            force[c] = turned
                            vector_add_cross(force[c], translation[j], -1.0, moment[c])
        for j in range(n):
            # Friction sign, velocity, rotor inertia, offset: one column each, on the diagonal.
            lo, hi = sigma[m, j, 0], sigma[m, j, 1]
            entry[:] = 0.0
            entry[0] = 0.5 * (lo + hi)
            entry[size - 1] = max(hi - entry[0], entry[0] - lo) * (1.0 + 4.0 * _EPS)
            for kind in range(4):
                p = (10 + kind) * n + j
                if kind == 1:
                    entry[:] = qd_a[m, j]
                elif kind == 2:
                    entry[:] = qdd_a[m, j]
                elif kind == 3:
                    entry[:] = 0.0
                    entry[0] = 1.0
                add_scaled(entry, mid[p], nominal[m, j])
                lo, hi = _accumulate_magnitude(entry, rad[p], n, spread[m, j])
                entries[j, p] = entry
                if want_regressor:
                    regressor[m, j, p, 0], regressor[m, j, p, 1] = lo, hi
            add_scaled(r_form[m, j], damping[j], nominal[m, j])
        measure[m] = _measure(entries, rad, inverse_inertia, linear, block)
