"""Goals of a task motion from topics: joint waypoints or a pose of the tool; used whole or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.core.arrays import FloatArray
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import joint_order
from safe_sysid.robot.model import RobotModel

__all__ = ["Goal", "known_frames", "read_goal_joints", "read_goal_pose"]

MAX_WAYPOINTS = 100
#: A quaternion's length may differ so much from 1.
_UNIT = 1e-3
#: No arm reaches further, m.
_FAR = 100.0


@dataclass(frozen=True, eq=False)
class Goal:
    """Where to go."""

    text: str
    waypoints: FloatArray | None = None  #: (K, n) rad, to be visited in order; None for a pose
    #: position (3,) in m and rotation (3, 3) of the tool frame in the world; None for waypoints
    pose: tuple[FloatArray, FloatArray] | None = None


def known_frames(model: RobotModel) -> tuple[str, ...]:
    """Names of the frame that everything is given in: the world, and the arm's root where that stands in its origin."""
    base, place = model.settings.base_link, model.settings.mounting
    # With a tip_link the base link may be any, and stand anywhere.
    elsewhere = model.settings.tip_link is not None or (place is not None and any((*place.xyz, *place.rpy)))
    return ("world",) if base is None or base == "world" or elsewhere else ("world", base)


def check_frame(frame: str, model: RobotModel) -> None:
    """Refuse any other frame: nobody here transforms.

    Raises:
        MessageRefusedError: another frame, or none.
    """
    known = known_frames(model)
    if frame not in known:
        raise MessageRefusedError("unknown frame", f"frame_id = {frame[:40]!r}: expected {' or '.join(known)}")


def read_goal_joints(msg: JointTrajectory, model: RobotModel) -> Goal:
    """Convert; only positions are used, the arm rests in the last point.

    Raises:
        MessageRefusedError: other joints, no or too many points, not finite, outside the limits, with velocities or
            accelerations that are not zero.
    """
    order = joint_order(msg.joint_names, model.joint_names)
    if not 1 <= len(msg.points) <= MAX_WAYPOINTS:
        raise MessageRefusedError("wrong length", f"{len(msg.points)} points: expected 1 to {MAX_WAYPOINTS}")
    waypoints = np.empty((len(msg.points), model.n))
    for i, point in enumerate(msg.points):
        if len(point.positions) != model.n:
            raise MessageRefusedError(
                "wrong length", f"point {i}: {len(point.positions)} positions: expected {model.n}"
            )
        waypoints[i] = np.array(point.positions)[order]
        for field in ("velocities", "accelerations"):
            values = np.array(getattr(point, field))
            if np.any(values != 0.0):  # NaN included
                raise MessageRefusedError(
                    "in motion", f"point {i}: {field} {values.tolist()}: expected none, or zeros: the arm chooses"
                )
    low, high = model.limits.position_lower, model.limits.position_upper
    bad = ~(np.isfinite(waypoints) & (waypoints > low) & (waypoints < high))
    if np.any(bad):
        i, j = (int(x) for x in np.argwhere(bad)[0])
        reason = "not finite" if not np.isfinite(waypoints[i, j]) else "outside the limits"
        raise MessageRefusedError(
            reason,
            f"point {i}: position of {model.joint_names[j]} is {waypoints[i, j]}: expected a number inside "
            f"({low[j]:.4f}, {high[j]:.4f}) rad",
        )
    waypoints.setflags(write=False)
    return Goal(f"{len(waypoints)} waypoint{'s' if len(waypoints) > 1 else ''}", waypoints=waypoints)


def read_goal_pose(msg: PoseStamped, model: RobotModel) -> Goal:
    """Convert.

    Raises:
        MessageRefusedError: another frame, a number that is not finite or absurd, a quaternion that is none.
    """
    check_frame(msg.header.frame_id, model)
    pose = read_pose(msg.pose, "pose")
    return Goal("pose (" + " ".join(f"{x:.3f}" for x in pose[0]) + ") m", pose=pose)


def read_pose(pose: Any, name: str) -> tuple[FloatArray, FloatArray]:
    """Position (3,) and rotation (3, 3) of a Pose message.

    Raises:
        MessageRefusedError: not finite, absurdly far away, or not a rotation.
    """
    p, o = pose.position, pose.orientation
    position, quaternion = np.array([p.x, p.y, p.z]), np.array([o.x, o.y, o.z, o.w])
    if not np.all(np.isfinite(position)) or not np.all(np.isfinite(quaternion)):
        raise MessageRefusedError("not finite", f"{name}: {position.tolist()}, {quaternion.tolist()}: expected numbers")
    if np.max(np.abs(position)) > _FAR:
        raise MessageRefusedError("far away", f"{name}: {position.tolist()} m: expected at most {_FAR:g} m")
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(quaternion))
    if abs(length - 1.0) > _UNIT:
        raise MessageRefusedError(
            "not a rotation", f"{name}: quaternion {quaternion.tolist()} of length {length:g}: expected length 1"
        )
    position.setflags(write=False)
    rotation = _rotation(quaternion / length)
    rotation.setflags(write=False)
    return position, rotation


def _rotation(quaternion: FloatArray) -> FloatArray:
    """Rotation (3, 3) of a unit quaternion x, y, z, w."""
    x, y, z, w = quaternion
    return np.array(
        [
            [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)],
            [2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)],
            [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)],
        ]
    )
