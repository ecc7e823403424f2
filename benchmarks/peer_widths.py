"""What the enclosures of one trajectory of the peer's problem add to torques and spheres, for one controller."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from peer_setup import PublishedGains, nothing, sphere_growth

from safe_sysid.control.gains import ControllerGains
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.torque import enclose_torque
from safe_sysid.robot.model import RobotModel
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["Widths", "mean_of", "ours", "published"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Widths:
    """What the enclosures of one trajectory add: mean and largest over cells and joints, or cells and spheres.

    Attributes:
        torque_mean, torque_max: half width with tracking error, N m.
        torque_mean_still, torque_max_still: without.
        growth_mean, growth_max: with tracking error, m.
        growth_mean_still, growth_max_still: without.
    """

    torque_mean: float
    torque_max: float
    torque_mean_still: float
    torque_max_still: float
    growth_mean: float
    growth_max: float
    growth_mean_still: float
    growth_max_still: float


def ours(model: RobotModel, gains: ControllerGains, trajectory: QuinticTrajectory, intervals: int) -> Widths:
    """Widths with our controller: what it may command at all, robust term and damping included."""
    true, assume = TrackingSet.of(gains, model.n), gains.assumptions
    measured = true.enlarged(assume.position_error, assume.velocity_error)
    cells = time_cells(trajectory, intervals)
    torque, growth = [], []
    for tube, moved in ((measured, true), (nothing(measured), nothing(true))):
        found = enclose_torque(
            model.kinematics,
            model.arm_prior,
            cells,
            tube,
            gains.K_d,
            gains.inertia_lower,
            model.friction_transition_velocity,
        )
        torque.append(0.5 * (found.torque[..., 1] - found.torque[..., 0]))
        growth.append(sphere_growth(model, cells, moved))
    return _widths(torque, growth)


def published(model: RobotModel, trajectory: QuinticTrajectory, intervals: int) -> Widths:
    """Widths with the published gains and robust input, in our enclosures."""
    law, cells = PublishedGains(), time_cells(trajectory, intervals)
    tracking, zero = law.tracking(model.n), np.zeros(model.n)
    torque, growth = [], []
    for tube, robust in ((tracking, True), (nothing(tracking), False)):
        found = enclose_torque(
            model.kinematics,
            model.arm_prior,
            cells,
            tube,
            zero,
            np.ones(model.n),
            model.friction_transition_velocity,
        )
        nominal = 0.5 * (found.nominal[..., 1] - found.nominal[..., 0])
        torque.append(law.half_width(nominal, found.spread, robust))
        growth.append(sphere_growth(model, cells, tube))
    return _widths(torque, growth)


def _widths(torque: list[FloatArray], growth: list[FloatArray]) -> Widths:
    numbers = [float(f(x)) for pair in (torque, growth) for x in pair for f in (np.mean, np.max)]
    return Widths(*numbers)


def mean_of(widths: list[Widths]) -> Widths:
    """Mean of the means, largest of the largest."""
    rows = {k: [asdict(w)[k] for w in widths] for k in asdict(widths[0])}
    return Widths(**{k: float(np.max(v) if "_max" in k else np.mean(v)) for k, v in rows.items()})
