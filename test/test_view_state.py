"""What the viewer node keeps of messages: capped, counted, forgotten with the run; in its own namespace only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import Point
from hypothesis import given, settings
from hypothesis import strategies as st
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.viewer.demo_result import read_verdict
from safe_sysid.nodes.viewer.service_calls import ServiceCalls
from safe_sysid.nodes.viewer.state import DRAWN, ViewerState
from safe_sysid.robot import load_robot
from safe_sysid.view.snapshot import RunOutcome

MODEL = load_robot("three_joint")


def view_state(namespace: str = "") -> ViewerState:
    return ViewerState(MODEL, namespace, ("0" * 32, "1" * 32))


def state(stamp_ns: int) -> JointState:
    message = JointState(name=list(MODEL.joint_names), position=[0.1] * 3, velocity=[0.0] * 3, effort=[0.0] * 3)
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
    return message


def status(name: str, level: int = 0, values: int = 1) -> DiagnosticArray:
    found = DiagnosticStatus(level=bytes([level]), name=name, message="m" * 10_000)
    found.values = [KeyValue(key=f"k{i}", value="v" * 10_000) for i in range(values)]
    return DiagnosticArray(status=[found])


def marker(namespace: str = "obstacles", number: int = 0, **fields: object) -> Marker:
    return Marker(ns=namespace, id=number, type=Marker.CUBE, **fields)


@pytest.mark.parametrize(
    ("namespace", "name", "heard"),
    [
        ("", "controller: safe_sysid", True),
        ("", "left/controller: safe_sysid", False),
        ("left", "left/controller: safe_sysid", True),
        ("left", "controller: safe_sysid", False),
        ("left", "right/left/controller: safe_sysid", False),
        ("", "somebody: safe_sysid", False),
        ("", "controller: another_package", False),
    ],
)
def test_only_this_arms_nodes_are_heard(namespace: str, name: str, heard: bool) -> None:
    found = view_state(namespace)
    found.diagnostics(status(name))
    assert ("controller" in found.snapshot((), False).nodes) == heard


def test_words_are_capped() -> None:
    found = view_state()
    found.diagnostics(status("controller: safe_sysid", level=200, values=10_000))
    node = found.snapshot((), False).nodes["controller"]
    assert 0 <= node.level <= 3
    assert len(node.text) <= 300
    assert len(node.values) <= 60
    assert max(len(value) for value in node.values.values()) <= 400


def test_markers_are_capped_per_namespace_and_room_comes_back() -> None:
    found = view_state()
    for namespace, most in DRAWN.items():
        for k in range(0, most + 50, 25):
            found.markers(MarkerArray(markers=[marker(namespace, k + i) for i in range(25)]))
        assert len(found.drawn(namespace)) == most
    assert found.dropped["marker: too many"] >= 3 * 25
    found.markers(MarkerArray(markers=[marker("plan", 0, action=Marker.DELETE)]))
    found.markers(MarkerArray(markers=[marker("plan", 5000)]))
    assert len(found.drawn("plan")) == DRAWN["plan"]
    found.markers(MarkerArray(markers=[Marker(action=Marker.DELETEALL)]))
    assert not any(found.drawn(namespace) for namespace in DRAWN)
    found.markers(MarkerArray(markers=[marker("plan", k) for k in range(3)]))
    assert len(found.drawn("plan")) == 3


def test_a_message_of_too_many_markers_is_cut_and_counted() -> None:
    found = view_state()
    found.markers(MarkerArray(markers=[marker("somebody", k) for k in range(4_007)]))
    assert found.dropped["marker: too many"] == 7


@pytest.mark.parametrize(("frame", "drawn"), [("world", 1), ("", 1), ("camera", 0)])
def test_what_is_told_in_another_frame_is_not_drawn_in_the_wrong_place(frame: str, drawn: int) -> None:
    found, one = view_state(), marker()
    one.header.frame_id = frame
    found.markers(MarkerArray(markers=[one]))
    assert len(found.drawn("obstacles")) == drawn
    assert found.dropped["marker: another frame"] == 1 - drawn


def test_a_torque_that_nobody_commands_any_more_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    found, message, now = view_state(), state(1_000_000_000), 100.0
    monkeypatch.setattr("safe_sysid.nodes.viewer.state.time.monotonic", lambda: now)
    assert found.silent("reference")
    message.effort = [1.0, 2.0, 3.0]
    found.reference(message)
    found.heard["reference"] = now
    np.testing.assert_array_equal(found.snapshot((), False).torque, [1.0, 2.0, 3.0])
    now = 110.0
    assert found.silent("reference")
    assert found.snapshot((), False).torque is None
    found.verdict = RunOutcome(True, "", (), None)
    assert found.snapshot((), False).torque is not None, "how a run ended"


def summary(**changes: Any) -> dict[str, Any]:
    use = {"percent": 41.26}
    return {
        "exit": {"status": 0, "reason": "all well"},
        "parameters": [{"truth": 0.5}] * 10,
        "safety": {"torque": use, "tracking_position": use, "clearance": {"smallest_m": 0.0123}},
        **changes,
    }


def verdict_of(folder: Path, **changes: Any) -> RunOutcome | None:
    """What is read from a summary."""
    (folder / "summary.json").write_text(json.dumps(summary(**changes)))
    return read_verdict(folder / "summary.json")


def test_the_end_of_a_run_is_read_from_its_summary(tmp_path: Path) -> None:
    assert read_verdict(tmp_path / "summary.json") is None
    verdict = verdict_of(tmp_path)
    facts = ("torque at most 41.3 % of its limit", "tracking error 41.3 % of its bound", "clearance 12.3 mm")
    assert (verdict.good, verdict.facts) == (True, facts)
    np.testing.assert_array_equal(verdict.truth, np.full(10, 0.5))


def test_a_run_that_never_moved_has_an_end_too(tmp_path: Path) -> None:
    """Where nothing was looked at the summary says null."""
    nothing = {"torque": None, "tracking_position": None, "clearance": {"smallest_m": None}}
    ended = {"status": 1, "reason": "the plant died"}
    verdict = verdict_of(tmp_path, exit=ended, safety=nothing, parameters=[{"truth": None}] * 10)
    assert (verdict.good, verdict.text, verdict.facts, verdict.truth) == (False, "Failed: the plant died", (), None)


@pytest.mark.parametrize(
    "changes",
    [
        {"exit": {"reason": "no status"}},
        {"exit": []},
        {"parameters": [{"truth": 0.5}] * 9},
        {"parameters": [{"truth": 10**400}] * 10},
        {"safety": []},
    ],
    ids=str,
)
def test_what_is_no_summary_is_no_end(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert verdict_of(tmp_path, **changes) is None


class StandIn:
    """A node whose services never answer."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def create_client(self, _: type, name: str) -> Any:
        client = MagicMock(srv_name=f"/{name}")
        client.service_is_ready.return_value = True
        client.handle.take_response.return_value = (None, None)
        client.handle.send_request.side_effect = lambda _: self.sent.append(name) or len(self.sent)
        return client


def test_calls_that_wait_never_bar_a_stop() -> None:
    node, answers = StandIn(), []
    calls = ServiceCalls(node, ["planner/start", "controller/emergency_stop"])  # type: ignore[arg-type]
    for _ in range(40):
        calls.ask("planner/start", lambda success, text: answers.append((success, text)))
    calls.work()
    assert 0 < node.sent.count("planner/start") < 40
    assert len(answers) == 40 - len(node.sent)
    calls.ask("controller/emergency_stop", lambda *_: None)
    calls.work()
    assert node.sent[-1] == "controller/emergency_stop"


def test_the_same_marker_again_takes_no_more_room() -> None:
    found = view_state()
    for _ in range(100):
        found.markers(MarkerArray(markers=[marker("plan", 1)]))
    assert len(found.drawn("plan")) == 1
    assert not found.dropped


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=10, max_size=10),
    st.text(max_size=20),
    st.integers(0, 3),
)
def test_any_marker_is_drawn_or_counted(kind: int, numbers: list[float], namespace: str, action: int) -> None:
    given_ = Marker(ns=namespace if len(namespace) % 2 else "obstacles", type=kind, action=action)
    given_.mesh_resource = "file:///etc/passwd"
    p, o, s = given_.pose.position, given_.pose.orientation, given_.scale
    (p.x, p.y, p.z, o.x, o.y, o.z, o.w, s.x, s.y, s.z) = numbers
    given_.points = [Point(x=numbers[0], y=numbers[1], z=numbers[2])] * 3
    found = view_state()
    found.markers(MarkerArray(markers=[given_]))
    for solid in found.drawn("obstacles"):
        for array in (solid.position, solid.rotation, solid.size, solid.points):
            assert np.all(np.isfinite(array))
            assert np.all(np.abs(array) <= 100.0)
        assert np.all(solid.size >= 0.0)


def test_another_run_forgets_the_plan_and_keeps_the_obstacles() -> None:
    found = view_state()
    found.joint_states(state(50_000_000_000))
    found.markers(MarkerArray(markers=[marker("swept"), marker("plan"), marker("obstacles")]))
    found.joint_states(state(50_000_000_000 - 500_000_000))
    assert found.drawn("swept"), "a message that came late is no other run"
    found.joint_states(state(1_000_000_000))
    assert [bool(found.drawn(namespace)) for namespace in ("swept", "plan", "obstacles")] == [False, False, True]
    assert found.snapshot((), True).time == pytest.approx(1.0)


def test_time_does_not_jump_where_the_plant_ends() -> None:
    found = view_state()
    for seconds in (40, 41):
        found.joint_states(state(seconds * 1_000_000_000))
    assert found.snapshot((), False).time == pytest.approx(1.0)
    for clock in (True, False):
        now = found.snapshot((), clock)
        assert (now.time, now.simulated) == (pytest.approx(41.0), True)
    found.joint_states(state(1_700_000_000 * 1_000_000_000))
    now = found.snapshot((), False)
    assert (now.time, now.simulated) == (0.0, False), "a real arm afterwards"


def test_certificates_are_judged() -> None:
    found = view_state()
    message = Float64MultiArray(data=[0.5, 1.0, 0.01, 2.0])
    message.layout.dim = [
        MultiArrayDimension(label="plan 3, box 0:2, start 12 ns", size=2, stride=4),
        MultiArrayDimension(label="torque [N m], clearance [m]", size=2, stride=2),
    ]
    found.certificate(message)
    assert [(m.family, m.unit, m.value) for m in found.snapshot((), False).margins] == [
        ("torque", "N m", 0.5),
        ("clearance", "m", 0.01),
    ]
    for label, data in (("<b>", [1.0, 2.0]), ("torque [N m]", [1.0]), ("x [m], " * 400, [0.0] * 800)):
        message.layout.dim[1].label, message.data = label, data
        with pytest.raises(MessageRefusedError):
            found.certificate(message)
    assert len(found.snapshot((), False).margins) == 2
