"""Our own log file: a ``.npz`` with stamps, q, qd, effort, joint_names and a schema number. Never unpickles."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.log import Log, LogError

__all__ = ["SCHEMA", "read_log", "write_log"]

#: Version of the file format.
SCHEMA = 1
_ARRAYS = ("stamps", "q", "qd", "effort")
_MAX_BYTES = 8 << 30  # unpacked; a day at 100 Hz, or what no machine of today wants to hold
_MAX_JOINTS = 1000


def write_log(
    path: str | Path, joint_names: Sequence[str], measurements: Measurements, origin_ns: int = 0
) -> None:
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    m = log.measurements
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            arrays: dict[str, Any] = {name: np.asarray(getattr(m, name), "<f8") for name in _ARRAYS}
            arrays["joint_names"] = np.array(log.joint_names, dtype=np.str_)
            arrays["schema"], arrays["origin_ns"] = np.int64(SCHEMA), np.int64(origin_ns)
            np.savez(file, **arrays)
        temporary.replace(path)
    except OSError as error:
        raise LogError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_log(path: str | Path) -> Log:
    """Read a log that :func:`write_log` wrote, or any ``.npz`` with the same arrays.

    Args:
        path: of the file.

    Raises:
        LogError: no such file, not a ``.npz``, an array missing, of another type or shape, too large, or pickled.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            missing = [name for name in (*_ARRAYS, "joint_names") if name not in members]
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
            origin = 0
            if "origin_ns" in members:
                origin = int(_array(path, archive, members["origin_ns"], "iu", ()))
            stamps = _array(path, archive, members["stamps"], "fiu", (None,))
            shape = (len(stamps), len(names))
            rest = [_array(path, archive, members[name], "fiu", shape) for name in _ARRAYS[1:]]
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise LogError(f"{path}: cannot be read as a .npz log: {_one_line(error)}") from None
    try:
        return Log(tuple(str(name) for name in names), Measurements(stamps, *rest), origin)
    except (ParameterError, LogError) as error:
        raise LogError(f"{path}: {error}") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _array(
    path: Path, archive: zipfile.ZipFile, member: str, kinds: str, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """One array; type, shape and size are checked by its header, before memory is taken for it."""
    name = member.removesuffix(".npy")
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                found, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            elif version == (2, 0):
                found, fortran, dtype = np.lib.format.read_array_header_2_0(file)
            else:
                raise ValueError(f"format version {version}")
        except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError) as error:
            raise LogError(f"{path}: array {name!r} has a bad header: {_one_line(error)}") from None
        if dtype.hasobject or dtype.kind not in kinds:
            expected = "text" if kinds == "U" else "numbers"
            raise LogError(f"{path}: array {name!r} has type {dtype}: expected {expected}")
        fits = len(found) == len(shape) and all(
            b is None or a == b for a, b in zip(found, shape, strict=True)
        )
        if not fits:
            expected = "(" + ", ".join("N" if b is None else str(b) for b in shape) + ")"
            raise LogError(f"{path}: array {name!r} has shape {found}: expected {expected}")
        count = int(np.prod(np.array(found, dtype=object))) if found else 1
        size = count * dtype.itemsize
        if count < 0 or size > _MAX_BYTES or size > archive.getinfo(member).file_size:
            raise LogError(
                f"{path}: array {name!r} claims {size} bytes: expected at most what the file holds, "
                f"{min(archive.getinfo(member).file_size, _MAX_BYTES)}"
            )
        data = file.read(size)
    if len(data) != size:
        raise LogError(f"{path}: array {name!r} ends after {len(data)} of {size} bytes")
    array = np.frombuffer(data, dtype=dtype, count=count).reshape(found, order="F" if fortran else "C")
    if dtype.kind == "U":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float64) if dtype.kind == "f" else array
