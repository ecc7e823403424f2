r"""First derivatives of momentum p and its rate f at states, bounded over all parameters of a box, rounded upward.

With the motions of :mod:`~safe_sysid.identification.certificates.interval_dynamics.regressors`, ``S_i = (J_i, Z_i)``,
``V_i = (V_i, W_i)`` the sum of ``S_k qd_k`` up to i, V that of the link, ``G = (G, 0)``, the bilinear form B
of the link and the cross product of motions, everything seen from link l (of a prismatic joint ``J_i`` is its axis and
``Z_i = 0``): joint j moves what the joints up to j contribute,

``dS_i/dq_j = S_i x S_j`` for i <= j, else 0; ``dV_i/dq_j = V_min(i,j) x S_j``; ``dG/dq_j = G x S_j``.

``p_i = dL/dqd_i = B(V, S_i)`` and ``f_i = dL/dq_i = B(V, A_i) + B(G, S_i)``, ``A_i = V_i x S_i``, summed over links;
for i <= j also ``dA_i/dq_j = A_i x S_j``. L being one function, only these are computed, [..] 1 or 0:

- ``dp_i/dqd_j = B(S_j, S_i)``, symmetric,
- ``dp_i/dq_j = B(A_j, S_i) + [i <= j] B(V, S_i x S_j)``, which is ``df_j/dqd_i``,
- ``df_i/dq_j = B(A_j, A_i) + B(V, A_i x S_j) + B(G x S_j, S_i) + B(G, S_i x S_j)`` for i <= j, symmetric,
- a motor of joint d, its axis z in link l, adds per unit of Ia_d, all parts angular, ``gear qd_d z.(S_i x S_j)`` to
  dp_i/dq_j for i <= j, ``gear z.A_j`` to dp_d/dq_j (and, behind the gear, to df_j/dqd_d alone), ``gear z.S_i`` to
  dp_i/dqd_d, ``gear qd_d z.(A_i x S_j)`` to df_i/dq_j for i <= j,
- ``df_i/dg``: B with ``(R^T e, 0)`` for each unit vector e of the world in place of G.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray
from safe_sysid.identification.certificates.interval_dynamics.regressors import (
    IntervalKinematics,
    IntervalMotors,
    add_columns,
    along_spin,
    link_motions,
    local_frames,
    motion_cross,
)
from safe_sysid.intervals import iadd, imul

__all__ = ["Derivatives", "Slopes", "derivatives_at", "slopes_at"]


class Derivatives(NamedTuple):
    """Upper bounds (N, n, n) of ``|dp_i/dq_j|, |dp_i/dqd_j|, |df_i/dq_j|, |df_i/dqd_j|``, (N, n, 3) of ``|df_i/dg|``.

    Each is the bound of a linear function over a box, attained up to rounding.
    """

    p_q: FloatArray
    p_qd: FloatArray
    f_q: FloatArray
    f_qd: FloatArray
    f_g: FloatArray


def derivatives_at(
    enclosed: IntervalKinematics,
    q: FloatArray,
    qd: FloatArray,
    theta: FloatArray,
    momenta: bool,
    rates: bool,
    fall: bool,
) -> Derivatives:
    """Bounds at N states.

    Args:
        q: (N, n, 2) intervals, rad.
        qd: (N, n, 2) likewise, rad/s.
        theta: (10 n + M, 2) intervals of the rigid parameters and of the rotor inertias of M motors on moving links.
        momenta: whether p_qd is wanted; else it is zero.
        rates: whether f_q is.
        fall: whether f_g is.
    """
    count, n = q.shape[:2]
    out = np.zeros((count, 4, n, n, 2))
    gravity = np.zeros((count, n, 3, 2))
    _kernel(*enclosed, q, qd, np.ascontiguousarray(theta), momenta, rates, fall, out, gravity)
    p_q, half_p_qd, half_f_q = (np.max(np.abs(out[:, k]), axis=-1) for k in range(3))
    p_qd, f_q = (np.maximum(half, half.transpose(0, 2, 1)) for half in (half_p_qd, half_f_q))
    whole = p_q
    if np.any(out[:, 3]):  # behind gears: rows i of a motor's carrier see more than the row of its joint
        p_q_all, p_qd_all = (_sum(out[:, k], out[:, 3]) for k in (0, 1))
        lower = np.tri(n, k=-1, dtype=bool)
        whole = np.where(lower, p_q_all, p_q)
        p_qd = np.where(lower.T, p_qd_all, p_qd)
    f_qd = np.ascontiguousarray(whole.transpose(0, 2, 1))
    return Derivatives(p_q, p_qd, f_q, f_qd, np.max(np.abs(gravity), axis=-1))


class Slopes(NamedTuple):
    """Derivatives by positions at N states: enclosed (N, n, n, 2) at one theta; how far others of a box may be off."""

    #: p_q, f_q: dp_i/dq_j and df_i/dq_j at the middle of the box
    p_q: FloatArray
    f_q: FloatArray
    #: p_left, f_left: (N, n, n) bounds of their differences to those at any theta of the box
    p_left: FloatArray
    f_left: FloatArray


def slopes_at(enclosed: IntervalKinematics, q: FloatArray, qd: FloatArray, theta: FloatArray, rates: bool) -> Slopes:
    """As :func:`derivatives_at`, of positions alone and with signs; a derivative is linear in theta.

    Args:
        q: (N, n, 2) intervals, rad.
        qd: (N, n, 2) likewise, rad/s.
        theta: (10 n + M, 2) intervals.
        rates: whether f_q is wanted; else it and f_left are zero.
    """
    count, n = q.shape[:2]
    middle = 0.5 * (theta[:, 0] + theta[:, 1])
    about = IntervalArray(theta[:, 0], theta[:, 1]) - IntervalArray(middle, middle)
    values, unused = np.zeros((count, 4, n, n, 2)), np.zeros((count, n, 3, 2))
    point = np.ascontiguousarray(np.stack([middle, middle], axis=-1))
    _kernel(*enclosed, q, qd, point, False, rates, False, values, unused)
    f_q = values[:, 2]
    below = np.tri(n, k=-1, dtype=bool)[:, :, None]
    left = derivatives_at(enclosed, q, qd, about.stacked(), False, rates, False)
    return Slopes(values[:, 0], np.where(below, f_q.transpose(0, 2, 1, 3), f_q), left.p_q, left.f_q)


def _sum(a: FloatArray, b: FloatArray) -> FloatArray:
    """Largest magnitudes of sums of intervals (.., 2)."""
    return (IntervalArray(a[..., 0], a[..., 1]) + IntervalArray(b[..., 0], b[..., 1])).size()


@njit(cache=True)
def _add_value(columns: FloatArray, theta: FloatArray, link: int, out: FloatArray) -> None:
    """``out += columns . theta`` of the link."""
    for c in range(10):
        t = theta[PER_LINK * link + c]
        lo, hi = imul(columns[c, 0], columns[c, 1], t[0], t[1])
        out[0], out[1] = iadd(out[0], out[1], lo, hi)


@njit(cache=True)
def _add_spin(
    motors: IntervalMotors, m: int, speed: FloatArray, vector: FloatArray, theta: FloatArray, out: FloatArray
) -> None:
    """``out += Ia gear speed (z . vector)`` of motor m."""
    lo, hi = along_spin(motors, m, speed, vector)
    t = theta[theta.shape[0] - motors.joint.shape[0] + m]
    lo, hi = imul(lo, hi, t[0], t[1])
    out[0], out[1] = iadd(out[0], out[1], lo, hi)


@njit(cache=True)
def _kernel(
    rotation: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    gravity: FloatArray,
    sliding: BoolArray,
    motors: IntervalMotors,
    q: FloatArray,
    qd: FloatArray,
    theta: FloatArray,
    momenta: bool,
    rates: bool,
    wants_fall: bool,
    out: FloatArray,
    out_gravity: FloatArray,
) -> None:
    """Fill ``out`` (N, 4, n, n, 2) and ``out_gravity`` (N, n, 3, 2); signed.

    In ``out``: p_q; p_qd and f_q for i <= j; and what motors add to the momentum of their joint by q (below the
    diagonal), and to that of others by its velocity (above), where torques are measured behind gears.
    """
    n = axis.shape[0]
    local, steps = np.empty((n, 3, 3, 2)), np.empty((n, 3, 2))
    screws, motions, fall = np.empty((n, 2, 3, 2)), np.empty((n, 2, 3, 2)), np.empty((2, 3, 2))
    turned, unit_fall = np.empty((n, 2, 3, 2)), np.empty((3, 2, 3, 2))
    cross, unit = np.empty((2, 3, 2)), np.zeros(3)
    columns, one = np.empty((10, 2)), np.ones(2)
    for k in range(q.shape[0]):
        local_frames(rotation, translation, axis, sliding, q[k], local, steps)
        for link in range(n):
            if wants_fall:
                for c in range(3):
                    unit[:] = 0.0
                    unit[c] = 1.0
                    link_motions(local, steps, axis, unit, sliding, qd[k], link, screws, motions, unit_fall[c])
            link_motions(local, steps, axis, gravity, sliding, qd[k], link, screws, motions, fall)
            whole = motions[link]
            for j in range(link + 1):
                motion_cross(motions[j], screws[j], turned[j])
            for i in range(link + 1):
                for j in range(link + 1):
                    columns[:] = 0.0
                    add_columns(turned[j], screws[i], columns)
                    if i <= j:
                        motion_cross(screws[i], screws[j], cross)
                        add_columns(whole, cross, columns)
                    _add_value(columns, theta, link, out[k, 0, i, j])
                    if i > j:
                        continue
                    if momenta:
                        columns[:] = 0.0
                        add_columns(screws[j], screws[i], columns)
                        _add_value(columns, theta, link, out[k, 1, i, j])
                    if rates:
                        columns[:] = 0.0
                        add_columns(turned[j], turned[i], columns)
                        add_columns(fall, cross, columns)
                        motion_cross(turned[i], screws[j], cross)
                        add_columns(whole, cross, columns)
                        motion_cross(fall, screws[j], cross)
                        add_columns(cross, screws[i], columns)
                        _add_value(columns, theta, link, out[k, 2, i, j])
                if wants_fall:
                    for c in range(3):
                        columns[:] = 0.0
                        add_columns(unit_fall[c], screws[i], columns)
                        _add_value(columns, theta, link, out_gravity[k, i, c])
            for m in range(motors.joint.shape[0]):
                if motors.carrier[m] != link:
                    continue
                d = motors.joint[m]
                for i in range(link + 1):
                    _add_spin(motors, m, one, turned[i, 1], theta, out[k, 0 if motors.own else 3, d, i])
                    _add_spin(motors, m, one, screws[i, 1], theta, out[k, 1 if motors.own else 3, i, d])
                    for j in range(i, link + 1):
                        motion_cross(screws[i], screws[j], cross)
                        _add_spin(motors, m, qd[k, d], cross[1], theta, out[k, 0, i, j])
                        motion_cross(turned[i], screws[j], cross)
                        _add_spin(motors, m, qd[k, d], cross[1], theta, out[k, 2, i, j])
