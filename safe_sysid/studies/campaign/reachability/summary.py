"""What a reachability campaign found, in numbers and as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.studies.campaign.counts import ascending, count_table, finished, groups_of, red, shown, totals

__all__ = ["CATEGORIES", "as_json", "complaint", "is_sound", "summarise", "table"]

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
    columns = {name: (red if name in ("violations", "errors") else shown)(name) for name in plain}
    out = count_table(title, trials, summarise, columns, {name: groups_of(trials, name) for name in CATEGORIES})
    out.add_section()
    for name, (middle, most) in summarise(trials)["nearest"].items():
        out.add_row(f"nearest: {name}", *[""] * 3, f"{middle:.3f}", f"{most:.6f}", "", "", "")
    return out
