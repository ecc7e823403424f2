"""Robot identity: what a proof rests on, as content and as a digest, and the differences of two identities.

A *scope* is a kind of claim. Its content is what the robot's file declares, and *parts*: what files and settings make
of the arm. Whatever a robot's file says is content of every scope, unless :data:`PARTS` says which part holds it, or
the scope why the claim does not rest on it: a key that is added to the file is part of every identity until somebody
gives a reason against it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel

from safe_sysid.errors import ParameterError, short
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene

__all__ = [
    "PARTS",
    "SCOPES",
    "ClaimScope",
    "IdentityPart",
    "differences",
    "digest",
    "disagreements",
    "identity",
    "scene_identity",
    "statement",
    "why_not_stated",
]

_SHA = "sha256"


@dataclasses.dataclass(frozen=True)
class IdentityPart:
    """What files and settings make of an arm."""

    content: Callable[[RobotModel], Any]
    #: keys, or sections with all below, that are not stated where a scope has this part, and why
    holds: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ClaimScope:
    """A kind of claim."""

    parts: tuple[str, ...]  #: of :data:`PARTS`
    left_out: Mapping[str, str]  #: keys, or sections with all below, that its claims do not rest on, and why


PARTS: Mapping[str, IdentityPart] = {
    # Frames, axes, inertias and travel by joint, as the arm is mounted and locked.
    "urdf": IdentityPart(
        lambda model: _arm(model),
        {
            "urdf": "a file's name; frames, axes and inertias that are read from it are stated",
            "base_link": "says which joints are the arm's; names and frames, the first in the world's, are stated",
            "tip_link": "says which joints are the arm's; their names and frames are stated",
            "tool_frame": "a link's name; where it is, `flange`, is stated",
            "payload.link": "a link's name; where it is, `payload_frame`, is stated, if it is not the tool frame",
            "joints.<joint>.position": "`continuous`, and `travel` of sliding joints, are stated",
            "locked": "links behind locked joints are in the stated inertias and in `flange`",
            "mounting": "turns and moves the first joint's frame, which is stated",
        },
    ),
    # Box of all 14 n parameters.
    "prior": IdentityPart(lambda model: _box(model.arm_prior)),
    # The same with the empty hand.
    "empty_hand": IdentityPart(
        lambda model: _box(model.empty_handed_prior),
        {"payload.hand_opening": "widens the prior of the empty hand, which is stated"},
    ),
    "limits": IdentityPart(
        lambda model: {f.name: getattr(model.limits, f.name) for f in dataclasses.fields(model.limits)},
        dict.fromkeys(
            ("joints.<joint>.position", "joints.<joint>.velocity", "joints.<joint>.torque"),
            "`limits` states it, or the URDF's where the file says nothing",
        ),
    ),
    # Shapes of links, hand and payload, and what may touch. Settings that say so are stated, too: verdicts name them.
    "bodies": IdentityPart(
        lambda model: {
            body.name: {"joint": body.joint, "points": body.points, "radius": body.radius} for body in model.bodies
        }
    ),
    "allowed_pairs": IdentityPart(lambda model: sorted(sorted(pair) for pair in model.allowed_pairs)),
}

_WHATEVER_MOVED = "bounds are of what was measured, whatever moved the arm"
_ANY_TRUE = "chooses among true equations: whichever are used, what they prove is proved"
_OPERATION = "when something is done, not what is proved"
_BESIDE = "what of it a certificate takes, gains, their assumptions and the law, is stated beside the robot"
_ORIGIN = "says where friction and rotor inertia come from; their bounds, the prior's, are stated"
_NO_PAYLOAD = "of a payload, which is not there: the prior of the empty hand is stated"

#: Whichever way bounds were found, and whatever was driven to find them.
_OF_EQUATIONS: Mapping[str, str] = {
    "name": "what the name stands for is compared",
    "drives": _ORIGIN,
    "measurement.max_age_s": _OPERATION,
    "identification.method": _ANY_TRUE,
    "identification.window_s": _ANY_TRUE,
    "identification.update_s": _OPERATION,
    "identification.take_after_s": _OPERATION,
    "tare.file": "which tare was used its certificate says; `tare.drift`, which it rests on, is stated",
    "tare.max_age_h": "refuses tares; how much friction may have changed since, `tare.drift`, is stated",
    "tare.max_temperature_difference": "refuses tares; `tare.drift` is stated",
    "driver": "positions are unwrapped for every joint that is `continuous`, which is stated",
}
_OF_BOUNDS: Mapping[str, str] = {
    **_OF_EQUATIONS,
    "joints.<joint>.velocity": _WHATEVER_MOVED,
    "joints.<joint>.torque": _WHATEVER_MOVED,
    "payload.hand_links": "says which bodies are the hand's; its mass and inertia are the last link's",
    "payload.hand_joints": "shapes of an opening hand; what that changes of its inertia, `hand_opening`, is stated",
    "actuator": "equations take the measured torque, whose errors are `measurement`'s",
    "timing": _WHATEVER_MOVED,
    "controller": _WHATEVER_MOVED,
    "planner": _WHATEVER_MOVED,
    "geometry": "shapes of links bound motions, not equations",
    "allowed_pairs": "allow motions, not equations",
    "home": _WHATEVER_MOVED,
}

#: By name.
SCOPES: Mapping[str, ClaimScope] = {
    # Intervals of what the hand holds, proved from a log.
    "bounds": ClaimScope(("urdf", "prior"), _OF_BOUNDS),
    # Equations of a motion with the empty hand, for later runs.
    "tare": ClaimScope(
        ("urdf", "empty_hand"),
        {
            **_OF_BOUNDS,
            **dict.fromkeys(
                ("payload.prior_lower", "payload.prior_upper", "payload.envelope", "payload.box", "payload.density"),
                _NO_PAYLOAD,
            ),
            "tare": "says which tares may be used and what of friction may have changed since, as declared then",
        },
    ),
    # Motions that are certified for a box of parameters, which may be one of bounds: what those rest on is in it.
    "plans": ClaimScope(
        ("urdf", "prior", "limits", "bodies", "allowed_pairs"),
        {
            **_OF_EQUATIONS,
            "actuator": _BESIDE,
            "timing": _BESIDE,
            "controller": _BESIDE,
            "planner": "cells, margin and times are stated with the plan; the rest says how plans are looked for",
            "home": "a certified motion begins where it says",
        },
    ),
    # What nodes that work together must have in common.
    "run": ClaimScope(
        ("urdf", "prior", "limits", "bodies", "allowed_pairs"),
        {
            "name": "what the name stands for is compared",
            "drives": _ORIGIN,
            "home": "a run begins where its scene, its plant or its operator says",
            "tare.file": "what a tare says of the arm only the identifier takes; its certificate names it",
            "planner.plans": "how often plans are made, not what they claim",
            "planner.iteration_budget": "how long a planner searches, not what its plans claim",
        },
    ),
}


def identity(model: RobotModel, scope: str) -> dict[str, Any]:
    """Everything of a robot that the claims of a scope rest on, as JSON has it; repr keeps every bit of a float.

    ``scope``: one of :data:`SCOPES`. Returns the scope's parts by name, and ``declared``: the settings.

    Raises:
        ParameterError: no such scope.
    """
    if scope not in SCOPES:
        raise ParameterError(f"scope = {scope!r}: expected one of {', '.join(SCOPES)}")
    left_out = {_pattern(key) for key in _reasons(scope)}
    parts = {name: _stated(PARTS[name].content(model), "", set()) for name in SCOPES[scope].parts}
    return {**parts, "declared": _stated(model.settings, "", left_out)}


def scene_identity(scene: Scene) -> dict[str, Any]:
    """What plans are certified clear of: hulls of points in the world (m), inflated (m), and what they may touch.

    ``scene``: around the arm; its name, start and goal are not in it.
    """
    return {
        "obstacles": {o.name: _stated({"points": o.points, "radius": o.radius}, "", set()) for o in scene.obstacles},
        "allowed_pairs": sorted(sorted(pair) for pair in scene.allowed_pairs),
    }


def digest(content: Any) -> str:
    """SHA-256, 64 hexadecimal digits, of content as :func:`identity` gives it, in whatever order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def statement(content: Mapping[str, Any]) -> dict[str, Any]:
    """Content as a file states it, with its digest."""
    plain = _stated(content, "", set())
    return {**plain, _SHA: digest(plain)}


def differences(stated: Any, ours: Any, path: str = "", same: float = 0.0) -> Iterator[tuple[str, Any, Any]]:
    """Where two contents differ: key, what is stated, what is ours.

    Args:
        ours: trusted.
        same: numbers are the same up to this, relative and absolute: where another machine rounds otherwise.
    """
    if isinstance(stated, dict) and isinstance(ours, dict):
        for key in [*ours, *(k for k in stated if k not in ours)]:
            yield from differences(stated.get(key), ours.get(key), f"{path}.{key}" if path else str(key), same)
    elif isinstance(stated, list) and isinstance(ours, list) and len(stated) == len(ours):
        for k, (theirs, mine) in enumerate(zip(stated, ours, strict=True)):
            yield from differences(theirs, mine, f"{path}[{k}]", same)
    elif not _agree(stated, ours, same):
        yield path, stated, ours


def disagreements(stated: Any, ours: Mapping[str, Any], same: float) -> list[str]:
    """What a file's statement says that ours does not, one line each; empty if they agree and its digest is its own.

    Args:
        stated: read from a file: anything.
        ours: a :func:`statement`, trusted.
        same: as :func:`differences` has it.
    """
    if not isinstance(stated, dict):
        return [f"{type(stated).__name__}: expected an object"]
    theirs, mine = ({k: v for k, v in x.items() if k != _SHA} for x in (stated, ours))
    lines = [f"{path}: file {short(a, 80)}, here {short(b, 80)}" for path, a, b in differences(theirs, mine, "", same)]
    if not lines and stated.get(_SHA) != (own := digest(theirs)):
        lines.append(f"{_SHA}: file {short(stated.get(_SHA), 80)}, its content has {own}")
    return lines


def _agree(stated: Any, ours: Any, same: float) -> bool:
    if same and type(stated) in (int, float) and type(ours) is float:
        return abs(stated) < 1e300 and abs(stated - ours) <= same * (1.0 + abs(ours))
    return type(stated) is type(ours) and bool(stated == ours)


def why_not_stated(key: str, scope: str) -> str | None:
    """Why the value of a key is not in a scope's content; None if it is.

    ``key``: of the schema, as ``joints.<joint>.velocity``; ``scope``: one of :data:`SCOPES`.
    """
    reasons = _reasons(scope)
    parts = key.split(".")
    for count in range(1, len(parts) + 1):
        if (reason := reasons.get(".".join(parts[:count]))) is not None:
            return reason
    return None


def _reasons(scope: str) -> dict[str, str]:
    parts = SCOPES[scope].parts
    held = {key: reason for name in parts for key, reason in PARTS[name].holds.items()}
    return {**held, **SCOPES[scope].left_out}


def _pattern(key: str) -> str:
    """A key with any name in the places of ``<joint>`` and ``<link>``."""
    return re.sub(r"<\w+>", "<>", key)


def _stated(value: Any, path: str, left_out: set[str]) -> Any:
    """Mappings, lists, texts, numbers as floats (infinite ones as texts, for JSON): one form for all."""
    if isinstance(value, BaseModel):
        entries = [(name, f"{path}.{name}" if path else name, entry) for name, entry in value]
    elif isinstance(value, Mapping):
        entries = [(str(name), f"{path}.<>", entry) for name, entry in value.items()]
    elif isinstance(value, (list, tuple)):
        return [_stated(entry, path, left_out) for entry in value]
    elif isinstance(value, (np.ndarray, np.generic)):
        return _stated(value.tolist(), path, left_out)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else str(float(value))
    else:
        return value
    return {name: _stated(entry, below, left_out) for name, below, entry in entries if below not in left_out}


def _box(box: ParameterBox) -> dict[str, Any]:
    return {"lower": box.lower, "upper": box.upper}


def _arm(model: RobotModel) -> dict[str, Any]:
    """What the URDF says, as it is mounted and locked, by joint."""
    kin = model.kinematics
    out: dict[str, Any] = {"joint_names": list(model.joint_names), "flange": [x.tolist() for x in model.flange]}
    if model.payload_placement is not None:
        out["payload_frame"] = [x.tolist() for x in model.payload_placement]
    for j, name in enumerate(model.joint_names):
        out[f"joint {name}"] = {
            "rotation": kin.rotation[j].tolist(),
            "translation": kin.translation[j].tolist(),
            "axis": kin.axis[j].tolist(),
            "inertia": model.theta_nominal[model.layout.link(j)].tolist(),
            "continuous": bool(model.continuous[j]),
        }
        if kin.sliding[j]:
            out[f"joint {name}"] |= {"prismatic": True, "travel": kin.travel[j].tolist()}
    for joint, carrier, gear, axis in zip(*kin.motors, strict=True):
        motor = {"carrier": model.joint_names[carrier], "gear": float(gear), "axis": axis.tolist()}
        out[f"joint {model.joint_names[joint]}"]["motor"] = motor
    unknowns = model.unknowns
    for joint, carrier, axis in zip(unknowns.motors.joint, unknowns.motors.carrier, unknowns.motors.axis, strict=True):
        motor = {"carrier": model.joint_names[carrier], "axis": axis.tolist()}
        out[f"joint {model.joint_names[joint]}"]["motor_of_unknown_ratio"] = motor
    if unknowns.count:
        names, ends = unknowns.names(model.joint_names), (unknowns.lower, unknowns.upper)
        out["unknowns"] = [
            {"name": name, "lower": float(low), "upper": float(high)}
            for name, low, high in zip(names, *ends, strict=True)
        ]
    return out
