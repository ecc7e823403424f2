"""Common format of certificate files: a ``.json`` that names the hash of its ``.npz``; arrays are checked when read.

What is read is not trusted: sizes, shapes and types are checked before memory is taken, nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import SafeSysIdError
from safe_sysid.input_limits import ARRAY_ERRORS, check_archive, read_array_header, read_regular
from safe_sysid.robot.model import MAX_JOINTS
from safe_sysid.whole_files import replacing, write_text

__all__ = ["CertificateError", "check_common", "is_count", "is_hash", "is_log", "read_arrays", "write_files"]

_MAX_ARRAYS = 1 << 30  # bytes, unpacked
_MAX_COUNT = 200_000  # rows, cuts, combinations
_HEX = re.compile(r"[0-9a-f]{64}")
#: A list of numbers, one per line: for people it goes on one line.
_LIST = re.compile(r"\[\n\s+([-+0-9.e,\s]+?)\n\s*\]")


class CertificateError(SafeSysIdError):
    """A certificate cannot be written, read or checked; the message names file, field and expectation."""


def write_files(path: Path, arrays: dict[str, Any], header: Callable[[str], dict[str, Any]]) -> None:
    """Write arrays as ``.npz`` and, beside them, the ``.json`` that names their hash.

    Args:
        path: of the ``.json``; its directory is made if it is not there.
        header: of the arrays' hash, the content of the ``.json``.

    Raises:
        CertificateError: a file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path.with_suffix(".npz")) as temporary:
            with temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
        text = json.dumps(header(digest), indent=1, allow_nan=False)
        text = _LIST.sub(lambda found: "[" + " ".join(found.group(1).split()) + "]", text)
        write_text(path, text + "\n")
    except OSError as error:
        raise CertificateError(f"{path.with_suffix('')}: cannot be written: {error.strerror or error}") from error


def read_arrays(
    path: Path, digest: str, n: int, table: Mapping[str, tuple[str, tuple[str | int, ...]]], unknowns: int = 0
) -> dict[str, NDArray[Any]]:
    """Arrays of a certificate, each checked before memory is taken.

    Args:
        path: of the ``.npz``.
        digest: that its bytes must have.
        unknowns: of the arm's constants that have columns.

    Raises:
        CertificateError: anything else than these.
    """
    try:
        content = read_regular(path, _MAX_ARRAYS)  # once: what is hashed is what is read
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise CertificateError(f"{path}: sha256 is {found}: expected {digest}, as the .json says")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_archive(archive, len(content))
            layout, total = ParameterLayout(n), 0
            known = {"P": layout.size, "X": layout.size + unknowns, "F": len(layout.drifting)}
            out = {}
            for name, (kinds, shape) in table.items():
                member = f"{name}.npy"
                if member not in archive.namelist():
                    raise CertificateError(f"{path}: no array {name!r}")
                out[name], count = _read_array(path, archive, name, kinds, shape, known, _MAX_ARRAYS - total)
                total += count
    except CertificateError:
        raise
    except ARRAY_ERRORS as error:
        text = " ".join(str(error).split())[:150] or type(error).__name__
        raise CertificateError(f"{path}: cannot be read: {text}") from None
    return out


def _read_array(
    path: Path,
    archive: zipfile.ZipFile,
    name: str,
    kinds: str,
    shape: tuple[str | int, ...],
    known: dict[str, int],
    most: int,
) -> tuple[NDArray[Any], int]:
    """One array and its bytes; header checked before its data are read. ``known`` collects M and K."""
    with archive.open(f"{name}.npy") as file:
        try:
            found, fortran, dtype = read_array_header(file)
        except ValueError as error:
            raise CertificateError(f"{path}: array {name!r} has a bad header: {str(error)[:100]}") from None
        good = dtype.kind == kinds and (kinds == "U" or dtype.itemsize == 8) and dtype.itemsize <= 64
        if dtype.hasobject or not good or dtype.byteorder == ">":
            raise CertificateError(f"{path}: array {name!r} has type {dtype}: expected kind {kinds!r}, 8 bytes")
        if len(found) == len(shape):
            for length, symbol in zip(found, shape, strict=True):
                if isinstance(symbol, str) and symbol not in known and 0 <= length <= _MAX_COUNT:
                    known[symbol] = length
        wanted = tuple(known.get(s, -1) if isinstance(s, str) else s for s in shape)
        if tuple(found) != wanted:
            raise CertificateError(f"{path}: array {name!r} has shape {found}: expected {shape} with {known}")
        count = int(np.prod(np.array(found, dtype=object))) if found else 1
        if count * dtype.itemsize > most:
            raise CertificateError(f"{path}: array {name!r} has {count} entries: too many")
        data = file.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise CertificateError(f"{path}: array {name!r} ends early")
    array = np.frombuffer(data, dtype=dtype, count=count).reshape(found, order="F" if fortran else "C")
    if kinds == "f" and not np.all(np.isfinite(array)):
        raise CertificateError(f"{path}: array {name!r} has an entry that is not finite")
    return np.ascontiguousarray(array), count * dtype.itemsize


def check_common(need: Callable[[bool, str, str], None], header: Mapping[str, Any]) -> int:
    """Check the fields that all certificates have: joints and hash of the arrays. Returns the number of joints.

    ``need``: raises unless its first argument is true, naming field and expectation.
    """
    robot = header.get("robot")
    need(isinstance(robot, dict), "robot", "an object")
    urdf = robot.get("urdf") if isinstance(robot, dict) else None
    names = urdf.get("joint_names") if isinstance(urdf, dict) else None
    need(
        isinstance(names, list) and 1 <= len(names) <= MAX_JOINTS and all(isinstance(name, str) for name in names),
        "robot.urdf.joint_names",
        f"1 to {MAX_JOINTS} names",
    )
    arrays = header.get("arrays")
    need(isinstance(arrays, dict) and is_hash(arrays.get("sha256")), "arrays.sha256", "64 hexadecimal digits")
    return len(names or [])


def is_log(stated: Any) -> bool:
    """Whether this identifies a log by hash and number of samples."""
    return isinstance(stated, dict) and is_hash(stated.get("sha256")) and is_count(stated.get("samples"))


def is_count(value: Any) -> bool:
    """Whether this is a whole number that counts something."""
    return type(value) is int and 0 <= value < 2**53


def is_hash(value: Any) -> bool:
    """Whether this is a SHA-256 in hexadecimal digits."""
    return isinstance(value, str) and _HEX.fullmatch(value) is not None
