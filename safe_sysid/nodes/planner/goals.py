"""Goals of a task motion: read from topics, used whole or refused; and the service that starts a motion to one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.core.arrays import FloatArray
from safe_sysid.nodes.common.base import BaseNode
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import joint_order
from safe_sysid.nodes.planner.scheduler import PlanScheduler
from safe_sysid.nodes.planner.scheduler_parts import Answer, last_line
from safe_sysid.nodes.planner.solver_client import SolverClient
from safe_sysid.planning.solver_process import jobs
from safe_sysid.planning.solver_process.process import Event
from safe_sysid.robot.frames import rotation_from_quaternion
from safe_sysid.robot.model import RobotModel

__all__ = ["Goal", "GoalServer", "known_frames", "read_goal_joints", "read_goal_pose"]


#: The inverse kinematics take a second at most, s.
_LIMIT = 30.0


class GoalServer:
    """Takes goals, keeps the last one, and answers ``~/plan`` when the first step there is certified, or refused."""

    def __init__(self, node: BaseNode, scheduler: PlanScheduler, solver: SolverClient) -> None:
        """Listen and serve as a part of ``node``."""
        self._scheduler, self._solver = scheduler, solver
        self._goal: Goal | None = None
        self._searching: list[Answer] = []  # where angles are looked for
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
        goal, reason = self._goal, self._scheduler.not_ready()
        if goal is None:
            answer(False, "no goal: expected one on goal_joints or goal_pose before")
        elif reason:
            answer(False, reason)
        elif goal.waypoints is not None:
            self._scheduler.go(goal.waypoints, answer)
        elif goal.pose is not None:
            (position, rotation), (sample, box) = goal.pose, self._scheduler.rest()
            job = partial(jobs.angles_of_pose, position=position, rotation=rotation, near=sample.q, box=box)
            self._searching.append(answer)
            self._solver.submit(job, partial(self._on_angles, answer), time.monotonic() + _LIMIT)

    def drop(self, reason: str) -> None:
        """Forget what is asked for and has not begun; who asked is told why."""
        waiting, self._searching = self._searching, []
        for answer in waiting:
            answer(False, reason)

    def _on_angles(self, answer: Answer, event: Event) -> None:
        if event.kind == "progress" or answer not in self._searching:
            return
        self._searching.remove(answer)
        reason = last_line(event.text) if event.kind == "failed" else self._scheduler.not_ready()
        if reason:
            answer(False, reason)
        else:
            self._scheduler.go(event.value[None], answer)


MAX_WAYPOINTS = 100
#: A quaternion's length may differ so much from 1.
_UNIT = 1e-3
#: No arm reaches further, m.
_FAR = 100.0


@dataclass(frozen=True, eq=False)
class Goal:
    """Where to go."""

    text: str
    waypoints: FloatArray | None = None  #: (K, n) rad, to be visited in order; None for a pose
    #: position (3,) in m and rotation (3, 3) of the tool frame in the world; None for waypoints
    pose: tuple[FloatArray, FloatArray] | None = None


def known_frames(model: RobotModel) -> tuple[str, ...]:
    """Names of the frame that everything is given in: the world, and the arm's root where that stands in its origin."""
    base, place = model.settings.base_link, model.settings.mounting
    # With a tip_link the base link may be any, and stand anywhere.
    elsewhere = model.settings.tip_link is not None or (place is not None and any((*place.xyz, *place.rpy)))
    return ("world",) if base is None or base == "world" or elsewhere else ("world", base)


def check_frame(frame: str, model: RobotModel) -> None:
    """Refuse any other frame: nobody here transforms. Raises MessageRefusedError: another frame, or none."""
    known = known_frames(model)
    if frame not in known:
        raise MessageRefusedError("unknown frame", f"frame_id = {frame[:40]!r}: expected {' or '.join(known)}")


def read_goal_joints(msg: JointTrajectory, model: RobotModel) -> Goal:
    """Convert; only positions are used, the arm rests in the last point.

    Raises:
        MessageRefusedError: other joints, no or too many points, not finite, outside the limits, with velocities or
            accelerations that are not zero.
    """
    order = joint_order(msg.joint_names, model.joint_names)
    if not 1 <= len(msg.points) <= MAX_WAYPOINTS:
        raise MessageRefusedError("wrong length", f"{len(msg.points)} points: expected 1 to {MAX_WAYPOINTS}")
    waypoints = np.empty((len(msg.points), model.n))
    for i, point in enumerate(msg.points):
        if len(point.positions) != model.n:
            raise MessageRefusedError(
                "wrong length", f"point {i}: {len(point.positions)} positions: expected {model.n}"
            )
        waypoints[i] = np.array(point.positions)[order]
        for field in ("velocities", "accelerations"):
            values = np.array(getattr(point, field))
            if np.any(values != 0.0):  # NaN included
                raise MessageRefusedError(
                    "in motion", f"point {i}: {field} {values.tolist()}: expected none, or zeros: the arm chooses"
                )
    low, high = model.limits.position_lower, model.limits.position_upper
    bad = ~(np.isfinite(waypoints) & (waypoints > low) & (waypoints < high))
    if np.any(bad):
        i, j = (int(x) for x in np.argwhere(bad)[0])
        reason = "not finite" if not np.isfinite(waypoints[i, j]) else "outside the limits"
        raise MessageRefusedError(
            reason,
            f"point {i}: position of {model.joint_names[j]} is {waypoints[i, j]}: expected a number inside "
            f"({low[j]:.4f}, {high[j]:.4f}) rad",
        )
    waypoints.setflags(write=False)
    return Goal(f"{len(waypoints)} waypoint{'s' if len(waypoints) > 1 else ''}", waypoints=waypoints)


def read_goal_pose(msg: PoseStamped, model: RobotModel) -> Goal:
    """Convert.

    Raises MessageRefusedError: another frame, a number that is not finite or absurd, a quaternion that is none.
    """
    check_frame(msg.header.frame_id, model)
    pose = read_pose(msg.pose, "pose")
    return Goal("pose (" + " ".join(f"{x:.3f}" for x in pose[0]) + ") m", pose=pose)


def read_pose(pose: Any, name: str) -> tuple[FloatArray, FloatArray]:
    """Position (3,) and rotation (3, 3) of a Pose message.

    Raises MessageRefusedError: not finite, absurdly far away, or not a rotation.
    """
    p, o = pose.position, pose.orientation
    position, quaternion = np.array([p.x, p.y, p.z]), np.array([o.x, o.y, o.z, o.w])
    if not np.all(np.isfinite(position)) or not np.all(np.isfinite(quaternion)):
        raise MessageRefusedError("not finite", f"{name}: {position.tolist()}, {quaternion.tolist()}: expected numbers")
    if np.max(np.abs(position)) > _FAR:
        raise MessageRefusedError("far away", f"{name}: {position.tolist()} m: expected at most {_FAR:g} m")
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(quaternion))
    if abs(length - 1.0) > _UNIT:
        raise MessageRefusedError(
            "not a rotation", f"{name}: quaternion {quaternion.tolist()} of length {length:g}: expected length 1"
        )
    position.setflags(write=False)
    rotation = rotation_from_quaternion(quaternion / length)
    rotation.setflags(write=False)
    return position, rotation
