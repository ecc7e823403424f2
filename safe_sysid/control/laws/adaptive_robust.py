r"""Adaptive robust feedback linearisation in the manner of [Abdelwahab2024].

A reconstruction: docs/understand/laws.md says what is assumed. ``tau = H a + C qd + g + friction`` of the nominal
parameters, ``a = qdd_d + K_v de + K_p e + w``. What the nominal model gets wrong appears as an acceleration eta:
``dde + K_v de + K_p e = eta - w``. No bound of eta is known: w pushes against ``z = de + p e`` with an estimate rho
of the bound, which grows while z is outside of a boundary layer:

``w = rho z / max(|z|, layer rho)``, ``d rho / dt = rate |z|`` where ``|z| > layer rho``, else 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.control.laws.law import ModelInUse, Proves, StepTime
from safe_sysid.control.settings import AdaptiveRobustSettings
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.robot.model import PackedKinematics, RobotModel

__all__ = ["AdaptiveRobustLaw"]


@njit(cache=True)
def _step(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    reference: FloatArray,
    gains: FloatArray,
    transition: float,
    nominal: FloatArray,
    rho: float,
    dt: float,
    work: FloatArray,
    torque: FloatArray,
) -> float:
    """One step, returns the new rho; ``gains``: K_p, K_v, p, rate, layer; ``work`` (2, n): z and a."""
    n = q.shape[0]
    stiffness, damping, slope, rate, layer = gains[0], gains[1], gains[2], gains[3], gains[4]
    z, a = work[0], work[1]
    square = 0.0
    for j in range(n):
        e, de = reference[0, j] - q[j], reference[1, j] - qd[j]
        z[j] = de + slope * e
        square += z[j] * z[j]
        a[j] = reference[2, j] + damping * de + stiffness * e
    norm = np.sqrt(square)
    scale = rho / max(norm, layer * rho)
    for j in range(n):
        a[j] += scale * z[j]
    newton_euler(arm, q, qd, qd, a, qd, transition, nominal, torque)
    return rho + dt * rate * norm if norm > layer * rho else rho


class AdaptiveRobustLaw:
    """The law with its estimate of the uncertainty's bound; it estimates no inertial parameters.

    Attributes:
        rho: estimate of the bound of eta, rad/s^2.
        estimate: (14 n,) the nominal parameters that the last step inverted.
        torque: (n,) what the last step returned, N m.
    """

    name = "adaptive_robust"
    proves = Proves.NOTHING

    def __init__(self, model: RobotModel, settings: AdaptiveRobustSettings | None = None) -> None:
        """Make the law for one arm. ``settings``: None for the configuration's."""
        s = settings or model.settings.controller.laws.adaptive_robust
        self._arm, self._transition = model.kinematics.packed, model.friction_transition_velocity
        damping = 2.0 * s.damping_ratio * s.bandwidth
        # z = de + p e is B^T P (e, de) for P = [[K_p + p K_v, p], [p, 1]]: A^T P + P A = -diag(2 p K_p, 2 (K_v - p)).
        self._gains = np.array([s.bandwidth**2, damping, 0.5 * damping, s.rate, s.layer])
        self._first = s.initial_bound
        self._elapsed = StepTime(model.settings.measurement.max_age_s)
        self._work, self.torque = np.empty((2, model.n)), np.empty(model.n)
        self.residual_bound = np.zeros(model.n)
        self.estimate = np.array(model.theta_nominal)
        self.rho = s.initial_bound

    def reset(self, t: float, q: FloatArray, qd: FloatArray) -> None:
        """Forget what was learned of the bound. ``t``: s; ``q``: (n,) rad; ``qd``: (n,) rad/s."""
        self.rho = self._first
        self._elapsed.reset()

    def step(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, model: ModelInUse) -> FloatArray:
        """Commanded torque (n,) in N m; the array is reused.

        Args:
            t: stamp of the measurement, s; rho grows over the time since the last (no more than max_age_s).
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 3, n) desired position, velocity, acceleration.
            model: its ``nominal`` is what is inverted.
        """
        dt = self._elapsed.since_last(t)
        self.estimate[:] = model.nominal
        self.rho = _step(
            self._arm,
            q,
            qd,
            reference,
            self._gains,
            self._transition,
            model.nominal,
            self.rho,
            dt,
            self._work,
            self.torque,
        )
        return self.torque
