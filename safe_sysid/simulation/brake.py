"""Brakes of the simulated arm: what the drives do when commands stop.

A quick stop as industrial drives have it (CiA 402): a set-point that starts at the present position and velocity and
brakes at a fixed deceleration, followed by the position loop, then held. The drives know neither payload nor
friction: their feed-forward is the last torque that they were commanded, which holds most of gravity already. The
torque stays inside the drives' limit and changes at a limited rate, so that a bad last command cannot become a jolt.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray

__all__ = ["QuickStop"]

_BANDWIDTH = 15.0  # of the position loop, rad/s; critically damped
_TORQUE_RATE = 1000.0  # N m/s


class QuickStop:
    """Decelerate every joint along a ramp, then hold position."""

    def __init__(self, inertia: FloatArray, torque_limit: FloatArray, period: float, deceleration: float = 1.5) -> None:
        """Tune the position loop, once, as a manufacturer does.

        Args:
            inertia: (n,) nominal inertia seen by each joint, kg m^2.
            torque_limit: (n,) N m, never exceeded.
            period: of the drive's loop, s.
            deceleration: of the ramp, rad/s^2.
        """
        self._limit, self._period, self._deceleration = torque_limit, period, deceleration
        self._stiffness = _BANDWIDTH**2 * inertia
        self._damping = 2.0 * _BANDWIDTH * inertia
        self._step = _TORQUE_RATE * period
        self._lag = 2.0 * torque_limit / self._stiffness
        self.active = False
        n = inertia.size
        self._q_ref, self._qd_ref, self._feed = np.zeros(n), np.zeros(n), np.zeros(n)
        self._torque = np.zeros(n)

    def trip(self, q: FloatArray, qd: FloatArray, last_torque: FloatArray) -> None:
        """Start a stop from here; nothing happens if one is under way."""
        if self.active:
            return
        self.active = True
        self._q_ref[:], self._qd_ref[:] = q, qd
        np.clip(last_torque, -self._limit, self._limit, out=self._feed)
        self._torque[:] = self._feed

    def release(self) -> None:
        """Commands are back."""
        self.active = False

    def torque(self, q: FloatArray, qd: FloatArray) -> FloatArray:
        """Torque (n,) of this period, from the drives' own encoders."""
        brake = np.minimum(np.abs(self._qd_ref), self._deceleration * self._period)
        slower = self._qd_ref - np.sign(self._qd_ref) * brake
        self._q_ref += 0.5 * self._period * (self._qd_ref + slower)
        np.clip(self._q_ref, q - self._lag, q + self._lag, out=self._q_ref)  # where torque saturates, stop later
        self._qd_ref = slower
        wanted = self._feed + self._stiffness * (self._q_ref - q) + self._damping * (self._qd_ref - qd)
        np.clip(wanted, self._torque - self._step, self._torque + self._step, out=wanted)
        np.clip(wanted, -self._limit, self._limit, out=self._torque)
        return self._torque.copy()
