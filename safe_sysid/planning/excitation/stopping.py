"""Stopping rule: when more of the same motion no longer narrows the bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from safe_sysid.errors import PlanError
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["VAIN_SHARE", "VAIN_UPDATES", "bounds_stopped_improving"]

#: So many updates in a row without improvement end a run.
VAIN_UPDATES = 2
#: An update is in vain if no interval became narrower by more than this share of its width.
VAIN_SHARE = 0.1


def bounds_stopped_improving(history: Sequence[ParameterBox], updates: int = VAIN_UPDATES) -> bool:
    """Whether each of the last ``updates`` was in vain for all of theta_e's ten intervals.

    ``history``: boxes in the order of their publication, the prior first.
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
