"""Objectives of the planner node: exciting trajectories, or a way to a goal. Decides what to request; no ROS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.results import Calibration, PlanStatus, bounds_stopped_improving
from safe_sysid.planning.solver_process import jobs
from safe_sysid.planning.solver_process.jobs import PlanRequest, Step, TaskProgress
from safe_sysid.planning.solver_process.process import Job
from safe_sysid.planning.task.task import TaskStatus
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["ExcitationObjective", "PlanObjective", "PlanStart", "TaskObjective"]


@dataclass(frozen=True, eq=False)
class PlanStart:
    """From where to plan."""

    state: FloatArray  #: (3, n) at the start
    start_time: float  #: s on the node's clock
    box: ParameterBox  #: in force
    sequence: int  #: number of the plan
    previous: Plan | None  #: under way, if any
    deadline: float | None  #: of the solver, monotonic s; None in lock-step
    widest: bool = False  #: whether the plan is to be of the widest tube


class PlanObjective(Protocol):
    """One run of plans, each connecting to the last."""

    purpose: str
    attempts: int  #: so many more failures to plan may there be
    patient: bool  #: whether a search may take long while the arm rests

    def over(self, boxes: Iterable[ParameterBox], active: ParameterBox) -> str:
        """Why no further plan is wanted; "" if one is. ``boxes``: all that were in force so far."""

    def pauses(self) -> bool:
        """Whether the plan under way is driven to its end before the next one begins."""

    def last_stop(self) -> bool:
        """Whether nothing is left to do after that pause."""

    def job(self, situation: PlanStart) -> Job:
        """For the solver."""

    def planned(self, step: Step) -> None:
        """A plan was published."""

    def refused(self, step: Step) -> bool:
        """No plan was found; whether to ask again, if the time allows it."""

    def lost(self) -> None:
        """What was planned is not driven, or ends without a successor: the next plan begins at rest."""

    def answer(self, success: bool, message: str) -> None:
        """Tell who asked for it how the first step turned out; later calls do nothing."""


def _request(situation: PlanStart, **more: Any) -> PlanRequest:
    s = situation
    return PlanRequest(
        s.state, s.start_time, s.box, s.sequence, s.previous, deadline=s.deadline, widest=s.widest, **more
    )


class ExcitationObjective:
    """As many exciting trajectories as are wanted, or until the bounds stop improving."""

    purpose = "excitation"
    patient = False

    def __init__(self, plans: int, attempts: int) -> None:
        """``plans`` to make, with at most so many failures."""
        self.left, self.attempts, self._from_rest = plans, attempts, True
        self._information = np.zeros((10, 10))
        self._calibration: Calibration | None = None
        self._last: FloatArray | None = None
        self._begin: ParameterBox | None = None  # in force when it began

    def over(self, boxes: Iterable[ParameterBox], active: ParameterBox) -> str:
        """All are made, or the last boxes hardly shrank: more of the same motion teaches nothing.

        Only boxes since the arm began to move count: one that rests, however long a plan takes to find, shows nothing.
        """
        if not self.left:
            return "all trajectories are planned"
        if self._begin is None or self._begin.epoch != active.epoch:
            self._begin = active
        first = self._begin.seq
        history = [box for box in boxes if box.epoch == active.epoch and first <= box.seq <= active.seq]
        stopped = bounds_stopped_improving(sorted(history, key=lambda box: box.seq))
        return "the bounds stopped improving" if stopped else ""

    def pauses(self) -> bool:
        """Never."""
        return False

    def last_stop(self) -> bool:
        """There are no stops."""
        return False

    def job(self, situation: PlanStart) -> Job:
        """Plan the next one."""
        if situation.previous is not None and self._last is not None:
            self._information = self._information + self._last  # it is driven: what it tells counts now
        self._last, self._from_rest = None, situation.previous is None
        more = {"information": self._information, "last": self.left == 1, "calibration": self._calibration}
        return partial(jobs.plan, request=_request(situation, **more))

    def planned(self, step: Step) -> None:
        """One less to make."""
        self.left, self._calibration = self.left - 1, step.result.calibration
        self._last = step.result.information
        if self._from_rest:
            self._begin = None

    def refused(self, step: Step) -> bool:
        """Only out of time, or where there was time for nothing that teaches: else the answer would be the same."""
        return step.result.status in (PlanStatus.STOPPED, PlanStatus.NO_LESSON)

    def lost(self) -> None:
        """What was not driven to its hand-over does not count as made."""
        self.left, self._last = self.left + (self._last is not None), None
        self._begin = None

    def answer(self, success: bool, message: str) -> None:
        """Nobody asked."""


class TaskObjective:
    """To waypoints, one after the other."""

    purpose = "task"
    patient = True

    def __init__(
        self,
        number: int,
        waypoints: FloatArray,
        attempts: int,
        seed: int = 0,
        answer: Callable[[bool, str], None] | None = None,
    ) -> None:
        """``number`` tells tasks apart; ``answer`` gets success and message of the first step."""
        self.number, self.waypoints, self.attempts, self._seed = number, waypoints, attempts, seed
        self._answer = answer
        self._progress: TaskProgress | None = None
        self._current = 0

    @property
    def status(self) -> TaskStatus:
        """Of the task, as the solver said last."""
        return TaskStatus.MOVING if self._progress is None else self._progress.status

    @property
    def distance(self) -> float | None:
        """Of the last step's end from the last waypoint, rad."""
        return None if self._progress is None else self._progress.distance

    def over(self, boxes: Iterable[ParameterBox], active: ParameterBox) -> str:
        """It has arrived, or was given up."""
        progress = self._progress
        if progress is None or progress.status is TaskStatus.MOVING:
            return ""
        return "; ".join((progress.status.value, *progress.reasons))

    def pauses(self) -> bool:
        """At waypoints, and after each step of the last resort."""
        return self._progress is not None and self._progress.rests

    def last_stop(self) -> bool:
        """At the last waypoint."""
        progress, last = self._progress, len(self.waypoints) - 1
        return progress is not None and progress.rests and progress.arrives and self._current == last

    def job(self, situation: PlanStart) -> Job:
        """The next step."""
        return partial(
            jobs.task_step,
            request=_request(situation),
            number=self.number,
            waypoints=self.waypoints,
            current=self._current,
            seed=self._seed,
        )

    def _note(self, step: Step) -> None:
        if step.progress is not None:
            self._progress, self._current = step.progress, step.progress.current

    def planned(self, step: Step) -> None:
        """Nearer, perhaps there."""
        self._note(step)

    def refused(self, step: Step) -> bool:
        """Another way may be found, until the solver says that it is no use; not from where the arm may not be."""
        self._note(step)
        answered = step.progress is not None and step.result.status is not PlanStatus.START_REFUSED
        return answered and self.status is TaskStatus.MOVING

    def lost(self) -> None:
        """Where the arm comes to rest is not where the last step ends."""
        if self._progress is not None:
            self._progress = replace(self._progress, rests=False)

    def answer(self, success: bool, message: str) -> None:
        """Tell who asked, once."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(success, message)
