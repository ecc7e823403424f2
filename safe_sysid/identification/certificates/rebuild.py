r"""Momentum rows rebuilt from a log alone, as intervals: ``a.theta`` lies in [lower, upper] for the true theta.

Proves the same statement as ``row_errors`` by its own code. For a test function phi,
linear between samples, and the true motion, integration by parts gives for every joint

``[phi P] - int phi' P - int phi f + Fc int phi s + Fv int phi qd + beta int phi = int phi tau``,

P momentum (rotors' included), f the rate of the rigid part and of rotors that turn in moving links, s the sign of the
velocity. The left side is linear in theta. In step k, from sample k to k+1, phi has mean ``p_k`` and slope ``s_k`` by
the stamps; the true duration h* is h with the error ``e_{k+1} - e_k``, ``|e| <= sigma``, at most H. Take the test
function with the *same slopes* over the true durations: by Abel summation it differs from phi by at most ``E = sigma
S``, S the total variation of the slope from 0 to 0. Then

- ``int phi tau``: ``p_k h [tau]`` for a torque that is held; sampled, a trapezoid with Lipschitz constant L, off by
  ``(p_k + E) H (L H/4 + L (delay + jitter))``, on slopes ``|s_k| H L H^2/12`` more. A constant delay d of a held
  torque shifts its steps against phi: at most d times half the variation of phi times the range of the torque
  near; a jitter moves every switch: jitter times the sum of its jumps.
- ``int phi f``: rate, slope, gravity of :mod:`~safe_sysid.identification.certificates.interval_dynamics.step_bounds`,
  weights ``(p_k + E) H``, ``|s_k| H^2`` and ``(p_k + E) H``.
- ``int phi' P``: rigid, ``s_k H(c) (q1 - q0)`` whatever h* is, off by ``|s_k| H ramp``; position errors by Abel
  summation: differences of ``s_k (H(c_k) + Ia)`` times dq, at most ``|s_k - s_{k-1}| shift + min |s| twist``.
- ends: phi there times the error of P; the deviation E times P itself.
- Coulomb: ``Fc p_k h s`` if the sign is certain, else at most ``Fc p_k h``.
- viscous: ``p_k (q1 - q0)``; position errors by Abel; on slopes ``|s_k| A H^3/12``; deviation ``E |q1 - q0|``. Without
  slopes q1 - q0 may be that of the velocities, if their errors add up to less.
- durations: everything that h multiplies is ``X_k``; ``sum p_k X_k (e_{k+1} - e_k)`` by Abel is at most
  ``sigma sum |p_k - p_{k-1}| size + min(p) change``, and ``E H size`` for the deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.core.layout import PER_LINK, ParameterLayout
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray, added, exactly, inflate
from safe_sysid.identification.certificates.interval_dynamics.regressors import interval_kinematics
from safe_sysid.identification.certificates.interval_dynamics.step_bounds import box_facts, sample_bounds, step_bounds
from safe_sysid.identification.certificates.log_view import LogView, true_torque
from safe_sysid.intervals import iadd, imul
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.unknowns import Unknowns

__all__ = ["RebuiltRow", "RowRebuilder", "Window"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """Provenance of equations: first and last sample in order of arrival, rise time of the test function (s)."""

    first: int
    last: int
    ramp: float


@dataclass(frozen=True, eq=False)
class RebuiltRow:
    """One equation, proved from the log: ``lower <= a . theta <= upper`` for some a in ``matrix``.

    Attributes:
        matrix: (14 n + E,) intervals, the last E of the arm's unknown constants.
        lower, upper: N m s.
    """

    matrix: IntervalArray
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class _Phi:
    """A window's test function; on its L steps (L, 1) unless said otherwise.

    Attributes:
        at: (L + 1,) floats at the samples: they define it.
        mean, slope, area: by the stamps.
        longest: H with the window's stamp error sigma.
        wide, turn: bounds of ``(mean + E) H`` and ``|slope| H``.
        sigma, deviation: numbers; E.
        mean_step, slope_step: (L + 1, 1) bounds of ``|difference to the step before|`` at the samples, zero outside.
        mean_least, slope_least: (L + 1, 1) the smaller of the two, in absolute value; zero at the ends.
    """

    at: FloatArray
    mean: IntervalArray
    slope: IntervalArray
    area: IntervalArray
    longest: FloatArray
    wide: FloatArray
    turn: FloatArray
    sigma: float
    deviation: float
    mean_step: FloatArray
    slope_step: FloatArray
    mean_least: FloatArray
    slope_least: FloatArray


class RowRebuilder:
    """Rebuilds rows of some windows of one log, their errors sized by one box."""

    def __init__(
        self, kin: Kinematics, log: LogView, box: ParameterBox, windows: list[Window], unknowns: Unknowns
    ) -> None:
        """Compute what windows share: steps and samples.

        Args:
            log: screened; must not refuse any of the windows.
            box: holds the true, physically consistent parameters.

        Raises:
            ModelError: kinematics that are not proper rotations and unit axes.
        """
        self._log = log
        index = np.unique(np.concatenate([np.arange(w.first, w.last) for w in windows]))
        self._facts = box_facts(kin, box, log.errors, unknowns)
        self._s = log.steps(index, self._facts.held(unknowns.applied(kin), log.errors))
        self._travel, self._zero = kin.travel, unknowns.zero
        enclosed = interval_kinematics(unknowns.applied(kin), log.errors.torque_source != "link")
        self._driven, self._unknown = kin.motors.joint, unknowns.count
        ramps = any(w.ramp > 0.0 for w in windows)
        self._bounds = step_bounds(enclosed, self._facts, self._s, log.errors, ramps)
        ends = [w.last for w in windows] + [w.first for w in windows if w.ramp <= 0.0]
        samples = np.unique(ends)
        self._samples = sample_bounds(enclosed, self._facts, log, samples, *self._s.at(samples))

    def contradiction(self, window: Window) -> int | None:
        """First sample of a step in the window that contradicts the declared acceleration bound, or None."""
        part = self._part(window)
        wrong = np.flatnonzero(self._s.contradicted[part])
        return int(self._s.index[part][wrong[0]]) if wrong.size else None

    def outside(self, window: Window) -> int | None:
        """First sample of a step in the window on which a prismatic joint may have left its travel, or None.

        The bounds over all configurations are those within the travel. Between its samples a joint is at most half
        the longest duration times its speed away from the middle; samples themselves are off by the position error.
        """
        part, log = self._part(window), self._log
        samples = np.arange(window.first, window.last + 1)
        shift, off = self._s.at(samples)
        x = inflate(0.5 * self._s.speed[part] * self._s.longest[part] + 0.5 * (off[1:] + off[:-1]) + self._zero)
        middle = self._s.centre[part]
        q = log.positions(samples, shift)
        low, high = self._travel.T
        error = exactly(inflate(off + self._zero))
        sample = np.any(((q - error).lo < low) | ((q + error).hi > high), axis=1)
        step = np.any(((middle - exactly(x)).lo < low) | ((middle + exactly(x)).hi > high), axis=1)
        wrong = np.flatnonzero(step | sample[:-1] | sample[1:])
        return window.first + int(wrong[0]) if wrong.size else None

    def _ridden(self, window: Window, w: _Phi, part: slice) -> tuple[NDArray[np.bool_], FloatArray]:
        """(n,) joints whose change of position is that of their velocities, as positions say less; error bounds (n,).

        Only where the test function is one throughout.
        """
        off = self._s.at(np.arange(window.first, window.last + 1))[1]
        by_positions = added(w.mean_step * off)
        if window.ramp > 0.0:
            return np.zeros(len(by_positions), bool), by_positions
        by_velocities = added(self._s.ride_off[part])
        return by_velocities < by_positions, np.minimum(by_velocities, by_positions)

    def _part(self, window: Window) -> slice:
        at = int(np.searchsorted(self._s.index, window.first))
        return slice(at, at + window.last - window.first)

    def rows(self, window: Window, joints: NDArray[np.int64]) -> dict[int, RebuiltRow] | None:
        """Equations of one window, by joint; None if the torque beside it, which a delay asks for, is not known.

        Args:
            window: one of those given; with a ramp it has at least two steps.
        """
        s, part = self._s, self._part(window)
        log, n = self._log, len(self._facts.rotor)
        layout, links = ParameterLayout(n), ParameterLayout(n).links
        w = self._test_function(window, part)
        first, last = (int(np.searchsorted(self._samples.index, k)) for k in (window.first, window.last))
        slack = self._slack(window, w, part, first, last)
        delay = self._delay(window, w)
        if delay is None:
            return None
        slack = inflate(slack + delay)

        rigid = np.zeros((n, len(self._facts.columns), 2))
        known = links.stop + len(self._driven)  # behind them those of the unknown constants
        wanted = np.zeros(n, bool)
        wanted[joints] = True
        _add_weighted((-w.area)[:, 0].stacked(), self._bounds.rate_columns[part], wanted, rigid)
        if window.ramp > 0.0:
            # r P(c, delta/h) with r = s h: the slope times H(c) times the change of position
            rise = (-(w.slope * s.h[part]))[:, 0].stacked()
            _add_weighted(rise, self._bounds.momentum_columns[part], wanted, rigid)
        for sample, value in ((last, w.at[-1]), (first, -w.at[0])):
            if value != 0.0:
                at_end = exactly(np.array([value])).stacked()
                _add_weighted(at_end, self._samples.columns[sample : sample + 1], wanted, rigid)
        offset = w.area.total()
        target = (w.area * s.torque[part]).total()
        friction = log.errors.torque_source != "link"
        coulomb = (w.area * exactly(s.sign[part])).total()
        viscous, ride = (w.mean * s.delta[part]).total(), s.ride[part].total()
        ridden, _ = self._ridden(window, w, part)
        viscous = IntervalArray(np.where(ridden, ride.lo, viscous.lo), np.where(ridden, ride.hi, viscous.hi))
        qd = exactly(log.data.qd[[window.first, window.last]])
        rotor = exactly(w.at[-1]) * qd[1] - exactly(w.at[0]) * qd[0] - (w.slope * s.delta[part]).total()
        out = {}
        for j in (int(x) for x in joints):
            lo, hi = (np.zeros(layout.size + self._unknown) for _ in range(2))
            lo[links], hi[links] = rigid[j, links, 0], rigid[j, links, 1]
            lo[layout.offset][j], hi[layout.offset][j] = offset.lo[0], offset.hi[0]
            if friction:
                for at, column in (
                    (layout.coulomb, coulomb), (layout.viscous, viscous), (layout.rotor_inertia, rotor),
                ):  # fmt: skip
                    lo[at][j], hi[at][j] = column.lo[j], column.hi[j]
            reaction = layout.links_and_rotors(self._driven)[links.stop :]
            more = IntervalArray(lo[reaction], hi[reaction]) + IntervalArray(*rigid[j, links.stop : known].T)
            lo[reaction], hi[reaction] = more.lo, more.hi
            lo[layout.size :], hi[layout.size :] = rigid[j, known:].T
            out[j] = RebuiltRow(
                IntervalArray(lo, hi),
                float(np.nextafter(target.lo[j] - slack[j], -np.inf)),
                float(np.nextafter(target.hi[j] + slack[j], np.inf)),
            )
        return out

    def _test_function(self, window: Window, part: slice) -> _Phi:
        """Any floats at the samples define one; these rise over ``ramp`` s, fall at the end, or are all one."""
        stamps = self._log.data.stamps[window.first : window.last + 1]
        if window.ramp > 0.0:
            half = min(window.ramp, 0.5 * float(stamps[-1] - stamps[0]))
            at = np.minimum(np.minimum(stamps - stamps[0], stamps[-1] - stamps) / half, 1.0)
        else:
            at = np.ones(len(stamps))
        h = self._s.h[part]
        left, right = exactly(at[:-1, None]), exactly(at[1:, None])
        flat = left.lo == right.lo
        rise, mean = right - left, (left + right).halved()
        rise = IntervalArray(np.where(flat, 0.0, rise.lo), np.where(flat, 0.0, rise.hi))
        mean = IntervalArray(np.where(flat, left.lo, mean.lo), np.where(flat, left.lo, mean.hi))
        slope = rise / h
        slope = IntervalArray(np.where(flat, 0.0, slope.lo), np.where(flat, 0.0, slope.hi))
        sigma = float(self._log.sigma(window.last))
        slope_step, slope_least = _neighbours(slope)
        mean_step, mean_least = _neighbours(mean)
        deviation = float(inflate(sigma * added(slope_step)[0]))
        longest = (h + exactly(2.0 * sigma)).hi
        return _Phi(
            at=at,
            mean=mean,
            slope=slope,
            area=mean * h,
            longest=longest,
            wide=inflate((mean.hi + deviation) * longest),
            turn=inflate(slope.size() * longest),
            sigma=sigma,
            deviation=deviation,
            mean_step=mean_step,
            slope_step=slope_step,
            mean_least=mean_least,
            slope_least=slope_least,
        )

    def _slack(self, window: Window, w: _Phi, part: slice, first: int, last: int) -> FloatArray:
        """(n,) all errors but the torque's own interval and a held torque's delay; non-negative terms only."""
        b, s, facts, e = self._bounds, self._s, self._facts, self._log.errors
        long, a = w.longest, s.acceleration[part]
        size, change = _at_samples(b.size[part]), np.concatenate([b.change[part], 0.0 * b.change[part][:1]])
        total = added(w.wide * (b.rate[part] + b.gravity[part]))
        total = total + facts.coulomb * added(w.area.hi * (s.sign[part] == 0.0))
        total = total + w.sigma * added(w.mean_step * size + w.mean_least * change)
        total = total + facts.viscous * self._ridden(window, w, part)[1]
        if e.torque_rate is not None:
            late = e.torque_delay + e.torque_jitter
            sampled = w.wide * (0.25 * long + late) + w.turn * long * long / 12.0
            total = total + e.torque_rate * added(sampled)
        if window.ramp > 0.0:
            moved = s.delta[part].size() + s.off[part].sum(axis=1)
            shift = _at_samples(b.shift[part])
            twist = np.concatenate([b.twist[part], 0.0 * b.twist[part][:1]])
            total = total + added(w.turn * (long * b.slope[part] + b.ramp[part]))
            total = total + added(w.slope_step * shift + w.slope_least * twist)
            total = total + facts.viscous * added(w.turn * a * long * long / 12.0)
            total = total + w.deviation * added(long * b.size[part] + facts.viscous * moved)
            total = total + w.deviation * self._samples.momentum[last]
        for sample, value in ((first, w.at[0]), (last, w.at[-1])):
            if value != 0.0:
                total = total + value * self._samples.end[sample]
        return inflate(total)

    def _delay(self, window: Window, w: _Phi) -> FloatArray | None:
        """(n,) what a delay and a jitter of a held torque cost; None if the torque near is not known."""
        e, log = self._log.errors, self._log
        n = len(self._facts.rotor)
        if e.torque_rate is not None or e.torque_delay + e.torque_jitter == 0.0:
            return np.zeros(n)
        need = float(inflate(e.torque_delay + e.torque_jitter + 2.0 * w.sigma))
        around = log.surroundings(window.first, window.last, need)
        if around is None:
            return None
        low, high = around
        torque = true_torque(log.data.effort[low + 1 : high + 1], e)  # of steps low .. high - 1
        jumps = added((torque[1:] - torque[:-1]).size())
        stamps = log.data.stamps
        step = np.arange(low, high)
        near = np.ones(high - low, bool)
        if window.ramp <= 0.0:  # phi only changes at the ends
            after = window.first + int(np.argmax(~(stamps[window.first : window.last] - stamps[window.first] < need)))
            if stamps[window.last - 1] - stamps[window.first] < need:
                after = window.last
            before = window.last
            while before > window.first and stamps[window.last] - stamps[before] < need:
                before -= 1
            near = (step < after) | (step >= before)
        spread = torque.hi[near].max(axis=0) - torque.lo[near].min(axis=0)
        variation = w.at[0] + w.at[-1] + added(w.turn)
        return inflate(
            e.torque_delay * (0.5 * variation + w.deviation) * inflate(spread)
            + e.torque_jitter * (1.0 + w.deviation) * jumps
        )


def _at_samples(values: FloatArray) -> FloatArray:
    """(L + 1, n): at each sample the larger of the two steps beside it."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    return np.maximum(padded[:-1], padded[1:])


def _neighbours(x: IntervalArray) -> tuple[FloatArray, FloatArray]:
    """At the samples of (L, 1): sizes of the differences to the step before, and the smaller size; zero outside."""
    zero = np.zeros((1, 1))
    padded = IntervalArray(np.concatenate([zero, x.lo, zero]), np.concatenate([zero, x.hi, zero]))
    difference = padded[1:] - padded[:-1]
    same = (padded.lo[1:] == padded.lo[:-1]) & (padded.hi[1:] == padded.hi[:-1]) & (padded.lo[1:] == padded.hi[1:])
    size = padded.size()
    return np.where(same, 0.0, difference.size()), np.minimum(size[1:], size[:-1])


@njit(cache=True)
def _add_weighted(weight: FloatArray, columns: FloatArray, wanted: NDArray[np.bool_], out: FloatArray) -> None:
    """``out[i] += sum_k weight_k columns[k, i]`` of intervals (L, 2), (L, n, C, 2) for the wanted i; out (n, C, 2)."""
    for i in range(out.shape[0]):
        if not wanted[i]:
            continue
        for c in range(PER_LINK * i, out.shape[1]):
            lo, hi = 0.0, 0.0
            for k in range(weight.shape[0]):
                pl, ph = imul(weight[k, 0], weight[k, 1], columns[k, i, c, 0], columns[k, i, c, 1])
                lo, hi = iadd(lo, hi, pl, ph)
            out[i, c, 0], out[i, c, 1] = iadd(out[i, c, 0], out[i, c, 1], lo, hi)
