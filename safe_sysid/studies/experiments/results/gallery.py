"""Which pictures the results of a run allow, and their data: figures 5, 6 (to 10), 11 and 12."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.studies.experiments.results.figures import plot_bounds_of_methods, plot_mass, plot_tracking
from safe_sysid.studies.experiments.results.series import SeriesStore

__all__ = ["draw"]

Result = dict[str, Any]


def draw(table: str, options: dict[str, Any], results: Sequence[Result], store: SeriesStore, out: Path) -> list[Path]:
    """Draw the first repeat of what a table or figure shows; for table 3 all figures.

    ``table``: "3" or a figure. Returns the files written.
    """
    first = [r for r in results if "placements" in r and r["trial"] == 0]
    written = []
    for experiment in options["experiments"]:
        here = [(r, store.load(r["index"])) for r in first if r["experiment"] == experiment]
        here = [(result, series) for result, series in here if series]
        if not here:
            continue
        for payload in options["payloads"]:
            if table in ("3", "fig5"):
                written += _mass(here, experiment, payload, out)
            if table in ("3", "fig6"):
                written += _bounds(here, experiment, payload, out)
        if table in ("3", "fig11", "fig12"):
            written += _tracking(here, experiment, options["payloads"], out)
    return written


def _placements(
    here: Sequence[tuple[Result, dict[str, Any]]], payload: str
) -> Iterator[tuple[str, Result, dict[str, Any]]]:
    """Method, record and series of those that tried a payload."""
    for result, series in here:
        for placement in result["placements"]:
            if placement["payload"] == payload and placement["attempted"]:
                yield result["method"], placement, series


def _mass(here: Sequence[tuple[Result, Any]], experiment: str, payload: str, out: Path) -> list[Path]:
    wanted = ("ours", "random", "adap-1", "adap-1-excit")
    estimates: dict[str, Any] = {}
    phases: dict[str, tuple[float, float]] = {}
    truth, prior = float("nan"), (0.0, 1.0)
    for method, placement, series in _placements(here, payload):
        found = series.get(f"{payload}/mass")
        if method not in wanted or found is None or not len(found):
            continue
        estimates[method] = found
        truth, prior = placement["truth"][0], (series["prior"][0, 0], series["prior"][1, 0])
        if method == "ours" or not phases:
            phases = {name: (start, end) for name, (start, end) in placement["phases"].items()}
    if not estimates:
        return []
    path = out / f"fig5_{experiment}_{payload}.png"
    title = f"estimated mass of hand and {payload} dumbbell, experiment ({experiment})"
    plot_mass(path, estimates, truth, prior, phases, title)
    return [path]


def _bounds(here: Sequence[tuple[Result, Any]], experiment: str, payload: str, out: Path) -> list[Path]:
    found: dict[str, dict[str, Any]] = {}
    truth: list[float] = []
    prior = np.zeros((2, 10))
    for method, placement, series in _placements(here, payload):
        notes = placement["identification"]
        if method in ("ours", "random") and notes.get("lower"):
            found[method] = {key: notes[key][-1] for key in ("lower", "nominal", "upper")}
            truth, prior = placement["truth"], series["prior"]
    if not found:
        return []
    path = out / f"fig6_{experiment}_{payload}.png"
    title = f"bounds after the identification, hand and {payload} dumbbell, experiment ({experiment})"
    plot_bounds_of_methods(path, found, (prior[0], prior[1]), truth, title)
    return [path]


def _tracking(here: Sequence[tuple[Result, Any]], experiment: str, payloads: Sequence[str], out: Path) -> list[Path]:
    data: dict[str, dict[str, dict[str, Any]]] = {}
    limit = np.zeros(0)
    for payload in payloads:
        for method, _, series in _placements(here, payload):
            if f"{payload}/time" in series:
                data.setdefault(payload, {})[method] = {
                    key: series[f"{payload}/{key}"] for key in ("time", "error", "torque")
                }
                limit = series["torque_limit"]
    if not data:
        return []
    figure = {"a": "fig11", "b": "fig12"}.get(experiment, "tracking")
    path = out / f"{figure}_{experiment}.png"
    plot_tracking(path, data, limit, f"carrying each dumbbell, experiment ({experiment})")
    return [path]
