"""Control: gain synthesis with its proved tracking bound, the robust law, and the state machine around it."""

from safe_sysid.control.controller import Controller, ControllerOutput, ControllerState
from safe_sysid.control.gains import ControllerGains, TrackingAssumptions, synthesise, tracking_margins
from safe_sysid.control.robust import RobustLaw

__all__ = [
    "Controller",
    "ControllerGains",
    "ControllerOutput",
    "ControllerState",
    "RobustLaw",
    "TrackingAssumptions",
    "synthesise",
    "tracking_margins",
]
