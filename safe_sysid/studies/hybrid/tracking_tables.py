"""Tables III, VI and VII and figure 4 of [Hybrid] from tracking results, the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.picture_style import new_figure, save_figure, style_axis
from safe_sysid.studies.campaign.summary import finished
from safe_sysid.studies.hybrid.drive import GAINS
from safe_sysid.studies.hybrid.paper import JOINTS, average
from safe_sysid.studies.hybrid.tracking import averages

__all__ = ["KEYS", "draw_figure_4", "summary", "table"]

Result = dict[str, Any]
#: What a table shows, by its number; 3: means over joints of both.
KEYS = {"3": ("rmse", "final"), "6": ("final",), "7": ("rmse",)}
_WORDS = {"rmse": "root mean square of the error", "final": "error at the end of a motion"}
_TITLES = {
    "3": "Table III: tracking, means over joints, degrees",
    "6": "Table VI: error at the ends of motions, degrees",
    "7": "Table VII: root mean square of the error along motions, degrees",
}


def summary(which: str, header: Result, results: Sequence[Result]) -> Result:
    """All that came out, for programs.

    Returns:
        ``rows``: model, gains, what (``rmse`` or ``final``), joints (degrees, or None where the arm failed), mean,
        and the paper's mean; ``errors`` of trials; ``guarded``: models whose guard did not follow them at times.
    """
    rows = []
    for key in KEYS[which]:
        for (model, gains), joints in averages(results, key).items():
            rows.append(
                {
                    "model": model,
                    "gains": gains,
                    "what": key,
                    "joints": None if joints is None else joints.tolist(),
                    "mean": None if joints is None else float(joints.mean()),
                    "paper": average(key, gains, model),
                    "paper_joints": JOINTS[key, gains].get(model),
                }
            )
    return {
        "table": which,
        **header,
        "rows": rows,
        "errors": [result["error"] for result in results if "error" in result],
        "failed": [f"{r['model']}, {r['gains']}, {r['duration']:g} s: {r['failed']}" for r in results if "failed" in r],
        "guarded": sorted({r["model"] for r in results if r.get("guarded")}),
    }


def table(which: str, told: Result) -> Table:
    """Ours beside the paper's: of means "ours | paper", of joints a line each."""
    out = Table(title=_TITLES[which], caption="set-point motions of 10 s and of 2 s; -: the paper has none")
    models = list(dict.fromkeys(row["model"] for row in told["rows"]))
    if which == "3":
        for name in ("what", "gains", *models):
            out.add_column(name, justify="left" if name in ("what", "gains") else "right")
        for key in KEYS[which]:
            for gains in GAINS:
                cells = {r["model"]: r for r in told["rows"] if r["gains"] == gains and r["what"] == key}
                shown = [_both(cells[m]["mean"], cells[m]["paper"]) if m in cells else "" for m in models]
                out.add_row(_WORDS[key], gains, *shown)
        return out
    for name in ("model", "gains", "", *(f"{j}" for j in range(1, 8)), "mean"):
        out.add_column(name, justify="left" if name in ("model", "gains", "") else "right")
    for row in told["rows"]:
        for whose, joints in (("ours", row["joints"]), ("paper", row["paper_joints"])):
            if joints is None and whose == "paper":
                continue
            numbers = ["failed"] * 8 if joints is None else [f"{x:.3f}" for x in (*joints, np.mean(joints))]
            out.add_row(row["model"] if whose == "ours" else "", row["gains"], whose, *numbers)
    return out


def _both(ours: float | None, paper: float | None) -> str:
    return f"{'failed' if ours is None else f'{ours:.3f}'} | {'-' if paper is None else f'{paper:.3f}'}"


def draw_figure_4(results: Sequence[Result], models: Sequence[str], out: Path) -> Path | None:
    """Joint angles of a slow motion, medium gains, with some models as feed-forward; None if nothing was kept.

    ``results``: with ``series``.
    """
    shown = [
        r for name in models for r in finished(results)
        if r["model"] == name and r["gains"] == "medium" and r["duration"] == 10.0 and "series" in r
    ]  # fmt: skip
    if not shown:
        return None
    page = new_figure(11.0, 8.0, "Motion in 10 s, medium gains")
    axes = np.ravel(page.subplots(4, 2, squeeze=False))
    for j in range(7):
        axis = axes[j]
        wanted = np.degrees(np.array(shown[0]["series"]["wanted"]))[:500, j]
        stamps = 0.02 * np.arange(len(wanted))
        axis.plot(stamps, wanted, color="black", lw=1.2, label="desired")
        for result, colour in zip(shown, ("#c1121f", "#1f6fb4", "#2a9d4b", "#e0a100", "#7b3fa0"), strict=False):
            reached = np.degrees(np.array(result["series"]["reached"]))[:500, j]
            axis.plot(stamps, reached, color=colour, lw=0.9, label=result["model"])
        axis.set_title(f"joint {j + 1}, degrees", fontsize=9, loc="left")
        style_axis(axis)
    axes[0].legend(fontsize=7)
    axes[7].set_visible(False)
    path = out / "figure_4.png"
    save_figure(page, path)
    return path
