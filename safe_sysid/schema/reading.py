"""``parameters.yaml`` as parameters, checked: what it says is shown to users and rested upon by code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from safe_sysid import extensions
from safe_sysid.schema.parameter import NODE_TYPES, WHEN, Parameter, Range
from safe_sysid.schema.section import SchemaError

__all__ = ["Schema", "load_schema", "read_schema"]

_FILE = Path(__file__).with_name("parameters.yaml")
_KEYS = ("type", "unit", "default", "unset", "range", "choices", "when", "description")
# Ten times faster where PyYAML was built with libyaml; every node reads this at its start.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Schema:
    """All parameters.

    Attributes:
        groups: node parameters by group (``common``, ``controller``, ...).
        kinds: groups of each kind of node.
    """

    groups: Mapping[str, tuple[Parameter, ...]]
    kinds: Mapping[str, tuple[str, ...]]

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
        group: tuple(_parameter(group, path, entry) for path, entry in entries.items())
        for group, entries in data["nodes"].items()
    }
    kinds = {kind: tuple(names) for kind, names in data["kinds"].items()}
    for kind, names in kinds.items():
        paths = [parameter.path for name in names for parameter in groups[name]]
        twice = sorted({path for path in paths if paths.count(path) > 1})
        if twice:
            raise SchemaError(f"kind {kind}: {', '.join(twice)}: declared twice")
    return Schema(groups, kinds)


def _parameter(group: str, path: str, entry: Mapping[str, Any]) -> Parameter:
    place = f"schema/parameters.yaml: {group}: {path}"
    unknown = sorted(set(entry) - set(_KEYS))
    if unknown:
        raise SchemaError(f"{place}: {', '.join(unknown)}: expected only {', '.join(_KEYS)}")
    values = dict(entry)
    for key, known in (("type", NODE_TYPES), ("when", WHEN)):
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
    known = values.get("choices", ())
    if isinstance(known, str):
        if known not in extensions.__all__:
            raise SchemaError(f"{place}: choices = {known!r}: expected a list, or a table of extensions")
        known = getattr(extensions, known)
    values["choices"] = tuple(known)
    parameter = Parameter(path, **values)
    if parameter.required:
        raise SchemaError(f"{place}: default: missing: expected one, a node starts without a file")
    if expected := parameter.why_not(parameter.default):
        raise SchemaError(f"{place}: default = {parameter.default!r}: expected {expected}")
    return parameter
