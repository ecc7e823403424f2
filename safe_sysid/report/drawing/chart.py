"""Charts inside a page: matplotlib's SVG as images without a background, which the page's style turns dark."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, cast

import numpy as np
from markupsafe import Markup

from safe_sysid.core.arrays import FloatArray
from safe_sysid.report.drawing.page import shortened

if TYPE_CHECKING:  # a page is also read where nothing is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["AMBER", "BLUE", "GREY", "MUTED", "RED", "SOFT", "VIOLET", "chart", "markup", "thinned", "two_curves"]

BLUE, SOFT, VIOLET, AMBER, RED = "#1f6fb4", "#cfe2f3", "#8f79c4", "#c98a1b", "#b3202c"
GREY, MUTED, _GRID = "#b9c2cc", "#59636e", "#dfe4ea"


def chart(height: float, unit: str = "s", width: float = 340.0, left: float = 46.0, top: float = 6.0) -> Axes:
    """Axes of a new drawing, with light lines behind the curves.

    Args:
        height: pixels.
        width: pixels, of a telephone.
        left: pixels for the labels of values.
        top: pixels above, for a legend.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(width / 72.0, height / 72.0))
    box = (left / width, 22.0 / height, (width - left - 8.0) / width, (height - 22.0 - top) / height)
    axis = figure.add_axes(box)
    axis.grid(True, axis="y", color=_GRID, lw=1.0)
    axis.set_axisbelow(True)
    axis.spines[["left", "top", "right"]].set_visible(False)
    axis.spines["bottom"].set_color(MUTED)
    axis.tick_params(labelsize=10.0, colors=MUTED, length=0.0)
    axis.tick_params(axis="x", pad=5.0)
    axis.xaxis.set_major_locator(MaxNLocator(5, prune="upper"))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.set_xlabel(unit, loc="right", fontsize=10.0, color=MUTED, labelpad=-11.0)
    return axis


def markup(axis: Axes, label: str) -> Markup:
    """The drawing, the same bytes each time. ``axis``: of :func:`chart`; ``label``: for those who cannot see it."""
    from matplotlib import rc_context

    if axis.get_legend_handles_labels()[0]:
        axis.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, frameon=False, borderpad=0.1, fontsize=10.0,
            labelcolor=MUTED, handlelength=1.2, columnspacing=1.2,
        )  # fmt: skip
    stream = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "safe_sysid"}):
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        cast("Figure", axis.figure).savefig(stream, format="svg", transparent=True, metadata=metadata)
    data = base64.b64encode(stream.getvalue().encode()).decode("ascii")
    image = Markup('<img class="chart" alt="{}" src="data:image/svg+xml;base64,{}">')
    return image.format(shortened(label), Markup(data))


def two_curves(time: FloatArray, first: FloatArray, second: FloatArray, label: str, unit: str = "s") -> Markup:
    """Two curves over time, the first violet, the second blue.

    Args:
        time: (N,) s; nan breaks the curves.
        first: (N,).
        second: (N,).
        unit: at the end of the axis below.
    """
    axis = chart(172.0, unit, width=360.0)
    for values, colour in ((first, VIOLET), (second, BLUE)):
        axis.plot(*thinned(time, values, 600), color=colour, lw=1.3)
    return markup(axis, label)


def thinned(time: FloatArray, values: FloatArray, most: int = 240) -> tuple[FloatArray, FloatArray]:
    """Few enough points to draw: of each stretch the smallest and the largest, so that no peak is lost.

    ``time``: (N,); ``values``: (N,); those that are not finite break the curve; ``most``: points.
    """
    if time.size <= most:
        return time, values
    kept = [0, time.size - 1]
    for rows in np.array_split(np.arange(time.size), most // 2):
        part = values[rows]
        if np.any(np.isfinite(part)):
            kept += [int(rows[0] + np.nanargmin(part)), int(rows[0] + np.nanargmax(part))]
        if not np.all(np.isfinite(part)):
            kept.append(int(rows[0] + np.argmin(np.isfinite(part))))
    rows = np.unique(kept)
    return time[rows], values[rows]
