"""Results of an attack: counts, nearest approach, and each violation with the command that repeats it.

A claim is an upper bound (lower bounds are negated). Floats only propose: where what was found comes within rounding of
what is claimed, the value is computed again in 40 digits, and *any* excess over the claim is a violation. Claims for
which there is no such computation (hypotheses, commands, forms at given symbols) need an excess above rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.core.arrays import FloatArray
from safe_sysid.studies.campaign.reachability.exact import digits, number
from safe_sysid.studies.campaign.reachability.tube import Tube
from safe_sysid.studies.campaign.summary import ascending, count_table, finished, groups_of, must_be_zero, shown, totals

__all__ = ["CATEGORIES", "AttackRecord", "as_json", "climb", "complaint", "is_sound", "summarise", "table"]


#: Settings by which the table is broken down.
CATEGORIES = ("robot", "joints", "motion", "tracking", "box", "obstacles", "intervals", "errors", "far")


def is_sound(trial: dict[str, Any]) -> bool:
    """Whether nothing is wrong with a trial."""
    return not (trial.get("error") or trial.get("broken"))


def complaint(trial: dict[str, Any]) -> dict[str, Any]:
    """What is wrong with a trial, in short."""
    if "error" in trial:
        return {"error": trial["error"]}
    short = [{k: v for k, v in found.items() if k != "symbols"} for found in trial["violations"][:2]]
    return {"violations": trial["broken"], "such as": short}


def summarise(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts over trials. ``trials``: results.

    Returns:
        ``trials``; ``enclosures``: attacked by ascent, and by family (``families``); ``extrema``: ends of ranges of the
        desired motion compared with exact extrema; ``samples``: states looked at besides; ``exact``: values
        computed in 40 digits; ``violations``: claims that were exceeded; ``noticed``: trials with any; ``errors``:
        trials that raised; ``certified``: plans that were; ``nearest``: by family, how near attacks came, that is width
        of what was found over the enclosure's (or value over its bound), median over trials of the medians, and
        largest; ``seconds``: of one core.
    """
    trials = list(trials)
    ran = finished(trials)
    families: dict[str, int] = {}
    shares: dict[str, list[list[float]]] = {}
    for trial in ran:
        for name, count in trial["families"].items():
            families[name] = families.get(name, 0) + count
        for name, pair in trial["nearest"].items():
            shares.setdefault(name, []).append(pair)
    return {
        **totals(trials),
        "enclosures": sum(trial["enclosures"] for trial in ran),
        "families": dict(sorted(families.items())),
        "extrema": sum(trial["extrema"] for trial in ran),
        "samples": sum(trial["samples"] for trial in ran),
        "exact": sum(trial["exact"] for trial in ran),
        "violations": sum(trial["broken"] for trial in ran),
        "noticed": sum(bool(trial["broken"]) for trial in ran),
        "certified": sum(trial["certified"] for trial in ran),
        "nearest": {
            name: [float(np.median([pair[0] for pair in pairs])), max(pair[1] for pair in pairs)]
            for name, pairs in sorted(shares.items())
        },
    }


def as_json(header: dict[str, Any], trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Everything of a campaign: what it was, the counts, also by category, and all trials, with what repeats them."""
    trials = ascending(trials)
    by_category = {
        category: {str(value): _short(summarise(part)) for value, part in groups_of(trials, category)}
        for category in CATEGORIES
    }
    broken = header["options"].get("break")
    told = f" --break {broken}" if broken else ""
    start = f"safe-sysid campaign reachability --seed {header['seed']}{told} --trial "
    results = [trial | {"repeat": f"{start}{trial['index']}"} for trial in trials]
    return {**header, **summarise(trials), "by": by_category, "results": results}


def _short(counts: dict[str, Any]) -> dict[str, Any]:
    return {key: counts[key] for key in ("trials", "enclosures", "violations", "errors", "seconds")}


def table(trials: Iterable[dict[str, Any]], title: str) -> Table:
    """Counts by category, and how near the attack came by family."""
    trials = list(trials)
    plain = ("trials", "enclosures", "extrema", "samples", "violations", "errors", "certified")
    columns = {name: (must_be_zero if name in ("violations", "errors") else shown)(name) for name in plain}
    out = count_table(title, trials, summarise, columns, {name: groups_of(trials, name) for name in CATEGORIES})
    out.add_section()
    for name, (middle, most) in summarise(trials)["nearest"].items():
        out.add_row(f"nearest: {name}", *[""] * 3, f"{middle:.3f}", f"{most:.6f}", "", "", "")
    return out


_STEPS = (1.0, 0.4, 0.1, 0.02)
_DIFFERENCE = 1e-4


def climb(tube: Tube, x: FloatArray, value: Callable[..., FloatArray], turns: int = 5) -> tuple[FloatArray, FloatArray]:
    """Largest values found from some starts. Returns symbols (N, size) and values (N,).

    Args:
        x: (N, size) starts, in the set.
        value: ``(rows, x) -> (len(rows),)``, what to make large, of the goals ``rows`` at symbols x.
    """
    n, live = tube.n, np.flatnonzero(tube.live)
    rows = np.arange(len(x))
    best = value(rows, x)
    for _ in range(turns):
        inner = tube.project(x * (1.0 - 2.0 * _DIFFERENCE))
        moved = np.repeat(inner[:, None], len(live) + 1, axis=1)
        moved[:, np.arange(len(live)), live] += _DIFFERENCE
        near = value(np.repeat(rows, len(live) + 1), moved.reshape(-1, x.shape[1]))
        near = near.reshape(len(x), len(live) + 1)
        slope = np.zeros_like(x)
        slope[:, live] = near[:, :-1] - near[:, -1:]
        worst = np.sign(slope)
        for part in (slice(1, n + 1), slice(n + 1, 2 * n + 1)):
            length = np.linalg.norm(slope[:, part], axis=1, keepdims=True)
            worst[:, part] = slope[:, part] / np.where(length > 0.0, length, 1.0)
        worst = np.where(slope != 0.0, worst, x)
        before = best.copy()
        start = x.copy()
        for step in _STEPS:
            trial = tube.project(start + step * (worst - start))
            found = value(rows, trial)
            better = found > best
            x[better], best[better] = trial[better], found[better]
        if not np.any(best > before + 1e-12 * np.abs(before)):
            break
    return x, best


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
