"""What the viewer node keeps of messages: capped, counted, forgotten with the run; in its own namespace only."""

from __future__ import annotations

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

from safe_sysid.nodes.messages import RefusedError
from safe_sysid.nodes.sight import DRAWN, Sight
from safe_sysid.robot import load_robot

MODEL = load_robot("three_joint")


def sight(namespace: str = "") -> Sight:
    return Sight(MODEL, namespace, ("0" * 32, "1" * 32))


def state(stamp_ns: int) -> JointState:
    message = JointState(
        name=list(MODEL.joint_names), position=[0.1] * 3, velocity=[0.0] * 3, effort=[0.0] * 3
    )
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
    found = sight(namespace)
    found.diagnostics(status(name))
    assert ("controller" in found.snapshot((), False).nodes) == heard


def test_words_are_capped() -> None:
    found = sight()
    found.diagnostics(status("controller: safe_sysid", level=200, values=10_000))
    node = found.snapshot((), False).nodes["controller"]
    assert 0 <= node.level <= 3
    assert len(node.text) <= 300
    assert len(node.values) <= 60
    assert max(len(value) for value in node.values.values()) <= 400


def test_markers_are_capped_per_namespace_and_room_comes_back() -> None:
    found = sight()
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


def test_the_same_marker_again_takes_no_more_room() -> None:
    found = sight()
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
    found = sight()
    found.markers(MarkerArray(markers=[given_]))
    for solid in found.drawn("obstacles"):
        for array in (solid.position, solid.rotation, solid.size, solid.points):
            assert np.all(np.isfinite(array))
            assert np.all(np.abs(array) <= 100.0)
        assert np.all(solid.size >= 0.0)


def test_another_run_forgets_the_plan_and_keeps_the_obstacles() -> None:
    found = sight()
    found.joint_states(state(50_000_000_000))
    found.markers(MarkerArray(markers=[marker("swept"), marker("plan"), marker("obstacles")]))
    found.joint_states(state(50_000_000_000 - 500_000_000))
    assert found.drawn("swept"), "a message that came late is no other run"
    found.joint_states(state(1_000_000_000))
    assert [bool(found.drawn(namespace)) for namespace in ("swept", "plan", "obstacles")] == [
        False,
        False,
        True,
    ]
    assert found.snapshot((), True).time == pytest.approx(1.0)


def test_certificates_are_judged() -> None:
    found = sight()
    message = Float64MultiArray(data=[0.5, 1.0, 0.01, 2.0])
    message.layout.dim = [
        MultiArrayDimension(label="plan 3, box 0:2, start 12 ns", size=2, stride=4),
        MultiArrayDimension(label="torque [N m], clearance [m]", size=2, stride=2),
    ]
    found.certificate(message)
    assert [(m.name, m.unit, m.smallest) for m in found.snapshot((), False).margins] == [
        ("torque", "N m", 0.5),
        ("clearance", "m", 0.01),
    ]
    for label, data in (("<b>", [1.0, 2.0]), ("torque [N m]", [1.0]), ("x [m], " * 400, [0.0] * 800)):
        message.layout.dim[1].label, message.data = label, data
        with pytest.raises(RefusedError):
            found.certificate(message)
    assert len(found.snapshot((), False).margins) == 2
