"""Random boxes, motions and tracking sets for the tests of enclosures and certificates."""

from __future__ import annotations

import numpy as np

from safe_sysid.reachability.cells import TrackingSet
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.quintic import QuinticTrajectory


def random_box(theta: np.ndarray, rng: np.random.Generator, relative: float = 0.2) -> ParameterBox:
    """Unequal uncertainties about theta, off its middle, a tenth of them zero."""
    low, high = (rng.uniform(0.0, relative, theta.size) * (np.abs(theta) + 0.02) for _ in range(2))
    sure = rng.random(theta.size) < 0.1
    low[sure] = high[sure] = 0.0
    return ParameterBox(theta - low, theta + high)


def random_trajectory(n: int, rng: np.random.Generator, duration: float = 3.0) -> QuinticTrajectory:
    """One quintic from a moving state to rest, or two of them with a knot between."""
    q = rng.uniform(-3, 3, n)
    start = np.stack([q, rng.uniform(-0.6, 0.6, n), rng.uniform(-1, 1, n)])
    if rng.random() < 0.5:
        return QuinticTrajectory.to_rest(start, q + rng.uniform(-0.8, 0.8, n), duration)
    middle = np.stack([q + rng.uniform(-0.4, 0.4, n), rng.uniform(-0.5, 0.5, n), rng.uniform(-1, 1, n)])
    end = np.stack([middle[0] + rng.uniform(-0.4, 0.4, n), np.zeros(n), np.zeros(n)])
    return QuinticTrajectory(np.array([0.0, 0.37 * duration, duration]), np.stack([start, middle, end]))


def random_tracking(n: int, rng: np.random.Generator) -> TrackingSet:
    """Unequal errors of the size that gains give, per-joint K_r."""
    r, k_r = rng.uniform(0.01, 0.1, n), rng.uniform(3.0, 8.0, n)
    return TrackingSet(r / k_r * rng.uniform(1.0, 1.2, n), r, k_r)
