"""Test functions of the momentum equation: time windows over a stream, and their weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.identification.measurements import Measurements

__all__ = ["WindowCutter", "weights"]

FloatArray = NDArray[np.float64]


def weights(stamps: FloatArray, ramp: float) -> FloatArray:
    """Test function at the samples (.., m+1) of windows: 1, or rising from 0 over ``ramp`` s, back to 0 at the end.

    Without a ramp the momentum at both ends enters with the measured velocity. With one, only its mean over the ramp
    enters, and a mean velocity follows from positions: the velocity error then matters no more.
    """
    if ramp <= 0.0:
        return np.ones(stamps.shape)
    start, end = stamps[..., :1], stamps[..., -1:]
    rise = np.minimum(stamps - start, end - stamps)
    return np.minimum(rise / np.minimum(ramp, 0.5 * (end - start)), 1.0)


@dataclass
class _Pending:
    """Next window of one length: index of its first sample in the tail."""

    length: float
    start: int = 0


class WindowCutter:
    """Cuts windows by time, for each of several lengths, back to back or overlapping, from a stream of runs."""

    def __init__(self, lengths: tuple[float, ...], stride: float = 1.0) -> None:
        """Start with an empty tail.

        Args:
            lengths: s.
            stride: start of the next window after that of the last, in lengths: 1 is back to back.
        """
        if not lengths or not all(length > 0.0 for length in lengths) or not 0.0 < stride <= 1.0:
            raise ParameterError(
                f"windows {lengths} s, stride {stride!r}: expected lengths > 0, 0 < stride <= 1"
            )
        self._stride = stride
        self._pending = [_Pending(length) for length in lengths]
        self._tail: Measurements | None = None

    def cut(self, run: Measurements, continues: bool) -> Iterator[tuple[Measurements, list[tuple[int, int]]]]:
        """Yield (samples, windows as first and last sample index) for one run; keeps what is not used up."""
        if not continues or self._tail is None:
            self._tail = run
            for pending in self._pending:
                pending.start = 0
        else:
            self._tail = Measurements.concatenate([self._tail, run])
        tail = self._tail
        stamps = tail.stamps
        windows: list[tuple[int, int]] = []
        for pending in self._pending:
            while True:
                i = pending.start
                half_step = 0.5 * (stamps[-1] - stamps[0]) / max(len(stamps) - 1, 1)
                last = int(np.searchsorted(stamps, stamps[i] + pending.length - half_step))
                if last >= len(stamps):
                    break
                last = max(last, i + 1)
                if last >= len(stamps):
                    break
                windows.append((i, last))
                step = int(np.searchsorted(stamps, stamps[i] + self._stride * pending.length - half_step))
                pending.start = min(max(step, i + 1), last)
        if windows:
            yield tail, windows
        keep = min(pending.start for pending in self._pending)
        self._tail = tail[keep:]
        for pending in self._pending:
            pending.start -= keep
