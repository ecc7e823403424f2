"""From records of runs to PSO Table V."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["TABLE_FIVE", "ConditionRow", "condition_rows"]

#: PSO Table V: payload to the condition number of Y after four plans, theirs and of random plans.
TABLE_FIVE = {
    "4lb": (274.030, 479.573),
    "5lb": (282.840, 418.078),
    "6lb": (250.704, 373.448),
    "7lb": (258.517, 312.352),
    "8lb": (233.539, 413.381),
}


@dataclass(frozen=True)
class ConditionRow:
    """Condition numbers of Y with one payload."""

    payload: str
    runs: tuple[int, ...]  #: of each cost, in the order of the keys of ``ours``
    ours: dict[str, float]  #: cost to the median of the condition number of unscaled columns
    scaled: dict[str, float]  #: cost to that of columns scaled by the prior's radii
    paper: tuple[float, float]  #: (theirs, random) of PSO Table V; nan for payloads that it does not have


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
            scaled={cost: float(np.median([r["condition_scaled"] for r in some])) for cost, some in costs.items()},
            paper=TABLE_FIVE.get(payload, (np.nan, np.nan)),
        )
        for payload, costs in sorted(groups.items())
    ]
