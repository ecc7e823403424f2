"""What a campaign found, in numbers and as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.table import Table

__all__ = ["CATEGORIES", "as_json", "complaint", "groups_of", "is_sound", "summarise", "table"]

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
    """Counts over trials of an identification campaign, each trial once.

    Args:
        trials: results.

    Returns:
        ``trials``; ``exclusions``: with the truth outside a published box; ``empty_sets``; ``caught``: with an empty
        set and no exclusion before; ``noticed``: with either; ``broken_equations``; ``faults``; ``errors``: raised;
        ``solver_failed``: with an update that no solver could improve; ``median_width``: over the prior's, median of
        ten and over trials; ``median_gap``: distance of the attacked bound from the truth over the prior's width,
        where the bound is better than the prior's;
        ``largest_row``: largest error of an equation over its proved bound; ``seconds``: of one core.
    """
    trials = list(trials)
    ran = [trial for trial in trials if "error" not in trial]
    widths = [trial["width_ratio"] for trial in ran if not trial["empty"]]
    gaps = [trial["gap"] for trial in ran if trial["gap"] is not None and not trial["empty"]]
    return {
        "trials": len(trials),
        "exclusions": sum(bool(trial["exclusions"]) for trial in ran),
        "empty_sets": sum(bool(trial["empty"]) for trial in ran),
        "caught": sum(bool(trial["empty"]) and not trial["exclusions"] for trial in ran),
        "noticed": sum(bool(trial["empty"] or trial["exclusions"]) for trial in ran),
        "broken_equations": sum(bool(trial["broken_rows"]) for trial in ran),
        "faults": sum(bool(trial["faults"]) for trial in ran),
        "errors": len(trials) - len(ran),
        "solver_failed": sum(bool(trial["failed"]) for trial in ran),
        "median_width": float(np.median(widths)) if widths else None,
        "median_gap": float(np.median(gaps)) if gaps else None,
        "largest_row": max((trial["largest_row"] for trial in ran), default=None),
        "seconds": round(sum(trial["seconds"] for trial in ran), 3),
    }


def as_json(header: dict[str, Any], trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Everything of a campaign: what it was, the counts, the counts by category, and all trials by index."""
    trials = sorted(trials, key=lambda trial: trial["index"])
    by_category = {
        category: {str(value): summarise(part) for value, part in groups_of(trials, category)}
        for category in CATEGORIES
    }
    return {**header, **summarise(trials), "by": by_category, "results": trials}


def groups_of(trials: list[dict[str, Any]], category: str) -> list[tuple[Any, list[dict[str, Any]]]]:
    """Results by the value of one setting, in order; those without settings are left out."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for trial in trials:
        if "settings" in trial:
            groups.setdefault(trial["settings"][category], []).append(trial)
    return sorted(groups.items(), key=lambda item: (isinstance(item[0], str), item[0]))


def table(trials: Iterable[dict[str, Any]], title: str) -> Table:
    """Counts by category."""
    trials = list(trials)
    out = Table(title=title, title_justify="left")
    out.add_column("category")
    for name in (
        "trials", "exclusions", "empty sets", "broken eq.", "faults", "width / prior", "gap", "max row error",
        "s/trial",
    ):  # fmt: skip
        out.add_column(name, justify="right")
    _add(out, "all", trials, bold=True)
    for category in CATEGORIES:
        out.add_section()
        for value, part in groups_of(trials, category):
            _add(out, f"{category} {value:g}" if isinstance(value, float) else f"{category} {value}", part)
    return out


def _add(out: Table, name: str, trials: list[dict[str, Any]], bold: bool = False) -> None:
    s = summarise(trials)

    def count(key: str) -> str:
        return f"[bold red]{s[key]}[/]" if s[key] else "0"

    def number(key: str, form: str) -> str:
        return "-" if s[key] is None else format(s[key], form)

    out.add_row(
        name, str(s["trials"]), count("exclusions"), count("empty_sets"), count("broken_equations"),
        f"[bold red]{s['faults'] + s['errors']}[/]" if s["faults"] + s["errors"] else "0",
        number("median_width", ".3f"), number("median_gap", ".2g"), number("largest_row", ".8f"),
        f"{s['seconds'] / max(s['trials'], 1):.2f}", style="bold" if bold else None,
    )  # fmt: skip
