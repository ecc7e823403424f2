"""History of the intervals' widths, as shares of the prior."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import viser
from viser import uplot

from safe_sysid.view.snapshot import Snapshot

__all__ = ["WidthHistory"]

#: Entries of theta_e, what they are called, colours.
_SHOWN = (
    (0, "m", "#2563eb"),
    (1, "mcx", "#dc2626"),
    (2, "mcy", "#d97706"),
    (3, "mcz", "#0d9488"),
    (4, "Ixx", "#7c3aed"),
)
_LONGEST = 400


class WidthHistory:
    """At most so many points: older ones are thinned out."""

    def __init__(self) -> None:
        self._points: list[tuple[float, ...]] = []
        self._identity, self._time = "", -math.inf

    def add(self, snapshot: Snapshot) -> bool:
        """Note the box in force; returns whether the picture has changed."""
        bounds, prior, time = snapshot.bounds, snapshot.prior, snapshot.time
        if bounds is None or prior is None or time is None:
            return False
        epoch, before = bounds.identity.partition(":")[0], self._identity.partition(":")[0]
        if epoch != before or time < self._time:  # another payload, or another run
            self._points = []
        elif bounds.identity == self._identity and time < self._time + 0.5:
            return False
        full = np.maximum(prior[1] - prior[0], 1e-300)
        share = np.clip(100.0 * (bounds.upper - bounds.lower) / full, 1e-4, 1e3)
        self._points.append((time, *(float(share[i]) for i, _, _ in _SHOWN)))
        self._identity, self._time = bounds.identity, time
        if len(self._points) > _LONGEST:
            self._points = self._points[::2]
        return True

    def data(self) -> tuple[np.ndarray, ...]:
        """Times and one array per line; two points at least, so that there is something to draw axes for."""
        rows = (
            self._points if len(self._points) > 1 else [(0.0, *(100.0,) * len(_SHOWN)), (1.0, *(100.0,) * len(_SHOWN))]
        )
        if len(self._points) == 1:
            rows = [self._points[0], (self._points[0][0] + 1e-3, *self._points[0][1:])]
        return tuple(np.array(column, float) for column in zip(*rows, strict=True))

    def add_to(self, gui: viser.GuiApi) -> Any:
        """The chart."""
        series = (
            uplot.Series(label="s"),
            *(uplot.Series(label=name, stroke=colour, width=2) for _, name, colour in _SHOWN),
        )
        return gui.add_uplot(
            self.data(),
            series,
            title="Width of the intervals, % of the prior",
            height=200,
            padding=(14, 14, 0, 0),
            scales={"x": uplot.Scale(time=False), "y": uplot.Scale(distr=3)},
            legend=uplot.Legend(show=True),
        )

    def draw(self, handle: Any) -> None:
        """Tell the chart."""
        handle.data = self.data()
