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
from safe_sysid.robot.yaml_file import merge, read_yaml, validate

__all__ = [
    "ActuatorSettings",
    "ControllerSettings",
    "EnvelopeSettings",
    "FloorSettings",
    "HullSettings",
    "IdentificationSettings",
    "JointSettings",
    "MeasurementSettings",
    "PayloadSettings",
    "PlannerSettings",
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


class PayloadSettings(StrictModel):
    """What the last link, hand and payload together may be, and where they may reach.

    Attributes:
        prior_lower, prior_upper: (10,) bounds in the last joint's frame, order of ``PAYLOAD_NAMES``.
        envelope: box of the payload.
        hand_links: links of the hand; None for all links that hang on the tool frame.
    """

    prior_lower: Vector10
    prior_upper: Vector10
    envelope: EnvelopeSettings
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
        return self


class MeasurementSettings(StrictModel):
    """Declared bounds of the measurement errors: ``|tau_m - tau| <= torque_abs + torque_rel |tau|``."""

    torque_source: Literal["command", "motor", "link"]
    rate_hz: Positive
    torque_abs: NonNegativePerJoint
    torque_rel: FractionPerJoint
    position_error: NonNegativePerJoint
    velocity_error: NonNegativePerJoint
    max_age_s: Positive = 0.02


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
    """

    window_s: Positive = 0.1
    update_s: Positive = 1.5
    take_after_s: Positive = 0.5
    acceleration_bound: PositivePerJoint


class ControllerSettings(StrictModel):
    """Robust control law and the hypotheses of its tracking theorem (docs/guarantees.md).

    Attributes:
        K_r: slope of ``r = de + K_r e``, 1/s.
        kappa: decay rate, 1/s.
        inertia_ratio: declared ``H_jj``-like bound: ``H <= diag(inertia_ratio * lower rotor inertia)`` along plans.
        velocity, acceleration, jerk: largest |qd|, |qdd_d|, |qddd_d| along plans; rad/s, rad/s^2, rad/s^3.
        uncertainty: largest S along plans, sqrt(W/s).
        blend_s: duration of the blend to a new box.
    """

    K_r: PositivePerJoint = 5.0
    kappa: Positive = 12.0
    inertia_ratio: PositivePerJoint = 2.4
    velocity: PositivePerJoint = 0.6
    acceleration: PositivePerJoint = 0.8
    jerk: PositivePerJoint = 6.0
    uncertainty: Positive
    blend_s: Positive = 0.25


class PlannerSettings(StrictModel):
    """Exciting trajectories: times in s, ``k_range`` in rad, margin in m."""

    t_f: Positive = 3.0
    t_p: Positive = 1.5
    intervals: Annotated[int, Field(ge=2, le=4096)] = 128
    k_range: PositivePerJoint = 0.785
    clearance_margin: NonNegative = 0.005
    iteration_budget: Annotated[int, Field(ge=1)] = 60
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
    controller: ControllerSettings
    planner: PlannerSettings = PlannerSettings()
    geometry: Annotated[dict[Name, Hulls], Field(default_factory=dict)]
    allowed_pairs: Annotated[tuple[NamePair, ...], BeforeValidator(as_tuple)] = ()
    home: Pose

    @model_validator(mode="after")
    def _one_entry_per_joint(self) -> Settings:
        n = len(self.joints)
        values: dict[tuple[str, ...], object] = {("home",): self.home}
        for section in ("measurement", "actuator", "identification", "controller", "planner"):
            for key, value in getattr(self, section):
                values[section, key] = value
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
