r"""First derivatives of momentum and its rate at a state, bounded over all parameters of the box.

Leibniz bounds (``remainders``) hold anywhere, but add magnitudes of terms that cancel: ten to twenty times too large.
So derivatives are computed, exactly and without differences in small steps: entries of W_m and W_c are trigonometric
polynomials of degree two in every q_j that turns, for which, with ``d(alpha) = (g(q + alpha e_j) - g(q - alpha
e_j))/2``,

``dg/dq_j = 2 d(pi/4) + (1 - sqrt 2) d(pi/2)``;

they are polynomials of degree two in one that slides (each of the two factors of an inner product is affine in it):
``dg/dq_j = d(1)``;

W_c is a polynomial of degree two in qd: ``dW_c/dqd_j = (W_c(qd + e_j) - W_c(qd - e_j))/2``; W_m is linear in it:
``W_m(q, e_j)``. All this is true of the columns of motors, too. Gravity enters linearly: ``W_c(q, 0)`` for each of
three unit gravities. A derivative D, (n, K), is bounded over the box by ``|D mid| + |D| rad``; its rounding errors,
relative to terms that rows hold too, are a part of what ``row_errors`` adds for rounding.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.momentum_columns import column_space, columns_from, inertia_columns, place_joint
from safe_sysid.robot.model import Kinematics

__all__ = ["DERIVATIVES", "derivative_bounds"]

FloatArray = NDArray[np.float64]

#: Rows of the result: bounds of |dp_i/dq_j|, |dp_i/dqd_j|, |df_i/dq_j|, |df_i/dqd_j|, |df_i/dg_c|.
DERIVATIVES = ("p_q", "p_qd", "f_q", "f_qd", "f_g")


@njit(cache=True)
def _add(weight: float, a: FloatArray, b: FloatArray, j: int, out: FloatArray) -> None:
    """``out += weight (a - b)``, columns (n, K); those of links before joint j are equal."""
    for i in range(out.shape[0]):
        for c in range(PER_LINK * max(i, j), out.shape[1]):
            out[i, c] += weight * (a[i, c] - b[i, c])


@njit(cache=True)
def _enclose(
    d: FloatArray,
    mid: FloatArray,
    rad: FloatArray,
    bounds: FloatArray,
    kind: int,
    j: int,
    first: int,
    slopes: FloatArray | None = None,
) -> None:
    """``bounds[kind, i, j] = |D_i mid| + |D_i| rad``, and ``D = 0`` for the next; no part: links before i, first.

    In ``slopes[0, kind, i, j]`` and ``slopes[1, kind, i, j]``: ``D_i mid`` and ``|D_i| rad``.
    """
    for i in range(d.shape[0]):
        value, spread = 0.0, 0.0
        for c in range(PER_LINK * max(i, first), d.shape[1]):
            value += d[i, c] * mid[c]
            spread += abs(d[i, c]) * rad[c]
            d[i, c] = 0.0
        bounds[kind, i, j] = (abs(value) + spread) * (1.0 + 1e-11)
        if slopes is not None:
            slopes[0, kind, i, j], slopes[1, kind, i, j] = value, spread * (1.0 + 1e-11)


@njit(cache=True)
def derivative_bounds(
    kin: Kinematics,
    mid: FloatArray,
    rad: FloatArray,
    own: float,
    rates: bool,
    fall: bool,
    q: FloatArray,
    qd: FloatArray,
    out: FloatArray,
    slopes: FloatArray | None = None,
) -> None:
    """Bounds of all first derivatives at one state.

    Args:
        mid: (K,) centre of the inertial parameters and the rotor inertias of motors on moving links.
        rad: (K,) their half widths.
        own: 1.0 if the row of a joint holds what its own rotor does, else 0.0.
        rates: whether the derivatives of the momentum's rate are wanted.
        fall: whether its derivatives with respect to gravity are; with ``rates`` only.
        q: (n,) rad.
        qd: (n,) rad/s.
        out: (5, n, max(n, 3)) result in the order of :data:`DERIVATIVES`, [.., i, j]; what is not wanted stays.
        slopes: (2, 5, n, max(n, 3)) of the derivatives by positions: value at ``mid``, and how far that may be off
            over the box; None if not wanted: compiled without it.
    """
    n = q.size
    v, gravity = qd.copy(), kin.gravity.copy()
    shape = (n, mid.size)
    m1, m0, dm = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    r1, r0, dr = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    kinds, all_of_it = np.arange(5), np.bool_(True)  # a literal in their place would be compiled anew, each
    work = column_space(kin, q)
    columns_from(kin, gravity, v, own, kinds[0], all_of_it, work, m1, r1)
    # From the last joint on: links that joint j moves are computed anew for it, those before are still of q and qd.
    for j in range(n - 1, -1, -1):
        for sign in (1.0, -1.0):
            if rates or sign > 0.0:
                v[j] = qd[j] + sign
                m, r = (m1, r1) if sign > 0.0 else (m0, r0)
                columns_from(kin, gravity, v, own, j, sign > 0.0, work, m, r)
        v[j] = qd[j]
        if rates:
            _add(0.5, r1, r0, j, dr)
            _enclose(dr, mid, rad, out, kinds[3], j, j)
        inertia_columns(kin, own, j, work, dm)
        _enclose(dm, mid, rad, out, kinds[1], j, j)
        sliding = np.isfinite(kin.travel[j, 0])
        for part in range(1 if sliding else 2):
            alpha = np.pi / 4.0 if part == 0 else np.pi / 2.0
            weight = 1.0 if part == 0 else 0.5 * (1.0 - np.sqrt(2.0))
            if sliding:
                alpha, weight = 1.0, 0.5
            for sign in (1.0, -1.0):
                place_joint(kin, j, q[j] + sign * alpha, work)
                m, r = (m1, r1) if sign > 0.0 else (m0, r0)
                columns_from(kin, gravity, v, own, j, all_of_it, work, m, r)
            _add(weight, m1, m0, j, dm)
            if rates:
                _add(weight, r1, r0, j, dr)
        place_joint(kin, j, q[j], work)
        _enclose(dm, mid, rad, out, kinds[0], j, j, slopes)
        if rates:
            _enclose(dr, mid, rad, out, kinds[2], j, j, slopes)
    if fall:
        v = np.zeros(n)
        for c in range(3):
            gravity[c], gravity[c - 1], gravity[c - 2] = 1.0, 0.0, 0.0
            columns_from(kin, gravity, v, own, kinds[0], all_of_it, work, m1, dr)
            _enclose(dr, mid, rad, out, kinds[4], c, kinds[0])
