"""What a campaign found, in numbers and as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.studies.campaign.counts import ascending, count_table, finished, groups_of, red, shown, totals

__all__ = ["CATEGORIES", "as_json", "complaint", "is_sound", "summarise", "table"]

#: Settings by which the table of an identification campaign is broken down.
CATEGORIES = ("noise", "level", "motion", "payload", "joints", "source", "rate", "method", "prior", "simulated")
_WRONG = ("error", "exclusions", "empty", "broken_rows", "faults")


def is_sound(trial: dict[str, Any]) -> bool:
    """Whether nothing is wrong with a trial."""
    return not any(trial.get(key) for key in _WRONG)


def complaint(trial: dict[str, Any]) -> dict[str, Any]:
    """What is wrong with a trial, in short."""
    return {key: value for key, value in trial.items() if key in _WRONG and value}


def summarise(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts over trials of an identification campaign, each trial once. ``trials``: results.

    Returns:
        ``trials``; ``exclusions``: with the truth outside a published box; ``empty_sets``; ``caught``: with an empty
        set and no exclusion before; ``noticed``: with either; ``broken_equations``; ``faults``; ``errors``: raised;
        ``solver_failed``: with an update that no solver could improve; ``median_width``: over the prior's, median of
        ten and over trials; ``median_gap``: distance of the attacked bound from the truth over the prior's width,
        where the bound is better than the prior's;
        ``largest_row``: largest error of an equation over its proved bound; ``seconds``: of one core.
    """
    trials = list(trials)
    ran = finished(trials)
    widths = [trial["width_ratio"] for trial in ran if not trial["empty"]]
    gaps = [trial["gap"] for trial in ran if trial["gap"] is not None and not trial["empty"]]
    return {
        **totals(trials),
        "exclusions": sum(bool(trial["exclusions"]) for trial in ran),
        "empty_sets": sum(bool(trial["empty"]) for trial in ran),
        "caught": sum(bool(trial["empty"]) and not trial["exclusions"] for trial in ran),
        "noticed": sum(bool(trial["empty"] or trial["exclusions"]) for trial in ran),
        "broken_equations": sum(bool(trial["broken_rows"]) for trial in ran),
        "faults": sum(bool(trial["faults"]) for trial in ran),
        "solver_failed": sum(bool(trial["failed"]) for trial in ran),
        "median_width": float(np.median(widths)) if widths else None,
        "median_gap": float(np.median(gaps)) if gaps else None,
        "largest_row": max((trial["largest_row"] for trial in ran), default=None),
    }


def as_json(header: dict[str, Any], trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Everything of a campaign: what it was, the counts, the counts by category, and all trials by index."""
    trials = ascending(trials)
    by_category = {
        category: {str(value): summarise(part) for value, part in groups_of(trials, category)}
        for category in CATEGORIES
    }
    return {**header, **summarise(trials), "by": by_category, "results": trials}


def table(trials: Iterable[dict[str, Any]], title: str) -> Table:
    """Counts by category."""
    trials = list(trials)
    columns = {
        "trials": shown("trials"), "exclusions": red("exclusions"), "empty sets": red("empty_sets"),
        "broken eq.": red("broken_equations"), "faults": red("faults", "errors"),
        "width / prior": shown("median_width", ".3f"), "gap": shown("median_gap", ".2g"),
        "max row error": shown("largest_row", ".8f"),
    }  # fmt: skip
    return count_table(title, trials, summarise, columns, {name: groups_of(trials, name) for name in CATEGORIES})
