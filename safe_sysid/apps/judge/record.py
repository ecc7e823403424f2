"""Record of the judge: violations by kind, findings in words, and what could not be judged."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["JudgeRecord"]


@dataclass
class JudgeRecord:
    """Collects while judging. ``gaps``: what could not be judged."""

    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    def add(self, kind: str, count: int, text: str) -> None:
        """Enter violations of one kind."""
        self.counts[kind] = self.counts.get(kind, 0) + int(count)
        self.findings.append(f"{kind}: {text}")
