"""Control session: handles measurements, plans, boxes and requests from configure to cleanup.

It calls no ROS: the node hands in what it has read, and publishes what :class:`SessionOutput` is given. The control
law, its states and its judgement are in :mod:`safe_sysid.control`. What differs between lock-step and real time is in
:mod:`.timing`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from safe_sysid.control.checks.activation import ActivationChecks, Judgement
from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.trajectory import TrajectoryController, TrajectoryPoints
from safe_sysid.core.arrays import FloatArray
from safe_sysid.nodes.common.messages.contents import BoundsAnswer, JointSample, MessageRefusedError, PlanAnswer
from safe_sysid.nodes.common.messages.time_base import TimeBase, to_ns
from safe_sysid.nodes.controller.tick_log import TickLog
from safe_sysid.nodes.controller.timing import ControlTiming
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["MOVING", "ControlSession", "SessionOutput"]

#: What goes to the arm.
Command = FloatArray | TrajectoryPoints

MOVING = (ControllerState.TRACKING, ControllerState.BRAKING)
#: Lock-step: while an answer is awaited the last reference is published again so often, s.
_AGAIN = 0.5
#: Between two judgements of a start that is wanted, s.
_JUDGED_EVERY = 0.5


#: Real time: an answer has no hour that it is due at, ns.
_ANY_TIME = 2**63 - 1


class SessionOutput(Protocol):
    """Where commands, references and lines for people go; and the node's clocks.

    Attributes:
        active: whether the node may command.
    """

    @property
    def active(self) -> bool:
        """Whether the node may command."""

    simulated: bool  #: whether stamps are of simulated time

    def monotonic(self) -> float:
        """Seconds on a clock that nobody sets."""

    def now_ns(self) -> int:
        """Now, on the clock of stamps, ns."""

    def publish_command(self, stamp_ns: int, command: Command | None) -> None:
        """Answer a measurement; None: nothing (new) is commanded."""

    def repeat_command(self) -> None:
        """Publish the last answer again, if there is one."""

    def decline(self, stamp_ns: int) -> None:
        """Answer that nothing is commanded; the last answer remains what may be repeated."""

    def publish_reference(
        self, stamp_ns: int, q: FloatArray, qd: FloatArray, torque: FloatArray | None, identity: str
    ) -> None:
        """Where the arm should be now, (n,) each; without a torque where the arm finds its own."""

    def publish_box(self, box: ParameterBox, nominal: FloatArray) -> None:
        """The box that control works with from now on."""

    def retry_autostart(self) -> None:
        """The first measurement has come: an activation may succeed now."""

    def refuse(self, source: str, reason: str, text: str) -> None:
        """Count and report what is not used."""

    def say(self, text: str) -> None:
        """One line for people."""

    def state_changed(self, before: ControllerState, now: ControllerState, reason: str) -> None:
        """The controller has another state."""


class ControlSession:
    """What is known between configure and cleanup.

    Attributes:
        checks: judge the last measurements before control begins.
        start_wanted: whether somebody asked for a start that has not succeeded yet.
        start_refused: why the last start was refused; "" if it was not.
        start_tried: monotonic time of the last judgement of a start, s.
        judged: what the last judgement said; used once.
        waiting: the measurement that waits for a plan or a box.
        newest: the last measurement while nothing may be commanded.
        arrival: of the last measurement, ns, performance counter.
        last_stamp: of the last measurement, ns; 0: none.
        plans: how many were taken.
        energy: of the last tick, lower bound of V, J.
    """

    def __init__(
        self,
        core: Controller | TrajectoryController,
        checks: ActivationChecks,
        timing: ControlTiming,
        output: SessionOutput,
        time_base: TimeBase,
        log: TickLog,
        reference_every: int,
        patience: float,
    ) -> None:
        """No measurement yet.

        Args:
            reference_every: ticks between two references while one plan is driven.
            patience: wall time for which lock-step waits for an answer, s.
        """
        self.core, self.checks, self.log, self.reference_every = core, checks, log, reference_every
        self._model, self._timing, self._output, self._time = core.model, timing, output, time_base
        self._pending, self._patience = timing.pending, patience
        self._period_ns = to_ns(core.model.settings.timing.period_s)
        self.start_wanted, self.start_refused, self.start_tried = False, "", -1e9
        self.judged: Judgement | None = None
        self._nominal: dict[str, FloatArray] = {"": core.model.arm_prior.mid}
        self._latest, self.energy = core.box.identity, 0.0  # the newest box, taken or refused
        self._contradicted = -1  # epoch in which the identifier has found a contradiction
        self.waiting: JointSample | None = None
        self._last: JointSample | None = None
        self.newest: JointSample | None = None
        self.arrival, self._waits_since = 0, 0.0
        self.last_stamp, self.plans = 0, 0
        self._started, self._was_active = 0, False  # stamp of the measurement that the activation began with
        self._has_commanded = False
        #: Lock-step: what the last reference said, and when it was published again.
        self._referred: tuple[int, FloatArray, FloatArray | None] | None = None
        self._referred_again = 0.0
        self._described: Plan | str | None = ""  # what the last reference belongs to: a plan, rest, or ""
        self._state, self._announced = core.state, ""

    @property
    def moves(self) -> bool:
        """Whether the arm is driven along a plan."""
        return self._output.active and self.core.state in MOVING

    @property
    def missing(self) -> list[str]:
        """What the waiting measurement waits for."""
        return [] if self.waiting is None else self._pending.missing(self.waiting.stamp_ns)

    # -- measurements -------------------------------------------------------------------------------------------

    def on_measurement(self, sample: JointSample, arrival: int) -> None:
        """Answer, or keep it until everything that is due is there. ``sample``: in the model's order.

        Raises MessageRefusedError: not newer than the last, or too old.
        """
        if self._timing.is_repeated(sample, self.last_stamp):
            if self._was_active and self.waiting is None:  # the plant was not connected yet
                self._output.repeat_command()
            return
        if sample.stamp_ns <= self.last_stamp and not self._time_went_back(sample):
            raise MessageRefusedError("not newer", f"stamp {sample.stamp_ns} ns after {self.last_stamp} ns")
        self._timing.check_age(sample, self._output.now_ns())
        if not self.last_stamp:
            self._pending.begin_anew(sample.stamp_ns, plans=True)
        self.last_stamp, self.arrival = sample.stamp_ns, arrival
        self._answer(sample)

    def _answer(self, sample: JointSample) -> None:
        self._last = sample
        # A plant that goes on alone is ahead of what it publishes: a torque would come too late. It waits from the
        # first answer on, and then it publishes a state that a command can act on.
        if not self._output.active or not self._timing.awaits_command(sample):
            self._look_on(sample)
            return
        self.waiting, self._waits_since = sample, self._output.monotonic()
        self.go_on()

    def _look_on(self, sample: JointSample) -> None:
        """A measurement is judged and commands nothing."""
        if self.newest is None:
            self._output.retry_autostart()
        self.newest = sample
        self._remember(sample)
        if self._timing.lockstep and self._was_active:
            self.waiting = None
            self._output.publish_command(sample.stamp_ns, None)

    def _remember(self, sample: JointSample) -> None:
        """While nothing is commanded: for the judgement before control begins."""
        now = self._output.now_ns()
        if self._output.simulated:  # the clock's own message may come after that of what was measured then
            now = max(now, sample.stamp_ns)
        self.checks.add(sample.stamp_ns, now, sample.q, sample.qd, sample.effort)

    def _time_went_back(self, sample: JointSample) -> bool:
        """Whether a measurement with an older stamp counts: a clock was set back, or the plant began anew."""
        core = self.core
        if core.state.commands:
            core.step(self._time.seconds(sample.stamp_ns), sample.q, sample.qd)
            if core.state.commands:
                if self._timing.lockstep:  # it waits for an answer, whoever it is
                    self._output.decline(sample.stamp_ns)
                return False
        self.waiting = None
        return True

    def go_on(self) -> None:
        """Answer the measurement that waits, if everything that is due by then is there."""
        sample = self.waiting
        if sample is None or not self._output.active:
            return
        now = self._time.seconds(sample.stamp_ns)
        for plan in self._pending.due_plans(sample.stamp_ns):
            self._offer_plan(plan, now, sample.stamp_ns)
        if not self.core.takes_plans:
            self._pending.forget_plans(sample.stamp_ns)  # none would be taken: do not wait for one
        if self._pending.missing(sample.stamp_ns):
            return
        for bounds in self._pending.due_bounds(sample.stamp_ns):
            self._offer_bounds(bounds, now)
        self.waiting = None
        self._tick(sample, now)

    def check_patience(self) -> None:
        """Call often. Lock-step: repeat the reference for a planner that came late; give up who does not answer."""
        if self.waiting is None or not self._output.active:
            return
        now = self._output.monotonic()
        if self._referred is not None and now - self._referred_again > _AGAIN:
            self._referred_again = now
            self._publish_reference(*self._referred)
        if now - self._waits_since < self._patience:
            return
        waited = f"waited {self._patience:g} s for {' and '.join(self.missing)}; going on without"
        self._output.refuse("lock-step", "gave up waiting", waited)
        self._pending.give_up(self.waiting.stamp_ns)
        self.go_on()

    def _tick(self, sample: JointSample, now: float) -> None:
        core = self.core
        effort = sample.effort
        if not core.state.commands:
            self._remember(sample)
        if sample.stamp_ns == self._started or (self.start_wanted and self._try_start(now, sample, effort)):
            out, self._started = core.silence(), 0  # the next is the first to be answered
        else:
            out = core.step(now, sample.q, sample.qd, effort)
        self.energy = out.energy
        if out.command is not None or self._timing.lockstep:
            self._output.publish_command(sample.stamp_ns, out.command)
        self.log.command_sent(self.arrival, sample.stamp_ns, out.command is not None)
        if out.announce is not None:
            self.announce()
        self.tell_state()
        if out.commanding:
            self._has_commanded = True
            # The planner must see where each motion begins and ends, however rarely references come in between.
            plan = core.plan
            if plan is not self._described or sample.stamp_ns // self._period_ns % self.reference_every == 0:
                self._publish_reference(sample.stamp_ns, out.reference, out.torque)
                if self._timing.lockstep:
                    torque = None if out.torque is None else out.torque.copy()
                    self._referred = sample.stamp_ns, out.reference.copy(), torque
            self._described = plan
            self.log.add(sample.stamp_ns, out)
        else:
            self._described = ""

    # -- plans and boxes ----------------------------------------------------------------------------------------

    def on_plan(self, answer: PlanAnswer) -> None:
        """A planner's answer for one hand-over."""
        self._pending.put_plan(answer)
        self.go_on()

    def on_bounds(self, answer: BoundsAnswer) -> None:
        """The identifier's answer for one batch."""
        # The identifier works in an epoch of a controller before this one: go on in that.
        if answer.box.epoch > self.core.box.epoch and self.core.resume_epoch(answer.box.epoch):
            self.announce()
        self._pending.put_bounds(answer)
        weighs = self._model.settings.controller.gravity_check  # else brakes may hold the arm
        if weighs and not (self._timing.lockstep or self.core.state.commands):
            # The drives hold the arm, and its payload was weighed meanwhile: control begins with what is known.
            for due in self._pending.due_bounds(_ANY_TIME):
                self._offer_bounds(due, 0.0)
        self.go_on()

    def _offer_plan(self, answer: PlanAnswer, now: float, stamp_ns: int) -> None:
        start = self._time.seconds(answer.start_ns)
        if answer.trajectory is None:
            following = ""
            if answer.next_ns is not None:
                following = f"; the next is for {self._time.seconds(answer.next_ns):.3f} s"
            self._output.say(f"no certified plan for the hand-over at {start:.3f} s{following}")
            self._pending.settle_plan(answer, False, stamp_ns)
            return
        plan = answer.plan(start, self._model.settings.planner.t_p, self.plans)
        reason = self.core.offer_plan(plan, now)
        self._pending.settle_plan(answer, reason is None, stamp_ns)
        if reason is not None:
            self._output.refuse("plan", "not accepted", reason)
            return
        self.plans += 1
        taken = f"plan {self.plans - 1} taken for {start:.3f} s, certified for box {answer.box_identity}"
        self._output.say(taken)

    def _offer_bounds(self, answer: BoundsAnswer, now: float) -> None:
        if answer.contradicted and answer.box.epoch == self.core.box.epoch != self._contradicted:
            self._contradicted = answer.box.epoch
            self.core.doubt("no parameters fit what the identifier has measured")
        if answer.box.identity == self._latest:
            return  # nothing new, an answer all the same
        reason = self.core.offer_box(answer.box, now, answer.nominal)
        if reason is not None:
            self._output.refuse("bounds", "not accepted", reason)
            return
        self._latest, self._nominal = answer.box.identity, {answer.box.identity: answer.nominal}
        self._output.say(f"box {answer.box.identity} taken" + (", blending" if self.core.blending else ""))
        if not self.core.state.commands:  # no step announces it
            self._announce_change()

    # -- starts and ends ----------------------------------------------------------------------------------------

    def activate(self, start: bool, silence: float) -> list[str]:
        """Begin control with the last measurement; reasons why not.

        Args:
            start: whether to hold the arm at once; if not, :meth:`want_start` may.
            silence: since the last measurement came, s.
        """
        sample, judged, self.judged = self.newest, self.judged, None
        if sample is None or judged is None:
            return ["no measurement has come on joint_states: expected one (is the arm's driver running?)"]
        if silent := self._timing.why_silent(silence):
            return [silent]
        if not start:
            return []
        now = self._time.seconds(sample.stamp_ns)
        reasons = self._why_not_start(judged, sample)
        reasons = reasons or self.core.start(now, sample.q, sample.qd, sample.effort, tube=judged.tube)
        self._announce_change()
        self.start_refused = ""
        self._started = 0 if reasons else sample.stamp_ns
        return reasons

    def _why_not_start(self, judged: Judgement, sample: JointSample) -> list[str]:
        if self._contradicted == self.core.box.epoch and not self.core.resetting:
            return [
                f"no parameters fit what the identifier has measured in epoch {self._contradicted}: an assumption is "
                "false, or the hand holds something else by now (controller/reset_bounds begins anew with the prior)"
            ]
        return judged.why_not(self._model, sample.q, self.core.box)

    def activated(self) -> None:
        """The node is active. In lock-step the measurement that waits is answered now."""
        sample, self.newest, self._was_active = self.newest, None, True
        if sample is not None:
            self._pending.begin_anew(sample.stamp_ns, plans=not self._has_commanded)
        self.checks.forget()
        self.tell_state()
        if self._timing.lockstep and sample is not None:
            self._answer(sample)

    def deactivate(self) -> list[str]:
        """End commands if the arm rests; brake if it moves, and say so."""
        core = self.core
        if core.state in MOVING:
            core.stop()
            self.tell_state()
            self.go_on()
            return [
                f"the arm moves ({core.state.value} now): braking along the certified tail, deactivate again at rest; "
                "until then no plan is taken, unless ~/start says so"
            ]
        self.withdraw_start()
        core.release("deactivated")
        self.tell_state()
        self._announce_change()
        return []

    def deactivated(self) -> None:
        """The node is inactive: the measurement that waits is answered with no torque.

        In lock-step the next activation may begin with the last measurement: time need not go on before.
        """
        sample, self.waiting = self.waiting or (self._last if self._timing.lockstep else None), None
        if sample is not None:
            self._look_on(sample)

    def brake_to_end(self) -> float:
        """The process is to end: brake along the certified tail; returns how long its motion lasts, s."""
        core, now = self.core, self._time.seconds(self.last_stamp)
        rest = 0.0 if core.plan is None else max(core.plan.end_time - now, 0.0)
        core.stop()
        self.tell_state()
        return rest

    def stop_waiting(self) -> None:
        """From now on no tick waits for anything: the others end, too."""
        self._pending.stop_waiting()
        self.go_on()

    def want_start(self) -> None:
        """Start as soon as the measurements allow it."""
        self.start_wanted, self.start_tried, self.judged = True, -1e9, None

    def withdraw_start(self) -> None:
        """No start is wanted any more."""
        self.start_wanted, self.start_refused = False, ""

    def start_to_judge(self) -> ActivationChecks | None:
        """Real time: measurements to be judged for a wanted start, at most twice a second; None: nothing is to do."""
        wanted = self.start_wanted and self._output.active and not self._timing.lockstep
        now = self._output.monotonic()
        if not wanted or self.core.state.commands or now - self.start_tried < _JUDGED_EVERY:
            return None
        self.start_tried = now
        return self.snapshot()

    def snapshot(self) -> ActivationChecks:
        """The last measurements and the box in force, to be judged while others go on coming."""
        self.checks.box = self._model.arm_prior if self.core.resetting else self.core.box
        return self.checks.snapshot()

    def start_judged(self, judged: Judgement) -> None:
        """The next measurement begins control with this judgement, or says why not."""
        self.judged = judged if self.start_wanted else None

    def _try_start(self, now: float, sample: JointSample, effort: FloatArray | None) -> bool:
        if self._timing.lockstep:  # time waits, and no pose is searched for what it may hit
            if abs(now - self.start_tried) < _JUDGED_EVERY:
                return False
            self.start_tried, self.judged = now, self.snapshot().judge()
        judged, self.judged = self.judged, None
        if judged is None:
            return False
        reasons = self._why_not_start(judged, sample)
        self.start_refused = "; ".join(reasons or self.core.start(now, sample.q, sample.qd, effort, tube=judged.tube))
        self._announce_change()
        self.start_wanted = bool(self.start_refused)
        if self.start_refused:
            self._output.refuse("start", "refused", self.start_refused)
            return False
        self.checks.forget()
        self._pending.begin_anew(sample.stamp_ns, plans=not self._has_commanded)
        return True

    def stop(self) -> str | None:
        """Brake, and take no plan before the next start; a wanted start is withdrawn. Returns why not, if so."""
        wanted = self.start_wanted
        self.withdraw_start()
        if self.core.state.commands:
            self.core.stop()
            self.go_on()
        elif not wanted:
            return f"state is {self.core.state.value}: expected holding, tracking or braking"
        return None

    def emergency_stop(self) -> None:
        """End commands at once."""
        self.withdraw_start()
        self.core.emergency_stop()
        self.go_on()

    def reset_box(self) -> str | None:
        """Another payload: begin an epoch with the prior; returns why not, if so."""
        reason = self.core.reset_box()
        if reason is None and not self.core.blending:  # else it is announced when the blend is over
            self.announce()
        return reason

    # -- telling ------------------------------------------------------------------------------------------------

    def tell_state(self) -> None:
        """Report the controller's state if it is another."""
        core = self.core
        if core.state is not self._state:
            self._output.state_changed(self._state, core.state, core.reason)
            self._state = core.state
            if not core.state.commands:  # what was being blended in is in force
                self._announce_change()

    def _publish_reference(self, stamp_ns: int, reference: FloatArray, torque: FloatArray | None) -> None:
        q, qd = reference[:2]
        self._output.publish_reference(stamp_ns, q, qd, torque, self.core.box.identity)

    def _announce_change(self) -> None:
        """Announce the box if it is another: a start or a deactivation ended a reset."""
        if self.core.box.identity != self._announced:
            self.announce()

    def announce(self) -> None:
        """Publish the box that control works with."""
        box = self.core.box
        self._announced = box.identity
        if box.seq == 0:
            self._latest = box.identity
        nominal = np.clip(self._nominal.get(box.identity, box.mid), box.lower, box.upper)
        self._output.publish_box(box, nominal)
        self._output.say(f"working with box {box.identity}")
