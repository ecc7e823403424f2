"""Chain of plan files: checks that each motion begins where another leaves it, for a box that was proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.plan_files.plan_check import PlanReport
from safe_sysid.planning.plan_files.plan_statement import SAME
from safe_sysid.robot.identity import digest, disagreements, identity
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import zero_box_problem
from safe_sysid.trajectories.plan import Plan

__all__ = ["BoxReason", "Proved", "box_ground", "chain_problem", "mixture_problem"]

#: As the controller asks for when it takes a plan over; of times, what a ROS stamp since 1970 rounds as a float.
_STATE, _TIME = 1e-9, 1e-6


@dataclass(frozen=True, eq=False)
class Proved:
    """Bounds of theta_e that a certificate proves."""

    lower: FloatArray  #: (10,)
    upper: FloatArray  #: (10,)
    robot: str  #: digest of what they are of, scope ``bounds`` of :mod:`safe_sysid.robot.identity`

    def within(self, lower: FloatArray, upper: FloatArray) -> bool:
        """Whether bounds hold these."""
        return bool(np.all(lower <= self.lower) and np.all(self.upper <= upper))


@dataclass(frozen=True)
class BoxReason:
    """Why the true parameters should lie in a plan's box."""

    text: str  #: what it rests on; or what speaks against the plan, if it is wrong
    proved: bool = False  #: it rests on the robot's prior and certificates alone
    wrong: bool = False  #: certificates say something else


def mixture_problem(reports: Sequence[PlanReport]) -> str | None:
    """The first plan of a run that is of another robot, scene or timing than the others; None if there is none.

    ``reports``: of plans that are proved, each with what it was checked with.
    """
    files = [report.file for report in reports if report.file is not None]
    for file in files[1:]:
        for what in ("robot", "scene", "gains"):
            different = disagreements(getattr(file, what), getattr(files[0], what), SAME)
            if different:
                other = "timing" if what == "gains" else what
                return (
                    f"{file.path.name}: {what}: of another {other} than {files[0].path.name}: {different[0]}; expected "
                    f"one {other} for all plans of a directory: one arm drives them in one place"
                )
    return None


def chain_problem(reports: Sequence[PlanReport], alone: bool = False) -> tuple[str | None, tuple[str, ...]]:
    """The first plan of a run that begins where no other one leaves the arm, and what has to be assumed of the others.

    The first one may begin anywhere at rest. Every later one begins in the state in which an earlier one hands over,
    when it does; or at rest where an earlier one ends, not before; or where the first one would have begun. Plans that
    the later ones do not follow from were not driven: a controller may refuse what comes too late.

    ``alone``: one plan out of its run, which may begin in motion; what comes before it is not known.
    """
    found = [(report.path.name, report.file.plan) for report in reports if report.file is not None]
    found.sort(key=lambda item: (item[1].start_time, item[1].sequence))
    numbers = [plan.sequence for _, plan in found]
    for name, plan in found:
        if numbers.count(plan.sequence) > 1:
            return f"{name}: plan.sequence = {plan.sequence}: expected a number that no other plan has", ()
    before: list[int | None] = []
    for i, (name, plan) in enumerate(found):
        before.append(next((j for j in reversed(range(i)) if _leads_to(found[j][1], plan)), None))
        if before[i] is None and not (_at_rest(plan) and _same_state(plan, found[0][1])) and not alone:
            if _at_rest(plan):
                return (
                    f"{name}: begins at rest at {plan.start_time:.6f} s: expected a pose in which an earlier plan of "
                    "the directory has left the arm by then",
                    (),
                )
            return (
                f"{name}: begins in motion at {plan.start_time:.6f} s: expected the state of another plan at its "
                "hand-over",
                (),
            )
    driven: list[int] = []
    at: int | None = len(found) - 1
    while at is not None:
        driven.insert(0, at)
        at = before[at]
    assumed = [_beginning(*found[driven[0]])]
    left = [name for i, (name, _) in enumerate(found) if i not in driven]
    if left:
        assumed.append(
            f"not driven, as the later plans do not follow from them: {', '.join(left)} (the controller refused them)"
        )
    return None, tuple(assumed)


def _at_rest(plan: Plan) -> bool:
    return not np.any(plan.trajectory.knots[0][1:])


def _same_state(plan: Plan, other: Plan) -> bool:
    return _close(plan.trajectory.knots[0], other.trajectory.knots[0])


def _close(state: FloatArray, other: FloatArray) -> bool:
    return state.shape == other.shape and bool(np.all(np.abs(state - other) <= _STATE))


def _leads_to(before: Plan, plan: Plan) -> bool:
    """Whether the arm may be in the first state of a plan, at its time, after another plan."""
    state, trajectory = plan.trajectory.knots[0], before.trajectory
    if abs(before.hand_over_time - plan.start_time) <= _TIME and _close(state, trajectory.state(before.t_plan)[:3]):
        return True
    rested = before.end_time <= plan.start_time + _TIME
    return rested and _at_rest(plan) and _close(state, trajectory.knots[-1])


def _plain(value: float) -> str:
    """Four digits, and no rest of a rounding: plan files have all of them."""
    return f"{round(value, 6) + 0.0:.4g}"


def _beginning(name: str, plan: Plan) -> str:
    """What has to be assumed of the arm where a chain of plans begins."""
    position, velocity, acceleration = (
        "(" + ", ".join(f"{_plain(x)}" for x in row) + ")" for row in plan.trajectory.knots[0]
    )
    if _at_rest(plan):
        return f"the arm holds still at {position} rad when the controller takes {name}, at {plan.start_time:.6f} s"
    return (
        f"{name} BEGINS IN MOTION, at {plan.start_time:.6f} s: another certified plan, which was not checked here, is "
        f"tracked until then and hands over at {position} rad with {velocity} rad/s and {acceleration} rad/s^2"
    )


def box_ground(
    report: PlanReport, model: RobotModel, proved: Mapping[str, Proved], elsewhere: Mapping[str, Proved] | None = None
) -> BoxReason:
    """What the claim that the true parameters lie in a plan's box rests on.

    A plan holds for the payload if its box contains bounds that are proved, and the arm's own prior. Bounds are proved
    for a robot: those of another one, or of the same under other assumptions, prove nothing for this plan.

    Args:
        model: trusted.
        proved: by the certificates of the run, by the identity of the box.
        elsewhere: by certificates of other runs, by what they are to be called.
    """
    if report.file is None:
        return BoxReason("cannot be read", wrong=True)
    box, prior = report.file.box, model.arm_prior
    if (name := zero_box_problem(box, prior)) is not None:
        return BoxReason(name, wrong=True)
    own = np.ones(box.size, bool)
    own[box.layout.payload] = False
    if np.any(own & ~((box.lower <= prior.lower) & (prior.upper <= box.upper))):
        return BoxReason(
            f"the true parameters lie in box {box.identity}, which leaves out a part of the arm's own prior"
        )
    payload = box.layout.payload
    lower, upper = box.lower[payload], box.upper[payload]
    if bool(np.all(lower <= prior.payload_lower) and np.all(prior.payload_upper <= upper)):
        return BoxReason("the true parameters lie in the prior of the robot's file", proved=True)
    robot = digest(identity(model, "bounds"))
    known = proved.get(box.identity)
    if known is not None:
        if known.robot != robot:
            return BoxReason(
                f"box {box.identity}: its certificate is of another robot than the plan, or under other assumptions "
                f"than {model.name} declares: expected bounds of the robot that drives the plan",
                wrong=True,
            )
        if not known.within(lower, upper):
            return BoxReason(
                f"box {box.identity}: expected one that holds the bounds that its certificate proves", wrong=True
            )
        return BoxReason(
            "the arm's own parameters lie in the prior of the robot's file; the boxes' bounds of what the hand holds "
            "are proved above",
            proved=True,
        )
    for name, bounds in (elsewhere or {}).items():
        if bounds.robot == robot and bounds.within(lower, upper):
            return BoxReason(
                "the arm's own parameters lie in the prior of the robot's file, and the hand holds what it held when "
                f"{name} was identified, whose proved bounds box {box.identity} contains",
                proved=True,
            )
    return BoxReason(f"the true parameters lie in box {box.identity}: no certificate of these bounds is with the plan")
