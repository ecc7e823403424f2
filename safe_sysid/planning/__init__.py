"""Planning: excitation costs, fast constraints, the search, and the certificate that decides."""

from safe_sysid.planning.certificate import Certificate, start_check, verify_plan
from safe_sysid.planning.optimise import Budget
from safe_sysid.planning.planner import (
    Calibration,
    Planner,
    PlannerOptions,
    PlannerResult,
    PlanStatus,
    bounds_stopped_improving,
    hand_over_state,
)

__all__ = [
    "Budget",
    "Calibration",
    "Certificate",
    "PlanStatus",
    "Planner",
    "PlannerOptions",
    "PlannerResult",
    "bounds_stopped_improving",
    "hand_over_state",
    "start_check",
    "verify_plan",
]
