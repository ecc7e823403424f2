"""ROS 2 bags (mcap, sqlite3) with sensor_msgs/JointState, read by the `rosbags` library; no ROS needed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.log import Log, LogError

__all__ = ["is_bag", "read_bag"]

FloatArray = NDArray[np.float64]
_TYPE = "sensor_msgs/msg/JointState"
_MAX_SAMPLES = 50_000_000
_BLOCK = 8192


def is_bag(path: str | Path) -> bool:
    """Whether a path looks like a bag: a directory with ``metadata.yaml``, or a file ``.mcap`` or ``.db3``."""
    path = Path(path)
    return (path.is_dir() and (path / "metadata.yaml").is_file()) or path.suffix in (".mcap", ".db3", ".bag")


def read_bag(
    path: str | Path,
    joint_names: Sequence[str],
    topic: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Log:
    """Read the joint states of a bag: stamps of the headers, in order of arrival, joints matched by name.

    Args:
        path: of the bag's directory, or of one storage file.
        joint_names: n names of the robot's joints; others in the messages are ignored.
        topic: to read; None for the only one of this type that has all the joints.
        progress: called with the share of the messages that is read.

    Raises:
        LogError: not a bag, no such topic, joints, velocities or efforts missing, or a message that is broken.
    """
    path = Path(path)
    if not path.exists():
        raise LogError(f"{path}: no such file")
    if path.suffix == ".bag":
        raise LogError(f"{path}: a ROS 1 bag: expected a ROS 2 bag (rosbags-convert makes one of it)")
    try:
        from rosbags.rosbag2 import Reader
    except ImportError:
        raise LogError(f"{path}: reading bags needs the package rosbags (pip install rosbags)") from None
    try:
        with Reader(path) as reader:
            return _read(path, reader, tuple(joint_names), topic, progress)
    except LogError:
        raise
    except Exception as error:  # on broken files the library raises whatever the bytes lead it to
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise LogError(f"{path}: not a readable ROS 2 bag: {text}") from None


def _read(
    path: Path,
    reader: Any,
    joint_names: tuple[str, ...],
    topic: str | None,
    progress: Callable[[float], None] | None,
) -> Log:
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    name = _topic(path, reader, store, joint_names, topic)
    connections = [c for c in reader.connections if c.topic == name and c.msgtype == _TYPE]
    total = max(sum(c.msgcount for c in connections), 1)
    decoder = _Decoder(path, name, store, joint_names)
    for count, (_, _, raw) in enumerate(reader.messages(connections=connections)):
        decoder.add(raw)
        if progress is not None and count % _BLOCK == 0:
            progress(min(1.0, count / total))
    return decoder.log()


def _topic(path: Path, reader: Any, store: Any, joint_names: tuple[str, ...], topic: str | None) -> str:
    """Name of the topic to read."""
    found = sorted({c.topic for c in reader.connections if c.msgtype == _TYPE})
    others = sorted({f"{c.topic} ({c.msgtype})" for c in reader.connections})
    if topic is not None:
        if topic not in found:
            raise LogError(
                f"{path}: topic {topic!r} of type {_TYPE} is not there: expected one of {', '.join(found) or 'none'}; "
                f"the bag has {', '.join(others[:20]) or 'no topics'}"
            )
        return topic
    if not found:
        raise LogError(
            f"{path}: no topic of type {_TYPE}: expected one; the bag has {', '.join(others[:20]) or 'no topics'}"
        )
    if len(found) == 1:
        return found[0]
    good = [name for name in found if _has_joints(reader, store, name, joint_names)]
    if len(good) == 1:
        return good[0]
    reason = (
        "none has all joints of the robot, " + ", ".join(joint_names)
        if not good
        else "several have all joints"
    )
    raise LogError(f"{path}: topics {', '.join(good or found)}: {reason}: say which with --topic")


def _has_joints(reader: Any, store: Any, topic: str, joint_names: tuple[str, ...]) -> bool:
    """Whether one of the first messages of a topic has all joints."""
    connections = [c for c in reader.connections if c.topic == topic and c.msgtype == _TYPE]
    for count, (_, _, raw) in enumerate(reader.messages(connections=connections)):
        message = store.deserialize_cdr(raw, _TYPE)
        if set(joint_names) <= set(message.name):
            return True
        if count >= 50:
            return False
    return False


class _Layout:
    """Where the numbers lie in all messages that begin with the same names; checked against the library."""

    def __init__(self, raw: bytes, message: Any, index: NDArray[np.int64]) -> None:
        self.size = len(raw)
        self.index = index
        frame = len(message.header.frame_id.encode()) + 1
        at = 4 + 8 + 4 + frame  # encapsulation, stamp, frame_id
        at = _aligned(at, 4) + 4
        for name in message.name:
            at = _aligned(at, 4) + 4 + len(name.encode()) + 1
        self.offsets = []
        for values in (message.position, message.velocity, message.effort):
            at = _aligned(at, 4) + 4
            if len(values):
                at = _aligned(at, 8)
            self.offsets.append(at)
            at += 8 * len(values)
        self.counts = [len(values) for values in (message.position, message.velocity, message.effort)]
        self.head = raw[:4]
        self.prefix = raw[12 : self.offsets[0]]  # frame_id, names, number of positions
        between = [
            (self.offsets[i] + 8 * self.counts[i], self.offsets[i + 1]) for i in range(2)
        ]  # the counts of velocities and efforts
        self.fixed = [(a, b, raw[a:b]) for a, b in between]

    def fits(self, raw: bytes) -> bool:
        return (
            len(raw) == self.size
            and raw[:4] == self.head
            and raw[12 : self.offsets[0]] == self.prefix
            and all(raw[a:b] == value for a, b, value in self.fixed)
        )

    def decode(self, block: Sequence[bytes]) -> tuple[NDArray[np.int64], FloatArray]:
        """Stamps in ns (L,) and numbers (L, 3, n)."""
        table = np.frombuffer(b"".join(block), np.uint8).reshape(len(block), self.size)
        stamp = np.ascontiguousarray(table[:, 4:12])
        seconds = stamp.view("<i4")[:, 0].astype(np.int64)
        nanoseconds = stamp.view("<u4")[:, 1].astype(np.int64)
        parts = []
        for at, count in zip(self.offsets, self.counts, strict=True):
            numbers = np.ascontiguousarray(table[:, at : at + 8 * count]).view("<f8")
            parts.append(numbers[:, self.index])
        return seconds * 10**9 + nanoseconds, np.stack(parts, axis=1)


def _aligned(at: int, size: int) -> int:
    """Next multiple of ``size`` behind the 4 bytes of encapsulation."""
    return at + (4 - at) % size


class _Decoder:
    """Messages in, samples out; the same names again and again are decoded all at once."""

    def __init__(self, path: Path, topic: str, store: Any, joint_names: tuple[str, ...]) -> None:
        self._path, self._topic, self._store, self._joints = path, topic, store, joint_names
        self._layout: _Layout | None = None
        self._pending: list[bytes] = []
        self._stamps: list[NDArray[np.int64]] = []
        self._values: list[FloatArray] = []
        self._seen = 0
        self.lacking = 0

    def add(self, raw: bytes) -> None:
        self._seen += 1
        if self._layout is not None and self._layout.fits(raw):
            self._pending.append(raw)
            if len(self._pending) >= _BLOCK:
                self._flush()
            return
        self._flush()
        if self._seen - self.lacking > _MAX_SAMPLES:
            raise LogError(f"{self._path}: more than {_MAX_SAMPLES} messages: expected a shorter log")
        try:
            message = self._store.deserialize_cdr(raw, _TYPE)
        except Exception as error:
            text = " ".join(str(error).split())[:120] or type(error).__name__
            raise LogError(
                f"{self._path}: message {self._seen} of {self._topic} is broken ({text}): expected {_TYPE}"
            ) from None
        names = list(message.name)
        if not set(self._joints) <= set(names):
            self.lacking += 1  # of another part of the machine: a gripper, a base
            return
        counts = {
            "position": len(message.position),
            "velocity": len(message.velocity),
            "effort": len(message.effort),
        }
        for what, count in counts.items():
            if count != len(names):
                raise LogError(
                    f"{self._path}: message {self._seen} of {self._topic} has {count} numbers in {what}: expected "
                    f"{len(names)}, one per name"
                )
        index = np.array([names.index(joint) for joint in self._joints])
        stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
        values = np.stack([np.asarray(getattr(message, what), float)[index] for what in counts])
        self._stamps.append(np.array([stamp], np.int64))
        self._values.append(values[None])
        if bytes(raw[:2]) == b"\x00\x01":  # little-endian: what all machines of today write
            self._learn(bytes(raw), message, index, stamp, values)

    def _learn(
        self, raw: bytes, message: Any, index: NDArray[np.int64], stamp: int, values: FloatArray
    ) -> None:
        self._layout = None
        try:
            layout = _Layout(raw, message, index)
            if not layout.fits(raw):
                return
            stamps, numbers = layout.decode([raw])
        except (ValueError, IndexError, struct.error):
            return
        if stamps[0] == stamp and np.array_equal(numbers[0], values, equal_nan=True):
            self._layout = layout

    def _flush(self) -> None:
        if self._pending and self._layout is not None:
            stamps, values = self._layout.decode(self._pending)
            self._stamps.append(stamps)
            self._values.append(values)
        self._pending = []

    def log(self) -> Log:
        self._flush()
        if not self._stamps:
            seen = f"{self._seen} messages, none with all joints" if self._seen else "no messages"
            raise LogError(f"{self._path}: {self._topic} has {seen}: expected {', '.join(self._joints)}")
        stamps = np.concatenate(self._stamps)
        if len(stamps) > 1 and np.all(stamps == stamps[0]):
            raise LogError(
                f"{self._path}: all header stamps of {self._topic} are {stamps[0] / 1e9:.9f} s: "
                f"expected the time of each measurement; receive times are no substitute"
            )
        origin = int(stamps[0] // 10**9) * 10**9
        values = np.concatenate(self._values)
        self._stamps, self._values = [], []
        seconds = (stamps - origin) / 1e9
        columns = {
            key: [f"{self._topic} {word} of {joint}" for joint in self._joints]
            for key, word in (("q", "position"), ("qd", "velocity"), ("effort", "effort"))
        }
        columns["stamps"] = [f"{self._topic} header.stamp"]
        if self.lacking:
            columns["lacking"] = [str(self.lacking)]
        measurements = Measurements(seconds, values[:, 0], values[:, 1], values[:, 2])
        return Log(self._joints, measurements, origin, columns)
