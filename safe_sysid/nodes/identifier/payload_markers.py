"""Payload markers for rviz: box of possible centres of mass, inertia ellipsoid of the nominal, and a label.

In the frame of the payload's link, without the hand. Each message adds or deletes all of them, so the newest message
alone is the whole picture, also after a new epoch began and for viewers that start late.
"""

from __future__ import annotations

import itertools

import numpy as np
from geometry_msgs.msg import Point
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import interval_text
from safe_sysid.identification.inertia_shapes import PayloadShapes
from safe_sysid.robot.frames import quaternion_wxyz

__all__ = ["NAMESPACE", "no_payload_markers", "payload_markers"]


NAMESPACE = "payload"
_BOX, _EDGES, _ELLIPSOID, _LABEL = range(4)
_BLUE, _VIOLET, _INK, _RED = (0.12, 0.47, 0.86), (0.52, 0.37, 0.80), (0.95, 0.95, 0.97), (1.0, 0.35, 0.35)
#: m: thinner than that nothing is drawn, and a scale of zero is an error in rviz.
_THIN, _LINE, _LETTERS, _ABOVE = 1e-3, 2e-3, 0.03, 0.08


def payload_markers(shapes: PayloadShapes, frame: str, contradiction: bool = False) -> MarkerArray:
    """All four markers; those that cannot be drawn are deleted.

    Args:
        frame: its payload's link, as TF calls it.
        contradiction: no payload agrees with all measurements: the label says so.
    """
    known = shapes.bounded and shapes.mass[1] > 0.0
    markers = [_gone(number) for number in range(_LABEL)]
    if known:
        middle = 0.5 * (shapes.centre_lower + shapes.centre_upper)
        size = np.maximum(shapes.centre_upper - shapes.centre_lower, _THIN)
        markers[_BOX] = _marker(frame, _BOX, Marker.CUBE, (*_BLUE, 0.35), middle, size)
        edges = _marker(frame, _EDGES, Marker.LINE_LIST, (*_BLUE, 0.95), np.zeros(3), (_LINE, 0.0, 0.0))
        edges.points = [_point(corner) for corner in _edges(middle - 0.5 * size, middle + 0.5 * size)]
        markers[_EDGES] = edges
    if shapes.ellipsoid is not None:
        centre, rotation, axes = shapes.ellipsoid
        size = np.maximum(2.0 * axes, _THIN)
        markers[_ELLIPSOID] = _marker(frame, _ELLIPSOID, Marker.SPHERE, (*_VIOLET, 0.3), centre, size, rotation)
    colour = (*(_RED if contradiction or shapes.outside_envelope else _INK), 1.0)
    place = np.array([0.0, 0.0, (float(shapes.centre_upper[2]) if known else 0.0) + _ABOVE])
    label = _marker(frame, _LABEL, Marker.TEXT_VIEW_FACING, colour, place, (0.0, 0.0, _LETTERS))
    label.text = _label(shapes, contradiction)
    return MarkerArray(markers=[*markers, label])


def no_payload_markers() -> MarkerArray:
    """All of them deleted: nobody knows the payload any more."""
    return MarkerArray(markers=[_gone(number) for number in (_BOX, _EDGES, _ELLIPSOID, _LABEL)])


def _label(shapes: PayloadShapes, contradiction: bool) -> str:
    lines = [f"payload {shapes.mass_text}"]
    if contradiction:
        lines.append("no payload agrees with all measurements")
    elif shapes.outside_envelope:
        lines.append("centre of mass outside of the declared envelope")
    elif shapes.bounded and shapes.mass[1] > 0.0:
        parts = []
        for axis, low, high in zip("xyz", shapes.centre_lower, shapes.centre_upper, strict=True):
            ends = interval_text(float(low), float(high), scale=1000)
            parts.append(f"{axis} {ends[0]} .. {ends[1]}")
        lines.append(f"centre of mass {', '.join(parts)} mm")
    return "\n".join(lines)


def _edges(lower: FloatArray, upper: FloatArray) -> list[FloatArray]:
    """(24,) ends of a box's twelve edges, two by two."""
    ends = []
    for axis in range(3):
        others = [i for i in range(3) if i != axis]
        for pick in itertools.product((0, 1), repeat=2):
            for end in (lower, upper):
                corner = end.copy()
                for i, which in zip(others, pick, strict=True):
                    corner[i] = (lower, upper)[which][i]
                ends.append(corner)
    return ends


def _marker(
    frame: str,
    number: int,
    kind: int,
    colour: tuple[float, ...],
    place: FloatArray,
    scale: FloatArray | tuple[float, float, float],
    rotation: FloatArray | None = None,
) -> Marker:
    # No stamp and locked to the frame: rviz takes the newest transform, and again for every picture.
    marker = Marker(ns=NAMESPACE, id=number, type=kind, action=Marker.ADD, frame_locked=True)
    marker.header.frame_id = frame
    p, o, s = marker.pose.position, marker.pose.orientation, marker.scale
    p.x, p.y, p.z = (float(x) for x in place)
    o.w, o.x, o.y, o.z = (1.0, 0.0, 0.0, 0.0) if rotation is None else map(float, quaternion_wxyz(rotation))
    s.x, s.y, s.z = (float(x) for x in scale)
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = colour
    return marker


def _gone(number: int) -> Marker:
    return Marker(ns=NAMESPACE, id=number, action=Marker.DELETE)


def _point(p: FloatArray) -> Point:
    return Point(x=float(p[0]), y=float(p[1]), z=float(p[2]))
