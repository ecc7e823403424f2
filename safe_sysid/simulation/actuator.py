r"""Actuators: saturation, the declared error between commanded torque and joints, and brakes when commands stop.

For commands within the hard limits :math:`|\tau - \tau_{cmd}| \le a_u + b_u |\tau_{cmd}|` holds exactly.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.simulation.noise import perturb

__all__ = ["ACTUATOR_MODES", "Actuator", "QuickStop"]


ACTUATOR_MODES = ("none", "constant", "slow", "random", "adversarial")


class Actuator:
    """Torque that the joints get for a command; same generator, same errors."""

    def __init__(
        self, mode: str, absolute: FloatArray, relative: FloatArray, hard_limit: FloatArray, rng: np.random.Generator
    ) -> None:
        """Draw what stays the same over the run.

        Args:
            mode: one of :data:`ACTUATOR_MODES`; "adversarial" always pushes along the motion (or always against it).
            absolute: (n,) a_u, N m.
            relative: (n,) b_u.
            hard_limit: (n,) torque at which the drive saturates, N m.
        """
        if mode not in ACTUATOR_MODES:
            raise ParameterError(f"actuator error mode = {mode!r}: expected one of {', '.join(ACTUATOR_MODES)}")
        n = hard_limit.size
        self.mode = mode
        self._absolute, self._relative, self._limit, self._rng = absolute, relative, hard_limit, rng
        self._signs = rng.choice(np.array([-1.0, 1.0]), n)
        self._flip = float(rng.choice(np.array([-1.0, 1.0])))
        self._rate = 2.0 * np.pi / rng.uniform(0.5, 3.0, n)  # rad/s: errors that drift over a trajectory
        self._phase = rng.uniform(0.0, 2.0 * np.pi, n)
        self._constant = self._signs * rng.uniform(0.5, 1.0, n)
        self._lowest = -hard_limit
        self._out = np.empty(n)

    def apply(self, time: float, command: FloatArray, qd: FloatArray) -> FloatArray:
        """Torque (n,) at the joints; a view that the next call overwrites.

        Args:
            time: s.
            command: (n,) commanded torque, N m.
            qd: (n,) true velocity, for the adversary.
        """
        self._saturate(command)
        if self.mode == "none":
            return self._out
        perturb(self._out, self._absolute, self._relative, self._unit(time, qd), self._out)
        return self._saturate(self._out)

    def _saturate(self, torque: FloatArray) -> FloatArray:
        np.minimum(torque, self._limit, out=self._out)  # np.clip takes three times as long
        return np.maximum(self._out, self._lowest, out=self._out)

    def _unit(self, time: float, qd: FloatArray) -> FloatArray:
        if self.mode == "constant":
            return self._constant
        if self.mode == "slow":
            return np.sin(self._rate * time + self._phase)
        if self.mode == "random":
            return self._rng.uniform(-1.0, 1.0, qd.size)
        unit = self._flip * np.sign(qd)
        return np.where(unit == 0.0, self._signs, unit)


_BANDWIDTH = 15.0  # of the position loop, rad/s; critically damped
_TORQUE_RATE = 1000.0  # N m/s
_DECELERATION = 1.5  # of the ramp, rad/s^2


class QuickStop:
    """A quick stop as industrial drives have it (CiA 402): decelerate every joint along a ramp, then hold position.

    A set-point starts at the present position and velocity and brakes at a fixed deceleration, followed by the position
    loop. The drives know neither payload nor friction: their feed-forward is the last torque that they were commanded,
    which holds most of gravity already. The torque stays inside the drives' limit and changes at a limited rate, so
    that a bad last command cannot become a jolt.
    """

    def __init__(self, inertia: FloatArray, torque_limit: FloatArray, period: float) -> None:
        """Tune the position loop, once, as a manufacturer does.

        Args:
            inertia: (n,) nominal inertia seen by each joint, kg m^2.
            torque_limit: (n,) N m, never exceeded.
            period: of the drive's loop, s.
        """
        self._limit, self._period = torque_limit, period
        self._stiffness = _BANDWIDTH**2 * inertia
        self._damping = 2.0 * _BANDWIDTH * inertia
        self._step = _TORQUE_RATE * period
        self._lag = 2.0 * torque_limit / self._stiffness
        self.active = False
        n = inertia.size
        self._q_ref, self._qd_ref, self._feed = np.zeros(n), np.zeros(n), np.zeros(n)
        self._torque = np.zeros(n)

    def trip(self, q: FloatArray, qd: FloatArray, last_torque: FloatArray) -> None:
        """Start a stop from a state ``q``, ``qd`` (n,) rad, rad/s; nothing happens if one is under way.

        ``last_torque``: (n,) commanded last, N m.
        """
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
        """Torque (n,) of this period, N m, from the drives' own encoders: ``q`` (n,) rad, ``qd`` (n,) rad/s."""
        brake = np.minimum(np.abs(self._qd_ref), _DECELERATION * self._period)
        slower = self._qd_ref - np.sign(self._qd_ref) * brake
        self._q_ref += 0.5 * self._period * (self._qd_ref + slower)
        np.clip(self._q_ref, q - self._lag, q + self._lag, out=self._q_ref)  # where torque saturates, stop later
        self._qd_ref = slower
        wanted = self._feed + self._stiffness * (self._q_ref - q) + self._damping * (self._qd_ref - qd)
        np.clip(wanted, self._torque - self._step, self._torque + self._step, out=wanted)
        np.clip(wanted, -self._limit, self._limit, out=self._torque)
        return self._torque.copy()
