"""Tare files: a ``.npz`` of plain arrays and one JSON text, read without pickle and checked in full."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.identification.tare.tare import Tare, TareError, drift_of
from safe_sysid.input_limits import read_arrays
from safe_sysid.robot.model import MAX_JOINTS, RobotModel
from safe_sysid.whole_files import replacing

__all__ = ["load_tare", "read_tare", "write_tare"]

SCHEMA = 2
_LARGEST = 100_000  # rows
#: Name, type, and which dimension beside the rows: P parameters, C causes, none.
_ARRAYS = {
    "matrix": ("f", "P"), "target": ("f", ""), "slack": ("f", ""), "sigma": ("f", ""), "parts": ("f", "C"),
    "start": ("f", ""), "end": ("f", ""), "joint": ("i", ""), "first": ("i", ""), "last": ("i", ""),
    "ramp": ("f", ""), "box_seq": ("i", ""),
}  # fmt: skip


def write_tare(path: str | Path, tare: Tare) -> None:
    """Write a tare, whole or not at all. ``path``: of the file; ``.npz`` is not appended.

    Raises:
        TareError: the file cannot be written.
    """
    path = Path(path)
    head = {
        "schema": SCHEMA, "robot": tare.robot, "arm": dict(tare.arm), "errors": dict(tare.errors),
        "log_hash": tare.log_hash, "samples": tare.samples, "joint_names": list(tare.joint_names),
        "created": tare.created.astimezone(timezone.utc).isoformat(), "temperature": tare.temperature,
        "causes": list(ERROR_CAUSES),
    }  # fmt: skip
    arrays: dict[str, Any] = {name: getattr(tare.log_rows, name) for name in _ARRAYS}
    arrays |= {"drift": tare.drift, "before": tare.before, "after": tare.after}
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, json=np.array(json.dumps(head)), **arrays)
    except OSError as error:
        raise TareError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_tare(path: str | Path) -> Tare:
    """Read what :func:`write_tare` wrote.

    Whether it may be used for a run is another question: :meth:`~safe_sysid.identification.tare.tare.Tare.check`.

    Raises:
        TareError: no such file, not a tare, or anything in it malformed.
    """
    try:
        return _tare(str(path), read_arrays(path))
    except FileNotFoundError:
        raise TareError(f"{path}: no such file: expected a file that `safe-sysid tare` wrote") from None
    except TareError:
        raise
    except (OSError, ValueError, EOFError, KeyError, TypeError, OverflowError, NotImplementedError,
            RuntimeError, MemoryError, AttributeError) as error:  # fmt: skip
        text = " ".join((getattr(error, "strerror", None) or str(error)).split())[:200] or type(error).__name__
        raise TareError(f"{path}: cannot be read as a tare: {text}") from None


def load_tare(
    path: str | Path,
    model: RobotModel,
    errors: MeasurementErrors,
    now: datetime | None = None,
    temperature: float | None = None,
) -> Tare:
    """Read a tare for a run: checked against robot, declared errors, age and temperature, with the drift declared now.

    ``now``: UTC; None for the clock's; ``temperature``: degrees Celsius at the run; None if not known.

    Raises:
        TareError: it cannot be read, or must not be used.
    """
    tare = read_tare(path)
    reason = tare.refusal(model, errors, now, temperature)
    if reason is not None:
        raise TareError(f"{path}: refused: {reason}")
    return tare.with_drift(drift_of(model, errors))


def _tare(path: str, found: dict[str, NDArray[Any]]) -> Tare:
    def wrong(what: str, value: object, expected: str) -> TareError:
        return TareError(f"{path}: {what} = {str(value)[:80]!r}: expected {expected}")

    missing = [name for name in ("json", *_ARRAYS, "drift", "before", "after") if name not in found]
    if missing:
        raise TareError(f"{path}: no {missing[0]!r} in it: expected a file that `safe-sysid tare` wrote")
    head = json.loads(str(found["json"][()]))
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        raise wrong("schema", head.get("schema") if isinstance(head, dict) else head, f"{SCHEMA}; make a new tare")
    if head.get("causes") != list(ERROR_CAUSES):
        raise wrong("causes of error", head.get("causes"), ", ".join(ERROR_CAUSES) + "; make a new tare")
    names: Any = head.get("joint_names")
    good = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    if not good or not 1 <= len(names) <= MAX_JOINTS or len(set(names)) != len(names):
        raise wrong("joint_names", names, f"1 to {MAX_JOINTS} different names")
    for key in ("robot", "log_hash"):
        if not isinstance(head.get(key), str):
            raise wrong(key, head.get(key), "a text")
    for key in ("arm", "errors"):
        if not isinstance(head.get(key), dict):
            raise wrong(key, head.get(key), "what was declared, by name")
    samples, temperature = head.get("samples"), head.get("temperature")
    if type(samples) is not int or samples < 0:
        raise wrong("samples", samples, "a whole number")
    if temperature is not None and not (type(temperature) in (int, float) and abs(temperature) < 1e4):
        raise wrong("temperature", temperature, "degrees Celsius or null")
    created = datetime.fromisoformat(str(head.get("created")))
    rows = _rows(path, found, len(names), samples)
    try:
        return Tare(
            rows, found["drift"], head["robot"], head["arm"], head["errors"], head["log_hash"],
            samples, tuple(names), created, temperature, found["before"], found["after"],
        )  # fmt: skip
    except (ParameterError, TareError) as error:
        raise TareError(f"{path}: {error}") from None


def _rows(path: str, found: dict[str, NDArray[Any]], n: int, samples: int) -> MomentumRows:
    m = len(np.atleast_1d(found["target"]))
    if not 1 <= m <= _LARGEST:
        raise TareError(f"{path}: {m} equations: expected 1 to {_LARGEST}")
    other = {"P": (ParameterLayout(n).size,), "C": (len(ERROR_CAUSES),), "": ()}
    arrays: dict[str, Any] = {}
    for name, (kind, dimension) in _ARRAYS.items():
        array, shape = found[name], (m, *other[dimension])
        if array.shape != shape or array.dtype.kind != kind:
            raise TareError(
                f"{path}: {name} has shape {array.shape}, type {array.dtype}: expected {shape}, "
                f"{'numbers' if kind == 'f' else 'whole numbers'}"
            )
        arrays[name] = array.astype(np.float64 if kind == "f" else np.int64)
        if not np.all(np.isfinite(arrays[name])):
            raise TareError(f"{path}: {name} holds a number that is not finite")
    checks = (
        ("slack", np.all(arrays["slack"] > 0.0), "numbers > 0"),
        ("parts", np.all(arrays["parts"] >= 0.0), "numbers >= 0"),
        ("joint", np.all((arrays["joint"] >= 0) & (arrays["joint"] < n)), f"indices below {n}"),
        ("first, last", np.all((arrays["first"] < arrays["last"]) & (arrays["last"] < samples)), "sample indices"),
    )
    for name, good, expected in checks:
        if not good:
            raise TareError(f"{path}: {name}: expected {expected}")
    return MomentumRows(**arrays, log=np.ones(m, np.int64))
