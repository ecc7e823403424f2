"""Path proposals around obstacles: two trees of joint angles grow towards each other (RRT-connect), then shortcuts.

What comes out is a polyline that looks clear to the quick margins, :mod:`~.task.poses`; every step along
it is certified by other code or not driven.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import RobotModel

__all__ = [
    "RESOLUTION",
    "PoseTest",
    "Roadmap",
    "at_distance",
    "goals_of_other_turns",
    "polyline_length",
    "rest_of_polyline",
    "room_to_search",
    "spread",
]

#: Margins (N,) of poses (N, n): negative ones are not entered.
PoseTest = Callable[[FloatArray], FloatArray]
_STEP = 0.5  # rad, longest joint's part of one extension
_ROUND = np.pi  # rad, how far beyond start and goal a joint without limits is looked for
_WORTH_TURNING = 1.5  # rad to go: from here on the other way round may be better
RESOLUTION = 0.06  # rad, longest joint's part between two poses that are looked at, unless asked for finer


class _Tree:
    """Poses with the index of where each was reached from, -1 for roots."""

    def __init__(self, roots: FloatArray) -> None:
        self._poses = np.empty((256, roots.shape[1]))
        self._poses[: len(roots)] = roots
        self.parents = [-1] * len(roots)

    @property
    def poses(self) -> FloatArray:
        return self._poses[: len(self.parents)]

    def add(self, pose: FloatArray, parent: int) -> int:
        if len(self.parents) == len(self._poses):
            self._poses = np.concatenate([self._poses, np.empty_like(self._poses)])
        self._poses[len(self.parents)] = pose
        self.parents.append(parent)
        return len(self.parents) - 1

    def nearest(self, pose: FloatArray) -> int:
        return int(np.argmin(np.square(self.poses - pose).sum(axis=1)))

    def way_to(self, index: int) -> list[FloatArray]:
        """From the root."""
        way = []
        while index >= 0:
            way.append(self._poses[index].copy())
            index = self.parents[index]
        return way[::-1]


@dataclass(frozen=True, eq=False)
class Roadmap:
    """Searches for ways between poses."""

    test: PoseTest
    #: lower, upper: (n,) where new poses are drawn from, rad
    lower: FloatArray
    upper: FloatArray
    seed: int = 0
    looks: int = 60_000  #: how many poses may be tested in one search
    shortcuts: int = 120
    resolution: float = RESOLUTION  #: rad, longest joint's part between two poses that are looked at
    _used: list[int] = field(default_factory=lambda: [0], repr=False)

    def is_clear(self, start: FloatArray, end: FloatArray) -> bool:
        """Whether the straight line between two poses (n,) is free, its start not looked at."""
        return self._reached(start, end) >= 1.0

    def _reached(self, start: FloatArray, end: FloatArray) -> float:
        """Share of the straight line from a pose up to the last free pose."""
        count = max(int(np.ceil(np.abs(end - start).max() / self.resolution)), 1)
        shares = np.arange(1, count + 1) / count
        self._used[0] += count
        free = self.test(start + shares[:, None] * (end - start)) >= 0.0
        return 1.0 if bool(free.all()) else float(int(np.argmin(free)) / count)

    def search(self, start: FloatArray, goals: FloatArray, stop: Callable[[], bool] | None = None) -> FloatArray | None:
        """A polyline (m, n) from start to a goal that looks free, shortened; None if none was found.

        Args:
            start: (n,) rad.
            goals: (n,) or (G, n) rad: any of them will do; the first is preferred if the straight way to it is free.
            stop: asked often; True ends the search.
        """
        running = self.steps(start, goals)
        while True:
            try:
                next(running)
            except StopIteration as end:
                found: FloatArray | None = end.value
                return found
            if stop is not None and stop():
                return None

    def steps(self, start: FloatArray, goals: FloatArray) -> Generator[int, None, FloatArray | None]:
        """The same search in steps: yields how many poses the last one looked at, returns what was found.

        ``start``: (n,) rad; ``goals``: as for :meth:`search`.
        """
        goals = np.atleast_2d(goals)
        self._used[0] = told = 0
        if self.is_clear(start, goals[0]):
            return np.stack([start, goals[0]])
        rng = np.random.default_rng([self.seed, len(start)])
        trees = (_Tree(start[None]), _Tree(goals))
        forward = True
        while self._used[0] < self.looks:
            yield self._used[0] - told
            told = self._used[0]
            here, there = trees if forward else trees[::-1]
            aim = self._draw(rng, start, goals[int(rng.integers(len(goals)))])
            tip = self._extend(here, here.nearest(aim), aim)
            if tip is not None:
                met = self._connect(there, here.poses[tip])
                if met is not None:
                    one, other = here.way_to(tip), there.way_to(met)
                    way = one + other[::-1][1:] if forward else other + one[::-1][1:]
                    return self._shortened(np.array(way), rng)
            forward = not forward
        return None

    def _draw(self, rng: np.random.Generator, start: FloatArray, goal: FloatArray) -> FloatArray:
        """Half of the time anywhere, else near the straight line."""
        if rng.random() < 0.5:
            return np.asarray(rng.uniform(self.lower, self.upper))
        middle = start + rng.random() * (goal - start)
        return np.clip(middle + rng.normal(0.0, 0.6, len(start)), self.lower, self.upper)

    def _extend(self, tree: _Tree, index: int, aim: FloatArray) -> int | None:
        """One step from a pose of the tree; the new pose, or None if nothing was gained."""
        pose = tree.poses[index].copy()
        gap = aim - pose
        end = pose + gap * min(1.0, _STEP / max(float(np.abs(gap).max()), 1e-12))
        share = self._reached(pose, end)
        if share * float(np.abs(end - pose).max()) < 0.5 * self.resolution:
            return None
        return tree.add(pose + share * (end - pose), index)

    def _connect(self, tree: _Tree, aim: FloatArray) -> int | None:
        """Step by step from the nearest pose until the aim is reached (its index), or None at an obstacle."""
        index = tree.nearest(aim)
        while self._used[0] < self.looks:
            before = float(np.abs(aim - tree.poses[index]).max())
            if before <= 1e-12:
                return index
            found = self._extend(tree, index, aim)
            if found is None:
                return None
            index = found
            if float(np.abs(aim - tree.poses[index]).max()) > before - 0.9 * min(_STEP, before):
                return None  # stopped short
        return None

    def _shortened(self, way: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Random shortcuts between points of the polyline, then without corners that are not needed."""
        for _ in range(self.shortcuts):
            if len(way) < 3:
                break
            i, k = sorted(rng.choice(len(way) - 1, 2, replace=False))
            a, b = rng.random(2)
            first, last = way[i] + a * (way[i + 1] - way[i]), way[k] + b * (way[k + 1] - way[k])
            shorter = np.concatenate([way[: i + 1], [first, last], way[k + 1 :]])
            if polyline_length(shorter) < polyline_length(way) - 1e-3 and self.is_clear(first, last):
                way = shorter
        kept = [way[0]]
        i = 0
        while i < len(way) - 1:
            k = len(way) - 1
            while k > i + 1 and not self.is_clear(way[i], way[k]):
                k -= 1
            kept.append(way[k])
            i = k
        return np.array(kept)


def goals_of_other_turns(model: RobotModel, start: FloatArray, goal: FloatArray) -> FloatArray:
    """Goals (G, n): the given one first, then with one continuous joint turned the other way, nearest first.

    ``start``: (n,) rad; ``goal``: (n,) rad.
    """
    gap = goal - start
    long = [j for j in np.argsort(-np.abs(gap)) if model.continuous[j] and abs(gap[j]) > _WORTH_TURNING]
    others = []
    for j in long[:3]:
        other = goal.copy()
        other[j] -= np.copysign(2.0 * np.pi, gap[j])
        others.append(other)
    return np.stack([goal, *others])


def room_to_search(model: RobotModel, start: FloatArray, goals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper angles (n,) that poses are drawn between: the limits, or beyond start (n,) and goals (G, n).

    ``start``: (n,) rad; ``goals``: (G, n) rad.
    """
    limits, ends = model.limits, np.vstack([start, goals])
    lower = np.where(np.isfinite(limits.position_lower), limits.position_lower, ends.min(axis=0) - _ROUND)
    upper = np.where(np.isfinite(limits.position_upper), limits.position_upper, ends.max(axis=0) + _ROUND)
    return lower, upper


def polyline_length(points: FloatArray) -> float:
    """Length of a polyline (m, n), each piece by its longest joint, rad."""
    return float(np.abs(np.diff(points, axis=0)).max(axis=1).sum()) if len(points) > 1 else 0.0


def rest_of_polyline(way: FloatArray, q: FloatArray) -> FloatArray:
    """A polyline (m, n) from its point nearest to ``q`` (n,) on, that point first."""
    best, best_gap = way, np.inf
    for i, (a, b) in enumerate(pairwise(way)):
        d = b - a
        share = float(np.clip((q - a) @ d / max(float(d @ d), 1e-300), 0.0, 1.0))
        point = a + share * d
        gap = float(np.linalg.norm(q - point))
        if gap <= best_gap + 1e-12:
            best, best_gap = np.concatenate([point[None], way[i + 1 :]]), gap
    return best


def spread(way: FloatArray, count: int) -> FloatArray:
    """Points (at least ``count``, n) along a polyline, without its start, denser near it, end and corners included."""
    ends = _ends(way)
    if ends[-1] <= 0.0:
        return way[-1:].copy()
    return at_distance(way, np.union1d(ends[1:], ends[-1] * (np.arange(1, count + 1) / count) ** 1.5))


def at_distance(way: FloatArray, at: FloatArray) -> FloatArray:
    """Points (N, n) of a polyline (m, n) so far from its start along it (N,), rad of the longest joint."""
    ends = _ends(way)
    points = np.stack([np.interp(at, ends, way[:, j]) for j in range(way.shape[1])], axis=1)
    points[at >= ends[-1]] = way[-1]
    return points


def _ends(way: FloatArray) -> FloatArray:
    """(m,) how far along it the corners are."""
    return np.concatenate([[0.0], np.cumsum(np.abs(np.diff(way, axis=0)).max(axis=1))])
