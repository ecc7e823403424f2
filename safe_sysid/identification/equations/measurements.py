"""Measurements: joint states in order of arrival, and their division into runs without a gap.

``Measurements`` is the noun for (stamp, q, qd, torque) that rooms hand to each other. Three others have to differ:
:class:`Sample`, one of them in a loop; ``nodes.common.messages.contents.JointSample``, a message with a stamp in ns;
and what a simulated arm keeps beside its measurements, the truth (``studies.campaign.cases.plant.Record``,
``report.run.logs.PlantLog``).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.parameters import frozen_array

__all__ = ["GAP", "REJECT_REASONS", "Measurements", "Sample", "SampleRun", "SampleScreen"]


#: Why a sample or a window is not used.
REJECT_REASONS = ("not_finite", "duplicate", "out_of_order", "gap", "acceleration", "delay", "travel")

#: A step longer than this many periods is a gap: it leaves part of the torque unknown.
GAP = 1.5
#: Steps whose median is the usual one.
_USUAL = 31


class Sample(NamedTuple):
    """One sample of :class:`Measurements` in a loop at 1 kHz: neither checked nor copied."""

    stamp: float  #: s
    q: FloatArray  #: (n,) rad, or m where a joint slides
    qd: FloatArray  #: (n,) rad/s or m/s
    effort: FloatArray  #: (n,) torque that was held until then, N m or N


@dataclass(frozen=True, eq=False)
class Measurements:
    """Joint states as received. Shapes are checked here; values are screened by :class:`SampleScreen`."""

    stamps: FloatArray  #: (N,) s, from an origin near the run (a double of seconds since 1970 resolves only 0.2 us)
    q: FloatArray  #: (N, n) positions, rad; continuous joints may wrap
    qd: FloatArray  #: (N, n) velocities, rad/s
    #: (N, n) torque, N m. Held: the value that was in force over ``(t_{k-1}, t_k]``; sampled: its value at ``t_k``
    #: (:attr:`~safe_sysid.identification.equations.measurement_errors.MeasurementErrors.effort`).
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
        return self[(self.stamps >= start) & (self.stamps <= end)]

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Measurements:
        """A log of at least one sample, in the order given."""
        return cls(*(np.array(column, dtype=float) for column in zip(*samples, strict=True)))

    @classmethod
    def concatenate(cls, parts: list[Measurements]) -> Measurements:
        """One log from several, in the order given.

        Raises:
            ParameterError: no parts.
        """
        if not parts:
            raise ParameterError("Measurements.concatenate: no parts: expected at least one")
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("stamps", "q", "qd", "effort")))


class SampleRun(NamedTuple):
    """A run of consecutive good samples."""

    samples: Measurements
    continues: bool  #: whether they go on where the run returned before ended
    first: int  #: index of the first sample in the log: every sample pushed counts, rejected ones too


class SampleScreen:
    """Divides a stream into runs of consecutive good samples; remembers where it was between calls.

    A sample that is dropped leaves the torque unknown over its period, so it always ends a run. One that never came is
    seen by the long step that it leaves, longer than ``GAP`` periods. The period is the declared one, or the median of
    the 31 steps before where that is below ``GAP / 2`` of it: there a lost message would look like a usual step.
    """

    def __init__(self, continuous: ArrayLike, period: float) -> None:
        """Start with nothing received.

        ``continuous``: (n,) bool, joints that wrap at 2 pi; ``period``: declared time between samples, s.
        """
        self._continuous = np.asarray(continuous, bool)
        self._period = period
        self._stamp = -np.inf
        self._q = np.zeros(self._continuous.size)
        self._turns = np.zeros(self._continuous.size)
        self._broken = True
        self._count = 0
        self._first: Measurements | None = None  # samples that wait until there are enough to tell the usual step
        self._steps: FloatArray | None = None  # (31,) the last ones, s
        self.rejected: Counter[str] = Counter()

    def runs(self, measurements: Measurements) -> list[SampleRun]:
        """Runs of good samples, in order; none before the 32nd sample, which are returned with the first ones.

        ``measurements``: samples in order of arrival.

        Raises:
            ParameterError: the number of joints is not this screen's.
        """
        n = self._continuous.size
        if measurements.n != n:
            raise ParameterError(f"Measurements.q: {measurements.n} joints: expected {n}")
        if self._steps is None:
            waiting = [] if self._first is None else [self._first]
            self._first = measurements = Measurements.concatenate([*waiting, measurements])
            if len(measurements) <= _USUAL:
                return []
        base, self._count = self._count, self._count + len(measurements)
        good = self._good(measurements)
        index = np.flatnonzero(good)
        if self._steps is None:
            early = np.diff(measurements.stamps[index[index <= _USUAL]])
            self._steps, self._first = np.full(_USUAL, np.median(early) if early.size else np.inf), None
        if not index.size:
            self._broken |= len(measurements) > 0
            return []
        stamps, q = measurements.stamps[index], measurements.q[index]
        before = np.concatenate([[-1], index[:-1]])
        broken = index != before + 1
        broken[0] |= self._broken
        gap = ~broken & self._gaps(stamps, self._steps)
        if np.any(gap):
            self.rejected["gap"] += int(np.sum(gap))
            broken |= gap
        steps = np.diff(q, axis=0, prepend=self._q[None])
        if self._stamp == -np.inf:
            steps[0] = 0.0
        turns = np.cumsum(np.round(steps / (2.0 * np.pi)), axis=0) + self._turns
        unwrapped = np.where(self._continuous, q - 2.0 * np.pi * turns, q)
        self._stamp, self._q, self._turns = float(stamps[-1]), q[-1], turns[-1]
        self._broken = bool(index[-1] != len(measurements) - 1)

        starts = np.flatnonzero(broken)
        edges = np.concatenate([starts if broken[0] else [0, *starts], [len(index)]]).astype(int)
        out = []
        for a, b in itertools.pairwise(edges):
            first = base + int(index[a])
            part = slice(int(index[a]), int(index[b - 1]) + 1)  # no sample between them is missing
            samples = Measurements(stamps[a:b], unwrapped[a:b], measurements.qd[part], measurements.effort[part])
            out.append(SampleRun(samples, not broken[a], first))
        return out

    def _gaps(self, stamps: FloatArray, last: FloatArray) -> BoolArray:
        """(N,) whether the step that ends at a good sample is too long, in view of those before it."""
        steps = np.diff(stamps, prepend=self._stamp)
        known = int(self._stamp == -np.inf)  # no step ends at the first sample of all
        history = np.concatenate([last, steps[known:]])
        self._steps = history[-_USUAL:]
        longest = np.full(len(steps), GAP * self._period)
        before = np.lib.stride_tricks.sliding_window_view(history, _USUAL)[:-1]
        short = np.cumsum(np.concatenate([[0], history < 0.5 * longest[0]]))
        fast = np.flatnonzero(2 * (short[_USUAL:-1] - short[: -_USUAL - 1]) > _USUAL)
        longest[known + fast] = GAP * np.median(before[fast], axis=1)
        return steps > longest

    def _good(self, measurements: Measurements) -> BoolArray:
        """Finite samples with a stamp later than all before; the others are counted by reason."""
        stamps = measurements.stamps
        finite = np.isfinite(stamps)
        for values in (measurements.q, measurements.qd, measurements.effort):
            finite &= np.isfinite(values).all(axis=1)
        latest = np.maximum.accumulate(np.concatenate([[self._stamp], np.where(finite, stamps, -np.inf)]))[:-1]
        with np.errstate(invalid="ignore"):
            later = stamps > latest
            same = stamps == latest
        for reason, found in (
            ("not_finite", ~finite),
            ("duplicate", finite & same),
            ("out_of_order", finite & ~later & ~same),
        ):
            if np.any(found):
                self.rejected[reason] += int(np.sum(found))
        return finite & later
