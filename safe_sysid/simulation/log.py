"""Ground truth of a run, step by step, in arrays that grow by doubling: no allocation in most steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TruthLog"]

FloatArray = NDArray[np.float64]

_VECTORS = ("q", "qd", "tau_commanded", "tau_applied", "q_measured", "qd_measured", "effort")
_SCALARS = {"t": np.float64, "contacts": np.int64, "mode": np.int8}


class TruthLog:
    """Rows of named columns; row k is the state at ``t[k]`` and the torques of the period that ended there."""

    def __init__(self, n: int, capacity: int = 8192) -> None:
        """Reserve ``capacity`` rows for ``n`` joints."""
        self._columns: dict[str, NDArray] = {name: np.empty((capacity, n)) for name in _VECTORS}
        self._columns |= {name: np.empty(capacity, kind) for name, kind in _SCALARS.items()}
        self._capacity = capacity
        self._rows = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._rows

    def append(
        self,
        t: float,
        q: FloatArray,
        qd: FloatArray,
        tau_commanded: FloatArray,
        tau_applied: FloatArray,
        measured: tuple[FloatArray, FloatArray, FloatArray],
        contacts: int,
        mode: int,
    ) -> None:
        """Add one row; the arguments are copied."""
        k = self._rows
        if k == self._capacity:
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate([column, np.empty_like(column)])
            self._capacity *= 2
        columns = self._columns
        columns["t"][k] = t
        columns["q"][k] = q
        columns["qd"][k] = qd
        columns["tau_commanded"][k] = tau_commanded
        columns["tau_applied"][k] = tau_applied
        columns["q_measured"][k], columns["qd_measured"][k], columns["effort"][k] = measured
        columns["contacts"][k] = contacts
        columns["mode"][k] = mode
        self._rows = k + 1

    def arrays(self) -> dict[str, NDArray]:
        """Read-only views of all rows so far."""
        views = {name: column[: self._rows] for name, column in self._columns.items()}
        for view in views.values():
            view.setflags(write=False)
        return views

    def save(self, path: Path, **extra: object) -> None:
        """Write all rows, and whatever else is named, to a compressed ``.npz``."""
        columns: dict[str, Any] = {**self.arrays(), **extra}
        np.savez_compressed(path, **columns)
