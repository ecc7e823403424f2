"""Payload messages in standard types: the payload alone, and the last link with hand and payload."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import InertiaStamped
from numpy.typing import NDArray

from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.nodes.common.messages import write_stamp
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, com_and_inertia, transform_inertial

__all__ = ["last_link_message", "payload_message"]

FloatArray = NDArray[np.float64]
#: kg; less is no body, whose centre could be told.
_NOTHING = 1e-9


def payload_message(model: RobotModel, box: ParameterBox, theta_e: FloatArray, stamp_ns: int) -> InertiaStamped | None:
    """The payload alone, without hand and last link, in the frame of what carries it, inertia about its centre of mass.

    Args:
        model: with the hand and the tool frame.
        theta_e: (10,) estimate of last link, hand and payload in the last joint's frame.

    Returns:
        All zero where the hand holds nothing: the message before must not stand for ever. None where no possible body
        was found inside the bounds: there is no estimate to tell.

    Raises:
        ParameterError: an estimate that is not finite.
    """
    alone = payload_bounds(model, box.payload_lower, theta_e, box.payload_upper)
    return _message(model, alone.nominal, stamp_ns) if alone.possible else None


def last_link_message(model: RobotModel, theta_e: FloatArray, stamp_ns: int) -> InertiaStamped:
    """Last link, hand and payload as one body, in the frame of what carries it, inertia about its centre of mass.

    Args:
        model: with the tool frame.
        theta_e: (10,) estimate in the last joint's frame.
    """
    rotation, position = model.payload_frame
    return _message(model, transform_inertial(rotation.T, -rotation.T @ position, theta_e), stamp_ns)


def _message(model: RobotModel, theta: FloatArray, stamp_ns: int) -> InertiaStamped:
    msg = InertiaStamped()
    write_stamp(msg.header.stamp, stamp_ns)
    msg.header.frame_id = model.payload_link
    if not theta[0] > _NOTHING:
        return msg
    mass, com, inertia = com_and_inertia(theta)
    msg.inertia.m = mass
    msg.inertia.com.x, msg.inertia.com.y, msg.inertia.com.z = (float(x) for x in com)
    for i, j, name in ((0, 0, "ixx"), (0, 1, "ixy"), (0, 2, "ixz"), (1, 1, "iyy"), (1, 2, "iyz"), (2, 2, "izz")):
        setattr(msg.inertia, name, float(inertia[i, j]))
    return msg
