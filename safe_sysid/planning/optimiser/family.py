r"""The trajectories that a plan is chosen from: one motion to rest per joint from a given state, linear in k.

``q(t; k) = base(t) + k_range * k * s(t / t_f)`` with ``s(x) = 10 x^3 - 15 x^4 + 6 x^5`` and k in [-1, 1]^n. The base is
one of two:

- the natural braking motion: of all quintics from the start state to rest in t_f the one with the least integral of
  squared jerk, which ends at ``q + v t_f / 2 + a t_f^2 / 12``; so k = 0 asks the least of the arm whatever it is doing;
- the certified rest of the plan under way, then standing still. Then k = 0 *is* that rest: it is certified already, for
  a larger box, so from a moving start there always is a plan (a piecewise quintic with one knot more).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["TrajectoryFamily", "shape"]

#: Knots are at least this far apart, s.
_LEAST = 1e-5


def shape(x: ArrayLike) -> FloatArray:
    """``s`` and three derivatives (4, N) at x in [0, 1]: from 0 to 1, velocity and acceleration zero at both ends."""
    x = np.asarray(x, float)
    return np.stack(
        [
            x**3 * (10 + x * (-15 + 6 * x)),
            30 * x**2 * (1 - x) ** 2,
            60 * x * (1 - x) * (1 - 2 * x),
            60 * (1 + x * (-6 + 6 * x)),
        ]
    )


@dataclass(frozen=True, eq=False)
class TrajectoryFamily:
    """All trajectories from one start state."""

    start: FloatArray  #: (3, n) position, velocity, acceleration at hand-over; rad, rad/s, rad/s^2
    k_range: FloatArray  #: (n,) rad, how far the end moves per unit of k
    duration: float  #: t_f, s
    #: what k = 0 does, from the start state to rest and no longer than t_f; None: the natural braking motion
    tail: QuinticTrajectory | None = None
    centre: FloatArray = field(init=False)  #: (n,) where k = 0 ends, rad

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            PlanError: shapes, a range that is not positive, or a duration that is not.
        """
        start = frozen_array(self.start, None, "plan start state")
        if start.ndim != 2 or start.shape[0] != 3:
            raise PlanError(f"plan start state: shape {start.shape}: expected (3, n)")
        n = start.shape[1]
        k_range = frozen_array(np.broadcast_to(np.asarray(self.k_range, float), (n,)), (n,), "k_range")
        if np.any(k_range <= 0.0):
            raise PlanError(f"k_range = {k_range.tolist()}: expected positive angles")
        if not (np.isfinite(self.duration) and self.duration > 0.0):
            raise PlanError(f"t_f = {self.duration!r} s: expected a positive time")
        t = self.duration
        centre = start[0] + 0.5 * t * start[1] + t * t / 12.0 * start[2]
        if self.tail is not None:
            if self.tail.n != n or not np.array_equal(self.tail.knots[0], start) or self.tail.duration > t:
                raise PlanError(f"tail of {self.tail.duration} s: expected it to begin at the start and end by {t} s")
            centre = self.tail.knots[-1, 0].copy()
        centre.setflags(write=False)
        for name, value in (("start", start), ("k_range", k_range), ("centre", centre)):
            object.__setattr__(self, name, value)

    @classmethod
    def along(
        cls, previous: QuinticTrajectory, start: FloatArray, since: float, k_range: FloatArray, duration: float
    ) -> TrajectoryFamily | None:
        """The family whose k = 0 goes on as ``previous`` does.

        Args:
            start: (3, n) its state at ``since``; rounding may differ.
            since: s of its own time.
            k_range: (n,) rad.
            duration: t_f, s.

        Returns:
            None if its rest takes longer than ``duration``, or would make more than the three knots a plan may have.
        """
        later = previous.times > since + _LEAST
        # Whole nanoseconds, as messages count time: 3.1 - 1.6 is 1.5000000000000002. What it moves is certified anew.
        times = np.append(0.0, np.round((previous.times[later] - since) * 1e9) / 1e9)
        if len(times) < 2 or times[-1] > duration:
            return None
        if times[-1] > duration - _LEAST:
            times[-1] = duration
        if len(times) + (times[-1] < duration) > 3:
            return None
        tail = QuinticTrajectory(times, np.concatenate([start[None], previous.knots[later]]))
        return cls(start, k_range, duration, tail)

    @property
    def n(self) -> int:
        """Number of joints."""
        return int(self.start.shape[1])

    def goal(self, k: ArrayLike) -> FloatArray:
        """End position (n,) of the trajectory with parameter k (n,)."""
        return self.centre + self.k_range * np.asarray(k, float)

    def parameter(self, goal: ArrayLike) -> FloatArray:
        """The k (n,) that ends at ``goal`` (n,); not limited to [-1, 1]."""
        return (np.asarray(goal, float) - self.centre) / self.k_range

    def trajectory(self, k: ArrayLike) -> QuinticTrajectory:
        """The trajectory itself; its first knot *is* the start state, bit for bit.

        Raises:
            PlanError: k is not (n,) within [-1, 1].
        """
        k = np.asarray(k, float)
        if k.shape != (self.n,) or not np.all(np.abs(k) <= 1.0):
            raise PlanError(f"k = {k.tolist()}: expected {self.n} numbers in [-1, 1]")
        if self.tail is None:
            return QuinticTrajectory.to_rest(self.start, self.goal(k), self.duration)
        times, knots = self.tail.times, self.tail.knots
        if times[-1] < self.duration:
            times, knots = np.append(times, self.duration), np.concatenate([knots, knots[-1:]])
        move = shape(times / self.duration)[:3] / self.duration ** np.arange(3.0)[:, None]
        return QuinticTrajectory(times, knots + move.T[:, :, None] * (self.k_range * k))

    def sampler(self, times: ArrayLike) -> Sampler:
        """Fast evaluation at fixed times (N,), s."""
        times = np.asarray(times, float)
        base = self.trajectory(np.zeros(self.n)).states(times)
        basis = shape(times / self.duration) / self.duration ** np.arange(4.0)[:, None]
        return Sampler(base, basis, self.k_range)


@dataclass(frozen=True, eq=False)
class Sampler:
    """States of a family at fixed times: ``base + k_range k times``."""

    base: FloatArray  #: (N, 4, n) states of k = 0, jerk included
    basis: FloatArray  #: (4, N) the shape and its time derivatives
    k_range: FloatArray  #: (n,) rad

    def __call__(self, k: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Position, velocity, acceleration, each (N, n) and C-contiguous."""
        step = self.k_range * k
        q, qd, qdd = (self.base[:, i] + self.basis[i][:, None] * step for i in range(3))
        return q, qd, qdd

    def jerk(self, ks: FloatArray) -> FloatArray:
        """Jerk (B N, n) for parameters (B, n), parameter by parameter."""
        step = ks[:, None, :] * self.k_range * self.basis[3][:, None]
        return (self.base[:, 3] + step).reshape(-1, len(self.k_range))

    def pull_back(self, by_state: FloatArray) -> FloatArray:
        """Derivative with respect to k (n,) from derivatives (N, 3, n) with respect to the states."""
        return np.einsum("kij,ik->j", by_state, self.basis[:3]) * self.k_range
