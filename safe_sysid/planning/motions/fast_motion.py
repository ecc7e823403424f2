r"""Fast motions from rest to rest with a known payload: least jerk, away from limits and obstacles.

As the PSO paper makes them for its experiments (section VI-D3): offline, for a nominal theta, two quintic pieces of one
second each, whose common knot (position, velocity, acceleration) is free. Nothing here is a certificate: torques are
those of one theta, at the desired motion, and every constraint is looked at in samples, densely at the end. What is
kept is told constraint by constraint; :func:`~.certificate.verify_plan` with gains for the motion
decides whether it may be driven for a whole box of parameters.

Search: the motion of least jerk, and the ones through random poses half way, are compared; the best are taken to local
minima by :mod:`.sqp`, and of these the one of least jerk that a dense check confirms is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.planning.distances.pair_distances import PairDistances
from safe_sysid.planning.motions.knot_family import KnotFamily
from safe_sysid.planning.motions.motion_limits import (
    DISTANCE_STEP,
    TORQUE_STEP,
    LimitDistances,
    MotionLimits,
    check_times,
    kept_by,
)
from safe_sysid.planning.motions.motion_rows import MotionRows, evenly
from safe_sysid.planning.optimiser.sqp import SqpOptions, Subproblem, minimise
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["FastMotion", "LimitDistances", "MotionLimits", "MotionRefusedError", "check_motion", "fast_motion"]

#: Samples per second while guesses are compared, and while they are optimised at first.
_COARSE, _RATE = 8.0, 24.0
#: Random poses half way: how far from the straight line, rad, and how many are compared.
_SPREAD, _SCREENED = 1.2, 48
_ITERATIONS, _ROUNDS = 60, 6
#: Asked for on top while optimising, in the rows' units: a tenth of a per cent of a limit, or of a millimetre.
_CUSHION = 1e-3
#: A converged search that breaks its rows by more than this is not tried again.
_HOPELESS = 0.05
#: Rows of one quadratic program.
_ROWS = 160
_SQP = SqpOptions(radius=0.3, penalty=10.0, tolerance=1e-4, feasible=2e-4)


class MotionRefusedError(PlanError):
    """No motion was found that keeps what is asked for.

    Attributes:
        reasons: in words, one per constraint that is broken or not kept by what was asked.
        best: the motion that came nearest, or None.
    """

    def __init__(self, reasons: Sequence[str], best: FastMotion | None = None) -> None:
        self.reasons, self.best = tuple(reasons), best
        super().__init__("fast motion refused: " + "; ".join(self.reasons))


@dataclass(frozen=True, eq=False)
class FastMotion:
    """A motion and what it keeps."""

    trajectory: QuinticTrajectory
    #: per family (``position``, ``velocity``, ``acceleration``, ``torque``, ``clearance``, ``self_clearance``) the
    #: smallest distance to its limit, where and when; unconstrained families are infinite
    kept: Mapping[str, Margin]
    jerk: float  #: integral of squared jerk over all joints, rad^2/s^5
    seed: int = 0

    def summary(self) -> str:
        """One line for logs."""
        margins = "; ".join(str(margin) for margin in self.kept.values())
        return f"{self.trajectory.duration:g} s, jerk {self.jerk:.4g} rad^2/s^5: {margins}"


def check_motion(
    model: RobotModel, theta: ArrayLike, scene: Scene, trajectory: QuinticTrajectory, limits: MotionLimits | None = None
) -> Mapping[str, Margin]:
    """What a motion keeps, sampled densely: torques every ms, distances every 2 ms; the rest exactly.

    Args:
        model: the arm, payload's envelope included in its bodies.
        theta: (14 n,) all parameters, what the hand holds included.
        limits: None for the model's.

    Raises:
        PlanError: sizes that disagree.
        ConfigError: the scene does not fit the robot.
    """
    limits = MotionLimits.of(model) if limits is None else limits
    return MappingProxyType(kept_by(model, theta, PairDistances(model, scene), trajectory, limits))


def fast_motion(
    model: RobotModel,
    theta: ArrayLike,
    scene: Scene,
    start: ArrayLike,
    goal: ArrayLike,
    pieces: Sequence[float] = (1.0, 1.0),
    limits: MotionLimits | None = None,
    keep: LimitDistances | None = None,
    seed: int = 0,
    starts: int = 6,
    via: ArrayLike | None = None,
) -> FastMotion:
    """The motion of least jerk from rest at ``start`` to rest at ``goal`` that keeps its distance from every limit.

    Args:
        model: the arm, payload's envelope included in its bodies.
        theta: (14 n,) all parameters, what the hand holds included; torques are taken at it.
        start: (n,) rad.
        goal: (n,) rad; continuous joints go exactly there, not to the nearest equal angle.
        pieces: durations of the quintic pieces, s.
        limits: None for the model's.
        keep: by how much to stay away from them; None for the default.
        starts: how many guesses are optimised.
        via: (K - 1, n) rad, a guess of the inner knots' positions, tried besides the others.

    Raises:
        MotionRefusedError: none was found, with the reasons of the one that came nearest.
        PlanError: malformed arguments.
        ConfigError: the scene does not fit the robot.
    """
    n = model.n
    limits = MotionLimits.of(model) if limits is None else limits
    keep = LimitDistances() if keep is None else keep
    start, goal = frozen_array(start, (n,), "motion start"), frozen_array(goal, (n,), "motion goal")
    family = KnotFamily(start, goal, np.asarray(pieces, float))
    theta = frozen_array(theta, (model.layout.size,), "theta")
    at = evenly(family.duration, _RATE)
    rows = MotionRows(model, theta, PairDistances(model, scene), family, limits, keep, at, at, _CUSHION)
    reasons = rows.end_reasons()
    if reasons:
        raise MotionRefusedError(reasons)
    search = _FastMotionSearch(rows, seed)
    inner = (len(family.pieces) - 1, n)
    guess = None if via is None else frozen_array(via, inner, "motion via")
    ends = [search.improve(x) for x in search.guesses(guess, max(starts, 1))]
    missing, x = min(ends, key=lambda end: (max(end[0], 0.0), family.jerk(end[1])[0]))
    trajectory = family.trajectory(x)
    kept = kept_by(model, theta, rows.distances, trajectory, limits)
    motion = FastMotion(trajectory, MappingProxyType(kept), family.jerk(x)[0], seed)
    if missing > 0.0:
        raise MotionRefusedError(search.dense.reasons(x), motion)
    return motion


@dataclass(frozen=True, eq=False)
class _Jerk:
    """Integral of squared jerk, over the least there is, as the SQP wants it."""

    family: KnotFamily
    scale: float

    def value_and_gradient(self, x: FloatArray) -> tuple[float, FloatArray]:
        value, slope = self.family.jerk(x.reshape(self.family.n, self.family.free))
        return value / self.scale, slope.ravel() / self.scale

    def gauss_newton(self, x: FloatArray) -> FloatArray:
        return np.asarray(np.kron(np.eye(self.family.n), 2.0 * self.family.quadratic / self.scale), float)


class _FastMotionSearch:
    """Guesses, and local minima near them."""

    def __init__(self, rows: MotionRows, seed: int) -> None:
        self.rows, self.seed, self.family = rows, seed, rows.family
        knots = np.append(0.0, np.cumsum(rows.family.pieces))
        # Where a motion is judged, and nowhere else.
        self.dense = rows.at(check_times(knots, TORQUE_STEP), check_times(knots, DISTANCE_STEP))
        least = self.family.jerk(self.family.smoothest())[0]
        # A motion that goes nowhere has no jerk of its own.
        self.jerk = _Jerk(self.family, max(least, 1.0 / self.family.duration**5))
        self.subproblem = Subproblem(max(self.family.n * self.family.free, 1), _ROWS)

    def guesses(self, via: FloatArray | None, count: int) -> list[FloatArray]:
        """So many, best first; what was given, and the smoothest of all, before everything else."""
        family = self.family
        first = [family.smoothest()] if via is None else [family.smoothest(via), family.smoothest()]
        if not family.free:
            return [family.smoothest()]
        if count <= len(first):
            return first[:count]
        rng = np.random.default_rng(self.seed)
        share = np.cumsum(family.pieces)[:-1, None] / family.duration
        straight = family.start + share * (family.goal - family.start)
        low, high = self.rows.limits.position_lower, self.rows.limits.position_upper
        drawn = [
            family.smoothest(np.clip(straight + rng.uniform(-_SPREAD, _SPREAD, straight.shape), low, high))
            for _ in range(_SCREENED)
        ]
        few = evenly(family.duration, _COARSE)
        coarse = self.rows.at(few, few)
        worth = [self._merit(coarse, x) for x in drawn]
        return [*first, *(drawn[i] for i in np.argsort(worth, kind="stable"))][:count]

    def _merit(self, rows: MotionRows, x: FloatArray) -> float:
        """Jerk, and how deep and how long limits are broken."""
        broken = np.minimum(rows.values(x.ravel()), 0.0)
        return self.jerk.value_and_gradient(x.ravel())[0] - 5.0 * float(broken.min()) - 0.2 * float(broken.sum())

    def improve(self, x: FloatArray) -> tuple[float, FloatArray]:
        """A local minimum near x, and how much (in the rows' units) it lacks of what is to be kept; <= 0: nothing.

        The instants at which the dense check finds too little are looked at in the next round, too.
        """
        rows, family = self.rows, self.family
        if not family.free:
            return max(self.dense.missing(x).values()), x
        best = np.inf, x
        for _ in range(_ROUNDS):
            found = minimise(self.jerk, rows, x.ravel(), *rows.bounds(), self.subproblem, _ITERATIONS, options=_SQP)
            x = (found.k if found.best is None else found.best[1]).reshape(family.n, family.free)
            missing = self.dense.missing(x)
            worst = max(missing.values())
            if worst < best[0]:
                best = worst, x
            if worst <= 0.0 or found.violation > _HOPELESS:
                break
            rows = rows.with_low_instants(self.dense, x.ravel())
        return best
