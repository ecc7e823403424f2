"""States of the controller, and the output of one of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["COMMAND_TOPICS", "ControllerOutput", "ControllerState", "longest_braking"]


#: By ``controller.interface``: where torques, or trajectories, go to the arm.
COMMAND_TOPICS = {"torque": "effort_command", "trajectory": "trajectory_command"}


class ControllerState(Enum):
    """What the controller does now."""

    IDLE = "idle"
    HOLDING = "holding"
    TRACKING = "tracking"
    BRAKING = "braking"
    FAULT = "fault"

    @property
    def commands(self) -> bool:
        """Whether torque is commanded; otherwise the arm's own brakes hold."""
        return self not in (ControllerState.IDLE, ControllerState.FAULT)


def longest_braking(rest: float, lockstep: bool) -> float:
    """For so long, on the wall clock, a process that was asked to end may go on to bring the arm to rest, s.

    Args:
        rest: of the plan under way, s; at most ``planner.t_f``.
        lockstep: simulated time, which may pass slowly on a busy machine.
    """
    return (5.0 if lockstep else 1.0) * rest + 1.0


@dataclass
class ControllerOutput:
    """Result of one step; arrays are reused by the next step."""

    torque: FloatArray | None  #: (n,) N m, or None: command nothing, the arm's own brakes hold
    reference: FloatArray  #: (4, n) desired position .. jerk.
    energy: float = 0.0  #: lower bound of V from the measurement, J; above V_max an assumption is false
    announce: ParameterBox | None = None  #: the box to announce as ``bounds_active`` (after a blend), else None

    @property
    def commanding(self) -> bool:
        """Whether the arm is under control after this step."""
        return self.torque is not None

    @property
    def command(self) -> FloatArray | None:
        """What goes to the arm: the torque (n,), N m; None: nothing."""
        return self.torque
