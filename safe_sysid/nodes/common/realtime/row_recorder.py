"""Recorder of named rows of numbers with stamps: a row costs one copy; the file is written at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.logs.online.rows import GrowingRows

__all__ = ["Recorder"]


class Recorder:
    """A log: each row is a stamp (ns, exact) and named columns of one or several numbers."""

    def __init__(self, columns: Mapping[str, int], most: int | None = None) -> None:
        """``columns``: name to width, in the order in which rows are given; ``most``: rows that are kept."""
        self._widths = dict(columns)
        self._rows = GrowingRows(1 + sum(columns.values()), most)

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, stamp_ns: int, parts: Sequence[FloatArray]) -> None:
        """Add one row; ``parts``, put one after the other, are its columns. They are copied."""
        row = self._rows.new()
        row[:1].view(np.int64)[0] = stamp_ns
        np.concatenate(parts, out=row[1:])

    @property
    def forgotten(self) -> int:
        """Oldest rows that are not kept any more."""
        return self._rows.forgotten

    @property
    def stamps(self) -> IntArray:
        """(rows,) ns."""
        return self._rows.array()[:, :1].view(np.int64)[:, 0]

    def columns(self) -> dict[str, FloatArray]:
        """All columns by name: (rows,), or (rows, width) where they are wider than one."""
        out, start, values = {}, 1, self._rows.array()
        for name, width in self._widths.items():
            part = values[:, start : start + width]
            out[name] = part[:, 0] if width == 1 else part
            start += width
        return out

    def save(self, path: Path, **extra: Any) -> None:
        """Write all rows, and whatever else is named, to an ``.npz`` file; the stamps are called ``stamp``."""
        columns: dict[str, Any] = {"stamp": self.stamps, **self.columns(), **extra}
        np.savez(path, **columns)
