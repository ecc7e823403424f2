"""Timing policies of the controller: what differs between lock-step and real time. They call no ROS.

Lock-step: the simulated arm waits for each command, so every state gets an answer, if only an empty one, and a tick may
wait for a plan or a box. Real time: stamps are compared with the clock, and nothing waits.
"""

from __future__ import annotations

from typing import Protocol

from safe_sysid.nodes.common.messages.contents import NOT_AWAITED, JointSample, MessageRefusedError
from safe_sysid.nodes.controller.pending_answers import PendingAnswers

__all__ = ["ControlTiming", "LockstepControlTiming", "RealTimeControlTiming"]


class ControlTiming(Protocol):
    """What a mode decides for the controller. ``lockstep``: whether simulated time waits for commands."""

    lockstep: bool
    pending: PendingAnswers

    def is_repeated(self, sample: JointSample, last_ns: int) -> bool:
        """Whether the arm asks again for the answer to its last state."""

    def check_age(self, sample: JointSample, now_ns: int) -> None:
        """Raise MessageRefusedError if a measurement is too old, or from the future."""

    def awaits_command(self, sample: JointSample) -> bool:
        """Whether a command for this state can still act."""

    def why_silent(self, silence: float) -> str:
        """Why control may not begin after so many seconds without a measurement; "" if it may."""


class LockstepControlTiming:
    """Simulated time waits."""

    lockstep = True

    def __init__(self, times: tuple[int, ...], await_plans: bool, await_bounds: bool, ahead: int = 0) -> None:
        """``times`` and ``ahead`` as for :class:`PendingAnswers`; whether ticks wait for plans, and for boxes."""
        self.pending = PendingAnswers(times, await_plans, await_bounds, ahead)

    def is_repeated(self, sample: JointSample, last_ns: int) -> bool:
        """It repeats a state until it hears the answer."""
        return sample.stamp_ns == last_ns

    def check_age(self, sample: JointSample, now_ns: int) -> None:
        """A state has no age."""

    def awaits_command(self, sample: JointSample) -> bool:
        """Not if the plant goes on alone: then it is ahead of what it publishes."""
        return sample.frame_id != NOT_AWAITED

    def why_silent(self, silence: float) -> str:
        """Time stands still meanwhile."""
        return ""


class RealTimeControlTiming:
    """Measurements come at their own pace."""

    lockstep = False

    def __init__(self, times: tuple[int, ...], max_age: float) -> None:
        """``max_age`` (s) of a measurement that is used; nothing is awaited."""
        self.pending, self._max_age = PendingAnswers(times, False, False), max_age

    def is_repeated(self, sample: JointSample, last_ns: int) -> bool:
        """A stamp that comes twice is not newer."""
        return False

    def check_age(self, sample: JointSample, now_ns: int) -> None:
        """At most ``max_age``, in either direction."""
        age, longest = 1e-9 * (now_ns - sample.stamp_ns), self._max_age
        if not -longest <= age <= longest:
            text = f"measured {age:.3f} s ago: expected at most {longest:g} s (are all clocks the same?)"
            raise MessageRefusedError("stale" if age > 0.0 else "from the future", text)

    def awaits_command(self, sample: JointSample) -> bool:
        """Always."""
        return True

    def why_silent(self, silence: float) -> str:
        """After ``max_age`` without a measurement."""
        return f"no measurement for {silence:.3f} s: expected joint_states to go on" if silence > self._max_age else ""
