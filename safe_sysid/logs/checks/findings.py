"""Findings: what is wrong with a log, or may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """One thing that a check found."""

    level: Literal["error", "warning"]  #: "error" (bounds from this log would mean nothing) or "warning"
    code: str  #: short name of the check, for programs (docs/use/identify.md has the table)
    column: str
    value: str
    expected: str
    suggestion: str = ""
    time: float | None = None  #: first stamp at which it shows, s; None where it is about the whole log
    count: int = 1  #: how many samples or windows show it

    @property
    def text(self) -> str:
        """One line for people."""
        at = "" if self.time is None else f" at {self.time:.6g} s"
        many = f" ({self.count} times)" if self.count > 1 else ""
        advice = f"; {self.suggestion}" if self.suggestion else ""
        return f"{self.level}: {self.column}{at}: {self.value}{many}: expected {self.expected}{advice}"
