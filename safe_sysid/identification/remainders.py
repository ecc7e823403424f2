r"""Bounds of momentum and momentum rate, and of their derivatives along a direction of state space.

With ``x`` a point of link l and ``<.,.>`` the inner product of L2(dm), the inertial part is

``p_i = (H qd)_i = sum_l <d_i x, xdot>`` and ``f_i = dL/dq_i = sum_l <d_i xdot, xdot> + g . int d_i x dm``,

``xdot = sum_k d_k x qd_k``. By :mod:`safe_sysid.robot.magnitudes` every derivative of x has norm at most
``a[l, k]``, k the most distal joint involved, and ``a[l, k]`` does not grow with k. Differentiate p and f along
``(dq, dqd)`` with ``|dq| <= x, |dqd| <= y`` by Leibniz' rule; every term is a sum over joints k, m, .. of
``a[l, max(i, k, m, ..)] qd_k x_m ..``. With ``a[l, k] = sum_{j >= k} s[l, j]``, all ``s >= 0``, such a sum equals
``sum_{j >= i} s[l, j] V_j X_j ..``, V_j the sum of ``qd_k`` up to joint j: a few cumulative sums instead of n^4 terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.robot.magnitudes import LinkNorms
from safe_sysid.robot.model import Kinematics

__all__ = ["MotionBounds", "Remainders"]

FloatArray = NDArray[np.float64]
_ROUND = 1.0 + 1e-11


@dataclass(frozen=True, eq=False)
class MotionBounds:
    """Bounds (N, n) for momentum p (N m s) and its rate f (N m): value, first and second directional derivative."""

    p0: FloatArray
    p1: FloatArray
    p2: FloatArray
    f0: FloatArray
    f1: FloatArray
    f2: FloatArray


class Remainders:
    """Evaluates the bounds for all configurations and all consistent parameters of a box."""

    def __init__(self, kin: Kinematics, norms: LinkNorms) -> None:
        """Take the norms of the box and gravity of the arm."""
        self._s_a, self._s_b = _steps(norms.a), _steps(norms.b)
        self._g = float(np.linalg.norm(kin.gravity)) * _ROUND

    def bounds(self, v: FloatArray, x: FloatArray, y: FloatArray) -> MotionBounds:
        """Bounds for all ``|qd| <= v`` and directions ``|dq| <= x``, ``|dqd| <= y``; each (N, n) >= 0.

        ``p1`` bounds ``|Dp[dq, dqd]|``, ``p2`` bounds ``|D^2 p[(dq, dqd), (dq, dqd)]|``; likewise f.
        """
        v_sum, x_sum, y_sum = (np.cumsum(np.abs(z), axis=-1) for z in (v, x, y))
        one = np.ones_like(v_sum)
        # d_i x, d_i xdot and their first and second derivatives: (N, links, i); i = 0 of the latter is xdot itself.
        b0, b1, b2 = self._sum(one), self._sum(x_sum), self._sum(x_sum * x_sum)
        c0 = self._sum(v_sum)
        c1 = self._sum(v_sum * x_sum) + self._sum(y_sum)
        c2 = self._sum(v_sum * x_sum * x_sum) + 2.0 * self._sum(y_sum * x_sum)
        q0, q1, q2 = c0[..., :1], c1[..., :1], c2[..., :1]
        g0, g1, g2 = (self._g * self._sum(z, gravity=True) for z in (one, x_sum, x_sum * x_sum))

        def total(z: FloatArray) -> FloatArray:
            return z.sum(axis=1) * _ROUND

        return MotionBounds(
            p0=total(b0 * q0),
            p1=total(b1 * q0 + b0 * q1),
            p2=total(b2 * q0 + 2.0 * b1 * q1 + b0 * q2),
            f0=total(c0 * q0 + g0),
            f1=total(c1 * q0 + c0 * q1 + g1),
            f2=total(c2 * q0 + 2.0 * c1 * q1 + c0 * q2 + g2),
        )

    def _sum(self, product: FloatArray, gravity: bool = False) -> FloatArray:
        """``sum_{j >= i} s[l, j] product_j``: (N, n) -> (N, links, i)."""
        terms = (self._s_b if gravity else self._s_a)[None] * product[:, None, :]
        return np.cumsum(terms[..., ::-1], axis=-1)[..., ::-1]


def _steps(norms: FloatArray) -> FloatArray:
    """``s >= 0`` with ``sum_{j >= k} s[l, j] >= norms[l, k]``, for norms that fall with k (else their envelope)."""
    falling = np.maximum.accumulate(norms[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([falling[:, :-1] - falling[:, 1:], falling[:, -1:]], axis=1)
