"""Task motions: poses are reached, ways are free, every step is certified, and what cannot be is refused."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.control.gains.design import design_gains
from safe_sysid.errors import PlanError
from safe_sysid.planning import Planner, PlanStatus, start_check, verify_plan
from safe_sysid.planning.motions.motion_margins import MotionMargins
from safe_sysid.planning.task.inverse_kinematics import TOLERANCE, goal_from_pose, nearest_turn, tool_pose
from safe_sysid.planning.task.roadmap import Roadmap, polyline_length
from safe_sysid.planning.task.task import TaskPlanner, TaskStatus, follow
from safe_sysid.planning.task.task_step import StepRequest, StepSearch
from safe_sysid.planning.task.ways import WaySearch
from safe_sysid.robot import ParameterBox, RobotModel, Scene, load_scene
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.scenes.obstacles import SceneBox, rotation_from_rpy
from safe_sysid.simulation.payloads import payload_from_spec, theta_e_with_payload


@pytest.fixture(scope="module")
def planner(model: RobotModel) -> Planner:
    return Planner(model, load_scene("six_boxes"), design_gains(model, lockstep=True))


def known(model: RobotModel, relative: float = 0.05) -> ParameterBox:
    """Around a dumbbell of 8 lb."""
    prior = model.arm_prior
    dumbbell = payload_from_spec("8lb", grip=(0.0, 0.0, 0.14))
    truth = theta_e_with_payload(model, model.theta_nominal[prior.layout.payload], dumbbell)
    radius = relative * np.abs(truth) + 1e-3
    lower = np.maximum(truth - radius, prior.payload_lower)
    return prior.with_payload(lower, np.minimum(truth + radius, prior.payload_upper), 1)


# -- inverse kinematics -----------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000))
@settings(max_examples=6, deadline=None)
def test_any_reachable_pose_is_reached_within_limits(model: RobotModel, seed: int) -> None:
    rng, limits = np.random.default_rng(seed), model.limits
    lower = np.where(model.continuous, -np.pi, limits.position_lower)
    upper = np.where(model.continuous, np.pi, limits.position_upper)
    position, rotation = tool_pose(model, rng.uniform(lower, upper))
    near = rng.uniform(lower, upper)
    q = goal_from_pose(model, position, rotation, near)
    found, turned = tool_pose(model, q)
    assert np.abs(found - position).max() <= 2.0 * TOLERANCE
    assert np.abs(turned - rotation).max() <= 2.0 * TOLERANCE
    assert np.all(q >= limits.position_lower)
    assert np.all(q <= limits.position_upper)
    assert np.all(np.abs(q - near)[model.continuous] <= np.pi + 1e-9)


def test_a_solution_that_may_not_be_held_is_passed_over(model: RobotModel) -> None:
    near = np.array(model.settings.home)
    position, rotation = tool_pose(model, near)
    first = goal_from_pose(model, position, rotation, near)
    clear = lambda q: ["too near"] * bool(np.abs(q - first).max() < 0.3)  # noqa: E731
    second = goal_from_pose(model, position, rotation, near, clear=clear)
    assert np.abs(second - first).max() >= 0.3
    assert np.abs(tool_pose(model, second)[0] - position).max() <= 2.0 * TOLERANCE
    with pytest.raises(PlanError, match="never here"):
        goal_from_pose(model, position, rotation, near, clear=lambda q: ["never here"])


def test_poses_that_cannot_be(model: RobotModel) -> None:
    near = np.array(model.settings.home)
    with pytest.raises(PlanError, match="within reach"):
        goal_from_pose(model, (2.0, 0.0, 0.5), np.eye(3), near)
    with pytest.raises(PlanError, match="rotation matrix"):
        goal_from_pose(model, (0.4, 0.0, 0.5), -np.eye(3), near)
    with pytest.raises(Exception, match="finite"):
        goal_from_pose(model, (np.nan, 0.0, 0.5), np.eye(3), near)


def test_half_a_turn_is_found(model: RobotModel) -> None:
    """The axis of a rotation by pi comes from its symmetric part."""
    near = np.array(model.settings.home)
    position, rotation = tool_pose(model, near)
    turned = rotation @ rotation_from_rpy((0.0, 0.0, np.pi))
    q = goal_from_pose(model, position, turned, near)
    assert np.abs(tool_pose(model, q)[1] - turned).max() <= 2.0 * TOLERANCE


# -- roadmap ----------------------------------------------------------------------------------------------------------


def _wall(q: np.ndarray) -> np.ndarray:
    """Free but for a wall across the plane with a gap at y in [1.5, 2]."""
    blocked = (np.abs(q[:, 0]) < 0.15) & ~((q[:, 1] > 1.5) & (q[:, 1] < 2.0))
    return np.where(blocked, -1.0, 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_way_leads_through_the_gap(seed: int) -> None:
    box = np.full(2, 3.0)
    start, goal = np.array([-1.0, 0.0]), np.array([1.0, -0.5])
    way = Roadmap(_wall, -box, box, seed).search(start, goal)
    assert np.array_equal(way[0], start)
    assert np.array_equal(way[-1], goal)
    fine = np.concatenate([a + np.linspace(0, 1, 200)[:, None] * (b - a) for a, b in pairwise(way)])
    x, y = fine.T  # poses are looked at every 0.06: a corner of the wall may be cut by no more than that
    assert not np.any((np.abs(x) < 0.15 - 0.06) & ~((y > 1.5 - 0.06) & (y < 2.0 + 0.06)))
    assert polyline_length(way) < 8.0
    again = Roadmap(_wall, -box, box, seed).search(start, goal)
    assert np.array_equal(way, again), "a seed gives one way"


def test_no_way_is_no_way() -> None:
    box = np.full(2, 3.0)
    closed = Roadmap(lambda q: np.abs(q[:, 0]) - 0.15, -box, box, 0, looks=5000)
    assert closed.search(np.array([-1.0, 0.0]), np.array([1.0, 0.0])) is None
    stopped = Roadmap(_wall, -box, box, 0)
    assert stopped.search(np.array([-1.0, 0.0]), np.array([1.0, 0.0]), lambda: True) is None


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_the_goal_behind_the_post_is_reached_in_certified_steps(model: RobotModel, planner: Planner) -> None:
    """Scene start to scene goal, 8 lb known to 5 %: each plan certified anew, each connected, the last at the goal."""
    scene, box = planner.scene, known(model)
    start = scene.start_for(model)
    straight = start + np.linspace(0, 1, 60)[:, None] * (nearest_turn(model, scene.goal, start) - start)
    assert any(start_check(model, box, scene, planner.gains, q) for q in straight), "the straight way is blocked"
    task = TaskPlanner(planner, scene.goal, seed=1)
    answers = list(follow(task, start, box))
    assert task.status is TaskStatus.ARRIVED, task.reasons
    plans = [answer.plan for answer in answers if answer.plan is not None]
    assert np.array_equal(plans[0].trajectory.knots[0], np.stack([start, 0 * start, 0 * start]))
    for before, after in pairwise(plans):
        if after.start_time == before.hand_over_time:
            assert np.array_equal(after.trajectory.knots[0], before.trajectory.state(before.t_plan)[:3])
        else:
            assert after.start_time == before.end_time
            assert np.array_equal(after.trajectory.knots[0, 0], before.trajectory.knots[-1, 0])
    for plan in plans:
        assert verify_plan(plan, model, box, scene, planner.gains, splits=3).ok
    end = plans[-1].trajectory.knots[-1, 0]
    assert np.abs(nearest_turn(model, end, scene.goal) - scene.goal).max() <= 1e-3
    assert plans[-1].end_time <= 30.0


def test_waypoints_are_rested_at_one_after_the_other(model: RobotModel) -> None:
    planner = Planner(model, load_scene("open"), design_gains(model, lockstep=True))
    start = np.array(model.settings.home)
    first, second = start + 0.2 * np.array([1, 0, -1, 0, 1, 0, 1]), start.copy()
    second[0] += 2.0 * np.pi  # a continuous joint: the same pose
    task = TaskPlanner(planner, [first, second])
    plans = [answer.plan for answer in follow(task, start, known(model)) if answer.plan is not None]
    assert task.status is TaskStatus.ARRIVED
    rests = [plan.trajectory.knots[-1, 0] for plan in plans]
    assert any(np.abs(q - first).max() <= 1e-3 for q in rests)
    assert np.abs(rests[-1] - start).max() <= 1e-3
    last = task.next(np.stack([start, 0 * start, 0 * start]), 9.0, known(model), 9)
    assert last.plan is None
    assert last.status is PlanStatus.STOPPED


def test_a_goal_inside_an_obstacle_is_refused_at_once(model: RobotModel, planner: Planner) -> None:
    goal = np.array(model.settings.home)  # in the post
    start = planner.scene.start_for(model)
    task = TaskPlanner(planner, goal)
    (answer,) = follow(task, start, known(model))
    assert answer.plan is None
    assert task.status is TaskStatus.REFUSED
    assert any("may not be rested at" in r and "post_middle" in r for r in task.reasons)


@pytest.mark.slow  # refused, and nothing moved: other refusals are quicker
def test_a_goal_that_is_walled_in_is_given_up_with_reasons(model: RobotModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow corridor with a roof: start and goal are fine, but the arm cannot turn round in it."""
    monkeypatch.setattr("safe_sysid.planning.task.ways._LOOKS", ((200, 1, True),))
    start = np.array(model.settings.home)
    goal = start + np.array([np.pi, 0, 0, 0, 0, 0, 0])
    long, flat = np.array([3.0, 0.02, 1.2]), np.array([3.0, 3.0, 0.02])
    walls = [SceneBox(f"wall_{y}", np.array([0.0, y, 0.6]), np.zeros(3), long) for y in (-0.25, 0.25)]
    scene = Scene("corridor", (*walls, SceneBox("roof", np.array([0.0, 0.0, 0.95]), np.zeros(3), flat)))
    planner = Planner(model, scene, design_gains(model, lockstep=True))
    assert start_check(model, known(model), scene, planner.gains, start) == []
    assert start_check(model, known(model), scene, planner.gains, goal) == []
    task = TaskPlanner(planner, goal, patience=1)
    answers = list(follow(task, start, known(model), most=40))
    assert all(answer.certificate.ok for answer in answers if answer.plan is not None)
    assert task.status is TaskStatus.REFUSED
    assert any("goal: stuck" in reason for reason in task.reasons)


def test_a_start_that_cannot_be_held_is_refused(model: RobotModel, planner: Planner) -> None:
    stretched = np.array([0.0, 1.5, 0.0, 0.1, 0.0, 0.1, 0.0])
    task = TaskPlanner(planner, planner.scene.goal)
    answer = task.next(np.stack([stretched, 0 * stretched, 0 * stretched]), 0.0, model.arm_prior, 0)
    assert answer.status is PlanStatus.START_REFUSED
    assert task.status is TaskStatus.REFUSED
    assert any("joint_2" in reason for reason in answer.reasons)


@pytest.mark.parametrize("waypoints", [[], [[0.0] * 6], [[np.nan] * 7], np.zeros((0, 7))])
def test_waypoints_that_cannot_be(planner: Planner, waypoints: object) -> None:
    with pytest.raises(PlanError, match="waypoints"):
        TaskPlanner(planner, waypoints)


# -- searches are bounded and resumed ---------------------------------------------------------------------------------


def _behind_the_post(planner: Planner, per_call: int) -> tuple[list[int], object]:
    """Ask until there is a way or none: poses looked at per call, and what was found."""
    margins = MotionMargins(planner)
    search, poses = WaySearch(margins, 3, per_call, 10**6), margins.poses(known(planner.model))
    start = planner.scene.start_for(planner.model)
    goal = nearest_turn(planner.model, planner.scene.goal, start)
    calls = []
    while True:
        before = search.looked
        way = search.find(start, goal, poses, planner.budget(), 0)
        calls.append(search.looked - before)
        if way is not None or not search.paused:
            return calls, way


def test_a_paused_search_goes_on_to_the_same_way(planner: Planner) -> None:
    once, whole = _behind_the_post(planner, 10**6)
    calls, pieces = _behind_the_post(planner, 200)
    assert len(once) == 1
    assert len(calls) > 2
    assert sum(calls) == once[0]
    assert np.array_equal(whole, pieces)
    assert max(calls) < 200 + 1000, "one extension more at most"


def test_a_search_is_given_up_after_so_many_poses(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the quick one, then the last resort."""
    nothing = lambda *_: lambda q: np.full(len(q), -1.0)  # noqa: E731
    monkeypatch.setattr("safe_sysid.planning.task.ways._pose_test", nothing)
    post = Margin("clearance", "post", "hand", -0.01, 0.0)
    refused = lambda *args: (np.zeros(len(args[4]), dtype=bool), [(post,)] * len(args[4]))  # noqa: E731
    monkeypatch.setattr("safe_sysid.planning.task.last_resort.may_rest", refused)
    monkeypatch.setattr("safe_sysid.planning.task.task._LOOKS_PER_CALL", 2000)
    scene, start = planner.scene, planner.scene.start_for(planner.model)
    task = TaskPlanner(planner, scene.goal, looks=5000)
    answers = list(follow(task, start, known(planner.model)))
    quick, last = answers[:3], answers[3:]
    assert [answer.status for answer in quick] == [PlanStatus.STOPPED] * 2 + [PlanStatus.NO_CERTIFIED_PLAN]
    assert all("no way that looks free yet" in answer.reasons[0] for answer in quick[:-1])
    assert "no way that looks free was found, 50" in quick[-1].reasons[0]
    assert all("no way yet of poses that may be rested at" in answer.reasons[0] for answer in last[:-1])
    assert len(last) > 1
    assert last[-1].status is PlanStatus.NO_CERTIFIED_PLAN
    assert task.status is TaskStatus.REFUSED
    assert "in the way most often: clearance of post - hand (100 %)" in task.reasons[0]
    assert any("must pass" in reason and "none of 400 poses" in reason for reason in task.reasons)


def test_a_deadline_pauses_a_search(planner: Planner) -> None:
    """In real time a call keeps its deadline; the next one goes on where it stopped."""
    start, box = planner.scene.start_for(planner.model), known(planner.model)
    clock = iter(range(10**6))
    task = TaskPlanner(planner, planner.scene.goal)
    state = np.stack([start, 0 * start, 0 * start])
    budget = replace(planner.budget(deadline=5.0), clock=lambda: float(next(clock)))
    answer = task.next(state, 0.0, box, 0, budget=budget)
    assert answer.plan is None
    assert task.status is TaskStatus.MOVING
    looked = int(re.search(r"(\d+) poses", answer.reasons[0]).group(1))
    budget = replace(planner.budget(), cancelled=lambda: True)
    again = task.next(state, 0.0, box, 0, budget=budget)
    assert again.plan is None, "a stop is obeyed"
    assert int(re.search(r"(\d+) poses", again.reasons[0]).group(1)) > looked > 0


def test_a_step_in_motion_has_what_is_certified_to_fall_back_on(model: RobotModel, planner: Planner) -> None:
    """Where the quick margins like nothing, the nearest point of the way is certified at the first attempt."""
    start, box = planner.scene.start_for(model), known(model)
    planner = copy(planner)
    # The widest: in a narrower one the quick margins like some of these motions.
    planner.tubes, planner._choice = planner.tubes[:1], None
    task = TaskPlanner(planner, planner.scene.goal, seed=1)
    first = task.next(np.stack([start, 0 * start, 0 * start]), 0.0, box, 0).plan
    margins = MotionMargins(planner)
    margins.reserve[:] = 10.0
    time, state = task.start_of_next(first)
    asked = StepRequest(state, time, box, 1, first, planner.budget(), None)
    answer = StepSearch(margins).along(asked, task.way, margins.poses(box))
    assert answer.certificates == 1
    assert len(answer.plan.trajectory.times) == 3, "what is certified, moved a little"
    assert answer.certificate.ok
