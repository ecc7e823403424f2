"""C code of an arm: what ``safe-sysid dynamics`` does."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from safe_sysid.core.layout import ROTOR
from safe_sysid.dynamics.generated.chain import dh_kinematics
from safe_sysid.dynamics.generated.files import Arm, choices, generate
from safe_sysid.errors import ModelError
from safe_sysid.robot.loading import load_robot

__all__ = ["arm_of", "print_generated"]

_KINDS = {"revolute": False, "r": False, "prismatic": True, "p": True}


def arm_of(name: str) -> Arm:
    """An arm by the name of a robot, its YAML file, or a CSV file with its DH table.

    Args:
        name: as given.

    Raises:
        ConfigError: there is no such robot, or its file is wrong.
        ModelError: the table cannot be read, or is no arm.
    """
    path = Path(name)
    if path.suffix != ".csv":
        robot = load_robot(name)
        theta, n = np.array(robot.theta_nominal), robot.n
        rotors = bool(np.any(theta[ROTOR * n : (ROTOR + 1) * n])) or len(robot.kinematics.motors.joint) > 0
        return Arm(robot.name, robot.kinematics, theta, rotors)
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
    return Arm(path.stem, kin)


def print_generated(name: str, out: Path, prefix: str, yes: bool) -> int:
    """Write the files of an arm and say what was chosen; returns the exit status.

    Args:
        name: of the arm.
        out: directory.
        prefix: of files and functions.
        yes: more than eight joints may be derived.
    """
    made = generate(arm_of(name), out, prefix, yes)
    model = made.model
    print(
        f"{model.n} joints, {model.p} functions, {model.l} base parameters, derived in {made.derived_s:.3f} s "
        "of processor time"
    )
    for function, method, why in choices(made):
        print(f"  {function:10s} {method:10s} ({why})")
    print(
        made.tested or "no C compiler on this machine: chosen by operations, the self-test has not been run"
    )
    print(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} in {out}")
    return 0
