"""Which robot a claim is about: all that the claim rests on, as content, as a digest, and as what differs.

A *scope* is a kind of claim. Whatever a robot's file says is content of every scope, unless :data:`SCOPES` says why the
claim does not rest on it, or :data:`BY_MODEL` where else in the content it is: a key that is added to the file is part
of every identity until somebody gives a reason against it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import RobotModel

__all__ = ["BY_MODEL", "SCOPES", "differences", "digest", "identity", "why_not_stated"]

#: Keys that are not stated with their values, for what they make of the arm is stated: where.
BY_MODEL: Mapping[str, str] = {
    "urdf": "a file's name; frames, axes and inertias that are read from it are stated",
    "base_link": "only has the URDF's root checked, whose frame the first joint's frame is stated in",
    "tool_frame": "a link's name; where it is, `flange`, is stated",
    "joints.<joint>.position": "`continuous`, and `travel` of sliding joints, are stated; limits bound no equation",
    "locked": "links behind locked joints are in the stated inertias and in `flange`",
    "mounting": "turns and moves the first joint's frame, which is stated",
}

_WHATEVER_MOVED = "bounds are of what was measured, whatever moved the arm"
_ANY_TRUE = "chooses among true equations: whichever are used, what they prove is proved"
_OPERATION = "when something is done, not what is proved"

#: By scope: keys, or sections with all below, that its claims do not rest on, and why.
SCOPES: Mapping[str, Mapping[str, str]] = {
    # Intervals of what the hand holds, proved from a log.
    "bounds": {
        "name": "what the name stands for is compared",
        "joints.<joint>.velocity": _WHATEVER_MOVED,
        "joints.<joint>.torque": _WHATEVER_MOVED,
        "payload.hand_links": "says which bodies are the hand's; its mass and inertia are the last link's",
        "payload.hand_joints": "shapes of an opening hand; what that changes of its inertia, `hand_opening`, is stated",
        "measurement.max_age_s": _OPERATION,
        "actuator": "equations take the measured torque, whose errors are `measurement`'s",
        "timing": _WHATEVER_MOVED,
        "identification.method": _ANY_TRUE,
        "identification.window_s": _ANY_TRUE,
        "identification.update_s": _OPERATION,
        "identification.take_after_s": _OPERATION,
        "tare.file": "which tare was used its certificate says; `tare.drift`, which it rests on, is stated",
        "tare.max_age_h": "refuses tares; how much friction may have changed since, `tare.drift`, is stated",
        "tare.max_temperature_difference": "refuses tares; `tare.drift` is stated",
        "controller": _WHATEVER_MOVED,
        "planner": _WHATEVER_MOVED,
        "driver": "positions are unwrapped for every joint that is `continuous`, which is stated",
        "geometry": "shapes of links bound motions, not equations",
        "allowed_pairs": "allow motions, not equations",
        "home": _WHATEVER_MOVED,
    }
}


def identity(model: RobotModel, scope: str) -> dict[str, Any]:
    """Everything of a robot that the claims of a scope rest on, as JSON has it; repr keeps every bit of a float.

    Args:
        model: the arm, overrides applied.
        scope: one of :data:`SCOPES`.

    Returns:
        ``urdf``: frames, axes, inertias and travel by joint; ``declared``: the settings; ``prior``: box (14 n,).

    Raises:
        ParameterError: no such scope.
    """
    if scope not in SCOPES:
        raise ParameterError(f"scope = {scope!r}: expected one of {', '.join(SCOPES)}")
    left_out = {_pattern(key) for key in (*BY_MODEL, *SCOPES[scope])}
    prior = model.arm_prior
    return {
        "urdf": _arm(model),
        "declared": _stated(model.settings, "", left_out),
        "prior": {"lower": prior.lower.tolist(), "upper": prior.upper.tolist()},
    }


def digest(content: Any) -> str:
    """SHA-256, 64 hexadecimal digits, of content as :func:`identity` gives it, in whatever order.

    Args:
        content: JSON.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def differences(stated: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two contents differ: key, what is stated, what is ours.

    Args:
        stated: by somebody, anything.
        ours: trusted.
        path: of both.
    """
    if isinstance(stated, dict) and isinstance(ours, dict):
        for key in [*ours, *(k for k in stated if k not in ours)]:
            yield from differences(stated.get(key), ours.get(key), f"{path}.{key}" if path else str(key))
    elif stated != ours or type(stated) is not type(ours):
        yield path, stated, ours


def why_not_stated(key: str, scope: str) -> str | None:
    """Why the value of a key is not in a scope's content; None if it is.

    Args:
        key: of the schema, as ``joints.<joint>.velocity``.
        scope: one of :data:`SCOPES`.
    """
    reasons = {**BY_MODEL, **SCOPES[scope]}
    parts = key.split(".")
    for count in range(1, len(parts) + 1):
        if (reason := reasons.get(".".join(parts[:count]))) is not None:
            return reason
    return None


def _pattern(key: str) -> str:
    """A key with any name in the places of ``<joint>`` and ``<link>``."""
    return re.sub(r"<\w+>", "<>", key)


def _stated(value: Any, path: str, left_out: set[str]) -> Any:
    """Mappings, lists, texts, numbers as floats: however a setting was written, it comes out in one form."""
    if isinstance(value, BaseModel):
        entries = [(name, f"{path}.{name}" if path else name, entry) for name, entry in value]
    elif isinstance(value, Mapping):
        entries = [(str(name), f"{path}.<>", entry) for name, entry in value.items()]
    elif isinstance(value, (list, tuple)):
        return [_stated(entry, path, left_out) for entry in value]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    else:
        return value
    return {name: _stated(entry, below, left_out) for name, below, entry in entries if below not in left_out}


def _arm(model: RobotModel) -> dict[str, Any]:
    """What the URDF says, as it is mounted and locked, by joint."""
    kin = model.kinematics
    out: dict[str, Any] = {
        "joint_names": list(model.joint_names),
        "flange": [x.tolist() for x in model.flange],
    }
    for j, name in enumerate(model.joint_names):
        out[f"joint {name}"] = {
            "rotation": kin.rotation[j].tolist(),
            "translation": kin.translation[j].tolist(),
            "axis": kin.axis[j].tolist(),
            "inertia": model.theta_nominal[10 * j : 10 * j + 10].tolist(),
            "continuous": bool(model.continuous[j]),
        }
        if kin.sliding[j]:
            out[f"joint {name}"] |= {"prismatic": True, "travel": kin.travel[j].tolist()}
    for joint, carrier, gear, axis in zip(*kin.motors, strict=True):
        motor = {"carrier": model.joint_names[carrier], "gear": float(gear), "axis": axis.tolist()}
        out[f"joint {model.joint_names[joint]}"]["motor"] = motor
    return out
