"""The two messages of the 1 kHz loop as bytes: they say what the messages say, whatever comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension

from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import CommandWriter, JointReader, read_command
from safe_sysid.nodes.common.messages.serialised import (
    CommandBytesReader,
    CommandBytesWriter,
    JointBytesReader,
    JointBytesWriter,
)

JOINTS = ("joint_1", "joint_2", "elbow")
STAMP = 1_700_000_000_123_456_789
numbers = st.one_of(st.floats(-1e3, 1e3), st.sampled_from([0.0, -0.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324]))


def read(reader: Any, message: Any) -> Any:
    """What a reader makes of it: its values, or the reason of its refusal."""
    try:
        return tuple(reader.read(message))
    except MessageRefusedError as refused:
        return refused.reason


@st.composite
def joint_states(draw: Any) -> JointState:
    """Joints in any order, others among them, lengths and numbers that may be wrong."""
    names = [*JOINTS, *draw(st.lists(st.sampled_from(["gripper", "knob", "joint_1"]), max_size=2))]
    names = draw(st.permutations(names))[: draw(st.sampled_from([len(names), len(names), len(names), 2]))]
    msg = JointState(name=list(names))
    msg.header.frame_id = draw(st.sampled_from(["", "world", "base_link_of_the_arm"]))
    msg.header.stamp.sec = draw(st.sampled_from([0, 1, -1, 1_700_000_000, 2**31 - 1]))
    msg.header.stamp.nanosec = draw(st.sampled_from([0, 1, 999_999_999, 1_000_000_000]))
    for field, lengths in (("position", (0,)), ("velocity", (0, 1)), ("effort", (0, 0, 1))):
        count = draw(st.sampled_from([len(names)] * 5 + list(lengths)))
        setattr(msg, field, draw(st.lists(numbers, min_size=count, max_size=count)))
    return msg


@settings(max_examples=120)
@given(st.lists(joint_states(), min_size=1, max_size=4))
def test_bytes_say_what_the_message_says(stream: list[JointState]) -> None:
    """Whatever came before: one reader sees them all, each twice, so that both of its ways are taken."""
    fast, slow = JointBytesReader(JOINTS), JointReader(JOINTS, with_effort=None)
    for message in [m for m in stream for _ in range(2)]:
        np.testing.assert_equal(read(fast, bytes(serialize_message(message))), read(slow, message))


def test_the_usual_message_is_not_deserialised(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = JointBytesWriter(JOINTS), JointBytesReader(JOINTS)
    rng, command = np.random.default_rng(0), CommandBytesWriter(3)
    reader.read(writer.fill(STAMP, *rng.normal(size=(3, 3))))
    calls: list[object] = []
    monkeypatch.setattr("safe_sysid.nodes.common.messages.serialised.deserialize_message", lambda *a: calls.append(a))
    q, qd, effort = rng.normal(size=(3, 3))
    sample = reader.read(writer.fill(STAMP + 1, q, qd, effort))
    assert (sample.stamp_ns, calls) == (STAMP + 1, [])
    np.testing.assert_array_equal(sample.q, q)
    np.testing.assert_array_equal(sample.qd, qd)
    stamp, torque = CommandBytesReader(3).read(command.fill(STAMP, effort))
    assert (stamp, calls) == (STAMP, [])
    np.testing.assert_array_equal(torque, effort)


def test_written_bytes_are_those_of_the_message() -> None:
    rng = np.random.default_rng(1)
    joints, plain = JointBytesWriter(JOINTS), conversions.JointStateWriter(JOINTS)
    command, plain_command = CommandBytesWriter(3), CommandWriter(3)
    for stamp in (STAMP, 1, 999_999_999, 2_000_000_000):
        q, qd, effort = rng.normal(size=(3, 3))
        state = deserialize_message(joints.fill(stamp, q, qd, effort), JointState)
        assert state == plain.fill(stamp, q, qd, effort)
        for torque in (effort, None):
            sent = deserialize_message(command.fill(stamp, torque), Float64MultiArray)
            assert sent == plain_command.fill(stamp, torque)


def test_padding_is_learned_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of a message is changed in turn: what the fast way then says is what deserialising says."""
    rng = np.random.default_rng(2)
    names = ("a", "joint_10", "x2")
    data = JointBytesWriter(names).fill(STAMP, *rng.normal(size=(3, 3)))
    for place in range(len(data)):
        if place == 1:
            continue  # another encoding: tried below
        other = bytearray(data)
        other[place] ^= 0x10
        reader, slow = JointBytesReader(names), JointReader(names, with_effort=None)
        reader.read(data)
        try:
            expected = read(slow, deserialize_message(bytes(other), JointState))
        except Exception:
            continue  # no such message can arrive
        for _ in range(2):
            np.testing.assert_equal(read(reader, bytes(other)), expected, f"byte {place}")
    reader = JointBytesReader(names)
    reader.read(data)
    swapped, mirrored = deserialize_message(data, JointState), bytearray(data[::-1])
    mirrored[:4] = b"\0\0\0\0"  # as if the same message had come from a machine of the other byte order
    mirrored[4:] = bytes(len(data) - 4)
    monkeypatch.setattr("safe_sysid.nodes.common.messages.serialised.deserialize_message", lambda *_: swapped)
    for _ in range(2):
        assert reader.read(bytes(mirrored)).q.tolist() == swapped.position.tolist()


@settings(max_examples=200)
@given(
    st.sampled_from(["", str(STAMP), "12", "1" * 19, "1" * 20, "12345678901234567x9", "-234567890123456789"]),
    st.integers(0, 4),
    st.data(),
)
def test_commands_as_bytes_say_what_the_message_says(label: str, count: int, data: st.DataObject) -> None:
    msg = Float64MultiArray(data=data.draw(st.lists(numbers, min_size=count, max_size=count)))
    msg.layout.dim = [MultiArrayDimension(label=label, size=count, stride=count)]
    raw = bytes(serialize_message(msg))
    slow = SimpleNamespace(read=lambda m: read_command(m, 3))
    np.testing.assert_equal(read(CommandBytesReader(3), raw), read(slow, msg))
