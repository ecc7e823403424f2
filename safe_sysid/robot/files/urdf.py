"""The URDF's tree, checked before Pinocchio sees it.

Pinocchio's URDF parser drops what it cannot read (a link whose inertia is not a number loses its mass) and accepts
trees that we do not handle. So structure and numbers are checked here, and every message names its joint or link.
"""

from __future__ import annotations

import copy
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from safe_sysid.errors import ConfigError, ModelError, short
from safe_sysid.robot.files.xml_file import read_xml

__all__ = ["UrdfChain", "UrdfJoint", "UrdfTree", "joints_between", "read_tree", "read_urdf"]

TURNING = ("revolute", "continuous")
MOVING = (*TURNING, "prismatic")
FREE = ("floating", "planar")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MAX_LINKS = 1000  # Pinocchio calls itself for each link below another
_MAX_NAME = 200  # characters


@dataclass(frozen=True)
class Mimic:
    """A joint's ``<mimic>``: its position is ``multiplier * master + offset``."""

    master: str
    multiplier: float
    offset: float


@dataclass(frozen=True)
class UrdfJoint:
    """A joint element; limits are None where the URDF gives none.

    Positions are in rad, or in m where ``kind`` is "prismatic"; velocity per second; effort in N m or N.
    """

    name: str
    kind: str
    parent: str
    child: str
    mimic: Mimic | None
    lower: float | None
    upper: float | None
    velocity: float | None
    effort: float | None


@dataclass(frozen=True)
class UrdfChain:
    """A URDF's tree of which one serial chain of joints moves, with links fixed to it, or locked, anywhere."""

    file: str
    root: str
    joints: tuple[UrdfJoint, ...]  #: the moving joints, base to tip, without the locked ones
    all_joints: tuple[UrdfJoint, ...]
    #: moving joint of the file -> position (rad or m) at which it is fixed, mimicking joints included
    locked: Mapping[str, float]
    #: locked joint -> the joint given as locked that its position is an affine function of (itself, if it mimics none),
    #: and that function's slope
    follows: Mapping[str, tuple[str, float]]
    #: link name -> index of the moving joint that carries it, -1 for the root and what is fixed to it
    link_joint: Mapping[str, int]
    link_parent: Mapping[str, str]  #: link name -> link that it hangs on (the root has none)
    masses: Mapping[str, float]  #: link name -> mass, kg; 0 without inertial element
    #: link name -> kinds of collision geometry ("box", "cylinder", "sphere", "mesh", ...)
    collisions: Mapping[str, tuple[str, ...]]
    xml: ET.Element

    @property
    def joined(self) -> tuple[tuple[str, str], ...]:
        """Parent and child link of each moving joint, base to tip."""
        return tuple((joint.parent, joint.child) for joint in self.joints)

    def descendants(self, link: str) -> set[str]:
        """The link and all links that hang on it."""
        found = {link}
        while True:
            more = {child for child, parent in self.link_parent.items() if parent in found} - found
            if not more:
                return found
            found |= more

    def text_for_pinocchio(
        self, without_collision: Collection[str], mounting: tuple[Sequence[float], Sequence[float]] | None = None
    ) -> str:
        """The tree reduced to links and joints, without visuals, meshes, and the collision geometry of some links.

        Moving joints, locked ones too, become plain revolute or prismatic ones with stand-in limits, so that
        ``nq == nv``; limits are taken from the settings, never from Pinocchio's model.

        ``mounting``: (x, y, z) in m and (roll, pitch, yaw) in rad of the root link in the world; None: its frame is it.
        """
        robot = ET.Element("robot", {"name": self.xml.get("name", "robot")})
        if mounting is not None:
            world = "world"
            while world in self.link_joint:
                world += "_"
            ET.SubElement(robot, "link", {"name": world})
            joint = ET.SubElement(robot, "joint", {"name": f"{world} {self.root}", "type": "fixed"})
            ET.SubElement(joint, "parent", {"link": world})
            ET.SubElement(joint, "child", {"link": self.root})
            xyz, rpy = (" ".join(repr(float(x)) for x in part) for part in mounting)
            ET.SubElement(joint, "origin", {"xyz": xyz, "rpy": rpy})
        for element in self.xml:
            if element.tag not in ("link", "joint"):
                continue
            kept = copy.deepcopy(element)
            if kept.tag == "link":
                for child in list(kept):
                    if child.tag == "visual" or (
                        child.tag == "collision"
                        and (kept.get("name") in without_collision or child.find("geometry/mesh") is not None)
                    ):
                        kept.remove(child)
            elif kept.get("type") in FREE:
                kept.set("type", "fixed")
            elif kept.get("type") in MOVING:
                kept.set("type", "revolute" if kept.get("type") in TURNING else "prismatic")
                for child in list(kept):
                    if child.tag not in ("parent", "child", "origin", "axis"):
                        kept.remove(child)
                ET.SubElement(kept, "limit", {"lower": "-10", "upper": "10", "effort": "1", "velocity": "1"})
            robot.append(kept)
        return ET.tostring(robot, encoding="unicode")


class _Reader:
    """Checks one parsed file; every message starts with its name."""

    def __init__(self, file: str, xml: ET.Element) -> None:
        self.file = file
        self.xml = xml

    def error(self, message: str) -> ModelError:
        return ModelError(f"{self.file}: {message}")

    def numbers(self, element: ET.Element | None, attribute: str, count: int, what: str) -> list[float] | None:
        """The numbers of an attribute, None if element or attribute is missing."""
        text = None if element is None else element.get(attribute)
        if element is None or text is None:
            return None
        # Of Python's numbers only those that every parser of XML knows: no `1_0`, no digits of other scripts.
        parts = text.split() if text.isascii() else []
        values = [float(part) for part in parts if _NUMBER.fullmatch(part)]
        if len(values) != count or len(parts) != count or not all(map(math.isfinite, values)):
            noun = "a finite number" if count == 1 else f"{count} finite numbers"
            raise self.error(f"{what}: {attribute}={short(text, 120)}: expected {noun}")
        element.set(attribute, " ".join(map(repr, values)))  # so that Pinocchio reads what was checked
        return values

    def number(self, element: ET.Element | None, attribute: str, what: str) -> float | None:
        values = self.numbers(element, attribute, 1, what)
        return None if values is None else values[0]

    def named(self, tag: str) -> dict[str, ET.Element]:
        found: dict[str, ET.Element] = {}
        for element in self.xml.findall(tag):
            name = element.get("name")
            if not name:
                raise self.error(f"a {tag} without a name: expected every {tag} to have one")
            if len(name) > _MAX_NAME or not name.isprintable():
                raise self.error(f"{tag} {short(name, 80)}: expected a name of at most {_MAX_NAME} visible characters")
            if len(found) >= _MAX_LINKS:
                raise self.error(f"more than {_MAX_LINKS} {tag}s: expected fewer")
            if name in found:
                raise self.error(f"{tag} {name!r} is defined twice: expected unique names")
            found[name] = element
        return found

    def check_origin(self, element: ET.Element, what: str) -> None:
        origin = element.find("origin")
        self.numbers(origin, "xyz", 3, f"{what}, origin")
        self.numbers(origin, "rpy", 3, f"{what}, origin")

    def mass(self, name: str, link: ET.Element) -> float:
        """Mass of a link, after checking all numbers of its inertial element."""
        inertial = link.find("inertial")
        if inertial is None:
            return 0.0
        what = f"link {name!r}"
        self.check_origin(inertial, what)
        mass = self.number(inertial.find("mass"), "value", f"{what}, mass")
        if mass is None or mass < 0.0:
            raise self.error(f"{what}: mass {'missing' if mass is None else mass}: expected a mass >= 0 kg")
        inertia = inertial.find("inertia")
        for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"):
            value = self.number(inertia, key, f"{what}, inertia")
            if value is None:
                raise self.error(f"{what}: inertia {key} is missing: expected all six of ixx ixy ixz iyy iyz izz")
            if value < 0.0 and key in ("ixx", "iyy", "izz"):
                raise self.error(f"{what}: inertia {key} = {value}: expected a moment of inertia >= 0 kg m^2")
        return mass

    def collision_kinds(self, name: str, link: ET.Element) -> tuple[str, ...]:
        kinds = []
        for collision in link.findall("collision"):
            what = f"link {name!r}, collision"
            self.check_origin(collision, what)
            shapes = collision.findall("geometry/*")
            if len(shapes) != 1:
                raise self.error(f"{what}: {len(shapes)} shapes in a geometry element: expected exactly one")
            shape = shapes[0]
            needed = {"box": {"size": 3}, "sphere": {"radius": 1}, "cylinder": {"radius": 1, "length": 1}}
            for attribute, count in needed.get(shape.tag, {}).items():
                values = self.numbers(shape, attribute, count, f"{what} {shape.tag}")
                if values is None or min(values) <= 0.0:
                    raise self.error(
                        f"{what} {shape.tag}: {attribute}={shape.get(attribute)!r}: expected lengths > 0 m"
                    )
            kinds.append(shape.tag)
        return tuple(kinds)

    def joint(self, name: str, element: ET.Element, links: Collection[str]) -> UrdfJoint:
        what = f"joint {name!r}"
        ends = []
        for tag in ("parent", "child"):
            end = element.find(tag)
            link = None if end is None else end.get("link")
            if link not in links:
                raise self.error(f"{what}: {tag} link {link!r} does not exist: expected one of the file's links")
            ends.append(link)
        kind = element.get("type", "")
        if kind != "fixed" and kind not in (*MOVING, *FREE):
            expected = "revolute, continuous, prismatic or fixed, or before the arm floating or planar"
            raise self.error(f"{what} has type {kind!r}: expected {expected}")
        self.check_origin(element, what)
        mimic = None
        if kind in MOVING:
            mimic = self.mimic(what, element)
            axis = self.numbers(element.find("axis"), "xyz", 3, f"{what}, axis")
            if axis is not None and math.hypot(*axis) < 1e-9:
                raise self.error(f"{what}: axis {axis}: expected a vector that is not zero")
        limit = element.find("limit")
        keys = ("lower", "upper", "velocity", "effort")
        lower, upper, velocity, effort = (self.number(limit, key, f"{what}, limit") for key in keys)
        return UrdfJoint(name, kind, str(ends[0]), str(ends[1]), mimic, lower, upper, velocity, effort)

    def mimic(self, what: str, element: ET.Element) -> Mimic | None:
        """The joint's <mimic>; whether its master exists is checked by :meth:`locked_positions`."""
        found = element.find("mimic")
        if found is None:
            return None
        master = found.get("joint")
        if not master:
            raise self.error(f"{what}, mimic: joint={master!r}: expected the name of a joint")
        multiplier, offset = (self.number(found, key, f"{what}, mimic") for key in ("multiplier", "offset"))
        return Mimic(master, 1.0 if multiplier is None else multiplier, 0.0 if offset is None else offset)

    def locked_positions(
        self, moving: Mapping[str, UrdfJoint], locked: Mapping[str, float], config: str
    ) -> tuple[dict[str, float], dict[str, tuple[str, float]]]:
        """Position of every joint that does not move: those given, and the joints that mimic them, at any remove.

        And which of those given each follows, and how fast.
        """
        positions: dict[str, float] = {}
        follows: dict[str, tuple[str, float]] = {}
        for name, value in locked.items():
            if name not in moving:
                expected = f"a moving joint of {self.file}: {', '.join(moving)}"
                raise ConfigError(config, f"locked.{name}", value, expected)
            mimic = moving[name].mimic
            if mimic is not None:
                expected = f"only joints that mimic no other: this one follows {mimic.master!r}, lock that"
                raise ConfigError(config, f"locked.{name}", value, expected)
            _check_within_limits(moving[name], value, config)
            positions[name], follows[name] = float(value), (name, 1.0)
        followers = {name: joint.mimic for name, joint in moving.items() if joint.mimic is not None}
        while followers:
            ready = [name for name, mimic in followers.items() if mimic.master in positions]
            if not ready:
                name, mimic = next(iter(followers.items()))
                why = "which is not locked" if mimic.master in moving else "which is no moving joint"
                raise self.error(
                    f"joint {name!r} mimics {mimic.master!r}, {why}: expected the joints of the arm to be independent, "
                    f"and all others, like {mimic.master!r}, to have a position under `locked` in {config}"
                )
            for name in ready:
                mimic = followers.pop(name)
                positions[name] = mimic.multiplier * positions[mimic.master] + mimic.offset
                leader, slope = follows[mimic.master]
                follows[name] = leader, mimic.multiplier * slope
        return positions, follows


def _check_within_limits(joint: UrdfJoint, value: float, config: str) -> None:
    """Refuse a locked position that the joint cannot have."""
    if joint.kind == "continuous" or joint.lower is None or joint.upper is None:
        return
    if not joint.lower <= value <= joint.upper:
        unit = "m" if joint.kind == "prismatic" else "rad"
        expected = f"a position within the joint's limits [{joint.lower:g}, {joint.upper:g}] {unit}"
        raise ConfigError(config, f"locked.{joint.name}", value, expected)


def _parse(file: str, path: Path) -> ET.Element:
    xml = read_xml(path, "a URDF file")
    if xml.tag != "robot":
        raise ModelError(f"{file}: root element <{xml.tag[:60]}>: expected <robot>")
    if any("xacro" in str(element.tag) for element in xml.iter()):
        raise ModelError(f"{file}: contains xacro macros: expected plain URDF; expand it with `xacro` first")
    for key, value in ((key, value) for element in xml.iter() for key, value in element.attrib.items()):
        # Any text may be a name; who hands names on to xacro looks at them itself (gazebo.launch.py).
        if key not in ("name", "link", "joint") and ("${" in value or "$(" in value):
            raise ModelError(
                f"{file}: {value[:60]!r} is an expression of xacro: expected plain URDF; expand it with `xacro` first"
            )
    return xml


class UrdfTree(NamedTuple):
    """Links and joints of a file, each checked by itself, and one root; loops are not excluded."""

    reader: _Reader  #: composes errors; has the XML
    masses: dict[str, float]  #: link name -> mass, kg
    collisions: dict[str, tuple[str, ...]]  #: link name -> kinds of collision geometry
    joints: list[UrdfJoint]
    above: dict[str, UrdfJoint]  #: link name -> joint that it hangs on
    root: str


def read_tree(path: str | Path) -> UrdfTree:
    """Read a URDF file of any number of moving joints.

    Raises:
        ModelError: unreadable, broken, malformed, or not one root.
    """
    file = str(path)
    reader = _Reader(file, _parse(file, Path(path)))
    link_elements = reader.named("link")
    masses = {name: reader.mass(name, element) for name, element in link_elements.items()}
    collisions = {name: reader.collision_kinds(name, element) for name, element in link_elements.items()}
    joints = [reader.joint(name, element, link_elements) for name, element in reader.named("joint").items()]

    above: dict[str, UrdfJoint] = {}
    for joint in joints:
        if joint.child in above:
            raise reader.error(
                f"link {joint.child!r} hangs on joints {above[joint.child].name!r} and {joint.name!r}: expected one"
            )
        above[joint.child] = joint
    roots = [name for name in link_elements if name not in above]
    if len(roots) != 1:
        raise reader.error(f"root links {short(roots)}: expected exactly one link that hangs on no joint")
    return UrdfTree(reader, masses, collisions, joints, above, roots[0])


def joints_between(tree: UrdfTree, base_link: str | None, tip_link: str, config: str = "(settings)") -> list[str]:
    """Names of the moving joints on the way from one link to another, base to tip.

    ``base_link``: where the arm begins; None: at the root; ``tip_link``: where it ends.

    Raises:
        ConfigError: the URDF has no such link, or the tip does not hang on the base.
    """
    for key, link in (("base_link", base_link), ("tip_link", tip_link)):
        if link is not None and link not in tree.masses:
            raise ConfigError(config, key, link, f"a link of {tree.reader.file}")
    found, link, passed = [], tip_link, {tip_link}
    while link != base_link and link in tree.above:
        joint = tree.above[link]
        link = joint.parent
        if link in passed:
            raise tree.reader.error(f"link {link!r} hangs on itself: expected a tree with root {tree.root!r}")
        passed.add(link)
        if joint.kind in MOVING:
            found.append(joint.name)
    if base_link not in (None, link):
        way = f"a link that hangs on base_link {base_link!r}; on the way to the root are {short(sorted(passed))}"
        raise ConfigError(config, "tip_link", tip_link, way)
    return found[::-1]


def read_urdf(
    path: str | Path,
    locked: Mapping[str, float] | None = None,
    config: str = "(settings)",
    base_link: str | None = None,
    tip_link: str | None = None,
) -> UrdfChain:
    """Read the URDF of a robot, any tree, of which one chain of revolute, continuous and prismatic joints is the arm.

    Floating and planar joints that no moving joint carries are taken at their origin, as what a robot stands on.

    Args:
        locked: moving joint -> position (rad or m) at which it is fixed; joints that mimic it are fixed, too.
        config: the file that says what is locked, for messages.
        base_link: link that the arm begins at; None: the root.
        tip_link: link that the arm ends at: only joints between the two may move, and all others must be locked.
            None: the joints that are not locked are the arm's.

    Raises:
        ConfigError: a locked joint that the URDF does not have, that follows another one, or outside its limits; a
            joint beside ``tip_link``'s chain that is not locked; no such links.
        ModelError: unreadable file, broken XML, numbers that are missing, not finite or impossible, a joint of
            another type, a joint that mimics one that is not locked, two moving joints on one parent, a loop, or no
            moving joint; names the element.
    """
    file = str(path)
    tree = read_tree(path)
    reader, masses, collisions, joints, _, root = tree
    moving_joints = {j.name: j for j in joints if j.kind in MOVING}
    if tip_link is not None:
        ours = joints_between(tree, base_link, tip_link, config)
        free = [
            name
            for name, joint in moving_joints.items()
            if name not in ours and name not in (locked or {}) and joint.mimic is None
        ]
        if free:
            expected = f"a position for each joint that is not between base_link and tip_link: {', '.join(free)}"
            raise ConfigError(config, f"locked.{free[0]}", "missing", expected)
    positions, follows = reader.locked_positions(moving_joints, locked or {}, config)
    below: dict[str, list[UrdfJoint]] = {}
    for joint in joints:
        below.setdefault(joint.parent, []).append(joint)
    link_joint = {root: -1}
    moving: list[UrdfJoint] = []
    todo = [root]
    while todo:  # parents before children, so a moving joint is met after all that come before it
        link = todo.pop(0)
        for joint in below.get(link, []):
            if joint.kind in MOVING and joint.name not in positions:
                if link_joint[link] != len(moving) - 1:
                    raise reader.error(
                        f"joint {joint.name!r} branches off beside joint {moving[link_joint[link] + 1].name!r}: "
                        "expected a serial chain; list the joints of other branches under `locked`"
                    )
                moving.append(joint)
                link_joint[joint.child] = len(moving) - 1
            elif joint.kind in FREE and link_joint[link] >= 0:
                carrier = moving[link_joint[link]].name
                raise reader.error(
                    f"joint {joint.name!r} of type {joint.kind!r} is moved by joint {carrier!r}: expected floating and "
                    "planar joints only in what the robot stands on"
                )
            else:
                link_joint[joint.child] = link_joint[link]
            todo.append(joint.child)
    missing = [name for name in masses if name not in link_joint]
    if missing:
        raise reader.error(f"links {short(missing)} hang on each other in a loop: expected a tree with root {root!r}")
    if not moving:
        free = [f"{joint.name!r} ({joint.kind})" for joint in joints if joint.kind in FREE]
        stand = f" ({', '.join(free)[:200]} taken at the origin)" if free else ""
        raise reader.error(f"no joint moves{stand}: expected a serial arm of revolute, continuous or prismatic joints")
    parents = {joint.child: joint.parent for joint in joints}
    return UrdfChain(
        file,
        root,
        tuple(moving),
        tuple(joints),
        positions,
        follows,
        link_joint,
        parents,
        masses,
        collisions,
        reader.xml,
    )
