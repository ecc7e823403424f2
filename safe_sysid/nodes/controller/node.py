"""Controller node: parameters, topics, services and diagnostics of the controller.

:mod:`.session` decides what happens with a measurement, a plan or a request, and calls no ROS. The control law is in
:mod:`safe_sysid.control`.
"""

from __future__ import annotations

import math
import sys
import time

from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.control.checks.activation import ActivationChecks, Judgement
from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.feed_forward import AddedTorque
from safe_sysid.control.states import longest_braking
from safe_sysid.control.trajectory import notice_of
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least, at_most
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
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.common.messages.serialised import JointBytesReader
from safe_sysid.nodes.common.messages.time_base import TimeBase, to_ns
from safe_sysid.nodes.common.process import run_node
from safe_sysid.nodes.controller.interfaces import command_topic, make_interface
from safe_sysid.nodes.controller.session import Command, ControlSession
from safe_sysid.nodes.controller.timing import ControlTiming, RealTimeControlTiming
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ControllerNode", "main"]

#: An arm that is braked in simulated time is not left while that goes on: after so long without a tick, s.
_NO_TICK = 2.0
_EMERGENCY = "emergency stop: expected ~/reset_emergency_stop before anything moves"


class ControllerNode(ManagedNode):
    """Answers each measurement with a torque, or sends an arm that follows trajectories by itself what it is to follow.

    The measurement callback drives the loop; other callbacks leave their inputs for the next tick. While inactive the
    node listens and judges, but commands nothing; in lock-step time stands still until the first activation. Activation
    begins control of the arm, or says why not.
    """

    session: ControlSession
    has_loop = has_scene = True

    def __init__(self) -> None:
        self._emergency = False  # an emergency stop that was not reset; outlives every transition
        self._brakes_until: float | None = None  # monotonic, since the process was asked to end, s
        self._braked_at = 0  # stamp of the last measurement when that was looked at last, ns
        self._added: AddedTorque | None = None
        super().__init__("controller")

    def configure(self) -> None:
        """What answers measurements, rehearsed; topics."""
        options = self.options
        timing = self._make_timing()
        self._end_feed_forward()
        time_base = TimeBase(options.lockstep)
        made = make_interface(self.model, options, self.scene, time_base, self.now_ns, self.simulated)
        core, self._log, self._command = made.core, made.log, made.writer
        self._added = getattr(core, "added", None)
        self._topic, self._kind = command_topic(self.model)
        names, lockstep = self.model.joint_names, options.lockstep
        self._reader = conversions.JointReader(names, with_effort=None) if lockstep else JointBytesReader(names)
        self._reference = conversions.JointStateWriter(names)
        self._answer: object = None
        self._doubts = ""  # what activation saw and let pass
        self._said: set[str] = {"followed"}  # what came of a feed-forward's answers, as far as it was said
        self.session = ControlSession(
            core, made.checks, timing, self, time_base, self._log, self.parameters["reference_every"], options.patience
        )
        self.parameters.on_change("reference_every", self._set_reference_every)
        self._topics()

    def _make_timing(self) -> ControlTiming:
        options, settings, values = self.options, self.model.settings, self.values
        identification = settings.identification
        first_plan = values["first_plan_time"] or settings.planner.t_p
        times = (first_plan, settings.planner.t_p, identification.update_s, identification.take_after_s)
        times_ns = tuple(map(to_ns, times))
        if options.lockstep:
            period = settings.timing.period_s
            notice = notice_of(self.model)
            ahead = to_ns(period) * (math.ceil(notice / period) + 1) if notice else 0
            return ControlTiming(times_ns, values["await_plans"], values["await_bounds"], ahead)
        return RealTimeControlTiming(times_ns, settings.measurement.max_age_s)

    def _end_feed_forward(self) -> None:
        """End that of a session before, which may have failed while it was configured."""
        added, self._added = self._added, None
        if added is not None:
            added.close()

    def _set_reference_every(self, ticks: int) -> None:
        self.session.reference_every = ticks

    def _topics(self) -> None:
        lockstep = self.options.lockstep
        # In lock-step a recorder that was held up gets every command all the same.
        self._commands = self.create_publisher(self._kind, self._topic, STREAM if lockstep else COMMAND)
        self._references = self.create_publisher(JointState, "reference", STREAM)
        self._active = self.create_publisher(Float64MultiArray, "bounds_active", LATCHED)
        self.session.announce()
        self.listen(JointTrajectory, "plan", self._on_plan, LATCHED_INPUT)
        self.listen(Float64MultiArray, "bounds", self._on_bounds, LATCHED_INPUT)
        for topic in ("plan", "bounds", self._topic, "bounds_active"):
            self.exclusive_publishers.watch(topic)
        self.exclusive_publishers.watch("joint_states", shared=True)
        self._drive_by_measurements(measurement_qos(lockstep, depth=1))
        self.serve("start", self._serve_start)
        self.serve("stop", self.session.stop)
        BaseNode.serve(self, "emergency_stop", self._serve_emergency_stop)  # whatever the node's state
        self.serve("reset_bounds", self.session.reset_box)
        BaseNode.serve(self, "reset_emergency_stop", self._serve_reset_emergency_stop)
        self.every(0.1, self.session.check_patience)
        # Without the lock: judging a pose takes many ticks.
        again = self.guarded("start", self._judge_start, locked=False)
        self.create_timer(0.1, again, clock=self._steady)

    def _drive_by_measurements(self, qos: QoSProfile) -> None:
        (self.listen if self.options.lockstep else self.drive)(JointState, "joint_states", self._on_measurement, qos)

    # -- transitions --------------------------------------------------------------------------------------------

    def examine(self) -> list[str]:
        """Judge the measurements of the last half second; others go on coming meanwhile."""
        self._watch_publishers()  # the last look may have been before this node was configured
        with self.lock:
            if self._emergency:
                return [_EMERGENCY]
            if reasons := self._distrusted():
                return reasons
            checks = self.session.snapshot()
        judged = self.session.judged = self._judge(checks)
        return list(judged.reasons)

    def _judge(self, checks: ActivationChecks) -> Judgement:
        judged = checks.judge()
        self._doubts = "; ".join([] if judged.reasons else checks.warnings())
        if self._doubts:
            self.get_logger().warning(f"activation: {self._doubts}")
        return judged

    def _judge_start(self) -> None:
        """Real time, in the executor's thread: judge a wanted ``~/start`` as an activation, until it is done."""
        with self.lock:
            checks = self.session.start_to_judge()
        if checks is not None:
            judged = self._judge(checks)
            with self.lock:
                self.session.start_judged(judged)

    def activate(self) -> list[str]:
        """Begin control with the last measurement, if all start checks allow it."""
        session = self.session
        if self._emergency:
            session.judged = None
            return [_EMERGENCY]
        silence = 1e-9 * (time.perf_counter_ns() - session.arrival)
        return session.activate(self.values["start_on_activation"], silence)

    def activated(self) -> None:
        """In lock-step the measurement that waits is answered now."""
        self.session.activated()

    def deactivate(self) -> list[str]:
        """At rest commands end and the arm's drives hold; in motion it brakes first."""
        return self.session.deactivate()

    def deactivated(self) -> None:
        """What waits for an answer gets none but "nothing is commanded"."""
        self.session.deactivated()

    def why_not_shutdown(self) -> str:
        """The end of commands is for an arm at rest, as at a deactivation."""
        with self.lock:
            return "; ".join(self.deactivate()) if self._moves else ""

    @property
    def _moves(self) -> bool:
        return self.active and self.session.moves

    def may_end(self) -> bool:
        """Brake along the certified tail first, for as long as that takes and measurements come."""
        with self.lock:
            if self.active and self.session.core.state.commands and self._brakes_until is None:
                self._brake_to_end()
            if not self._moves:
                return True
            if self.options.lockstep and self._brakes_until is not None and self._braked_at != self.session.last_stamp:
                self._braked_at = self.session.last_stamp
                self._brakes_until = max(self._brakes_until, time.monotonic() + _NO_TICK)
            alone = not self.count_publishers("joint_states")
            if alone or self._brakes_until is None or time.monotonic() > self._brakes_until:
                self.say(f"ends in motion: {'no measurements' if alone else 'not at rest in time'}; its drives brake")
                return True
            return False

    def _brake_to_end(self) -> None:
        rest = self.session.brake_to_end()
        self._brakes_until = time.monotonic() + longest_braking(rest, self.options.lockstep)
        if self._moves:
            self.say(f"told to end: braking along the certified tail for {rest:.2f} s first; once more: at once")
        self.session.stop_waiting()

    # -- inputs -------------------------------------------------------------------------------------------------

    def _on_measurement(self, msg: JointState | bytes) -> None:
        arrival = time.perf_counter_ns()
        self.session.on_measurement(self._reader.read(msg), arrival)

    def _on_plan(self, msg: JointTrajectory) -> None:
        answer = conversions.read_plan(msg, self.model.joint_names)
        for topic in ("plan", self._topic):  # only where one node alone commands the arm does a plan move it
            self.trust(topic)
        self.check_digest("the planner", answer.digest)
        self.session.on_plan(answer)

    def _on_bounds(self, msg: Float64MultiArray) -> None:
        answer = conversions.read_bounds(msg, self.model.arm_prior.size)
        self.trust("bounds")
        self.check_digest("the identifier", answer.digest)
        self.session.on_bounds(answer)

    # -- what the session publishes -----------------------------------------------------------------------------

    def publish_command(self, stamp_ns: int, command: Command | None) -> None:
        """Answer a measurement; None: nothing (new) is commanded."""
        self._answer = self._command.fill(stamp_ns, command)
        self._commands.publish(self._answer)

    def repeat_command(self) -> None:
        """Publish the last answer again, if there is one."""
        if self._answer is not None:
            self._commands.publish(self._answer)

    def decline(self, stamp_ns: int) -> None:
        """Answer that nothing is commanded; the last answer remains what may be repeated."""
        self._commands.publish(self._command.fill(stamp_ns, None))

    def publish_reference(
        self, stamp_ns: int, q: FloatArray, qd: FloatArray, torque: FloatArray | None, identity: str
    ) -> None:
        """Where the arm should be now, (n,) each."""
        self._references.publish(self._reference.fill(stamp_ns, q, qd, torque, identity))

    def publish_box(self, box: ParameterBox, nominal: FloatArray) -> None:
        """The box that control works with from now on."""
        self._active.publish(conversions.bounds_message(box, nominal, digest=self.digest))

    def state_changed(self, before: ControllerState, now: ControllerState, reason: str) -> None:
        """Log the controller's new state; a fault is an error."""
        self.say(f"{before.value} -> {now.value}: {reason}", ERROR if now is ControllerState.FAULT else OK)

    # -- services -----------------------------------------------------------------------------------------------

    def _distrusted(self) -> list[str]:
        """Why nothing may begin to move now: another node publishes what only one may."""
        return [] if self.options.lockstep else self.exclusive_publishers.serious

    def publishers_changed(self) -> None:
        """Brake if another node commands the arm, too: then it matters least whose commands are obeyed."""
        reason = self.exclusive_publishers.why_not(self._topic)
        core = self.session.core
        if core.state.commands and not self.options.lockstep and reason:
            core.brake(reason)
            self.session.tell_state()

    def _serve_start(self) -> str | None:
        core = self.session.core
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
        self.session.want_start()
        return None

    def _serve_emergency_stop(self) -> None:
        self._emergency = True
        self.session.emergency_stop()

    def _serve_reset_emergency_stop(self) -> str | None:
        """Nothing moves because of it: that takes an activation, or ~/start."""
        if not self._emergency:
            return "there was no emergency stop: expected one"
        self._emergency = False
        return None

    def _tell_of_feed_forward(self, added: AddedTorque) -> None:
        """Say once why the rigid model's torque was gone back to."""
        for reason in added.ticks:
            if reason not in self._said:
                self._said.add(reason)
                self.get_logger().warning(f"{added.name}: {reason}; back to the law's own torque")

    def status(self) -> tuple[bytes, str, dict[str, object]]:
        """State, box, energy against its bound, timing."""
        session, core = self.session, self.session.core
        silent = 1e-9 * (time.perf_counter_ns() - self._log.last_arrival)
        fault = core.state is ControllerState.FAULT
        level = ERROR if fault else WARN if session.start_refused or core.counts or core.stopped else OK
        text = f"{core.state.value}: {session.start_refused or core.reason}"
        real_time, waits = not self.options.lockstep, session.waiting is not None
        if self.active and self._log.ticks and not waits and silent > 1.0 and real_time:
            level, text = ERROR, f"no measurement for {silent:.1f} s; {text}"
        if core.state.commands and not core.proved:
            level = max(level, WARN)
            text += f"; {list(core.status)[1]} {list(core.status.values())[1]}"
        if waits:
            text += "; waiting for " + " and ".join(session.missing)
        values: dict[str, object] = {"state": core.state.value, "reason": core.reason}
        values |= {"box": core.box.identity, "blending": core.blending, "plans taken": session.plans}
        if isinstance(core, Controller):
            values |= {"V at least / V_max": f"{at_least(session.energy)} / {at_most(core.claimed.V_max)} J"}
        values |= core.status
        if self._added is not None:
            self._tell_of_feed_forward(self._added)
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
