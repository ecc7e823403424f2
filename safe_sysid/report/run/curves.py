"""Curves of a simulated run that only its judge can measure, thinned for drawing: `judged.npz`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.input_limits import read_arrays
from safe_sysid.report.drawing.chart import thinned
from safe_sysid.whole_files import replacing

__all__ = ["CurvesError", "JudgedCurves", "read_curves", "write_curves"]


#: Points of a curve; more are not written by us.
_MOST = 20_000


class CurvesError(SafeSysIdError):
    """Curves that cannot be read."""


@dataclass(frozen=True, eq=False)
class JudgedCurves:
    """Curves over time (s): pairs of arrays of one length, thinned so that no peak is lost; empty if not measured."""

    clearance_time: FloatArray  #: (A,). clearance: (A,) m, smallest distance between solids, by the engine.
    clearance: FloatArray
    certified_time: FloatArray  #: (B,). certified: (B,) m, that the certificates promise, nan where they say nothing.
    certified: FloatArray
    position_time: FloatArray  #: (C,). position_share: (C,) largest true error of a joint over its proved bound.
    position_share: FloatArray
    energy_time: FloatArray  #: (D,). energy_share: (D,) V with the true inertia over its proved bound.
    energy_share: FloatArray

    @classmethod
    def of(
        cls, clearance: tuple[FloatArray, FloatArray, FloatArray], tracking: tuple[FloatArray, FloatArray, FloatArray]
    ) -> JudgedCurves:
        """Thin what the judge found.

        Args:
            clearance: time (T,), distance (T,) and promise (T,).
            tracking: time (K,), position share (K, n) and energy share (K,).
        """
        time, distance, promise = clearance
        ticks, position, energy = tracking
        worst = position.max(axis=1) if position.size else np.zeros(0)
        return cls(
            *thinned(time, distance, 1000),
            *thinned(time, np.where(np.isfinite(promise), promise, np.nan), 1000),
            *thinned(ticks, worst, 1000),
            *thinned(ticks, energy, 1000),
        )


def write_curves(path: str | Path, curves: JudgedCurves) -> None:
    """Write the file, whole or not at all. Raises OSError: it cannot be written."""
    with replacing(path) as temporary:
        np.savez_compressed(temporary, **{f.name: getattr(curves, f.name) for f in fields(curves)})


def read_curves(path: str | Path) -> JudgedCurves:
    """Read the file again.

    Raises:
        CurvesError: it cannot be read, or is not what :func:`write_curves` writes.
        FileNotFoundError: there is none.
    """
    names = [f.name for f in fields(JudgedCurves)]
    try:
        found = read_arrays(path)
        arrays = [np.asarray(found[name], float) for name in names]
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError, TypeError, MemoryError) as error:
        raise CurvesError(f"{path}: {str(error)[:100]}: expected the curves of a judged run") from None
    for time, values, name in zip(arrays[::2], arrays[1::2], names[1::2], strict=True):
        if time.ndim != 1 or time.shape != values.shape:
            raise CurvesError(f"{path}: {name} has shape {values.shape}: expected {time.shape}, one per time")
        if time.size > _MOST:
            raise CurvesError(f"{path}: {name} has {time.size} points: expected at most {_MOST}")
    return JudgedCurves(*arrays)
