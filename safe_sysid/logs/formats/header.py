"""Meaning of table columns by their names; an ambiguous name is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safe_sysid.logs.log import LogError

__all__ = ["ANGLE_UNITS", "QUANTITIES", "TIME_UNITS", "Columns", "TimeColumn", "find_columns"]

#: Quantities of a joint, as in ``Measurements``, and how messages and mapping files call them.
QUANTITIES = {"q": "position", "qd": "velocity", "effort": "effort"}
#: Seconds per unit.
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
ANGLE_UNITS = ("rad", "deg")

_WORDS = {
    "q": {"position", "positions", "pos", "q", "angle", "angles"},
    "qd": {"velocity", "velocities", "vel", "qd", "dq", "qdot", "speed", "speeds"},
    "effort": {"effort", "efforts", "eff", "torque", "torques", "tau", "trq"},
}
#: A column with one of these words is not a measurement of the joint's own state.
_OTHER = {
    "target", "desired", "des", "reference", "ref", "cmd", "command", "commanded", "goal", "setpoint", "error",
    "err", "limit", "min", "max", "ext", "external", "residual", "gravity", "friction", "qdd", "ddq", "acc",
    "acceleration", "feedforward", "model", "predicted", "temperature",
}  # fmt: skip
_TIME_WORDS = ("stamp", "timestamp", "time", "t")  # the best first
_UNIT_WORDS = {
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "ms": "ms", "msec": "ms", "millisec": "ms", "milliseconds": "ms",
    "us": "us", "usec": "us", "microseconds": "us",
    "ns": "ns", "nsec": "ns", "nanosec": "ns", "nanosecs": "ns", "nanoseconds": "ns",
}  # fmt: skip
_ANGLE_WORDS = {"deg": "deg", "degree": "deg", "degrees": "deg", "rad": "rad", "radian": "rad", "radians": "rad"}
_SPLIT = re.compile(r"[^a-z0-9%]+")


@dataclass(frozen=True)
class TimeColumn:
    """Where the stamps are."""

    index: int
    unit: str  #: key of :data:`TIME_UNITS`
    #: index of a second column that holds the nanoseconds within the second; None without one
    nanoseconds: int | None = None
    unit_given: bool = False  #: whether name or user said the unit; if not, seconds are assumed and checked later


@dataclass(frozen=True)
class Columns:
    """Columns of a table."""

    time: TimeColumn
    #: n indices for each of "q", "qd", "effort", in the order of the robot's joints; none of "qd" where there are no
    #: velocities
    joints: Mapping[str, tuple[int, ...]]
    angles: str | None  #: "rad" or "deg" where the names say so, else None
    by_index: bool  #: joints were told apart by number, not by name: their order is an assumption


def find_columns(
    header: Sequence[str],
    joint_names: Sequence[str],
    explicit: Mapping[str, str],
    where: str,
    may_lack_velocity: bool = False,
) -> Columns:
    """Find stamps, positions, velocities and efforts of all joints.

    Args:
        joint_names: n names of the robot's joints.
        explicit: what the user said: ``{"time": column, "joint_1.position": column, ...}``; overrides names.
        may_lack_velocity: whether a table without any velocity will do; it has no columns of "qd" then.

    Raises:
        LogError: a column is missing, or two fit; the message lists what is there.
    """
    names = [name.strip() for name in header]
    double = sorted({name for name in names if name and names.count(name) > 1})
    if double:
        raise LogError(f"{where}: column {double[0]!r} appears twice: expected different names")
    chosen = _explicit(names, joint_names, explicit, where)
    time = _time(names, chosen.pop(("time", -1), None), where)
    named, numbered, units = _classify(names, joint_names, where)
    joints: dict[str, tuple[int, ...]] = {}
    by_index = False
    for quantity in QUANTITIES:
        found = dict(named.get(quantity, {}))
        by_number = numbered.get(quantity, {})
        given = {joint: index for (kind, joint), index in chosen.items() if kind == quantity}
        if not found and by_number and len(given) < len(joint_names):
            found = _by_number(by_number, joint_names, quantity, names, where)
            by_index = True
        found |= given
        if not found and quantity == "qd" and may_lack_velocity:
            joints[quantity] = ()
            continue
        for j, joint in enumerate(joint_names):
            if j not in found:
                raise LogError(
                    f"{where}: no column for {QUANTITIES[quantity]} of {joint}: expected a name as "
                    f"'{joint}.{QUANTITIES[quantity]}' or '{QUANTITIES[quantity]}[{j}]', or "
                    f"--column {joint}.{QUANTITIES[quantity]}=NAME; the columns are {_list(names)}"
                    f"{_beside(names) if quantity == 'effort' else ''}"
                )
        joints[quantity] = tuple(found[j] for j in range(len(joint_names)))
    used = [index for columns in joints.values() for index in columns]
    for index in used:
        if used.count(index) > 1:
            raise LogError(f"{where}: column {names[index]!r} is meant twice: expected one use of each column")
    angles = {units[index] for quantity in ("q", "qd") for index in joints[quantity] if index in units}
    if len(angles) > 1:
        raise LogError(f"{where}: some columns are in deg and some in rad: expected one unit for all")
    return Columns(time, joints, next(iter(angles), None), by_index)


def _beside(names: Sequence[str]) -> str:
    """What to say where a table has currents or external forces, which nobody may take for torques silently."""
    words = {token for name in names for token in _tokens(re.sub(r"\d+", " ", name))}
    if {"current", "currents"} & words:
        return "; currents are efforts if you say so with --column or --map, times gear ratio and torque constant"
    if {"wrench", "force", "forces", "fx", "ext", "external"} & words:
        return (
            "; a wrench at the tool and external torques are no efforts, which carry the arm's own weight, too: "
            "record joint torques or motor currents"
        )
    return ""


def _list(names: Sequence[str]) -> str:
    text = ", ".join(repr(name[:40]) for name in names[:30])
    return text + (f" and {len(names) - 30} more" if len(names) > 30 else "")


def _explicit(
    names: Sequence[str], joint_names: Sequence[str], explicit: Mapping[str, str], where: str
) -> dict[tuple[str, int], int]:
    """{(quantity or "time", joint or -1): column} of what the user said."""
    words = {word: quantity for quantity, word in QUANTITIES.items()}
    chosen = {}
    for key, column in explicit.items():
        joint, _, word = key.rpartition(".")
        if key != "time" and (joint not in joint_names or word not in words):
            raise LogError(
                f"mapping {key!r}: expected time, or JOINT.position, JOINT.velocity, JOINT.effort with a joint of "
                f"{', '.join(joint_names)}"
            )
        if column not in names:
            raise LogError(f"{where}: no column {column!r} (mapping of {key}): the columns are {_list(names)}")
        at = ("time", -1) if key == "time" else (words[word], list(joint_names).index(joint))
        chosen[at] = names.index(column)
    return chosen


def _tokens(name: str) -> list[str]:
    return [token for token in _SPLIT.split(name.lower()) if token]


def _time(names: Sequence[str], chosen: int | None, where: str) -> TimeColumn:
    if chosen is not None:
        unit = next((_UNIT_WORDS[t] for t in reversed(_tokens(names[chosen])) if t in _UNIT_WORDS), None)
        return TimeColumn(chosen, unit or "s", unit_given=unit is not None)
    best: tuple[int, TimeColumn] | None = None
    seconds, nanoseconds = None, None
    for index, name in enumerate(names):
        tokens = [token.lstrip("%") for token in _tokens(name)]
        glued = re.fullmatch(r"(stamp|timestamp|time|t)(ns|ms|us|s)", tokens[-1]) if tokens else None
        if glued:
            tokens[-1:] = [glued[1], glued[2]]
        if not tokens or any(token in _OTHER for token in tokens):
            continue
        unit = _UNIT_WORDS.get(tokens[-1]) if len(tokens) > 1 else None
        stem = tokens[-2] if unit else tokens[-1]
        if unit and stem in ("stamp", "header") and tokens[-1] in ("sec", "secs"):
            seconds = index
        if tokens[-1] in ("nanosec", "nanosecs", "nsec", "nsecs") and stem in ("stamp", "header"):
            nanoseconds = index
            continue
        if stem in _TIME_WORDS:
            rank = _TIME_WORDS.index(stem) - (10 if "header" in tokens else 0)
            if best is not None and best[0] == rank:
                raise LogError(
                    f"{where}: columns {names[best[1].index]!r} and {name!r} could both be the time: "
                    f"say which with --column time=NAME"
                )
            if best is None or rank < best[0]:
                rostopic = name.lower() in ("%time", "field.header.stamp")  # `rostopic echo -p` writes ns
                unit = "ns" if rostopic else unit
                best = (rank, TimeColumn(index, unit or "s", unit_given=unit is not None))
    if seconds is None and nanoseconds is not None:
        lower = [name.lower() for name in names]
        seconds = lower.index("sec") if "sec" in lower else None
    if seconds is not None and nanoseconds is not None:
        return TimeColumn(seconds, "s", nanoseconds, True)
    if best is None:
        raise LogError(
            f"{where}: no time column: expected one of {', '.join(_TIME_WORDS)} (with _s, _ms, _us or _ns for its "
            f"unit), or --column time=NAME; the columns are {_list(names)}"
        )
    return best[1]


def _classify(
    names: Sequence[str], joint_names: Sequence[str], where: str
) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]], dict[int, str]]:
    """Columns by quantity and joint, by quantity and number, and the unit of angles that a name ends with."""
    named: dict[str, dict[int, int]] = {}
    numbered: dict[str, dict[int, int]] = {}
    units: dict[int, str] = {}
    order = sorted(range(len(joint_names)), key=lambda j: -len(joint_names[j]))
    for index, name in enumerate(names):
        joint, rest = None, name.lower()
        for j in order:
            pattern = rf"(?<![a-z0-9]){re.escape(joint_names[j].lower())}(?![a-z0-9])"
            if re.search(pattern, rest):
                joint, rest = j, re.sub(pattern, " ", rest)
                break
        tokens = _tokens(rest)
        numbers: list[str] = []
        if joint is None:
            numbers = re.findall(r"\d+", rest)
            tokens = _tokens(re.sub(r"\d+", " ", rest))
        quantity = _quantity(tokens)
        if quantity is None:
            continue
        if joint is not None:
            _put(named.setdefault(quantity, {}), joint, index, names, joint_names[joint], quantity, where)
        elif len(numbers) == 1:
            number = int(numbers[0]) if len(numbers[0]) < 5 else -1
            _put(numbered.setdefault(quantity, {}), number, index, names, f"number {number}", quantity, where)
        else:
            continue
        unit = next((_ANGLE_WORDS[token] for token in tokens if token in _ANGLE_WORDS), None)
        if unit is not None and quantity != "effort":
            units[index] = unit
    return named, numbered, units


def _quantity(tokens: Sequence[str]) -> str | None:
    """The quantity that the words of a name stand for; None if none or if it is not a measurement."""
    if any(token in _OTHER for token in tokens):
        return None
    if "q" in tokens and "dot" in tokens:
        return None if "ddot" in tokens else "qd"
    found = {quantity for quantity, words in _WORDS.items() if any(token in words for token in tokens)}
    return found.pop() if len(found) == 1 else None


def _put(
    store: dict[int, int], key: int, index: int, names: Sequence[str], joint: str, quantity: str, where: str
) -> None:
    if key in store:
        raise LogError(
            f"{where}: columns {names[store[key]]!r} and {names[index]!r} could both be the {QUANTITIES[quantity]} "
            f"of {joint}: say which with --column JOINT.{QUANTITIES[quantity]}=NAME"
        )
    store[key] = index


def _by_number(
    numbered: Mapping[int, int], joint_names: Sequence[str], quantity: str, names: Sequence[str], where: str
) -> dict[int, int]:
    n, found = len(joint_names), sorted(numbered)
    first = 0 if 0 in numbered else 1
    if found != list(range(first, first + n)):
        raise LogError(
            f"{where}: {QUANTITIES[quantity]} has columns numbered {found[:12]}: expected 0..{n - 1} or 1..{n}, base "
            f"to tip; with other or more joints say which is which with --column or --map "
            f"(for example {names[numbered[found[0]]]!r})"
        )
    return {j: numbered[first + j] for j in range(n)}
