"""Desired motions of the reachability campaign: the ones on which enclosures of polynomials tend to be wrong."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["draw_motion"]


def draw_motion(
    rng: np.random.Generator, kind: str, n: int, velocity: FloatArray, home: FloatArray | None, far: bool
) -> QuinticTrajectory:
    """A trajectory to rest. Raises ParameterError: unknown kind.

    Args:
        kind: "rest": one quintic from a moving state; "knots": two to five segments, acceleration and jerk jump;
            "hold"; "limits": starts at the velocity limit in every joint; "extrema": there and back, turning points
            inside cells; "low_order": coefficients that vanish, or nearly; "short", "long": milliseconds, a minute;
            "crawl": velocities about zero, where friction changes its sign.
        velocity: (n,) velocity limits, rad/s.
        home: (n,) about where to move, rad; None for anywhere.
        far: whether to start many turns from zero.
    """
    q = rng.uniform(-3.0, 3.0, n) if home is None else home + rng.normal(0.0, 0.3, n)
    if far:
        q = q + 2.0 * np.pi * rng.integers(-200, 200, n) * (rng.random(n) < 0.7)
    duration = float(rng.uniform(0.5, 4.0))
    start = np.stack([q, rng.uniform(-0.6, 0.6, n), rng.uniform(-1.0, 1.0, n)])
    if kind == "hold":
        return QuinticTrajectory.hold(q, duration)
    if kind == "rest":
        return QuinticTrajectory.to_rest(start, q + rng.uniform(-0.8, 0.8, n), duration)
    if kind == "limits":
        start[1] = rng.choice([-1.0, 1.0], n) * velocity
        return QuinticTrajectory.to_rest(start, q + 0.4 * duration * start[1], duration)
    if kind == "extrema":
        start[1] *= 3.0
        return QuinticTrajectory.to_rest(start, q + rng.uniform(-0.05, 0.05, n), duration)
    if kind == "low_order":
        return _low_order(rng, start, duration)
    if kind == "short":
        return QuinticTrajectory.to_rest(start, q + 1e-3 * start[1], float(10.0 ** rng.uniform(-5.5, -1.5)))
    if kind == "long":
        return QuinticTrajectory.to_rest(start, q + rng.uniform(-2.0, 2.0, n), float(rng.uniform(15.0, 60.0)))
    if kind == "crawl":
        start[1:] *= 10.0 ** rng.uniform(-4.0, -1.0)
        return QuinticTrajectory.to_rest(start, q + rng.normal(0.0, 0.02, n), duration)
    if kind == "knots":
        return _knots(rng, start, duration)
    raise ParameterError(f"motion = {kind!r}: unknown")


def _knots(rng: np.random.Generator, start: FloatArray, duration: float) -> QuinticTrajectory:
    count, n = int(rng.integers(2, 6)), start.shape[1]
    steps = rng.uniform(0.05, 1.0, count)
    if rng.random() < 0.3:
        steps[rng.integers(count)] = 1e-5  # next to nothing: a cell of its own
    times = np.concatenate([[0.0], np.cumsum(steps) * duration / steps.sum()], dtype=float)
    if rng.random() < 0.3:
        rounded = np.asarray(np.round(times, 1), float)
        times = rounded if np.all(np.diff(rounded) > 0.0) else times
    knots = np.empty((count + 1, 3, n))
    knots[0] = start
    for i in range(count):
        h = times[i + 1] - times[i]
        slow = min(h / 0.05, 1.0)  # a short segment cannot turn anything
        knots[i + 1, 2] = knots[i, 2] + slow * rng.uniform(-1.0, 1.0, n)
        knots[i + 1, 1] = knots[i, 1] + 0.5 * h * (knots[i, 2] + knots[i + 1, 2])
        knots[i + 1, 0] = knots[i, 0] + h * 0.5 * (knots[i, 1] + knots[i + 1, 1])
    knots[-1, 1:] = 0.0
    if times[-1] - times[-2] < 0.05:
        times[-1] = times[-2] + 0.3
    return QuinticTrajectory(times, knots)


def _low_order(rng: np.random.Generator, start: FloatArray, duration: float) -> QuinticTrajectory:
    """Ends chosen so that in every joint the quintic, or also the quartic, coefficient is zero or nearly."""
    q, v, a = (row.copy() for row in start)
    n, h = len(q), duration
    # With rest at the end: c5 h^5 = 6 D - 3 v h - a h^2 / 2 ... with D = q1 - q0.
    kind = rng.integers(0, 4, n)
    a = np.where(kind >= 2, 0.0, a)
    v = np.where(kind == 3, 0.0, v)
    end = q + 0.5 * v * h + a * h * h / 12.0  # c5 = 0
    cubic = kind == 1  # c4 = c5 = 0 as well: then the end's acceleration fixes a
    a = np.where(cubic, -2.0 * v / h, a)
    end = np.where(cubic, q + v * h / 3.0, end)
    nudge = rng.choice([0.0, 1e-16, 1e-12, 1e-7], n) * rng.choice([-1.0, 1.0], n)
    return QuinticTrajectory.to_rest(np.stack([q, v, a]), end + nudge, h)
