"""Recovery of a bag whose recorder was killed: copies complete chunks to a new bag with index and metadata."""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from safe_sysid.input_limits import open_regular
from safe_sysid.logs.bags.bag_limits import check_bag
from safe_sysid.logs.bags.bag_writer import METADATA_VERSION
from safe_sysid.logs.log import LogError

__all__ = ["is_unfinished", "recover_bag"]

_MAGIC = b"\x89MCAP0\r\n"
_FOOTER = 0x02
_DATA_END = 0x0F
_COPY = 1 << 20


def storage_file(path: Path) -> Path | None:
    """The mcap file of a bag, None if there is not exactly one. ``path``: of the file, or of the bag's directory."""
    if path.is_dir():
        found = sorted(path.glob("*.mcap"))
        return found[0] if len(found) == 1 else None
    return path if path.suffix == ".mcap" and path.is_file() else None


def is_unfinished(path: str | Path) -> bool:
    """Whether a bag is an mcap file that begins as one and does not end as one.

    ``path``: of the file, or of the bag's directory.
    """
    file = storage_file(Path(path))
    if file is None:
        return False
    try:
        with open_regular(file) as stream:
            head = stream.read(len(_MAGIC))
            stream.seek(0, 2)
            if stream.tell() < 2 * len(_MAGIC):
                return head == _MAGIC
            stream.seek(-len(_MAGIC), 2)
            return head == _MAGIC and stream.read() != _MAGIC
    except OSError:
        return False


def recover_bag(path: str | Path, out: str | Path, progress: Callable[[float], None] | None = None) -> int:
    """Write a new bag with everything that the unfinished one holds in complete records. Returns how many messages.

    Args:
        path: of the unfinished bag, or its mcap file; it is only read.
        out: directory of the new bag, which must not exist.
        progress: called with the share that is done.

    Raises:
        LogError: no mcap file, or nothing in it that can be read; or ``out`` exists.
    """
    file = storage_file(Path(path))
    if file is None:
        raise LogError(f"{path}: expected an .mcap file, or a directory with exactly one")
    out = Path(out)
    if out.exists():
        raise LogError(f"{out}: exists: expected a new directory for the bag")
    from rosbags.rosbag2 import Reader, StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    with tempfile.TemporaryDirectory(dir=out.parent if out.parent.is_dir() else None) as scratch:
        whole = Path(scratch) / "whole.mcap"
        try:
            with open_regular(file) as stream:
                length = _complete(stream, file)
                stream.seek(0)
                with whole.open("wb") as copy:
                    while length and (block := stream.read(min(length, _COPY))):
                        copy.write(block)
                        length -= len(block)
                    # No index: a reader then scans all records.
                    copy.write(struct.pack("<BQI", _DATA_END, 4, 0))
                    copy.write(struct.pack("<BQQQI", _FOOTER, 20, 0, 0, 0) + _MAGIC)
            check_bag(whole)
            count = 0
            with (
                Reader(whole) as reader,
                Writer(out, version=METADATA_VERSION, storage_plugin=StoragePlugin.MCAP) as writer,
            ):
                writer.set_custom_data("recovered", f"from {file.name}, which was not finished")
                topics = {c.id: _add(writer, c, store) for c in reader.connections}
                total = max(reader.message_count, 1)
                for connection, time, raw in reader.messages():
                    writer.write(topics[connection.id], time, raw)
                    count += 1
                    if progress is not None and count % 4096 == 0:
                        progress(count / total)
        except LogError:
            raise
        except Exception as error:  # on broken files the library raises whatever the bytes lead it to
            shutil.rmtree(out, ignore_errors=True)
            text = " ".join(str(error).split())[:200] or type(error).__name__
            raise LogError(f"{file}: nothing to recover: {text}: expected an mcap file") from None
    return count


def _add(writer: Any, connection: Any, store: Any) -> Any:
    qos = connection.ext.offered_qos_profiles
    if connection.msgtype in store.fielddefs:
        return writer.add_connection(connection.topic, connection.msgtype, typestore=store, offered_qos_profiles=qos)
    text = connection.msgdef.data
    return writer.add_connection(
        connection.topic, connection.msgtype, msgdef=text, rihs01="RIHS01_", offered_qos_profiles=qos
    )


def _complete(stream: BinaryIO, file: Path) -> int:
    """Bytes up to the end of the last complete record that carries data."""
    size = file.stat().st_size
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise LogError(f"{file}: expected an mcap file")
    at = len(_MAGIC)
    while True:
        head = stream.read(9)
        if len(head) < 9:
            return at
        kind, length = struct.unpack("<BQ", head)
        if kind in (_DATA_END, _FOOTER) or at + 9 + length > size:
            return at
        at += 9 + length
        stream.seek(at)
