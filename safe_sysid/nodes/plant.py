"""Plant node: the simulated arm behind the topics of a real one. It alone knows what the hand holds."""

from __future__ import annotations

import sys
import time

import numpy as np
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from safe_sysid.errors import ConfigError
from safe_sysid.nodes import messages
from safe_sysid.nodes.base import ERROR, OK, WARN, BaseNode, measurement_qos
from safe_sysid.nodes.messages import Refused
from safe_sysid.nodes.parameters import choice, declare, number, numbers
from safe_sysid.nodes.spin import run_node
from safe_sysid.nodes.time_base import Histogram, to_ns
from safe_sysid.simulation.arms import DRAW_MODES, draw_truth
from safe_sysid.simulation.noise import NOISE_MODES, NoiseModel
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.simulation.plant import Plant

__all__ = ["PlantNode", "main"]

#: rad/s; slower is at rest, for a plant that goes on without its controller.
_REST = 1e-4
_REST_TIME = 0.5
#: Lock-step: a state that was not answered for so long is published again, s.
_AGAIN = 0.5


class PlantNode(BaseNode):
    """In lock-step each command is answered with the next state; in real time the wall clock drives the steps."""

    def __init__(self) -> None:
        super().__init__("plant")
        options, timing = self.options, self.model.settings.timing
        self._period = to_ns(timing.period_s)
        self._plant = self._build()
        n = self.model.n
        self._commands, self._torque = 0, None
        self._stamp, self._origin, self._deadline = 0, 0, 0
        self._late, self._delay = Histogram(), Histogram()
        self._skipped, self._missed, self._held = 0, 0, 0
        self._answered, self._alone, self._rest_since = time.monotonic(), False, 0.0
        self._writer, self._clock_message = messages.JointStateWriter(self.model.joint_names), Clock()
        self._states = self.create_publisher(JointState, "joint_states", measurement_qos(options.lockstep, history=True))
        self._clocks, self._clock_wanted = None, False
        if options.lockstep:
            self._clocks = self.create_publisher(Clock, "/clock", 10)
            self.every(0.25, self._look_around)
        self.listen(Float64MultiArray, "effort_command", self._on_command, 1)
        if options.lockstep:
            self._step(None)

    def _build(self) -> Plant:
        model, options, settings = self.model, self.options, self.model.settings
        payload = payload_from_spec(declare(self, "payload", "none", "weight, ten numbers or a URDF file"))
        noise = choice(self, "noise", "uniform", NOISE_MODES, "errors of the measurements")
        arm = choice(self, "arm", "uniform", DRAW_MODES, "where in its tolerances the true arm lies")
        start = numbers(self, "start_q", model.n, "start position, rad; empty for the scene's")
        watchdog = number(self, "watchdog_s", 0.02, "age of a command at which the drives brake, s")
        scene = options.load_scene(model)
        return Plant(
            model,
            draw_truth(model, payload, options.seed, arm),
            payload,
            scene,
            options.seed,
            NoiseModel.declared(settings, noise),
            scene.start_for(model) if start is None else start,
            period=settings.timing.period_s,
            watchdog_s=watchdog,
            torque_source=settings.measurement.torque_source,
        )

    # -- commands and steps -------------------------------------------------------------------------------------

    def _on_command(self, msg: Float64MultiArray) -> None:
        stamp, torque = messages.read_command(msg, self.model.n)
        if self.options.lockstep:
            if stamp != self._stamp:
                raise Refused("wrong tick", f"command answers {stamp} ns: expected {self._stamp} ns")
            self._answered, self._alone = time.monotonic(), False
            self._step(torque)
        elif torque is not None:
            self._torque = torque
            if stamp is not None:
                self._delay.add(1e-9 * (time.time_ns() - stamp))
        self._commands += 1

    def _step(self, torque: np.ndarray | None, publish: bool = True) -> None:
        measurement = self._plant.step(torque)
        self._stamp += self._period
        if not publish:
            return
        stamp = self._origin + self._stamp
        if self._clock_wanted:
            messages.write_stamp(self._clock_message.clock, stamp)
            self._clocks.publish(self._clock_message)
        self._states.publish(self._writer.fill(stamp, measurement.q, measurement.qd, measurement.effort))

    def _look_around(self) -> None:
        """Lock-step: does anyone want the time, which costs a tenth of a step? Was the last state heard, and the answer?"""
        self._clock_wanted = self._clocks.get_subscription_count() > 0
        if time.monotonic() - self._answered > _AGAIN:
            self._states.publish(self._writer.message)

    def spin_some(self, executor: object) -> None:
        """Lock-step: wait for commands, or go on alone when none comes. Real time: step when it is time."""
        if self.options.lockstep and not self._alone:
            executor.spin_once(timeout_sec=0.1)
            waited = time.monotonic() - self._answered
            # The controller may be waiting itself, for as long as its patience lasts.
            if self._commands and waited > 2.0 * self.options.patience:
                self.refuse("lock-step", "no command", f"waited {waited:.1f} s; going on alone, the drives brake")
                self._alone, self._deadline, self._rest_since = True, time.monotonic_ns(), self._plant.time
            return
        now = time.monotonic_ns()
        if not self._deadline:
            self._origin, self._deadline = time.time_ns(), now + self._period  # a stamp is its step's deadline
        if now < self._deadline:
            executor.spin_once(timeout_sec=1e-9 * (self._deadline - now))
        elif self.options.lockstep:
            self._step_alone()
        else:
            self._step_on_time(now)

    def _step_alone(self) -> None:
        """One step without a controller; nothing more to see once the arm is at rest."""
        self._deadline += self._period
        if np.any(np.abs(self._plant.measurement.qd) > _REST):
            self._rest_since = self._plant.time
        if self._plant.time - self._rest_since < _REST_TIME:
            self._step(None)

    def _step_on_time(self, now: int) -> None:
        """All steps that are due. After a stall only the last is published: the others are past, to everyone."""
        due = 1 + (now - self._deadline) // self._period
        self._late.add(1e-9 * (now - self._deadline))
        self._skipped += due - 1
        self._deadline += due * self._period
        for i in range(due):
            torque, self._torque = self._torque, None
            self._missed += torque is None and self._commands > 0
            self._step(torque, publish=i == due - 1)

    # -- telling ------------------------------------------------------------------------------------------------

    def status(self) -> tuple[bytes, str, dict[str, object]]:
        """Contacts, who moves the arm, timing."""
        plant = self._plant
        level, text = OK, "moved by commands"
        if plant.braking:
            level, text = WARN, "no commands: the drives hold"
        if plant.contact_steps:
            level, text = ERROR, f"contact: {sorted(plant.contact_names)}"
        values = {"time": f"{plant.time:.3f} s", "commands": self._commands, "steps late": self._late}
        values |= {"measurement to command": self._delay, "steps without command": self._missed}
        values |= {"steps not published": self._skipped, "contact steps": plant.contact_steps}
        return level, text, values

    def close(self) -> None:
        """Write ``plant.npz``; ``origin_ns`` is the stamp of its time 0."""
        if self.options.run_dir is None:
            return
        plant = self._plant
        np.savez(
            self.options.run_dir / "plant.npz",
            **plant.truth(),
            origin_ns=self._origin,
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
