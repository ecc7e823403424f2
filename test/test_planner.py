"""The planner with the real certificate: first plans, the next ones, refusals, and when to stop."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from safe_sysid.control.gains import ControllerGains
from safe_sysid.errors import PlanError
from safe_sysid.planning import Budget, Planner, PlannerOptions, PlannerResult, PlanStatus, hand_over_state, verify_plan
from safe_sysid.planning.certification.verdicts import PlanVerdict
from safe_sysid.planning.optimiser.constraints import FAMILIES
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.planner import bounds_stopped_improving, verdict_of
from safe_sysid.robot import ParameterBox, RobotModel, load_scene
from safe_sysid.trajectories import Plan, QuinticTrajectory


def at_rest(q: np.ndarray) -> np.ndarray:
    return np.stack([q, np.zeros_like(q), np.zeros_like(q)])


def after(planner: Planner, plan: Plan, box: ParameterBox, sequence: int = 1, **more: object) -> PlannerResult:
    """What follows a plan at its hand-over."""
    return planner.plan_next(hand_over_state(plan), plan.hand_over_time, box, sequence, plan, **more)


def shrunk(box: ParameterBox, share: float, seq: int) -> ParameterBox:
    middle, radius = (0.5 * (box.payload_lower + box.payload_upper), 0.5 * (box.payload_upper - box.payload_lower))
    return box.with_payload(middle - share * radius, middle + share * radius, seq)


@pytest.mark.parametrize(("scene_name", "cost"), [("open", "width"), ("six_boxes", "condition")])
def test_first_and_second_plan(model: RobotModel, gains: ControllerGains, scene_name: str, cost: str) -> None:
    """From rest under the prior box, then from half way through it under a smaller one."""
    scene = load_scene(scene_name)
    planner = Planner(model, scene, gains, options=PlannerOptions(cost=cost, starts=8, keep=2))
    box, start = model.arm_prior, at_rest(scene.start_for(model))
    first = planner.plan_next(start, 10.0, box, 0)
    assert first.status is PlanStatus.PLANNED, first.reasons
    assert np.array_equal(first.plan.trajectory.knots[0], start)
    assert (first.plan.start_time, first.plan.sequence, first.plan.box_identity) == (10.0, 0, box.identity)
    assert np.abs(first.plan.k).max() > 0.3, "a plan that excites"
    assert verify_plan(first.plan, model, box, scene, gains).ok

    smaller = shrunk(box, 0.5, 1)
    known = {"executed_information": first.information, "calibration": first.calibration}
    second = after(planner, first.plan, smaller, **known)
    assert second.status is PlanStatus.PLANNED, second.reasons
    t = np.array([0.0])
    before = first.plan.trajectory.states(t + second.plan.start_time - first.plan.start_time)[0, :3]
    assert np.abs(second.plan.trajectory.states(t)[0, :3] - before).max() <= 1e-12
    assert second.plan.box_identity == smaller.identity
    assert verify_plan(second.plan, model, smaller, scene, gains).ok
    if cost == "condition":
        assert second.condition < first.condition
    else:
        assert second.cost < first.cost


def test_same_seed_same_plans_and_another_seed_others(model: RobotModel, gains: ControllerGains) -> None:
    scene = load_scene("open")
    start = at_rest(scene.start_for(model))

    def plan(seed: int) -> np.ndarray:
        options = PlannerOptions(starts=4, keep=1, certificates=2)
        planner = Planner(model, scene, gains, options=options, seed=seed)
        return planner.plan_next(start, 0.0, model.arm_prior, 0, budget=Budget(30, 2)).plan.k

    assert np.array_equal(plan(1), plan(1))
    assert not np.array_equal(plan(1), plan(2))


@pytest.mark.parametrize(
    ("scene", "pose", "words"),
    [  # the arm's home pose reaches into the middle post of the published scene
        ("six_boxes", None, ("post_middle",)),
        ("open", [0.0, 1.5, 0.0, 0.0, 0.0, 0.0, 0.0], ("joint_2", "N m")),
    ],
)
def test_a_start_in_an_obstacle_or_that_cannot_be_held_is_refused_with_the_culprits(
    model: RobotModel, gains: ControllerGains, scene: str, pose: list[float] | None, words: tuple[str, ...]
) -> None:
    start = at_rest(np.array(model.settings.home if pose is None else pose))
    result = Planner(model, load_scene(scene), gains).plan_next(start, 0.0, model.arm_prior, 0)
    assert (result.status, result.plan, result.certificates) == (PlanStatus.START_REFUSED, None, 0)
    assert any(all(word in reason for word in words) for reason in result.reasons)


def test_the_rest_of_the_plan_under_way_is_always_there_to_go_on_with(
    model: RobotModel, gains: ControllerGains
) -> None:
    """Without time to search a moving arm still gets a plan: the certified tail, then rest (real certificate)."""
    scene, box = load_scene("six_boxes"), model.arm_prior
    planner = Planner(model, scene, gains, options=PlannerOptions(starts=8, keep=2))
    first = planner.plan_next(at_rest(scene.start_for(model)), 0.0, box, 0, budget=Budget(30, 3))
    assert np.abs(first.plan.k).max() > 0.3
    second = after(planner, first.plan, shrunk(box, 0.9, 1), budget=Budget(0, 1))
    assert second.status is PlanStatus.PLANNED, second.reasons
    assert np.array_equal(second.plan.k, np.zeros(model.n))
    t = np.linspace(0.0, 3.0, 50)
    gap = second.plan.trajectory.states(t)[:, :3] - first.plan.trajectory.states(t + first.plan.t_plan)[:, :3]
    assert np.abs(gap).max() < 1e-11
    # At rest by then: the next one starts from rest, where the same pose is held.
    assert not np.any(hand_over_state(second.plan)[1:])
    # A third from there is a plan again, and moves.
    third = after(planner, second.plan, box, 2, budget=Budget(30, 3), calibration=second.calibration)
    assert np.abs(third.plan.k).max() > 0.1


@pytest.mark.parametrize("t_p", [1.487, pytest.param(1.4142, marks=pytest.mark.slow)])
def test_the_rest_of_the_plan_holds_for_other_cells_too(model: RobotModel, gains: ControllerGains, t_p: float) -> None:
    """A hand-over in the middle of a cell: the rest is certified on cells that lie elsewhere (real certificate)."""
    scene, box = load_scene("six_boxes"), model.arm_prior
    settings = model.settings.planner.model_copy(update={"t_p": t_p})
    assert (t_p * settings.intervals / settings.t_f) % 1.0 > 0.1
    planner = Planner(model, scene, gains, settings)
    first = planner.plan_next(at_rest(scene.start_for(model)), 0.0, box, 0, budget=Budget(30, 3))
    assert np.abs(first.plan.k).max() > 0.3
    second = after(planner, first.plan, box, budget=Budget(0, 1))
    assert second.plan is not None, second.reasons
    assert np.array_equal(second.plan.k, np.zeros(model.n))


def test_goal_scene_and_improvements_of_one_call(model: RobotModel, gains: ControllerGains) -> None:
    """One call with a goal, its own cost and scene: every improvement told is certified there, the last is returned."""
    scene, empty = load_scene("six_boxes"), load_scene("open")
    planner = Planner(model, empty, gains, options=PlannerOptions(starts=6, keep=2))
    start, told = scene.start_for(model), []
    goal = start + np.array([-0.2, 0.0, 0.1, 0.1, 0.0, 0.2, 0.3])
    asked = {"goal": goal, "cost": "goal", "on_certified": told.append, "scene": scene}
    result = planner.plan_next(at_rest(start), 0.0, model.arm_prior, 0, **asked)
    assert result.status is PlanStatus.PLANNED, result.reasons
    assert planner.scene is empty
    assert len(told) >= 2
    assert [r.cost for r in told] == sorted((r.cost for r in told), reverse=True)
    assert np.array_equal(told[-1].plan.k, result.plan.k)
    for answer in told:
        assert answer.status is PlanStatus.PLANNED
        assert verify_plan(answer.plan, model, model.arm_prior, scene, gains).ok
    assert np.abs(result.plan.trajectory.knots[-1, 0] - goal).max() < 0.01
    assert 0.0 < result.first_time <= result.wall_time
    with pytest.raises(PlanError, match="goal"):
        planner.plan_next(at_rest(start), 0.0, model.arm_prior, 0, cost="goal")


def planner_with(model: RobotModel, gains: ControllerGains, certified: bool) -> Planner:
    options = PlannerOptions(cost="width", starts=4, keep=1, certificates=3)
    verdict = PlanVerdict(certified, reasons=() if certified else ("because",))
    free = {"certify": lambda plan, box: verdict, "check_start": lambda q, box: ()}
    return Planner(model, load_scene("open"), gains, options=options, **free)


def test_nothing_certified_is_a_status_with_reasons(model: RobotModel, gains: ControllerGains) -> None:
    start = at_rest(np.array(model.settings.home))
    result = planner_with(model, gains, False).plan_next(start, 0.0, model.arm_prior, 0, budget=Budget(20, 3))
    assert result.status is PlanStatus.NO_CERTIFIED_PLAN
    assert result.plan is None
    assert np.isnan(result.cost)
    assert "because" in result.reasons
    assert not np.any(result.information)
    assert not np.any(result.calibration.information)


def test_stopped_before_anything_was_certified(model: RobotModel, gains: ControllerGains) -> None:
    start = at_rest(np.array(model.settings.home))
    planner = planner_with(model, gains, True)
    stopped = planner.plan_next(start, 0.0, model.arm_prior, 0, budget=Budget(cancelled=lambda: True))
    assert stopped.status is PlanStatus.STOPPED
    assert stopped.plan is None
    late = planner.plan_next(start, 0.0, model.arm_prior, 0, budget=Budget(deadline=-1.0))
    assert late.status is PlanStatus.STOPPED


def test_a_start_that_does_not_connect_is_an_error(model: RobotModel, gains: ControllerGains) -> None:
    planner = planner_with(model, gains, True)
    start = at_rest(np.array(model.settings.home))
    plan = planner.plan_next(start, 5.0, model.arm_prior, 0, budget=Budget(40, 3)).plan
    assert np.abs(plan.k).max() > 0.1
    state = hand_over_state(plan)
    for order, what in enumerate(("position", "velocity", "acceleration")):
        wrong = state.copy()
        wrong[order, 3] += 1e-6
        with pytest.raises(PlanError, match=f"{what} of joint_4"):
            planner.plan_next(wrong, plan.hand_over_time, model.arm_prior, 1, plan)
    with pytest.raises(PlanError, match="connect"):
        planner.plan_next(state, plan.hand_over_time + 0.01, model.arm_prior, 1, plan)
    with pytest.raises(Exception, match="shape"):
        planner.plan_next(state[:2], plan.hand_over_time, model.arm_prior, 1)


def test_a_new_payload_forgets_the_old_ones_information(model: RobotModel, gains: ControllerGains) -> None:
    planner = planner_with(model, gains, True)
    start = at_rest(np.array(model.settings.home))
    old = planner.plan_next(start, 0.0, model.arm_prior, 0, budget=Budget(20, 3))
    assert np.any(old.calibration.information)
    again = planner.build_problem(start, model.arm_prior, 1, calibration=old.calibration)
    assert np.array_equal(again.cost.executed, old.calibration.information)
    new_box = dataclasses.replace(model.arm_prior, epoch=1)
    other = planner.build_problem(start, new_box, 1, calibration=old.calibration)
    assert not np.any(other.cost.executed)
    fresh = planner.plan_next(start, 0.0, new_box, 0, budget=Budget(20, 3))
    after = planner.plan_next(start, 0.0, new_box, 0, budget=Budget(20, 3), calibration=old.calibration)
    assert (after.calibration.epoch, after.calibration.prior) == (1, new_box)
    assert np.trace(after.calibration.information) < 2.0 * np.trace(fresh.calibration.information)


def test_verdict_is_the_certificate(model: RobotModel, gains: ControllerGains) -> None:
    scene = load_scene("six_boxes")
    planner = planner_with(model, gains, True)
    plan = planner.plan_next(at_rest(scene.start_for(model)), 0.0, model.arm_prior, 0, budget=Budget(20, 3)).plan
    assert plan is not None
    certificate = verify_plan(plan, model, model.arm_prior, scene, gains, intervals=32)
    verdict = verdict_of(certificate, gains)
    assert verdict.certified == certificate.ok
    for name in ("position", "torque", "clearance", "self_clearance"):
        assert np.min(verdict.margins[name]) == certificate.families[name].value
    shares = dict(zip(certificate.labels["tracking"], certificate.margins["tracking"].min(axis=0), strict=True))
    a = gains.assumptions
    assert verdict.margins["tracking"][0] == pytest.approx(shares["uncertainty", ""] * a.uncertainty)
    assert verdict.margins["inertia"][0] == shares["inertia", ""]
    for j, name in enumerate(model.joint_names):
        assert verdict.margins["jerk"][j] == pytest.approx(shares["jerk", name] * a.jerk[j])
        assert verdict.margins["velocity"][j] <= shares["velocity", name] * a.velocity[j] + 1e-12
    assert set(verdict.margins) == set(FAMILIES)


def test_stop_rule(model: RobotModel) -> None:
    prior = model.arm_prior
    half, same = shrunk(prior, 0.5, 1), shrunk(prior, 0.4999, 2)
    assert not bounds_stopped_improving([prior])
    assert not bounds_stopped_improving([prior, half])
    assert bounds_stopped_improving([prior, half, same], updates=1)
    assert not bounds_stopped_improving([prior, half, same], updates=2)
    assert bounds_stopped_improving([half, half, half], updates=2)
    one = half.payload_lower.copy()
    one[7] += 0.1 * (half.payload_upper - half.payload_lower)[7]
    assert not bounds_stopped_improving([half, half.with_payload(one, half.payload_upper, 2)], updates=1)
    assert not bounds_stopped_improving([half, dataclasses.replace(half, epoch=1)], updates=1)
    with pytest.raises(PlanError, match="updates"):
        bounds_stopped_improving([prior], updates=0)


def test_knots_of_the_rest_are_whole_nanoseconds() -> None:
    """Messages count nanoseconds; a plan whose knots they would move is not the certified one."""
    start = np.array([np.zeros(2), np.zeros(2), np.zeros(2)])
    before = QuinticTrajectory.to_rest(start, np.ones(2), 3.1)
    family = TrajectoryFamily.along(before, before.state(1.6)[:3], 1.6, np.ones(2), 3.0)
    assert family.trajectory(np.zeros(2)).times.tolist() == [0.0, 1.5, 3.0]
