"""``safe-sysid errors``: tables, YAML and JSON of the torque errors that logs need."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from safe_sysid.apps.arm.logs import ArmLogOptions, read_logs
from safe_sysid.apps.progress import steps
from safe_sysid.decimals import at_most
from safe_sysid.identification.arm.bounds.needed_errors import NeededErrors, needed_errors
from safe_sysid.identification.arm.logs.preparation import as_torque
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.robot.loading import load_robot
from safe_sysid.whole_files import write_text

__all__ = ["print_needed_errors"]

_MUCH = 5.0  # times the declared a: more is hardly a torque's error
_FRONT = (0.0, 0.01, 0.02, 0.05, 0.1)  # b that a is told against


def print_needed_errors(
    options: ArmLogOptions,
    relative: Sequence[float],
    front: bool,
    margin: float,
    out: Path | None,
    json_file: Path | None,
    empty_hand: bool = False,
) -> int:
    """Find, print and write them. Returns the exit status 0.

    Args:
        options: logs, and how they are read.
        relative: b to try; none for the robot file's.
        front: whether a is told against b, too.
        margin: share that is added to a.
        empty_hand: whether nothing but what always is was in the hand, as intervals of the arm itself assume.

    Raises:
        SafeSysIdError: something cannot be used; one line says what.
    """
    model = load_robot(options.robot)
    found_logs = [
        as_torque(log.measurements, model.joint_names, dict(options.torque_per_effort))
        for log in read_logs(options, model.joint_names)
    ]
    logs, validation = options.logs, options.validation
    first, second = found_logs[: len(logs)], found_logs[len(logs) :]
    declared, box = MeasurementErrors.from_model(model), model.empty_handed_prior if empty_hand else model.arm_prior
    asked = [np.full(model.n, b) for b in relative] or [declared.torque_rel]
    others = [np.full(model.n, b) for b in _FRONT if front]
    results: dict[tuple[float, ...], dict[str, Any]] = {}
    for k, b in enumerate([*asked, *others]):
        if tuple(b) in results:
            continue
        with steps(f"b = {np.max(b):g}, {k + 1} of {len(asked) + len(others)}"):
            found = needed_errors(model, replace(declared, torque_rel=b), first, second, box=box)
        proposed = [_up(max(x, y) * (1.0 + margin)) for x, y in zip(found.absolute, found.validation, strict=True)]
        results[tuple(b)] = _result(found, proposed, model.joint_names, logs, validation)
        if k < len(asked):
            _print(found, proposed, declared, model.joint_names)
    told = [results[tuple(b)] for b in (*asked, *others)]
    if front:
        print("proposed a against b:    " + "".join(f"{b:>10g}" for b in _FRONT))
        for name in model.joint_names:
            of_b = [result["joints"][name]["torque_abs"] for result in told[len(asked) :]]
            print(f"  {name:<22} " + "".join(f"{a:>10.3g}" for a in of_b))
    if out is not None:
        write_text(out, _yaml(told[0], margin))
        print(f"{out}: the first of these, for the section `measurement` of the robot file")
    if json_file is not None:
        write_text(json_file, json.dumps({"schema": "safe_sysid/errors/1", "results": told}, indent=1) + "\n")
    return 0


def _up(value: float) -> float:
    """Three digits, not less."""
    return float(at_most(value, 3)) if value > 0.0 else 0.0


def _result(
    found: NeededErrors, proposed: list[float], names: Sequence[str], logs: Sequence[Path], validation: Sequence[Path]
) -> dict[str, Any]:
    return {
        "logs": [str(path) for path in logs],
        "validation": [str(path) for path in validation],
        "equations": found.equations,
        "joints": {
            name: {
                "torque_rel": float(found.relative[j]),
                "needed": float(found.absolute[j]),
                "needed_by_validation": float(found.validation[j]) if validation else None,
                "torque_abs": proposed[j],
                "worst_at": float(found.worst[j, 1]),
                "worst_over": float(np.diff(found.worst[j])[0]),
            }
            for j, name in enumerate(names)
        },
    }


def _print(found: NeededErrors, proposed: list[float], declared: MeasurementErrors, names: Sequence[str]) -> None:
    b = ", ".join(f"{x:g}" for x in sorted(set(found.relative.tolist())))
    print(f"b = {b}; {found.equations} equations, all satisfied by one arm of the prior with a of")
    print("  joint                      declared     needed  validation   proposed  largest at      over")
    for j, name in enumerate(names):
        check = at_most(found.validation[j], 3) if found.validation[j] > 0.0 else "-"
        print(
            f"  {name:<24} {declared.torque_abs[j]:>10.4g} {at_most(found.absolute[j], 3):>10} {check:>11} "
            f"{proposed[j]:>10.3g} {found.worst[j, 1]:>9.3f} s  {1e3 * np.diff(found.worst[j])[0]:>6.0f} ms"
        )
    shortest = np.diff(found.worst, axis=1)[:, 0].min()
    if np.any(found.absolute > _MUCH * np.maximum(declared.torque_abs, 1e-9)):
        print(
            f"  where short windows ({1e3 * shortest:.0f} ms) need many times what is declared, look first at\n"
            "  measurement.velocity_error, position_error and stamps: their errors are divided by the window's length"
        )
    print("  intervals are guaranteed IF torque errors are at most the proposed a plus b times the torque")


def _yaml(result: dict[str, Any], margin: float) -> str:
    joints = result["joints"].values()
    head = (
        f"# By `safe-sysid errors` from {len(result['logs'])} log(s), {len(result['validation'])} for validation, "
        f"{result['equations']} equations, {100 * margin:g} % margin:\n"
        "# what these logs need. Guarantees hold IF no later error is larger.\n"
    )
    values = {key: [joint[key] for joint in joints] for key in ("torque_abs", "torque_rel")}
    return head + str(yaml.safe_dump({"measurement": values}, default_flow_style=None, sort_keys=False))
