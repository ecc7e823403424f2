"""Limits on input files: how much of a file any parser reads, so that none hangs or fills the memory.

A name may lead to a pipe (reading would wait for ever), to a device without end, or to a file that another program
changes meanwhile: so the opened file is judged, not its name, and read once. Limits are far above what honest files
need; each is a number that a machine of 8 GB survives.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
import time
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import short

__all__ = [
    "ARRAY_ERRORS",
    "MAX_ARRAY_BYTES",
    "MAX_JSON_BYTES",
    "MAX_MESH_BYTES",
    "MAX_XML_BYTES",
    "MAX_YAML_BYTES",
    "TokenBucket",
    "check_archive",
    "open_regular",
    "parse_json",
    "read_array_header",
    "read_arrays",
    "read_regular",
    "read_regular_text",
]


class TokenBucket:
    """Lets ``burst`` through at once and ``per_second`` in the long run."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Full at first.

        Args:
            per_second: how fast it fills.
            burst: how much it holds.
            clock: seconds, never going back.
        """
        self._rate, self._burst, self._clock = per_second, float(burst), clock
        self._level, self._last = float(burst), clock()

    def take(self) -> bool:
        """Whether one more may pass; if so it is counted."""
        self._fill()
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True

    def wait(self) -> float:
        """How long until one more may pass, s."""
        self._fill()
        return max(1.0 - self._level, 0.0) / self._rate

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + self._rate * max(now - self._last, 0.0))
        self._last = now


MAX_YAML_BYTES = 256 << 10  # the largest of ours have 11 KB
MAX_XML_BYTES = 16 << 20  # a URDF
MAX_JSON_BYTES = 64 << 20  # a plan with its witnesses, a run's record
MAX_MESH_BYTES = 128 << 20
MAX_ARRAY_BYTES = 2 << 30  # unpacked, all arrays of a file together: a day of 7 joints at 100 Hz
_MAX_RATIO = 200  # unpacked to packed, above the first megabyte: measurements have noise and pack three to one
_MAX_MEMBERS = 256
_MAX_LENGTH = 2**40  # of an array in one direction
#: What numpy's and Python's readers raise on archives and headers that somebody made up.
ARRAY_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    RecursionError,
    EOFError,
    SystemError,
    NotImplementedError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def open_regular(path: str | Path, most: int | None = None) -> BinaryIO:
    """Open a file for reading; what is no regular file is refused without waiting for it.

    ``most``: bytes that it may have; None: any number.

    Raises:
        OSError: it cannot be opened, is no regular file, or is too large; ``strerror`` says it with the expectation.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError as error:  # zero bytes or lone surrogates in the name
        raise OSError(errno.EINVAL, f"{error}: expected the name of a file") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "neither a file nor a link to one: expected a regular file", str(path))
        if most is not None and status.st_size > most:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes: expected at most {most}", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, most: int) -> bytes:
    """All bytes of a file. ``most``: bytes that it may have, now and when it has been read.

    Raises:
        OSError: as :func:`open_regular`.
    """
    with open_regular(path, most) as file:
        content = file.read(most + 1)
    if len(content) > most:  # it grows, or lies about its size, as files in /proc do
        raise OSError(errno.EFBIG, f"more than {most} bytes: expected at most {most}", str(path))
    return content


def read_regular_text(path: str | Path, most: int) -> str:
    """All of a text file, UTF-8. ``most``: bytes that it may have.

    Raises:
        OSError: as :func:`open_regular`.
        UnicodeDecodeError: it is not UTF-8.
    """
    return io.TextIOWrapper(io.BytesIO(read_regular(path, most)), encoding="utf-8").read()


def parse_json(text: str) -> Any:
    """JSON without doubtful readings: no key twice, no NaN, no number too large for a float.

    Raises:
        ValueError: anything else.
        RecursionError: nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_once)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"key {twice[:40]!r} is given twice")
    return out


def check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse an archive whose contents would be much larger than it, or doubtful. ``size``: of the file, bytes.

    Raises:
        ValueError: too many members, two of one name, or too much in them.
    """
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS:
        raise ValueError(f"{len(members)} arrays: expected at most {_MAX_MEMBERS}")
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise ValueError("two arrays of one name: expected different names")
    total = sum(member.file_size for member in members)
    most = min(MAX_ARRAY_BYTES, (1 << 20) + _MAX_RATIO * size)
    if total > most:
        raise ValueError(f"{total} bytes unpacked, of {size} packed: expected at most {most}")


def read_array_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order (whether Fortran's) and type that the header of a ``.npy`` claims; nothing is unpickled.

    ``file``: at its beginning; left behind the header.

    Raises:
        ValueError: no header, or of a version that numpy does not write for plain arrays, or of objects.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            header = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"format version {version}")
    except (EOFError, zipfile.BadZipFile, zlib.error, OSError):
        raise
    except ARRAY_ERRORS as error:
        text = " ".join(str(error).split())[:150] or type(error).__name__
        raise ValueError(f"bad header: {text}") from None
    shape, fortran, dtype = header
    if dtype.hasobject:
        raise ValueError(f"type {dtype}: expected numbers or text, not objects")
    if any(length < 0 or length > _MAX_LENGTH for length in shape) or len(shape) > 8:
        raise ValueError(f"shape {short(shape, 80)}: expected up to 8 lengths from 0 to {_MAX_LENGTH}")
    return shape, bool(fortran), dtype


def read_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """All arrays of a ``.npz``, by name: of numbers, truth values or text, of as much memory as the file holds.

    Raises:
        OSError: as :func:`open_regular`.
        ValueError: no ``.npz``, damaged, or too large unpacked.
    """
    with open_regular(path, MAX_ARRAY_BYTES) as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            with zipfile.ZipFile(stream) as archive:
                check_archive(archive, size)
                names = archive.namelist()
                return {name.removesuffix(".npy"): _array(archive, name) for name in names if name.endswith(".npy")}
        except ARRAY_ERRORS as error:
            text = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(f"{text}: expected a .npz file") from None


def _array(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    with archive.open(member) as file:
        shape, fortran, dtype = read_array_header(file)
        count = 1
        for length in shape:
            count *= length
        size = count * dtype.itemsize
        if size > archive.getinfo(member).file_size or dtype.kind not in "biufU":
            raise ValueError(f"{member[:60]}: {size} bytes of type {dtype}: expected numbers or text that are in it")
        data = file.read(size)
    if len(data) != size:
        raise ValueError(f"{member[:60]}: ends after {len(data)} of {size} bytes")
    if dtype.kind == "U" and size and np.frombuffer(data, f"{dtype.str[0]}u4").max() > 0x10FFFF:
        raise ValueError(f"{member[:60]}: a character beyond Unicode: expected text")
    return np.frombuffer(data, dtype=dtype, count=count).reshape(shape, order="F" if fortran else "C").copy()
