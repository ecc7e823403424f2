"""Serialised messages of the 1 kHz loop, read and written in place: a third of the time of message objects.

Nothing is assumed about the encoding. To find where a field lies, a message of the same shape is serialised with marks
in it; all other bytes, except padding, must then equal those of that message. A message of another shape is
deserialised as usual, checked by ``conversions``, and its layout is learned.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.finite import all_finite
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.nodes.common.messages.conversions import JointReader

__all__ = ["CommandBytesReader", "CommandBytesWriter", "JointBytesReader", "JointBytesWriter", "joint_message"]

_STAMP = struct.Struct("=iI")
_SECOND = 1_000_000_000
#: Marks: a time and numbers that nothing else in a message looks like.
_MARK = _STAMP.pack(0x5AC35A3C, 0x2B1D4E7)
_LABEL = 19  # digits of a time in ns from 2001 to 2286


class _FieldLayout:
    """Places of the changing fields in a serialised message."""

    def __init__(self, data: bytes, marks: Sequence[bytes]) -> None:
        """Find each mark. Raises ValueError: one does not occur exactly once, or they overlap."""
        self.template = data
        self.starts = [data.index(mark) for mark in marks]
        if any(data.count(mark) != 1 for mark in marks):
            raise ValueError("a mark occurs twice")
        fields = [range(start, start + len(mark)) for start, mark in zip(self.starts, marks, strict=True)]
        self._free = {place for field in fields for place in field}
        if len(self._free) != sum(map(len, fields)):
            raise ValueError("marks overlap")
        self._fix()

    def _fix(self) -> None:
        """Collect the fixed bytes between the fields."""
        self._fixed: list[tuple[slice, bytes]] = []
        start = 0
        for end in [*sorted(self._free), len(self.template)]:
            if end > start:
                self._fixed.append((slice(start, end), self.template[start:end]))
            start = end + 1

    def fits(self, data: bytes) -> bool:
        """Whether all bytes but the fields and the padding are unchanged."""
        return len(data) == len(self.template) and all(data[part] == known for part, known in self._fixed)

    def check_padding(self, data: bytes) -> None:
        """Learn padding: bytes besides the fields in which equal messages differ.

        The first two bytes say how the rest is encoded; with another encoding every byte may differ.
        """
        if len(data) == len(self.template) and data[:2] == self.template[:2]:
            pairs = enumerate(zip(self.template, data, strict=True))
            self._free |= {place for place, (mine, theirs) in pairs if mine != theirs}
            self._fix()


def _numbers(count: int, which: int) -> FloatArray:
    return 1.2345678901e200 * (1.0 + which + np.arange(count) / (count + 1.0))


def _joint_shape(names: Sequence[str], frame_id: str, counts: tuple[int, ...]) -> _FieldLayout:
    """Field layout of a JointState with these numbers of entries."""
    msg = JointState(name=list(names))
    msg.header.frame_id = frame_id
    msg.header.stamp.sec, msg.header.stamp.nanosec = _STAMP.unpack(_MARK)
    marks = [_MARK]
    for which, (field, count) in enumerate(zip(("position", "velocity", "effort"), counts, strict=True)):
        values = _numbers(count, which)
        setattr(msg, field, values.tolist())
        if count:
            marks.append(values.tobytes())
    return _FieldLayout(serialize_message(msg), marks)


def joint_message(data: bytes | JointState) -> JointState:
    """The message object of a message that may be serialised."""
    return deserialize_message(data, JointState) if isinstance(data, bytes) else data


class JointBytesReader:
    """Reads serialised JointState messages as :class:`~.conversions.JointReader` does the others."""

    def __init__(self, joint_names: Sequence[str]) -> None:
        """Position and velocity are asked for, effort is read where it is told."""
        self._reader = JointReader(joint_names, with_effort=None)
        self._joints = tuple(joint_names)
        self._shape: _FieldLayout | None = None
        self._kind: tuple[object, ...] = ()
        self._index = np.zeros(0, np.intp)
        self._frame_id, self._count, self._at = "", 0, (0, 0, 0)
        self._effort_at = 0

    def read(self, data: bytes) -> JointSample:
        """Convert. Raises MessageRefusedError: as JointReader."""
        if self._shape is None or not self._shape.fits(data):
            return self._learn(data)
        stamp, position, velocity = self._at
        sec, nanosec = _STAMP.unpack_from(data, stamp)
        q = np.frombuffer(data, np.float64, self._count, position)[self._index]
        qd = np.frombuffer(data, np.float64, self._count, velocity)[self._index]
        if not (all_finite(q) and all_finite(qd)) or sec < 0 or nanosec >= _SECOND or not sec + nanosec:
            return self._learn(data)  # it says why
        effort = None
        if self._effort_at:
            effort = np.frombuffer(data, np.float64, self._count, self._effort_at)[self._index]
            effort = effort if all_finite(effort) else None
        return JointSample(sec * _SECOND + nanosec, q, qd, effort, self._frame_id)

    def _learn(self, data: bytes) -> JointSample:
        msg = joint_message(data)
        sample = self._reader.read(msg)
        counts = len(msg.position), len(msg.velocity), len(msg.effort)
        kind = (*msg.name, sample.frame_id, *counts)
        if kind != self._kind:
            self._kind, self._shape = kind, None
            try:
                self._shape = _joint_shape(msg.name, sample.frame_id, counts)
            except ValueError:
                return sample
            self._index = np.array([list(msg.name).index(joint) for joint in self._joints], np.intp)
            self._frame_id, self._count = sample.frame_id, len(msg.name)
            self._at = self._shape.starts[0], self._shape.starts[1], self._shape.starts[2]
            self._effort_at = self._shape.starts[3] if counts[2] == self._count else 0
        if self._shape is not None:
            self._shape.check_padding(data)
        return sample


class JointBytesWriter:
    """Serialised JointState messages."""

    def __init__(self, joint_names: Sequence[str]) -> None:
        n = len(joint_names)
        shape = _joint_shape(joint_names, "", (n, n, n))
        self._buffer = bytearray(shape.template)
        self._stamp, *places = shape.starts
        self._fields = [np.frombuffer(self._buffer, np.float64, n, place) for place in places]

    def fill(self, stamp_ns: int, q: FloatArray, qd: FloatArray, effort: FloatArray) -> bytes:
        """The message with these contents."""
        _STAMP.pack_into(self._buffer, self._stamp, *divmod(stamp_ns, _SECOND))
        for field, values in zip(self._fields, (q, qd, effort), strict=True):
            field[:] = values
        return bytes(self._buffer)


def _command_shape(n: int) -> _FieldLayout:
    label, numbers = "7" * _LABEL, _numbers(n, 0)
    msg = conversions.CommandWriter(n).fill(int(label), numbers)
    return _FieldLayout(serialize_message(msg), [label.encode(), numbers.tobytes()])


class CommandBytesWriter:
    """Serialised effort commands, as :class:`~.conversions.CommandWriter` fills them."""

    def __init__(self, n: int) -> None:
        shape = _command_shape(n)
        self._buffer, (self._label, place) = bytearray(shape.template), shape.starts
        self._torque = np.frombuffer(self._buffer, np.float64, n, place)
        self._slow = conversions.CommandWriter(n)

    def fill(self, stamp_ns: int, torque: FloatArray | None) -> bytes:
        """The message with these contents, empty without a torque."""
        label = b"%d" % stamp_ns
        if torque is None or len(label) != _LABEL:
            return bytes(serialize_message(self._slow.fill(stamp_ns, torque)))
        self._buffer[self._label : self._label + _LABEL] = label
        self._torque[:] = torque
        return bytes(self._buffer)


class CommandBytesReader:
    """Reads serialised effort commands as :func:`~.conversions.read_command` does the others."""

    def __init__(self, n: int) -> None:
        self._n, self._shape = n, _command_shape(n)
        self._layout = conversions.CommandWriter(n).fill(0, np.zeros(n)).layout

    def read(self, data: bytes | Float64MultiArray) -> tuple[int | None, FloatArray | None]:
        """Stamp that is answered and torque (n,), either may be None. Raises MessageRefusedError: as read_command."""
        if isinstance(data, bytes) and self._shape.fits(data):
            label, place = self._shape.starts
            digits = data[label : label + _LABEL]
            torque = np.frombuffer(data, np.float64, self._n, place)
            if digits.isdigit() and all_finite(torque):
                return int(digits), torque
        message = deserialize_message(data, Float64MultiArray) if isinstance(data, bytes) else data
        answered, command = conversions.read_command(message, self._n)
        if isinstance(data, bytes) and command is not None and len(str(answered)) == _LABEL:
            self._layout.dim[0].label = str(answered)
            if message.layout == self._layout:
                self._shape.check_padding(data)
        return answered, command
