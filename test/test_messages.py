"""Conversions of messages: exact round trips over the wire, and `MessageRefusedError` for whatever else may come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from safe_sysid.errors import MessageError
from safe_sysid.nodes.common.messages import conversions as m
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.identifier.payload_message import last_link_message, payload_message
from safe_sysid.robot import RobotModel
from safe_sysid.robot.parameters import ParameterBox, com_and_inertia, inertia_from_com, transform_inertial
from safe_sysid.trajectories import Plan, QuinticTrajectory

JOINTS = ("joint_a", "joint_b", "joint_c")
N = len(JOINTS)
P = 14 * N

anything = st.floats(allow_nan=True, allow_infinity=True, width=64)
finite = st.floats(-1e3, 1e3)
names = st.one_of(st.sampled_from([*JOINTS, "finger", ""]), st.text(max_size=8))


def over_the_wire(message: Any) -> Any:
    return deserialize_message(serialize_message(message), type(message))


def joint_state(
    position: Any, velocity: Any, effort: Any, joints: Any = JOINTS, stamp: tuple[int, int] = (3, 4)
) -> JointState:
    message = JointState(name=list(joints))
    message.position, message.velocity, message.effort = ([float(x) for x in v] for v in (position, velocity, effort))
    message.header.stamp.sec, message.header.stamp.nanosec = stamp
    return message


# -- joint states -----------------------------------------------------------------------------------------------


@given(st.permutations([*JOINTS, "finger", "lift"]), st.lists(anything, min_size=15, max_size=15))
def test_joints_are_matched_by_name_whatever_their_order_and_whoever_else_is_there(
    order: list[str], numbers: list[float]
) -> None:
    values = np.array(numbers).reshape(3, 5)
    table = dict(zip([*JOINTS, "finger", "lift"], values.T, strict=True))
    message = over_the_wire(joint_state(*np.array([table[name] for name in order]).T, order))
    reader = m.JointReader(JOINTS)
    ours = values[:, :N]
    if not np.all(np.isfinite(ours)):
        with pytest.raises(MessageRefusedError, match=r"not finite: .*joint_[abc]"):
            reader.read(message)
        return
    sample = reader.read(message)
    assert sample.stamp_ns == 3_000_000_004
    assert np.array_equal([sample.q, sample.qd, sample.effort], ours)  # a NaN of a finger is nobody's business


def test_a_reader_follows_publishers_that_change_their_order() -> None:
    reader, rows = m.JointReader(JOINTS), np.arange(9.0).reshape(3, 3)
    for order in ([0, 1, 2], [2, 0, 1], [2, 0, 1], [1, 0, 2]):
        sample = reader.read(joint_state(*rows[:, order], [JOINTS[i] for i in order]))
        assert np.array_equal([sample.q, sample.qd, sample.effort], rows)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"joints": JOINTS[:2]}, "missing joint"),
        ({"joints": ("joint_a", "joint_b", "Joint_c")}, "missing joint"),
        ({"joints": ()}, "missing joint"),
        ({"joints": (*JOINTS, "joint_a")}, "joint named twice"),
        ({"joints": [f"j{i}" for i in range(100_001)]}, "too long"),
        ({"position": [0.0] * 2}, "wrong length"),
        ({"velocity": []}, "wrong length"),
        ({"effort": [0.0] * 4}, "wrong length"),
        ({"position": [0.0] * 200_000}, "wrong length"),
        ({"position": [0.0, np.nan, 0.0]}, "not finite"),
        ({"velocity": [np.inf, -np.inf, 0.0]}, "not finite"),
        ({"effort": [0.0, 0.0, np.nan]}, "not finite"),
        ({"stamp": (0, 0)}, "bad stamp"),
        ({"stamp": (-1, 0)}, "bad stamp"),
        ({"stamp": (1, 1_000_000_000)}, "bad stamp"),
    ],
)
def test_a_broken_joint_state_is_refused_with_its_reason_and_the_next_good_one_is_read(
    change: dict[str, Any], reason: str
) -> None:
    reader, good = m.JointReader(JOINTS), {key: [1.0] * 3 for key in ("position", "velocity", "effort")}
    with pytest.raises(MessageRefusedError) as refused:
        reader.read(joint_state(**{**good, **change}))
    assert refused.value.reason == reason
    assert isinstance(refused.value, MessageError)
    assert np.array_equal(reader.read(joint_state(**good)).q, np.ones(3))


def test_finite_numbers_whose_sum_overflows_are_finite() -> None:
    sample = m.JointReader(JOINTS).read(joint_state([1.7e308] * 3, [0.0] * 3, [0.0] * 3))
    assert np.array_equal(sample.q, [1.7e308] * 3)


def test_effort_may_be_missing_where_nobody_needs_it() -> None:
    message = joint_state([1.0] * 3, [2.0] * 3, [])
    assert m.JointReader(JOINTS, with_effort=False).read(message).effort is None
    with pytest.raises(MessageRefusedError, match="wrong length"):
        m.JointReader(JOINTS).read(message)


@given(
    st.lists(names, max_size=6),
    *[st.lists(anything, max_size=6)] * 3,
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)),
)
def test_any_joint_state_is_read_or_refused(
    joints: list[str], position: Any, velocity: Any, effort: Any, stamp: tuple[int, int]
) -> None:
    message = joint_state(position, velocity, effort, joints, stamp)
    try:
        sample = m.JointReader(JOINTS).read(message)
    except MessageRefusedError:
        return
    assert sample.stamp_ns > 0
    for values in (sample.q, sample.qd, sample.effort):
        assert values.shape == (N,)
        assert np.all(np.isfinite(values))


def test_a_written_joint_state_is_read_back_exactly() -> None:
    rng = np.random.default_rng(1)
    writer, reader = m.JointStateWriter(JOINTS), m.JointReader(JOINTS)
    for stamp in (1, 1_700_000_000_123_456_789):
        rows = rng.normal(size=(3, N))
        sample = reader.read(over_the_wire(writer.fill(stamp, *rows, frame_id="4:2")))
        assert (sample.stamp_ns, sample.frame_id) == (stamp, "4:2")
        assert np.array_equal([sample.q, sample.qd, sample.effort], rows)


# -- commands ---------------------------------------------------------------------------------------------------


@given(st.integers(1, 2**63 - 1), st.none() | st.lists(finite, min_size=N, max_size=N))
def test_commands_survive_the_wire(stamp: int, torque: list[float] | None) -> None:
    writer = m.CommandWriter(N)
    message = over_the_wire(writer.fill(stamp, None if torque is None else np.array(torque)))
    answered, read = m.read_command(message, N)
    assert answered == stamp
    assert read is None if torque is None else np.array_equal(read, torque)


@given(st.lists(anything, max_size=5), st.lists(st.text(max_size=25), max_size=2))
def test_any_command_is_read_or_refused(data: list[float], labels: list[str]) -> None:
    message = Float64MultiArray(data=data)
    message.layout.dim = [MultiArrayDimension(label=label) for label in labels]
    try:
        stamp, torque = m.read_command(message, N)
    except MessageRefusedError:
        return
    assert stamp is None or stamp >= 0
    assert torque is None or (torque.shape == (N,) and np.all(np.isfinite(torque)))


def test_a_command_of_a_stock_publisher_needs_no_label() -> None:
    stamp, torque = m.read_command(Float64MultiArray(data=[1.0, 2.0, 3.0]), N)
    assert stamp is None
    assert np.array_equal(torque, [1.0, 2.0, 3.0])


# -- plans ------------------------------------------------------------------------------------------------------


def some_plan(seed: int, points: int) -> Plan:
    rng = np.random.default_rng(seed)
    knots = rng.normal(size=(points, 3, N))
    knots[-1, 1:] = 0.0
    times = np.array([0.0, 1.5, 3.0])[[0, 2] if points == 2 else [0, 1, 2]]
    return Plan(QuinticTrajectory(times, knots), 7.5, 1.5, "3:14", 2, np.zeros(N))


@pytest.mark.parametrize("points", [2, 3])
def test_a_plan_arrives_bit_for_bit_whatever_the_order_of_joints(points: int) -> None:
    plan = some_plan(5, points)
    message = over_the_wire(m.plan_message(plan, JOINTS, 9_876_543_210))
    message.joint_names = [JOINTS[i] for i in (2, 0, 1)]
    for point in message.points:
        for field in ("positions", "velocities", "accelerations"):
            values = getattr(point, field)
            setattr(point, field, [values[i] for i in (2, 0, 1)])
    answer = m.read_plan(message, JOINTS)
    assert (answer.start_ns, answer.box_identity) == (9_876_543_210, "3:14")
    received = answer.plan(7.5, 1.5, 2)
    assert np.array_equal(received.trajectory.knots, plan.trajectory.knots)
    assert np.array_equal(received.trajectory.times, plan.trajectory.times)
    assert np.array_equal(received.trajectory.coefficients, plan.trajectory.coefficients)
    assert received.t_plan == plan.t_plan


def test_a_plan_that_no_message_can_carry_exactly_is_not_sent() -> None:
    knots = np.zeros((2, 3, N))
    plan = Plan(QuinticTrajectory(np.array([0.0, 1.0 + 1e-13]), knots), 0.0, 0.5, "0:0", 0, np.zeros(N))
    with pytest.raises(MessageError, match="whole nanoseconds"):
        m.plan_message(plan, JOINTS, 1)


def test_a_plan_says_what_it_was_certified_with() -> None:
    digest = f"{'0a' * 16},scene={'1f' * 8}"
    for message in (
        m.plan_message(some_plan(1, 2), JOINTS, 10, digest),
        m.empty_plan_message(10, "3:14", JOINTS, digest=digest),
        m.empty_plan_message(10, "3:14", JOINTS, 20, digest),
    ):
        answer = m.read_plan(over_the_wire(message), JOINTS)
        assert (answer.box_identity, answer.digest) == ("3:14", digest)
        for bad in (" ", f"  {digest}", f" {digest} ", f" {digest}0", f" {digest.upper()}", " " + digest[:32]):
            message.header.frame_id = f"3:14{bad}"
            with pytest.raises(MessageRefusedError, match="bad digest"):
                m.read_plan(message, JOINTS)
    assert m.read_plan(m.plan_message(some_plan(1, 2), JOINTS, 10), JOINTS).digest == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x.joint_names.pop(), "wrong joints"),
        (lambda x: x.joint_names.append("lift"), "wrong joints"),
        (lambda x: setattr(x, "joint_names", ["joint_a", "joint_b", "joint_b"]), "wrong joints"),
        (lambda x: x.points.pop(0), "wrong length"),
        (lambda x: setattr(x, "points", [x.points[0]] * 50 + x.points[1:]), "wrong length"),
        (lambda x: setattr(x.points[0], "velocities", [0.0]), "wrong length"),
        (lambda x: setattr(x.points[1], "accelerations", []), "wrong length"),
        (lambda x: x.points[1].positions.__setitem__(1, np.nan), "not finite"),
        (lambda x: setattr(x.points[0].time_from_start, "nanosec", 1), "bad trajectory"),  # does not start at 0
        (lambda x: setattr(x.points[1].time_from_start, "sec", -3), "bad trajectory"),  # goes backwards
        (lambda x: x.points[1].velocities.__setitem__(1, 1e-9), "bad trajectory"),  # does not end at rest
        (lambda x: [setattr(p, "positions", [k] * N) for p, k in zip(x.points, (-1e308, 1e308), strict=True)],
         "bad trajectory"),
        (lambda x: setattr(x.header, "frame_id", "3:-1"), "bad identity"),
        (lambda x: setattr(x.header, "frame_id", ""), "bad identity"),
        (lambda x: setattr(x.header.stamp, "nanosec", 0), "bad stamp"),
    ],
)  # fmt: skip
def test_a_broken_plan_is_refused_with_its_reason(change: Callable[[JointTrajectory], object], reason: str) -> None:
    message = m.plan_message(some_plan(1, 2), JOINTS, 10)
    change(message)
    with pytest.raises(MessageRefusedError) as refused:
        m.read_plan(message, JOINTS)
    assert refused.value.reason == reason


rows = st.lists(anything, max_size=4)
points = st.tuples(rows, rows, rows, st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1))


@settings(max_examples=100)
@given(
    st.lists(names, max_size=4) | st.permutations(JOINTS),
    st.lists(points, max_size=4),
    st.sampled_from(["0:0", "1:2"]) | st.text(max_size=12),
    st.integers(0, 2**31 - 1),
)
def test_any_plan_is_read_or_refused(joints: list[str], body: list[Any], identity: str, sec: int) -> None:
    message = JointTrajectory(joint_names=list(joints))
    message.header.frame_id, message.header.stamp.sec = identity, sec
    for positions, velocities, accelerations, seconds, nano in body:
        point = JointTrajectoryPoint(positions=positions, velocities=velocities, accelerations=accelerations)
        point.time_from_start.sec, point.time_from_start.nanosec = seconds, nano
        message.points.append(point)
    try:
        answer = m.read_plan(message, JOINTS)
    except MessageRefusedError:
        return
    if answer.trajectory is not None:
        assert np.all(np.isfinite(answer.trajectory.coefficients))
        assert answer.plan(0.0, 1.5, 0).trajectory is answer.trajectory


# -- bounds -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 999_999_999), st.integers(0, 999_999_999), st.none() | st.integers(0, 10**8), st.data())
def test_bounds_arrive_bit_for_bit(epoch: int, seq: int, batch: int | None, data: st.DataObject) -> None:
    three = np.sort(np.array(data.draw(st.lists(finite, min_size=3 * P, max_size=3 * P))).reshape(3, P), axis=0)
    box = ParameterBox(three[0], three[2], epoch, seq)
    digest, contradicted = data.draw(st.sampled_from(["", "0a1b,scene=2c"])), data.draw(st.booleans())
    answer = m.read_bounds(over_the_wire(m.bounds_message(box, three[1], batch, digest, contradicted)), P)
    assert answer.box.identity == f"{epoch}:{seq}"
    assert (answer.batch, answer.digest, answer.contradicted) == (batch, digest, contradicted)
    assert np.array_equal([answer.box.lower, answer.nominal, answer.box.upper], three)


def make_it_another_robot_s(message: Float64MultiArray) -> None:
    other = m.bounds_message(ParameterBox(-np.ones(14), np.ones(14)), np.zeros(14), 1)
    message.layout, message.data = other.layout, other.data


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: setattr(x.layout, "dim", []), "bad layout"),
        (lambda x: x.layout.dim.append(MultiArrayDimension(size=1, stride=1)), "bad layout"),
        (lambda x: setattr(x.layout, "data_offset", 1), "bad layout"),
        (lambda x: setattr(x.layout.dim[0], "size", 2), "bad layout"),
        (lambda x: setattr(x.layout.dim[1], "stride", 1), "bad layout"),
        (lambda x: x.data.pop(), "bad layout"),
        (lambda x: setattr(x, "data", [0.0] * 200_000), "bad layout"),
        (lambda x: setattr(x, "data", []), "bad layout"),
        (make_it_another_robot_s, "bad layout"),
        (lambda x: x.data.__setitem__(P + 3, np.nan), "not finite"),
        (lambda x: x.data.__setitem__(-1, np.inf), "not finite"),
        (lambda x: x.data.__setitem__(0, 1e6), "bounds out of order"),
        (lambda x: setattr(x.layout.dim[0], "label", "0:0:0"), "bad identity"),
        (lambda x: setattr(x.layout.dim[1], "label", "batch:x"), "bad label"),
        (lambda x: setattr(x.layout.dim[1], "label", "batch:1contradicted"), "bad label"),
        (lambda x: setattr(x.layout.dim[1], "label", ";contradicted"), "bad label"),
    ],
)
def test_broken_bounds_are_refused_with_their_reason(
    change: Callable[[Float64MultiArray], object], reason: str
) -> None:
    message = m.bounds_message(ParameterBox(-np.ones(P), np.ones(P)), np.zeros(P), 1)
    change(message)
    with pytest.raises(MessageRefusedError) as refused:
        m.read_bounds(message, P)
    assert refused.value.reason == reason


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.text(max_size=12) | st.just("0:0"), *[st.integers(0, 2**32 - 1)] * 2), max_size=3),
    st.integers(0, 3),
    st.lists(anything, max_size=12),
)
def test_any_bounds_are_read_or_refused(dim: list[Any], offset: int, data: list[float]) -> None:
    message = Float64MultiArray(data=data)
    message.layout.data_offset = offset
    message.layout.dim = [MultiArrayDimension(label=label, size=a, stride=b) for label, a, b in dim]
    try:
        answer = m.read_bounds(message, 4)
    except MessageRefusedError:
        return
    assert np.all(answer.box.lower <= answer.nominal)
    assert np.all(answer.nominal <= answer.box.upper)


# -- payload ----------------------------------------------------------------------------------------------------


def test_the_payload_message_is_the_payload_alone_and_the_last_link_has_its_own(model: RobotModel) -> None:
    """Reviewed: /payload was hand and last link, too."""
    rotation, position = model.flange
    hand = np.array(model.theta_nominal[60:70])
    centre = np.array([0.01, -0.02, 0.11])
    alone = inertia_from_com(2.0, centre, np.diag([0.01, 0.012, 0.004]))  # in the tool frame
    theta = hand + transform_inertial(rotation, position, alone)
    message = payload_message(model, model.arm_prior, theta, 12)
    assert message is not None
    i = message.inertia
    assert message.header.frame_id == "end_effector_link"
    assert i.m == pytest.approx(2.0, abs=1e-9)
    np.testing.assert_allclose([i.com.x, i.com.y, i.com.z], centre, atol=1e-9)
    np.testing.assert_allclose([i.ixx, i.ixy, i.iyy, i.ixz, i.iyz, i.izz], [0.01, 0, 0.012, 0, 0, 0.004], atol=1e-9)

    message = last_link_message(model, theta, 12)
    i = message.inertia
    mass, com, inertia = com_and_inertia(theta)
    assert i.m == mass
    assert message.header.frame_id == "end_effector_link"
    there = np.array([i.com.x, i.com.y, i.com.z])
    np.testing.assert_allclose(rotation @ there + position, com, atol=1e-12)
    about = np.array([[i.ixx, i.ixy, i.ixz], [i.ixy, i.iyy, i.iyz], [i.ixz, i.iyz, i.izz]])
    np.testing.assert_allclose(rotation @ about @ rotation.T, inertia, atol=1e-12)
    back = transform_inertial(rotation, position, transform_inertial(rotation.T, -rotation.T @ position, theta))
    np.testing.assert_allclose(back, theta, atol=1e-12)


def test_a_hand_that_holds_nothing_is_announced_as_no_mass(model: RobotModel) -> None:
    """Else the message of the payload before would stay in force."""
    for message in (
        payload_message(model, model.arm_prior, np.array(model.theta_nominal[60:70]), 1),
        last_link_message(model, np.zeros(10), 1),
    ):
        assert message is not None
        assert message.header.frame_id == "end_effector_link"
        assert message.inertia.m == message.inertia.com.z == message.inertia.ixx == 0.0
