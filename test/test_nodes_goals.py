"""Goals and scene markers from messages: used whole or refused with the reason, whatever comes; and announcements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

pytest.importorskip("rclpy")

from geometry_msgs.msg import PoseStamped
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.errors import MessageError, SafeSysIdError
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import empty_plan_message, read_plan
from safe_sysid.nodes.controller.timing import PendingAnswers
from safe_sysid.nodes.planner.goals import read_goal_joints, read_goal_pose
from safe_sysid.nodes.planner.scene_server import read_markers
from safe_sysid.robot import load_robot
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.robot.scenes.scene_updates import scene_from_markers

MODEL = load_robot("kinova_gen3")
N, NAMES = MODEL.n, MODEL.joint_names


def read(reader: Callable[..., Any], *arguments: Any) -> Any:
    """What is read, or None; a refusal says what was expected, and nothing else is ever raised."""
    try:
        return reader(*arguments)
    except SafeSysIdError as error:
        text = str(error)
    assert "expected" in text
    return None


anything = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(st.lists(st.lists(anything, min_size=N - 1, max_size=N + 1), max_size=3), st.permutations(NAMES))
def test_any_joint_goal_is_read_by_name_inside_the_limits_or_refused(points: Any, names: Any) -> None:
    message = JointTrajectory(joint_names=list(names))
    message.points = [JointTrajectoryPoint(positions=point) for point in points]
    goal = read(read_goal_joints, message, MODEL)
    if goal is None:
        return
    limits = MODEL.limits
    assert np.all((goal.waypoints > limits.position_lower) & (goal.waypoints < limits.position_upper))
    for point, waypoint in zip(points, goal.waypoints, strict=True):
        assert [waypoint[NAMES.index(name)] for name in names] == point


def pose(numbers: list[float], frame: str = "world") -> PoseStamped:
    message = PoseStamped()
    message.header.frame_id = frame
    p, o = message.pose.position, message.pose.orientation
    p.x, p.y, p.z, o.x, o.y, o.z, o.w = numbers
    return message


@given(st.lists(anything, min_size=7, max_size=7), st.sampled_from(["world", "base_link", "", "map"]))
def test_any_pose_is_a_rotation_near_the_arm_or_refused(numbers: list[float], frame: str) -> None:
    goal = read(read_goal_pose, pose(numbers, frame), MODEL)
    if goal is None:
        return
    position, rotation = goal.pose
    assert frame in ("world", "base_link")
    assert np.all(np.abs(position) <= 100.0)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)


def to(*points: np.ndarray, names: tuple[str, ...] = NAMES, speed: float = 0.0) -> JointTrajectory:
    message = JointTrajectory(joint_names=list(names))
    message.points = [JointTrajectoryPoint(positions=point.tolist(), velocities=[speed] * N) for point in points]
    return message


REST, ORIGIN, UPRIGHT = np.zeros(N), [0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (to(np.full(N, np.nan)), "not finite"),
        (to(REST + 3.0), "outside the limits"),
        (to(), "wrong length"),
        (to(*[REST] * 101), "wrong length"),
        (to(REST[:-1]), "wrong length"),
        (to(REST, names=("turn",) * N), "wrong joints"),
        (to(REST, names=NAMES[:-1]), "wrong joints"),
        (to(REST, speed=0.1), "in motion"),
        (pose([np.inf] * 3 + UPRIGHT), "not finite"),
        (pose([1e6] * 3 + UPRIGHT), "far away"),
        (pose(ORIGIN + [0.0] * 4), "not a rotation"),
        (pose(ORIGIN + UPRIGHT, "camera"), "unknown frame"),
        (pose(ORIGIN + UPRIGHT, ""), "unknown frame: frame_id = '': expected world"),
    ],
)
def test_a_goal_that_cannot_be_is_refused_with_its_reason(message: Any, reason: str) -> None:
    reader = read_goal_pose if isinstance(message, PoseStamped) else read_goal_joints
    with pytest.raises(MessageRefusedError, match=f"^{reason}"):
        reader(message, MODEL)


@given(st.integers(0, 2**32 - 1))
def test_a_pose_is_the_rotation_that_its_quaternion_means(seed: int) -> None:
    rotation = Rotation.random(random_state=np.random.default_rng(seed))
    message = pose([0.1, 0.2, 0.3, *rotation.as_quat()], "base_link")
    np.testing.assert_allclose(read_goal_pose(message, MODEL).pose[1], rotation.as_matrix(), atol=1e-14)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 3, 9, 10]),
            st.sampled_from([0, 2, 3, 5]),
            st.sampled_from(["world", "base_link", "", "odom"]),
            st.lists(st.one_of(anything, st.floats(0.01, 1.0)), min_size=10, max_size=10),
        ),
        max_size=4,
    )
)
def test_any_markers_make_a_scene_of_finite_obstacles_or_are_refused_together(rows: Any) -> None:
    array = MarkerArray()
    for i, (kind, action, frame, numbers) in enumerate(rows):
        marker = Marker(ns="any", id=i, type=kind, action=action)
        marker.header.frame_id = frame
        p, o, s = marker.pose.position, marker.pose.orientation, marker.scale
        p.x, p.y, p.z, o.x, o.y, o.z, o.w, s.x, s.y, s.z = numbers
        array.markers.append(marker)
    markers = read(read_markers, array, MODEL)
    scene = None if markers is None else read(scene_from_markers, markers, Scene("before"))
    if scene is None:
        return
    assert all(np.all(np.isfinite(obstacle.points)) for obstacle in scene.obstacles)
    assert len(scene.obstacles) <= sum(action == 0 for _, action, _, _ in rows)


@pytest.mark.parametrize(
    ("mounting", "known"),
    [(None, True), ({"xyz": [0.0, 0.0, 0.0]}, True), ({"xyz": [0.0, 0.0, 0.5]}, False), ({"rpy": [3.14, 0, 0]}, False)],
)
def test_the_root_s_frame_is_the_world_s_only_where_it_stands_in_its_origin(mounting: Any, known: bool) -> None:
    model = load_robot("kinova_gen3", **({} if mounting is None else {"mounting": mounting}))
    marker = Marker(type=Marker.CUBE, action=Marker.ADD)
    marker.header.frame_id = "base_link"
    array, goal = MarkerArray(markers=[marker]), pose([0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0], "base_link")
    for reader, message in ((read_markers, array), (read_goal_pose, goal)):
        if known:
            reader(message, model)
            continue
        with pytest.raises(MessageRefusedError, match=r"unknown frame: frame_id = 'base_link': expected world$"):
            reader(message, model)


def test_a_flood_of_markers_is_refused_unread() -> None:
    with pytest.raises(MessageRefusedError, match="too long: 201 markers: expected at most 200"):
        read_markers(MarkerArray(markers=[Marker()] * 201), MODEL)
    with pytest.raises(MessageRefusedError, match="too long"):
        read_markers(MarkerArray(markers=[Marker(ns="n" * 81)]), MODEL)


@given(st.integers(1, 10**18), st.integers(1, 600 * 10**9))
def test_an_announcement_says_when_the_next_plan_begins(start: int, pause: int) -> None:
    answer = read_plan(empty_plan_message(start, "0:3", NAMES, start + pause), NAMES)
    assert (answer.start_ns, answer.trajectory, answer.next_ns) == (start, None, start + pause)
    plain = read_plan(empty_plan_message(start, "0:3", NAMES), NAMES)
    assert (plain.start_ns, plain.box_identity, plain.trajectory, plain.next_ns) == (start, "0:3", None, None)
    with pytest.raises(MessageError):
        plain.plan(0.0, 1.0, 0)


@pytest.mark.parametrize("pause", [0, -1, 601 * 10**9])
def test_an_absurd_announcement_is_refused(pause: int) -> None:
    with pytest.raises(MessageRefusedError, match="bad pause"):
        read_plan(empty_plan_message(10**9, "0:3", NAMES, 10**9 + pause), NAMES)


def test_an_announced_plan_is_awaited_then_and_not_before() -> None:
    gate = PendingAnswers((4, 3, 4, 100))
    none = read_plan(empty_plan_message(4, "0:0", NAMES, 9), NAMES)
    gate.put_plan(none)
    for answer in gate.due_plans(4):
        gate.settle_plan(answer, False, 4)
    assert not gate.missing(8)
    assert gate.missing(9)
    # One that is for a time that has passed already stops nobody.
    late = PendingAnswers((4, 3, 4, 100))
    late.give_up(4)
    late.settle_plan(none, False, 9)
    assert not late.missing(20)
    late.settle_plan(none, False, 8)
    assert late.missing(9), "a planner that speaks again is awaited again"
    # A planner that is started when the controller waits already, and stopped and started again.
    begun = PendingAnswers((4, 3, 4, 100))
    for start, following in ((2, 6), (3, 9)):
        begun.put_plan(read_plan(empty_plan_message(start, "0:0", NAMES, following), NAMES))
        for answer in begun.due_plans(start):
            begun.settle_plan(answer, False, start)
        assert not begun.missing(following - 1)
        assert begun.missing(following)
    alone = PendingAnswers((4, 3, 4, 100), await_plans=False)
    alone.settle_plan(none, False, 4)
    assert not alone.missing(9), "where nobody is awaited an announcement changes nothing"
