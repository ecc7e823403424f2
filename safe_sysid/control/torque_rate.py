r"""Torque rate limit: a declared rate at all times, and a ramp from the measured torque when control begins.

While it takes over, the command is ``tau_0 + s (tau_law - tau_0)``, ``s`` growing from 0 to 1 with time, the same for
all joints. At rest ``tau_0``, the measured effort, is the torque of the true parameters up to its error, so ``dV/dt``
is ``s`` times that of the law plus ``(1 - s)`` times the power of that error: :mod:`safe_sysid.control.take_over`.

Later a law's torque may jump, too, for example when the payload changes. Then the command approaches it as fast as the
rate allows, by the same share of the way for all joints. So it is a convex combination of the law's commands since the
last one that was not cut, and none of them is older: the theorem's case of late commands. The caller decides how long
this may go on.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import MAX_JOINTS, RobotModel

__all__ = ["TorqueRate", "clip_torque"]

_ROUND = 1.0 + 1e-9
_ZERO = np.zeros(MAX_JOINTS)


@njit(cache=True)
def _is_within(x: FloatArray, origin: FloatArray, most: FloatArray, times: float) -> bool:
    """Whether ``|x - origin| <= times most``, joint by joint."""
    within = True
    for j in range(x.size):
        within &= not abs(x[j] - origin[j]) > times * most[j]
    return within


def clip_torque(torque: FloatArray, limit: FloatArray, model: RobotModel) -> str:
    """Clip in place; which joint was beyond its limit the most, in words, "" if none was.

    ``torque``: (n,) N m; overwritten; ``limit``: (n,) N m.
    """
    if _is_within(torque, _ZERO[: torque.size], limit, 1.0):
        return ""
    j = int(np.argmax(np.abs(torque) / limit))
    name, unit = model.joint_names[j], model.torque_units[j]
    words = f"torque of {name} was {torque[j]:.1f} {unit} and was clipped to {limit[j]:.1f} {unit}"
    np.clip(torque, -limit, limit, out=torque)
    return words


class TorqueRate:
    """The last command and what the next one may be. ``taking_over``: whether the ramp is under way."""

    def __init__(self, rate: FloatArray, longest: float) -> None:
        """Before the first command anything may be commanded.

        ``rate``: (n,) declared largest rate, N m/s; ``longest``: time that one tick counts for at most, s.
        """
        self.rate, self._longest = rate, longest * _ROUND
        self._from, self._last = np.zeros(rate.size), np.zeros(rate.size)
        self.taking_over, self._free = False, True
        self._time, self._duration = 0.0, 0.0

    def take_over(self, duration: float, torque: FloatArray | None = None) -> None:
        """Begin a ramp.

        Args:
            duration: of the ramp, s.
            torque: (n,) in force, N m; None for the last command, or, if there is none, for no ramp at all.
        """
        if torque is not None:
            self._last[:] = torque
            self._free = False
        self._from[:] = self._last
        self.taking_over, self._time, self._duration = not self._free, 0.0, duration

    @property
    def left(self) -> float:
        """How long the ramp still takes, s; 0.0 without one. A tick longer than what it may count for prolongs it."""
        return max(self._duration - self._time, 0.0) if self.taking_over else 0.0

    def release(self) -> None:
        """Nothing is commanded any more, and what is in force is not known."""
        self.taking_over, self._free = False, True

    def next(self, wanted: FloatArray, elapsed: float) -> int:
        """Turn the law's torque into the command, in place; returns the joint that the rate cuts, or -1.

        ``wanted``: (n,) of the law, N m; overwritten; ``elapsed``: since the last command, s.
        """
        cut = -1
        if not self._free:
            elapsed = min(elapsed, self._longest)
            if self.taking_over:
                self._time += elapsed
                share = self._time / self._duration
                if share >= 1.0:
                    self.taking_over = False
                else:
                    wanted *= share
                    wanted += (1.0 - share) * self._from
            if not _is_within(wanted, self._last, self.rate, elapsed * _ROUND):
                allowed, step = self.rate * elapsed * _ROUND, np.abs(wanted - self._last)
                cut = int(np.argmax(step / allowed))
                share = allowed[cut] / step[cut] * (1.0 - 1e-12)
                wanted *= share
                wanted += (1.0 - share) * self._last
        self._last[:] = wanted
        self._free = False
        return cut
