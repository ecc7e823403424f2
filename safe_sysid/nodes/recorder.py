"""Rows of named columns in arrays that grow by doubling: no allocation in most ticks, one file at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Recorder"]


class Recorder:
    """A log of numbers; each column has a fixed shape and type."""

    def __init__(self, columns: Mapping[str, tuple[tuple[int, ...], Any]], capacity: int = 16384) -> None:
        """``columns``: name to (shape of one entry, type)."""
        self._columns = {name: np.zeros((capacity, *shape), kind) for name, (shape, kind) in columns.items()}
        self._capacity, self._rows = capacity, 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._rows

    def append(self, **values: Any) -> None:
        """Add one row; values are copied, columns left out stay zero."""
        k = self._rows
        if k == self._capacity:
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate([column, np.zeros_like(column)])
            self._capacity *= 2
        for name, value in values.items():
            self._columns[name][k] = value
        self._rows = k + 1

    def __getitem__(self, name: str) -> NDArray[Any]:
        """All entries of a column."""
        return self._columns[name][: self._rows]

    def save(self, path: Path, **extra: Any) -> None:
        """Write all rows and whatever else is named to an ``.npz`` file."""
        columns: dict[str, Any] = {name: self[name] for name in self._columns}
        np.savez(path, **columns, **extra)
