"""Managed nodes: every transition is done or refused with a reason, and none leaves anything behind."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

import yaml
from diagnostic_msgs.msg import DiagnosticStatus
from fault_bench import CONTROLLER, MS, OVERRIDES, FaultBench
from geometry_msgs.msg import PoseStamped
from lifecycle_msgs.srv import ChangeState, GetAvailableTransitions, GetState
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import NodeNameNonExistentError
from ros_harness import Probe, nodes_here, running
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, String
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.bring_up.transitions import NO_REASON, Transitions
from safe_sysid.errors import ModelError
from safe_sysid.logs.online.configuration import proof_digest
from safe_sysid.nodes.common.base import LATCHED, LATCHED_INPUT, STREAM, measurement_qos
from safe_sysid.nodes.common.digest import configuration_digest, difference
from safe_sysid.nodes.common.lifecycle import ManagedNode
from safe_sysid.nodes.common.messages.conversions import JointStateWriter, bounds_message, read_bounds
from safe_sysid.nodes.common.parameters import CommonOptions
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros


class Manager:
    """What a person with ``ros2 lifecycle`` and ``ros2 param`` has."""

    def __init__(self, probe: Probe, *names: str) -> None:
        self.probe = probe
        self.transitions = Transitions(probe.node, names)

    def go(self, name: str, transition: str) -> str:
        """Ask; the reason of a refusal, "" if done."""
        self.transitions.ask(name, transition)
        self.probe.wait(lambda: self.transitions.answer(name) is not None, f"{name} to {transition}")
        if self.transitions.answer(name):
            return ""
        if NO_REASON in self.transitions.reasons[name]:  # lost on its way: it is also in the diagnostics
            self.probe.spin(2.0)
            return self.probe.message(name)
        return self.transitions.reasons[name]

    def state(self, name: str) -> str:
        return self.probe.call(f"{name}/get_state", GetState).current_state.label

    def possible(self, name: str) -> set[str]:
        answer = self.probe.call(f"{name}/get_available_transitions", GetAvailableTransitions)
        return {entry.transition.label for entry in answer.available_transitions}

    def raw(self, name: str, number: int) -> bool:
        """A transition by its number, whether there is one of that number or not."""
        request = ChangeState.Request()
        request.transition.id = number
        return self.probe.call(f"{name}/change_state", ChangeState, request).success

    def set_text(self, name: str, parameter: str, text: str) -> Any:
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=text)
        request = SetParameters.Request(parameters=[Parameter(name=parameter, value=value)])
        return self.probe.call(f"{name}/set_parameters", SetParameters, request).results[0]

    def topics(self, name: str) -> set[str]:
        """That the node publishes or listens to; none while discovery knows its services, but not yet its name."""
        node = self.probe.node
        try:
            found = [*node.get_publisher_names_and_types_by_node(name, "/")]
            found += node.get_subscriber_names_and_types_by_node(name, "/")
        except NodeNameNonExistentError:
            return set()
        return {topic for topic, _ in found}


BARE = {"/parameter_events", "/rosout", "/diagnostics", "/clock"}


def vanished(manager: Manager, name: str, allowed: set[str]) -> set[str]:
    """What a node has besides, as soon as that is nothing, or as it is in the end."""
    with contextlib.suppress(AssertionError):
        manager.probe.wait(lambda: manager.topics(name) <= allowed, "topics to vanish", 30.0)
    return manager.topics(name) - allowed


def test_the_controller_from_beginning_to_end(tmp_path: Path) -> None:
    model = load_robot("kinova_gen3", **OVERRIDES)
    size = model.arm_prior.size
    parameters = {**CONTROLLER, "autostart": False, "start_on_activation": True}
    with running(tmp_path, {"controller": parameters}, OVERRIDES) as processes, Probe() as probe:
        controller, manager = processes["controller"], Manager(probe, "controller")
        controller.wait_ready()
        told = probe.heard(String, "/controller/configuration", LATCHED_INPUT, lambda m: m.data)
        boxes = probe.heard(Float64MultiArray, "bounds_active", LATCHED_INPUT, lambda m: read_bounds(m, size).box)

        # Unconfigured: it answers for itself, and does nothing with the arm.
        assert manager.state("controller") == "unconfigured"
        assert manager.possible("controller") == {"configure", "shutdown"}
        own = {"/controller/transition_event", "/controller/transition_reason"}
        assert not manager.raw("controller", 3)
        probe.wait(lambda: "refused" in manager.transitions.reasons["controller"], "the reason")
        assert not vanished(manager, "controller", BARE | own)
        assert not manager.raw("controller", 77), "and lives on"
        assert manager.set_text("controller", "robot", "no_such_arm").successful
        reason = manager.go("controller", "configure")
        assert "no_such_arm" in reason
        assert manager.state("controller") == "unconfigured"
        probe.wait(lambda: "no_such_arm" in probe.message("controller"), "the reason in /diagnostics")
        assert manager.set_text("controller", "robot", "kinova_gen3").successful

        for _ in range(2):  # everything vanishes in between
            assert manager.go("controller", "configure") == ""
            assert manager.possible("controller") == {"cleanup", "activate", "shutdown"}
            # Heard, not looked up: what a busy machine's discovery knows of a node may stay incomplete for minutes.
            probe.wait(lambda: bool(told), "the configuration")
            assert manager.go("controller", "cleanup") == ""
            assert not vanished(manager, "controller", BARE | own)
            told.clear()
        assert manager.go("controller", "configure") == ""
        probe.wait(lambda: bool(told), "the configuration")
        stated = yaml.safe_load(told[-1])
        assert stated["robot"]["proofs_sha256"] == proof_digest(model, lockstep=True)
        assert stated["settings"]["planner"]["t_f"] == 1.0

        # Inactive: it listens and commands nothing, not even an answer, until it was active once.
        changed = manager.set_text("controller", "robot", "kinova_gen3")
        assert not changed.successful
        assert "cleanup" in changed.reason
        refused = probe.call("controller/start")
        assert not refused.success
        assert "inactive" in refused.message
        assert "no measurement" in manager.go("controller", "activate")
        bench = FaultBench(model, probe, controller)
        bench.fresh_plant()
        bench.tick(lambda m: m.effort.__setitem__(1, -m.effort[1]), answered=False)
        probe.spin(0.5)
        assert bench.answers == {}
        reason = manager.go("controller", "activate")
        assert "joint_2" in reason
        assert "wrong sign" in reason
        assert manager.state("controller") == "inactive"
        assert bench.answers == {}

        def activated() -> None:
            bench.fresh_plant()
            bench.stamp += MS
            bench.states.publish(bench.message())
            probe.wait(lambda: manager.go("controller", "activate") == "", "activation")
            probe.wait(lambda: bench.stamp in bench.answers, "the answer")
            bench.run(30)

        activated()
        assert bench.torque is not None
        assert bench.transitions()[-1] == ("holding", "started")
        assert manager.possible("controller") == {"deactivate", "shutdown"}

        # Active again with no measurement in between: the last one is no older.
        assert manager.go("controller", "deactivate") == ""
        assert manager.go("controller", "activate") == ""
        bench.run(30)
        assert bench.torque is not None

        # Holding: commands end at once, time goes on.
        assert manager.go("controller", "deactivate") == ""
        bench.mark()
        bench.run(100)
        assert bench.torque is None
        assert np.max(np.abs(bench.plant.measurement.qd)) < 2e-3
        assert bench.transitions() == []
        assert not probe.call("controller/reset_bounds").success

        # Moving: it brakes along the certified tail, and is asked again at rest.
        activated()
        start = bench.stamp + 50 * MS
        bench.mark()
        bench.plans.publish(bench.plan(start))
        bench.until("-> tracking", 200)
        bench.run(100)
        before = float(np.max(np.abs(bench.plant.measurement.qd)))
        reason = manager.go("controller", "deactivate")
        assert "braking" in reason
        assert "again at rest" in reason
        assert manager.state("controller") == "active"
        bench.until("-> holding: at rest", 1500)
        assert before > 0.02
        assert manager.go("controller", "deactivate") == ""
        bench.run(50)
        assert bench.torque is None

        # Another payload: what was asked for in the middle of a take-over is not forgotten with it.
        activated()
        assert probe.call("controller/reset_bounds").success
        assert manager.go("controller", "deactivate") == ""
        probe.wait(lambda: boxes[-1].identity == "1:0", "the new epoch")

        # Shutting down is the end of the process.
        assert manager.raw("controller", 6)
        assert controller.process.wait(20.0) == 0
        assert (tmp_path / "controller.npz").is_file()


@pytest.mark.slow  # digests that differ: test_nodes_agreement.py
def test_who_hears_another_configuration_does_not_work_and_says_where_it_differs(tmp_path: Path) -> None:
    """Planner and identifier, with a controller whose velocity error is declared otherwise; and the right one after."""
    model = load_robot("kinova_gen3")
    other = load_robot("kinova_gen3", measurement={"velocity_error": 0.007})
    ours, theirs = (configuration_digest(m, lockstep=True) for m in (model, other))
    nodes: dict[str, dict[str, Any]] = {"planner": {}, "identifier": {"start_on_activation": True}}
    with running(tmp_path, nodes) as processes, Probe() as probe:
        for process in processes.values():
            process.wait_ready()
        manager = Manager(probe, *nodes)
        plans = probe.heard(JointTrajectory, "plan", LATCHED_INPUT)
        bounds = probe.heard(Float64MultiArray, "bounds", LATCHED_INPUT)
        active = probe.publisher(Float64MultiArray, "bounds_active", LATCHED, 2)
        reference = probe.publisher(JointState, "reference", STREAM)
        states = probe.publisher(JointState, "joint_states", measurement_qos(lockstep=True, history=True))
        writer, zero, home = JointStateWriter(model.joint_names), np.zeros(7), np.array(model.settings.home)
        box, stamp = model.arm_prior, 0

        def tell(digest: str, word: str) -> None:
            nonlocal stamp
            active.publish(bounds_message(box, box.mid, digest=digest))
            for name in nodes:  # whoever has not heard of it yet works
                probe.wait(lambda n=name: word in probe.message(n), f"{name} to say {word}")
            for _ in range(200):
                stamp += 10 * MS
                states.publish(writer.fill(stamp, home, zero, zero))
            reference.publish(writer.fill(stamp, home, zero, zero, box.identity))
            probe.spin(1.0)

        for digest, word in (("", "digest"), (theirs, "measurement")):
            tell(digest, word)
            for name in nodes:
                assert word in probe.message(name)
                assert "another configuration" in probe.message(name)
                assert probe.diagnostics[name].level == DiagnosticStatus.ERROR
        for name in nodes:
            assert manager.go(name, "deactivate") == ""
            reason = manager.go(name, "activate")
            assert "another configuration" in reason
            assert "kinova_gen3" in reason
        assert not any(plan.points for plan in plans), "that none will come may be said"
        assert bounds == []
        active.publish(bounds_message(box, box.mid, digest=ours))
        probe.spin(0.5)
        for name in nodes:
            assert manager.go(name, "activate") == ""
        tell(ours, "")
        probe.wait(lambda: any(p.points for p in plans) and bool(bounds), "work with the right one")
        assert "another configuration" not in probe.summary()


# -- without processes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "change", "named"),
    [
        ("measurement", {"torque_abs": 0.2}, "measurement"),
        ("timing", {"hold_max_s": 0.004}, "timing"),
        ("controller", {"kappa": 11.0}, "controller"),
        ("identification", {"acceleration_bound": 9.0}, "identification"),
        ("planner", {"clearance_margin": 0.006}, "planner"),
        ("payload", {"hand_opening": [0.001] + [0.0] * 9}, "payload"),
        ("planner", {"plans": 9}, ""),
        ("tare", {"max_age_h": 30.0}, "tare"),
    ],
)
def test_the_digest_knows_what_proofs_rest_on(section: str, change: dict[str, Any], named: str) -> None:
    ours = configuration_digest(load_robot("kinova_gen3"), lockstep=False)
    theirs = configuration_digest(load_robot("kinova_gen3", **{section: change}), lockstep=False)
    assert difference(theirs, ours) == difference(ours, theirs) == named
    assert difference(ours, ours) == ""
    lockstep = configuration_digest(load_robot("kinova_gen3"), lockstep=True)
    assert difference(lockstep, ours) == "lockstep"
    assert "expected a digest" in difference("", ours)


class Toy(ManagedNode):
    """Refuses or fails as it is told."""

    def __init__(self) -> None:
        self.mood = ""
        super().__init__("identifier")

    def _load(self) -> None:
        self.options, self.values = CommonOptions.of(self.parameters), self.parameters.values()

    def _answer(self) -> list[str]:
        if self.mood == "raises":
            raise ValueError("never thought of")
        return ["not now"] if self.mood == "refuses" else []

    def configure(self) -> None:
        self.create_publisher(String, "one", 1)
        self.listen(PoseStamped, "goal_pose", lambda _: None, 1)
        self.every(10.0, lambda: None)
        self.serve("three", lambda: None)
        if self._answer():
            raise ModelError("not now")

    activate = deactivate = _answer

    def cleanup(self) -> None:
        self._answer()

    def status(self) -> tuple[bytes, str, dict[str, Any]]:
        return b"\x00", "toy", {}


@pytest.fixture
def toy() -> Iterator[Toy]:
    with nodes_here():
        node = Toy()
        yield node
        node.close()
        node.destroy_node()


_STEPS = {
    ("unconfigured", "configure"): "inactive",
    ("inactive", "cleanup"): "unconfigured",
    ("inactive", "activate"): "active",
    ("active", "deactivate"): "inactive",
}


def test_a_walk_through_the_states_leaves_nothing_behind(toy: Toy) -> None:
    """Refusals stay where they are, surprises lead back to the beginning; whoever asks hears why."""
    executor = SingleThreadedExecutor()
    executor.add_node(toy)
    entities = toy._entities()
    choose, seen = random.Random(4), set()
    for _ in range(300):
        before = toy.lifecycle
        toy.mood = choose.choice(["", "", "refuses", "raises"])
        possible = [step for state, step in _STEPS if state == before]
        transition = choose.choice(possible)
        result = getattr(toy, f"trigger_{transition}")()
        goal = _STEPS[before, transition]
        seen.add((transition, toy.mood))
        if toy.mood == "" or transition == "cleanup":  # what cannot be written holds nothing back
            expected = goal
        elif toy.mood == "refuses":
            expected = before
        else:
            expected = "unconfigured"
        assert toy.lifecycle == expected, (before, transition, toy.mood)
        assert toy._state_machine.current_state[1] == toy.lifecycle == toy.parameters.state
        assert str(result).partition(".")[2] == (
            "SUCCESS" if expected == goal else "FAILURE" if toy.mood == "refuses" else "ERROR"
        )
        text = toy.overview()[1]
        if expected != goal:
            assert transition in text
            assert ("not now" if toy.mood == "refuses" else "never thought of") in text
        if toy.lifecycle == "unconfigured":
            assert toy._entities() == entities
        else:
            assert len(toy._entities()) == len(entities) + 4
        executor.spin_once(timeout_sec=0.0)
    assert len(seen) >= 11
    toy.mood = ""


def test_autostart_tries_again_until_nothing_speaks_against_it(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safe_sysid.nodes.common.lifecycle._AGAIN", 0.0)
    assert toy.go_on(), "without autostart there is nothing to do"
    assert toy.lifecycle == "unconfigured"
    toy.autostart = True
    told: list[str] = []
    moves = [True]
    monkeypatch.setattr(toy, "_tell_reason", lambda text, bad=False: told.append(text))
    monkeypatch.setattr(toy, "activate", lambda: ["the arm moves"] if moves else [])
    for _ in range(5):
        assert not toy.go_on()
    assert [text for text in told if "moves" in text] == ["activate refused: the arm moves"], "told once"
    moves.clear()
    assert toy.go_on()
    assert toy.active
    toy.mood = "refuses"
    toy.trigger_deactivate()
    assert toy.active
