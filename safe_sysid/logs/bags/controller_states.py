"""Desired and measured motion of a trajectory controller, from a bag of its state topic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.logs.bags.rosbag import open_bag
from safe_sysid.logs.log import LogError

__all__ = ["CONTROLLER_STATE", "read_controller_states"]

CONTROLLER_STATE = "control_msgs/msg/JointTrajectoryControllerState"
#: As Jazzy defines it, for bags that do not carry definitions; others are read by their own.
_JAZZY = """std_msgs/Header header
string[] joint_names
trajectory_msgs/JointTrajectoryPoint reference
trajectory_msgs/JointTrajectoryPoint feedback
trajectory_msgs/JointTrajectoryPoint error
trajectory_msgs/JointTrajectoryPoint output
string[] multi_dof_joint_names
trajectory_msgs/MultiDOFJointTrajectoryPoint multi_dof_reference
trajectory_msgs/MultiDOFJointTrajectoryPoint multi_dof_feedback
trajectory_msgs/MultiDOFJointTrajectoryPoint multi_dof_error
trajectory_msgs/MultiDOFJointTrajectoryPoint multi_dof_output
float64 speed_scaling_factor
"""
_MAX_SAMPLES = 20_000_000


def read_controller_states(
    path: str | Path, joint_names: Sequence[str], topic: str | None = None
) -> tuple[FloatArray, FloatArray]:
    """Read a bag's ``~/controller_state`` of joint_trajectory_controller.

    Args:
        joint_names: n names of the robot's joints; others in the messages are ignored.
        topic: to read; None for the only one of this type.

    Returns:
        Stamps (N,) of the headers, s after the first full second, and (N, 4, n) measured position and velocity, desired
        position and velocity, rad and rad/s.

    Raises:
        LogError: no such topic, joints, positions or velocities missing, a trajectory that ran at another speed than it
            was planned for, or a message that is broken.
    """
    path, joints = Path(path), tuple(joint_names)
    with open_bag(path) as reader:
        name, store, connections = _topic(path, reader, topic)
        stamps: list[int] = []
        rows: list[list[Any]] = []
        for _, _, raw in reader.messages(connections=connections):
            message = store.deserialize_cdr(raw, CONTROLLER_STATE)
            stamps.append(message.header.stamp.sec * 10**9 + message.header.stamp.nanosec)
            rows.append(_numbers(f"{path}: message {len(stamps)} of {name}", message, joints))
            if len(stamps) > _MAX_SAMPLES:
                raise LogError(f"{path}: more than {_MAX_SAMPLES} messages: expected a shorter log")
    if not stamps:
        raise LogError(f"{path}: {name} has no messages: expected {', '.join(joints)}")
    return (np.array(stamps) - stamps[0] // 10**9 * 10**9) / 1e9, np.array(rows, dtype=float)


def _topic(path: Path, reader: Any, topic: str | None) -> tuple[str, Any, list[Any]]:
    """Name of the topic, the types that its messages are made of, and where they are."""
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    connections = [c for c in reader.connections if c.msgtype == CONTROLLER_STATE]
    found = sorted({c.topic for c in connections})
    chosen = found[0] if topic is None and len(found) == 1 else topic
    if chosen is None or chosen not in found:
        others = ", ".join(sorted({f"{c.topic} ({c.msgtype})" for c in reader.connections})[:20])
        asked = "--topic with" if len(found) > 1 else "one topic of"
        told = f"topic {topic!r}" if topic else f"{len(found)} topics"
        raise LogError(
            f"{path}: {told} of type {CONTROLLER_STATE}: expected {asked} this type, as joint_trajectory_controller's "
            f"~/controller_state: {', '.join(found) or 'none'}; the bag has {others or 'no topics'}"
        )
    kept = [c for c in connections if c.topic == chosen]
    definition = getattr(kept[0].msgdef, "data", "") or _JAZZY
    store = get_typestore(Stores.ROS2_JAZZY)
    types = get_types_from_msg(definition, CONTROLLER_STATE)
    store.register({key: value for key, value in types.items() if key not in store.types})
    return chosen, store, kept


def _numbers(where: str, message: Any, joints: tuple[str, ...]) -> list[Any]:
    """Measured position and velocity, desired position and velocity, each n, by name; finite."""
    scaling = float(getattr(message, "speed_scaling_factor", 1.0))
    # 0: a controller that fills in nothing.
    if scaling not in (0.0, 1.0):
        raise LogError(
            f"{where}: speed_scaling_factor = {scaling:g}: expected 1, for at another speed the desired motion is not "
            "the one that was sent"
        )
    names = list(message.joint_names)
    if missing := [joint for joint in joints if names.count(joint) != 1]:
        raise LogError(f"{where}: joint_names = {names}: expected {missing[0]} once")
    places, out = [names.index(joint) for joint in joints], []
    old = not hasattr(message, "feedback")
    for part in ("actual", "desired") if old else ("feedback", "reference"):
        point = getattr(message, part)
        for word in ("positions", "velocities"):
            values = np.asarray(getattr(point, word), dtype=float)
            if len(values) != len(names) or not np.all(np.isfinite(values)):
                raise LogError(f"{where}: {part}.{word} = {values.tolist()}: expected {len(names)} finite numbers")
            out.append(values[places])
    return out
