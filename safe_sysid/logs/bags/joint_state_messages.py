"""Serialised sensor_msgs/JointState messages to stamps and numbers, by the `rosbags` library."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.logs.log import LogError

__all__ = ["JOINT_STATE", "JointStateDecoder"]

JOINT_STATE = "sensor_msgs/msg/JointState"


class JointStateDecoder:
    """Messages in, samples out.

    Attributes:
        lacking: of them without all the joints: of another part of the machine, a gripper, a base.
    """

    def __init__(
        self, where: str, topic: str, store: Any, joint_names: Sequence[str], may_lack_velocity: bool = False
    ) -> None:
        """Start with none.

        Args:
            joint_names: n names that are wanted, in their order.
            may_lack_velocity: whether messages without velocities will do; they are nan then.
        """
        self._may_lack_velocity = may_lack_velocity
        self._where, self._topic, self._store, self._joints = where, topic, store, tuple(joint_names)
        self._stamps, self._values = array("q"), array("d")
        self.seen, self.lacking = 0, 0

    def add(self, raw: bytes) -> None:
        """One more message.

        Raises:
            LogError: it is broken.
        """
        self.seen += 1
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
        counts = {"position": len(message.position), "velocity": len(message.velocity), "effort": len(message.effort)}
        velocity = message.velocity
        if self._may_lack_velocity and not len(velocity):
            counts.pop("velocity")
            velocity = np.full(len(names), np.nan)
        for what, count in counts.items():
            if count != len(names):
                raise LogError(
                    f"{self._where}: message {self.seen} of {self._topic} has {count} numbers in {what}: expected "
                    f"{len(names)}, one per name"
                )
        index = [names.index(joint) for joint in self._joints]
        rows = np.array([message.position, velocity, message.effort], float)
        self._stamps.append(message.header.stamp.sec * 10**9 + message.header.stamp.nanosec)
        self._values.frombytes(rows[:, index].tobytes())

    def take(self) -> tuple[IntArray, FloatArray]:
        """All samples since the last call, in order of arrival.

        Returns stamps (L,) in ns; numbers (L, 3, n): positions, velocities, efforts.
        """
        stamps, values = self._stamps, self._values
        self._stamps, self._values = array("q"), array("d")
        return np.array(stamps, np.int64), np.array(values).reshape(-1, 3, len(self._joints))
