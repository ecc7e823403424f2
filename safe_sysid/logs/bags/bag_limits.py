"""Limits of bags: checks record lengths and unpacked sizes before the library reads the file.

A chunk of 100 kB may unpack to gigabytes, and rosbags unpacks all of it before it compares sizes. So does mcap, which
makes an object of every entry of an index besides (`test_hostile_files.py`): records are walked by their lengths here.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
import tempfile
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from safe_sysid.errors import ConfigError
from safe_sysid.input_limits import MAX_YAML_BYTES, open_regular
from safe_sysid.logs.log import LogError
from safe_sysid.robot.files.yaml_file import read_yaml

__all__ = ["check_bag"]

_MAGIC = b"\x89MCAP0\r\n"
_FOOTER, _MESSAGE, _CHUNK, _CHUNK_INDEX = 0x02, 0x05, 0x06, 0x08
_MESSAGE_HEAD = 22  # bytes before its data
_FOOTER_SIZE = 9 + 20
_MAX_CHUNK = 256 << 20  # bytes, unpacked; recorders write chunks of 1 to 8 MB
_MAX_RECORD = 1 << 30
_MAX_MESSAGE = 64 << 20
_MAX_UNPACKED = 4 << 30  # a whole file
_MAX_FILE = 64 << 30
_STEP = 1 << 20

#: Compression, bytes packed, bytes unpacked.
_Chunk = tuple[str, int, int]


def check_bag(path: str | Path) -> None:
    """Refuse a bag that is not made of regular files, or whose parts unpack to more than any recorder writes.

    ``path``: of the bag's directory, or of one storage file.

    Raises:
        LogError: names the file, what it claims, and what was expected.
    """
    path = Path(path)
    files, mode = [path], "none"
    if path.is_dir():
        metadata = path / "metadata.yaml"
        _open(metadata, MAX_YAML_BYTES).close()
        try:
            content = read_yaml(metadata).get("rosbag2_bagfile_information")
        except ConfigError as error:
            raise LogError(f"{path}: not a readable ROS 2 bag: {error}") from None
        mode = str(content.get("compression_mode") or "none").lower() if isinstance(content, dict) else "none"
        named = content.get("relative_file_paths") if isinstance(content, dict) else None
        names = {PurePath(str(name)).name for name in named} if isinstance(named, list) else set()
        files = sorted(
            entry for entry in path.iterdir() if entry.name in names or entry.suffix in (".mcap", ".db3", ".zstd")
        )
    for file in files:
        with _open(file, _MAX_FILE) as stream:
            if stream.read(len(_MAGIC)) == _MAGIC:
                _walk(file, stream, mode == "message")
            elif mode == "message":
                _check_database(file)
            elif file.suffix == ".zstd" or mode == "file":
                stream.seek(0)
                _check_file(file, stream)


def _check_file(file: Path, stream: BinaryIO) -> None:
    """A storage file that is packed as a whole, and what is in it."""
    total, unpack = 0, _zstd()
    with tempfile.TemporaryFile() as whole:
        try:
            while data := stream.read(_STEP):
                while data and total <= _MAX_UNPACKED:
                    total += whole.write(unpack.decompress(data, max_length=_STEP))
                    data = b"" if not unpack.eof else unpack.unused_data or b""
                    while not unpack.eof and not unpack.needs_input and total <= _MAX_UNPACKED:
                        total += whole.write(unpack.decompress(b"", max_length=_STEP))
                    if unpack.eof:
                        unpack = _zstd()
        except Exception:  # the library's own errors
            raise LogError(f"{file}: damaged: expected a file packed by zstd") from None
        if total > _MAX_UNPACKED:
            raise LogError(f"{file}: unpacks to {total} bytes or more: expected at most {_MAX_UNPACKED}")
        whole.seek(0)
        if whole.read(len(_MAGIC)) == _MAGIC:
            _walk(file, whole, packed=False)


def _check_database(file: Path) -> None:
    """Messages that are packed one by one, in a database."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            for (data,) in database.execute("SELECT data FROM messages"):
                _check_message(file, bytes(data))
    except LogError:
        raise
    except Exception as error:  # of the database
        raise LogError(f"{file}: {str(error)[:100]}: expected a database of packed messages") from None


def _check_message(file: Path, data: bytes) -> None:
    """One that is packed by itself."""
    try:
        size = _count(_zstd, data, _MAX_MESSAGE)
    except Exception:  # of the library that unpacks
        size = -1
    if not 0 <= size <= _MAX_MESSAGE:
        raise LogError(
            f"{file}: a message unpacks to {size} bytes or more: expected packed ones of at most {_MAX_MESSAGE}"
        )


def _check_packed(file: Path, content: bytes) -> None:
    """Messages of a chunk, unpacked, that are packed one by one."""
    at = 0
    while at + 9 <= len(content):
        kind, length = struct.unpack_from("<BQ", content, at)
        if kind == _MESSAGE:
            _check_message(file, content[at + 9 + _MESSAGE_HEAD : at + 9 + length])
        at += 9 + length


def _open(file: Path, most: int) -> BinaryIO:
    try:
        return open_regular(file, most)
    except OSError as error:
        raise LogError(f"{file}: cannot be read: {error.strerror or error}") from None


def _walk(file: Path, stream: BinaryIO, packed: bool) -> None:
    """All records of an mcap file, by their lengths; what its index names must be among them.

    ``packed``: whether messages are packed one by one, besides chunks.
    """
    size, at = stream.seek(0, os.SEEK_END), len(_MAGIC)
    end = size - len(_MAGIC)
    stream.seek(max(end - _FOOTER_SIZE, 0))
    footer = stream.read(_FOOTER_SIZE)
    summary = struct.unpack_from("<Q", footer, 9)[0] if len(footer) == _FOOTER_SIZE else 0
    wanted = {end - _FOOTER_SIZE, summary} - {0} if footer[:1] == bytes([_FOOTER]) else set[int]()
    chunks: dict[int, _Chunk] = {}
    indexed: list[tuple[int, _Chunk]] = []
    stream.seek(at)
    while at < end:
        wanted.discard(at)
        head = stream.read(9)
        kind, length = struct.unpack("<BQ", head) if len(head) == 9 else (0, size)
        if length > min(size - at - 9, _MAX_RECORD):
            raise LogError(
                f"{file}: byte {at}: a record of {length} bytes: expected at most what follows, {size - at - 9}"
            )
        if kind == _CHUNK:
            chunks[at], content = _check_chunk(file, at, stream.read(length), packed)
            _check_packed(file, content)
        elif kind == _MESSAGE and packed:
            _check_message(file, stream.read(length)[_MESSAGE_HEAD:])
        elif kind == _CHUNK_INDEX:
            indexed.append(_indexed(file, at, stream.read(length)))
        at += 9 + length
        stream.seek(at)
    if wanted or any(chunks.get(start) != chunk for start, chunk in indexed):
        raise LogError(f"{file}: an index of what is not there: expected the records of the file, as they are")


def _indexed(file: Path, at: int, record: bytes) -> tuple[int, _Chunk]:
    """Where a record of the index says that a chunk is, and what it says of it."""
    try:
        start, offsets = struct.unpack_from("<16xQ8xI", record)
        (name_size,) = struct.unpack_from("<I", record, 44 + offsets)
        compression = record[48 + offsets : 48 + offsets + name_size].decode("ascii")
        packed, unpacked = struct.unpack_from("<QQ", record, 48 + offsets + name_size)
    except (struct.error, UnicodeDecodeError):
        raise LogError(f"{file}: byte {at}: a broken index: expected an mcap file") from None
    return start, (compression, packed, unpacked)


def _check_chunk(file: Path, at: int, record: bytes, wanted: bool) -> tuple[_Chunk, bytes]:
    """What a chunk says of itself, and, if wanted, what it holds."""
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
    return (compression, packed, unpacked), _content(compression, data) if wanted else b""


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


def _content(compression: str, data: bytes) -> bytes:
    """The same bytes, when their size is known to be harmless."""
    if compression == "":
        return data
    if compression == "zstd":
        return bytes(_zstd().decompress(data))
    from lz4.frame import decompress

    return bytes(decompress(data))


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
