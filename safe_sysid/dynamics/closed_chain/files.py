"""Mechanisms from files: a URDF with the tree, and a small YAML with the loops that close it."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pinocchio as pin
from pydantic import Field

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics.closed_chain.mechanism import Mechanism
from safe_sysid.dynamics.closed_chain.parts import LoopClosure
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.resources import share_directory
from safe_sysid.robot.files.urdf import MOVING, TURNING, UrdfTree, read_tree
from safe_sysid.robot.files.yaml_file import read_yaml, validate
from safe_sysid.robot.model import Kinematics
from safe_sysid.schema.fields import NonNegative, Positive, StrictModel, Vector3

__all__ = [
    "MechanismFile",
    "load_mechanism",
    "mechanism_path",
    "mechanism_urdf",
    "pinocchio_model",
    "read_mechanism_file",
]

MAX_TREE_JOINTS = 60
_ROUNDED = 1e-4  # rad: angles in files of loops that are nearer than this to a multiple of a right angle are that


class EndSettings(StrictModel):
    """One end of a loop: a frame on a link."""

    link: str
    xyz: Vector3 = (0.0, 0.0, 0.0)
    rpy: Vector3 = (0.0, 0.0, 0.0)


class LoopSettings(StrictModel):
    """A loop: two frames that stay together."""

    name: str
    kind: Literal["3D", "6D"] = "3D"
    first: EndSettings
    second: EndSettings


class JointTermsSettings(StrictModel):
    """Friction, rotor inertia and offset of a joint, in the units of :data:`~safe_sysid.core.layout.JOINT_TERMS`."""

    coulomb: NonNegative = 0.0
    viscous: NonNegative = 0.0
    rotor_inertia: NonNegative = 0.0
    offset: float = 0.0


class MechanismFile(StrictModel):
    """A file of loops."""

    urdf: str = ""  #: of the tree, beside this file, among the packaged ones, or absolute
    #: joints that motors drive, in the order in which results have them; none: all
    actuated: list[str] = Field(default_factory=list)
    locked: dict[str, float] = Field(default_factory=dict)  #: joints that do not move, and their positions, rad (m)
    #: position of joints near which the loops close, rad (m); 0 where nothing is said
    start: dict[str, float] = Field(default_factory=dict)
    loops: list[LoopSettings] = Field(default_factory=list)
    joints: dict[str, JointTermsSettings] = Field(default_factory=dict)  #: what the URDF does not say of joints
    gravity: Vector3 = (0.0, 0.0, -9.81)  #: m/s^2 in the frame of the root link
    smallest_singular_value: Positive = 1e-3  #: of J_u below which a position counts as singular


def mechanism_path(name_or_path: str | Path) -> Path:
    """A file of loops, or a packaged one by its name. ``name_or_path``: ``four_bar``, or a path.

    Raises:
        ConfigError: there is none.
    """
    folder = share_directory() / "config" / "mechanisms"
    for path in (Path(name_or_path), folder / f"{name_or_path}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
    raise ConfigError(str(name_or_path), "file", str(name_or_path), f"a file, or one of {known}")


def read_mechanism_file(path: Path) -> MechanismFile:
    """Read and validate a file of loops.

    Raises:
        ConfigError: names file and key.
    """
    return validate(str(path), read_yaml(path), MechanismFile)


def mechanism_urdf(path: Path) -> Path:
    """The URDF that a file of loops names.

    Raises:
        ConfigError: it names none, or one that is not there.
    """
    return _urdf_path(str(path), read_mechanism_file(path), None)


def load_mechanism(loops: str | Path | None, urdf: str | Path | None = None, joints: Sequence[str] = ()) -> Mechanism:
    """A mechanism from its file of loops, its URDF, or both.

    Args:
        loops: file of loops, or name of a packaged mechanism; None for an open chain or tree.
        urdf: of the tree; None for the one that ``loops`` names.
        joints: without ``loops``: those that move, all others are locked near 0; none: all move.

    Raises:
        ConfigError: a file or a key that is missing, unknown, or does not fit the URDF.
        ModelError: a URDF that cannot be used, or loops that do not close.
    """
    if loops is None:
        settings, file = MechanismFile(), str(urdf)
        name = Path(str(urdf)).stem
    else:
        path = mechanism_path(loops)
        settings, file, name = read_mechanism_file(path), str(path), path.stem
    tree = read_tree(_urdf_path(file, settings, urdf))
    if loops is None and joints:
        settings = MechanismFile(locked=_others(tree, joints), actuated=list(joints))
    model = pinocchio_model(tree, settings, file)
    names = tuple(model.names)[1:]
    _check_names(file, settings, names)
    sliding = np.array([_kind(tree, joint) == "prismatic" for joint in names])
    lower, upper, velocity = _limits(tree, names)
    actuated = [names.index(joint) for joint in settings.actuated or names]
    start = np.array([settings.start.get(joint, 0.0) for joint in names])
    return Mechanism(
        name,
        names,
        _kinematics(model, settings, sliding, lower, upper),
        lower,
        upper,
        _theta(model, settings, names),
        np.array(actuated),
        tuple(_closure(file, model, loop) for loop in settings.loops),
        start,
        settings.smallest_singular_value,
        velocity,
    )


def _others(tree: UrdfTree, joints: Sequence[str]) -> dict[str, float]:
    """Positions within their limits, near 0, of the moving joints that are not named."""
    moving = [joint for joint in tree.joints if joint.kind in MOVING]
    return {
        joint.name: float(
            np.clip(
                0.0, -np.inf if joint.lower is None else joint.lower, np.inf if joint.upper is None else joint.upper
            )
        )
        for joint in moving
        if joint.name not in joints
    }


def _urdf_path(file: str, settings: MechanismFile, urdf: str | Path | None) -> Path:
    if urdf is not None:
        return Path(urdf)
    if not settings.urdf:
        raise ConfigError(file, "urdf", "missing", "the URDF of the tree, here or on the command line")
    for folder in (Path(file).parent, share_directory() / "urdf"):
        if (folder / settings.urdf).is_file():
            return folder / settings.urdf
    raise ConfigError(file, "urdf", settings.urdf, "a URDF file beside this one, or a packaged one")


def _kind(tree: UrdfTree, name: str) -> str:
    return next(joint.kind for joint in tree.joints if joint.name == name)


def pinocchio_model(tree: UrdfTree, settings: MechanismFile, file: str) -> pin.Model:
    """Pinocchio's model of the tree, what is locked lumped with what carries it.

    Raises:
        ConfigError: a locked joint that is none of the tree's.
        ModelError: a tree that Pinocchio cannot read, a loop in the tree, or a joint that mimics another.
    """
    moving = {joint.name: joint for joint in tree.joints if joint.kind in MOVING}
    for name in settings.locked:
        if name not in moving:
            raise ConfigError(file, f"locked.{name}", name, f"a moving joint of {tree.reader.file}")
    for joint in moving.values():
        if joint.mimic is not None and joint.name not in settings.locked:
            raise tree.reader.error(f"joint {joint.name!r} mimics another: expected it to be locked, or a loop")
        seen, link = {joint.child}, joint.parent
        while link in tree.above:
            if link in seen:
                raise tree.reader.error(f"link {link!r} hangs on itself: expected a tree; loops are closed in YAML")
            seen.add(link)
            link = tree.above[link].parent
    robot = ET.Element("robot", {"name": tree.reader.xml.get("name", "robot")})
    for element in tree.reader.xml:
        if element.tag not in ("link", "joint"):
            continue
        kept = copy.deepcopy(element)
        for child in list(kept):
            if child.tag not in ("inertial", "parent", "child", "origin", "axis"):
                kept.remove(child)
        if kept.tag == "joint" and kept.get("type") in MOVING:
            kept.set("type", "revolute" if kept.get("type") in TURNING else "prismatic")
            ET.SubElement(kept, "limit", {"lower": "-10", "upper": "10", "effort": "1", "velocity": "1"})
        for origin in kept.findall("origin") if settings.loops and kept.tag == "joint" else ():
            origin.set("rpy", " ".join(repr(_right_angle(float(x))) for x in origin.get("rpy", "0 0 0").split()))
        robot.append(kept)
    try:
        model = pin.buildModelFromXML(ET.tostring(robot, encoding="unicode"))
        if settings.locked:
            q = pin.neutral(model)
            for name, value in settings.locked.items():
                q[model.joints[model.getJointId(name)].idx_q] = value
            model = pin.buildReducedModel(model, [model.getJointId(name) for name in settings.locked], q)
    except Exception as error:  # what Pinocchio raises differs from version to version
        raise ModelError(f"{tree.reader.file}: Pinocchio cannot read it ({error}): expected a URDF file") from error
    if not 1 <= model.nv <= MAX_TREE_JOINTS or model.nq != model.nv or model.njoints != model.nv + 1:
        raise ModelError(f"{tree.reader.file}: {model.nv} moving joints: expected 1 to {MAX_TREE_JOINTS}")
    model.gravity.linear = np.array(settings.gravity)
    return model


def _right_angle(angle: float) -> float:
    """A multiple of a right angle where one is meant: with 1.5708 from a URDF a planar loop would not be planar."""
    nearest = 0.5 * np.pi * round(angle / (0.5 * np.pi))
    return float(nearest if abs(angle - nearest) < _ROUNDED else angle)


def _check_names(file: str, settings: MechanismFile, names: tuple[str, ...]) -> None:
    groups: Mapping[str, Any] = {"actuated": settings.actuated, "start": settings.start, "joints": settings.joints}
    for key, group in groups.items():
        for name in group:
            if name not in names:
                raise ConfigError(file, key, name, f"moving joints of the URDF: {', '.join(names)}")
    if len(set(settings.actuated)) != len(settings.actuated):
        raise ConfigError(file, "actuated", list(settings.actuated), "each joint once")


def _limits(tree: UrdfTree, names: tuple[str, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Positions (n,), (n,), infinite for continuous joints; velocities (n,), infinite where none is given.

    Raises:
        ModelError: a joint without limits.
    """
    joints = {joint.name: joint for joint in tree.joints}
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    velocity = np.full(len(names), np.inf)
    for j, name in enumerate(names):
        joint = joints[name]
        if joint.velocity is not None and joint.velocity > 0.0:  # zero stands for nothing in many files
            velocity[j] = joint.velocity
        if joint.kind == "continuous":
            continue
        if joint.lower is None or joint.upper is None or not joint.lower < joint.upper:
            raise tree.reader.error(f"joint {name!r}: limits {joint.lower} to {joint.upper}: expected lower < upper")
        lower[j], upper[j] = joint.lower, joint.upper
    return lower, upper, velocity


def _kinematics(
    model: pin.Model, settings: MechanismFile, sliding: BoolArray, lower: FloatArray, upper: FloatArray
) -> Kinematics:
    data = model.createData()
    pin.computeJointJacobians(model, data, pin.neutral(model))
    axes = []
    for j in range(1, model.njoints):
        jacobian = np.reshape(pin.getJointJacobian(model, data, j, pin.LOCAL), (6, -1))  # flat if there is one
        axis = jacobian[slice(0, 3) if sliding[j - 1] else slice(3, 6), model.joints[j].idx_v]
        axes.append(axis / np.linalg.norm(axis))
    placements = [model.jointPlacements[j] for j in range(1, model.njoints)]
    travel = np.where(sliding[:, None], np.stack([lower, upper], axis=1), [-np.inf, np.inf])
    return Kinematics(
        np.array([model.parents[j] - 1 for j in range(1, model.njoints)], np.int64),
        np.array([placement.rotation for placement in placements]),
        np.array([placement.translation for placement in placements]),
        np.array(axes),
        np.array(settings.gravity),
        travel,
    )


def _theta(model: pin.Model, settings: MechanismFile, names: tuple[str, ...]) -> FloatArray:
    inertial = [model.inertias[j].toDynamicParameters() for j in range(1, model.njoints)]
    none = JointTermsSettings()
    terms = [
        [getattr(settings.joints.get(name, none), term.key, 0.0) for name in names]
        for term in ParameterLayout(len(names)).terms
    ]
    return np.concatenate([*inertial, *terms])


def _closure(file: str, model: pin.Model, loop: LoopSettings) -> LoopClosure:
    joints, rotations, points = [], [], []
    for key, end in (("first", loop.first), ("second", loop.second)):
        if not model.existFrame(end.link, pin.FrameType.BODY):
            raise ConfigError(file, f"loops.{loop.name}.{key}.link", end.link, "a link of the URDF")
        frame = model.frames[model.getFrameId(end.link, pin.FrameType.BODY)]
        turned = pin.rpy.rpyToMatrix(np.array([_right_angle(x) for x in end.rpy]))
        place = frame.placement * pin.SE3(turned, np.array(end.xyz))
        joints.append(int(frame.parentJoint) - 1)
        rotations.append(place.rotation)
        points.append(place.translation)
    return LoopClosure(loop.name, loop.kind, (joints[0], joints[1]), np.array(rotations), np.array(points))
