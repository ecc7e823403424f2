"""Checker's view of a log: which samples may be used, and what is known about the steps between them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.certificates.interval_dynamics.arrays import TWO_PI, IntervalArray, exactly, inflate
from safe_sysid.identification.certificates.interval_dynamics.held_steps import HeldTorque
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements

__all__ = ["LogSteps", "LogView"]

#: Samples that contradict the acceleration bound by less than this are not held against a window: float noise of logs.
_ALLOWANCE_REL, _ALLOWANCE_ABS = 1e-9, 1e-12
#: A step between samples that is longer than this many periods leaves part of the torque unknown. The period is the
#: declared one, or, where a lost message could hide in that, the median of so many steps before.
_GAP, _BEFORE = 1.5, 31
#: Samples before that velocities tie a position to.
_TIED = 48


@dataclass(frozen=True, eq=False)
class LogSteps:
    """What is known about steps between consecutive samples.

    Attributes:
        index: (S,) sample at the start of each.
        shift: (S, 2, n) what the velocities make of the readings at both ends, rad; off: (S, 2, n) error bounds then.
        h: (S, 1) duration by the stamps, s; longest: (S, 1) what it may truly be at most.
        delta: (S, n) change of these positions, rad, wraps undone.
        ride: (S, n) the same by the velocities at both ends; ride_off: its error bound.
        centre: (S, n) mid position, rad, up to whole turns.
        mean: (S, n) estimate u of the mean velocity, rad/s; rho: (S, n) bound of its error.
        acceleration: (S, n) bound A of |qdd| on the step, rad/s^2.
        away: (S, n) bound of ``|qd(t) - u|``; speed: (S, n) of ``|qd(t)|``, both over the true step.
        sign: (S, n) of the velocity during the whole step, 0 where it may be either.
        torque: (S, n) all mean torques (sampled effort: trapezoids), sensor bias included, that agree with the effort.
        contradicted: (S,) whether the samples contradict the declared acceleration bound.
    """

    index: IntArray
    shift: FloatArray
    off: FloatArray
    h: IntervalArray
    longest: FloatArray
    delta: IntervalArray
    ride: IntervalArray
    ride_off: FloatArray
    centre: IntervalArray
    mean: IntervalArray
    rho: FloatArray
    acceleration: FloatArray
    away: FloatArray
    speed: FloatArray
    sign: FloatArray
    torque: IntervalArray
    contradicted: BoolArray

    def at(self, samples: IntArray) -> tuple[FloatArray, FloatArray]:
        """(N, n), (N, n): shift and off of samples that steps begin or end at."""
        begins = np.minimum(np.searchsorted(self.index, samples), len(self.index) - 1)
        ends = np.searchsorted(self.index, samples - 1) % len(self.index)
        own = self.index[begins] == samples
        step, end = np.where(own, begins, ends), np.where(own, 0, 1)
        return self.shift[step, end], self.off[step, end]


class LogView:
    """One log with what is declared about it."""

    def __init__(
        self, measurements: Measurements, errors: MeasurementErrors, continuous: BoolArray, rate_hz: float
    ) -> None:
        """Screen the samples: finite, and later than every good one before.

        Args:
            measurements: all samples in order of arrival.
            continuous: (n,) joints that wrap.

        Raises:
            ParameterError: another number of joints.
        """
        if measurements.n != errors.n or len(continuous) != errors.n:
            raise ParameterError(f"log of {measurements.n} joints: expected {errors.n}")
        self.data, self.errors = measurements, errors
        self._continuous = np.asarray(continuous, bool)
        m = measurements
        finite = np.isfinite(m.stamps)
        for values in (m.q, m.qd, m.effort):
            finite &= np.all(np.isfinite(values), axis=1)
        stamps = np.where(finite, m.stamps, -np.inf)
        before = np.concatenate([[-np.inf], np.maximum.accumulate(stamps)[:-1]]) if len(m) else stamps
        self._finite, self._good = finite, finite & (stamps > before)
        self._longest = self._longest_steps(1.0 / rate_hz)
        h = np.diff(np.where(self._good, m.stamps, 0.0))
        self._joined = self._good[1:] & self._good[:-1] & (h <= self._longest[:-1])  # no gap on the step
        self._joined &= h > 2.0 * self.sigma(np.arange(1, len(m))) * (1.0 + 1e-12)

    def __len__(self) -> int:
        return len(self.data)

    def _longest_steps(self, period: float) -> FloatArray:
        """(N,) how long the step from each good sample to the next good one may be, s.

        The log is looked at as if it had been preceded by 31 steps of the median of its first 32 samples.
        """
        longest = np.full(len(self), _GAP * period)
        good = np.flatnonzero(self._good)
        steps = np.diff(self.data.stamps[good])
        first = steps[: max(int(np.sum(self._good[: _BEFORE + 1])) - 1, 0)]
        usual = list(np.sort(np.full(_BEFORE, np.median(first) if first.size else np.inf)))
        order = deque(usual)
        for k, step in zip(good.tolist(), steps.tolist(), strict=False):
            if 2.0 * usual[_BEFORE // 2] < _GAP * period:  # two usual steps would pass for one declared period
                longest[k] = _GAP * usual[_BEFORE // 2]
            usual.pop(bisect_left(usual, order.popleft()))
            insort(usual, step)
            order.append(step)
        return longest

    def sigma(self, sample: IntArray | int) -> FloatArray:
        """Error bound of a sample's stamp, that of its representation as a float included, s.

        Args:
            sample: index or indices.
        """
        return inflate(self.errors.stamp + 2.0**-52 * np.abs(self.data.stamps[sample]))

    def positions(self, samples: IntArray, shift: FloatArray) -> IntervalArray:
        """(N, n) readings, plus ``shift``."""
        q = exactly(self.data.q[samples])
        return q + exactly(shift) if np.any(shift) else q

    def refusal(self, first: int, last: int) -> str | None:
        """Explain why samples ``first..last`` are not a window; None if they are.

        Args:
            first: index in order of arrival.
            last: likewise.
        """
        if not 0 <= first < last:
            return f"samples {first} to {last}: expected 0 <= first < last"
        if last >= len(self):
            return f"sample {last} is beyond the log, which has {len(self)}"
        part = slice(first, last + 1)
        if not np.all(self._good[part]):
            k = first + int(np.argmin(self._good[part]))
            why = "out of order or a duplicate" if self._finite[k] else "not finite"
            return f"sample {k} was rejected: {why}"
        h = np.diff(self.data.stamps[part])
        gap = h > self._longest[first:last]
        if np.any(gap):
            k = first + int(np.argmax(gap))
            return f"gap of {self.data.stamps[k + 1] - self.data.stamps[k]:.6g} s after sample {k}"
        if np.any(h <= 2.0 * self.sigma(last) * (1.0 + 1e-12)):
            return f"a step is not longer than twice the stamp error {float(self.sigma(last)):g} s"
        return None

    def longest_run(self, first: int) -> float:
        """Duration of the longest part without gap or rejected sample among the samples from one on, s.

        Args:
            first: index in order of arrival.
        """
        good = self._good[first:]
        stamps = np.where(good, self.data.stamps[first:], 0.0)
        h = np.diff(stamps)
        goes_on = good[:-1] & good[1:] & (h <= self._longest[first : len(self) - 1])
        longest = run = 0.0
        for step, on in zip(h.tolist(), goes_on.tolist(), strict=True):
            run = run + step if on else 0.0
            longest = max(longest, run)
        return longest

    def surroundings(self, first: int, last: int, need: float) -> tuple[int, int] | None:
        """Samples around a window that are at least ``need`` s away from it and all in its run; None if there are none.

        Args:
            last: likewise.
            need: s.
        """
        stamps = self.data.stamps
        low, high = first, last
        while low >= 0 and not stamps[first] - stamps[low] >= need:
            low -= 1
        while high < len(self) and not stamps[high] - stamps[last] >= need:
            high += 1
        if low < 0 or high >= len(self) or self.refusal(low, high) is not None:
            return None
        return low, high

    def _velocities(
        self, by_q: IntervalArray, by_v: IntervalArray, rho_q: FloatArray, rho_v: FloatArray, reach: FloatArray
    ) -> tuple[IntervalArray, FloatArray, FloatArray, FloatArray]:
        """Mean, rho, away and sign of :class:`LogSteps`; a velocity is within ``reach`` of its mean and its chord."""
        e = self.errors
        use_q = rho_q <= rho_v
        mean = IntervalArray(np.where(use_q, by_q.lo, by_v.lo), np.where(use_q, by_q.hi, by_v.hi))
        rho = np.where(use_q, rho_q, rho_v)
        away = inflate(reach + rho)
        by_mean = np.maximum(mean.lo, -mean.hi) > inflate(away + e.transition)
        by_ends = np.maximum(by_v.lo, -by_v.hi) > inflate(reach + e.velocity + e.transition)
        sign = np.where(by_mean, np.sign(mean.lo), np.where(by_ends, np.sign(by_v.lo), 0.0))
        return mean, rho, away, sign

    def steps(self, index: IntArray, held: HeldTorque | None = None) -> LogSteps:
        """Facts about the steps that start at these samples, all of them inside windows.

        Args:
            index: (S,) of samples whose successors are good too, increasing.
            held: what the arm's equations say of a torque that is held; None: nothing.
        """
        position = self.errors.position
        if not np.any(position > 0.0):
            return self._steps(index, held, np.zeros((1, 2, 1)), np.zeros((1, 2, len(position))))
        change = np.zeros(len(self) + 1, np.int64)
        np.add.at(change, np.maximum(index - _TIED, 0), 1)
        np.add.at(change, np.minimum(index + 1, len(self)), -1)
        near = np.flatnonzero((np.cumsum(change)[: len(self) - 1] > 0) & self._joined)
        raw = self._steps(near, held, np.zeros((1, 2, 1)), np.broadcast_to(position, (1, 2, len(position))))
        samples = np.unique(np.concatenate([near, near + 1]))
        tie = np.zeros(len(samples), bool)  # whether velocities tie a sample to the next
        residual = IntervalArray(*np.zeros((2, len(samples), len(position))))
        starts = np.searchsorted(samples, near)
        tie[starts] = ~raw.contradicted
        moved = raw.ride + IntervalArray(-raw.ride_off, raw.ride_off) - raw.delta
        residual.lo[starts], residual.hi[starts] = moved.lo, moved.hi
        shift, off = _tied(position, residual, tie)
        at = np.searchsorted(samples, np.stack([index, index + 1], axis=1))
        return self._steps(index, held, shift[at], off[at])

    def _steps(self, index: IntArray, held: HeldTorque | None, shift: FloatArray, off: FloatArray) -> LogSteps:
        """The same for positions that are known: readings plus ``shift`` (S, 2, n), off by at most ``off``."""
        e, data = self.errors, self.data
        early, late = index, index + 1
        shift, off = (np.broadcast_to(x, (len(index), 2, e.n)) for x in (shift, off))
        h = exactly(data.stamps[late, None]) - exactly(data.stamps[early, None])
        twice = exactly(2.0 * self.sigma(late)[:, None])
        longest, shortest = (h + twice).hi, np.maximum((h - twice).lo, 1e-300)
        raw = exactly(data.q[late]) - exactly(data.q[early])
        turns = np.round((data.q[late] - data.q[early]) / (2.0 * np.pi)) * self._continuous
        unwrapped = raw - exactly(turns) * TWO_PI
        read = IntervalArray(np.where(turns == 0.0, raw.lo, unwrapped.lo), np.where(turns == 0.0, raw.hi, unwrapped.hi))
        delta = read + (exactly(shift[:, 1]) - exactly(shift[:, 0])) if np.any(shift) else read
        by_v = (exactly(data.qd[late]) + exactly(data.qd[early])).halved()
        jump = (exactly(data.qd[late]) - exactly(data.qd[early])).size()
        a = np.broadcast_to(e.acceleration, jump.shape)
        if e.jerk is not None:
            # qdd is within J h / 2 of its mean.
            a = np.minimum(a, inflate((jump + 2.0 * e.velocity) / shortest + 0.5 * e.jerk * longest))
        torque = true_torque(data.effort[late], e)
        if e.effort == "sampled":
            torque = (torque + true_torque(data.effort[early], e)).halved()

        def by_positions(change: IntervalArray, both: FloatArray) -> tuple[IntervalArray, FloatArray]:
            # |delta/h - true change / h*| <= 2 dq / h + (|delta| + 2 dq) / h * |h* - h| / h*.
            by_q, apart = change / h, both / h.lo
            return by_q, inflate(apart + (by_q.size() + apart) * (twice.hi / shortest))

        def by_velocities(a: FloatArray, chord: FloatArray | float) -> tuple[FloatArray, FloatArray]:
            # The trapezoid of a function with Lipschitz constant A misses its mean by at most A h / 4; one whose slope
            # has the constant J, by J h^2/12. Within a step it is within A h / 2 of its mean, and of its chord.
            if e.jerk is not None:
                chord = e.jerk * longest * longest / 12.0
            return inflate(np.minimum(0.25 * a * longest, chord) + e.velocity), 0.5 * a * longest

        by_q, rho_q = by_positions(read, 2.0 * e.position)
        rho_v, reach = by_velocities(a, np.inf)
        differ = np.maximum((by_q - by_v).lo, (by_v - by_q).lo)
        contradicted = np.any(
            (differ > (rho_q + rho_v) * (1.0 + 2.0 * _ALLOWANCE_REL) + 2.0 * _ALLOWANCE_ABS)
            | (
                jump
                > (e.acceleration * longest + 2.0 * e.velocity) * (1.0 + 2.0 * _ALLOWANCE_REL) + 2.0 * _ALLOWANCE_ABS
            ),
            axis=1,
        )
        if held is not None:
            mean, rho, _, sign = self._velocities(by_q, by_v, rho_q, rho_v, reach)
            change = inflate((jump + 2.0 * e.velocity) / shortest)
            a, chord = held.lower(a, inflate(mean.size() + rho), longest, torque, sign, change, ~contradicted)
            rho_v, reach = by_velocities(a, chord)
        by_q, rho_q = by_positions(delta, inflate(off[:, 0] + off[:, 1]))
        mean, rho, away, sign = self._velocities(by_q, by_v, rho_q, rho_v, reach)
        return LogSteps(
            index=index,
            shift=shift,
            off=off,
            h=h,
            longest=longest,
            delta=delta,
            ride=by_v * h,
            ride_off=inflate(longest * rho_v + twice.hi * by_v.size()),
            centre=self.positions(early, shift[:, 0]) + delta.halved(),
            mean=mean,
            rho=rho,
            acceleration=np.array(a),
            away=away,
            speed=inflate(mean.size() + away),
            sign=sign,
            torque=torque,
            contradicted=contradicted,
        )


def _tied(position: FloatArray, residual: IntervalArray, tie: BoolArray) -> tuple[FloatArray, FloatArray]:
    """What true positions are less their readings: centre and half width (N, n), by the readings of samples around.

    With ``x`` true position less reading, at most dq, the next sample's x is this one's plus ``residual``: what the
    velocities say of the change of position, less what the readings say. Each x is so in as many intervals as there
    are samples before that are tied to it. One that has nothing in common with those so far is left out,
    and all beyond it: the log is not what was declared, which is not for this to say.

    Args:
        residual: (N, n) of the step behind each sample.
        tie: (N,) whether there is one.
    """
    count = len(tie)
    low, high = (np.array(np.broadcast_to(x, residual.lo.shape)) for x in (-position, position))
    reading = IntervalArray(-position, position)
    total, alive = exactly(np.zeros_like(low)), np.ones(low.shape, bool)
    for k in range(1, _TIED + 1):
        step = np.arange(count) - k  # that the next sample is reached over
        inside, step = step >= 0, np.maximum(step, 0)
        alive &= (inside & tie[step])[:, None]
        total = total + residual[step]
        other = total + reading
        least, most = np.maximum(low, other.lo), np.minimum(high, other.hi)
        alive &= least <= most
        low, high = np.where(alive, least, low), np.where(alive, most, high)
    centre = 0.5 * (low + high)
    return centre, inflate(np.maximum(high - centre, centre - low))


def true_torque(measured: FloatArray, e: MeasurementErrors) -> IntervalArray:
    """All ``tau + bias`` with ``|measured - bias - tau| <= a + b |tau|``, a with the drift.

    For one bias, with ``x = measured - bias``: tau >= 0 gives ``tau (1 - b) <= x + a``, tau < 0 gives
    ``tau (1 + b) <= x + a``: the largest tau is an increasing function of x; of a command those with
    ``|x - tau| <= a + b |x|`` count too. Its sum with the bias is convex in the bias, so largest at an end.

    Args:
        measured: (S, n) N m.
    """
    a, b, one = exactly(e.torque_abs) + exactly(e.torque_drift), exactly(e.torque_rel), exactly(1.0)

    def largest(x: IntervalArray) -> FloatArray:
        reach = x + a
        top = np.where(reach.hi >= 0.0, (reach / (one - b)).hi, (reach / (one + b)).hi)
        if e.torque_source == "command":
            top = np.maximum(top, (x + a + b * exactly(x.size())).hi)
        return top

    def most(m: FloatArray) -> FloatArray:
        ends = [
            (exactly(largest(exactly(m) - exactly(bias))) + exactly(bias)).hi
            for bias in (-e.torque_bias, e.torque_bias)
        ]
        return np.maximum(*ends)

    if not np.any(e.torque_bias):
        return IntervalArray(-largest(exactly(-measured)), largest(exactly(measured)))
    return IntervalArray(-most(-measured), most(measured))
