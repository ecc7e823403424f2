"""Histograms of a loop's periods and latencies, with a constant cost per entry."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import IntArray

__all__ = ["Histogram"]

#: Upper ends of the coarse bins that people are shown, ms; what is longer has a bin of its own.
_EDGES_MS = (0.1, 0.2, 0.5, 0.8, 1.0, 1.2, 1.5, 2.5, 5.0, 10.0, 20.0)


class Histogram:
    """Counts of times in bins of 10 us; memory and cost of an entry do not depend on how many there were."""

    BIN = 1e-5  # s
    SIZE = 5000  # the last bin holds all that is longer

    def __init__(self) -> None:
        self._counts = np.zeros(self.SIZE, np.int64)
        self.count, self.largest = 0, 0.0

    def add(self, seconds: float) -> None:
        """Enter one time."""
        self._counts[min(max(int(seconds / self.BIN), 0), self.SIZE - 1)] += 1
        self.count += 1
        if seconds > self.largest:
            self.largest = seconds

    def percentile(self, percent: float) -> float:
        """Upper end of the bin that holds the percentile, s, at most the largest entry; 0 without entries."""
        if not self.count:
            return 0.0
        index = int(np.searchsorted(np.cumsum(self._counts), percent / 100.0 * self.count))
        return min((index + 1) * self.BIN, self.largest) if index < self.SIZE - 1 else self.largest

    def above(self, seconds: float) -> int:
        """How many entries were longer, to a bin's width: a whole number of bins is exact."""
        return int(self._counts[round(seconds / self.BIN) :].sum())

    @property
    def counts(self) -> IntArray:
        """(SIZE,) counts, for logs."""
        return self._counts

    def coarse(self) -> str:
        """Counts of a dozen bins that hold anything, e.g. ``<1.0 ms: 4800, <1.2 ms: 190, longer: 1``."""
        ends = [round(1e-3 * edge / self.BIN) for edge in _EDGES_MS]
        parts = np.add.reduceat(self._counts, [0, *ends])
        names = [*(f"<{edge:g} ms" for edge in _EDGES_MS), "longer"]
        return ", ".join(f"{name}: {part}" for name, part in zip(names, parts, strict=True) if part)

    def __str__(self) -> str:
        """E.g. ``p50 0.43, p99 3.75, max 25.00 ms of 5000 (<0.5 ms: 4800, <5 ms: 199, longer: 1)``."""
        p50, p99 = self.percentile(50), self.percentile(99)
        text = f"p50 {1e3 * p50:.2f}, p99 {1e3 * p99:.2f}, max {1e3 * self.largest:.2f} ms of {self.count}"
        return f"{text} ({self.coarse()})" if self.count else text
