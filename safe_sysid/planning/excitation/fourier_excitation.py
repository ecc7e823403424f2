r"""Exciting Fourier series: the classical method, and the same with a certificate.

Classical [Swevers1997], PSO's ``grav-pid-excit``: coefficients that minimise the condition number of theta_e's torque
regressor under limits of position, velocity and acceleration. Torques, obstacles and the arm itself are not looked at;
what that does to an arm of known limits, :func:`safe_sysid.planning.motions.fast_motion.check_motion` tells.

Certified: the same cost over the same series, inside what a certificate will ask for (torques of every parameter in
the box, hypotheses of the tracking theorem, distances), then quintics through the series' states, certified by
:func:`~.certificate.verify_plan`: they *are* what is tracked. What a certificate finds worse than
samples did is asked for in the next round; if no round is certified, the motion is shrunk until one is.

:class:`FourierPlanner` makes plans of it: any cost of :mod:`safe_sysid.planning.costs` but the goal's, each series for
what those before it left open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.tube import TrackingTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.planning.certification.certificate import PlanCertificate, start_check
from safe_sysid.planning.costs import CostContext, CostSpec, build_cost
from safe_sysid.planning.costs.base import Cost
from safe_sysid.planning.costs.condition import ConditionCost, payload_scale
from safe_sysid.planning.costs.observation import condition_number
from safe_sysid.planning.motions.certified_rows import CertifiedRows, cells_of
from safe_sysid.planning.motions.knot_family import MotionSampler
from safe_sysid.planning.motions.motion_limits import LimitDistances, MotionLimits
from safe_sysid.planning.motions.motion_rows import FAR, rate_rows
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.optimiser.optimise import Budget
from safe_sysid.planning.optimiser.sqp import Inequalities, SqpOptions, Subproblem, minimise
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.results import Calibration, PlannerResult, PlanStatus
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.extrema import derivative_range
from safe_sysid.trajectories.fourier import FourierFamily, FourierTrajectory
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["LONGEST", "FourierExcitation", "FourierPlanner", "certified_fourier", "classical_fourier"]

#: Longest period of a planner's series, s: of longer ones a plan file would not take the certificate.
LONGEST = 60.0
CostMaker = Callable[[TrajectoryFamily], Cost]

#: Share of limits that the classical method leaves, besides what is exact.
_KEEP = LimitDistances(position=0.0, velocity=0.01, acceleration=0.01, torque=0.0, clearance=0.0, self_clearance=0.0)
#: Samples of the cost, and of the rows per period of the highest harmonic.
_COST_SAMPLES, _ROW_SAMPLES = 128, 12
#: Rows of one quadratic program.
_ROWS = 250
_SQP = SqpOptions(radius=0.2, tolerance=5e-4)
#: A guess that breaks rows is made shorter by this; a motion that is not certified at last, to these shares.
_SHRINK, _SHORTER = 0.8, (0.98, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1)

#: A certified motion whose cost, a logarithm, is less than this below the last one's ends the rounds.
_SETTLED = 0.02


@dataclass(frozen=True, eq=False)
class FourierExcitation:
    """An exciting series, and what is known of it."""

    series: FourierTrajectory
    trajectory: QuinticTrajectory  #: quintics through its states; what is tracked
    condition: float  #: 2-norm condition number of theta_e's torque regressor, unscaled columns, at 128 samples
    scaled: float  #: the same in columns scaled as for the search
    cost: float  #: what was minimised
    numbers: FloatArray  #: (n m,) that select the series
    certificate: PlanCertificate | None = None  #: of ``trajectory``; None for the classical method
    rounds: int = 1  #: searches that were made, certificates included


@dataclass(frozen=True, eq=False)
class _SeriesFamily:
    """The series as the costs want a family: linear in k, sampled at fixed times."""

    series: FourierFamily
    n: int = field(init=False)
    duration: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", self.series.n)
        object.__setattr__(self, "duration", self.series.period)

    def sampler(self, times: ArrayLike) -> MotionSampler:
        """At fixed times (N,), s."""
        times = np.asarray(times, float)
        base = np.zeros((4, len(times), self.series.n))
        base[0] = self.series.start
        return MotionSampler(times, base, self.series.basis(times))


def _condition_cost(model: RobotModel, series: FourierFamily, scale: FloatArray) -> ConditionCost:
    family = cast(TrajectoryFamily, _SeriesFamily(series))
    return ConditionCost(model.kinematics, family, scale, np.zeros((10, 10)), series.period, _COST_SAMPLES)


def _row_sampler(series: FourierFamily) -> MotionSampler:
    count = _ROW_SAMPLES * series.harmonics
    return _SeriesFamily(series).sampler((np.arange(count) + 0.5) * (series.period / count))


@dataclass(frozen=True, eq=False)
class _RateRows:
    """Position, velocity and acceleration inside limits."""

    sampler: MotionSampler
    limits: MotionLimits

    def values(self, x: FloatArray) -> FloatArray:
        x = x.reshape(len(self.limits.velocity), -1)
        return np.concatenate([part.ravel() for part in rate_rows(self.sampler, x, self.limits, _KEEP).values()])

    def values_and_jacobian(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        slopes: list[FloatArray] = []
        x = x.reshape(len(self.limits.velocity), -1)
        parts = rate_rows(self.sampler, x, self.limits, _KEEP, slopes)
        values = np.concatenate([part.ravel() for part in parts.values()])
        return np.minimum(values, FAR), np.concatenate(slopes)


def classical_fourier(
    model: RobotModel,
    start: ArrayLike,
    limits: MotionLimits,
    period: float = 10.0,
    harmonics: int = 5,
    seed: int = 0,
    starts: int = 3,
    iterations: int = 150,
) -> FourierExcitation:
    """Series of least condition number under limits of position, velocity and acceleration; nothing else is kept.

    Args:
        start: (n,) rad, where it begins and ends, at rest.
        limits: position, velocity, acceleration; the torque's is not looked at.
        period: s.
        starts: so many of them are optimised.

    Raises:
        PlanError: malformed arguments, or a start outside of the limits.
    """
    start = frozen_array(start, (model.n,), "excitation start")
    if np.any(start < limits.position_lower) or np.any(start > limits.position_upper):
        raise PlanError(f"excitation start {start.tolist()}: expected inside the position limits")
    family = FourierFamily(start, period, harmonics)
    cost = _condition_cost(model, family, np.ones(10))  # unscaled, as in the literature
    rows = _RateRows(_row_sampler(family), limits)
    found = _minimum(cost, rows, _first_guesses(family, rows, seed, starts), iterations)
    # Between samples a series may be a little beyond; the exact ranges decide.
    x = found.reshape(family.n, family.free)
    x *= _exact_share(family.trajectory(x), limits)[:, None]
    return _excitation(family, cost, cost, x)


def certified_fourier(
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: TrackingTube,
    start: ArrayLike,
    period: float = 10.0,
    harmonics: int = 5,
    seed: int | Sequence[int] = 0,
    starts: int = 2,
    iterations: int = 60,
    rounds: int = 5,
    make_costs: Sequence[CostMaker] = (),
) -> FourierExcitation:
    """Series of small cost that our certificate holds for.

    Args:
        start: (n,) rad, where it begins and ends, at rest.
        period: s.
        starts: so many of them are optimised before the first certificate.
        rounds: certificates while the motion is optimised.
        make_costs: of the family of series; minimised in turn, the last one decides; none: the condition number of
            theta_e's columns, scaled.

    Raises:
        PlanError: the arm may not even hold the start pose, or no motion from there is certified, with the reasons.
        ConfigError: the scene does not fit the robot.
    """
    start = frozen_array(start, (model.n,), "excitation start")
    reasons = start_check(model, box, scene, gains, start)
    if reasons:
        raise PlanError("excitation start refused: " + "; ".join(reasons))
    family = FourierFamily(start, period, harmonics)
    condition = _condition_cost(model, family, payload_scale(box))
    costs = [make(cast(TrajectoryFamily, _SeriesFamily(family))) for make in make_costs] or [condition]
    cost = costs[-1]
    # What resting is certified for is where the reserves begin.
    still = np.zeros(family.n * family.free)
    rows = CertifiedRows.build(model, box, scene, gains, _row_sampler(family))
    _, rows = _certified(family, cost, condition, still, rows, 0)
    best: FourierExcitation | None = None
    guesses = _first_guesses(family, rows, seed, starts)
    for each in costs:
        guesses = [_minimum(each, rows, guesses, iterations)]
    x = guesses[0]
    for count in range(1, rounds + 1):
        found, rows = _certified(family, cost, condition, x, rows, count)
        passed = found.certificate is not None and found.certificate.ok
        if passed and (best is None or found.cost < best.cost):
            settled = best is not None and found.cost > best.cost - _SETTLED
            best = found
            if settled:
                break
        if count < rounds:
            x = _minimum(cost, rows, [x], iterations)
    for count, share in enumerate(() if best is not None else _SHORTER, rounds + 1):
        found, _ = _certified(family, cost, condition, share * x, rows, count)
        if found.certificate is not None and found.certificate.ok:
            best = found
            break
    if best is None:
        status = "" if found.certificate is None else found.certificate.status
        raise PlanError(f"excitation: no series from this start is certified, however small: {status}")
    return best


def _certified(
    family: FourierFamily, cost: Cost, condition: ConditionCost, x: FloatArray, rows: CertifiedRows, count: int
) -> tuple[FourierExcitation, CertifiedRows]:
    """The series of x with its certificate, and the rows as that certificate sees them."""
    found = _excitation(family, cost, condition, x.reshape(family.n, family.free))
    n = family.n
    plan = Plan(found.trajectory, 0.0, family.period, rows.box.identity, 0, np.zeros(n))
    certificate, wiser = rows.certify(plan, x)
    return replace(found, certificate=certificate, rounds=count), wiser


def _first_guesses(
    family: FourierFamily, rows: Inequalities, seed: int | Sequence[int], starts: int
) -> list[FloatArray]:
    """Random coefficients, as large as the rows let them be."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(max(starts, 1)):
        x = rng.normal(size=family.n * family.free)
        length = 1.0
        while rows.values(length * x).min() < 0.0 and length > 1e-4:
            length *= _SHRINK
        out.append(length * x)
    return out


def _minimum(cost: Cost, rows: Inequalities, guesses: list[FloatArray], iterations: int) -> FloatArray:
    """Best local minimum near some guesses; a guess that keeps the rows if no search ends with anything better."""
    size = guesses[0].size
    subproblem, bound = Subproblem(size, _ROWS), np.full(size, 1e3)
    best: tuple[float, FloatArray] | None = None
    for guess in guesses:
        found = minimise(cost, rows, guess, -bound, bound, subproblem, iterations, options=_SQP)
        # Where nothing keeps the rows, the last iterate breaks them least.
        value, x = found.best if found.best is not None else (found.value + 1e3 * found.violation, found.k)
        if best is None or value < best[0]:
            best = value, x
    return guesses[0] if best is None else best[1]


def _exact_share(series: FourierTrajectory, limits: MotionLimits) -> FloatArray:
    """(n,) largest factors at most 1 that keep each joint inside its limits at all times: series and quintics."""
    share, tracked = np.ones(series.n), series.quintic()
    bounds = (
        (limits.position_lower, limits.position_upper),
        (-limits.velocity, limits.velocity),
        (-limits.acceleration, limits.acceleration),
    )
    for order, limit in enumerate(bounds):
        origin = series.start if order == 0 else np.zeros(series.n)
        for ranges in (series.ranges(order), derivative_range(tracked, order, 0.0, tracked.duration)):
            for side, sign in ((0, -1.0), (1, 1.0)):
                reach, room = sign * (ranges[:, side] - origin), sign * (limit[side] - origin)
                share = np.where(reach > room, np.minimum(share, room / np.maximum(reach, 1e-300)), share)
    return share * (1.0 - 1e-9)


def _excitation(family: FourierFamily, cost: Cost, condition: ConditionCost, x: FloatArray) -> FourierExcitation:
    series, numbers = family.trajectory(x), x.ravel()
    rows = condition.rows(numbers).reshape(-1, 10)
    scaled = condition_number(rows, np.asarray(condition.scale))
    return FourierExcitation(series, series.quintic(), condition_number(rows), scaled, cost.value(numbers), numbers)


class FourierPlanner(Planner):
    """A planner whose plans are certified Fourier series: from rest, driven to their ends, where the next one begins.

    It searches without a deadline, some 10 s to a minute per plan, and is not for planning while an arm moves.

    Args:
        period: s, of every series.
        more: as for :class:`~safe_sysid.planning.planner.Planner`.
    """

    def __init__(self, *args: Any, period: float = 10.0, **more: Any) -> None:
        """Prepare.

        Raises:
            PlanError: a period out of range, or a cost that is a goal's.
        """
        super().__init__(*args, **more)
        if not self.settings.t_p <= period <= LONGEST:
            raise PlanError(f"period = {period!r} s: expected {self.settings.t_p} (planner.t_p) to {LONGEST:g}")
        if CostSpec.parse(self.options.cost).uses("goal"):
            raise PlanError(f"cost {self.options.cost}: expected no term goal: a Fourier series ends where it begins")
        self.period = float(period)

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
        """A series from rest, for every parameter in the box; NO_LESSON from a start in motion.

        Arguments as of the planner's; ``budget``'s clock alone counts, and information is of whole series.
        """
        clock = (self.budget() if budget is None else budget).clock
        began = clock()
        start = frozen_array(start_state, (3, self.model.n), "plan start state")
        if np.any(start[1:]):
            return PlannerResult(PlanStatus.NO_LESSON, reasons=("a Fourier series begins at rest",))
        refused = tuple(self._start_refusals(start[0], box))
        if refused:
            return PlannerResult(PlanStatus.START_REFUSED, wall_time=clock() - began, reasons=refused)

        def context(family: TrajectoryFamily) -> CostContext:
            found = self.context(start, box, executed_information, last, calibration, family=family)
            return replace(found, horizon=self.period)

        def made(spec: CostSpec | str) -> CostMaker:
            return lambda family: build_cost(spec, context(family))

        chosen = CostSpec.parse(self.options.cost if cost is None else cost)
        # A condition number sees the weakest direction alone: where many are weak a determinant leads nearer.
        costs: list[CostSpec | str] = ["arm", chosen] if chosen.uses("arm_condition") else [chosen]
        try:
            found = certified_fourier(
                self.model, box, self.scene if scene is None else scene, self.gains, start[0], self.period,
                seed=(self.seed, sequence), make_costs=[made(spec) for spec in costs],
            )  # fmt: skip
        except PlanError as error:
            return PlannerResult(PlanStatus.NO_CERTIFIED_PLAN, wall_time=clock() - began, reasons=(str(error),))
        series = FourierFamily(start[0], self.period, found.series.harmonics)
        known = context(cast(TrajectoryFamily, _SeriesFamily(series)))
        taught, t_p, still = known.condition(), self.settings.t_p, np.zeros(self.model.n)
        answer = PlannerResult(
            PlanStatus.PLANNED,
            plan=Plan(found.trajectory, start_time, t_p, box.identity, sequence, still),
            certificate=found.certificate,
            cost=found.cost,
            condition=taught.condition(found.numbers),
            information=taught.information(found.numbers),
            certificates=found.rounds,
            wall_time=clock() - began,
            first_time=clock() - began,
            calibration=Calibration({}, known.after(found.numbers, self.period).information, box.epoch, known.prior),
            intervals=cells_of(self.model, self.period),
        )
        if on_certified is not None:
            on_certified(answer)
        return answer
