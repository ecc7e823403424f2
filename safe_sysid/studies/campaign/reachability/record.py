"""What an attack found: counts, how near it came, and every violation with what repeats it.

A claim is an upper bound (lower bounds are negated). Floats only propose: where what was found comes within rounding of
what is claimed, the value is computed again in 40 digits, and *any* excess over the claim is a violation. Claims for
which there is no such computation (hypotheses, commands, forms at given symbols) need an excess above rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.studies.campaign.reachability.exact import digits, number

__all__ = ["AttackRecord"]

#: Relative distance from a claim below which floats do not decide; evaluations in the attack err by less.
_DOUBT = 1e-11
#: Computations in 40 digits per family and trial, largest excess first.
_EXACT = 8
_KEPT = 5


@dataclass
class AttackRecord:
    """Findings of one trial."""

    #: per family, how many were attacked by ascent: one is one end of one range in one cell
    enclosures: dict[str, int] = field(default_factory=dict)
    extrema: int = 0  #: ends of ranges of the desired motion, compared with the exact extrema of its polynomials
    samples: int = 0  #: points evaluated besides
    exact: int = 0  #: values computed in 40 digits
    #: per family, for each attacked enclosure, what was found over what is claimed, both from the middle
    nearest: dict[str, list[float]] = field(default_factory=dict)
    #: what was found beyond a claim; the worst of each family
    violations: list[dict[str, Any]] = field(default_factory=list)
    broken: int = 0
    _used: dict[str, int] = field(default_factory=dict)

    def attacked(self, family: str, count: int, shares: FloatArray | None = None) -> None:
        """Count enclosures of a family; ``shares`` say how near the attack came to their ends."""
        self.enclosures[family] = self.enclosures.get(family, 0) + count
        if shares is not None:
            self.share(family, shares)

    def share(self, family: str, shares: FloatArray) -> None:
        """Say how near an attack came to what is claimed; what is not finite does not count."""
        good = np.asarray(shares, float).ravel()
        self.nearest.setdefault(family, []).extend(good[np.isfinite(good)].tolist())

    def check(
        self,
        family: str,
        claimed: FloatArray | float,
        found: FloatArray | float,
        where: Callable[[tuple[int, ...]], dict[str, Any]],
        exact: Callable[[tuple[int, ...]], Any] | None = None,
        size: FloatArray | float = 0.0,
    ) -> None:
        """Compare what was found with upper bounds.

        Args:
            claimed: upper bounds; NaN claims nothing.
            found: of the same shape.
            exact: the value of an entry in extended precision, at the same point; None where floats are exact enough.
            size: magnitude of the terms that were summed up, broadcast; rounding is relative to it.
        """
        claimed, found = np.broadcast_arrays(np.asarray(claimed, float), np.asarray(found, float))
        with np.errstate(invalid="ignore"):
            excess = found - claimed
            doubt = _DOUBT * (np.abs(claimed) + np.abs(found) + size)
            open_ = (excess > (-doubt if exact is not None else doubt)) & np.isfinite(claimed)
        if np.any(np.isnan(found) & np.isfinite(claimed)):
            at = tuple(int(i) for i in np.argwhere(np.isnan(found) & np.isfinite(claimed))[0])
            self._violation(family, float(claimed[at]), float("nan"), float("nan"), where(at))
        entries = [tuple(int(i) for i in row) for row in np.argwhere(open_)]
        entries.sort(key=lambda at: -excess[at])
        for at in entries:
            if exact is None:
                self._violation(family, float(claimed[at]), float(found[at]), float(excess[at]), where(at))
                continue
            if self._used.get(family, 0) >= _EXACT:
                break
            self._used[family] = self._used.get(family, 0) + 1
            self.exact += 1
            value = exact(at)
            with digits():
                over = value - number(float(claimed[at]))
                if over > 0:
                    self._violation(family, float(claimed[at]), float(value), float(over), where(at))

    def _violation(self, family: str, claimed: float, found: float, excess: float, where: dict[str, Any]) -> None:
        self.broken += 1
        own = [v for v in self.violations if v["family"] == family]
        entry = {"family": family, "claimed": claimed, "found": found, "excess": excess, **where}
        if len(own) < _KEPT:
            self.violations.append(entry)
        else:
            least = min(own, key=lambda v: v["excess"])
            if excess > least["excess"]:
                self.violations[self.violations.index(least)] = entry

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "enclosures": sum(self.enclosures.values()),
            "families": dict(sorted(self.enclosures.items())),
            "extrema": self.extrema,
            "samples": self.samples,
            "exact": self.exact,
            "nearest": {
                name: [round(float(np.median(x)), 6), round(float(np.max(x)), 9)]
                for name, x in sorted(self.nearest.items())
                if x
            },
            "violations": self.violations,
            "broken": self.broken,
        }
