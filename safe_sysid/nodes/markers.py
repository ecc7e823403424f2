"""Modest pictures for rviz: what stands around the arm, and where a plan leads the tool."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import Point
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.regressors import forward_kinematics
from safe_sysid.robot.scene import Scene
from safe_sysid.trajectories.plan import Plan

__all__ = ["path_markers", "scene_markers"]

_STEPS = 40


def scene_markers(scene: Scene, frame: str = "world") -> MarkerArray:
    """One box for each obstacle."""
    array = MarkerArray()
    for i, box in enumerate(scene.boxes):
        marker = _marker(frame, "obstacles", i, Marker.CUBE, (0.6, 0.6, 0.6, 0.5))
        p = marker.pose.position
        p.x, p.y, p.z = (float(x) for x in box.xyz)
        x, y, z, w = _quaternion(box.rpy)
        o = marker.pose.orientation
        o.x, o.y, o.z, o.w = x, y, z, w
        marker.scale.x, marker.scale.y, marker.scale.z = (float(s) for s in box.size)
        array.markers.append(marker)
    return array


def path_markers(model: RobotModel, plan: Plan, frame: str = "world") -> MarkerArray:
    """The flange's way along the plan, and the arm where it ends."""
    q = plan.trajectory.states(np.linspace(0.0, plan.trajectory.duration, _STEPS))[:, 0]
    rotation, position = (np.asarray(a) for a in forward_kinematics(model.kinematics, q))
    flange = position[:, -1] + rotation[:, -1] @ model.flange[1]
    way = _marker(frame, "plan", 0, Marker.LINE_STRIP, (0.1, 0.5, 1.0, 1.0))
    end = _marker(frame, "plan", 1, Marker.LINE_STRIP, (0.1, 0.8, 0.3, 1.0))
    way.scale.x, end.scale.x = 0.005, 0.02
    way.points = [_point(p) for p in flange]
    end.points = [_point(p) for p in (*position[-1], flange[-1])]
    return MarkerArray(markers=[way, end])


def _marker(frame: str, namespace: str, number: int, kind: int, colour: tuple[float, ...]) -> Marker:
    marker = Marker(ns=namespace, id=number, type=kind, action=Marker.ADD)
    marker.header.frame_id = frame
    marker.pose.orientation.w = 1.0
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = colour
    return marker


def _point(p: np.ndarray) -> Point:
    return Point(x=float(p[0]), y=float(p[1]), z=float(p[2]))


def _quaternion(rpy: np.ndarray) -> tuple[float, float, float, float]:
    """x, y, z, w of fixed-axis roll, pitch, yaw."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(0.5 * rpy), np.cos(0.5 * rpy)
    return (
        float(sr * cp * cy - cr * sp * sy),
        float(cr * sp * cy + sr * cp * sy),
        float(cr * cp * sy - sr * sp * cy),
        float(cr * cp * cy + sr * sp * sy),
    )
