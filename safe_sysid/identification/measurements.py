"""What the sensors said: joint states in order of arrival, and their division into runs without a gap."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.robot.parameters import frozen_array

__all__ = ["REJECT_REASONS", "Measurements", "Screen"]

FloatArray = NDArray[np.float64]

#: Why a sample or a window is not used.
REJECT_REASONS = ("not_finite", "duplicate", "out_of_order", "gap", "acceleration")


@dataclass(frozen=True, eq=False)
class Measurements:
    """Joint states as received. Shapes are checked here; values are screened by :class:`Screen`.

    Attributes:
        stamps: (N,) s, from an origin near the run (a double of seconds since 1970 resolves only 0.2 us).
        q: (N, n) positions, rad; continuous joints may wrap.
        qd: (N, n) velocities, rad/s.
        effort: (N, n) mean torque over ``(t_{k-1}, t_k]``, N m: of a torque that is held, its value.
    """

    stamps: FloatArray
    q: FloatArray
    qd: FloatArray
    effort: FloatArray

    def __post_init__(self) -> None:
        """Check shapes and freeze.

        Raises:
            ParameterError: shapes do not fit together.
        """
        stamps = frozen_array(self.stamps, None, "Measurements.stamps", finite=False)
        if stamps.ndim != 1:
            raise ParameterError(f"Measurements.stamps: shape {stamps.shape}: expected (N,)")
        object.__setattr__(self, "stamps", stamps)
        q = np.asarray(self.q, float)
        if q.ndim != 2 or len(q) != len(stamps):
            raise ParameterError(f"Measurements.q: shape {q.shape}: expected ({len(stamps)}, n)")
        for name in ("q", "qd", "effort"):
            value = frozen_array(getattr(self, name), q.shape, f"Measurements.{name}", finite=False)
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.stamps)

    @property
    def n(self) -> int:
        """Number of joints."""
        return int(self.q.shape[1])

    def __getitem__(self, part: slice | NDArray) -> Measurements:
        """Samples by slice, index array or mask, in order of arrival."""
        return Measurements(self.stamps[part], self.q[part], self.qd[part], self.effort[part])

    def between(self, start: float, end: float) -> Measurements:
        """Samples with ``start <= stamp <= end`` (s), in order of arrival."""
        keep = (self.stamps >= start) & (self.stamps <= end)
        return Measurements(self.stamps[keep], self.q[keep], self.qd[keep], self.effort[keep])

    @classmethod
    def concatenate(cls, parts: list[Measurements]) -> Measurements:
        """One log from several, in the order given."""
        if not parts:
            raise ParameterError("Measurements.concatenate: no parts: expected at least one")
        return cls(
            *(np.concatenate([getattr(p, name) for p in parts]) for name in ("stamps", "q", "qd", "effort"))
        )


class Screen:
    """Divides a stream into runs of consecutive good samples; remembers where it was between calls.

    A sample that is dropped leaves the torque unknown over its period, so it always ends a run.
    """

    def __init__(self, continuous: ArrayLike, max_step: float) -> None:
        """Start with nothing received.

        Args:
            continuous: (n,) bool, joints that wrap at 2 pi.
            max_step: longest time between samples over which the effort is known to cover the whole step, s.
        """
        self._continuous = np.asarray(continuous, bool)
        self._max_step = max_step
        self._last: tuple[float, FloatArray] | None = None
        self._broken = True
        self.rejected: Counter[str] = Counter()

    def runs(self, measurements: Measurements) -> list[tuple[Measurements, bool]]:
        """Runs of good samples, positions unwrapped, and whether each continues the last run returned before.

        Raises:
            ParameterError: the number of joints is not this screen's.
        """
        n = self._continuous.size
        if measurements.n != n:
            raise ParameterError(f"Measurements.q: {measurements.n} joints: expected {n}")
        stamps, q, qd, effort = measurements.stamps, measurements.q, measurements.qd, measurements.effort
        with np.errstate(invalid="ignore"):
            finite = np.isfinite(stamps) & np.all(
                np.isfinite(q) & np.isfinite(qd) & np.isfinite(effort), axis=1
            )
        out: list[tuple[list[int], list[FloatArray], bool]] = []
        for k in range(len(stamps)):
            stamp = float(stamps[k])
            reason = self._reason(bool(finite[k]), stamp)
            if reason is not None:
                self.rejected[reason] += 1
                self._broken = True
                continue
            if self._last is not None and not self._broken and stamp - self._last[0] > self._max_step:
                self.rejected["gap"] += 1
                self._broken = True
            position = q[k]
            if self._last is not None:
                turns = np.round((position - self._last[1]) / (2.0 * np.pi))
                position = np.where(self._continuous, position - 2.0 * np.pi * turns, position)
            if self._broken or not out:
                out.append(([], [], not self._broken))
            out[-1][0].append(k)
            out[-1][1].append(position)
            self._last, self._broken = (stamp, position), False
        return [
            (Measurements(stamps[index], np.array(unwrapped), qd[index], effort[index]), continues)
            for index, unwrapped, continues in out
        ]

    def _reason(self, finite: bool, stamp: float) -> str | None:
        if not finite:
            return "not_finite"
        if self._last is not None and stamp == self._last[0]:
            return "duplicate"
        if self._last is not None and stamp < self._last[0]:
            return "out_of_order"
        return None
