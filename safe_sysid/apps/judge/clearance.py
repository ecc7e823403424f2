"""Judge of clearance: distances by the engine's geometry, against zero and against what certificates promised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.apps.judge.record import JudgeRecord
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least, at_most
from safe_sysid.report.run.logs import PlanEntry, PlantLog
from safe_sysid.report.run.summary import ClearanceSummary
from safe_sysid.robot.model import RobotModel

__all__ = ["CLEARANCE_STRIDE", "Oracle", "certified_clearance", "judge_clearance"]

#: Distance (m) at a position between solids that must stay apart, and which.
Oracle = Callable[[ArrayLike], tuple[float, tuple[str, str] | None]]

#: Every so many ticks the clearance is measured (at 1 kHz and 1 rad/s a link of 1 m moves 5 mm meanwhile).
CLEARANCE_STRIDE = 5
_SAME_TICK = 1e-6  # s
#: Around a general rounded hull MuJoCo gets a polytope, up to this share of the radius larger (simulation.engines).
_POLYTOPE = 0.025
_SKIN = 1e-6  # m: below this radius it is the body itself
_DISTANCE = 1e-7  # m: what MuJoCo's iteration leaves open


def _promise(plan: PlanEntry, margin: float) -> float | None:
    """Distance that a plan's certificate guarantees, m: obstacles and the arm itself; None if it constrains nothing."""
    found = [plan.margins[name].value for name in ("clearance", "self_clearance") if name in plan.margins]
    known = [value + margin for value in found if np.isfinite(value)]
    return min(known) if known else None


def certified_clearance(plans: tuple[PlanEntry, ...], margin: float) -> float | None:
    """Smallest distance (m) that any plan's certificate guarantees; ``margin`` (m) is what they ask for on top."""
    known = [value for plan in plans if plan.planned and (value := _promise(plan, margin)) is not None]
    return min(known) if known else None


def _promise_over_time(plans: tuple[PlanEntry, ...], time: FloatArray, margin: float) -> FloatArray:
    """Certified clearance at each time, -inf where nothing is. Old and new plan overlap: the smaller promise holds."""
    promise = np.full(time.size, np.inf)
    planned = sorted((plan for plan in plans if plan.planned), key=lambda plan: plan.start)
    for i, plan in enumerate(planned):
        value = _promise(plan, margin)
        last = i == len(planned) - 1  # the arm rests at its end, for which the certificate holds as well
        until = np.inf if last else float(plan.end or plan.start)
        under_way = (time >= plan.start - _SAME_TICK) & (time <= until)
        promise[under_way] = np.minimum(promise[under_way], -np.inf if value is None else value)
    return np.where(np.isinf(promise), -np.inf, promise)


def judge_clearance(
    record: JudgeRecord,
    plant: PlantLog,
    plans: tuple[PlanEntry, ...],
    model: RobotModel,
    oracle: Oracle,
    nearest: ClearanceSummary,
) -> tuple[ClearanceSummary, tuple[FloatArray, FloatArray, FloatArray]]:
    """Distances at every few ticks, the last one included: below zero, or below what the certificate promised.

    Returns the record, and times (s), distances (m) and certified distances (m, NaN where there are none).
    """
    picked = np.unique(np.append(np.arange(0, plant.time.size, CLEARANCE_STRIDE), plant.time.size - 1))
    time = plant.time[picked]
    measured = [oracle(q) for q in plant.q[picked]]
    distance = np.array([value for value, _ in measured])
    if np.any(np.isnan(distance)):
        record.gaps.append("clearance: the independent geometry gave no number")
        distance = np.where(np.isnan(distance), np.inf, distance)
    overlap = distance < 0.0
    radii = [body.radius for body in model.bodies if len(body.points) > 2 and body.radius > _SKIN]
    certified = _promise_over_time(plans, time, model.settings.planner.clearance_margin)
    promise = certified - 2.0 * _POLYTOPE * max(radii, default=0.0) - _DISTANCE
    curves = (time, distance, np.where(np.isfinite(certified), certified, np.nan))
    short = ~overlap & (distance < promise)
    for bad, what in ((overlap, "overlap"), (short, "less than certified")):
        where = np.flatnonzero(bad)
        if where.size:
            worst = int(where[np.argmin(distance[where])])
            promised = f", certified {at_least(promise[worst], places=4)} m" if np.isfinite(promise[worst]) else ""
            record.add(
                "clearance",
                where.size,
                f"{what}: {_pair(measured[worst][1])} at {at_most(distance[worst], places=4)} m{promised}, "
                f"{time[worst]:.3f} s, "
                f"{where.size} samples, first at {time[where[0]]:.3f} s",
            )
    k = int(np.argmin(distance))
    if not np.isfinite(distance[k]):
        return nearest, curves  # nothing to hit
    found = ClearanceSummary(
        smallest_m=float(distance[k]),
        pair=list(measured[k][1] or ()),
        time_s=float(time[k]),
        certified_m=nearest.certified_m,
    )
    return found, curves


def _pair(names: tuple[str, str] | None) -> str:
    return " - ".join(names) if names else "nothing"
