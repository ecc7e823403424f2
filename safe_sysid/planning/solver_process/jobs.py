"""Jobs of the solver process: functions that a :class:`~.process.PlannerProcess` runs.

Given with :func:`functools.partial`; the first argument is the process's own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from safe_sysid.control.tube import MeasuredTube, tracking_tube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.planning.certification.certificate import PlanCertificate
from safe_sysid.planning.excitation.lessons import next_lesson
from safe_sysid.planning.optimiser.optimise import Budget
from safe_sysid.planning.plan_files.plan_file import file_name, write_plan
from safe_sysid.planning.planner import Calibration, Planner, PlannerOptions, PlannerResult
from safe_sysid.planning.solver_process.solver import Solver
from safe_sysid.planning.task.inverse_kinematics import goal_from_pose
from safe_sysid.planning.task.task import TaskPlanner, TaskStatus
from safe_sysid.reachability.cells import ErrorBox, TrackingSet, time_cells
from safe_sysid.reachability.swept import SweptVolume, swept_boxes
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = [
    "PlanRequest",
    "Step",
    "TaskProgress",
    "angles_of_pose",
    "build",
    "plan",
    "set_scene",
    "sweep",
    "task_step",
    "write_file",
]

#: So many boxes per body are drawn of a swept volume.
_PICTURES = 8


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """Arguments of :meth:`~.planner.Planner.plan_next`."""

    state: FloatArray  #: (3, n) at the start
    start_time: float  #: s
    box: ParameterBox
    sequence: int  #: number of the plan
    previous: Plan | None = None  #: the plan under way, if any
    information: FloatArray | None = None  #: (10, 10) of the plans before
    last: bool = False
    calibration: Calibration | None = None  #: of the plan before
    #: reading of the monotonic clock, which all processes of a machine share, s; None: no deadline
    deadline: float | None = None
    widest: bool = False  #: a plan of a narrower tube was not begun: one of the widest is asked for


@dataclass(frozen=True, eq=False)
class TaskProgress:
    """Where a task stands after a step."""

    status: TaskStatus
    reasons: tuple[str, ...]  #: why it was given up
    current: int  #: index of the waypoint that is headed for
    distance: float  #: of the step's end from the last waypoint along the way, rad
    rests: bool  #: whether the step is driven to its end
    arrives: bool  #: whether it ends at the current waypoint


@dataclass(frozen=True, eq=False)
class Step:
    """What a job for a plan found; ``progress`` None: no task."""

    result: PlannerResult
    progress: TaskProgress | None = None


def build(
    solver: Solver,
    model: RobotModel,
    lockstep: bool,
    options: PlannerOptions | None = None,
    seed: int = 0,
    nice: int = 0,
) -> None:
    """Make the planner; the scene comes by :func:`set_scene`.

    Args:
        lockstep: gains for simulated time rather than real time.
        nice: how much nicer than others the process is to be.
    """
    if (more := nice - solver.state.get("nice", 0)) > 0:  # it adds up, and a process may be configured again
        os.nice(more)
        solver.state["nice"] = nice
    gains = tracking_tube(model, lockstep)
    solver.state["built"] = Planner(model, Scene("open"), gains, options=options, seed=seed)
    _warm_up(solver.state["built"])


def _warm_up(planner: Planner) -> None:
    """Compile (or load) the kernels with a plan that nobody gets: those of the optimiser too.

    With one certificate only the gentlest would be certified, and the first deadline would be spent on compiling.
    """
    rest = np.zeros((3, planner.model.n))
    rest[0] = planner.model.settings.home
    planner.plan_next(rest, 0.0, planner.model.arm_prior, 0, budget=Budget(4, 2))
    _swept(planner, QuinticTrajectory.hold(rest[0]))


def planner_of(solver: Solver) -> Planner:
    """The planner, in the scene that :func:`set_scene` said.

    Raises:
        PlanError: there is none.
    """
    planner = solver.state.get("planner")
    if not isinstance(planner, Planner):
        raise PlanError("solver process: no planner: expected the jobs `build` and `set_scene` to have succeeded")
    return planner


def set_scene(solver: Solver, scene: Scene) -> None:
    """Plan in that scene from now on; only for an arm at rest. A task under way is forgotten."""
    # If it fails, nothing is planned: not even in the scene before.
    for name in ("planner", "task"):
        solver.state.pop(name, None)
    solver.state["planner"] = solver.state["built"].with_scene(scene)


def plan(solver: Solver, request: PlanRequest) -> Step:
    """Look for an exciting plan until the deadline, the budget or a cancellation; tell every certified one."""
    planner = _asked_for(planner_of(solver), request)
    result = next_lesson(
        planner,
        request.state,
        request.start_time,
        request.box,
        request.sequence,
        previous=request.previous,
        executed_information=request.information,
        budget=planner.budget(request.deadline, solver.cancelled),
        last=request.last,
        calibration=request.calibration,
        on_certified=lambda better: solver.tell(Step(better)),
    )
    return Step(result)


def _asked_for(planner: Planner, request: PlanRequest, *goals: FloatArray) -> Planner:
    """For plans of the widest tube where that is asked for, and the arm may rest in it here and at goals (n,), rad."""
    if not request.widest:
        return planner
    wide = planner.in_widest_tube()
    refused = any(wide.start_reasons(q, request.box) for q in (request.state[0], *goals))
    return planner if refused else wide


def task_step(
    solver: Solver, request: PlanRequest, number: int, waypoints: FloatArray, current: int = 0, seed: int = 0
) -> Step:
    """The next step of a task.

    Args:
        request: from where; what only exciting trajectories need is ignored.
        number: of the task: another one than the last is begun anew.
        waypoints: (W, n) of the task, rad.
        current: the first that is not reached yet, for a process that knows nothing of the task.
    """
    planner, known = planner_of(solver), solver.state.get("task")
    if known is None or known[0] != number:
        known = (number, current, TaskPlanner(planner, waypoints[current:], seed=seed))
        solver.state["task"] = known
    _, first, task = known
    task.planner = _asked_for(planner, request, task.waypoints[task.current])

    def step(result: PlannerResult) -> Step:
        plan, now = result.plan, first + task.current
        rests, arrives = (plan is not None and task.rests_after(plan), plan is not None and task.ends_at_waypoint(plan))
        progress = TaskProgress(task.status, task.reasons, now, task.distance, rests, arrives)
        return Step(result, progress)

    result = task.next(
        request.state,
        request.start_time,
        request.box,
        request.sequence,
        request.previous,
        planner.budget(request.deadline, solver.cancelled),
        request.calibration,
        lambda better: solver.tell(step(better)),
    )
    return step(result)


def angles_of_pose(
    solver: Solver, position: FloatArray, rotation: FloatArray, near: FloatArray, box: ParameterBox
) -> FloatArray:
    """Joint angles (n,) for a pose of the tool frame that may be held with every payload of the box.

    Args:
        position: (3,) m, in the world.
        rotation: (3, 3).
        near: (n,) rad, where the arm is.
        box: in force.

    Raises:
        PlanError: there are none; with reasons.
    """
    p = planner_of(solver)
    fitting = p.with_tube(box)
    return goal_from_pose(p.model, position, rotation, near, clear=lambda q: fitting.start_reasons(q, box))


def sweep(solver: Solver, plan: Plan) -> SweptVolume:
    """Where the arm and its payload may be along a plan, tracking error included."""
    return _swept(planner_of(solver), plan.trajectory, plan.tube)


def _swept(planner: Planner, trajectory: QuinticTrajectory, tube: int = 0) -> SweptVolume:
    intervals = planner.settings.intervals
    cells = time_cells(trajectory, intervals)
    gains = planner.tubes[tube]
    tracking = (
        ErrorBox(gains.e_bound, gains.de_bound, gains.dde_bound)
        if isinstance(gains, MeasuredTube)
        else TrackingSet.of(gains, planner.model.n)
    )
    return swept_boxes(planner.model, cells, tracking, group=max(intervals // _PICTURES, 1))


def write_file(solver: Solver, plan: Plan, certificate: PlanCertificate, box: ParameterBox, directory: Path) -> None:
    """Leave the plan with everything that it takes to certify it again."""
    p = planner_of(solver)
    write_plan(
        directory / file_name(plan),
        plan,
        certificate,
        p.model,
        box,
        p.scene,
        p.widest,
        intervals=p.settings.intervals,
        clearance_margin=p.settings.clearance_margin,
    )
