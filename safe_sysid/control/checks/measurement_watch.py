"""Measurement watch: checks that each measurement is finite, newer than the last, and physically possible.

A refused measurement counts as missing. Positions of continuous joints are put on the branch nearest to the last one.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel

__all__ = ["MeasurementStatus", "MeasurementWatch"]

_ROUND = 1e-9  # rad and rad/s, or m and m/s: what unwrapping and messages may round


@njit(cache=True)
def _is_plain(
    q: FloatArray,
    qd: FloatArray,
    before: FloatArray,
    rate: FloatArray,
    most: FloatArray,
    speed: FloatArray,
    time: float,
) -> bool:
    """Whether there is nothing to say of it: what is not a number, or on another branch, fails a comparison."""
    for j in range(q.size):
        moved = abs(q[j] - before[j])
        if not (moved <= rate[j] * time + most[j] and moved <= np.pi and abs(qd[j]) <= speed[j]):
            return False
    return True


class MeasurementStatus(Enum):
    """What to do with a measurement."""

    GOOD = "good"
    OLD = "measurement not newer than the last"  # overtaken on its way: as if it had not come
    BAD = "bad"
    CLOCK_BACK = "clock set back"


class MeasurementWatch:
    """Remembers the last good measurement.

    Attributes:
        stamp: of the last good one, s; -inf before the first.
        elapsed: from the last but one to the last, s.
        q: (n,) of the last good one, unwrapped, rad or m.
        reason: why the last one was not good.
    """

    def __init__(self, model: RobotModel) -> None:
        """Nothing is known yet; what is declared comes from the model's settings."""
        measurement, n = model.settings.measurement, model.n
        self._names, self._continuous = model.joint_names, model.continuous
        self._units = model.position_units
        self._max_age = measurement.max_age_s
        self._position = 2.0 * per_joint(measurement.position_error, n) + _ROUND
        self._rate = model.limits.velocity
        self._velocity = model.limits.velocity + per_joint(measurement.velocity_error, n) + _ROUND
        self._back = np.inf
        self.stamp, self.elapsed, self.reason = -np.inf, 0.0, ""
        self.q = np.zeros(n)

    def begin(self, stamp: float, q: FloatArray) -> None:
        """Everything before is forgotten. ``stamp``: of the first measurement, s; ``q``: (n,) rad."""
        self.stamp, self.elapsed, self.q, self._back = stamp, 0.0, np.array(q), np.inf

    def judge(self, stamp: float, q: FloatArray, qd: FloatArray) -> MeasurementStatus:
        """Judge a measurement; if it is good it becomes the last one.

        Args:
            stamp: s.
            q: (n,) measured, on any branch, rad.
            qd: (n,) measured, rad/s.
        """
        if not stamp > self.stamp:
            return self._judge_old(stamp)
        self._back = np.inf
        elapsed = stamp - self.stamp
        if _is_plain(q, qd, self.q, self._rate, self._position, self._velocity, elapsed):
            self.stamp, self.elapsed, self.q = stamp, elapsed, q
            return MeasurementStatus.GOOD
        if not (np.isfinite(q).all() and np.isfinite(qd).all()):
            self.reason = "measurement not finite"
            return MeasurementStatus.BAD
        moved = q - self.q
        if np.abs(moved).max() > np.pi:
            q = q - 2.0 * np.pi * np.where(self._continuous, np.round(moved / (2.0 * np.pi)), 0.0)
            moved = q - self.q
        if (np.abs(moved) > self._rate * elapsed + self._position).any():
            j = int(np.argmax(np.abs(moved) - self._rate * elapsed - self._position))
            self.reason = (
                f"measured position of {self._names[j]} jumped by {moved[j]:.3g} {self._units[j]} in {elapsed:.4f} s: "
                f"its velocity limit is {self._rate[j]:g} {self._units[j]}/s"
            )
            return MeasurementStatus.BAD
        if (np.abs(qd) > self._velocity).any():
            j = int(np.argmax(np.abs(qd) - self._velocity))
            self.reason = (
                f"measured velocity of {self._names[j]} is {qd[j]:.3g} {self._units[j]}/s: "
                f"its limit is {self._rate[j]:g}"
            )
            return MeasurementStatus.BAD
        self.stamp, self.elapsed, self.q = stamp, elapsed, q
        return MeasurementStatus.GOOD

    def _judge_old(self, stamp: float) -> MeasurementStatus:
        """One old stamp is a straggler; a second, newer one of the same kind says that time itself went back."""
        before, self._back = self._back, stamp if self.stamp - stamp > self._max_age else np.inf
        if np.isfinite(self._back) and before < stamp:
            self.reason = f"time of measurements went back by {self.stamp - stamp:.3f} s"
            return MeasurementStatus.CLOCK_BACK
        self.reason = MeasurementStatus.OLD.value
        return MeasurementStatus.OLD

    @property
    def too_long(self) -> float:
        """Age of a measurement beyond which it is stale, s."""
        return self._max_age
