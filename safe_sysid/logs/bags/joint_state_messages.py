"""Serialised sensor_msgs/JointState messages to stamps and numbers, thousands at once where they are alike."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.logs.log import LogError

__all__ = ["JOINT_STATE", "JointStateDecoder"]

FloatArray = NDArray[np.float64]
JOINT_STATE = "sensor_msgs/msg/JointState"
_BLOCK = 8192


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


class JointStateDecoder:
    """Messages in, samples out; the same names again and again are decoded all at once.

    Attributes:
        seen: messages so far.
        lacking: of them without all the joints: of another part of the machine, a gripper, a base.
    """

    def __init__(self, where: str, topic: str, store: Any, joint_names: Sequence[str]) -> None:
        """Start with none.

        Args:
            where: file, for messages of errors.
            topic: the same.
            store: of message types, of the library.
            joint_names: n names that are wanted, in their order.
        """
        self._where, self._topic, self._store, self._joints = where, topic, store, tuple(joint_names)
        self._layout: _Layout | None = None
        self._pending: list[bytes] = []
        self._stamps: list[NDArray[np.int64]] = []
        self._values: list[FloatArray] = []
        self.seen, self.lacking = 0, 0

    def add(self, raw: bytes) -> None:
        """One more message.

        Args:
            raw: serialised.

        Raises:
            LogError: it is broken.
        """
        self.seen += 1
        if self._layout is not None and self._layout.fits(raw):
            self._pending.append(raw)
            if len(self._pending) >= _BLOCK:
                self._flush()
            return
        self._flush()
        try:
            message = self._store.deserialize_cdr(raw, JOINT_STATE)
        except Exception as error:
            text = " ".join(str(error).split())[:120] or type(error).__name__
            raise LogError(
                f"{self._where}: message {self.seen} of {self._topic} is broken ({text}): expected {JOINT_STATE}"
            ) from None
        names = list(message.name)
        if not set(self._joints) <= set(names):
            self.lacking += 1
            return
        counts = {
            "position": len(message.position),
            "velocity": len(message.velocity),
            "effort": len(message.effort),
        }
        for what, count in counts.items():
            if count != len(names):
                raise LogError(
                    f"{self._where}: message {self.seen} of {self._topic} has {count} numbers in {what}: expected "
                    f"{len(names)}, one per name"
                )
        index = np.array([names.index(joint) for joint in self._joints])
        stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
        values = np.stack([np.asarray(getattr(message, what), float)[index] for what in counts])
        self._stamps.append(np.array([stamp], np.int64))
        self._values.append(values[None])
        if bytes(raw[:2]) == b"\x00\x01":  # little-endian: what all machines of today write
            self._learn(bytes(raw), message, index, stamp, values)

    def take(self) -> tuple[NDArray[np.int64], FloatArray]:
        """All samples since the last call, in order of arrival.

        Returns:
            Stamps (L,) in ns; numbers (L, 3, n): positions, velocities, efforts.
        """
        self._flush()
        stamps, values = self._stamps, self._values
        self._stamps, self._values = [], []
        if not stamps:
            return np.zeros(0, np.int64), np.zeros((0, 3, len(self._joints)))
        return np.concatenate(stamps), np.concatenate(values)

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
