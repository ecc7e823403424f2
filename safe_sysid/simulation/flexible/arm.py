"""The simulated flexible arm: torque commands in, measured positions and velocities out, period by period.

Springs between motors and links [Spong1987], LuGre friction [CanudasDeWit1995], ripple, cogging, sensors' errors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.flexible.effects import Effects
from safe_sysid.simulation.flexible.kernel import advance, mass_matrix, wave_sums

__all__ = ["FlexibleArm"]

#: Largest product of a step with the rate of a mode, and of bristles, that Runge-Kutta steps may have.
_TURN, _SLIP = 0.6, 1.5
_MOST_STEPS = 256


class FlexibleArm:
    """An arm in free motion; neither contacts nor joint limits.

    Attributes:
        period: of commands and measurements, s.
        time: s.
        q, qd: (n,) measured now, rad and rad/s.
    """

    def __init__(self, model: RobotModel, effects: Effects, q0: ArrayLike, *, substeps: int = 4) -> None:
        """At rest, motors and bristles as the weight bends them, held by friction and by the first command.

        Args:
            model: of the arm, whose nominal parameters are the true ones, but for friction and rotors, which are those
                of ``effects``; the motors' reaction on moving links is left out.
            q0: (n,) rad.
            substeps: at least; fast modes and stiff bristles raise it.

        Raises:
            ParameterError: wrong shapes, or a joint that slides.
            ModelError: modes that are too fast for 256 steps.
        """
        n, layout = model.n, ParameterLayout(model.n)
        if np.any(model.sliding):
            raise ParameterError(f"robot {model.name}: expected joints that turn, for a flexible arm")
        q0 = np.array(q0, float)
        if q0.shape != (n,) or not np.all(np.isfinite(q0)) or effects.joints.rotor.shape != (n,):
            raise ParameterError(
                f"flexible arm: q0 {q0.shape}, effects of {effects.joints.rotor.shape}: expected ({n},)"
            )
        self.model, self.effects, self.period = model, effects, 1e-3
        self.theta = np.array(model.theta_nominal, float)
        self.theta[layout.joint_terms] = 0.0
        self._arm, self._work = model.kinematics.packed, np.empty((n + 2, n))
        self.substeps = max(substeps, self._needed(q0))
        self._step = self.period / self.substeps
        self._y = np.zeros(5 * n + 2)
        self._y[:n] = q0
        self._y[2 * n : 3 * n] = self._resting_motors(q0)
        delay = round(effects.delay_s / self._step)
        self._past = np.empty((self.substeps, 2 * n))
        self._memory = np.tile(self._y[: 2 * n], (delay + self.substeps, 1))
        self.time, self._torque = 0.0, np.zeros(n)
        self.q, self.qd = np.zeros(n), np.zeros(n)
        self._measure(first=True)

    @property
    def state(self) -> FloatArray:
        """(5 n + 2,) true state: q, qd, motor position and velocity, bristles, work put in and energy dissipated."""
        return self._y.copy()

    @state.setter
    def state(self, y: FloatArray) -> None:
        """As if the arm had been in that state for as long as measurements are delayed."""
        self._y[:] = y
        self._memory[:] = self._y[: 2 * self.model.n]
        self._measure(first=True)

    def step(self, torque: ArrayLike) -> None:
        """Hold a torque (n,), N m, for a period; then measure.

        Raises:
            ModelError: the motion is not finite any more, or faster than twice the velocity limits.
        """
        n = self.model.n
        self._torque[:] = torque
        advance(
            self._arm, self.theta, self.effects.joints, self._torque, self._step, self._y, self._past, self._work
        )  # fmt: skip
        self.time += self.period
        if not np.all(np.abs(self._y[n : 2 * n]) <= 2.0 * self.model.limits.velocity):
            raise ModelError(
                f"robot {self.model.name}: simulated velocity {self._y[n : 2 * n].tolist()} at t = {self.time:.3f} s: "
                "expected at most twice the limits"
            )
        self._memory[: -self.substeps] = self._memory[self.substeps :]
        self._memory[-self.substeps :] = self._past
        self._measure()

    def energy(self) -> float:
        """Energy stored in links, rotors, springs, bristles and magnets, J."""
        n, e = self.model.n, self.effects.joints
        q, qd, motor, speed, bristle = (self._y[k * n : (k + 1) * n] for k in range(5))
        inertia, stiff = np.empty((n, n)), not np.isfinite(e.flexible[0, 0])
        mass_matrix(self._arm, self.theta, q, inertia)
        shaft, rate = (q, qd) if stiff else (motor, speed)
        total = 0.5 * float(qd @ inertia @ qd + e.rotor @ rate**2) + self._potential(q)
        waves = e.cogging
        turn = waves[:, :, 0] * shaft + waves[:, :, 2]
        total += float(np.sum(waves[:, :, 1] / waves[:, :, 0] * np.cos(turn)))
        if not stiff:
            error = np.array([wave_sums(e.gear, j, motor[j])[0] for j in range(n)])
            total += 0.5 * float(e.flexible[0] @ (motor + error - q) ** 2 + e.friction[3] @ bristle**2)
        return total

    def _potential(self, q: FloatArray) -> float:
        kin, layout = self.model.kinematics, ParameterLayout(self.model.n)
        rotation, origin = forward_kinematics(kin, q)
        total = 0.0
        for j in range(self.model.n):
            m, moment = self.theta[layout.link(j)][0], self.theta[layout.link(j)][1:4]
            total -= float(kin.gravity @ (m * origin[j] + rotation[j] @ moment))
        return total

    def _resting_motors(self, q: FloatArray) -> FloatArray:
        """Motor positions whose springs carry the weight."""
        from safe_sysid.dynamics import dynamics_of

        e, motor = self.effects.joints, q.copy()
        if not np.isfinite(e.flexible[0, 0]):
            return motor
        weight = dynamics_of(self.model.kinematics).gravity(self.theta, q)
        for _ in range(100):
            error = np.array([wave_sums(e.gear, j, motor[j])[0] for j in range(len(q))])
            motor = q + weight / e.flexible[0] - error
        return motor

    def _needed(self, q: FloatArray) -> int:
        """Steps of a period that the fastest mode and the bristles ask for."""
        e, n = self.effects.joints, self.model.n
        if not np.isfinite(e.flexible[0, 0]):
            return 1
        inertia = np.empty((n, n))
        mass_matrix(self._arm, self.theta, q, inertia)
        stiffness = np.diag(e.flexible[0])
        both = np.block([[stiffness, -stiffness], [-stiffness, stiffness]])
        masses = np.block([[inertia, np.zeros((n, n))], [np.zeros((n, n)), np.diag(e.rotor)]])
        mode = np.sqrt(np.max(np.abs(np.linalg.eigvals(np.linalg.solve(masses, both)))))
        bristles = np.isfinite(e.friction[3])
        slip = np.max((e.friction[3] * self.model.limits.velocity / e.friction[0])[bristles], initial=0.0)
        steps = int(np.ceil(self.period * max(mode / _TURN, slip / _SLIP)))
        if steps > _MOST_STEPS:
            raise ModelError(
                f"robot {self.model.name}: modes of {mode:.3g} rad/s, bristles of {slip:.3g} 1/s: {steps} steps per "
                f"period, expected at most {_MOST_STEPS}"
            )
        return steps

    def _measure(self, first: bool = False) -> None:
        """Delayed, rounded positions, and the filtered rate of these."""
        n, e = self.model.n, self.effects
        seen = self._memory[self.substeps - 1]
        if e.scale == 0.0:
            self.q[:], self.qd[:] = seen[:n], seen[n:]
            return
        q = np.round(seen[:n] / e.quantum) * e.quantum
        if first:
            self.qd[:] = seen[n:]
        else:
            self.qd += self.period / (self.period + e.filter_s) * ((q - self.q) / self.period - self.qd)
        self.q[:] = q
