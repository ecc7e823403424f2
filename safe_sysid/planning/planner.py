"""The planner: from a start state and a parameter box to a certified plan, or to the reason why there is none.

Pure: no clocks but the one in the budget, no messages. Without a deadline the same inputs give the same plan anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.control.gains import ControllerGains
from safe_sysid.errors import PlanError
from safe_sysid.planning.certificate import Certificate, start_check, verify_plan
from safe_sysid.planning.constraints import FastConstraints, Margins, Obstacles
from safe_sysid.planning.cost import ConditionCost, Cost, payload_scale
from safe_sysid.planning.family import TrajectoryFamily
from safe_sysid.planning.information import InformationCost
from safe_sysid.planning.optimise import Budget, PlanProblem, SearchResult, Verdict, solve
from safe_sysid.robot.config import PlannerSettings
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.robot.scene import Scene
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

FloatArray = NDArray[np.float64]
Certifier = Callable[[Plan, ParameterBox], Verdict]
StartCheck = Callable[[FloatArray, ParameterBox], Sequence[str]]


class PlanStatus(Enum):
    """Outcome of a planning attempt; everything but PLANNED means: follow the certified tail, then hold."""

    PLANNED = "planned"
    START_REFUSED = "start refused"
    NO_CERTIFIED_PLAN = "no certified plan"
    STOPPED = "stopped before a certified plan was found"


@dataclass(frozen=True)
class PlannerOptions:
    """Choices of method; physical settings are the robot's (:class:`~safe_sysid.robot.config.PlannerSettings`).

    Attributes:
        cost: "condition" (:mod:`safe_sysid.planning.cost`), "information" or "width"
            (:mod:`safe_sysid.planning.information`: for errors that sit on their bounds rather than scatter).
        samples: of the condition number's horizon.
        window: samples per row of the condition number; 1: torque regressor, more: momentum over as many samples.
        starts: random directions looked at per plan.
        keep: of these, how many are optimised.
        certificates: at most so many per plan.
    """

    cost: Literal["condition", "information", "width"] = "condition"
    samples: int = 128
    window: int = 1
    starts: int = 32
    keep: int = 8
    certificates: int = 5

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            PlanError: an unknown cost, or a count below one.
        """
        if self.cost not in ("condition", "information", "width"):
            raise PlanError(f"planner cost = {self.cost!r}: expected condition, information or width")
        for name in ("samples", "window", "starts", "keep", "certificates"):
            if getattr(self, name) < 1:
                raise PlanError(f"planner {name} = {getattr(self, name)!r}: expected at least 1")


@dataclass(frozen=True, eq=False)
class Calibration:
    """What planning taught that helps the next plan; decides nothing about safety.

    Attributes:
        reserve: reserves of the optimiser's margins, from certificates.
        information: (14 n, 14 n) what the plans so far tell until their hand-overs, see
            :class:`~safe_sysid.planning.information.InformationCost`.
        epoch: of the box that the information is about; a new payload starts from nothing.
        prior: the first box of the epoch.
    """

    reserve: Margins
    information: FloatArray
    epoch: int
    prior: ParameterBox


@dataclass(frozen=True, eq=False)
class PlannerResult:
    """What :meth:`Planner.plan_next` found.

    Attributes:
        status: whether there is a plan.
        plan: certified for the box that was asked, or None.
        certificate: of the plan, or of the last failed attempt, or None.
        cost: of the plan, as optimised; nan without a plan.
        condition: condition number of all rows so far in columns scaled by the box; nan without a plan.
        information: (10, 10) what the plan adds about theta_e until its hand-over; pass the sum to the next call.
        iterations: of the local optimiser.
        certificates: asked for.
        wall_time, optimise_time, certify_time: s.
        calibration: pass on to the next call.
        reasons: for people; empty if planned.
    """

    status: PlanStatus
    plan: Plan | None = None
    certificate: Certificate | None = None
    cost: float = np.nan
    condition: float = np.nan
    information: FloatArray = field(default_factory=lambda: np.zeros((10, 10)))
    iterations: int = 0
    certificates: int = 0
    wall_time: float = 0.0
    optimise_time: float = 0.0
    certify_time: float = 0.0
    calibration: Calibration | None = None
    reasons: tuple[str, ...] = ()


def hand_over_state(plan: Plan) -> FloatArray:
    """State (3, n) in which the plan after this one starts: position, velocity, acceleration at ``t_plan``."""
    return plan.trajectory.state(plan.t_plan)[:3]


class Planner:
    """Receding-horizon planner of exciting, certified trajectories.

    Args:
        model: the arm.
        scene: obstacles.
        gains: the controller's; the tracking tube comes from these and from nowhere else.
        settings: times, range and margins; the model's own by default.
        options: choices of method.
        seed: of the random directions.
        certify: rigorous check of one plan; by default :func:`safe_sysid.planning.certificate.verify_plan`.
        check_start: reasons against starting at rest at a pose; by default the certificate module's.
    """

    def __init__(
        self,
        model: RobotModel,
        scene: Scene,
        gains: ControllerGains,
        settings: PlannerSettings | None = None,
        options: PlannerOptions | None = None,
        seed: int = 0,
        certify: Certifier | None = None,
        check_start: StartCheck | None = None,
    ) -> None:
        """Precompute what all plans share."""
        self.model, self.scene, self.gains = model, scene, gains
        self.settings = model.settings.planner if settings is None else settings
        self.options = PlannerOptions() if options is None else options
        self.seed = seed
        self._certify = certify or self._verify
        self._start_refusals = check_start or self._check_start
        self._obstacles = Obstacles.build(model, scene)

    def _verify(self, plan: Plan, box: ParameterBox) -> Verdict:
        certificate = verify_plan(
            plan,
            self.model,
            box,
            self.scene,
            self.gains,
            intervals=self.settings.intervals,
            clearance_margin=self.settings.clearance_margin,
        )
        return verdict_of(certificate, self.gains)

    def _check_start(self, q: FloatArray, box: ParameterBox) -> Sequence[str]:
        return start_check(self.model, box, self.scene, self.gains, q, self.settings.clearance_margin)

    def budget(self, deadline: float | None = None, cancelled: Callable[[], bool] | None = None) -> Budget:
        """The settings' iteration budget, with a deadline (monotonic s) for real time or without for lock-step."""
        return Budget(self.settings.iteration_budget, self.options.certificates, deadline, cancelled)

    def family(self, start_state: ArrayLike) -> TrajectoryFamily:
        """The trajectories from a start state (3, n)."""
        n = self.model.n
        k_range = np.broadcast_to(np.asarray(self.settings.k_range, float), (n,))
        return TrajectoryFamily(
            frozen_array(start_state, (3, n), "plan start state"), k_range, self.settings.t_f
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
    ) -> PlanProblem:
        """The optimisation problem of one plan, for inspection or for :func:`safe_sysid.planning.optimise.solve`.

        ``last``: no plan will follow, so the braking manoeuvre is part of the experiment.
        """
        family = self.family(start_state)
        horizon = self.settings.t_f if last else self.settings.t_p
        known = None if calibration is None or calibration.epoch != box.epoch else calibration
        cost: Cost
        if self.options.cost == "condition":
            cost = self._condition(family, box, executed_information, horizon)
        else:
            size = box.size
            cost = InformationCost(
                self.model,
                family,
                box,
                box if known is None else known.prior,
                np.zeros((size, size)) if known is None else known.information,
                horizon,
                self.model.settings.identification.window_s,
                kind=self.options.cost,
            )
        constraints = FastConstraints(
            self.model,
            box,
            self.gains,
            family,
            self._obstacles,
            self.settings.clearance_margin,
            reserve={} if calibration is None else calibration.reserve,
        )
        # One generator per plan: a plan does not depend on how many were made before it.
        rng = np.random.default_rng([self.seed, sequence])
        starts = rng.uniform(-1.0, 1.0, (self.options.starts, self.model.n))
        if previous is not None:
            # On to where the plan under way would end, and back to where it began.
            ends = (previous.trajectory.knots[-1, 0], previous.trajectory.knots[0, 0])
            for i, end in enumerate(ends[: self.options.starts]):
                starts[i] = np.clip(family.parameter(end), -1.0, 1.0)
        return PlanProblem(cost, constraints, starts, self.options.keep, calibration is not None)

    def _condition(
        self, family: TrajectoryFamily, box: ParameterBox, executed: FloatArray | None, horizon: float
    ) -> ConditionCost:
        return ConditionCost(
            self.model.kinematics,
            family,
            payload_scale(box),
            np.zeros((10, 10)) if executed is None else executed,
            horizon,
            self.options.samples,
            self.options.window,
        )

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
            last: see :meth:`build_problem`.
            calibration: of the previous result; saves certificates, and is the other costs' memory.

        Raises:
            PlanError: malformed arguments, or a start that is not where the previous plan is then.
        """
        budget = self.budget() if budget is None else budget
        began = budget.clock()
        start = frozen_array(start_state, (3, self.model.n), "plan start state")
        if previous is not None:
            _check_connection(start, start_time, previous, self.model.joint_names)
        at_rest = not np.any(start[1:])
        if at_rest:
            reasons = tuple(self._start_refusals(start[0], box))
            if reasons:
                return PlannerResult(
                    PlanStatus.START_REFUSED, wall_time=budget.clock() - began, reasons=reasons
                )
        problem = self.build_problem(start, box, sequence, previous, executed_information, last, calibration)
        family = problem.cost.family

        def plan_of(k: FloatArray) -> Plan:
            return Plan(family.trajectory(k), start_time, self.settings.t_p, box.identity, sequence, k)

        found = solve(problem, lambda k: self._certify(plan_of(k), box), budget)
        best = found.best
        shared = PlannerResult(
            PlanStatus.STOPPED if found.cancelled else PlanStatus.NO_CERTIFIED_PLAN,
            certificate=found.attempts[-1].verdict.certificate if found.attempts else None,
            iterations=found.iterations,
            certificates=len(found.attempts),
            wall_time=budget.clock() - began,
            optimise_time=budget.clock() - began - found.certify_time,
            certify_time=found.certify_time,
            calibration=self._learned(found, problem, box, calibration),
        )
        if best is None:
            return replace(shared, reasons=_why(found))
        report = self._condition(family, box, executed_information, self.settings.t_p)
        return replace(
            shared,
            status=PlanStatus.PLANNED,
            plan=plan_of(best.k),
            certificate=best.verdict.certificate,
            cost=best.cost,
            condition=report.condition(best.k),
            information=report.information(best.k),
        )

    def _learned(
        self, found: SearchResult, problem: PlanProblem, box: ParameterBox, before: Calibration | None
    ) -> Calibration:
        """What to hand to the next call."""
        if before is None or before.epoch != box.epoch:
            before = Calibration({}, np.zeros((box.size, box.size)), box.epoch, box)
        information = before.information
        if found.best is not None and isinstance(problem.cost, InformationCost):
            executed = replace(problem.cost, horizon=self.settings.t_p)
            information = information + executed.information(found.best.k)
        return Calibration(found.reserve, information, box.epoch, before.prior)


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


#: So many updates in a row without improvement end a run.
VAIN_UPDATES = 2
#: An update is in vain if no interval became narrower by more than this share of its width.
VAIN_SHARE = 0.1


def bounds_stopped_improving(
    history: Sequence[ParameterBox], threshold: float = VAIN_SHARE, updates: int = VAIN_UPDATES
) -> bool:
    """Whether none of theta_e's ten intervals shrank by more than ``threshold`` in any of the last ``updates``.

    Args:
        history: boxes in the order of their publication, the prior first.
        threshold: relative to the interval's width before the update.
        updates: how many updates in a row must have been in vain.
    """
    if updates < 1:
        raise PlanError(f"updates = {updates!r}: expected at least 1")
    if len(history) < updates + 1:
        return False
    for before, after in zip(history[-updates - 1 : -1], history[-updates:], strict=True):
        if before.epoch != after.epoch:
            return False
        old, new = (box.payload_upper - box.payload_lower for box in (before, after))
        if np.any(old - new > threshold * old):
            return False
    return True


def verdict_of(certificate: Certificate, gains: ControllerGains) -> Verdict:
    """A certificate in the optimiser's terms: worst margin over time per joint, in physical units.

    The tracking theorem's hypotheses are shares of what it assumes there, absolute here. Anything that is not found
    under the expected name is left out: it would only make the optimiser's first guess worse.
    """
    margins: Margins = {}
    worst = {
        name: dict(zip(certificate.labels[name], values.min(axis=0), strict=True)) if values.size else {}
        for name, values in certificate.margins.items()
    }
    for name in ("position", "velocity", "torque"):
        if worst.get(name):
            margins[name] = np.array(list(worst[name].values()))
    for name, ours in (("clearance", "clearance"), ("self_clearance", "self")):
        if worst.get(name):
            margins[ours] = np.array([min(worst[name].values())])
    tracking, a = worst.get("tracking", {}), gains.assumptions
    joints = certificate.labels.get("position", ())
    for name, assumed in (("velocity", a.velocity), ("acceleration", a.acceleration), ("jerk", a.jerk)):
        shares = [tracking.get(f"{name} of {joint}") for joint in joints]
        if shares and None not in shares:
            absolute = np.array(shares, float) * assumed
            margins[name] = np.minimum(margins[name], absolute) if name in margins else absolute
    if "uncertainty" in tracking:
        margins["tracking"] = np.array([tracking["uncertainty"] * a.uncertainty])
    if "inertia" in tracking:
        margins["inertia"] = np.array([tracking["inertia"]])
    reasons = () if certificate.ok else (certificate.status,)
    return Verdict(certificate.ok, margins, certificate, reasons)
