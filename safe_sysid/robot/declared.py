"""Settings that ``schema/parameters.yaml`` declares: defaults, ranges, choices, descriptions are taken from there."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from safe_sysid.robot.fields import StrictModel, problem
from safe_sysid.schema import Parameter, load_schema

__all__ = ["Section", "parameter_of", "setting"]


def setting(path: str) -> Any:
    """Field of a :class:`Section`: all but its Python type is what the schema says.

    Args:
        path: of a robot file's key, as ``timing.period_s`` or ``joints.<joint>.velocity``.

    Raises:
        SchemaError: the schema does not declare it.
    """
    parameter = load_schema().key(path)
    extra: dict[str, Any] = {"parameter": path}
    if parameter.required:
        return Field(description=parameter.description, json_schema_extra=extra)
    default: Any = parameter.default
    default = tuple(default) if isinstance(default, list) else default
    return Field(default=default, description=parameter.description, json_schema_extra=extra)


def parameter_of(section: type[Section], name: str) -> Parameter | None:
    """What the schema says of a field; None for keys that are sections themselves.

    Args:
        section: class of settings.
        name: of its field.
    """
    extra = section.model_fields[name].json_schema_extra
    return load_schema().key(str(extra["parameter"])) if isinstance(extra, dict) else None


class Section(StrictModel):
    """Base of the sections of a robot's file. Values are judged by the ranges and choices of the schema."""

    @field_validator("*", mode="after")
    @classmethod
    def _as_declared(cls, value: Any, info: ValidationInfo) -> Any:
        parameter = parameter_of(cls, str(info.field_name))
        if parameter is None or value is None:
            return value
        if parameter.choices and value not in parameter.choices:
            raise problem(f"one of {', '.join(map(repr, parameter.choices))}")
        if parameter.range is not None:
            for i, number in enumerate(np.atleast_1d(value)):
                if number not in parameter.range:
                    index = {"index": i} if isinstance(value, tuple) else {}
                    raise problem(f"a number {parameter.range.words}", **index)
        return value
