"""The paper's tables III, IV and V with its cells beside ours, from results of trials; for a terminal and for JSON."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.studies.experiments.correlation import DRAWS, TABLE_FOUR, Correlations
from safe_sysid.studies.experiments.results.paper import EXPERIMENTS, TABLE_THREE

__all__ = [
    "TABLE_FIVE",
    "ConditionRow",
    "condition_rows",
    "condition_table",
    "correlation_table",
    "correlations_of",
    "outcome",
    "records",
    "success_table",
    "summary_of",
    "width_table",
]


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


Result = dict[str, Any]


def records(results: Sequence[Result]) -> list[Result]:
    """One record per dumbbell (tables III), or per run or motion; trials that raised are records with ``error``."""
    flat: list[Result] = []
    for result in results:
        shared = {key: value for key, value in result.items() if key != "placements"}
        if "placements" not in result:
            flat.append(shared)
            continue
        shared = {key: result[key] for key in ("experiment", "method", "seed", "trial", "index")}
        flat += [{**shared, **placement} for placement in result["placements"]]
    return flat


def outcome(result: Result) -> str:
    """A trial in the words of Table III: ``success``, ``fail at 6lb``, or ``collide``.

    Experiment (c) ends with ``collide`` where something was touched, else with what went wrong.
    """
    if "error" in result:
        return "error"
    if result["success"]:
        return "success"
    failed = next(placement for placement in result["placements"] if not placement["success"])
    if result["experiment"] == "c":
        return "collide" if failed["category"] == "collision" else str(failed["category"])
    return f"fail at {failed['payload']}"


def _why(results: Sequence[Result]) -> str:
    """What the failures of a cell were, most frequent first."""
    kinds = Counter(
        placement["category"]
        for result in results
        for placement in result.get("placements", ())
        if placement.get("attempted", True) and not placement["success"]
    )
    return ", ".join(kind for kind, _ in kinds.most_common())


def _cell(results: Sequence[Result]) -> str:
    outcomes = Counter(outcome(result) for result in results)
    if len(outcomes) == 1:
        text = f"{next(iter(outcomes))}"
    else:
        text = ", ".join(f"{name} {count}x" for name, count in outcomes.most_common())
    why = _why(results)
    said = why in text or (why, text) == ("collision", "collide")
    return text if said else f"{text} ({why})"


def success_table(results: Sequence[Result]) -> Table:
    """Table III: for every experiment the paper's cell, then ours."""
    where = {
        (e, m): [r for r in results if r.get("experiment") == e and r.get("method") == m]
        for e in EXPERIMENTS
        for m in TABLE_THREE
    }
    shown = [e for e in EXPERIMENTS if any(where[e, m] for m in TABLE_THREE)]
    repeats = max((len(found) for found in where.values()), default=0)
    told = "1 simulated repeat" if repeats == 1 else f"up to {repeats} simulated repeats"
    table = Table(title=f"PSO Table III: the paper's hardware, and {told}", title_justify="left")
    table.add_column("method", no_wrap=True)
    for e in shown:
        table.add_column(f"({e}) paper")
        table.add_column(f"({e}) here")
    for method, paper in TABLE_THREE.items():
        if not any(where[e, method] for e in shown):
            continue
        row = [method]
        for e in shown:
            found = where[e, method]
            here = _cell(found) if found else "not run"
            row += [paper[EXPERIMENTS.index(e)], f"[bold]{here}[/]" if here == "success" else here]
        table.add_row(*row)
    return table


def agreement(results: Sequence[Result]) -> dict[str, int]:
    """Cells whose outcome is the paper's in every repeat, and cells that were run."""
    same = run = 0
    for method, paper in TABLE_THREE.items():
        for e, cell in zip(EXPERIMENTS, paper, strict=True):
            found = [r for r in results if r.get("experiment") == e and r.get("method") == method]
            run += bool(found)
            same += bool(found) and all(outcome(r) == cell for r in found)
    return {"cells": run, "as_in_the_paper": same}


def correlations_of(results: Sequence[Result], draw: str) -> Correlations:
    """Condition numbers of all motions of one draw.

    ``draw``: key of :data:`~safe_sysid.studies.experiments.conditions.DRAWS`.
    """
    parts = [result[draw] for result in results if draw in result]
    return Correlations(
        np.array([part["torque"] for part in parts]),
        np.array([part["momentum"] for part in parts]),
        np.array([part["trapezoid"] for part in parts]),
    )


def correlation_table(results: Sequence[Result]) -> Table:
    """Table IV; fewer than three motions (of a run that was stopped) have no numbers, and show "-"."""
    kinds = ("as in the paper", "trapezoids", "ranks")
    plural = "" if len(results) == 1 else "s"
    table = Table(
        title=f"PSO Table IV: correlation of cond(W) and cond(Y), {len(results)} random motion{plural}",
        title_justify="left",
    )
    for name in ("h", "paper", *(f"{draw}: {kind}" for draw in DRAWS for kind in kinds)):
        table.add_column(name, justify="right")
    columns = []
    for draw in DRAWS:
        found = correlations_of(results, draw)
        if len(found.torque) < 3:
            columns += [np.full(len(TABLE_FOUR), np.nan)] * 3
        else:
            columns += [found.pearson(), found.pearson("trapezoid"), found.spearman()]
    for i, (h, theirs) in enumerate(TABLE_FOUR.items()):
        table.add_row(str(h), f"{theirs:.4f}", *(f"{c[i]:.4f}" if np.isfinite(c[i]) else "-" for c in columns))
    return table


def condition_table(results: Sequence[Result]) -> Table:
    """Table V: medians over repeats."""
    good = [result for result in results if "error" not in result]
    named = [{**result, "cost": result["method"]} for result in good]
    table = Table(
        title="PSO Table V: condition number of Y after four plans, medians (columns scaled by the prior)",
        title_justify="left",
    )
    for name in ("payload", "repeats", "paper: ours", "here: ours", "paper: random", "here: random"):
        table.add_column(name, justify="right")
    for row in condition_rows(named):
        here = [f"{row.ours[m]:.0f} ({row.scaled[m]:.0f})" if m in row.ours else "not run" for m in ("ours", "random")]
        table.add_row(row.payload, str(max(row.runs)), f"{row.paper[0]:.0f}", here[0], f"{row.paper[1]:.0f}", here[1])
    return table


def width_table(results: Sequence[Result]) -> Table:
    """What figure 6 shows, in numbers: widths of the bounds and errors of the estimate after the identification.

    ``results``: of trials of tasks; medians over repeats.
    """
    table = Table(title="bounds after the identification: width, and error of the nominal", title_justify="left")
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for record in records(results):
        notes = record.get("identification") or {}
        if notes.get("lower"):
            groups.setdefault((record["experiment"], record["payload"], record["method"]), []).append(record)
    table.add_column("parameter")
    for experiment, payload, method in groups:
        table.add_column(f"({experiment}) {payload} {method}", justify="right")
    for i, (name, unit) in enumerate(zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True)):
        row = [f"{name} [{unit}]".replace("[", "\\[")]
        for found in groups.values():
            notes = [(r["identification"], r["truth"]) for r in found]
            width = np.median([n["upper"][-1][i] - n["lower"][-1][i] for n, _ in notes])
            error = np.median([abs(n["nominal"][-1][i] - truth[i]) for n, truth in notes])
            row.append(f"{width:.4f}  {error:.4f}")
        table.add_row(*row)
    held = all(
        np.all(np.array(r["identification"]["lower"]) <= r["truth"])
        and np.all(np.array(r["truth"]) <= r["identification"]["upper"])
        for found in groups.values()
        for r in found
    )
    table.caption = "every interval held the truth" if held else "NOT EVERY INTERVAL HELD THE TRUTH"
    return table


def summary_of(header: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """Everything of a run for JSON: what it was, counts, and all records as ``trials``; null what is no number."""
    results = sorted(results, key=lambda result: result["index"])
    out = {**header, "runs": len(results), "errors": sum("error" in result for result in results)}
    tasks = [result for result in results if "placements" in result]
    if tasks:
        out["table_3"] = {
            method: {
                e: _cell(found)
                for e in EXPERIMENTS
                if (found := [r for r in tasks if r["experiment"] == e and r["method"] == method])
            }
            for method in TABLE_THREE
            if any(r["method"] == method for r in tasks)
        }
        out["table_3_paper"] = {
            method: dict(zip(EXPERIMENTS, TABLE_THREE[method], strict=True)) for method in out["table_3"]
        }
        out |= agreement(tasks)
    return dict(_plain({**out, "trials": records(results)}))


def _plain(value: Any) -> Any:
    """The same without NaN and infinities, which JSON has not."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
