"""Provably safe online system identification for robot arms; :mod:`safe_sysid.api` says what can be called."""

# ruff: noqa: F405
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safe_sysid.api import *  # noqa: F403

__all__ = [
    "Arm",
    "Intervals",
    "Log",
    "Motion",
    "Run",
    "SafeSysIdError",
    "Verdict",
    "__version__",
    "certify",
    "excite",
    "identify",
    "load_arm",
    "log_from_arrays",
    "plan",
    "read_log",
    "simulate",
    "verify",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: ``safe-sysid --help`` answers before numba is loaded."""
    if name not in __all__:
        raise AttributeError(f"module 'safe_sysid' has no attribute {name!r}: expected one of {', '.join(__all__)}")
    from safe_sysid import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """All of it, for completion."""
    return sorted({*globals(), *__all__})
