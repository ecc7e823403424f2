"""Field types of our YAML files: finite numbers, lists of the right length, no unknown keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

__all__ = [
    "Kind",
    "Name",
    "NamePair",
    "NonNegative",
    "PerJoint",
    "PerJointNumbers",
    "Pose",
    "Positive",
    "Size3",
    "StrictModel",
    "Vector3",
    "Vector10",
    "as_tuple",
    "numbers",
    "problem",
]

PerJoint = float | tuple[float, ...]


@dataclass(frozen=True)
class Kind:
    """Mark of an annotation: which of the types of :mod:`safe_sysid.schema.parameter` its values are.

    Attributes:
        name: a key of ``TYPES``.
    """

    name: str


def problem(expected: str, **context: object) -> PydanticCustomError:
    """Error of a field: what was expected, ``index`` of a bad entry, ``below`` and ``value`` of a bad part."""
    return PydanticCustomError("value", "{expected}", {"expected": expected, **context})


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def numbers(count: int | None = None, positive: bool = False, lowest: float | None = None) -> Callable[[Any], Any]:
    """Validator of a list of ``count`` finite numbers; 0: of any length; None: of any length, or one number for all."""
    what = "a finite number" + (" > 0" if positive else "" if lowest is None else f" >= {lowest:g}")
    shape = f"a list of {count} numbers" if count else "a list with one number per joint"
    shape = shape if count is not None else "a number, or " + shape

    def good(value: Any) -> bool:
        return _is_number(value) and (not positive or value > 0) and (lowest is None or value >= lowest)

    def check(value: Any) -> Any:
        if count is None and not isinstance(value, (list, tuple)):
            if not good(value):
                raise problem(what if _is_number(value) or isinstance(value, float) else shape)
            return float(value)
        if not isinstance(value, (list, tuple)) or not value or (count and len(value) != count):
            raise problem(shape)
        for i, entry in enumerate(value):
            if not good(entry):
                raise problem(what, index=i)
        return tuple(float(entry) for entry in value)

    return check


def as_tuple(value: Any) -> Any:
    """YAML's lists as tuples, which stay as they are."""
    return tuple(value) if isinstance(value, list) else value


Vector3 = Annotated[tuple[float, ...], PlainValidator(numbers(3)), Kind("vector3")]
Size3 = Annotated[tuple[float, ...], PlainValidator(numbers(3, positive=True))]
Vector10 = Annotated[tuple[float, ...], PlainValidator(numbers(10)), Kind("vector10")]
Pose = Annotated[tuple[float, ...], PlainValidator(numbers(0)), Kind("pose")]
PerJointNumbers = Annotated[PerJoint, PlainValidator(numbers()), Kind("per_joint")]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Name = Annotated[str, Field(min_length=1)]


NamePair = Annotated[tuple[Name, ...], BeforeValidator(as_tuple), Field(min_length=2, max_length=2)]


class StrictModel(BaseModel):
    """Base of all sections: unknown keys, texts for numbers, NaN and infinity are errors; never changed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
