"""Log throttling: limits how often a repeated line is written, so that logs of a day do not fill a disk."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LogPauses"]

#: Between two lines of one kind, s: at first, and at most. A kind that was silent for the longest begins anew.
_FIRST, _LONGEST = 1.0, 60.0


@dataclass
class _Kind:
    """When a kind of line was written and wanted last, s, and how long the next has to wait."""

    written: float
    wanted: float
    pause: float = _FIRST


class LogPauses:
    """The pause between two lines of a kind doubles with each of them."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def is_due(self, name: str, now: float) -> bool:
        """Whether a line of this kind is to be written now; then the next has to wait.

        ``name``: of the kind; there are few of them; ``now``: s, on a clock that never goes back.
        """
        kind = self._kinds.get(name)
        if kind is None or now - kind.wanted > _LONGEST:
            self._kinds[name] = _Kind(now, now)
            return True
        kind.wanted = now
        if now - kind.written < kind.pause:
            return False
        kind.written, kind.pause = now, min(2.0 * kind.pause, _LONGEST)
        return True

    def forget(self) -> None:
        """Every kind begins anew."""
        self._kinds.clear()
