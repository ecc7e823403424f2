"""From a stream of measurements to momentum rows: screening, windows of several lengths, test functions."""

from __future__ import annotations

from collections import Counter

import numpy as np

from safe_sysid.identification.measurement_errors import MeasurementErrors
from safe_sysid.identification.measurements import Measurements, Screen
from safe_sysid.identification.momentum import MomentumRows, momentum_rows
from safe_sysid.identification.windows import WindowCutter
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["MomentumStream", "default_ramp", "default_windows"]

#: A step longer than this many periods leaves part of the torque unknown.
_GAP = 1.5
_RAMP = 0.02


def default_windows(model: RobotModel, errors: MeasurementErrors) -> tuple[float, ...]:
    """The configured length, and two short ones, s.

    Errors that do not repeat from sample to sample cancel in a long window, and with them what they tell: many short
    equations cut the set more. Errors that do repeat lose nothing. Short rows are implied by none, long ones by short
    ones, but are fewer: they are what remains when rows have to be forgotten.
    """
    period = 1.0 / model.settings.measurement.rate_hz
    shortest = period if default_ramp(2.0 * period, errors) == 0.0 else 2.0 * period
    lengths = [model.settings.identification.window_s, 20.0 * period, shortest]
    return tuple(dict.fromkeys(sorted(lengths, reverse=True)))


def default_ramp(length: float, errors: MeasurementErrors) -> float:
    """Rise time of the test function, s: zero unless the velocity error is worth it.

    Per kg m^2 of inertia the ends cost ``2 dv`` without ramp and ``4 dq / ramp`` with it (plus remainders).
    """
    velocity, position = float(np.max(errors.velocity)), float(np.max(errors.position))
    ramp = min(_RAMP, 0.5 * length) if position == 0.0 else length / 3.0
    return ramp if 4.0 * position / ramp < 2.0 * velocity else 0.0


class MomentumStream:
    """Remembers the end of the last run, so that windows go on over calls."""

    def __init__(
        self,
        model: RobotModel,
        errors: MeasurementErrors,
        windows: tuple[float, ...],
        ramps: tuple[float, ...] | None = None,
        stride: float = 1.0,
    ) -> None:
        """Start empty.

        Args:
            model: the arm.
            errors: declared bounds.
            windows: lengths, s.
            ramps: rise time for each length, s; None for :func:`default_ramp`.
            stride: start of the next window after that of the last, in lengths.
        """
        self._kin, self._errors = model.kinematics, errors
        self._screen = Screen(model.continuous, _GAP / model.settings.measurement.rate_hz)
        self._cutters = [WindowCutter((length,), stride) for length in windows]
        self._ramps = (
            ramps if ramps is not None else tuple(default_ramp(length, errors) for length in windows)
        )
        self._rejected_windows = 0

    @property
    def rejected(self) -> Counter[str]:
        """Samples (windows, for "acceleration") rejected so far, by reason."""
        out = Counter(self._screen.rejected)
        if self._rejected_windows:
            out["acceleration"] = self._rejected_windows
        return out

    def push(self, measurements: Measurements, box: ParameterBox) -> MomentumRows | None:
        """Rows of all windows that these samples complete; ``box`` holds the true parameters."""
        parts = []
        for run, continues in self._screen.runs(measurements):
            for cutter, ramp in zip(self._cutters, self._ramps, strict=True):
                for data, windows in cutter.cut(run, continues):
                    parts.append(momentum_rows(self._kin, box, self._errors, data, windows, ramp))
        if not parts:
            return None
        rows = MomentumRows.concatenate(parts)
        self._rejected_windows += rows.rejected_acceleration
        return rows if len(rows) else None
