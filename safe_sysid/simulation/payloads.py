"""What the simulated hand holds: the dumbbells of the PSO paper, numbers, or a URDF file."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.errors import ParameterError, short
from safe_sysid.robot.files.rigid_body import rigid_body_text
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array, inertia_from_com, pseudo_inertia, transform_inertial
from safe_sysid.simulation.shapes import Shape

__all__ = [
    "DUMBBELLS",
    "NO_PAYLOAD",
    "Payload",
    "check_inside_prior",
    "dumbbell",
    "hexagonal_dumbbell",
    "payload_from_spec",
    "theta_e_with_payload",
]


DUMBBELLS = ("4lb", "5lb", "6lb", "7lb", "8lb")
POUND = 0.45359237  # kg, exact by definition
_STEEL, _CAST_IRON = 7850.0, 7200.0  # kg/m^3
_HANDLE_DIAMETER, _HANDLE_LENGTH = 0.028, 0.11  # m: a hand's width of bar between the heads
_HEAD_RATIO = 0.6  # length over diameter of a head
_HEXAGON_RATIO = 0.68  # length over width across flats of a hexagonal head
_GRIP = (0.0, 0.0, 0.14)  # m, between the finger tips, in the tool flange frame
_ALONG_Y = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # the solid's own z is flange y
_Z_ACROSS_FLATS = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])  # and its own x flange z
_NUMBERS = "m,cx,cy,cz,Ixx,Ixy,Iyy,Ixz,Iyz,Izz"
_ROUNDING = 1e-9  # relative: decimals printed by a CAD program put a flat body just outside the cone
_LIGHT = 1.1  # times a handle: heads of less would be chips of iron


@dataclass(frozen=True, eq=False)
class Payload:
    """A rigid body welded to the tool flange."""

    name: str
    theta: FloatArray  #: (10,) inertial parameters about the *flange* frame's origin, in flange axes
    shapes: tuple[Shape, ...] = ()  #: solids for the simulator's contacts, in the flange frame; may be empty

    def __post_init__(self) -> None:
        theta = frozen_array(self.theta, (10,), f"payload {self.name}: theta")
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "shapes", tuple(self.shapes))
        if not np.any(theta):
            return  # nothing in the hand
        if not theta[0] > 0.0:
            raise ParameterError(f"payload {self.name}: m = {theta[0]!r} kg: expected a positive mass")
        _check_consistent(self.name, theta)


#: An empty hand.
NO_PAYLOAD = Payload("none", np.zeros(10))


def _check_consistent(name: str, theta: FloatArray) -> None:
    """Raise unless some mass distribution has these parameters; say which law of mechanics they break."""
    centre = theta[1:4] / theta[0]
    shifted = transform_inertial(np.eye(3), -centre, theta)
    scale = max(float(np.trace(pseudo_inertia(theta)[:3, :3])), 0.0)
    if float(np.linalg.eigvalsh(pseudo_inertia(shifted)[:3, :3])[0]) >= -_ROUNDING * scale:
        return
    xx, xy, yy, xz, yz, zz = shifted[4:]
    a, b, c = np.linalg.eigvalsh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
    if a < 0.0:
        why = f"the inertia about the centre of mass has the negative principal moment {a:.6g}"
    else:
        why = f"principal moments {a:.6g}, {b:.6g}, {c:.6g} break the triangle inequality ({c:.6g} > {a + b:.6g})"
    raise ParameterError(
        f"payload {name}: not physically consistent: {why}; expected moments (kg m^2, about the centre of mass) "
        "that some mass distribution has"
    )


def dumbbell(pounds: float, grip: ArrayLike = _GRIP, name: str | None = None) -> Payload:
    """Steel handle along flange y, gripped in the middle, with two cylindrical cast-iron heads.

    ``grip``: (3,) centre of the handle in the flange frame, m; ``name``: default "<pounds>lb".
    """
    head_mass = _head_mass(pounds)
    diameter = (head_mass / _CAST_IRON / (math.pi / 4.0 * _HEAD_RATIO)) ** (1.0 / 3.0)
    size = (0.5 * diameter, _HEAD_RATIO * diameter)
    return _with_heads(pounds, "cylinder", size, head_mass, grip, _ALONG_Y, name)


def hexagonal_dumbbell(pounds: float, grip: ArrayLike = _GRIP, name: str | None = None) -> Payload:
    """The same with hexagonal heads, flats across flange z: dumbbells that can be stacked.

    ``grip``: (3,) centre of the handle in the flange frame, m; ``name``: default "<pounds>lb".
    """
    head_mass = _head_mass(pounds)
    width = (head_mass / _CAST_IRON / (0.5 * math.sqrt(3.0) * _HEXAGON_RATIO)) ** (1.0 / 3.0)
    return _with_heads(pounds, "hexagon", (width, _HEXAGON_RATIO * width), head_mass, grip, _Z_ACROSS_FLATS, name)


def _head_mass(pounds: float) -> float:
    handle_mass = _handle_mass()
    head_mass = 0.5 * (pounds * POUND - handle_mass)
    if not head_mass > 0.0:
        raise ParameterError(f"dumbbell of {pounds!r} lb: expected more than its handle, {handle_mass / POUND:.3g} lb")
    return head_mass


def _handle_mass() -> float:
    return _STEEL * math.pi / 4.0 * _HANDLE_DIAMETER**2 * _HANDLE_LENGTH


def _rod(pounds: float, grip: ArrayLike, name: str) -> Payload:
    """What weighs no more than a handle: a piece of one."""
    if not pounds > 0.0:
        raise ParameterError(f"payload {name}: expected a positive weight, or none")
    mass = pounds * POUND
    size = (0.5 * _HANDLE_DIAMETER, _HANDLE_LENGTH * mass / _handle_mass())
    rod = Shape("cylinder", size, frozen_array(grip, (3,), "grip point"), _ALONG_Y)
    return Payload(name, rod.inertial(mass), (rod,))


def _with_heads(
    pounds: float,
    kind: str,
    size: tuple[float, float],
    head_mass: float,
    grip: ArrayLike,
    axes: FloatArray,
    name: str | None,
) -> Payload:
    """Handle and two heads of a kind; ``size[1]`` is a head's length along its own z, which is flange y."""
    centre = frozen_array(grip, (3,), "dumbbell grip point")
    offset = np.array([0.0, 0.5 * (_HANDLE_LENGTH + size[1]), 0.0])
    handle = Shape("cylinder", (0.5 * _HANDLE_DIAMETER, _HANDLE_LENGTH), centre, _ALONG_Y)
    heads = [Shape(kind, size, centre + s * offset, axes) for s in (-1.0, 1.0)]
    theta = handle.inertial(_handle_mass()) + sum(head.inertial(head_mass) for head in heads)
    theta[0] = pounds * POUND  # the sum of the parts rounds in the last digit
    return Payload(f"{pounds:g}lb" if name is None else name, theta, (handle, *heads))


def payload_from_spec(spec: str, grip: ArrayLike = _GRIP) -> Payload:
    """Payload from what a user types.

    Args:
        spec: "none", a weight such as "2kg", "300g" or "8lb" (4 to 8 are the PSO paper's dumbbells), the path of a URDF
            file (one link, or several fixed to each other; its root frame is the flange frame), or ten numbers
            ``m,cx,cy,cz,Ixx,Ixy,Iyy,Ixz,Iyz,Izz``: mass, centre in the flange frame, inertia about that centre,
            same axes.
        grip: (3,) where dumbbells are gripped, in the flange frame, m.

    Raises:
        ParameterError: the text is none of these, or describes no physical body.
    """
    text = spec.strip()
    if text.lower() == "none":
        return NO_PAYLOAD
    if weight := re.fullmatch(r"([0-9]*\.?[0-9]+) ?(kg|g|lb)", text.lower()):
        pounds = float(weight[1]) * {"kg": 1.0 / POUND, "g": 1e-3 / POUND, "lb": 1.0}[weight[2]]
        name = f"{weight[1]}{weight[2]}"
        return dumbbell(pounds, grip, name) if pounds * POUND > _LIGHT * _handle_mass() else _rod(pounds, grip, name)
    if text.lower().endswith(".urdf"):
        try:
            path = Path(text).expanduser()
        except RuntimeError:  # ~nobody
            path = Path(text)
        return _from_urdf(path)
    if "," in text:
        return _from_numbers(text)
    raise ParameterError(
        f"payload {short(text, 120)}: expected none, a weight such as 2kg, 300g or 8lb, a .urdf file, or ten numbers "
        f"{_NUMBERS}"
    )


def _from_numbers(text: str) -> Payload:
    fields = text.split(",")
    names = _NUMBERS.split(",")
    if len(fields) != len(names):
        raise ParameterError(f"payload {short(text, 120)}: {len(fields)} numbers: expected ten, {_NUMBERS}")
    values = []
    for name, item in zip(names, fields, strict=True):
        try:
            value = float(item)
        except ValueError:
            raise ParameterError(f"payload: {name} = {short(item.strip(), 80)}: expected a number") from None
        if not math.isfinite(value):
            raise ParameterError(f"payload: {name} = {short(item.strip(), 80)}: expected a finite number")
        values.append(value)
    mass, centre = values[0], values[1:4]
    if not mass > 0.0:
        raise ParameterError(f"payload: m = {mass!r} kg: expected a positive mass")
    xx, xy, yy, xz, yz, zz = values[4:]
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return Payload("numbers", inertia_from_com(mass, centre, inertia))


def _from_urdf(path: Path) -> Payload:
    import pinocchio as pin  # 0.2 s that only this kind of payload should cost

    try:
        there = path.is_file()
    except (OSError, ValueError):  # names that are too long, or no names
        there = False
    if not there:
        raise ParameterError(f"payload {short(str(path))[1:-1]}: no such file")
    try:
        text = rigid_body_text(path)
        model = pin.buildModelFromXML(text)
        geometry = pin.buildGeomFromUrdfString(model, text, pin.GeometryType.COLLISION)
    except Exception as error:  # ours says what is wrong; what Pinocchio raises differs from version to version
        text = " ".join(str(error).split())[:500]
        raise ParameterError(f"payload {path}: not a URDF that Pinocchio can read: {text}") from error
    body = model.inertias[0]
    if not body.mass > 0.0:
        raise ParameterError(f"payload {path}: total mass {body.mass!r} kg: expected an <inertial> with positive mass")
    shapes = [_shape(path, item) for item in geometry.geometryObjects]
    return Payload(path.stem, np.array(body.toDynamicParameters()), tuple(shapes))


def _shape(path: Path, item: Any) -> Shape:
    """Shape of one of Pinocchio's geometry objects."""
    solid, placement = item.geometry, item.placement
    kind = type(solid).__name__
    if kind == "Cylinder":
        return Shape("cylinder", (solid.radius, 2.0 * solid.halfLength), placement.translation, placement.rotation)
    if kind == "Box":
        return Shape("box", tuple(2.0 * solid.halfSide), placement.translation, placement.rotation)
    if kind == "Sphere":
        return Shape("sphere", (solid.radius,), placement.translation, placement.rotation)
    raise ParameterError(f"payload {path}: collision geometry {kind}: expected box, cylinder or sphere")


def theta_e_with_payload(model: RobotModel, hand_theta: ArrayLike, payload: Payload) -> FloatArray:
    """Last link with hand and payload: theta_e (10,), about the last joint frame's origin.

    Args:
        model: the arm, for the pose of what carries payloads.
        hand_theta: (10,) last link with empty hand, about the last joint frame's origin.
    """
    rotation, position = model.payload_frame
    return np.asarray(hand_theta, float) + transform_inertial(rotation, position, payload.theta)


def check_inside_prior(model: RobotModel, theta_e: ArrayLike, payload: Payload) -> None:
    """Raise unless the payload is one that the configuration has prepared the arm for.

    Args:
        model: the arm with its prior box of theta_e and its envelope bodies of kind "payload".
        theta_e: (10,) last link with hand and payload, last joint frame.
        payload: its shapes must lie inside the envelope.

    Raises:
        ParameterError: names the parameter (or shape), its value, and the interval that it should lie in.
    """
    joint = model.joint_names[-1]
    prior = zip(model.arm_prior.payload_lower, model.arm_prior.payload_upper, strict=True)
    values = np.asarray(theta_e, float)
    for name, unit, value, (lower, upper) in zip(PAYLOAD_NAMES, PAYLOAD_UNITS, values, prior, strict=True):
        if not lower <= value <= upper:
            raise ParameterError(
                f"payload {payload.name}: {name} = {float(value)!r} {unit} (hand and payload, frame of {joint}): "
                f"outside the prior [{float(lower)!r}, {float(upper)!r}] that planner and controller are built for"
            )
    _check_envelope(model, payload)


def _check_envelope(model: RobotModel, payload: Payload) -> None:
    """Raise unless every shape lies in a payload envelope, a box along the flange frame's axes."""
    envelopes = [body for body in model.bodies if body.kind == "payload"]
    if not envelopes:
        return
    rotation, position = model.payload_frame
    boxes = []
    for body in envelopes:
        points = (body.points - position) @ rotation  # into the flange frame
        boxes.append((points.min(axis=0), points.max(axis=0)))
    for shape in payload.shapes:
        low, high = shape.bounding_box()
        slack = 1e-9  # m: the envelope's corners have been through two changes of frame
        if not any(np.all(a - slack <= low) and np.all(high <= b + slack) for a, b in boxes):
            a, b = boxes[0]
            raise ParameterError(
                f"payload {payload.name}: a {shape.kind} reaches from {np.round(low, 4).tolist()} to "
                f"{np.round(high, 4).tolist()} m (tool flange frame): outside the envelope from "
                f"{np.round(a, 4).tolist()} to {np.round(b, 4).tolist()} that clearances are proved for"
            )
