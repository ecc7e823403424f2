"""A plan: the trajectory, when it starts, which box of parameters it was made for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import PlanError
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["Plan"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Plan:
    """What the planner hands to the controller.

    Attributes:
        trajectory: ends at rest; its second part is the braking manoeuvre.
        start_time: ROS time of the first knot, s.
        t_plan: trajectory time at which the next plan takes over, s.
        box_identity: ``epoch:seq`` of the parameter box that the plan is certified for.
        sequence: counts plans of a run.
        k: (n,) the optimiser's variables, in [-1, 1].
    """

    trajectory: QuinticTrajectory
    start_time: float
    t_plan: float
    box_identity: str
    sequence: int
    k: FloatArray

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            PlanError: a time is not finite, or the hand-over lies outside of the trajectory.
        """
        if not np.isfinite(self.start_time):
            raise PlanError(f"start_time = {self.start_time!r}: expected a finite time in s")
        if not 0.0 < self.t_plan <= self.trajectory.duration:
            raise PlanError(f"t_plan = {self.t_plan!r}: expected 0 < t_plan <= {self.trajectory.duration} s")
        if not isinstance(self.sequence, int) or self.sequence < 0:
            raise PlanError(f"sequence = {self.sequence!r}: expected a non-negative integer")
        object.__setattr__(self, "k", frozen_array(self.k, (self.trajectory.n,), "plan k"))
