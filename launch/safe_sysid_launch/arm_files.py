"""What the launch files hand to others' programs: robot descriptions, controllers, Gazebo's world, rviz's picture.

All of it is made from the robot file and its URDF, so that nothing is said twice. No ROS is needed here.
"""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.errors import ConfigError, ModelError, SafeSysIdError
from safe_sysid.resources import resource_path
from safe_sysid.robot.config import JointSettings, Settings, load_settings
from safe_sysid.robot.files.meshes import mesh_path
from safe_sysid.robot.files.urdf import UrdfChain, read_urdf
from safe_sysid.robot.loading import find_urdf
from safe_sysid.robot.parameters import com_and_inertia
from safe_sysid.robot.scenes.obstacles import (
    Obstacle,
    SceneBox,
    SceneCapsule,
    SceneSphere,
    rotation_from_rpy,
    rpy_from_rotation,
)
from safe_sysid.robot.scenes.scene import Scene, config_path
from safe_sysid.simulation.payloads import NO_PAYLOAD, Payload

__all__ = [
    "Arm",
    "controllers",
    "gazebo_description",
    "gazebo_differences",
    "gazebo_world",
    "load_arm",
    "plain_urdf",
    "robot_description",
    "rviz_picture",
]

WORLD = "world"
#: Names that xacro takes for texts and nothing else: no $, no quotes, no spaces.
_PLAIN = re.compile(r"[A-Za-z0-9_./-]*")
#: Names of the ros2_control controllers that the launch files start or expect.
BROADCASTER, EFFORT = "joint_state_broadcaster", "effort_controller"
TRAJECTORY = "joint_trajectory_controller"
#: Link of what Gazebo's arm holds.
_HELD = "safe_sysid_payload"


@dataclass(frozen=True, eq=False)
class Arm:
    """A robot file and the tree of its URDF.

    Attributes:
        file: the robot file.
        urdf: the URDF file.
        settings: of the robot file.
        chain: the URDF's moving joints, base to tip, and what is locked.
    """

    file: Path
    urdf: Path
    settings: Settings
    chain: UrdfChain

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Moving joints, base to tip: the order of ``effort_command``."""
        return tuple(joint.name for joint in self.chain.joints)

    @property
    def follows(self) -> bool:
        """Whether the arm follows trajectories by itself, else it takes efforts."""
        return self.settings.follows_trajectories

    @property
    def mounting(self) -> tuple[Sequence[float], Sequence[float]]:
        """Position (m) and roll, pitch, yaw (rad) of the URDF's root in the world."""
        mounting = self.settings.mounting
        return ((0.0,) * 3, (0.0,) * 3) if mounting is None else (mounting.xyz, mounting.rpy)


def load_arm(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> Arm:
    """Read a robot file and its URDF; no dynamics are built.

    Args:
        name_or_path: name of a packaged robot, or path of a YAML file.
        overrides: settings that replace the file's.

    Raises:
        SafeSysIdError: what cannot be used, by file, key and value.
    """
    file = config_path(name_or_path, "config")
    settings = load_settings(file, dict(overrides or {}))
    urdf = find_urdf(file, settings)
    return Arm(file, urdf, settings, read_urdf(urdf, settings.locked))


def plain_urdf(arm: Arm, *, declared: bool = False) -> ET.Element:
    """The arm's URDF as programs want it that know nothing of the robot file.

    Locked joints are fixed where they are locked, meshes are named by absolute ``file://`` paths, and mimic joints
    and tags of simulators are gone.

    Args:
        arm: the arm.
        declared: whether joints get the robot file's viscous and Coulomb friction as ``<dynamics>``, and its limits of
            velocity and torque, for a simulator that clips what is beyond.

    Returns:
        The ``<robot>`` element, a copy.
    """
    robot = copy.deepcopy(arm.chain.xml)
    for unwanted in (*robot.findall("gazebo"), *robot.findall("ros2_control"), *robot.findall("transmission")):
        robot.remove(unwanted)
    for mesh in robot.iter("mesh"):
        try:
            mesh.set("filename", mesh_path(mesh.get("filename", ""), arm.urdf).absolute().as_uri())
        except ModelError:
            continue  # a picture that is missing is no reason to stop; the model has its own judgement
    for joint in robot.findall("joint"):
        name = joint.get("name", "")
        if name in arm.chain.locked:
            _fix(joint, arm.chain.locked[name])
        elif declared and name in arm.settings.joints:
            _declare(joint, arm.settings.joints[name])
    return robot


def _declare(joint: ET.Element, settings: JointSettings) -> None:
    """Write friction and limits of the robot file into a joint element."""
    for old in joint.findall("dynamics"):
        joint.remove(old)
    values = {"damping": repr(settings.viscous), "friction": repr(settings.coulomb)}
    ET.SubElement(joint, "dynamics", values)
    limit = joint.find("limit")
    if limit is None:
        limit = ET.SubElement(joint, "limit")
    for key, value in (("velocity", settings.velocity), ("effort", settings.torque)):
        if value is not None:
            limit.set(key, repr(float(value)))


def _fix(joint: ET.Element, position: float) -> None:
    """Make a joint element a fixed one, at a position in rad or m."""
    origin, axis = joint.find("origin"), joint.find("axis")
    xyz, rpy = (_numbers(origin, key, "0 0 0") for key in ("xyz", "rpy"))
    along = _numbers(axis, "xyz", "1 0 0")
    along = along / np.linalg.norm(along)
    turn = rotation_from_rpy(rpy)
    if joint.get("type") == "prismatic":
        xyz = xyz + turn @ (position * along)
    else:
        cross = np.array([[0, -along[2], along[1]], [along[2], 0, -along[0]], [-along[1], along[0], 0]])
        turn = turn @ (np.eye(3) + np.sin(position) * cross + (1.0 - np.cos(position)) * cross @ cross)
    for child in list(joint):
        if child.tag not in ("parent", "child"):
            joint.remove(child)
    joint.set("type", "fixed")
    ET.SubElement(joint, "origin", {"xyz": _text(xyz), "rpy": _text(rpy_from_rotation(turn))})


def robot_description(arm: Arm) -> str:
    """URDF text for robot_state_publisher and rviz: the plain URDF on the frame ``world``, mounted as declared.

    Raises:
        ConfigError: the URDF has another link of the name ``world``.
    """
    robot = plain_urdf(arm)
    if arm.chain.root == WORLD:
        return ET.tostring(robot, encoding="unicode")
    _refuse_other_world(arm)
    xyz, rpy = arm.mounting
    joint = ET.Element("joint", {"name": f"{WORLD}_to_{arm.chain.root}", "type": "fixed"})
    ET.SubElement(joint, "parent", {"link": WORLD})
    ET.SubElement(joint, "child", {"link": arm.chain.root})
    ET.SubElement(joint, "origin", {"xyz": _text(xyz), "rpy": _text(rpy)})
    robot.insert(0, joint)
    robot.insert(0, ET.Element("link", {"name": WORLD}))
    return ET.tostring(robot, encoding="unicode")


def _refuse_other_world(arm: Arm) -> None:
    if arm.chain.root != WORLD and WORLD in arm.chain.link_joint:
        raise ConfigError(
            str(arm.urdf), "link", WORLD, f"no link of this name but the root: the root is {arm.chain.root}"
        )


def gazebo_description(arm: Arm, controllers_file: Path, namespace: str = "", payload: Payload = NO_PAYLOAD) -> str:
    """URDF text for Gazebo: the plain URDF, what ``urdf/gazebo.urdf.xacro`` adds to it, and what the hand holds.

    The URDF does not go through xacro, which would evaluate what its names say.

    Args:
        arm: the arm; its joints start at the robot file's home.
        controllers_file: where :func:`controllers` was written.
        namespace: of the controller manager.
        payload: fastened to the tool frame.

    Raises:
        ConfigError: a name that ros2_control, or xacro, would not take for a name; another link called ``world``.
        SafeSysIdError: xacro is not there, or does not like what it is given.
    """
    _refuse_other_world(arm)
    expected = "letters, digits, _, -, . and / only: xacro evaluates $ and quotes, and spaces part names"
    names = [("joint", name) for name in arm.joint_names]
    for key, name in (*names, ("root link", arm.chain.root), ("namespace", namespace)):
        if not _PLAIN.fullmatch(name):
            raise ConfigError(str(arm.urdf), key, name, expected)
    robot = ET.fromstring(_expand_xacro(_xacro_arguments(arm, controllers_file, namespace)))
    if arm.chain.root == WORLD:  # nothing to fasten
        for added in [child for child in robot if child.tag in ("link", "joint")]:
            robot.remove(added)
    robot.extend(plain_urdf(arm, declared=True))
    robot.extend(_held(arm, payload))
    return ET.tostring(robot, encoding="unicode")


def _held(arm: Arm, payload: Payload) -> list[ET.Element]:
    """A link for what the hand holds, and the joint that fastens it; nothing for an empty hand."""
    if not np.any(payload.theta):
        return []
    link = ET.Element("link", {"name": _HELD})
    mass, centre, inertia = com_and_inertia(payload.theta)
    inertial = ET.SubElement(link, "inertial")
    ET.SubElement(inertial, "origin", {"xyz": _text(centre)})
    ET.SubElement(inertial, "mass", {"value": repr(float(mass))})
    places = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2), "izz": (2, 2)}
    ET.SubElement(inertial, "inertia", {key: repr(float(inertia[place])) for key, place in places.items()})
    for shape in payload.shapes:
        size = shape.size if shape.kind != "hexagon" else (shape.size[0] / np.sqrt(3.0), shape.size[1])  # around it
        words = {"sphere": ("radius",), "box": ("size",)}.get(shape.kind, ("radius", "length"))
        numbers = (
            {"size": _text(size)}
            if words == ("size",)
            else {w: repr(float(s)) for w, s in zip(words, size, strict=True)}
        )
        for tag in ("collision", "visual"):
            solid = ET.SubElement(link, tag)
            turn = _text(rpy_from_rotation(shape.rotation))
            ET.SubElement(solid, "origin", {"xyz": _text(shape.position), "rpy": turn})
            kind = {"hexagon": "cylinder"}.get(shape.kind, shape.kind)
            ET.SubElement(ET.SubElement(solid, "geometry"), kind, numbers)
    joint = ET.Element("joint", {"name": f"tool_to_{_HELD}", "type": "fixed"})
    ET.SubElement(joint, "parent", {"link": arm.settings.tool_frame})
    ET.SubElement(joint, "child", {"link": _HELD})
    return [link, joint]


def _xacro_arguments(arm: Arm, controllers_file: Path, namespace: str) -> dict[str, str]:
    xyz, rpy = arm.mounting
    return {
        "name": arm.settings.name,
        "root": arm.chain.root,
        "xyz": _text(xyz),
        "rpy": _text(rpy),
        "joints": " ".join(arm.joint_names),
        "command": "position" if arm.follows else "effort",
        "start": _text(arm.settings.home),
        "controllers": str(controllers_file),
        "namespace": namespace,
    }


def _expand_xacro(arguments: Mapping[str, str]) -> str:
    try:
        import xacro
    except ImportError as error:
        raise SafeSysIdError("xacro is not installed: expected ros-jazzy-xacro, or pip install xacro") from error
    file = resource_path("urdf/gazebo.urdf.xacro")
    try:
        return str(xacro.process_file(str(file), mappings=dict(arguments)).toprettyxml(indent="  "))
    except Exception as error:  # xacro's own kinds have no common root
        raise SafeSysIdError(f"{file}: xacro: {error}") from error


def controllers(joint_names: Sequence[str], rate: float, follows: bool = False) -> dict[str, Any]:
    """ROS parameters of the controller manager, the joint state broadcaster and the controller that moves the arm.

    Args:
        joint_names: base to tip, as :attr:`Arm.joint_names`: the effort controller takes commands by position only.
        rate: of the controller manager, Hz.
        follows: whether the arm follows trajectories by positions, else it takes efforts.
    """
    names = list(joint_names)
    moves, kind, own = EFFORT, "forward_command_controller/ForwardCommandController", {"interface_name": "effort"}
    if follows:
        moves, kind = TRAJECTORY, "joint_trajectory_controller/JointTrajectoryController"
        own = {
            "command_interfaces": ["position"],
            "state_interfaces": ["position", "velocity"],
            # A message in motion is entered from the controller's own desired state, not from the measured one.
            "interpolate_from_desired_state": True,
        }
    return {
        "/**/controller_manager": {
            "ros__parameters": {
                "update_rate": round(rate),
                BROADCASTER: {"type": "joint_state_broadcaster/JointStateBroadcaster"},
                moves: {"type": kind},
            }
        },
        f"/**/{BROADCASTER}": {"ros__parameters": {"joints": names, "interfaces": ["position", "velocity", "effort"]}},
        f"/**/{moves}": {"ros__parameters": {"joints": names, **own}},
    }


def gazebo_differences(arm: Arm) -> list[str]:
    """What the robot file declares and Gazebo's arm does not have: bounds and tracking are proved for the declared arm.

    SDF has no rotor inertia and no constant offset of a joint's torque, and the effort that gz_ros2_control publishes
    is what the link feels.
    """
    found = []
    if (source := arm.settings.measurement.torque_source) != "link":
        found.append(f"measurement.torque_source {source}, in Gazebo link")
    for name, joint in arm.settings.joints.items():
        unit = "kg" if name in _prismatic(arm.chain) else "kg m^2"
        relative, floor = arm.settings.uncertainty.relative, arm.settings.uncertainty.floor
        if joint.rotor_inertia * (1.0 - relative) - floor.rotor_inertia > 0.0:
            found.append(f"{name}: rotor_inertia {joint.rotor_inertia:g} {unit}, in Gazebo 0")
        if abs(joint.offset) * (1.0 - relative) - floor.offset > 0.0:
            found.append(f"{name}: offset {joint.offset:g}, in Gazebo 0")
    return found


def _prismatic(chain: UrdfChain) -> set[str]:
    return {joint.name for joint in chain.joints if joint.kind == "prismatic"}


def gazebo_world(scene: Scene | None = None) -> str:
    """SDF text of ``config/gazebo/world.sdf`` with the obstacles of a scene.

    Raises:
        SafeSysIdError: an obstacle that SDF has no primitive for.
    """
    tree = ET.parse(resource_path("config/gazebo/world.sdf"))
    world = tree.getroot().find("world")
    if world is None:
        raise ModelError("config/gazebo/world.sdf: no <world>: expected one")
    for obstacle in () if scene is None else scene.obstacles:
        model = ET.SubElement(world, "model", {"name": obstacle.name})
        ET.SubElement(model, "static").text = "true"
        ET.SubElement(model, "pose").text = _text([*obstacle.xyz, *rpy_from_rotation(obstacle.rotation)])
        link = ET.SubElement(model, "link", {"name": "link"})
        for tag in ("collision", "visual"):
            _shape(ET.SubElement(ET.SubElement(link, tag, {"name": tag}), "geometry"), obstacle)
    ET.indent(tree)
    return '<?xml version="1.0"?>\n' + ET.tostring(tree.getroot(), encoding="unicode") + "\n"


def _shape(geometry: ET.Element, obstacle: Obstacle) -> None:
    if isinstance(obstacle, SceneBox):
        ET.SubElement(ET.SubElement(geometry, "box"), "size").text = _text(obstacle.size)
    elif isinstance(obstacle, SceneSphere):
        ET.SubElement(ET.SubElement(geometry, "sphere"), "radius").text = repr(float(obstacle.radius))
    elif isinstance(obstacle, SceneCapsule):
        capsule = ET.SubElement(geometry, "capsule")
        ET.SubElement(capsule, "radius").text = repr(float(obstacle.radius))
        ET.SubElement(capsule, "length").text = repr(float(obstacle.length))
    else:
        raise SafeSysIdError(
            f"obstacle {obstacle.name}: a {obstacle.kind} cannot be put into Gazebo's world:"
            " expected boxes, spheres and capsules"
        )


def rviz_picture(namespace: str) -> str:
    """Text of the rviz configuration, its topics in a namespace: "" or as ``arm_1``, ``/cell/arm_1``."""
    text = resource_path("rviz/safe_sysid.rviz").read_text(encoding="utf-8")
    inside = namespace.strip("/")
    if not inside:
        return text
    lines = []
    for line in text.splitlines():
        head, mark, topic = line.partition("Value: /")
        own = mark and topic.strip('"') and topic.strip('"') in PICTURED
        lines.append(f"{head}Value: /{inside}/{topic}" if own else line)
    return "\n".join(lines) + "\n"


#: Topics of a namespace that rviz shows.
PICTURED = ("markers", "robot_description")


def _numbers(element: ET.Element | None, key: str, default: str) -> np.ndarray:
    """Numbers of an attribute (judged by :func:`read_urdf` already), or of ``default`` where there is none."""
    text = default if element is None else element.get(key, default)
    return np.array([float(part) for part in text.split()])


def _text(values: Iterable[float]) -> str:
    return " ".join(repr(float(value)) for value in values)
