"""One parameter: what it is, which values it takes, when it may change."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from safe_sysid.core.units import unit_for

__all__ = ["NODE_TYPES", "REQUIRED", "TYPES", "WHEN", "Parameter", "Range"]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


#: The default of a parameter that must be given.
REQUIRED: Final = _Required()

#: Types of node parameters, and what is said of a value that has another one.
NODE_TYPES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "text": "a text",
    "floats": "a list of numbers",
}
_PYTHON: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float,),
    "text": (str,),
    "floats": (list, tuple),
}
#: Types of a robot file's keys besides; their Python types are those of the settings' classes.
TYPES = {
    **NODE_TYPES,
    "section": "keys of their own",
    "per_joint": "a number for all joints, or a list with one for each",
    "pose": "a list with a number for each joint",
    "vector3": "a list of 3 numbers",
    "vector10": "a list of 10 numbers",
    "range": "[smallest, largest]",
    "limits": "[lower, upper], or the word `continuous`",
    "box": "{center: [x, y, z], size: [x, y, z]}, or the word `envelope`",
    "hulls": "a list of {points: [[x, y, z], ...], radius: r}",
    "names": "a list of names",
    "pairs": "a list of pairs of names",
    "travels": "{joint: [lower, upper], ...}",
}
WHEN = {
    "live": "may be changed at any time",
    "configure": "may be changed while the node is unconfigured",
    "start": "read-only: given at the start of the node",
}


@dataclass(frozen=True)
class Range:
    """An interval of numbers, as ``[0, 1)``.

    Attributes:
        lower, upper: ends, which may be infinite.
        with_lower, with_upper: whether they belong to it.
    """

    lower: float
    upper: float
    with_lower: bool
    with_upper: bool

    @classmethod
    def parse(cls, text: str) -> Range:
        """Read.

        Raises:
            ValueError: no such text, or lower > upper.
        """
        match = re.fullmatch(r"([\[(])\s*(\S+)\s*,\s*(\S+)\s*([\])])", text)
        if match is None:
            raise ValueError(text)
        found = cls(float(match[2]), float(match[3]), match[1] == "[", match[4] == "]")
        if not found.lower < found.upper:
            raise ValueError(text)
        return found

    def __contains__(self, value: float) -> bool:
        above = value >= self.lower if self.with_lower else value > self.lower
        below = value <= self.upper if self.with_upper else value < self.upper
        return above and below

    def __str__(self) -> str:
        return f"{'[' if self.with_lower else '('}{self.lower:.10g}, {self.upper:.10g}{']' if self.with_upper else ')'}"

    @property
    def words(self) -> str:
        """``> 0``, ``>= 0 and < 1``; nothing for all numbers."""
        words = []
        if math.isfinite(self.lower):
            words.append(f"{'>=' if self.with_lower else '>'} {self.lower:.10g}")
        if math.isfinite(self.upper):
            words.append(f"{'<=' if self.with_upper else '<'} {self.upper:.10g}")
        return " and ".join(words)


@dataclass(frozen=True)
class Parameter:
    """One setting, as :func:`safe_sysid.schema.setting` declares it.

    Attributes:
        path: dotted; ``<joint>`` and ``<link>`` stand for any name.
        type: one of ``TYPES``.
        when: one of ``WHEN``.
        unit: SI, or "".
        default: ``REQUIRED`` where there is none.
        unset: what the default stands for, "" for itself.
        range: of a number, or of each number in a list.
        choices: of a text; () for any.
    """

    path: str
    type: str
    when: str
    description: str
    unit: str = ""
    default: Any = REQUIRED
    unset: str = ""
    range: Range | None = None
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is REQUIRED

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Of the paths that are this parameter's."""
        return re.compile(re.sub(r"<\w+>", ".+", self.path.replace(".", r"\.")))

    @property
    def sentence(self) -> str:
        """The description, for where no other words stand around it."""
        return f"{self.description[0].upper()}{self.description[1:]}."

    @property
    def nullable(self) -> bool:
        """Whether a robot's file may say null."""
        return self.default is None or "null:" in self.description

    def unit_for(self, sliding: Iterable[bool]) -> str:
        """The unit as some joints have it: of ``rad or m`` rad where they turn, m where they slide, else both."""
        return unit_for(self.unit, sliding)

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        if self.choices:
            known = ", ".join(self.choices)
            return f"one of {known}" if not self.unset else f"one of {known}, or nothing"
        words = self.range.words if self.range is not None else ""
        each = "; each" if words and "list" in TYPES[self.type] else ""
        return f"{TYPES[self.type]}{each} {words}".rstrip()

    def is_default(self, value: object) -> bool:
        """Whether a value is the default; nan equals nan."""
        if isinstance(value, float) and isinstance(self.default, float) and math.isnan(value):
            return math.isnan(self.default)
        return type(value) is type(self.default) and bool(value == self.default)

    def why_not(self, value: object) -> str:
        """What was expected instead of a value of a node parameter; "" if it may have it."""
        if self.unset and self.is_default(value):
            return ""
        if not isinstance(value, _PYTHON[self.type]) or (isinstance(value, bool) and self.type != "bool"):
            return self.expected
        if self.choices and value not in self.choices:
            return self.expected
        for number in _numbers(value):
            if isinstance(number, float) and not math.isfinite(number):
                return self.expected.replace("a number", "a finite number")
            if self.range is not None and number not in self.range:
                return self.expected
        return ""

    def convert(self, value: object) -> object:
        """Numbers as this parameter has them, where nothing is lost: 1 for a float is 1.0, 3 for a text "3"."""
        if isinstance(value, bool):
            return value
        if self.type == "float" and isinstance(value, int) and _is_number(value):
            return float(value)
        if self.type == "text" and isinstance(value, int):
            return str(value)
        if self.type == "floats" and isinstance(value, (list, tuple)) and all(map(_is_number, value)):
            return [float(entry) for entry in value]
        return value


def _is_number(value: object) -> bool:
    """Not a bool, and not an integer that no float comes near to."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**1000
    return isinstance(value, float)


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (list, tuple)):
        yield from (entry if _is_number(entry) else math.nan for entry in value)
