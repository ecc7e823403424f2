r"""Checks of efforts against everything that the model can explain within its prior, payload included.

A window's momentum equation says ``|Y theta - T| <= w`` for the true parameters. If even the whole box cannot reach T,
something that was declared is false: proved, not guessed. Only what to change is then a hypothesis, tried one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from safe_sysid.control.checks.start import other_source, wrong_units
from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import GAP, Measurements
from safe_sysid.identification.equations.momentum import MomentumRows, momentum_rows
from safe_sysid.identification.equations.stream import default_ramp
from safe_sysid.logs.checks.findings import Finding
from safe_sysid.logs.checks.stamp_checks import good_steps
from safe_sysid.logs.log import Log
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["SampledWindows", "check_efforts", "sample_windows"]

_WINDOWS = 200  # looked at, spread over the log
_ENOUGH = 0.05  # share of the impossible windows that a good explanation may leave
_MANY, _THIN = 40, 5  # from so many impossible rows on hypotheses are first tried on every fifth window
_TELLING = 5.0  # least factor, up or down, of a unit that is looked for


@dataclass(frozen=True, eq=False)
class SampledWindows:
    """Some windows of a log, put one after the other."""

    data: Measurements  #: their samples; between windows time jumps
    windows: list[tuple[int, int]]  #: first and last index of each
    ramp: float  #: of the test function, s

    def rows(self, model: RobotModel, errors: MeasurementErrors, data: Measurements | None = None) -> MomentumRows:
        """Momentum equations over the prior box.

        ``data``: the same samples under another hypothesis; None for those of the log.
        """
        with np.errstate(all="ignore"):
            return momentum_rows(
                model.kinematics,
                model.arm_prior,
                errors,
                self.data if data is None else data,
                np.array(self.windows, np.int64).reshape(-1, 2),
                self.ramp,
                model.unknowns,
            )

    def thinned(self, each: int) -> SampledWindows:
        """Every so many of the windows."""
        kept, length = self.windows[::each], self.windows[0][1] - self.windows[0][0] + 1
        index = np.concatenate([np.arange(first, last + 1) for first, last in kept])
        windows = [(i * length, (i + 1) * length - 1) for i in range(len(kept))]
        return SampledWindows(self.data[index], windows, self.ramp)

    def shortest(self, model: RobotModel, errors: MeasurementErrors, each: int = 3) -> SampledWindows:
        """The shortest windows that the identifier uses, a few from each of these: where noise shows most.

        ``each``: so many, at random.
        """
        period = 1.0 / model.settings.measurement.rate_hz
        steps = 2 if default_ramp(2.0 * period, errors) > 0.0 else 1
        random = np.random.default_rng(0)
        windows = []
        for first, last in self.windows:
            room = max(1, (last - first) // steps)
            for k in np.sort(random.permutation(room)[:each]):
                windows.append((first + int(k) * steps, first + (int(k) + 1) * steps))
        return SampledWindows(self.data, windows, default_ramp(steps * period, errors))


def sample_windows(
    log: Log, model: RobotModel, errors: MeasurementErrors, count: int = _WINDOWS
) -> SampledWindows | None:
    """Windows of ``window_s`` without gap or missing number, spread evenly; None if there are none.

    ``log``: of the robot's joints; ``count``: at most so many.
    """
    m = log.measurements
    length = model.settings.identification.window_s
    rate = model.settings.measurement.rate_hz
    steps = max(2, round(length * rate))
    good = good_steps(log)
    if len(good) <= steps:
        return None
    with np.errstate(invalid="ignore"):
        fine = good[1:] & good[:-1] & (np.diff(m.stamps) <= GAP / rate)
    broken = np.concatenate([[0], np.cumsum(~fine)])
    starts = np.flatnonzero(broken[steps:] == broken[:-steps])
    if not starts.size:
        return None
    picked = [int(starts[0])]
    for start in starts[np.linspace(0, len(starts) - 1, min(count, len(starts))).astype(int)]:
        if start > picked[-1] + steps:
            picked.append(int(start))
    index = np.concatenate([np.arange(start, start + steps + 1) for start in picked])
    data = m[index]
    q = np.array(data.q)
    for i in range(len(picked)):
        part = slice(i * (steps + 1), (i + 1) * (steps + 1))
        q[part, model.continuous] = np.unwrap(q[part, model.continuous], axis=0)
    data = Measurements(data.stamps, q, data.qd, data.effort)
    windows = [(i * (steps + 1), i * (steps + 1) + steps) for i in range(len(picked))]
    return SampledWindows(data, windows, default_ramp(length, errors))


def check_efforts(log: Log, model: RobotModel, errors: MeasurementErrors) -> list[Finding]:
    """Efforts that no parameter in the prior box explains, and why; delay between efforts and motion.

    ``log``: of the robot's joints, positions and velocities already found consistent; ``model``: with its prior box.
    """
    sampled = sample_windows(log, model, errors)
    if sampled is None:
        return []
    excess, rows = _excess(sensor_prior(model.arm_prior, errors), sampled.rows(model, errors))
    out: list[Finding] = []
    if np.any(excess > 0.0):
        out = _Cause(log, model, errors, sampled, excess, rows).findings()
    if any(finding.level == "error" for finding in out):
        return out
    period = 1.0 / model.settings.measurement.rate_hz
    declared = errors.torque_delay + errors.torque_jitter
    return out if declared >= 0.5 * period else out + _delay(log, model, errors, sampled)


def _excess(box: ParameterBox, rows: MomentumRows) -> tuple[FloatArray, MomentumRows]:
    """(M,) by how much each row's target is out of reach of the whole box, N m s; negative if within."""
    reach = np.abs(rows.matrix) @ box.rad
    middle = rows.matrix @ box.mid
    excess = np.abs(rows.target - middle) - reach - rows.slack
    return excess - 1e-9 * (np.abs(rows.target) + reach), rows


class _Cause:
    """Tries what may be wrong, until what is impossible becomes possible."""

    def __init__(
        self,
        log: Log,
        model: RobotModel,
        errors: MeasurementErrors,
        sampled: SampledWindows,
        excess: FloatArray,
        rows: MomentumRows,
    ) -> None:
        self.log, self.model, self.errors, self.sampled = log, model, errors, sampled
        self.excess, self.rows = excess, rows
        self.box = sensor_prior(model.arm_prior, errors)
        self.before = self._count(excess, rows)
        self._few, self._few_before = sampled, self.before
        if self.before.sum() >= _MANY:
            few = sampled.thinned(_THIN)
            before = self._count(*_excess(self.box, few.rows(model, errors)))
            if before.sum() >= _MANY // _THIN:
                self._few, self._few_before = few, before

    def _count(self, excess: FloatArray, rows: MomentumRows) -> IntArray:
        return np.bincount(rows.joint[excess > 0.0], minlength=self.model.n)

    def _counts(
        self,
        change: Callable[[Measurements], Measurements],
        sampled: SampledWindows,
        errors: MeasurementErrors | None = None,
    ) -> IntArray | None:
        """Impossible windows of each joint under a hypothesis; None if it cannot be tested, or on hardly a window."""
        try:
            rows = sampled.rows(self.model, errors or self.errors, change(sampled.data))
        except ParameterError:  # as a test function with a ramp for means over steps: it cannot be tested
            return None
        if len(rows) < 0.5 * len(self.rows) * len(sampled.windows) / len(self.sampled.windows):
            return None
        return self._count(*_excess(self.box, rows))

    def findings(self) -> list[Finding]:
        """One finding for each joint, with the suggestion that explains it."""
        for attempt in (self._sign, self._source, self._order, self._scale, self._direction):
            found = attempt()
            if found:
                return found
        return [
            self._finding(
                int(j),
                "warning",
                "impossible",
                "one of the declared assumptions is false: prior, torque errors, torque source, gravity",
            )
            for j in np.flatnonzero(self.before)
        ]

    def _solves(self, counts: IntArray | None) -> bool:
        return counts is not None and counts.sum() <= _ENOUGH * self.before.sum() and self._weighty()

    def _explains(
        self, change: Callable[[Measurements], Measurements], errors: MeasurementErrors | None = None
    ) -> bool:
        """Whether a hypothesis solves it: asked of all windows only if it does so of a few, twice as generously."""
        if self._few is not self.sampled:
            counts = self._counts(change, self._few, errors)
            if counts is None or counts.sum() > 2.0 * _ENOUGH * self._few_before.sum():
                return False
        return self._solves(self._counts(change, self.sampled, errors))

    def _weighty(self) -> bool:
        """Whether so much is impossible that a wrong log is likelier than errors a little beyond their bounds."""
        return bool(self.before.sum() >= max(3, 0.01 * len(self.rows)))

    def _finding(self, j: int, level: Literal["error", "warning"], code: str, suggestion: str) -> Finding:
        """The worst window of a joint."""
        mine = np.flatnonzero(self.rows.joint == j)
        row = int(mine[np.argmax(self.excess[mine])])
        length = float(self.rows.end[row] - self.rows.start[row])
        box, unit = self.box, self.model.torque_units[j]
        middle = float(self.rows.matrix[row] @ box.mid)
        reach = float(np.abs(self.rows.matrix[row]) @ box.rad + self.rows.slack[row])
        low, high = (middle - reach) / length, (middle + reach) / length
        return Finding(
            level,
            code,
            self.log.column("effort", j),
            f"mean torque {self.rows.target[row] / length:.5g} {unit} over a window of {length:.3g} s",
            f"within [{low:.5g}, {high:.5g}] {unit}, as for every arm and payload of the prior",
            suggestion,
            float(self.rows.start[row]),
            int(self.before[j]),
        )

    def _all(self, code: str, suggestion: str, joints: NDArray[np.intp] | None = None) -> list[Finding]:
        which = np.flatnonzero(self.before) if joints is None else joints
        return [self._finding(int(j), "error", code, suggestion) for j in which]

    def _sign(self) -> list[Finding]:
        counts = self._counts(lambda m: replace(m, effort=-m.effort), self.sampled)
        if counts is None or not self._weighty():
            return []
        wrong = (self.before > 0) & (counts <= _ENOUGH * self.before)
        if self.before[~wrong].sum() > _ENOUGH * self.before.sum():
            return []
        return self._all(
            "effort_sign", "the opposite sign explains it: turn the effort's sign around", np.flatnonzero(wrong)
        )

    def _source(self) -> list[Finding]:
        source = other_source(self.errors.torque_source)
        if not self._explains(lambda m: m, replace(self.errors, torque_source=source)):
            return []
        side = "without friction and rotor inertia" if source == "link" else "before friction"
        return self._all(
            "torque_source",
            f"torque_source {source} ({side}) explains it, {self.errors.torque_source} does not: "
            f"--torque-source {source}",
        )

    def _order(self) -> list[Finding]:
        n = self.model.n
        if n < 2 or not self._weighty():
            return []
        cost = np.full((n, n), 0.0)
        for shift in range(n):
            column = (np.arange(n) + shift) % n
            counts = self._counts(lambda m, c=column: replace(m, effort=m.effort[:, c]), self._few)  # type: ignore[misc]
            cost[np.arange(n), column] = len(self.rows) if counts is None else counts
        _, best = linear_sum_assignment(cost + 1e-3 * (1.0 - np.eye(n)))
        moved = np.flatnonzero(best != np.arange(n))
        if moved.size and self._explains(lambda m: replace(m, effort=m.effort[:, best])):
            pairs = ", ".join(f"{self.log.column('effort', int(best[j]))} for {self.log.joint_names[j]}" for j in moved)
            return self._all("effort_order", f"another order of the efforts explains it: {pairs}", moved)
        for i in range(n):
            for j in range(i + 1, n):
                swap = np.arange(n)
                swap[[i, j]] = j, i
                if self._explains(
                    lambda m, c=swap: Measurements(m.stamps, m.q[:, c], m.qd[:, c], m.effort[:, c])  # type: ignore[misc]
                ):
                    names = self.log.joint_names
                    return self._all("joint_order", f"with {names[i]} and {names[j]} exchanged it fits")
        return []

    def _scale(self) -> list[Finding]:
        for unit, factor in wrong_units(self.model).items():
            # A factor near 1 would explain a wrong prior as well.
            if np.any(np.abs(np.log(factor)) < np.log(_TELLING)):
                continue
            if self._explains(lambda m, f=factor: replace(m, effort=f * m.effort)):  # type: ignore[misc]
                return self._all(
                    "effort_scale", f"as efforts in {unit} they fit: convert to N m (N where a joint slides)"
                )
        return []

    def _direction(self) -> list[Finding]:
        if not self._weighty():
            return []
        for j in range(self.model.n):
            sign = np.ones(self.model.n)
            sign[j] = -1.0
            if self._explains(
                lambda m, s=sign: Measurements(m.stamps, s * m.q, s * m.qd, s * m.effort)  # type: ignore[misc]
            ):
                return self._all(
                    "joint_direction",
                    f"with {self.log.joint_names[j]} counted in the other direction (position, velocity, "
                    "effort) it fits",
                )
        return []


def _delay(
    log: Log, model: RobotModel, errors: MeasurementErrors, sampled: SampledWindows, reach: int = 4
) -> list[Finding]:
    """Efforts whose steps come some samples before or after the steps that the motion asks for."""
    m = sampled.data
    h = np.diff(m.stamps)
    inside = np.ones(len(h), bool)
    inside[[last for _, last in sampled.windows[:-1]]] = False  # the jump to the next window
    h = np.where(inside, h, 1.0)
    acceleration = np.diff(m.qd, axis=0) / h[:, None]
    q, qd = 0.5 * (m.q[1:] + m.q[:-1]), 0.5 * (m.qd[1:] + m.qd[:-1])
    limit = 20_000
    pieces = slice(0, min(limit, len(h)))
    with np.errstate(all="ignore"):
        torque = (
            dynamics_of(model.kinematics).torque_regressor(q[pieces], qd[pieces], acceleration[pieces])
            @ model.theta_nominal
        )
    measured = m.effort[1:][pieces]
    use = inside[pieces][1:] & inside[pieces][:-1]
    wanted, seen = np.diff(torque, axis=0), np.diff(measured, axis=0)
    wanted, seen = np.where(use[:, None], wanted, 0.0), np.where(use[:, None], seen, 0.0)
    exact = errors.velocity == 0.0
    out = []
    for j in range(model.n):
        if not (np.any(wanted[:, j]) and np.any(seen[:, j])) or len(use) < 100:
            continue
        correlation = [_correlation(wanted[:, j], seen[:, j], shift) for shift in range(-reach, reach + 1)]
        best = int(np.argmax(correlation)) - reach
        at_best, at_zero = correlation[best + reach], correlation[reach]
        if best and at_best > 0.3 and at_best > abs(at_zero) + max(0.15, 5.0 / np.sqrt(len(use))):
            late = "after" if best > 0 else "before"
            out.append(
                Finding(
                    # Velocities that may err may be late themselves: then this proves nothing.
                    "error" if exact[j] and abs(at_zero) < 0.6 * at_best else "warning",
                    "effort_delay",
                    log.column("effort", j),
                    f"{abs(best)} samples {late} the motion that it causes "
                    f"(correlation {at_best:.2f} instead of {at_zero:.2f})",
                    "the mean torque over the step that ends at the stamp",
                    "record efforts with the stamps of their motion, or declare measurement.torque_delay_s",
                )
            )
    return out


def _correlation(a: FloatArray, b: FloatArray, shift: int) -> float:
    """Of ``a[k]`` with ``b[k + shift]``."""
    if shift > 0:
        a, b = a[:-shift], b[shift:]
    elif shift < 0:
        a, b = a[-shift:], b[:shift]
    size = float(np.sqrt(np.sum(a * a) * np.sum(b * b)))
    return float(np.sum(a * b)) / size if size > 0.0 else 0.0
