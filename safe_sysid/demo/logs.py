"""What the nodes wrote down, read back and put on one clock: seconds since the plant's first measurement."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import SafeSysIdError

__all__ = ["ControllerLog", "LogError", "PlanEntry", "PlantLog", "RunLogs", "UpdateEntry", "read_logs"]

FloatArray = NDArray[np.float64]

#: States of the controller in which the tracking theorem holds.
GUARANTEED = ("holding", "tracking", "braking")


class LogError(SafeSysIdError):
    """A log of a run is missing, incomplete or not what it should be."""


@dataclass(frozen=True, eq=False)
class PlantLog:
    """Truth, N ticks of n joints; torques are those of the period that ended at the tick.

    Attributes:
        time: (N,) s. q, qd: (N, n) rad, rad/s. commanded, applied: (N, n) N m.
        contacts: (N,) contacts that must not be. braking: (N,) whether the drives braked by themselves.
        theta_true: (14 n,). contact_names: pairs that touched.
    """

    time: FloatArray
    q: FloatArray
    qd: FloatArray
    commanded: FloatArray
    applied: FloatArray
    contacts: NDArray[np.int64]
    braking: NDArray[np.bool_]
    theta_true: FloatArray
    contact_names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ControllerLog:
    """K ticks of the controller.

    Attributes:
        time: (K,) s, stamp of the measurement. q_d, qd_d: (K, n) reference.
        guaranteed: (K,) whether the state is one that the tracking bound is proved for.
        state: (K,) name of the state.
        compute: (K,) computing time, s. period: (K,) time since the last tick's arrival, s. latency: s from
            measurement to command. Either may be empty.
    """

    time: FloatArray
    q_d: FloatArray
    qd_d: FloatArray
    guaranteed: NDArray[np.bool_]
    state: NDArray[np.str_]
    compute: FloatArray
    period: FloatArray
    latency: FloatArray


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
    """One answer of the planner; times on the common clock, s; ``margins`` as in the certificate, by family."""

    sequence: int
    status: str
    start: float
    hand_over: float | None = None
    end: float | None = None
    box: str = ""
    k: tuple[float, ...] = ()
    cost: float | None = None
    duration: float | None = None
    margins: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @property
    def planned(self) -> bool:
        """Whether there is a trajectory."""
        return self.end is not None


@dataclass(frozen=True, eq=False)
class RunLogs:
    """All logs of a run; what a node did not leave is None or empty, and ``missing`` says so."""

    plant: PlantLog | None
    controller: ControllerLog | None
    updates: tuple[UpdateEntry, ...]
    plans: tuple[PlanEntry, ...]
    missing: tuple[str, ...] = ()


def read_logs(run_dir: str | Path, n: int) -> RunLogs:
    """Read what the four nodes left in a run directory.

    Args:
        run_dir: of the run.
        n: number of joints.
    """
    run_dir = Path(run_dir)
    missing: list[str] = []

    def attempt(name: str, read: Any) -> Any:
        try:
            return read(run_dir / name)
        except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            reason = "not written" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
            missing.append(f"{name}: {reason}")
            return None

    raw_plant = attempt("plant.npz", lambda path: _plant(path, n))
    plant, zero = raw_plant if raw_plant is not None else (None, 0)
    controller = attempt("controller.npz", lambda path: _controller(path, n, zero))
    updates = attempt("identifier.json", lambda path: _updates(path, n, zero))
    plans = attempt("planner.json", lambda path: _plans(path, zero))
    return RunLogs(plant, controller, updates or (), plans or (), tuple(missing))
