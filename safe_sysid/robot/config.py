"""The robot's YAML file as validated settings: finite, in range, known; or a ConfigError that says why not.

What the guarantees rest on (limits, friction, uncertainty, noise, timing, payload prior) has no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from safe_sysid.robot.fields import (
    FractionPerJoint,
    Name,
    NamePair,
    NonNegative,
    NonNegativePerJoint,
    PerJoint,
    Pose,
    Positive,
    PositivePerJoint,
    Size3,
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
    "EnvelopeSettings",
    "FloorSettings",
    "HullSettings",
    "IdentificationSettings",
    "JointSettings",
    "MeasurementSettings",
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


class JointSettings(StrictModel):
    """One joint: limits (from the URDF where left out) and friction model (no default: never silently zero).

    Attributes:
        position: (lower, upper) in rad, "continuous", or None for the URDF's.
        velocity, torque: limits, rad/s and N m; None for the URDF's.
        rotor_inertia: kg m^2 at the joint; viscous: N m s/rad; coulomb, offset: N m.
    """

    position: Annotated[
        tuple[float, float] | Literal["continuous"] | None, PlainValidator(_check_position)
    ] = None
    velocity: Positive | None = None
    torque: Positive | None = None
    rotor_inertia: NonNegative
    viscous: NonNegative
    coulomb: NonNegative
    offset: float


class FloorSettings(StrictModel):
    """Absolute part of the arm's parameter uncertainty, added to the relative part."""

    mass: NonNegative = 0.0
    first_moment: NonNegative = 0.0
    inertia: NonNegative = 0.0
    coulomb: NonNegative = 0.0
    viscous: NonNegative = 0.0
    rotor_inertia: NonNegative = 0.0
    offset: NonNegative = 0.0


class UncertaintySettings(StrictModel):
    """``|theta - theta_nominal| <= relative |theta_nominal| + floor``, entry by entry."""

    relative: Annotated[float, Field(ge=0.0, lt=1.0)]
    floor: FloorSettings = FloorSettings()


class EnvelopeSettings(StrictModel):
    """Box in the tool frame that contains every payload: centre and full edge lengths, m."""

    center: Vector3
    size: Size3


def _check_density(value: Any) -> Any:
    if value is None:
        return None
    lower, upper = numbers(2, lowest=0.0)(value)
    if not lower <= upper or not upper > 0.0:
        raise problem("[smallest, largest] with 0 <= smallest <= largest, largest > 0")
    return lower, upper


class PayloadSettings(StrictModel):
    """What the last link, hand and payload together may be, and where they may reach.

    Attributes:
        prior_lower, prior_upper: (10,) bounds in the last joint's frame, order of ``PAYLOAD_NAMES``.
        envelope: box of the payload.
        hand_opening: (10,) largest change of the last link's parameters, last joint's frame, between any two openings
            of the hand.
        box: a box, in the tool frame, that holds the payload of this run; "envelope" says that the envelope is one;
            None says that nothing is known. Makes bounds tighter, and false if it is false.
        density: (smallest, largest) of the payload's material anywhere, kg/m^3; needs a box. Only the largest tells
            something (docs/guarantees.md).
        hand_links: links of the hand; None for all links that hang on the tool frame.
    """

    prior_lower: Vector10
    prior_upper: Vector10
    envelope: EnvelopeSettings
    hand_opening: Annotated[tuple[float, ...], PlainValidator(numbers(10, lowest=0.0))] = (0.0,) * 10
    box: EnvelopeSettings | Literal["envelope"] | None = None
    density: Annotated[tuple[float, ...] | None, PlainValidator(_check_density)] = None
    hand_links: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] | None = None

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


class MeasurementSettings(StrictModel):
    """Declared bounds of measurement errors: ``|tau_m - bias - tau| <= torque_abs + torque_drift + torque_rel |tau|``.

    Attributes:
        torque_source: what effort is: "command", "motor" (before friction) or "link" side.
        rate_hz: of joint_states.
        torque_abs, torque_drift, torque_bias: N m; errors from sample to sample, slow ones, one constant over the run.
        torque_rel: fraction of the true torque.
        position_error, velocity_error: rad, rad/s; an encoder's resolution included.
        stamp_error_s: of a sample's time; the default is the resolution of a ROS stamp.
        torque_delay_s, torque_jitter_s: of the effort against the state.
        gravity_angle, gravity_relative: cone of gravity, rad and a fraction.
        effort: "held" (the value in force since the last sample) or "sampled" (an instant of a smooth torque).
        torque_rate: N m/s, bound for a sampled effort; needed then, meaningless else.
        jerk: rad/s^3, bound for a sampled effort: sharper; a held torque jumps, and so does the acceleration.
        max_age_s: older measurements count as stale; above timing.hold_max_s, at most 1 s.
    """

    torque_source: Literal["command", "motor", "link"]
    rate_hz: Positive
    torque_abs: NonNegativePerJoint
    torque_rel: FractionPerJoint
    position_error: NonNegativePerJoint
    velocity_error: NonNegativePerJoint
    stamp_error_s: NonNegative = 1e-9
    torque_bias: NonNegativePerJoint = 0.0
    torque_drift: NonNegativePerJoint = 0.0
    torque_delay_s: NonNegative = 0.0
    torque_jitter_s: NonNegative = 0.0
    gravity_angle: NonNegative = 0.0
    gravity_relative: NonNegative = 0.0
    effort: Literal["held", "sampled"] = "held"
    torque_rate: PositivePerJoint | None = None
    jerk: PositivePerJoint | None = None
    max_age_s: Annotated[float, Field(gt=0.0, le=1.0)] = 0.02

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


class ActuatorSettings(StrictModel):
    """``|applied - commanded torque| <= torque_abs + torque_rel |commanded|``."""

    torque_abs: NonNegativePerJoint
    torque_rel: FractionPerJoint


class TimingSettings(StrictModel):
    """Declared timing: nominal period, longest action of one command (delay included), longest delay; s."""

    period_s: Positive
    hold_max_s: Positive
    delay_max_s: NonNegative

    @model_validator(mode="after")
    def _ordered(self) -> TimingSettings:
        if self.hold_max_s < (self.period_s + self.delay_max_s) * (1.0 - 1e-12):
            raise problem(
                f"at least period_s + delay_max_s = {self.period_s + self.delay_max_s:g}",
                below=("hold_max_s",),
                value=self.hold_max_s,
            )
        return self


class IdentificationSettings(StrictModel):
    """Momentum windows and the declared bound on acceleration.

    Attributes:
        window_s: length of a momentum window.
        update_s: data between two updates of the bounds.
        take_after_s: simulated time that an update takes in lock-step (in real time it takes what it takes).
        acceleration_bound: largest |qdd| of the arm, rad/s^2.
        method: of bounding: "lp" linear programs, "sdp" physical consistency of the payload too.
    """

    method: Literal["lp", "sdp"] = "sdp"
    window_s: Positive = 0.1
    update_s: Positive = 1.5
    take_after_s: Positive = 0.5
    acceleration_bound: PositivePerJoint


class DriftSettings(StrictModel):
    """How much the friction of a joint may change between a tare and a later run.

    Attributes:
        coulomb, viscous: relative to the larger of the prior's bounds.
        offset: N m.
    """

    coulomb: NonNegative = 0.02
    viscous: NonNegative = 0.02
    offset: NonNegative = 0.005


class TareSettings(StrictModel):
    """Equations kept from a motion with the empty hand, and when they are too old to be used.

    Attributes:
        file: written by ``safe-sysid tare``; None for none.
        max_age_h: hours after which the file is refused.
        max_temperature_difference: K between tare and run, judged where both temperatures are given; None: not judged.
        drift: of the friction between tare and run.
    """

    file: Name | None = None
    max_age_h: Positive = 24.0
    max_temperature_difference: Positive | None = 10.0
    drift: DriftSettings = DriftSettings()


LawName = Literal[
    "robust",
    "armour",
    "passivity_adaptive",
    "adaptive_robust",
    "gravity_pid",
    "computed_torque",
    "impedance",
]


#: N m/s; more than that limits nothing.
_FASTEST = 1.0e6


def _check_torque_rate(value: Any) -> Any:
    rate = numbers(positive=True)(value)
    for i, entry in enumerate(np.atleast_1d(rate)):
        if entry > _FASTEST:
            raise problem(f"at most {_FASTEST:g} N m/s", **({"index": i} if isinstance(rate, tuple) else {}))
    return rate


class ControllerSettings(StrictModel):
    """Robust control law and the hypotheses of its tracking theorem (docs/guarantees.md).

    Attributes:
        K_r: slope of ``r = de + K_r e``, 1/s.
        kappa: decay rate, 1/s.
        inertia_lower: H >= diag of it along plans, kg m^2; None: the lower rotor inertia, which needs no check.
        inertia_ratio: ``H <= diag(inertia_ratio * inertia_lower)`` along plans.
        velocity, acceleration, jerk: largest |qd|, |qdd_d|, |qddd_d| along plans; rad/s, rad/s^2, rad/s^3.
        uncertainty: largest S along plans, sqrt(W/s).
        blend_s: duration of the blend to a new box.
        torque_rate: largest rate of the commanded torque, N m/s; cut for longer than the theorem covers is a fault. At
            most 1e6: 1000 N m from one millisecond to the next. The least that an arm can be run with follows from its
            torque limits (``why_not_rate`` in ``control.checks``).
        gravity_check: whether the effort at rest is judged at every start; an arm held by brakes has none to judge.
        law: of control; the tracking bound is proved for ``robust`` alone.
        laws: gains of the laws that tracking is compared with.
    """

    K_r: PositivePerJoint = 5.0
    kappa: Positive = 12.0
    inertia_lower: PositivePerJoint | None = None
    inertia_ratio: PositivePerJoint = 2.4
    velocity: PositivePerJoint = 0.6
    acceleration: PositivePerJoint = 0.8
    jerk: PositivePerJoint = 6.0
    uncertainty: Positive
    blend_s: Positive = 0.25
    torque_rate: Annotated[PerJoint, PlainValidator(_check_torque_rate)] = 1.0e4
    gravity_check: bool = True
    law: LawName = "robust"
    laws: LawsSettings = LawsSettings()


class PlannerSettings(StrictModel):
    """Exciting trajectories: times in s, ``k_range`` in rad, margin in m."""

    t_f: Positive = 3.0
    t_p: Positive = 1.5
    intervals: Annotated[int, Field(ge=2, le=4096)] = 128
    k_range: PositivePerJoint = 0.785
    clearance_margin: NonNegative = 0.005
    iteration_budget: Annotated[int, Field(ge=1)] = 72
    plans: Annotated[int, Field(ge=1)] = 4

    @model_validator(mode="after")
    def _ordered(self) -> PlannerSettings:
        if not self.t_p < self.t_f:
            raise problem(f"t_p < t_f = {self.t_f:g}", below=("t_p",), value=self.t_p)
        return self


class HullSettings(StrictModel):
    """Convex hull of points (link frame, m) inflated by a radius (m)."""

    points: Annotated[tuple[Vector3, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    radius: NonNegative


Hulls = Annotated[tuple[HullSettings, ...], BeforeValidator(as_tuple)]


class Settings(StrictModel):
    """Everything that a robot's YAML file says; see config/kinova_gen3.yaml for units and meaning."""

    name: Name
    urdf: Name
    base_link: Name | None = None
    tool_frame: Name
    gravity: Vector3 = (0.0, 0.0, -9.81)
    joints: Annotated[dict[Name, JointSettings], Field(min_length=1)]
    friction_transition_velocity: NonNegative
    uncertainty: UncertaintySettings
    payload: PayloadSettings
    measurement: MeasurementSettings
    actuator: ActuatorSettings
    timing: TimingSettings
    identification: IdentificationSettings
    tare: TareSettings = TareSettings()
    controller: ControllerSettings
    planner: PlannerSettings = PlannerSettings()
    geometry: Annotated[dict[Name, Hulls], Field(default_factory=dict)]
    allowed_pairs: Annotated[tuple[NamePair, ...], BeforeValidator(as_tuple)] = ()
    home: Pose

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
