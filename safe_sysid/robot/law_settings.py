"""Gains of the control laws that robust tracking is compared with; where a default comes from is in docs/laws.md."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from safe_sysid.robot.fields import NonNegative, NonNegativePerJoint, Positive, PositivePerJoint, StrictModel

__all__ = [
    "AdaptiveRobustSettings",
    "ArmourSettings",
    "ComputedTorqueSettings",
    "GravityPidSettings",
    "ImpedanceSettings",
    "LawsSettings",
    "PassivityAdaptiveSettings",
]


class ArmourSettings(StrictModel):
    """ARMOUR's robust law [ARMOUR]; the defaults are its authors' for the arm that is the default robot here.

    Attributes:
        K_r: slope of ``r = de + K_r e``, 1/s.
        V_max: bound of ``r^T H r / 2`` that the law keeps (continuous time), J.
        alpha: slope of the barrier condition ``dV/dt <= alpha (V_max - V)``, 1/s.
        norm: bound ``r^T w`` by the norms of both, as the released code does; else by ``sum |r_j| w_j``, which is less.
        dead_zone: below this norm of r the released code commands no robust input; the proof has none, rad/s.
    """

    K_r: PositivePerJoint = 5.0
    V_max: Positive = 0.02
    alpha: Positive = 20.0
    norm: bool = True
    dead_zone: NonNegative = 0.0


class PassivityAdaptiveSettings(StrictModel):
    """Passivity-based adaptive law [SlotineLi1987].

    Attributes:
        K_r: slope of ``r = de + K_r e``, 1/s.
        decay: ``K_d = decay J``, J each joint's inertia, 1/s.
        rate: ``Gamma = rate diag(prior half widths^2)``, 1/J.
    """

    K_r: PositivePerJoint = 40.0
    decay: Positive = 100.0
    rate: Positive = 3000.0


class AdaptiveRobustSettings(StrictModel):
    """Adaptive robust feedback linearisation [Abdelwahab2024], reconstructed (docs/laws.md).

    Attributes:
        bandwidth: natural frequency of the nominal error dynamics, rad/s.
        damping_ratio: of the same.
        rate: growth of the uncertainty's bound, 1/s^2 per rad/s: ``d rho/dt = rate |z|``.
        initial_bound: of the acceleration that the nominal model gets wrong, rad/s^2.
        layer: time constant of the boundary layer ``|z| <= layer rho``, s.
    """

    bandwidth: Positive = 60.0
    damping_ratio: Positive = 1.0
    rate: Positive = 300.0
    initial_bound: Positive = 0.1
    layer: Positive = 0.05


class GravityPidSettings(StrictModel):
    """PID with gravity compensation, gains scaled by each joint's inertia, or given.

    Attributes:
        bandwidth: ``K_p = J bandwidth^2``, rad/s.
        damping_ratio: ``K_d = 2 J damping_ratio bandwidth``.
        integral: ``K_i = integral K_p``, 1/s.
        windup: largest integral part, as a fraction of the torque limit.
        K_p, K_d, K_i: None, or the gains themselves, N m/rad, N m s/rad, N m/(rad s).
    """

    bandwidth: Positive = 70.0
    damping_ratio: Positive = 1.0
    integral: NonNegative = 50.0
    windup: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    K_p: PositivePerJoint | None = None
    K_d: NonNegativePerJoint | None = None
    K_i: NonNegativePerJoint | None = None


class ComputedTorqueSettings(StrictModel):
    """Inverse dynamics of the nominal model with PD on its acceleration.

    Attributes:
        bandwidth: natural frequency of the error, rad/s.
        damping_ratio: of the error.
    """

    bandwidth: Positive = 70.0
    damping_ratio: Positive = 1.0


class ImpedanceSettings(StrictModel):
    """Joint impedance [Hybrid, appendix B]: the arm answers external torque as masses, springs and dampers.

    Attributes:
        inertia: desired inertia of each joint, kg m^2.
        stiffness: desired, N m/rad.
        damping_ratio: desired damping is ``2 damping_ratio sqrt(stiffness inertia)``.
    """

    inertia: PositivePerJoint = 1.0
    stiffness: PositivePerJoint = 200.0
    damping_ratio: Positive = 1.0


class LawsSettings(StrictModel):
    """``controller.laws`` of a robot's file, one section per law."""

    armour: ArmourSettings = ArmourSettings()
    passivity_adaptive: PassivityAdaptiveSettings = PassivityAdaptiveSettings()
    adaptive_robust: AdaptiveRobustSettings = AdaptiveRobustSettings()
    gravity_pid: GravityPidSettings = GravityPidSettings()
    computed_torque: ComputedTorqueSettings = ComputedTorqueSettings()
    impedance: ImpedanceSettings = ImpedanceSettings()
