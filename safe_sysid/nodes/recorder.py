"""Rows of numbers in arrays that grow by doubling: a row costs a copy, and one file is written at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Recorder"]

FloatArray = NDArray[np.float64]


class Recorder:
    """A log: each row is a stamp (ns, exact) and named columns of one or several numbers."""

    def __init__(self, columns: Mapping[str, int], capacity: int = 16384) -> None:
        """``columns``: name to width, in the order in which rows are given."""
        self._widths = dict(columns)
        self._stamps = np.zeros(capacity, np.int64)
        self._values = np.zeros((capacity, sum(columns.values())))
        self._rows = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._rows

    def append(self, stamp_ns: int, parts: Sequence[FloatArray]) -> None:
        """Add one row; ``parts``, put one after the other, are its columns. They are copied."""
        k = self._rows
        if k == len(self._stamps):
            self._stamps = np.concatenate([self._stamps, np.zeros_like(self._stamps)])
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
        self._stamps[k] = stamp_ns
        np.concatenate(parts, out=self._values[k])
        self._rows = k + 1

    @property
    def stamps(self) -> NDArray[np.int64]:
        """(rows,) ns."""
        return self._stamps[: self._rows]

    def columns(self) -> dict[str, FloatArray]:
        """All columns by name: (rows,), or (rows, width) where they are wider than one."""
        out, start = {}, 0
        for name, width in self._widths.items():
            part = self._values[: self._rows, start : start + width]
            out[name] = part[:, 0] if width == 1 else part
            start += width
        return out

    def save(self, path: Path, **extra: Any) -> None:
        """Write all rows, and whatever else is named, to an ``.npz`` file; the stamps are called ``stamp``."""
        columns: dict[str, Any] = self.columns()
        np.savez(path, **{"stamp": self.stamps, **columns, **extra})
