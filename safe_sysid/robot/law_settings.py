"""Gains of the control laws that robust tracking is compared with; where a default comes from is in docs/laws.md."""

from __future__ import annotations

from safe_sysid.robot.declared import Section, setting
from safe_sysid.robot.fields import PerJointNumbers

__all__ = [
    "AdaptiveRobustSettings",
    "ArmourSettings",
    "ComputedTorqueSettings",
    "GravityPidSettings",
    "ImpedanceSettings",
    "LawsSettings",
    "PassivityAdaptiveSettings",
]


class ArmourSettings(Section):
    """ARMOUR's robust law [ARMOUR]; the defaults are its authors' for the arm that is the default robot here."""

    K_r: PerJointNumbers = setting("controller.laws.armour.K_r")
    V_max: float = setting("controller.laws.armour.V_max")
    alpha: float = setting("controller.laws.armour.alpha")
    norm: bool = setting("controller.laws.armour.norm")
    dead_zone: float = setting("controller.laws.armour.dead_zone")


class PassivityAdaptiveSettings(Section):
    """Passivity-based adaptive law [SlotineLi1987]."""

    K_r: PerJointNumbers = setting("controller.laws.passivity_adaptive.K_r")
    decay: float = setting("controller.laws.passivity_adaptive.decay")
    rate: float = setting("controller.laws.passivity_adaptive.rate")


class AdaptiveRobustSettings(Section):
    """Adaptive robust feedback linearisation [Abdelwahab2024], reconstructed (docs/laws.md)."""

    bandwidth: float = setting("controller.laws.adaptive_robust.bandwidth")
    damping_ratio: float = setting("controller.laws.adaptive_robust.damping_ratio")
    rate: float = setting("controller.laws.adaptive_robust.rate")
    initial_bound: float = setting("controller.laws.adaptive_robust.initial_bound")
    layer: float = setting("controller.laws.adaptive_robust.layer")


class GravityPidSettings(Section):
    """PID with gravity compensation, gains scaled by each joint's inertia, or given."""

    bandwidth: float = setting("controller.laws.gravity_pid.bandwidth")
    damping_ratio: float = setting("controller.laws.gravity_pid.damping_ratio")
    integral: float = setting("controller.laws.gravity_pid.integral")
    windup: float = setting("controller.laws.gravity_pid.windup")
    K_p: PerJointNumbers | None = setting("controller.laws.gravity_pid.K_p")
    K_d: PerJointNumbers | None = setting("controller.laws.gravity_pid.K_d")
    K_i: PerJointNumbers | None = setting("controller.laws.gravity_pid.K_i")


class ComputedTorqueSettings(Section):
    """Inverse dynamics of the nominal model with PD on its acceleration."""

    bandwidth: float = setting("controller.laws.computed_torque.bandwidth")
    damping_ratio: float = setting("controller.laws.computed_torque.damping_ratio")


class ImpedanceSettings(Section):
    """Joint impedance [Hybrid, appendix B]: the arm answers external torque as masses, springs and dampers."""

    inertia: PerJointNumbers = setting("controller.laws.impedance.inertia")
    stiffness: PerJointNumbers = setting("controller.laws.impedance.stiffness")
    damping_ratio: float = setting("controller.laws.impedance.damping_ratio")


class LawsSettings(Section):
    """``controller.laws`` of a robot's file, one section per law."""

    armour: ArmourSettings = ArmourSettings()
    passivity_adaptive: PassivityAdaptiveSettings = PassivityAdaptiveSettings()
    adaptive_robust: AdaptiveRobustSettings = AdaptiveRobustSettings()
    gravity_pid: GravityPidSettings = GravityPidSettings()
    computed_torque: ComputedTorqueSettings = ComputedTorqueSettings()
    impedance: ImpedanceSettings = ImpedanceSettings()
