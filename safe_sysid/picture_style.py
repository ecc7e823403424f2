"""Style of the package's pictures, and how they are written to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safe_sysid.whole_files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["INK", "new_figure", "save_figure", "style_axis"]

#: Colour of text and of thin lines.
INK = "#30363d"


def new_figure(width: float, height: float, title: str, title_size: float = 12.5) -> Figure:
    """An empty figure with its title at the left. ``width``: inches; ``height``: inches; ``title_size``: points."""
    from matplotlib.figure import Figure  # takes a second to import: for those who draw

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=title_size, color=INK, x=0.01, ha="left")
    return figure


def style_axis(axis: Axes) -> None:
    """Light grid behind the data, no frame at the top and at the right."""
    axis.grid(True, color="#d8dde3", lw=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(labelsize=8.5, colors=INK)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a PNG file.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
