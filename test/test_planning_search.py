"""The search: only certified parameters come back, budgets and deadlines hold, the same seed gives the same plan."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.control.gains.design import design_gains
from safe_sysid.planning.certification.verdicts import PlanVerdict
from safe_sysid.planning.costs.condition import ConditionCost, payload_scale
from safe_sysid.planning.distances.proximity import Proximity
from safe_sysid.planning.optimiser.constraints import FastConstraints
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.optimiser.optimise import Budget, PlanProblem, SearchResult, candidates, solve
from safe_sysid.robot import load_robot, load_scene

Certify = Callable[[np.ndarray], PlanVerdict]


def make_problem(seed: int = 0, keep: int = 3) -> PlanProblem:
    model, scene = load_robot("kinova_gen3"), load_scene("open")
    gains = design_gains(model, lockstep=True)
    start = np.zeros((3, 7))
    start[0] = scene.start_for(model)
    family = TrajectoryFamily(start, 0.785, 3.0)
    cost = ConditionCost(model.kinematics, family, payload_scale(model.arm_prior), np.zeros((10, 10)), 1.5, samples=32)
    fast = FastConstraints(model, model.arm_prior, gains, family, Proximity.build(model, scene), samples=13, blocks=4)
    fast = fast.with_reserve({name: 0.2 * value for name, value in fast.reserve.items()})
    starts = np.random.default_rng(seed).uniform(-1, 1, (6, 7))
    return PlanProblem(cost, fast, starts, keep)


@functools.cache
def the_problem() -> PlanProblem:
    return make_problem()


BUDGET = Budget(iterations=40, certificates=4)


def stricter(problem: PlanProblem, share: float) -> Certify:
    """A certifier that asks for more than the optimiser's first guess, seen at four times as many instants."""
    c = problem.constraints
    dense = FastConstraints(c.model, c.box, c.gains, c.family, c.proximity, samples=49, blocks=1, reserve=c.reserve)
    dense = dense.with_reserve({name: value + share * c.scale[name] for name, value in dense.reserve.items()})

    def certify(k: np.ndarray) -> PlanVerdict:
        margins = {name: value - dense.reserve[name] for name, value in dense.raw(k).items()}
        return PlanVerdict(all(np.min(m) >= 0.0 for m in margins.values()), margins)

    return certify


def test_an_uncalibrated_problem_asks_for_the_gentlest_first_and_then_finds_what_a_stricter_certifier_accepts() -> None:
    result = solve(the_problem(), stricter(the_problem(), 0.1), BUDGET)
    assert np.array_equal(result.attempts[0].k, np.zeros(7))
    # Calibrated by it, the next proposals are not refused.
    assert all(attempt.verdict.certified for attempt in result.attempts)
    assert result.best.cost < result.attempts[0].cost - 1.0
    assert stricter(the_problem(), 0.1)(result.best.k).certified
    assert np.abs(result.best.k).max() > 0.3, "not just the gentlest"
    assert len(result.attempts) <= BUDGET.certificates


def test_beats_random_certified_parameters() -> None:
    certify = stricter(the_problem(), 0.1)
    rng = np.random.default_rng(1)
    costs = []
    for k in rng.uniform(-1, 1, (60, 7)):
        shortened = (scale * k for scale in (1.0, 0.7, 0.5, 0.3))
        costs += [the_problem().cost.value(x) for x in shortened if certify(x).certified][:1]
    assert len(costs) >= 20
    result = solve(the_problem(), certify, dataclasses.replace(BUDGET, certificates=6))
    assert result.best.cost < min(costs)


def test_candidates_keep_the_fast_margins_best_first() -> None:
    found = candidates(the_problem(), BUDGET)
    assert len(found) >= 2
    assert [cost for cost, _ in found] == sorted(cost for cost, _ in found)
    for cost, k in found:
        assert the_problem().cost.value(k) == pytest.approx(cost)
        assert the_problem().constraints.values(k).min() >= -2e-3
        assert np.all(np.abs(k) <= 1.0)


def test_same_seed_and_budget_same_result() -> None:
    first, second = (solve(make_problem(3), stricter(the_problem(), 0.1), BUDGET) for _ in range(2))
    assert [a.cost for a in first.attempts] == [a.cost for a in second.attempts]
    assert all(np.array_equal(a.k, b.k) for a, b in zip(first.attempts, second.attempts, strict=True))
    other = solve(make_problem(4), stricter(the_problem(), 0.1), BUDGET)
    assert [a.cost for a in first.attempts] != [a.cost for a in other.attempts]


def check_only_certified(result: SearchResult, budget: Budget) -> None:
    certified = [attempt for attempt in result.attempts if attempt.verdict.certified]
    assert len(result.attempts) <= budget.certificates
    assert result.iterations <= budget.iterations
    if result.best is None:
        assert not certified
    else:
        assert result.best in certified
        assert result.best.cost == min(attempt.cost for attempt in certified)


def test_a_certifier_that_rejects_everything_gets_nothing_returned() -> None:
    result = solve(the_problem(), lambda k: PlanVerdict(False, reasons=("no",)), BUDGET)
    assert result.best is None
    check_only_certified(result, BUDGET)
    assert len(result.attempts) >= 2


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0), st.sampled_from(["none", "true", "random", "nan", "inf"]))
def test_never_returns_what_was_not_certified(seed: int, chance: float, kind: str) -> None:
    """A certifier that says yes and no at random, with margins that are missing, true, random, NaN or infinite."""
    rng = np.random.default_rng(seed)
    asked: list[np.ndarray] = []
    granted: list[np.ndarray] = []

    def certify(k: np.ndarray) -> PlanVerdict:
        asked.append(k.copy())
        ok = bool(rng.random() < chance)
        if ok:
            granted.append(k.copy())
        if kind == "true":
            return PlanVerdict(ok, stricter(the_problem(), 0.05)(k).margins)
        raw = the_problem().constraints.raw(k)
        value = {"random": 1.0, "nan": np.nan, "inf": np.inf}.get(kind)
        margins = {} if value is None else {n: value * rng.normal(size=x.shape) for n, x in raw.items()}
        return PlanVerdict(ok, margins)

    budget = dataclasses.replace(BUDGET, iterations=30, certificates=3)
    result = solve(dataclasses.replace(the_problem(), keep=2), certify, budget)
    check_only_certified(result, budget)
    assert (result.best is None) == (not granted)
    if result.best is not None:
        assert any(np.array_equal(result.best.k, k) for k in granted)
    assert all(np.all(np.abs(k) <= 1.0) for k in asked)


def test_first_guess_that_leaves_nothing_is_corrected_by_a_certificate() -> None:
    c = the_problem().constraints
    hopeless = c.with_reserve({"torque": np.asarray(c.model.limits.torque)})
    problem = dataclasses.replace(the_problem(), constraints=hopeless)
    assert candidates(problem, BUDGET) == []
    result = solve(problem, stricter(the_problem(), 0.1), BUDGET)
    assert np.abs(result.best.k).max() > 0.1


class Clock:
    """Time that passes by looking at it, and by certifying."""

    def __init__(self, tick: float = 0.001) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def taking(seconds: float) -> tuple[Clock, list[float], Certify]:
    """A clock, when certificates began, and a certifier that takes so long."""
    clock, began = Clock(), []

    def certify(k: np.ndarray) -> PlanVerdict:
        began.append(clock.now)
        clock.now += seconds
        return stricter(the_problem(), 0.1)(k)

    return clock, began, certify


@pytest.mark.parametrize("deadline", [0.05, 0.4, 0.8, 2.0])
def test_deadline(deadline: float) -> None:
    clock, began, certify = taking(0.3)
    budget = Budget(10**6, 10**6, deadline, clock=clock)
    result = solve(the_problem(), certify, budget)
    check_only_certified(result, budget)
    # The first certificate's length is unknown; no later one is begun that would end after the deadline.
    assert all(start + 0.3 <= deadline for start in began[1:])
    assert clock.now <= deadline + 0.3 + 0.05
    if deadline >= 0.8:
        assert result.best is not None
    assert result.certify_time == pytest.approx(0.3 * len(began), abs=0.01 * (1 + len(began)))


@pytest.mark.parametrize("after", [0, 5, 40, 200])
def test_cancellation(after: int) -> None:
    asks, (_, began, certify) = itertools.count(), taking(0.0)
    budget = Budget(10**6, 50, cancelled=lambda: next(asks) >= after)
    result = solve(the_problem(), certify, budget)
    check_only_certified(result, budget)
    assert next(asks) <= after + 30, "it should stop soon after the first yes"
    if after == 0:
        assert began == []
        assert result.cancelled


def test_every_improvement_is_told_at_once_and_the_last_one_is_returned() -> None:
    """Anytime: what is told is certified, ever better, with the state of the search at that moment."""
    told: list[SearchResult] = []
    certify, granted = stricter(the_problem(), 0.1), []

    def count(k: np.ndarray) -> PlanVerdict:
        verdict = certify(k)
        granted.append(verdict.certified)
        return verdict

    def tell(result: SearchResult) -> None:
        assert granted[-1], "told when its certificate is there, not later"
        assert len(result.attempts) == len(granted)
        told.append(result)

    result = solve(the_problem(), count, dataclasses.replace(BUDGET, certificates=8), tell)
    costs = [r.best.cost for r in told if r.best is not None]
    assert len(costs) == len(told) >= 2
    assert all(after < before for before, after in itertools.pairwise(costs))
    assert result.best is told[-1].best
    assert np.array_equal(told[0].best.k, np.zeros(7)), "the gentlest first"


@pytest.mark.parametrize("expected", [0.2, 0.5])
def test_no_certificate_is_begun_that_is_not_expected_to_end_in_time(expected: float) -> None:
    """The expectation comes from earlier plans; with a reserve all is over that much earlier."""
    clock, began, certify = taking(expected)
    budget = Budget(10**6, 10**6, 1.0, None, clock, certificate_s=expected, reserve=0.1)
    result = solve(the_problem(), certify, budget)
    assert result.best is not None
    assert all(start + expected <= 0.9 for start in began)
    too_little = dataclasses.replace(budget, deadline=clock.now + 0.5 * expected)
    assert solve(the_problem(), certify, too_little).attempts == ()
