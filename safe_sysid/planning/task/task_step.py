"""Step of a task: the longest certified motion along the path, or what the optimiser finds beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.certification.certificate import PlanCertificate
from safe_sysid.planning.motions.motion_margins import MotionMargins
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.optimiser.optimise import Budget
from safe_sysid.planning.results import Calibration, PlannerResult, PlanStatus
from safe_sysid.planning.task.inverse_kinematics import nearest_turn
from safe_sysid.planning.task.poses import PoseMargins
from safe_sysid.planning.task.roadmap import rest_of_polyline, spread
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["SMALL_STEP", "StepRequest", "StepSearch"]

SMALL_STEP = 0.02  # rad, by the longest joint: less is no progress
_TARGETS = 32  # points of the way considered as ends of a step
_CERTIFICATES = 6  # asked for per step


@dataclass(frozen=True, eq=False)
class StepRequest:
    """From where a step is looked for; attributes as the arguments of ``TaskPlanner.next``."""

    start: FloatArray
    time: float
    box: ParameterBox
    sequence: int
    previous: Plan | None
    budget: Budget
    calibration: Calibration | None

    @property
    def rest(self) -> FloatArray:
        """Where the arm comes to rest if nothing follows, (n,) rad."""
        return self.start[0] if self.previous is None else self.previous.trajectory.knots[-1, 0]

    def refused(self, status: PlanStatus, *reasons: str) -> PlannerResult:
        """The answer without a plan."""
        return PlannerResult(status, reasons=reasons, calibration=self.calibration)


@dataclass(frozen=True, eq=False)
class _StepCandidate:
    """A motion to a point of the way, and its quick margins (6,)."""

    family: TrajectoryFamily
    k: FloatArray
    quick: FloatArray


class StepSearch:
    """Looks for steps; learns from every certificate."""

    def __init__(self, margins: MotionMargins) -> None:
        """Prepare. ``margins``: of motions, with what certificates taught about them."""
        self._margins = margins

    def along(self, request: StepRequest, way: FloatArray, poses: PoseMargins) -> PlannerResult:
        """The farthest point of a way (m, n) at which a certified trajectory ends.

        ``request``: from where; ``poses``: quick margins with the box in force.
        """
        planner = self._margins.planner
        certificate: PlanCertificate | None = None
        count, left = 0, self._candidates(request, way, poses)
        here = self._still(request, poses)
        while left and count < _CERTIFICATES and not request.budget.stopped():
            # A margin that is as small where the arm rests, which is certified, speaks against no motion.
            wanted = np.minimum(self._margins.reserve, here)
            liked = (i for i, c in enumerate(left) if np.all(c.quick >= wanted))
            # Where nothing is liked, certificates decide, by halves: first of the nearer half of what is left.
            i = next(liked, len(left) // 2)
            chosen = left[i]
            plan = Plan(
                chosen.family.trajectory(chosen.k), request.time, planner.settings.t_p, request.box.identity,
                request.sequence, chosen.k, planner.tube,
            )  # fmt: skip
            certificate = planner.certificate(plan, request.box)
            count += 1
            self._margins.learn(chosen.quick, certificate)
            if certificate.ok:
                return PlannerResult(
                    PlanStatus.PLANNED, plan, certificate, certificates=count, calibration=request.calibration
                )
            left = left[i + 1 :]
        status = PlanStatus.STOPPED if request.budget.stopped() else PlanStatus.NO_CERTIFIED_PLAN
        reason = "no step along the way could be certified in the time given"
        return replace(
            request.refused(status, reason if certificate is None else certificate.status),
            certificate=certificate,
            certificates=count,
        )

    def _still(self, request: StepRequest, poses: PoseMargins) -> FloatArray:
        """Quick margins (6,) of staying where the arm comes to rest."""
        rest = np.stack([request.rest, np.zeros_like(request.rest), np.zeros_like(request.rest)])
        family = TrajectoryFamily(rest, np.ones(len(request.rest)), self._margins.planner.settings.t_f)
        return np.asarray(self._margins.quick(family, np.zeros((1, len(request.rest))), poses)[0])

    def _candidates(self, request: StepRequest, way: FloatArray, poses: PoseMargins) -> list[_StepCandidate]:
        """Motions to points of the way, farthest first.

        Of two families: about what is certified already, whose short motions are certified next to surely; and about
        the natural braking motion, whose centre lies farther ahead.
        """
        points = spread(rest_of_polyline(way, request.rest), _TARGETS)
        about = self._margins.planner.family(request.start, request.previous, request.time)
        families = [about]
        if about.tail is not None:  # comes last: where nothing is liked, the last one is tried
            families.insert(0, TrajectoryFamily(about.start, about.k_range, about.duration))
        found: list[tuple[int, _StepCandidate]] = []
        for family in families:
            ks = np.array([family.parameter(point) for point in points])
            reachable = np.flatnonzero(np.abs(ks).max(axis=1) <= 1.0)
            if reachable.size:
                quick = self._margins.quick(family, ks[reachable], poses)
                found += [(int(i), _StepCandidate(family, ks[i], q)) for i, q in zip(reachable, quick, strict=True)]
        if not found:
            k = about.parameter(points[-1])
            k = k / np.abs(k).max()
            found = [(0, _StepCandidate(about, k, self._margins.quick(about, k[None], poses)[0]))]
        return [candidate for _, candidate in sorted(found, key=lambda item: -item[0])]

    def beside(self, request: StepRequest, way: FloatArray) -> PlannerResult:
        """What the optimiser finds near the next corner of a way (m, n); without a plan if that is no nearer.

        ``request``: from where.
        """
        rest = rest_of_polyline(way, request.rest)
        goal = rest[min(1, len(rest) - 1)]
        found = self._margins.planner.plan_next(
            request.start,
            request.time,
            request.box,
            request.sequence,
            request.previous,
            budget=request.budget,
            calibration=request.calibration,
            goal=goal,
            cost="goal",
        )
        if found.plan is None:
            return found
        end = nearest_turn(self._margins.planner.model, found.plan.trajectory.knots[-1, 0], goal)
        if float(np.abs(request.rest - goal).max() - np.abs(end - goal).max()) >= SMALL_STEP:
            return found
        reasons = ("the optimiser found nothing nearer to the next corner of the way",)
        return replace(found, status=PlanStatus.NO_CERTIFIED_PLAN, plan=None, reasons=reasons)
