"""Margin: the distance to a limit, as planner, certificates, plan files, reports and pictures use it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least
from safe_sysid.schema.fields import StrictModel

__all__ = ["UNITS", "Margin", "MarginRecord", "margin_records"]

#: Families of limits, with the unit of their margins.
UNITS = {
    "position": "rad",
    "velocity": "rad/s",
    "acceleration": "rad/s^2",
    "torque": "N m",
    "clearance": "m",
    "self_clearance": "m",
    "tracking": "of the limit",
}


@dataclass(frozen=True)
class Margin:
    """Smallest margin of a family of limits: how much, where, when."""

    family: str  #: key of ``UNITS``
    a: str  #: joint, body, or hypothesis of the tracking theorem; ``none`` where nothing constrains the family
    b: str  #: the other body, or the joint that the hypothesis is about; empty where there is none
    value: float  #: in ``unit``; negative is a violation, NaN an enclosure that broke down, inf no constraint
    time: float  #: since the motion's start, s; where the motion is cut into cells, the start of the worst one

    @classmethod
    def unconstrained(cls, family: str) -> Margin:
        """Of a family that nothing constrains."""
        return cls(family, "none", "", math.inf, 0.0)

    @classmethod
    def smallest(cls, family: str, labels: Sequence[tuple[str, str]], values: FloatArray, times: FloatArray) -> Margin:
        """Of margins (N, c) at times (N,) of constraints named (a, b); NaN is smaller than any number."""
        if values.size == 0:
            return cls.unconstrained(family)
        at, column = np.unravel_index(int(np.argmin(values)), values.shape)  # argmin finds NaN first
        return cls(family, *labels[int(column)], float(values[at, column]), float(times[at]))

    @property
    def unit(self) -> str:
        """Of ``value``: rad, rad/s, rad/s^2, N m, m or share of the limit."""
        return UNITS[self.family]

    @property
    def culprit(self) -> str:
        """``a`` and ``b`` in words, as ``joint_6``, ``ground - payload`` or ``jerk of joint_2``."""
        return _joint_of(self.family).join((self.a, self.b)) if self.b else self.a

    @property
    def ok(self) -> bool:
        """Whether the limit is kept; False for NaN."""
        return self.value >= 0.0

    def text(self, over: str = "") -> str:
        """E.g. ``torque 1.3 N m (joint_6, 0.42 s)``; ``over``: what it is counted from, behind the family's name."""
        if self.value == math.inf:
            return f"{self.family} unconstrained"
        return f"{self.family}{over} {at_least(self.value, 4)} {self.unit} ({self.culprit}, {self.time:.2f} s)"

    __str__ = text


class MarginRecord(StrictModel):
    """A margin in a JSON file, under its family's name; ``smallest`` null: nothing constrains the family."""

    smallest: float | None
    unit: str
    time: float
    culprit: str

    @classmethod
    def of(cls, margin: Margin) -> MarginRecord:
        """As a file has it; NaN has no place in one."""
        smallest = None if margin.value == math.inf else margin.value
        return cls(smallest=smallest, unit=margin.unit, time=margin.time, culprit=margin.culprit)

    def margin(self, family: str) -> Margin:
        """As everything else has it.

        Raises:
            ValueError: family or unit unknown.
        """
        if self.unit != UNITS.get(family):
            expected = repr(UNITS[family]) if family in UNITS else f"a family of {', '.join(UNITS)}"
            raise ValueError(f"{family[:40]}.unit = {self.unit[:40]!r}: expected {expected}")
        a, _, b = self.culprit.partition(_joint_of(family))
        return Margin(family, a, b, math.inf if self.smallest is None else self.smallest, self.time)


def margin_records(margins: Mapping[str, Margin]) -> dict[str, dict[str, Any]]:
    """Margins by family for a JSON file, which knows no NaN: a family whose enclosure broke down is left out."""
    return {name: MarginRecord.of(m).model_dump() for name, m in margins.items() if not math.isnan(m.value)}


def _joint_of(family: str) -> str:
    return " of " if family == "tracking" else " - "
