"""Plans a motion from the command line: certified steps to goals, or exciting trajectories."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from safe_sysid.apps.verify.plan_verdict import margin_text, over
from safe_sysid.control.tube import TrackingTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ConfigError
from safe_sysid.identification.arm.base_parameters import excitable_columns, random_states
from safe_sysid.logs.bounds_file import bounds_box, read_bounds
from safe_sysid.planning.certification.certificate import FAMILIES, start_check
from safe_sysid.planning.costs.base import midpoints
from safe_sysid.planning.costs.observation import condition_number
from safe_sysid.planning.excitation.lessons import next_lesson
from safe_sysid.planning.plan_files.plan_file import write_plan
from safe_sysid.planning.planner import Planner, PlannerResult, hand_over_state
from safe_sysid.planning.results import PlanStatus
from safe_sysid.planning.task.inverse_kinematics import goal_from_pose, nearest_turn
from safe_sysid.planning.task.task import TaskPlanner, TaskStatus, follow
from safe_sysid.planning.tube_choice import fitting_tube
from safe_sysid.report.drawing.motion_picture import draw_motion
from safe_sysid.robot.margin import UNITS, margin_records
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.obstacles import rotation_from_rpy
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.robot.shapes.pairs import unchecked
from safe_sysid.whole_files import write_text

__all__ = ["PlannedMotion", "describe", "excite", "go", "goals_of", "known_box", "pose_named", "table", "write_motion"]

Say = Callable[[str], None]
#: Samples of a motion's condition number, Hz.
_RATE = 100.0


@dataclass
class PlannedMotion:
    """What was planned."""

    model: RobotModel  #: that it was planned with
    scene: Scene  #: that it was planned with
    gains: TrackingTube  #: that it was planned with
    start: FloatArray  #: (n,) rad
    waypoints: FloatArray | None  #: (W, n) rad; None for exciting trajectories
    #: every certified plan with the box that it is certified for, in order
    steps: list[tuple[ParameterBox, PlannerResult]] = field(default_factory=list)
    reached: bool = False  #: whether everything that was asked for is planned
    reasons: tuple[str, ...] = ()  #: why not, for people
    seconds: float = 0.0
    simulated: dict[str, Any] | None = None  #: what the simulation found; None without one
    about: str = ""  #: what exciting trajectories are to teach about: ``arm``, ``payload``, or nothing

    @property
    def duration(self) -> float:
        """Time from the first plan's start to the last one's end, s."""
        plans = [result.plan for _, result in self.steps if result.plan is not None]
        return plans[-1].end_time - plans[0].start_time if plans else 0.0

    @property
    def condition(self) -> float:
        """Condition number of the torque regressor along what is driven of all plans, columns of length one.

        Columns of the arm's base parameters (but for what is there on paper alone), or of the payload; nan where there
        is no plan, or nothing to teach.
        """
        plans = [result.plan for _, result in self.steps if result.plan is not None]
        if not plans or not self.about:
            return np.nan
        dynamics, rows = dynamics_of(self.model.kinematics), []
        columns = np.arange(self.model.layout.size)[self.model.layout.payload]
        if self.about == "arm":
            columns = excitable_columns(random_states(self.model.n, dynamics.torque_regressor))
        for plan, begin in zip(plans, [*(p.start_time for p in plans[1:]), plans[-1].end_time], strict=True):
            driven = min(begin - plan.start_time, plan.trajectory.duration)
            x = plan.trajectory.states(midpoints(driven, max(round(_RATE * driven), 1)))
            rows.append(dynamics.torque_regressor(x[:, 0], x[:, 1], x[:, 2])[..., columns])
        told = np.concatenate(rows).reshape(-1, len(columns))
        return condition_number(told, 1.0 / np.maximum(np.linalg.norm(told, axis=0), 1e-300))


def known_box(model: RobotModel, file: Path | None) -> ParameterBox:
    """The prior, or what a bounds file of ``safe-sysid identify`` leaves of it.

    ``file``: ``bounds.yaml``; None for the prior.

    Raises ConfigError: the file is for another robot, not guaranteed, or cannot be read.
    """
    return model.arm_prior if file is None else bounds_box(read_bounds(file), model, str(file))


def pose_named(option: str, text: str, model: RobotModel, scene: Scene) -> FloatArray:
    """Joint angles (n,) from ``start``, ``goal``, ``home`` or numbers separated by commas, rad.

    Raises ConfigError: none of these.
    """
    named = {"home": np.array(model.settings.home), "start": scene.start_for(model), "goal": scene.goal}
    if text in named:
        pose = named[text]
        if pose is None:
            raise ConfigError(option, "pose", text, f"angles: scene {scene.name} has no goal")
        return np.array(pose, float)
    expected = f"{model.n} angles in rad separated by commas, or one of {', '.join(named)}"
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise ConfigError(option, "pose", text, expected) from None
    if values.shape != (model.n,) or not np.all(np.isfinite(values)):
        raise ConfigError(option, "pose", text, expected)
    return values


def goals_of(
    motion: PlannedMotion, poses: Sequence[tuple[float, ...]], box: ParameterBox, say: Say, seed: int = 0
) -> FloatArray:
    """Joint angles (W, n) for poses of the tool frame, each near the one before.

    Raises PlanError: a pose is out of reach, or may not be held.

    Args:
        motion: where it begins, and with what.
        poses: x, y, z (m) and roll, pitch, yaw (rad) of each, in the world.
        box: that must be held there.
        say: gets a line per pose.
    """
    model, near, found = motion.model, motion.start, []
    tube = fitting_tube(model, motion.gains, box)

    def refusals(q: FloatArray) -> Sequence[str]:
        return start_check(model, box, motion.scene, tube, q)

    for x, y, z, *rpy in poses:
        near = goal_from_pose(model, (x, y, z), rotation_from_rpy(rpy), near, clear=refusals, seed=seed)
        found.append(near)
        say(f"tool at {x:g}, {y:g}, {z:g} m: joints at " + " ".join(f"{angle:.4f}" for angle in near))
    return np.array(found)


def go(motion: PlannedMotion, planner: Planner, box: ParameterBox, say: Say, seed: int = 0) -> None:
    """Plan to the waypoints, step by step, as if driven without delay.

    Raises ConfigError: no waypoints. No way to them is no error: ``motion.reasons`` says why.

    ``motion``: with waypoints; gets the steps; ``planner``: of the arm in the scene; ``say``: gets a line per step.
    """
    if motion.waypoints is None:
        raise ConfigError("plan", "waypoints", None, "one or more to go to")
    task = TaskPlanner(planner, motion.waypoints, seed=seed)
    _collect(motion, box, follow(task, motion.start, box), say, lambda: f", {task.distance:.2f} rad to go")
    motion.reached = task.status is TaskStatus.ARRIVED
    motion.reasons = () if motion.reached else task.reasons or ("too many steps",)


def excite(motion: PlannedMotion, planner: Planner, box: ParameterBox, count: int, say: Say) -> None:
    """Plan trajectories that teach about the payload, one after the other.

    Args:
        planner: of the arm in the scene, with the cost that is wanted.
        count: how many.
        say: gets a line per trajectory.
    """
    _collect(motion, box, _exciting(motion, planner, box, count), say, lambda: "")
    motion.reached = len(motion.steps) == count


def _exciting(motion: PlannedMotion, planner: Planner, box: ParameterBox, count: int) -> Iterator[PlannerResult]:
    at = motion.start
    state, begin, previous = np.stack([at, 0.0 * at, 0.0 * at]), 0.0, None
    information, calibration = np.zeros((10, 10)), None
    lessons = 0
    while lessons < count:
        answer = next_lesson(
            planner, state, begin, box, lessons, previous=previous, executed_information=information,
            last=lessons == count - 1, calibration=calibration,
        )  # fmt: skip
        if answer.status is PlanStatus.NO_LESSON and previous is not None:
            # In motion little is left to choose; the arm brakes along its certified tail, and learns on from rest.
            begin, state = previous.end_time, previous.trajectory.state(previous.trajectory.duration)[:3]
            previous = None
            continue
        if answer.status is PlanStatus.START_REFUSED:
            told = tuple(f"start may not be rested at: {reason}" for reason in answer.reasons)
            answer = replace(answer, reasons=told)
        yield answer
        if answer.plan is None:
            return
        lessons += 1
        previous, calibration = answer.plan, answer.calibration
        begin, state = previous.hand_over_time, hand_over_state(previous)
        information = information + answer.information


def _collect(
    motion: PlannedMotion, box: ParameterBox, answers: Iterator[PlannerResult], say: Say, more: Callable[[], str]
) -> None:
    began = time.perf_counter()
    for answer in answers:
        if answer.plan is None:
            motion.reasons = answer.reasons
            say(f"no step from here: {'; '.join(answer.reasons)}")
            continue
        motion.steps.append((box, answer))
        closest = "" if answer.certificate is None else f", margins: {_tightest(answer, motion.model)}"
        say(f"plan {answer.plan.sequence} in {answer.wall_time:.2f} s{more()}{closest}")
    motion.seconds = time.perf_counter() - began


def _tightest(answer: PlannerResult, model: RobotModel) -> str:
    """Distances to obstacles and torque: what people ask about."""
    if answer.certificate is None:
        return ""
    asked = model.settings.planner.clearance_margin
    families = answer.certificate.families
    return ", ".join(margin_text(families[name], asked) for name in ("clearance", "torque"))


def write_motion(motion: PlannedMotion, out: Path, title: str) -> dict[str, Any]:
    """Plan files, picture and ``motion.json``; returns what the last one says.

    Raises PlanFileError: a file cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    steps = []
    drawn = []
    for box, answer in motion.steps:
        plan, certificate = answer.plan, answer.certificate
        if plan is None or certificate is None:
            continue
        path = write_plan(
            out, plan, certificate, motion.model, box, motion.scene, motion.gains, intervals=answer.intervals
        )
        drawn.append((plan, certificate))
        steps.append(
            {
                "file": path.name,
                "sequence": plan.sequence,
                "box": box.identity,
                "start_s": plan.start_time,
                "hand_over_s": plan.hand_over_time,
                "end_s": plan.end_time,
                "end_rad": plan.trajectory.knots[-1, 0].tolist(),
                "planning_s": answer.wall_time,
                "certificates": answer.certificates,
                "margins": margin_records(certificate.families),
            }
        )
    if drawn:
        draw_motion(out / "motion.png", motion.model, motion.scene, drawn, motion.waypoints, title)
    content = {
        "robot": motion.model.name,
        "scene": motion.scene.name,
        "reached": motion.reached,
        "reasons": list(motion.reasons),
        "not_checked": list(unchecked(motion.model, motion.scene)),
        "start_rad": motion.start.tolist(),
        "waypoints_rad": None if motion.waypoints is None else motion.waypoints.tolist(),
        "motion_s": motion.duration,
        "planning_s": motion.seconds,
        "teaches": motion.about or None,
        "condition": motion.condition if np.isfinite(motion.condition) else None,
        "steps": steps,
        "simulated": motion.simulated,
    }
    write_text(out / "motion.json", json.dumps(content, indent=1) + "\n")
    return content


def table(motion: PlannedMotion) -> Table:
    """One row per plan: times and the smallest margin of every family."""
    found = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("plan", "start, s", "end, s", "found in, s"):
        found.add_column(title, justify="right")
    for family in FAMILIES:
        beyond = over(family, motion.model.settings.planner.clearance_margin).replace("over", "margin over")
        found.add_column(f"{family.replace('_', ' ')}{beyond}, {UNITS[family]}", justify="right")
    for _, answer in motion.steps:
        if answer.plan is None or answer.certificate is None:
            continue
        plan = answer.plan
        margins = [answer.certificate.families[name].value for name in FAMILIES]
        found.add_row(
            str(plan.sequence),
            f"{plan.start_time:.2f}",
            f"{plan.end_time:.2f}",
            f"{answer.wall_time:.2f}",
            *(at_least(value) if np.isfinite(value) else "-" for value in margins),
        )
    return found


def describe(motion: PlannedMotion, console: Console, out: Path) -> None:
    """Table of the plans and how to check them, on a console. ``out``: where its files are."""
    if motion.steps:
        console.print(table(motion))
        for line in unchecked(motion.model, motion.scene):
            console.print(f"assumed: {line}", markup=False)
    if motion.steps and motion.about:
        whose = "the arm's base parameters" if motion.about == "arm" else "the payload's parameters"
        console.print(
            f"condition number of {whose} along all of it, columns of length one: {motion.condition:.3g}",
            soft_wrap=True,
        )
    if motion.waypoints is not None and motion.steps:
        last = motion.steps[-1][1].plan
        goal = nearest_turn(motion.model, motion.waypoints[-1], motion.start)
        if last is not None:
            end = last.trajectory.knots[-1, 0]
            gap = float(np.abs(nearest_turn(motion.model, end, goal) - goal).max())
            console.print(f"ends {gap:.3g} rad from the last waypoint after {motion.duration:.2f} s of motion")
    files = ["motion.json", *(["plan_*.json", "motion.png"] if motion.steps else [])]
    console.print(f"{out}: {', '.join(files)}", soft_wrap=True)
