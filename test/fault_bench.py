"""The plant's side of the topics, in lock-step: brings a real controller process into a state, does harm, and looks on.

One process serves for many faults: after each the drives hold a new arm, and ``~/start`` begins again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue, SetParametersResult
from rcl_interfaces.srv import SetParameters
from ros_harness import NodeProcess, Probe
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.nodes.common.base import LATCHED_INPUT, measurement_qos
from safe_sysid.nodes.common.digest import configuration_digest, plan_digest
from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.nodes.common.messages.conversions import JointReader, plan_message, read_command, write_stamp
from safe_sysid.robot import RobotModel, load_scene
from safe_sysid.simulation import Plant, payload_from_spec
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.plant import COMMANDED
from safe_sysid.trajectories import Plan, QuinticTrajectory

MS = 1_000_000
#: Settings of the robot: short plans.
OVERRIDES: dict[str, Any] = {"planner": {"t_f": 1.0, "t_p": 0.5}}
#: Parameters of the controller under test.
CONTROLLER: dict[str, Any] = {
    "await_plans": False,
    "await_bounds": False,
    "start_on_activation": False,
    "reference_every": 5,
    "use_sim_time": True,
}


def plan_ahead(model: RobotModel, now: JointSample, way: Any, seconds: float, t_p: float) -> JointTrajectory:
    """Two seconds from where the reference rests now, so far, beginning so many seconds later; in the open scene."""
    zero = np.zeros(model.n)
    trajectory = QuinticTrajectory.to_rest(np.stack([now.q, zero, zero]), now.q + way, 2.0)
    plan = Plan(trajectory, 0.0, t_p, "0:0", 0, zero)
    digest = plan_digest(configuration_digest(model, lockstep=True, scene=load_scene("open")))
    return plan_message(plan, model.joint_names, now.stamp_ns + round(1e9 * seconds), digest)


@dataclass
class Outcome:
    """What became of a fault.

    Attributes:
        before, after: states, ``after`` in their order.
        reason: of the first change.
        rate: largest change of the torque in force, N m/s.
        torque, velocity: largest share of the limit.
        position: whether all joints stayed inside their limits.
        gap: ms in which the drives had no command.
        lost: trajectory interface: since when, and why, the tube is not claimed; "" if it is.
        share: trajectory interface: largest share of the outer tube, of the true state while it was claimed.
    """

    before: str
    after: list[str]
    reason: str
    rate: float
    torque: float
    velocity: float
    position: bool
    gap: int
    lost: str = ""
    share: float = 0.0


class FaultBench:
    """See the module. Times are in ms; a tick is a period of the controller.

    Attributes:
        command: topic and type of what the controller sends.
        ahead: so long before its start a plan has to come.
    """

    command: tuple[str, type] = "effort_command", Float64MultiArray
    ahead = 50

    def __init__(self, model: RobotModel, probe: Probe, controller: NodeProcess) -> None:
        self.model, self.probe, self.controller = model, probe, controller
        self.period = round(1e9 * model.settings.timing.period_s)
        self.stamp, self.digest = 0, configuration_digest(model, lockstep=True, scene=load_scene("open"))
        self.torque: Any = None  # what the arm was sent last
        self.answers: dict[int, Any] = {}
        self.hold, reader = np.zeros(model.n), JointReader(model.joint_names, with_effort=None)
        probe.listen(JointState, "reference", lambda message: self.on_reference(reader.read(message)), 100)
        self.payload = "8lb"
        topic, kind = self.command
        probe.listen(kind, topic, self._on_command, 10)
        qos = measurement_qos(lockstep=True, history=True)
        self.states = probe.publisher(JointState, "joint_states", qos)
        self.plans = probe.publisher(JointTrajectory, "plan", LATCHED_INPUT)
        self.bounds = probe.publisher(Float64MultiArray, "bounds", LATCHED_INPUT)
        self.clock = probe.publisher(Clock, "/clock")
        self._since = 0
        self.distort: Callable[[JointState], object] | None = None  # of every measurement
        self.plant = self._new_plant()

    def fresh_plant(self) -> None:
        """An arm at home that its drives hold."""
        self.plant, self.torque, self.distort = self._new_plant(), None, None
        self.stamp = max(self.stamp, 1_000_000 * MS)

    def _new_plant(self) -> Plant:
        payload = payload_from_spec(self.payload)
        return build_plant(self.model, payload, load_scene("open"), 5, noise="adversarial", actuator="adversarial")

    def on_reference(self, sample: JointSample) -> None:
        """What the controller says that is desired."""
        self.hold = sample.q

    def _on_command(self, message: Any) -> None:
        stamp, torque = read_command(message, self.model.n)
        self.answers[stamp] = torque

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def measured(self) -> Any:
        """What sensors say now."""
        return self.plant.measurement

    def advance(self) -> None:
        """One period under the last command."""
        self.plant.step(self.torque)
        self.stamp, self.torque = self.stamp + self.period, None

    def message(self) -> JointState:
        """The measurement of now; angles as encoders of continuous joints have them, in (-pi, pi]."""
        x, message = self.measured, JointState(name=list(self.model.joint_names))
        turns = np.where(self.model.continuous, np.round(x.q / (2.0 * np.pi)), 0.0)
        message.position = (x.q - 2.0 * np.pi * turns).tolist()
        message.velocity, message.effort = x.qd.tolist(), x.effort.tolist()
        write_stamp(message.header.stamp, self.stamp)
        return message

    def tick(
        self, change: Callable[[JointState], object] | None = None, answered: bool = True, lose: bool = False
    ) -> None:
        """One period under the last command; the measurement that follows, changed or not; and its answer.

        ``answered``: False for a measurement that is refused; ``lose``: the answer never arrives at the drives.
        """
        self.advance()
        message = self.message()
        for edit in (self.distort, change):
            if edit is not None:
                edit(message)
        stamp = message.header.stamp.sec * 1000 * MS + message.header.stamp.nanosec
        self.answers.clear()
        self.states.publish(message)
        if answered:
            self.probe.wait(lambda: stamp in self.answers, f"the answer to {stamp} ns", 60.0)
            self.torque = None if lose else self.answers[stamp]

    def run(self, time: int, **how: Any) -> None:
        """Ticks for so long, at least one."""
        for _ in range(max(time * MS // self.period, 1)):
            self.tick(**how)

    def silence(self, time: int) -> None:
        """So long nobody measures."""
        for _ in range(time * MS // self.period):
            self.advance()

    # -- what the controller is told and tells ------------------------------------------------------------------

    def call(self, name: str) -> Trigger.Response:
        """A service of the controller."""
        return self.probe.call(f"controller/{name}")

    def set_parameter(self, name: str, text: str) -> SetParametersResult:
        """Try to change a parameter."""
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=text)
        if text in ("true", "false"):
            value = ParameterValue(type=ParameterType.PARAMETER_BOOL, bool_value=text == "true")
        request = SetParameters.Request(parameters=[Parameter(name=name, value=value)])
        return self.probe.call("controller/set_parameters", SetParameters, request).results[0]

    def transitions(self) -> list[tuple[str, str]]:
        """States entered since the last :meth:`mark`, with the reason."""
        return re.findall(r"controller\]: \w+ -> (\w+): (.*)", self.controller.log[self._since :])

    def refusals(self) -> int:
        """Everything that the controller has refused so far, as diagnostics tell it."""
        status = self.probe.diagnostics.get("controller")
        values = [] if status is None else status.values
        return sum(int(v.value) for v in values if v.key.startswith("refused "))

    def mark(self) -> None:
        """Look no further back than this."""
        self._since = len(self.controller.log)

    def told(self, text: str) -> bool:
        """Whether the log has a line with this since the last mark."""
        return text in self.controller.log[self._since :]

    def until(self, text: str, ticks: int = 2000) -> None:
        """Tick until the log says so."""
        for _ in range(ticks):
            if self.told(text):
                return
            self.tick()
        raise AssertionError(f"{text!r} not told in {ticks} ticks:\n{self.controller.log[self._since :]}")

    # -- states -------------------------------------------------------------------------------------------------

    def idle(self) -> None:
        """The same, as long as nobody has started anything."""
        assert not re.search(r"idle -> ", self.controller.log)
        self.fresh_plant()
        self.run(2)

    def fault(self) -> None:
        """An arm at rest at home, held by its drives, and a controller that commands nothing."""
        self.call("emergency_stop")
        self.fresh_plant()
        self.run(2)
        assert self.call("reset_emergency_stop").success

    def holding(self) -> None:
        """The same, and started."""
        self.fault()
        self.mark()
        assert self.call("start").success
        self.until("-> holding: started", 20)
        self.run(30)

    def plan(self, start: int, row: int = -1, box: str = "") -> JointTrajectory:
        """A second from the held position to somewhere near, from ``start`` (ns) on; ``row``: what does not connect."""
        state = np.stack([self.hold, 0 * self.hold, 0 * self.hold])
        state[max(row, 0), -1] += 1e-6 * (row >= 0)
        way = np.full(self.model.n, 0.09)
        way[2] *= -1.0  # through pi
        trajectory = QuinticTrajectory.to_rest(state, state[0] + way, 1.0)
        plan = Plan(trajectory, 0.0, 0.5, box or self.box, 0, np.zeros(self.model.n))
        return plan_message(plan, self.model.joint_names, start, plan_digest(self.digest))

    @property
    def box(self) -> str:
        """Identity of the box in force."""
        return re.findall(r"working with box (\S+)", self.controller.log)[-1]

    def tracking(self, time: int = 320) -> None:
        """In the middle of a plan, every joint moving."""
        self.holding()
        for _ in range(20):
            self.plans.publish(self.plan(self.stamp + self.ahead * MS))
            for _ in range(self.ahead + 1):
                self.tick()
                if self.told("-> tracking"):
                    self.run(time)
                    return
        raise AssertionError(f"no plan was taken:\n{self.controller.log[self._since :]}")

    def braking(self) -> None:
        """On the certified tail."""
        self.tracking(500)
        self.until("-> braking")
        self.run(60)

    def enter(self, state: str) -> None:
        """Into a state, and forget how."""
        self.entered = state
        getattr(self, state)()
        self.mark()

    def settle(self, before: str, longest: int = 1500) -> Outcome:
        """Look on until the arm rests and nothing changes any more."""
        self.run(60)
        for _ in range(longest // 20):
            self.run(20)
            moving = np.max(np.abs(self.plant.measurement.qd)) > 2e-3
            state = self.transitions()[-1][0] if self.transitions() else before
            if not moving and state not in ("tracking", "braking"):
                break
        truth, limits, seen = self.plant.truth(), self.model.limits, self.transitions()
        rate = np.abs(np.diff(truth["tau_commanded"], axis=0)).max() / self.model.settings.timing.period_s
        return Outcome(
            before=before,
            after=[state for state, _ in seen],
            reason=seen[0][1] if seen else "",
            rate=float(rate),
            torque=float((np.abs(truth["tau_applied"]) / limits.torque).max()),
            velocity=float((np.abs(truth["qd"]) / limits.velocity).max()),
            position=bool(np.all((truth["q"] > limits.position_lower) & (truth["q"] < limits.position_upper))),
            gap=int(np.count_nonzero(truth["mode"] != COMMANDED)),
        )
