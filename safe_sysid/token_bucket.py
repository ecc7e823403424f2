"""Token bucket: limits the rate of messages, requests and browsers, with a burst."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["TokenBucket"]


class TokenBucket:
    """Lets ``burst`` through at once and ``per_second`` in the long run."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Full at first.

        Args:
            per_second: how fast it fills.
            burst: how much it holds.
            clock: seconds, never going back.
        """
        self._rate, self._burst, self._clock = per_second, float(burst), clock
        self._level, self._last = float(burst), clock()

    def take(self) -> bool:
        """Whether one more may pass; if so it is counted."""
        self._fill()
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True

    def wait(self) -> float:
        """How long until one more may pass, s."""
        self._fill()
        return max(1.0 - self._level, 0.0) / self._rate

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + self._rate * max(now - self._last, 0.0))
        self._last = now
