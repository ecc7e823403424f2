"""Informative plans: when an exciting plan counts as one, and how much longer a search for one may take.

The search certifies the gentlest trajectory first: rest, or the rest of the plan under way. If nothing else is
certified in time, that one is the result. It is as safe as any plan, but it *teaches nothing*: the arm would have made
the same measurements without it. A plan counts as such if no joint leaves the motion that the arm makes anyway by more
than 2 % of ``planner.k_range`` (parameters closer than that are one candidate of the search) and 1 mrad. It is neither
driven nor counted; an arm at rest has time to search longer.

The cost decides how much any other plan teaches. Whether a run narrowed the intervals is judged at its end
(:mod:`safe_sysid.identification.diagnosis.narrowed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.planning.optimiser.optimise import Budget
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.results import PlannerResult, PlanStatus
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["next_lesson", "why_no_lesson"]

#: Least share of the range of k, and least angle, rad, by which some joint must leave the motion of an arm without the
#: plan; instants of a plan that are looked at.
_SHARE, _ANGLE, _INSTANTS = 0.02, 1e-3, 33
#: Without a deadline, how many times the usual budget is spent in turn.
_TIMES = (1, 2, 4)


def why_no_lesson(plan: Plan, k_range: ArrayLike, previous: Plan | None = None) -> str:
    """Why a plan teaches nothing, in words; "" if it does.

    Args:
        plan: certified or not.
        k_range: (n,) or one for all, rad; ``planner.k_range``.
        previous: the plan under way, whose rest the arm would drive; None: the arm rests where the plan begins.
    """
    times = np.linspace(0.0, plan.trajectory.duration, _INSTANTS)
    if previous is None:
        without = plan.trajectory.knots[0, 0]
    else:
        without = previous.trajectory.states(times + (plan.start_time - previous.start_time))[:, 0]
    moved = np.abs(plan.trajectory.states(times)[:, 0] - without).max(axis=0)
    least = np.maximum(_SHARE * np.broadcast_to(np.asarray(k_range, float), moved.shape), _ANGLE)
    if np.any(moved > least):
        return ""
    what = "rest" if previous is None else "the rest of the plan under way"
    return (
        f"the only certified plan teaches nothing: it leaves {what} by {moved.max():.2g} rad, expected a joint that "
        f"moves by more than {least.min():.2g} rad"
    )


def next_lesson(
    planner: Planner,
    state: ArrayLike,
    start_time: float,
    box: ParameterBox,
    sequence: int,
    previous: Plan | None = None,
    budget: Budget | None = None,
    on_certified: Callable[[PlannerResult], None] | None = None,
    **more: Any,
) -> PlannerResult:
    """:meth:`Planner.plan_next`, but a plan that teaches nothing is none: NO_LESSON, with the reason.

    Without a deadline the search is given more iterations and certificates before that is the answer,
    and takes any lower cost. With one the
    caller has to ask again with a later one.

    Args:
        state: (3, n) at the start.
        start_time: s.
        sequence: number of the plan.
        previous: the plan under way, if any.
        budget: default: the settings' iterations, no deadline.
        on_certified: hears of every better plan, as of this function's answer.
        more: further arguments of :meth:`Planner.plan_next`.
    """
    budget = planner.budget() if budget is None else budget

    def judged(result: PlannerResult) -> PlannerResult:
        plan = result.plan
        reason = "" if plan is None else why_no_lesson(plan, planner.settings.k_range, previous)
        if not reason:
            return result
        searched = f"{result.certificates} certificates, {result.iterations} iterations, {result.wall_time:.2f} s"
        nothing = np.zeros((10, 10))  # it is not driven
        return replace(
            result, status=PlanStatus.NO_LESSON, plan=None, information=nothing, reasons=(f"{reason} ({searched})",)
        )

    def tell(result: PlannerResult) -> None:
        if on_certified is not None:
            on_certified(judged(result))

    for times in _TIMES if budget.deadline is None else (1,):
        enough = replace(
            budget,
            iterations=times * budget.iterations,
            certificates=times * budget.certificates,
            # Beside rest, which is no lesson, all that teaches is better, however little the cost falls.
            worthwhile=budget.worthwhile if times == 1 else 0.0,
        )
        answer = judged(
            planner.plan_next(state, start_time, box, sequence, previous, budget=enough, on_certified=tell, **more)
        )
        if answer.status is not PlanStatus.NO_LESSON or budget.stopped():
            break
    return answer
