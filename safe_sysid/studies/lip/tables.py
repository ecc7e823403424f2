"""Figures 1 to 9 and tables II and III of [LIP] beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.picture_style import new_figure, save_figure, style_axis

__all__ = ["PAPER", "draw", "summary", "table"]

Result = dict[str, Any]
#: The paper's: Fig. 2, medians by joint of six joints, %; energies of LIP; Figs. 5 and 8, means by joint of its real
#: arms of seven and six joints, %; Table III, %.
PAPER: dict[str, dict[Any, Sequence[float]]] = {
    "joints": {
        "SE": (26.40, 2.19, 5.13, 10.33, 22.80, 23.68),
        "GIP": (3.58, 0.59, 0.98, 2.40, 9.86, 11.93),
        "LSE": (2.47, 0.30, 0.95, 2.47, 40.19, 27.16),
        "LIP": (0.35, 0.01, 0.04, 0.12, 2.34, 2.02),
        "DeLaN": (2.31, 0.32, 1.74, 5.20, 97.47, 86.68),
    },
    "measured": {
        ("SE", 7): (3.87, 0.58, 2.49, 1.02, 29.72, 12.81, 7.39),
        ("GIP", 7): (1.13, 0.24, 0.78, 0.29, 21.93, 5.34, 15.29),
        ("LSE", 7): (0.89, 0.10, 0.53, 0.24, 18.38, 8.05, 15.77),
        ("LIP", 7): (0.49, 0.05, 0.28, 0.10, 11.08, 4.10, 5.03),
        ("SE", 6): (17.34, 9.35, 42.76, 4.30, 19.54, 5.73),
        ("GIP", 6): (12.46, 5.64, 11.35, 2.14, 9.58, 5.81),
        ("LSE", 6): (6.49, 12.14, 15.25, 1.54, 7.79, 5.78),
        ("LIP", 6): (4.98, 2.54, 5.59, 1.07, 8.29, 4.74),
        ("ID", 6): (4.86, 2.37, 5.04, 1.64, 6.76, 5.82),
        ("SP", 6): (4.57, 3.12, 5.02, 1.10, 6.44, 5.49),
    },
    "tracking": {
        ("LIP", 0.5): (5.1e-4, 1.0e-3, 3.3e-3, 3.0e-3, 9.4e-3, 5.9e-3, 6.0e-3),
        ("nominal", 0.5): (6.5e-3, 7.9e-3, 3.0e-2, 7.2e-2, 2.3e-1, 1.6e-1, 9.0e-2),
        ("LIP", 0.6): (7.1e-4, 1.6e-3, 5.6e-3, 6.3e-3, 1.0e-2, 7.4e-3, 9.7e-3),
        ("nominal", 0.6): (6.8e-3, 7.9e-3, 3.1e-2, 6.6e-2, 2.4e-1, 1.6e-1, 8.2e-2),
    },
}


_STAND_IN = "nMSE of torques of a simulated stand-in, %"
_TITLES = {"4": "Mean square error of torques, sum over joints, (N m)^2", "5": _STAND_IN, "8": _STAND_IN}


def _key(row: Result) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in ("joints", "samples", "amplitude", "method"))


def _groups(rows: Sequence[Result]) -> dict[tuple[Any, ...], list[Result]]:
    found: dict[tuple[Any, ...], list[Result]] = {}
    for row in rows:
        found.setdefault(_key(row), []).append(row)
    return found


def summary(header: Result, results: Sequence[Result]) -> Result:
    """All that came out, for programs.

    ``header``: of the experiment; ``results``: of its trials.
    Returns ``rows``: one per trial, nMSE by joint as a share; ``errors`` of trials.
    """
    return {
        **header,
        "rows": [row for result in results for row in result.get("rows", [])],
        "errors": [result["error"] for result in results if "error" in result],
    }


def _paper(kind: str, key: tuple[Any, ...]) -> Sequence[float]:
    """The paper's numbers by joint; none where it has none. ``key``: of :func:`_key`."""
    joints, _, amplitude, method = key
    if kind == "joints" and joints != 6:
        return ()
    return PAPER.get(kind, {}).get(
        {"tracking": (method, amplitude), "measured": (method, joints)}.get(kind, method), ()
    )


def table(told: Result) -> Table:
    """Medians over seeds by joint, and the mean over joints and seeds; in brackets the paper's.

    ``told``: of :func:`summary`.
    """
    kind = told["options"]["kind"]
    out = Table(
        title="nMSE of "
        + {"tracking": "positions", "measured": "torques of a simulated stand-in"}.get(kind, "torques")
        + " by joint, %, median over seeds (the paper's)"
    )
    first = {"tracking": "amplitude", "samples": "samples"}.get(kind, "joints")
    n = max((len(row["nmse"]) for row in told["rows"]), default=0)
    for name in (first, "method", "seeds", *(f"J{j + 1}" for j in range(n)), "mean"):
        out.add_column(name, justify="right")
    for (joints, samples, amplitude, method), rows in _groups(told["rows"]).items():
        value = {"tracking": amplitude, "samples": samples}.get(kind, joints)
        by_joint = 100.0 * np.array([row["nmse"] for row in rows])
        paper = _paper(kind, (joints, samples, amplitude, method))
        cells = [
            f"{x:.3g}" + (f" ({paper[j]:.3g})" if j < len(paper) else "")
            for j, x in enumerate(np.median(by_joint, axis=0))
        ]
        out.add_row(str(value), method, str(len(rows)), *cells, *[""] * (n - len(cells)), f"{by_joint.mean():.3g}")
    return out


def energies(told: Result) -> str:
    """Error of learned energies, for people; empty without. ``told``: of :func:`summary`."""
    lines = []
    for method in dict.fromkeys(row["method"] for row in told["rows"]):
        rows = [row for row in told["rows"] if row["method"] == method]
        kinetics = [row["kinetic_nmse"] for row in rows if "kinetic_nmse" in row]
        if kinetics:
            lines.append(f"{method}: median nMSE of kinetic energy {100.0 * np.median(kinetics):.3g} % (the paper, its "
                         "Panda: 0.40 %)")  # fmt: skip
        rows = [row for row in rows if "energy_nmse" in row]
        if rows:
            kinetic, potential = 100.0 * np.median([row["energy_nmse"] for row in rows], axis=0)
            within, elsewhere = (
                100.0 * np.mean([np.mean(row[k]) for row in rows]) for k in ("within_95", "within_95_elsewhere")
            )
            lines.append(
                f"{method}, all trials: median nMSE of kinetic energy {kinetic:.3g} %, of potential energy "
                f"{potential:.3g} % (the paper, six joints: 0.21 and 0.00 %); 95 % intervals hold {within:.1f} % of "
                f"torques measured halfway between the samples, {elsewhere:.1f} % on the other trajectory"
            )
    return "\n".join(lines)


def draw(figure: str, told: Result, results: Sequence[Result], out: Path) -> Path:
    """Draw a figure.

    Args:
        figure: "1", "2", "3", "4" or "9".
        told: of :func:`summary`.
        results: of the trials.
        out: directory.
    """
    path = out / f"figure_{figure}.png"
    if figure in ("3", "6", "9"):
        _series(figure, results, path)
        return path
    if figure == "7":
        _positions(results, path)
        return path
    page = new_figure(9.0, 4.0, _TITLES.get(figure, "nMSE of torques, %"))
    axis, methods = page.subplots(), told["options"]["methods"]
    step = 0.9 / max(len(methods), 5)
    groups = _groups(told["rows"])
    for k, method in enumerate(methods):
        own = {key: rows for key, rows in groups.items() if key[3] == method}
        if figure == "4":
            points = sorted((key[1], np.mean([row["mse"] for row in rows])) for key, rows in own.items())
            axis.plot(*zip(*points, strict=True), marker="o", label=method)
            continue
        for key, rows in own.items():
            by_joint = 100.0 * np.array([row["nmse"] for row in rows])
            boxes = [by_joint.mean(axis=1)] if figure == "1" else list(by_joint.T)
            first = key[0] if figure == "1" else 1
            places = [first + m + step * (k - 0.5 * (len(methods) - 1)) for m in range(len(boxes))]
            axis.boxplot(boxes, positions=places, widths=0.8 * step, patch_artist=True, manage_ticks=False,
                         showfliers=False, boxprops={"facecolor": f"C{k}", "alpha": 0.5},
                         medianprops={"color": f"C{k}"})  # fmt: skip
            for place, values in zip(places, boxes, strict=True):
                axis.plot(np.full(len(values), place), values, ".", color=f"C{k}", ms=6)
            if figure != "1":
                paper = _paper(told["options"]["kind"], key)
                axis.plot(places[: len(paper)], paper, "x", color="black", ms=5)
        axis.plot([], [], color=f"C{k}", lw=6, label=method)
    axis.set_yscale("log")
    if figure != "4":
        most = max(key[0] for key in groups)
        axis.set_xticks(sorted({key[0] for key in groups}) if figure == "1" else range(1, most + 1))
    axis.set_xlabel({"1": "joints", "4": "samples"}.get(figure, "joint (crosses: the paper's)"))
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    style_axis(axis)
    save_figure(page, path)
    return path


def _series(figure: str, results: Sequence[Result], path: Path) -> None:
    """Energies of the first trial, or tracking errors and feedback of all, over time."""
    shown = [result for result in results if "series" in result]
    titles = {
        "3": "Energies, J",
        "6": "Kinetic energy of a simulated stand-in, J, and its error",
        "9": "Computed torque: mean over joints",
    }
    page = new_figure(9.0, 5.0, titles[figure])
    axes, period = page.subplots(2, 1, sharex=True), 0.02 if figure == "9" else 0.1
    panels = {
        "3": ("kinetic", "potential"),
        "6": ("kinetic", "error"),
        "9": ("|tracking error|, mrad", "|feedback|, N m"),
    }
    methods = list(dict.fromkeys(result["rows"][0]["method"] for result in shown))
    for result in shown if figure == "9" else shown[:1]:
        series = {key: np.array(values) for key, values in result["series"].items() if key != "positions"}
        if figure == "6":
            error = np.abs(series["learned"] - series["true"])
            series = {"true": np.stack([series["true"], 0.0 * error]), "learned": np.stack([series["learned"], error])}
        for k, axis in enumerate(axes):
            if figure in "36":
                time = period * np.arange(series["true"].shape[1])
                axis.plot(time, series["true"][k], color="black", lw=2.0, label="true")
                axis.plot(time, series["learned"][k], color="C1", lw=1.0, label="learned")
            else:
                row = result["rows"][0]
                values = 1e3 * np.abs(series["error"]) if k == 0 else np.abs(series["feedback"])
                style = {"color": f"C{methods.index(row['method'])}", "ls": "-" if row["amplitude"] <= 0.5 else ":"}
                time = period * np.arange(len(values))
                axis.plot(
                    time, values.mean(axis=1), lw=1.0, label=f"{row['method']}, {row['amplitude']:g} rad", **style
                )
    for name, axis in zip(panels[figure], axes, strict=True):
        axis.set_title(name, fontsize=9, loc="left")
        style_axis(axis)
    axes[1].set_xlabel("time, s")
    axes[0].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save_figure(page, path)


def _positions(results: Sequence[Result], path: Path) -> None:
    """Distribution of joint positions of the first trial's data and tests."""
    learned, tested = (
        np.array(a) for a in next(result["series"]["positions"] for result in results if "series" in result)
    )
    page = new_figure(9.0, 4.0, "Positions of a simulated stand-in, rad")
    for j, axis in enumerate(page.subplots(2, -(-learned.shape[1] // 2)).ravel()[: learned.shape[1]]):
        for name, values in (("learned from", learned), ("tested", tested)):
            axis.hist(values[:, j], bins=30, density=True, alpha=0.5, label=name)
        axis.set_title(f"joint {j + 1}", fontsize=9, loc="left")
        style_axis(axis)
        if j == 0:
            axis.legend(fontsize=7)
    save_figure(page, path)
