"""Summary of a campaign: counts of its trials by the values of settings, as numbers and as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from rich.table import Table

__all__ = [
    "CATEGORIES",
    "Trials",
    "as_json",
    "ascending",
    "complaint",
    "count_table",
    "finished",
    "groups_of",
    "is_sound",
    "must_be_zero",
    "rows_and_errors",
    "shown",
    "summarise",
    "table",
    "totals",
]


Trials = list[dict[str, Any]]
TrialT = TypeVar("TrialT", bound=Mapping[str, Any])
Cell = Callable[[Mapping[str, Any]], str]


def finished(trials: Iterable[TrialT]) -> list[TrialT]:
    """Those that did not raise."""
    return [trial for trial in trials if "error" not in trial]


def rows_and_errors(header: dict[str, Any], results: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """An experiment for programs: its ``header``, ``rows`` (trials that did not raise) and ``errors`` of the others."""
    results = list(results)
    errors = [result["error"] for result in results if "error" in result]
    return {**header, "rows": finished(results), "errors": errors}


def totals(trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What every campaign counts: ``trials``, ``errors`` (raised), and ``seconds`` of one core."""
    ran = finished(trials)
    seconds = round(sum(trial["seconds"] for trial in ran), 3)
    return {"trials": len(trials), "errors": len(trials) - len(ran), "seconds": seconds}


def ascending(trials: Iterable[dict[str, Any]]) -> Trials:
    """By index."""
    return sorted(trials, key=lambda trial: trial["index"])


def groups_of(trials: Iterable[dict[str, Any]], category: str) -> list[tuple[Any, Trials]]:
    """Results by the value of one setting, in order; those without settings are left out."""
    groups: dict[Any, Trials] = {}
    for trial in trials:
        if "settings" in trial:
            groups.setdefault(trial["settings"][category], []).append(trial)
    return sorted(groups.items(), key=lambda item: (isinstance(item[0], str), item[0]))


def shown(key: str, form: str = "") -> Cell:
    """A cell: the count as it is; a dash where there is none."""
    return lambda counts: "-" if counts[key] is None else format(counts[key], form)


def must_be_zero(*keys: str) -> Cell:
    """A cell: the sum of counts that should all be 0."""

    def cell(counts: Mapping[str, Any]) -> str:
        total = sum(counts[key] for key in keys)
        return f"[bold red]{total}[/]" if total else "0"

    return cell


def count_table(
    title: str,
    trials: Iterable[dict[str, Any]],
    summarise: Callable[[Trials], Mapping[str, Any]],
    columns: Mapping[str, Cell],
    groups: Mapping[str, Iterable[tuple[Any, Trials]]],
    first: str = "category",
) -> Table:
    """A row for all trials, then one for each group, in sections.

    Args:
        columns: what a cell shows of what ``summarise`` says; seconds of a trial come last.
        groups: sections, by name.
    """
    trials = list(trials)
    out = Table(title=title, title_justify="left")
    out.add_column(first)
    for name in (*columns, "s/trial"):
        out.add_column(name, justify="right")

    def add(name: str, part: Trials, style: str | None = None) -> None:
        counts = summarise(part)
        pace = f"{counts['seconds'] / max(counts['trials'], 1):.3g}"
        out.add_row(name, *(cell(counts) for cell in columns.values()), pace, style=style)

    add("all", trials, "bold")
    for section, parts in groups.items():
        out.add_section()
        for value, part in parts:
            add(f"{section} {value:g}" if isinstance(value, float) else f"{section} {value}".strip(), part)
    return out


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
        "trials": shown("trials"), "exclusions": must_be_zero("exclusions"), "empty sets": must_be_zero("empty_sets"),
        "broken eq.": must_be_zero("broken_equations"), "faults": must_be_zero("faults", "errors"),
        "width / prior": shown("median_width", ".3f"), "gap": shown("median_gap", ".2g"),
        "max row error": shown("largest_row", ".8f"),
    }  # fmt: skip
    return count_table(title, trials, summarise, columns, {name: groups_of(trials, name) for name in CATEGORIES})
