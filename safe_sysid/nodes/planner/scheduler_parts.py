"""Settings, interfaces and data types of the plan scheduler. No ROS calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from safe_sysid.core.arrays import FloatArray
from safe_sysid.nodes.common.messages.time_base import to_ns
from safe_sysid.nodes.planner.objectives import PlanObjective, PlanStart
from safe_sysid.planning.results import PlannerResult, PlanStatus
from safe_sysid.planning.solver_process.jobs import Step
from safe_sysid.planning.solver_process.process import Event, Job
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = [
    "Answer",
    "OpenRequest",
    "PlanSolver",
    "PublishedPlan",
    "SchedulerOutput",
    "SchedulerSettings",
    "begin_at",
    "failure",
    "last_line",
]

#: Success and message, to be called once.
Answer = Callable[[bool, str], None]


@dataclass(frozen=True)
class SchedulerSettings:
    """Times and choices."""

    lockstep: bool
    plans: int
    t_p_ns: int  #: from a plan's start to its hand-over
    first_ns: int  #: lock-step: first hand-over
    margin: float  #: real time: a plan is published so long before its hand-over, s
    patience: float  #: wall time after which lock-step does without an answer, s
    seed: int
    then_goal: FloatArray | None  #: (n,) rad, where to go after the exciting trajectories; None: nowhere
    #: update_ns, digest_ns: what a task after them waits for: whole batches of data, and their use
    update_ns: int
    digest_ns: int


class SchedulerOutput(Protocol):
    """Where the answers go, and the clocks."""

    def monotonic(self) -> float:
        """Seconds on a clock that nobody sets."""

    def now_ns(self) -> int:
        """On the clock of stamps, ns."""

    def publish_plan(self, start_ns: int, box: ParameterBox, result: PlannerResult, purpose: str) -> str:
        """A certified plan; returns a line about it."""

    def publish_none(self, start_ns: int, identity: str, next_ns: int | None) -> None:
        """There is no plan for this hand-over; the next one begins at ``next_ns``, or none will."""

    def note_failure(self, start_ns: int, box: ParameterBox, result: PlannerResult, purpose: str) -> None:
        """Nothing was certified; with reasons."""

    def refuse(self, source: str, reason: str, text: str) -> None:
        """Count and tell what is not as it should be."""

    def say(self, text: str) -> None:
        """One line for people."""


class PlanSolver(Protocol):
    """The solver process, as the scheduler needs it."""

    @property
    def ready(self) -> bool:
        """Whether it takes requests."""

    def submit(self, job: Job, handler: Callable[[Event], None], limit: float | None = None) -> int:
        """Give it a job; ``handler`` gets its events, ``limit`` is when it is killed, monotonic s."""

    def cancel(self, grace: float) -> None:
        """End what it is at; it is killed after ``grace`` s."""

    def failed(self, text: str) -> None:
        """Report what became of it."""


class PublishedPlan(NamedTuple):
    """A plan that was published, and its first instant."""

    plan: Plan
    start_ns: int

    @property
    def end_ns(self) -> int:
        """When the arm is at rest if nothing follows."""
        return self.start_ns + to_ns(self.plan.trajectory.duration)


@dataclass
class OpenRequest:
    """What the solver works on now."""

    objective: PlanObjective
    situation: PlanStart  #: from where
    start_ns: int | None  #: the hand-over; None (real time, at rest): as soon as the plan is there
    due: float | None  #: when the best plan so far is published, monotonic s; None in lock-step
    best: Step | None = None
    lives: int = 1  #: so often it may be repeated if the solver crashes
    tries: int = 10  #: so often if the solver finds nothing
    longer: int = 0  #: how many longer searches there were already


def begin_at(result: PlannerResult, start_time: float) -> PlannerResult:
    """The same plan, from another time on, s."""
    return result if result.plan is None else replace(result, plan=replace(result.plan, start_time=start_time))


def failure(reason: str) -> Step:
    """What counts as the answer of a solver that gave none."""
    return Step(PlannerResult(PlanStatus.STOPPED, reasons=(reason,)))


def last_line(text: str) -> str:
    """The last line of a traceback, which says what went wrong."""
    return text.strip().rpartition("\n")[2]
