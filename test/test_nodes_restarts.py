"""Each node killed in the middle of the work and started again: the others go on, and the new one finds its place."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from ros_harness import COMPILATION, NodeProcess, Probe, running
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from test_nodes_failures import assert_within_limits
from test_nodes_lockstep import FAST, load, references

from safe_sysid.bring_up.transitions import Transitions
from safe_sysid.nodes.common.base import LATCHED_INPUT, measurement_qos
from safe_sysid.nodes.common.messages.contents import NOT_AWAITED
from safe_sysid.nodes.common.messages.conversions import read_bounds, stamp_to_ns
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros

#: Nodes find their places with three joints as with seven, in half the time.
MODEL = load_robot("three_joint")
MANY: dict[str, Any] = {**FAST, "planner": {**FAST["planner"], "plans": 500}}
NODES: dict[str, dict[str, Any]] = {
    # A controller that waits for a dead node is silent for its own patience; the plant takes it for dead after twice
    # the plant's: no less than the controller's, or a busy machine decides who is first.
    "plant": {"payload": "4lb", "payload_to_attach": "1kg", "lockstep_patience_s": 4.0},
    "controller": {"lockstep_patience_s": 4.0},
    "identifier": {},
    "planner": {},
}


class Lab:
    """All nodes, and what they say."""

    def __init__(self, directory: Path, processes: dict[str, NodeProcess], probe: Probe) -> None:
        self.directory, self.processes, self.probe = directory, processes, probe
        size = MODEL.arm_prior.size
        self.active = probe.heard(Float64MultiArray, "bounds_active", LATCHED_INPUT, lambda m: read_bounds(m, size).box)
        self.seen = references(probe, names=MODEL.joint_names)

    def moving(self) -> bool:
        """Whether the arm follows a plan."""
        return self.probe.state() == "tracking" and bool(np.any(np.abs(self.seen[-1].qd) > 0.02))

    def again(self, name: str) -> None:
        """Kill a node and start it again."""
        self.processes[name].end(signal.SIGKILL)
        self.probe.diagnostics.pop(name, None)
        directory = self.directory / f"{name}_again"
        parameters = {"robot": MODEL.name, "lockstep": True, "robot_settings": MANY, "run_dir": str(directory)}
        process = self.processes[f"{name} again"] = NodeProcess(name, parameters | NODES[name], directory)
        self.probe.wait(
            lambda: name in self.probe.diagnostics or process.process.poll() is not None, f"the new {name}", COMPILATION
        )
        assert process.process.poll() is None, process.log

    def time_goes_on(self, ms: int) -> None:
        """Until so much simulated time is over."""
        then = self.seen[-1].stamp_ns + 1_000_000 * ms
        self.probe.wait(lambda: self.seen[-1].stamp_ns > then, "simulated time to go on")

    def plans(self) -> int:
        """How many the controller has taken."""
        return int(self.probe.value("controller", "plans taken") or 0)

    def more_plans(self) -> None:
        """Until another is taken and the arm moves; a planner that has learned enough is asked to go on."""
        taken = self.plans()

        def another() -> bool:
            return self.plans() > taken and self.moving()

        for _ in range(5):
            self.probe.wait(lambda: another() or self.probe.value("planner", "phase") == "over", "another plan")
            if another():
                return
            self.probe.call("planner/start")
            self.probe.wait(lambda: self.probe.value("planner", "phase") != "over", "the planner to go on")
        raise AssertionError("the planner was asked five times to go on")

    def in_motion(self, share: float) -> None:
        """Until another plan is followed and so much of its time is over that the next one is looked for."""
        for _ in range(5):
            self.more_plans()
            later = self.seen[-1].stamp_ns + int(share * 1e9 * MANY["planner"]["t_p"])
            self.probe.wait(lambda later=later: self.seen[-1].stamp_ns > later, "time to go on")
            if self.moving():  # it was not the last one
                return
        raise AssertionError("the arm came to rest five times")

    def tighter(self) -> None:
        """Until a box tighter than the last is in force."""
        last = self.active[-1]
        self.probe.wait(lambda: self.active[-1].seq > last.seq and self.active[-1].is_inside(last), "a tighter box")


@pytest.mark.slow
def test_whoever_is_killed_and_started_again_finds_its_place(tmp_path: Path) -> None:
    with running(tmp_path, NODES, MANY, robot=MODEL.name) as processes, Probe() as probe:
        lab = Lab(tmp_path, processes, probe)
        probe.wait(lambda: lab.moving() and lab.active[-1].seq > 0, "motion with a tighter box")

        lab.again("identifier")
        lab.tighter()
        lab.more_plans()

        lab.again("planner")
        lab.more_plans()

        before = lab.active[-1]
        lab.again("controller")
        probe.wait(lambda: lab.active[-1].seq >= before.seq, "the box that was in force")
        assert lab.active[-1].is_inside(before)
        lab.more_plans()
        lab.tighter()
        assert probe.state() != "fault"
    plant = load(tmp_path / "plant.npz")
    assert_within_limits(MODEL, plant)
    assert all(box.contains(plant["theta_true"]) for box in lab.active)


#: What people may ask for while simulated time goes on; the first word: a service, or a node and its transition.
_WISHES = (
    "controller/stop", "controller/start", "controller/reset_bounds", "controller/emergency_stop", "planner/start",
    "planner/stop", "identifier/start", "identifier/stop", "planner deactivate", "planner activate",
    "identifier deactivate", "identifier activate", "controller deactivate", "controller activate",
    "identifier cleanup", "identifier configure", "planner cleanup", "planner configure", "planner/reload_scene",
    "controller/reset_emergency_stop",
)  # fmt: skip


@pytest.mark.slow
def test_whatever_people_ask_for_time_goes_on(tmp_path: Path) -> None:
    """Refusals are fine, and nodes that are led back; but nobody is waited for who is there and will not answer."""
    rng = np.random.default_rng(1)
    nodes = {name: {**parameters, "lockstep_patience_s": 600.0} for name, parameters in NODES.items()}
    with running(tmp_path, nodes, MANY, robot=MODEL.name) as processes, Probe() as probe:
        lab = Lab(tmp_path, processes, probe)
        seen = probe.heard(JointState, "joint_states", measurement_qos(True), lambda m: stamp_to_ns(m.header.stamp))
        transitions = Transitions(probe.node, ("controller", "planner", "identifier"))

        def wish(text: str) -> None:
            if "/" in text:
                probe.call(text)
                return
            node, transition = text.split()
            transitions.ask(node, transition)
            try:
                probe.wait(lambda: transitions.answer(node) is not None, f"{text}: an answer", 40.0)
            except AssertionError:  # has this participant not discovered it, or is the node deaf?
                with Probe() as other:
                    fresh = Transitions(other.node, (node,))
                    fresh.ask(node, transition)
                    other.wait(lambda: fresh.answer(node) is not None, f"{text}: {processes[node].log[-1500:]}")

        probe.wait(lambda: lab.moving(), "motion")
        made = []
        for number in range(28):
            made.append(str(rng.choice(_WISHES)))
            wish(made[-1])
            if number % 4 == 3:  # somebody sets it all right again
                for node in ("identifier", "planner"):
                    for transition in ("configure", "activate"):
                        wish(f"{node} {transition}")
                made += ["controller/reset_emergency_stop", "controller activate", "controller/start"]
                for text in made[-3:]:
                    wish(text)
            now, least = (seen or [0])[-1], int(rng.integers(1, 1_500_000_000))
            what = f"simulated time to go on after {made[-8:]}"
            probe.wait(lambda then=now + least: bool(seen) and seen[-1] > then, what)
        assert all(process.process.poll() is None for process in processes.values())
        wish("controller activate")
        wish("controller/start")
        probe.wait(lambda: probe.state() in ("holding", "tracking"), "an arm that is held")
    assert_within_limits(MODEL, load(tmp_path / "plant.npz"))


@pytest.mark.slow  # a stop and what follows: test_nodes_faults, test_nodes_lifecycle
def test_neither_a_stop_in_motion_nor_an_identifier_that_waits_stops_time(tmp_path: Path) -> None:
    """The plan that the planner is looking for will not be taken: nobody waits for it, nor for one in its place.

    And the arm stays where it stopped, until it is told to go on.
    """
    nodes = {name: {**parameters, "lockstep_patience_s": 600.0} for name, parameters in NODES.items()}
    nodes["identifier"]["start_on_activation"] = False
    with running(tmp_path, nodes, MANY, robot=MODEL.name) as processes, Probe() as probe:
        lab = Lab(tmp_path, processes, probe)

        for share in (0.1, 0.9):
            lab.in_motion(share)
            assert probe.call("controller/stop").success
            lab.time_goes_on(1200)
            # However often the planner looks for another way from there: it was stopped.
            at_rest = len(lab.seen)
            lab.time_goes_on(700)
            assert all(np.all(sample.qd == 0.0) for sample in lab.seen[at_rest:])
            assert probe.state() == "holding"
            assert "stopped" in probe.message("controller")
            if share < 0.5:  # until now it was told to wait
                assert lab.active[-1].seq == 0
                assert probe.call("identifier/start").success
            assert probe.call("controller/start").success
            assert not probe.call("controller/start").success, "nothing is stopped any more"
        probe.wait(lambda: lab.active[-1].seq > 0, "a tighter box")
        assert probe.call("identifier/stop").success
        lab.time_goes_on(1000)
        held = lab.active[-1]
        lab.time_goes_on(1000)
        assert lab.active[-1].identity == held.identity
        assert not probe.value("controller", "refused bounds: not accepted")
        assert not probe.value("controller", "refused lock-step: gave up waiting")
    assert_within_limits(MODEL, load(tmp_path / "plant.npz"))


@pytest.mark.slow
def test_a_controller_that_was_held_up_finds_a_plant_that_went_on_alone(tmp_path: Path) -> None:
    """The plant is then far ahead of what the controller reads first; what it reads is no fault of the arm."""
    nodes = {
        "plant": {**NODES["plant"], "lockstep_patience_s": 0.5},
        "controller": {"await_plans": False, "await_bounds": False},
    }
    with running(tmp_path, nodes, MANY, robot=MODEL.name) as processes, Probe() as probe:
        lab = Lab(tmp_path, processes, probe)
        probe.wait(lambda: probe.state() == "holding", "holding")
        for _ in range(2):
            probe.diagnostics.pop("controller")
            told = probe.heard(JointState, "joint_states", measurement_qos(True), lambda m: m.header.frame_id)
            processes["controller"].send(signal.SIGSTOP)
            probe.wait(lambda told=told: told.count(NOT_AWAITED) > 100, "a plant that goes on alone")
            processes["controller"].send(signal.SIGCONT)
            lab.time_goes_on(500)
            probe.wait(lambda: probe.state() == "holding", "holding still")
            assert told[-1] == ""
        assert int(probe.value("plant", "refused lock-step: no command")) >= 1
        assert not probe.value("plant", "refused effort_command: wrong tick")
        processes["plant"].end(signal.SIGINT)
    plant = load(tmp_path / "plant.npz")
    assert_within_limits(MODEL, plant)
    assert np.all(np.abs(plant["q"] - plant["q"][0]) < 0.01)


@pytest.mark.slow
def test_the_hand_lets_go_and_takes_up_while_the_arm_holds_and_a_new_plant_is_a_clear_fault(tmp_path: Path) -> None:
    nodes = {"plant": NODES["plant"], "controller": {"await_plans": False, "await_bounds": False}}
    with running(tmp_path, nodes, MANY, robot=MODEL.name) as processes, Probe() as probe:
        lab = Lab(tmp_path, processes, probe)
        probe.wait(lambda: probe.state() == "holding", "holding")
        for epoch, service in ((1, "plant/release"), (2, "plant/attach")):
            assert probe.call("controller/reset_bounds").success
            probe.wait(lambda epoch=epoch: lab.active[-1].identity == f"{epoch}:0", f"epoch {epoch}")
            assert probe.call(service).success
            again = probe.call(service)
            assert not again.success
            assert "expected" in again.message
            lab.time_goes_on(500)
            assert probe.state() == "holding"
        assert probe.value("plant", "payload") == "1kg"
        processes["plant"].end(signal.SIGINT)
        plant = load(tmp_path / "plant.npz")
        parameters = {"robot": MODEL.name, "lockstep": True, "run_dir": "", **NODES["plant"]}
        processes["plant again"] = NodeProcess("plant", parameters, tmp_path / "plant_again")
        probe.wait(lambda: "time of measurements went back" in probe.message("controller"), "the fault")
        assert probe.call("controller/start").success
        probe.wait(lambda: probe.state() == "holding", "holding again")
    assert_within_limits(MODEL, plant)
    masses = plant["theta_history"][:, MODEL.layout.payload][:, 0]
    assert len(masses) == 3
    np.testing.assert_allclose(masses[0] - masses[1], 4 * 0.45359237, rtol=1e-6)
    np.testing.assert_allclose(masses[2] - masses[1], 1.0, rtol=1e-6)
    assert np.all(np.abs(np.diff(plant["tau_commanded"], axis=0)) <= 10.0 * (1 + 1e-6))  # N m in 1 ms
    assert np.all(np.abs(plant["q"] - plant["q"][0]) < 0.01)
