"""Limits of a motion for one theta, the distances to keep from them, and what a motion keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import PlanError
from safe_sysid.planning.distances.pair_distances import SEARCH_DISTANCE, PairDistances
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.trajectories.extrema import derivative_range
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = [
    "DISTANCE_STEP",
    "TORQUE_STEP",
    "LimitDistances",
    "MotionLimits",
    "check_times",
    "kept_by",
    "torques",
    "without_coulomb",
]

#: Steps of the dense check, s.
TORQUE_STEP, DISTANCE_STEP = 1e-3, 2e-3


@dataclass(frozen=True, eq=False)
class MotionLimits:
    """Limits, each (n,): rad (infinite where there is none), rad/s, rad/s^2 (infinite: none), N m."""

    position_lower: FloatArray
    position_upper: FloatArray
    velocity: FloatArray
    acceleration: FloatArray
    torque: FloatArray

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            PlanError: a limit that is not positive.
        """
        n = np.size(self.velocity)
        for name in ("position_lower", "position_upper", "velocity", "acceleration", "torque"):
            value = np.asarray(getattr(self, name), float)
            array = frozen_array(value, (n,), f"MotionLimits.{name}", finite=False)
            if np.any(np.isnan(array)) or (not name.startswith("position") and not np.all(array > 0.0)):
                raise PlanError(f"MotionLimits.{name} = {array.tolist()}: expected positive numbers")
            object.__setattr__(self, name, array)

    @classmethod
    def of(
        cls,
        model: RobotModel,
        torque: ArrayLike | None = None,
        velocity: ArrayLike | None = None,
        acceleration: ArrayLike | None = None,
    ) -> MotionLimits:
        """The model's limits, some of them replaced.

        Args:
            torque: N m; per joint or one for all.
            velocity: rad/s; the same.
            acceleration: rad/s^2; the same; None for none.
        """
        own, n = model.limits, model.n
        chosen = (
            own.velocity if velocity is None else velocity,
            np.inf if acceleration is None else acceleration,
            own.torque if torque is None else torque,
        )
        return cls(
            own.position_lower,
            own.position_upper,
            *(np.array(np.broadcast_to(np.asarray(value, float), (n,))) for value in chosen),
        )


@dataclass(frozen=True)
class LimitDistances:
    """How far to stay away from limits."""

    position: float = 0.02  #: rad
    velocity: float = 0.05  #: shares of their limits
    acceleration: float = 0.0  #: shares of their limits
    torque: float = 0.1  #: shares of their limits
    #: clearance, self_clearance: m. Near its ends a motion may be as near to something as the end itself is, and
    #: ``opening`` m more per rad (2-norm) away from there.
    clearance: float = 0.02
    self_clearance: float = 0.01
    opening: float = 0.1  #: m/rad

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            PlanError: a negative number, a share of all, or a distance beyond what is looked at.
        """
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            most = 1.0 if name in ("velocity", "acceleration", "torque") else math.inf
            if name.endswith("clearance"):
                most = SEARCH_DISTANCE
            if not (0.0 <= value < most):
                raise PlanError(f"LimitDistances.{name} = {value!r}: expected a number from 0 to below {most:g}")


def torques(model: RobotModel, theta: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
    """Largest magnitudes (N, n) of the joint torques over the sign of Coulomb friction, N m."""
    coulomb = theta[model.layout.coulomb]
    smooth = dynamics_of(model.kinematics).torque_regressor(q, qd, qdd) @ without_coulomb(theta)
    return np.asarray(np.abs(smooth) + np.abs(coulomb))


def without_coulomb(theta: FloatArray) -> FloatArray:
    """Parameters (14 n,) with Coulomb friction left out."""
    out = np.array(theta)
    out[ParameterLayout.of_size(len(out)).coulomb] = 0.0
    return out


def kept_by(
    model: RobotModel, theta: ArrayLike, distances: PairDistances, trajectory: QuinticTrajectory, limits: MotionLimits
) -> dict[str, Margin]:
    """Smallest distance of a motion to each family of limits: exact for position and rates, else dense samples."""
    if trajectory.n != model.n:
        raise PlanError(f"motion of {trajectory.n} joints: expected {model.n} as {model.name}")
    theta = frozen_array(theta, (model.layout.size,), "theta")
    end, joints = trajectory.duration, model.joint_names
    fine_times = check_times(trajectory.times, TORQUE_STEP)
    fine = trajectory.states(fine_times)
    out = {}
    bounds = (
        ("position", limits.position_lower, limits.position_upper),
        ("velocity", -limits.velocity, limits.velocity),
        ("acceleration", -limits.acceleration, limits.acceleration),
    )
    for order, (name, lower, upper) in enumerate(bounds):
        ranges = derivative_range(trajectory, order, 0.0, end)
        room = np.minimum(ranges[:, 0] - lower, upper - ranges[:, 1])
        joint = int(np.argmin(room))
        when = int(np.argmin(np.minimum(fine[:, order] - lower, upper - fine[:, order])[:, joint]))
        out[name] = Margin(name, joints[joint], "", float(room[joint]), float(fine_times[when]))
    q, qd, qdd = (np.ascontiguousarray(fine[:, i]) for i in range(3))
    room = limits.torque - torques(model, theta, q, qd, qdd)
    out["torque"] = Margin.smallest("torque", [(joint, "") for joint in joints], room, fine_times)
    times = check_times(trajectory.times, DISTANCE_STEP)
    found, _ = distances.at(trajectory.states(times)[:, 0], want_slopes=False)
    for name, mine in (("clearance", ~distances.is_self), ("self_clearance", distances.is_self)):
        pairs = [distances.names[i] for i in np.flatnonzero(mine)]
        out[name] = Margin.smallest(name, pairs, found[:, mine], times)
    return out


def check_times(knots: ArrayLike, step: float) -> FloatArray:
    """Times (N,) at most ``step`` apart, knots (K,) and both ends included, s."""
    knots = np.asarray(knots, float)
    parts = [np.linspace(a, b, max(math.ceil((b - a) / step), 1), endpoint=False) for a, b in pairwise(knots)]
    # The end's own acceleration is that of rest; what leads to it is one rounding before.
    return np.concatenate([*parts, [np.nextafter(knots[-1], 0.0), knots[-1]]])
