"""Rows of numbers that arrive at 1 kHz: kept in blocks of fixed size, so that the millionth costs what the first did.

An array that grows by doubling is copied as it grows, and all its new memory is fetched at once: that was measured to
stop the loop of a run that is a minute old for 0.25 s.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows"]

FloatArray = NDArray[np.float64]

#: Bytes of a block: small enough that to get one is no event, large enough that there are few.
_BLOCK = 1 << 16


class Rows:
    """Rows of float64; integers of 64 bits find room in a :meth:`view` of them, exactly."""

    def __init__(self, width: int) -> None:
        """``width``: numbers in a row."""
        self._width, self._size = width, max(_BLOCK // (8 * max(width, 1)), 16)
        self._full: list[FloatArray] = []
        self._begin()

    def _begin(self) -> None:
        self._block, self._used = np.empty((self._size, self._width)), 0

    def __len__(self) -> int:
        """Number of rows."""
        return sum(map(len, self._full)) + self._used

    def new(self) -> FloatArray:
        """One more row (width,), for the caller to fill; what is in it before is anything."""
        if self._used == self._size:
            self._full.append(self._block)
            self._begin()
        self._used += 1
        row: FloatArray = self._block[self._used - 1]
        return row

    def array(self) -> FloatArray:
        """All rows (rows, width), read-only; takes a copy of what came since the last call."""
        if self._used:
            self._full.append(self._block[: self._used].copy())
            self._begin()
        if len(self._full) != 1:
            self._full = [np.concatenate([np.empty((0, self._width)), *self._full])]
        view = self._full[0].view()
        view.setflags(write=False)
        return view
