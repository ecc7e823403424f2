"""Too much, too often, from too many: what limits let through, and that floods hold neither the arm nor its stop."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.serialization import serialize_message
from ros_harness import Probe, running
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.input_limits import TokenBucket
from safe_sysid.nodes.common.base import LATCHED, LATCHED_INPUT, BaseNode
from safe_sysid.nodes.common.exclusive_publishers import FORGOTTEN_S, ExclusivePublishers
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.common.messages import rate_limiting as rate_limiter
from safe_sysid.nodes.common.messages.contents import MessageRefusedError, printable
from safe_sysid.nodes.common.messages.limits import TOPICS, Limit, MessageFilter
from safe_sysid.nodes.common.messages.rate_limiting import InputRateLimiter
from safe_sysid.nodes.controller.node import ControllerNode
from safe_sysid.nodes.identifier.node import IdentifierNode
from safe_sysid.nodes.planner.planner_node import PlannerNode
from safe_sysid.nodes.plant.node import PlantNode

pytestmark = pytest.mark.ros


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# -- limits -----------------------------------------------------------------------------------------------------


@given(
    st.floats(0.1, 1e4),
    st.integers(1, 1000),
    st.lists(st.one_of(st.just(0.0), st.floats(0.0, 0.5), st.floats(0.0, 1e-4)), max_size=300),
)
def test_a_bucket_lets_no_more_through_than_it_says_and_no_less(rate: float, burst: int, pauses: list[float]) -> None:
    clock = Clock()
    bucket, began, passed = TokenBucket(rate, burst, clock), clock.now, 0
    for pause in pauses:
        clock.now += pause
        wait = bucket.wait()
        if bucket.take():
            passed += 1
            assert wait == 0.0
        else:
            assert wait > 0.0
            assert passed >= burst
        assert passed <= burst + rate * (clock.now - began) * (1.0 + 1e-9) + 1e-6
    clock.now += 1.0 / rate + 1e-6
    assert bucket.take()


def test_a_filter_judges_length_and_rate_and_counts() -> None:
    clock = Clock()
    limiter = MessageFilter(Limit(10, 2.0, 3), clock=clock)
    limiter.admit(b"0123456789")
    with pytest.raises(MessageRefusedError, match="11 bytes: expected at most 10"):
        limiter.admit(b"0" * 11)
    limiter.admit(b"")
    for _ in range(5):
        with pytest.raises(MessageRefusedError, match="too often"):
            limiter.admit(b"")
    assert (limiter.passed, limiter.too_long, limiter.too_often, limiter.largest) == (2, 1, 5, 10)
    assert limiter.flooded
    clock.now += 1.5  # what comes now and then, and is refused, is no flood
    limiter.admit(b"")
    with pytest.raises(MessageRefusedError, match="11 bytes"):
        limiter.admit(b"0" * 11)
    assert not limiter.flooded


def test_in_lockstep_only_the_size_counts_where_each_message_is_asked_for() -> None:
    limiter = MessageFilter(TOPICS["joint_states"], lockstep=True, clock=Clock())
    for _ in range(20_000):
        limiter.admit(b"x")
    with pytest.raises(MessageRefusedError, match="too long"):
        limiter.admit(bytes(TOPICS["joint_states"].max_bytes + 1))
    free = {name for name, limit in TOPICS.items() if limit.free_in_lockstep}
    assert free == {"joint_states", "effort_command", "trajectory_command", "reference"}


@given(st.text(max_size=60), st.integers(1, 50))
def test_what_is_told_is_printable_and_short(text: str, longest: int) -> None:
    told = printable(text, longest)
    assert told.isprintable()
    assert len(told) <= 10 * longest + 3
    if text.isprintable() and len(text) <= longest:
        assert told == text


# -- doors ------------------------------------------------------------------------------------------------------


class FakeNode:
    """Subscriptions without a network."""

    services: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.open: list[Any] = []

    def create_subscription(self, kind: type, topic: str, callback: Any, qos: Any, raw: bool) -> object:
        assert raw
        self.open.append(callback)
        return callback

    def destroy_subscription(self, subscription: Any) -> None:
        self.open.remove(subscription)


def test_a_flooded_topic_is_shut_for_a_while_and_then_heard_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, node, refused, heard = Clock(), FakeNode(), list[tuple[str, str, str]](), list[bytes]()
    monkeypatch.setattr(rate_limiter, "time", SimpleNamespace(monotonic=clock))
    at = InputRateLimiter(node, lambda *what: refused.append(what))  # type: ignore[arg-type]
    at.open(Float64MultiArray, "plan", heard.append, LATCHED, False)
    limit = TOPICS["plan"]
    at.filters["plan"]._bucket = TokenBucket(limit.per_second, limit.burst, clock)
    for _ in range(3 * limit.burst):
        at.receivers["plan"](b"x")
    assert len(heard) == limit.burst
    at.tick()
    assert node.open == []
    assert [reason for _, reason, _ in refused].count("flooded") == 1
    at.tick()
    assert node.open == []
    clock.now += rate_limiter.PAUSE_S
    at.tick()
    assert len(node.open) == 1
    node.open[0](b"y")
    assert heard[-1] == b"y"
    at.forget()
    at.tick()
    assert at.receivers == {}


# -- rivals -----------------------------------------------------------------------------------------------------


class Graph:
    """Publishers by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def resolve_topic_name(self, topic: str) -> str:
        return f"/{topic}"

    def count_publishers(self, topic: str) -> int:
        return len(self.names)

    def get_publishers_info_by_topic(self, topic: str) -> list[Any]:
        return [SimpleNamespace(node_name=name, node_namespace="/") for name in self.names]


@pytest.mark.parametrize("shared", [False, True])
def test_two_publishers_are_told_and_held_against_them_where_only_one_may(shared: bool) -> None:
    graph, clock = Graph(), Clock()
    exclusive_publishers = ExclusivePublishers(graph, clock)  # type: ignore[arg-type]
    exclusive_publishers.watch("plan", shared)

    def look(*names: str) -> tuple[str, str]:
        graph.names = list(names)
        exclusive_publishers.tick()
        return exclusive_publishers.why_not("plan"), exclusive_publishers.values().get("publishers of plan", "")

    assert look() == look("planner") == ("", "")
    # One that was killed and started again is seen twice for a while; so is one whose name is not known yet.
    for names in (("planner", "planner"), ("planner", "_NODE_NAME_UNKNOWN_")):
        why, told = look(*names)
        assert not why
        assert "2 publishers of /plan" in told
        assert bool(exclusive_publishers.doubtful) is not shared
    clock.now += FORGOTTEN_S + 0.1
    assert bool(look("planner", "planner")[0]) is not shared
    assert look("planner") == ("", "")
    why, told = look("planner", "stranger")
    assert bool(why) is not shared
    assert "/planner, /stranger" in told
    assert bool(exclusive_publishers.serious) is not shared
    assert len(look(*(f"n{i}" for i in range(200)))[1]) < 200


def test_no_plan_is_taken_while_another_says_torques(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rivals of the planner are none here: the arm stays where it was braked all the same."""
    exclusive_publishers = SimpleNamespace(why_not=lambda topic: "two of them" if topic == "effort_command" else "")
    node: Any = SimpleNamespace(exclusive_publishers=exclusive_publishers, options=SimpleNamespace(lockstep=False))
    node.trust = partial(BaseNode.trust, node)
    node.model, node._topic = SimpleNamespace(joint_names=("a",)), "effort_command"
    monkeypatch.setattr(conversions, "read_plan", lambda *_: SimpleNamespace(digest=""))
    with pytest.raises(MessageRefusedError, match="two of them"):
        ControllerNode._on_plan(node, JointTrajectory())


def test_nodes_replace_nothing_of_their_bases_by_accident() -> None:
    """The plant once had a method of the name of the base's, and told its last state twice a second, unlocked."""
    meant = {"_prepare", "_load"}
    for node in (ControllerNode, IdentifierNode, PlannerNode, PlantNode):
        classes = [cls for cls in node.__mro__ if cls is not object]
        for i, cls in enumerate(classes):
            if cls.__module__.startswith("safe_sysid."):
                own = {name for name, value in vars(cls).items() if name[:2] != "__" and callable(value)}
                theirs = {name for base in classes[i + 1 :] for name in vars(base)}
                assert {name for name in own & theirs if name.startswith("_")} <= meant, cls


# -- in earnest -------------------------------------------------------------------------------------------------


def test_floods_hold_neither_the_arm_nor_the_emergency_stop(tmp_path: Path) -> None:
    """In lock-step, which a busy machine makes slower and nothing else; in real time: benchmarks/flood.py."""
    nodes: dict[str, dict[str, Any]] = {"controller": {"await_plans": False, "await_bounds": False}, "plant": {}}
    with running(tmp_path, nodes, robot="three_joint") as processes, Probe() as probe:
        probe.wait(lambda: probe.state() == "holding", "the arm to be held")
        assert not any("too often" in v.key for v in probe.diagnostics["controller"].values)
        start = probe.node.create_client(Trigger, "controller/start")
        stop = probe.node.create_client(Trigger, "controller/emergency_stop")
        probe.wait(lambda: start.service_is_ready() and stop.service_is_ready(), "the services")

        # Boxes of nobody, as fast as they can be sent, a thousand requests, and 1 MB at a time.
        publisher = probe.publisher(Float64MultiArray, "bounds", LATCHED_INPUT)
        small = serialize_message(Float64MultiArray())
        large = serialize_message(Float64MultiArray(data=[0.0] * 125_000))

        def pour(key: str, least: int) -> bool:  # what a slow reader never saw cannot be refused: so more and more
            for _ in range(300):
                publisher.publish(small)
            publisher.publish(large)
            return int(probe.value("controller", f"refused bounds: {key}") or 0) >= least

        answers: list[Any] = []

        def said(text: str) -> int:
            return sum(text in a.result().message for a in answers if a.done())

        def storm() -> bool:
            answers.extend(start.call_async(Trigger.Request()) for _ in range(8))
            return said("too often") >= 10

        probe.wait(storm, "requests to be refused")
        # Ten were let through; of answers that wait, a client of ROS keeps the last ten.
        assert said("expected idle or fault") > 0
        probe.wait(lambda: pour("too often", 50), "refusals")
        probe.wait(lambda: pour("flooded", 1), "the door to be shut")
        assert probe.state() == "holding"

        # Another publisher of torques is told.
        torques = probe.publisher(Float64MultiArray, "effort_command")

        def rival_told() -> bool:
            bad = probe.diagnostics["controller"].level == DiagnosticStatus.ERROR
            return bad and "publishers of /effort_command" in probe.message("controller")

        probe.wait(rival_told, "the other publisher to be told")
        answer = stop.call_async(Trigger.Request())
        probe.wait(answer.done, "the emergency stop")
        assert answer.result().success
        probe.wait(lambda: probe.state() == "fault", "the fault")
        probe.node.destroy_publisher(torques)
        assert all(process.process.poll() is None for process in processes.values())
