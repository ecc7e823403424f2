"""The robot's YAML file as validated settings: finite, in range, known; or a ConfigError that says why not.

Defaults, ranges, units and meanings are in ``schema/parameters.yaml``; here are types, and the rules between keys. What
the guarantees rest on (limits, friction, uncertainty, noise, timing, payload prior) has no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from safe_sysid.robot.declared import Section, setting
from safe_sysid.robot.fields import (
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
from safe_sysid.robot.law_settings import LawsSettings
from safe_sysid.robot.yaml_file import merge, read_yaml, validate

__all__ = [
    "ActuatorSettings",
    "ControllerSettings",
    "DriftSettings",
    "DriverSettings",
    "EnvelopeSettings",
    "FloorSettings",
    "HullSettings",
    "IdentificationSettings",
    "JointSettings",
    "MeasurementSettings",
    "MountingSettings",
    "PayloadSettings",
    "PlannerSettings",
    "Settings",
    "TareSettings",
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


class JointSettings(Section):
    """One joint: limits (from the URDF where left out) and friction model (no default: never silently zero)."""

    position: Annotated[
        tuple[float, float] | Literal["continuous"] | None, PlainValidator(_check_position)
    ] = setting("joints.<joint>.position")
    velocity: float | None = setting("joints.<joint>.velocity")
    torque: float | None = setting("joints.<joint>.torque")
    rotor_inertia: float = setting("joints.<joint>.rotor_inertia")
    viscous: float = setting("joints.<joint>.viscous")
    coulomb: float = setting("joints.<joint>.coulomb")
    offset: float = setting("joints.<joint>.offset")
    gear_ratio: float | None = setting("joints.<joint>.gear_ratio")
    motor_link: Name | None = setting("joints.<joint>.motor_link")
    motor_axis: Vector3 | None = setting("joints.<joint>.motor_axis")

    @model_validator(mode="after")
    def _motor_is_whole(self) -> JointSettings:
        if self.gear_ratio is not None and not abs(self.gear_ratio) > 1e-9:
            raise problem(
                "a number other than 0: the rotor's speed over the joint's, with its sign",
                below=("gear_ratio",),
                value=self.gear_ratio,
            )
        for name in ("motor_link", "motor_axis"):
            value = getattr(self, name)
            if self.gear_ratio is None and value is not None:
                raise problem(f"gear_ratio too: without it {name} says nothing", below=(name,), value=value)
        if self.motor_axis is not None and not any(self.motor_axis):
            raise problem("a direction, not zero", below=("motor_axis",), value=self.motor_axis)
        return self


class MountingSettings(Section):
    """Pose of the URDF's root link in the world, in which gravity and scenes are given."""

    xyz: Vector3 = setting("mounting.xyz")
    rpy: Vector3 = setting("mounting.rpy")


class FloorSettings(Section):
    """Absolute part of the arm's parameter uncertainty, added to the relative part; of joints: one for all or each."""

    mass: float = setting("uncertainty.floor.mass")
    first_moment: float = setting("uncertainty.floor.first_moment")
    inertia: float = setting("uncertainty.floor.inertia")
    coulomb: PerJointNumbers = setting("uncertainty.floor.coulomb")
    viscous: PerJointNumbers = setting("uncertainty.floor.viscous")
    rotor_inertia: PerJointNumbers = setting("uncertainty.floor.rotor_inertia")
    offset: PerJointNumbers = setting("uncertainty.floor.offset")


class UncertaintySettings(Section):
    """``|theta - theta_nominal| <= relative |theta_nominal| + floor``, entry by entry."""

    relative: float = setting("uncertainty.relative")
    floor: FloorSettings = FloorSettings()


class EnvelopeSettings(Section):
    """Box in the tool frame that contains every payload: centre and full edge lengths, m."""

    center: Vector3 = setting("payload.envelope.center")
    size: Vector3 = setting("payload.envelope.size")


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

    prior_lower: Vector10 = setting("payload.prior_lower")
    prior_upper: Vector10 = setting("payload.prior_upper")
    envelope: EnvelopeSettings
    hand_opening: Vector10 = setting("payload.hand_opening")
    hand_joints: Annotated[dict[str, tuple[float, float]] | None, PlainValidator(_check_travels)] = setting(
        "payload.hand_joints"
    )
    box: Annotated[EnvelopeSettings | Literal["envelope"] | None, PlainValidator(_check_box)] = setting(
        "payload.box"
    )
    density: Annotated[tuple[float, ...] | None, PlainValidator(_check_density)] = setting("payload.density")
    hand_links: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] | None = setting("payload.hand_links")

    @model_validator(mode="after")
    def _ordered_and_possible(self) -> PayloadSettings:
        for i, (lower, upper) in enumerate(zip(self.prior_lower, self.prior_upper, strict=True)):
            if not lower <= upper:
                raise problem(
                    f"prior_lower[{i}] <= prior_upper[{i}] = {upper}", below=("prior_lower", i), value=lower
                )
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
                "payload.box too: without a box a density says nothing",
                below=("density",),
                value=self.density,
            )
        return self


class MeasurementSettings(Section):
    """Declared bounds of errors: ``|tau_m - bias - tau| <= torque_abs + torque_drift + torque_rel |tau|``."""

    torque_source: str = setting("measurement.torque_source")
    rate_hz: float = setting("measurement.rate_hz")
    torque_abs: PerJointNumbers = setting("measurement.torque_abs")
    torque_rel: PerJointNumbers = setting("measurement.torque_rel")
    position_error: PerJointNumbers = setting("measurement.position_error")
    velocity_error: PerJointNumbers = setting("measurement.velocity_error")
    stamp_error_s: float = setting("measurement.stamp_error_s")
    torque_bias: PerJointNumbers = setting("measurement.torque_bias")
    torque_drift: PerJointNumbers = setting("measurement.torque_drift")
    torque_delay_s: float = setting("measurement.torque_delay_s")
    torque_jitter_s: float = setting("measurement.torque_jitter_s")
    gravity_angle: float = setting("measurement.gravity_angle")
    gravity_relative: float = setting("measurement.gravity_relative")
    effort: str = setting("measurement.effort")
    torque_rate: PerJointNumbers | None = setting("measurement.torque_rate")
    jerk: PerJointNumbers | None = setting("measurement.jerk")
    max_age_s: float = setting("measurement.max_age_s")

    @model_validator(mode="after")
    def _rules_that_are_sound(self) -> MeasurementSettings:
        if self.effort == "sampled" and self.torque_rate is None:
            raise problem("a bound in N m/s, as effort is `sampled`", below=("torque_rate",), value=None)
        for name in ("torque_rate", "jerk"):
            value = getattr(self, name)
            if self.effort == "held" and value is not None:
                raise problem(
                    "none, as effort is `held`: a held torque jumps; or `effort: sampled`",
                    below=(name,),
                    value=value,
                )
        for name in ("torque_delay_s", "torque_jitter_s"):
            if self.torque_source == "link" and self.effort == "held" and getattr(self, name) > 0.0:
                raise problem(
                    "0 for the mean of a link-side torque, which says nothing of parts of a step; or `effort: sampled`",
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

    torque_abs: PerJointNumbers = setting("actuator.torque_abs")
    torque_rel: PerJointNumbers = setting("actuator.torque_rel")


class TimingSettings(Section):
    """Declared timing: nominal period, longest action of one command (delay included), longest delay; s."""

    period_s: float = setting("timing.period_s")
    hold_max_s: float = setting("timing.hold_max_s")
    delay_max_s: float = setting("timing.delay_max_s")

    @model_validator(mode="after")
    def _ordered(self) -> TimingSettings:
        if self.hold_max_s < (self.period_s + self.delay_max_s) * (1.0 - 1e-12):
            raise problem(
                f"at least period_s + delay_max_s = {self.period_s + self.delay_max_s:g}",
                below=("hold_max_s",),
                value=self.hold_max_s,
            )
        return self


class IdentificationSettings(Section):
    """Momentum windows and the declared bound on acceleration."""

    method: str = setting("identification.method")
    window_s: float = setting("identification.window_s")
    update_s: float = setting("identification.update_s")
    take_after_s: float = setting("identification.take_after_s")
    acceleration_bound: PerJointNumbers = setting("identification.acceleration_bound")


class DriftSettings(Section):
    """How much the friction of a joint may change between a tare and a later run."""

    coulomb: float = setting("tare.drift.coulomb")
    viscous: float = setting("tare.drift.viscous")
    offset: float = setting("tare.drift.offset")


class TareSettings(Section):
    """Equations kept from a motion with the empty hand, and when they are too old to be used."""

    file: Name | None = setting("tare.file")
    max_age_h: float = setting("tare.max_age_h")
    max_temperature_difference: float | None = setting("tare.max_temperature_difference")
    drift: DriftSettings = DriftSettings()


class FeedForwardSettings(Section):
    """What may be added to the law's torque (docs/guarantees.md, "Feed-forward")."""

    bound: PerJointNumbers = setting("controller.feed_forward.bound")


class ControllerSettings(Section):
    """Robust control law and the hypotheses of its tracking theorem (docs/guarantees.md)."""

    K_r: PerJointNumbers = setting("controller.K_r")
    kappa: float = setting("controller.kappa")
    inertia_lower: PerJointNumbers | None = setting("controller.inertia_lower")
    inertia_ratio: PerJointNumbers = setting("controller.inertia_ratio")
    velocity: PerJointNumbers = setting("controller.velocity")
    acceleration: PerJointNumbers = setting("controller.acceleration")
    jerk: PerJointNumbers = setting("controller.jerk")
    uncertainty: float = setting("controller.uncertainty")
    blend_s: float = setting("controller.blend_s")
    torque_rate: PerJointNumbers = setting("controller.torque_rate")
    gravity_check: bool = setting("controller.gravity_check")
    feed_forward: FeedForwardSettings = FeedForwardSettings()
    law: str = setting("controller.law")
    laws: LawsSettings = LawsSettings()


class PlannerSettings(Section):
    """Exciting trajectories: times in s, ``k_range`` in rad, margin in m."""

    t_f: float = setting("planner.t_f")
    t_p: float = setting("planner.t_p")
    intervals: int = setting("planner.intervals")
    k_range: PerJointNumbers = setting("planner.k_range")
    clearance_margin: float = setting("planner.clearance_margin")
    iteration_budget: int = setting("planner.iteration_budget")
    plans: int = setting("planner.plans")

    @model_validator(mode="after")
    def _ordered(self) -> PlannerSettings:
        if not self.t_p < self.t_f:
            raise problem(f"t_p < t_f = {self.t_f:g}", below=("t_p",), value=self.t_p)
        return self


class DriverSettings(Section):
    """What the real arm's driver does."""

    command_timeout_s: float | None = setting("driver.command_timeout_s")
    wraps_continuous: bool = setting("driver.wraps_continuous")
    may_repeat: bool = setting("driver.may_repeat")


class HullSettings(StrictModel):
    """Convex hull of points (link frame, m) inflated by a radius (m)."""

    points: Annotated[tuple[Vector3, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    radius: NonNegative


Hulls = Annotated[tuple[HullSettings, ...], BeforeValidator(as_tuple)]


class Settings(Section):
    """Everything that a robot's YAML file says; see config/kinova_gen3.yaml for units and meaning."""

    name: Name = setting("name")
    urdf: Name = setting("urdf")
    base_link: Name | None = setting("base_link")
    tool_frame: Name = setting("tool_frame")
    gravity: Vector3 = setting("gravity")
    joints: Annotated[dict[Name, JointSettings], Field(min_length=1)]
    locked: dict[Name, float] = Field(default_factory=dict)
    mounting: MountingSettings | None = None
    friction_transition_velocity: float = setting("friction_transition_velocity")
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
    geometry: Annotated[dict[Name, Hulls], Field(default_factory=dict)]
    allowed_pairs: Annotated[tuple[NamePair, ...], BeforeValidator(as_tuple)] = setting("allowed_pairs")
    home: Pose = setting("home")

    @model_validator(mode="after")
    def _stale_is_later_than_late(self) -> Settings:
        if not self.measurement.max_age_s > self.timing.hold_max_s:
            raise problem(
                f"a number > timing.hold_max_s = {self.timing.hold_max_s:g}, and at most 1 s",
                below=("measurement", "max_age_s"),
                value=self.measurement.max_age_s,
            )
        return self

    @model_validator(mode="after")
    def _one_entry_per_joint(self) -> Settings:
        n = len(self.joints)
        values: dict[tuple[str, ...], object] = {("home",): self.home}
        for section in ("measurement", "actuator", "identification", "controller", "planner"):
            for key, value in getattr(self, section):
                values[section, key] = value
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


def per_joint(value: PerJoint, n: int) -> NDArray[np.float64]:
    """A setting that is one number for all joints or one per joint, as an array (n,)."""
    return np.array(np.broadcast_to(np.asarray(value, float), (n,)))


def load_settings(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read and validate a robot's YAML file.

    Args:
        path: of the YAML file.
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
