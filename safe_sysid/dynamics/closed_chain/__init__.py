"""Arms with closed loops: which joints are driven, how the others follow, and the dynamics that the motors see."""

from __future__ import annotations

from safe_sysid.dynamics.closed_chain.files import load_mechanism
from safe_sysid.dynamics.closed_chain.mechanism import Mechanism
from safe_sysid.dynamics.closed_chain.parts import ClosureError, LoopClosure, MechanismMotion
from safe_sysid.dynamics.closed_chain.uniqueness import Uniqueness, check_uniqueness

__all__ = [
    "ClosureError",
    "LoopClosure",
    "Mechanism",
    "MechanismMotion",
    "Uniqueness",
    "check_uniqueness",
    "load_mechanism",
]
