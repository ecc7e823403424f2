"""Explanations of a missing path: angles of one joint between start and goal at which no pose was found to rest.

A way of a joint that moves from one angle to another passes every angle between them. If none of many poses with an
angle in between may be rested at, whatever the other joints do, this angle parts start and goal. Poses are drawn, so
it is a reason, not a proof: what is rare may be missed. Of a range of such angles the middle one is told, where a pose
that was missed is least likely, with few constraints of which each pose violates one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.robot.margin import Margin

__all__ = ["Separation", "separations"]

#: Which of poses (N, n) may be rested at, and all that speaks against each.
RestTest = Callable[[FloatArray], tuple[BoolArray, list[tuple[Margin, ...]]]]
_SPACING = 0.1  # rad between angles that are looked at
_FEW, _MORE = 10, (60, 330)  # poses drawn at every angle, then at one where none of these may be rested at
_TURN = 2.0 * np.pi
_NAMED = 3  # constraints in words
#: What a user may change where a hypothesis of the tracking theorem fails at rest.
_ADVICE = {
    "inertia": "; more inertia than controller.inertia_ratio allows",
    "uncertainty": "; less is known of the arm and its payload than controller.uncertainty asks for",
}


@dataclass(frozen=True)
class Separation:
    """One angle that parts start and goal."""

    joint: int  #: its index
    angle: float  #: rad
    drawn: int  #: poses at this angle, none of which may be rested at
    #: constraints of which each of these poses violates one, what most of them violate first: at how many of the poses
    #: that violate none of those before, and the largest margin found
    causes: tuple[tuple[int, Margin], ...]

    def text(self, name: str) -> str:
        """In words; ``name``: of the joint."""
        told: list[str] = []
        left = self.drawn
        for times, best in self.causes[:_NAMED]:
            many = "all of them" if times == self.drawn else f"{times} of {'the other ' if told else ''}{left}"
            advice = _ADVICE.get(best.a, "") if best.family == "tracking" else ""
            told.append(
                f"{best.family.replace('_', ' ')} of {best.culprit} at {many} "
                f"(at best {best.value:.2g} {best.unit}{advice})"
            )
            left -= times
        if left:
            told.append(f"others at {left}")
        angle = round(self.angle, 2) + 0.0  # never "-0.00"
        return (
            f"{name} must pass {angle:.2f} rad, where none of {self.drawn} poses drawn may be rested at: "
            f"{', '.join(told)}"
        )


def separations(
    test: RestTest,
    start: FloatArray,
    goal: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    turning: BoolArray,
    seed: int,
) -> Generator[int, None, tuple[Separation, ...]]:
    """Yields how many poses were looked at, now and then; returns angles that part start from goal, one per joint.

    A joint without limits is named only if angles either way round part them; that on the short way is returned.

    Args:
        start: (n,) rad.
        goal: (n,) rad.
        lower: (n,) rad, where the other joints' angles are drawn from.
        upper: (n,) rad.
        turning: (n,) which joints have no limits.
    """
    rng, found = np.random.default_rng([seed, 11]), []
    for joint in range(len(start)):
        ends = [goal[joint]]
        if turning[joint]:
            ends.append(goal[joint] - np.copysign(_TURN, goal[joint] - start[joint]))
        draw = _Draws(test, joint, lower, upper, rng)
        parting = []
        for end in ends:
            one = yield from _between(draw, start[joint], end)
            if one is None:
                break
            parting.append(one)
        if len(parting) == len(ends):
            found.append(parting[0])
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Draws:
    """Poses with one joint at an angle, the others anywhere."""

    test: RestTest
    joint: int
    lower: FloatArray
    upper: FloatArray
    rng: np.random.Generator

    def at(self, angle: float, count: int) -> list[tuple[Margin, ...]] | None:
        """What speaks against each of so many poses; None if one may be rested at."""
        poses = self.rng.uniform(self.lower, self.upper, (count, len(self.lower)))
        poses[:, self.joint] = angle
        free, against = self.test(poses)
        return None if free.any() else against


def _between(draw: _Draws, begin: float, end: float) -> Generator[int, None, Separation | None]:
    """An angle between two at which nothing that is drawn may be rested at, from the middle of most such angles."""
    angles = np.linspace(begin, end, int(abs(end - begin) / _SPACING) + 2)[1:-1]
    against = []
    for angle in angles:
        against.append(draw.at(angle, _FEW))
        yield _FEW
    while (i := _middle([found is not None for found in against])) is not None:
        for count in _MORE:
            before, more = against[i], draw.at(angles[i], count)
            yield count
            against[i] = None if before is None or more is None else before + more
            if more is None:
                break
        if (all_of_them := against[i]) is not None:
            causes = tuple(_cover(all_of_them))
            return Separation(draw.joint, float(angles[i]), len(all_of_them), causes)
    return None


def _middle(closed: list[bool]) -> int | None:
    """Index in the middle of the longest run of True; None without any."""
    ends = np.flatnonzero(np.diff([False, *closed, False])).reshape(-1, 2)
    if not len(ends):
        return None
    first, behind = ends[int(np.argmax(ends[:, 1] - ends[:, 0]))]
    return int(first + behind - 1) // 2


def _cover(against: list[tuple[Margin, ...]]) -> Iterator[tuple[int, Margin]]:
    """Constraints until each pose violates one of them, greedily, with how many more poses each one covers."""
    best: dict[tuple[str, str], Margin] = {}
    for margin in (margin for margins in against for margin in margins):
        name = margin.family, margin.culprit
        if name not in best or margin.value > best[name].value or np.isnan(best[name].value):
            best[name] = margin
    left = [{(margin.family, margin.culprit) for margin in margins} for margins in against if margins]
    while left:
        name, times = Counter(name for names in left for name in sorted(names)).most_common(1)[0]
        yield times, best[name]
        left = [names for names in left if name not in names]
