r"""Motions that are linear in free numbers, joint by joint: of any kind, and from rest to rest through inner knots.

With K pieces the K - 1 inner knots (position, velocity, acceleration of every joint) are free, so that position,
velocity and acceleration are continuous whatever they are. The integral of squared jerk is an exact quadratic of them:
jerk is a parabola on each piece, and three Gauss points integrate its square exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["KnotFamily", "MotionSampler"]


@dataclass(frozen=True, eq=False)
class MotionSampler:
    """``base + basis x_j`` for every joint j; what is free is x (n, m)."""

    times: FloatArray  #: (N,) s
    base: FloatArray  #: (4, N, n) position, velocity, acceleration, jerk at x = 0
    basis: FloatArray  #: (4, N, m) what each free number adds to its joint's

    def states(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Position, velocity, acceleration, jerk, each (N, n) and C-contiguous."""
        q, qd, qdd, jerk = (np.ascontiguousarray(self.base[o] + self.basis[o] @ x.T) for o in range(4))
        return q, qd, qdd, jerk

    def own(self, order: int, slope: FloatArray) -> FloatArray:
        """Derivatives (N n, n m) of numbers (N, n) that depend on their own joint's state only, by ``slope`` (N, n)."""
        count, n = slope.shape
        out = np.zeros((count, n, n, self.basis.shape[2]))
        joints = np.arange(n)
        out[:, joints, joints] = slope[..., None] * self.basis[order][:, None, :]
        return out.reshape(count * n, -1)

    def chain(self, by_state: FloatArray) -> FloatArray:
        """Derivatives (N c, n m) of numbers (N, c) from those by the first k orders of the state (N, c, k, n)."""
        count, columns, orders, n = by_state.shape
        out = np.einsum("scoi,osa->scia", by_state, self.basis[:orders])
        return np.asarray(out.reshape(count * columns, n * self.basis.shape[2]))

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Position, velocity, acceleration for x (n m,): what a cost asks of a family's sampler."""
        return self.states(x.reshape(self.base.shape[2], -1))[:3]

    def pull_back(self, by_state: FloatArray) -> FloatArray:
        """Derivative by x (n m,) from derivatives (N, 3, n) by the states."""
        return np.asarray(np.einsum("soi,osa->ia", by_state, self.basis[:3]).ravel())


#: Typical velocity and acceleration of a knot per rad of position, times the duration and its square.
_RATE = (1.0, 2.0, 8.0)


@dataclass(frozen=True, eq=False)
class KnotFamily:
    """All motions of given ends and durations; x (n, m) selects one, m = 3 (K - 1), in units of about one rad."""

    start: FloatArray  #: (n,) rad, at rest
    goal: FloatArray  #: (n,) rad, at rest
    pieces: FloatArray  #: (K,) durations, s
    unit: FloatArray = field(init=False)  #: (m,) what one unit of x is: rad, rad/s, rad/s^2, knot by knot
    #: (m, m) and ``linear`` (n, m), ``constant``: the integral of squared jerk over all joints is ``sum_j x_j^T
    #: quadratic x_j + 2 linear_j^T x_j`` plus the constant, rad^2/s^5
    quadratic: FloatArray = field(init=False, repr=False)
    linear: FloatArray = field(init=False, repr=False)
    constant: float = field(init=False, repr=False)
    _times: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate, freeze, integrate the jerk.

        Raises:
            PlanError: durations that are not positive, or none.
        """
        start = frozen_array(self.start, None, "motion start")
        goal = frozen_array(self.goal, start.shape, "motion goal")
        pieces = frozen_array(self.pieces, None, "motion pieces")
        if start.ndim != 1 or pieces.ndim != 1 or not len(pieces) or not np.all(pieces > 1e-3):
            raise PlanError(f"motion pieces {pieces.tolist()} s: expected one or more durations above 1e-3")
        times = np.append(0.0, np.cumsum(pieces))
        times.setflags(write=False)
        unit = np.tile(np.array(_RATE) / times[-1] ** np.arange(3), len(pieces) - 1)
        unit.setflags(write=False)
        for name, value in (("start", start), ("goal", goal), ("pieces", pieces), ("_times", times), ("unit", unit)):
            object.__setattr__(self, name, value)
        nodes, weights = np.polynomial.legendre.leggauss(3)
        at = np.concatenate([a + 0.5 * h * (nodes + 1.0) for a, h in zip(times, pieces, strict=False)])
        weight = np.concatenate([0.5 * h * weights for h in pieces])
        sampler = self.sampler(at)
        jerk, slope = sampler.base[3], sampler.basis[3]
        object.__setattr__(self, "quadratic", np.einsum("t,ta,tb->ab", weight, slope, slope))
        object.__setattr__(self, "linear", np.einsum("t,tj,ta->ja", weight, jerk, slope))
        object.__setattr__(self, "constant", float(np.einsum("t,tj,tj->", weight, jerk, jerk)))

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.start)

    @property
    def free(self) -> int:
        """Number m of free numbers per joint."""
        return len(self.unit)

    @property
    def duration(self) -> float:
        """Of the whole motion, s."""
        return float(self._times[-1])

    def trajectory(self, x: ArrayLike) -> QuinticTrajectory:
        """The motion that x (n, m) selects."""
        inner = (np.asarray(x, float).reshape(self.n, self.free) * self.unit).T
        return QuinticTrajectory(self._times, self._knots(inner, self.start, self.goal))

    def knots(self, trajectory: QuinticTrajectory) -> FloatArray:
        """The x (n, m) of a motion through the same instants."""
        return np.asarray(trajectory.knots[1:-1].reshape(self.free, self.n).T / self.unit)

    def _knots(self, inner: FloatArray, start: FloatArray, goal: FloatArray) -> FloatArray:
        count = inner.shape[1]
        rest = np.zeros((2, 3, count))
        rest[0, 0], rest[1, 0] = start, goal
        return np.concatenate([rest[:1], inner.reshape(-1, 3, count), rest[1:]])

    def sampler(self, times: ArrayLike) -> MotionSampler:
        """Fast evaluation at fixed times (N,), s."""
        times = np.asarray(times, float)
        still = QuinticTrajectory(self._times, self._knots(np.zeros((self.free, self.n)), self.start, self.goal))
        base = np.moveaxis(still.states(times), 1, 0)
        if not self.free:
            return MotionSampler(times, base, np.zeros((4, len(times), 0)))
        # As many joints as there are free numbers, each with one of them.
        ends = np.zeros(self.free)
        each = QuinticTrajectory(self._times, self._knots(np.diag(self.unit), ends, ends))
        return MotionSampler(times, base, np.moveaxis(each.states(times), 1, 0))

    def jerk(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Integral of squared jerk over all joints, rad^2/s^5, and its derivative (n, m)."""
        along = x @ self.quadratic
        return self.constant + float(np.sum(x * (along + 2.0 * self.linear))), 2.0 * (along + self.linear)

    def smoothest(self, inner: ArrayLike | None = None) -> FloatArray:
        """The x (n, m) of least jerk; given the inner knots' positions (K - 1, n), rad: of least jerk through these."""
        if not self.free:
            return np.zeros((self.n, 0))
        if inner is None:
            return np.asarray(-np.linalg.solve(self.quadratic, self.linear.T).T, float)
        given = np.arange(0, self.free, 3)
        rest = np.setdiff1d(np.arange(self.free), given)
        x = np.zeros((self.n, self.free))
        x[:, given] = np.asarray(inner, float).T / self.unit[given]
        known = self.linear[:, rest] + x[:, given] @ self.quadratic[np.ix_(given, rest)]
        x[:, rest] = -np.linalg.solve(self.quadratic[np.ix_(rest, rest)], known.T).T
        return x
