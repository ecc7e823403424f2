"""Costs by name, and weighted sums of them: ``"condition"``, ``"width+0.3*goal"``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.extensions import COSTS, chosen
from safe_sysid.planning.costs.base import Cost
from safe_sysid.planning.costs.context import CostContext
from safe_sysid.planning.optimiser.family import TrajectoryFamily

__all__ = ["COST_NAMES", "CostSpec", "MixedCost", "build_cost"]


@dataclass(frozen=True, eq=False)
class MixedCost:
    """``sum_i weight_i cost_i`` over one family. ``terms``: (weight, cost) pairs, at least one."""

    terms: tuple[tuple[float, Cost], ...]

    @property
    def family(self) -> TrajectoryFamily:
        """The trajectories that k selects from."""
        return self.terms[0][1].family

    def value(self, k: FloatArray) -> float:
        """The cost."""
        return float(sum(weight * cost.value(k) for weight, cost in self.terms))

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        """The cost and its derivative (n,)."""
        value, gradient = 0.0, np.zeros(np.size(k))
        for weight, cost in self.terms:
            part, slope = cost.value_and_gradient(k)
            value += weight * part
            gradient += weight * slope
        return float(value), gradient

    def gauss_newton(self, k: FloatArray) -> FloatArray | None:
        """The sum of the terms' (n, n); None unless every term has one."""
        parts = [(weight, cost.gauss_newton(k)) for weight, cost in self.terms]
        total = np.zeros((np.size(k), np.size(k)))
        for weight, part in parts:
            if part is None:
                return None
            total += weight * part
        return total


_TERM = re.compile(r"(?:(?P<weight>[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*\*\s*)?(?P<name>[a-z_]+)")

#: What a term of a specification may be called.
COST_NAMES = tuple(COSTS)


@dataclass(frozen=True)
class CostSpec:
    """A weighted sum of named costs.

    Every name's cost has the same unit: 1 is "e times narrower" for those of excitation, and "nearer by one full step"
    for the goal.
    """

    terms: tuple[tuple[float, str], ...]  #: (weight, name), at least one, no name twice

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            PlanError: no term, an unknown or repeated name, a weight that is not positive.
        """
        names = [name for _, name in self.terms]
        if not names:
            raise PlanError(f"cost: no term: expected one of {', '.join(COST_NAMES)}, or a sum")
        for weight, name in self.terms:
            if name not in COST_NAMES:
                raise PlanError(f"cost {name!r}: expected one of {', '.join(COST_NAMES)}, or a sum")
            if not (np.isfinite(weight) and weight > 0.0):
                raise PlanError(f"cost {name}: weight = {weight!r}: expected a positive number")
            if names.count(name) > 1:
                raise PlanError(f"cost {name!r} appears {names.count(name)} times: expected once")

    @classmethod
    def parse(cls, text: str | CostSpec) -> CostSpec:
        """From ``name``, ``weight*name`` or a sum of these, as in ``width+0.3*goal``.

        Raises:
            PlanError: anything else.
        """
        if isinstance(text, CostSpec):
            return text
        terms = []
        for part in re.split(r"(?<![0-9.][eE])\+", text):  # the sign of an exponent joins nothing
            match = _TERM.fullmatch(part.strip())
            if match is None:
                raise PlanError(
                    f"cost {text!r}: cannot read {part.strip()!r}: expected a sum of terms such as 0.3*goal"
                )
            weight = match["weight"]
            try:
                terms.append((1.0 if weight is None else float(weight), match["name"]))
            except ValueError:
                raise PlanError(f"cost {text!r}: weight {weight!r}: expected a number") from None
        return cls(tuple(terms))

    def uses(self, name: str) -> bool:
        """Whether a term has this name."""
        return any(name == other for _, other in self.terms)

    def __str__(self) -> str:
        return "+".join(name if weight == 1.0 else f"{weight!r}*{name}" for weight, name in self.terms)


def build_cost(spec: CostSpec | str, context: CostContext) -> Cost:
    """The cost that a specification names.

    Args:
        spec: which, e.g. ``"width+0.3*goal"``.

    Raises:
        PlanError: an unknown cost, or a goal that is missing.
    """
    terms = tuple((weight, chosen(COSTS, name, "cost")(context)) for weight, name in CostSpec.parse(spec).terms)
    if len(terms) == 1 and terms[0][0] == 1.0:
        return terms[0][1]
    return MixedCost(terms)
