"""Overrides of a robot's settings in the form of ROS parameters: flat names, few types, no null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safe_sysid.errors import ConfigError
from safe_sysid.robot.config import KEYS
from safe_sysid.robot.files.yaml_file import parse_value
from safe_sysid.schema import Parameter

__all__ = ["NULLS", "SETTINGS", "given_settings", "overrides_of"]

#: Below this name the robot's settings are ROS parameters.
SETTINGS = "robot_settings"
#: How ROS has what YAML calls null: rcl reads these as texts.
NULLS = ("null", "~")
#: Types of a robot file that a ROS parameter can only have as text (JSON).
_AS_TEXT = ("box", "hulls", "pairs", "names", "range", "limits", "travels")


def given_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a node's parameters that are settings of the robot, by dotted path below ``robot_settings``."""
    prefix = f"{SETTINGS}."
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def overrides_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that replace a file's, from ROS values; what is unknown stays, for the settings to refuse it by name.

    ``given``: values by dotted path, as they were given for ``robot_settings``.
    """
    return {path: _setting(KEYS.find(path), value) for path, value in given.items()}


def _setting(parameter: Parameter | None, value: Any) -> Any:
    if isinstance(value, str):
        if value in NULLS:
            return None
        if parameter is not None and parameter.type in _AS_TEXT and value[:1] in "[{":
            try:
                return parse_value(value, SETTINGS)
            except ConfigError:
                return value  # refused with the type that is expected
        return value
    if value is None:
        return []  # an empty list, whose type rcl cannot tell
    return value if isinstance(value, (bool, int, float)) else list(value)
