"""Growing arrays for 1 kHz data: blocks of fixed size, so that each row costs the same.

An array that grows by doubling is copied as it grows, and all its new memory is fetched at once: that was measured to
stop the loop of a run that is a minute old for 0.25 s.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from safe_sysid.core.arrays import FloatArray

__all__ = ["GrowingRows"]


#: Bytes of a block: small enough that to get one is no event, large enough that there are few.
_BLOCK = 1 << 16


class GrowingRows:
    """Rows of float64; integers of 64 bits find room in a :meth:`view` of them, exactly.

    Attributes:
        forgotten: oldest rows that are not kept any more.
    """

    def __init__(self, width: int, most: int | None = None) -> None:
        """Nothing yet.

        Args:
            most: rows that are kept, rounded up to blocks: the oldest go. None: all.
        """
        self._width, self._size = width, max(_BLOCK // (8 * max(width, 1)), 16)
        self._full: deque[FloatArray] = deque()
        self._most, self._kept = most, 0  # in full blocks
        self.forgotten = 0
        self._begin()

    def _begin(self) -> None:
        self._block, self._used = np.empty((self._size, self._width)), 0

    def _keep(self, block: FloatArray) -> None:
        self._full.append(block)
        self._kept += len(block)

    def __len__(self) -> int:
        return self._kept + self._used

    def new(self) -> FloatArray:
        """One more row (width,), for the caller to fill; what is in it before is anything."""
        if self._used == self._size:
            self._keep(self._block)
            self._begin()
            if self._most is not None and self._kept - len(self._full[0]) >= self._most:
                oldest = len(self._full.popleft())
                self._kept, self.forgotten = self._kept - oldest, self.forgotten + oldest
        self._used += 1
        row: FloatArray = self._block[self._used - 1]
        return row

    def array(self) -> FloatArray:
        """All rows (rows, width), read-only; takes a copy of what came since the last call."""
        if self._used:
            self._keep(self._block[: self._used].copy())
            self._begin()
        if len(self._full) != 1:
            self._full = deque([np.concatenate([np.empty((0, self._width)), *self._full])])
        view = self._full[0].view()
        view.setflags(write=False)
        return view
