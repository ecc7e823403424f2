"""The Plan: a trajectory with the identity of the parameter box it is certified for. One of the five nouns."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["Plan", "parse_identity"]

_IDENTITY = re.compile(r"(0|[1-9]\d{0,8}):(0|[1-9]\d{0,8})")


def parse_identity(text: str) -> tuple[int, int]:
    """``"epoch:seq"`` as two integers.

    Raises:
        PlanError: anything else.
    """
    match = _IDENTITY.fullmatch(text)
    if match is None:
        raise PlanError(f"box identity {text[:40]!r}: expected 'epoch:seq', two non-negative integers")
    return int(match[1]), int(match[2])


@dataclass(frozen=True, eq=False)
class Plan:
    """A certified motion that ends at rest; from ``t_plan`` on it is the braking manoeuvre."""

    trajectory: QuinticTrajectory  #: the motion; its time 0 is ``start_time``
    start_time: float  #: s, on the clock of the measurements
    t_plan: float  #: s after the start at which the next plan may take over
    box_identity: str  #: ``epoch:seq`` of the box that it is certified for
    sequence: int
    k: FloatArray  #: (n,) parameter that the optimiser chose, in [-1, 1]; for the record
    #: the tracking tube that it is certified for: place in :func:`~safe_sysid.control.tube.tubes_of`, 0 the widest
    tube: int = 0

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            PlanError: times or identity are malformed.
        """
        if not np.isfinite(self.start_time):
            raise PlanError(f"plan.start_time = {self.start_time!r}: expected a finite time")
        if not 0.0 < self.t_plan <= self.trajectory.duration:
            raise PlanError(
                f"plan.t_plan = {self.t_plan!r}: expected a time in (0, {self.trajectory.duration}], its duration"
            )
        if not isinstance(self.sequence, int) or self.sequence < 0:
            raise PlanError(f"plan.sequence = {self.sequence!r}: expected a non-negative integer")
        if not isinstance(self.tube, int) or self.tube < 0:
            raise PlanError(f"plan.tube = {self.tube!r}: expected a non-negative integer")
        parse_identity(self.box_identity)
        object.__setattr__(self, "k", frozen_array(self.k, (self.trajectory.n,), "plan.k"))

    @property
    def end_time(self) -> float:
        """When the arm is at rest again if no other plan takes over, s."""
        return self.start_time + self.trajectory.duration

    @property
    def hand_over_time(self) -> float:
        """When the next plan may take over, s."""
        return self.start_time + self.t_plan
