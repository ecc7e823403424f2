"""Warnings about a robot's file: values that are allowed but probably not meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from safe_sysid.robot.config import per_joint
from safe_sysid.robot.files.urdf import UrdfChain, read_urdf
from safe_sysid.robot.files.yaml_file import dotted
from safe_sysid.robot.loading import find_urdf
from safe_sysid.robot.model import RobotModel

__all__ = ["FINGERS", "suspicions"]

#: Names of links and joints whose motion changes what the hand is.
FINGERS = re.compile(r"finger|knuckle|gripper|jaw|thumb", re.IGNORECASE)
_MARK = re.compile(r"#.*(?<!`)\bto be measured\b(?!`)", re.IGNORECASE)


def suspicions(model: RobotModel, file: Path) -> list[str]:
    """Doubts about a robot's settings, each a line that names keys."""
    chain = read_urdf(find_urdf(file, model.settings), model.settings.locked, str(file))
    return [
        *_marked(file),
        *_hand(model, chain),
        *_limits(model, chain),
        *_perfect(model),
        *_timing(model),
        *_gears(model),
    ]


def _marked(file: Path) -> Iterator[str]:
    """Values whose comment says that they are not measured yet."""
    text = file.read_text(encoding="utf-8")
    keys = _keys_by_line(text)
    lines = text.splitlines()
    marked = []
    for i, line in enumerate(lines):
        if _MARK.search(line) is None:
            continue
        # A comment on a line of its own speaks of the next key.
        following = (k for k in range(i, len(lines)) if k in keys)
        at = next(following, None)
        if at is not None:
            marked.append(f"{keys[at]} (line {at + 1})")
    if marked:
        yield f"marked as to be measured: {', '.join(dict.fromkeys(marked))}"


def _keys_by_line(text: str) -> dict[int, str]:
    """Line (from 0) to the key that it gives, dotted; the outermost where there are several."""
    found: dict[int, str] = {}

    def look(node: yaml.Node, path: tuple[str, ...]) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            inner = (*path, str(key.value))
            found.setdefault(key.start_mark.line, dotted(inner))
            look(value, inner)

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None:
        look(root, ())
    return found


def _hand(model: RobotModel, chain: UrdfChain) -> Iterator[str]:
    """Fingers that move, and a hand whose opening is said to change nothing."""
    if any(model.settings.payload.hand_opening):
        return
    links = [name for name, joint in chain.link_joint.items() if joint == model.n - 1 and FINGERS.search(name)]
    fingers = [*links, *(name for name in model.settings.locked if FINGERS.search(name))]
    if fingers:
        some = ", ".join(fingers[:3]) + (", ..." if len(fingers) > 3 else "")
        yield (
            f"payload.hand_opening is zero, but the hand has {some}: bounds are proved only if"
            " the fingers stay as the URDF has them; expected how much the last link's ten parameters can change"
            " between any two openings"
        )


def _limits(model: RobotModel, chain: UrdfChain) -> Iterator[str]:
    """Limits that allow more than the URDF does."""
    limits, more = model.limits, dict[str, list[str]]()
    for j, joint in enumerate(chain.joints):
        compared = [("velocity", limits.velocity[j], joint.velocity), ("torque", limits.torque[j], joint.effort)]
        if joint.kind != "continuous" and joint.lower is not None and joint.upper is not None:
            compared.append(("position", limits.position_upper[j], joint.upper))
            compared.append(("position", -limits.position_lower[j], -joint.lower))
        for key, ours, theirs in compared:
            if theirs and ours > theirs + 1e-6 * abs(theirs):
                more.setdefault(key, []).append(f"{joint.name} {abs(ours):g} instead of {abs(theirs):g}")
    for key, joints in more.items():
        yield f"{key} limits allow more than the URDF: {', '.join(joints)}"


def _perfect(model: RobotModel) -> Iterator[str]:
    """Declarations that nothing errs: true of no real arm."""
    settings, n = model.settings, model.n
    measurement, uncertainty = settings.measurement, settings.uncertainty
    floor = [np.any(per_joint(value, n)) for _, value in uncertainty.floor]
    if uncertainty.relative == 0.0 and not any(floor):
        yield "uncertainty is zero: the arm would have to be known exactly"
    if not np.any(per_joint(measurement.torque_abs, n)) and not np.any(per_joint(measurement.torque_rel, n)):
        yield "measurement.torque_abs and torque_rel are zero: no torque is measured exactly"
    exact = [key for key in ("position_error", "velocity_error") if not np.any(per_joint(getattr(measurement, key), n))]
    if exact:
        names = " and ".join(f"measurement.{key}" for key in exact)
        yield f"{names}: zero, as in simulation; a real encoder has at least its resolution"
    for name, joint in settings.joints.items():
        if joint.rotor_inertia == joint.viscous == joint.coulomb == 0.0:
            yield f"joints.{name}: no friction and no rotor inertia: every real drive has some"


def _timing(model: RobotModel) -> Iterator[str]:
    settings = model.settings
    rate, period = settings.measurement.rate_hz, settings.timing.period_s
    if abs(rate * period - 1.0) > 0.01:
        yield (
            f"measurement.rate_hz = {rate:g}, but timing.period_s = {period:g}: every measurement is answered, so"
            " that one is the other's inverse"
        )
    if settings.driver.command_timeout_s is None and not settings.follows_trajectories:
        yield "driver.command_timeout_s is not declared: a controller in real time will refuse to become active"


def _gears(model: RobotModel) -> Iterator[str]:
    """Rotors that turn in moving links, most likely, and are taken not to."""
    if model.undeclared_gears:
        yield (
            f"joints {', '.join(model.undeclared_gears)}: rotor_inertia without gear_ratio: bounds are proved only if"
            " these rotors do not turn in moving links; a geared motor on a moving link reacts on it with its"
            " rotor_inertia / gear_ratio: expected gear_ratio or gear_ratio_range, and motor_link where the base"
            " carries the motor"
        )
