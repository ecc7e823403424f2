"""Counts of a campaign's trials: by the values of settings, as plain data and as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rich.table import Table

__all__ = ["Trials", "ascending", "count_table", "finished", "groups_of", "red", "shown", "totals"]

Trials = list[dict[str, Any]]
TrialT = TypeVar("TrialT", bound=Mapping[str, Any])
Cell = Callable[[Mapping[str, Any]], str]


def finished(trials: Iterable[TrialT]) -> list[TrialT]:
    """Those that did not raise."""
    return [trial for trial in trials if "error" not in trial]


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


def red(*keys: str) -> Cell:
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
