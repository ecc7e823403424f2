"""The planner: finds a certified plan from a start state and a parameter box, or says why there is none.

Receding horizon as in [ARMOUR] and [PSO]: a motion, from ``t_p`` on its braking manoeuvre, planned while the last runs.
Pure: no clocks but the one in the budget, no messages. Without a deadline the same inputs give the same plan anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.tube import TrackingTube, tubes_of
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.planning.certification.certificate import PlanCertificate, start_check, verify_plan
from safe_sysid.planning.certification.verdicts import PlanVerdict, verdict_of
from safe_sysid.planning.costs import CostContext, CostMemory, CostSpec, build_cost
from safe_sysid.planning.distances.proximity import Proximity
from safe_sysid.planning.optimiser.constraints import FastConstraints
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.optimiser.optimise import Budget, PlanProblem, SearchResult, solve
from safe_sysid.planning.results import (
    Calibration,
    PlannerOptions,
    PlannerResult,
    PlanStatus,
    bounds_stopped_improving,
    hand_over_state,
)
from safe_sysid.planning.tube_choice import narrowest_tube
from safe_sysid.robot.config import PlannerSettings
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.plan import Plan

__all__ = [
    "Calibration",
    "PlanStatus",
    "Planner",
    "PlannerOptions",
    "PlannerResult",
    "bounds_stopped_improving",
    "hand_over_state",
    "verdict_of",
]

Certifier = Callable[[Plan, ParameterBox], PlanVerdict]
StartCheck = Callable[[FloatArray, ParameterBox], Sequence[str]]
_UNLIMITED = 10**9
#: Share by which the longest time that a certificate took is forgotten from plan to plan.
_FORGET = 0.7


@dataclass(frozen=True, eq=False)
class _PlanningCall:
    """One call of :meth:`Planner.plan_next`: what attempts have to know to become results."""

    context: CostContext
    start_time: float
    sequence: int
    calibration: Calibration | None
    tube: int

    def plan(self, k: FloatArray, t_plan: float) -> Plan:
        trajectory = self.context.family.trajectory(k)
        return Plan(trajectory, self.start_time, t_plan, self.context.box.identity, self.sequence, k, self.tube)


class Planner:
    """Receding-horizon planner of certified trajectories: exciting ones, or ones that lead somewhere.

    Args:
        gains: the controller's; the tracking tubes come from these and from nowhere else.
        settings: times, range and margins; the model's own by default.
        certify: rigorous check of one plan; by default :func:`~.certificate.verify_plan`.
        check_start: reasons against starting at rest at a pose; by default the certificate module's.
    """

    def __init__(
        self,
        model: RobotModel,
        scene: Scene,
        gains: TrackingTube,
        settings: PlannerSettings | None = None,
        options: PlannerOptions | None = None,
        seed: int = 0,
        certify: Certifier | None = None,
        check_start: StartCheck | None = None,
    ) -> None:
        """Precompute what all plans share.

        Raises:
            ConfigError: the arm has a prismatic joint.
        """
        model.require_turning("planning")
        model.require_known_reactions("planning")
        self.model, self.scene = model, scene
        self.widest, self.tubes = gains, tubes_of(model, gains)
        self.gains, self.tube = gains, 0  # of the tube that plans are for
        self._choice: tuple[ParameterBox, int] | None = None
        self.settings = model.settings.planner if settings is None else settings
        self.options = PlannerOptions() if options is None else options
        self.seed = seed
        self._given = (certify, check_start)
        self._proximity = Proximity.build(model, scene, self.settings.clearance_margin)
        frames = {int(joint): i for i, joint in enumerate(self._proximity.frames)}
        self._frame_of = {body.name: frames[body.joint] for body in model.bodies if body.joint in frames}

    def with_scene(self, scene: Scene) -> Planner:
        """The same planner in another scene; only for an arm at rest: plans under way are certified for the old one."""
        return Planner(self.model, scene, self.widest, self.settings, self.options, self.seed, *self._given)

    def in_widest_tube(self) -> Planner:
        """The same planner for plans of the widest tube alone: that one a controller can always begin."""
        other = copy(self)
        other.tubes, other.tube, other.gains, other._choice = self.tubes[:1], 0, self.widest, None
        return other

    def with_tube(self, box: ParameterBox, previous: Plan | None = None) -> Planner:
        """The same planner for the narrowest tube that a box allows; in motion for that of the plan under way.

        Whether V is small enough for a narrower one the controller judges where that begins: from rest it is.

        Args:
            box: that the controller works with.
            previous: the plan under way, if any.
        """
        if previous is not None:
            tube = min(previous.tube, len(self.tubes) - 1)
        else:
            known = self._choice
            if known is None or not (box.is_inside(known[0]) and known[0].is_inside(box)):
                known = self._choice = box, narrowest_tube(self.model, self.tubes, box)
            tube = known[1]
        return self if tube == self.tube else self._of_tube(tube)

    def _of_tube(self, tube: int) -> Planner:
        other = copy(self)
        other.tube, other.gains = tube, self.tubes[tube]
        return other

    def resting_at(self, q: FloatArray, box: ParameterBox) -> tuple[Planner, tuple[str, ...]]:
        """This planner, or one of another tube if the arm may rest at q (n,) rad in that alone; and why in none."""
        reasons = tuple(self._start_refusals(q, box))
        others = [*range(self.tube + 1, len(self.tubes)), *range(self.tube - 1, -1, -1)]
        for tube in others if reasons else ():
            other = self._of_tube(tube)
            if not other._start_refusals(q, box):
                return other, ()
        return self, reasons

    def certificate(self, plan: Plan, box: ParameterBox, intervals: int | None = None) -> PlanCertificate:
        """The rigorous margins of a plan, with this planner's settings, or another number of time cells."""
        return verify_plan(
            plan, self.model, box, self.scene, self.widest,
            intervals=intervals or self.settings.intervals, clearance_margin=self.settings.clearance_margin,
        )  # fmt: skip

    def start_reasons(self, q: FloatArray, box: ParameterBox) -> list[str]:
        """Why the arm may not rest at q (n,) rad, with this planner's settings; empty if it may."""
        return start_check(self.model, box, self.scene, self.gains, q, self.settings.clearance_margin)

    def _start_refusals(self, q: FloatArray, box: ParameterBox) -> Sequence[str]:
        check = self._given[1]
        return self.start_reasons(q, box) if check is None else check(q, box)

    def _certify(self, plan: Plan, box: ParameterBox) -> PlanVerdict:
        if self._given[0] is not None:
            return self._given[0](plan, box)
        return verdict_of(self.certificate(plan, box), self.gains, self._frame_of, self._proximity.settled)

    def budget(self, deadline: float | None = None, cancelled: Callable[[], bool] | None = None) -> Budget:
        """How long to plan.

        Args:
            deadline: monotonic s, real time: search until then, or until it brings nothing more. None, lock-step: as
                many iterations and certificates as the settings and options say, whatever time they take.
            cancelled: asked often; True ends the search with what there is.
        """
        if deadline is None:
            return Budget(self.settings.iteration_budget, self.options.certificates, None, cancelled)
        return Budget(_UNLIMITED, _UNLIMITED, deadline, cancelled, reserve=self.options.reserve_s)

    def family(
        self, start_state: ArrayLike, previous: Plan | None = None, start_time: float | None = None
    ) -> TrajectoryFamily:
        """The trajectories from a start state (3, n): about the rest of the plan under way if there is one.

        ``start_state``: (3, n); ``start_time``: s, when the new one takes over; None for the previous one's hand-over.
        """
        n = self.model.n
        k_range = np.broadcast_to(np.asarray(self.settings.k_range, float), (n,))
        start = frozen_array(start_state, (3, n), "plan start state")
        if previous is not None and np.any(start[1:]):
            since = previous.t_plan if start_time is None else start_time - previous.start_time
            along = TrajectoryFamily.along(previous.trajectory, start, since, k_range, self.settings.t_f)
            if along is not None:
                return along
        return TrajectoryFamily(start, k_range, self.settings.t_f)

    def context(
        self,
        start_state: ArrayLike,
        box: ParameterBox,
        executed_information: FloatArray | None = None,
        last: bool = False,
        calibration: Calibration | None = None,
        goal: ArrayLike | None = None,
        family: TrajectoryFamily | None = None,
    ) -> CostContext:
        """What the costs of one plan are built from; arguments as :meth:`plan_next`, family as :meth:`family`."""
        known = None if calibration is None or calibration.epoch != box.epoch else calibration
        payload = np.zeros((10, 10)) if executed_information is None else executed_information
        return CostContext(
            self.model,
            self.family(start_state) if family is None else family,
            box,
            box if known is None else known.prior,
            CostMemory(np.zeros((box.size, box.size)) if known is None else known.information, payload),
            self.settings.t_f if last else self.settings.t_p,
            self.options.samples,
            self.options.window,
            None if goal is None else frozen_array(goal, (self.model.n,), "goal"),
        )

    def build_problem(
        self,
        start_state: ArrayLike,
        box: ParameterBox,
        sequence: int,
        previous: Plan | None = None,
        executed_information: FloatArray | None = None,
        last: bool = False,
        calibration: Calibration | None = None,
        goal: ArrayLike | None = None,
        cost: CostSpec | str | None = None,
    ) -> PlanProblem:
        """The optimisation problem of one plan, for inspection or for :func:`~.optimise.solve`.

        Arguments as :meth:`plan_next`.
        """
        family = self.family(start_state, previous)
        context = self.context(start_state, box, executed_information, last, calibration, goal, family)
        return self._problem(context, sequence, previous, calibration, cost)

    def _problem(
        self,
        context: CostContext,
        sequence: int,
        previous: Plan | None,
        calibration: Calibration | None,
        cost: CostSpec | str | None,
    ) -> PlanProblem:
        family = context.family
        constraints = FastConstraints(
            self.model,
            context.box,
            self.gains,
            family,
            self._proximity,
            self.settings.clearance_margin,
            reserve={} if calibration is None else calibration.reserve,
        )
        # One generator per plan: a plan does not depend on how many were made before it.
        rng = np.random.default_rng([self.seed, sequence])
        starts = rng.uniform(-1.0, 1.0, (self.options.starts, self.model.n))
        ends = [] if context.goal is None else [context.goal]
        if previous is not None:
            # On to where the plan under way would end, and back to where it began.
            ends += [previous.trajectory.knots[-1, 0], previous.trajectory.knots[0, 0]]
        for i, end in enumerate(ends[: self.options.starts]):
            starts[i] = np.clip(family.parameter(end), -1.0, 1.0)
        built = build_cost(self.options.cost if cost is None else cost, context)
        return PlanProblem(built, constraints, starts, self.options.keep, self.options.patience)

    def plan_next(
        self,
        start_state: ArrayLike,
        start_time: float,
        box: ParameterBox,
        sequence: int,
        previous: Plan | None = None,
        executed_information: FloatArray | None = None,
        budget: Budget | None = None,
        last: bool = False,
        calibration: Calibration | None = None,
        goal: ArrayLike | None = None,
        cost: CostSpec | str | None = None,
        on_certified: Callable[[PlannerResult], None] | None = None,
        scene: Scene | None = None,
    ) -> PlannerResult:
        """Plan from a state at a time, for every parameter in the box.

        Args:
            start_state: (3, n) position, velocity, acceleration at ``start_time``; of a plan under way:
                :func:`hand_over_state`.
            start_time: s.
            box: that the controller works with then, or one that contains it.
            sequence: number of the plan, also selects its random directions.
            previous: the plan under way, if any; the new one must connect to it.
            executed_information: (10, 10) sum of earlier results' ``information`` about this payload, for the condition
                number.
            budget: default: the settings' iterations, no deadline.
            last: no plan will follow, so the braking manoeuvre is part of the experiment.
            calibration: of the previous result; saves certificates, and is the other costs' memory.
            goal: (n,) rad, for a cost with the term ``goal``.
            on_certified: called, in this thread, with every certified plan that is better than the last one; its
                times and counts are those so far. What the call returns is never worse than the last of these.
            scene: instead of the planner's.

        Raises:
            PlanError: malformed arguments, or a start that is not where the previous plan is then.
        """
        if scene is not None and scene is not self.scene:
            return self.with_scene(scene).plan_next(
                start_state, start_time, box, sequence, previous, executed_information, budget, last,
                calibration, goal, cost, on_certified,
            )  # fmt: skip
        fitting = self.with_tube(box, previous)
        if fitting is not self:
            return fitting.plan_next(
                start_state, start_time, box, sequence, previous, executed_information, budget, last,
                calibration, goal, cost, on_certified,
            )  # fmt: skip
        budget = self.budget() if budget is None else budget
        if calibration is not None:
            budget = replace(budget, certificate_s=max(budget.certificate_s, calibration.certificate_s))
        began = budget.clock()
        start = frozen_array(start_state, (3, self.model.n), "plan start state")
        if previous is not None:
            _check_connection(start, start_time, previous, self.model.joint_names)
        planner = self
        if not np.any(start[1:]):
            planner, reasons = self.resting_at(start[0], box)
            if reasons:
                return PlannerResult(PlanStatus.START_REFUSED, wall_time=budget.clock() - began, reasons=reasons)
        context = self.context(
            start, box, executed_information, last, calibration, goal, self.family(start, previous, start_time)
        )
        problem = planner._problem(context, sequence, previous, calibration, cost)
        request = _PlanningCall(context, start_time, sequence, calibration, planner.tube)

        def tell(found: SearchResult) -> None:
            if on_certified is not None:
                on_certified(self._result(request, found, began, budget))

        found = self._search(
            problem, lambda k: planner._certify(request.plan(k, self.settings.t_p), box), budget, tell, sequence
        )
        return self._result(request, found, began, budget)

    def _search(
        self,
        problem: PlanProblem,
        certify: Callable[[FloatArray], PlanVerdict],
        budget: Budget,
        on_certified: Callable[[SearchResult], None],
        sequence: int,
    ) -> SearchResult:
        """How a plan is chosen; the only thing that a planner of another kind does differently."""
        return solve(problem, certify, budget, on_certified)

    def _result(self, request: _PlanningCall, found: SearchResult, began: float, budget: Budget) -> PlannerResult:
        best, now = found.best, budget.clock()
        # Where a certificate takes longer than there is time for, none is begun: that is no verdict either.
        hurried = found.cancelled or not found.attempts
        shared = PlannerResult(
            PlanStatus.STOPPED if hurried else PlanStatus.NO_CERTIFIED_PLAN,
            certificate=found.attempts[-1].verdict.certificate if found.attempts else None,
            iterations=found.iterations,
            certificates=len(found.attempts),
            wall_time=now - began,
            optimise_time=now - began - found.certify_time,
            certify_time=found.certify_time,
            first_time=found.first_certified - began,
            calibration=self._learned(found, request),
        )
        if best is None:
            return replace(shared, reasons=_why(found))
        executed = replace(request.context, horizon=self.settings.t_p).condition()
        return replace(
            shared,
            status=PlanStatus.PLANNED,
            plan=request.plan(best.k, self.settings.t_p),
            certificate=best.verdict.certificate,
            cost=best.cost,
            condition=executed.condition(best.k),
            information=executed.information(best.k),
        )

    def _learned(self, found: SearchResult, request: _PlanningCall) -> Calibration:
        """What to hand to the next call."""
        before, context = request.calibration, request.context
        information = context.memory.information
        if found.best is not None:
            information = context.after(found.best.k, self.settings.t_p).information
        slowest = max(found.slowest_certificate, 0.0 if before is None else _FORGET * before.certificate_s)
        return Calibration(found.reserve, information, context.box.epoch, context.prior, slowest)


def _why(found: SearchResult) -> tuple[str, ...]:
    if not found.attempts:
        return ("no candidate could be certified in the time given",)
    tried = f"{len(found.attempts)} trajectories were tried, none is certified"
    worst = f"; closest to a limit: {found.worst}" if found.worst else ""
    return (tried + worst, *found.attempts[-1].verdict.reasons)


def _check_connection(start: FloatArray, start_time: float, previous: Plan, names: Sequence[str]) -> None:
    there = previous.trajectory.state(start_time - previous.start_time)[:3]
    gap = np.abs(start - there)
    # Position, velocity and acceleration of one trajectory differ by rounding only.
    if not np.all(gap <= 1e-9):
        order, joint = np.unravel_index(int(np.argmax(gap)), gap.shape)
        what = ("position", "velocity", "acceleration")[int(order)]
        raise PlanError(
            f"plan start at {start_time} s: {what} of {names[int(joint)]} is {start[order, joint]!r}, "
            f"the plan under way is at {there[order, joint]!r}: expected them to connect"
        )
