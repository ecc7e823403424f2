r"""Every state that the tracking theorem allows along a trajectory, by symbols in simple sets; plain floats.

Written from the theorem's statement, not from the enclosures' code: ``e = q_d - q`` in its box and its ellipsoid, r in
its ellipsoid, ``de = r - K_r e``; the controller sees ``q + dq`` and ``qd + dv``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["States", "Tube", "desired"]

#: Symbols are kept inside of their sets by more than the rounding of a norm.
_INSIDE = 1.0 - 1e-14


class States(NamedTuple):
    """Motions (N, n): true position and velocity, their reference, and what the controller computes with."""

    q: FloatArray
    qd: FloatArray
    acceleration: FloatArray
    jerk: FloatArray
    q_m: FloatArray
    qd_m: FloatArray
    qd_a: FloatArray
    qdd_a: FloatArray
    r_m: FloatArray


def desired(trajectory: QuinticTrajectory, times: FloatArray) -> FloatArray:
    """(N, 4, n) position .. jerk; rest from the end on."""
    segment = np.clip(np.searchsorted(trajectory.times, times, side="right") - 1, 0, len(trajectory.times) - 2)
    local = (times - trajectory.times[segment])[:, None]
    c = np.moveaxis(trajectory.coefficients[segment], -1, 0)
    out = np.empty((len(times), 4, trajectory.n))
    for order in range(4):
        value = c[-1]
        for term in c[-2::-1]:
            value = value * local + term
        out[:, order] = value
        c = c[1:] * np.arange(1.0, len(c))[:, None, None]
    over = times >= trajectory.duration
    out[over] = 0.0
    out[over, 0] = trajectory.knots[-1, 0]
    return out


@dataclass(frozen=True)
class Tube:
    """The set of states at one time. Symbols x (N, 1 + 4 n): time in its cell, e, r, and the two measurement errors.

    Attributes:
        e, r: (n,) semi-axes of the errors' ellipsoids, rad and rad/s.
        e_box: (n,) bound of each |e_j|, rad.
        k_r: (n,) 1/s.
        dq, dv: (n,) bounds of the measurement errors, rad and rad/s.
        own_damping: of r, in the acceleration that the law asks for, 1/s.
    """

    trajectory: QuinticTrajectory
    e: FloatArray
    r: FloatArray
    e_box: FloatArray
    k_r: FloatArray
    dq: FloatArray
    dv: FloatArray
    own_damping: float

    @classmethod
    def of(cls, trajectory: QuinticTrajectory, gains: ControllerGains) -> Tube:
        """What docs/understand/guarantees.md, "Tracking", says of these gains."""
        n = trajectory.n
        k_r, r, box = (np.broadcast_to(x, (n,)) * 1.0 for x in (gains.K_r, gains.r_bound, gains.e_bound))
        # |K e / r|^2 <= 1 + ln(K_max / K_min) / e, from below: a smaller set is still allowed.
        factor = np.sqrt(1.0 + np.log(k_r.max() / k_r.min()) / np.e) * (1.0 - 1e-15)
        assumed = gains.assumptions
        dq, dv = (np.broadcast_to(x, (n,)) * 1.0 for x in (assumed.position_error, assumed.velocity_error))
        return cls(trajectory, r / k_r * factor, r, np.minimum(box, r / k_r), k_r, dq, dv, gains.own_damping)

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.e)

    @property
    def size(self) -> int:
        """Number of symbols."""
        return 1 + 4 * self.n

    @property
    def live(self) -> BoolArray:
        """(size,) symbols that do anything."""
        return np.concatenate([[True], self.e > 0.0, self.r > 0.0, self.dq > 0.0, self.dv > 0.0])

    def project(self, x: FloatArray) -> FloatArray:
        """The nearest allowed symbols, or nearly; in place."""
        n = self.n
        x[:, 0] = np.clip(x[:, 0], -1.0, 1.0)
        for part in (slice(1, n + 1), slice(n + 1, 2 * n + 1)):
            x[:, part] *= _INSIDE / np.maximum(1.0, np.linalg.norm(x[:, part], axis=1, keepdims=True))
        bound = np.where(self.e > 0.0, self.e_box / np.where(self.e > 0.0, self.e, 1.0), 0.0) * _INSIDE
        x[:, 1 : n + 1] = np.clip(x[:, 1 : n + 1], -bound, bound)
        x[:, 2 * n + 1 :] = np.clip(x[:, 2 * n + 1 :], -1.0, 1.0)
        return x

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Symbols (count, size), most of them on borders and at corners."""
        n = self.n
        x = np.empty((count, self.size))
        x[:, 0] = np.where(rng.random(count) < 0.5, rng.choice([-1.0, 1.0], count), rng.uniform(-1, 1, count))
        for part in (slice(1, n + 1), slice(n + 1, 2 * n + 1)):
            y = rng.normal(size=(count, n))
            kind = rng.integers(0, 4, (count, 1))
            y = np.where(kind == 1, np.sign(y), y)
            y = np.where(kind == 2, y * np.eye(n)[rng.integers(n, size=count)], y)
            length = np.linalg.norm(y, axis=1, keepdims=True)
            x[:, part] = y / length * np.where(kind == 3, rng.random((count, 1)), 1.0)
        x[:, 2 * n + 1 :] = rng.choice([-1.0, 1.0], (count, 2 * n)) * np.where(
            rng.random((count, 1)) < 0.8, 1.0, rng.random((count, 2 * n))
        )
        return self.project(x)

    def times(self, borders: FloatArray, x: FloatArray) -> FloatArray:
        """(N,) times for symbols in cells with these borders (N, 2), s."""
        t = borders[:, 0] + 0.5 * (x[:, 0] + 1.0) * (borders[:, 1] - borders[:, 0])
        return np.clip(t, borders[:, 0], borders[:, 1])

    def states(self, times: FloatArray, x: FloatArray) -> States:
        """Motions for times (N,) and symbols (N, size)."""
        n = self.n
        d = desired(self.trajectory, times)
        e, r = x[:, 1 : n + 1] * self.e, x[:, n + 1 : 2 * n + 1] * self.r
        dq, dv = x[:, 2 * n + 1 : 3 * n + 1] * self.dq, x[:, 3 * n + 1 :] * self.dv
        q, qd = d[:, 0] - e, d[:, 1] - (r - self.k_r * e)
        q_m, qd_m = q + dq, qd + dv
        e_m, de_m = e - dq, (r - self.k_r * e) - dv
        return States(
            q,
            qd,
            d[:, 2],
            d[:, 3],
            q_m,
            qd_m,
            d[:, 1] + self.k_r * e_m,
            d[:, 2] + self.k_r * de_m + self.own_damping * (de_m + self.k_r * e_m),
            de_m + self.k_r * e_m,
        )
