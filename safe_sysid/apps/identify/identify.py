"""Identifies a log: from the options of ``safe-sysid identify`` to files and a result."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from safe_sysid.apps.identify.methods import PROVED, identify_log
from safe_sysid.apps.identify.sensors import SENSORS, assumed_text, log_settings, torque_settings
from safe_sysid.apps.progress import bar
from safe_sysid.errors import ConfigError
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.tare.file import load_tare, read_tare
from safe_sysid.identification.tare.tare import Tare, TareError
from safe_sysid.logs.checks.checks import check_log
from safe_sysid.logs.checks.findings import Finding
from safe_sysid.logs.filtering import low_pass
from safe_sysid.logs.formats.npz import read_log, write_log
from safe_sysid.logs.formats.reading import load_log, reading_of
from safe_sysid.logs.log import Log, LogError
from safe_sysid.report.identification.output import print_result, write_all
from safe_sysid.report.identification.result import write_result
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.loading import load_robot, with_declared
from safe_sysid.robot.model import RobotModel

__all__ = ["IdentifyOptions", "identify", "robot_overrides"]


@dataclass(frozen=True)
class IdentifyOptions:
    """Options of the command; see ``safe-sysid identify --help``."""

    log: Path
    robot: str = "kinova_gen3"
    topic: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    map_file: Path | None = None
    angles: str | None = None
    time_unit: str | None = None
    start: float | None = None
    end: float | None = None
    filter_hz: float | None = None
    force: bool = False
    payload_box: str | None = None
    density: tuple[float, float] | None = None
    tare: Path | None = None
    recorded: datetime | None = None
    temperature: float | None = None
    sensor: str | None = None
    torque_noise: tuple[float, float] | None = None
    velocity_error: float | None = None
    position_error: float | None = None
    acceleration_bound: float | None = None
    torque_source: str | None = None
    effort: str | None = None
    rate: float | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    method: str | None = None
    update: float | None = None
    thorough: bool = False
    out: Path | None = None
    json_file: Path | None = None
    quiet: bool = False


def robot_overrides(options: IdentifyOptions) -> dict[str, Any]:
    """What the options change in the robot's settings, for ``load_robot``.

    Raises ConfigError: a payload box that is none.
    """
    torque = options.torque_noise
    values: dict[str, Any] = {
        "measurement.torque_abs": None if torque is None else torque[0],
        "measurement.torque_rel": None if torque is None else torque[1],
        "measurement.velocity_error": options.velocity_error,
        "measurement.position_error": options.position_error,
        "measurement.torque_source": options.torque_source,
        "measurement.effort": options.effort,
        "measurement.rate_hz": options.rate,
        "identification.acceleration_bound": options.acceleration_bound,
        "identification.method": options.method if options.method in PROVED else None,
        "payload.box": None if options.payload_box is None else _payload_box(options.payload_box),
        "payload.density": None if options.density is None else list(options.density),
    }
    return {**{key: value for key, value in values.items() if value is not None}, **dict(options.settings)}


def _verify_command(options: IdentifyOptions, overrides: Mapping[str, Any], out: Path, tare: Tare | None) -> str:
    """How to check the certificates, with everything that differs from the robot's file."""
    words = ["safe-sysid", "verify", str(out)]
    if options.robot != IdentifyOptions.robot:
        words += ["--robot", options.robot]
    for key, value in overrides.items():
        words += ["--set", f"{key}={json.dumps(value)}"]
    if tare is not None:
        words += ["--tare-log", "LOG_OF_THE_TARE.npz"]
    return shlex.join(words)


def _payload_box(text: str) -> Any:
    if text == "envelope":
        return text
    if text.endswith((".yaml", ".yml")):
        return read_yaml(text)
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 6:
        raise ConfigError(
            "--payload-box", "value", text, "lx,ly,lz,cx,cy,cz in m (tool frame), a .yaml file, or `envelope`"
        )
    return {"size": numbers[:3], "center": numbers[3:]}


def identify(options: IdentifyOptions) -> int:
    """Read, check, identify, write, tell. Returns the exit status: 0 bounds, 1 empty set, 2 a log with errors.

    Raises SafeSysIdError: something cannot be used; one line says what.
    """
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)

    def say(text: str) -> None:
        """A line, unless quiet."""
        if not options.quiet:
            console.print(text, markup=False, soft_wrap=True)

    begin = time.perf_counter()
    overrides = robot_overrides(options)
    try:
        model = load_robot(options.robot, **overrides)
    except ConfigError as error:
        if options.density is None or options.payload_box is not None or "payload.box" not in error.expected:
            raise
        text = ",".join(f"{x:g}" for x in options.density)
        raise ConfigError("--density", "value", text, "--payload-box too: without a box it says nothing") from None
    errors = MeasurementErrors.from_model(model)
    log = _read(options, model)
    if options.sensor is not None:
        model, overrides, assumed = _with_sensor(options, model, overrides, log)
        errors = MeasurementErrors.from_model(model)
        for line in assumed_text(options.sensor, assumed, model):
            say(line)
    tare, dated = _tare(options, model, errors, log)
    read = time.perf_counter()
    findings = [*check_log(log, model, errors), *dated]
    for finding in findings:
        if finding.level == "error" or not options.quiet:
            print(finding.text, file=sys.stderr)
    wrong = [finding for finding in findings if finding.level == "error"]
    if wrong and not options.force:
        print(
            f"safe-sysid identify: error: {_count(len(wrong), 'error')} in {options.log}, nothing identified "
            f"(--force goes on all the same)",
            file=sys.stderr,
        )
        return 2
    if options.filter_hz is not None:
        log = low_pass(log, model, options.filter_hz)
        say(f"filtered at {options.filter_hz:g} Hz: nothing is guaranteed")
    checked = time.perf_counter()
    out = options.out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-identify-{options.log.stem}"
    method = options.method or model.settings.identification.method
    _clear(out, (options.log, options.tare, options.map_file))
    kind = "guaranteed" if method in PROVED else "estimate"
    kind = "sensor" if options.sensor is not None and kind == "guaranteed" else kind
    kind = "filtered" if options.filter_hz is not None else "forced" if wrong else kind
    done, result = identify_log(
        log, model, errors, method, kind, findings, str(options.log), out, options.update, tare, options.filter_hz,
        options.thorough, {"read": read - begin, "check": checked - read}, partial(bar, quiet=options.quiet),
    )  # fmt: skip
    kept = tare is None or _keep_tare_log(Path(options.tare or model.settings.tare.file or ""), tare, out)
    command = _verify_command(options, overrides, out, None if kept else tare)
    if not kept:
        say(f"the tare's log is not beside it: to verify, say where it is, as in: {command}")
    verdict = write_all(out, result, model, log, done, kind, command)
    if options.json_file is not None:
        write_result(options.json_file, result)
    if not options.quiet:
        print_result(console, result)
    print(verdict, flush=True)
    return result.exit_status


def _with_sensor(
    options: IdentifyOptions, model: RobotModel, overrides: Mapping[str, Any], log: Log
) -> tuple[RobotModel, dict[str, Any], dict[str, Any]]:
    """The arm and all settings with those that the log shows, and these alone; what an option says stays as it is."""
    kind = SENSORS[options.sensor or ""]
    said = dict(overrides)
    said.setdefault("measurement.torque_source", kind.source)
    said.setdefault("measurement.torque_rel", kind.relative)
    first = with_declared(model, said)
    shown = {key: value for key, value in log_settings(log, first).items() if key not in said}
    if "measurement.torque_abs" not in said:
        shown |= torque_settings(log, with_declared(first, shown))
    return with_declared(first, shown), {**said, **shown}, shown


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _keep_tare_log(file: Path, tare: Tare, out: Path) -> bool:
    """Copy the log that a tare was made from to the certificates, if it lies beside the tare.

    ``tare``: read from it; it says what its log's digest is.
    """
    for path in (file.with_name(f"{file.stem}_log.npz"), file.with_name("tare_log.npz")):
        try:
            log = read_log(path)
        except LogError:
            continue
        if log_digest(log.joint_names, log.measurements) == tare.log_hash:
            write_log(out / "tare_log.npz", log.joint_names, log.measurements, log.origin_ns)
            return True
    return False


def _clear(out: Path, used: Sequence[Path | None]) -> None:
    """Remove what an earlier run left: bounds of another log must not outlive it.

    Raises LogError: one of the files in use lies there, or nothing can be written there.
    """
    for path in used:
        if path is not None and out.resolve() in path.resolve().parents:
            raise LogError(f"--out {out}: holds {path}, which is read: expected another directory")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for pattern in (
            "bounds.yaml",
            "payload.urdf",
            "result.json",
            "report.html",
            "log.npz",
            "certificate_*_*.*",
            "withdrawn_*.json",
        ):
            for path in out.glob(pattern):
                path.unlink()
    except OSError as error:
        raise LogError(f"{out}: cannot be written: {error.strerror or error}") from error


def _read(options: IdentifyOptions, model: RobotModel) -> Log:
    reading = reading_of(options.map_file, options.topic, dict(options.columns), options.angles, options.time_unit)
    reading = replace(reading, start=options.start, end=options.end)
    if np.any(model.sliding):
        # One unit for all joints would turn metres, too.
        if reading.angles == "deg":
            name = model.joint_names[int(np.argmax(model.sliding))]
            raise LogError(
                f"--angles deg: {name} is prismatic: expected rad and m; or a `scale` in --map for each turning joint"
            )
        reading = replace(reading, angles="rad")
    if options.start is not None and options.end is not None and not options.start < options.end:
        raise LogError(f"--from {options.start:g} --to {options.end:g}: expected from < to")
    with bar("reading", options.quiet) as progress:
        return load_log(options.log, model.joint_names, reading, progress)


def _tare(
    options: IdentifyOptions, model: RobotModel, errors: MeasurementErrors, log: Log
) -> tuple[Tare | None, list[Finding]]:
    """The tare that was named, or the configured one, if it may be used for a run at the time of this log."""
    name = options.tare or model.settings.tare.file
    if name is None:
        return None, []
    stamps = log.measurements.stamps[np.isfinite(log.measurements.stamps)]
    seconds = 1e-9 * log.origin_ns + (float(stamps[-1]) if stamps.size else 0.0)
    findings = []
    if options.recorded is not None:
        now, source = options.recorded, "by --recorded"
    elif 1e9 < seconds < 1e10:
        now, source = datetime.fromtimestamp(seconds, timezone.utc), "by its stamps"
    else:  # simulated time, or counted from a start
        now = datetime.fromtimestamp(options.log.stat().st_mtime, timezone.utc)
        source = "by the time of its file"
        findings.append(
            Finding(
                "warning",
                "recording_time",
                log.column("stamps", 0) if log.columns.get("stamps") else "stamps",
                f"the age of the tare is judged by the time of the file, {now:%Y-%m-%d %H:%M} UTC",
                "stamps since 1970",
                "a copied file may be younger than its log: say --recorded TIME",
            )
        )
    try:
        return load_tare(name, model, errors, now, options.temperature), findings
    except TareError as error:
        if "max_age_h" not in str(error):
            raise
        made = read_tare(name).created
        raise TareError(
            f"{error}; the tare was recorded {made:%Y-%m-%d %H:%M} UTC, the log {now:%Y-%m-%d %H:%M} UTC ({source})"
            f"{'' if options.recorded else ': --recorded TIME says otherwise'}"
        ) from None
