"""Exciting series as a task: one certified Fourier series after another, each driven to its end."""

from __future__ import annotations

from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.excitation.fourier_excitation import FourierPlanner
from safe_sysid.planning.results import Calibration, PlannerResult, PlanStatus
from safe_sysid.planning.task.task import TaskStatus
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["SeriesTask"]


class SeriesTask:
    """So many series from where the arm rests; what :class:`~safe_sysid.planning.task.task.TaskPlanner` is to a goal.

    Attributes:
        status: ARRIVED once all were driven.
        reasons: why it was given up.
    """

    def __init__(self, planner: FourierPlanner, count: int) -> None:
        """Prepare; nothing is planned yet. ``count``: of series."""
        self.planner, self.status = planner, TaskStatus.MOVING
        self.reasons: tuple[str, ...] = ()
        self._left = count
        self._calibration: Calibration | None = None

    @property
    def progress(self) -> str:
        """What a step's line says of it."""
        return f", {self._left} left"

    def rests_after(self, plan: Plan) -> bool:
        """Yes: a series is driven to its end."""
        return True

    def start_of_next(self, plan: Plan) -> tuple[float, FloatArray]:
        """Time (s) and state (3, n) at a plan's end."""
        return plan.end_time, plan.trajectory.state(plan.trajectory.duration)[:3]

    def next(
        self, state: ArrayLike, time: float, box: ParameterBox, sequence: int, previous: Plan | None = None
    ) -> PlannerResult:
        """The next series, or none once all were driven or one is not certified.

        Args:
            state: (3, n) at rest, at ``time``.
            time: s.
            box: that the controller works with then, or one that contains it.
            sequence: number of the plan.
            previous: not used: the arm rests.
        """
        if self._left == 0:
            self.status = TaskStatus.ARRIVED
            return PlannerResult(PlanStatus.STOPPED, reasons=("all series were driven",))
        answer = self.planner.plan_next(state, time, box, sequence, calibration=self._calibration)
        if answer.plan is None:
            self.status, self.reasons = TaskStatus.REFUSED, answer.reasons
            return answer
        self._left, self._calibration = self._left - 1, answer.calibration
        return answer
