"""Refusals: what plain certified steps can do is not refused, and a refusal names what is in the way."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.planning.certification.certificate import may_rest, start_check, verify_plan
from safe_sysid.planning.distances.proximity import Proximity
from safe_sysid.planning.motions.motion_margins import MotionMargins
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.separations import Separation, separations
from safe_sysid.planning.task.last_resort import LastResort
from safe_sysid.planning.task.roadmap import at_distance, polyline_length
from safe_sysid.planning.task.task import TaskPlanner, TaskStatus, follow
from safe_sysid.planning.task.task_step import StepRequest
from safe_sysid.robot import RobotModel, Scene, SceneBox, load_robot
from safe_sysid.robot.margin import Margin
from safe_sysid.simulation.random_scenes import ALL_KINDS, random_scene


@pytest.fixture(scope="module")
def ur5e() -> RobotModel:
    return load_robot("ur5e")


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return load_robot("three_joint")


def drawn(model: RobotModel, gains: ControllerGains, number: int) -> Scene:
    """A scene of ``benchmarks/refusals.py`` with seed 0."""
    kinds = ("box",) if number % 2 == 0 else ALL_KINDS
    return random_scene(model, np.random.default_rng([0, number]), kinds=kinds, gains=gains)


def poses_of(model: RobotModel, count: int, seed: int) -> NDArray[np.float64]:
    limits = model.limits
    lower = np.where(model.continuous, -np.pi, limits.position_lower)
    upper = np.where(model.continuous, np.pi, limits.position_upper)
    return np.random.default_rng(seed).uniform(lower, upper, (count, model.n))


@pytest.mark.parametrize("robot", ["three_joint", pytest.param("ur5e", marks=pytest.mark.slow)])
def test_many_poses_are_judged_as_one(robot: str) -> None:
    model = load_robot(robot)
    gains = design_gains(model, lockstep=True)
    scene = drawn(model, gains, 1)
    poses = np.concatenate([poses_of(model, 20, 3), [scene.start, scene.goal]])
    free, against = may_rest(model, model.arm_prior, scene, gains, poses)
    reasons = [start_check(model, model.arm_prior, scene, gains, q) for q in poses]
    assert free.tolist() == [not found for found in reasons]
    assert 2 <= free.sum() < len(free)
    for margins, found in zip(against, reasons, strict=True):
        assert len(margins) == len(found), "all that speaks against a pose, not the first family only"
        for margin in margins:
            # "clearance of box - payload" is told as "box - payload: only 0.0031 m apart, .."
            assert not margin.ok
            assert any(margin.culprit in reason for reason in found)


@pytest.mark.slow
def test_what_was_refused_arrives(model: RobotModel, gains: ControllerGains) -> None:
    """Scene 1 was refused (steps do not come nearer), and a plain search certified a chain of plans in it."""
    scene = drawn(model, gains, 1)
    task = TaskPlanner(Planner(model, scene, gains), scene.goal, seed=1)
    answers = list(follow(task, scene.start, model.arm_prior))
    assert task.status is TaskStatus.ARRIVED, task.reasons
    for answer in answers:
        if answer.plan is not None:
            assert verify_plan(answer.plan, model, model.arm_prior, scene, gains).ok


def test_the_last_resort_arrives_where_quick_margins_see_no_way(
    model: RobotModel, gains: ControllerGains, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick margins that are wrong everywhere cost time, and no task."""
    blind = lambda *_: lambda q: np.full(len(q), -1.0)  # noqa: E731
    monkeypatch.setattr("safe_sysid.planning.task.ways._pose_test", blind)
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


def test_a_way_is_not_followed_up_to_where_it_cuts_a_corner(
    model: RobotModel, gains: ControllerGains, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Poses 0.06 rad apart saw nothing of what is 0.02 rad thick; the arm was driven up to it, and stuck there."""
    corner = Margin("clearance", "corner", "hand", -3e-4, 0.0)

    def rests(*args: Any) -> tuple[np.ndarray, list[tuple[Margin, ...]]]:
        turn, lift = args[4][:, 0], args[4][:, 1]
        free = ((np.abs(turn - 1.53) > 0.01) | (lift > 0.3)) & (turn > 0.0)  # and no way round
        return free, [() if ok else (corner,) for ok in free]

    monkeypatch.setattr("safe_sysid.planning.task.last_resort.may_rest", rests)
    planner = Planner(model, Scene("open"), gains)
    start, goal = np.array([0.6, -0.3, 1.6]), np.array([2.4, -0.3, 1.6])
    poses_of_a_coarse_look = np.linspace(start, goal, 31)
    assert rests(*4 * [None], poses_of_a_coarse_look)[0].all()
    resort = LastResort(MotionMargins(planner), 0, 10**6, 7500)
    state = np.stack([start, 0.0 * start, 0.0 * start])
    asked = StepRequest(state, 0.0, model.arm_prior, 0, None, planner.budget(), None)
    assert resort.step(asked, goal).plan is not None
    way = at_distance(resort.way, np.arange(0.0, polyline_length(resort.way), 2e-3))
    assert np.array_equal(resort.way[[0, -1]], [start, goal])
    assert rests(*4 * [None], way)[0].all()


def test_a_refusal_names_what_is_in_the_way(model: RobotModel, gains: ControllerGains) -> None:
    thin, block = np.array([0.05, 0.8, 1.6]), np.array([0.5, 0.5, 0.3])
    walls = [SceneBox(name, np.array([0.0, y, 0.8]), np.zeros(3), thin) for y, name in ((0.5, "left"), (-0.5, "right"))]
    scene = Scene("walls", (*walls, SceneBox("roof", np.array([0.0, 0.0, 0.95]), np.zeros(3), block)))
    start, goal = np.array([0.0, -0.3, 1.6]), np.array([np.pi, -0.3, 1.6])
    assert not start_check(model, model.arm_prior, scene, gains, start)
    assert not start_check(model, model.arm_prior, scene, gains, goal)
    task = TaskPlanner(Planner(model, scene, gains), goal, looks=2_000)
    list(follow(task, start, model.arm_prior))
    assert task.status is TaskStatus.REFUSED
    assert "in the way most often: " in task.reasons[0]
    assert any(name in task.reasons[0] for name in ("left", "right", "roof"))


def test_pairs_that_no_motion_brings_too_near_are_left_out_of_the_search(ur5e: RobotModel) -> None:
    wrists = ("wrist_1_link:0", "wrist_3_link")  # 13 mm apart at their nearest
    seen = Proximity.build(ur5e, Scene("open"), 0.012).settled
    assert wrists in seen
    assert ("upper_arm_link:3", "forearm_link:2") not in seen
    assert wrists not in Proximity.build(ur5e, Scene("open"), 0.014).settled


def test_the_ur5e_turns_its_wrist_with_a_known_payload(ur5e: RobotModel) -> None:
    """Its wrists lacked 0.6 mm to pass each other."""
    gains, box = design_gains(ur5e, lockstep=True), ur5e.arm_prior
    wide, middle = box.payload_upper - box.payload_lower, 0.5 * (box.payload_upper + box.payload_lower)
    box = box.with_payload(middle - 0.025 * wide, middle + 0.025 * wide)
    poses = poses_of(ur5e, 300, 5)
    poses[:, 4] = 0.0
    assert may_rest(ur5e, box, Scene("open"), gains, poses)[0].any()


@pytest.mark.parametrize(
    ("link", "point"),
    [
        ("wrist_1_link", (-0.0310, 0.0549, -0.0046)),
        ("wrist_2_link", (-0.0311, -0.0553, -0.0041)),
        ("upper_arm_link", (-0.3903, 0.0518, 0.1112)),
        ("forearm_link", (-0.0444, -0.0475, 0.0263)),
        ("base_link", (0.0, 0.0755, 0.0)),
    ],
)
def test_capsules_hold_the_makers_meshes_of_the_ur5e(
    ur5e: RobotModel, link: str, point: tuple[float, float, float]
) -> None:
    """The points of each mesh that stuck out farthest, up to 15 mm, in the link's frame."""
    depths = []
    for body in (body for body in ur5e.bodies if body.link == link):
        along, from_end = body.points[-1] - body.points[0], point - body.points[0]
        share = np.clip(from_end @ along / max(along @ along, 1e-18), 0.0, 1.0)
        depths.append(np.linalg.norm(from_end - share * along) - body.radius)
    assert min(depths) <= -9e-4


def _end_of(running: Generator[int, None, tuple[Separation, ...]]) -> tuple[Separation, ...]:
    while True:
        try:
            next(running)
        except StopIteration as end:
            return end.value


def _parted(rests: Callable[[np.ndarray], np.ndarray], turning: bool) -> tuple[Separation, ...]:
    wall, post = (Margin("clearance", "wall", "hand", -0.01, 0.0), Margin("clearance", "post", "elbow", -0.2, 0.0))

    def test(q: np.ndarray) -> tuple[np.ndarray, list[tuple[Margin, ...]]]:
        free = rests(q)
        # The post is in the way first and most often where the first joint is above -1, the wall everywhere.
        against = [() if ok else (post, wall) if a > -1.0 else (wall,) for ok, a in zip(free, q[:, 0], strict=True)]
        return free, against

    start, goal, far = np.array([0.0, -1.0]), np.array([0.5, 1.0]), np.full(2, 3.0)
    return _end_of(separations(test, start, goal, -far, far, np.array([False, turning]), 0))


def test_a_refusal_names_an_angle_that_no_pose_passes() -> None:
    (found,) = _parted(lambda q: np.abs(q[:, 1]) > 0.3, False)
    assert (found.joint, found.drawn) == (1, 400)
    assert abs(found.angle) <= 0.1, "the middle of what is closed"
    assert [(times, margin.a) for times, margin in found.causes] == [(400, "wall")]
    text = found.text("elbow")
    assert "elbow must pass" in text
    assert "clearance of wall - hand at all of them (at best -0.01 m)" in text
    assert not _parted(lambda q: (np.abs(q[:, 1]) > 0.2) | (q[:, 0] > 2.0), False), "the other joint opens it"
    assert not _parted(lambda q: np.abs(q[:, 1]) > 0.2, True), "it may turn the other way round"
    assert _parted(lambda q: (np.abs(q[:, 1]) > 0.2) & (np.abs(np.abs(q[:, 1]) - 3.0) > 0.2), True)


def test_a_refusal_names_few_constraints_of_which_each_pose_violates_one() -> None:
    inertia = Margin("tracking", "inertia", "", -0.02, 0.0)
    box, floor = (Margin("clearance", "box", "hand", -0.01, 0.0), Margin("clearance", "floor", "hand", -0.1, 0.0))

    def test(q: np.ndarray) -> tuple[np.ndarray, list[tuple[Margin, ...]]]:
        return np.zeros(len(q), bool), [(inertia,) if a > 0.0 else (floor, box) for a in q[:, 0]]

    corners = np.array([[0.0, -1.0], [0.0, 1.0], [-3.0, -3.0], [3.0, 3.0]])
    (found,) = _end_of(separations(test, *corners, np.zeros(2, bool), 1))
    assert len(found.causes) == 2
    assert sum(times for times, _ in found.causes) == 400
    assert {margin.a for _, margin in found.causes} == {"inertia", "box"}
    assert "of the other" in found.text("elbow")
    assert "more inertia than controller.inertia_ratio allows" in found.text("elbow")
