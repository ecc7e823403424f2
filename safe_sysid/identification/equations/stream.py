"""From a stream of measurements to momentum rows: screening, windows of several lengths, test functions."""

from __future__ import annotations

from collections import Counter

import numpy as np

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements, SampleRun, SampleScreen
from safe_sysid.identification.equations.momentum import MomentumRows, RowSource
from safe_sysid.identification.equations.tied_positions import NEIGHBOURS
from safe_sysid.identification.equations.windows import Cut, WindowCutter
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["MomentumStream", "default_ramp", "default_windows"]

_RAMP = 0.02
_CHUNK = 4000  # samples handled at once: bounds the memory


def default_windows(model: RobotModel, errors: MeasurementErrors) -> tuple[float, ...]:
    """The configured length, two short ones, and two long ones where the momentum at the ends is not well known, s.

    Errors that do not repeat from sample to sample cancel in a long window, and with them what they tell: many short
    equations cut the set more. Errors that do repeat lose nothing. Short rows are implied by none, long ones by short
    ones, but are fewer: they are what remains when rows have to be forgotten. Errors of both position and velocity cost
    the same in a window of any length (with one of them alone there is a way around it), so longer ones tell more.
    """
    period = 1.0 / model.settings.measurement.rate_hz
    shortest = period if default_ramp(2.0 * period, errors) == 0.0 else 2.0 * period
    window = model.settings.identification.window_s
    lengths = [window, 20.0 * period, shortest]
    if np.any(errors.position > 0.0) and np.any(errors.velocity > 0.0):
        lengths += [2.0 * window, 5.0 * window]
    return tuple(dict.fromkeys(sorted(lengths, reverse=True)))


def default_ramp(length: float, errors: MeasurementErrors) -> float:
    """Rise time of the test function, s: zero unless the velocity error is worth it.

    Per kg m^2 of inertia the ends cost ``2 dv`` without ramp and ``4 dq / ramp`` with it (plus remainders). A ramp
    weights the torque within a step, so it must be known there: of a mean it is not.
    """
    if errors.only_mean_torques:
        return 0.0
    velocity, position = float(np.max(errors.velocity)), float(np.max(errors.position))
    ramp = min(_RAMP, 0.5 * length) if position == 0.0 else length / 3.0
    return ramp if 4.0 * position / ramp < 2.0 * velocity else 0.0


class MomentumStream:
    """Makes rows from a stream; windows continue from call to call."""

    def __init__(
        self,
        model: RobotModel,
        errors: MeasurementErrors,
        windows: tuple[float, ...],
        log: int = 0,
        constants: bool = False,
    ) -> None:
        """Start empty.

        Args:
            windows: lengths, s.
            log: which log this is, for :attr:`MomentumRows.log`.
            constants: whether rows have columns for the arm's unknown constants; else their slack covers them.
        """
        self._unknowns, self._constants = model.unknowns, constants
        self._kin, self._errors, self._log = model.kinematics, errors, log
        period = 1.0 / model.settings.measurement.rate_hz
        self._screen = SampleScreen(model.continuous, period)
        history = NEIGHBOURS if np.any(errors.position > 0.0) else 0
        self._cutter = WindowCutter(windows, period, 1.0, errors.margin(period), history)
        self._ramps = tuple(default_ramp(length, errors) for length in windows)
        self._rejected: Counter[str] = Counter()

    @property
    def rejected(self) -> Counter[str]:
        """Samples (windows, for "acceleration", "delay" and "travel") rejected so far, by reason."""
        return self._screen.rejected + self._rejected

    def push(self, measurements: Measurements, box: ParameterBox) -> MomentumRows | None:
        """Rows of all windows that these samples complete; ``box`` holds the true parameters."""
        parts: list[MomentumRows] = []
        for start in range(0, len(measurements), _CHUNK):
            for run in self._screen.runs(measurements[start : start + _CHUNK]):
                parts += self._rows(self._cutter.cut(run), box)
        if not parts:
            return None
        rows = MomentumRows.concatenate(parts)
        self._rejected["acceleration"] += rows.rejected_acceleration
        self._rejected["delay"] += rows.rejected_delay
        self._rejected["travel"] += rows.rejected_travel
        if not len(rows):
            return None
        return rows if self._constants else rows.without_constants(self._unknowns)

    def _rows(self, cut: Cut, box: ParameterBox) -> list[MomentumRows]:
        """Rows of windows, from no more samples than they need."""
        found = [(w, ramp) for w, ramp in zip(cut.windows, self._ramps, strict=True) if len(w)]
        if not found:
            return []
        margin = self._cutter.margin
        low = max(min(int(w[0, 0]) for w, _ in found) - margin - self._cutter.history, 0)
        high = max(int(w[-1, 1]) for w, _ in found) + margin
        tail = SampleRun(cut.tail.samples[low : high + 1], True, cut.tail.first + low)
        ramps = any(ramp > 0.0 for _, ramp in found)
        source = RowSource(self._kin, box, self._errors, tail, ramps, self._log, self._unknowns)
        return [source.rows(w - low, ramp) for w, ramp in found]
