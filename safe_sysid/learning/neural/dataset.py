"""Data sets of motions and torques: a directory with one ``.npz`` per trajectory, and ``dataset.json`` that names them.

A trajectory's arrays, float64, in SI units (m and N of joints that slide): ``stamp`` (N,) s; ``q``, ``qd`` (N, n)
measured; ``qdd`` (N, n), derived from ``qd`` without phase shift [Hybrid section IV-B]; ``tau`` (N, n), the torque that
is to be learned. The index::

    {"schema": "safe_sysid dataset 1", "robot": "panda", "joints": ["joint_1", ...], "rate_hz": 1000.0, "effects": 1.0,
     "trajectories": [{"file": "00_slow.npz", "speed": "slow", "split": "train"}, ...]}

``effects`` is the scale of what no rigid model has, of a simulated arm; null of a real one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError
from safe_sysid.input_limits import ARRAY_ERRORS, MAX_JSON_BYTES, parse_json, read_arrays, read_regular_text
from safe_sysid.whole_files import replacing, write_text

__all__ = [
    "INDEX",
    "SCHEMA",
    "SPEEDS",
    "SPLITS",
    "Dataset",
    "DatasetEntry",
    "MeasuredMotion",
    "read_dataset",
    "write_index",
    "write_motion",
]

SCHEMA = "safe_sysid dataset 1"
INDEX = "dataset.json"
SPEEDS = ("slow", "fast")
SPLITS = ("train", "validation", "test")
_ARRAYS = ("stamp", "q", "qd", "qdd", "tau")
_KEYS = ("schema", "robot", "joints", "rate_hz", "effects", "trajectories")
_PERIOD = 0.05  # of a period: so far may a step between stamps be from it


@dataclass(frozen=True, eq=False)
class MeasuredMotion:
    """One trajectory as it was measured."""

    stamp: FloatArray  #: (N,) s, one period apart
    q: FloatArray  #: (N, n) rad or m
    qd: FloatArray  #: (N, n) rad/s or m/s
    qdd: FloatArray  #: (N, n) rad/s^2 or m/s^2
    tau: FloatArray  #: (N, n) N m or N

    def __len__(self) -> int:
        return len(self.stamp)


@dataclass(frozen=True)
class DatasetEntry:
    """A line of the index."""

    file: str  #: name in the data set's directory
    speed: str  #: one of :data:`SPEEDS`
    split: str  #: one of :data:`SPLITS`


@dataclass(frozen=True)
class Dataset:
    """An index that was checked; motions are read when they are asked for."""

    folder: Path
    robot: str
    joints: tuple[str, ...]  #: n names, in the order of columns
    rate_hz: float  #: samples per second
    effects: float | None  #: scale of what no rigid model has; None: a real arm
    trajectories: tuple[DatasetEntry, ...]  #: in the order of the index

    def of(self, split: str) -> list[DatasetEntry]:
        """Trajectories of a split. ``split``: one of :data:`SPLITS`."""
        return [entry for entry in self.trajectories if entry.split == split]

    def motion(self, entry: DatasetEntry) -> MeasuredMotion:
        """Read one trajectory.

        Raises:
            ConfigError: the file is missing, or an array is, has another type or shape, or holds what no motion has.
        """
        path = self.folder / entry.file
        try:
            arrays = read_arrays(path)
        except ARRAY_ERRORS as error:
            raise ConfigError(str(path), "file", entry.file, f"an .npz file ({error})") from None
        for name in _ARRAYS:
            if name not in arrays:
                raise ConfigError(str(path), name, sorted(arrays), f"arrays {', '.join(_ARRAYS)}")
            _check_array(path, name, arrays[name], len(arrays["stamp"]), self)
        return MeasuredMotion(*(arrays[name] for name in _ARRAYS))


def _check_array(path: Path, name: str, values: NDArray[Any], samples: int, dataset: Dataset) -> None:
    shape = (samples,) if name == "stamp" else (samples, len(dataset.joints))
    if values.dtype != np.float64 or values.shape != shape or samples < 2:
        words = "at least two samples" if samples < 2 else f"float64 of shape {shape}"
        raise ConfigError(str(path), name, f"{values.dtype} of shape {values.shape}", words)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise ConfigError(str(path), f"{name}[{bad[0].tolist()}]", values[tuple(bad[0])], "finite numbers")
    if name == "stamp":
        odd = np.flatnonzero(np.abs(np.diff(values) * dataset.rate_hz - 1.0) > _PERIOD)
        if len(odd):
            k = int(odd[0])
            step = float(values[k + 1] - values[k])
            raise ConfigError(
                str(path), f"stamp[{k + 1}] - stamp[{k}]", step, f"{1.0 / dataset.rate_hz:g} s, of rate_hz"
            )


def read_dataset(folder: str | Path) -> Dataset:
    """Read and check the index of a data set. ``folder``: directory with :data:`INDEX`.

    Raises:
        ConfigError: no index, or one that cannot be used; names file, key, value and expectation.
    """
    folder = Path(folder)
    path = folder / INDEX
    try:
        told = parse_json(read_regular_text(path, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ConfigError(str(path), "file", INDEX, f"the index of a data set ({text})") from None
    if not isinstance(told, dict) or sorted(told) != sorted(_KEYS):
        keys = sorted(told) if isinstance(told, dict) else type(told).__name__
        raise ConfigError(str(path), "keys", keys, ", ".join(_KEYS))

    def need(key: str, good: bool, expected: str) -> None:
        if not good:
            raise ConfigError(str(path), key, told[key], expected)

    joints, rate, effects, entries = (told[k] for k in ("joints", "rate_hz", "effects", "trajectories"))
    need("schema", told["schema"] == SCHEMA, repr(SCHEMA))
    need("robot", isinstance(told["robot"], str) and bool(told["robot"]), "the name of an arm")
    need("joints", _are_names(joints), "different, non-empty names")
    need("rate_hz", _is_number(rate) and rate > 0.0, "a frequency > 0")
    need("effects", effects is None or (_is_number(effects) and effects >= 0.0), "a number >= 0 or null")
    need("trajectories", isinstance(entries, list) and len(entries) > 0, "a list with at least one")
    found = tuple(_entry(path, k, entry) for k, entry in enumerate(entries))
    files = sorted(entry.file for entry in found)
    twice = [a for a, b in pairwise(files) if a == b]
    need("trajectories", not twice, f"every file once, not {twice[:1]} twice")
    return Dataset(
        folder, told["robot"], tuple(joints), float(rate), None if effects is None else float(effects), found
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_names(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(name, str) and name for name in value) and len(set(value)) == len(value)


def _entry(path: Path, k: int, told: object) -> DatasetEntry:
    key = f"trajectories[{k}]"
    keys = ("file", "speed", "split")
    if not isinstance(told, dict) or sorted(told) != sorted(keys):
        raise ConfigError(str(path), key, told, f"keys {', '.join(keys)}")
    file, speed, split = (told[name] for name in keys)
    if not isinstance(file, str) or Path(file).name != file or not file.endswith(".npz"):
        raise ConfigError(str(path), f"{key}.file", file, "the name of an .npz file beside the index")
    for name, value, choices in (("speed", speed, SPEEDS), ("split", split, SPLITS)):
        if value not in choices:
            raise ConfigError(str(path), f"{key}.{name}", value, f"one of {', '.join(choices)}")
    return DatasetEntry(file, speed, split)


def write_motion(path: str | Path, motion: MeasuredMotion) -> None:
    """Write one trajectory, whole or not at all. ``path``: of the file, in the data set's directory."""
    arrays: dict[str, Any] = {name: np.asarray(getattr(motion, name), np.float64) for name in _ARRAYS}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def write_index(
    folder: str | Path,
    robot: str,
    joints: Sequence[str],
    rate_hz: float,
    effects: float | None,
    trajectories: Sequence[DatasetEntry],
) -> Dataset:
    """Write the index, last of all files, and read it again.

    Args:
        rate_hz: samples per second.
        effects: scale of what no rigid model has; None: a real arm.
        trajectories: whose files are in the folder.

    Raises:
        ConfigError: what was written cannot be used.
    """
    told = {
        "schema": SCHEMA,
        "robot": robot,
        "joints": list(joints),
        "rate_hz": rate_hz,
        "effects": effects,
        "trajectories": [asdict(entry) for entry in trajectories],
    }
    write_text(Path(folder) / INDEX, json.dumps(told, indent=1) + "\n")
    return read_dataset(folder)
