"""Controller node: answers every measurement with a torque. Judgement, states and law are in ``safe_sysid.control``."""

from __future__ import annotations

import sys
import time

import numpy as np
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.control.activation import ActivationChecks, Judgement
from safe_sysid.control.controller import Controller, ControllerOutput, ControllerState
from safe_sysid.control.design import check_acceleration, design_gains
from safe_sysid.control.feed_forward import AddedTorque
from safe_sysid.control.feed_forwards import make_added_torque
from safe_sysid.control.law import ControlLaw
from safe_sysid.control.laws import make_law
from safe_sysid.control.states import longest_braking
from safe_sysid.decimals import at_least, at_most
from safe_sysid.nodes.common import messages
from safe_sysid.nodes.common.base import (
    COMMAND,
    ERROR,
    LATCHED,
    LATCHED_INPUT,
    OK,
    STREAM,
    WARN,
    BaseNode,
    measurement_qos,
)
from safe_sysid.nodes.common.lifecycle import ManagedNode
from safe_sysid.nodes.common.messages import BoundsAnswer, JointSample, PlanAnswer, RefusedError
from safe_sysid.nodes.common.process import run_node
from safe_sysid.nodes.common.time_base import TimeBase, to_ns
from safe_sysid.nodes.common.wire import CommandBytesWriter, JointBytesReader
from safe_sysid.nodes.controller.lockstep import LockstepGate
from safe_sysid.nodes.controller.tick_log import TickLog
from safe_sysid.nodes.controller.warm_up import rehearse, start_check_of
from safe_sysid.trajectories.plan import Plan

__all__ = ["ControllerNode", "main"]

_EMERGENCY = "emergency stop: expected ~/reset_emergency_stop before anything moves"
#: Lock-step: while somebody is waited for the last reference is told again so often, s.
_AGAIN = 0.5


class ControllerNode(ManagedNode):
    """The loop is driven by the measurement callback; everything else only leaves things for the next tick.

    Inactive it listens, judges and commands nothing; in lock-step time stands still until it was active for the first
    time. Activation takes the arm over, or says why not.
    """

    has_loop = has_scene = True

    def __init__(self) -> None:
        self._emergency = False  # an emergency stop that nobody has taken back; outlives every transition
        self._brakes_until: float | None = None  # monotonic, since the process was asked to end, s
        self._added: AddedTorque | None = None
        super().__init__("controller")

    def configure(self) -> None:
        """Gains, law, core, rehearsed; topics."""
        options, settings, n, values = self.options, self.model.settings, self.model.n, self.values
        self._reference_every = values["reference_every"]
        self.parameters.on_change("reference_every", self._set_reference_every)
        self._start_wanted = False
        identification = settings.identification
        first_plan = values["first_plan_time"] or settings.planner.t_p
        times = (first_plan, settings.planner.t_p, identification.update_s, identification.take_after_s)
        self._gate = LockstepGate(
            tuple(map(to_ns, times)),
            options.lockstep and values["await_plans"],
            options.lockstep and values["await_bounds"],
        )
        self._law_name = settings.controller.law
        self.gains = design_gains(self.model, options.lockstep)
        check_acceleration(self.model, self.gains)
        self._end_feed_forward()
        self._added = make_added_torque(self.model, self.gains, options.lockstep)
        rehearse(self.model, self.gains, self._make_law, self._added)
        check = start_check_of(options, self.model, self.gains, self.scene)
        self._checks = ActivationChecks(self.model, self.gains, check, options.lockstep, self.simulated)
        self._judged: Judgement | None = None  # of the last half second of measurements
        self._core = Controller(
            self.model, self.gains, settings.controller.blend_s, self._make_law(), self._added
        )
        self._time = TimeBase(options.lockstep)
        # In real time the loop's two messages are read and written as bytes.
        names, lockstep = self.model.joint_names, options.lockstep
        self._reader = messages.JointReader(names, with_effort=None) if lockstep else JointBytesReader(names)
        self._command = messages.CommandWriter(n) if lockstep else CommandBytesWriter(n)
        self._reference = messages.JointStateWriter(self.model.joint_names)
        self._nominal = {"": self.model.arm_prior.mid}
        self._latest, self._energy = self._core.box.identity, 0.0
        self._waiting: JointSample | None = None
        self._last: JointSample | None = None
        self._newest: JointSample | None = None  # while inactive
        self._answer: Float64MultiArray | bytes | None = None
        self._arrival, self._started_waiting = 0, 0.0
        self._last_stamp, self._plans = 0, 0
        self._start_refused, self._start_tried = "", -1e9
        self._doubts = ""  # what activation saw and let pass
        self._started, self._was_active = 0, False  # stamp of the measurement that activation began with
        self._has_commanded = False
        self._referred: tuple[int, np.ndarray, np.ndarray] | None = (
            None  # lock-step: what the last reference said
        )
        self._told_again = 0.0
        self._described: Plan | str | None = ""  # what the last reference belongs to: a plan, rest, or ""
        self._state, self._announced = self._core.state, ""
        self._period_ns = to_ns(settings.timing.period_s)
        rows = to_ns(options.log_s) // self._period_ns
        self._log = TickLog(self._core, options.lockstep, self.now_ns, rows)
        self._topics()

    def _end_feed_forward(self) -> None:
        """That of a session before, which may have failed while it was configured."""
        added, self._added = self._added, None
        if added is not None:
            added.close()

    def _make_law(self) -> ControlLaw:
        return make_law(self._law_name, self.model, self.gains)

    def _set_reference_every(self, ticks: int) -> None:
        self._reference_every = ticks

    def _topics(self) -> None:
        lockstep = self.options.lockstep
        # In lock-step a recorder that was held up gets every command all the same.
        self._commands = self.create_publisher(
            Float64MultiArray, "effort_command", STREAM if lockstep else COMMAND
        )
        self._references = self.create_publisher(JointState, "reference", STREAM)
        self._active = self.create_publisher(Float64MultiArray, "bounds_active", LATCHED)
        self._announce()
        self.listen(JointTrajectory, "plan", self._on_plan, LATCHED_INPUT)
        self.listen(Float64MultiArray, "bounds", self._on_bounds, LATCHED_INPUT)
        for topic in ("plan", "bounds", "effort_command", "bounds_active"):
            self.rivals.watch(topic)
        self.rivals.watch("joint_states", shared=True)
        self._drive_by_measurements(measurement_qos(lockstep, depth=1))
        self.serve("start", self._serve_start)
        self.serve("stop", self._serve_stop)
        BaseNode.serve(self, "emergency_stop", self._serve_emergency_stop)  # whatever the node's state
        self.serve("reset_bounds", self._serve_reset)
        BaseNode.serve(self, "reset_emergency_stop", self._serve_reset_emergency_stop)
        self.every(0.1, self._check_patience)
        # Without the lock: judging a pose takes many ticks.
        again = self.guarded("start", self._judge_start, locked=False)
        self.create_timer(0.1, again, clock=self._steady)

    def _drive_by_measurements(self, qos: QoSProfile) -> None:
        (self.listen if self.options.lockstep else self.drive)(
            JointState, "joint_states", self._on_measurement, qos
        )

    # -- transitions --------------------------------------------------------------------------------------------

    def examine(self) -> list[str]:
        """What the measurements of the last half second say against control; they go on coming meanwhile."""
        self._watch_rivals()  # the last look may have been before this node was configured
        with self.lock:
            if self._emergency:
                return [_EMERGENCY]
            if reasons := self._distrusted():
                return reasons
            checks = self._checks.snapshot()
        self._judged = self._judge(checks)
        return list(self._judged.reasons)

    def _judge(self, checks: ActivationChecks) -> Judgement:
        judged = checks.judge()
        self._doubts = "; ".join([] if judged.reasons else checks.warnings())
        if self._doubts:
            self.get_logger().warning(f"activation: {self._doubts}")
        return judged

    def _judge_start(self) -> None:
        """Real time, in the executor's thread: ``~/start`` is examined as an activation is, until it is done."""
        with self.lock:
            wanted = self._start_wanted and self.active and not self.options.lockstep
            if not wanted or self._core.state.commands or time.monotonic() - self._start_tried < 0.5:
                return
            self._start_tried = time.monotonic()
            checks = self._checks.snapshot()
        judged = self._judge(checks)
        with self.lock:  # the loop's thread takes over with its next measurement, or says why not
            self._judged = judged if self._start_wanted else None

    def activate(self) -> list[str]:
        """Take the arm over with the last measurement, if all start checks allow it."""
        sample, judged, self._judged = self._newest, self._judged, None
        if self._emergency:
            return [_EMERGENCY]
        if sample is None or judged is None:
            return ["no measurement has come on joint_states: expected one (is the arm's driver running?)"]
        silent = 1e-9 * (time.perf_counter_ns() - self._arrival)
        if not self.options.lockstep and silent > self.model.settings.measurement.max_age_s:
            return [f"no measurement for {silent:.3f} s: expected joint_states to go on"]
        if not self.values["start_on_activation"]:
            return []
        now = self._time.seconds(sample.stamp_ns)
        reasons = judged.why_not(self.model, sample.q)
        reasons = reasons or self._core.start(now, sample.q, sample.qd, sample.effort)
        self._tell_box()
        self._start_refused = ""
        self._started = 0 if reasons else sample.stamp_ns
        return reasons

    def activated(self) -> None:
        """In lock-step the measurement that waits is answered now."""
        sample, self._newest, self._was_active = self._newest, None, True
        if sample is not None:
            self._gate.begin_anew(sample.stamp_ns, plans=not self._has_commanded)
        self._checks.forget()
        self._tell_state()
        if self.options.lockstep and sample is not None:
            self._answer_it(sample)

    def deactivate(self) -> list[str]:
        """At rest commands end and the arm's drives hold; in motion it brakes first."""
        core = self._core
        if core.state in (ControllerState.TRACKING, ControllerState.BRAKING):
            core.stop()
            self._tell_state()
            self._go_on()
            return [
                f"the arm moves ({core.state.value} now): braking along the certified tail, deactivate again at rest; "
                "until then no plan is taken, unless ~/start says so"
            ]
        self._want_no_start()
        core.release("deactivated")
        self._tell_state()
        self._tell_box()
        return []

    def deactivated(self) -> None:
        """What waits for an answer gets none but "nothing is commanded".

        In lock-step the last measurement is what the next activation may begin with: time need not go on before.
        """
        sample, self._waiting = self._waiting or (self._last if self.options.lockstep else None), None
        if sample is not None:
            self._look_on(sample)

    @property
    def _moves(self) -> bool:
        return self.active and self._core.state in (ControllerState.TRACKING, ControllerState.BRAKING)

    def why_not_shutdown(self) -> str:
        """The end of commands is for an arm at rest, as at a deactivation."""
        with self.lock:
            return "; ".join(self.deactivate()) if self._moves else ""

    def may_end(self) -> bool:
        """Brake along the certified tail first, for as long as that takes and measurements come."""
        with self.lock:
            if self.active and self._core.state.commands and self._brakes_until is None:
                self._brake_to_end()
            if not self._moves:
                return True
            alone = not self.count_publishers("joint_states")
            if alone or self._brakes_until is None or time.monotonic() > self._brakes_until:
                self.say(
                    f"ends in motion: {'no measurements' if alone else 'not at rest in time'}; its drives brake"
                )
                return True
            return False

    def _brake_to_end(self) -> None:
        core, now = self._core, self._time.seconds(self._last_stamp)
        rest = 0.0 if core.plan is None else max(core.plan.end_time - now, 0.0)
        self._brakes_until = time.monotonic() + longest_braking(rest, self.options.lockstep)
        core.stop()
        self._tell_state()
        if self._moves:
            self.say(
                f"told to end: braking along the certified tail for {rest:.2f} s first; once more: at once"
            )
        self._gate.await_nobody()  # the others end, too
        self._go_on()

    # -- inputs -------------------------------------------------------------------------------------------------

    def _on_measurement(self, msg: JointState | bytes) -> None:
        arrival = time.perf_counter_ns()
        sample = self._reader.read(msg)
        if self.options.lockstep and sample.stamp_ns == self._last_stamp:
            self._say_again()
            return
        if sample.stamp_ns <= self._last_stamp and not self._time_went_back(sample):
            raise RefusedError("not newer", f"stamp {sample.stamp_ns} ns after {self._last_stamp} ns")
        if not self.options.lockstep:
            self._check_age(1e-9 * (self.now_ns() - sample.stamp_ns))
        if not self._last_stamp:
            self._gate.begin_anew(sample.stamp_ns, plans=True)
        self._last_stamp, self._arrival = sample.stamp_ns, arrival
        self._answer_it(sample)

    def _answer_it(self, sample: JointSample) -> None:
        self._last = sample
        # A plant that goes on alone is ahead of what it told: a torque would come too late. It waits from the first
        # answer on, and what it tells then is the first state that a command can act on.
        if not self.active or (self.options.lockstep and sample.frame_id == messages.NOT_AWAITED):
            self._look_on(sample)
            return
        self._waiting, self._started_waiting = sample, time.monotonic()
        self._go_on()

    def _look_on(self, sample: JointSample) -> None:
        """A measurement is judged and commands nothing."""
        if self._newest is None:
            self.try_soon()
        self._newest = sample
        self._remember(sample)
        if self.options.lockstep and self._was_active:
            self._waiting = None
            self._answer = self._command.fill(sample.stamp_ns, None)
            self._commands.publish(self._answer)

    def _remember(self, sample: JointSample) -> None:
        """While nothing is commanded: for the judgement before a take-over."""
        now = self.now_ns()
        if self.simulated:  # the clock's own message may come after that of what was measured then
            now = max(now, sample.stamp_ns)
        self._checks.add(sample.stamp_ns, now, sample.q, sample.qd, sample.effort)

    def _time_went_back(self, sample: JointSample) -> bool:
        """Whether a measurement with an older stamp counts: a clock was set back, or the plant began anew."""
        core = self._core
        if core.state.commands:
            core.step(self._time.seconds(sample.stamp_ns), sample.q, sample.qd)
            if core.state.commands:
                if self.options.lockstep:  # it waits for an answer, whoever it is
                    self._commands.publish(self._command.fill(sample.stamp_ns, None))
                return False
        self._waiting = None
        return True

    def _check_age(self, age: float) -> None:
        longest = self.model.settings.measurement.max_age_s
        if not -longest <= age <= longest:
            text = f"measured {age:.3f} s ago: expected at most {longest:g} s (are all clocks the same?)"
            raise RefusedError("stale" if age > 0.0 else "from the future", text)

    def _say_again(self) -> None:
        """The plant has not heard the last answer, for it was not connected yet."""
        if self._was_active and self._waiting is None and self._answer is not None:
            self._commands.publish(self._answer)

    def _on_plan(self, msg: JointTrajectory) -> None:
        answer = messages.read_plan(msg, self.model.joint_names)
        for topic in ("plan", "effort_command"):  # who does not say alone what moves the arm moves it nowhere
            self.trust(topic)
        self.check_digest("the planner", answer.digest)
        self._gate.put_plan(answer)
        self._go_on()

    def _on_bounds(self, msg: Float64MultiArray) -> None:
        answer = messages.read_bounds(msg, self.model.arm_prior.size)
        self.trust("bounds")
        self.check_digest("the identifier", answer.digest)
        # The identifier works in an epoch of a controller before this one: go on in that.
        if answer.box.epoch > self._core.box.epoch and self._core.resume_epoch(answer.box.epoch):
            self._announce()
        self._gate.put_bounds(answer)
        self._go_on()

    def _go_on(self) -> None:
        """Answer the measurement that waits, if everything that is due by then is there."""
        sample = self._waiting
        if sample is None or not self.active:
            return
        now = self._time.seconds(sample.stamp_ns)
        for plan in self._gate.due_plans(sample.stamp_ns):
            self._offer_plan(plan, now, sample.stamp_ns)
        if not self._core.takes_plans:
            self._gate.forget_plans(sample.stamp_ns)  # none would be taken: do not wait for one
        if self._gate.missing(sample.stamp_ns):
            return
        for bounds in self._gate.due_bounds(sample.stamp_ns):
            self._offer_bounds(bounds, now)
        self._waiting = None
        self._tick(sample, now)

    def _check_patience(self) -> None:
        """Lock-step: whoever is waited for may not have been here yet when the last reference was told."""
        if self._waiting is None or not self.active:
            return
        now = time.monotonic()
        if self._referred is not None and now - self._told_again > _AGAIN:
            self._told_again = now
            self._publish_reference(*self._referred)
        if now - self._started_waiting < self.options.patience:
            return
        missing = " and ".join(self._gate.missing(self._waiting.stamp_ns))
        self.refuse(
            "lock-step",
            "gave up waiting",
            f"waited {self.options.patience:g} s for {missing}; going on without",
        )
        self._gate.give_up(self._waiting.stamp_ns)
        self._go_on()

    def _offer_plan(self, answer: PlanAnswer, now: float, stamp_ns: int) -> None:
        if answer.trajectory is None:
            following = ""
            if answer.next_ns is not None:
                following = f"; the next is for {self._time.seconds(answer.next_ns):.3f} s"
            start = self._time.seconds(answer.start_ns)
            self.say(f"no certified plan for the hand-over at {start:.3f} s{following}")
            self._gate.settle_plan(answer, False, stamp_ns)
            return
        t_plan, start = self.model.settings.planner.t_p, self._time.seconds(answer.start_ns)
        reason = self._core.offer_plan(answer.plan(start, t_plan, self._plans), now)
        self._gate.settle_plan(answer, reason is None, stamp_ns)
        if reason is not None:
            self.refuse("plan", "not accepted", reason)
            return
        self._plans += 1
        self.say(f"plan {self._plans - 1} taken for {start:.3f} s, certified for box {answer.box_identity}")

    def _offer_bounds(self, answer: BoundsAnswer, now: float) -> None:
        if answer.box.identity == self._latest:
            return  # nothing new, an answer all the same
        reason = self._core.offer_box(answer.box, now, answer.nominal)
        if reason is not None:
            self.refuse("bounds", "not accepted", reason)
            return
        self._latest, self._nominal = answer.box.identity, {answer.box.identity: answer.nominal}
        self.say(f"box {answer.box.identity} taken, blending")

    # -- the tick -----------------------------------------------------------------------------------------------

    def _tick(self, sample: JointSample, now: float) -> None:
        core = self._core
        effort = sample.effort
        if not core.state.commands:
            self._remember(sample)
        if sample.stamp_ns == self._started or (self._start_wanted and self._try_start(now, sample, effort)):
            out, self._started = ControllerOutput(None, sample.q), 0  # the next is the first to be answered
        else:
            out = core.step(now, sample.q, sample.qd, effort)
        self._energy = out.energy
        if out.torque is not None or self.options.lockstep:
            self._answer = self._command.fill(sample.stamp_ns, out.torque)
            self._commands.publish(self._answer)
        self._log.command_sent(self._arrival, sample.stamp_ns, out.torque is not None)
        if out.announce is not None:
            self._announce()
        self._tell_state()
        if out.torque is not None:
            self._has_commanded = True
            # Whoever plans must see where each motion begins and ends, however rarely it is told in between.
            plan = core.plan
            if plan is not self._described or sample.stamp_ns // self._period_ns % self._reference_every == 0:
                self._publish_reference(sample.stamp_ns, out.reference, out.torque)
                if self.options.lockstep:
                    self._referred = sample.stamp_ns, out.reference.copy(), out.torque.copy()
            self._described = plan
            self._log.add(sample.stamp_ns, out)
        else:
            self._described = ""

    def _tell_state(self) -> None:
        core = self._core
        if core.state is not self._state:
            level = ERROR if core.state is ControllerState.FAULT else OK
            self.say(f"{self._state.value} -> {core.state.value}: {core.reason}", level)
            self._state = core.state

    def _try_start(self, now: float, sample: JointSample, effort: np.ndarray | None) -> bool:
        if self.options.lockstep:  # time waits, and no pose is searched for what it may hit
            if abs(now - self._start_tried) < 0.5:
                return False
            self._start_tried, self._judged = now, self._checks.judge()
        judged, self._judged = self._judged, None
        if judged is None:
            return False
        reasons = judged.why_not(self.model, sample.q)
        self._start_refused = "; ".join(reasons or self._core.start(now, sample.q, sample.qd, effort))
        self._tell_box()
        self._start_wanted = bool(self._start_refused)
        if self._start_refused:
            self.refuse("start", "refused", self._start_refused)
            return False
        self._checks.forget()
        self._gate.begin_anew(sample.stamp_ns, plans=not self._has_commanded)
        return True

    def _publish_reference(self, stamp_ns: int, reference: np.ndarray, torque: np.ndarray) -> None:
        q, qd = reference[:2]
        self._references.publish(self._reference.fill(stamp_ns, q, qd, torque, self._core.box.identity))

    # -- services and telling -----------------------------------------------------------------------------------

    def _tell_box(self) -> None:
        """If it is another than the last that was told: a reset that a start or a deactivation ended."""
        if self._core.box.identity != self._announced:
            self._announce()

    def _announce(self) -> None:
        box = self._core.box
        self._announced = box.identity
        if box.seq == 0:
            self._latest = box.identity
        nominal = np.clip(self._nominal.get(box.identity, box.mid), box.lower, box.upper)
        self._active.publish(messages.bounds_message(box, nominal, digest=self.digest))
        self.say(f"working with box {box.identity}")

    def _distrusted(self) -> list[str]:
        """Why nothing may begin to move now: others tell the arm, or this node, what only one may."""
        return [] if self.options.lockstep else self.rivals.serious

    def rivals_changed(self) -> None:
        """Somebody else's torques: braking depends least on who is obeyed. Plans and boxes are just not taken."""
        rivals = self.rivals.why_not("effort_command")
        if self._core.state.commands and not self.options.lockstep and rivals:
            self._core.brake(rivals)
            self._tell_state()

    def _serve_start(self) -> str | None:
        core = self._core
        if core.state.commands and not core.stopped:
            return f"state is {core.state.value}: expected idle or fault, or a stop to take back"
        if self._emergency:
            return _EMERGENCY
        if reasons := self._distrusted():
            return "; ".join(reasons)
        if core.state.commands:
            core.go_on()
            self.say("the stop is taken back: plans are taken again")
            return None
        self._start_wanted, self._start_tried, self._judged = True, -1e9, None  # soon
        return None

    def _serve_stop(self) -> str | None:
        wanted = self._start_wanted
        self._want_no_start()
        if self._core.state.commands:
            self._core.stop()
            self._go_on()
        elif not wanted:
            return f"state is {self._core.state.value}: expected holding, tracking or braking"
        return None

    def _want_no_start(self) -> None:
        self._start_wanted, self._start_refused = False, ""

    def _serve_emergency_stop(self) -> None:
        self._emergency = True
        self._want_no_start()
        self._core.emergency_stop()
        self._go_on()

    def _serve_reset_emergency_stop(self) -> str | None:
        """Nothing moves because of it: that takes an activation, or ~/start."""
        if not self._emergency:
            return "there was no emergency stop: expected one"
        self._emergency = False
        return None

    def _serve_reset(self) -> str | None:
        reason = self._core.reset_box()
        if reason is None and not self._core.blending:  # else it is announced when the blend is over
            self._announce()
        return reason

    def status(self) -> tuple[bytes, str, dict[str, object]]:
        """State, box, energy against its bound, timing."""
        core, silent = self._core, 1e-9 * (time.perf_counter_ns() - self._log.last_arrival)
        fault = core.state is ControllerState.FAULT
        level = ERROR if fault else WARN if self._start_refused or core.counts or core.stopped else OK
        text = f"{core.state.value}: {self._start_refused or core.reason}"
        if (
            self.active
            and self._log.ticks
            and self._waiting is None
            and silent > 1.0
            and not self.options.lockstep
        ):
            level, text = ERROR, f"no measurement for {silent:.1f} s; {text}"
        if core.state.commands and not core.proved:
            level = max(level, WARN)
            text += f"; tracking bound {core.claim.text}"
        if self._waiting is not None:
            text += "; waiting for " + " and ".join(self._gate.missing(self._waiting.stamp_ns))
        values: dict[str, object] = {"state": core.state.value, "reason": core.reason}
        values |= {"box": core.box.identity, "blending": core.blending, "plans taken": self._plans}
        values |= {"V at least / V_max": f"{at_least(self._energy)} / {at_most(self.gains.V_max)} J"}
        values |= {
            "law": core.law.name,
            "tracking bound": core.claim.text,
        }
        if core.added is not None:
            values["feed-forward"] = core.added.text
        if self._doubts:
            values["seen at activation"] = self._doubts
        values |= self._log.values() | {f"count: {key}": count for key, count in core.counts.items()}
        return level, text, values

    def cleanup(self) -> None:
        """Write ``controller.npz``, once; a feed-forward's process ends."""
        self._end_feed_forward()
        # A configure that fails early must not write that of a session before.
        log = self.__dict__.pop("_log", None)
        if self.options.run_dir is not None and log is not None:
            log.save(self.options.run_dir / "controller.npz", self.refusals, self.scheduling.text)


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``controller_node``."""
    return run_node(ControllerNode, args)


if __name__ == "__main__":
    sys.exit(main())
