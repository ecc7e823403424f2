"""Ground truth of a run, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.logs.online.rows import GrowingRows

__all__ = ["TruthLog"]


_VECTORS = ("q", "qd", "tau_commanded", "tau_applied", "q_measured", "qd_measured", "effort")
_SCALARS = {"t": np.float64, "contacts": np.int64, "mode": np.int8}


class TruthLog:
    """Rows of named columns; row k is the state at ``t[k]`` and the torques of the period that ended there."""

    def __init__(self, n: int, most: int | None = None) -> None:
        """No row yet, for ``n`` joints; ``most``: rows that are kept, the oldest go."""
        self._n = n
        self._rows = GrowingRows(n * len(_VECTORS) + len(_SCALARS), most)

    def __len__(self) -> int:
        return len(self._rows)

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
        """Add one row; the arguments are copied.

        Args:
            t: end of the period, s.
            q: (n,) true, rad.
            qd: (n,) true, rad/s.
            tau_commanded: (n,) N m.
            tau_applied: (n,) N m.
            measured: q, qd and effort as measured, (n,) each.
            contacts: solids that overlap.
            mode: of the step, as :mod:`~.plant` numbers them.
        """
        row, n = self._rows.new(), self._n
        for k, vector in enumerate((q, qd, tau_commanded, tau_applied, *measured)):
            row[k * n : (k + 1) * n] = vector
        row[-3], row[-2], row[-1] = t, contacts, mode

    def arrays(self) -> dict[str, NDArray]:
        """All rows so far, copied; read-only."""
        rows, n = self._rows.array(), self._n
        columns: dict[str, NDArray] = {name: rows[:, k * n : (k + 1) * n].copy() for k, name in enumerate(_VECTORS)}
        columns |= {name: rows[:, k - 3].astype(kind) for k, (name, kind) in enumerate(_SCALARS.items())}
        for column in columns.values():
            column.setflags(write=False)
        return columns

    def save(self, path: Path, **extra: object) -> None:
        """Write all rows, and whatever else is named, to a compressed ``.npz``."""
        columns: dict[str, Any] = {**self.arrays(), **extra}
        np.savez_compressed(path, **columns)
