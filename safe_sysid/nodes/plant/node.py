"""Plant node: the simulated arm behind the topics of a real one. It alone knows what the hand holds."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from rclpy.executors import Executor
from rclpy.serialization import deserialize_message
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.control.states import COMMAND_TOPICS, longest_braking
from safe_sysid.errors import ConfigError
from safe_sysid.nodes.common.base import COMMAND, ERROR, OK, WARN, BaseNode, measurement_qos
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.common.messages.contents import NOT_AWAITED, MessageRefusedError
from safe_sysid.nodes.common.messages.serialised import CommandBytesReader, JointBytesWriter
from safe_sysid.nodes.common.messages.time_base import to_ns
from safe_sysid.nodes.common.messages.trajectories import TrajectoryReader
from safe_sysid.nodes.common.process import run_node
from safe_sysid.nodes.common.realtime.histograms import Histogram
from safe_sysid.nodes.common.realtime.row_recorder import Recorder
from safe_sysid.nodes.plant.pacing import Pacer, TimedCommand
from safe_sysid.nodes.plant.payload_services import PayloadServices
from safe_sysid.simulation import Plant, payload_in_hand
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.servo import SERVO_TICK_S, ServoArm, build_servo_arm

__all__ = ["PlantNode", "main"]

#: rad/s; slower is at rest, for a plant that goes on without its controller; and for how long, s.
_REST, _REST_TIME = 1e-4, 0.5
#: Lock-step: so long the arm has to rest, s of its own time, before time slows down.
_CALM = 5.0
#: At the end: slower is at rest, rad/s, which is looked at so often, s; so long at rest, of its own time, is
#: enough, s, whoever goes on with commands; and lock-step without a command for so long is without a controller, s.
_SLOW, _LOOK, _LINGER, _DEAD = 3e-3, 0.1, 1.0, 3.0
#: Lock-step: a state that was not answered for so long is published again, s.
_AGAIN = 0.5
#: Lock-step with a pace: so far ahead of it the plant sleeps, so far behind it the pace begins anew, s.
_AHEAD, _BEHIND = 0.005, 0.1
#: Real time: Runge-Kutta steps per period, at least; commands take effect at the next one.
_SUBSTEPS = 5


class PlantNode(BaseNode):
    """In lock-step each command is answered with the next state; in real time the wall clock drives the steps.

    With ``controller.interface: trajectory`` the arm is as it is sold: a servo of its own follows trajectories.
    """

    has_loop = True

    def __init__(self) -> None:
        super().__init__("plant")
        lockstep = self.options.lockstep
        self._period = to_ns(self.model.settings.timing.period_s)
        self._arm = self._build()
        self._servo = isinstance(self._arm, ServoArm)
        self._plant: Plant = self._arm.plant if isinstance(self._arm, ServoArm) else self._arm
        self._wraps = self.model.continuous & self.model.settings.driver.wraps_continuous
        self._pacer: Pacer | None = None
        self._paced, self._pace = (0, time.monotonic()), self.values["lockstep_pace"]
        self._commands, self._stamp, self._origin, self._last_answered = 0, 0, 0, 0
        self._answered, self._alone, self._rest_since = time.monotonic(), False, 0.0
        # Asked to end: when at the latest (s), at rest since, position and time and commands when that was looked at.
        self._end: float | None = None
        self._rests_since: float | None = None
        self._seen: tuple[np.ndarray | None, float] = (None, 0.0)
        self._heard, self._looked = -1, 0.0
        self._late, self._delay, self._age = Histogram(), Histogram(), Histogram()
        self._skipped, self._missed = 0, 0
        self._timing = Recorder({"delay": 1, "age": 1})
        names = self.model.joint_names
        self._writer = conversions.JointStateWriter(names) if lockstep else JointBytesWriter(names)
        self._reader, self._clock_message = CommandBytesReader(self.model.n), Clock()
        self._trajectories = TrajectoryReader(names)
        qos = measurement_qos(lockstep, history=True)
        self._states = self.create_publisher(JointState, "joint_states", qos)
        self._clocks, self._clock_wanted = (self.create_publisher(Clock, "/clock", 10) if lockstep else None, False)
        kind = JointTrajectory if self._servo else Float64MultiArray
        topic = COMMAND_TOPICS[self.model.settings.controller.interface]
        if not lockstep:
            self.drive(kind, topic, self._on_command, COMMAND, self._step_if_due)
        else:
            self.listen(kind, topic, self._on_command, 10)
            # Whatever they say, something happens soon: time does not slow down, or does no more.
            self.listen(JointTrajectory, "plan", self._wake, 10)
            self.listen(Float64MultiArray, "bounds_active", self._wake, 10)
            self.every(0.25, self._look_around)
            self._advance(None)
            self._publish()
        self._hand = PayloadServices(self, self._plant, lambda: self._origin + self._stamp)
        self.parameters.declare_settings(self.model)

    def _build(self) -> Plant | ServoArm:
        model, options = self.model, self.options
        given = self.values
        follows = model.settings.follows_trajectories
        rows = to_ns(options.log_s) // (to_ns(SERVO_TICK_S) if follows else self._period)
        chosen: dict[str, Any] = {"watchdog_s": given["watchdog_s"], "log_rows": rows, "engine": given["engine"]}
        start = given["start_q"]
        if start is not None:
            if len(start) != model.n:
                raise ConfigError("parameters of plant", "start_q", start, f"{model.n} numbers")
            chosen["q0"] = start
        if not options.lockstep:
            chosen["substeps"] = _SUBSTEPS
        return (build_servo_arm if follows else build_plant)(
            model,
            payload_in_hand(model, given["payload"]),
            options.load_scene(model),
            options.seed,
            given["noise"],
            "uniform" if given["arm"] == "random" else given["arm"],
            given["actuator"],
            **chosen,
        )

    # -- commands and steps -------------------------------------------------------------------------------------

    def _read(self, msg: Any) -> tuple[int | None, Any]:
        """Stamp that is answered, and the command: a torque, or points of a trajectory; None: nothing new."""
        if not self._servo:
            return self._reader.read(msg)
        if isinstance(msg, bytes):
            msg = deserialize_message(msg, JointTrajectory)
        return self._trajectories.read(msg, self._origin)

    def _on_command(self, msg: Any) -> None:
        arrival, wall = time.monotonic_ns(), time.time_ns()
        stamp, torque = self._read(msg)
        if self.options.lockstep:
            if stamp != self._stamp:
                self._answer_again(stamp)
                return
            self._answered, self._alone, self._last_answered = time.monotonic(), False, stamp
            self._advance(torque)
            self._keep_pace()
            self._publish()
        elif torque is not None and self._pacer is not None:
            self._pacer.put(TimedCommand(arrival, torque))
            if (step := self._pacer.ahead(arrival)) is not None:
                self._advance(*step)
            if stamp is not None and not self._servo:
                self._note_timing(stamp, wall)
        self._commands += 1

    def _answer_again(self, stamp: int | None) -> None:
        """An answer to another state than the last, too late to be obeyed.

        That is natural where a state was published twice, for it was not answered soon, and where the plant went on
        alone: then someone is there again, who will come to the last state.
        """
        if self._alone:
            self._answered, self._alone = time.monotonic(), False
        if stamp is None or not self._last_answered <= stamp < self._stamp:
            raise MessageRefusedError("wrong tick", f"command answers {stamp} ns: expected {self._stamp} ns")

    def _wake(self, _: object) -> None:
        self._rest_since = self._plant.time

    def _keep_pace(self) -> None:
        """Lock-step that people look on: no faster than asked for; what a pause has cost is not made up for.

        And an arm that rests for long keeps no processor busy.
        """
        pace = self.values["lockstep_pace"]
        if self._is_at_rest(_CALM):
            pace = min(pace or np.inf, self.values["lockstep_rest_pace"])
        if pace != self._pace:
            self._pace, self._paced = pace, (self._stamp, time.monotonic())
        if pace is None:
            return
        ahead = 1e-9 * (self._stamp - self._paced[0]) / pace - (time.monotonic() - self._paced[1])
        if ahead > _AHEAD:
            time.sleep(ahead)
        elif ahead < -_BEHIND:
            self._paced = self._stamp, time.monotonic()

    def _note_timing(self, stamp: int, now: int) -> None:
        """Delay of this command, and how old the measurement behind the last one has become, s."""
        delay, age = 1e-9 * (now - stamp), 1e-9 * (now - (self._last_answered or stamp))
        self._last_answered = stamp
        self._delay.add(delay)
        self._age.add(age)
        self._timing.append(stamp, (np.array([delay, age]),))

    def _advance(self, command: Any, late: float = 0.0) -> None:
        self._arm.step(command, late)
        self._stamp += self._period
        self._missed += command is None and self._commands > 0 and not self._servo

    def _publish(self) -> None:
        """The state at the end of the last period."""
        measurement, stamp = self._arm.measurement, self._origin + self._stamp
        if self._clock_wanted and self._clocks is not None:
            conversions.write_stamp(self._clock_message.clock, stamp)
            self._clocks.publish(self._clock_message)
        q = measurement.q
        if self._wraps.any():  # as the declared driver does
            q = np.where(self._wraps, (q + np.pi) % (2.0 * np.pi) - np.pi, q)
        self._told = self._writer.fill(stamp, q, measurement.qd, measurement.effort)
        if self._alone and isinstance(self._told, JointState):
            self._told.header.frame_id = NOT_AWAITED
        self._states.publish(self._told)

    def _look_around(self) -> None:
        """Lock-step: does anyone want the time, which costs a tenth of a step? Was the last state answered?"""
        self._clock_wanted = self._clocks is not None and self._clocks.get_subscription_count() > 0
        if time.monotonic() - self._answered > _AGAIN:
            self._states.publish(self._told)

    def spin_some(self, executor: Executor) -> None:
        """Lock-step: wait for commands, or go on alone when none comes. In real time the loop's thread steps."""
        alone = self.options.lockstep and self._alone
        executor.spin_once(timeout_sec=1e-9 * max(self._step_if_due(), 0) if alone else 0.1)
        if self.options.lockstep and not alone:
            self._check_patience()

    def _step_if_due(self) -> int:
        """Step when it is time; returns ns to the next."""
        now = time.monotonic_ns()
        if self._pacer is None:
            self._pacer = Pacer(self._period, now)
            self._origin = 0 if self.options.lockstep else time.time_ns()  # a stamp is the end of its period
        if self._pacer.wait(now) <= 0:
            self._step_on_time(self._pacer, now)
        return self._pacer.wait(time.monotonic_ns())

    def _check_patience(self) -> None:
        """The controller may be waiting itself, for as long as its patience lasts; then it is taken for dead."""
        waited = time.monotonic() - self._answered
        if self._commands and waited > 2.0 * self.options.patience:
            self._go_alone(waited)

    def _go_alone(self, waited: float) -> None:
        self.refuse("lock-step", "no command", f"waited {waited:.1f} s; going on alone, the drives brake")
        self._alone, self._pacer, self._rest_since = True, None, self._plant.time

    def _step_on_time(self, pacer: Pacer, now: int) -> None:
        """A deadline has come. After a stall only the last state is told: the others are past, to everyone."""
        self._late.add(1e-9 * pacer.lateness(now))
        before = self._stamp
        for step in pacer.due(now):
            if self._alone and self._is_at_rest():
                if self._stamp == before:
                    return
                break  # whoever takes over answers the last state told: it must be the one that is waited for
            self._advance(*step)
        self._skipped += max((self._stamp - before) // self._period - 1, 0)
        self._publish()

    def _is_at_rest(self, how_long: float = _REST_TIME) -> bool:
        """Without a controller and at rest there is nothing more to see; lock-step time stands still."""
        if np.any(np.abs(self._plant.state[1]) > _REST):
            self._rest_since = self._plant.time
        return self._plant.time - self._rest_since > how_long

    def may_end(self) -> bool:
        """An arm does not vanish in motion: it is there until it rests, braked by its controller or by its drives.

        A controller that brakes it is waited for; one that goes on, because nobody told it to end, is not.
        """
        with self.lock:
            now, lockstep, t_f = time.monotonic(), self.options.lockstep, self.model.settings.planner.t_f
            if self._end is None:  # in simulated time, which is slow on a busy machine, every braking ends within t_f
                self._end = self._plant.time + t_f + _LINGER if lockstep else now + longest_braking(t_f, False) + _DEAD
            elif now - self._looked < _LOOK:
                return False
            self._looked = now
            if lockstep and not self._alone and now - self._answered > _DEAD:
                self._go_alone(now - self._answered)
            rests, before = self._has_rested(), self._heard
            self._heard, over = self._commands, (self._plant.time if lockstep else now) > self._end
            if not rests:
                self._rests_since = None
                return over
            if self._rests_since is None:
                self._rests_since = self._plant.time
            return self._heard == before or self._plant.time - self._rests_since > _LINGER or over

    def _has_rested(self) -> bool:
        """Since it was asked last: where it went, for its velocity alone may be noise of the control."""
        (before, since), (q, qd), now = self._seen, self._plant.state, self._plant.time
        self._seen = q, now
        if before is None:
            return False
        return bool(np.all(np.abs(q - before) < _SLOW * (now - since) if now > since else np.abs(qd) < _SLOW))

    # -- telling ------------------------------------------------------------------------------------------------

    def status(self) -> tuple[bytes, str, dict[str, object]]:
        """Contacts, who moves the arm, timing."""
        plant = self._plant
        level, text = OK, "follows trajectories" if self._servo else "moved by commands"
        if plant.braking:
            level, text = WARN, "no commands: the drives hold"
        if plant.contact_steps:
            level, text = ERROR, f"contact: {sorted(plant.contact_names)}"
        values: dict[str, object] = {"time": f"{plant.time:.3f} s", "commands": self._commands}
        values["payload"] = plant.payload.name
        if self.options.lockstep:
            values["pace"] = "as fast as it goes" if self._pace is None else f"{self._pace:g} of real time at most"
        values["contact steps"] = plant.contact_steps
        if not self.options.lockstep:
            values |= {"step after its deadline": self._late, "measurement to command": self._delay}
            values |= {"age of measurement behind torque": self._age, "steps without command": self._missed}
            values["steps not published"] = self._skipped
        return level, text, values

    def close(self) -> None:
        """Write ``plant.npz``; ``origin_ns`` is the stamp of its time 0."""
        if self.options.run_dir is None:
            return
        plant = self._plant
        values: dict[str, Any] = {**plant.truth(), **self._timing.columns(), **self._hand.record()}
        np.savez(
            self.options.run_dir / "plant.npz",
            **values,
            command_stamp=self._timing.stamps,
            origin_ns=self._origin,
            missed=self._missed,
            skipped=self._skipped,
            theta_true=plant.theta_true,
            coulomb_velocity=plant.coulomb_velocity,
            joint_names=np.array(self.model.joint_names),
            payload=np.array(plant.payload.name),
            scene=np.array(plant.scene.name),
            contact_names=np.array(sorted(" / ".join(pair) for pair in plant.contact_names), dtype=str),
            rejected_commands=plant.rejected_commands,
        )


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``plant_node``."""
    return run_node(PlantNode, args)


if __name__ == "__main__":
    sys.exit(main())
