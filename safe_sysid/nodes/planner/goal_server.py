"""Goal server: goals from topics, and the service that starts a motion to one."""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol

from geometry_msgs.msg import PoseStamped
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.nodes.common.base import BaseNode
from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.nodes.planner.goals import FloatArray, Goal, read_goal_joints, read_goal_pose
from safe_sysid.nodes.planner.scheduler_parts import Answer, last_line
from safe_sysid.nodes.planner.solver_client import SolverClient
from safe_sysid.planning.solver_process import jobs
from safe_sysid.planning.solver_process.process import Event
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["GoalKeeper", "GoalServer"]

#: The inverse kinematics take a second at most, s.
_LIMIT = 30.0


class GoalKeeper(Protocol):
    """What the goal server needs of the plan scheduler."""

    def not_ready(self) -> str:
        """Why nothing new can be begun now; "" if it can."""

    def rest(self) -> tuple[JointSample, ParameterBox]:
        """Where the arm rests, and the box in force; only when ready."""

    def go(self, waypoints: FloatArray, answer: Answer) -> None:
        """Begin a task, unless nothing may be planned; (W, n) rad."""


class GoalServer:
    """Takes goals, keeps the last one, and answers ``~/plan`` when the first step there is certified, or refused."""

    def __init__(self, node: BaseNode, keeper: GoalKeeper, solver: SolverClient) -> None:
        """``node`` and ``keeper`` are one, seen from two sides."""
        self._keeper, self._solver = keeper, solver
        self._goal: Goal | None = None
        self._asked: list[Answer] = []  # where angles are looked for
        # Not latched: a publisher need not be, and an old goal is nobody's wish any more.
        node.listen(JointTrajectory, "goal_joints", lambda msg: self._take(read_goal_joints(msg, node.model)), 10)
        node.listen(PoseStamped, "goal_pose", lambda msg: self._take(read_goal_pose(msg, node.model)), 10)
        node.serve_later("plan", self._plan)

    def _take(self, goal: Goal) -> None:
        self._goal = goal

    @property
    def text(self) -> str:
        """The goal that was given last."""
        return "none" if self._goal is None else self._goal.text

    def _plan(self, answer: Answer) -> None:
        goal, reason = self._goal, self._keeper.not_ready()
        if goal is None:
            answer(False, "no goal: expected one on goal_joints or goal_pose before")
        elif reason:
            answer(False, reason)
        elif goal.waypoints is not None:
            self._keeper.go(goal.waypoints, answer)
        elif goal.pose is not None:
            (position, rotation), (sample, box) = goal.pose, self._keeper.rest()
            job = partial(jobs.angles_of_pose, position=position, rotation=rotation, near=sample.q, box=box)
            self._asked.append(answer)
            self._solver.submit(job, partial(self._on_angles, answer), time.monotonic() + _LIMIT)

    def drop(self, reason: str) -> None:
        """Forget what is asked for and has not begun; who asked is told why."""
        asked, self._asked = self._asked, []
        for answer in asked:
            answer(False, reason)

    def _on_angles(self, answer: Answer, event: Event) -> None:
        if event.kind == "progress" or answer not in self._asked:
            return
        self._asked.remove(answer)
        reason = last_line(event.text) if event.kind == "failed" else self._keeper.not_ready()
        if reason:
            answer(False, reason)
        else:
            self._keeper.go(event.value[None], answer)
