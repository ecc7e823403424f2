"""Logs of the nodes, read back on one clock: seconds since the plant's first measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ConfigError
from safe_sysid.input_limits import MAX_JSON_BYTES, read_arrays, read_regular_text
from safe_sysid.robot.files.yaml_file import validate
from safe_sysid.robot.margin import Margin, MarginRecord
from safe_sysid.schema.fields import StrictModel

__all__ = [
    "BRAKING",
    "COMMANDED",
    "HELD",
    "ControllerLog",
    "PlanEntry",
    "PlantLog",
    "RunLogs",
    "UpdateEntry",
    "read_logs",
]


#: Modes of the plant (simulation.plant).
COMMANDED, HELD, BRAKING = 0, 1, 2
#: ns; stamps above are of the wall clock (after 2001), below of a simulation that begins at 0.
_WALL_CLOCK = 10**18
#: States of the controller in which the tracking theorem holds.
GUARANTEED = ("holding", "tracking", "braking")


#: What made-up or damaged files lead to.
_DAMAGE = (
    OSError, KeyError, ValueError, TypeError, IndexError, OverflowError, RecursionError, MemoryError, ConfigError,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class PlantLog:
    """Truth, N ticks of n joints; torques are those of the period that ended at the tick."""

    time: FloatArray  #: (N,) s. q, qd: (N, n) rad, rad/s. commanded, applied: (N, n) N m.
    q: FloatArray
    qd: FloatArray
    commanded: FloatArray
    applied: FloatArray
    #: (N,) contacts that must not be. mode: (N,) who moved the arm: a command, the last one held, or the drives.
    contacts: IntArray
    mode: NDArray[np.int8]
    theta_true: FloatArray  #: (14 n,). contact_names: pairs that touched.
    contact_names: tuple[str, ...] = ()
    #: (C,) s from a measurement to the arrival of its command. age: (C,) s, how old the measurement behind the torque
    #: in force had become by then. answered: (C,) s, stamp of its measurement. Empty in lock-step.
    delay: FloatArray = field(default_factory=lambda: np.zeros(0))
    age: FloatArray = field(default_factory=lambda: np.zeros(0))
    answered: FloatArray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class ControllerLog:
    """K ticks of the controller."""

    time: FloatArray  #: (K,) s, stamp of the measurement. q_d, qd_d, qdd_d: (K, n) reference.
    q_d: FloatArray
    qd_d: FloatArray
    guaranteed: BoolArray  #: (K,) whether the state is one that the tracking bound is proved for
    state: NDArray[np.str_]  #: (K,) name of the state
    #: (K,) computing time, s. period: (K,) time since the last tick's arrival, s. latency: s from measurement to
    #: command. Either may be empty.
    compute: FloatArray
    period: FloatArray
    latency: FloatArray
    #: e, de: (K, n) measured tracking error. uncertainty: (K,) S of the command, nan where unknown. mixed: (K,) by how
    #: much the oldest measurement behind it is older than its own, s. May be empty.
    e: FloatArray = field(default_factory=lambda: np.zeros(0))
    de: FloatArray = field(default_factory=lambda: np.zeros(0))
    uncertainty: FloatArray = field(default_factory=lambda: np.zeros(0))
    mixed: FloatArray = field(default_factory=lambda: np.zeros(0))
    scheduling: str = ""
    #: since when the tracking bound was not proved, and why, for each start at which that happened
    claim_lost: tuple[str, ...] = ()
    #: its name, "" if there was none. feed_forward_ticks: "followed: 12", or why it was not: ticks.
    feed_forward: str = ""
    feed_forward_ticks: tuple[str, ...] = ()
    qdd_d: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    #: (K,) the tracking tube that was claimed, a place in :func:`~safe_sysid.control.tube.tubes_of`; empty: the widest
    tube: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class UpdateEntry:
    """One published box: bounds of theta_e (10,) each, s, identity, status, seconds that it took."""

    time: float
    lower: FloatArray
    nominal: FloatArray
    upper: FloatArray
    identity: str = ""
    status: str = ""
    duration: float | None = None


@dataclass(frozen=True, eq=False)
class PlanEntry:
    """One answer of the planner; times on the common clock, s; ``margins``: the certificate's, by family."""

    sequence: int
    status: str
    start: float
    hand_over: float | None = None
    end: float | None = None
    box: str = ""
    k: tuple[float, ...] = ()
    cost: float | None = None
    duration: float | None = None
    margins: Mapping[str, Margin] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    purpose: str = "excitation"

    @property
    def planned(self) -> bool:
        """Whether there is a trajectory."""
        return self.end is not None


@dataclass(frozen=True, eq=False)
class RunLogs:
    """All logs of a run; what a node did not leave is None or empty, and ``missing`` says so. ``task``: its outcome."""

    plant: PlantLog | None
    controller: ControllerLog | None
    updates: tuple[UpdateEntry, ...]
    plans: tuple[PlanEntry, ...]
    missing: tuple[str, ...] = ()
    task: str = ""


def read_logs(run_dir: str | Path, n: int) -> RunLogs:
    """Read what the four nodes left in a run directory.

    ``n``: number of joints.
    All on one clock: that of the plant's log, or of the controller's first tick where there is none.
    """
    run_dir = Path(run_dir)
    missing: list[str] = []

    def attempt(name: str, read: Any) -> Any:
        try:
            return read(run_dir / name)
        except _DAMAGE as error:
            reason = "not written" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
            missing.append(f"{name}: {reason}")
            return None

    found = attempt("plant.npz", lambda path: _plant(path, n))
    plant, zero = found if found is not None else (None, _begin(run_dir / "controller.npz"))
    controller = attempt("controller.npz", lambda path: _controller(path, n, zero))
    updates = attempt("identifier.json", lambda path: _updates(path, n, zero))
    plans = attempt("planner.json", lambda path: _plans(path, zero))
    known = len(missing)
    task = attempt("planner.json", lambda path: str(_object(path).get("task", "")))
    return RunLogs(plant, controller, updates or (), plans or (), tuple(missing[:known]), task or "")


def _begin(path: Path) -> int:
    """Stamp (ns) that times count from without a plant's log: the first tick, if stamps are those of a wall clock."""
    try:
        first = int(np.ravel(read_arrays(path)["stamp"])[0])
    except _DAMAGE:
        return 0
    return first if first > _WALL_CLOCK else 0


def _object(path: Path) -> dict[str, Any]:
    data = json.loads(read_regular_text(path, MAX_JSON_BYTES))
    if not isinstance(data, dict):
        raise ValueError(f"{type(data).__name__}: expected an object")
    return data


def _columns(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Named columns with one row per tick, entries of the given shapes; whatever else is there as it is."""
    data = read_arrays(path)
    rows = len(data[next(iter(shapes))])
    for name, shape in shapes.items():
        if data[name].shape != (rows, *shape):
            raise ValueError(f"{name} has shape {data[name].shape}: expected {(rows, *shape)}")
        if data[name].dtype.kind not in "fiub":
            raise ValueError(f"{name} holds {data[name].dtype}: expected numbers")
    return data


def _plant(path: Path, n: int) -> tuple[PlantLog, int]:
    """The log and the stamp (ns) of its time 0."""
    vectors = dict.fromkeys(("q", "qd", "tau_commanded", "tau_applied"), (n,))
    data = _columns(path, {"t": (), **vectors, "contacts": (), "mode": ()})
    size = ParameterLayout(n).size
    if data["theta_true"].shape != (size,):
        raise ValueError(f"theta_true has shape {data['theta_true'].shape}: expected ({size},)")
    origin = int(data.get("origin_ns", 0))
    log = PlantLog(
        data["t"],
        data["q"],
        data["qd"],
        data["tau_commanded"],
        data["tau_applied"],
        data["contacts"],
        data["mode"],
        data["theta_true"],
        tuple(str(name) for name in data.get("contact_names", ())),
        np.asarray(data.get("delay", ()), np.float64),
        np.asarray(data.get("age", ()), np.float64),
        np.asarray(1e-9 * (np.asarray(data.get("command_stamp", ()), np.int64) - origin), np.float64),
    )
    return log, origin


def _controller(path: Path, n: int, zero: int) -> ControllerLog:
    data = _columns(path, {"stamp": (), "q_d": (n,), "qd_d": (n,), "state": ()})
    state = data["states"].astype(str)[data["state"].astype(int)]

    def times(name: str) -> FloatArray:
        values: FloatArray = 1e-6 * np.asarray(data.get(name, ()), np.float64)
        return values[np.isfinite(values) & (values > 0.0)]

    return ControllerLog(
        np.asarray(1e-9 * (data["stamp"].astype(np.int64) - zero), np.float64),
        data["q_d"],
        data["qd_d"],
        np.isin(state, GUARANTEED),
        state,
        times("compute_us"),
        times("period_us")[1:],  # before the first tick there was none
        times("latency_us"),
        np.asarray(data.get("e", ()), np.float64),
        np.asarray(data.get("de", ()), np.float64),
        np.asarray(data.get("uncertainty", ()), np.float64),
        1e-6 * np.asarray(data.get("mixed_us", ()), np.float64),
        str(data.get("scheduling", "")),
        tuple(str(loss) for loss in np.ravel(data.get("claim_lost", ()))),
        str(data.get("feed_forward", "")),
        tuple(str(text) for text in np.ravel(data.get("feed_forward_ticks", ()))),
        np.asarray(data.get("qdd_d", np.zeros((len(state), n))), np.float64),
        np.asarray(data.get("tube", ())).astype(np.int64),
    )


def _entries(path: Path, key: str) -> list[dict[str, Any]]:
    data = _object(path)
    entries = data[key]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{key}: expected a list of objects")
    return entries


def _payload(values: Any, n: int) -> FloatArray:
    """theta_e (10,) of ten numbers or of a whole parameter vector."""
    vector, layout = np.array(values, float), ParameterLayout(n)
    if vector.shape not in ((10,), (layout.size,)):
        raise ValueError(f"bounds of shape {vector.shape}: expected 10 or {layout.size} numbers")
    vector = vector if vector.size == 10 else vector[layout.payload]
    if not np.all(np.isfinite(vector)):
        raise ValueError("bounds that are not finite")
    return vector


def _updates(path: Path, n: int, zero: int) -> tuple[UpdateEntry, ...]:
    updates = tuple(
        UpdateEntry(
            1e-9 * (int(entry["stamp_ns"]) - zero),
            _payload(entry["lower"], n),
            _payload(entry["nominal"], n),
            _payload(entry["upper"], n),
            str(entry.get("identity", "")),
            str(entry.get("status", "")),
            _optional(entry.get("seconds")),
        )
        for entry in _entries(path, "updates")
    )
    if not all(np.all(update.lower <= update.upper) for update in updates):
        raise ValueError("bounds that cross")
    return updates


def _plans(path: Path, zero: int) -> tuple[PlanEntry, ...]:
    plans = []
    for entry in _entries(path, "plans"):
        start = 1e-9 * (int(entry["start_ns"]) - zero)
        planned = entry["status"] == "planned"
        plans.append(
            PlanEntry(
                int(entry["sequence"]),
                str(entry["status"]),
                start,
                start + float(entry["t_plan"]) if planned else None,
                start + float(entry["duration"]) if planned else None,
                str(entry.get("box", "")),
                tuple(float(value) for value in entry.get("k") or ()),
                _optional(entry.get("cost")),
                _optional(entry.get("planning_s")),
                _margins(entry),
                tuple(str(reason) for reason in entry.get("reasons") or ()),
                str(entry.get("purpose", "excitation")),
            )
        )
    return tuple(plans)


class _LoggedMargins(StrictModel):
    margins: dict[str, MarginRecord]


def _margins(entry: Mapping[str, Any]) -> dict[str, Margin]:
    found = validate("plans", {"margins": entry.get("margins", {})}, _LoggedMargins).margins
    return {family: record.margin(family) for family, record in found.items()}


def _optional(value: Any) -> float | None:
    """A finite number, or nothing."""
    return None if value is None or not np.isfinite(float(value)) else float(value)
