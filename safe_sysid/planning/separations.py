"""Why there is no way: angles of one joint that lie between start and goal, where no pose was found to rest at.

A way of a joint that moves from one angle to another passes every angle between them. If none of many poses with an
angle in between may be rested at, whatever the other joints do, this angle parts start and goal. Poses are drawn, so
it is a reason, not a proof: what is rare may be missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.robot.margin import Margin

__all__ = ["Separation", "separations"]

FloatArray = NDArray[np.float64]
#: Which of poses (N, n) may be rested at, and what speaks against each; None where nothing does.
RestTest = Callable[[FloatArray], tuple[NDArray[np.bool_], list[Margin | None]]]
_SPACING = 0.1  # rad between angles that are looked at
_DRAWN = (10, 60, 330)  # poses per angle, as long as none may be rested at
_TURN = 2.0 * np.pi
#: What a user may change where a hypothesis of the tracking theorem fails at rest.
_ADVICE = {
    "inertia": "controller.inertia_ratio bounds the inertia",
    "uncertainty": "controller.uncertainty bounds it, known payloads need less of it",
}


@dataclass(frozen=True)
class Separation:
    """One angle that parts start and goal.

    Attributes:
        joint: its index.
        angle: rad.
        drawn: poses at this angle, none of which may be rested at.
        share: of them for which ``best`` is the constraint that fails first.
        best: the largest margin among these.
    """

    joint: int
    angle: float
    drawn: int
    share: float
    best: Margin

    def text(self, name: str) -> str:
        """In words; ``name``: of the joint."""
        advice = f"; {_ADVICE[self.best.a]}" if self.best.a in _ADVICE else ""
        return (
            f"{name} must pass {self.angle:.2f} rad, where none of {self.drawn} poses drawn may be rested at: "
            f"{self.best.family.replace('_', ' ')} of {self.best.culprit} ({100 * self.share:.0f} %), "
            f"at best {self.best.value:.2g} {self.best.unit}{advice}"
        )


def separations(
    test: RestTest,
    start: FloatArray,
    goal: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    turning: NDArray[np.bool_],
    seed: int,
) -> Generator[int, None, tuple[Separation, ...]]:
    """Yields how many poses were looked at, now and then; returns angles that part start from goal, one per joint.

    A joint without limits is named only if angles either way round part them; the first of these is returned.

    Args:
        test: of poses.
        start: (n,) rad.
        goal: (n,) rad.
        lower: (n,) rad, where the other joints' angles are drawn from.
        upper: (n,) rad.
        turning: (n,) which joints have no limits.
        seed: of the draws.
    """
    rng, found = np.random.default_rng([seed, 11]), []
    for joint in range(len(start)):
        ends = [goal[joint]]
        if turning[joint]:
            ends.append(goal[joint] - np.copysign(_TURN, goal[joint] - start[joint]))
        parting = []
        for end in ends:
            one = yield from _first(test, joint, start[joint], end, lower, upper, rng)
            if one is None:
                break
            parting.append(one)
        if len(parting) == len(ends):
            found.append(parting[0])
    return tuple(found)


def _first(
    test: RestTest,
    joint: int,
    begin: float,
    end: float,
    lower: FloatArray,
    upper: FloatArray,
    rng: np.random.Generator,
) -> Generator[int, None, Separation | None]:
    """The first angle on the way at which nothing that is drawn may be rested at."""
    for angle in np.linspace(begin, end, int(abs(end - begin) / _SPACING) + 2)[1:-1]:
        against: list[Margin] = []
        for count in _DRAWN:
            poses = rng.uniform(lower, upper, (count, len(lower)))
            poses[:, joint] = angle
            free, why = test(poses)
            yield count
            if free.any():
                break
            against += [margin for margin in why if margin is not None]
        else:
            return _summary(joint, float(angle), against)
    return None


def _summary(joint: int, angle: float, against: list[Margin]) -> Separation:
    names = Counter((margin.family, margin.culprit) for margin in against)
    name, times = names.most_common(1)[0]
    same = [margin for margin in against if (margin.family, margin.culprit) == name]
    best = max(same, key=lambda margin: -np.inf if np.isnan(margin.value) else margin.value)
    return Separation(joint, angle, len(against), times / len(against), best)
