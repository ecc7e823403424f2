"""What a bag claims, checked before the library believes it: record lengths, and how much its parts unpack to.

A chunk of 100 kB may unpack to gigabytes, and the library unpacks all of it before it compares sizes.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from safe_sysid.input_limits import MAX_YAML_BYTES, open_regular
from safe_sysid.logs.log import LogError
from safe_sysid.robot.yaml_file import read_yaml

__all__ = ["check_bag"]

_MAGIC = b"\x89MCAP0\r\n"
_CHUNK = 0x06
_MAX_CHUNK = 256 << 20  # bytes, unpacked; recorders write chunks of 1 to 8 MB
_MAX_RECORD = 1 << 30
_MAX_MESSAGE = 64 << 20
_MAX_UNPACKED = 4 << 30  # a whole file
_MAX_FILE = 64 << 30
_STEP = 1 << 20


def check_bag(path: str | Path) -> None:
    """Refuse a bag that is not made of regular files, or whose parts unpack to more than any recorder writes.

    Args:
        path: of the bag's directory, or of one storage file.

    Raises:
        LogError: names the file, what it claims, and what was expected.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        metadata = path / "metadata.yaml"
        _open(metadata, MAX_YAML_BYTES).close()
        content = read_yaml(metadata).get("rosbag2_bagfile_information")
        mode = str(content.get("compression_mode") or "none").lower() if isinstance(content, dict) else "none"
        files = sorted(entry for entry in path.iterdir() if entry.suffix in (".mcap", ".db3", ".zstd"))
        if mode == "message":
            _check_messages(files)
    for file in files:
        with _open(file, _MAX_FILE) as stream:
            if stream.read(len(_MAGIC)) == _MAGIC:
                _walk(file, stream)
            elif file.suffix == ".zstd":
                stream.seek(0)
                _check_file(file, stream)


def _check_file(file: Path, stream: BinaryIO) -> None:
    """A storage file that is packed as a whole."""
    total, unpack = 0, _zstd()
    try:
        while data := stream.read(_STEP):
            while data and total <= _MAX_UNPACKED:
                total += len(unpack.decompress(data, max_length=_STEP))
                data = b"" if not unpack.eof else unpack.unused_data or b""
                while not unpack.eof and not unpack.needs_input and total <= _MAX_UNPACKED:
                    total += len(unpack.decompress(b"", max_length=_STEP))
                if unpack.eof:
                    unpack = _zstd()
    except Exception:  # the library's own errors
        raise LogError(f"{file}: damaged: expected a file packed by zstd") from None
    if total > _MAX_UNPACKED:
        raise LogError(f"{file}: unpacks to {total} bytes or more: expected at most {_MAX_UNPACKED}")


def _check_messages(files: list[Path]) -> None:
    """Messages that are packed one by one, in databases; nobody packs those of mcap files so."""
    for file in files:
        if file.suffix != ".db3":
            raise LogError(f"{file}: compression_mode = message: expected it for .db3 files only")
        _open(file, _MAX_FILE).close()
        try:
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
                for (data,) in database.execute("SELECT data FROM messages"):
                    size = _count(_zstd, bytes(data), _MAX_MESSAGE)
                    if not 0 <= size <= _MAX_MESSAGE:
                        raise LogError(
                            f"{file}: a message unpacks to {size} bytes or more: expected at most {_MAX_MESSAGE}"
                        )
        except LogError:
            raise
        except Exception as error:  # of the database, and of the library that unpacks
            raise LogError(f"{file}: {str(error)[:100]}: expected a database of packed messages") from None


def _open(file: Path, most: int) -> BinaryIO:
    try:
        return open_regular(file, most)
    except OSError as error:
        raise LogError(f"{file}: cannot be read: {error.strerror or error}") from None


def _walk(file: Path, stream: BinaryIO) -> None:
    """All records of an mcap file, by their lengths."""
    size, at = os.fstat(stream.fileno()).st_size, len(_MAGIC)
    while at < size - len(_MAGIC):
        head = stream.read(9)
        kind, length = struct.unpack("<BQ", head) if len(head) == 9 else (0, size)
        if length > min(size - at - 9, _MAX_RECORD):
            raise LogError(
                f"{file}: byte {at}: a record of {length} bytes: expected at most what follows, {size - at - 9}"
            )
        if kind == _CHUNK:
            _check_chunk(file, at, stream.read(length))
        at += 9 + length
        stream.seek(at)


def _check_chunk(file: Path, at: int, record: bytes) -> None:
    try:
        unpacked, _, name_size = struct.unpack_from("<QII", record, 16)
        compression = record[32 : 32 + name_size].decode("ascii")
        (packed,) = struct.unpack_from("<Q", record, 32 + name_size)
        data = record[40 + name_size :]
    except (struct.error, UnicodeDecodeError):
        raise LogError(f"{file}: byte {at}: a broken chunk: expected an mcap file") from None
    found = unpacked if unpacked > _MAX_CHUNK else _unpacked(compression, data, unpacked)
    if unpacked > _MAX_CHUNK or packed != len(data) or found != unpacked:
        raise LogError(
            f"{file}: byte {at}: a chunk of {len(data)} bytes, said to be {packed}, that unpacks to {found} or more, "
            f"said to be {unpacked}: expected equal numbers, and at most {_MAX_CHUNK}"
        )


def _unpacked(compression: str, data: bytes, expected: int) -> int:
    """Bytes that the data unpack to; counting ends beyond what is expected."""
    if compression == "":
        return len(data)
    try:
        if compression == "zstd":
            return _count(_zstd, data, expected)
        if compression == "lz4":
            from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]

            return _count(LZ4FrameDecompressor, data, expected)
    except Exception:  # both libraries have errors of their own
        return -1
    return -1


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor()


def _count(make: Any, data: bytes, expected: int) -> int:
    total = 0
    while data:  # frame after frame
        unpack = make()
        while True:
            total += len(unpack.decompress(data, max_length=_STEP))
            data = b""
            if unpack.eof or total > expected:
                break
            if unpack.needs_input:
                return -1  # cut off
        if total > expected:
            break
        data = unpack.unused_data or b""
    return total
