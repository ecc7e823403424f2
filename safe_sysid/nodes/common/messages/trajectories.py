"""Trajectory commands: what an arm's own trajectory controller takes (``JointTrajectory``), written and read.

A point's time is the header's stamp and its ``time_from_start``. In lock-step each measurement is answered, by a
message without points if nothing new is to be followed; drivers of real arms never get such a message.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from safe_sysid.control.trajectory import TrajectoryPoints
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import joint_order, stamp_to_ns, write_stamp
from safe_sysid.nodes.common.messages.time_base import TimeBase, to_ns

__all__ = ["TrajectoryReader", "TrajectoryWriter"]

_SECOND = 1_000_000_000
_FIELDS = ("positions", "velocities", "accelerations")
_MOST_POINTS, _LARGEST = 1000, 1e6


class TrajectoryWriter:
    """Writes trajectory commands; the stamp is that of the measurement which they answer."""

    def __init__(self, joint_names: Sequence[str], time_base: TimeBase) -> None:
        """``time_base``: of the points' times."""
        self._names, self._time = list(joint_names), time_base

    def fill(self, stamp_ns: int, points: TrajectoryPoints | None) -> JointTrajectory:
        """The message; without points if there are none."""
        message = JointTrajectory(joint_names=self._names)
        write_stamp(message.header.stamp, stamp_ns)
        if points is None:
            return message
        now = self._time.seconds(stamp_ns)
        for time, knot in zip(points.times.tolist(), points.knots, strict=True):
            after = to_ns(time - now)
            point = JointTrajectoryPoint(time_from_start=Duration(sec=after // _SECOND, nanosec=after % _SECOND))
            for field, values in zip(_FIELDS, knot, strict=True):
                setattr(point, field, values.tolist())
            message.points.append(point)
        return message


class TrajectoryReader:
    """Reads trajectory commands in the model's order of joints."""

    def __init__(self, joint_names: Sequence[str]) -> None:
        self._names = list(joint_names)

    def read(self, message: JointTrajectory, origin_ns: int = 0) -> tuple[int, TrajectoryPoints | None]:
        """Stamp that is answered, ns, and points on a clock that is 0 at ``origin_ns``; None: there are none.

        Raises:
            MessageRefusedError: other joints, wrong lengths, not finite, times that do not increase, an end in motion.
        """
        stamp = stamp_to_ns(message.header.stamp)
        count, order = len(message.points), joint_order(message.joint_names, self._names)
        if not count:
            return stamp, None
        if count > _MOST_POINTS:
            raise MessageRefusedError("wrong length", f"{count} points: expected at most {_MOST_POINTS}")
        times, knots = np.empty(count), np.empty((count, 3, len(order)))
        for k, point in enumerate(message.points):
            after = point.time_from_start
            times[k] = (stamp - origin_ns + after.sec * _SECOND + after.nanosec) / 1e9
            for row, field in enumerate(_FIELDS):
                values = getattr(point, field)
                if len(values) != len(order):
                    raise MessageRefusedError(
                        "wrong length", f"point {k}: {len(values)} {field}, expected {len(order)}"
                    )
                knots[k, row] = np.array(values)[order]
        if not np.all(np.abs(knots) <= _LARGEST):
            raise MessageRefusedError("not finite", f"a number that is not finite, or above {_LARGEST:g}")
        if np.any(np.diff(times) <= 0.0):
            raise MessageRefusedError("bad trajectory", "times from start: expected increasing ones")
        if np.any(knots[-1, 1:]):
            raise MessageRefusedError("bad trajectory", "last point: expected one at rest")
        return stamp, TrajectoryPoints(times, knots)
