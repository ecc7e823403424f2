"""YAML as it stands on a command line to messages."""

from __future__ import annotations

import importlib
from typing import Any

import yaml


def message_type(name: str, kind: str = "msg") -> Any:
    """The class of `std_msgs/msg/String`, or `std_msgs/String`.

    Raises:
        ValueError: there is none.
    """
    parts = name.split("/")
    if len(parts) not in (2, 3) or (len(parts) == 3 and parts[1] != kind):
        raise ValueError(f"the type {name!r} is not of the form package/{kind}/Name")
    try:
        return getattr(importlib.import_module(f"{parts[0]}.{kind}"), parts[-1])
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the type {name!r} does not exist: {error}") from error


def fill(message: Any, values: Any) -> None:
    """Set the fields of a message from what YAML says.

    Raises:
        ValueError: a field that the message has not, or a value that does not fit.
    """
    if values is None:
        return
    if not isinstance(values, dict):
        raise ValueError(f"{type(message).__name__} is filled by a map, not by {values!r}")
    fields = message.get_fields_and_field_types()
    for name, value in values.items():
        if name not in fields:
            raise ValueError(f"{type(message).__name__} has no field {name!r}; it has {sorted(fields)}")
        kind = fields[name]
        now = getattr(message, name)
        if hasattr(now, "get_fields_and_field_types"):
            fill(now, value)
        elif kind.startswith("sequence<") and "/" in kind:
            element = message_type(kind[len("sequence<") : -1].partition(",")[0])
            rows = [element() for _ in value]
            for row, content in zip(rows, value, strict=True):
                fill(row, content)
            setattr(message, name, rows)
        else:
            try:
                setattr(message, name, float(value) if isinstance(now, float) else value)
            except (AssertionError, TypeError) as error:
                raise ValueError(f"{type(message).__name__}.{name}: {error}") from error


def filled(message: Any, text: str | None) -> Any:
    """A new message from the words of a command line."""
    made = message()
    fill(made, yaml.safe_load(text) if text else None)
    return made
