"""Path search: looks for the path with most clearance within a number of poses, and resumes where it stopped.

A ladder of searches: from much room asked for and few poses to none and many. It pauses after so many poses, or when
the time is up, and goes on at the next call; so a call is bounded, and nothing that was found is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.motions.motion_margins import MotionMargins
from safe_sysid.planning.optimiser.optimise import Budget
from safe_sysid.planning.task.poses import PoseMargins
from safe_sysid.planning.task.roadmap import Roadmap, goals_of_other_turns, polyline_length, room_to_search

__all__ = ["WaySearch"]

#: What a way keeps free where it can, widest first: m to obstacles, m to the arm itself, shares of the torque limits,
#: of the tracking proof's S and of its inertia; on top of what the quick margins are known to be wrong by.
_LEVELS = (
    (0.05, 0.015, 0.15, 0.04, 0.04),
    (0.03, 0.01, 0.1, 0.02, 0.02),
    (0.015, 0.006, 0.05, 0.01, 0.01),
    (0.006, 0.003, 0.02, 0.005, 0.005),
    (0.0, 0.0, 0.0, 0.0, 0.0),
)
#: Near its ends a way may come as close as they are; m per rad from there on.
_OPENING = 0.08
_WAYS = 2  # looked for per level; the shortest counts
#: Poses looked at per way, the first level tried with so many, and whether joints may turn the other way round.
_LOOKS = ((4_000, 0, False), (20_000, 2, True), (60_000, 4, True))
_NEAR = 1e-6  # rad: starts that are the same


class WaySearch:
    """Looks for ways of one task.

    Attributes:
        paused: the last call ended for lack of poses or time; the next one goes on there.
        looked: poses looked at since the last :meth:`restart`.
    """

    def __init__(self, margins: MotionMargins, seed: int, per_call: int, most: int) -> None:
        """Prepare; nothing is looked at yet.

        Args:
            margins: of motions, with what certificates taught about them.
            per_call: about so many poses are looked at in one call, where there is no deadline.
            most: and so many until the search is given up.
        """
        self.paused, self.looked = False, 0
        self._margins, self._seed, self._per_call, self._most = margins, seed, per_call, most
        self._searches = 0
        self._key: tuple[FloatArray, FloatArray, str] | None = None
        self._running: Generator[int, None, FloatArray | None] | None = None

    def restart(self) -> None:
        """Forget what was looked at: for another goal, or after progress."""
        self.paused, self.looked, self._running = False, 0, None

    @property
    def spent(self) -> bool:
        """Whether as many poses were looked at as are allowed."""
        return self.looked >= self._most

    def find(
        self, start: FloatArray, goal: FloatArray, margins: PoseMargins, budget: Budget, vain: int
    ) -> FloatArray | None:
        """A polyline (m, n) that looks free, or None; then ``paused`` says whether it is worth asking again.

        Args:
            start: (n,) rad.
            goal: (n,) rad.
            margins: of poses, with the box in force.
            budget: whose deadline or cancellation pauses the search.
            vain: searches or steps in vain before: so many levels are left out, what was roomy could not be driven.
        """
        key = (start, goal, margins.box.identity)
        if self._running is None or not self._same(key):
            self._key, self._running = key, self._ladder(start, goal, margins, vain % len(_LEVELS))
        before, self.paused = self.looked, False
        while True:
            try:
                self.looked += next(self._running)
            except StopIteration as end:
                self._running = None
                found: FloatArray | None = end.value
                return found
            enough = budget.deadline is None and self.looked - before >= self._per_call
            if self.spent:
                self._running = None
                return None
            if enough or budget.stopped():
                self.paused = True
                return None

    def _same(self, key: tuple[FloatArray, FloatArray, str]) -> bool:
        known = self._key
        return (
            known is not None
            and known[2] == key[2]
            and all(float(np.abs(a - b).max()) <= _NEAR for a, b in zip(known[:2], key[:2], strict=True))
        )

    def _ladder(
        self, start: FloatArray, goal: FloatArray, margins: PoseMargins, skipped: int
    ) -> Generator[int, None, FloatArray | None]:
        """Yields how many poses it looked at, now and then; returns a way, or None if none looks free."""
        planner = self._margins.planner
        goals = goals_of_other_turns(planner.model, start, goal)
        lower, upper = room_to_search(planner.model, start, goals)
        ends = np.vstack([start, goals])
        self._searches += 1
        if self._searches == 1:
            self._margins.calibrate(goals[0], margins)
        number = self._searches
        for looks, first, turns in _LOOKS:
            for index in range(max(first, skipped), len(_LEVELS)):
                wanted = np.array(_LEVELS[index]) + self._margins.reserve[:5]
                wanted[:2] += planner.settings.clearance_margin
                if index == len(_LEVELS) - 1:
                    # What the distances were wrong by at one pair says little about others: let certificates decide.
                    wanted[:2] = np.minimum(wanted[:2], 0.0)
                test = _pose_test(margins, ends, wanted)
                ways = []
                for i in range(_WAYS):
                    road = Roadmap(test, lower, upper, self._seed + 1000 * number + i, looks)
                    way = yield from road.steps(start, goals if turns else goals[:1])
                    if way is not None:
                        ways.append(way)
                    if way is None or len(way) == 2:
                        break
                if ways:
                    return min(ways, key=polyline_length)
        return None


def _pose_test(margins: PoseMargins, ends: FloatArray, wanted: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Margins (N,) of poses beyond what is wanted (5,); near ends (E, n) of a way only what these have themselves."""
    still = np.zeros_like(ends)
    own = np.column_stack([margins.clearance(ends), margins.effort(ends, still, still)]) - 0.003

    def test(q: FloatArray) -> FloatArray:
        needed = np.broadcast_to(wanted, (len(q), 5))
        for end, have in zip(ends, own, strict=True):
            far = np.abs(q - end).max(axis=1)
            needed = np.minimum(needed, have + _OPENING * far[:, None])
        value = np.minimum((margins.clearance(q) - needed[:, :2]).min(axis=1), margins.position(q))
        free = value >= 0.0
        if free.any():
            rest = np.zeros_like(q[free])
            room = (margins.effort(q[free], rest, rest) - needed[free, 2:]).min(axis=1)
            value[free] = np.minimum(value[free], room)
        return np.asarray(value)

    return test
