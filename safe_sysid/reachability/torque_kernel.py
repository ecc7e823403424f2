r"""Slotine-Li recursion on affine forms: the compiled part of :mod:`safe_sysid.reachability.torque`.

Per link, in its own joint frame: angular velocities ``w`` (of qd) and ``u`` (of qd_a), the polarised centripetal matrix
``Q_ab = (w_a u_b + u_a w_b) / 2``, angular acceleration ``alpha`` and the *classical* acceleration ``a`` of the origin
(minus gravity). With the link's ten parameters ``m, h, I``:

``f = m a + alpha x h + Q h - tr(Q) h``,  ``n = h x a + I alpha + (Q : I)``,

where ``(Q : I) = (w x I u + u x I w) / 2`` is linear in Q. That is Newton-Euler polarised in (qd, qd_a), which is
what Christoffel's C needs, without spatial vectors: code and formulas differ from :mod:`safe_sysid.robot.regressors`.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.reachability.affine import add_scaled, dot, mul
from safe_sysid.reachability.magnitudes import add_magnitude, quadratic_bound, weighted_measure
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


@njit(cache=True)
def _centripetal(
    w: FloatArray, u: FloatArray, n: int, pair: FloatArray, swap: FloatArray, out: FloatArray
) -> None:
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

    ``parts``, ``parts_error``, ``stretch`` are from :func:`rotation_parts`, then come the arm's other kinematics. The
    motion is given by forms (M, n, K + 2) of q, qd, qd_a, qdd_a and r and by the range ``sigma`` (M, n, 2) of the
    friction sign; the box by ``mid`` and ``rad`` (14 n,); ``damping`` (n,) is K_d and ``inverse_inertia`` (n,) bounds
    1 / inertia_lower from above. Filled are

    - ``nominal`` (M, n, K + 2), forms of ``W_s mid + K_d r``,
    - ``spread`` (M, n, K + 2), forms above ``sum_p |W_jp| rad_p``,
    - ``measure`` (M,), upper bounds of ``sum_p rad_p sqrt(sum_j W_jp^2 / inertia_j)``,
    - ``regressor`` (M, n, 14 n, 2), ranges of W_s, if ``want_regressor``.
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
    entry, linear, square = np.zeros(size), np.zeros(size), np.zeros((n, n))
    block, blocks, timed = np.zeros((2, n, n)), np.zeros((n, 2, n, n)), np.zeros(n)
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
        spread[m], blocks[:], timed[:] = 0.0, 0.0, 0.0
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
                    lo, hi, timed[j] = add_magnitude(entry, rad[p], n, timed[j], blocks[j], spread[m, j])
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
                lo, hi, timed[j] = add_magnitude(entry, rad[p], n, timed[j], blocks[j], spread[m, j])
                entries[j, p] = entry
                if want_regressor:
                    regressor[m, j, p, 0], regressor[m, j, p, 1] = lo, hi
            add_scaled(r_form[m, j], damping[j], nominal[m, j])
            # The quadratic is between zero and its bound: half of it is a shift.
            bound = 0.5 * quadratic_bound(timed[j], blocks[j], square)
            spread[m, j, 0] += bound
            spread[m, j, size - 1] += bound + 4.0 * _EPS * (abs(spread[m, j, 0]) + bound)
        measure[m] = weighted_measure(entries, rad, inverse_inertia, linear, block, square)
