"""The keys of a YAML file as JSON Schema, by which editors complete, explain and check what is typed."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from safe_sysid.schema.parameter import Parameter, Range
from safe_sysid.schema.section import Keys

__all__ = ["json_schema"]


def json_schema(keys: Keys, filled_in: Collection[str] = ()) -> dict[str, Any]:
    """What a file may say, as far as JSON Schema can: rules between keys are the reader's.

    ``filled_in``: keys that the file may leave out though they have no default, for its reader knows them.
    Returns JSON, draft 7.
    """
    top = {"$schema": "http://json-schema.org/draft-07/schema#", **_mapping()}
    sections: dict[str, dict[str, Any]] = {"": top}
    for key in keys.values():
        above, _, name = key.path.rpartition(".")
        kind = _mapping() if key.type == "section" else {"enum": list(key.choices)} if key.choices else _kind(key)
        sections[key.path], section, value = kind, sections[above], _described(key, kind)
        if name.startswith("<"):
            section["additionalProperties"] = value
        else:
            section["properties"][name] = value
            if key.required and key.path not in filled_in:
                section["required"].append(name)
    return top


def _mapping() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def _described(key: Parameter, kind: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = {"anyOf": [kind, {"type": "null"}]} if key.nullable else kind
    value["description"] = f"{key.sentence[:-1]} [{key.unit}]." if key.unit else key.sentence
    if not key.required and key.type != "section":
        value["default"] = key.default
    return value


def _kind(key: Parameter) -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    number = {"type": "number", **_ends(key.range)}
    vector = {name: _list(number, count) for name, count in (("vector3", 3), ("vector10", 10), ("range", 2))}
    ends, point = _list({"type": "number"}, 2), _list({"type": "number"}, 3)
    corner = {**_mapping(), "properties": {"center": point, "size": point}, "required": ["center", "size"]}
    hull = {
        **_mapping(),
        "properties": {
            "points": {"type": "array", "items": point, "minItems": 1},
            "radius": {"type": "number", "minimum": 0},
        },
        "required": ["points", "radius"],
    }
    kinds: dict[str, dict[str, Any]] = {
        "bool": {"type": "boolean"},
        "int": {"type": "integer", **_ends(key.range)},
        "float": number,
        "text": text,
        "per_joint": {"anyOf": [number, _list(number)]},
        "pose": _list(number),
        **vector,
        "limits": {"anyOf": [ends, {"const": "continuous"}]},
        "box": {"anyOf": [corner, {"const": "envelope"}]},
        "travels": {"type": "object", "additionalProperties": ends},
        "hulls": {"type": "array", "items": hull},
        "names": {"type": "array", "items": text},
        "pairs": {"type": "array", "items": _list(text, 2)},
    }
    return kinds[key.type]


def _list(of: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    return {"type": "array", "items": of, "minItems": count or 1, **({"maxItems": count} if count else {})}


def _ends(interval: Range | None) -> dict[str, float]:
    if interval is None:
        return {}
    lower = "minimum" if interval.with_lower else "exclusiveMinimum"
    upper = "maximum" if interval.with_upper else "exclusiveMaximum"
    ends = ((lower, interval.lower), (upper, interval.upper))
    return {word: value for word, value in ends if math.isfinite(value)}
