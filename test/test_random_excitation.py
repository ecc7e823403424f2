"""Random certified plans: the first certified draw and no other, counted; everything else is the planner's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from safe_sysid.control.gains import ControllerGains
from safe_sysid.planning import Planner, PlannerResult, PlanStatus, hand_over_state, verify_plan
from safe_sysid.planning.certification.verdicts import PlanVerdict
from safe_sysid.planning.excitation.random_excitation import RandomPlanner, first_certified
from safe_sysid.planning.optimiser.optimise import Budget, PlanProblem
from safe_sysid.robot import RobotModel, Scene, load_scene


@pytest.fixture(scope="module")
def scene() -> Scene:
    return load_scene("open")


@pytest.fixture(scope="module")
def start(model: RobotModel, scene: Scene) -> np.ndarray:
    q = scene.start_for(model)
    return np.stack([q, 0 * q, 0 * q])


@pytest.fixture(scope="module")
def problem(model: RobotModel, gains: ControllerGains, scene: Scene, start: np.ndarray) -> PlanProblem:
    return Planner(model, scene, gains).build_problem(start, model.arm_prior, 0)


def draws(seed: int, count: int) -> np.ndarray:
    """What the generator gives, drawn another way."""
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (count, 7))


def test_the_first_draw_that_is_certified_is_the_answer(problem: PlanProblem) -> None:
    """A certifier with a rule of its own; whatever passes the quick margins is asked about, in order."""
    quick = problem.constraints.resampled(24, 6)
    hopeful = [i for i, k in enumerate(draws(5, 200)) if quick.values(k).min() >= 0.0]
    assert 10 < len(hopeful) < 200
    asked: list[np.ndarray] = []

    def certify(k: np.ndarray) -> PlanVerdict:
        asked.append(k)
        return PlanVerdict(len(asked) == 4)

    found = first_certified(problem, certify, Budget(1, 1), np.random.default_rng(5))
    assert found.best is not None
    assert np.array_equal(found.best.k, draws(5, 200)[hopeful[3]])
    assert found.iterations == hopeful[3] + 1, "draws are counted, hopeless ones too"
    assert [np.array_equal(k, draws(5, 200)[i]) for k, i in zip(asked, hopeful, strict=False)] == [True] * 4
    assert found.best.cost == problem.cost.value(found.best.k)


def test_what_a_certificate_teaches_screens_the_next_draws(problem: PlanProblem) -> None:
    """Told that torques are 1000 N m worse than they look, it asks no more."""
    worst = PlanVerdict(False, {"torque": np.full(7, -1000.0)})
    found = first_certified(problem, lambda k: worst, Budget(1, 1), np.random.default_rng(0), draws=100)
    assert found.best is None
    assert len(found.attempts) == 1
    assert found.iterations == 100


@pytest.mark.parametrize("limit", ["draws", "certificates", "cancelled", "deadline"])
def test_it_gives_up_in_time(problem: PlanProblem, limit: str) -> None:
    no, rng = (lambda k: PlanVerdict(False)), np.random.default_rng(1)
    now = itertools.count()
    if limit == "draws":
        found = first_certified(problem, no, Budget(), rng, draws=37)
        assert found.iterations == 37
    elif limit == "certificates":
        found = first_certified(problem, no, Budget(), rng, certificates=3)
        assert len(found.attempts) == 3
    elif limit == "cancelled":
        found = first_certified(problem, no, Budget(cancelled=lambda: True), rng)
        assert found.cancelled
        assert not found.attempts
    else:
        # A clock of which every reading is a second: one certificate takes one, and one more must fit.
        budget = Budget(deadline=30.0, clock=lambda: float(next(now)))
        found = first_certified(problem, no, budget, rng)
        assert found.cancelled
        assert next(now) < 40
        assert 0 < len(found.attempts) < 30
    assert found.best is None


def test_four_plans_connect_and_are_certified(
    model: RobotModel, gains: ControllerGains, scene: Scene, start: np.ndarray
) -> None:
    planner = RandomPlanner(model, scene, gains, seed=3)
    state, time, previous = start, 5.0, None
    results: list[PlannerResult] = []
    for sequence in range(4):
        last = results[-1].calibration if results else None
        answer = planner.plan_next(state, time, model.arm_prior, sequence, previous, calibration=last)
        assert answer.status is PlanStatus.PLANNED, answer.reasons
        plan = answer.plan
        assert plan is not None
        assert verify_plan(plan, model, model.arm_prior, scene, gains).ok
        assert plan.k in np.random.default_rng([3, sequence, 1]).uniform(-1.0, 1.0, (answer.iterations, 7))[-1]
        assert np.isfinite(answer.condition)
        results.append(answer)
        state, time, previous = hand_over_state(plan), plan.hand_over_time, plan
    again, other = (
        RandomPlanner(model, scene, gains, seed=seed).plan_next(start, 5.0, model.arm_prior, 0).plan.k
        for seed in (3, 4)
    )
    assert np.array_equal(again, results[0].plan.k)
    assert not np.array_equal(again, other)


def test_nothing_but_the_certificate_chooses(
    model: RobotModel, gains: ControllerGains, scene: Scene, start: np.ndarray
) -> None:
    """The cost, the goal and the optimiser's budget change nothing; a certifier that says no leaves no plan."""
    plans = []
    for goal, cost, budget in ((None, None, None), (start[0] + 0.3, "goal", Budget(1, 1))):
        planner = RandomPlanner(model, scene, gains)
        answer = planner.plan_next(start, 0.0, model.arm_prior, 0, goal=goal, cost=cost, budget=budget)
        assert answer.plan is not None
        plans.append(answer.plan.k)
    assert np.array_equal(*plans)

    told: list[PlannerResult] = []
    strict = RandomPlanner(model, scene, gains, certify=lambda plan, box: PlanVerdict(False, reasons=("no",)))
    answer = strict.plan_next(start, 0.0, model.arm_prior, 0, on_certified=told.append)
    assert answer.status is PlanStatus.NO_CERTIFIED_PLAN
    assert answer.plan is None
    assert answer.reasons
    assert not told
