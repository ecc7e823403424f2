"""Our own log file: a ``.npz`` with stamps, q, qd, effort, joint_names and a schema number. Never unpickles."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.input_limits import ARRAY_ERRORS, check_archive, open_regular, read_array_header
from safe_sysid.logs.formats.header import TIME_UNITS
from safe_sysid.logs.log import Log, LogError
from safe_sysid.whole_files import replacing

__all__ = ["SCHEMA", "read_log", "write_log"]

#: Version of the file format.
SCHEMA = 1
_ARRAYS = ("stamps", "q", "qd", "effort")
_MAX_JOINTS = 1000
_MAX_NAME = 4 * 1000  # bytes
_LARGEST_STAMP = 2**62
_EXACT = 10**5  # s, as for tables


def write_log(path: str | Path, joint_names: Sequence[str], measurements: Measurements, origin_ns: int = 0) -> None:
    """Write a log, whole or not at all.

    Args:
        path: of the file; ``.npz`` is not appended.
        joint_names: n names, in the order of the columns.
        measurements: samples in order of arrival, rejected ones too.
        origin_ns: what stamp zero is on the recording's clock, ns; 0 if not known.

    Raises:
        LogError: names do not fit, or the file cannot be written.
    """
    log = Log(tuple(joint_names), measurements, origin_ns)
    path = Path(path)
    m = log.measurements
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            arrays: dict[str, Any] = {name: np.asarray(getattr(m, name), "<f8") for name in _ARRAYS}
            arrays["joint_names"] = np.array(log.joint_names, dtype=np.str_)
            arrays["schema"], arrays["origin_ns"] = np.int64(SCHEMA), np.int64(origin_ns)
            np.savez(file, **arrays)
    except OSError as error:
        raise LogError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_log(path: str | Path, time_unit: str | None = None, may_lack_velocity: bool = False) -> Log:
    """Read a log that :func:`write_log` wrote, or any ``.npz`` with the same arrays.

    Whole numbers as stamps are exact: where they are large, whole seconds are subtracted before anything is rounded.

    Args:
        time_unit: "s", "ms", "us" or "ns", of the stamps; None for s.
        may_lack_velocity: whether a file without ``qd`` will do; velocities are nan then.

    Raises:
        LogError: no such file, not a ``.npz``, an array missing, of another type or shape, too large, or pickled;
            an unknown unit.
    """
    path, unit = Path(path), time_unit or "s"
    if unit not in TIME_UNITS:
        raise LogError(f"time unit = {unit!r}: expected one of {', '.join(TIME_UNITS)}")
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            check_archive(archive, os.fstat(stream.fileno()).st_size)
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            without = may_lack_velocity and "qd" not in members
            missing = [
                name for name in (*_ARRAYS, "joint_names") if name not in members and not (without and name == "qd")
            ]
            if missing:
                found = ", ".join(sorted(members)[:12]) or "nothing"
                raise LogError(
                    f"{path}: no array {missing[0]!r}: expected {', '.join((*_ARRAYS, 'joint_names'))}; found {found}"
                )
            if "schema" in members:
                schema = _array(path, archive, members["schema"], "iu", ())
                if int(schema) != SCHEMA:
                    raise LogError(f"{path}: schema = {int(schema)}: expected {SCHEMA}")
            names = _array(path, archive, members["joint_names"], "U", (None,))
            if not 1 <= len(names) <= _MAX_JOINTS:
                raise LogError(f"{path}: joint_names has {len(names)} entries: expected 1 to {_MAX_JOINTS}")
            texts = tuple(map(str, names))  # SystemError where a character is none
            origin = 0
            if "origin_ns" in members:
                origin = int(_array(path, archive, members["origin_ns"], "iu", ()))
            raw = _array(path, archive, members["stamps"], "fiu", (None,))
            stamps, origin, rounding = _seconds(path, raw, unit, origin)
            shape = (len(stamps), len(names))
            rest = [
                np.full(shape, np.nan)
                if without and name == "qd"
                else _array(path, archive, members[name], "fiu", shape)
                for name in _ARRAYS[1:]
            ]
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except LogError:
        raise
    except ARRAY_ERRORS as error:
        raise LogError(f"{path}: cannot be read as a .npz log: {_one_line(error)}") from None
    try:
        return Log(texts, Measurements(stamps, *rest), origin, {}, rounding)
    except (ParameterError, LogError) as error:
        raise LogError(f"{path}: {error}") from None


def _seconds(path: Path, raw: NDArray[Any], unit: str, origin_ns: int) -> tuple[NDArray[Any], int, float]:
    """(N,) stamps in s, what zero is on the recording's clock in ns, and the rounding of the numbers in the file, s."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    if raw.dtype.kind == "f":
        largest = np.max(np.abs(raw[np.isfinite(raw)]), initial=raw.dtype.type(0))
        coarsest = raw.dtype if raw.dtype.itemsize < 8 else np.dtype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            rounding = 0.5 * float(np.spacing(largest.astype(coarsest))) / per_second
            return (raw.astype(np.float64) / per_second, origin_ns, rounding if math.isfinite(rounding) else 0.0)
    if not len(raw):
        return raw.astype(np.float64), origin_ns, 0.0
    low, high = int(raw.min()), int(raw.max())
    if max(abs(low), abs(high)) > _LARGEST_STAMP:
        raise LogError(f"{path}: stamps from {low} to {high}: expected less than 2^62")
    start = 0
    if max(abs(low), abs(high)) > _EXACT * per_second:
        start = int(raw[0]) // per_second * per_second
    since = start // per_second * 10**9
    # With the wrong unit (nanoseconds taken for seconds) the origin fits nowhere; the checks of the log say so.
    origin_ns = origin_ns + since if abs(origin_ns + since) <= _LARGEST_STAMP else 0
    return (raw.astype(np.int64) - start).astype(np.float64) / per_second, origin_ns, 0.0


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _array(
    path: Path, archive: zipfile.ZipFile, member: str, kinds: str, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """One array; type, shape and size are checked by its header, before memory is taken for it."""
    name = member.removesuffix(".npy")
    with archive.open(member) as file:
        try:
            found, fortran, dtype = read_array_header(file)
        except ValueError as error:
            raise LogError(f"{path}: array {name!r} has a bad header: {_one_line(error)}") from None
        if dtype.kind not in kinds or (kinds == "U" and dtype.itemsize > _MAX_NAME):
            expected = "text" if kinds == "U" else "numbers"
            raise LogError(f"{path}: array {name!r} has type {dtype}: expected {expected}")
        fits = len(found) == len(shape) and all(b is None or a == b for a, b in zip(found, shape, strict=True))
        if not fits:
            expected = "(" + ", ".join("N" if b is None else str(b) for b in shape) + ")"
            raise LogError(f"{path}: array {name!r} has shape {found}: expected {expected}")
        count = math.prod(found)
        size = count * dtype.itemsize
        if size > archive.getinfo(member).file_size:  # of all arrays together check_archive has spoken
            raise LogError(
                f"{path}: array {name!r} claims {size} bytes: expected at most what the file holds, "
                f"{archive.getinfo(member).file_size}"
            )
        data = file.read(size)
    if len(data) != size:
        raise LogError(f"{path}: array {name!r} ends after {len(data)} of {size} bytes")
    array = np.frombuffer(data, dtype=dtype, count=count).reshape(found, order="F" if fortran else "C")
    if dtype.kind == "U":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.kind == "f" and name != "stamps":
            return array.astype(np.float64)
        return array.astype(dtype.newbyteorder("="))
