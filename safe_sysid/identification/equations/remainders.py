r"""Bounds of momentum and momentum rate, and of their derivatives along directions of state space.

With ``x`` a point of link l and ``<.,.>`` the inner product of L2(dm), the inertial part is

``p_i = (H qd)_i = sum_l <d_i x, xdot>`` and ``f_i = dL/dq_i = sum_l <d_i xdot, xdot> + g . int d_i x dm``,

``xdot = sum_k d_k x qd_k``. By :mod:`safe_sysid.dynamics.magnitudes` any derivative of x has norm at most ``a[l, k]``,
k the most distal joint involved, replaced here by its smallest majorant that does not grow with k; for ``int d_i .. x
dm`` it is ``b[l, k]``. Prismatic joints are in their travel all along (``step_states``). Differentiate p and f along
``z = (dq, dqd)`` with ``|dq| <= x, |dqd| <= y`` by Leibniz' rule; every term is a sum over joints k, m, .. of ``a[l,
max(i, k, m, ..)] qd_k x_m ..``. With ``a[l, k] = sum_{j >= k} s[l, j]``, all ``s >= 0``, such a sum equals ``sum_{j
>= i} s[l, j] V_j X_j ..``, capital letters the sums up to joint j: a few cumulative sums instead of n^4 terms.

With ``S_i(w) = sum_{j >= i} s_a[l, j] w_j``, ``G_i(w) = |g| sum_{j >= i} s_b[l, j] w_j``, index 0 the largest
(``xdot`` itself):

- ``p0 = S_i(1) S_0(V)``, ``f0 = S_i(V) S_0(V) + G_i(1)``;
- ``p1(z) = S_i(X) S_0(V) + S_i(1) c_0(z)``, ``f1(z) = c_i(z) S_0(V) + S_i(V) c_0(z) + G_i(X)``, ``c_i(z) = S_i(V X +
  Y)``;
- ``p2(z, z') = S_i(X X') S_0(V) + S_i(X) c_0(z') + S_i(X') c_0(z) + S_i(1) e_0(z, z')``,
  ``f2(z, z') = e_i(z, z') S_0(V) + c_i(z) c_0(z') + c_i(z') c_0(z) + S_i(V) e_0(z, z') + G_i(X X')``,
  ``e_i(z, z') = S_i(V X X' + Y X' + Y' X)``,

each summed over the links l. ``p2(z, z')`` bounds ``|D^2 p[z, z']|``, and so on.

A motor of joint j on a moving link adds ``p_i = kappa w_i qd_j``, ``f_i = kappa qd_j sum_{k < i} (d_i w_k) qd_k`` for
the joints i, k, .. that turn, up to its carrier, and ``p_j = kappa sum_k w_k qd_k`` where rows hold what their own
rotor does (:mod:`safe_sysid.dynamics.magnitudes`: ``|w_i| <= W_i``, any derivative of w_k is at most 1, and 0 by joints
up to k). With ``X_i = sum_{l > i} x_l``, ``C_k(z) = X_k v_k + y_k`` and ``E_k(z, z') = X_k X'_k v_k + X_k y'_k + X'_k
y_k``,

- ``p0_i = W_i v_j``, ``p1_i = X_i v_j + W_i y_j``, ``p2_i = X_i X'_i v_j + X_i y'_j + X'_i y_j``,
- ``p0_j = sum_k W_k v_k``, ``p1_j = sum_k X_k v_k + W_k y_k``, ``p2_j = sum_k E_k``,
- ``f0_i = v_j sum_{k < i} v_k``, ``f1_i = y_j sum_{k < i} v_k + v_j sum_{k < i} C_k(z)``,
  ``f2_i = sum_{k < i} y_j C_k(z') + y'_j C_k(z) + v_j E_k``,

each times kappa, by Leibniz' rule again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.magnitudes import link_norms, spin_shares
from safe_sysid.robot.model import Kinematics, Motors
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.unknowns import Unknowns

__all__ = ["Magnitudes", "magnitudes", "motion_bounds"]

_ROUND = 1.0 + 1e-11


class Magnitudes(NamedTuple):
    """Bounds that hold for all motions."""

    #: s_a, s_b: steps s of the norms a and b, each (links, joints)
    s_a: FloatArray
    s_b: FloatArray
    g: float  #: norm of gravity, m/s^2
    motors: Motors
    kappa: FloatArray  #: (M,) kg m^2
    shares: FloatArray  #: (M, n) W, below 0 for joints that slide
    own: bool  #: whether a joint's row holds what its own rotor does


def magnitudes(kin: Kinematics, box: ParameterBox, own: bool = True, unknowns: Unknowns | None = None) -> Magnitudes:
    """For all configurations and all physically consistent parameters of a box.

    Args:
        own: whether a joint's row holds what its own rotor does, as torques of a motor do.
        unknowns: of the arm, whose motors come behind those of ``kin``; None: there are none.
    """
    norms = link_norms(kin, box.lower, box.upper)
    kappa, shares = norms.kappa, norms.shares
    if unknowns is not None:
        kin, kappa = unknowns.applied(kin), np.concatenate([kappa, unknowns.largest_reaction * _ROUND])
        shares = np.where(kin.sliding, -1.0, spin_shares(kin))
    return Magnitudes(
        _steps(norms.a), _steps(norms.b), float(np.linalg.norm(kin.gravity)) * _ROUND, kin.motors, kappa, shares, own
    )


def _steps(norms: FloatArray) -> FloatArray:
    """``s >= 0`` with ``sum_{j >= k} s[l, j] >= norms[l, k]``, for norms that fall with k (else their envelope)."""
    falling = np.maximum.accumulate(norms[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([falling[:, :-1] - falling[:, 1:], falling[:, -1:]], axis=1)


@njit(cache=True)
def _add_reaction(
    size: Magnitudes, v: FloatArray, x1: FloatArray, y1: FloatArray, x2: FloatArray, y2: FloatArray, out: FloatArray
) -> None:
    """Add what motors on moving links do to the bounds of :func:`motion_bounds`; arguments as there."""
    for m in range(size.kappa.size):
        j, last, kap, shares = size.motors.joint[m], size.motors.carrier[m], size.kappa[m], size.shares[m]
        before = np.zeros(4)  # sums over k < i of v, C(z), C(z'), E
        for i in range(last + 1):
            if shares[i] < 0.0:
                continue
            a1, a2 = 0.0, 0.0
            for k in range(i + 1, last + 1):
                if shares[k] >= 0.0:
                    a1, a2 = a1 + x1[k], a2 + x2[k]
            c1, c2 = a1 * v[i] + y1[i], a2 * v[i] + y2[i]
            e = a1 * a2 * v[i] + a1 * y2[i] + a2 * y1[i]
            out[0, i] += kap * shares[i] * v[j]
            out[1, i] += kap * (a1 * v[j] + shares[i] * y1[j])
            out[2, i] += kap * (a1 * a2 * v[j] + a1 * y2[j] + a2 * y1[j])
            if size.own:
                out[0, j] += kap * shares[i] * v[i]
                out[1, j] += kap * (a1 * v[i] + shares[i] * y1[i])
                out[2, j] += kap * e
            out[3, i] += kap * v[j] * before[0]
            out[4, i] += kap * (y1[j] * before[0] + v[j] * before[1])
            out[5, i] += kap * (y1[j] * before[2] + y2[j] * before[1] + v[j] * before[3])
            before[0] += v[i]
            before[1] += c1
            before[2] += c2
            before[3] += e


@njit(cache=True)
def motion_bounds(
    size: Magnitudes, v: FloatArray, x1: FloatArray, y1: FloatArray, x2: FloatArray, y2: FloatArray, out: FloatArray
) -> None:
    """Bounds for all ``|qd| <= v`` along directions ``z = (x1, y1)`` and ``z' = (x2, y2)``, all (n,) >= 0.

    Args:
        v: rad/s.
        x1: rad.
        y1: rad/s.
        x2: rad.
        y2: rad/s.
        out: (6, n) ``p0, p1(z), p2(z, z'), f0, f1(z), f2(z, z')``; N m s and N m.
    """
    n = v.size
    s_a, s_b, g = size.s_a, size.s_b, size.g
    out[:] = 0.0
    w = np.empty((8, n))
    t = np.empty(11)
    run = np.empty((11, n))
    sv, sx1, sy1, sx2, sy2 = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(n):
        sv, sx1, sy1, sx2, sy2 = sv + v[j], sx1 + x1[j], sy1 + y1[j], sx2 + x2[j], sy2 + y2[j]
        w[0, j], w[1, j], w[2, j], w[3, j] = 1.0, sx1, sx2, sx1 * sx2
        w[4, j], w[5, j], w[6, j] = sv, sv * sx1 + sy1, sv * sx2 + sy2
        w[7, j] = sv * sx1 * sx2 + sy1 * sx2 + sy2 * sx1
    for link in range(s_a.shape[0]):
        t[:] = 0.0
        for i in range(n - 1, -1, -1):
            a, b = s_a[link, i], g * s_b[link, i]
            for k in range(8):
                t[k] += a * w[k, i]
            t[8] += b * w[0, i]
            t[9] += b * w[1, i]
            t[10] += b * w[3, i]
            for k in range(11):
                run[k, i] = t[k]
        q0, q1, q2, qq = run[4, 0], run[5, 0], run[6, 0], run[7, 0]
        for i in range(n):
            o, a1, a2, a12 = run[0, i], run[1, i], run[2, i], run[3, i]
            c0, c1, c2, c12 = run[4, i], run[5, i], run[6, i], run[7, i]
            out[0, i] += o * q0
            out[1, i] += a1 * q0 + o * q1
            out[2, i] += a12 * q0 + a1 * q2 + a2 * q1 + o * qq
            out[3, i] += c0 * q0 + run[8, i]
            out[4, i] += c1 * q0 + c0 * q1 + run[9, i]
            out[5, i] += c12 * q0 + c1 * q2 + c2 * q1 + c0 * qq + run[10, i]
    _add_reaction(size, v, x1, y1, x2, y2, out)
    for k in range(6):
        for i in range(n):
            out[k, i] *= _ROUND
