r"""Bounds of momentum, of its rate and of their derivatives over all configurations, rounded upward.

The proof. Let x be a point of link l, ``d_i x`` its derivative with respect to joint i, ``|.|`` the norm of L2(dm).

1. Let k be the most distal joint named. If it turns, ``d_i d_j .. x`` is the vector from its axis to x, after cross
   products with unit axes, or zero; zero for k > l. So its norm is at most ``a[l,k] = sqrt(m) D + sqrt(largest
   eigenvalue of I_l)``, D the distance of the link's origin from axis k: at most the part across the axis of the step
   to the next frame, ``|t x axis|``, plus the lengths of the steps after it; a prismatic joint is at the end of its
   travel that gives more (both are convex in its position). If k slides, it is the unit vector along it, after such
   products, or zero: at most ``a[l,k] = sqrt(m)``, ``b[l,k] = m``. ``I = tr(S) 1 - S``, S the positive semidefinite
   second moments, so ``eigenvalue <= tr(S) = tr(I) / 2``. Likewise ``|int d_i x dm| <= b[l,k] = m D + |m c|``.
2. Momentum ``p_i = sum_l <d_i x, xdot>`` with ``xdot = sum_k d_k x qd_k``;
   ``f_i = d(T - U)/dq_i = sum_l <d_i xdot, xdot> + g . int d_i x dm``. Both are differentiated along (dq, dqd) by
   Leibniz' rule and bounded by Cauchy-Schwarz. Every factor is a sum over joints of
   ``a[l, largest index] * product``; terms are grouped by their largest index: with P_j the product of the sums up
   to j it is ``a[l,i] P_i + sum_{j > i} a[l,j] (P_j - P_{j-1})``, the differences written without subtraction.
3. A rotor that turns about z in link l, geared to joint d, adds ``kappa qd_d z.W`` to the energy, ``kappa = Ia_d
   gear``, W the sum of ``Z_k qd_k`` over the turning joints up to l: ``p_k = kappa w_k qd_d``, ``w_k = z.Z_k``, and
   ``p_d = kappa sum w_k qd_k``. ``|w_k| <= W_k``: from z to the axis of the carrier's joint, and on from axis to axis,
   angles are sides of spherical triangles, so the angle between z and Z_k is at most the sum of that to the next axis
   and the fixed one between the two, at least their difference. Unit vectors are turned against each other: any
   derivative of w_k is at most 1, and 0 with respect to joints that turn both. Leibniz' rule gives the rest.

All numbers are non-negative and nothing is subtracted, so one factor at the end covers all rounding (INFLATE).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.identification.certificates.interval_dynamics.arrays import exactly, inflate
from safe_sysid.robot.model import Kinematics

__all__ = ["DynamicsBounds", "LinkBounds"]


@dataclass(frozen=True, eq=False)
class DynamicsBounds:
    """Upper bounds (N, n): p0, f0 of the values (N m s, N m), p1, p2, f1, f2 of first and second derivatives.

    b0, b1, b2: of ``|int d_i x dm|`` (kg m), the derivative of f with respect to gravity, and of its derivatives.
    """

    p0: FloatArray
    p1: FloatArray
    p2: FloatArray
    f0: FloatArray
    f1: FloatArray
    f2: FloatArray
    b0: FloatArray
    b1: FloatArray
    b2: FloatArray


class LinkBounds:
    """Bounds for all physically consistent parameters of a box, or real links that exceed them by ``kin.excess``."""

    def __init__(
        self,
        kin: Kinematics,
        lower: FloatArray,
        upper: FloatArray,
        own: bool = True,
        reaction: FloatArray | None = None,
    ) -> None:
        """Bound the links.

        Args:
            lower: (14 n,) of a box that holds the true parameters.
            upper: (14 n,) likewise.
            own: whether a joint's momentum holds what its own rotor does.
            reaction: (U, 2) intervals of kappa of the last U motors, whose ratio is not known; None: there are none.
        """
        n = len(kin.axis)
        sliding = np.isfinite(kin.travel[:, 0])
        length, across = np.zeros(n), np.zeros(n)
        for j in range(n):
            # An exact rotation and unit axis in place of the float ones move an end of the travel by less than this.
            room = 1e-13 * float(np.max(np.abs(kin.travel[j]))) if sliding[j] else 0.0
            for end in range(2) if sliding[j] else range(1):
                t = exactly(kin.translation[j])
                if sliding[j]:
                    for i in range(3):
                        slope = exactly(kin.rotation[j][:, i]) * exactly(kin.axis[j][i])
                        t = t + slope * exactly(kin.travel[j, end])
                length[j] = max(length[j], float(inflate(np.sqrt((t.size() ** 2).sum()) + room)))
                if j > 0:
                    axis = exactly(kin.axis[j - 1])
                    cross = (t[[1, 2, 0]] * axis[[2, 0, 1]] - t[[2, 0, 1]] * axis[[1, 2, 0]]).size()
                    # The axis is a unit vector to 1e-14: see below.
                    across[j - 1] = max(across[j - 1], float(inflate(np.sqrt((cross**2).sum()) + room)))
        self._a, self._b, layout = np.zeros((n, n)), np.zeros((n, n)), ParameterLayout(n)
        for link in range(n):
            low, high = lower[layout.link(link)], upper[layout.link(link)]
            # What a real link has more than those that move as it does.
            more = kin.excess_by_link[link].tolist()
            mass = max(float(np.nextafter(high[0] + more[0], np.inf) if more[0] > 0.0 else high[0]), 0.0)
            moment = np.sqrt((np.maximum(np.abs(low[1:4]), np.abs(high[1:4])) ** 2).sum()) + more[1]
            # An upper bound below zero would say that no consistent link exists: zero is then as good as any.
            trace = max(float(np.nextafter(np.nextafter(high[4] + high[6], np.inf) + high[9], np.inf)), 0.0)
            radius = np.sqrt(0.5 * (trace + more[2]))
            for k in range(link + 1):
                if sliding[k]:
                    self._a[link, k], self._b[link, k] = inflate(np.sqrt(mass)), mass
                    continue
                # 1e-13: an exact unit axis in place of the float one turns |t x axis| by less than 1e-13 |t|.
                away = across[k] + 1e-13 * length[k + 1] + length[k + 2 : link + 1].sum() if k < link else 0.0
                self._a[link, k] = inflate(np.sqrt(mass) * away + radius)
                self._b[link, k] = inflate(mass * away + moment)
        self._own = own
        #: Of each motor: joint, turning joints up to the carrier, kappa, and W of these.
        self._motors: list[tuple[int, IntArray, float, FloatArray]] = []
        for m, driven in enumerate(kin.motors.joint):
            inertia = max(abs(float(side[layout.rotor_inertia][driven])) for side in (lower, upper))
            turning = np.flatnonzero(~sliding[: kin.motors.carrier[m] + 1])
            kappa = float(inflate(inertia * abs(float(kin.motors.gear[m])) * (1.0 + 4e-16)))
            unknown = m - len(kin.motors.joint) + (0 if reaction is None else len(reaction))
            if reaction is not None and unknown >= 0:
                kappa = float(np.max(np.abs(reaction[unknown])))
            self._motors.append((int(driven), turning, kappa, _spin_cosines(kin, m, turning)))
        self._g = float(inflate(np.sqrt((np.asarray(kin.gravity) ** 2).sum())))

    def over(self, v: FloatArray, x: FloatArray, y: FloatArray) -> DynamicsBounds:
        """Bounds for all ``|qd| <= v`` along all directions ``|dq| <= x, |dqd| <= y``; each (N, n), >= 0.

        Args:
            v: rad/s.
            x: rad.
            y: rad/s.
        """
        big_v, big_x, big_y = (np.cumsum(z, axis=1) for z in (v, x, y))
        old_v, old_x, old_y = big_v.copy(), big_x.copy(), big_y.copy()
        for old in (old_v, old_x, old_y):
            old[:, 1:] = old[:, :-1].copy()
            old[:, 0] = 0.0
        x2, d_x2 = big_x * big_x, x * (big_x + old_x)
        y_x = self._grouped(big_y * big_x, y * big_x + old_y * x)
        one = np.ones_like(v)
        zero = np.zeros_like(v)
        b0, b1, b2 = self._grouped(one, zero), self._grouped(big_x, x), self._grouped(x2, d_x2)
        c0 = self._grouped(big_v, v)
        c1 = self._grouped(big_v * big_x, v * big_x + old_v * x) + self._grouped(big_y, y)
        c2 = self._grouped(big_v * x2, v * x2 + old_v * d_x2) + 2.0 * y_x
        q0, q1, q2 = c0[:, :, :1], c1[:, :, :1], c2[:, :, :1]
        lever = [self._grouped(product, step, self._b) for product, step in ((one, zero), (big_x, x), (x2, d_x2))]
        weight = [self._g * z for z in lever]

        def links(z: FloatArray) -> FloatArray:
            return inflate(z.sum(axis=1))

        p, f = self._reaction(v, x, y)
        return DynamicsBounds(
            p0=inflate(links(b0 * q0) + p[0]),
            p1=inflate(links(b1 * q0 + b0 * q1) + p[1]),
            p2=inflate(links(b2 * q0 + 2.0 * b1 * q1 + b0 * q2) + p[2]),
            f0=inflate(links(c0 * q0 + weight[0]) + f[0]),
            f1=inflate(links(c1 * q0 + c0 * q1 + weight[1]) + f[1]),
            f2=inflate(links(c2 * q0 + 2.0 * c1 * q1 + c0 * q2 + weight[2]) + f[2]),
            b0=links(lever[0]),
            b1=links(lever[1]),
            b2=links(lever[2]),
        )

    def _reaction(self, v: FloatArray, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What motors on moving links add to (p0, p1, p2) and (f0, f1, f2), each (3, N, n)."""
        p, f = np.zeros((3, *v.shape)), np.zeros((3, *v.shape))
        for driven, turning, kappa, cosine in self._motors:
            s, ds = v[:, [driven]], y[:, [driven]]
            v_k, y_k, x_k = v[:, turning], y[:, turning], x[:, turning]
            # Of the joints beyond each: how far w_k may turn.
            away = np.zeros_like(x_k)
            away[:, :-1] = np.cumsum(x_k[:, :0:-1], axis=1)[:, ::-1]
            p[:, :, turning] += kappa * np.stack(
                [cosine * s, away * s + cosine * ds, away * away * s + 2.0 * away * ds]
            )
            first, second = away * v_k + y_k, away * away * v_k + 2.0 * away * y_k
            if self._own:
                each = np.stack([cosine * v_k, away * v_k + cosine * y_k, second])
                p[:, :, driven] += kappa * each.sum(axis=2)
            sums = np.zeros((3, *v_k.shape))  # over the joints before each
            sums[:, :, 1:] = np.cumsum(np.stack([v_k, first, second]), axis=2)[:, :, :-1]
            f[:, :, turning] += kappa * np.stack(
                [s * sums[0], ds * sums[0] + s * sums[1], 2.0 * ds * sums[1] + s * sums[2]]
            )
        return inflate(p), inflate(f)

    def _grouped(self, product: FloatArray, step: FloatArray, norms: FloatArray | None = None) -> FloatArray:
        """``a[l,i] P_i + sum_{j > i} a[l,j] step_j``: (N, n), (N, n) -> (N, links, n)."""
        a = self._a if norms is None else norms
        terms = a[None] * step[:, None, :]
        tail = np.zeros_like(terms)
        tail[..., :-1] = np.cumsum(terms[..., :0:-1], axis=-1)[..., ::-1]
        return a[None] * product[:, None, :] + tail


def _spin_cosines(kin: Kinematics, motor: int, turning: IntArray) -> FloatArray:
    """Upper bounds of ``|z . Z_k|`` of a motor for the turning joints given, up to its carrier."""

    def angle(a: FloatArray, b: FloatArray) -> float:
        """Between unit vectors, to some 1e-15 everywhere."""
        return float(2.0 * np.arctan2(np.sqrt(((a - b) ** 2).sum()), np.sqrt(((a + b) ** 2).sum())))

    out = np.zeros(len(turning))
    nearest = farthest = 0.0
    vector, frame = np.asarray(kin.motors.axis[motor], float), int(kin.motors.carrier[motor])
    for at in range(len(turning) - 1, -1, -1):
        joint = int(turning[at])
        while frame > joint:  # joints that slide between, and the fixed part of one that turns
            vector = kin.rotation[frame] @ vector
            frame -= 1
        side = angle(vector, kin.axis[joint])
        nearest, farthest = (
            max(0.0, side - farthest, nearest - side),
            min(np.pi, side + farthest, 2.0 * np.pi - side - nearest),
        )
        out[at] = min(1.0, max(np.cos(nearest), np.cos(np.pi - farthest)) + 1e-12)
        vector = np.asarray(kin.axis[joint], float)
    return out
