"""Contents of a run directory, complete or not, and a list of what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.files.update import read_header
from safe_sysid.input_limits import MAX_JSON_BYTES, read_arrays, read_regular_text
from safe_sysid.planning.plan_files.plan_file import PlanFile, read_plan
from safe_sysid.report.run.curves import JudgedCurves, read_curves
from safe_sysid.report.run.logs import RunLogs, UpdateEntry, read_logs
from safe_sysid.report.run.summary import ParameterRow, Summary
from safe_sysid.robot.files.yaml_file import read_yaml

__all__ = ["NAMELESS", "Certified", "NoRunError", "RunFacts", "read_facts"]


#: What makes a directory one of a run.
MARKS = ("summary.json", "identifier.json", "planner.json", "controller.npz", "plant.npz")
#: The robot of a run of which nothing says a name.
NAMELESS = "an arm"
_MOST_FILES = 2000  # plans or certificates that are read


class NoRunError(SafeSysIdError):
    """A directory that is not one of a run."""


@dataclass(frozen=True)
class Certified:
    """What the certificates of the bounds say of themselves; nothing of it is checked here."""

    count: int
    samples: int
    rows: int
    digest: str  #: SHA-256 of the last one's arrays
    #: urdf, settings: SHA-256 of what they state of the robot
    urdf: str
    settings: str
    written_by: str
    robot: str
    errors: Mapping[str, Any]
    stated: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RunFacts:
    """Everything that a report is made of."""

    directory: Path
    summary: Summary | None  #: of the judge of a simulated run; None for others
    curves: JudgedCurves | None  #: of that judge; None without
    logs: RunLogs
    rows: tuple[ParameterRow, ...]  #: the ten intervals after the last update
    epoch: int  #: of these; -1 if there was no update
    updates: tuple[UpdateEntry, ...]
    joint_names: tuple[str, ...] = ()  #: base to tip; may be empty
    torque_limits: FloatArray | None = None  #: (n,) N m or N; None if nothing states them
    torques: tuple[FloatArray, FloatArray] | None = None  #: time (K,) s and commanded torque (K, n); None if not logged
    #: time (K,) s and largest measured tracking error over its proved bound (K,); None if not logged
    measured: tuple[FloatArray, FloatArray] | None = None
    plan_files: tuple[PlanFile, ...] = ()  #: readable ones, in order
    certified: Certified | None = None  #: None without certificates of bounds
    #: that the controller's process was started with, as text; empty if not known
    parameters: Mapping[str, Any] = field(default_factory=dict)
    counts: tuple[str, ...] = ()
    recorded: bool = False  #: whether there is a bag
    missing: tuple[str, ...] = ()  #: what could not be read, and why

    @property
    def robot(self) -> str:
        """Name, as far as anything says it."""
        for name in (
            self.summary.robot if self.summary else "",
            self.certified.robot if self.certified else "",
            str(self.plan_files[0].robot.get("name", "")) if self.plan_files else "",
        ):
            if name:
                return name
        return NAMELESS

    @property
    def lockstep(self) -> bool | None:
        """Whether simulated time waited for every command; None if nothing says so."""
        if self.summary is not None:
            return self.summary.mode == "lockstep"
        if self.plan_files:
            return str(self.plan_files[0].gains.get("timing", "")) == "lock-step"
        return None


def read_facts(directory: str | Path) -> RunFacts:
    """Read a run directory. ``directory``: that nodes were given as ``run_dir``.

    Raises NoRunError: it is no directory, or nothing in it is of a run.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise NoRunError(f"{directory}: expected the directory of a run")
    if not any((directory / name).is_file() for name in MARKS):
        raise NoRunError(f"{directory}: not a run directory: expected one of {', '.join(MARKS)} in it")
    missing: list[str] = []
    summary = _summary(directory / "summary.json", missing)
    plan_files = _plan_files(directory, missing)
    certified = _certified(directory, missing)
    controller = _controller(directory / "controller.npz", missing)
    names = _joint_names(controller, plan_files, certified)
    logs = read_logs(directory, max(len(names), 1))
    missing += logs.missing
    rows, epoch, updates = _intervals(directory, summary, logs)
    limits = None
    if plan_files:
        stated = plan_files[0].robot.get("limits", {})
        limits = np.asarray(stated.get("torque", ()), float) if isinstance(stated, Mapping) else None
        limits = limits if limits is not None and limits.shape == (len(names),) else None
    return RunFacts(
        directory=directory.resolve(),
        summary=summary,
        curves=_curves(directory / "judged.npz", missing),
        logs=logs,
        rows=rows,
        epoch=epoch,
        updates=updates,
        joint_names=names,
        torque_limits=limits,
        torques=_torques(controller, logs),
        measured=_measured(controller, logs),
        plan_files=plan_files,
        certified=certified,
        parameters=_parameters(directory / "parameters" / "controller.yaml"),
        counts=_counts(directory, controller),
        recorded=any(directory.glob("bag/*.mcap")) or any(directory.glob("rosbag2_*/*.mcap")),
        missing=tuple(dict.fromkeys(missing)),
    )


# -- one file each ----------------------------------------------------------------------------------------------------


def _summary(path: Path, missing: list[str]) -> Summary | None:
    try:
        return Summary.model_validate_json(read_regular_text(path, MAX_JSON_BYTES))
    except FileNotFoundError:
        return None  # only a judged run has one
    except (OSError, ValidationError, ValueError) as error:
        missing.append(f"summary.json: {str(error).splitlines()[0][:200]}")
        return None


def _plan_files(directory: Path, missing: list[str]) -> tuple[PlanFile, ...]:
    found = []
    for path in _numbered(directory, r"plan_\d+\.json"):
        try:
            found.append(read_plan(path))
        except (SafeSysIdError, OSError) as error:
            missing.append(str(error))
    return tuple(found)


def _numbered(directory: Path, pattern: str) -> list[Path]:
    names = [path for path in directory.iterdir() if re.fullmatch(pattern, path.name) and path.is_file()]
    return sorted(names)[:_MOST_FILES]


def _certified(directory: Path, missing: list[str]) -> Certified | None:
    paths = _numbered(directory, r"certificate_\d+_\d+\.json")
    for path in sorted(paths, key=lambda p: [int(x) for x in re.findall(r"\d+", p.name)], reverse=True):
        try:
            header, _ = read_header(path)
            robot = header["robot"]
            return Certified(
                count=len(paths),
                samples=int(header["log"]["samples"]),
                rows=int(header["arrays"]["rows"]),
                digest=str(header["arrays"]["sha256"]),
                urdf=str(robot["urdf_sha256"]),
                settings=str(robot["yaml_sha256"]),
                written_by=str(header["written_by"]),
                robot=str(robot["name"]),
                errors=dict(header["errors"]),
                stated=robot,
            )
        except (SafeSysIdError, OSError, KeyError, TypeError, ValueError) as error:
            missing.append(f"{path.name}: {str(error)[:200]}")
    return None


def _controller(path: Path, missing: list[str]) -> dict[str, NDArray[Any]]:
    """Columns that :func:`read_logs` does not keep; empty if there are none."""
    wanted = ("joint_names", "stamp", "torque", "e", "e_bound", "counts", "refused")
    try:
        arrays = read_arrays(path)
        return {name: arrays[name] for name in wanted if name in arrays}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, MemoryError) as error:
        missing.append(f"{path.name}: {type(error).__name__}: {str(error)[:100]}")
        return {}


def _joint_names(
    controller: Mapping[str, NDArray[Any]], plans: tuple[PlanFile, ...], certified: Certified | None
) -> tuple[str, ...]:
    if "joint_names" in controller:
        return tuple(str(name) for name in np.ravel(controller["joint_names"]))
    if plans:
        return tuple(str(name) for name in plans[0].robot.get("joint_names", ()))
    if certified is not None:
        urdf = certified.stated.get("urdf")
        names = urdf.get("joint_names", ()) if isinstance(urdf, Mapping) else ()
        return tuple(str(name) for name in names)
    return ()


def _curves(path: Path, missing: list[str]) -> JudgedCurves | None:
    try:
        return read_curves(path)
    except FileNotFoundError:
        return None
    except SafeSysIdError as error:
        missing.append(str(error))
        return None


def _torques(controller: Mapping[str, NDArray[Any]], logs: RunLogs) -> tuple[FloatArray, FloatArray] | None:
    """What the simulated drives applied; on a real arm what was commanded."""
    if logs.plant is not None and logs.plant.time.size:
        return logs.plant.time, logs.plant.applied
    torque, log = controller.get("torque"), logs.controller
    if log is None or torque is None or torque.ndim != 2 or len(torque) != log.time.size or not len(torque):
        return None
    return log.time, np.asarray(torque, float)


def _measured(controller: Mapping[str, NDArray[Any]], logs: RunLogs) -> tuple[FloatArray, FloatArray] | None:
    log, bound = logs.controller, controller.get("e_bound")
    if log is None or bound is None or log.e.ndim != 2 or log.e.shape != (log.time.size, bound.size):
        return None
    rows = log.guaranteed
    if not np.any(rows):
        return None
    return log.time[rows], np.max(np.abs(log.e[rows]) / np.asarray(bound, float), axis=1)


def _parameters(path: Path) -> dict[str, Any]:
    try:
        given = read_yaml(path)["/**"]["ros__parameters"]
    except (SafeSysIdError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return dict(given) if isinstance(given, dict) else {}


def _counts(directory: Path, controller: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    lines = [
        f"controller: {text}: {what}"
        for what, key in (("counted", "counts"), ("refused", "refused"))
        for text in (str(item) for item in np.ravel(controller.get(key, np.zeros(0, str))))
    ]
    for name in ("planner", "identifier"):
        try:
            refused = json.loads(read_regular_text(directory / f"{name}.json", MAX_JSON_BYTES)).get("refused", {})
            lines += [f"{name}: {key}: {count}: refused" for key, count in dict(refused).items()]
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            continue
    return tuple(lines)


# -- the ten intervals ------------------------------------------------------------------------------------------------


def _intervals(
    directory: Path, summary: Summary | None, logs: RunLogs
) -> tuple[tuple[ParameterRow, ...], int, tuple[UpdateEntry, ...]]:
    """After the last update, against the prior; updates of the last epoch, since epochs are different payloads."""
    epochs = [_epoch(update.identity) for update in logs.updates]
    last = epochs[-1] if epochs else -1
    updates = tuple(update for update, epoch in zip(logs.updates, epochs, strict=True) if epoch == last)
    if summary is not None:
        return tuple(summary.parameters), last, updates
    prior = _prior(directory / "identifier.json")
    if prior is None:
        return (), last, updates
    low, high = prior
    middle = 0.5 * (low + high)
    final = updates[-1] if updates else UpdateEntry(0.0, low, middle, high)
    try:
        rows = ParameterRow.ten(
            truth=None, lower=final.lower, nominal=final.nominal, upper=final.upper, prior_lower=low, prior_upper=high
        )
    except ValidationError:
        rows = []
    return tuple(rows), last, updates


def _epoch(identity: str) -> int:
    head = identity.partition(":")[0]
    return int(head) if head.isascii() and head.isdigit() and len(head) < 10 else 0


def _prior(path: Path) -> tuple[FloatArray, FloatArray] | None:
    try:
        content = json.loads(read_regular_text(path, MAX_JSON_BYTES))
        low, high = (np.asarray(content[key], float) for key in ("prior_lower", "prior_upper"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return (low, high) if low.shape == high.shape == (10,) else None
