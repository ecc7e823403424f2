"""Reading of logs: selects the format, maps the joints, cuts, and checks the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.bags.rosbag import is_bag, read_bag
from safe_sysid.logs.formats.csv import read_csv
from safe_sysid.logs.formats.header import ANGLE_UNITS, QUANTITIES, TIME_UNITS
from safe_sysid.logs.formats.npz import read_log
from safe_sysid.logs.log import Log, LogError
from safe_sysid.robot.files.yaml_file import read_yaml

__all__ = ["Reading", "load_log", "read_mapping", "reading_of"]

_SINGULAR = 1e6
_LARGEST = 1e6  # rad, rad/s, N m: no arm's; products of such numbers would overflow


@dataclass(frozen=True)
class Reading:
    """How to read a log."""

    topic: str | None = None  #: of a bag; None for the only one that fits
    #: ``{"time": column, "joint_1.position": column, ...}``, for tables
    columns: Mapping[str, str] = field(default_factory=dict)
    #: ``{name in the log: name of the robot's joint}``, for bags and npz
    rename: Mapping[str, str] = field(default_factory=dict)
    angles: str | None = None  #: "rad" or "deg", of positions and velocities; None: as the file says, else rad
    time_unit: str | None = None  #: "s", "ms", "us", "ns"; None: as the file says, else s. For tables and .npz.
    #: ``{"joint_1.effort": -0.001, ...}``: what the log's numbers are multiplied by, after ``angles``
    scale: Mapping[str, float] = field(default_factory=dict)
    #: ``{"wrist_1": {"wrist_1": 0.5, "wrist_2": -0.5}, ...}``: efforts of these columns, after ``scale``, are those of
    #: coupled motors, each such a sum of joint torques; joint torques are what is kept
    motors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: start, end: stamps to cut to, s after the first sample; None: not cut
    start: float | None = None
    end: float | None = None
    may_lack_velocity: bool = False  #: whether a log without velocities will do; they are nan then


def read_mapping(path: str | Path) -> Reading:
    """Read a mapping file (docs/use/identify.md).

    Args:
        path: of a YAML file with keys ``time``, ``time_unit``, ``angles``, ``topic``, ``rename``, ``joints``,
            ``scale``, ``motors``.

    Raises:
        ConfigError: not a YAML file.
        LogError: an unknown key, or a value of the wrong kind.
    """
    data = read_yaml(path)
    known = ("time", "time_unit", "angles", "topic", "rename", "joints", "scale", "motors")

    def text(key: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise LogError(f"{path}: {key} = {value!r}: expected a name")
        return value

    def mapping(key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise LogError(f"{path}: {key} = {value!r}: expected a mapping of names")
        return value

    for key in data:
        if key not in known:
            raise LogError(f"{path}: {key}: no such key, expected {', '.join(known)}")
    columns: dict[str, str] = {}
    if "time" in data:
        columns["time"] = text("time", data["time"])
    for joint, entry in mapping("joints", data.get("joints", {})).items():
        for word, column in mapping(f"joints.{joint}", entry).items():
            if word not in QUANTITIES.values():
                raise LogError(f"{path}: joints.{joint}.{word}: expected one of {', '.join(QUANTITIES.values())}")
            columns[f"{joint}.{word}"] = text(f"joints.{joint}.{word}", column)
    rename = {k: text(f"rename.{k}", v) for k, v in mapping("rename", data.get("rename", {})).items()}
    for key, units in (("time_unit", tuple(TIME_UNITS)), ("angles", ANGLE_UNITS)):
        if key in data and data[key] not in units:
            raise LogError(f"{path}: {key} = {data[key]!r}: expected one of {', '.join(units)}")
    topic = text("topic", data["topic"]) if "topic" in data else None
    scale: dict[str, float] = {}
    for joint, entry in mapping("scale", data.get("scale", {})).items():
        for word, factor in mapping(f"scale.{joint}", entry).items():
            key = f"{joint}.{word}"
            if word not in QUANTITIES.values():
                raise LogError(f"{path}: scale.{key}: expected one of {', '.join(QUANTITIES.values())}")
            if type(factor) not in (int, float) or not 1e-12 < abs(factor) < 1e12:
                raise LogError(f"{path}: scale.{key} = {factor!r}: expected a number, not 0")
            scale[key] = float(factor)
    motors = mapping("motors", data.get("motors", {}))
    for motor, shares in motors.items():
        for joint, share in mapping(f"motors.{motor}", shares).items():
            if joint not in motors or type(share) not in (int, float) or not abs(share) < 1e12:
                expected = f"a number, for one of {', '.join(motors)}"
                raise LogError(f"{path}: motors.{motor}.{joint} = {share!r}: expected {expected}")
    return Reading(topic, columns, rename, data.get("angles"), data.get("time_unit"), scale, motors)


def reading_of(
    map_file: str | Path | None,
    topic: str | None = None,
    columns: Mapping[str, str] | None = None,
    angles: str | None = None,
    time_unit: str | None = None,
) -> Reading:
    """A mapping file with what the command line says instead.

    Args:
        map_file: None for none.
        topic: see :class:`Reading`; None: as the file says. So are the others.
        columns: instead of the file's of the same names.
        angles: "rad" or "deg".
        time_unit: "s", "ms", "us" or "ns".

    Raises:
        ConfigError, LogError: see :func:`read_mapping`.
    """
    given = Reading() if map_file is None else read_mapping(map_file)
    return replace(
        given,
        topic=topic or given.topic,
        columns={**given.columns, **(columns or {})},
        angles=angles or given.angles,
        time_unit=time_unit or given.time_unit,
    )


def load_log(
    path: str | Path,
    joint_names: tuple[str, ...],
    reading: Reading | None = None,
    progress: Callable[[float], None] | None = None,
) -> Log:
    """Read a log: a bag (directory, ``.mcap``, ``.db3``), ``.npz``, or else a table of text.

    Args:
        joint_names: n names of the robot's joints; the result has exactly these, in this order.
        reading: what the user said; None for nothing.
        progress: called with the share that is read.

    Raises:
        LogError: the file cannot be used; the message says what to change.
    """
    path, reading = Path(path), reading or Reading()
    back = {robot: found for found, robot in reading.rename.items()}
    unknown = [robot for robot in back if robot not in joint_names]
    if unknown or len(back) != len(reading.rename):
        raise LogError(
            f"rename to {unknown[0] if unknown else 'one joint twice'!r}: expected joints of the robot: "
            f"{', '.join(joint_names)}"
        )
    wanted = tuple(back.get(name, name) for name in joint_names)
    if is_bag(path):
        log = read_bag(path, wanted, reading.topic, progress, reading.may_lack_velocity)
    elif path.suffix == ".npz":
        log = read_log(path, reading.time_unit, reading.may_lack_velocity).select(wanted)
    elif path.is_dir():
        raise LogError(f"{path}: a directory without metadata.yaml: expected a ROS 2 bag or a file")
    else:
        columns = {}
        for key, column in reading.columns.items():
            joint, dot, word = key.rpartition(".")
            columns[f"{back.get(joint, joint)}{dot}{word}"] = column
        return _finish(
            path,
            read_csv(path, wanted, columns, reading.angles, reading.time_unit, progress, reading.may_lack_velocity),
            joint_names,
            reading,
        )
    if reading.columns:
        raise LogError(f"{path}: --column and joints of --map are for tables: expected a CSV file (try rename)")
    if path.suffix != ".npz" and reading.time_unit not in (None, "s"):
        raise LogError(f"{path}: --time-unit {reading.time_unit} is for tables and .npz: a bag has ROS stamps")
    m = log.measurements
    if reading.angles == "deg":
        m = Measurements(m.stamps, np.deg2rad(m.q), np.deg2rad(m.qd), m.effort)
    return _finish(path, replace(log, measurements=m), joint_names, reading)


def _scaled(path: Path, log: Log, joint_names: tuple[str, ...], scale: Mapping[str, float]) -> Log:
    """Columns times their factors; ``columns["scaled"]`` tells which."""
    if not scale:
        return log
    m = log.measurements
    arrays = {name: np.array(getattr(m, name)) for name in QUANTITIES}
    words = {word: name for name, word in QUANTITIES.items()}
    for key, factor in scale.items():
        joint, _, word = key.rpartition(".")
        if joint not in joint_names:
            raise LogError(f"{path}: scale of {joint!r}: expected joints of the robot: {', '.join(joint_names)}")
        arrays[words[word]][:, joint_names.index(joint)] *= factor
    told = [f"{key} times {factor:g}" for key, factor in scale.items()]
    measurements = Measurements(m.stamps, arrays["q"], arrays["qd"], arrays["effort"])
    return replace(log, measurements=measurements, columns={**log.columns, "scaled": told})


def _uncoupled(path: Path, log: Log, joint_names: tuple[str, ...], motors: Mapping[str, Mapping[str, float]]) -> Log:
    """Joint torques in place of those of coupled motors."""
    unknown = [name for name in motors if name not in joint_names]
    if unknown:
        raise LogError(f"{path}: motors of {unknown[0]!r}: expected joints of the robot: {', '.join(joint_names)}")
    if not motors:
        return log
    matrix = np.array([[shares.get(joint, 0.0) for joint in motors] for shares in motors.values()])
    if not np.linalg.cond(matrix) < _SINGULAR:
        raise LogError(f"{path}: motors of {', '.join(motors)}: expected torques that tell those of the joints")
    effort, columns = np.array(log.measurements.effort), [joint_names.index(name) for name in motors]
    effort[:, columns] = np.linalg.solve(matrix, effort[:, columns].T).T
    return replace(log, measurements=replace(log.measurements, effort=effort))


def _finish(path: Path, log: Log, joint_names: tuple[str, ...], reading: Reading) -> Log:
    """Robot's names, cut in time, and no number that no arm has."""
    log = _uncoupled(path, _scaled(path, log, joint_names, reading.scale), joint_names, reading.motors)
    m = log.measurements
    if reading.start is not None or reading.end is not None:
        finite = m.stamps[np.isfinite(m.stamps)]
        first = float(finite[0]) if finite.size else 0.0
        last = float(np.max(finite)) if finite.size else 0.0
        start, end = reading.start or 0.0, np.inf if reading.end is None else reading.end
        m = m.between(first + start, first + end)
        if not len(m):
            raise LogError(
                f"{path}: no sample from {start:g} to {end:g} s after the first: the log lasts {last - first:g} s"
            )
    for name in QUANTITIES:
        values = getattr(m, name)
        with np.errstate(invalid="ignore"):
            bad = np.isfinite(values) & (np.abs(values) > _LARGEST)
        if np.any(bad):
            k, j = np.argwhere(bad)[0]
            raise LogError(
                f"{path}: {log.column(name, int(j))} = {values[k, j]:.6g} at {m.stamps[k]:.6g} s (sample {k}): "
                f"expected at most {_LARGEST:g}; leave that part out with --from and --to, or correct the unit"
            )
    return replace(log, joint_names=joint_names, measurements=m)
