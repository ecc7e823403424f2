"""Parameter descriptors: what ``ros2 param describe`` shows, and the robot's settings as parameters."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

from safe_sysid.robot.effective import effective_values
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.overrides import NULLS
from safe_sysid.schema import Parameter
from safe_sysid.schema.parameter import WHEN

__all__ = ["node_descriptor", "settings_parameters"]

_LARGEST_INT = 2**63 - 1
_FIXED = "In force until cleanup; given by the robot's file, or by this name at the start of the node."


def node_descriptor(parameter: Parameter, read_only: bool) -> ParameterDescriptor:
    """Descriptor of a node's parameter.

    ``parameter``: declared in the schema; ``read_only``: whether it is fixed at the start, in this kind of node.
    """
    when = WHEN["start" if read_only else parameter.when]
    default = _text(parameter.default)
    meaning = f"{default}: {parameter.unset}" if parameter.unset else default
    text = f"{_sentence(parameter)} Default {meaning}. {when[0].upper()}{when[1:]}."
    return _descriptor(parameter, text, read_only)


def _sentence(parameter: Parameter) -> str:
    return f"{parameter.sentence[:-1]} [{parameter.unit}]." if parameter.unit else parameter.sentence


def _descriptor(parameter: Parameter, text: str, read_only: bool) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(description=text, read_only=read_only)
    descriptor.additional_constraints = _constraints(parameter)
    interval = parameter.range
    # A range is for one number. ROS knows only closed ones; open ends are in the constraints, and judged by the node.
    if interval is not None and parameter.type == "int":
        low, high = interval.lower, interval.upper
        descriptor.integer_range = [
            IntegerRange(
                from_value=-_LARGEST_INT if math.isinf(low) else int(low),
                to_value=_LARGEST_INT if math.isinf(high) else int(high),
                step=0,
            )
        ]
    elif interval is not None and parameter.type == "float" and not _unset_is_outside(parameter):
        descriptor.floating_point_range = [
            FloatingPointRange(from_value=interval.lower, to_value=interval.upper, step=0.0)
        ]
    return descriptor


def _unset_is_outside(parameter: Parameter) -> bool:
    """ROS would refuse the default itself: nan lies in no range."""
    return isinstance(parameter.default, float) and math.isnan(parameter.default)


def _constraints(parameter: Parameter) -> str:
    words = []
    if parameter.choices:
        words.append(f"one of: {', '.join(parameter.choices)}")
    elif parameter.type in ("float", "int", "floats", "per_joint", "pose", "vector3", "vector10"):
        words.append(parameter.expected.replace("a number", "a finite number", 1))
    if parameter.unset:
        words.append(f"or {_text(parameter.default)}")
    return ", ".join(words)


def _text(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# -- the robot's settings ----------------------------------------------------------------------------------------


def settings_parameters(model: RobotModel) -> list[tuple[str, Any, ParameterDescriptor]]:
    """Names below ``robot_settings``, values as ROS has them, and descriptors.

    ``model``: of a robot whose settings are in force.
    """
    entries = []
    for value in effective_values(model, {}):
        parameter = replace(value.parameter, unit=value.unit)
        default = "Required" if parameter.required else f"Default {_text(parameter.default)}"
        text = f"{_sentence(parameter)} {default}. {_FIXED}"
        entries.append((value.key, _ros_value(value.value), _descriptor(parameter, text, read_only=True)))
    return entries


def _ros_value(value: Any) -> Any:
    if value is None:
        return NULLS[0]
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list) and value and all(isinstance(entry, float) for entry in value):
        return value
    return json.dumps(value)
