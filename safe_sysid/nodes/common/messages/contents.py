"""Contents of messages without ROS types: joint samples, plans and boxes as they were read, and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import MessageError
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["NOT_AWAITED", "BoundsAnswer", "JointSample", "MessageRefusedError", "PlanAnswer", "printable"]

#: Lock-step: frame_id of the states that a plant tells while it goes on alone; an answer is too late for most of them.
NOT_AWAITED = "not awaited"


class MessageRefusedError(MessageError):
    """A message that is not used. ``reason`` is a short key for counting, the text says what was found and expected."""

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        super().__init__(printable(f"{reason}: {text}"))


def printable(text: str, longest: int = 2000) -> str:
    r"""Foreign text made safe for a terminal: control characters become ``\x1b`` and the like.

    ``longest``: letters that are kept.
    """
    if len(text) > longest:
        text = text[:longest] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class JointSample(NamedTuple):
    """One JointState in the model's joint order; ``effort`` is None where it was not asked for.

    Not :class:`~safe_sysid.identification.equations.measurements.Sample`: the stamp is that of the message to the ns
    (a double of seconds since 1970 resolves 0.2 us), and ``frame_id`` tells whose box or run it is of.
    """

    stamp_ns: int
    q: FloatArray
    qd: FloatArray
    effort: FloatArray | None
    frame_id: str


@dataclass(frozen=True, eq=False)
class PlanAnswer:
    """Answer of a planner for one hand-over."""

    start_ns: int
    box_identity: str  #: ``epoch:seq`` of the box that the plan is certified for
    trajectory: QuinticTrajectory | None  #: None: there is no certified plan, brake
    #: without a trajectory: when the next one will begin, and be waited for in lock-step; None: none will
    next_ns: int | None = None
    #: of the planner's configuration and scene (:mod:`safe_sysid.nodes.common.digest`); "" if not said
    digest: str = ""
    tube: int = 0  #: the tracking tube that the plan is certified for

    def plan(self, start_time: float, t_plan: float, sequence: int) -> Plan:
        """The plan on a node's own clock; a trajectory shorter than ``t_plan`` (s) is handed over at its end."""
        if self.trajectory is None:
            raise MessageError(f"no plan for the hand-over at {self.start_ns} ns: expected one with points")
        t_plan = min(t_plan, self.trajectory.duration)
        k = np.zeros(self.trajectory.n)
        return Plan(self.trajectory, start_time, t_plan, self.box_identity, sequence, k, self.tube)


@dataclass(frozen=True, eq=False)
class BoundsAnswer:
    """A box, with its batch and digest."""

    box: ParameterBox
    nominal: FloatArray  #: (P,) in it
    batch: int | None  #: number of the identifier's; None if not said
    digest: str = ""  #: of the sender's configuration (:mod:`safe_sysid.nodes.common.digest`); "" if not said
    contradicted: bool = False  #: no parameters fit what was measured: an assumption is false
