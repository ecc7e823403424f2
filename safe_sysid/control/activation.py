"""May a controller become active? Judged by the arm's own measurements, before the first command; pure, no clocks.

On a real arm nothing that a proof rests on is taken on trust here which a fraction of a second of measurements at rest
can refute: rate and delay of the measurements, the declared errors of position and velocity, unit, sign and source of
the effort, the pose. What they cannot show is declared: see docs/arms/.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from safe_sysid.control.checks import check_static_gravity, why_not_rate
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.start_checks import judge_rest
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel

__all__ = ["ActivationChecks"]

FloatArray = NDArray[np.float64]

#: So long measurements must have come without a gap, s; what is older than the second is forgotten.
_NEEDED, _KEPT = 0.2, 0.5
#: Slower or faster than declared by more than this share: another rate.
_RATE = 0.05
#: Delay of the faster measurements: what way and clocks add to all of them. What a busy machine adds to some is judged
#: while running, command by command ("Late commands" in docs/guarantees.md).
_TYPICAL = 0.25
_ROUND = 1e-9  # rad and rad/s, what messages and unwrapping may round


class ActivationChecks:
    """Remembers the last half second of measurements; :meth:`reasons` says why control may not begin.

    In real time all of it is judged. In lock-step, in simulation, stamps are not wall time and there is no driver: one
    measurement is enough, and only what a start needs is judged.
    """

    def __init__(
        self,
        model: RobotModel,
        gains: ControllerGains,
        start_check: Callable[[FloatArray], list[str]] | None,
        lockstep: bool,
    ) -> None:
        """No measurement yet.

        Args:
            model: of the arm.
            gains: of its controller.
            start_check: reasons why a pose (n,) rad may not be held, as ``planning.certificate.start_check`` gives
                them; None: not judged.
            lockstep: whether time is the simulation's.
        """
        self.model, self.gains, self.lockstep = model, gains, lockstep
        self._start_check, n = start_check, model.n
        kept = 2 if lockstep else max(round(_KEPT * model.settings.measurement.rate_hz), 4)
        self._stamps, self._delays = np.zeros(kept, np.int64), np.zeros(kept)
        self._q, self._qd, self._effort = np.zeros((kept, n)), np.zeros((kept, n)), np.zeros((kept, n))
        self._count = 0
        noise = gains.assumptions.velocity_error + gains.K_r * gains.assumptions.position_error
        self._noise = np.array(np.broadcast_to(noise, (n,)))

    def forget(self) -> None:
        """Begin again: measurements of another session, or before a clock was set."""
        self._count = 0

    def add(
        self, stamp_ns: int, arrival_ns: int, q: FloatArray, qd: FloatArray, effort: FloatArray | None
    ) -> None:
        """Remember a measurement; one that is not newer than the last makes everything begin again. Cheap.

        Args:
            stamp_ns: of the measurement.
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

    def reasons(self) -> list[str]:
        """Why control may not begin with the last measurement, in words; empty if it may."""
        if not self._count:
            return ["no measurement has come on joint_states: expected one (is the arm's driver running?)"]
        settings, rows = self.model.settings, self._rows()
        q, qd, effort = self._q[rows[-1]], self._qd[rows[-1]], self._effort[rows[-1]]
        if not (np.isfinite(q).all() and np.isfinite(qd).all()):
            return ["measurement is not finite"]
        reasons = [] if self.lockstep else [*self._driver(), *self._times(rows), *self._errors(rows)]
        reasons += [reason] if (reason := why_not_rate(self.model)) else []
        at_rest, _ = judge_rest(self.model, self.gains, self._noise, q, qd)
        reasons += at_rest
        if settings.controller.gravity_check and not at_rest:
            reasons += self._gravity(q, qd, effort)
        if self._start_check is not None and not at_rest:
            reasons += self._start_check(q)
        return reasons

    # -- the parts ----------------------------------------------------------------------------------------------

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
                "themselves when commands stop, s (docs/arms/)"
            )
        elif not timeout > timing.hold_max_s:
            reasons.append(
                f"driver.command_timeout_s is {timeout:g} s: expected more than timing.hold_max_s = "
                f"{timing.hold_max_s:g} s, or the drives brake between two commands"
            )
        return reasons

    def _times(self, rows: NDArray[np.intp]) -> list[str]:
        """Rate, gaps and delay."""
        measurement, timing = self.model.settings.measurement, self.model.settings.timing
        stamps, delays = self._stamps[rows], self._delays[rows]
        periods = 1e-9 * np.diff(stamps)
        # Only what came without a gap up to now counts.
        gaps = np.flatnonzero(periods > measurement.max_age_s)
        begin = int(gaps[-1]) + 1 if gaps.size else 0
        span = 1e-9 * float(stamps[-1] - stamps[begin])
        if span < _NEEDED:
            gap = f", a gap of {periods[gaps[-1]]:.3f} s before" if gaps.size else ""
            return [f"measurements for {span:.3f} s only{gap}: expected {_NEEDED:g} s of them without a gap"]
        reasons = []
        period, delay = float(np.median(periods[begin:])), float(np.quantile(delays[begin:], _TYPICAL))
        if abs(period - 1.0 / measurement.rate_hz) > _RATE / measurement.rate_hz:
            reasons.append(
                f"measurements come every {1e3 * period:.3f} ms ({1.0 / max(period, 1e-9):.0f} Hz): expected "
                f"measurement.rate_hz = {measurement.rate_hz:g} Hz"
            )
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
        if delay < -measurement.stamp_error_s:
            reasons.append(
                f"measurements come {-1e3 * delay:.3f} ms before their stamp: expected clocks that agree to "
                f"measurement.stamp_error_s = {measurement.stamp_error_s:g} s"
            )
        return reasons

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
        bend = per_joint(settings.identification.acceleration_bound, n)
        steps = np.diff(self._q[rows], axis=0)
        steps -= 2.0 * np.pi * np.where(model.continuous, np.round(steps / (2.0 * np.pi)), 0.0)
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
                reasons.append(
                    f"{names[j]}: measured velocity is off the differences of positions by at least {worst:.3g} "
                    f"rad/s: expected at most measurement.velocity_error = {declared[j]:g} rad/s, which gains and "
                    "proofs rest on"
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
            return check_static_gravity(self.model, self.model.arm_prior, q, qd, effort)
        if self.lockstep:
            return []
        return [
            "joint_states without finite efforts: expected those that measurement.torque_source = "
            f"{self.model.settings.measurement.torque_source} names, for the check against gravity"
        ]
