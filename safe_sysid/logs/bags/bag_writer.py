"""Writes serialised messages as a rosbag2 bag (mcap) with their definitions, by the `rosbags` library; no ROS needed.

What was flushed survives a process that is killed: chunks in the file are complete, only index and metadata are
missing, which :mod:`safe_sysid.logs.bags.bag_recovery` (as ``mcap recover`` and ``ros2 bag reindex``) makes again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from safe_sysid.logs.log import LogError

__all__ = ["COMPRESSIONS", "METADATA_VERSION", "BagWriter", "Topic", "UnknownTypeError"]

COMPRESSIONS = ("none", "zstd")
#: Of rosbag2's metadata: the newest that ROS 2 Humble reads too; from 9 on profiles are written in another way.
METADATA_VERSION: Final = 8
Topic = Any  # a connection of the library


class UnknownTypeError(LogError):
    """A message type whose definition is not known."""


class BagWriter:
    """A bag that is being written. Not thread-safe."""

    def __init__(self, path: str | Path, compression: str = "none", notes: Mapping[str, str] | None = None) -> None:
        """Create it.

        Args:
            path: directory of the bag, which must not exist.
            compression: one of :data:`COMPRESSIONS`, of chunks.
            notes: texts for ``custom_data`` of the metadata.

        Raises:
            LogError: it exists, cannot be made, or the library is missing.
        """
        if compression not in COMPRESSIONS:
            raise LogError(f"compression = {compression!r}: expected one of {', '.join(COMPRESSIONS)}")
        try:
            from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
            from rosbags.typesys import Stores, get_typestore
        except ImportError:
            raise LogError(f"{path}: writing bags needs the package rosbags (pip install rosbags)") from None
        self.path = Path(path)
        if self.path.exists():
            raise LogError(f"{self.path}: exists: expected a new directory for the bag")
        self._store = get_typestore(Stores.ROS2_JAZZY)
        self._writer = Writer(self.path, version=METADATA_VERSION, storage_plugin=StoragePlugin.MCAP)
        if compression == "zstd":
            self._writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
        for key, text in (notes or {}).items():
            self._writer.set_custom_data(key, text)
        try:
            self._writer.open()
        except OSError as error:
            raise LogError(f"{self.path}: {error.strerror or error}: expected a place to write a bag") from None
        self.written, self.bytes, self._last, self._closed = 0, 0, 0, False

    def check(self, name: str, message_type: str) -> None:
        """Can messages of this type be written?

        ``message_type``: as ``std_msgs/msg/String``.

        Raises:
            UnknownTypeError: the library has no definition of the type.
        """
        if message_type not in self._store.fielddefs:
            raise UnknownTypeError(f"{name}: no definition of {message_type}: expected a type of ROS 2's own packages")

    def topic(self, name: str, message_type: str, qos: Sequence[Any] = ()) -> Topic:
        """Add a topic. ``message_type``: as ``std_msgs/msg/String``.

        Raises:
            UnknownTypeError: the library has no definition of the type.
        """
        self.check(name, message_type)
        return self._writer.add_connection(name, message_type, typestore=self._store, offered_qos_profiles=qos)

    def write(self, topic: Topic, time_ns: int, data: bytes) -> None:
        """Add a message. Times in a bag never go back: an earlier one counts as the last one's.

        ``topic``: of :meth:`topic`; ``data``: serialised (CDR).

        Raises:
            OSError: it cannot be written.
        """
        self._last = time_ns = max(time_ns, self._last)
        self._writer.write(topic, time_ns, data)
        self.written += 1
        self.bytes += len(data)

    def flush(self) -> None:
        """Hand what there is to the system, in a chunk of its own: from now on it outlives this process.

        Raises:
            OSError: it cannot be written.
        """
        storage: Any = self._writer.storage
        if storage.chunk.bio.tell():
            storage.close_chunk()
        storage.bio.flush()

    def close(self, notes: Mapping[str, str] | None = None) -> None:
        """Write index and metadata; nothing after the first call. ``notes``: more texts for ``custom_data``.

        Raises:
            OSError: they cannot be written; what was flushed can be recovered.
        """
        if self._closed:
            return
        self._closed = True
        for key, text in (notes or {}).items():
            self._writer.set_custom_data(key, text)
        try:
            self._writer.close()
        except BaseException:
            with contextlib.suppress(Exception):
                self._writer.abort()
            raise

    def __enter__(self) -> BagWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
