"""Conversions between ROS messages and this package's types. A message is used as a whole or refused with its reason.

Joints are matched by name, never by index. Reading raises nothing but :class:`MessageRefusedError`, whatever comes.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import MessageError, ParameterError, PlanError
from safe_sysid.nodes.common.messages.contents import BoundsAnswer, JointSample, MessageRefusedError, PlanAnswer
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.trajectories.plan import Plan, parse_identity
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = [
    "CommandWriter",
    "JointReader",
    "JointStateWriter",
    "bounds_message",
    "empty_plan_message",
    "joint_order",
    "plan_message",
    "read_bounds",
    "read_command",
    "read_plan",
    "stamp_to_ns",
    "write_stamp",
]

#: Longer arrays are refused unread.
MAX_ENTRIES = 100_000
_SECOND = 1_000_000_000
#: After the box's identity in the frame_id of a plan: its tracking tube, and the planner's configuration.
_PLAN_TUBE = re.compile(r"tube=([1-9]\d{0,2})")
_PLAN_DIGEST = re.compile(r"[0-9a-f]{32},scene=[0-9a-f]{16}")
#: Of the second dimension of bounds.
_LABEL = re.compile(r"(?:batch:([0-9]{1,9}))?(?:(?(1);)digest:([0-9A-Za-z_.,=-]{1,1000}))?")
#: At the end of the label of bounds that the measurements contradict.
_CONTRADICTED = "contradicted"
#: Between two plans that a planner announces, ns.
_LONGEST_PAUSE = 600 * _SECOND


# -- time -------------------------------------------------------------------------------------------------------


def stamp_to_ns(stamp: Any) -> int:
    """Nanoseconds of a Time message; 0 means "not set" in ROS and is refused."""
    if not 0 <= stamp.nanosec < _SECOND or stamp.sec < 0 or (stamp.sec == 0 and stamp.nanosec == 0):
        raise MessageRefusedError(
            "bad stamp", f"{stamp.sec} s {stamp.nanosec} ns: expected a time after 0, below 1e9 ns"
        )
    return int(stamp.sec) * _SECOND + int(stamp.nanosec)


def write_stamp(stamp: Time, ns: int) -> None:
    """Write nanoseconds into a Time message."""
    stamp.sec, stamp.nanosec = divmod(ns, _SECOND)


def _duration_ns(seconds: float) -> int:
    ns = round(seconds * 1e9)
    if ns / 1e9 != seconds:
        raise MessageError(
            f"duration {seconds!r} s: expected whole nanoseconds, or the plan would not be the certified one"
        )
    return ns


# -- joint states -----------------------------------------------------------------------------------------------


class JointReader:
    """Reads JointState messages; remembers the order of names, so that the usual message costs microseconds."""

    def __init__(self, joint_names: Sequence[str], with_effort: bool | None = True) -> None:
        """``with_effort``: whether it is asked for; None: read where it is told, never a reason to refuse."""
        self._joints, self._with_effort = tuple(joint_names), with_effort
        self._names: list[str] = []
        self._index = np.zeros(0, np.intp)

    def read(self, msg: JointState) -> JointSample:
        """Convert.

        Raises MessageRefusedError: joints missing or named twice, lengths that differ, a number not finite, no stamp.
        """
        if msg.name != self._names or not self._names:
            self._learn(msg.name)
        effort = self._vector(msg.effort, "effort") if self._with_effort else None
        if self._with_effort is None and len(msg.effort) == len(self._names):
            told = np.frombuffer(msg.effort)[self._index]
            effort = told if np.isfinite(told).all() else None
        return JointSample(
            stamp_to_ns(msg.header.stamp),
            self._vector(msg.position, "position"),
            self._vector(msg.velocity, "velocity"),
            effort,
            msg.header.frame_id,
        )

    def _learn(self, names: Sequence[str]) -> None:
        if len(names) > MAX_ENTRIES:
            raise MessageRefusedError("too long", f"{len(names)} joint names: expected at most {MAX_ENTRIES}")
        names = list(names)
        missing = [joint for joint in self._joints if joint not in names]
        if missing:
            raise MessageRefusedError("missing joint", f"no {', '.join(missing)} among {_some(names)}")
        twice = [joint for joint in self._joints if names.count(joint) > 1]
        if twice:
            raise MessageRefusedError("joint named twice", f"{', '.join(twice)} in {_some(names)}")
        self._index = np.array([names.index(joint) for joint in self._joints], np.intp)
        self._names = names

    def _vector(self, values: Any, field: str) -> FloatArray:
        if len(values) != len(self._names):
            raise MessageRefusedError("wrong length", f"{len(values)} entries of {field} for {len(self._names)} joints")
        vector = np.frombuffer(values)[self._index]
        if not np.isfinite(vector).all():
            joint = int(np.flatnonzero(~np.isfinite(vector))[0])
            raise MessageRefusedError("not finite", f"{field} of {self._joints[joint]} is {vector[joint]}")
        return vector


class JointStateWriter:
    """A JointState message that is filled again and again, without allocation."""

    def __init__(self, joint_names: Sequence[str]) -> None:
        n = len(joint_names)
        self.message = JointState()
        self.message.name = list(joint_names)
        for field in ("position", "velocity"):
            setattr(self.message, field, [0.0] * n)
        self._q, self._qd = np.frombuffer(self.message.position), np.frombuffer(self.message.velocity)
        self._effort: FloatArray | None = None

    def fill(
        self, stamp_ns: int, q: FloatArray, qd: FloatArray, effort: FloatArray | None, frame_id: str = ""
    ) -> JointState:
        """The message with these contents; valid until the next call. ``effort``: None always, or never."""
        write_stamp(self.message.header.stamp, stamp_ns)
        self.message.header.frame_id = frame_id
        self._q[:], self._qd[:] = q, qd
        if effort is not None:
            if self._effort is None:
                self.message.effort = array("d", [0.0] * len(q))
                self._effort = np.frombuffer(self.message.effort)
            self._effort[:] = effort
        return self.message


# -- commands ---------------------------------------------------------------------------------------------------


class CommandWriter:
    """Effort commands in the model's joint order; the label of the first dimension is the stamp they answer, in ns."""

    def __init__(self, n: int) -> None:
        self._message, self._nothing = Float64MultiArray(), Float64MultiArray()
        self._message.layout.dim = [MultiArrayDimension(label="", size=n, stride=n)]
        self._nothing.layout.dim = [MultiArrayDimension(label="", size=0, stride=0)]
        self._message.data = array("d", [0.0] * n)
        self._torque = np.frombuffer(self._message.data)

    def fill(self, stamp_ns: int, torque: FloatArray | None) -> Float64MultiArray:
        """The message with these contents, empty without a torque; valid until the next call."""
        if torque is None:
            self._nothing.layout.dim[0].label = str(stamp_ns)
            return self._nothing
        self._message.layout.dim[0].label = str(stamp_ns)
        self._torque[:] = torque
        return self._message


def read_command(msg: Float64MultiArray, n: int) -> tuple[int | None, FloatArray | None]:
    """Stamp that is answered (None: not said) and torque (n,) in N m (None: no command).

    Raises MessageRefusedError: wrong length, not finite, a label that is no stamp.
    """
    stamp = None
    if msg.layout.dim and msg.layout.dim[0].label:
        label = msg.layout.dim[0].label
        if not (label.isascii() and label.isdigit() and len(label) <= 19):
            raise MessageRefusedError("bad label", f"{label[:40]!r}: expected the stamp in ns that is answered")
        stamp = int(label)
    if len(msg.data) == 0:
        return stamp, None
    if len(msg.data) != n:
        raise MessageRefusedError("wrong length", f"{len(msg.data)} torques for {n} joints")
    torque = np.array(msg.data)
    if not np.all(np.isfinite(torque)):
        raise MessageRefusedError("not finite", f"torques {torque.tolist()}")
    return stamp, torque


# -- plans ------------------------------------------------------------------------------------------------------


def plan_message(plan: Plan, joint_names: Sequence[str], start_ns: int, digest: str = "") -> JointTrajectory:
    """One point per knot: each pair of points is a quintic, so the message is the certified trajectory, bit for bit."""
    identity = f"{plan.box_identity} tube={plan.tube}" if plan.tube else plan.box_identity
    msg = empty_plan_message(start_ns, identity, joint_names, digest=digest)
    for time, (q, qd, qdd) in zip(plan.trajectory.times, plan.trajectory.knots, strict=True):
        point = JointTrajectoryPoint(positions=q.tolist(), velocities=qd.tolist(), accelerations=qdd.tolist())
        point.time_from_start.sec, point.time_from_start.nanosec = divmod(_duration_ns(float(time)), _SECOND)
        msg.points.append(point)
    return msg


def empty_plan_message(
    start_ns: int, box_identity: str, joint_names: Sequence[str], next_ns: int | None = None, digest: str = ""
) -> JointTrajectory:
    """Message without a plan. No points: brake at this hand-over. One empty point: the time of the next plan."""
    msg = JointTrajectory()
    msg.joint_names = list(joint_names)
    write_stamp(msg.header.stamp, start_ns)
    msg.header.frame_id = f"{box_identity} {digest}" if digest else box_identity
    if next_ns is not None:
        point = JointTrajectoryPoint()
        point.time_from_start.sec, point.time_from_start.nanosec = divmod(next_ns - start_ns, _SECOND)
        msg.points.append(point)
    return msg


def read_plan(msg: JointTrajectory, joint_names: Sequence[str]) -> PlanAnswer:
    """Convert.

    Raises:
        MessageRefusedError: other joints, wrong lengths, not finite, times that do not increase from 0, an end in
            motion, an identity that is none.
    """
    start_ns = stamp_to_ns(msg.header.stamp)
    identity, space, digest = msg.header.frame_id.partition(" ")
    _identity(identity)
    tube = 0
    if (named := _PLAN_TUBE.fullmatch(digest.partition(" ")[0])) is not None:
        tube, (_, space, digest) = int(named[1]), digest.partition(" ")
    if space and _PLAN_DIGEST.fullmatch(digest) is None:
        raise MessageRefusedError("bad digest", f"{digest[:80]!r} after {identity}: expected 'HEX,scene=hex'")
    if not msg.points:
        return PlanAnswer(start_ns, identity, None, digest=digest)
    order = joint_order(msg.joint_names, joint_names)
    if len(msg.points) == 1:
        return PlanAnswer(start_ns, identity, None, _next_start(msg.points[0], start_ns), digest)
    if not 2 <= len(msg.points) <= 3:
        raise MessageRefusedError("wrong length", f"{len(msg.points)} points: expected 0 to 3")
    names = msg.joint_names
    times, knots = np.empty(len(msg.points)), np.empty((len(msg.points), 3, len(names)))
    for i, point in enumerate(msg.points):
        times[i] = (point.time_from_start.sec * _SECOND + point.time_from_start.nanosec) / 1e9
        for row, field in enumerate(("positions", "velocities", "accelerations")):
            values = getattr(point, field)
            if len(values) != len(names):
                raise MessageRefusedError("wrong length", f"point {i}: {len(values)} {field} for {len(names)} joints")
            knots[i, row] = np.array(values)[order]
    if not np.all(np.isfinite(knots)):
        raise MessageRefusedError("not finite", "a position, velocity or acceleration is not a finite number")
    try:
        with np.errstate(over="raise", invalid="raise"):
            trajectory = QuinticTrajectory(times, knots)
    except (PlanError, ParameterError, FloatingPointError) as error:
        raise MessageRefusedError("bad trajectory", str(error)) from None
    if not np.all(np.isfinite(trajectory.coefficients)):
        raise MessageRefusedError("not finite", "coefficients of the trajectory overflow")
    return PlanAnswer(start_ns, identity, trajectory, digest=digest, tube=tube)


def joint_order(names: Sequence[str], joint_names: Sequence[str]) -> list[int]:
    """Index of each joint of the model in a message with exactly these joints."""
    if len(names) != len(joint_names) or set(names) != set(joint_names):
        raise MessageRefusedError("wrong joints", f"{_some(names)}: expected {_some(joint_names)}, each once")
    return [list(names).index(joint) for joint in joint_names]


def _next_start(point: JointTrajectoryPoint, start_ns: int) -> int:
    """Start of the next plan, from a message with a single point."""
    after = point.time_from_start.sec * _SECOND + point.time_from_start.nanosec
    if any(len(getattr(point, field)) for field in ("positions", "velocities", "accelerations", "effort")):
        raise MessageRefusedError("wrong length", "1 point with numbers: expected 0, 2 or 3, or one without numbers")
    if not 0 < after <= _LONGEST_PAUSE:
        raise MessageRefusedError(
            "bad pause", f"{after} ns to the next plan: expected above 0, at most {_LONGEST_PAUSE}"
        )
    return start_ns + after


# -- bounds -----------------------------------------------------------------------------------------------------


def bounds_message(
    box: ParameterBox, nominal: FloatArray, batch: int | None = None, digest: str = "", contradicted: bool = False
) -> Float64MultiArray:
    """Rows lower, nominal, upper; labels of the two dimensions: ``epoch:seq``, and what is given of the rest."""
    msg = Float64MultiArray()
    size = box.size
    msg.layout.dim = [
        MultiArrayDimension(label=box.identity, size=3, stride=3 * size),
        MultiArrayDimension(label=_label(batch, digest, contradicted), size=size, stride=size),
    ]
    msg.data = np.concatenate([box.lower, nominal, box.upper]).tolist()
    return msg


def read_bounds(msg: Float64MultiArray, size: int) -> BoundsAnswer:
    """Convert a 3 x ``size`` message.

    Raises MessageRefusedError: layout or labels malformed, wrong size, not finite, not ``lower <= nominal <= upper``.
    """
    dim = msg.layout.dim
    if len(dim) != 2 or msg.layout.data_offset != 0:
        raise MessageRefusedError(
            "bad layout", f"{len(dim)} dimensions, offset {msg.layout.data_offset}: expected 2 and 0"
        )
    found = (dim[0].size, dim[1].size, dim[0].stride, dim[1].stride, len(msg.data))
    expected = (3, size, 3 * size, size, 3 * size)
    if found != expected:
        raise MessageRefusedError("bad layout", f"sizes, strides and length {found}: expected {expected}")
    epoch, seq = _identity(dim[0].label)
    batch, digest, contradicted = _read_label(dim[1].label)
    lower, nominal, upper = np.array(msg.data).reshape(3, size)
    if not np.all(np.isfinite(msg.data)):
        raise MessageRefusedError("not finite", f"bounds {dim[0].label} hold a number that is not finite")
    if not (np.all(lower <= nominal) and np.all(nominal <= upper)):
        p = int(np.flatnonzero(~((lower <= nominal) & (nominal <= upper)))[0])
        text = f"parameter {p}: {lower[p]!r}, {nominal[p]!r}, {upper[p]!r}: expected lower <= nominal <= upper"
        raise MessageRefusedError("bounds out of order", text)
    try:
        with np.errstate(over="raise", invalid="raise"):
            box = ParameterBox(lower, upper, epoch, seq)
    except (ParameterError, FloatingPointError) as error:
        raise MessageRefusedError("bad bounds", str(error)) from None
    return BoundsAnswer(box, frozen_array(nominal, (size,), "nominal"), batch, digest, contradicted)


def _label(batch: int | None, digest: str, contradicted: bool = False) -> str:
    parts = [] if batch is None else [f"batch:{batch}"]
    return ";".join(parts + ([f"digest:{digest}"] if digest else []) + ([_CONTRADICTED] if contradicted else []))


def _read_label(label: str) -> tuple[int | None, str, bool]:
    """Batch and digest of a label, each if stated; whether the bounds are contradicted."""
    before, parted, last = label.rpartition(";")
    contradicted = last == _CONTRADICTED and bool(before) == bool(parted)
    label = before if contradicted else label
    match = _LABEL.fullmatch(label)
    if match is None:
        raise MessageRefusedError("bad label", f"{label[:40]!r}: expected 'batch:m;digest:..', one of them, or nothing")
    return None if match[1] is None else int(match[1]), match[2] or "", contradicted


def _identity(text: str) -> tuple[int, int]:
    try:
        return parse_identity(text)
    except PlanError as error:
        raise MessageRefusedError("bad identity", str(error)) from None


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(str(name)[:40] for name in names[:12])
    return f"[{shown}{', ...' if len(names) > 12 else ''}]"
