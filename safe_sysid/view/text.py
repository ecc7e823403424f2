"""Cleaning of foreign text: cut to a length, control characters removed, escaped for HTML."""

from __future__ import annotations

import html
import unicodedata

__all__ = ["escaped", "plain"]

LONGEST = 300


def plain(text: object, longest: int = LONGEST) -> str:
    """One line without control, format and bidirectional characters, cut with an ellipsis. ``longest``: characters."""
    # Before looking at every character: a message may be megabytes long.
    raw = str(text)[: 4 * longest]
    clean = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in raw)
    # Marks that stack without end would cover the lines above and below.
    clean = "".join(c for i, c in enumerate(clean) if not _stacks(clean, i))
    line = " ".join(clean.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def _stacks(text: str, i: int) -> bool:
    """Whether this is the third combining mark in a row, or a later one."""
    return i >= 2 and all(unicodedata.combining(c) for c in text[i - 2 : i + 1])


def escaped(text: object, longest: int = LONGEST) -> str:
    """As :func:`plain`, safe between tags and within quoted attributes."""
    return html.escape(plain(text, longest), quote=True)
