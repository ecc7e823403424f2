"""Point-to-point tasks: a proposed path around the obstacles, and certified steps along it.

The way is a polyline of joint angles from :mod:`safe_sysid.planning.task.ways`, which only *looks* clear. Each step
(:mod:`~.task.task_step`) is one trajectory of the planner's families that ends at rest on the polyline, as
far along as it can be certified; so the arm may stop after any of them. Where the polyline cannot be followed the
optimiser looks beside it; where nothing is certified the arm brakes along what was certified before, and another way is
looked for from there. This module keeps the books: waypoints, progress, and when to give up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.planning.motions.motion_margins import MotionMargins
from safe_sysid.planning.optimiser.optimise import Budget
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.results import Calibration, PlannerResult, PlanStatus, hand_over_state
from safe_sysid.planning.separations import Separation
from safe_sysid.planning.task.inverse_kinematics import nearest_turn
from safe_sysid.planning.task.last_resort import LastResort
from safe_sysid.planning.task.poses import PoseMargins
from safe_sysid.planning.task.roadmap import polyline_length, rest_of_polyline
from safe_sysid.planning.task.task_step import SMALL_STEP, StepRequest, StepSearch
from safe_sysid.planning.task.ways import WaySearch
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.trajectories.plan import Plan

__all__ = ["TaskPlanner", "TaskStatus", "follow"]

_WAYS_PER_PATIENCE = 4  # ways followed to one waypoint before the last resort
_CHECKS = 20  # a pose that is checked as the certificate does it costs as much as so many that are looked at
#: Poses looked at in one call without a deadline.
_LOOKS_PER_CALL = 25_000
_REACHED = 1e-3  # rad, largest distance of a joint to a waypoint that counts as reached


class TaskStatus(Enum):
    """Where a task stands."""

    MOVING = "moving"
    ARRIVED = "arrived"
    REFUSED = "refused"


class TaskPlanner:
    """Plans towards waypoints, one certified trajectory per call of :meth:`next`.

    Attributes:
        planner: robot, scene, gains and settings come from it.
        waypoints: (W, n) rad, as given.
        status: MOVING until the last waypoint is reached or given up.
        reasons: why it was given up, for people; else empty.
        current: index of the waypoint that is headed for.
        way: (m, n) polyline that is followed now, rad; empty before the first step.
    """

    def __init__(
        self, planner: Planner, waypoints: ArrayLike, *, patience: int = 4, seed: int = 0, looks: int = 150_000
    ) -> None:
        """Prepare; nothing is planned yet.

        Args:
            planner: of the arm, in the scene.
            waypoints: (W, n) or (n,) rad, each to be reached at rest; continuous joints turn to them the short way.
            patience: so many steps or ways in a row without coming nearer, or four times as many ways in all; then the
                last resort is tried (:mod:`~.task.last_resort`), and if that finds nothing it is refused.
            looks: so many poses looked at without coming nearer, some 0.05 ms each; then the last resort looks at a
                20th of it in each of its searches, some 1 ms each.

        Raises:
            PlanError: waypoints that are no joint angles, or a patience or number of looks that is not positive.
        """
        n = planner.model.n
        points = np.atleast_2d(np.asarray(waypoints, float))
        if points.ndim != 2 or points.shape[1] != n or not len(points) or not np.all(np.isfinite(points)):
            raise PlanError(
                f"waypoints of shape {np.shape(waypoints)}: expected one or more of {n} finite joint angles"
            )
        if not (patience >= 1 and looks >= 1):
            raise PlanError(f"patience = {patience!r}, looks = {looks!r}: expected positive numbers")
        self.planner, self.waypoints = planner, frozen_array(points, None, "waypoints")
        self.status, self.current = TaskStatus.MOVING, 0
        self.reasons: tuple[str, ...] = ()
        self.way = np.zeros((0, n))
        self._patience = int(patience)
        self._ways, self._vain, self._nearest = 0, 0, np.inf
        self._margins, self._seed, self._looks = MotionMargins(planner), seed, int(looks)
        self._search = WaySearch(self._margins, seed, _LOOKS_PER_CALL, self._looks)
        self._last_resort: LastResort | None = None
        self._steps = StepSearch(self._margins)
        self._checked: tuple[int, str, int] | None = None
        self._last_reasons: tuple[str, ...] = ()

    # -- for the caller ---------------------------------------------------------------------------------------------

    def ends_at_waypoint(self, plan: Plan) -> bool:
        """Whether a plan comes to rest at the current waypoint."""
        return self._at(plan.trajectory.knots[-1, 0])

    def rests_after(self, plan: Plan) -> bool:
        """Whether a plan is driven to its end: at the current waypoint, and where the last resort is followed."""
        return self._last_resort is not None or self.ends_at_waypoint(plan)

    def start_of_next(self, plan: Plan) -> tuple[float, FloatArray]:
        """Time (s) and state (3, n) from which the plan after this one starts.

        Its hand-over, or its end where the arm rests after it.
        """
        if not self.rests_after(plan):
            return plan.hand_over_time, hand_over_state(plan)
        return plan.end_time, plan.trajectory.state(plan.trajectory.duration)[:3]

    @property
    def in_last_resort(self) -> bool:
        """Whether the last resort is followed to the current waypoint."""
        return self._last_resort is not None

    @property
    def parted(self) -> tuple[Separation, ...]:
        """Angles that part where the arm rests from the current waypoint, as the last resort found; often none."""
        return () if self._last_resort is None else self._last_resort.parted

    @property
    def distance(self) -> float:
        """How far the last certified step ends from the last waypoint along the way, by the longest joint, rad."""
        rest = self.waypoints[self.current + 1 :]
        later = polyline_length(np.concatenate([self.waypoints[self.current :][:1], rest]))
        return float(self._nearest + later)

    @property
    def progress(self) -> str:
        """What a step's line says of it."""
        return f" ends {self.distance:.2f} rad before the goal"

    def next(
        self,
        state: ArrayLike,
        time: float,
        box: ParameterBox,
        sequence: int,
        previous: Plan | None = None,
        budget: Budget | None = None,
        calibration: Calibration | None = None,
        on_certified: Callable[[PlannerResult], None] | None = None,
    ) -> PlannerResult:
        """One more certified trajectory; ``status`` says whether the task goes on.

        Args:
            state: (3, n) position, velocity, acceleration at ``time``, see :meth:`start_of_next`.
            time: s.
            box: that the controller works with then, or one that contains it.
            sequence: number of the plan.
            previous: the plan under way that this one takes over from; None at rest.
            budget: default: the planner's, no deadline.
            on_certified: called with every certified plan as it is found; the last one is returned.

        Returns:
            With a plan; or without one: then the arm brakes along the plan under way. If ``status`` is still MOVING,
            call again at rest: another way will be looked for.

        Raises:
            PlanError: malformed arguments.
        """
        budget = self.planner.budget() if budget is None else budget
        began = budget.clock()
        self._margins.planner = self.planner.with_tube(box, previous)
        start = frozen_array(state, (3, self.planner.model.n), "plan start state")
        at_rest = not np.any(start[1:])
        while at_rest and self.status is TaskStatus.MOVING and self._at(start[0]):
            self._arrived()
        request = StepRequest(start, time, box, sequence, previous, budget, calibration)
        if self.status is not TaskStatus.MOVING:
            return request.refused(PlanStatus.STOPPED, *(self.reasons or ("all waypoints are reached",)))
        if at_rest:
            self._margins.planner, reasons = self._margins.planner.resting_at(start[0], box)
            if reasons:
                self.status = TaskStatus.REFUSED
                self.reasons = tuple(f"start may not be rested at: {reason}" for reason in reasons)
                return request.refused(PlanStatus.START_REFUSED, *self.reasons)
        if not self._waypoint_holds(start[0], box):
            return request.refused(PlanStatus.NO_CERTIFIED_PLAN, *self.reasons)
        result = self._step(request)
        if result.plan is not None:
            self._note_progress(result.plan)
            if on_certified is not None:
                on_certified(result)
        elif self.status is TaskStatus.MOVING and at_rest and not (self._search.paused or self._last_resort):
            self._give_up(result.reasons)
        return replace(result, wall_time=budget.clock() - began)

    # -- waypoints --------------------------------------------------------------------------------------------------

    def _goal(self, near: FloatArray) -> FloatArray:
        return nearest_turn(self.planner.model, self.waypoints[self.current], near)

    def _at(self, q: FloatArray) -> bool:
        return bool(np.abs(q - self._goal(q)).max() <= _REACHED)

    def _arrived(self) -> None:
        self.current += 1
        self.way, self._nearest, self._vain, self._ways = self.way[:0], np.inf, 0, 0
        self._search.restart()
        self._last_resort = None
        if self.current == len(self.waypoints):
            self.current -= 1
            self.status, self._nearest = TaskStatus.ARRIVED, 0.0

    @property
    def _name(self) -> str:
        return f"waypoint {self.current + 1} of {len(self.waypoints)}" if len(self.waypoints) > 1 else "goal"

    def _waypoint_holds(self, q: FloatArray, box: ParameterBox) -> bool:
        """Whether the waypoint may be rested at with this box; if not, the task is refused."""
        planner = self._margins.planner
        if self._checked != (self.current, box.identity, planner.tube):
            reasons = planner.start_reasons(self._goal(q), box)
            if reasons:
                self.status = TaskStatus.REFUSED
                self.reasons = tuple(f"{self._name} may not be rested at: {reason}" for reason in reasons)
                return False
            self._checked = (self.current, box.identity, planner.tube)
        return True

    def _give_up(self, reasons: Sequence[str]) -> None:
        """Count a way or a step in vain, and look for another way; refuse the task if there were too many."""
        self._vain += 1
        self.way = self.way[:0]
        if self._vain >= self._patience or self._ways >= _WAYS_PER_PATIENCE * self._patience:
            self._begin_last_resort(reasons)

    def _begin_last_resort(self, reasons: Sequence[str]) -> None:
        self._last_reasons, self.way = tuple(reasons), self.way[:0]
        looks = max(self._looks // _CHECKS, 1)
        self._last_resort = LastResort(self._margins, self._seed, max(_LOOKS_PER_CALL // _CHECKS, 1), looks)

    def _refuse(self, reasons: Sequence[str]) -> None:
        self.status = TaskStatus.REFUSED
        far = "" if not np.isfinite(self._nearest) else f" {self._nearest:.2f} rad before it"
        tried = f", {self._ways} way{'' if self._ways == 1 else 's'} tried" if self._ways else ""
        self.reasons = (f"{self._name}: stuck{far}{tried}: {reasons[0]}", *reasons[1:])

    # -- one step ---------------------------------------------------------------------------------------------------

    def _step(self, request: StepRequest) -> PlannerResult:
        if self._last_resort is not None:
            return self._step_of_last_resort(request, self._last_resort)
        poses = self._margins.poses(request.box)
        if not len(self.way) and not self._find_way(request, poses):
            looked = f"{self._search.looked} poses looked at"
            if self._search.paused:
                reason = f"{self._name}: no way that looks free yet, {looked}; asked again, the search goes on"
                return request.refused(PlanStatus.STOPPED, reason)
            # Other draws rarely find what so many poses did not show.
            reason = f"no way that looks free was found, {looked}"
            self._begin_last_resort((reason, *self._last_reasons))
            return request.refused(PlanStatus.NO_CERTIFIED_PLAN, reason)
        result = self._steps.along(request, self.way, poses)
        if result.plan is None:
            self._last_reasons = result.reasons
            if not request.budget.stopped():
                beside = self._steps.beside(request, self.way)
                result = beside if beside.plan is not None else replace(result, calibration=beside.calibration)
        if result.plan is None:
            self.way = self.way[:0]  # the next call looks for another one
            return result
        gap = np.abs(result.plan.trajectory.knots[-1, 0] - self._goal(request.rest)).max()
        return replace(result, cost=float(gap))

    def _step_of_last_resort(self, request: StepRequest, resort: LastResort) -> PlannerResult:
        if request.previous is not None or np.any(request.start[1:]):
            return request.refused(PlanStatus.NO_CERTIFIED_PLAN, "the last resort begins at rest")
        result = resort.step(request, self._goal(request.rest))
        self.way = resort.way
        if resort.reasons:
            before = (f"before the last resort: {reason}" for reason in self._last_reasons)
            self._refuse((*resort.reasons, *before))
            return replace(result, reasons=self.reasons)
        if result.plan is not None:
            end = result.plan.trajectory.knots[-1, 0]
            gap = float(np.abs(end - self._goal(request.rest)).max())
            self._nearest = polyline_length(rest_of_polyline(self.way, end))
            result = replace(result, cost=gap)
        return result

    def _note_progress(self, plan: Plan) -> None:
        if self._last_resort is not None:
            return
        left = polyline_length(rest_of_polyline(self.way, plan.trajectory.knots[-1, 0]))
        if left < self._nearest - SMALL_STEP or self.ends_at_waypoint(plan):
            self._nearest, self._vain = left, 0
            self._search.restart()
        else:
            self._give_up(("steps do not come nearer", *self._last_reasons))

    def _find_way(self, request: StepRequest, poses: PoseMargins) -> bool:
        """A polyline from where the arm will rest to the waypoint; False if none looks free, or none yet."""
        goal = self._goal(request.rest)
        way = self._search.find(request.rest, goal, poses, request.budget, self._vain)
        if way is None:
            return False
        self.way, self._nearest, self._ways = way, polyline_length(way), self._ways + 1
        return True


def follow(
    task: TaskPlanner, q: ArrayLike, box: ParameterBox, time: float = 0.0, most: int = 1000
) -> Iterator[PlannerResult]:
    """Every answer of a task that is driven without delay from rest at ``q`` until it has ended.

    Args:
        task: not begun yet.
        q: (n,) rad, where the arm rests.
        time: s, when the first plan begins.
        most: answers at most.

    Yields:
        What :meth:`TaskPlanner.next` found, plans or not; the task's ``status`` says how it ended.
    """
    at = frozen_array(q, (task.planner.model.n,), "start pose")
    state, previous, sequence = np.stack([at, 0.0 * at, 0.0 * at]), None, 0
    for _ in range(most):
        answer = task.next(state, time, box, sequence, previous)
        if answer.plan is not None:
            yield answer
            sequence += 1
            time, state = task.start_of_next(answer.plan)
            previous = None if task.rests_after(answer.plan) else answer.plan
            continue
        if task.status is not TaskStatus.ARRIVED:
            yield answer
        if previous is None and task.status is not TaskStatus.MOVING:
            return
        if previous is not None:  # it brakes along its tail, and goes on from there
            time, state = previous.end_time, previous.trajectory.state(previous.trajectory.duration)[:3]
            previous = None
