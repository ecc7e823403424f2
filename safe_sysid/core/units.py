"""Units of joints: ``rad or m`` is rad for a revolute joint and m for a prismatic one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["unit_for"]


def unit_for(unit: str, sliding: Iterable[bool]) -> str:
    """The unit as some joints have it.

    Args:
        unit: of a turning joint, " or ", of a sliding one; or one for both.
        sliding: of each joint that the value is of; where some turn and some slide, both units stay.
    """
    turning, joined, other = unit.partition(" or ")
    slides = list(sliding)
    if not joined or (any(slides) and not all(slides)):
        return unit
    return other if any(slides) else turning
