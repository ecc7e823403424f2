"""Controller node: answers every measurement with a torque. Judgement, states and law are in ``safe_sysid.control``."""

from __future__ import annotations

import sys
import time

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.control.controller import Controller, ControllerOutput, ControllerState
from safe_sysid.control.design import design_gains
from safe_sysid.nodes import messages
from safe_sysid.nodes.base import ERROR, HISTORY, LATCHED, OK, WARN, BaseNode, measurement_qos
from safe_sysid.nodes.lockstep import LockstepGate
from safe_sysid.nodes.messages import BoundsAnswer, JointSample, PlanAnswer, RefusedError
from safe_sysid.nodes.parameters import declare, number
from safe_sysid.nodes.spin import run_node
from safe_sysid.nodes.tick_log import TickLog
from safe_sysid.nodes.time_base import TimeBase, to_ns

__all__ = ["ControllerNode", "main"]


_INACTIVE = (ControllerState.IDLE, ControllerState.FAULT)


class ControllerNode(BaseNode):
    """The loop is driven by the measurement callback; everything else only leaves things for the next tick."""

    def __init__(self) -> None:
        super().__init__("controller")
        options, settings, n = self.options, self.model.settings, self.model.n
        self._start_wanted = declare(self, "autostart", True, "start at the first measurement")
        self._reference_every = number(self, "reference_every", 10, "ticks between references", 1)
        first_plan = number(self, "first_plan_time", settings.planner.t_p, "lock-step: first hand-over, s")
        await_plans = declare(self, "await_plans", True, "lock-step: wait for the planner's answers")
        await_bounds = declare(self, "await_bounds", True, "lock-step: wait for the identifier's answers")
        identification = settings.identification
        times = (first_plan, settings.planner.t_p, identification.update_s, identification.take_after_s)
        self._gate = LockstepGate(
            tuple(map(to_ns, times)), options.lockstep and await_plans, options.lockstep and await_bounds
        )
        self.gains = design_gains(self.model, options.lockstep)
        self._warm_up()
        self._core = Controller(self.model, self.gains, settings.controller.blend_s)
        self._time = TimeBase(options.lockstep)
        self._reader = messages.JointReader(self.model.joint_names, with_effort=False)
        self._command = messages.CommandWriter(n)
        self._reference = messages.JointStateWriter(self.model.joint_names)
        self._nominal = {"": self.model.arm_prior.mid}
        self._latest, self._energy = self._core.box.identity, 0.0
        self._waiting: JointSample | None = None
        self._answer: Float64MultiArray | None = None
        self._arrival, self._started_waiting = 0, 0.0
        self._q_last: np.ndarray | None = None
        self._last_stamp, self._plans = 0, 0
        self._start_refused, self._start_tried = "", -1e9
        self._state = self._core.state
        self._period_ns = to_ns(settings.timing.period_s)
        self._log = TickLog(self._core, options.lockstep)
        self._topics()

    def _warm_up(self) -> None:
        """Compile (or load) the law before anyone waits for it."""
        scratch, zero = Controller(self.model, self.gains), np.zeros(self.model.n)
        scratch.start(0.0, np.array(self.model.settings.home), zero)
        scratch.step(1e-3, np.array(self.model.settings.home), zero)

    def _topics(self) -> None:
        lockstep = self.options.lockstep
        self._commands = self.create_publisher(Float64MultiArray, "effort_command", 1)
        self._references = self.create_publisher(JointState, "reference", HISTORY)
        self._active = self.create_publisher(Float64MultiArray, "bounds_active", LATCHED)
        self._announce()
        self.listen(JointTrajectory, "plan", self._on_plan, LATCHED)
        self.listen(Float64MultiArray, "bounds", self._on_bounds, LATCHED)
        self.listen(JointState, "joint_states", self._on_measurement, measurement_qos(lockstep, depth=1))
        self.serve("start", self._serve_start)
        self.serve("stop", lambda: self._core.stop())
        self.serve("reset_bounds", self._serve_reset)
        self.every(0.1, self._check_patience)

    # -- inputs -------------------------------------------------------------------------------------------------

    def _on_measurement(self, msg: JointState) -> None:
        arrival = time.perf_counter_ns()
        sample = self._reader.read(msg)
        if self.options.lockstep and sample.stamp_ns == self._last_stamp:
            self._say_again()
            return
        if sample.stamp_ns <= self._last_stamp:
            raise RefusedError("not newer", f"stamp {sample.stamp_ns} ns after {self._last_stamp} ns")
        if not self.options.lockstep:
            self._check_age(1e-9 * (time.time_ns() - sample.stamp_ns))
        self._last_stamp, self._arrival = sample.stamp_ns, arrival
        self._waiting, self._started_waiting = sample, time.monotonic()
        self._go_on()

    def _check_age(self, age: float) -> None:
        longest = self.model.settings.measurement.max_age_s
        if not -longest <= age <= longest:
            text = f"measured {age:.3f} s ago: expected at most {longest:g} s (are all clocks the same?)"
            raise RefusedError("stale" if age > 0.0 else "from the future", text)

    def _say_again(self) -> None:
        """The plant has not heard the last answer, for it was not connected yet."""
        if self._waiting is None and self._answer is not None:
            self._commands.publish(self._answer)

    def _on_plan(self, msg: JointTrajectory) -> None:
        self._gate.put_plan(messages.read_plan(msg, self.model.joint_names))
        self._go_on()

    def _on_bounds(self, msg: Float64MultiArray) -> None:
        self._gate.put_bounds(messages.read_bounds(msg, self.model.arm_prior.size))
        self._go_on()

    def _go_on(self) -> None:
        """Answer the measurement that waits, if everything that is due by then is there."""
        sample = self._waiting
        if sample is None:
            return
        now = self._time.seconds(sample.stamp_ns)
        for plan in self._gate.due_plans(sample.stamp_ns):
            self._offer_plan(plan, now, sample.stamp_ns)
        if self._core.state in _INACTIVE:
            self._gate.forget_plans(sample.stamp_ns)  # there is no motion to plan
        if self._gate.missing(sample.stamp_ns):
            return
        for bounds in self._gate.due_bounds(sample.stamp_ns):
            self._offer_bounds(bounds, now)
        self._waiting = None
        self._tick(sample, now)

    def _check_patience(self) -> None:
        if self._waiting is None or time.monotonic() - self._started_waiting < self.options.patience:
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
        reason = self._core.offer_box(answer.box, now)
        if reason is not None:
            self.refuse("bounds", "not accepted", reason)
            return
        self._latest, self._nominal = answer.box.identity, {answer.box.identity: answer.nominal}
        self.say(f"box {answer.box.identity} taken, blending")

    # -- the tick -----------------------------------------------------------------------------------------------

    def _tick(self, sample: JointSample, now: float) -> None:
        core, q = self._core, self._unwrap(sample.q)
        if self._start_wanted and self._try_start(now, q, sample.qd):
            out = ControllerOutput(None, q)  # the next measurement is the first to be answered
        else:
            out = core.step(now, q, sample.qd)
        self._energy = out.energy
        if out.torque is not None or self.options.lockstep:
            self._answer = self._command.fill(sample.stamp_ns, out.torque)
            self._commands.publish(self._answer)
        self._log.command_sent(self._arrival, sample.stamp_ns)
        if out.announce is not None:
            self._announce()
        if core.state is not self._state:
            self.say(f"{self._state.value} -> {core.state.value}: {core.reason}")
            self._state = core.state
        if out.torque is not None:
            if sample.stamp_ns // self._period_ns % self._reference_every == 0:
                self._publish_reference(sample.stamp_ns, out, out.torque)
            self._log.add(sample.stamp_ns, out)

    def _unwrap(self, q: np.ndarray) -> np.ndarray:
        """Continuous joints on the branch next to where they were."""
        if self._q_last is not None and np.abs(self._q_last - q).max() > np.pi:
            turns = np.where(self.model.continuous, np.round((self._q_last - q) / (2.0 * np.pi)), 0.0)
            q = q + 2.0 * np.pi * turns
        self._q_last = q
        return q

    def _try_start(self, now: float, q: np.ndarray, qd: np.ndarray) -> bool:
        if now - self._start_tried < 0.5:
            return False
        self._start_tried = now
        self._start_refused = "; ".join(self._core.start(now, q, qd))
        self._start_wanted = bool(self._start_refused)
        if self._start_refused:
            self.refuse("start", "refused", self._start_refused)
        return not self._start_refused

    def _publish_reference(self, stamp_ns: int, out: ControllerOutput, torque: np.ndarray) -> None:
        q, qd = out.reference[:2]
        self._references.publish(self._reference.fill(stamp_ns, q, qd, torque, self._core.box.identity))

    # -- services and telling -----------------------------------------------------------------------------------

    def _announce(self) -> None:
        box = self._core.box
        nominal = np.clip(self._nominal.get(box.identity, box.mid), box.lower, box.upper)
        self._active.publish(messages.bounds_message(box, nominal))
        self.say(f"working with box {box.identity}")

    def _serve_start(self) -> str | None:
        if self._core.state not in _INACTIVE:
            return f"state is {self._core.state.value}: expected idle or fault"
        self._start_wanted, self._start_tried = True, -1e9  # at the next measurement
        return None

    def _serve_reset(self) -> str | None:
        reason = self._core.reset_box()
        if reason is None:
            self._latest = self._core.box.identity
            self._announce()
        return reason

    def status(self) -> tuple[bytes, str, dict[str, object]]:
        """State, box, energy against its bound, timing."""
        core, silent = self._core, 1e-9 * (time.perf_counter_ns() - self._log.last_arrival)
        fault = core.state is ControllerState.FAULT
        level = ERROR if fault else WARN if self._start_refused or core.counts else OK
        text = f"{core.state.value}: {self._start_refused or core.reason}"
        if self._log.ticks and self._waiting is None and silent > 1.0 and not self.options.lockstep:
            level, text = ERROR, f"no measurement for {silent:.1f} s; {text}"
        if self._log.late > 0.01 * self._log.ticks:
            level = max(level, WARN)
            text += (
                f"; {self._log.late} commands later than delay_max: the tracking bound does not cover that"
            )
        if self._waiting is not None:
            text += "; waiting for " + " and ".join(self._gate.missing(self._waiting.stamp_ns))
        values: dict[str, object] = {"state": core.state.value, "reason": core.reason}
        values |= {"box": core.box.identity, "blending": core.blending, "plans taken": self._plans}
        values |= {"V at least / V_max": f"{self._energy:.3g} / {self.gains.V_max:.3g} J"}
        values |= self._log.values() | {f"count: {key}": count for key, count in core.counts.items()}
        return level, text, values

    def close(self) -> None:
        """Write ``controller.npz``."""
        if self.options.run_dir is not None:
            self._log.save(self.options.run_dir / "controller.npz", self.refusals)


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``controller_node``."""
    return run_node(ControllerNode, args)


if __name__ == "__main__":
    sys.exit(main())
