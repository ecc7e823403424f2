"""Planning: excitation costs, fast constraints, the search, and the certificate that decides."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safe_sysid.planning.certification.certificate import PlanCertificate, start_check, verify_plan
    from safe_sysid.planning.optimiser.optimise import Budget
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
    "PlanCertificate",
    "PlanStatus",
    "Planner",
    "PlannerOptions",
    "PlannerResult",
    "bounds_stopped_improving",
    "hand_over_state",
    "start_check",
    "verify_plan",
]

_HOMES = {
    "Budget": "optimiser.optimise",
    **dict.fromkeys(("PlanCertificate", "start_check", "verify_plan"), "certification.certificate"),
}


def __getattr__(name: str) -> Any:
    # Not before it is asked for: who starts a solver process does so before anything heavy is imported.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'planner')}"), name)
