"""The fault bench of the trajectory interface: the arm as it is sold, its faults, and what must come of them.

At every sample it is judged whether the true state was outside the outer tube while that was claimed: the controller's
references say what was desired, its diagnostics since when the tube is not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fault_bench import CONTROLLER, MS, FaultBench, Outcome
from fault_list import FAULT, FAULTS, USUAL, Fault, _distort
from lifecycle_msgs.srv import ChangeState
from rclpy.node import Node
from ros_harness import Probe, running
from sensor_msgs.msg import JointState
from test_trajectory_interface import RATE, TUBE, arm, drive, servo, tubes_of
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.control.tube import MeasuredTube, measured_tube
from safe_sysid.demo.measured_arm import servo_settings
from safe_sysid.nodes.common.base import LATCHED_INPUT, measurement_qos
from safe_sysid.nodes.common.digest import plan_digest
from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.nodes.common.messages.conversions import bounds_message, plan_message, read_plan, write_stamp
from safe_sysid.nodes.common.messages.trajectories import TrajectoryReader
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.plant import Plant
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

#: Parameters of the controller under test: a reference for every sample.
SERVO_CONTROLLER = {**CONTROLLER, "reference_every": 1, "diagnostics_period_s": 0.1}
#: So long before its plan a start is, ms.
SETTLE = 600


def measured_settings() -> dict[str, Any]:
    """Settings of the robot, its tube measured as in ``test_trajectory_interface.py``: no load and the heaviest."""
    tube = tubes_of(*(drive(servo(arm(), payload=load)) for load in (False, True)))[3.0]
    names = ("e_bound", "de_bound", "dde_bound", "inner_e", "inner_de")
    words = ("position", "velocity", "acceleration", "inner_position", "inner_velocity")
    declared = {word: getattr(tube, name).tolist() for word, name in zip(words, names, strict=True)}
    return {
        **servo_settings(RATE),
        "controller": {"interface": "trajectory", "tube": {**TUBE, **declared, "latency_s": 0.02}},
        "identification": {"acceleration_bound": 2.0},
        "planner": {"t_f": 1.0, "t_p": 0.5},
    }


class ServoBench(FaultBench):
    """See the module.

    Attributes:
        arm: the plant behind its servo, loaded with the heaviest payload of the prior.
        deaf: whether it hears no message.
    """

    command = "trajectory_command", JointTrajectory
    ahead = 200

    def __init__(self, model: RobotModel, tube: MeasuredTube, *process: Any) -> None:
        self.reader, self.tube = TrajectoryReader(model.joint_names), tube
        self.asleep = False
        super().__init__(model, *process)

    def _new_plant(self) -> Plant:
        self.arm, self.deaf = servo(self.model, payload=True), False
        self.truth: list[tuple[float, Any]] = []
        self.desired: list[tuple[float, Any]] = []
        return self.arm.plant

    def on_reference(self, sample: JointSample) -> None:
        """The same, remembered."""
        super().on_reference(sample)
        self.desired.append((1e-9 * sample.stamp_ns, np.stack([sample.q, sample.qd])))

    def _on_command(self, message: JointTrajectory) -> None:
        # The driver's clock is that of its stamps.
        stamp, points = self.reader.read(message, self.stamp - round(1e9 * self.plant.time))
        self.answers[stamp] = points

    @property
    def measured(self) -> Any:
        """What the driver tells."""
        return self.arm.measurement

    def advance(self) -> None:
        """One period of the driver."""
        self.arm.step(None if self.deaf else self.torque)
        self.stamp, self.torque = self.stamp + self.period, None
        self.truth.append((1e-9 * self.stamp, np.stack(self.plant.state)))

    def fault(self) -> None:
        """As for torques; what the stop has sent is not for the new arm."""
        super().fault()
        self.torque = None

    def enter(self, state: str) -> None:
        """As for torques; a node that was deactivated is activated first."""
        if self.asleep:
            assert self.transition(3)
            self.asleep = False
        super().enter(state)

    def holding(self) -> None:
        """As for torques; before a plan the set point is brought to the pose."""
        super().holding()
        if self.entered != "holding":
            self.run(SETTLE)

    def tracking(self, time: int = 250) -> None:
        """Early enough for the next plan to be sent."""
        super().tracking(time)

    def plan(self, start: int, row: int = -1, box: str = "") -> JointTrajectory:
        """The same, remembered."""
        message = super().plan(start, row, box)
        self.begun = start, message
        return message

    def next_plan(self) -> JointTrajectory:
        """That takes over from the last one, and goes on as far."""
        start, message = self.begun
        before, later = read_plan(message, self.model.joint_names).trajectory, self.model.settings.planner.t_p
        state = before.state(later)[:3]
        trajectory = QuinticTrajectory.to_rest(state, state[0] + 0.09, 1.0)
        plan = Plan(trajectory, 0.0, later, self.box, 0, np.zeros(self.model.n))
        return plan_message(plan, self.model.joint_names, start + round(1e9 * later), plan_digest(self.digest))

    def transition(self, number: int) -> bool:
        """Of the life cycle: 3 activates, 4 deactivates."""
        request = ChangeState.Request()
        request.transition.id = number
        return self.probe.call("controller/change_state", ChangeState, request).success

    def settle(self, before: str, longest: int = 1500) -> Outcome:
        """The same, and the truth against the claim."""
        outcome = super().settle(before, longest)
        self.probe.diagnostics.pop("controller", None)
        self.probe.wait(lambda: "controller" in self.probe.diagnostics, "diagnostics", 20.0)
        told = self.probe.value("controller", "measured tube")
        lost = told.removeprefix("lost at ") if told.startswith("lost") else ""
        return replace(outcome, lost=lost, share=self._share(float(lost.split(" s:")[0]) if lost else np.inf))

    def wrong(self, fault: Fault, found: Outcome) -> bool:
        """Whether a state outside the outer tube was claimed, or a limit passed, but by the servo's own reaction."""
        within = found.torque <= 1.0 and found.velocity <= 1.0 and found.position
        return found.share > 1.0 or not (within or fault.name.startswith(ARM))

    def _share(self, lost: float) -> float:
        """Of the outer tube, of the true state, from the first reference to the last or to the end of the claim."""
        desired = [entry for entry in self.desired if entry[0] > self.truth[0][0] - 1e-6]
        if not desired:
            return 0.0
        t, states = (np.array(column) for column in zip(*desired, strict=True))
        times, truth = (np.array(column) for column in zip(*self.truth, strict=True))
        until = lost if np.isfinite(lost) else t[-1]
        judged = (times >= t[0] - 1e-6) & (times < until - 1e-6)
        flat = states.reshape(len(t), -1)
        # Samples that the controller could not use have no reference: the desired motion between its neighbours.
        wanted = np.stack([np.interp(times[judged], t, column) for column in flat.T], axis=1)
        off = np.abs(wanted.reshape(-1, *states.shape[1:]) - truth[judged])
        return float((off / np.stack([self.tube.e_bound, self.tube.de_bound])).max(initial=0.0))


@contextmanager
def servo_bench(directory: Path) -> Iterator[ServoBench]:
    """A bench with a controller process that has become active."""
    settings = measured_settings()
    processes = running(directory, {"controller": SERVO_CONTROLLER}, settings, robot="three_joint")
    with processes as nodes, Probe() as probe:
        nodes["controller"].wait_ready()
        model = load_robot("three_joint", **settings)
        bench = ServoBench(model, measured_tube(model), probe, nodes["controller"])
        bench.idle()
        yield bench


# -- faults of the arm ------------------------------------------------------------------------------------------


def _weaken(bench: ServoBench, factor: float) -> None:
    bench.arm._kp *= factor


def _deaf(bench: ServoBench) -> None:
    """What was sent ends at rest; so another plan follows, if one can."""
    bench.deaf = True
    if bench.entered == "holding":
        bench.run(SETTLE)
    moves = bench.entered in ("tracking", "braking")
    bench.plans.publish(bench.next_plan() if moves else bench.plan(bench.stamp + bench.ahead * MS))
    if bench.entered == "holding":
        bench.until("-> tracking")


def _restarted(bench: ServoBench) -> None:
    q = bench.plant.state[0]
    bench.arm._mail.clear()
    bench.arm._spline, bench.arm._state = None, np.stack([q, 0 * q, 0 * q])


def _place(bench: ServoBench, q: float, qd: float) -> None:
    way, state = np.array([1.0, -1.0, 1.0]), bench.plant.state
    bench.plant.engine.place(state[0] + q * way, state[1] + qd * way)


def _stamp(offset_ms: int) -> Callable[[JointState], None]:
    def change(message: JointState) -> None:
        stamp = message.header.stamp
        write_stamp(stamp, stamp.sec * 1000 * MS + stamp.nanosec + offset_ms * MS)

    return change


def _stuck(bench: ServoBench) -> None:
    first = bench.message()

    def change(message: JointState) -> None:
        message.position, message.velocity = first.position, first.velocity

    bench.distort = change


# -- messages and requests --------------------------------------------------------------------------------------


def _old_box(bench: ServoBench) -> None:
    prior, (epoch, seq) = bench.model.arm_prior, map(int, bench.box.split(":"))
    for number in (seq + 1, seq):
        box = ParameterBox(prior.lower, prior.upper, epoch, number)
        bench.bounds.publish(bounds_message(box, box.mid, digest=bench.digest))
        bench.run(10)
    assert bench.box == f"{epoch}:{seq + 1}"


def _foreign(bench: ServoBench) -> JointTrajectory:
    message = bench.plan(bench.stamp + bench.ahead * MS)
    message.header.frame_id = message.header.frame_id.replace(plan_digest(bench.digest)[:12], "0" * 12)
    return message


def _second(bench: ServoBench, topic: str, kind: type, qos: Any, make: Callable[[ServoBench], Any]) -> None:
    """Another node publishes, too: told; in lock-step, where no arm moves, each message is judged by itself."""
    node = Node("rival", context=bench.probe.node.context, use_global_arguments=False, enable_rosout=False)
    try:
        rival = node.create_publisher(kind, topic, qos)
        bench.probe.wait(lambda: "rival" in bench.probe.value("controller", f"publishers of {topic}"), "it to be told")
        rival.publish(make(bench))
        bench.run(20)
    finally:
        node.destroy_node()


def _deactivate(bench: ServoBench) -> None:
    bench.asleep = bench.transition(4)
    assert bench.asleep is (bench.entered not in ("tracking", "braking"))


def _stop_with_a_plan_sent(bench: ServoBench) -> None:
    bench.plans.publish(bench.next_plan())
    bench.run(20)
    assert "another plan" not in bench.controller.log[bench._since :]
    bench.call("emergency_stop")


#: Their reaction is the servo's own affair: limits are told, not asserted.
ARM = ("servo's stiffness", "servo loses", "servo starts again", "arm is pushed", "every joint slips")
_LOST = {**FAULT, "tracking": "braking fault"}
_MOVES = {**_LOST, "holding": ""}  # seen in motion only
_DEAF = {**_LOST, "holding": "tracking braking fault", "braking": "holding"}  # of the next plan, if one is taken
_SERVO = (
    Fault("none", lambda b: b.run(5)),
    Fault("servo's stiffness falls to 5 %", lambda b: _weaken(b, 0.05), _LOST, "tube"),
    Fault("servo loses all stiffness", lambda b: _weaken(b, 0.0), _LOST, "tube"),
    Fault("servo hears no message any more", _deaf, _DEAF, "tube"),
    Fault("servo starts again, holds where it is", _restarted, _LOST, "tube"),
    Fault("arm is pushed by 1 rad/s", lambda b: _place(b, 0.0, 1.0), _LOST, "tube"),
    Fault("every joint slips by 0.05 rad", lambda b: _place(b, 0.05, 0.0), _LOST, "jumped by"),
    Fault("stamps are 50 ms late from then on", lambda b: _distort(b, _stamp(50)), _MOVES, "no measurement"),
    Fault("one stamp is 0.1 s back", lambda b: b.tick(_stamp(-100))),
    Fault("sensors stick", _stuck, _MOVES, "tube"),
    Fault("joint missing", lambda b: b.tick(lambda m: m.name.pop(), answered=False), refused=True),
    Fault("box older than the one in force", _old_box, refused=True),
    Fault("plan of another configuration", lambda b: (b.plans.publish(_foreign(b)), b.run(5)), refused=True),
    Fault("second publisher of plan",
          lambda b: _second(b, "plan", JointTrajectory, LATCHED_INPUT, _foreign), refused=True),
    Fault("second publisher of joint_states",
          lambda b: _second(b, "joint_states", JointState, measurement_qos(True, history=True),
                            lambda _: JointState(name=["finger"], position=[0.0])), refused=True),
    Fault("deactivation", _deactivate, {**USUAL, "holding": "idle", "fault": "idle"}, "stop requested"),
    Fault("emergency stop, the next plan sent", _stop_with_a_plan_sent, FAULT, "emergency stop", states=("tracking",)),
)  # fmt: skip
#: What comes of others than with torques: the arm goes on along what was sent, whoever looks on.
_OTHERWISE: dict[str, dict[str, Any]] = {
    "no measurement for 2 s": {"after": {**USUAL, "tracking": "holding"}, "reason": "at rest"},
    "velocity beyond the limit once": {"reason": "velocity of elbow is 9"},
    "velocity wrong by 0.5 rad/s once": {"after": _LOST, "reason": "tube"},
    "clock jumps ahead by 10 s": {"after": {**FAULT, "holding": ""}, "reason": "tube"},
}
_NOT_HERE = ("payload", "commands lost", "none")
SERVO_FAULTS: tuple[Fault, ...] = (
    *_SERVO,
    *(replace(f, **_OTHERWISE.get(f.name, {})) for f in FAULTS if not f.name.startswith(_NOT_HERE)),
)
