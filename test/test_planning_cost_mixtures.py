"""Costs by name, the goal, mixtures, and what is carried from plan to plan."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation_support import random_arm

from safe_sysid.errors import ParameterError, PlanError
from safe_sysid.planning.costs import COST_NAMES, CostContext, CostMemory, CostSpec, GoalCost, MixedCost, build_cost
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.robot.model import RobotModel

TERM = st.tuples(st.floats(1e-6, 1e6, allow_nan=False), st.sampled_from(COST_NAMES))
TERMS = st.lists(TERM, min_size=1, max_size=len(COST_NAMES), unique_by=lambda term: term[1])


def arm(n: int, seed: int = 0) -> RobotModel:
    """A random arm whose joints have unequal torque errors."""
    model = random_arm(seed, n)
    rng = np.random.default_rng(seed)
    absolute, relative = tuple(rng.uniform(0.02, 0.2, n)), tuple(rng.uniform(0.0, 0.05, n))
    measurement = SimpleNamespace(torque_abs=absolute, torque_rel=relative)
    named = SimpleNamespace(measurement=measurement, identification=SimpleNamespace(window_s=0.1))
    return dataclasses.replace(model, settings=named, continuous=np.arange(n) % 2 == 0)


def context(n: int = 3, seed: int = 0, excited: int = 20, **changes: object) -> CostContext:
    model, rng = arm(n, seed), np.random.default_rng(seed)
    start = rng.normal(size=(3, n)) * np.array([[1.0], [0.3], [0.3]])
    family = TrajectoryFamily(start, rng.uniform(0.2, 1.0, n), 3.0)
    prior = model.arm_prior
    rows = rng.normal(size=(excited, 14 * n)) / prior.rad
    memory = CostMemory(0.2 * rows.T @ rows, np.eye(10))
    middle = 0.5 * (prior.payload_lower + prior.payload_upper)
    half = 0.5 * (prior.payload_upper - prior.payload_lower) * rng.uniform(0.3, 1.0, 10)
    box = prior.with_payload(middle - half, middle + half)
    goal = rng.uniform(-3, 3, n)
    whole = CostContext(model, family, box, prior, memory, 1.5, samples=32, window=4, goal=goal)
    return dataclasses.replace(whole, **changes)


def differences(value, k: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """Of fourth order, so that steps may be long: values of 1e4 are rounded, slopes may be 1e-5."""
    at = np.array([[value(k + i * step * d) for i in (-2, -1, 1, 2)] for d in np.eye(len(k))])
    return at @ np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * step)


@pytest.mark.parametrize("n", [1, 3, 6])
@pytest.mark.parametrize("name", [*COST_NAMES, "width+0.3*goal", "0.5*condition+2*smallest_eigenvalue"])
def test_gradients_of_every_cost_on_random_arms(name: str, n: int) -> None:
    # A condition number of what nothing has excited is rounding, and so are its differences.
    excited = 30 * n if name == "arm_condition" else 20
    for seed, window in ((0, 4), (1, 4), (0, 1), (1, 8)):
        found = build_cost(name, context(n, seed, excited, window=window))
        k = np.random.default_rng([seed, n]).uniform(-1, 1, n)
        value, gradient = found.value_and_gradient(k)
        assert value == pytest.approx(found.value(k), rel=1e-10)
        size = max(np.abs(gradient).max(), 1e-3)
        assert np.allclose(gradient, differences(found.value, k), rtol=1e-4, atol=2e-5 * size)


def test_every_name_is_another_cost() -> None:
    k = np.array([0.3, -0.2, 0.8])
    values = [build_cost(name, context()).value(k) for name in COST_NAMES]
    assert len({round(value, 9) for value in values}) == len(COST_NAMES)


@given(terms=TERMS)
def test_a_specification_is_read_as_it_is_written(terms: list[tuple[float, str]]) -> None:
    spec = CostSpec(tuple(terms))
    assert CostSpec.parse(str(spec)) == spec
    assert CostSpec.parse(str(spec).replace("+", " + ").replace("e + ", "e+").replace("*", " * ")) == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot read"),
        ("volume", "expected one of"),
        ("width+", "cannot read"),
        ("width+width", "appears 2 times"),
        ("-1*width", "cannot read"),
        ("0*width", "positive"),
        ("1.2.3*width", "expected a number"),
        ("width 0.3*goal", "cannot read"),
        ("1e999*width", "positive"),
    ],
)
def test_what_is_no_specification_is_refused(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        CostSpec.parse(text)


def test_no_goal_and_no_terms_are_refused() -> None:
    with pytest.raises(PlanError, match="no goal"):
        build_cost("width+goal", context(goal=None))
    with pytest.raises(PlanError, match="no term"):
        CostSpec(())


def test_a_mixture_is_the_weighted_sum() -> None:
    c, k = context(), np.array([0.1, -0.7, 0.4])
    mixed = build_cost("2*width+0.3*goal", c)
    assert isinstance(mixed, MixedCost)
    width, goal = build_cost("width", c), build_cost("goal", c)
    assert mixed.value(k) == pytest.approx(2.0 * width.value(k) + 0.3 * goal.value(k), rel=1e-12)
    assert mixed.gauss_newton(k) is None
    known = MixedCost(((0.5, goal), (2.0, goal)))
    assert np.allclose(known.gauss_newton(k), 2.5 * goal.gauss_newton(k))
    assert build_cost("0.3*goal", c).value(k) == pytest.approx(0.3 * goal.value(k))


@given(seed=st.integers(0, 10**6), far=st.floats(0.0, 30.0))
def test_goal_has_its_exact_second_derivative(seed: int, far: float) -> None:
    rng = np.random.default_rng(seed)
    family = TrajectoryFamily(rng.normal(size=(3, 4)), rng.uniform(0.1, 2.0, 4), 3.0)
    cost = GoalCost(family, family.centre + far * rng.normal(size=4), np.zeros(4, bool))
    k = rng.uniform(-1, 1, 4)
    hessian = cost.gauss_newton(k)
    expected = [differences(lambda x, i=i: cost.value_and_gradient(x)[1][i], k) for i in range(4)]
    assert np.allclose(hessian, expected, atol=1e-7)
    assert np.linalg.eigvalsh(hessian)[0] > 0.0


def test_goal_ranks_by_distance_and_takes_the_short_way_round() -> None:
    rng = np.random.default_rng(4)
    family = TrajectoryFamily(np.stack([np.array([3.0, 3.0]), np.zeros(2), np.zeros(2)]), 0.5, 3.0)
    goal = np.array([-3.0, -3.0])
    cost = GoalCost(family, goal, np.array([True, False]))
    assert np.allclose(cost.distance(np.zeros(2)), np.array([6.0 - 2 * np.pi, 6.0]) / 0.5)
    straight = GoalCost(family, goal, np.zeros(2, bool))
    ks = rng.uniform(-1, 1, (50, 2))
    ends = np.array([np.linalg.norm(family.goal(k) - goal) for k in ks])
    assert np.array_equal(np.argsort([straight.value(k) for k in ks]), np.argsort(ends))
    there = family.parameter(family.goal(np.array([0.2, 0.4])))
    at = GoalCost(family, family.goal(there), np.zeros(2, bool))
    assert at.value(there) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ParameterError, match="goal"):
        GoalCost(family, np.zeros(3), np.zeros(2, bool))


def test_memory_adds_what_was_driven() -> None:
    c, k = context(), np.array([0.5, -0.4, 0.9])
    after = c.after(k, 1.0)
    empty = dataclasses.replace(c, memory=CostMemory.none(3), horizon=1.0)
    assert np.allclose(after.information - c.memory.information, empty.width().information(k))
    assert np.allclose(after.payload - c.memory.payload, empty.condition().information(k))
    later = dataclasses.replace(c, memory=after)
    for name in ("width", "information", "log_determinant", "smallest_eigenvalue", "arm"):
        assert build_cost(name, later).value(k) < build_cost(name, c).value(k)
