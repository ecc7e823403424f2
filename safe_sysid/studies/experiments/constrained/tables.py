"""Tables I to IV of [ConstrainedSysID] beside ours, and figures 3 to 5."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.picture_style import new_figure, save_figure, style_axis
from safe_sysid.studies.experiments.constrained.trial import LIMBS, SPEEDS

__all__ = ["PAPER", "TABLE_OF_FIGURE", "check_limbs", "draw", "summary", "table"]

Result = dict[str, Any]
#: Which table's trials a figure shows.
TABLE_OF_FIGURE = {"3": "1", "4": "2", "5": "3"}
_TITLES = {
    "1": "Table I: torque, root mean square of the error on held-out motion, N m",
    "2": "Table II: 31 segments of 0.5 s with held torques, L2 error (eq. 33), rad",
    "3": "Tables III and IV: tracking error with eq. 34, mean, degrees",
    "4": "Tables III and IV: tracking error with eq. 34, maximum, degrees",
}
_LEG = ("hip_roll", "hip_yaw", "hip_pitch", "knee", "toe_a", "toe_b")
_ARM = ("shoulder_roll", "shoulder_pitch", "shoulder_yaw", "elbow")
_JOINTS = (*_LEG, *_ARM)


def _columns(*columns: Sequence[float]) -> dict[str, tuple[float, ...]]:
    return dict(zip(_JOINTS, zip(*columns, strict=True), strict=False))


#: The paper's, of its left limbs: identified, manufacturer. Of tables III and IV mean or maximum at 5 rad/s; of arms
#: the paper has no tracking with the manufacturer's parameters.
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "1": _columns(
        (0.9982, 0.5642, 0.8954, 0.7384, 0.3675, 0.6688, 0.9556, 1.0628, 0.5121, 1.2189),
        (1.8116, 0.3830, 1.0983, 1.8219, 0.3907, 0.9422, 2.1060, 1.2693, 0.5537, 1.4197),
    ),
    "2": _columns(
        (0.5497, 4.1865, 2.4127, 3.5314, 3.0140, 1.5589, 1.9664, 2.6041, 2.5248, 4.8756),
        (3.1946, 2.8339, 7.4932, 11.2491, 1.4248, 13.9524, 9.3720, 4.3640, 3.5880, 7.9837),
    ),
    "3": _columns(
        (1.985, 1.398, 1.343, 1.283, 1.217, 1.781, 0.172, 0.317, 0.146, 0.131),
        (2.805, 2.537, 2.413, 2.088, 1.976, 1.897, *(np.nan,) * 4),
    ),
    "4": _columns(
        (3.848, 3.399, 3.810, 3.546, 3.297, 3.492, 0.755, 0.808, 0.547, 0.746),
        (7.198, 6.070, 7.471, 6.559, 5.887, 8.181, *(np.nan,) * 4),
    ),
}


def check_limbs(limbs: Sequence[str]) -> None:
    """Raises SafeSysIdError: a limb that there is not."""
    for limb in limbs:
        if limb not in LIMBS:
            raise SafeSysIdError(f"limb {limb!r}: expected one of {', '.join(LIMBS)}")


def _key(which: str, model: str) -> str:
    return f"{model}_max" if which == "4" else model


def _groups(rows: Sequence[Result]) -> dict[tuple[Any, ...], list[Result]]:
    found: dict[tuple[Any, ...], list[Result]] = {}
    for row in rows:
        found.setdefault((row["limb"], row["joint"], row.get("speed")), []).append(row)
    return found


def _values(rows: Sequence[Result], key: str) -> FloatArray:
    return np.array([np.inf if row[key] is None else row[key] for row in rows])


def summary(which: str, header: Result, results: Sequence[Result]) -> Result:
    """All that came out, for programs.

    Returns:
        ``rows``, one per seed and joint (and speed); ``medians`` over seeds; ``lost``: joints whose median is worse
        identified; ``errors`` of trials.
    """
    rows = [row for result in results for row in result.get("rows", [])]
    medians = []
    for (limb, joint, speed), group in _groups(rows).items():
        ours, theirs = (
            float(np.median(_values(group, _key(which, model)))) for model in ("identified", "manufacturer")
        )
        better = int(
            np.count_nonzero(_values(group, _key(which, "identified")) < _values(group, _key(which, "manufacturer")))
        )
        medians.append(
            {
                "limb": limb,
                "joint": joint,
                **({} if speed is None else {"speed": speed}),
                "seeds": len(group),
                "identified": ours if np.isfinite(ours) else None,
                "manufacturer": theirs if np.isfinite(theirs) else None,
                "better": better,
            }
        )
    lost = [
        f"{m['joint']}" + (f" at {m['speed']} rad/s" if "speed" in m else "")
        for m in medians
        if m["identified"] is None or (m["manufacturer"] is not None and m["identified"] >= m["manufacturer"])
    ]
    return {
        "table": which,
        **header,
        "rows": rows,
        "medians": medians,
        "lost": lost,
        "errors": [result["error"] for result in results if "error" in result],
    }


def table(which: str, told: Result) -> Table:
    """Medians over seeds beside the paper's figures. ``told``: of :func:`summary`."""
    out = Table(title=_TITLES[which], caption="identified / manufacturer, median over seeds; paper: left limbs")
    with_speed = which in ("3", "4")
    for name in ("joint", *(("rad/s",) if with_speed else ()), "identified", "manufacturer", "better", "paper"):
        out.add_column(name, justify="left" if name == "joint" else "right")
    for m in told["medians"]:
        paper = PAPER[which].get(m["joint"], (np.nan, np.nan))
        shown = "" if m["joint"] not in PAPER[which] or m.get("speed", 5.0) != SPEEDS[-1] else _pair(paper)
        out.add_row(
            m["joint"],
            *((f"{m['speed']:g}",) if with_speed else ()),
            _number(m["identified"]),
            _number(m["manufacturer"]),
            f"{m['better']} of {m['seeds']}",
            shown,
        )
    return out


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _pair(values: Sequence[float]) -> str:
    return " / ".join("-" if np.isnan(value) else f"{value:.3f}" for value in values)


def draw(figure: str, results: Sequence[Result], out: Path) -> list[Path]:
    """Figure 3 (torque residuals), 4 (simulated segments) or 5 (tracking errors) of the first seed's limbs.

    ``figure``: "3", "4" or "5"; ``results``: with ``series``.
    """
    paths = []
    for result in results:
        if "series" not in result:
            continue
        limb, joints = result["rows"][0]["limb"], result["joints"]
        series = {key: np.array(values) for key, values in result["series"].items()}
        title = {"3": "Torque residual, N m", "4": "Simulated segments, rad", "5": "Tracking error at 5 rad/s, degrees"}
        rows = (len(joints) + 1) // 2
        page = new_figure(11.0, 1.9 * rows + 0.6, f"{title[figure]}: {limb}")
        axes = np.atleast_1d(page.subplots(rows, 2, squeeze=False)).ravel()
        for j, name in enumerate(joints):
            axis = axes[j]
            for key, colour in (("manufacturer", "#1f6fb4"), ("identified", "#c1121f")):
                if figure == "4":
                    for t, values in zip(series["stamps"], series[key], strict=True):
                        axis.plot(
                            t, values[:, j], color=colour, lw=0.9, label=key if t is series["stamps"][0] else None
                        )
                else:
                    axis.plot(series["stamps"], series[key][:, j], color=colour, lw=0.7, label=key)
            if figure == "4":
                for t, values in zip(series["stamps"], series["measured"], strict=True):
                    axis.plot(t, values[:, j], color="black", lw=0.8)
                low, high = float(series["measured"][..., j].min()), float(series["measured"][..., j].max())
                room = 0.3 * (high - low) + 1e-6
                axis.set_ylim(low - room, high + room)
            axis.set_title(name, fontsize=9, loc="left")
            style_axis(axis)
        axes[0].plot([], [], color="#1f6fb4", label="manufacturer" if figure == "4" else None)
        axes[0].plot([], [], color="#c1121f", label="identified" if figure == "4" else None)
        axes[0].legend(fontsize=7, loc="upper right")
        for axis in axes[len(joints) :]:
            axis.set_visible(False)
        path = out / f"figure_{figure}_{limb}.png"
        save_figure(page, path)
        paths.append(path)
    return paths
