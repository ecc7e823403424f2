"""Point-to-point motions in certified steps: a proposed way around the obstacles, and a receding horizon along it.

The way is a polyline of joint angles from :mod:`safe_sysid.planning.roadmap`, which only *looks* clear. Each step is
one trajectory of the planner's family that ends at rest on the polyline, as far along as it can be certified; so the
arm may stop after any of them. Where the polyline cannot be followed the optimiser looks beside it; where nothing is
certified the arm brakes along what was certified before, and another way is looked for from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.errors import PlanError
from safe_sysid.planning.certificate import Certificate, start_check, verify_plan
from safe_sysid.planning.family import TrajectoryFamily
from safe_sysid.planning.inverse_kinematics import nearest_turn
from safe_sysid.planning.optimise import Budget
from safe_sysid.planning.planner import Calibration, Planner, PlannerResult, PlanStatus, hand_over_state
from safe_sysid.planning.poses import PoseMargins
from safe_sysid.planning.proximity import Proximity
from safe_sysid.planning.roadmap import Roadmap, polyline_length
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.trajectories.plan import Plan

__all__ = ["TaskPlanner", "TaskStatus", "follow"]

FloatArray = NDArray[np.float64]
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
_WAYS_PER_PATIENCE = 4  # ways followed to one waypoint before it is given up
_WAYS = 2  # looked for per level; the shortest counts
#: Poses looked at per way, the first level tried with so many, and whether joints may turn the other way round.
_LOOKS = ((4_000, 0, False), (20_000, 2, True), (60_000, 4, True))
_TARGETS = 32  # points of the way considered as ends of a step
_SAMPLES = 21  # instants of a motion that the quick margins look at
_ROUND = np.pi  # rad, how far beyond start and goal a joint without limits is looked for
_WORTH_TURNING = 1.5  # rad to go: from here on the other way round may be better
_SMALL_STEP = 0.02  # rad, by the longest joint: less is no progress
#: Added to what the quick margins were found to be wrong by: m, m, shares.
_CUSHION = np.array([5e-4, 5e-4, 3e-3, 1e-3, 1e-3, 1e-3])
_CERTIFICATES = 6  # asked for per step


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
        self,
        planner: Planner,
        waypoints: ArrayLike,
        *,
        tolerance: float = 1e-3,
        patience: int = 4,
        seed: int = 0,
    ) -> None:
        """Prepare; nothing is planned yet.

        Args:
            planner: of the arm, in the scene.
            waypoints: (W, n) or (n,) rad, each to be reached at rest; continuous joints turn to them the short way.
            tolerance: largest distance of a joint to a waypoint that counts as reached, rad.
            patience: so many steps or searches in a row without coming nearer, or four times as many ways in all; then
                it is refused.
            seed: of the ways.

        Raises:
            PlanError: waypoints that are no joint angles, or a tolerance or patience that is not positive.
        """
        n = planner.model.n
        points = np.atleast_2d(np.asarray(waypoints, float))
        if points.ndim != 2 or points.shape[1] != n or not len(points) or not np.all(np.isfinite(points)):
            raise PlanError(
                f"waypoints of shape {np.shape(waypoints)}: expected one or more of {n} finite joint angles"
            )
        if not (tolerance > 0.0 and patience >= 1):
            raise PlanError(f"tolerance = {tolerance!r}, patience = {patience!r}: expected positive numbers")
        self.planner, self.waypoints = planner, frozen_array(points, None, "waypoints")
        self.status, self.current = TaskStatus.MOVING, 0
        self.reasons: tuple[str, ...] = ()
        self.way = np.zeros((0, n))
        self._tolerance, self._patience, self._seed = float(tolerance), int(patience), seed
        self._searches, self._ways, self._vain, self._nearest = 0, 0, 0, np.inf
        self._reserve = np.zeros(6)
        self._proximity = Proximity.build(planner.model, planner.scene)
        self._checked: tuple[int, str] | None = None
        self._last_reasons: tuple[str, ...] = ()

    # -- for the caller ---------------------------------------------------------------------------------------------

    def ends_at_waypoint(self, plan: Plan) -> bool:
        """Whether a plan comes to rest at the current waypoint: then it is driven to its end.

        Args:
            plan: of this task.
        """
        return self._at(plan.trajectory.knots[-1, 0])

    def start_of_next(self, plan: Plan) -> tuple[float, FloatArray]:
        """Time (s) and state (3, n) from which the plan after this one starts.

        Its hand-over, or its end if that is at the current waypoint.

        Args:
            plan: under way.
        """
        if not self.ends_at_waypoint(plan):
            return plan.hand_over_time, hand_over_state(plan)
        return plan.end_time, plan.trajectory.state(plan.trajectory.duration)[:3]

    @property
    def distance(self) -> float:
        """How far the last certified step ends from the last waypoint along the way, by the longest joint, rad."""
        rest = self.waypoints[self.current + 1 :]
        later = polyline_length(np.concatenate([self.waypoints[self.current :][:1], rest]))
        return float(self._nearest + later)

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
            calibration: of the previous result.
            on_certified: called with every certified plan as it is found; the last one is returned.

        Returns:
            With a plan; or without one: then the arm brakes along the plan under way. If ``status`` is still MOVING,
            call again at rest: another way will be looked for.

        Raises:
            PlanError: malformed arguments.
        """
        budget = self.planner.budget() if budget is None else budget
        began = budget.clock()
        start = frozen_array(state, (3, self.planner.model.n), "plan start state")
        at_rest = not np.any(start[1:])
        while at_rest and self.status is TaskStatus.MOVING and self._at(start[0]):
            self._arrived()
        if self.status is not TaskStatus.MOVING:
            return self._none(PlanStatus.STOPPED, self.reasons or ("all waypoints are reached",), calibration)
        if at_rest:
            reasons = self._start_refusals(start[0], box)
            if reasons:
                self.status, self.reasons = TaskStatus.REFUSED, reasons
                return self._none(PlanStatus.START_REFUSED, reasons, calibration)
        if not self._waypoint_holds(start[0], box):
            return self._none(PlanStatus.NO_CERTIFIED_PLAN, self.reasons, calibration)
        result = self._step(start, time, box, sequence, previous, budget, calibration, on_certified)
        if result.plan is None and self.status is TaskStatus.MOVING and at_rest:
            self._give_up(result.reasons)
        return replace(result, wall_time=budget.clock() - began)

    # -- waypoints --------------------------------------------------------------------------------------------------

    def _goal(self, near: FloatArray) -> FloatArray:
        return nearest_turn(self.planner.model, self.waypoints[self.current], near)

    def _at(self, q: FloatArray) -> bool:
        return bool(np.abs(q - self._goal(q)).max() <= self._tolerance)

    def _arrived(self) -> None:
        self.current += 1
        self.way, self._nearest, self._vain, self._ways = self.way[:0], np.inf, 0, 0
        if self.current == len(self.waypoints):
            self.current -= 1
            self.status, self._nearest = TaskStatus.ARRIVED, 0.0

    @property
    def _name(self) -> str:
        return f"waypoint {self.current + 1} of {len(self.waypoints)}" if len(self.waypoints) > 1 else "goal"

    def _start_refusals(self, q: FloatArray, box: ParameterBox) -> tuple[str, ...]:
        p = self.planner
        return tuple(start_check(p.model, box, p.scene, p.gains, q, p.settings.clearance_margin))

    def _waypoint_holds(self, q: FloatArray, box: ParameterBox) -> bool:
        """Whether the waypoint may be rested at with this box; if not, the task is refused."""
        if self._checked != (self.current, box.identity):
            reasons = self._start_refusals(self._goal(q), box)
            if reasons:
                self.status = TaskStatus.REFUSED
                self.reasons = tuple(f"{self._name} may not be rested at: {reason}" for reason in reasons)
                return False
            self._checked = (self.current, box.identity)
        return True

    def _give_up(self, reasons: Sequence[str]) -> None:
        """Count a search or a step in vain, and look for another way; refuse the task if there were too many."""
        self._vain += 1
        self.way = self.way[:0]
        if self._vain >= self._patience or self._ways >= _WAYS_PER_PATIENCE * self._patience:
            self.status = TaskStatus.REFUSED
            told = reasons or ("no way that looks free was found",)
            far = "" if not np.isfinite(self._nearest) else f" {self._nearest:.2f} rad before it"
            tried = f"{self._ways} way{'' if self._ways == 1 else 's'} tried"
            self.reasons = (f"{self._name}: stuck{far}, {tried}: {told[0]}", *told[1:])

    @staticmethod
    def _none(status: PlanStatus, reasons: Sequence[str], calibration: Calibration | None) -> PlannerResult:
        return PlannerResult(status, reasons=tuple(reasons), calibration=calibration)

    # -- one step ---------------------------------------------------------------------------------------------------

    def _step(
        self,
        start: FloatArray,
        time: float,
        box: ParameterBox,
        sequence: int,
        previous: Plan | None,
        budget: Budget,
        calibration: Calibration | None,
        on_certified: Callable[[PlannerResult], None] | None,
    ) -> PlannerResult:
        family = self.planner.family(start)
        margins = PoseMargins(self.planner.model, self._proximity, self.planner.gains, box)
        rest = start[0] if previous is None else previous.trajectory.knots[-1, 0]
        if not len(self.way) and not self._find_way(rest, margins, budget):
            # Counts twice: other draws rarely find what so many poses did not show.
            self._vain += not budget.stopped()
            return self._none(
                PlanStatus.NO_CERTIFIED_PLAN,
                (f"{self._name}: no way that looks free was found",),
                calibration,
            )
        result = self._along(family, rest, margins, time, box, sequence, budget, calibration)
        if result.plan is None and not budget.stopped():
            beside = self._beside(start, rest, time, box, sequence, previous, budget, calibration)
            result = beside if beside.plan is not None else replace(result, calibration=beside.calibration)
        if result.plan is None:
            self.way = self.way[:0]  # the next call looks for another one
        else:
            self._note_progress(result.plan)
            if on_certified is not None:
                on_certified(result)
        return result

    def _note_progress(self, plan: Plan) -> None:
        left = polyline_length(self._rest_of_way(plan.trajectory.knots[-1, 0]))
        if left < self._nearest - _SMALL_STEP or self.ends_at_waypoint(plan):
            self._nearest, self._vain = left, 0
        else:
            self._give_up(("steps do not come nearer", *self._last_reasons))

    def _find_way(self, start: FloatArray, margins: PoseMargins, budget: Budget) -> bool:
        """A polyline from ``start`` to the waypoint, as roomy as there is one; False if none looks free."""
        goals = _with_other_turns(self.planner.model, start, self._goal(start))
        limits = self.planner.model.limits
        ends = np.vstack([start, goals])
        lower = np.where(np.isfinite(limits.position_lower), limits.position_lower, ends.min(axis=0) - _ROUND)
        upper = np.where(np.isfinite(limits.position_upper), limits.position_upper, ends.max(axis=0) + _ROUND)
        self._searches += 1
        if self._searches == 1:
            self._calibrate(goals[0], margins)
        # Searches in vain begin with less demanding levels: what was roomy enough could not be driven.
        levels = _LEVELS[self._vain % len(_LEVELS) :]
        for looks, first, turns in _LOOKS:
            for level in levels[max(first - len(_LEVELS) + len(levels), 0) :]:
                wanted = np.array(level) + self._reserve[:5]
                wanted[:2] += self.planner.settings.clearance_margin
                if level is _LEVELS[-1]:
                    # What the distances were wrong by at one pair says little about others: let certificates decide.
                    wanted[:2] = np.minimum(wanted[:2], 0.0)
                test = _pose_test(margins, ends, wanted)
                ways = []
                for i in range(_WAYS):
                    road = Roadmap(test, lower, upper, self._seed + 1000 * self._searches + i, looks)
                    way = road.search(start, goals if turns else goals[:1], budget.stopped)
                    if way is not None:
                        ways.append(way)
                    if way is None or len(way) == 2 or budget.stopped():
                        break
                if ways:
                    self.way = min(ways, key=polyline_length)
                    self._nearest, self._ways = polyline_length(self.way), self._ways + 1
                    return True
        return False

    def _calibrate(self, q: FloatArray, margins: PoseMargins) -> None:
        """First guess of what the quick margins are wrong by: from the certificate of resting at a pose."""
        p = self.planner
        rest = np.stack([q, np.zeros_like(q), np.zeros_like(q)])
        family, k = TrajectoryFamily(rest, np.ones(len(q)), p.settings.t_f), np.zeros((1, len(q)))
        plan = Plan(family.trajectory(k[0]), 0.0, p.settings.t_p, margins.box.identity, 0, k[0])
        certificate = verify_plan(
            plan,
            p.model,
            margins.box,
            p.scene,
            p.gains,
            intervals=1,
            clearance_margin=p.settings.clearance_margin,
        )
        self._reserve = self._learned(self._quick(family, k, margins)[0], certificate)

    def _rest_of_way(self, q: FloatArray) -> FloatArray:
        """The way from its point nearest to ``q`` on, that point first."""
        best, best_gap = self.way, np.inf
        for i, (a, b) in enumerate(pairwise(self.way)):
            d = b - a
            share = float(np.clip((q - a) @ d / max(float(d @ d), 1e-300), 0.0, 1.0))
            point = a + share * d
            gap = float(np.linalg.norm(q - point))
            if gap <= best_gap + 1e-12:
                best, best_gap = np.concatenate([point[None], self.way[i + 1 :]]), gap
        return best

    def _along(
        self,
        family: TrajectoryFamily,
        rest: FloatArray,
        margins: PoseMargins,
        time: float,
        box: ParameterBox,
        sequence: int,
        budget: Budget,
        calibration: Calibration | None,
    ) -> PlannerResult:
        """The farthest point of the way at which a certified trajectory ends."""
        points = _spread(self._rest_of_way(rest), _TARGETS)
        points[-1] = self.way[-1]
        ks = np.array([family.parameter(point) for point in points])
        reachable = np.flatnonzero(np.abs(ks).max(axis=1) <= 1.0)
        if not reachable.size:
            reachable, ks = np.array([len(ks) - 1]), ks / np.abs(ks).max(axis=1, keepdims=True)
        quick = self._quick(family, ks[reachable], margins)
        certificate: Certificate | None = None
        asked = 0
        left = list(range(len(reachable) - 1, -1, -1))  # farthest first
        while left and asked < _CERTIFICATES and not budget.stopped():
            i = next((i for i in left if np.all(quick[i] >= self._reserve)), left[-1])
            plan = Plan(
                family.trajectory(ks[reachable[i]]), time, self.planner.settings.t_p, box.identity, sequence,
                ks[reachable[i]],
            )  # fmt: skip
            certificate = self._certify(plan, box)
            asked += 1
            self._reserve = self._learned(quick[i], certificate)
            if certificate.ok:
                gap = float(np.abs(plan.trajectory.knots[-1, 0] - self._goal(rest)).max())
                return PlannerResult(
                    PlanStatus.PLANNED, plan, certificate, gap, certificates=asked, calibration=calibration
                )
            left = [other for other in left if other < i]
        status = PlanStatus.STOPPED if budget.stopped() else PlanStatus.NO_CERTIFIED_PLAN
        self._last_reasons = () if certificate is None else (certificate.status,)
        return PlannerResult(
            status,
            certificate=certificate,
            certificates=asked,
            calibration=calibration,
            reasons=self._last_reasons or ("no step along the way could be certified in the time given",),
        )

    def _beside(
        self,
        start: FloatArray,
        rest: FloatArray,
        time: float,
        box: ParameterBox,
        sequence: int,
        previous: Plan | None,
        budget: Budget,
        calibration: Calibration | None,
    ) -> PlannerResult:
        """What the optimiser finds near the next corner of the way; without a plan if that is no nearer."""
        way = self._rest_of_way(rest)
        goal = way[min(1, len(way) - 1)]
        found = self.planner.plan_next(
            start,
            time,
            box,
            sequence,
            previous,
            budget=budget,
            calibration=calibration,
            goal=goal,
            cost="goal",
        )
        if found.plan is None:
            return found
        end = found.plan.trajectory.knots[-1, 0]
        gained = float(
            np.abs(rest - goal).max() - np.abs(nearest_turn(self.planner.model, end, goal) - goal).max()
        )
        if gained >= _SMALL_STEP:
            return found
        reasons = ("the optimiser found nothing nearer to the next corner of the way",)
        return replace(found, status=PlanStatus.NO_CERTIFIED_PLAN, plan=None, reasons=reasons)

    def _certify(self, plan: Plan, box: ParameterBox) -> Certificate:
        p = self.planner
        return verify_plan(
            plan,
            p.model,
            box,
            p.scene,
            p.gains,
            intervals=p.settings.intervals,
            clearance_margin=p.settings.clearance_margin,
        )

    def _quick(self, family: TrajectoryFamily, ks: FloatArray, margins: PoseMargins) -> FloatArray:
        """Smallest margins (N, 6) of motions: m, m, shares of the torques, of S, of the inertia, of the rates."""
        sampler = family.sampler(np.linspace(0.0, family.duration * (1.0 - 1e-9), _SAMPLES))
        states = [sampler(k) for k in ks]
        q, qd, qdd = (np.concatenate([state[i] for state in states]) for i in range(3))
        assume = self.planner.gains.assumptions
        far = self.planner.settings.clearance_margin
        speed = 1.0 - (np.abs(qd) + self.planner.gains.de_bound) / assume.velocity
        rate = 1.0 - np.abs(qdd) / assume.acceleration
        jerk = 1.0 - np.abs(sampler.jerk(ks)) / assume.jerk
        rates = np.minimum(np.minimum(speed, rate), jerk).min(axis=1)
        found = np.column_stack([margins.clearance(q) - far, margins.effort(q, qd, qdd), rates])
        room = margins.position(q)
        found[room < 0.0] = np.minimum(found[room < 0.0], room[room < 0.0, None])
        return np.asarray(found.reshape(len(ks), _SAMPLES, -1).min(axis=1))

    def _learned(self, quick: FloatArray, certificate: Certificate) -> FloatArray:
        """What the quick margins (6,) must be at least, where this certificate says what they are worth."""
        if not certificate.families:
            return self._reserve
        tracking = certificate.margins["tracking"]
        column = {name: i for i, name in enumerate(certificate.labels["tracking"])}
        rates = [i for name, i in column.items() if name not in ("uncertainty", "inertia")]
        worth = np.array(
            [
                certificate.families["clearance"].smallest,
                certificate.families["self_clearance"].smallest,
                np.min(certificate.margins["torque"] / self.planner.model.limits.torque),
                np.min(tracking[:, column["uncertainty"]]),
                np.min(tracking[:, column["inertia"]]),
                np.min(tracking[:, rates]),
            ]
        )
        reserve = np.where(
            np.isfinite(worth), quick - np.where(np.isfinite(worth), worth, 0.0), self._reserve
        )
        return np.asarray(np.where(np.isnan(worth), quick + 0.05, reserve + _CUSHION))


def follow(
    task: TaskPlanner, q: ArrayLike, box: ParameterBox, time: float = 0.0, most: int = 200
) -> Iterator[PlannerResult]:
    """Every answer of a task that is driven without delay from rest at ``q`` until it has ended.

    Args:
        task: not begun yet.
        q: (n,) rad, where the arm rests.
        box: that the controller works with.
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
            previous = None if task.ends_at_waypoint(answer.plan) else answer.plan
            continue
        if task.status is not TaskStatus.ARRIVED:
            yield answer
        if previous is None and task.status is not TaskStatus.MOVING:
            return
        if previous is not None:  # it brakes along its tail, and goes on from there
            time, state = previous.end_time, previous.trajectory.state(previous.trajectory.duration)[:3]
            previous = None


def _spread(way: FloatArray, count: int) -> FloatArray:
    """Points (count, n) along a polyline, its start left out, denser near it, its end and corners included."""
    pieces = np.abs(np.diff(way, axis=0)).max(axis=1)
    ends = np.concatenate([[0.0], np.cumsum(pieces)])
    if ends[-1] <= 0.0:
        return way[-1:].copy()
    at = np.union1d(ends[1:], ends[-1] * (np.arange(1, count + 1) / count) ** 1.5)
    return np.stack([np.interp(at, ends, way[:, j]) for j in range(way.shape[1])], axis=1)


def _with_other_turns(model: RobotModel, start: FloatArray, goal: FloatArray) -> FloatArray:
    """Goals (G, n): the given one first, then with one continuous joint turned the other way, nearest first."""
    gap = goal - start
    long = [j for j in np.argsort(-np.abs(gap)) if model.continuous[j] and abs(gap[j]) > _WORTH_TURNING]
    others = []
    for j in long[:3]:
        other = goal.copy()
        other[j] -= np.copysign(2.0 * np.pi, gap[j])
        others.append(other)
    return np.stack([goal, *others])


def _pose_test(
    margins: PoseMargins, ends: FloatArray, wanted: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """Margins (N,) of poses beyond what is wanted (5,); near ends (E, n) of a way only what these have themselves."""
    still = np.zeros_like(ends)
    own = np.column_stack([margins.clearance(ends), margins.effort(ends, still, still)]) - 0.003

    def test(q: FloatArray) -> FloatArray:
        asked = np.broadcast_to(wanted, (len(q), 5))
        for end, have in zip(ends, own, strict=True):
            far = np.abs(q - end).max(axis=1)
            asked = np.minimum(asked, have + _OPENING * far[:, None])
        value = np.minimum((margins.clearance(q) - asked[:, :2]).min(axis=1), margins.position(q))
        free = value >= 0.0
        if free.any():
            rest = np.zeros_like(q[free])
            room = (margins.effort(q[free], rest, rest) - asked[free, 2:]).min(axis=1)
            value[free] = np.minimum(value[free], room)
        return np.asarray(value)

    return test
