"""Intervals as drawings: each against its prior and magnified, and how all of them narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import interval_text, share_at_most
from safe_sysid.report.drawing.chart import AMBER, BLUE, VIOLET, chart, markup
from safe_sysid.report.interval_row import IntervalRow

__all__ = ["interval_card", "interval_drawing", "narrowing_drawing", "shares_of"]


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
_LEFT, _RIGHT = 6.0, 334.0
_GROUPS = (("mass", (0,), BLUE), ("centre of mass", (1, 2, 3), AMBER), ("inertia", (4, 5, 6, 7, 8, 9), VIOLET))
#: With the page's own colours: sharp, and dark where the page is.
_CARD = Markup(
    '<svg viewBox="0 0 340 62" role="img" aria-label="{label}">'
    '<rect x="6" y="4" width="328" height="12" rx="3" class="prior"/>'
    '<path d="M{a:.1f} 16L{b:.1f} 16L306 26L34 26Z" class="zoom"/>'
    '<rect x="{bar:.1f}" y="4" width="{width:.1f}" height="12" rx="1" class="bound"/>'
    '<rect x="34" y="26" width="272" height="14" rx="3" class="bound"/>'
    '<line x1="{nominal:.1f}" y1="23" x2="{nominal:.1f}" y2="43" class="nominal"/>{truth}'
    '<text x="34" y="56" class="t-strong">{low}</text>'
    '<text x="306" y="56" class="t-strong" text-anchor="end">{high}</text></svg>'
)


def interval_card(row: IntervalRow, truth: float | None = None) -> Mapping[str, Any]:
    """What the page's macro ``interval_grid`` shows of one parameter. ``truth``: None if nobody knows it."""
    bounds, prior = (row.lower, row.nominal, row.upper), (row.prior_lower, row.prior_upper)
    return {
        "name": row.name,
        "unit": row.unit,
        "meaning": _MEANINGS.get(row.name, ""),
        "share": share_at_most(row.width_share),
        "drawing": interval_drawing(row.name, bounds, prior, truth),
    }


def interval_drawing(
    name: str, bounds: tuple[float, float, float], prior: tuple[float, float], truth: float | None = None
) -> Markup:
    """The interval within its prior, and below it magnified, with nominal and truth.

    ``truth``: None if nobody knows it.
    """
    lower, nominal, upper = bounds
    low, high = min(prior[0], lower), max(prior[1], upper)
    if not high > low:
        high = low + 1.0
    texts = interval_text(lower, upper, digits=3)
    before = interval_text(*prior, digits=3)
    a, b = (_LEFT + (value - low) / (high - low) * (_RIGHT - _LEFT) for value in (lower, upper))

    def inside(value: float) -> float:
        share = (value - lower) / (upper - lower) if upper > lower else 0.5
        return float(np.clip(34.0 + 272.0 * share, _LEFT, _RIGHT))

    diamond = Markup()
    if truth is not None:
        path = Markup('<path d="M{:.1f} 27.5L{:.1f} 33L{:.1f} 38.5L{:.1f} 33Z" class="truth"/>')
        x = inside(truth)
        diamond = path.format(x, x + 5.5, x, x - 5.5)
    low_text, high_text = (text.replace("-", "\N{MINUS SIGN}") for text in texts)
    return _CARD.format(
        label=f"{name}: {texts[0]} to {texts[1]}, prior {before[0]} to {before[1]}", a=a, b=b, bar=a - 0.6,
        width=max(b - a, 0.0) + 1.2, nominal=inside(nominal), truth=diamond, low=low_text, high=high_text,
    )  # fmt: skip


def shares_of(rows: Sequence[IntervalRow], widths: ArrayLike) -> FloatArray:
    """Widths as shares of the prior's. ``widths``: (U, 10) of the updates."""
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
    axis = chart(210.0, left=40.0, top=22.0)
    percent = 100.0 * np.vstack([np.ones((1, 10)), np.clip(shares, 1e-4, 1.0)])
    stamps = np.array([start, *times])
    last = max(float(end), float(stamps[-1]), start + 1e-3)
    floor = min(float(10.0 ** np.floor(np.log10(max(float(percent.min()), 0.02)))), 10.0)
    axis.set(xlim=(start, last), yscale="log", ylim=(floor, 105.0))
    ticks = [float(10.0**k) for k in range(int(np.log10(floor)), 3)]
    axis.set_yticks(ticks, [f"{tick:g} %" for tick in ticks])
    axis.minorticks_off()
    for label, members, colour in _GROUPS:
        lines = percent[:, members]
        drawn = axis.step(np.append(stamps, last), np.vstack([lines, lines[-1:]]), where="post", color=colour, lw=1.3)
        drawn[0].set_label(label)
    return markup(axis, "width of the ten intervals as a share of the prior, over time")
