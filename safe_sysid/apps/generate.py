"""C code of an arm: what ``safe-sysid dynamics`` does."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws.c_code import write_law
from safe_sysid.core.layout import ROTOR
from safe_sysid.decimals import at_most
from safe_sysid.dynamics.generated.chain import dh_kinematics
from safe_sysid.dynamics.generated.choice import inverse_operations
from safe_sysid.dynamics.generated.files import check_place, choices
from safe_sysid.dynamics.generated.making import ArmToGenerate, derived, generate, write_reduced
from safe_sysid.dynamics.generated.reduce import Task, rank, reduce_to
from safe_sysid.errors import ModelError
from safe_sysid.logs.formats.reading import load_log
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.whole_files import write_text

__all__ = ["arm_of", "print_generated", "print_law", "print_reduced", "task_of"]

_KINDS = {"revolute": False, "r": False, "prismatic": True, "p": True}


def arm_of(name: str, friction: bool = False) -> ArmToGenerate:
    """An arm by the name of a robot, its YAML file, or a CSV file with its DH table.

    Raises:
        ConfigError: there is no such robot, or its file is wrong.
        ModelError: the table cannot be read, or is no arm.
    """
    path = Path(name)
    if path.suffix != ".csv":
        return _arm_of_robot(load_robot(name), friction)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{name}: cannot be read: {error}") from None
    table, sliding = [], []
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not cells or not cells[0] or cells[0].startswith("#"):
            continue
        try:
            sliding.append(_KINDS[cells[0].lower()])
            table.append([float(cell) for cell in cells[1:]])
        except (KeyError, ValueError):
            table.append([])
        if len(table[-1]) != 4 or not np.all(np.isfinite(table[-1])):
            raise ModelError(
                f"{name}, line {number}: {','.join(cells)!r}: expected revolute or prismatic, then theta, d, a, alpha"
            )
    if not table:
        raise ModelError(f"{name}: no joints: expected a line for each")
    kin, _ = dh_kinematics(np.array(table), np.array(sliding), np.array([0.0, 0.0, -9.81]))
    return ArmToGenerate(path.stem, kin, friction=friction)


def _arm_of_robot(robot: RobotModel, friction: bool = False) -> ArmToGenerate:
    robot.require_known_reactions("generated dynamics")
    theta, n = np.array(robot.theta_nominal), robot.n
    rotors = bool(np.any(theta[ROTOR * n : (ROTOR + 1) * n])) or len(robot.kinematics.motors.joint) > 0
    transition = robot.friction_transition_velocity if friction else 0.0
    return ArmToGenerate(robot.name, robot.kinematics, theta, rotors, friction, transition)


def print_generated(name: str, out: Path, prefix: str, yes: bool, friction: bool) -> int:
    """Write the files of an arm and say what was chosen; returns the exit status.

    ``yes``: more than eight joints may be derived.
    """
    made = generate(arm_of(name, friction), out, prefix, yes)
    model = made.model
    print(
        f"{model.n} joints, {model.p} functions, {model.l} base parameters, derived in {made.derived_s:.3f} s "
        "of processor time"
    )
    for function, method, why in choices(made):
        print(f"  {function:10s} {method:10s} ({why})")
    print(made.tested or "no C compiler on this machine: chosen by operations, the self-test has not been run")
    print(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} in {out}")
    return 0


def print_law(name: str, out: Path, prefix: str) -> int:
    """Write the robust law of a robot and say what the self-test said; returns the exit status."""
    robot = load_robot(name)
    check_place(out)
    gains = design_gains(robot)
    tested = write_law(robot, gains, out, prefix)
    print(f"{robot.n} joints, commands at most {gains.assumptions.hold_max!r} s old, V_max {at_most(gains.V_max)} J")
    print(f"self-test: {tested}" if tested else "no C compiler on this machine: the self-test has not been run")
    print(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} in {out}")
    return 0


def task_of(robot: RobotModel, log: Path | None, velocity: float | None, acceleration: float | None) -> Task:
    """Ranges of a robot's limits, or the hull of a log; accelerations of a log are differences of its velocities.

    Raises LogError: the log cannot be read.

    Args:
        log: of it; None: the limits.
        velocity: largest, for all joints; None: the limits' or the log's.
        acceleration: likewise; None: 10, or the log's.
    """
    n, limits = robot.n, robot.limits
    reach = np.where(robot.kinematics.sliding, 0.0, np.pi)
    q = np.stack([limits.position_lower, limits.position_upper], axis=1)
    q = np.where(np.isfinite(q), q, np.stack([-reach, reach], axis=1))
    qd, qdd = np.array(limits.velocity), np.full(n, 10.0)
    if log is not None:
        found = load_log(log, robot.joint_names).measurements
        stamps, kept = np.unique(found.stamps, return_index=True)
        if len(kept) < 3:
            raise ModelError(f"{log}: {len(kept)} samples: expected at least 3")
        q = np.stack([found.q.min(axis=0), found.q.max(axis=0)], axis=1)
        qd = np.abs(found.qd).max(axis=0)
        qdd = np.abs(np.gradient(found.qd[kept], stamps, axis=0)).max(axis=0)
    qd = np.full(n, velocity) if velocity is not None else qd
    return Task(q, qd, np.full(n, acceleration) if acceleration is not None else qdd)


def print_reduced(
    name: str,
    digits: float,
    level: float,
    log: Path | None,
    velocity: float | None,
    acceleration: float | None,
    inverse_only: bool,
    yes: bool,
    json_file: Path | None,
    out: Path | None,
) -> int:
    """Find the smallest model for a task and say how wrong it is; returns the exit status.

    Args:
        level: share of states that have them, 0.95 or 0.999.
        log: the task; None: the robot's limits.
        velocity: as of :func:`task_of`.
        acceleration: likewise.
        inverse_only: terms of the mass matrix may go, too.
        yes: more than eight joints may be derived.
        json_file: for programs; None: none.
        out: directory for C files; None: none.
    """
    robot = load_robot(name)
    arm = _arm_of_robot(robot)
    if out is not None:
        check_place(out)
    task = task_of(robot, log, velocity, acceleration)
    model, _ = derived(arm, yes)
    for joint, unit, (low, high), qd, qdd in zip(
        robot.joint_names, robot.position_units, task.q, task.qd, task.qdd, strict=True
    ):
        print(f"task: {joint} {low:.4g} to {high:.4g} {unit}, up to {qd:.4g} {unit}/s and {qdd:.4g} {unit}/s^2")
    print(f"{model.n} joints, {model.p} functions: ranking them", flush=True)
    ranking = rank(model, model.base_parameters(np.array(robot.theta_nominal)), task, inverse_only)
    small = reduce_to(ranking, digits, level)
    kept, p = small.kept
    print(f"kept {kept} of {p} functions; correct digits {small.digits[0.95]:.2f} at 95 % of states, "
          f"{small.digits[0.999]:.2f} at 99.9 %")  # fmt: skip
    few, many = inverse_operations(small.model), inverse_operations(model)
    print(f"inverse dynamics: {few} operations instead of {many}")
    if few >= many:
        print("no time is gained: terms that went had factors that others share; fewer digits or the full model may do")
    rows = []
    for j, joint in enumerate(robot.joint_names):
        proved, sampled = float(small.proved[j]), float(small.sampled[j])
        ratio = proved / sampled if sampled > 0.0 else 1.0
        rows.append({"joint": joint, "proved": proved, "sampled": sampled, "ratio": ratio})
        most = at_most(proved, 3)
        print(f"  {joint}: off by at most {most} N m (proved), {sampled:.3g} at random states; ratio {ratio:.2f}")
    if out is not None:
        made = write_reduced(arm.name, ranking, small, out)
        for (function, _), seconds in made.seconds.items():
            print(f"  {function}: {1e9 * seconds:.0f} ns")
        print(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} in {out}")
    if json_file is not None:
        told = {
            "kept": kept,
            "functions": p,
            "operations": few,
            "operations_full": many,
            "digits": {f"{k:g}": v for k, v in small.digits.items()},
            "task": {"q": task.q.tolist(), "qd": task.qd.tolist(), "qdd": task.qdd.tolist()},
            "joints": rows,
        }
        write_text(json_file, json.dumps(told, indent=1) + "\n")
    return 0
