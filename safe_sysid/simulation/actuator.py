r"""Actuators: saturation and the declared actuator error between commanded torque and joints.

For commands within the hard limits :math:`|\tau - \tau_{cmd}| \le a_u + b_u |\tau_{cmd}|` holds exactly.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.simulation.noise import perturb

__all__ = ["ACTUATOR_MODES", "Actuator"]


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
