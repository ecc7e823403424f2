"""Facts in a URDF: which joints belong to the arm, which are locked, where the tool is."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.robot.files.packages import is_package_uri, package_file
from safe_sysid.robot.files.urdf import UrdfChain, joints_between, read_tree, read_urdf
from safe_sysid.robot.files.xml_file import read_xml
from safe_sysid.robot.suspicious import FINGERS

__all__ = ["ArmFacts", "look_at"]

_MOVING = ("revolute", "continuous", "prismatic")
_MAX_JOINTS = 1000
#: Names that flanges have, the most telling first: REP-style names, then those of common descriptions.
_FLANGES = (
    r"tool0",
    r"(.*_)?flange",
    r"(.*_)?tool(_frame|_link)?",
    r"(.*_)?(end_effector|ee)(_link|_frame)?",
    r"(.*_)?(gripper|grasp|tcp)_frame(_link)?",
)


@dataclass(frozen=True)
class ArmFacts:
    """The arm that a URDF describes."""

    urdf: Path
    chain: UrdfChain
    locked: Mapping[str, float]  #: joints that the configuration must lock, without those that mimic them; rad or m
    tool_frame: str
    base_link: str
    tip_link: str | None = None  #: that it ends at; None: its joints are those that are not locked
    remarks: tuple[str, ...] = ()


def look_at(
    urdf: str | Path,
    tool_frame: str | None = None,
    joints: Sequence[str] | None = None,
    locked: Mapping[str, float] | None = None,
    package_dirs: Sequence[str | Path] = (),
    base_link: str | None = None,
    tip_link: str | None = None,
) -> ArmFacts:
    """Read a URDF; what is not given is guessed, and said.

    Args:
        urdf: path, or ``package://NAME/PATH``.
        tool_frame: link that payloads are gripped at; None: guessed by its name.
        joints: of the arm, all others are locked; None: the longest chain.
        locked: position of joints that are not the arm's, rad or m; None or incomplete: the nearest to 0.
        base_link: link that the arm begins at, if ``tip_link`` is given; None: the root.
        tip_link: link that the arm ends at: the joints between the two are its own, in place of ``joints``.

    Raises:
        ConfigError: names that the URDF does not have.
        ModelError: no such file, or not a serial arm.
    """
    path = package_file(str(urdf), Path.cwd() / "x", package_dirs) if is_package_uri(str(urdf)) else Path(urdf)
    remarks: list[str] = []
    every, moving, rests = _joints(path)
    if tip_link is not None:
        if joints is not None:
            raise ConfigError(str(path), "joints", list(joints), "either these or a tip_link")
        joints = joints_between(read_tree(path), base_link, tip_link, str(path))
    elif base_link is not None:
        raise ConfigError(str(path), "base_link", base_link, "a tip_link with it")
    ours = _own_joints(str(path), every, moving, joints, locked or {})
    fixed = dict(locked or {})
    for name in moving:
        if name not in ours and name not in fixed and not _master(moving[name]):
            fixed[name] = rests[name]
            remarks.append(f"locked.{name}: {rests[name]:g} is a guess: the joint is not one of the arm's chain")
    chain = read_urdf(path, fixed, "(new configuration)")
    tip = len(chain.joints) - 1
    carried = [link for link, joint in chain.link_joint.items() if joint == tip]
    if tool_frame is None:
        tool_frame = _guess_flange(chain, carried)
        others = ", ".join(link for link in carried if link != tool_frame)
        remarks.append(f"tool_frame: {tool_frame} is a guess" + (f" (others: {others})" if others else ""))
    elif tool_frame not in carried:
        raise ConfigError(
            str(path),
            "tool_frame",
            tool_frame,
            f"a link that the last joint {chain.joints[tip].name!r} moves: {', '.join(carried)}",
        )
    return ArmFacts(path, chain, fixed, tool_frame, base_link or chain.root, tip_link, tuple(remarks))


def _joints(path: Path) -> tuple[dict[str, ET.Element], dict[str, ET.Element], dict[str, float]]:
    """All joints and the moving ones by name, in the file's order, and each one's position nearest to 0."""
    xml = read_xml(path, "a URDF file")
    every = {joint.get("name", ""): joint for joint in xml.findall("joint")}
    if len(every) > _MAX_JOINTS:
        raise ModelError(f"{path}: {len(every)} joints: expected at most {_MAX_JOINTS}")
    moving = {name: joint for name, joint in every.items() if joint.get("type") in _MOVING}
    rests = {}
    for name, joint in moving.items():
        limit = joint.find("limit")
        rests[name] = 0.0
        if limit is not None and joint.get("type") != "continuous":
            try:
                low, high = (float(limit.get(key, "0")) for key in ("lower", "upper"))
            except ValueError:
                continue  # read_urdf says what is wrong
            if low <= high:
                rests[name] = min(max(0.0, low), high)
    return every, moving, rests


def _own_joints(
    file: str,
    every: Mapping[str, ET.Element],
    moving: Mapping[str, ET.Element],
    joints: Sequence[str] | None,
    locked: Mapping[str, float],
) -> set[str]:
    """Those of the arm: as given, or the longest chain of joints that are neither locked nor mimic others."""
    if joints is not None:
        for name in joints:
            if name not in moving:
                raise ConfigError(file, "joints", name, f"moving joints of the file: {', '.join(moving)}")
            if name in locked:
                raise ConfigError(file, f"locked.{name}", locked[name], "a joint that is not one of `joints`")
        return set(joints)
    above = {_link(joint, "child"): (name, _link(joint, "parent")) for name, joint in every.items()}
    chains = []
    for leaf in above:
        chain, link, seen = [], leaf, set()
        while link in above and link not in seen:
            seen.add(link)
            name, link = above[link]
            if name in moving and name not in locked and not _master(moving[name]):
                chain.append(name)
        chains.append(chain)
    # A gripper's joint is none of the arm's, whatever hangs on it.
    chains = [
        chain[next((k for k, name in enumerate(chain) if not FINGERS.search(name)), len(chain)) :] for chain in chains
    ]
    # Of two that are as long, the one with more turning joints: a hand's fingers mostly slide.
    best = max(chains, key=lambda c: (len(c), -sum(moving[n].get("type") == "prismatic" for n in c)), default=[])
    # Fingers branch, or are followed by others: neither is the arm's.
    others = [name for name in moving if name not in best and name not in locked]
    masters = {master for joint in moving.values() if (master := _master(joint))}
    while best and (best[0] in masters or any(_hangs_beside(best[0], other, every, above) for other in others)):
        others.append(best.pop(0))
    return set(best)


def _hangs_beside(name: str, other: str, every: Mapping[str, ET.Element], above: Mapping[str, tuple[str, str]]) -> bool:
    """Whether two joints hang on the same link or on links fixed to each other."""

    def carrier(joint: str) -> str:
        link, seen = _link(every[joint], "parent"), set()
        while link in above and link not in seen and every[above[link][0]].get("type") == "fixed":
            seen.add(link)  # a loop of joints: read_urdf says so
            link = above[link][1]
        return link

    return carrier(name) == carrier(other)


def _master(joint: ET.Element) -> str:
    """The joint that this one mimics, "" if none."""
    mimic = joint.find("mimic")
    return "" if mimic is None else mimic.get("joint", "")


def _link(joint: ET.Element, tag: str) -> str:
    end = joint.find(tag)
    return "" if end is None else end.get("link", "")


def _guess_flange(chain: UrdfChain, carried: Sequence[str]) -> str:
    """By its name; else the last of the links without mass before a hand; else the link that hangs deepest."""
    for pattern in _FLANGES:
        for link in carried:
            if re.fullmatch(pattern, link):
                return link
    first = chain.joints[-1].child
    bare = [
        link
        for link in carried
        if link != first
        and chain.link_parent[link] == first
        and chain.masses[link] == 0.0
        and not chain.collisions[link]
    ]
    return bare[0] if bare else first
