"""Control settings of a robot's file. docs/understand/laws.md says where the default gains come from."""

from __future__ import annotations

from safe_sysid.extensions import DYNAMICS, FEED_FORWARDS, LAWS, RESIDUAL_MODELS
from safe_sysid.schema import Section, setting
from safe_sysid.schema.fields import Name, PerJointNumbers

__all__ = [
    "AdaptiveRobustSettings",
    "ArmourSettings",
    "ComputedTorqueSettings",
    "ControllerSettings",
    "FeedForwardSettings",
    "GravityPidSettings",
    "ImpedanceSettings",
    "LawsSettings",
    "PassivityAdaptiveSettings",
    "TubeSettings",
]


class ArmourSettings(Section):
    """ARMOUR's robust law [ARMOUR]; the defaults are its authors' for the arm that is the default robot here."""

    K_r: PerJointNumbers = setting("slope of r = de + K_r e", "1/s", "(0, inf)", default=5.0)
    V_max: float = setting("bound of r^T H r / 2 that the law keeps in continuous time", "J", "(0, inf)", default=0.02)
    alpha: float = setting("slope of the barrier condition dV/dt <= alpha (V_max - V)", "1/s", "(0, inf)", default=20.0)
    norm: bool = setting(
        "bound r^T w by the norms of both, as the released code does; else by sum |r_j| w_j, which is less",
        default=True,
    )
    dead_zone: float = setting(
        "below this norm of r the released code commands no robust input; the proof has none",
        "rad/s",
        "[0, inf)",
        default=0.0,
    )


class PassivityAdaptiveSettings(Section):
    """Passivity-based adaptive law [SlotineLi1987]."""

    K_r: PerJointNumbers = setting("slope of r = de + K_r e", "1/s", "(0, inf)", default=40.0)
    decay: float = setting("K_d = decay J, with each joint's inertia J", "1/s", "(0, inf)", default=100.0)
    rate: float = setting("Gamma = rate diag(prior half widths^2)", "1/J", "(0, inf)", default=3000.0)


class AdaptiveRobustSettings(Section):
    """Adaptive robust feedback linearisation [Abdelwahab2024], reconstructed (docs/understand/laws.md)."""

    bandwidth: float = setting("natural frequency of the nominal error dynamics", "rad/s", "(0, inf)", default=60.0)
    damping_ratio: float = setting("damping ratio of the same", range="(0, inf)", default=1.0)
    rate: float = setting(
        "growth of the uncertainty's bound: d rho/dt = rate |z|", "1/s^2 per rad/s", "(0, inf)", default=300.0
    )
    initial_bound: float = setting(
        "of the acceleration that the nominal model gets wrong", "rad/s^2", "(0, inf)", default=0.1
    )
    layer: float = setting("time constant of the boundary layer |z| <= layer rho", "s", "(0, inf)", default=0.05)


class GravityPidSettings(Section):
    """PID with gravity compensation, gains scaled by each joint's inertia, or given."""

    bandwidth: float = setting("K_p = J bandwidth^2", "rad/s", "(0, inf)", default=70.0)
    damping_ratio: float = setting("K_d = 2 J damping_ratio bandwidth", range="(0, inf)", default=1.0)
    integral: float = setting("K_i = integral K_p", "1/s", "[0, inf)", default=50.0)
    windup: float = setting("largest integral part, as a fraction of the torque limit", range="[0, 1]", default=0.5)
    K_p: PerJointNumbers | None = setting(
        "the gain itself; null: from the bandwidth", "N m/rad or N/m", "(0, inf)", default=None
    )
    K_d: PerJointNumbers | None = setting(
        "the gain itself; null: from the damping ratio", "N m s/rad or N s/m", "[0, inf)", default=None
    )
    K_i: PerJointNumbers | None = setting(
        "the gain itself; null: from `integral`", "N m/(rad s) or N/(m s)", "[0, inf)", default=None
    )


class ComputedTorqueSettings(Section):
    """Inverse dynamics of the nominal model with PD on its acceleration."""

    bandwidth: float = setting("natural frequency of the error", "rad/s", "(0, inf)", default=70.0)
    damping_ratio: float = setting("damping ratio of the error", range="(0, inf)", default=1.0)
    dynamics: Name = setting(
        "what computes the inverse dynamics (docs/use/generated.md)", default="recursion", choices=tuple(DYNAMICS)
    )


class ImpedanceSettings(Section):
    """Joint impedance [Hybrid, appendix B]: the arm answers external torque as masses, springs and dampers."""

    inertia: PerJointNumbers = setting("desired inertia of each joint", "kg m^2 or kg", "(0, inf)", default=1.0)
    stiffness: PerJointNumbers = setting("desired stiffness", "N m/rad or N/m", "(0, inf)", default=200.0)
    damping_ratio: float = setting(
        "desired damping is 2 damping_ratio sqrt(stiffness inertia)", range="(0, inf)", default=1.0
    )
    dynamics: Name = setting(
        "what computes the inverse dynamics (docs/use/generated.md)", default="recursion", choices=tuple(DYNAMICS)
    )


class LawsSettings(Section):
    """Gains of the laws that tracking is compared with (docs/understand/laws.md)."""

    armour: ArmourSettings = ArmourSettings()
    passivity_adaptive: PassivityAdaptiveSettings = PassivityAdaptiveSettings()
    adaptive_robust: AdaptiveRobustSettings = AdaptiveRobustSettings()
    gravity_pid: GravityPidSettings = GravityPidSettings()
    computed_torque: ComputedTorqueSettings = ComputedTorqueSettings()
    impedance: ImpedanceSettings = ImpedanceSettings()


class FeedForwardSettings(Section):
    """Torque that may be added to the law's: what a residual model has learned (docs/understand/guarantees.md)."""

    name: Name | None = setting(
        "of the feed-forward (docs/understand/laws.md); null: nothing is added",
        default=None,
        choices=tuple(FEED_FORWARDS),
    )
    bound: PerJointNumbers = setting(
        "the most that is added, whatever the feed-forward says; the tracking bound and plans' torques leave room "
        "for it",
        "N m or N",
        "[0, inf)",
        default=0.0,
    )
    rate: PerJointNumbers = setting(
        "no faster does what is added follow, or fade while answers are late; less than torque_rate",
        "N m/s or N/s",
        "(0, 1e6]",
        default=200.0,
    )
    late_s: float = setting(
        "real time: an answer counts for so long after its question; older, what is added goes to zero at `rate`",
        "s",
        "(0, 1]",
        default=0.005,
    )
    residual: Name | None = setting(
        "residual model of the feed-forward `residual`; null: none", default=None, choices=tuple(RESIDUAL_MODELS)
    )
    file: Name | None = setting("path of the residual model's file", default=None)


class TubeSettings(Section):
    """How far an arm is off by itself: certificates rest on the outer tube, the watch stops at the inner one."""

    position: PerJointNumbers = setting("outer tube: |desired - true position|", "rad or m", "(0, inf)")
    velocity: PerJointNumbers = setting("outer tube: |desired - true velocity|", "rad/s or m/s", "(0, inf)")
    acceleration: PerJointNumbers = setting(
        "outer tube: |desired - true acceleration|; what plans' torques leave room for", "rad/s^2 or m/s^2", "(0, inf)"
    )
    inner_position: PerJointNumbers = setting("inner tube of the position", "rad or m", "(0, inf)")
    inner_velocity: PerJointNumbers = setting("inner tube of the velocity", "rad/s or m/s", "(0, inf)")
    largest_velocity: PerJointNumbers = setting("fastest desired motion of the measurement", "rad/s or m/s", "(0, inf)")
    largest_acceleration: PerJointNumbers = setting("its largest acceleration", "rad/s^2 or m/s^2", "(0, inf)")
    largest_jerk: PerJointNumbers = setting("its largest jerk", "rad/s^3 or m/s^3", "(0, inf)")
    heaviest: float = setting(
        "mass of last link, hand and payload together with which it was measured; a prior above it is refused",
        "kg",
        "[0, inf)",
    )
    latency_s: float = setting(
        "from a measurement to a stop's effect, but for the sample's own period: the outer tube covers what the error "
        "may grow by",
        "s",
        "[0, 1]",
    )
    origin: Name = setting("what it was measured on: logs, date")


class ControllerSettings(Section):
    """Robust law and its tracking theorem's hypotheses, checked for each plan (docs/understand/guarantees.md)."""

    interface: str = setting(
        "torque: our law commands torques, its tracking bound is proved; trajectory: the arm's own controller follows "
        "plans, within the measured `tube`",
        default="torque",
        choices=("torque", "trajectory"),
    )
    tube: TubeSettings | None = None

    K_r: PerJointNumbers = setting("slope of r = de + K_r e", "1/s", "(0, inf)", default=5.0)
    kappa: float = setting(
        "decay rate of the tracking error's energy that the damping is chosen for", "1/s", "(0, inf)", default=12.0
    )
    damping: str = setting(
        "constant: K_d r, for the largest inertia of any pose; inertia: kappa H r, H the arm's own inertia, whatever "
        "it is, for which inertia_ratio may be large",
        default="constant",
        choices=("constant", "inertia"),
    )
    inertia_lower: PerJointNumbers | None = setting(
        "H >= diag of it along plans; null: the lower rotor inertia, which needs no check",
        "kg m^2 or kg",
        "(0, inf)",
        default=None,
    )
    inertia_ratio: PerJointNumbers = setting(
        "H <= diag(inertia_ratio * inertia_lower) along plans", range="(0, inf)", default=2.4
    )
    velocity: PerJointNumbers = setting("largest velocity along plans", "rad/s or m/s", "(0, inf)", default=0.6)
    acceleration: PerJointNumbers = setting(
        "largest desired acceleration along plans", "rad/s^2 or m/s^2", "(0, inf)", default=0.8
    )
    jerk: PerJointNumbers = setting("largest desired jerk along plans", "rad/s^3 or m/s^3", "(0, inf)", default=6.0)
    uncertainty: float = setting(
        "largest S along plans: what the box makes uncertain in the torque, weighted by inertia",
        "sqrt(W/s)",
        "(0, inf)",
    )
    blend_s: float = setting("duration of the blend to a new box", "s", "(0, inf)", default=0.25)
    torque_rate: PerJointNumbers = setting(
        "no command changes faster; cut for longer than the theorem covers is a fault. What an arm "
        "needs at least follows from its torque limits",
        "N m/s or N/s",
        "(0, 1e6]",
        default=1.0e4,
    )
    gravity_check: bool = setting(
        "at every start the effort at rest must be one that some parameters explain; an arm held by "
        "brakes has none to judge",
        default=True,
    )
    feed_forward: FeedForwardSettings = FeedForwardSettings()
    law: str = setting(
        "law of control; the tracking bound is proved for robust only (docs/understand/laws.md)",
        default="robust",
        choices=tuple(LAWS),
    )
    laws: LawsSettings = LawsSettings()
