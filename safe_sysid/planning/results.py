"""Options and results of the planner."""

from __future__ import annotations

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

__all__ = ["Calibration", "PlanStatus", "PlannerOptions", "PlannerResult", "hand_over_state"]


class PlanStatus(Enum):
    """Outcome of a planning attempt; everything but PLANNED means: follow the certified tail, then hold."""

    PLANNED = "planned"
    START_REFUSED = "start refused"
    NO_CERTIFIED_PLAN = "no certified plan"
    STOPPED = "stopped before a certified plan was found"
    NO_LESSON = "no plan that teaches anything"


@dataclass(frozen=True)
class PlannerOptions:
    """Choices of method; physical settings are the robot's (:class:`~safe_sysid.robot.config.PlannerSettings`).

    Attributes:
        cost: what a plan is chosen by, by name or as a sum (:mod:`safe_sysid.planning.costs`).
        samples: of the condition number's horizon.
        window: samples per row of ``condition_momentum``.
        starts: random directions looked at per plan.
        keep: of these, how many are optimised before the first result is certified.
        patience: so many further ones in a row without improvement end the search.
        certificates: at most so many per plan, without a deadline.
        reserve_s: s before a deadline at which the search has ended.
    """

    cost: str | CostSpec = "condition"
    samples: int = 128
    window: int = 8
    starts: int = 32
    keep: int = 5
    patience: int = 12
    certificates: int = 5
    reserve_s: float = 0.02

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
    """What planning taught that helps the next plan; decides nothing about safety.

    Attributes:
        reserve: reserves of the optimiser's margins, from certificates.
        information: (14 n, 14 n) what the plans so far tell until their hand-overs, see
            :class:`~safe_sysid.planning.costs.CostMemory`.
        epoch: of the box that the information is about; a new payload starts from nothing.
        certificate_s: longest time that a certificate took, s.
    """

    reserve: Margins
    information: FloatArray
    epoch: int
    prior: ParameterBox
    certificate_s: float = 0.0


@dataclass(frozen=True, eq=False)
class PlannerResult:
    """What a planner found.

    Attributes:
        status: whether there is a plan.
        plan: certified for the box that was asked, or None.
        certificate: of the plan, or of the last failed attempt, or None.
        cost: of the plan, as optimised; nan without a plan.
        condition: condition number of all rows so far in columns scaled by the box; nan without a plan.
        information: (10, 10) what the plan adds about theta_e until its hand-over; pass the sum to the next call.
        wall_time, optimise_time, certify_time: s.
        first_time: s until the first certified plan; nan without one.
        reasons: for people; empty if planned.
        intervals: time cells of the certificate before any splitting; None: the settings'.
    """

    status: PlanStatus
    plan: Plan | None = None
    certificate: PlanCertificate | None = None
    cost: float = np.nan
    condition: float = np.nan
    information: FloatArray = field(default_factory=lambda: np.zeros((10, 10)))
    iterations: int = 0
    certificates: int = 0
    wall_time: float = 0.0
    optimise_time: float = 0.0
    certify_time: float = 0.0
    first_time: float = np.nan
    calibration: Calibration | None = None
    reasons: tuple[str, ...] = ()
    intervals: int | None = None


def hand_over_state(plan: Plan) -> FloatArray:
    """State (3, n) in which the plan after this one starts: position, velocity, acceleration at ``t_plan``."""
    return plan.trajectory.state(plan.t_plan)[:3]
