"""Time base of a node: whole nanoseconds in messages, seconds from an origin inside."""

from __future__ import annotations

__all__ = ["TimeBase", "to_ns"]

_SECOND = 1_000_000_000


def to_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * 1e9)


class TimeBase:
    """Seconds since an origin; a double of seconds since 1970 would resolve only 0.2 us.

    In lock-step the origin is 0, so that all nodes mean the same; in real time it is the first stamp that comes,
    rounded down to a whole second.
    """

    def __init__(self, lockstep: bool) -> None:
        self._origin: int | None = 0 if lockstep else None

    @property
    def origin_ns(self) -> int:
        """Nanoseconds at which seconds are 0; 0 before the first stamp."""
        return self._origin or 0

    def seconds(self, ns: int) -> float:
        """Seconds since the origin; the first call sets it."""
        if self._origin is None:
            self._origin = ns - ns % _SECOND
        return (ns - self._origin) / 1e9
