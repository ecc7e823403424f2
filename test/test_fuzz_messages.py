"""Whatever bytes come on a topic or to a service: no node dies, the arm is commanded on, refusals are counted."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from message_bench import LENGTHS, TYPES, MessageBench, break_bytes, broken, request_of
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.nodes.common.messages.conversions import write_stamp
from safe_sysid.nodes.common.messages.limits import TOPICS

pytestmark = pytest.mark.ros


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageBench]:
    """All nodes, at work."""
    made = MessageBench(tmp_path_factory.mktemp("bench"))
    yield made
    made.close()


@contextmanager
def within(seconds: int, what: str) -> Iterator[None]:
    """A callback that does not come back fails the test instead of holding it for ever."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"{what} took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_every_topic_has_a_limit_and_sound_messages_to_begin_with(bench: MessageBench) -> None:
    heard = {topic for node in bench.nodes for topic in node.rate_limiter.receivers}
    # An arm that follows trajectories has that one in place of torques: test_trajectory_interface.py.
    assert heard == set(TOPICS) - {"trajectory_command"} == set(TYPES)
    for topic in TYPES:
        for seed in bench.seeds(topic):
            assert len(serialize_message(seed)) < TOPICS[topic].max_bytes / 4


# Before the requests below, which may stop the identifier.
def test_times_that_cannot_be_make_no_batches(bench: MessageBench) -> None:
    """A measurement of the year 2038 used to keep the identifier in a loop of four thousand million batches."""
    state: JointState = bench.seeds("joint_states")[0]
    write_stamp(state.header.stamp, (2**31 - 1) * 10**9)
    batch = bench.identifier._batch
    with within(20, "a measurement of the future"):
        bench.send(bench.identifier, "joint_states", serialize_message(state))
    assert bench.identifier._batch == batch
    assert bench.identifier.refusals["joint_states: from the future"]


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_no_message_stops_a_node_or_the_arm(bench: MessageBench, rng: random.Random) -> None:
    for _ in range(8):
        node, topic = rng.choice(bench.topics())
        data = broken(rng, rng.choice(bench.seeds(topic)))
        with within(20, f"{node.get_name()} {topic} {data.hex()}"):
            bench.send(node, topic, data)
    bench.step()
    bench.healthy()


@settings(max_examples=40)
@given(st.binary(max_size=400), st.integers(0, 1000))
def test_no_bytes_stop_a_node(bench: MessageBench, data: bytes, which: int) -> None:
    targets = bench.topics()
    node, topic = targets[which % len(targets)]
    for start in (b"", b"\x00\x01\x00\x00", b"\x00\x00\x00\x00"):
        bench.send(node, topic, start + data)
    bench.step()


@settings(max_examples=40)
@given(st.randoms(use_true_random=False))
def test_no_request_stops_a_node_or_the_arm(bench: MessageBench, rng: random.Random) -> None:
    for _ in range(4):
        node, service = rng.choice(bench.services())
        request = request_of(rng, service)
        data = bytes(serialize_message(request))
        if rng.random() < 0.5 and not hasattr(request, "transition"):
            data = break_bytes(rng, data)
        with within(20, f"{node.get_name()} {service.srv_name} {data.hex()}"):
            bench.ask(service, data)
    bench.measure(bench.torque)  # a stop is obeyed: nothing may be commanded after it
    bench.healthy()


def test_a_parameter_of_a_type_that_there_is_not_is_refused(bench: MessageBench) -> None:
    """Rclpy trips over it, and its exception used to end the node: one call from anybody."""
    request = SetParameters.Request(parameters=[Parameter(name="run_dir", value=ParameterValue(type=255))])
    for node in bench.nodes:
        service = next(s for s in node.services if s.srv_name.endswith("/set_parameters"))
        before = node.refusals.total()
        assert service.callback(request, SetParameters.Response()).results == []
        assert node.refusals.total() == before + 1


@pytest.mark.parametrize("field", ["name", "position", "data", "points", "markers"])
def test_lengths_that_lie_cost_nothing(bench: MessageBench, field: str) -> None:
    """Every four bytes of a sound message, replaced by each of many lengths."""
    for node, topic in bench.topics():
        if field not in TYPES[topic].get_fields_and_field_types():
            continue
        for seed in bench.seeds(topic):
            data = bytes(serialize_message(seed))
            for at in range(4, min(len(data), 120), 4):
                for length in LENGTHS[3::2]:
                    lie = data[:at] + length.to_bytes(4, "little") + data[at + 4 :]
                    with within(20, f"{topic} {at} {length}"):
                        bench.send(node, topic, lie)
    bench.step()


@pytest.mark.parametrize(
    "uri",
    ["file:///dev/zero", "file:///dev/stdin", "file:///proc/self/environ", "package://safe_sysid/../../etc/passwd"],
)
def test_no_marker_makes_the_planner_read_what_is_no_mesh(
    bench: MessageBench, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.planner._scheduler, "not_at_rest", lambda: "")
    marker = Marker(ns="a", id=1, type=Marker.MESH_RESOURCE, mesh_resource=uri)
    marker.header.frame_id, marker.pose.orientation.w = "world", 1.0
    marker.scale.x = marker.scale.y = marker.scale.z = 1.0
    before = bench.planner.refusals.copy()
    with within(20, uri):
        bench.send(bench.planner, "scene", serialize_message(MarkerArray(markers=[marker])))
    assert bench.planner.refusals - before == {"scene: bad marker": 1}
    assert not any("marker:a/1" in str(item) for item in bench.planner._scenes.scene.obstacles)


def test_what_strangers_write_obeys_no_terminal(bench: MessageBench) -> None:
    told: list[str] = []
    state: JointState = bench.seeds("joint_states")[0]
    state.name = ["\x1b[2J\x1b]0;mine\x07\u202e", *state.name[1:]]
    tell: Callable[[bool, str], None] = bench.identifier._tell
    bench.identifier._log_pauses.forget()
    bench.identifier._tell = lambda warning, text: told.append(text)  # type: ignore[method-assign]
    try:
        bench.send(bench.identifier, "joint_states", serialize_message(state))
    finally:
        bench.identifier._tell = tell  # type: ignore[method-assign]
    assert told
    assert r"\x1b[2J" in told[0]
    assert all(text.isprintable() for text in told)
    assert bench.identifier._last_refusal.isprintable()
