"""Robot identity in certificates: the robot and its declarations, and the differences of two statements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from safe_sysid.errors import SafeSysIdError, short
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.robot.identity import differences, digest, identity
from safe_sysid.robot.model import MAX_JOINTS, RobotModel

__all__ = ["errors_from_json", "errors_to_json", "robot_differences", "robot_to_json", "smaller_errors"]

_MOST = 1_000_000  # joints, samples: whatever whole number an error model has


def robot_to_json(model: RobotModel) -> dict[str, Any]:
    """The robot's entry in a certificate: name, and content and hashes of URDF and YAML (overrides applied)."""
    content = identity(model, "bounds")
    urdf, declared = content["urdf"], content["declared"]
    return {
        "name": model.name,
        "urdf_sha256": digest(urdf),
        "yaml_sha256": digest(declared),
        "urdf": urdf,
        "declared": declared,
    }


def robot_differences(stated: Mapping[str, Any], model: RobotModel) -> list[str]:
    """Differences between a certificate's robot and this model, one line each; empty if they agree.

    The hashes must belong to what is stated, and what is stated must be the model's.

    ``stated``: the certificate's ``robot``; ``model``: trusted.
    """
    ours = robot_to_json(model)
    lines = [
        f"{path}: certificate {short(theirs, 80)}, robot {short(mine, 80)}"
        for key in ("urdf", "declared")
        for path, theirs, mine in differences(stated.get(key), ours[key])
    ]
    for key in ("urdf_sha256", "yaml_sha256"):
        if not lines and stated.get(key) != ours[key]:
            lines.append(f"{key}: certificate {short(stated.get(key), 80)}, robot {ours[key]}")
    return lines


def errors_to_json(errors: MeasurementErrors) -> dict[str, Any]:
    """Declared errors in full, by field."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(errors):
        if field.init:
            value = getattr(errors, field.name)
            out[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
    return out


def errors_from_json(stated: Any) -> MeasurementErrors:
    """The inverse of :func:`errors_to_json`.

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
            raise SafeSysIdError(f"errors.{name} = {short(value, 80)}: expected {_KINDS.get(kind, 'numbers')}")
        values[name] = np.array(value, float) if isinstance(value, list) else value
    try:
        return MeasurementErrors(**values)
    except SafeSysIdError:
        raise
    except Exception as error:  # what numpy raises for ragged or wrong values is not ours to list
        raise SafeSysIdError(f"errors: {error}: expected what the robot's configuration declares") from None


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
    return isinstance(value, list) and len(value) <= MAX_JOINTS and all(type(x) in (int, float) for x in value)


def smaller_errors(stated: MeasurementErrors, declared: MeasurementErrors) -> list[str]:
    """Errors that a certificate assumes smaller or otherwise than the robot's configuration declares; a line each."""
    lines = []
    for field in dataclasses.fields(MeasurementErrors):
        if not field.init:
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
