"""Filter for an arm at rest: takes in the first seconds, and later measurements only if they change.

Leaving measurements out is always sound: equations of those that are left hold all the same, and a gap in the stamps
ends a window as a lost message does. What an arm at rest says again and again costs time, memory and logs, and teaches
nothing: the same equations, with other noise.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, torque_interval
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.model import RobotModel

__all__ = ["RestFilter"]

#: On top of the declared errors: what is slower, rad/s, and stays nearer, rad (m/s and m of sliding joints), rests.
_SPEED, _DRIFT = 0.01, 1e-3


class RestFilter:
    """Follows the measurements piece by piece. Efforts count: a payload that is lost while the arm rests is news."""

    def __init__(self, model: RobotModel, errors: MeasurementErrors, rest_s: float) -> None:
        """No rest yet. ``rest_s``: so much of a rest is taken in, s."""
        self._model, self._errors, self._rest_s = model, errors, rest_s
        self._speed = errors.velocity + _SPEED
        self._drift = 2.0 * errors.position + _DRIFT
        self.forget()

    def forget(self) -> None:
        """Whatever comes is new."""
        self._pose: FloatArray | None = None
        self._begin = 0.0
        self._effort: FloatArray | None = None  # (2, n), smallest and largest of this rest

    def is_new(self, piece: Measurements) -> bool:
        """Whether a piece is to be taken in. ``piece``: in order of arrival, some tenths of a second."""
        if not len(piece):
            return True
        pose = self._pose
        apart = None if pose is None else np.abs(self._model.shortest_way(piece.q - pose)).max(axis=0)
        known = apart is not None and bool(np.all(apart <= self._drift))
        slow = bool(np.all(np.abs(piece.qd) <= self._speed)) and np.isfinite(piece.effort).all()
        if not (known and slow):
            self._pose = piece.q[-1].copy() if slow and np.isfinite(piece.q[-1]).all() else None
            self._begin, self._effort = float(piece.stamps[-1]), None
            return True
        low, high = piece.effort.min(axis=0), piece.effort.max(axis=0)
        effort = self._effort
        if effort is None or piece.stamps[-1] - self._begin <= self._rest_s:
            before = (low, high) if effort is None else effort
            self._effort = np.stack([np.minimum(before[0], low), np.maximum(before[1], high)])
            return True
        # Noise seldom passes what seconds of it have shown; half the declared error more is another load.
        spare = 0.5 * torque_interval(effort, self._errors)[1].max(axis=0)
        if np.all(low >= effort[0] - spare) and np.all(high <= effort[1] + spare):
            return False
        self._begin = float(piece.stamps[-1])
        self._effort = np.stack([low, high])
        return True
