"""Effective settings: every value in force, where it comes from, and what it means."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from pydantic import BaseModel

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError
from safe_sysid.robot.config import KEYS, Settings
from safe_sysid.robot.files.yaml_file import flow_text
from safe_sysid.robot.model import RobotModel
from safe_sysid.schema import Parameter

__all__ = [
    "EffectiveValue",
    "SettingOrigin",
    "as_text",
    "commented_yaml",
    "effective_values",
    "flat_settings",
    "plain",
    "select",
    "unit_of",
    "with_units",
]


class SettingOrigin(Enum):
    """Who says a value."""

    FILE, DEFAULT, URDF = "file", "default", "URDF"


@dataclass(frozen=True)
class EffectiveValue:
    """One value in force."""

    key: str  #: dotted, as ``joints.elbow.velocity``
    value: Any  #: plain (numbers, texts, lists, mappings), None for none
    source: SettingOrigin
    parameter: Parameter
    unit: str

    def as_json(self) -> dict[str, Any]:
        """All there is to know, for programs."""
        parameter = self.parameter
        return {
            "key": self.key,
            "value": self.value,
            "unit": self.unit,
            "source": self.source.value,
            "description": parameter.description,
            "default": None if parameter.required else parameter.default,
            "required": parameter.required,
            "allowed": list(parameter.choices) or (str(parameter.range) if parameter.range is not None else None),
        }


def _readable(value: Any) -> str:
    return "none" if value is None else json.dumps(value) if not isinstance(value, str) else value


def plain(value: Any) -> Any:
    """A setting as YAML and JSON have it."""
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def flat_settings(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Keys and values of all settings but empty mappings; sections are taken apart, what a key holds is not."""

    def flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
        parameter = KEYS.find(path)
        if parameter is None or (parameter.type == "section" and isinstance(value, (BaseModel, Mapping))):
            entries = value if isinstance(value, Mapping) else dict(value)
            for name, inner in entries.items():
                yield from flat(f"{path}.{name}" if path else str(name), inner)
        else:
            yield path, value

    return flat("", settings)


def effective_values(model: RobotModel, data: Mapping[str, Any]) -> list[EffectiveValue]:
    """All values in force. ``data``: the file, as it was read (:func:`safe_sysid.robot.files.yaml_file.read_yaml`)."""
    values = []
    limits = _limits(model)
    for key, setting in flat_settings(model.settings):
        parameter = KEYS.find(key)
        if parameter is None or parameter.type == "section":
            continue
        value, source = (plain(setting), SettingOrigin.FILE if _given(data, key.split(".")) else SettingOrigin.DEFAULT)
        if value is None and key in limits:
            value, source = limits[key], SettingOrigin.URDF
        values.append(EffectiveValue(key, value, source, parameter, unit_of(parameter, key, model)))
    return values


def unit_of(parameter: Parameter, key: str, model: RobotModel) -> str:
    """The unit as this arm has it: ``rad or m`` is rad where the joint turns, m where it slides."""
    of_one = [
        slides
        for name, slides in zip(model.joint_names, model.sliding, strict=True)
        if key.startswith(f"joints.{name}.")
    ]
    return parameter.unit_for(of_one or model.sliding)


def with_units(key: str, value: FloatArray, model: RobotModel) -> str:
    """Numbers as text, each as exact as it is, with the unit that this arm has them in.

    Args:
        key: of a setting, or of a part of one, as ``payload.box.center``.
        value: a number, or a list of any length; of joints (n,).
    """
    numbers = [repr(float(x)).removesuffix(".0") for x in np.atleast_1d(value)]
    declared = KEYS.find(key) or KEYS.find(key.rpartition(".")[0])
    unit = "" if declared is None else unit_of(declared, key, model)
    turning, joined, sliding = unit.partition(" or ")
    if joined and value.shape == (model.n,):
        return ", ".join(f"{x} {sliding if s else turning}" for x, s in zip(numbers, model.sliding, strict=True))
    return f"{', '.join(numbers)} {f'({unit})' if ',' in unit else unit}".rstrip()


def _given(data: Any, path: Sequence[str]) -> bool:
    """Whether a file has a key that is not null; names may have dots of their own."""
    if not path:
        return data is not None
    if not isinstance(data, Mapping):
        return False
    return any(
        head in data and _given(data[head], path[i:])
        for i, head in ((i, ".".join(path[:i])) for i in range(1, len(path) + 1))
    )


def _limits(model: RobotModel) -> dict[str, Any]:
    """Limits of the joints that may come from the URDF, by key."""
    found: dict[str, Any] = {}
    for j, name in enumerate(model.joint_names):
        lower, upper = float(model.limits.position_lower[j]), float(model.limits.position_upper[j])
        found[f"joints.{name}.position"] = "continuous" if model.continuous[j] else [lower, upper]
        found[f"joints.{name}.velocity"] = float(model.limits.velocity[j])
        found[f"joints.{name}.torque"] = float(model.limits.torque[j])
    return found


def select(values: Sequence[EffectiveValue], keys: Sequence[str], file: str) -> list[EffectiveValue]:
    """Those of some keys or sections; all if none is asked for.

    ``values``: all values in force; ``keys``: dotted; ``velocity`` alone finds every key of that name too.

    Raises:
        ConfigError: nothing has such a key.
    """
    wanted: dict[str, EffectiveValue] = {}
    for key in keys:
        found = [v for v in values if v.key == key or v.key.startswith(f"{key}.")]
        found = found or [v for v in values if v.key.endswith(f".{key}")]
        if not found:
            known = [name for v in values for name in (v.key, v.key.partition(".")[0])]
            close = difflib.get_close_matches(key, list(dict.fromkeys(known)), 3)
            expected = (
                f"a key, as {', '.join(close)}" if close else "a key of a robot's file (docs/refer/parameters.md)"
            )
            raise ConfigError(file, "--key", key, expected)
        wanted |= {v.key: v for v in found}
    return [v for v in values if v.key in wanted] if keys else list(values)


def as_text(values: Sequence[EffectiveValue]) -> str:
    """For people: two lines for each value."""
    lines = []
    for v in values:
        quantity = f"{_readable(v.value)} {v.unit}".rstrip()
        lines.append(f"{v.key}: {quantity}  ({v.source.value})\n    {v.parameter.description}")
    return "\n".join(lines)


def commented_yaml(values: Sequence[EffectiveValue], head: str) -> str:
    """A robot's file with every value written out, each with its unit, source and meaning.

    ``values``: all values in force; ``head``: first comment lines, without ``#``.
    """
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    before: list[str] = []
    for value in values:
        parents, leaf = _split(value)
        common = 0
        while common < min(len(parents), len(before)) and parents[common] == before[common]:
            common += 1
        if not parents or (common == 0 and before != parents):
            lines.append("")
        for depth in range(common, len(parents)):
            lines.append(f"{'  ' * depth}{flow_text(parents[depth])}:")
        before = parents
        indent = "  " * len(parents)
        unit = f"{value.unit}; " if value.unit else ""
        lines.append(f"{indent}# {unit}{value.parameter.description} ({value.source.value})")
        lines.append(f"{indent}{flow_text(leaf)}: {flow_text(value.value)}")
    return "\n".join(lines) + "\n"


def _split(value: EffectiveValue) -> tuple[list[str], str]:
    """Parents and name of a key; the declaration tells which dots are those of a name."""
    declared = value.parameter.path.split(".")
    parts = value.key.split(".")
    for i, name in enumerate(declared):
        if name.startswith("<"):
            width = len(parts) - len(declared) + 1
            parts = [*parts[:i], ".".join(parts[i : i + width]), *parts[i + width :]]
    return parts[:-1], parts[-1]
