"""Control: gain synthesis with its proved tracking bound, the robust law, and the state machine around it."""

from safe_sysid.control.controller import Controller, ControllerOutput, ControllerState
from safe_sysid.control.demands import MotionDemands, demands_of
from safe_sysid.control.design import design_gains, gains_for_motion
from safe_sysid.control.gains import ControllerGains, TrackingAssumptions, tracking_margins
from safe_sysid.control.law import ControlLaw, ModelInUse, Proves
from safe_sysid.control.robust import RobustLaw
from safe_sysid.control.synthesis import synthesise

__all__ = [
    "ControlLaw",
    "Controller",
    "ControllerGains",
    "ControllerOutput",
    "ControllerState",
    "ModelInUse",
    "MotionDemands",
    "Proves",
    "RobustLaw",
    "TrackingAssumptions",
    "demands_of",
    "design_gains",
    "gains_for_motion",
    "synthesise",
    "tracking_margins",
]
