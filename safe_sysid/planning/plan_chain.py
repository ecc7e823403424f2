"""What a run's plan files must say together: motions begin where others leave them, and boxes are proved ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from safe_sysid.planning.plan_check import PlanReport
from safe_sysid.robot.model import RobotModel
from safe_sysid.trajectories.plan import Plan

__all__ = ["ProvedBounds", "box_problem", "chain_problem"]

FloatArray = NDArray[np.float64]
#: Bounds (lower (10,), upper (10,)) of theta_e that certificates of a run prove, by the identity of the box.
ProvedBounds = Mapping[str, tuple[FloatArray, FloatArray]]
#: As the controller asks for when it takes a plan over; of times, what a ROS stamp since 1970 rounds as a float.
_STATE, _TIME = 1e-9, 1e-6


def chain_problem(reports: Sequence[PlanReport]) -> str | None:
    """The first plan of a run that begins in motion where no other plan hands over; None if there is none.

    Args:
        reports: of plans that can be read.
    """
    plans = [(report.path, report.file.plan) for report in reports if report.file is not None]
    numbers = [plan.sequence for _, plan in plans]
    for path, plan in plans:
        if numbers.count(plan.sequence) > 1:
            return f"{path.name}: plan.sequence = {plan.sequence}: expected a number that no other plan has"
        state = plan.trajectory.knots[0]
        if not np.any(state[1:]):
            continue
        before = [other for _, other in plans if abs(other.hand_over_time - plan.start_time) <= _TIME]
        if not any(_leads_to(other, state) for other in before if other is not plan):
            return (
                f"{path.name}: begins in motion at {plan.start_time:.6f} s: expected the state of another plan at its "
                "hand-over"
            )
    return None


def _leads_to(plan: Plan, state: FloatArray) -> bool:
    there = plan.trajectory.state(plan.t_plan)[:3]
    return bool(np.all(np.abs(there - state) <= _STATE))


def box_problem(report: PlanReport, model: RobotModel, proved: ProvedBounds) -> tuple[str | None, str | None]:
    """What speaks against a plan's box (None: nothing), and what has to be assumed of it (None: nothing).

    A plan holds for the payload if its box contains bounds that are proved, and the arm's own prior.

    Args:
        report: of the plan.
        model: trusted.
        proved: by the certificates of the run.
    """
    if report.file is None:
        return None, None
    box, prior = report.file.box, model.arm_prior
    own = np.ones(box.size, bool)
    own[box.payload_slice] = False
    short = np.flatnonzero(own & ~((box.lower <= prior.lower) & (prior.upper <= box.upper)))
    if short.size:
        return (
            None,
            f"the true parameters lie in box {box.identity}, which leaves out a part of the arm's own prior",
        )
    payload = box.payload_slice
    lower, upper = box.lower[payload], box.upper[payload]
    if bool(np.all(lower <= prior.payload_lower) and np.all(prior.payload_upper <= upper)):
        return None, "the true parameters lie in the prior of the robot's file"
    known = proved.get(box.identity)
    if known is None:
        return (
            None,
            f"the true parameters lie in box {box.identity}: no certificate of these bounds is with the plan",
        )
    if not (np.all(lower <= known[0]) and np.all(known[1] <= upper)):
        return f"box {box.identity}: expected one that holds the bounds that its certificate proves", None
    return (
        None,
        f"the arm's own parameters lie in the prior of the robot's file; box {box.identity} is proved above",
    )
