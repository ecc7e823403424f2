"""Budget of a search: time, iterations and certificates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Budget"]


@dataclass
class Budget:
    """How long to search; whatever runs out first ends it."""

    iterations: int = 60
    certificates: int = 4
    #: reading of ``clock`` at which to be done, s; None for none (then the search is deterministic)
    deadline: float | None = None
    cancelled: Callable[[], bool] | None = None  #: asked often; True ends the search with what there is
    clock: Callable[[], float] = time.monotonic  #: monotonic clock, s
    certificate_s: float = 0.0  #: s that a certificate is expected to take before one was made
    reserve: float = 0.0  #: s before the deadline at which all is done: for what cannot be interrupted
    worthwhile: float = 0.04  #: a certified plan is only replaced by a candidate whose cost is lower by this much

    def stopped(self, needed: float = 0.0) -> bool:
        """Whether cancelled, or fewer than ``needed`` seconds are left before the reserve."""
        if self.cancelled is not None and self.cancelled():
            return True
        return self.deadline is not None and self.clock() + needed + self.reserve >= self.deadline
