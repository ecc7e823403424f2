"""Pictures as the paper's figures 5, 6, 11 and 12, from the series that trials leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.picture_style import INK, new_figure, save_figure, style_axis
from safe_sysid.studies.experiments.results.paper import METHOD_NAMES
from safe_sysid.studies.experiments.results.series import SeriesStore

__all__ = ["draw", "plot_bounds_of_methods", "plot_mass", "plot_tracking"]


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


_TRUTH, _PRIOR, _LIMIT = "#d1495b", "#eceff3", "#c1121f"
_PALETTE = (
    "#1f6fb4", "#c1121f", "#e08e0b", "#2a9d5c", "#8a4fbe", "#b36fe0",
    "#b5651d", "#d9a066", "#5c6770", "#17a2b8", "#9aa516",
)  # fmt: skip
COLOURS = dict(zip(METHOD_NAMES, _PALETTE, strict=True))


def plot_mass(
    path: str | Path,
    estimates: Mapping[str, FloatArray],
    truth: float,
    prior: tuple[float, float],
    phases: Mapping[str, tuple[float, float]],
    title: str,
) -> None:
    """Figure 5: estimated mass of hand and payload over time.

    Args:
        estimates: method to (K, 2) time since the grasp, s, and mass, kg; the last holds on.
        truth: kg.
        prior: lower and upper bound of Table I, kg.
        phases: name to begin and end of what "ours" does, s since the grasp.
    """
    figure = new_figure(9.0, 4.6, title, title_size=12.0)
    axis = figure.subplots()
    end = max([float(series[-1, 0]) for series in estimates.values()] + [stop for _, stop in phases.values()])
    axis.axhspan(*prior, color=_PRIOR, lw=0, label="Table I")
    axis.axhline(truth, color=_TRUTH, lw=1.5, ls="--", label="truth")
    for method, series in estimates.items():
        times, masses = np.append(series[:, 0], end), np.append(series[:, 1], series[-1, 1])
        line = "--" if method == "random" else "-"
        axis.step(times, masses, where="post", color=COLOURS[method], lw=1.6, ls=line, label=method)
    low, top = _window([truth, *(mass for series in estimates.values() for mass in series[:, 1])], *prior)
    for name, (start, stop) in phases.items():
        axis.axvline(start, color=INK, lw=0.7, ls=":", alpha=0.6)
        axis.text(0.5 * (start + stop), top, name, ha="center", va="bottom", fontsize=8, color=INK)
    axis.set_ylim(low, top)
    axis.set_xlim(0.0, end)
    axis.set_xlabel("time since the grasp [s]")
    axis.set_ylabel("mass of hand and payload [kg]")
    style_axis(axis)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    save_figure(figure, path)


def plot_bounds_of_methods(
    path: str | Path,
    found: Mapping[str, Mapping[str, Any]],
    prior: tuple[Sequence[float], Sequence[float]],
    truth: Sequence[float],
    title: str,
) -> None:
    """Figure 6 (7 to 10 with other payloads): intervals of the ten parameters after the identification.

    Args:
        found: method to "lower", "nominal", "upper", (10,) each.
        prior: lower and upper, (10,) each.
        truth: (10,).
    """
    figure = new_figure(12.0, 5.6, title, title_size=12.0)
    axes = figure.subplots(2, 5)
    for i, axis in enumerate(axes.flat):
        axis.axhspan(prior[0][i], prior[1][i], color=_PRIOR, lw=0, label="Table I")
        for x, (method, bounds) in enumerate(found.items()):
            low, high, nominal = (float(bounds[key][i]) for key in ("lower", "upper", "nominal"))
            axis.bar(x, high - low, 0.55, bottom=low, color=COLOURS[method], alpha=0.35, lw=0, label=method)
            axis.plot([x - 0.28, x + 0.28], [nominal, nominal], color=COLOURS[method], lw=1.6)
        axis.axhline(truth[i], color=_TRUTH, lw=1.3, ls="--", label="truth")
        ends = [float(bounds[key][i]) for bounds in found.values() for key in ("lower", "upper")]
        axis.set_ylim(*_window([float(truth[i]), *ends], float(prior[0][i]), float(prior[1][i])))
        axis.set_xticks([])
        axis.set_title(f"{PAYLOAD_NAMES[i]}  [{PAYLOAD_UNITS[i]}]".replace("^2", "²"), fontsize=10, loc="left")
        style_axis(axis)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save_figure(figure, path)


def plot_tracking(
    path: str | Path, series: Mapping[str, Mapping[str, Mapping[str, FloatArray]]], torque_limit: FloatArray, title: str
) -> None:
    """Figures 11 and 12: tracking error and commanded torque while each dumbbell is carried.

    Args:
        series: dumbbell to method to "time" (K,) s since the carry began, "error" (K, n) rad and "torque" (K, n) N m.
        torque_limit: (n,) of the criterion, N m.
    """
    rows = max(len(series), 1)
    figure = new_figure(12.0, 2.3 * rows + 1.2, title, title_size=12.0)
    axes = figure.subplots(rows, 2, sharex=True, squeeze=False)
    for (left, right), (dumbbell, methods) in zip(axes, series.items(), strict=True):
        for method, data in methods.items():
            error = np.maximum(np.rad2deg(np.abs(data["error"]).max(axis=1)), 1e-5)
            share = 100.0 * (np.abs(data["torque"]) / torque_limit).max(axis=1)
            left.plot(data["time"], error, color=COLOURS[method], lw=1.1, label=method)
            right.plot(data["time"], share, color=COLOURS[method], lw=1.1)
        right.axhline(100.0, color=_LIMIT, lw=1.0, ls="--")
        left.set_title(f"{dumbbell}: largest tracking error of a joint  [deg]", fontsize=10, loc="left")
        right.set_title(f"{dumbbell}: largest commanded torque  [% of the limit]", fontsize=10, loc="left")
        left.set_yscale("log")
        left.set_ylim(bottom=1e-4)
        right.set_ylim(bottom=0.0)
        for axis in (left, right):
            style_axis(axis)
    for axis in axes[-1]:
        axis.set_xlabel("time since the carry began [s]")
    entries: dict[str, Any] = {}
    for axis in axes[:, 0]:
        entries |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    if entries:
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=6, frameon=False)
    save_figure(figure, path)


def _window(values: Sequence[float], lowest: float, highest: float) -> tuple[float, float]:
    """Limits of an axis that show all values, with some room, and no more of the prior than needed."""
    low, high = min(values), max(values)
    room = max(0.25 * (high - low), 1e-3 * (highest - lowest))
    return max(low - room, lowest - room), min(high + room, highest + room)
