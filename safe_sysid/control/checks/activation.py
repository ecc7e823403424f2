"""Activation checks: whether the last measurements allow control to begin. Pure functions of arrays, no clocks.

Half a second of measurements at rest can refute much of what the proofs assume about a real arm: rate and delay of the
measurements, the declared errors of position and velocity, unit, sign and source of the effort, the pose. All that is
checked here. What such measurements cannot show has to be declared: see docs/use/arms/.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.control.checks.start import check_static_gravity, judge_rest, signs_confirmed, why_not_rate
from safe_sysid.control.gains import ControllerGains
from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ActivationChecks", "Judgement", "StartCheck"]

#: Of a pose (n,), rad, and the box that control would begin with: why it may not be held, in words, and the widest
#: tube in which it may, as ``start_tube`` of ``planning.certification.certificate`` has it.
StartCheck = Callable[[FloatArray, ParameterBox], tuple[list[str], int]]

#: So long measurements must have come without a gap, s; what is older than the second is forgotten.
_NEEDED, _KEPT = 0.2, 0.5
#: Slower or faster than declared by more than this share: another rate. A larger share missing: too many lost.
_RATE, _LOST = 0.05, 0.1
#: Delay of the faster measurements: what way and clocks add to all of them.
_TYPICAL = 0.25
#: What may be later is a rare exception; what is later than declared is judged while running, command by command
#: ("Late commands" in docs/understand/guarantees.md), as long as there is anything to judge.
_HIGH, _FEW = 0.95, "5 %"
_ROUND = 1e-9  # rad and rad/s, what messages and unwrapping may round
#: So far may drives let a pose sag between its judgement and the take-over, rad or m, beyond the measurement errors.
_SAG = 1e-4


@dataclass(frozen=True, eq=False)
class Judgement:
    """What was found out about a pose, which takes long, for a take-over that comes a little later."""

    q: FloatArray | None  #: (n,) measured, that was judged, rad; None: there was no measurement
    reasons: tuple[str, ...]  #: why control may not begin there
    box: ParameterBox | None = None  #: that it was judged with; None: any
    tube: int = 0  #: the widest tracking tube in which the pose may be held

    def why_not(self, model: RobotModel, q: FloatArray, box: ParameterBox | None = None) -> list[str]:
        """Why control may not begin at a pose: the judged one's reasons, or that this is another pose or a wider box.

        Args:
            q: (n,) measured at the take-over, continuous joints on any branch, rad.
            box: that control begins with; None: any.
        """
        if self.reasons or self.q is None:
            return list(self.reasons) or ["no pose was judged: expected a measurement"]
        if box is not None and self.box is not None and not box.is_inside(self.box):
            return [f"box {box.identity} is not inside {self.box.identity}, which the pose was judged with: ask again"]
        off = model.shortest_way(np.asarray(q, float) - self.q)
        allowed = 2.0 * per_joint(model.settings.measurement.position_error, model.n) + _SAG + _ROUND
        return [
            f"{model.joint_names[j]} is {off[j]:.3g} {model.position_units[j]} off the pose that was judged: expected "
            f"at most {allowed[j]:.3g} (twice measurement.position_error and {_SAG:g} that drives may sag)"
            for j in np.flatnonzero(~(np.abs(off) <= allowed))
        ]


class ActivationChecks:
    """Remembers the last half second of measurements; :meth:`reasons` says why control may not begin.

    :meth:`warnings` says what does not speak against it, and that people should know.

    In real time all of it is judged. In lock-step, in simulation, stamps are not wall time and there is no driver: one
    measurement is enough, and only what a start needs is judged.

    Attributes:
        box: that control would begin with: the prior, or what was found out of the payload while the drives held it.
    """

    def __init__(
        self,
        model: RobotModel,
        gains: ControllerGains,
        start_check: StartCheck | None,
        lockstep: bool,
        simulated: bool = False,
    ) -> None:
        """No measurement yet.

        Args:
            start_check: why a pose may not be held, and in which tube it may; None: not judged.
            lockstep: whether the simulation waits for commands.
            simulated: whether stamps are a simulation's, which goes on by itself: such an arm may repeat its numbers.
        """
        self._remember(model, start_check, lockstep, simulated)
        self.gains = gains
        noise = gains.assumptions.velocity_error + gains.K_r * gains.assumptions.position_error
        self._noise = np.array(np.broadcast_to(noise, (model.n,)))
        self._covered = max(gains.longest_covered_gap(self._noise), gains.assumptions.hold_max)

    def _remember(self, model: RobotModel, start_check: StartCheck | None, lockstep: bool, simulated: bool) -> None:
        self.model, self.lockstep, self.box = model, lockstep, model.arm_prior
        self._start_check, n = start_check, model.n
        self._may_repeat = simulated or model.settings.driver.may_repeat
        kept = 2 if lockstep else max(round(_KEPT * model.settings.measurement.rate_hz), 4)
        self._stamps, self._delays = np.zeros(kept, np.int64), np.zeros(kept)
        self._q, self._qd, self._effort = np.zeros((kept, n)), np.zeros((kept, n)), np.zeros((kept, n))
        self._count = 0

    def forget(self) -> None:
        """Begin again: measurements of another session, or before a clock was set."""
        self._count = 0

    def add(self, stamp_ns: int, arrival_ns: int, q: FloatArray, qd: FloatArray, effort: FloatArray | None) -> None:
        """Remember a measurement; one that is not newer than the last makes everything begin again. Cheap.

        Args:
            arrival_ns: when it came, on the clock of the stamps; in lock-step anything.
            q: (n,) measured, on any branch, rad.
            qd: (n,) measured, rad/s.
            effort: (n,) measured, N m; None: not given.
        """
        if self._count and stamp_ns <= self._stamps[(self._count - 1) % self._stamps.size]:
            self._count = 0
        k = self._count % self._stamps.size
        self._stamps[k], self._delays[k] = stamp_ns, 1e-9 * (arrival_ns - stamp_ns)
        self._q[k], self._qd[k] = q, qd
        self._effort[k] = np.nan if effort is None else effort
        self._count += 1

    def snapshot(self) -> ActivationChecks:
        """The same measurements, to be judged while others go on coming to this one."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(other, name, value.copy())
        return other

    def judge(self) -> Judgement:
        """:meth:`reasons`, and the pose that they are about."""
        q = self._q[(self._count - 1) % self._stamps.size].copy() if self._count else None
        reasons, tube = self._found()
        return Judgement(q, tuple(reasons), self.box, tube)

    def reasons(self) -> list[str]:
        """Why control may not begin with the last measurement, in words; empty if it may."""
        return self._found()[0]

    def _found(self) -> tuple[list[str], int]:
        """The reasons, and the widest tube in which the pose may be held."""
        if not self._count:
            return ["no measurement has come on joint_states: expected one (is the arm's driver running?)"], 0
        settings, rows = self.model.settings, self._rows()
        q, qd, effort = self._q[rows[-1]], self._qd[rows[-1]], self._effort[rows[-1]]
        if not (np.isfinite(q).all() and np.isfinite(qd).all()):
            return ["measurement is not finite"], 0
        reasons: list[str] = []
        tube = 0
        if not self.lockstep:
            reasons += [*self._driver(), *self._times(rows), *self._frozen(rows), *self._errors(rows)]
        reasons += [reason] if (reason := why_not_rate(self.model)) else []
        at_rest = self._rest(q, qd)
        reasons += at_rest
        if settings.controller.gravity_check and not at_rest:
            reasons += self._gravity(q, qd, effort)
        if self._start_check is not None and not at_rest:
            found, tube = self._start_check(q, self.box)
            reasons += found
        return reasons, tube

    def warnings(self) -> list[str]:
        """What is worse than declared, or was not seen, where :meth:`reasons` has none; in lock-step nothing."""
        if self.lockstep or self._count < 2:
            return []
        rows, names = self._rows(), self.model.joint_names
        found = self._late(rows)
        q, qd, effort = self._q[rows[-1]], self._qd[rows[-1]], self._effort[rows[-1]]
        if self.model.settings.controller.gravity_check:
            seen = signs_confirmed(self.model, self.model.arm_prior, q, qd, effort)
            if not seen.all():
                unseen = ", ".join(names[j] for j in np.flatnonzero(~seen))
                found.append(
                    f"the sign of the effort of {unseen} is not confirmed: gravity loads too little of it at this "
                    "pose, the opposite would be explained as well"
                )
        return found

    # -- the parts ----------------------------------------------------------------------------------------------

    def _rest(self, q: FloatArray, qd: FloatArray) -> list[str]:
        """Why the arm does not rest well enough."""
        return judge_rest(self.model, self.gains, self._noise, q, qd)[0]

    def _rows(self) -> NDArray[np.intp]:
        """Where the measurements lie, oldest first."""
        size = self._stamps.size
        first = max(self._count - size, 0)
        return np.arange(first, self._count) % size

    def _driver(self) -> list[str]:
        driver, timing = self.model.settings.driver, self.model.settings.timing
        timeout, reasons = driver.command_timeout_s, []
        if timeout is None:
            reasons.append(
                "driver.command_timeout_s is not declared: expected the time after which the drives brake by "
                "themselves when commands stop, s (docs/use/arms/)"
            )
        elif not timeout > timing.hold_max_s:
            reasons.append(
                f"driver.command_timeout_s is {timeout:g} s: expected more than timing.hold_max_s = "
                f"{timing.hold_max_s:g} s, or the drives brake between two commands"
            )
        return reasons

    def _times(self, rows: NDArray[np.intp]) -> list[str]:
        """Rate, gaps and delay."""
        measurement = self.model.settings.measurement
        periods, delays, ages, gap = self._ages(rows)
        span = float(np.sum(periods))
        if span < _NEEDED:
            before = f", a gap of {gap:.3f} s before" if gap else ""
            return [f"measurements for {span:.3f} s only{before}: expected {_NEEDED:g} s without a gap"]
        reasons = []
        period, delay = float(np.median(periods)), float(np.quantile(delays, _TYPICAL))
        if abs(period - 1.0 / measurement.rate_hz) > _RATE / measurement.rate_hz:
            reasons.append(
                f"measurements come every {1e3 * period:.3f} ms ({1.0 / max(period, 1e-9):.0f} Hz): expected "
                f"measurement.rate_hz = {measurement.rate_hz:g} Hz"
            )
        elif (lost := 1.0 - periods.size / (span * measurement.rate_hz)) > _LOST:
            reasons.append(
                f"{100.0 * lost:.0f} % of measurements are missing in {span:.3f} s: expected at most {100 * _LOST:g} % "
                f"of measurement.rate_hz = {measurement.rate_hz:g} Hz"
            )
        reasons += self._delays_allowed(period, delays, ages, delay)
        if delay < -measurement.stamp_error_s:
            reasons.append(
                f"measurements come {-1e3 * delay:.3f} ms before their stamp: expected clocks that agree to "
                f"measurement.stamp_error_s = {measurement.stamp_error_s:g} s"
            )
        return reasons

    def _delays_allowed(self, period: float, delays: FloatArray, ages: FloatArray, delay: float) -> list[str]:
        """What is later than the gains are made for; ``delay``: typical, s."""
        timing, reasons = self.model.settings.timing, []
        if period + max(delay, 0.0) > timing.hold_max_s:
            reasons.append(
                f"period and delay of measurements are {1e3 * (period + delay):.3f} ms: expected at most "
                f"timing.hold_max_s = {1e3 * timing.hold_max_s:g} ms, which the gains are made for"
            )
        if delay > timing.delay_max_s:
            reasons.append(
                f"measurements come {1e3 * delay:.3f} ms after their stamp: expected at most timing.delay_max_s "
                f"= {1e3 * timing.delay_max_s:g} ms, computing included (are all clocks the same?)"
            )
        elif (late := float(np.quantile(delays, _HIGH))) > timing.hold_max_s:
            reasons.append(
                f"{_FEW} of measurements come {1e3 * late:.3f} ms or more after their stamp: expected at most "
                f"timing.hold_max_s = {1e3 * timing.hold_max_s:g} ms, beyond which a command is old before it acts"
            )
        if (oldest := float(np.quantile(ages, _HIGH))) > self._covered:
            reasons.append(
                f"{_FEW} of commands would be in force for {1e3 * oldest:.3f} ms or more (period and delay): expected "
                f"at most {1e3 * self._covered:.3g} ms, the longest that is covered of an arm at rest"
            )
        return reasons

    def _ages(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Of what came without a gap up to now: periods, delays and ages of commands; and the gap before, all in s.

        A measurement's command is in force until the next one's: for a period and the next delay, at least.
        """
        periods = 1e-9 * np.diff(self._stamps[rows])
        gaps = np.flatnonzero(periods > self.model.settings.measurement.max_age_s)
        begin = int(gaps[-1]) + 1 if gaps.size else 0
        delays = self._delays[rows][begin:]
        gap = float(periods[gaps[-1]]) if gaps.size else 0.0
        return periods[begin:], delays, periods[begin:] + np.maximum(delays[1:], 0.0), gap

    def _late(self, rows: NDArray[np.intp]) -> list[str]:
        """Late as run time will judge it, measurement by measurement."""
        timing = self.model.settings.timing
        _, delays, ages, _ = self._ages(rows)
        late, oldest = float(np.quantile(delays, _HIGH)), float(np.quantile(ages, _HIGH))
        if late <= timing.delay_max_s and oldest <= timing.hold_max_s:
            return []
        share = np.mean((delays[1:] > timing.delay_max_s) | (ages > timing.hold_max_s))
        return [
            f"{100 * share:.0f} % of measurements come later than declared, {_FEW} of all {1e3 * late:.3f} ms or more "
            f"after their stamp, and {1e3 * oldest:.3f} ms or more after that of the one before: expected at most "
            f"timing.delay_max_s = {1e3 * timing.delay_max_s:g} ms and timing.hold_max_s = "
            f"{1e3 * timing.hold_max_s:g} ms; there the tracking bound is proved while the arm is quiet enough (see "
            "the count of commands late, not covered)"
        ]

    def _frozen(self, rows: NDArray[np.intp]) -> list[str]:
        """A sensor that lives differs from itself by its last bits sooner or later."""
        if self._may_repeat:
            return []
        if any(np.any(values[rows] != values[rows[0]]) for values in (self._q, self._qd, self._effort)):
            return []
        return [
            f"positions, velocities and efforts of all joints are the same numbers in {rows.size} measurements: "
            "expected a sensor's last bits to change (a driver that repeats its last reading?); "
            "driver.may_repeat: true says that they need not"
        ]

    def _errors(self, rows: NDArray[np.intp]) -> list[str]:
        """Velocities against differences of positions: a contradiction to the declared errors, for any motion.

        With ``|qdd| <= a`` the mean velocity over a time T is within ``a T / 2`` of that at its beginning, and the
        difference of measured positions within ``2 position_error`` of the true one. T is chosen for the least sum.
        """
        model, settings = self.model, self.model.settings
        n, names = model.n, model.joint_names
        stamps, qd = 1e-9 * (self._stamps[rows] - self._stamps[rows[0]]), self._qd[rows]
        position = per_joint(settings.measurement.position_error, n) + _ROUND
        declared = per_joint(settings.measurement.velocity_error, n)
        bend = model.acceleration_bound
        steps = model.shortest_way(np.diff(self._q[rows], axis=0))
        way = np.vstack([np.zeros(n), np.cumsum(steps, axis=0)])
        reasons = []
        for j in range(n):
            time = 2.0 * np.sqrt(position[j] / bend[j])
            lag = int(np.clip(round(time * settings.measurement.rate_hz), 1, len(rows) - 1))
            if lag >= len(rows):
                continue
            duration = stamps[lag:] - stamps[:-lag]
            mean = (way[lag:, j] - way[:-lag, j]) / duration
            slack = 2.0 * position[j] / duration + 0.5 * bend[j] * duration + _ROUND
            excess = np.abs(qd[:-lag, j] - mean) - slack
            if (worst := float(np.max(excess, initial=-np.inf))) > declared[j]:
                unit = model.position_units[j]
                reasons.append(
                    f"{names[j]}: measured velocity is off the differences of positions by at least {worst:.3g} "
                    f"{unit}/s: expected at most measurement.velocity_error = {declared[j]:g} {unit}/s, which gains "
                    "and proofs rest on"
                )
        if settings.driver.wraps_continuous:
            beyond = model.continuous & (np.abs(self._q[rows]).max(axis=0) > np.pi + _ROUND)
            reasons += [
                f"{names[j]} at {self._q[rows[-1], j]:.4f} rad: expected within +-pi, for driver.wraps_continuous"
                for j in np.flatnonzero(beyond)
            ]
        return reasons

    def _gravity(self, q: FloatArray, qd: FloatArray, effort: FloatArray) -> list[str]:
        if np.isfinite(effort).all():
            reasons = check_static_gravity(self.model, self.box, q, qd, effort)
            # Not of the box at hand: that may come from these very efforts, and would exclude their opposite.
            prior = self.model.arm_prior
            if reasons or self.lockstep or signs_confirmed(self.model, prior, q, qd, effort).any():
                return reasons
            return [
                "efforts agree with gravity at this pose, and would if they were zero or all of the opposite sign: "
                "expected a pose where gravity loads joints; move the arm there (an arm that gravity never loads: "
                "controller.gravity_check: false)"
            ]
        if self.lockstep:
            return []
        return [
            "joint_states without finite efforts: expected those that measurement.torque_source = "
            f"{self.model.settings.measurement.torque_source} names, for the check against gravity"
        ]
