"""Which robot, and what was declared about it, as a certificate states it; and what differs from another statement."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.robot.model import MAX_JOINTS, RobotModel

__all__ = [
    "declared_settings",
    "errors_from_json",
    "errors_to_json",
    "robot_differences",
    "robot_to_json",
    "smaller_errors",
]

_MOST = 1_000_000  # joints, samples: whatever whole number an error model has
#: Sections of the configuration that a bound rests on, and keys of them that it does not rest on.
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "gravity": (),
    "joints": ("position", "velocity", "torque"),
    "friction_transition_velocity": (),
    "uncertainty": (),
    "payload": ("hand_links",),
    "measurement": ("max_age_s",),
    "identification": ("method", "window_s", "update_s", "take_after_s"),
    "tare": ("file", "max_age_h", "max_temperature_difference"),
}


def declared_settings(model: RobotModel) -> dict[str, Any]:
    """Everything in the validated configuration (overrides applied) that bounds rest on, as JSON has it.

    Args:
        model: the arm.
    """
    out: dict[str, Any] = {}
    for name, left_out in _SECTIONS.items():
        if hasattr(model.settings, name):
            value = _as_json(getattr(model.settings, name))
            if name == "joints":
                value = {joint: _without(entry, left_out) for joint, entry in value.items()}
            out[name] = _without(value, left_out) if isinstance(value, dict) else value
    return out


def _as_json(value: Any) -> Any:
    """Mappings, lists, texts, numbers as floats: however a setting was written, it comes out in one form."""
    if isinstance(value, BaseModel):
        return {name: _as_json(entry) for name, entry in value}
    if isinstance(value, Mapping):
        return {str(key): _as_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(entry) for entry in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return value


def _without(mapping: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _from_urdf(model: RobotModel) -> dict[str, Any]:
    """What the URDF says, by joint, as floats: repr keeps every bit."""
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
    return out


def robot_to_json(model: RobotModel) -> dict[str, Any]:
    """The robot of a certificate: name, hashes of what URDF and YAML (overrides applied) say, and what they say.

    Args:
        model: the arm.
    """
    urdf, declared = _from_urdf(model), declared_settings(model)
    return {
        "name": model.name,
        "urdf_sha256": _sha256(urdf),
        "yaml_sha256": _sha256(declared),
        "urdf": urdf,
        "declared": declared,
    }


def robot_differences(stated: Mapping[str, Any], model: RobotModel) -> list[str]:
    """What a certificate says of its robot and this model does not, one line each; empty if they agree.

    The hashes must belong to what is stated, and what is stated must be the model's.

    Args:
        stated: the certificate's ``robot``.
        model: trusted.
    """
    ours = robot_to_json(model)
    lines = [
        f"{path}: certificate {_short(theirs)}, robot {_short(mine)}"
        for key in ("urdf", "declared")
        for path, theirs, mine in _compare("", stated.get(key), ours[key])
    ]
    for key in ("urdf_sha256", "yaml_sha256"):
        if not lines and stated.get(key) != ours[key]:
            lines.append(f"{key}: certificate {_short(stated.get(key))}, robot {ours[key]}")
    return lines


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _compare(path: str, theirs: Any, mine: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in [*mine, *(k for k in theirs if k not in mine)]:
            below = f"{path}.{key}" if path else str(key)
            yield from _compare(below, theirs.get(key), mine.get(key))
    elif theirs != mine or type(theirs) is not type(mine):
        yield path, theirs, mine


def errors_to_json(errors: MeasurementErrors) -> dict[str, Any]:
    """Declared errors in full, by field.

    Args:
        errors: of the measurements.
    """
    out: dict[str, Any] = {}
    for field in dataclasses.fields(errors):
        if field.init:
            value = getattr(errors, field.name)
            out[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
    return out


def errors_from_json(stated: Any) -> MeasurementErrors:
    """The inverse of :func:`errors_to_json`.

    Args:
        stated: anything.

    Raises:
        SafeSysIdError: not a mapping of the known fields to values of their kind.
    """
    fields = {f.name: f for f in dataclasses.fields(MeasurementErrors) if f.init}
    if not isinstance(stated, dict) or set(stated) != set(fields):
        found = sorted(stated) if isinstance(stated, dict) else type(stated).__name__
        raise SafeSysIdError(f"errors = {found}: expected exactly {', '.join(sorted(fields))}")
    values: dict[str, Any] = {}
    for name, value in stated.items():
        kind = str(fields[name].type)
        if not _is_kind(value, kind):
            raise SafeSysIdError(f"errors.{name} = {_short(value)}: expected {_KINDS.get(kind, 'numbers')}")
        values[name] = np.array(value, float) if isinstance(value, list) else value
    try:
        return MeasurementErrors(**values)
    except SafeSysIdError:
        raise
    except Exception as error:  # what numpy raises for ragged or wrong values is not ours to list
        raise SafeSysIdError(f"errors: {error}: expected what the robot's configuration declares") from None


#: Fields that say how the identifier computes, not what is assumed.
_NO_ERRORS = ("linearise_every",)
_KINDS = {"str": "a text", "int": f"a whole number from 1 to {_MOST}", "float": "a number"}


def _is_kind(value: Any, kind: str) -> bool:
    """Whether a value has the type that the field's annotation names."""
    if kind == "str":
        return isinstance(value, str)
    if kind == "int":
        return type(value) is int and 1 <= value <= _MOST
    if kind == "float":
        return type(value) in (int, float)
    if value is None:
        return "None" in kind
    return (
        isinstance(value, list) and len(value) <= MAX_JOINTS and all(type(x) in (int, float) for x in value)
    )


def smaller_errors(stated: MeasurementErrors, declared: MeasurementErrors) -> list[str]:
    """Errors that a certificate takes smaller, or other, than the robot's configuration declares, one line each.

    Args:
        stated: by the certificate.
        declared: by the robot.
    """
    lines = []
    for field in dataclasses.fields(MeasurementErrors):
        if not field.init or field.name in _NO_ERRORS:
            continue
        a, b = getattr(stated, field.name), getattr(declared, field.name)
        if a is None or b is None or isinstance(b, str) or field.name == "n":
            good = bool(np.array_equal(a, b)) if a is not None and b is not None else a is b
        else:
            good = np.shape(a) == np.shape(b) and bool(np.all(np.asarray(a, float) >= np.asarray(b, float)))
        if not good:
            lines.append(f"{field.name}: certificate {_plain(a)}, robot {_plain(b)}")
    return lines


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
