r"""Passivity-based adaptive law [SlotineLi1987] with projection onto the box of parameters.

``tau = W_s theta_hat + K_d r``, ``d theta_hat / dt = Proj(Gamma W_s^T r)``, ``Gamma = rate diag(half widths^2)`` of the
prior. With ``V = r^T H r / 2 + (theta_hat - theta)^T Gamma^-1 (theta_hat - theta) / 2``, ``dV/dt <= -r^T K_d r`` while
the box holds theta, because clipping to a box is the projection in the metric of a diagonal Gamma
(docs/understand/laws.md).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.control.laws.law import ModelInUse, Proves, StepTime, joint_inertia
from safe_sysid.control.settings import PassivityAdaptiveSettings
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.recursion import slotine_li_kernel
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import PackedKinematics, RobotModel

__all__ = ["PassivityAdaptiveLaw"]


@njit(cache=True)
def _step(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    reference: FloatArray,
    gains: tuple[FloatArray, FloatArray, FloatArray, float],
    box: tuple[FloatArray, FloatArray],
    dt: float,
    estimate: FloatArray,
    work: tuple[FloatArray, FloatArray],
    torque: FloatArray,
) -> None:
    """One step: torque, then the new estimate.

    Args:
        q: (n,) rad.
        qd: (n,) rad/s.
        reference: (>= 3, n).
        gains: K_r and K_d (n,), rates of the parameters (14 n,), transition velocity.
        box: mid and half widths (14 n,).
        dt: s.
        estimate: (14 n,) that is carried on.
        work: space: (5, 1, n), (1, n, 14 n).
        torque: (n,) output.
    """
    K_r, K_d, rate, transition = gains
    mid, rad = box
    motion, regressor = work
    n = q.shape[0]
    r = motion[4, 0]
    for j in range(n):
        e, de = reference[0, j] - q[j], reference[1, j] - qd[j]
        r[j] = de + K_r[j] * e
        motion[0, 0, j], motion[1, 0, j] = q[j], qd[j]
        motion[2, 0, j] = reference[1, j] + K_r[j] * e
        motion[3, 0, j] = reference[2, j] + K_r[j] * de
    slotine_li_kernel(arm, motion[0], motion[1], motion[2], motion[3], transition, regressor)
    for j in range(n):
        torque[j] = K_d[j] * r[j]
    for p in range(mid.size):
        slope = 0.0
        for j in range(n):
            torque[j] += regressor[0, j, p] * estimate[p]
            slope += regressor[0, j, p] * r[j]
        moved = estimate[p] + dt * rate[p] * slope
        estimate[p] = max(mid[p] - rad[p], min(mid[p] + rad[p], moved))


class PassivityAdaptiveLaw:
    """The law with its estimate.

    Attributes:
        K_r, K_d: (n,) 1/s and N m s/rad.
        estimate: (14 n,) parameters, in the box; the nominal at the first step after a reset.
        torque: (n,) what the last step returned, N m.
    """

    name = "passivity_adaptive"
    proves = Proves.NOTHING

    def __init__(self, model: RobotModel, settings: PassivityAdaptiveSettings | None = None) -> None:
        """Make the law for one arm. ``settings``: None for the configuration's."""
        s = settings or model.settings.controller.laws.passivity_adaptive
        n = model.n
        self._arm = model.kinematics.packed
        self.K_r, self.K_d = per_joint(s.K_r, n), s.decay * joint_inertia(model)
        self.adaptation = s.rate * np.square(model.arm_prior.rad)
        self._elapsed = StepTime(model.settings.measurement.max_age_s)
        self._gains = self.K_r, self.K_d, self.adaptation, model.friction_transition_velocity
        self._work = np.empty((5, 1, n)), np.empty((1, n, model.layout.size))
        self.estimate, self.torque = np.array(model.arm_prior.mid), np.empty(n)
        self.residual_bound = np.zeros(n)

    def reset(self, t: float, q: FloatArray, qd: FloatArray) -> None:
        """Forget the estimate: the next step begins with the nominal parameters.

        Args:
            t: s.
            q: (n,) rad.
            qd: (n,) rad/s.
        """
        self._elapsed.reset()

    def step(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, model: ModelInUse) -> FloatArray:
        """Commanded torque (n,) in N m; the array is reused.

        Args:
            t: stamp of the measurement, s; the estimate moves by the time since the last one (no more than max_age_s).
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 3, n) desired position, velocity, acceleration.
            model: first estimate (``nominal``) and the box that estimates are projected onto.
        """
        if self._elapsed.is_first:
            np.clip(model.nominal, model.mid - model.rad, model.mid + model.rad, out=self.estimate)
        dt = self._elapsed.since_last(t)
        _step(
            self._arm, q, qd, reference, self._gains, (model.mid, model.rad), dt, self.estimate, self._work, self.torque
        )
        return self.torque
