"""Plan following, shared by all controllers: accept plans and boxes, follow, hand over, brake on the certified tail.

``idle -> holding -> tracking -> braking -> holding`` and ``fault``. Subclasses decide what acts on the arm: torques, or
points of a trajectory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from safe_sysid.control.checks.acceptance import KnownBoxes, why_not_connected, why_not_plan
from safe_sysid.control.checks.measurement_watch import MeasurementStatus, MeasurementWatch
from safe_sysid.control.states import ControllerState
from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["STOPPED", "PlanFollower"]

STOPPED = "stopped: no plan is taken before ~/start"
_TOLERANCE = 1e-9  # s


class PlanFollower:
    """State, plans and boxes of a controller; no clocks, no I/O, a reason for each refusal.

    Attributes:
        tube_count: so many tracking tubes plans may be certified for.
    """

    tube_count = 1

    def __init__(self, model: RobotModel) -> None:
        """Start idle with the prior box of epoch 0. ``model``: its ``arm_prior`` is the first box."""
        self.model = model
        self.state = ControllerState.IDLE
        self.reason = "waiting for start"
        self.counts: Counter[str] = Counter()
        self.box = model.arm_prior
        self._known = KnownBoxes({self.box.identity: self.box})
        self._plan: Plan | None = None
        self._next: Plan | None = None
        self._watch = MeasurementWatch(model)
        self._broken = ""  # why braking ends in a fault
        self.stopped = False  # by request; no plan is taken
        # Evaluated, not just zeros: compiles what the loop will call before the loop runs.
        self._hold = QuinticTrajectory.hold(np.zeros(model.n)).state(0.0)

    # -- what a subclass says ---------------------------------------------------------------------------------------

    @property
    def resetting(self) -> bool:
        """Whether bounds are being reset."""
        return False

    @property
    def blending(self) -> bool:
        """Whether a new box is being blended in."""
        return False

    def _why_not_yet(self, plan: Plan, now: float) -> str | None:
        """Why a plan may not begin from rest at its time; None if it may."""
        return None

    def _why_not_begin(self, plan: Plan, stamp: float) -> str:
        """Why a plan that was taken does not begin now after all; "" if it does."""
        if self.state is ControllerState.HOLDING and self._why_not_yet(plan, stamp):
            return "control was taken over"  # ticks that were late have prolonged the ramp
        return ""

    def _begun(self, plan: Plan) -> None:
        """A plan is followed from now on."""

    def fault(self, reason: str) -> None:
        """Stop acting on the arm."""
        raise NotImplementedError

    def doubt(self, why: str) -> None:
        """What the proofs rest on is known to be false; ``why``: in words."""
        raise NotImplementedError

    def emergency_stop(self) -> None:
        """Command nothing from now on: the arm stops by itself. ``start`` leaves the fault."""
        self.fault("emergency stop")

    # -- what it does now -------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """The plan that is tracked or braked along, if any."""
        return self._plan

    @property
    def pending_plan(self) -> Plan | None:
        """The plan accepted for the next hand-over, if any."""
        return self._next

    @property
    def takes_plans(self) -> bool:
        """Whether a plan could be accepted now: holding or tracking, and not stopped."""
        return not self.stopped and self.state in (ControllerState.HOLDING, ControllerState.TRACKING)

    def stop(self) -> None:
        """Brake along the certified tail, then hold; take no plan before :meth:`go_on`, or another :meth:`start`.

        Whoever stops an arm does not expect it to move again because a planner has found another way.
        """
        self.stopped = True
        self.brake("stop requested")
        if self.state is ControllerState.HOLDING:
            self.reason = STOPPED

    def go_on(self) -> None:
        """Take back a :meth:`stop`: plans are taken again."""
        self.stopped = False
        if self.state is ControllerState.HOLDING:
            self.reason = "at rest"

    def brake(self, reason: str) -> None:
        """Take no plan for the next hand-over: brake along the certified tail. At rest plans are taken again."""
        self._next = None
        if self.state is ControllerState.TRACKING:
            self.state, self.reason = ControllerState.BRAKING, reason

    def resume_epoch(self, epoch: int) -> bool:
        """Call the prior that of another epoch: what a controller before this one called it. Returns whether it did.

        Only before anything was taken in an epoch of its own; the numbers stay what they are.

        ``epoch``: that other nodes work in, higher than this controller's.
        """
        fresh = self.box.identity == "0:0" and not self.blending and self._plan is None and self._next is None
        if not fresh or epoch <= 0:
            return False
        self._take(ParameterBox(self.box.lower, self.box.upper, epoch, 0))
        return True

    def offer_plan(self, plan: Plan, now: float) -> str | None:
        """Take a plan for the next hand-over; returns the reason of a refusal, None if taken. ``now``: s."""
        reason = self._judge_plan(plan, now)
        if reason is None:
            # Exactly at the hand-over: what a stamp since 1970 rounds would be a jump of the desired motion.
            under_way = self._plan if self.state is ControllerState.TRACKING else None
            self._next = replace(plan, start_time=under_way.hand_over_time) if under_way else plan
        else:
            self.counts["plan refused"] += 1
        return reason

    def _judge_plan(self, plan: Plan, now: float) -> str | None:
        if self.resetting:
            return "bounds are being reset"
        if self.stopped:
            return STOPPED
        reason = why_not_plan(plan, self.model.n, self.box, self._known, self.tube_count)
        if reason is not None:
            return reason
        if self.state is ControllerState.TRACKING and self._plan is not None:
            expected, state = self._plan.hand_over_time, self._plan.trajectory.state(self._plan.t_plan)
            return why_not_connected(plan, now, expected, state, self.model.joint_names)
        if self.state is ControllerState.HOLDING:
            reason = why_not_connected(plan, now, None, self._hold, self.model.joint_names)
            return reason or self._why_not_yet(plan, now)
        return f"state is {self.state.value}: a plan is taken only while holding or tracking"

    def _take(self, box: ParameterBox) -> None:
        self.box = box
        self._known.note(box)

    def _is_usable(self, stamp: float, q: FloatArray, qd: FloatArray) -> bool:
        """Judge a measurement; one that is not used is one that is missing."""
        watch = self._watch
        verdict = watch.judge(stamp, q, qd)
        if verdict is MeasurementStatus.GOOD:
            return True
        if verdict is MeasurementStatus.CLOCK_BACK:
            self.fault(watch.reason)
        elif verdict is MeasurementStatus.OLD:
            self.counts[MeasurementStatus.OLD.value] += 1
        else:
            self.counts["measurement refused"] += 1
            self.brake(watch.reason)
            if stamp - watch.stamp > watch.too_long:
                self.fault(f"no usable measurement for {stamp - watch.stamp:.3f} s: {watch.reason}")
        return False

    def _advance_plan(self, stamp: float) -> None:
        takes = self.state in (ControllerState.TRACKING, ControllerState.HOLDING)
        refused = ""
        if self._next is not None and takes and stamp >= self._next.start_time - _TOLERANCE:
            offered, self._next = self._next, None
            refused = self._why_not_begin(offered, stamp)
            if refused:
                self.counts["plan refused"] += 1
                refused = f"the plan would have begun while {refused}"
                if self.state is ControllerState.HOLDING:
                    self.reason = f"at rest: {refused}"
                    return
            else:
                self._plan = offered
                self._begun(offered)
                self.state, self.reason = ControllerState.TRACKING, f"plan {offered.sequence}"
        plan = self._plan
        if plan is None:
            return
        over = stamp >= plan.hand_over_time - _TOLERANCE and plan.t_plan < plan.trajectory.duration
        if over and self.state is ControllerState.TRACKING:
            self.state, self.reason = ControllerState.BRAKING, refused or "no plan for the hand-over"
        if stamp >= plan.end_time:
            self._hold[:] = 0.0
            self._hold[0] = plan.trajectory.knots[-1, 0]
            self._plan = None
            self.state, self.reason = ControllerState.HOLDING, f"at rest: {refused}" if refused else "at rest"
            if self.stopped:
                self.reason += f"; {STOPPED}"
            if self._broken:
                self.fault(self._broken)
