"""Measures the tube of an arm's own controller from logs of desired and actual motion; writes it with its origin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_most
from safe_sysid.errors import ConfigError
from safe_sysid.logs.bags.controller_states import read_controller_states
from safe_sysid.logs.bags.rosbag import is_bag
from safe_sysid.logs.formats.reading import Reading, load_log
from safe_sysid.logs.log import LogError
from safe_sysid.robot.config import load_settings
from safe_sysid.robot.model import RobotModel
from safe_sysid.whole_files import replacing

__all__ = [
    "TrackedLog",
    "TubeMargins",
    "measure_tube",
    "read_tracked",
    "require_room",
    "speed_table",
    "tube_text",
    "write_tube",
]

#: Suffixes of a table's columns that hold the desired motion.
DESIRED = ("desired_position", "desired_velocity")
_SPEEDS = 3  # classes of speed that are reported apart


@dataclass(frozen=True, eq=False)
class TrackedLog:
    """Desired and measured motion; N samples, n joints."""

    name: str
    stamps: FloatArray  #: (N,) increasing, s
    #: q, qd, q_d, qd_d: (N, n) measured and desired, rad and rad/s
    q: FloatArray
    qd: FloatArray
    q_d: FloatArray
    qd_d: FloatArray


@dataclass(frozen=True)
class TubeMargins:
    """What is added to what was seen."""

    inner: float = 1.5  #: factor of the largest errors of position and velocity that were seen
    #: factor of the largest mean error of acceleration over a sample; between samples it is not seen
    acceleration: float = 3.0
    latency_s: float = 0.02  #: from a measurement to a stop's effect, but for the sample's own period, s


def read_tracked(
    path: Path, model: RobotModel, columns: dict[str, str] | None = None, topic: str | None = None
) -> TrackedLog:
    """Read a bag of a trajectory controller's state topic, or a table.

    A table has columns JOINT.position, .velocity, .effort, .desired_position and .desired_velocity.

    Args:
        columns: of a table, ``{"time": column, "joint_1.position": column, ...}``.
        topic: of a bag; None for the only one.

    Raises:
        LogError: a column is missing, a number is not finite, or stamps do not increase.
    """
    given, names = dict(columns or {}), model.joint_names
    if is_bag(path):
        stamps, rows = read_controller_states(path, names, topic)
        return _checked(path, stamps, *rows.transpose(1, 0, 2))
    words = dict(zip(DESIRED, ("position", "velocity"), strict=True))
    own = {key: name for key, name in given.items() if not key.endswith(DESIRED)}
    desired = {key: name for key, name in own.items() if key == "time" or key.endswith(".effort")}
    for joint in names:
        for suffix, word in words.items():
            desired[f"{joint}.{word}"] = given.get(f"{joint}.{suffix}", f"{joint}.{suffix}")
        for word in ("position", "velocity", "effort"):
            own.setdefault(f"{joint}.{word}", f"{joint}.{word}")
        desired.setdefault(f"{joint}.effort", own[f"{joint}.effort"])
    actual = load_log(path, names, Reading(columns=own)).measurements
    wanted = load_log(path, names, Reading(columns=desired)).measurements
    return _checked(path, actual.stamps, actual.q, actual.qd, wanted.q, wanted.qd)


def _checked(path: Path, *parts: FloatArray) -> TrackedLog:
    if not all(np.all(np.isfinite(part)) for part in parts) or np.any(np.diff(parts[0]) <= 0.0):
        raise LogError(f"{path}: expected finite numbers everywhere, and increasing stamps")
    return TrackedLog(str(path), *parts)


def _errors(model: RobotModel, log: TrackedLog) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]:
    """|e|, |de| (N, n), |dde| and |qdd_d| (N - 1, n) as means over samples, and the period."""
    h = np.diff(log.stamps)
    period = float(np.median(h))
    near = h < 1.5 * period  # over a gap a mean says nothing
    e, de = model.shortest_way(log.q_d - log.q), log.qd_d - log.qd
    rates = np.abs(np.diff(de, axis=0))[near] / h[near, None], np.abs(np.diff(log.qd_d, axis=0))[near] / h[near, None]
    return np.abs(e), np.abs(de), *rates, period


def _jerk(log: TrackedLog) -> FloatArray:
    h = np.diff(log.stamps)
    return np.abs(np.diff(log.qd_d, n=2, axis=0)) / (h[1:] * h[:-1])[:, None]


def measure_tube(
    model: RobotModel, free: Sequence[TrackedLog], loaded: Sequence[TrackedLog], heaviest: float, margins: TubeMargins
) -> dict[str, Any]:
    """The tube as ``controller.tube`` declares it.

    Inner: the largest errors of all logs with the sensors' own errors, times a margin. Outer: the inner one and what
    the error may grow by within a sample and the latency, at the outer rates.

    Args:
        free: logs at no load.
        loaded: logs with the heaviest payload.
        heaviest: mass of last link, hand and payload in ``loaded``, kg.

    Raises:
        LogError: nothing moves, or one of the two kinds is missing.
    """
    if not (free and loaded):
        raise LogError("logs: expected at least one at no load and one, with --loaded, of the heaviest payload")
    found = [_errors(model, log) for log in (*free, *loaded)]
    e, de, dde, qdd = (
        np.max([part.max(axis=0) for part in parts], axis=0) for parts in list(zip(*found, strict=True))[:4]
    )
    speed = np.max([np.abs(log.qd_d).max(axis=0) for log in (*free, *loaded)], axis=0)
    jerk = np.max([_jerk(log).max(axis=0) for log in (*free, *loaded)], axis=0)
    if not np.all(speed > 0.0):
        raise LogError(f"{model.joint_names[int(np.argmin(speed))]} is never moved: expected motion of every joint")
    period = max(part[4] for part in found)
    n, measured = model.n, model.settings.measurement
    sensor_e, sensor_de = model.position_error, np.broadcast_to(np.asarray(measured.velocity_error, float), (n,))
    floor = 1e-6

    def up(values: FloatArray) -> list[float]:
        return [float(at_most(max(float(x), floor), 4)) for x in values]

    def down(values: FloatArray) -> list[float]:
        return [float(f"{x * (1.0 - 1e-3):.4g}") for x in values]

    # The watch adds the sensors' errors once more to what it sees.
    inner_e, inner_de = up(margins.inner * (e + 2.0 * sensor_e)), up(margins.inner * (de + 2.0 * sensor_de))
    outer_dde = up(margins.acceleration * dde)
    reaction = max(period, 1.0 / measured.rate_hz) + margins.latency_s
    outer_de = up(np.add(inner_de, reaction * np.array(outer_dde)))
    outer_e = up(np.add(inner_e, reaction * np.array(outer_de)))
    origin = (
        f"measured by safe-sysid tube from {len(free)} log(s) at no load and {len(loaded)} with {heaviest:g} kg, "
        f"margins {margins.inner:g} and {margins.acceleration:g}"
    )
    return {
        "position": outer_e, "velocity": outer_de, "acceleration": outer_dde,
        "inner_position": inner_e, "inner_velocity": inner_de,
        "largest_velocity": down(speed), "largest_acceleration": down(qdd), "largest_jerk": down(jerk),
        "heaviest": float(heaviest), "latency_s": margins.latency_s, "origin": origin,
    }  # fmt: skip


def speed_table(model: RobotModel, free: Sequence[TrackedLog], loaded: Sequence[TrackedLog]) -> list[str]:
    """Lines: the largest errors by load and by class of speed, mrad and mrad/s."""
    lines = []
    fastest = max(float(np.abs(log.qd_d).max()) for log in (*free, *loaded))
    edges = np.linspace(0.0, fastest, _SPEEDS + 1)
    for word, logs in (("no load", free), ("loaded", loaded)):
        for low, high in pairwise(edges.tolist()):
            worst = np.zeros((2, model.n))
            for log in logs:
                e, de, *_ = _errors(model, log)
                speed = np.abs(log.qd_d).max(axis=1)
                part = (speed >= low) & (speed <= high)
                if np.any(part):
                    worst = np.maximum(worst, np.stack([e[part].max(axis=0), de[part].max(axis=0)]))
            numbers = " ".join(at_most(1e3 * x, 3) for x in worst[0]), " ".join(at_most(1e3 * x, 3) for x in worst[1])
            lines.append(f"{word}, {low:.2f} to {high:.2f} rad/s: e {numbers[0]} mrad; de {numbers[1]} mrad/s")
    return lines


def tube_text(tube: dict[str, Any], indent: str = "  ") -> str:
    """The tube as lines of YAML, to stand under ``controller:``."""
    lines = [f"{indent}interface: trajectory", f"{indent}tube:"]
    for key, value in tube.items():
        text = f'"{value}"' if isinstance(value, str) else str(value)
        lines.append(f"{indent}{indent}{key}: {text}")
    return "\n".join(lines) + "\n"


def require_room(path: Path) -> None:
    """Refuse an arm's file that no tube could be written into, whatever its numbers.

    Raises:
        ConfigError: no section ``controller`` of its own lines, or the file would not be valid with a tube.
    """
    _controller(path)
    with _named(path):
        load_settings(path, {"controller": {"interface": "trajectory"}})


def write_tube(path: Path, tube: dict[str, Any]) -> None:
    """Put the tube into an arm's file, in place of one that is there; the rest of the file stays as it is.

    Raises:
        ConfigError: as :func:`require_room`; nothing is written then.
    """
    head, section, rest = _controller(path)
    first = re.search(r"(?m)^([ \t]+)[^\s#]", section)
    indent = first[1] if first else "  "
    section = re.sub(rf"(?m)^{indent}(?:interface:.*\n|tube:.*\n(?:{indent}[ \t]+.*\n)*)", "", section)
    with replacing(path) as temporary, _named(path):
        temporary.write_text(head + tube_text(tube, indent) + section + rest, encoding="utf-8")
        load_settings(temporary)


def _controller(path: Path) -> tuple[str, str, str]:
    """Text up to the section ``controller``, its keys, and the rest."""
    text = path.read_text(encoding="utf-8")
    parts = re.split(r"(?m)^controller:[ \t]*(?:#.*)?\n", text)
    if len(parts) != 2:
        raise ConfigError(str(path), "controller", len(parts) - 1, "one section with its keys on lines of their own")
    own = re.match(r"(?:[ \t]+.*\n|[ \t]*(?:#.*)?\n)*", parts[1])
    end = own.end() if own else 0
    return text[: len(text) - len(parts[1])], parts[1][:end], parts[1][end:]


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors name the user's file, whatever was read in its place."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(path), error.key, error.value, error.expected) from error
