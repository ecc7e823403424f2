"""Garbage on every topic of controller and identifier: refused, counted, told, and not a bit of the motion changes.

The test plays the plant, in lock-step, and runs the same pure controller and identifier beside the real processes on
what is *good* in the traffic: every torque and every bound must be equal, exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from diagnostic_msgs.msg import DiagnosticStatus
from ros_harness import Probe, running
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.gains.design import design_gains
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier
from safe_sysid.nodes.common.base import LATCHED_INPUT, measurement_qos
from safe_sysid.nodes.common.digest import configuration_digest, plan_digest
from safe_sysid.nodes.common.messages.contents import BoundsAnswer, MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import (
    bounds_message,
    plan_message,
    read_bounds,
    read_command,
    write_stamp,
)
from safe_sysid.robot import RobotModel, load_robot, load_scene
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation import payload_from_spec
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.trajectories import Plan, QuinticTrajectory

pytestmark = pytest.mark.ros

OVERRIDES: dict[str, Any] = {
    "planner": {"t_f": 1.0, "t_p": 0.5},
    "identification": {"update_s": 0.5, "take_after_s": 0.3},
    "controller": {"blend_s": 0.03},
}
MS = 1_000_000
START, END = 150, 1200  # ms: when the good plan begins, how long all takes
TAKEN = 800  # ms: when the first bounds are taken; the second would be at 1300


class Bench:
    """The plant's side of the topics, and the oracle."""

    def __init__(self, model: RobotModel, probe: Probe) -> None:
        self.model, self.probe = model, probe
        self.plant = build_plant(model, payload_from_spec("6lb"), load_scene("open"), 1, actuator="none")
        self.oracle = Controller(model, design_gains(model, lockstep=True), model.settings.controller.blend_s)
        self.identifier = Identifier(model)
        self.samples: list[Any] = []
        self.commands: dict[int, np.ndarray | None] = {}
        self.boxes: dict[str, BoundsAnswer] = {}
        probe.listen(Float64MultiArray, "effort_command", self._on_command, 10)
        probe.listen(Float64MultiArray, "bounds", self._on_bounds, LATCHED_INPUT)
        self.active = probe.heard(Float64MultiArray, "bounds_active", LATCHED_INPUT)
        self.states = probe.publisher(JointState, "joint_states", measurement_qos(lockstep=True, history=True), 2)
        self.plans = probe.publisher(JointTrajectory, "plan", LATCHED_INPUT)
        self.bounds = probe.publisher(Float64MultiArray, "bounds", LATCHED_INPUT)
        self.order = np.random.default_rng(0).permutation(model.n + 2)
        self.tick, self.digest = 0, configuration_digest(model, lockstep=True, scene=load_scene("open"))

    def _on_command(self, message: Float64MultiArray) -> None:
        stamp, torque = read_command(message, self.model.n)
        assert stamp is not None
        self.commands[stamp] = torque

    def _on_bounds(self, message: Float64MultiArray) -> None:
        try:
            answer = read_bounds(message, self.model.arm_prior.size)
        except MessageRefusedError:
            return  # our own garbage
        self.boxes.setdefault(answer.box.identity, answer)

    def announced(self) -> list[str]:
        return [message.layout.dim[0].label for message in self.active]

    def joint_state(self, stamp_ms: int) -> JointState:
        """The measurement with two fingers more, one of them broken, joints in no order at all."""
        x = self.plant.measurement
        message = JointState()
        names, fingers = [*self.model.joint_names, "finger", "thumb"], [np.nan, 0.5]
        message.name = [names[i] for i in self.order]
        for field, values in (("position", x.q), ("velocity", x.qd), ("effort", x.effort)):
            setattr(message, field, np.concatenate([values, fingers])[self.order].tolist())
        write_stamp(message.header.stamp, stamp_ms * MS)
        return message

    def step(self, torque: np.ndarray | None) -> np.ndarray | None:
        """One period: measure, publish, and compare the answer with the oracle's."""
        self.tick += 1
        x = self.plant.step(torque)
        self.samples.append(x)
        self.states.publish(self.joint_state(self.tick))
        stamp = self.tick * MS
        self.probe.wait(lambda: stamp in self.commands, f"the command for tick {self.tick}", 60.0)
        now = stamp / 1e9
        if self.tick == 1:
            assert self.oracle.start(now, x.q, x.qd, x.effort) == []
        if self.tick == TAKEN:
            assert self.oracle.offer_box(self.first_box(), now) is None
        out = self.oracle.step(now, x.q, x.qd, x.effort)
        answer = self.commands.pop(stamp)
        if out.torque is None:
            assert answer is None
            return None
        assert np.array_equal(answer, out.torque), f"tick {self.tick}"
        return answer.copy()

    def first_box(self) -> ParameterBox:
        """What the identifier must say about the first half second, and does say."""
        self.probe.wait(lambda: "0:1" in self.boxes, "the first bounds")
        columns = [np.array([getattr(x, f) for x in self.samples[:500]]) for f in ("q", "qd", "effort")]
        log = Measurements(np.arange(1, 501) * MS / 1e9, *columns)
        for part in (slice(0, 250), slice(250, 500)):  # the pieces in which the node hands them to its worker
            self.identifier.add(log[part])
        result, said = self.identifier.update(), self.boxes["0:1"]
        assert (said.box.identity, said.batch) == (result.box.identity, 1)
        assert np.array_equal([said.box.lower, said.box.upper], [result.box.lower, result.box.upper])
        assert np.array_equal(said.nominal[result.box.layout.payload], result.nominal)
        return result.box


def edited(message: Any, change: Callable[[Any], object]) -> Any:
    change(message)
    return message


def bad_states(bench: Bench) -> list[tuple[str, JointState]]:
    """Reason and message; stamped like the next measurement, which must still be welcome afterwards."""
    where = int(np.flatnonzero(bench.order == 3)[0])
    names = list(bench.joint_state(1).name)

    def message(change: Callable[[JointState], object], stamp: int = bench.tick + 1) -> JointState:
        return edited(bench.joint_state(stamp), change)

    return [
        ("not finite", message(lambda m: m.velocity.__setitem__(where, float("nan")))),
        ("missing joint", message(lambda m: setattr(m, "name", [n.replace("joint_3", "joint_33") for n in names]))),
        ("joint named twice", message(lambda m: setattr(m, "name", [n.replace("thumb", "joint_1") for n in names]))),
        ("wrong length", message(lambda m: m.velocity.pop())),
        ("wrong length", message(lambda m: setattr(m, "position", []))),
        ("bad stamp", message(lambda m: None, 0)),
        ("too long", JointState(name=[f"j{i}" for i in range(100_001)])),
        ("missing joint", JointState()),
    ]


def bad_bounds(bench: Bench) -> list[tuple[str, Float64MultiArray]]:
    box = bench.oracle.box
    wider = ParameterBox(box.lower - 1.0, box.upper, box.epoch, 99)
    foreign = ParameterBox(box.lower, box.mid, box.epoch + 3, 1)
    old = ParameterBox(box.lower, box.mid, box.epoch, 0)
    other_robot = ParameterBox(box.lower[:14], box.upper[:14])

    def message(change: Callable[[Float64MultiArray], object]) -> Float64MultiArray:
        return edited(bounds_message(box, box.mid, digest=bench.digest), change)

    return [
        ("bad layout", Float64MultiArray()),
        ("bad layout", message(lambda m: m.data.pop())),
        ("too long", message(lambda m: setattr(m, "data", [0.0] * 150_000))),
        ("bad layout", bounds_message(other_robot, other_robot.mid)),
        ("not finite", message(lambda m: m.data.__setitem__(5, float("nan")))),
        ("bounds out of order", message(lambda m: m.data.__setitem__(0, 1e9))),
        ("bad identity", message(lambda m: setattr(m.layout.dim[0], "label", "one:two"))),
        ("other configuration", bounds_message(box, box.mid)),
        ("other configuration", bounds_message(box, box.mid, 3, "0" + bench.digest[1:])),
        ("not accepted", bounds_message(wider, box.mid, digest=bench.digest)),
        # Before it has taken anything a controller goes on in the epoch of one before it.
        *([("not accepted", bounds_message(foreign, box.lower, digest=bench.digest))] if box.seq else []),
        *([("not accepted", bounds_message(old, box.lower, digest=bench.digest))] if box.seq else []),
    ]


def bad_plans(bench: Bench, hand_over: int) -> list[tuple[str, JointTrajectory]]:
    """Against a plan under way that hands over at ``hand_over`` (ms)."""
    under_way = bench.oracle.plan
    assert under_way is not None
    state, names = under_way.trajectory.state(under_way.t_plan)[:3], bench.model.joint_names

    def message(
        change: Callable[[JointTrajectory], object] = lambda m: None,
        row: int = -1,
        at: int = hand_over,
        box: str = "0:0",
        digest: str = plan_digest(bench.digest),
    ) -> JointTrajectory:
        start = state.copy()
        start[max(row, 0), 4] += 1e-6 * (row >= 0)
        trajectory = QuinticTrajectory.to_rest(start, start[0] + 0.01, 1.0)
        plan = Plan(trajectory, 0.0, 0.5, box, 0, np.zeros(len(names)))
        return edited(plan_message(plan, names, at * MS, digest), change)

    return [
        ("bad digest", message(digest="base_link")),
        *[("other configuration", message(digest=text)) for text in ("", f"{'0' * 32},scene={'0' * 16}")],
        ("other configuration", message(digest=plan_digest(bench.digest)[:-16] + "0" * 16)),  # of another scene
        *[("not accepted", message(row=row)) for row in (0, 1, 2)],  # does not connect
        *[("not accepted", message(at=at)) for at in (1, hand_over - 1, hand_over + 1, 10**6)],
        *[("not accepted", message(box=box)) for box in ("0:55", "4:0")],  # certified for nobody's box
        ("bad identity", message(lambda m: setattr(m.header, "frame_id", "base_link"))),
        ("wrong joints", message(lambda m: setattr(m, "joint_names", names[1:]))),
        ("not finite", message(lambda m: m.points[1].positions.__setitem__(2, float("inf")))),
        ("wrong length", message(lambda m: m.points[0].velocities.pop())),
        ("wrong length", message(lambda m: m.points.pop())),
        ("bad trajectory", message(lambda m: m.points[1].velocities.__setitem__(2, 0.1))),
        ("bad stamp", message(lambda m: write_stamp(m.header.stamp, 0))),
    ]


def test_garbage_is_refused_counted_and_told_and_moves_nothing(tmp_path: Path) -> None:
    model = load_robot("kinova_gen3", **OVERRIDES)
    nodes: dict[str, dict[str, Any]] = {"controller": {"await_plans": False}, "identifier": {}}
    told: Counter[str] = Counter()

    def send(topic: str, publisher: Any, bad: list[tuple[str, Any]]) -> None:
        for reason, message in bad:
            publisher.publish(message)
            told[f"refused {topic}: {reason}"] += 1

    def check_told(probe: Probe) -> None:
        for key, count in told.items():
            probe.wait(lambda k=key, c=count: probe.value("controller", k) == str(c), f"{count} x {key}", 10.0)
            if "joint_states" in key:
                probe.wait(lambda k=key, c=count: probe.value("identifier", k) == str(c), f"{count} x {key}", 10.0)
        # ERROR: for the test publishes bounds beside the identifier.
        assert probe.diagnostics["controller"].level == DiagnosticStatus.ERROR
        assert "2 publishers of /bounds" in probe.message("controller")
        assert probe.value("controller", "last refusal")

    with running(tmp_path, nodes, OVERRIDES) as processes, Probe() as probe:
        bench, torque = Bench(model, probe), None
        for k in range(1, END + 1):
            torque = bench.step(torque)
            if k == 80:  # a good plan: without its successor it ends in braking
                still = np.stack([bench.samples[0].q, np.zeros(7), np.zeros(7)])
                trajectory = QuinticTrajectory.to_rest(still, still[0] + 0.08, 1.0)
                plan = Plan(trajectory, START / 1e3, 0.5, "0:0", 0, np.zeros(7))
                digest = plan_digest(bench.digest)
                bench.plans.publish(plan_message(plan, model.joint_names, START * MS, digest))
                assert bench.oracle.offer_plan(plan, k / 1e3) is None
            if k in (50, 500, 1000):
                send("joint_states", bench.states, bad_states(bench))
            if k in (60, 550, 1100):
                send("bounds", bench.bounds, bad_bounds(bench))
            if k == 600:
                send("plan", bench.plans, bad_plans(bench, START + 500))
            if k == 640:
                check_told(probe)
        check_told(probe)
        assert bench.oracle.state is ControllerState.HOLDING
        assert bench.oracle.plan is None
        assert bench.oracle.box.identity == "0:1"

        # A new payload: a new epoch for everyone, and the old one's messages are foreign now.
        old = bounds_message(bench.oracle.box, bench.oracle.box.mid, digest=bench.digest)
        assert probe.call("controller/reset_bounds").success
        assert bench.oracle.reset_box() is None
        for _ in range(32):  # the box grows to the prior, then the epoch is announced
            torque = bench.step(torque)
        assert bench.oracle.box.identity == "1:0"
        probe.wait(lambda: "1:0" in bench.announced() and "1:0" in bench.boxes, "the prior of epoch 1 from both nodes")
        send("bounds", bench.bounds, [("not accepted", old)])
        for _ in range(50):
            torque = bench.step(torque)
        check_told(probe)
        assert all(p.process.poll() is None for p in processes.values())
