"""A robot file's text: the numbers of a draft, with what each means and where it comes from."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["configuration_text"]

_WIDTH = 120
_MARK = "to be measured"
_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~", ""}


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        # YAML 1.1 takes 1e-05 for a word.
        mantissa, e, exponent = text.partition("e")
        if e:
            return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+d}"
        return text if "." in text else f"{text}.0"
    if isinstance(value, int):
        return str(value)
    text = str(value)
    plain = set(text) <= _PLAIN and text.lower() not in _WORDS and text[0].isalpha()
    return text if plain else json.dumps(text)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return _scalar(value)


def _lines(comment: str, indent: str = "") -> list[str]:
    """Comment lines; line breaks of the text stay, long lines are broken."""
    lines = []
    for line in comment.splitlines():
        hanging = "  " if line.startswith("- ") else ""
        kept = line.replace(_MARK, _MARK.replace(" ", "\0"))  # a mark is looked for line by line
        lines += textwrap.wrap(kept, _WIDTH - len(indent) - 2, subsequent_indent=hanging) or [""]
    return [f"{indent}# {line}".rstrip().replace("\0", " ") for line in lines]


class _Text:
    """Lines of a YAML file, in the order that they are read."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self._data = data

    def say(self, comment: str, indent: str = "") -> None:
        """A comment on lines of its own."""
        self.lines += _lines(comment, indent)

    def gap(self) -> None:
        """An empty line."""
        self.lines.append("")

    def put(self, key: str, note: str = "", under: str = "", width: int = 38) -> None:
        """A key with its value, which may be a section in one line, and a note behind it."""
        section = self._data[under] if under else self._data
        indent = "  " if under else ""
        line = f"{indent}{_scalar(key)}: {_flow(section[key])}"
        self.lines.append(f"{line.ljust(width)} # {note}" if note else line)

    def text(self) -> str:
        """The file."""
        return "\n".join(self.lines) + "\n"


def configuration_text(data: Mapping[str, Any], told: Mapping[str, str], remarks: Sequence[str]) -> str:
    """The file's text.

    Args:
        data: its content.
        told: sentences about this arm, by topic: ``source``, ``drives``, ``payload``, ``inertia``, ``gains``,
            ``geometry``, ``home``.
        remarks: what was guessed.
    """
    t = _Text(data)
    _head(t, data, told, remarks)
    _arm(t, data, told)
    _payload(t, told)
    _measurement(t)
    _identification(t)
    _controller(t, data, told)
    _rest(t, data, told)
    return t.text()


def _head(t: _Text, data: Mapping[str, Any], told: Mapping[str, str], remarks: Sequence[str]) -> None:
    t.say(
        f"{data['name']}, {told['source']}\n\n"
        "SI units and radians throughout; sliding joints in m and N instead of rad and N m. A value marked "
        '"per joint or '
        'one for all" is a number, or a list with one entry for each joint, base to tip. Unknown keys are errors; '
        "docs/parameters.md has every key. What is declared here as a bound is assumed by every guarantee.\n\n"
        "The URDF says nothing of friction, rotor inertia, measurement errors and timing. Such values are starting "
        "values, good enough to simulate with, and carry a mark in their comments: `safe-sysid config check` repeats "
        "it as a warning until it is taken away. docs/tutorial.md says how to measure them."
    )
    if remarks:
        t.say("\nGuessed, please check:")
        for remark in remarks:
            t.say(f"- {remark}")
    t.gap()
    t.put("name")
    t.put("urdf", "beside this file, in ../urdf, absolute, or package://NAME/PATH")
    t.put(
        "base_link", "root of the URDF; its frame is the world frame, unless `mounting` says where it stands"
    )
    t.put("tool_frame", "tool flange, z out of the arm; payloads are given in this frame")
    t.put("gravity", "m/s^2, in the world frame; another way: `mounting`")
    t.gap()


def _arm(t: _Text, data: Mapping[str, Any], told: Mapping[str, str]) -> None:
    t.say(
        "Per joint: position limits (rad, or `continuous`), velocity limit (rad/s) and torque limit (N m) "
        "of the URDF, and "
        "the friction model tau_f = coulomb sign(qd) + viscous qd + rotor_inertia qdd + offset  (N m, N m "
        "s/rad, kg m^2 "
        "at the joint, N m). "
        f"{told['drives']}"
    )
    t.say("rotor_inertia, viscous, coulomb, offset: to be measured (docs/tutorial.md).")
    t.lines.append("joints:")
    for name, joint in data["joints"].items():
        t.lines.append(f"  {_scalar(name)}: {_flow(joint)}")
    t.gap()
    if "locked" in data:
        t.say(
            "Joints of the URDF that are not the arm's, as those of a hand: held where they are (rad or m)."
        )
        t.put("locked")
        t.gap()
    t.put(
        "friction_transition_velocity",
        "rad/s; below it Coulomb torque is anything in [-Fc, Fc]; to be measured",
    )
    t.gap()
    t.say(
        "The arm's true parameters lie within `relative` of each entry of the parameter vector (m, m c, "
        "inertia about the "
        "joint frame's origin, Fc, Fv, Ia, beta), plus the floor (x % of zero is zero; of a joint's: per "
        "joint or one for "
        "all). Coulomb friction, viscous friction and rotor inertia are never below zero."
    )
    t.lines.append("uncertainty:")
    t.put("relative", "of the URDF's masses and inertias too: to be measured", "uncertainty")
    t.lines.append("  floor:")
    notes = {
        "mass": "kg",
        "first_moment": "kg m",
        "inertia": "kg m^2",
        "coulomb": "N m; anything from none to twice the value above",
        "viscous": "N m s/rad; the same",
        "rotor_inertia": "kg m^2; with `relative`: 15 %; more costs tracking bound",
        "offset": "N m",
    }
    for key, value in data["uncertainty"]["floor"].items():
        t.lines.append(f"    {key}: {_flow(value)}".ljust(34) + f" # {notes[key]}")
    t.gap()


def _payload(t: _Text, told: Mapping[str, str]) -> None:
    t.say(
        "What the last link, hand and payload together may be, before anything is measured, in the last "
        "joint's frame, "
        "inertia about its origin. Order: m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz (kg, kg m, kg m^2). "
        f"{told['payload']}"
    )
    t.lines.append("payload:")
    t.put("prior_lower", "", "payload")
    t.put("prior_upper", "", "payload")
    t.say("Box in the tool frame that contains every payload.", "  ")
    t.put("envelope", "m", "payload")
    t.say(
        "A hand that opens changes the last link: largest minus smallest of each parameter over all openings.",
        "  ",
    )
    t.lines.append("  # hand_opening: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]")
    t.say(
        "And its shapes: locked joints that open it, with the ends of their travel; {} if its shapes hold all.",
        "  ",
    )
    t.lines.append("  # hand_joints: {finger_joint: [0.0, 0.04]}")
    t.gap()


def _measurement(t: _Text) -> None:
    t.say("Errors of the sensors and drives, and timing: to be measured, or from the data sheet.")
    t.lines.append("measurement:")
    for key, note in (
        ("torque_source", "what `effort` of joint_states is: command, motor (before friction) or link side"),
        ("rate_hz", "of joint_states"),
        ("torque_abs", "N m, a in |tau_m - tau| <= a + b |tau|; per joint or one for all"),
        ("torque_rel", "b; per joint or one for all"),
        ("position_error", "rad, bound; zero in simulation only: to be measured"),
        ("velocity_error", "rad/s, bound; zero in simulation only: to be measured"),
    ):
        t.put(key, note, "measurement")
    t.gap()
    t.say("|applied torque - commanded| <= torque_abs + torque_rel |commanded|: to be measured.")
    t.lines.append("actuator:")
    t.put("torque_abs", "N m; per joint or one for all", "actuator")
    t.put("torque_rel", "per joint or one for all", "actuator")
    t.gap()
    t.say(
        "Light rotors forgive little delay. `safe-sysid demo --real-time` prints what this machine does: "
        "to be measured."
    )
    t.lines.append("timing:")
    t.put("period_s", "nominal control period", "timing")
    t.put(
        "hold_max_s",
        "oldest measurement behind a torque in force; later: covered or counted",
        "timing",
    )
    t.put("delay_max_s", "longest time from measurement to the command acting", "timing")
    t.gap()


def _identification(t: _Text) -> None:
    t.lines.append("identification:")
    t.put("window_s", "length of one momentum equation", "identification")
    t.put("update_s", "time between two updates of the bounds", "identification")
    t.put(
        "acceleration_bound",
        "rad/s^2, |qdd| never exceeds it; a quarter above what the gains allow for",
        "identification",
    )
    t.gap()


def _controller(t: _Text, data: Mapping[str, Any], told: Mapping[str, str]) -> None:
    t.say(
        "Robust control law and the hypotheses of its tracking theorem, which every plan's certificate checks "
        f"(docs/guarantees.md), found by computation. {told['gains']} "
        f"{told['inertia']}"
    )
    t.lines.append("controller:")
    for key, note in (
        ("K_r", "1/s, slope of r = de + K_r e; per joint or one for all"),
        ("kappa", "1/s, decay rate of the tracking error's energy that the damping is chosen for"),
        ("inertia_ratio", "H <= diag(ratio * lower rotor inertia) along plans"),
        ("velocity", "rad/s, |qd| along plans"),
        ("acceleration", "rad/s^2, |desired acceleration| along plans"),
        ("jerk", "rad/s^3, |desired jerk| along plans"),
        ("uncertainty", "sqrt(W/s), S: what the box makes uncertain in the torque, weighted by inertia"),
        ("torque_rate", "N m/s, no command changes faster; the drives' own limit: to be measured"),
    ):
        if key in data["controller"]:
            t.put(key, note, "controller")
    t.gap()


def _rest(t: _Text, data: Mapping[str, Any], told: Mapping[str, str]) -> None:
    t.lines.append("planner:")
    t.put("t_f", "s, duration of one trajectory; its second part is the braking manoeuvre", "planner")
    t.put("t_p", "s, a new plan takes over after this time", "planner")
    t.put("k_range", "rad, how far from its start a trajectory may end; per joint or one for all", "planner")
    t.put("plans", "exciting trajectories of one identification run", "planner")
    t.gap()
    t.say(
        "The driver's own watchdog: seconds without a command until the drives stop the arm by themselves. "
        "Needed in real "
        "time; from the driver's documentation."
    )
    t.lines += ["# driver:", "#   command_timeout_s: 0.02", ""]
    t.say(told["geometry"])
    if data["geometry"]:
        t.lines.append("geometry:")
        for link, hulls in data["geometry"].items():
            t.lines.append(f"  {_scalar(link)}:" + ("" if hulls else " []"))
            for hull in hulls:
                t.lines += _hull_lines(hull)
    else:
        t.lines.append("geometry: {}")
    t.gap()
    t.say(
        "Pairs of bodies that are not checked because their overlap is harmless, besides those that never are (moved "
        "by one joint; overlapping in every pose, of the two links that a joint joins). Proposed here are pairs that "
        "are less than 2 cm apart in every pose: shapes that contain them may overlap where they do not. Check them: "
        "verdicts name them."
    )
    if data["allowed_pairs"]:
        t.lines.append("allowed_pairs:")
        t.lines += [f"  - {_flow(pair)}" for pair in data["allowed_pairs"]]
    else:
        t.lines.append("allowed_pairs: []")
    t.gap()
    t.say(told["home"])
    t.put("home")


def _hull_lines(hull: Mapping[str, Any]) -> list[str]:
    """A hull, points in lines of at most 120 characters."""
    lines, row = [], "    - {points: ["
    for i, point in enumerate(hull["points"]):
        text = _flow(point) + (", " if i + 1 < len(hull["points"]) else "")
        if len(row) + len(text) > 118:
            lines.append(row.rstrip())
            row = " " * 15
        row += text
    tail = f"], radius: {_scalar(hull['radius'])}" + "}"
    if len(row) + len(tail) > 120:
        lines.append(row.rstrip())
        row = " " * 14
    lines.append(row + tail)
    return lines
