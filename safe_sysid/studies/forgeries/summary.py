"""What campaigns of forgeries and contradictions found, in numbers and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from safe_sysid.studies.campaign.counts import ascending, count_table, finished, red, shown, totals
from safe_sysid.studies.forgeries.trial import is_missed, passes

__all__ = ["as_json", "complaint", "is_sound", "summarise", "table"]


_COLUMNS = ("trials", "passed", "missed", "errors", "noticed")


def is_sound(trial: dict[str, Any]) -> bool:
    """Whether nothing passed that must not, and the identifier saw every contradiction that its checker proves."""
    return "error" not in trial and not passes(trial) and not is_missed(trial)


def complaint(trial: dict[str, Any]) -> dict[str, Any]:
    """What is wrong with a trial, in short."""
    return {key: trial[key] for key in ("error", "way", "what", "answer", "resurrected", "empty") if key in trial}


def summarise(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts over trials. ``trials``: results.

    Returns:
        ``trials``; ``passed``: that must not; ``missed``: contradictions that only the checker saw; ``errors``:
        raised; ``noticed``: refused, or ended in contradiction; ``seconds`` of one core.
    """
    trials = list(trials)
    ran = finished(trials)
    return {
        **totals(trials),
        "passed": sum(passes(trial) for trial in ran),
        "missed": sum(is_missed(trial) for trial in ran),
        "noticed": sum(trial.get("empty", trial["answer"] != "PASS") for trial in ran),
        "answers": dict(Counter(trial["answer"] for trial in ran)),
    }


def _by_way(trials: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        groups.setdefault(trial.get("way", "error"), []).append(trial)
    return dict(sorted(groups.items()))


def as_json(header: dict[str, Any], trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Everything of a campaign: what it was, the counts, the counts by way, and all trials by index."""
    trials = ascending(trials)
    by = {way: summarise(part) for way, part in _by_way(trials).items()}
    return {**header, **summarise(trials), "by": by, "results": trials}


def table(trials: Iterable[dict[str, Any]], title: str) -> Table:
    """Counts by way."""
    trials = list(trials)
    columns = {name: (red if name in ("passed", "missed", "errors") else shown)(name) for name in _COLUMNS}
    return count_table(title, trials, summarise, columns, {"": _by_way(trials).items()}, "way")
