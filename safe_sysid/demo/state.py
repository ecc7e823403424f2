"""State of a run as seen on its topics. No ROS."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.config import Settings

__all__ = ["BoxSeen", "NodeStatus", "PlanSeen", "RunState"]

_SETTLE = 10.0  # s, how long after it is due the last update is waited for in real time: it may be behind
#: So often a start may be refused: the controller tries every half second of its own time, so for 5 s.
_STARTS = 10


@dataclass(frozen=True, eq=False)
class BoxSeen:
    """A published box of theta_e, (10,) each; ``time`` in s when it was seen, ``batch`` None if not said."""

    time: float
    identity: str
    batch: int | None
    lower: FloatArray
    nominal: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class PlanSeen:
    """A published plan: start and end, s on the plant's clock; ``end`` None: there is none for that hand-over."""

    start: float
    end: float | None
    box: str


@dataclass(frozen=True)
class NodeStatus:
    """Latest diagnostics of a node."""

    level: int
    text: str
    values: dict[str, str]


@dataclass
class RunState:
    """Everything that progress and the end of the run are decided by."""

    settings: Settings
    plans_wanted: int  #: number of trajectories
    time: float = 0.0  #: latest time that was seen, s on the plant's clock
    nodes: dict[str, NodeStatus] = field(default_factory=dict)
    boxes: list[BoxSeen] = field(default_factory=list)  #: published boxes, each identity once per batch
    plans: list[PlanSeen] = field(default_factory=list)

    def value(self, node: str, key: str) -> str:
        """A value of a node's diagnostics, empty if it was not told."""
        status = self.nodes.get(node)
        return "" if status is None else status.values.get(key, "")

    @property
    def phase(self) -> str:
        """What the controller does now, in a word."""
        return self.value("controller", "state") or "starting"

    @property
    def start_refused(self) -> str:
        """Why the arm will not start; "" as long as it may: the controller tries again and again, for ever."""
        tried = self.value("controller", "refused start: refused")
        if self.phase != "idle" or not tried.isdigit() or int(tried) < _STARTS:
            return ""
        return self.nodes["controller"].text.removeprefix("idle: ")

    @property
    def trajectories(self) -> list[PlanSeen]:
        """Plans with a trajectory."""
        return [plan for plan in self.plans if plan.end is not None]

    @property
    def planning_is_over(self) -> bool:
        """Whether no further trajectory will come: as the planner says, else as its plans look."""
        phase = self.value("planner", "phase")
        if phase:
            return phase == "over"
        return len(self.trajectories) >= self.plans_wanted or (bool(self.plans) and self.plans[-1].end is None)

    @property
    def motion_end(self) -> float | None:
        """When the arm comes to rest, s; None while that is open."""
        if not self.planning_is_over:
            return None
        ends = [plan.end for plan in self.trajectories if plan.end is not None]
        return max(ends, default=self.plans[-1].start if self.plans else 0.0)

    @property
    def at_rest(self) -> bool:
        """Whether the arm holds again after all trajectories."""
        end = self.motion_end
        return end is not None and self.time >= end and self.phase == "holding"

    @property
    def warnings(self) -> list[str]:
        """What was not as it should be, but broke nothing: for the end of the report."""
        found = []
        if self.planning_is_over and len(self.trajectories) < self.plans_wanted:
            text = self.nodes["planner"].text if "planner" in self.nodes else "the planner said nothing"
            found.append(f"planner: {len(self.trajectories)} of {self.plans_wanted} trajectories ({text})")
        for name, status in sorted(self.nodes.items()):
            for key, value in status.values.items():
                kind, _, what = key.partition(" ")
                if kind in ("refused", "count:"):
                    found.append(f"{name}: {what}: {value} times")
        return found

    def finished(self, lockstep: bool) -> bool:
        """Whether the run is over: at rest, and the bounds from all of the motion are there."""
        end = self.motion_end
        if end is None or not self.at_rest:
            return False
        update, take_after = self.settings.identification.update_s, self.settings.identification.take_after_s
        last_batch = math.ceil(end / update - 1e-9)
        # A batch ends when its number says, or later: bounds that come after the motion may be of data before it.
        seen = max((box.batch for box in self.boxes if box.batch is not None), default=-1)
        if lockstep:
            return seen >= last_batch or self.time >= last_batch * update + take_after + 0.1
        return seen >= last_batch or self.time >= end + update + _SETTLE
