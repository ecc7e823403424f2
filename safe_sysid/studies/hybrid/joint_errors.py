"""Figure 3 of [Hybrid]: each joint's torque error on the test motions, model by model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.learning.neural.dataset import Dataset
from safe_sysid.learning.neural.scaling import scaling_of
from safe_sysid.picture_style import new_figure, save_figure, style_axis
from safe_sysid.studies.hybrid.make_data import load_panda
from safe_sysid.studies.hybrid.tracking import torques_along

__all__ = ["draw_figure_3", "summary_joints", "table_joints"]

_COLOURS = ("#c1121f", "#1f6fb4", "#2a9d4b", "#e0a100", "#7b3fa0", "#5c6b73", "#d97aa6", "#0b7a75")


def summary_joints(models: Mapping[str, str], dataset: Dataset) -> dict[str, Any]:
    """Errors on the test motions, for programs.

    Returns ``rows``: model, ``joints`` (mean squares of errors over squared ranges), their mean.
    """
    model = load_panda()
    tests = [dataset.motion(entry) for entry in dataset.of("test")]
    span = scaling_of(dataset).torque_range
    rows = []
    for name, path in models.items():
        errors = [(torques_along(model, Path(path), motion) - motion.tau) / span for motion in tests]
        joints = np.mean(np.concatenate(errors) ** 2, axis=0)
        rows.append({"model": name, "joints": joints.tolist(), "mean": float(joints.mean())})
    return {"table": "joints", "rows": rows}


def table_joints(told: dict[str, Any]) -> Table:
    """For people."""
    out = Table(title="Torque error on test motions", caption="mean squares over squared ranges, times 1000")
    for head in ("model", *(f"joint {j}" for j in range(1, 8)), "mean"):
        out.add_column(head, justify="left" if head == "model" else "right")
    for row in told["rows"]:
        out.add_row(row["model"], *(f"{1e3 * x:.3f}" for x in (*row["joints"], row["mean"])))
    return out


def draw_figure_3(told: dict[str, Any], out: Path) -> Path:
    """Bars, joint by joint."""
    page = new_figure(10.0, 4.0, "Torque error on test motions, mean squares over squared ranges")
    axis = page.subplots()
    width = 0.8 / len(told["rows"])
    for k, row in enumerate(told["rows"]):
        at = np.arange(1, len(row["joints"]) + 1) + (k - 0.5 * (len(told["rows"]) - 1)) * width
        axis.bar(at, row["joints"], width, color=_COLOURS[k % len(_COLOURS)], label=row["model"])
    axis.set_yscale("log")
    axis.set_xlabel("joint")
    axis.legend(fontsize=7)
    style_axis(axis)
    path = out / "figure_3.png"
    save_figure(page, path)
    return path
