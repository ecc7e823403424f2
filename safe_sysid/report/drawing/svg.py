"""Drawings inside a page: SVG with the page's own colours, sharp on a telephone and dark where the page is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from safe_sysid.report.drawing.page import shortened

__all__ = ["Axes", "Svg", "nice_ticks", "thinned"]

FloatArray = NDArray[np.float64]


class Svg:
    """A drawing that grows; coordinates are pixels at the width of a telephone."""

    def __init__(self, width: float, height: float, label: str) -> None:
        """Begin.

        Args:
            width: of the view box.
            height: of the view box.
            label: for those who cannot see it.
        """
        self.width, self.height, self._label, self._parts = width, height, label, list[Markup]()

    def rect(self, x: float, y: float, width: float, height: float, style: str, radius: float = 0.0) -> None:
        """A rectangle; ``style`` names classes of the page."""
        self._parts.append(
            Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="{}" class="{}"/>').format(
                _n(x), _n(y), _n(max(width, 0.0)), _n(max(height, 0.0)), _n(radius), style
            )
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        self._parts.append(
            Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(
                _n(x1), _n(y1), _n(x2), _n(y2), style
            )
        )

    def path(self, x: Iterable[float], y: Iterable[float], style: str, closed: bool = False) -> None:
        """A line through points; broken where one of them is not finite."""
        words, pen = [], "M"
        for a, b in zip(x, y, strict=True):
            if math.isfinite(a) and math.isfinite(b):
                words.append(f"{pen}{_n(a)} {_n(b)}")
                pen = "L"
            else:
                pen = "M"
        if words:
            text = "".join(words) + ("Z" if closed else "")
            self._parts.append(Markup('<path d="{}" class="{}"/>').format(text, style))

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """A text; ``anchor`` start, middle or end."""
        self._parts.append(
            Markup('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>').format(
                _n(x), _n(y), style, anchor, escape(shortened(text))
            )
        )

    def title(self, x: float, y: float, width: float, height: float, text: str) -> None:
        """A text that shows over a place when pointed at."""
        self._parts.append(
            Markup(
                '<rect x="{}" y="{}" width="{}" height="{}" fill-opacity="0"><title>{}</title></rect>'
            ).format(_n(x), _n(y), _n(max(width, 0.0)), _n(max(height, 0.0)), escape(shortened(text)))
        )

    def markup(self) -> Markup:
        """The whole drawing."""
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            _n(self.width), _n(self.height), escape(shortened(self._label)), Markup("").join(self._parts)
        )


class Axes:
    """A frame with a time axis below and values at the left, both linear or the values logarithmic."""

    def __init__(
        self,
        svg: Svg,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        box: tuple[float, float, float, float],
        log: bool = False,
    ) -> None:
        """Place the frame.

        Args:
            svg: to draw on.
            x: values at left and right.
            y: values at bottom and top; positive if logarithmic.
            box: left, top, right, bottom in pixels.
            log: values are logarithmic.
        """
        self.svg, self._x, self._y, self.box, self._log = svg, x, y, box, log

    def px(self, values: FloatArray | float) -> FloatArray:
        """Pixels of times."""
        left, _, right, _ = self.box
        return left + (np.asarray(values, float) - self._x[0]) / (self._x[1] - self._x[0]) * (right - left)

    def py(self, values: FloatArray | float) -> FloatArray:
        """Pixels of values; those beyond the frame at its edge."""
        _, top, _, bottom = self.box
        v, (low, high) = np.asarray(values, float), self._y
        v = np.where(np.isfinite(v), np.clip(v, low, high), np.nan)
        share = np.log(v / low) / np.log(high / low) if self._log else (v - low) / (high - low)
        return bottom - share * (bottom - top)

    def frame(self, x_label: str, ticks: Sequence[float], texts: Sequence[str] | None = None) -> None:
        """Grid lines at ``ticks`` of the values, and the time axis.

        Args:
            x_label: unit at the end of the time axis.
            ticks: values.
            texts: of them; None: as numbers.
        """
        left, _, right, bottom = self.box
        for value, text in zip(ticks, texts or [f"{value:g}" for value in ticks], strict=True):
            y = float(self.py(value))
            self.svg.line(left, y, right, y, "grid-line")
            self.svg.text(left - 4, y + 3.5, text.replace("-", "\N{MINUS SIGN}"), "t-muted", "end")
        self.svg.line(left, bottom, right, bottom, "axis")
        marks = nice_ticks(*self._x, 5)
        for value in marks:
            self.svg.text(float(self.px(value)), bottom + 14, f"{value:g}", "t-muted", "middle")
        if marks and float(self.px(marks[-1])) < right - 40:
            self.svg.text(right, bottom + 14, x_label, "t-muted", "end")

    def line(self, x: FloatArray, y: FloatArray, style: str = "line") -> None:
        """A curve."""
        self.svg.path(self.px(x).tolist(), self.py(y).tolist(), style)


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers in a range, at most so many.

    Args:
        low: of the range.
        high: of the range.
        most: numbers.
    """
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return []
    raw = (high - low) / most
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(m * base for m in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0) if m * base >= raw * (1.0 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def thinned(time: FloatArray, values: FloatArray, most: int = 240) -> tuple[FloatArray, FloatArray]:
    """Few enough points to draw: of each stretch the smallest and the largest, so that no peak is lost.

    Args:
        time: (N,).
        values: (N,); those that are not finite break the curve.
        most: points.
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


def _n(value: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")
