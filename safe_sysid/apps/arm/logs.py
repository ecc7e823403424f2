"""Logs of an arm's own motions, read, processed, split and checked: shared by commands that learn from them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from safe_sysid.dynamics.closed_chain import Mechanism
from safe_sysid.errors import ConfigError
from safe_sysid.identification.arm.logs.checks import DataFinding, check_log, check_torques
from safe_sysid.identification.arm.logs.preparation import ArmData, Processing, prepare
from safe_sysid.identification.arm.wrong_columns import check_columns
from safe_sysid.logs.formats.reading import load_log, reading_of
from safe_sysid.logs.log import Log

__all__ = [
    "ArmLogOptions", "check_samples", "make_directory", "output_directory", "processing_of", "read_logs",
    "refused", "split_samples",
]  # fmt: skip


@dataclass(frozen=True)
class ArmLogOptions:
    """Options of :mod:`safe_sysid.commands.shared.log_options`."""

    logs: tuple[Path, ...]
    robot: str = "kinova_gen3"
    validation: tuple[Path, ...] = ()
    share: float = 0.3
    topic: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    map_file: Path | None = None
    angles: str | None = None
    time_unit: str | None = None
    cutoff: float | None = None
    decimation: int | None = None
    velocity: str = "auto"
    torque_per_effort: tuple[tuple[str, float], ...] = ()
    force: bool = False
    out: Path | None = None
    json_file: Path | None = None
    quiet: bool = False


def read_logs(options: ArmLogOptions, joint_names: tuple[str, ...]) -> list[Log]:
    """The logs, then those of validation.

    Raises:
        SafeSysIdError: one cannot be read.
    """
    reading = reading_of(options.map_file, options.topic, dict(options.columns), options.angles, options.time_unit)
    reading = replace(reading, may_lack_velocity=options.velocity != "log")
    return [load_log(path, joint_names, reading) for path in (*options.logs, *options.validation)]


def processing_of(options: ArmLogOptions, transition: float = 0.0) -> Processing:
    """How samples are made. ``transition``: friction transition velocity, rad/s."""
    return Processing(options.cutoff, options.decimation, options.velocity, dict(options.torque_per_effort), transition)


def split_samples(
    logs: Sequence[Log], joint_names: Sequence[str], options: ArmLogOptions, transition: float = 0.0
) -> tuple[ArmData, ArmData]:
    """Samples to learn from, and samples that are held out.

    ``logs``: of :func:`read_logs`; ``transition``: friction transition velocity, rad/s.

    Raises:
        DataError: logs cannot be used, or one of the two would be empty.
    """
    data = prepare([log.measurements for log in logs], joint_names, processing_of(options, transition))
    held_out = list(range(len(options.logs), len(logs))) or None
    return data.split(options.share, held_out)


def check_samples(
    logs: Sequence[Log], mechanism: Mechanism, samples: ArmData, link_side: bool = False
) -> list[DataFinding]:
    """What forbids to fit: columns that cannot be what they say they are.

    Args:
        logs: of :func:`read_logs`.
        samples: of :func:`split_samples`.
        link_side: whether torques are measured behind gears and friction.
    """
    names = mechanism.actuated_names
    found = [finding for log in logs for finding in check_log(log.measurements, names)]
    if found:
        return found
    columns = check_columns(mechanism, samples)
    if any(finding.kind == "columns" for finding in columns):
        return columns
    thinned = samples.only([(0, slice(part.start, part.stop, 5)) for part in samples.parts()])
    theta, layout = mechanism.theta_nominal.copy(), mechanism.layout
    for block in (layout.coulomb, layout.viscous, layout.rotor_inertia) if link_side else ():
        theta[block] = 0.0
    drawn = mechanism.regressor(thinned.motion(mechanism)) @ theta
    return check_torques(drawn, thinned.torque, names) or columns


def output_directory(options: ArmLogOptions, command: str) -> Path:
    """Where a command writes: ``--out``, or a new directory in ``runs``."""
    return options.out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{command.replace(' ', '-')}"


def make_directory(out: Path) -> None:
    """Make the directory of :func:`output_directory`. ``out``: the directory; may be there.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("--out", "directory", str(out), f"one that can be made ({error.strerror})") from None


def refused(options: ArmLogOptions, command: str, findings: Sequence[str], undone: str) -> bool:
    """Tell what speaks against logs; True if the command ends there.

    ``undone``: what then is not done, as "learned".
    """
    for message in findings:
        print(f"safe-sysid {command}: {message}", file=sys.stderr)
    if not findings or options.force:
        return False
    print(
        f"safe-sysid {command}: error: {len(findings)} finding(s), nothing {undone} (--force goes on)", file=sys.stderr
    )
    return True
