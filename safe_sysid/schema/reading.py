"""``parameters.yaml`` as parameters, checked: what it says is shown to users and rested upon by code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from safe_sysid.errors import SafeSysIdError
from safe_sysid.schema.parameter import NODE_TYPES, REQUIRED, TYPES, WHEN, Parameter, Range

__all__ = ["Schema", "SchemaError", "load_schema", "read_schema"]

_FILE = Path(__file__).with_name("parameters.yaml")
_KEYS = ("type", "unit", "default", "unset", "range", "choices", "when", "description")
# Ten times faster where PyYAML was built with libyaml; every node reads this at its start.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SchemaError(SafeSysIdError):
    """The schema contradicts itself, or the code asks it for something that it does not declare."""


@dataclass(frozen=True)
class Schema:
    """All parameters.

    Attributes:
        groups: node parameters by group (``common``, ``controller``, ...).
        kinds: groups of each kind of node.
        keys: of a robot's file by path, sections included, in the order of the file.
    """

    groups: Mapping[str, tuple[Parameter, ...]]
    kinds: Mapping[str, tuple[str, ...]]
    keys: Mapping[str, Parameter]

    @property
    def robot(self) -> tuple[Parameter, ...]:
        """All keys of a robot's file."""
        return tuple(self.keys.values())

    def node(self, kind: str) -> tuple[Parameter, ...]:
        """Parameters of a kind of node (``controller``, ``planner``, ``identifier``, ``plant``, ``recorder``).

        Raises:
            SchemaError: no such kind.
        """
        if kind not in self.kinds:
            raise SchemaError(f"kind of node {kind!r}: expected one of {', '.join(self.kinds)}")
        return tuple(parameter for group in self.kinds[kind] for parameter in self.groups[group])

    def is_managed(self, kind: str) -> bool:
        """Whether nodes of this kind have a lifecycle."""
        return "managed" in self.kinds[kind]

    def key(self, path: str) -> Parameter:
        """The declaration of a robot file's key, as ``joints.<joint>.velocity``.

        Raises:
            SchemaError: there is none.
        """
        if path not in self.keys:
            raise SchemaError(f"schema/parameters.yaml: robot: {path}: missing: expected a declaration")
        return self.keys[path]

    def find(self, path: str) -> Parameter | None:
        """What declares an actual key, as ``joints.elbow.velocity``; None: nothing does."""
        if path in self.keys:
            return self.keys[path]
        found = [p for p in self.robot if "<" in p.path and p.pattern.fullmatch(path)]
        # Names may have dots: `joints.a.b.velocity` is the velocity of a.b, not a joint called a.b.velocity.
        return max(found, key=lambda p: p.path.count("."), default=None)


@cache
def load_schema() -> Schema:
    """The schema of this installation.

    Raises:
        SchemaError: it is damaged.
    """
    return read_schema(_FILE.read_text(encoding="utf-8"))


def read_schema(text: str) -> Schema:
    """Read and check.

    Args:
        text: YAML, as ``parameters.yaml``.

    Raises:
        SchemaError: what is wrong, with its place.
    """
    data = yaml.load(text, Loader=_Loader)
    groups = {
        group: tuple(_parameter(f"nodes: {group}", path, entry, {}) for path, entry in entries.items())
        for group, entries in data["nodes"].items()
    }
    kinds = {kind: tuple(names) for kind, names in data["kinds"].items()}
    for kind, names in kinds.items():
        paths = [parameter.path for name in names for parameter in groups[name]]
        twice = sorted({path for path in paths if paths.count(path) > 1})
        if twice:
            raise SchemaError(f"kind {kind}: {', '.join(twice)}: declared twice")
    robot = {
        path: _parameter("robot", path, entry, {"when": "configure"}) for path, entry in data["robot"].items()
    }
    for path in robot:
        section = path.rpartition(".")[0]
        if section and (section not in robot or robot[section].type != "section"):
            raise SchemaError(f"robot: {path}: expected {section} to be declared as a section")
    return Schema(groups, kinds, robot)


def _parameter(where: str, path: str, entry: Mapping[str, Any], inherited: Mapping[str, Any]) -> Parameter:
    place = f"schema/parameters.yaml: {where}: {path}"
    unknown = sorted(set(entry) - set(_KEYS))
    if unknown:
        raise SchemaError(f"{place}: {', '.join(unknown)}: expected only {', '.join(_KEYS)}")
    values = {"default": REQUIRED, **inherited, **entry}
    types = TYPES if where == "robot" else NODE_TYPES
    for key, known in (("type", types), ("when", WHEN)):
        if values.get(key) not in known:
            raise SchemaError(f"{place}: {key} = {values.get(key)!r}: expected one of {', '.join(known)}")
    if not str(values.get("description") or "").strip():
        raise SchemaError(f"{place}: description: missing: expected a line about it")
    if "range" in values:
        try:
            values["range"] = Range.parse(values["range"])
        except (TypeError, ValueError):
            raise SchemaError(
                f"{place}: range = {values['range']!r}: expected as in [0, 1) or (0, inf)"
            ) from None
    values["choices"] = tuple(values.get("choices", ()))
    parameter = Parameter(path, **values)
    if where != "robot":
        if parameter.required:
            raise SchemaError(f"{place}: default: missing: expected one, a node starts without a file")
        if expected := parameter.why_not(parameter.default):
            raise SchemaError(f"{place}: default = {parameter.default!r}: expected {expected}")
    elif not parameter.required:
        _check_default(place, parameter)
    return parameter


def _check_default(place: str, parameter: Parameter) -> None:
    """The type of a robot file's default is checked with its class; here its range."""
    default = parameter.default
    if parameter.choices and default is not None and default not in parameter.choices:
        raise SchemaError(f"{place}: default = {default!r}: expected {parameter.expected}")
    for number in default if isinstance(default, list) else [default]:
        if not isinstance(number, (int, float)) or isinstance(number, bool):
            continue
        if not math.isfinite(number) or (parameter.range is not None and number not in parameter.range):
            raise SchemaError(f"{place}: default = {default!r}: expected {parameter.expected}")
