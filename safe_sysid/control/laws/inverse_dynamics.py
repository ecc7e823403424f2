r"""Laws that invert the nominal dynamics: computed torque, and joint impedance [Hybrid, appendix B].

Both are ``tau = H a + C qd + g + friction - external`` of the nominal parameters; they differ in the acceleration
``a``: computed torque asks for ``qdd_d + K_v de + K_p e``, impedance for ``qdd_d + (external + B de + K e) / M``.
Any backend of :mod:`safe_sysid.dynamics` may compute it: these laws prove nothing of the model.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.control.laws.law import ModelInUse, Proves
from safe_sysid.control.settings import ComputedTorqueSettings, ImpedanceSettings
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import PackedKinematics, RobotModel

__all__ = ["ComputedTorqueLaw", "ImpedanceLaw"]


@njit(cache=True)
def _step(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    reference: FloatArray,
    gains: FloatArray,
    external: FloatArray,
    transition: float,
    nominal: FloatArray,
    acceleration: FloatArray,
    torque: FloatArray,
) -> None:
    """One step; ``gains`` (3, n): stiffness and damping per unit of mass, and one over that mass."""
    n = q.shape[0]
    for j in range(n):
        acceleration[j] = (
            reference[2, j]
            + gains[0, j] * (reference[0, j] - q[j])
            + gains[1, j] * (reference[1, j] - qd[j])
            + gains[2, j] * external[j]
        )
    newton_euler(arm, q, qd, qd, acceleration, qd, transition, nominal, torque)
    for j in range(n):
        torque[j] -= external[j]


class _InverseDynamics:
    """What both laws do.

    Attributes:
        external: (n,) torque that the world exerts, N m, set by who measures it; zero in free motion.
        torque: (n,) what the last step returned, N m.
    """

    name = ""
    proves = Proves.NOTHING

    def __init__(
        self, model: RobotModel, stiffness: FloatArray, damping: FloatArray, mass: FloatArray, backend: str
    ) -> None:
        self._backend = None if backend == "recursion" else dynamics_of(model.kinematics, backend)
        self._arm, self._transition = model.kinematics.packed, model.friction_transition_velocity
        self._gains = np.stack([stiffness / mass, damping / mass, 1.0 / mass])
        self._acceleration = np.empty(model.n)
        self.external, self.torque = np.zeros(model.n), np.empty(model.n)
        self.residual_bound = np.zeros(model.n)

    def reset(self, t: float, q: FloatArray, qd: FloatArray) -> None:
        """Forget the external torque. ``t``: s; ``q``: (n,) rad; ``qd``: (n,) rad/s."""
        self.external[:] = 0.0

    def step(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, model: ModelInUse) -> FloatArray:
        """Commanded torque (n,) in N m; the array is reused.

        Args:
            t: s; not used.
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 3, n) desired position, velocity, acceleration.
            model: its ``nominal`` is what is inverted.
        """
        if self._backend is not None:
            stiffness, damping, mobility = self._gains
            acceleration = reference[2] + stiffness * (reference[0] - q) + damping * (reference[1] - qd)
            acceleration += mobility * self.external
            torque = self._backend.inverse_dynamics(model.nominal, q, qd, acceleration, self._transition)
            self.torque[:] = torque - self.external
            return self.torque
        _step(
            self._arm,
            q,
            qd,
            reference,
            self._gains,
            self.external,
            self._transition,
            model.nominal,
            self._acceleration,
            self.torque,
        )
        return self.torque


class ComputedTorqueLaw(_InverseDynamics):
    """Exact model: ``dde + 2 zeta omega de + omega^2 e = 0`` in every joint."""

    name = "computed_torque"

    def __init__(self, model: RobotModel, settings: ComputedTorqueSettings | None = None) -> None:
        """Make the law for one arm. ``settings``: None for the configuration's.

        Raises:
            ModelError: generated dynamics that differ from the recursion, or an arm with a branch.
        """
        s = settings or model.settings.controller.laws.computed_torque
        one = np.ones(model.n)
        damping = 2.0 * s.damping_ratio * s.bandwidth * one
        super().__init__(model, s.bandwidth**2 * one, damping, one, s.dynamics)


class ImpedanceLaw(_InverseDynamics):
    """Exact model: ``M dde + B de + K e = -external`` in every joint."""

    name = "impedance"

    def __init__(self, model: RobotModel, settings: ImpedanceSettings | None = None) -> None:
        """Make the law for one arm. ``settings``: None for the configuration's.

        Raises:
            ModelError: as :class:`ComputedTorqueLaw`.
        """
        s = settings or model.settings.controller.laws.impedance
        mass, stiffness = per_joint(s.inertia, model.n), per_joint(s.stiffness, model.n)
        damping = 2.0 * s.damping_ratio * np.sqrt(stiffness * mass)
        super().__init__(model, stiffness, damping, mass, s.dynamics)
