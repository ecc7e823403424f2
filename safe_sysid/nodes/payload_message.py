"""The nominal payload as a message that other ROS programs understand."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import InertiaStamped
from numpy.typing import NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.nodes.messages import write_stamp
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import com_and_inertia, transform_inertial

__all__ = ["payload_message"]

FloatArray = NDArray[np.float64]


def payload_message(model: RobotModel, theta_e: FloatArray, stamp_ns: int) -> InertiaStamped | None:
    """The nominal last link with hand and payload, in the tool frame, inertia about its centre of mass."""
    rotation, position = model.flange
    theta = transform_inertial(rotation.T, -rotation.T @ position, theta_e)
    try:
        mass, com, inertia = com_and_inertia(theta)
    except ParameterError:
        return None
    msg = InertiaStamped()
    write_stamp(msg.header.stamp, stamp_ns)
    msg.header.frame_id = model.settings.tool_frame
    msg.inertia.m = mass
    msg.inertia.com.x, msg.inertia.com.y, msg.inertia.com.z = (float(x) for x in com)
    for i, j, name in (
        (0, 0, "ixx"),
        (0, 1, "ixy"),
        (0, 2, "ixz"),
        (1, 1, "iyy"),
        (1, 2, "iyz"),
        (2, 2, "izz"),
    ):
        setattr(msg.inertia, name, float(inertia[i, j]))
    return msg
