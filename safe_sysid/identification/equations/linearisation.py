r"""First derivatives of momentum and its rate at chosen states, bounded over all parameters of the box.

Leibniz bounds (``remainders``) hold anywhere, but add magnitudes of terms that cancel:
ten to twenty times too large. So derivatives are computed at one state ``(q_a, qd_a)`` for many steps; what they change
on the way to a step's own state is bounded by second derivatives. At the anchor they are exact, without differences in
small steps: entries of W_m and W_c are trigonometric polynomials of degree two in every q_j that turns, for which, with
``d(alpha) = (g(q + alpha e_j) - g(q - alpha e_j))/2``,

``dg/dq_j = 2 d(pi/4) + (1 - sqrt 2) d(pi/2)``;

they are polynomials of degree two in one that slides (each of the two factors of an inner product is affine in it):
``dg/dq_j = d(1)``;

W_c is a polynomial of degree two in qd: ``dW_c/dqd_j = (W_c(qd + e_j) - W_c(qd - e_j))/2``; W_m is linear in it:
``W_m(q, e_j)``. All this is true of the columns of motors, too. Gravity enters linearly: ``W_c(q, 0)`` for each of
three unit gravities. A derivative D, (n, K), is bounded over the box by ``|D mid| + |D| rad``; its rounding errors,
relative to terms that rows hold too, are a part of what ``row_errors`` adds for rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.momentum_columns import momentum_columns
from safe_sysid.robot.model import Kinematics

__all__ = ["DERIVATIVES", "Anchors", "derivative_bounds"]

FloatArray = NDArray[np.float64]

#: Rows of the result: bounds of |dp_i/dq_j|, |dp_i/dqd_j|, |df_i/dq_j|, |df_i/dqd_j|, |df_i/dg_c|.
DERIVATIVES = ("p_q", "p_qd", "f_q", "f_qd", "f_g")


class Anchors(NamedTuple):
    """States that steps are linearised at.

    Attributes:
        which: (m+1,) index of the one of each sample, and of the step after it.
        q, qd: (N, n) rad, rad/s.
        bounds: (N, 5, n, max(n, 3)) in the order of :data:`DERIVATIVES`, [.., i, j]; zero where there is no j.
    """

    which: NDArray[np.int64]
    q: FloatArray
    qd: FloatArray
    bounds: FloatArray


@njit(cache=True)
def _add(weight: float, a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """``out += weight (a - b)``, columns (n, K)."""
    for i in range(out.shape[0]):
        for c in range(PER_LINK * i, out.shape[1]):
            out[i, c] += weight * (a[i, c] - b[i, c])


@njit(cache=True)
def _enclose(d: FloatArray, mid: FloatArray, rad: FloatArray, bounds: FloatArray, kind: int, j: int) -> None:
    """``bounds[kind, i, j] = |D_i mid| + |D_i| rad``, and ``D = 0`` for the next; links before joint i have no part."""
    for i in range(d.shape[0]):
        value, spread = 0.0, 0.0
        for c in range(PER_LINK * i, d.shape[1]):
            value += d[i, c] * mid[c]
            spread += abs(d[i, c]) * rad[c]
            d[i, c] = 0.0
        bounds[kind, i, j] = (abs(value) + spread) * (1.0 + 1e-11)


@njit(cache=True)
def derivative_bounds(
    kin: Kinematics, mid: FloatArray, rad: FloatArray, own: float, with_gravity: bool, anchors: Anchors
) -> None:
    """Fill the bounds of all first derivatives at the anchors.

    Args:
        kin: of the arm.
        mid: (K,) centre of the inertial parameters and the rotor inertias of motors on moving links.
        rad: (K,) their half widths.
        own: 1.0 if the row of a joint holds what its own rotor does, else 0.0.
        with_gravity: whether the derivatives with respect to gravity are wanted.
        anchors: states, and room for the result.
    """
    n = anchors.q.shape[1]
    q, qd, gravity = anchors.q, anchors.qd, kin.gravity.copy()
    shape = (n, mid.size)
    m1, m0, r1, r0 = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    dm, dr = np.zeros(shape), np.zeros(shape)
    unit, zero, x, v = np.zeros(n), np.zeros(n), np.empty(n), np.empty(n)
    for k in range(q.shape[0]):
        out = anchors.bounds[k]
        for j in range(n):
            x[j], v[j] = q[k, j], qd[k, j]
        for j in range(n):
            sliding = np.isfinite(kin.travel[j, 0])
            for part in range(1 if sliding else 2):
                alpha = np.pi / 4.0 if part == 0 else np.pi / 2.0
                weight = 1.0 if part == 0 else 0.5 * (1.0 - np.sqrt(2.0))
                if sliding:
                    alpha, weight = 1.0, 0.5
                x[j] = q[k, j] + alpha
                momentum_columns(kin, gravity, x, v, own, m1, r1)
                x[j] = q[k, j] - alpha
                momentum_columns(kin, gravity, x, v, own, m0, r0)
                x[j] = q[k, j]
                _add(weight, m1, m0, dm)
                _add(weight, r1, r0, dr)
            _enclose(dm, mid, rad, out, 0, j)
            _enclose(dr, mid, rad, out, 2, j)
            unit[j] = 1.0
            momentum_columns(kin, gravity, x, unit, own, dm, None)
            unit[j] = 0.0
            _enclose(dm, mid, rad, out, 1, j)
            v[j] = qd[k, j] + 1.0
            momentum_columns(kin, gravity, x, v, own, None, r1)
            v[j] = qd[k, j] - 1.0
            momentum_columns(kin, gravity, x, v, own, None, r0)
            v[j] = qd[k, j]
            _add(0.5, r1, r0, dr)
            _enclose(dr, mid, rad, out, 3, j)
        if with_gravity:
            for c in range(3):
                gravity[c], gravity[c - 1], gravity[c - 2] = 1.0, 0.0, 0.0
                momentum_columns(kin, gravity, x, zero, own, None, dr)
                _enclose(dr, mid, rad, out, 4, c)
            for c in range(3):
                gravity[c] = kin.gravity[c]
