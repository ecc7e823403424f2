"""Pictures of an identification as PNG bytes, narrow enough for a telephone."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import share_at_most
from safe_sysid.picture_style import style_axis

__all__ = ["residuals_picture", "slack_picture"]

_BOUND, _LIMIT = "#1f6fb4", "#c1121f"
_CAUSES = ("#1f6fb4", "#e08e0b", "#2a9d5c", "#8a4fbe", "#b5651d", "#d1609c", "#5c6770", "#9aa516", "#17a2b8", "#444444")


def residuals_picture(
    time: FloatArray, residual: FloatArray, bound: FloatArray, joint_names: Sequence[str], units: Sequence[str]
) -> bytes:
    """One panel per joint: what the equations leave, within what the declared errors allow.

    ``time``: (W,) s; ``residual``: (W, n); ``bound``: (W, n).
    """
    n = len(joint_names)
    rows = math.ceil(n / 2)
    figure = Figure(figsize=(8.0, 2.3 * rows + 0.6), dpi=100, layout="constrained", facecolor="white")
    axes = figure.subplots(rows, 2, sharex=True, squeeze=False)
    order = np.argsort(time)
    for j, axis in enumerate(axes.flat):
        if j >= n:
            axis.set_axis_off()
            continue
        limit, value = bound[order, j], residual[order, j]
        out = np.abs(value) > limit
        axis.fill_between(time[order], -limit, limit, color=_BOUND, alpha=0.2, lw=0, label="allowed by declared errors")
        axis.plot(time[order], value, color=_BOUND, lw=0.9, marker=".", ms=2, label="residual")
        if np.any(out):
            axis.plot(time[order][out], value[out], ".", color=_LIMIT, ms=5, label="beyond")
        share = float(np.max(np.abs(value) / np.maximum(limit, 1e-12)))
        axis.set_title(f"{joint_names[j]}  [{units[j]}]", fontsize=10.5, loc="left")
        axis.set_title(
            f"up to {share_at_most(share, places=0)}", fontsize=9, loc="right", color=_LIMIT if np.any(out) else _BOUND
        )
        style_axis(axis)
    for axis in axes[-1]:
        axis.set_xlabel("time [s]")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return _png(figure)


def slack_picture(parts: FloatArray, causes: Sequence[str], joint_names: Sequence[str]) -> bytes:
    """Stacked bars: what the half widths of each joint's equations are made of. ``parts``: (n, causes) N m."""
    n = len(joint_names)
    figure = Figure(figsize=(8.0, 0.5 * n + 1.6), dpi=100, layout="constrained", facecolor="white")
    axis = figure.subplots()
    left = np.zeros(n)
    for c, cause in enumerate(causes):
        if np.max(parts[:, c]) > 1e-3 * np.max(parts.sum(axis=1)):
            axis.barh(np.arange(n), parts[:, c], left=left, color=_CAUSES[c % len(_CAUSES)], label=cause)
        left = left + parts[:, c]
    axis.set_yticks(np.arange(n), list(joint_names))
    axis.invert_yaxis()
    axis.set_xlabel("mean half width of an equation, as a torque [N m]")
    style_axis(axis)
    axis.legend(frameon=False, fontsize=9)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()
