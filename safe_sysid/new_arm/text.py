"""A robot file's text: the numbers of a draft, with what each means and where it comes from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from safe_sysid.robot.config import KEYS
from safe_sysid.robot.files.yaml_file import flow_text

__all__ = ["configuration_text"]

_WIDTH, _COLUMN = 120, 38  # of lines, and where short comments begin
_MARK = "to be measured"


def _lines(comment: str, indent: str = "") -> list[str]:
    """Comment lines; line breaks of the text stay, long lines are broken."""
    lines = []
    for line in comment.splitlines():
        hanging = "  " if line.startswith("- ") else ""
        kept = line.replace(_MARK, _MARK.replace(" ", "\0"))  # a mark is looked for line by line
        lines += textwrap.wrap(kept, _WIDTH - len(indent) - 2, subsequent_indent=hanging) or [""]
    return [f"{indent}# {line}".rstrip().replace("\0", " ") for line in lines]


#: What this file says of a key besides its declaration.
_REMARKS = {
    "gravity": "another way: `mounting`",
    "friction_transition_velocity": _MARK,
    "uncertainty.relative": f"of the URDF's masses and inertias too: {_MARK}",
    "measurement.position_error": f"zero in simulation only: {_MARK}",
    "measurement.velocity_error": f"zero in simulation only: {_MARK}",
    "identification.acceleration_bound": f"of the log's motion: {_MARK}",
    "controller.torque_rate": f"the drives' own limit: {_MARK}",
}


class _Text:
    """Lines of a YAML file, in the order that they are read; what keys mean is taken from their declarations."""

    def __init__(self, data: Mapping[str, Any], sliding: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.data = data
        self._sliding = [name in sliding for name in data["joints"]]

    def say(self, *sentences: str, indent: str = "") -> None:
        """A comment on lines of its own."""
        self.lines += _lines(" ".join(sentences), indent)

    def gap(self) -> None:
        """An empty line."""
        self.lines.append("")

    def put(self, path: str) -> None:
        """A key with its value, its unit and what it is: behind it, or before it where that is too long."""
        value: Any = self.data
        for part in path.split("."):
            value = value[part]
        indent, declared = "  " * path.count("."), KEYS[path]
        each = "per joint or one for all" if declared.type == "per_joint" else ""
        words = (declared.unit_for(self._sliding), declared.description, each, _REMARKS.get(path, ""))
        note = "; ".join(word for word in words if word)
        line = f"{indent}{flow_text(path.rpartition('.')[2])}: {flow_text(value)}".ljust(_COLUMN)
        if len(line) + len(note) + 3 > _WIDTH:
            self.say(note, indent=indent)
            note = ""
        self.lines.append(f"{line} # {note}" if note else line.rstrip())

    def section(self, path: str, *sentences: str) -> None:
        """A section with what it is, and all that the data have in it."""
        indent, section = "  " * path.count("."), self.data
        for part in path.split("."):
            section = section[part]
        self.say(KEYS[path].sentence, *sentences, indent=indent)
        self.lines.append(f"{indent}{path.rpartition('.')[2]}:")
        for key in section:
            below = f"{path}.{key}"
            if KEYS[below].type == "section" and below != "payload.envelope":
                self.section(below)
            else:
                self.put(below)

    def text(self) -> str:
        """The file."""
        return "\n".join(self.lines) + "\n"


def configuration_text(
    data: Mapping[str, Any], told: Mapping[str, str], remarks: Sequence[str], sliding: Sequence[str] = ()
) -> str:
    """The file's text.

    Args:
        told: sentences about this arm, by topic: ``source``, ``drives``, ``payload``, ``inertia``, ``gains``,
            ``geometry``, ``home``.
    """
    t = _Text(data, sliding)
    _head(t, told, remarks)
    _arm(t, told)
    t.section("payload", "Before anything is measured.", told["payload"])
    for key, example in (
        ("hand_opening", "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"),
        ("hand_joints", "{finger_joint: [0.0, 0.04]}"),
    ):
        t.say(KEYS[f"payload.{key}"].sentence, indent="  ")
        t.lines.append(f"  # {key}: {example}")
    t.gap()
    for section, sentence in (
        ("measurement", f"Errors of the sensors: {_MARK}, or from the data sheet."),
        ("actuator", f"Errors of the drives: {_MARK}."),
        (
            "timing",
            f"Light rotors forgive little delay. `safe-sysid demo --real-time` prints what this machine does: {_MARK}.",
        ),
        ("identification", ""),
        ("controller", f"{told['gains']} {told['inertia']}"),
        ("planner", ""),
    ):
        t.section(section, *filter(None, [sentence]))
        t.gap()
    _rest(t, told)
    return t.text()


def _head(t: _Text, told: Mapping[str, str], remarks: Sequence[str]) -> None:
    t.say(
        f"{t.data['name']}, {told['source']}\n\n"
        "SI units and radians throughout; sliding joints in m and N instead of rad and N m. A value marked "
        '"per joint or one for all" is a number, or a list with one entry for each joint, base to tip. Unknown keys '
        "are errors; docs/refer/parameters.md has every key. What is declared here as a bound is assumed by every "
        "guarantee.\n\n"
        "The URDF says nothing of friction, rotor inertia, measurement errors and timing. Such values carry a mark in "
        "their comments: `safe-sysid config check` repeats it as a warning until it is taken away. "
        "docs/start/tutorial.md says how to measure them."
    )
    if remarks:
        t.say("\nGuessed, please check:")
        for remark in remarks:
            t.say(f"- {remark}")
    t.gap()
    for key in ("name", "urdf", "base_link", "tip_link", "tool_frame", "gravity", "drives"):
        if key in t.data:
            t.put(key)
    t.gap()


def _arm(t: _Text, told: Mapping[str, str]) -> None:
    t.say(
        "Per joint: position limits (or `continuous`), velocity limit and torque limit of the URDF, and the friction "
        "model tau_f = coulomb sign(qd) + viscous qd + rotor_inertia qdd + offset, rotor inertia at the joint.",
        told["drives"],
    )
    t.say(f"rotor_inertia, viscous, coulomb, offset: {_MARK} (docs/start/tutorial.md).")
    t.lines.append("joints:")
    for name, joint in t.data["joints"].items():
        t.lines.append(f"  {flow_text(name)}: {flow_text(joint)}")
    t.gap()
    if "locked" in t.data:
        t.say(KEYS["locked"].sentence)
        t.lines.append(f"locked: {flow_text(t.data['locked'])}")
        t.gap()
    t.put("friction_transition_velocity")
    t.gap()
    t.section(
        "uncertainty",
        "Of the parameter vector (m, m c, inertia about the joint frame's origin, Fc, Fv, Ia, beta): x % of zero is "
        "zero. Coulomb friction, viscous friction and rotor inertia are never below zero.",
    )
    t.gap()


def _rest(t: _Text, told: Mapping[str, str]) -> None:
    t.say(KEYS["driver"].sentence, f"Its documentation says: {KEYS['driver.command_timeout_s'].description}.")
    t.lines += ["# driver:", "#   command_timeout_s: 0.02", ""]
    t.say(told["geometry"])
    if t.data["geometry"]:
        t.lines.append("geometry:")
        for link, hulls in t.data["geometry"].items():
            t.lines.append(f"  {flow_text(link)}:" + ("" if hulls else " []"))
            for hull in hulls:
                t.lines += _hull_lines(hull)
    else:
        t.lines.append("geometry: {}")
    t.gap()
    t.say(
        KEYS["allowed_pairs"].sentence,
        "Never checked are pairs that one joint moves, and the two links that a joint joins if they overlap in every "
        "pose. Proposed here are pairs that are less than 2 cm apart in every pose: shapes that contain them may "
        "overlap where they do not. Check them; others by --allow-pair A,B or --srdf FILE.",
    )
    if t.data["allowed_pairs"]:
        t.lines.append("allowed_pairs:")
        t.lines += [f"  - {flow_text(pair)}" for pair in t.data["allowed_pairs"]]
    else:
        t.lines.append("allowed_pairs: []")
    t.gap()
    t.say(told["home"])
    t.put("home")


def _hull_lines(hull: Mapping[str, Any]) -> list[str]:
    """A hull, points in lines of at most 120 characters."""
    first, *others = flow_text(dict(hull), _WIDTH - 6).splitlines()
    return [f"    - {first}", *(f"      {line}" for line in others)]
