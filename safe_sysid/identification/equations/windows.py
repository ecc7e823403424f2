"""Test functions of the momentum equation: time windows over a stream."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Measurements, SampleRun

__all__ = ["Cut", "WindowCutter", "weights"]


@njit(cache=True)
def weights(stamps: FloatArray, ramp: float, out: FloatArray) -> None:
    """Test function at the samples of a window: 1, or rising from 0 over ``ramp`` s, back to 0 at the end.

    Without a ramp the momentum at both ends enters with the measured velocity. With one, only its mean over the ramp
    enters, and a mean velocity follows from positions: the velocity error then matters no more.

    Args:
        stamps: (m+1,) of the window, s.
        ramp: s; longer than half the window: half of it.
        out: (m+1,) result.
    """
    if ramp <= 0.0:
        out[:] = 1.0
        return
    start, end = stamps[0], stamps[-1]
    rise = min(ramp, 0.5 * (end - start))
    for k in range(stamps.size):
        out[k] = min(min(stamps[k] - start, end - stamps[k]) / rise, 1.0)


class Cut(NamedTuple):
    """Complete windows.

    Attributes:
        windows: for each length (W, 2), first and last sample, as indices into ``tail``.
    """

    tail: SampleRun
    windows: tuple[IntArray, ...]


class WindowCutter:
    """Cuts windows by time, for each of several lengths, back to back or overlapping, from a stream of runs."""

    def __init__(
        self, lengths: tuple[float, ...], period: float, stride: float = 1.0, margin: int = 0, history: int = 0
    ) -> None:
        """Start with an empty tail.

        Args:
            lengths: s.
            period: nominal time between samples, s: a window ends at the sample nearest to its length.
            stride: start of the next window after that of the last, in lengths: 1 is back to back.
            margin: samples that must be known on both sides of a window.
            history: samples before that are kept where there are any.
        """
        if not lengths or not all(length > 0.0 for length in lengths) or not 0.0 < stride <= 1.0:
            raise ParameterError(f"windows {lengths} s, stride {stride!r}: expected lengths > 0, 0 < stride <= 1")
        if not period > 0.0:
            raise ParameterError(f"period {period!r} s: expected a positive time")
        self._lengths, self._stride, self._half = lengths, stride, 0.5 * period
        self.margin, self.history = margin, history
        self._next = [margin] * len(lengths)
        self._tail: SampleRun | None = None

    def cut(self, run: SampleRun) -> Cut:
        """Windows that this run completes; keeps what is not used up."""
        if not run.continues or self._tail is None:
            tail = run
            self._next = [self.margin] * len(self._lengths)
        else:
            joined = Measurements.concatenate([self._tail.samples, run.samples])
            tail = SampleRun(joined, True, self._tail.first)
        stamps = tail.samples.stamps
        windows = []
        for i, length in enumerate(self._lengths):
            found, count, self._next[i] = _cut(
                stamps, self._next[i], length, self._stride * length, self._half, self.margin
            )
            windows.append(found[:count])
        keep = max(min(min(self._next), len(stamps)) - self.margin - self.history, 0)
        self._tail = SampleRun(tail.samples[keep:], True, tail.first + keep)
        self._next = [start - keep for start in self._next]
        return Cut(tail, tuple(windows))


@njit(cache=True)
def _cut(
    stamps: FloatArray, start: int, length: float, stride: float, half: float, margin: int
) -> tuple[IntArray, int, int]:
    """Windows (W, 2) from sample ``start`` on, how many, and where the next one will begin."""
    end = stamps.size - margin
    out = np.empty((max(end - start, 0), 2), np.int64)
    count = 0
    while start < end:
        last = start + 1
        while last < end and stamps[last] < stamps[start] + length - half:
            last += 1
        if last >= end:
            break
        out[count, 0], out[count, 1] = start, last
        count += 1
        follower = start + 1
        while follower < last and stamps[follower] < stamps[start] + stride - half:
            follower += 1
        start = follower
    return out, count, start
