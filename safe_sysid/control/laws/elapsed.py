"""Time between a law's steps, for laws that integrate."""

from __future__ import annotations

__all__ = ["Elapsed"]


class Elapsed:
    """Time since the step before, never negative, and bounded: after a gap nothing is integrated that was not seen."""

    def __init__(self, longest: float) -> None:
        """``longest``: s."""
        self._longest = longest
        self._last: float | None = None

    def reset(self) -> None:
        """The next step is the first."""
        self._last = None

    @property
    def is_first(self) -> bool:
        """Whether no step was made since the reset."""
        return self._last is None

    def since_last(self, t: float) -> float:
        """Time since the last call, s; 0 at the first after a reset. ``t``: now, s."""
        last, self._last = self._last, t
        return 0.0 if last is None else min(max(t - last, 0.0), self._longest)
