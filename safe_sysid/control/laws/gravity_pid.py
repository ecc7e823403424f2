r"""PID with gravity compensation [PSO, table II]: ``tau = g(q) + K_p e + K_d de + K_i int e``.

Gravity (and the joints' offset) comes from the nominal parameters; friction and inertia are left to the PID, as in the
published experiments. The integral part is limited, and stands still where it would grow beyond its limit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.control.laws.law import ModelInUse, Proves, StepTime, joint_inertia
from safe_sysid.control.settings import GravityPidSettings
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import PackedKinematics, RobotModel

__all__ = ["GravityPidLaw"]


@njit(cache=True)
def _step(
    arm: PackedKinematics,
    still: FloatArray,
    q: FloatArray,
    qd: FloatArray,
    reference: FloatArray,
    gains: FloatArray,
    dt: float,
    nominal: FloatArray,
    integral: FloatArray,
    torque: FloatArray,
) -> None:
    """One step; ``gains`` (4, n): K_p, K_d, K_i and the limit of the integral part; ``integral`` (n,) in N m."""
    # At rest, and with a transition velocity, the sign of friction is zero.
    newton_euler(arm, q, still, still, still, still, 1.0, nominal, torque)
    for j in range(q.shape[0]):
        e = reference[0, j] - q[j]
        moved = integral[j] + dt * gains[2, j] * e
        integral[j] = max(-gains[3, j], min(gains[3, j], moved))
        torque[j] += gains[0, j] * e + gains[1, j] * (reference[1, j] - qd[j]) + integral[j]


class GravityPidLaw:
    """The law with its integral.

    Attributes:
        stiffness, damping, integral_gain: (n,) N m/rad, N m s/rad, N m/(rad s).
        integral: (n,) integral part, N m.
        torque: (n,) what the last step returned, N m.
    """

    name = "gravity_pid"
    proves = Proves.NOTHING

    def __init__(self, model: RobotModel, settings: GravityPidSettings | None = None) -> None:
        """Make the law for one arm. ``settings``: None for the configuration's."""
        s = settings or model.settings.controller.laws.gravity_pid
        self._arm, self._still = model.kinematics.packed, np.zeros(model.n)
        inertia, n = joint_inertia(model), model.n
        # Given gains replace those of the bandwidth, each by itself.
        self.stiffness = inertia * s.bandwidth**2 if s.K_p is None else per_joint(s.K_p, n)
        damping = 2.0 * s.damping_ratio * s.bandwidth * inertia
        self.damping = damping if s.K_d is None else per_joint(s.K_d, n)
        self.integral_gain = s.integral * self.stiffness if s.K_i is None else per_joint(s.K_i, n)
        limit = s.windup * np.asarray(model.limits.torque)
        self._gains = np.stack([self.stiffness, self.damping, self.integral_gain, limit])
        self._elapsed = StepTime(model.settings.measurement.max_age_s)
        self.integral, self.torque = np.zeros(model.n), np.empty(model.n)
        self.residual_bound = np.zeros(model.n)

    def reset(self, t: float, q: FloatArray, qd: FloatArray) -> None:
        """Empty the integral. ``t``: s; ``q``: (n,) rad; ``qd``: (n,) rad/s."""
        self.integral[:] = 0.0
        self._elapsed.reset()

    def step(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, model: ModelInUse) -> FloatArray:
        """Commanded torque (n,) in N m; the array is reused.

        Args:
            t: stamp of the measurement, s; the integral grows over the time since the last (no more than max_age_s).
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 2, n) desired position and velocity.
            model: its ``nominal`` gives gravity.
        """
        dt = self._elapsed.since_last(t)
        _step(self._arm, self._still, q, qd, reference, self._gains, dt, model.nominal, self.integral, self.torque)
        return self.torque
