"""Planner node: plans the next trajectory while the controller tracks the last one, in time for the hand-over."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from safe_sysid.control.design import design_gains
from safe_sysid.nodes import messages
from safe_sysid.nodes.base import HISTORY, LATCHED, OK, STREAM, WARN, BaseNode
from safe_sysid.nodes.markers import path_markers, scene_markers
from safe_sysid.nodes.messages import JointSample
from safe_sysid.nodes.parameters import declare, number
from safe_sysid.nodes.spin import Worker, run_node
from safe_sysid.nodes.time_base import TimeBase, to_ns
from safe_sysid.planning.optimise import Budget
from safe_sysid.planning.planner import (
    Calibration,
    Planner,
    PlannerOptions,
    PlannerResult,
    bounds_stopped_improving,
    hand_over_state,
)
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["PlannerNode", "main"]

#: Real time: what is left of the time to the hand-over when planning must be done, s; more where it once took longer.
_RESERVE = 0.25
#: Reference and plan are the same motion if positions agree to this, rad; looked at this long after the hand-over, ns.
_SAME, _SETTLED = 1e-7, 50_000_000
#: Real time: so many failures to plan in a run.
_ATTEMPTS = 4


class _Offer(NamedTuple):
    """A plan that was published, and its first instant."""

    plan: Plan
    start_ns: int
    information: np.ndarray


class PlannerNode(BaseNode):
    """One plan after another; the controller's reference says when it is time for the next."""

    def __init__(self) -> None:
        super().__init__("planner")
        settings = self.model.settings.planner
        self._left = number(self, "plans", settings.plans, "number of trajectories of one run", 1)
        self._running = declare(self, "autostart", True, "plan as soon as the arm holds still")
        self._first = to_ns(number(self, "first_plan_time", settings.t_p, "lock-step: first hand-over, s"))
        cost = declare(self, "cost", PlannerOptions().cost, "what makes a trajectory good")
        self._plans, self._t_p = self._left, to_ns(settings.t_p)
        scene = self.options.load_scene(self.model)
        gains = design_gains(self.model, self.options.lockstep)
        self._core = Planner(
            self.model, scene, gains, options=PlannerOptions(cost=cost), seed=self.options.seed
        )
        self._warm_up()
        self._time = TimeBase(self.options.lockstep)
        self._reader = messages.JointReader(self.model.joint_names, with_effort=False)
        self._boxes: dict[str, ParameterBox] = {}
        self._trigger: JointSample | None = None
        self._hopeless, self._attempts = "", _ATTEMPTS  # box that no plan was found for
        self._offered: _Offer | None = None  # the last one; set by the worker, in one go
        self._sequence, self._reserve = 0, _RESERVE
        self._information = np.zeros((10, 10))
        self._calibration: Calibration | None = None
        self._text = "waiting for the controller"
        self._answers: list[dict[str, Any]] = []
        self._worker = Worker(self._failed)
        self._publisher = self.create_publisher(JointTrajectory, "plan", LATCHED)
        self._markers = self.create_publisher(MarkerArray, "markers", LATCHED)
        self._markers.publish(scene_markers(scene))
        self.listen(Float64MultiArray, "bounds_active", self._on_active, LATCHED)
        self.listen(JointState, "reference", self._on_reference, HISTORY if self.options.lockstep else STREAM)
        self.serve("start", self._serve_start)
        self.serve("stop", self._serve_stop)

    def _warm_up(self) -> None:
        """Compile (or load) the kernels with a plan that nobody gets."""
        rest = np.zeros((3, self.model.n))
        rest[0] = self.model.settings.home
        self._core.plan_next(rest, 0.0, self.model.arm_prior, 0, budget=Budget(1, 1))

    # -- inputs -------------------------------------------------------------------------------------------------

    def _on_active(self, msg: Float64MultiArray) -> None:
        box = messages.read_bounds(msg, self.model.arm_prior.size).box
        self._boxes[box.identity] = box
        self._consider()

    def _on_reference(self, msg: JointState) -> None:
        sample = self._reader.read(msg)
        self._time.seconds(sample.stamp_ns)
        if not self._running or self._lost(sample):
            return
        if self._trigger is None and not self._worker.busy and self._is_time(sample):
            self._trigger = sample
        self._consider()

    def _is_time(self, sample: JointSample) -> bool:
        """At rest for the first plan; at the hand-over to the last plan for the next one."""
        if self._offered is None:
            return not np.any(sample.qd) and sample.frame_id != self._hopeless
        return sample.stamp_ns >= self._offered.start_ns

    def _lost(self, sample: JointSample) -> bool:
        """Whether the arm does not do what was planned; then there is nothing to plan from until it is at rest."""
        offered = self._offered
        if offered is None or not _SETTLED <= sample.stamp_ns - offered.start_ns <= self._t_p:
            return False
        there = offered.plan.trajectory.state((sample.stamp_ns - offered.start_ns) / 1e9)[0]
        if np.max(np.abs(there - sample.q)) <= _SAME:
            return False
        self._text = f"the controller does not follow plan {offered.plan.sequence}"
        self.refuse("reference", "not followed", self._text)
        self._offered, self._trigger, self._left = None, None, self._left + 1
        self._attempts = 0 if self.options.lockstep else self._attempts - 1
        self._running = self._attempts > 0
        return True

    def _consider(self) -> None:
        """Begin to plan if it is time and the box in force is known."""
        trigger = self._trigger
        if trigger is None or trigger.frame_id not in self._boxes:
            return
        self._trigger, previous = None, self._offered
        if previous is None:
            state = np.stack([trigger.q, np.zeros_like(trigger.q), np.zeros_like(trigger.q)])
            planned = self.options.lockstep and trigger.stamp_ns < self._first
            start = self._first if planned else trigger.stamp_ns + self._t_p
        else:
            state, start = hand_over_state(previous.plan), previous.start_ns + self._t_p
            self._information = self._information + previous.information
        if self._left == 0 or self._nothing_gained(trigger.frame_id):
            self._finish(start, trigger.frame_id)
            return
        deadline = None
        if not self.options.lockstep:
            deadline = time.monotonic() + 1e-9 * (start - trigger.stamp_ns) - self._reserve
        self._left -= 1
        box = self._boxes[trigger.frame_id]
        under_way = None if previous is None else previous.plan
        self._worker.submit(partial(self._plan, state, start, box, under_way, deadline))

    def _nothing_gained(self, identity: str) -> bool:
        """Whether the last boxes up to the one in force hardly shrank: more of the same motion teaches nothing."""
        active = self._boxes[identity]
        history = [box for box in self._boxes.values() if box.epoch == active.epoch and box.seq <= active.seq]
        return bounds_stopped_improving(sorted(history, key=lambda box: box.seq))

    def _finish(self, start: int, identity: str) -> None:
        """No further trajectory is wanted: the controller brakes along the last one."""
        self._running, self._text = False, f"finished after {self._sequence} plans"
        self._publisher.publish(messages.empty_plan_message(start, identity, self.model.joint_names))
        self.say(self._text)

    # -- in the worker ------------------------------------------------------------------------------------------

    def _plan(
        self, state: np.ndarray, start: int, box: ParameterBox, previous: Plan | None, deadline: float | None
    ) -> None:
        self._text = f"planning {self._sequence} for {self._time.seconds(start):.3f} s"
        result = self._core.plan_next(
            state,
            self._time.seconds(start),
            box,
            self._sequence,
            previous,
            self._information,
            self._core.budget(deadline, self._worker.cancelled),
            last=self._left == 0,
            calibration=self._calibration,
        )
        if self._worker.cancelled():
            return
        if deadline is not None:
            self._reserve = max(self._reserve, min(time.monotonic() - deadline, 0.5) + _RESERVE)
        self._answers.append(_record(result, self._sequence, start, box))
        if result.plan is None:
            self._no_plan(start, box, "; ".join((result.status.value, *result.reasons)))
            return
        self._calibration = result.calibration
        self._offered, self._sequence = _Offer(result.plan, start, result.information), self._sequence + 1
        self._publisher.publish(messages.plan_message(result.plan, self.model.joint_names, start))
        self._markers.publish(path_markers(self.model, result.plan))
        self._text = f"plan {result.plan.sequence} in {result.wall_time:.2f} s, cost {result.cost:.4g}"
        self.say(f"{self._text}: {self._answers[-1]['summary']}")

    def _no_plan(self, start: int, box: ParameterBox, reason: str) -> None:
        self._publisher.publish(messages.empty_plan_message(start, box.identity, self.model.joint_names))
        self._text = f"no plan for {self._time.seconds(start):.3f} s: {reason}"
        self.get_logger().warning(self._text)
        # Once at rest, with a smaller box, it may work; in lock-step nobody waits for that.
        self._offered, self._hopeless, self._left = None, box.identity, self._left + 1
        self._attempts = 0 if self.options.lockstep else self._attempts - 1
        self._running = self._attempts > 0

    def _failed(self, text: str) -> None:
        self.refuse("planning", "failed", text)
        self._running = False

    # -- telling ------------------------------------------------------------------------------------------------

    def _serve_start(self) -> str | None:
        if self._running:
            return "planning already"
        self._running, self._left, self._offered, self._trigger = True, self._plans, None, None
        self._hopeless, self._attempts = "", _ATTEMPTS
        self._information, self._calibration = np.zeros((10, 10)), None
        return None

    def _serve_stop(self) -> str | None:
        self._running = False
        return None

    def status(self) -> tuple[bytes, str, dict[str, object]]:
        """What is planned, and how the last attempts ended."""
        values: dict[str, object] = {"plans": self._sequence, "left": self._left, "busy": self._worker.busy}
        for answer in self._answers[-3:]:
            values[f"plan {answer['sequence']}"] = f"{answer['status']}; {answer['summary']}"
        refused = bool(self._answers) and "knots" not in self._answers[-1]
        return WARN if refused else OK, self._text, values

    def close(self) -> None:
        """Write ``planner.json``."""
        self._worker.stop()
        if self.options.run_dir is not None:
            record = {"plans": self._answers, "refused": dict(self.refusals)}
            (self.options.run_dir / "planner.json").write_text(json.dumps(record, indent=1))


def _record(result: PlannerResult, sequence: int, start: int, box: ParameterBox) -> dict[str, Any]:
    """One entry of ``planner.json``."""
    plan, certificate = result.plan, result.certificate
    entry: dict[str, Any] = {
        "sequence": sequence, "status": result.status.value, "start_ns": start, "box": box.identity,
        "planning_s": result.wall_time, "optimise_s": result.optimise_time, "certify_s": result.certify_time,
        "iterations": result.iterations,
        "certificates": result.certificates, "reasons": list(result.reasons),
        "summary": "", "margins": {},
    }  # fmt: skip
    if certificate is not None:
        entry["summary"] = certificate.summary()
        entry["margins"] = {
            name: {"smallest": m.smallest, "unit": m.unit, "time": m.time, "culprit": m.culprit}
            for name, m in certificate.families.items()
            if np.isfinite(m.smallest)  # JSON knows no infinity: not constrained at all
        }
    if plan is not None:
        times, knots = plan.trajectory.times.tolist(), plan.trajectory.knots.tolist()
        entry |= {"t_plan": plan.t_plan, "duration": plan.trajectory.duration, "times": times}
        entry |= {"knots": knots, "k": plan.k.tolist(), "cost": result.cost, "condition": result.condition}
    return entry


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``planner_node``."""
    return run_node(PlannerNode, args)


if __name__ == "__main__":
    sys.exit(main())
