"""Quintic segments: exact knots, clear refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_sysid.errors import PlanError
from safe_sysid.trajectories import Plan, QuinticTrajectory


def random_trajectory(seed: int, knots: int = 2, n: int = 3) -> QuinticTrajectory:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-2, 2, (knots, 3, n))
    values[-1, 1:] = 0.0
    return QuinticTrajectory(np.r_[0.0, np.cumsum(rng.uniform(0.3, 3, knots - 1))], values)


@given(st.integers(0, 2**31), st.integers(2, 3))
def test_knots_are_met_and_derivatives_agree(seed: int, knots: int) -> None:
    trajectory = random_trajectory(seed, knots)
    for i, t in enumerate(trajectory.times):
        np.testing.assert_allclose(trajectory.state(t)[:3], trajectory.knots[i], atol=1e-8)
    t, h = 0.37 * trajectory.times[1], 1e-5
    numeric = (trajectory.state(t + h) - trajectory.state(t - h)) / (2 * h)
    exact = trajectory.state(t)
    np.testing.assert_allclose(numeric[:3], exact[1:], atol=1e-4 * (1 + np.abs(exact).max()))


def test_after_the_end_it_rests() -> None:
    trajectory = random_trajectory(1)
    state = trajectory.state(trajectory.duration + 5)
    np.testing.assert_array_equal(state[0], trajectory.knots[-1, 0])
    np.testing.assert_array_equal(state[1:], 0.0)


def test_malformed_trajectories_are_refused() -> None:
    good = np.zeros((2, 3, 1))
    with pytest.raises(PlanError, match="at rest"):
        QuinticTrajectory(np.array([0.0, 1.0]), np.ones((2, 3, 1)))
    with pytest.raises(PlanError, match="increasing"):
        QuinticTrajectory(np.array([0.0, 0.0]), good)
    with pytest.raises(PlanError, match="expected 0 first"):
        QuinticTrajectory(np.array([1.0, 2.0]), good)


def test_plans_are_validated() -> None:
    trajectory = random_trajectory(0)
    with pytest.raises(PlanError, match="identity"):
        Plan(trajectory, 0.0, 0.1, "prior", 0, np.zeros(3))
    with pytest.raises(PlanError, match="t_plan"):
        Plan(trajectory, 0.0, 100.0, "0:0", 0, np.zeros(3))
    with pytest.raises(PlanError, match="finite"):
        Plan(trajectory, np.nan, 0.1, "0:0", 0, np.zeros(3))
