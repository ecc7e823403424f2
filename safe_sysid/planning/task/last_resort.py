"""Last resort of a task: a path of poses at which the arm may rest, followed in certified motions from rest to rest.

Slow to find and slow to drive, but nothing is guessed: a pose is free if :func:`may_rest` has nothing against it, the
certificate's own word on standing still, so no reserve is kept for quick margins that may be wrong. Between two
neighbouring poses of such a way a motion that is short enough asks hardly more than standing still does. What comes
out is a plan like any other; what does not come out is told with the angles that part start and goal, if some do, and
with the constraint that most often was in the way.

Between poses that are some centimetres apart a corner may be cut by a fraction of a millimetre, and who drives up to
there rests with no room left. So a way is looked at once more, finely, before it is followed; where that finds a pose
that may not be rested at, poses of the next search are nearer to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.planning.certification.certificate import PlanCertificate, may_rest
from safe_sysid.planning.motions.motion_margins import MotionMargins
from safe_sysid.planning.results import PlannerResult, PlanStatus
from safe_sysid.planning.separations import Separation, separations
from safe_sysid.planning.task.roadmap import (
    RESOLUTION,
    PoseTest,
    Roadmap,
    at_distance,
    goals_of_other_turns,
    polyline_length,
    rest_of_polyline,
    room_to_search,
)
from safe_sysid.planning.task.task_step import StepRequest
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["LastResort"]

_WAYS = 5  # followed from places where nothing is certified any more, before it is given up
_SHORTEST = 2e-3  # rad along the way: where a motion this short is not certified, none is
_SHORTCUTS = 20
_FINE = 0.004  # rad between poses of a way that is looked at before it is followed
_AT_ONCE = 50  # poses
_NAMED = 3  # constraints that a refusal names


class LastResort:
    """The motion to one goal.

    Attributes:
        way: (m, n) polyline that is followed, rad; empty where there is none.
        paused: the last call ended for lack of poses or time; the next one goes on there.
        reasons: why there is no way; empty while there may be one.
        parted: angles that part start and goal, looked for once no way was found.
    """

    def __init__(self, margins: MotionMargins, seed: int, per_call: int, most: int) -> None:
        """Prepare; nothing is looked at yet.

        Args:
            margins: of motions; asked for certificates.
            per_call: about so many poses are looked at in one call, where there is no deadline; about 1 ms each.
            most: and so many in one search.
        """
        self._margins = margins
        self._seed, self._per_call, self._most = seed, per_call, most
        self.way = np.zeros((0, self._margins.planner.model.n))
        self.looked, self.paused = 0, False
        self.reasons: tuple[str, ...] = ()
        self.parted: tuple[Separation, ...] = ()
        self._ways, self._reach, self._resolution = 0, np.inf, RESOLUTION
        self._against: Counter[str] = Counter()
        self._running: tuple[str, Generator[int, None, FloatArray | None]] | None = None

    def step(self, request: StepRequest, goal: FloatArray) -> PlannerResult:
        """A certified motion from rest to rest towards the goal; without one see ``reasons`` and ``paused``.

        ``request``: from where; at rest; ``goal``: (n,) rad.
        """
        found, certificate, count = None, None, 0
        while found is None and not self.reasons:
            if not len(self.way):
                self._look(request, goal)
                if self.paused:
                    reason = f"no way yet of poses that may be rested at, {self.looked} poses looked at"
                    reason += "; asked again, the search goes on"
                    return request.refused(PlanStatus.STOPPED, reason)
                continue
            found, certificate, tried = self._along(request)
            count += tried
            if found is None:
                if request.budget.stopped():
                    return request.refused(PlanStatus.STOPPED, "no step was certified in the time given")
                self._note_vain(certificate)
        if found is None or certificate is None:
            return request.refused(PlanStatus.NO_CERTIFIED_PLAN, *self.reasons)
        return PlannerResult(
            PlanStatus.PLANNED, found, certificate, certificates=count, calibration=request.calibration
        )

    # -- the way ----------------------------------------------------------------------------------------------------

    def _look(self, request: StepRequest, goal: FloatArray) -> None:
        """Search on; sets ``way``, ``paused`` or ``reasons``."""
        if self._running is None or self._running[0] != request.box.identity:
            self._running = (request.box.identity, self._search(request.start[0], goal, request.box))
        before, self.paused = self.looked, False
        while True:
            try:
                self.looked += next(self._running[1])
            except StopIteration as end:
                self._running = None
                if end.value is None:
                    self.reasons = self._no_way()
                else:
                    self.way, self._reach = end.value, np.inf
                    self._ways += 1
                return
            enough = request.budget.deadline is None and self.looked - before >= self._per_call
            if enough or request.budget.stopped():
                self.paused = True
                return

    def _search(
        self, start: FloatArray, goal: FloatArray, box: ParameterBox
    ) -> Generator[int, None, FloatArray | None]:
        planner = self._margins.planner
        goals = goals_of_other_turns(planner.model, start, goal)
        lower, upper = room_to_search(planner.model, start, goals)

        def rests(q: FloatArray) -> tuple[BoolArray, list[tuple[Margin, ...]]]:
            return may_rest(planner.model, box, planner.scene, planner.gains, q, planner.settings.clearance_margin)

        def test(q: FloatArray) -> FloatArray:
            free, against = rests(q)
            first = next((margins[0] for margins in against if margins), None)
            if first is not None:
                self._against[f"{first.family.replace('_', ' ')} of {first.culprit}"] += 1
            return np.where(free, 1.0, -1.0)

        seed = self._seed + 7919 * (self._ways + 1)
        best, most_free = None, -1.0
        while True:
            road = Roadmap(test, lower, upper, seed, self._most, _SHORTCUTS, self._resolution)
            way = yield from road.steps(start, goals)
            if way is None:
                break
            free = yield from _free_up_to(test, way)
            best, most_free = (way, free) if free > most_free else (best, most_free)
            if free == 1.0 or self._resolution <= _FINE:
                break
            self._resolution = max(0.5 * self._resolution, _FINE)
        if best is None:
            turning = planner.model.continuous
            self.parted = yield from separations(rests, start, goals[0], lower, upper, turning, seed)
        return best

    def _no_way(self) -> tuple[str, ...]:
        total = max(sum(self._against.values()), 1)
        named = ", ".join(f"{name} ({100 * times / total:.0f} %)" for name, times in self._against.most_common(_NAMED))
        names = self._margins.planner.model.joint_names
        return (
            f"no way of poses that may be rested at was found, {self.looked} looked at; in the way most often: {named}",
            *(separation.text(names[separation.joint]) for separation in self.parted),
        )

    # -- along it ---------------------------------------------------------------------------------------------------

    def _along(self, request: StepRequest) -> tuple[Plan | None, PlanCertificate | None, int]:
        """The farthest certified motion along the way of those tried: plan, last certificate, how many were tried."""
        planner = self._margins.planner
        family = planner.family(request.start)
        rest = rest_of_polyline(self.way, request.start[0])
        length, corner = polyline_length(rest), polyline_length(rest[:2])
        reach, count, certificate = min(2.0 * self._reach, length), 0, None
        while not request.budget.stopped():
            k = family.parameter(at_distance(rest, np.array([reach]))[0])
            if np.abs(k).max() <= 1.0:
                plan = Plan(
                    family.trajectory(k), request.time, planner.settings.t_p, request.box.identity,
                    request.sequence, k, planner.tube,
                )  # fmt: skip
                certificate = planner.certificate(plan, request.box)
                count += 1
                if certificate.ok:
                    self._reach = reach
                    return plan, certificate, count
            if reach <= _SHORTEST:
                break
            # A corner is a better place to stop at than what lies behind it.
            reach = max(0.5 * reach, corner) if reach > corner else 0.5 * reach
        return None, certificate, count

    def _note_vain(self, certificate: PlanCertificate | None) -> None:
        self.way = self.way[:0]
        self._resolution = max(0.5 * self._resolution, _FINE)
        if self._ways >= _WAYS:
            why = "" if certificate is None else f": {certificate.status}"
            self.reasons = (
                f"{self._ways} ways of poses that may be rested at were found, but no motion on along them is "
                f"certified{why}",
            )


def _free_up_to(test: PoseTest, way: FloatArray) -> Generator[int, None, float]:
    """Yields how many poses it looked at, now and then; returns the share of a way that is free from its start on."""
    length = polyline_length(way)
    count = max(int(np.ceil(length / _FINE)), 1)
    for first in range(1, count + 1, _AT_ONCE):
        at = np.arange(first, min(first + _AT_ONCE, count + 1))
        free = test(at_distance(way, length * at / count)) >= 0.0
        yield len(at)
        if not free.all():
            return float(at[int(np.argmin(free))] - 1) / count
    return 1.0
