"""Markers for rviz: obstacles, swept volumes, and the path of the tool."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import Point
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.reachability.swept import SweptVolume
from safe_sysid.robot.frames import forward_kinematics, quaternion_wxyz
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.obstacles import Obstacle, SceneBox, SceneCapsule, SceneSphere
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.robot.shapes.hulls import hull_triangles
from safe_sysid.trajectories.plan import Plan

__all__ = ["path_markers", "scene_markers", "swept_markers"]

_STEPS = 40
#: Colours of the swept volume at the plan's start and end. Some twenty boxes lie over one another: each hardly shows.
_EARLY, _LATE = np.array([0.25, 0.60, 0.95]), np.array([0.55, 0.35, 0.85])


def scene_markers(scene: Scene) -> MarkerArray:
    """One marker for each obstacle; a capsule needs three, hulls are drawn as triangles."""
    array = MarkerArray()
    for obstacle in scene.obstacles:
        turn = quaternion_wxyz(obstacle.rotation)
        for kind, offset, scale in _solids(obstacle):
            marker = _marker("obstacles", len(array.markers), kind, (0.6, 0.6, 0.6, 0.5))
            p, o = marker.pose.position, marker.pose.orientation
            if kind == Marker.TRIANGLE_LIST:
                marker.points = [_point(corner) for corner in hull_triangles(obstacle.points).reshape(-1, 3)]
            elif kind == Marker.LINE_STRIP:
                marker.points = [_point(corner) for corner in (obstacle.points[0], obstacle.points[-1])]
            else:
                p.x, p.y, p.z = (float(x) for x in obstacle.xyz + obstacle.rotation @ offset)
                o.w, o.x, o.y, o.z = (float(x) for x in turn)
            marker.scale.x, marker.scale.y, marker.scale.z = (float(x) for x in scale)
            array.markers.append(marker)
    return array


def _solids(obstacle: Obstacle) -> list[tuple[int, np.ndarray, tuple[float, ...]]]:
    """Marker types, offsets (3,) in the obstacle's frame and scales that draw an obstacle."""
    zero, diameter = np.zeros(3), 2.0 * obstacle.radius
    if isinstance(obstacle, SceneBox):
        return [(Marker.CUBE, zero, tuple(obstacle.size))]
    if isinstance(obstacle, SceneSphere):
        return [(Marker.SPHERE, zero, (diameter,) * 3)]
    if isinstance(obstacle, SceneCapsule):
        ends = [np.array([0.0, 0.0, sign * 0.5 * obstacle.length]) for sign in (-1.0, 1.0)]
        middle = (Marker.CYLINDER, zero, (diameter, diameter, obstacle.length))
        return [middle, *((Marker.SPHERE, end, (diameter,) * 3) for end in ends)]
    if len(obstacle.points) < 3:
        return [(Marker.LINE_STRIP, zero, (max(diameter, 0.01), 0.0, 0.0))]
    return [(Marker.TRIANGLE_LIST, zero, (1.0, 1.0, 1.0))]


def path_markers(model: RobotModel, plan: Plan) -> MarkerArray:
    """The flange's way along the plan, and the arm where it ends."""
    q = plan.trajectory.states(np.linspace(0.0, plan.trajectory.duration, _STEPS))[:, 0]
    rotation, position = (np.asarray(a) for a in forward_kinematics(model.kinematics, q))
    flange = position[:, -1] + rotation[:, -1] @ model.flange[1]
    way = _marker("plan", 0, Marker.LINE_STRIP, (0.1, 0.5, 1.0, 1.0))
    end = _marker("plan", 1, Marker.LINE_STRIP, (0.1, 0.8, 0.3, 1.0))
    way.scale.x, end.scale.x = 0.005, 0.02
    way.points = [_point(p) for p in flange]
    end.points = [_point(p) for p in (*position[-1], flange[-1])]
    return MarkerArray(markers=[way, end])


def swept_markers(volume: SweptVolume, drawn: int = 0) -> MarkerArray:
    """A box for each body and stretch of time that the certificate lets it be in; ``drawn`` by the last call."""
    array = MarkerArray()
    middle, size = 0.5 * (volume.lower + volume.upper), volume.upper - volume.lower
    groups = len(volume.times)
    for i in np.flatnonzero(np.all(np.isfinite(size), axis=-1).ravel()):
        group, body = divmod(int(i), len(volume.names))
        share = group / max(groups - 1, 1)
        marker = _marker("swept", len(array.markers), Marker.CUBE, (*((1.0 - share) * _EARLY + share * _LATE), 0.03))
        p, s = marker.pose.position, marker.scale
        p.x, p.y, p.z = (float(x) for x in middle[group, body])
        s.x, s.y, s.z = (float(x) for x in size[group, body])
        array.markers.append(marker)
    for number in range(len(array.markers), drawn):
        array.markers.append(Marker(ns="swept", id=number, action=Marker.DELETE))
    return array


def _marker(namespace: str, number: int, kind: int, colour: tuple[float, ...]) -> Marker:
    marker = Marker(ns=namespace, id=number, type=kind, action=Marker.ADD)
    marker.header.frame_id = "world"
    marker.pose.orientation.w = 1.0
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = colour
    return marker


def _point(p: np.ndarray) -> Point:
    return Point(x=float(p[0]), y=float(p[1]), z=float(p[2]))
