"""One clock for a node: whole nanoseconds in messages, seconds from an origin inside; and histograms of times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Histogram", "TimeBase", "to_ns"]

_SECOND = 1_000_000_000


def to_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * 1e9)


class TimeBase:
    """Seconds since an origin; a double of seconds since 1970 would resolve only 0.2 us.

    In lock-step the origin is 0, so that all nodes mean the same; in real time it is the first stamp that comes,
    rounded down to a whole second.
    """

    def __init__(self, lockstep: bool) -> None:
        self._origin: int | None = 0 if lockstep else None

    @property
    def origin_ns(self) -> int:
        """Nanoseconds at which seconds are 0; 0 before the first stamp."""
        return self._origin or 0

    def seconds(self, ns: int) -> float:
        """Seconds since the origin; the first call sets it."""
        if self._origin is None:
            self._origin = ns - ns % _SECOND
        return (ns - self._origin) / 1e9

    def ns(self, seconds: float) -> int:
        """Inverse of :meth:`seconds`."""
        return self.origin_ns + to_ns(seconds)


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

    @property
    def counts(self) -> NDArray[np.int64]:
        """(SIZE,) counts, for logs."""
        return self._counts

    def __str__(self) -> str:
        """E.g. ``p50 0.43, p99 3.75, max 25.0 ms of 5000``."""
        p50, p99 = self.percentile(50), self.percentile(99)
        return f"p50 {1e3 * p50:.2f}, p99 {1e3 * p99:.2f}, max {1e3 * self.largest:.2f} ms of {self.count}"
