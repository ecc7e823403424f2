"""Choice of the tracking tube that a plan from rest is made for: the narrowest that a box allows nearly everywhere.

A proposal, no proof: the certificate shows that S stays below what the tube assumes, along the plan. But a tube that
is too narrow for the box would only keep the arm from moving, so it is chosen with some room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.tube import TrackingTube, tubes_of
from safe_sysid.core.arrays import FloatArray
from safe_sysid.reachability.cells import TrackingSet, cells_between
from safe_sysid.reachability.torque import TorqueTask
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["fitting_tube", "narrowest_tube"]

#: Poses that are looked at, and what motion adds to S there, as a share.
_POSES, _MOTION = 64, 1.15


def narrowest_tube(model: RobotModel, tubes: Sequence[TrackingTube], box: ParameterBox) -> int:
    """Place of the narrowest tube whose bound of S the box keeps at every pose that is looked at, with room to move.

    Args:
        tubes: of :func:`~safe_sysid.control.tube.tubes_of`.
        box: that holds the parameters.
    """
    poses = _poses(model)

    def asked(tube: TrackingTube) -> float:
        if not isinstance(tube, ControllerGains):  # there is but one measured tube
            return np.inf
        return _MOTION * float(np.max(_resting_uncertainty(model, tube, box, poses)))

    if len(tubes) < 2:
        return 0
    least = asked(tubes[-1])  # a wider tube asks for more
    for i, tube in reversed(list(enumerate(tubes))[1:]):
        most = tube.assumptions.uncertainty
        if least <= most and asked(tube) <= most:
            return i
    return 0


def fitting_tube(model: RobotModel, gains: TrackingTube, box: ParameterBox) -> TrackingTube:
    """The tube that plans from rest are made for with a box. ``gains``: the controller's, the widest tube."""
    tubes = tubes_of(model, gains)
    return tubes[narrowest_tube(model, tubes, box)]


def _poses(model: RobotModel) -> FloatArray:
    """(N, n) rad within the limits, the same ones for every box; a joint without limits may have any angle."""
    lower, upper = (np.asarray(x, float) for x in (model.limits.position_lower, model.limits.position_upper))
    endless = ~(np.isfinite(lower) & np.isfinite(upper))
    lower, upper = np.where(endless, -np.pi, lower), np.where(endless, np.pi, upper)
    return np.random.default_rng(0).uniform(lower, upper, (_POSES, model.n))


def _resting_uncertainty(model: RobotModel, gains: ControllerGains, box: ParameterBox, poses: FloatArray) -> FloatArray:
    """(N,) bounds of S, sqrt(W/s), while the arm is held at poses (N, n), tracking errors included."""
    starts = np.arange(0.0, 2.0 * len(poses), 2.0)
    times = np.stack([starts, starts + 1.0], axis=1).ravel()
    knots = np.zeros((len(times), 3, model.n))
    knots[:, 0] = np.repeat(poses, 2, axis=0)
    a = gains.assumptions
    task = TorqueTask(
        model.kinematics,
        box,
        cells_between(QuinticTrajectory(times, knots), times.reshape(-1, 2)),
        TrackingSet.of(gains, model.n).enlarged(a.position_error, a.velocity_error),
        gains.K_d,
        gains.inertia_lower,
        model.friction_transition_velocity,
        lead=gains.lead,
    )
    task.run()
    return np.asarray(task.enclosure().measure)
