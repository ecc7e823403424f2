"""Reads tables out of pages of the docs."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["DOCS", "pages", "prose", "table"]

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(```+).*?^\1\s*?$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page of the docs, and README."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", text)


def table(page: str, heading: str, column: str) -> list[dict[str, str]]:
    """Rows of the table under a heading that has this as its first column; column titles to cells."""
    section = re.split(rf"^#+ {re.escape(heading)}\n", (DOCS / page).read_text(encoding="utf-8"), flags=re.M)[1]
    section = re.split(r"^#+ ", section, flags=re.M)[0]
    lines = iter(section.splitlines())
    for line in lines:
        titles = _cells(line)
        if titles and titles[0] == column:
            break
    else:
        raise AssertionError(f"docs/{page}, {heading}: no table with first column {column!r}")
    next(lines)
    rows = []
    for line in lines:
        cells = _cells(line)
        if not cells:
            break
        rows.append(dict(zip(titles, cells, strict=True)))
    return rows


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        return []
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
