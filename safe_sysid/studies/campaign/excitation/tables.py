"""From records of runs to tables: which cost narrows the bounds fastest, and PSO Table V."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.studies.campaign.excitation.episodes import RANDOM

__all__ = ["TABLE_FIVE", "ConditionRow", "WidthRow", "condition_rows", "log_shrinkage", "width_rows"]

FloatArray = NDArray[np.float64]

#: PSO Table V: payload to the condition number of Y after four plans, theirs and of random plans.
TABLE_FIVE = {
    "4lb": (274.030, 479.573),
    "5lb": (282.840, 418.078),
    "6lb": (250.704, 373.448),
    "7lb": (258.517, 312.352),
    "8lb": (233.539, 413.381),
}


def log_shrinkage(record: dict[str, Any]) -> FloatArray:
    """(updates,) mean log of the ten widths over the prior's: -1 is "e times narrower", parameter by parameter."""
    widths = np.asarray(record["widths"], float) / np.asarray(record["prior"], float)
    return np.asarray(np.log(np.maximum(widths, 1e-12)).mean(axis=1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class WidthRow:
    """Runs of one cost under one kind of noise.

    Attributes:
        noise, cost: which.
        runs: how many.
        sound: whether every box of every run held the truth, and nothing was refused.
        widths: (10,) median of the final widths.
        shrinkage: mean over runs of the final :func:`log_shrinkage`.
        against: mean difference of that to the reference cost in the same runs, negative is better; nan without.
        error: standard error of that mean; nan below three runs.
    """

    noise: str
    cost: str
    runs: int
    sound: bool
    widths: FloatArray
    shrinkage: float
    against: float
    error: float


def _world(record: dict[str, Any]) -> tuple[Any, ...]:
    """What two runs must share to be compared one by one."""
    return tuple(record[name] for name in ("noise", "seed", "payload", "scene", "robot", "plans"))


def width_rows(records: Sequence[dict[str, Any]], reference: str = RANDOM) -> list[WidthRow]:
    """One row per noise and cost, best first within a noise."""
    final = {
        (record["cost"], _world(record)): (record, float(log_shrinkage(record)[-1])) for record in records
    }
    groups: dict[tuple[str, str], list[tuple[dict[str, Any], float, float]]] = defaultdict(list)
    for (cost, world), (record, value) in final.items():
        other = final.get((reference, world))
        groups[record["noise"], cost].append((record, value, np.nan if other is None else value - other[1]))
    rows = []
    for (noise, cost), members in groups.items():
        differences = np.array([difference for _, _, difference in members])
        differences = differences[np.isfinite(differences)]
        count = len(differences)
        rows.append(
            WidthRow(
                noise=noise,
                cost=cost,
                runs=len(members),
                sound=all(record["inside"] and not record["refusals"] for record, _, _ in members),
                widths=np.median([record["widths"][-1] for record, _, _ in members], axis=0),
                shrinkage=float(np.mean([value for _, value, _ in members])),
                against=float(differences.mean()) if count else np.nan,
                error=float(differences.std(ddof=1) / np.sqrt(count)) if count > 2 else np.nan,
            )
        )
    return sorted(rows, key=lambda row: (row.noise, row.shrinkage))


@dataclass(frozen=True)
class ConditionRow:
    """Condition numbers of Y with one payload.

    Attributes:
        payload: which.
        runs: of each cost, in the order of the keys of ``ours``.
        ours: cost to the median of the condition number of unscaled columns.
        scaled: cost to that of columns scaled by the prior's radii.
        paper: (theirs, random) of PSO Table V; nan for payloads that it does not have.
    """

    payload: str
    runs: tuple[int, ...]
    ours: dict[str, float]
    scaled: dict[str, float]
    paper: tuple[float, float]


def condition_rows(records: Sequence[dict[str, Any]]) -> list[ConditionRow]:
    """One row per payload."""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        groups[record["payload"]][record["cost"]].append(record)
    return [
        ConditionRow(
            payload=payload,
            runs=tuple(len(some) for some in costs.values()),
            ours={cost: float(np.median([r["condition"] for r in some])) for cost, some in costs.items()},
            scaled={
                cost: float(np.median([r["condition_scaled"] for r in some])) for cost, some in costs.items()
            },
            paper=TABLE_FIVE.get(payload, (np.nan, np.nan)),
        )
        for payload, costs in sorted(groups.items())
    ]
