"""Settings of a robot's YAML file, validated: finite, in range, known keys, or a ConfigError that says why not.

Here is what is declared about the arm. Control, identification and planning declare their own sections, in their
``settings`` modules, which import nothing but :mod:`safe_sysid.schema`. What the guarantees rest on (limits, friction,
uncertainty, noise, timing, payload prior) has no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from safe_sysid.control.settings import ControllerSettings
from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.settings import IdentificationSettings, TareSettings
from safe_sysid.planning.settings import PlannerSettings
from safe_sysid.robot.files.yaml_file import merge, read_yaml, validate
from safe_sysid.schema import Keys, Section, entries, setting
from safe_sysid.schema.fields import (
    Kind,
    Name,
    NamePair,
    NonNegative,
    PerJoint,
    PerJointNumbers,
    Pose,
    StrictModel,
    Vector3,
    Vector10,
    as_tuple,
    numbers,
    problem,
)

__all__ = [
    "KEYS",
    "ActuatorSettings",
    "DriverSettings",
    "EnvelopeSettings",
    "FloorSettings",
    "HullSettings",
    "JointSettings",
    "MeasurementSettings",
    "MountingSettings",
    "PayloadSettings",
    "Settings",
    "TimingSettings",
    "UncertaintySettings",
    "load_settings",
    "per_joint",
]


def _check_position(value: Any) -> Any:
    if value is None or value == "continuous":
        return value
    if not isinstance(value, (list, tuple)):
        raise problem("[lower, upper] in rad, or the word `continuous`")
    lower, upper = numbers(2)(value)
    if not lower < upper:
        raise problem("lower < upper")
    return lower, upper


def _check_ratios(value: Any) -> Any:
    if value is None:
        return None
    lower, upper = numbers(2)(value)
    if not (lower <= upper and lower * upper > 0.0 and min(abs(lower), abs(upper)) > 1e-9):
        raise problem("[lower, upper] with lower <= upper, both above or both below zero")
    return lower, upper


def _check_range(value: Any) -> Any:
    if value is None:
        return None
    lower, upper = numbers(2)(value)
    if not lower <= upper:
        raise problem("[lower, upper] with lower <= upper")
    return lower, upper


#: An interval, or null.
Range = Annotated[tuple[float, float] | None, PlainValidator(_check_range), Kind("range")]


class ProvedSettings(Section):
    """Intervals that take the place of `uncertainty`, as `identify-arm` proves them; null: what `uncertainty` says."""

    coulomb: Range = setting("of Coulomb friction", "N m or N", default=None)
    viscous: Range = setting("of viscous friction", "N m s/rad or N s/m", default=None)
    rotor_inertia: Range = setting("of the rotor's inertia", "kg m^2 or kg", default=None)
    offset: Range = setting("of the offset", "N m or N", default=None)
    link_lower: Vector10 | None = setting(
        "of the link behind the joint, in the joint's frame: m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz",
        "kg, kg m, kg m^2",
        default=None,
    )
    link_upper: Vector10 | None = setting("likewise", "kg, kg m, kg m^2", default=None)
    link_excess: Vector3 | None = setting(
        "by how much mass, length of the first moment and Ixx + Iyy + Izz of the real link may exceed those from "
        "link_lower to link_upper, which move as it does and need not exist; needed with them",
        "kg, kg m, kg m^2",
        "[0, inf)",
        default=None,
    )

    @model_validator(mode="after")
    def _link_is_whole(self) -> ProvedSettings:
        lower, upper = self.link_lower, self.link_upper
        if (lower is None) != (upper is None) or any(a > b for a, b in zip(lower or (), upper or (), strict=True)):
            raise problem("link_lower <= link_upper, both or neither", below=("link_upper",), value=upper)
        if (lower is None) != (self.link_excess is None):
            expected = "three numbers beside link_lower and link_upper, as `identify-arm` writes them, else none"
            raise problem(expected, below=("link_excess",), value=self.link_excess)
        return self


class JointSettings(Section):
    """One joint: limits and friction; sliding joints in m and N instead of rad and N m."""

    position: Annotated[
        tuple[float, float] | Literal["continuous"] | None, PlainValidator(_check_position), Kind("limits")
    ] = setting("position limits, or `continuous`; null: the URDF's", "rad or m", default=None)
    velocity: float | None = setting("velocity limit; null: the URDF's", "rad/s or m/s", "(0, inf)", default=None)
    torque: float | None = setting("torque limit; null: the URDF's effort", "N m or N", "(0, inf)", default=None)
    rotor_inertia: float = setting("inertia of the rotor, seen at the joint", "kg m^2 or kg", "[0, inf)")
    viscous: float = setting("viscous friction", "N m s/rad or N s/m", "[0, inf)")
    coulomb: float = setting("Coulomb friction", "N m or N", "[0, inf)")
    offset: float = setting("constant torque of the drive that acts besides the commanded one", "N m or N")
    gear_ratio: float | None = setting(
        "rotor's speed, relative to motor_link, over the joint's; negative if it turns the other way "
        "about motor_axis; null: not known, taken not to turn in a moving link "
        "(docs/understand/guarantees.md)",
        "1 or rad/m",
        default=None,
    )
    gear_ratio_range: Annotated[tuple[float, float] | None, PlainValidator(_check_ratios), Kind("range")] = setting(
        "in place of gear_ratio: the two ratios that it lies between, of one sign, where it is not known; "
        "identification takes it as an unknown, control and planning refuse it",
        "1 or rad/m",
        default=None,
    )
    gear_sign: str = setting(
        "either: which way the rotor of gear_ratio_range turns is not known either",
        default="known",
        choices=("known", "either"),
    )
    motor_link: Name | None = setting(
        "link that carries the motor, any before the joint; null: the joint's parent link", default=None
    )
    motor_axis: Vector3 | None = setting(
        "direction of the rotor's axis in the frame of motor_link; null: along the joint's axis, if "
        "motor_link moves with the joint's parent link",
        default=None,
    )
    zero_error: float = setting(
        "the joint's zero may be off by this much, always by the same: the joint is where it is measured plus this "
        "constant. position_error comes on top",
        "rad or m",
        "[0, 0.2]",
        default=0.0,
    )
    proved: ProvedSettings = ProvedSettings()

    @model_validator(mode="after")
    def _proved_holds_nominal(self) -> JointSettings:
        for name in ("coulomb", "viscous", "rotor_inertia", "offset"):
            interval = getattr(self.proved, name)
            if interval is not None and not interval[0] <= getattr(self, name) <= interval[1]:
                raise problem(f"an interval that holds {name}", below=("proved", name), value=interval)
        return self

    @model_validator(mode="after")
    def _motor_is_whole(self) -> JointSettings:
        if self.gear_ratio is not None and not abs(self.gear_ratio) > 1e-9:
            raise problem(
                "a number other than 0: the rotor's speed over the joint's, with its sign",
                below=("gear_ratio",),
                value=self.gear_ratio,
            )
        if self.gear_ratio is not None and self.gear_ratio_range is not None:
            raise problem(
                "gear_ratio, or a range of it, not both", below=("gear_ratio_range",), value=self.gear_ratio_range
            )
        if self.gear_sign == "either" and self.gear_ratio_range is None:
            raise problem("gear_ratio_range too: a gear_ratio has its sign", below=("gear_sign",), value=self.gear_sign)
        for name in ("motor_link", "motor_axis"):
            value = getattr(self, name)
            if self.gear_ratio is None and self.gear_ratio_range is None and value is not None:
                raise problem(f"gear_ratio too: without it {name} says nothing", below=(name,), value=value)
        if self.motor_axis is not None and not any(self.motor_axis):
            raise problem("a direction, not zero", below=("motor_axis",), value=self.motor_axis)
        return self


class MountingSettings(Section):
    """Pose of the URDF's root link in the world, in which gravity and scenes are given; without it: at the origin."""

    xyz: Vector3 = setting("position", "m", default=(0.0, 0.0, 0.0))
    rpy: Vector3 = setting("roll, pitch and yaw, as in a URDF", "rad", default=(0.0, 0.0, 0.0))


class FloorSettings(Section):
    """Absolute part of the uncertainty, added to the relative part."""

    mass: float = setting("of masses", "kg", "[0, inf)", default=0.0)
    first_moment: float = setting("of mass times centre", "kg m", "[0, inf)", default=0.0)
    inertia: float = setting("of inertias about the joint frame's origin", "kg m^2", "[0, inf)", default=0.0)
    coulomb: PerJointNumbers = setting("of Coulomb friction", "N m or N", "[0, inf)", default=0.0)
    viscous: PerJointNumbers = setting("of viscous friction", "N m s/rad or N s/m", "[0, inf)", default=0.0)
    rotor_inertia: PerJointNumbers = setting("of rotor inertias", "kg m^2 or kg", "[0, inf)", default=0.0)
    offset: PerJointNumbers = setting("of offsets", "N m or N", "[0, inf)", default=0.0)


class UncertaintySettings(Section):
    """The true parameters are within ``relative`` of each nominal entry, plus the floor."""

    relative: float = setting("fraction of each entry of the parameter vector", range="[0, 1)")
    floor: FloorSettings = FloorSettings()


class EnvelopeSettings(Section):
    """Box in the tool frame that contains every payload."""

    center: Vector3 = setting("its centre", "m")
    size: Vector3 = setting("its full edge lengths", "m", "(0, inf)")


def _check_box(value: Any) -> Any:
    """Of the two kinds the one that is meant: its mistakes are named, not those of the other too."""
    if value is None or value == "envelope" or isinstance(value, EnvelopeSettings):
        return value
    if not isinstance(value, Mapping):
        raise problem("{center: [x, y, z], size: [x, y, z]}, or the word `envelope`")
    return EnvelopeSettings.model_validate(dict(value))


def _check_density(value: Any) -> Any:
    if value is None:
        return None
    lower, upper = numbers(2, lowest=0.0)(value)
    if not lower <= upper or not upper > 0.0:
        raise problem("[smallest, largest] with 0 <= smallest <= largest, largest > 0")
    return lower, upper


def _check_travels(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise problem("{joint: [lower, upper], ...} in rad or m, or {}")
    travels = {}
    for name, ends in value.items():
        lower, upper = numbers(2)(ends)
        if not lower < upper:
            raise problem("lower < upper", below=(str(name),), value=list(ends))
        travels[str(name)] = lower, upper
    return travels


class PayloadSettings(Section):
    """What the last link, hand and payload together may be, and where they may reach."""

    prior_lower: Vector10 = setting(
        "lower bounds of m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz in the last joint's frame, "
        "inertia about its origin",
        "kg, kg m, kg m^2",
    )
    prior_upper: Vector10 = setting("upper bounds of the same", "kg, kg m, kg m^2")
    link: Name | None = setting(
        "link that the payload hangs on, the last one that moves or fixed to it: `envelope`, `box` and what is "
        "published of the payload are in its frame; null: `tool_frame`",
        default=None,
    )
    envelope: EnvelopeSettings
    hand_opening: Vector10 = setting(
        "largest change of the last link's ten parameters between any two openings of the hand; zeros: "
        "nothing of the hand moves",
        "kg, kg m, kg m^2",
        "[0, inf)",
        default=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    )
    hand_joints: Annotated[dict[str, tuple[float, float]] | None, PlainValidator(_check_travels), Kind("travels")] = (
        setting(
            "locked joints of the hand -> positions between which they move; bodies hold their links at all "
            "of them; `{}`: its shapes hold it at every opening. Needed with `hand_opening`",
            "rad or m",
            default=None,
        )
    )
    box: Annotated[EnvelopeSettings | Literal["envelope"] | None, PlainValidator(_check_box), Kind("box")] = setting(
        "a box in the payload's frame that holds the payload of this run; `envelope`: the envelope is one; "
        "null: not known. Makes bounds tighter, and false if it is false",
        "m",
        default=None,
    )
    density: Annotated[tuple[float, ...] | None, PlainValidator(_check_density), Kind("range")] = setting(
        "smallest and largest density of the payload anywhere; needs a box; null: not known. Makes "
        "bounds tighter, and false if it is false",
        "kg/m^3",
        default=None,
    )
    hand_links: Annotated[tuple[Name, ...], BeforeValidator(as_tuple), Kind("names")] | None = setting(
        "links of the hand; null: all that hang on the tool frame", default=None
    )

    @model_validator(mode="after")
    def _ordered_and_possible(self) -> PayloadSettings:
        for i, (lower, upper) in enumerate(zip(self.prior_lower, self.prior_upper, strict=True)):
            if not lower <= upper:
                raise problem(f"prior_lower[{i}] <= prior_upper[{i}] = {upper}", below=("prior_lower", i), value=lower)
        if self.prior_lower[0] < 0.0:
            raise problem("a mass >= 0 kg", below=("prior_lower", 0), value=self.prior_lower[0])
        for i in (0, 4, 6, 9):
            if not self.prior_upper[i] > 0.0:
                raise problem(
                    "a number > 0: no body has this mass or moment of inertia",
                    below=("prior_upper", i),
                    value=self.prior_upper[i],
                )
        if self.density is not None and self.box is None:
            raise problem(
                "payload.box too: without a box a density says nothing", below=("density",), value=self.density
            )
        return self


class MeasurementSettings(Section):
    """Declared bounds of errors: ``|tau_m - bias - tau| <= torque_abs + torque_drift + torque_rel |tau|``."""

    torque_source: str = setting(
        "what effort of joint_states is: the command, the motor's torque (before friction), or the link "
        "side's (after it)",
        choices=("command", "motor", "link"),
    )
    rate_hz: float = setting("rate of joint_states", "Hz", "(0, inf)")
    torque_abs: PerJointNumbers = setting("torque error from sample to sample", "N m or N", "[0, inf)")
    torque_rel: PerJointNumbers = setting("torque error as a fraction of the true torque", range="[0, 1)")
    position_error: PerJointNumbers = setting(
        "position error, the encoder's resolution included", "rad or m", "[0, inf)"
    )
    velocity_error: PerJointNumbers = setting("velocity error", "rad/s or m/s", "[0, inf)")
    stamp_error_s: float = setting(
        "error of a sample's stamp, at most a quarter of the period; the default is a ROS stamp's resolution",
        "s",
        "[0, inf)",
        default=1e-09,
    )
    torque_bias: PerJointNumbers = setting(
        "torque error that is constant over a run", "N m or N", "[0, inf)", default=0.0
    )
    torque_drift: PerJointNumbers = setting(
        "slow torque errors that do not average out", "N m or N", "[0, inf)", default=0.0
    )
    torque_delay_s: float = setting(
        "the effort may belong to a time this far off the state, the same for a window", "s", "[0, inf)", default=0.0
    )
    torque_jitter_s: float = setting("and besides by this much from sample to sample", "s", "[0, inf)", default=0.0)
    gravity_angle: float = setting("gravity may be turned by this much", "rad", "[0, inf)", default=0.0)
    gravity_relative: float = setting("and be stronger or weaker by this fraction", range="[0, inf)", default=0.0)
    effort: str = setting(
        "held: the torque in force since the last sample; mean: its mean since then, however it changes; sampled: an "
        "instant of a smooth torque, with its bound torque_rate",
        default="held",
        choices=("held", "mean", "sampled"),
    )
    torque_rate: PerJointNumbers | None = setting(
        "bound on the rate of a sampled torque; needed then, meaningless else", "N m/s or N/s", "(0, inf)", default=None
    )
    jerk: PerJointNumbers | None = setting(
        "bound on the jerk where effort is sampled: sharper; null: not known",
        "rad/s^3 or m/s^3",
        "(0, inf)",
        default=None,
    )
    max_age_s: float = setting(
        "older measurements count as stale; above timing.hold_max_s", "s", "(0, 1]", default=0.02
    )

    @property
    def only_mean_torques(self) -> bool:
        """Whether efforts are means over steps, which say nothing of parts of them."""
        return self.effort == "mean" or (self.effort == "held" and self.torque_source == "link")

    def torque_error(self, n: int) -> tuple[FloatArray, FloatArray]:
        """How far measured torques of n joints may be off: (n,) whatever they are, N m or N, and (n,) as a share."""
        absolute = per_joint(self.torque_abs, n) + per_joint(self.torque_drift, n)
        return absolute + np.abs(per_joint(self.torque_bias, n)), per_joint(self.torque_rel, n)

    @model_validator(mode="after")
    def _rules_that_are_sound(self) -> MeasurementSettings:
        if self.effort == "sampled" and self.torque_rate is None:
            raise problem("a bound in N m/s, as effort is `sampled`", below=("torque_rate",), value=None)
        for name in ("torque_rate", "jerk"):
            value = getattr(self, name)
            if self.effort != "sampled" and value is not None:
                raise problem(
                    f"none, as effort is `{self.effort}`: its torque may jump; or `effort: sampled`",
                    below=(name,),
                    value=value,
                )
        for name in ("torque_delay_s", "torque_jitter_s"):
            if self.only_mean_torques and getattr(self, name) > 0.0:
                raise problem(
                    "0 for a mean torque, as a link-side one is, which says nothing of parts of a step; or "
                    "`effort: sampled`",
                    below=(name,),
                    value=getattr(self, name),
                )
        if self.stamp_error_s > 0.25 / self.rate_hz:
            raise problem(
                f"at most a quarter of the period, {0.25 / self.rate_hz:g} s",
                below=("stamp_error_s",),
                value=self.stamp_error_s,
            )
        return self


class ActuatorSettings(Section):
    """``|applied - commanded torque| <= torque_abs + torque_rel |commanded|``."""

    torque_abs: PerJointNumbers = setting("absolute part", "N m or N", "[0, inf)")
    torque_rel: PerJointNumbers = setting("relative part", range="[0, 1)")


class TimingSettings(Section):
    """Declared timing: nominal period, longest action of one command (delay included), longest delay; s."""

    period_s: float = setting("nominal control period", "s", "(0, inf)")
    hold_max_s: float = setting(
        "oldest measurement behind a torque in force; at least period_s + delay_max_s", "s", "(0, inf)"
    )
    delay_max_s: float = setting("longest time from a measurement to its command acting", "s", "[0, inf)")

    @model_validator(mode="after")
    def _ordered(self) -> TimingSettings:
        if self.hold_max_s < (self.period_s + self.delay_max_s) * (1.0 - 1e-12):
            raise problem(
                f"at least period_s + delay_max_s = {self.period_s + self.delay_max_s:g}",
                below=("hold_max_s",),
                value=self.hold_max_s,
            )
        return self


class DriverSettings(Section):
    """What the real arm's driver does; needed in real time (docs/use/arms/)."""

    command_timeout_s: float | None = setting(
        "without a command for so long the drives brake by themselves; null: not known, which real time refuses",
        "s",
        "(0, inf)",
        default=None,
    )
    wraps_continuous: bool = setting("joint_states give continuous joints within +-pi", default=False)
    may_repeat: bool = setting(
        "joint_states at rest may repeat the same numbers, to the last bit, as a simulation without "
        "noise does; false: a controller in real time takes half a second of them for a sensor that is "
        "frozen",
        default=False,
    )


class HullSettings(StrictModel):
    """Convex hull of points (link frame, m) inflated by a radius (m)."""

    points: Annotated[tuple[Vector3, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    radius: NonNegative


Hulls = Annotated[tuple[HullSettings, ...], BeforeValidator(as_tuple), Kind("hulls")]


class Settings(Section):
    """Everything that a robot's YAML file says; see config/kinova_gen3.yaml for units and meaning."""

    name: Name = setting("of the robot; the file's name where it is not given")
    urdf: Name = setting("URDF file: beside this file, in ../urdf, absolute, or package://NAME/PATH")
    base_link: Name | None = setting(
        "link that the arm begins at; null, or without `tip_link`: the URDF's root. The world frame is the root's, "
        "unless `mounting` says where it stands",
        default=None,
    )
    tip_link: Name | None = setting(
        "link that the arm ends at: joints between base_link and it are the arm's, all others need a position under "
        "`locked`; null: joints that are not locked are the arm's",
        default=None,
    )
    tool_frame: Name = setting("tool flange, z out of the arm: a link that the last joint moves; goals are its poses")
    gravity: Vector3 = setting("gravity in the world frame", "m/s^2", default=(0.0, 0.0, -9.81))
    joints: dict[Name, JointSettings] = entries(
        "moving joints of the arm, base to tip, by the URDF's names", of="joint", min_length=1
    )
    drives: str = setting(
        "where friction and rotor inertia come from; unknown: wide intervals, for identification alone, gains are "
        "refused; simulated: chosen for a simulation, true of no real arm, which verdicts name",
        default="declared",
        choices=("declared", "unknown", "simulated"),
    )
    locked: dict[Name, float] = entries(
        "moving joints of the URDF that are held at a value, as those of a hand",
        of="joint",
        each=setting("where it is held", "rad or m"),
        default_factory=dict,
    )
    mounting: MountingSettings | None = None
    friction_transition_velocity: float = setting(
        "below it the Coulomb torque may be anything in [-coulomb, coulomb]", "rad/s or m/s", "[0, inf)"
    )
    uncertainty: UncertaintySettings
    payload: PayloadSettings
    measurement: MeasurementSettings
    actuator: ActuatorSettings
    timing: TimingSettings
    identification: IdentificationSettings
    tare: TareSettings = TareSettings()
    controller: ControllerSettings
    planner: PlannerSettings = PlannerSettings()
    driver: DriverSettings = DriverSettings()
    geometry: dict[Name, Hulls] = entries(
        "replaces the URDF's collision geometry of a link by convex hulls (docs/use/scenes.md)",
        of="link",
        each=setting(
            "list of {points: [[x, y, z], ...], radius: r} in the link's frame: convex hulls of points, inflated by a "
            "radius; empty: others hold it or nothing is there, which verdicts name",
            "m",
        ),
        default_factory=dict,
    )
    allowed_pairs: Annotated[tuple[NamePair, ...], BeforeValidator(as_tuple), Kind("pairs")] = setting(
        "pairs of bodies that are not checked, besides those that never are (docs/use/scenes.md), because "
        "their overlap is harmless; verdicts name them",
        default=(),
    )
    home: Pose = setting("where a run starts if the scene says nothing else", "rad or m")

    @model_validator(mode="after")
    def _stale_is_later_than_late(self) -> Settings:
        if not self.measurement.max_age_s > self.timing.hold_max_s:
            raise problem(
                f"a number > timing.hold_max_s = {self.timing.hold_max_s:g}, and at most 1 s",
                below=("measurement", "max_age_s"),
                value=self.measurement.max_age_s,
            )
        return self

    @property
    def follows_trajectories(self) -> bool:
        """Whether the arm's own controller moves it, not our torques."""
        return self.controller.interface == "trajectory"

    @model_validator(mode="after")
    def _torque_between_samples_is_known(self) -> Settings:
        if self.follows_trajectories and self.measurement.effort == "held":
            raise problem(
                "`mean` (effort is the mean torque since the last sample) or `sampled` with torque_rate: a servo of "
                "its own changes its torque between samples, and without either nothing bounds it there "
                "(docs/use/trajectory.md)",
                below=("measurement", "effort"),
                value=self.measurement.effort,
            )
        return self

    @model_validator(mode="after")
    def _one_entry_per_joint(self) -> Settings:
        n = len(self.joints)
        values: dict[tuple[str, ...], object] = {("home",): self.home}
        for section in ("measurement", "actuator", "identification", "controller", "planner"):
            for key, value in getattr(self, section):
                values[section, key] = value
        for key, value in self.controller.tube or ():
            values["controller", "tube", key] = value
        for name, law in self.controller.laws:
            for key, value in law:
                values["controller", "laws", name, key] = value
        for key, value in self.controller.feed_forward:
            values["controller", "feed_forward", key] = value
        for key, value in self.uncertainty.floor:
            values["uncertainty", "floor", key] = value
        for below, value in values.items():
            if isinstance(value, tuple) and len(value) != n:
                raise problem(f"{n} numbers, one per joint, not {len(value)}", below=below, value=value)
        return self


#: Everything that a robot's file may say.
KEYS: Final = Keys.of(Settings)


def per_joint(value: PerJoint, n: int) -> FloatArray:
    """A setting that is one number for all joints or one per joint, as an array (n,)."""
    return np.array(np.broadcast_to(np.asarray(value, float), (n,)))


def load_settings(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read and validate a robot's YAML file.

    Args:
        overrides: values that replace the file's, as ``{"measurement": {"torque_abs": 0.2}}`` or
            ``{"measurement.torque_abs": 0.2}``.

    Raises:
        ConfigError: anything missing, unknown, not finite or out of range, with file, key, value and expectation.
    """
    data = read_yaml(path)
    data.setdefault("name", Path(path).stem)
    if overrides:
        data = merge(data, overrides)
    return validate(f"{path} (with overrides)" if overrides else str(path), data, Settings)
