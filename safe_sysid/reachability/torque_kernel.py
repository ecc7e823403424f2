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

from safe_sysid.reachability.affine import add, add_constant, add_scaled, affine_range, dot, mul, sub
from safe_sysid.reachability.rotations import fill_rotation, rotate

__all__ = ["torque_kernel"]

FloatArray = NDArray[np.float64]
_EPS = 2.0**-52
_TINY = 1e-300


@njit(cache=True)
def _add_cross_constant(x: FloatArray, t: FloatArray, factor: float, out: FloatArray) -> None:
    """``out += factor (x x t)`` for forms x, out (3, K + 2), constant t (3,), factor +-1."""
    for i in range(3):
        a, b = (i + 1) % 3, (i + 2) % 3
        add_scaled(x[a], factor * t[b], out[i])
        add_scaled(x[b], -factor * t[a], out[i])


@njit(cache=True)
def _centripetal(w: FloatArray, u: FloatArray, pair: FloatArray, swap: FloatArray, out: FloatArray) -> None:
    """``out`` (3, 3, K + 2) = symmetric part of ``w u^T``; ``pair``, ``swap`` (2, K + 2) are work space."""
    for a in range(3):
        for b in range(a, 3):
            if a == b:
                mul(w[a], u[a], out[a, a])
                continue
            pair[0], pair[1] = 0.5 * w[a], 0.5 * w[b]  # halving a float is exact
            swap[0], swap[1] = u[b], u[a]
            dot(pair, swap, out[a, b])
            out[b, a] = out[a, b]


@njit(cache=True)
def _columns(alpha: FloatArray, acc: FloatArray, q: FloatArray, force: FloatArray, moment: FloatArray) -> None:
    """Force (4, 3, K + 2) of the parameters m, hx, hy, hz and moment (10, 3, K + 2) of all ten, at the link's frame."""
    force[:] = 0.0
    moment[:] = 0.0
    for i in range(3):
        force[0, i] = acc[i]
    for h in range(3):
        column = force[1 + h]
        # alpha x e_h, Q e_h - tr(Q) e_h
        add((alpha[(h + 2) % 3]), q[(h + 1) % 3, h], column[(h + 1) % 3])
        sub(q[(h + 2) % 3, h], alpha[(h + 1) % 3], column[(h + 2) % 3])
        add_scaled(q[(h + 1) % 3, (h + 1) % 3], -1.0, column[h])
        add_scaled(q[(h + 2) % 3, (h + 2) % 3], -1.0, column[h])
        # e_h x a
        add_scaled(acc[(h + 2) % 3], -1.0, moment[1 + h, (h + 1) % 3])
        add_scaled(acc[(h + 1) % 3], 1.0, moment[1 + h, (h + 2) % 3])
    # Ixx, Ixy, Iyy, Ixz, Iyz, Izz: I = E_ab symmetric unit; (w x E u)_i = eps_ijk w_j (E u)_k.
    for a in range(3):
        for b in range(a, 3):
            column = moment[4 + b * (b + 1) // 2 + a]
            for turn in range(1 if a == b else 2):
                r, c = (a, b) if turn == 0 else (b, a)
                # E e_c = e_r: adds alpha_c e_r, and e_j x e_r Q_jc for each j.
                add_scaled(alpha[c], 1.0, column[r])
                add_scaled(q[(r + 2) % 3, c], 1.0, column[(r + 1) % 3])
                add_scaled(q[(r + 1) % 3, c], -1.0, column[(r + 2) % 3])


@njit(cache=True)
def _accumulate_magnitude(w: FloatArray, radius: float, out: FloatArray) -> tuple[float, float]:
    """``out += radius |w|`` from above: by w itself where its sign is known, else by the chord of ``|.|`` over its range.

    Returns the range of w. A chord ``s w + b`` of a convex function over [lo, hi] lies above it if it does at both ends.
    """
    lo, hi = affine_range(w)
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
def torque_kernel(
    parts: FloatArray,
    parts_error: float,
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
        parts, parts_error: from :func:`rotation_parts`.
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
    own_f, own_n = np.zeros((3, size)), np.zeros((3, size))
    sum_f, sum_n = np.zeros((3, size)), np.zeros((3, size))
    entry, square = np.zeros(size), np.zeros(14 * n)
    for m in range(cells):
        square[:] = 0.0
        for j in range(n):
            fill_rotation(parts[j], parts_error, q[m, j], work, rot[j], inv[j])
            if j == 0:
                w[0], u[0], alpha[0], vec[:] = 0.0, 0.0, 0.0, 0.0
                for i in range(3):
                    vec[i, 0] = -gravity[i]
                rotate(inv[0], vec, acc[0])
            else:
                rotate(inv[j], w[j - 1], w[j])
                rotate(inv[j], u[j - 1], u[j])
                rotate(inv[j], alpha[j - 1], alpha[j])
                # a + alpha x t + Q t - tr(Q) t in the parent's frame.
                t = translation[j]
                vec[:] = acc[j - 1]
                _add_cross_constant(alpha[j - 1], t, 1.0, vec)
                for a in range(3):
                    for b in range(3):
                        add_scaled(cent[j - 1, a, b], t[b], vec[a])
                        add_scaled(cent[j - 1, b, b], -t[a], vec[a])
                rotate(inv[j], vec, acc[j])
            # (w x axis qd_a + u x axis qd) / 2, before the joint's own rate is added (axis x axis = 0 anyway).
            for i in range(3):
                a, b = (i + 1) % 3, (i + 2) % 3
                swap[:] = 0.0
                add_scaled(w[j, a], 0.5 * axis[j, b], swap[0])
                add_scaled(w[j, b], -0.5 * axis[j, a], swap[0])
                add_scaled(u[j, a], 0.5 * axis[j, b], swap[1])
                add_scaled(u[j, b], -0.5 * axis[j, a], swap[1])
                pair[0], pair[1] = qd_a[m, j], qd[m, j]
                dot(pair, swap, entry)
                add(alpha[j, i], entry, alpha[j, i])
                add_scaled(qdd_a[m, j], axis[j, i], alpha[j, i])
            for i in range(3):
                add_scaled(qd[m, j], axis[j, i], w[j, i])
                add_scaled(qd_a[m, j], axis[j, i], u[j, i])
            _centripetal(w[j], u[j], pair, swap, cent[j])
        spread[m] = 0.0
        sum_f[:], sum_n[:] = 0.0, 0.0
        for link in range(n - 1, -1, -1):
            _columns(alpha[link], acc[link], cent[link], force, moment)
            # Nominal: this link's force at theta_mid plus what its child passes down, summed before any rotation.
            own_f[:], own_n[:] = sum_f, sum_n
            for c in range(10):
                value = mid[10 * link + c]
                for i in range(3):
                    if c < 4:
                        add_scaled(force[c, i], value, own_f[i])
                    add_scaled(moment[c, i], value, own_n[i])
            nominal[m, link] = 0.0
            for i in range(3):
                add_scaled(own_n[i], axis[link, i], nominal[m, link])
            if link > 0:
                rotate(rot[link], own_f, sum_f)
                rotate(rot[link], own_n, sum_n)
                # t x f
                _add_cross_constant(sum_f, translation[link], -1.0, sum_n)
            # Columns, one by one, down to the base.
            for j in range(link, -1, -1):
                for c in range(10):
                    entry[:] = 0.0
                    for i in range(3):
                        add_scaled(moment[c, i], axis[j, i], entry)
                    p = 10 * link + c
                    lo, hi = _accumulate_magnitude(entry, rad[p], spread[m, j])
                    top = max(-lo, hi)
                    square[p] += top * top * inverse_inertia[j]
                    if want_regressor:
                        regressor[m, j, p, 0], regressor[m, j, p, 1] = lo, hi
                if j > 0:
                    for c in range(10):
                        rotate(rot[j], moment[c], turned)
                        moment[c] = turned
                        if c < 4:
                            rotate(rot[j], force[c], turned)
                            force[c] = turned
                            _add_cross_constant(force[c], translation[j], -1.0, moment[c])
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
                lo, hi = _accumulate_magnitude(entry, rad[p], spread[m, j])
                top = max(-lo, hi)
                square[p] += top * top * inverse_inertia[j]
                if want_regressor:
                    regressor[m, j, p, 0], regressor[m, j, p, 1] = lo, hi
            add_scaled(r_form[m, j], damping[j], nominal[m, j])
        total = 0.0
        for p in range(14 * n):
            total += rad[p] * math.sqrt(square[p])
        measure[m] = total * (1.0 + (14 * n + 40) * _EPS) + _TINY
