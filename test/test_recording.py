"""The recorder node among real topics: what it takes, with which quality of service, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy")

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from ros_harness import NodeProcess, Probe
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from safe_sysid.errors import SafeSysIdError
from safe_sysid.logs.bags.bag_recovery import is_unfinished, recover_bag
from safe_sysid.nodes.recorder.topics import TopicSelection, profile_for, weaker

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
LATCHED, VOLATILE = DurabilityPolicy.TRANSIENT_LOCAL, DurabilityPolicy.VOLATILE
STORE = get_typestore(Stores.ROS2_JAZZY)


def qos(reliability: Any, durability: Any, depth: int = 3000) -> QoSProfile:
    return QoSProfile(depth=depth, reliability=reliability, durability=durability)


def endpoint(reliability: Any, durability: Any) -> SimpleNamespace:
    return SimpleNamespace(qos_profile=qos(reliability, durability))


def test_topics_of_the_namespace_and_of_nobody_are_taken() -> None:
    selection = TopicSelection("/left", exclude="/left/(markers|secret.*)")
    taken = ["/left/bounds", "/left/identifier/journal", "/clock", "/diagnostics", "/rosout", "/tf"]
    not_taken = ["/right/bounds", "/leftover", "/bounds", "/left/markers", "/left/secret_too", "/left/_hidden", "/_x"]
    assert [topic for topic in [*taken, *not_taken] if selection.takes(topic)] == taken
    assert all(TopicSelection("/").takes(topic) for topic in taken)
    assert TopicSelection("/left", everything=True).takes("/right/bounds")
    with pytest.raises(SafeSysIdError, match=r"exclude = '\[': expected a regular expression"):
        TopicSelection("/", "[")


def test_no_more_is_asked_for_than_all_publishers_offer() -> None:
    kinds = [(RELIABLE, LATCHED), (RELIABLE, VOLATILE), (BEST_EFFORT, VOLATILE)]
    for a in kinds:
        for b in kinds:
            asked = profile_for([endpoint(*a), endpoint(*b)], [])
            least = max(kinds.index(a), kinds.index(b))
            assert (asked.reliability, asked.durability) == kinds[least]
            # At first, and before there is a publisher, what the best one has latched must not be lost.
            both = [endpoint(*a), endpoint(*b)]
            for wanted in (profile_for([], both), profile_for(both, [], first=True)):
                assert (wanted.reliability, wanted.durability) == kinds[min(kinds.index(a), kinds.index(b))]
            assert weaker(qos(*a), qos(*b)) == (kinds.index(a) > kinds.index(b))


# -- real topics ------------------------------------------------------------------------------------------------


@contextmanager
def recording(directory: Path, **parameters: Any) -> Iterator[tuple[NodeProcess, Probe]]:
    """A recorder in the namespace /left, which has to be there before it is told anything that it must not miss."""
    with Probe() as talker:
        recorder = NodeProcess("recorder", {"bag": str(directory / "bag"), **parameters}, directory, "/left")
        try:
            yield recorder, talker
        finally:
            if recorder.process.poll() is None:
                recorder.process.kill()
                recorder.process.wait(10.0)


def texts(path: Path) -> dict[str, list[str]]:
    """Texts by topic, of those that have texts."""
    found: dict[str, list[str]] = {}
    with Reader(path) as reader:
        for connection, _, raw in reader.messages():
            if connection.msgtype == "std_msgs/msg/String":
                found.setdefault(connection.topic, []).append(STORE.deserialize_cdr(raw, connection.msgtype).data)
    return found


@pytest.mark.slow
@pytest.mark.ros
def test_what_is_said_is_in_the_bag_with_the_profiles_that_were_offered(tmp_path: Path) -> None:
    with recording(tmp_path, compression="zstd", exclude="/left/secret") as (recorder, talker):
        early = talker.publisher(String, "/left/early", qos(RELIABLE, LATCHED, 5), 0)
        for k in range(5):
            early.publish(String(data=f"before the recorder {k}"))
        topics = dict.fromkeys(("/left/stream", "/left/secret", "/right/stream"), qos(RELIABLE, VOLATILE))
        topics |= {"/left/fast": qos(BEST_EFFORT, VOLATILE)}
        publishers = {name: talker.publisher(String, name, profile, 0) for name, profile in topics.items()}
        states = talker.publisher(JointState, "/left/joint_states", qos(RELIABLE, VOLATILE), 0)
        recorder.wait_ready()
        heard = [publishers["/left/stream"], publishers["/left/fast"], early, states]
        talker.wait(lambda: all(p.get_subscription_count() == 1 for p in heard), "the recorder's subscriptions")
        assert publishers["/left/secret"].get_subscription_count() == 0
        assert publishers["/right/stream"].get_subscription_count() == 0
        for k in range(2000):  # a burst, faster than any loop
            publishers["/left/stream"].publish(String(data=str(k)))
        for k in range(50):
            publishers["/left/fast"].publish(String(data=str(k)))
            time.sleep(0.002)
        states.publish(JointState(name=["a"], position=[0.1 + 0.2], velocity=[-0.0], effort=[float("nan")]))
        # A topic that comes later, and one on which somebody offers less than the first publisher did.
        late = talker.publisher(String, "/left/late", qos(RELIABLE, LATCHED, 5), 0)
        late.publish(String(data="late"))
        poor = talker.publisher(String, "/left/late", qos(BEST_EFFORT, VOLATILE), 0)
        talker.wait(lambda: poor.get_subscription_count() == 1, "a subscription that the poor publisher can serve")
        poor.publish(String(data="poor"))
        talker.wait(lambda: late.get_subscription_count() == 1, "one subscription")
        # A burst beyond what fits on the way is sent again when the middleware's next heartbeat finds out.
        assert publishers["/left/stream"].wait_for_all_acked(Duration(seconds=60))
        time.sleep(0.2)
        status, _ = recorder.end(signal.SIGINT)
        assert status == 0
        assert "0 lost" in recorder.log
    found = texts(tmp_path / "bag")
    assert found["/left/early"] == [f"before the recorder {k}" for k in range(5)]
    assert found["/left/stream"] == [str(k) for k in range(2000)]
    assert set(found["/left/late"]) == {"late", "poor"}
    assert found["/left/fast"] == [str(k) for k in range(50)][-len(found["/left/fast"]) :]
    assert not {"/left/secret", "/right/stream"} & set(found)
    with Reader(tmp_path / "bag") as reader:
        profiles = {c.topic: c.ext.offered_qos_profiles for c in reader.connections}
        (connection,) = (c for c in reader.connections if c.topic == "/left/joint_states")
        ((_, _, raw),) = reader.messages(connections=[connection])
    state = STORE.deserialize_cdr(raw, connection.msgtype)
    assert (state.position[0], str(state.velocity[0]), str(state.effort[0])) == (0.1 + 0.2, "-0.0", "nan")
    for topic, offered in (("early", ("RELIABLE", "TRANSIENT_LOCAL")), ("fast", ("BEST_EFFORT", "VOLATILE"))):
        assert [(p.reliability.name, p.durability.name) for p in profiles[f"/left/{topic}"]] == [offered]
    assert "/diagnostics" in profiles


@pytest.mark.slow
@pytest.mark.ros
def test_a_recorder_that_is_killed_leaves_what_it_had_flushed(tmp_path: Path) -> None:
    with recording(tmp_path, flush_s=0.05) as (recorder, talker):
        stream = talker.publisher(String, "/left/stream", qos(RELIABLE, VOLATILE), 0)
        recorder.wait_ready()
        talker.wait(lambda: stream.get_subscription_count() == 1, "the recorder's subscription")
        for k in range(200):
            stream.publish(String(data=str(k)))
        file = tmp_path / "bag" / "bag.mcap"
        talker.wait(lambda: b"199\x00" in file.read_bytes(), "the last message in the file")
        assert recorder.end(signal.SIGKILL)[0] == -signal.SIGKILL
    assert is_unfinished(tmp_path / "bag")
    assert not (tmp_path / "bag" / "metadata.yaml").exists()
    recover_bag(tmp_path / "bag", tmp_path / "again")
    assert texts(tmp_path / "again")["/left/stream"] == [str(k) for k in range(200)]


@pytest.mark.slow
@pytest.mark.ros
def test_a_disk_that_is_full_ends_the_recording_and_not_the_recorder(tmp_path: Path) -> None:
    """Files of this process must not grow: what is there stays readable, the node says ERROR and ends when told."""
    import resource

    from diagnostic_msgs.msg import DiagnosticArray

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))  # the child inherits it
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with recording(tmp_path, flush_s=0.05) as (recorder, talker):
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            seen: list[str] = []

            def hear(message: DiagnosticArray) -> None:
                seen.extend(s.message for s in message.status if "recorder" in s.name)

            talker.listen(DiagnosticArray, "/diagnostics", hear, 50)
            stream = talker.publisher(String, "/left/stream", qos(RELIABLE, VOLATILE), 0)
            recorder.wait_ready()
            talker.wait(lambda: stream.get_subscription_count() == 1, "the recorder's subscription")
            for _ in range(20):
                stream.publish(String(data="x" * 20_000))
            talker.wait(lambda: any("recording ended" in text for text in seen), "an error in the diagnostics")
            status, _ = recorder.end(signal.SIGINT)
            assert status == 1, "not all that was to be written was"
            assert "File too large" in recorder.log
    finally:
        signal.signal(signal.SIGXFSZ, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    recover_bag(tmp_path / "bag", tmp_path / "again")
    assert set(texts(tmp_path / "again").get("/left/stream", [])) <= {"x" * 20_000}
    assert os.path.getsize(tmp_path / "bag" / "bag.mcap") <= 200_000


@pytest.mark.ros
@pytest.mark.slow
def test_a_recorded_demo_is_run_again_bit_for_bit_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "safe_sysid", "demo", "--plans", "1", "--record", "--out", str(tmp_path / "run")]
    demo = subprocess.run(run, capture_output=True, text=True, timeout=600.0)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    bag = tmp_path / "run" / "bag"
    again = [sys.executable, "-m", "safe_sysid", "replay", str(bag), "--json", str(tmp_path / "replay.json")]
    replay = subprocess.run(again, capture_output=True, text=True, timeout=300.0)
    assert replay.returncode == 0, replay.stdout + replay.stderr
    (result,) = json.loads((tmp_path / "replay.json").read_text())
    assert result["lockstep"]
    assert result["updates"]
    assert not [note for note in result["notes"] if "believed" in note]
    with Reader(bag) as reader:
        topics = {c.topic: c for c in reader.connections}

        def said(topic: str) -> list[Any]:
            messages = reader.messages(connections=[topics[topic]])
            return [STORE.deserialize_cdr(raw, connection.msgtype) for connection, _, raw in messages]

        measured, commands = said("/joint_states"), said("/effort_command")
        custom = reader.metadata["custom_data"] if hasattr(reader, "metadata") else {}
    assert not [key for key in custom or {} if key.startswith("lost")]
    states = [m.header.stamp.sec * 10**9 + m.header.stamp.nanosec for m in measured]
    assert sorted(set(states)) == list(range(min(states), max(states) + 1, 1_000_000))
    answered = {int(m.layout.dim[0].label) for m in commands}
    assert answered <= set(states)
    assert len(answered) >= len(set(states)) - 2  # the last one may go unanswered
    names = {"/controller", "/planner", "/identifier"}
    assert {f"{name}/configuration" for name in names} <= set(topics)
