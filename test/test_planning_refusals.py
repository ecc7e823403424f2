"""Refusals: what plain certified steps can do is not refused, and a refusal names what is in the way."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from safe_sysid.control.design import design_gains
from safe_sysid.control.gains import ControllerGains
from safe_sysid.planning.certificate import may_rest, start_check, verify_plan
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.proximity import Proximity
from safe_sysid.planning.task import TaskPlanner, TaskStatus, follow
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.obstacles import SceneBox
from safe_sysid.robot.scene import Scene
from safe_sysid.simulation.random_scenes import ALL_KINDS, random_scene

Arm = tuple[RobotModel, ControllerGains]


@pytest.fixture(scope="module")
def three_joint() -> Arm:
    model = load_robot("three_joint")
    return model, design_gains(model, lockstep=True)


def drawn(arm: Arm, number: int) -> Scene:
    """A scene of ``benchmarks/refusals.py`` with seed 0."""
    model, gains = arm
    kinds = ("box",) if number % 2 == 0 else ALL_KINDS
    return random_scene(model, np.random.default_rng([0, number]), kinds=kinds, gains=gains)


def poses_of(model: RobotModel, count: int, seed: int) -> NDArray[np.float64]:
    limits = model.limits
    lower = np.where(model.continuous, -np.pi, limits.position_lower)
    upper = np.where(model.continuous, np.pi, limits.position_upper)
    return np.random.default_rng(seed).uniform(lower, upper, (count, model.n))


@pytest.mark.parametrize("robot", ["three_joint", "ur5e"])
def test_many_poses_are_judged_as_one(robot: str) -> None:
    model = load_robot(robot)
    arm = model, design_gains(model, lockstep=True)
    scene = drawn(arm, 1)
    poses = np.concatenate([poses_of(model, 60, 3), [scene.start, scene.goal]])
    free, against = may_rest(model, model.arm_prior, scene, arm[1], poses)
    reasons = [start_check(model, model.arm_prior, scene, arm[1], q) for q in poses]
    assert free.tolist() == [not found for found in reasons]
    assert 2 <= free.sum() < len(free)
    for name, found in zip(against, reasons, strict=True):
        assert bool(name) == bool(found)
        # "clearance of box - payload" is told as "box - payload: only 0.0031 m apart, .."
        assert not name or any(name.split(" of ", 1)[1] in reason for reason in found)


def test_what_was_refused_arrives(three_joint: Arm) -> None:
    """Scene 1 was refused (steps do not come nearer), and a plain search certified a chain of plans in it."""
    model, gains = three_joint
    scene = drawn(three_joint, 1)
    task = TaskPlanner(Planner(model, scene, gains), scene.goal, seed=1)
    answers = list(follow(task, scene.start, model.arm_prior))
    assert task.status is TaskStatus.ARRIVED, task.reasons
    for answer in answers:
        if answer.plan is not None:
            assert verify_plan(answer.plan, model, model.arm_prior, scene, gains).ok


def test_the_last_resort_arrives_where_quick_margins_see_no_way(
    three_joint: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick margins that are wrong everywhere cost time, and no task."""
    model, gains = three_joint
    blind = lambda *_: lambda q: np.full(len(q), -1.0)  # noqa: E731
    monkeypatch.setattr("safe_sysid.planning.ways._pose_test", blind)
    wall = SceneBox("wall", np.array([0.0, 0.6, 0.5]), np.zeros(3), np.array([0.05, 0.5, 1.0]))
    start, goal = np.array([0.6, -0.3, 1.6]), np.array([2.4, -0.3, 1.6])
    scene = Scene("a wall between", (wall,))
    task = TaskPlanner(Planner(model, scene, gains), goal, looks=30_000)
    plans = [answer.plan for answer in follow(task, start, model.arm_prior) if answer.plan is not None]
    assert task.status is TaskStatus.ARRIVED, task.reasons
    assert len(plans) > 1
    for before, after in pairwise(plans):
        assert np.array_equal(before.trajectory.knots[-1, 0], after.trajectory.knots[0, 0])
        assert after.start_time >= before.end_time, "from rest to rest"


def test_a_refusal_names_what_is_in_the_way(three_joint: Arm) -> None:
    model, gains = three_joint
    thin, block = np.array([0.05, 0.8, 1.6]), np.array([0.5, 0.5, 0.3])
    walls = [
        SceneBox(name, np.array([0.0, y, 0.8]), np.zeros(3), thin)
        for y, name in ((0.5, "left"), (-0.5, "right"))
    ]
    scene = Scene("walls", (*walls, SceneBox("roof", np.array([0.0, 0.0, 0.95]), np.zeros(3), block)))
    start, goal = np.array([0.0, -0.3, 1.6]), np.array([np.pi, -0.3, 1.6])
    assert not start_check(model, model.arm_prior, scene, gains, start)
    assert not start_check(model, model.arm_prior, scene, gains, goal)
    task = TaskPlanner(Planner(model, scene, gains), goal, looks=6_000)
    list(follow(task, start, model.arm_prior))
    assert task.status is TaskStatus.REFUSED
    assert "in the way most often: " in task.reasons[0]
    assert any(name in task.reasons[0] for name in ("left", "right", "roof"))


def test_pairs_that_no_motion_brings_too_near_are_left_out_of_the_search() -> None:
    model = load_robot("ur5e")
    seen = Proximity.build(model, Scene("open"), 0.005).settled
    assert ("base_link", "upper_arm_link:1") in seen
    assert not {("wrist_1_link:0", "wrist_3_link"), ("wrist_3_link", "wrist_1_link:0")} & seen, (
        "3.7 mm at its nearest"
    )
    assert ("base_link", "upper_arm_link:1") not in Proximity.build(model, Scene("open"), 0.006).settled
