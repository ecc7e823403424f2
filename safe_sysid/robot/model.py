"""Robot model: kinematics, limits, parameters and geometry, validated once and read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.kinematics import NO_MOTORS, Kinematics, Motors, PackedKinematics, frozen_motors, read_only
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.robot.unknowns import NO_UNKNOWNS, Unknowns

if TYPE_CHECKING:
    from safe_sysid.robot.config import Settings

__all__ = ["NO_MOTORS", "Body", "JointLimits", "Kinematics", "Motors", "PackedKinematics", "RobotModel", "read_only"]

MAX_JOINTS = 9


@dataclass(frozen=True, eq=False)
class JointLimits:
    """Position (infinite for continuous joints), velocity and torque limits, each (n,).

    In rad, rad/s and N m; of prismatic joints in m, m/s and N.
    """

    position_lower: FloatArray
    position_upper: FloatArray
    velocity: FloatArray
    torque: FloatArray

    def __post_init__(self) -> None:
        n = np.size(self.velocity)
        for name in ("position_lower", "position_upper", "velocity", "torque"):
            finite = not name.startswith("position")
            array = frozen_array(getattr(self, name), (n,), f"JointLimits.{name}", finite=finite)
            if np.any(np.isnan(array)) or (finite and np.any(array <= 0.0)):
                raise ModelError(f"JointLimits.{name} = {array.tolist()}: expected positive numbers")
            object.__setattr__(self, name, array)
        if np.any(self.position_lower >= self.position_upper):
            raise ModelError("JointLimits.position: expected lower < upper for every joint")


@dataclass(frozen=True, eq=False)
class Body:
    """Convex hull of points, inflated by a radius; covers a part of the real geometry."""

    name: str  #: unique
    joint: int  #: index of the joint frame it moves with, -1 for fixed to the world
    points: FloatArray  #: (m, 3) in that frame, m
    radius: float  #: >= 0, m
    kind: str = "arm"
    link: str = ""  #: of the URDF that it covers; empty for what is no link: the payload, obstacles

    def __post_init__(self) -> None:
        points = np.atleast_2d(np.asarray(self.points, float))
        object.__setattr__(self, "points", frozen_array(points, (len(points), 3), f"Body {self.name}.points"))
        if not (self.radius >= 0.0 and np.isfinite(self.radius)):
            raise ModelError(f"Body {self.name}.radius = {self.radius!r}: expected a number >= 0")


@dataclass(frozen=True, eq=False)
class RobotModel:
    """A serial arm of 1 to 9 revolute, continuous or prismatic joints.

    Wherever the package says rad, rad/s, N m or kg m^2 of a joint, those of a prismatic one are m, m/s, N and kg.
    """

    name: str
    joint_names: tuple[str, ...]  #: n names, base to tip; messages are matched by these
    kinematics: Kinematics
    limits: JointLimits
    continuous: BoolArray  #: (n,) bool, joints without position limits that wrap
    theta_nominal: FloatArray  #: (14 n,) bare arm with empty hand
    arm_prior: ParameterBox  #: box that holds the truth: arm within its declared uncertainty, theta_e the payload prior
    friction_transition_velocity: float  #: below it (rad/s, m/s) the sign of Coulomb friction is unknown
    #: rotation (3, 3) and translation (3,) of the tool frame in the last joint frame
    flange: tuple[FloatArray, FloatArray]
    bodies: tuple[Body, ...]
    #: pairs of body names that are not checked, see :mod:`safe_sysid.robot.shapes.pairs`
    allowed_pairs: frozenset[frozenset[str]]
    settings: Settings
    #: as ``flange``, of the link that payloads hang on; None: the flange is it
    payload_placement: tuple[FloatArray, FloatArray] | None = None
    unknowns: Unknowns = NO_UNKNOWNS  #: constants that equations have besides the parameters

    def __post_init__(self) -> None:
        n = len(self.joint_names)
        if not 1 <= n <= MAX_JOINTS:
            raise ModelError(f"robot {self.name}: {n} joints: expected 1 to {MAX_JOINTS}")
        if len(set(self.joint_names)) != n:
            raise ModelError(f"robot {self.name}: joint names {self.joint_names}: expected them to be unique")
        kin = self.kinematics
        parent = np.array(kin.parent, dtype=np.int64)
        if parent.tolist() != list(range(-1, n - 1)):
            expected = "those of a serial chain, -1, 0, ..: an arm has one tip (`tip_link`)"
            raise ModelError(f"kinematics.parent = {parent.tolist()}: expected {expected}")
        parent.setflags(write=False)
        kinematics = Kinematics(
            parent,
            frozen_array(kin.rotation, (n, 3, 3), "kinematics.rotation"),
            frozen_array(kin.translation, (n, 3), "kinematics.translation"),
            frozen_array(kin.axis, (n, 3), "kinematics.axis"),
            frozen_array(kin.gravity, (3,), "kinematics.gravity"),
            frozen_array(kin.travel, (n, 2), "kinematics.travel", finite=False),
            frozen_array(kin.excess, (n if len(kin.excess) else 0, 3), "kinematics.excess"),
            frozen_motors(kin.motors, n),
        )
        for j, name in enumerate(self.joint_names):
            # Enclosures take an axis as a unit vector but for rounding.
            if abs(np.linalg.norm(kinematics.axis[j]) - 1.0) > 1e-14:
                raise ModelError(f"joint {name}: axis {kinematics.axis[j].tolist()}: expected a unit vector")
            low, high = kinematics.travel[j]
            if not (low < high and np.isfinite(low) == np.isfinite(high)):
                raise ModelError(f"joint {name}: travel [{low}, {high}] m: expected lower < upper, both finite or none")
        object.__setattr__(self, "kinematics", kinematics)
        unknowns = self.unknowns if len(self.unknowns.zero) else Unknowns(np.zeros(n))
        frozen_array(unknowns.zero, (n,), "unknowns.zero")
        frozen_motors(unknowns.applied(kinematics).motors, n)  # no joint has two motors
        object.__setattr__(self, "unknowns", unknowns)
        object.__setattr__(
            self, "theta_nominal", frozen_array(self.theta_nominal, (self.layout.size,), "theta_nominal")
        )
        continuous = np.array(self.continuous, dtype=bool)
        continuous.setflags(write=False)
        object.__setattr__(self, "continuous", continuous)
        if self.arm_prior.size != self.layout.size:
            raise ModelError(f"arm_prior has {self.arm_prior.size} parameters: expected {self.layout.size}")
        names = [body.name for body in self.bodies]
        if len(set(names)) != len(names):
            raise ModelError(f"robot {self.name}: body names {names}: expected them to be unique")

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)

    @property
    def layout(self) -> ParameterLayout:
        """Where everything lies in vectors of all parameters."""
        return ParameterLayout(self.n)

    @property
    def payload_link(self) -> str:
        """Link that payloads hang on: their frame."""
        return self.settings.payload.link or self.settings.tool_frame

    @property
    def payload_frame(self) -> tuple[FloatArray, FloatArray]:
        """Rotation (3, 3) and translation (3,) of the payload's frame in the last joint frame."""
        return self.flange if self.payload_placement is None else self.payload_placement

    def shortest_way(self, gap: FloatArray) -> FloatArray:
        """A difference of positions without whole turns of continuous joints. ``gap``: (..., n) rad or m."""
        return np.where(self.continuous, gap - 2.0 * np.pi * np.round(gap / (2.0 * np.pi)), gap)

    @property
    def sliding(self) -> BoolArray:
        """(n,) prismatic joints."""
        return self.kinematics.sliding

    @property
    def position_units(self) -> tuple[str, ...]:
        """Unit of each joint's position, "rad" or "m", for messages."""
        return tuple("m" if slides else "rad" for slides in self.sliding)

    @property
    def acceleration_bound(self) -> FloatArray:
        """(n,) |qdd| that the arm never exceeds, rad/s^2 or m/s^2: ``identification.acceleration_bound``."""
        return per_joint(self.settings.identification.acceleration_bound, self.n)

    @property
    def torque_units(self) -> tuple[str, ...]:
        """Unit of each joint's effort, "N m" or "N", for messages."""
        return tuple("N" if slides else "N m" for slides in self.sliding)

    def require_turning(self, what: str) -> None:
        """Refuse prismatic joints where only turning ones are covered.

        Raises:
            ConfigError: the arm has a prismatic joint; names it.
        """
        for name in (name for name, slides in zip(self.joint_names, self.sliding, strict=True) if slides):
            expected = f"only revolute or continuous joints of the arm for {what}; or a position for it under `locked`"
            raise ConfigError(self.name, f"joints.{name}", "prismatic", expected)

    @property
    def position_error(self) -> FloatArray:
        """(n,) how far a measured position may be off the true one, the joint's zero included, rad or m."""
        return per_joint(self.settings.measurement.position_error, self.n) + self.unknowns.zero

    def require_known_reactions(self, what: str) -> None:
        """Refuse motors on moving links whose ratio is not known where a part of the dynamics would be missing.

        Raises:
            ConfigError: a joint has such a motor; names it.
        """
        for j in self.unknowns.motors.joint:
            name = self.joint_names[j]
            expected = f"one number, `gear_ratio`, for {what}: a range serves identification alone"
            key, value = f"joints.{name}.gear_ratio_range", self.settings.joints[name].gear_ratio_range
            raise ConfigError(self.name, key, value, expected)

    def require_known_drives(self, what: str) -> None:
        """Refuse an arm that is for identification alone: nothing is known of its drives.

        Raises:
            ConfigError: the file says so.
        """
        if self.settings.drives == "unknown":
            raise ConfigError(
                self.name,
                "drives",
                "unknown",
                f"`declared` for {what}: this file is for identification only (identify, tare, verify, reports, "
                "replay); with measured friction and rotor inertia: safe-sysid config init --drives FILE; for a "
                "simulation of drives that no arm has: config init --simulated-drives",
            )

    @property
    def drive_note(self) -> str:
        """What every output about this arm says of its drives; empty where they are declared."""
        return {
            "simulated": f"drives of {self.name} are simulated: friction and rotor inertia were chosen for a simulation"
            ", nothing here is proved of a real arm",
            "unknown": f"drives of {self.name} are unknown: friction and rotor inertia lie anywhere in wide intervals"
            ", so an estimate may be far off; rely on intervals",
        }.get(self.settings.drives, "")

    @property
    def undeclared_gears(self) -> tuple[str, ...]:
        """Joints with rotor inertia whose rotor may turn in a moving link, but no gear ratio: taken not to.

        The first joint's motor is carried by what does not move.
        """
        prior, joints = self.arm_prior.upper[self.layout.rotor_inertia], self.settings.joints
        return tuple(
            name
            for j, name in enumerate(self.joint_names)
            if j > 0 and prior[j] > 0.0 and joints[name].gear_ratio is None and joints[name].gear_ratio_range is None
        )

    @property
    def model_assumptions(self) -> tuple[str, ...]:
        """What every verdict on this arm rests on besides what it declares, in words."""
        off = [
            f"{name} within {zero!r} {unit}"
            for name, zero, unit in zip(self.joint_names, self.unknowns.zero.tolist(), self.position_units, strict=True)
            if zero > 0.0
        ]
        zeros = f"joint zeros, but for constant offsets of {', '.join(off)}" if off else "joint zeros"
        exact = f"the kinematics of the arm (placements, axes, {zeros}) are exactly those of its URDF"
        told = [exact]
        if len(self.unknowns.motors.joint):
            joints = ", ".join(self.joint_names[j] for j in self.unknowns.motors.joint)
            told.append(
                f"the rotors of {joints} turn about their declared axes in their declared links, each with one ratio "
                "of its declared range"
            )
        if self.undeclared_gears:
            joints = ", ".join(self.undeclared_gears)
            told.append(f"the rotors of {joints} do not turn in moving links: no gear_ratio is declared for them")
        return tuple(told)

    def proved_link(self, j: int) -> tuple[FloatArray, FloatArray] | None:
        """Bounds (10,), (10,) of link j that the settings call proved; None: those of `uncertainty` stand."""
        joint = self.settings.joints.get(self.joint_names[j])
        if joint is None or joint.proved.link_lower is None or joint.proved.link_upper is None:
            return None
        return np.array(joint.proved.link_lower, float), np.array(joint.proved.link_upper, float)

    @property
    def empty_handed_prior(self) -> ParameterBox:
        """Prior of the arm with the empty hand: the hand's prior in the place of theta_e's."""
        return self.arm_prior.with_payload(*self.hand_prior)

    @property
    def hand_prior(self) -> tuple[FloatArray, FloatArray]:
        """Bounds (10,), (10,) of the last link with the *empty* hand, at any opening.

        Its nominal within the declared uncertainty, and within what opening the hand changes: the nominal is that of
        one opening, a tare may be taken at another, and a payload be held at a third.

        The prior box's own theta_e block cannot serve: it is that of hand and payload together. What is proved of the
        last joint's link takes its place, as for other links.
        """
        proved = self.proved_link(self.n - 1)
        if proved is not None:
            return frozen_array(proved[0], (10,), "hand_prior"), frozen_array(proved[1], (10,), "hand_prior")
        uncertainty = self.settings.uncertainty
        floor = uncertainty.floor
        floors = np.array([floor.mass, *(floor.first_moment,) * 3, *(floor.inertia,) * 6])
        nominal = self.theta_nominal[self.layout.payload]
        # One part in 10^15 more: a truth at exactly the declared 5 % must not fall out by rounding.
        opening = np.asarray(self.settings.payload.hand_opening, float)
        radius = (uncertainty.relative * np.abs(nominal) + floors + opening) * (1.0 + 1e-15)
        lower, upper = np.nextafter(nominal - radius, -np.inf), np.nextafter(nominal + radius, np.inf)
        lower[0] = max(lower[0], 0.0)
        return frozen_array(lower, (10,), "hand_prior"), frozen_array(upper, (10,), "hand_prior")
