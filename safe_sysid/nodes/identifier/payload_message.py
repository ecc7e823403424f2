"""Payload messages in standard types: estimates and labelled intervals of payload and of last link with payload."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import InertiaStamped

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import estimate_text
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.nodes.common.messages.conversions import write_stamp
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, com_and_inertia, transform_inertial

__all__ = ["intervals_message", "last_link_message", "payload_message"]

#: kg; less is no body, whose centre could be told.
_NOTHING = 1e-9
#: Of intervals, of the width: rounded outward, so that what is read off is proved, too.
_DIGITS = 4


def payload_message(model: RobotModel, box: ParameterBox, theta_e: FloatArray, stamp_ns: int) -> InertiaStamped | None:
    """The payload alone, without hand and last link, in the frame of what carries it, inertia about its centre of mass.

    Raises ParameterError: an estimate that is not finite.

    Args:
        model: with the hand and the tool frame.
        theta_e: (10,) estimate of last link, hand and payload in the last joint's frame.

    Returns:
        All zero where the hand holds nothing: the message before must not stand for ever. None where no possible body
        was found inside the bounds: there is no estimate to tell.
    """
    alone = payload_bounds(model, box.payload_lower, theta_e, box.payload_upper)
    return _message(model, alone.nominal, stamp_ns) if alone.possible else None


def last_link_message(model: RobotModel, theta_e: FloatArray, stamp_ns: int) -> InertiaStamped:
    """Last link, hand and payload as one body, in the frame of what carries it, inertia about its centre of mass.

    ``model``: with the tool frame; ``theta_e``: (10,) estimate in the last joint's frame.
    """
    rotation, position = model.payload_frame
    return _message(model, transform_inertial(rotation.T, -rotation.T @ position, theta_e), stamp_ns)


def intervals_message(
    model: RobotModel, box: ParameterBox, theta_e: FloatArray, level: bytes, status: str, stamp_ns: int
) -> DiagnosticArray:
    """Ten labelled intervals of the payload alone, then of last link, hand and payload: for eyes and for programs.

    Raises ParameterError: an estimate that is not finite.

    Args:
        model: with the hand and the frame of what carries payloads.
        box: what is proved.
        theta_e: (10,) estimate in the last joint's frame, inside it.
        level: of DiagnosticStatus.
        status: what the bounds are worth, in words.
    """
    alone = payload_bounds(model, box.payload_lower, theta_e, box.payload_upper)
    msg = DiagnosticArray()
    write_stamp(msg.header.stamp, stamp_ns)
    msg.header.frame_id = model.payload_link
    for name, frame, lower, nominal, upper in (
        ("payload", model.payload_link, alone.lower, alone.nominal, alone.upper),
        ("last link with payload", model.joint_names[-1], box.payload_lower, theta_e, box.payload_upper),
    ):
        values = {"box": box.identity}
        if name == "payload" and not alone.possible:
            values["estimate"] = "none: no possible body was found inside the bounds"
        for key, unit, low, middle, high in zip(PAYLOAD_NAMES, PAYLOAD_UNITS, lower, nominal, upper, strict=True):
            least, estimate, most = estimate_text(low, middle, high, _DIGITS)
            values[key] = f"lower {least} nominal {estimate} upper {most} {unit}"
        pairs = [KeyValue(key=key, value=value) for key, value in values.items()]
        msg.status.append(
            DiagnosticStatus(level=level, name=name, message=status, hardware_id=f"frame of {frame}", values=pairs)
        )
    return msg


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
