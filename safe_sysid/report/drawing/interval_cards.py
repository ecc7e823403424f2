"""Intervals as drawings: each against its prior and magnified, and how all of them narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from safe_sysid.decimals import interval_text, share_at_most
from safe_sysid.report.drawing.svg import Axes, Svg

__all__ = ["interval_card", "interval_drawing", "narrowing_drawing", "shares_of"]

FloatArray = NDArray[np.float64]

# What the ten parameters are, in words.
_MEANINGS = {
    "m": "mass",
    "mcx": "mass times centre, x",
    "mcy": "mass times centre, y",
    "mcz": "mass times centre, z",
    "Ixx": "inertia about x",
    "Ixy": "product of inertia xy",
    "Iyy": "inertia about y",
    "Ixz": "product of inertia xz",
    "Iyz": "product of inertia yz",
    "Izz": "inertia about z",
}
_WIDTH, _LEFT, _RIGHT = 340.0, 6.0, 334.0
_GROUPS = (
    ("mass", (0,), "f-1"),
    ("centre of mass", (1, 2, 3), "f-3"),
    ("inertia", (4, 5, 6, 7, 8, 9), "f-2"),
)


class Row(Protocol):
    """One of the ten parameters after the last update, and before the first."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def lower(self) -> float: ...
    @property
    def nominal(self) -> float: ...
    @property
    def upper(self) -> float: ...
    @property
    def prior_lower(self) -> float: ...
    @property
    def prior_upper(self) -> float: ...
    @property
    def width_share(self) -> Fraction: ...


def interval_card(row: Row, truth: float | None = None) -> Mapping[str, Any]:
    """What the page's macro ``interval_grid`` shows of one parameter.

    Args:
        row: of the parameter.
        truth: None if nobody knows it.
    """
    bounds, prior = (row.lower, row.nominal, row.upper), (row.prior_lower, row.prior_upper)
    return {
        "name": row.name,
        "unit": row.unit,
        "meaning": _MEANINGS.get(row.name, ""),
        "share": share_at_most(row.width_share),
        "drawing": interval_drawing(row.name, bounds, prior, truth),
    }


def interval_drawing(
    name: str,
    bounds: tuple[float, float, float],
    prior: tuple[float, float],
    truth: float | None = None,
) -> Markup:
    """The interval within its prior, and below it magnified, with nominal and truth.

    Args:
        name: of the parameter.
        bounds: lower, nominal, upper.
        prior: lower and upper.
        truth: None if nobody knows it.
    """
    lower, nominal, upper = bounds
    low, high = min(prior[0], lower), max(prior[1], upper)
    if not high > low:
        high = low + 1.0
    texts = interval_text(lower, upper, digits=3)
    before = interval_text(*prior, digits=3)
    svg = Svg(_WIDTH, 74.0, f"{name}: {texts[0]} to {texts[1]}, prior {before[0]} to {before[1]}")

    def across(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_RIGHT - _LEFT)

    svg.rect(_LEFT, 4.0, _RIGHT - _LEFT, 12.0, "prior", 3.0)
    a, b = across(lower), across(upper)
    left, right = 34.0, 306.0
    svg.path((a, b, right, left), (16.0, 16.0, 34.0, 34.0), "zoom", closed=True)
    svg.rect(a - 0.6, 4.0, max(b - a, 0.0) + 1.2, 12.0, "bound", 1.0)
    svg.rect(left, 34.0, right - left, 14.0, "bound", 3.0)
    width = upper - lower

    def inside(value: float) -> float:
        share = (value - lower) / width if width > 0.0 else 0.5
        return float(np.clip(left + share * (right - left), _LEFT, _RIGHT))

    x = inside(nominal)
    svg.line(x, 30.0, x, 52.0, "nominal")
    if truth is not None:
        x = inside(truth)
        svg.path((x, x + 5.5, x, x - 5.5), (35.5, 41.0, 46.5, 41.0), "truth", closed=True)
    minus = "\N{MINUS SIGN}"
    svg.text(left, 65.0, texts[0].replace("-", minus), "t-strong", "start")
    svg.text(right, 65.0, texts[1].replace("-", minus), "t-strong", "end")
    return svg.markup()


def shares_of(rows: Sequence[Row], widths: ArrayLike) -> FloatArray:
    """Widths as shares of the prior's.

    Args:
        rows: of the ten parameters.
        widths: (U, 10) of the updates.
    """
    prior = np.array([row.prior_upper - row.prior_lower for row in rows])
    w = np.asarray(widths, float)
    return np.divide(w, prior, out=np.ones_like(w), where=prior > 0.0)


def narrowing_drawing(times: Sequence[float], shares: FloatArray, end: float, start: float = 0.0) -> Markup:
    """Width of each interval as a share of its prior, over time; logarithmic.

    Args:
        times: (U,) s, of the updates.
        shares: (U, 10) in 0 to 1.
        end: s, of the axis.
        start: s, of the axis.
    """
    svg = Svg(_WIDTH, 210.0, "width of the ten intervals as a share of the prior, over time")
    percent = 100.0 * np.vstack([np.ones((1, 10)), np.clip(shares, 1e-4, 1.0)])
    stamps = np.array([start, *times])
    last = max(float(end), float(stamps[-1]), start + 1e-3)
    floor = min(float(10.0 ** np.floor(np.log10(max(float(percent.min()), 0.02)))), 10.0)
    axes = Axes(svg, (start, last), (floor, 100.0), box=(40.0, 24.0, 334.0, 188.0), log=True)
    ticks = [float(10.0**k) for k in range(int(np.log10(floor)), 3)]
    axes.frame("time, s", ticks, [f"{tick:g} %" for tick in ticks])
    x = np.repeat(np.append(stamps, last), 2)[1:-1]
    for _, members, colour in reversed(_GROUPS):
        for i in members:
            axes.line(x, np.repeat(percent[:, i], 2), f"line line-{colour[-1]}")
    place = 40.0
    for label, _, colour in _GROUPS:
        svg.rect(place, 6.0, 12.0, 4.0, colour, 1.5)
        svg.text(place + 16.0, 12.0, label, "t-muted")
        place += 30.0 + 6.3 * len(label)
    return svg.markup()
