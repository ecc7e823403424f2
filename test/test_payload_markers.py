"""Markers for rviz: rules of the format, the truth inside what is drawn, and one set of them whatever came before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_support import robot
from ros_harness import NodeProcess, Probe
from scipy.spatial.transform import Rotation
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.bring_up.transitions import Transitions
from safe_sysid.identification.inertia_shapes import PayloadShapes, payload_shapes
from safe_sysid.nodes.common.base import LATCHED_INPUT
from safe_sysid.nodes.identifier.payload_markers import NAMESPACE, no_payload_markers, payload_markers
from safe_sysid.nodes.planner.markers import path_markers, scene_markers, swept_markers
from safe_sysid.reachability.swept import SweptVolume
from safe_sysid.robot import inertia_from_com, load_scene, transform_inertial
from safe_sysid.trajectories import Plan, QuinticTrajectory

FLOATS = st.floats(-2.0, 2.0)


def obey_the_rules(array: MarkerArray) -> None:
    """What rviz's marker displays check or trip over (rviz_default_plugins, displays/marker)."""
    names = [(marker.ns, marker.id) for marker in array.markers]
    assert len(set(names)) == len(names), "one id twice in an array is an error in rviz"
    for marker in array.markers:
        if marker.action == Marker.DELETE:
            continue
        assert marker.action == Marker.ADD
        assert marker.header.frame_id
        p, o, s, c = marker.pose.position, marker.pose.orientation, marker.scale, marker.color
        numbers = [p.x, p.y, p.z, o.x, o.y, o.z, o.w, s.x, s.y, s.z, c.r, c.g, c.b, c.a]
        numbers += [x for point in marker.points for x in (point.x, point.y, point.z)]
        assert np.all(np.isfinite(numbers))
        assert np.linalg.norm([o.x, o.y, o.z, o.w]) == pytest.approx(1.0, abs=1e-9)
        assert 0.0 < c.a <= 1.0
        assert all(0.0 <= x <= 1.0 for x in (c.r, c.g, c.b))
        if marker.type in (Marker.CUBE, Marker.SPHERE, Marker.CYLINDER, Marker.TRIANGLE_LIST):
            assert min(s.x, s.y, s.z) > 0.0
        if marker.type in (Marker.LINE_STRIP, Marker.LINE_LIST):
            assert s.x > 0.0
            assert len(marker.points) >= 2
        if marker.type == Marker.LINE_LIST:
            assert len(marker.points) % 2 == 0
        if marker.type == Marker.TRIANGLE_LIST:
            assert len(marker.points) % 3 == 0
        if marker.type == Marker.TEXT_VIEW_FACING:
            assert s.z > 0.0
            assert marker.text
        assert not marker.lifetime.sec
        assert not marker.lifetime.nanosec


@pytest.mark.parametrize("name", ["open", "six_boxes"])
def test_scenes_plans_and_swept_volumes_obey_the_rules(name: str) -> None:
    model = robot()
    obey_the_rules(scene_markers(load_scene(name)))
    home = np.zeros((3, model.n))
    home[0] = model.settings.home
    trajectory = QuinticTrajectory.to_rest(home, home[0] + 0.2, 3.0)
    obey_the_rules(path_markers(model, Plan(trajectory, 0.0, 0.5, "0:0", 0, home[1])))
    lower = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 3, 3))
    volume = SweptVolume(("a", "b", "c"), lower, lower + 0.2, np.zeros((4, 2)))
    obey_the_rules(swept_markers(volume))
    obey_the_rules(swept_markers(volume, drawn=40))


def held(mass: float, centre: list[float], pad: float) -> PayloadShapes:
    model = robot()
    low, high = model.hand_prior
    payload = inertia_from_com(mass, centre, 2e-3 * mass * np.eye(3))
    theta = 0.5 * (low + high) + transform_inertial(*model.flange, payload)
    return payload_shapes(model, theta - pad, theta, theta + pad)


@given(st.floats(0.01, 4.0), FLOATS, FLOATS, FLOATS, st.floats(0.0, 3.0), st.booleans())
@settings(max_examples=60)
def test_whatever_is_known_all_markers_are_added_or_deleted(mass, x, y, z, pad, contradiction) -> None:
    array = payload_markers(held(mass, [x, y, z], pad), "tool", contradiction)
    obey_the_rules(array)
    gone = no_payload_markers()
    obey_the_rules(gone)
    assert {(m.ns, m.id) for m in array.markers} == {(m.ns, m.id) for m in gone.markers}
    assert all(m.action == Marker.DELETE for m in gone.markers)
    assert all(m.frame_locked and m.header.frame_id == "tool" for m in array.markers if m.action == Marker.ADD)


def test_the_box_that_is_drawn_holds_the_true_centre_and_its_edges_are_that_box() -> None:
    centre = [0.01, -0.02, 0.15]
    box, edges, ellipsoid, label = payload_markers(held(3.0, centre, 0.01), "tool").markers
    kinds = [Marker.CUBE, Marker.LINE_LIST, Marker.SPHERE, Marker.TEXT_VIEW_FACING]
    assert [m.type for m in (box, edges, ellipsoid, label)] == kinds
    p, s = box.pose.position, box.scale
    place, size = np.array([p.x, p.y, p.z]), np.array([s.x, s.y, s.z])
    assert np.all(np.abs(np.array(centre) - place) <= 0.5 * size)
    ends = np.array([(e.x, e.y, e.z) for e in edges.points])
    np.testing.assert_allclose(np.abs(ends - place), np.tile(0.5 * size, (24, 1)), atol=1e-12)
    lengths = np.linalg.norm(ends[::2] - ends[1::2], axis=1)
    np.testing.assert_allclose(np.sort(lengths), np.sort(np.repeat(size, 4)), atol=1e-12)
    p = ellipsoid.pose.position
    np.testing.assert_allclose([p.x, p.y, p.z], centre, atol=1e-9)
    assert label.text.startswith("payload ")
    assert "kg\ncentre of mass x " in label.text


def test_the_ellipsoid_stands_as_the_body_does() -> None:
    model = robot()
    turn = Rotation.from_rotvec([0.3, -0.5, 0.9]).as_matrix()
    axes = np.array([0.02, 0.04, 0.08])
    squares = axes**2
    payload = inertia_from_com(2.0, [0.0, 0.0, 0.14], turn @ np.diag(0.4 * (squares.sum() - squares)) @ turn.T)
    hand = model.theta_nominal[60:70]
    theta = hand + transform_inertial(*model.flange, payload)
    marker = payload_markers(payload_shapes(model, theta, theta, theta), "tool").markers[2]
    np.testing.assert_allclose([marker.scale.x, marker.scale.y, marker.scale.z], 2.0 * axes, atol=1e-6)
    o = marker.pose.orientation
    drawn = Rotation.from_quat([o.x, o.y, o.z, o.w]).as_matrix()
    np.testing.assert_allclose(np.abs(np.sum(drawn * turn, axis=0)), 1.0, atol=1e-6)


def test_what_contradicts_is_said() -> None:
    label = payload_markers(held(2.0, [0.0, 0.0, 0.14], 0.01), "tool", contradiction=True).markers[-1]
    assert "no payload agrees" in label.text
    outside = payload_markers(held(2.0, [0.5, 0.0, 0.14], 1e-3), "tool").markers[-1]
    assert "outside of the declared envelope" in outside.text
    assert outside.color.g < 0.5


@pytest.mark.ros
def test_the_identifier_draws_the_prior_at_once_and_deletes_it_when_it_forgets(tmp_path: Path) -> None:
    heard: list[MarkerArray] = []
    process = NodeProcess("identifier", {"autostart": False, "robot": "three_joint"}, tmp_path)
    try:
        with Probe() as probe:
            probe.listen(MarkerArray, "markers", heard.append, LATCHED_INPUT)
            transitions = Transitions(probe.node, ["identifier"])
            process.wait_ready()
            for transition, count in (("configure", 1), ("cleanup", 2)):
                transitions.ask("identifier", transition)
                probe.wait(lambda count=count: transitions.answer("identifier") and len(heard) >= count, "markers")
    finally:
        process.end()
    prior, gone = heard
    obey_the_rules(prior)
    assert all(marker.ns == NAMESPACE for array in heard for marker in array.markers)
    assert prior.markers[-1].text.startswith("payload ")
    assert all(marker.action == Marker.DELETE for marker in gone.markers)
