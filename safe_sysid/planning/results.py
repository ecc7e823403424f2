"""Options and results of the planner, and the rule that ends a run: more of the same motion narrows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.planning.certification.certificate import PlanCertificate
from safe_sysid.planning.costs import CostSpec
from safe_sysid.planning.optimiser.constraints import Margins
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = [
    "VAIN_SHARE",
    "VAIN_UPDATES",
    "Calibration",
    "PlanStatus",
    "PlannerOptions",
    "PlannerResult",
    "bounds_stopped_improving",
    "hand_over_state",
]


class PlanStatus(Enum):
    """Outcome of a planning attempt; everything but PLANNED means: follow the certified tail, then hold."""

    PLANNED = "planned"
    START_REFUSED = "start refused"
    NO_CERTIFIED_PLAN = "no certified plan"
    STOPPED = "stopped before a certified plan was found"
    NO_LESSON = "no plan that teaches anything"


@dataclass(frozen=True)
class PlannerOptions:
    """Choices of method; physical settings are the robot's (:class:`~safe_sysid.robot.config.PlannerSettings`)."""

    #: what a plan is chosen by, by name or as a sum (:mod:`safe_sysid.planning.costs`)
    cost: str | CostSpec = "condition"
    samples: int = 128  #: of the condition number's horizon
    window: int = 8  #: samples per row of ``condition_momentum``
    starts: int = 32  #: random directions looked at per plan
    keep: int = 5  #: of these, how many are optimised before the first result is certified
    patience: int = 12  #: so many further ones in a row without improvement end the search
    certificates: int = 5  #: at most so many per plan, without a deadline
    reserve_s: float = 0.02  #: s before a deadline at which the search has ended

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            PlanError: an unknown cost, or a count below one.
        """
        CostSpec.parse(self.cost)
        for name in ("samples", "window", "starts", "keep", "patience", "certificates"):
            if getattr(self, name) < 1:
                raise PlanError(f"planner {name} = {getattr(self, name)!r}: expected at least 1")
        if not 0.0 <= self.reserve_s < np.inf:
            raise PlanError(f"planner reserve_s = {self.reserve_s!r}: expected a number >= 0")


@dataclass(frozen=True, eq=False)
class Calibration:
    """What planning taught that helps the next plan; decides nothing about safety."""

    reserve: Margins  #: reserves of the optimiser's margins, from certificates
    #: (14 n, 14 n) what the plans so far tell until their hand-overs, see
    #: :class:`~safe_sysid.planning.costs.CostMemory`
    information: FloatArray
    epoch: int  #: of the box that the information is about; a new payload starts from nothing
    prior: ParameterBox
    certificate_s: float = 0.0  #: longest time that a certificate took, s


@dataclass(frozen=True, eq=False)
class PlannerResult:
    """What a planner found."""

    status: PlanStatus  #: whether there is a plan
    plan: Plan | None = None  #: certified for the box that was asked, or None
    certificate: PlanCertificate | None = None  #: of the plan, or of the last failed attempt, or None
    cost: float = np.nan  #: of the plan, as optimised; nan without a plan
    condition: float = np.nan  #: condition number of all rows so far in columns scaled by the box; nan without a plan
    #: (10, 10) what the plan adds about theta_e until its hand-over; pass the sum to the next call
    information: FloatArray = field(default_factory=lambda: np.zeros((10, 10)))
    iterations: int = 0
    certificates: int = 0
    wall_time: float = 0.0  #: s
    optimise_time: float = 0.0  #: s
    certify_time: float = 0.0  #: s
    first_time: float = np.nan  #: s until the first certified plan; nan without one
    calibration: Calibration | None = None
    reasons: tuple[str, ...] = ()  #: for people; empty if planned
    intervals: int | None = None  #: time cells of the certificate before any splitting; None: the settings'


def hand_over_state(plan: Plan) -> FloatArray:
    """State (3, n) in which the plan after this one starts: position, velocity, acceleration at ``t_plan``."""
    return plan.trajectory.state(plan.t_plan)[:3]


#: So many updates in a row without improvement end a run.
VAIN_UPDATES = 2
#: An update is in vain if no interval became narrower by more than this share of its width.
VAIN_SHARE = 0.1


def bounds_stopped_improving(history: Sequence[ParameterBox], updates: int = VAIN_UPDATES) -> bool:
    """Whether each of the last ``updates`` was in vain for all of theta_e's ten intervals.

    ``history``: boxes in the order of their publication, the prior first.

    Raises:
        PlanError: ``updates`` below 1.
    """
    if updates < 1:
        raise PlanError(f"updates = {updates!r}: expected at least 1")
    if len(history) < updates + 1:
        return False
    for before, after in zip(history[-updates - 1 : -1], history[-updates:], strict=True):
        if before.epoch != after.epoch:
            return False
        old, new = (box.payload_upper - box.payload_lower for box in (before, after))
        if np.any(old - new > VAIN_SHARE * old):
            return False
    return True
