"""Nodes killed in the middle of a motion, told to stop, or started with nonsense: the arm always comes to rest."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from fault_bench import plan_ahead
from ros_harness import NodeProcess, Probe, busy, end_all, running
from test_nodes_lockstep import FAST, load, references
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.nodes.common.base import LATCHED
from safe_sysid.robot import RobotModel, load_robot
from safe_sysid.simulation.plant import BRAKING

pytestmark = pytest.mark.ros

#: Wall time after which a node is taken for dead, s: more than planning takes on a busy machine.
PATIENCE = 5.0
MODEL = load_robot("three_joint")


def assert_within_limits(model: RobotModel, plant: dict[str, np.ndarray]) -> None:
    limits = model.limits
    assert np.all(plant["q"] > limits.position_lower)
    assert np.all(plant["q"] < limits.position_upper)
    assert np.all(np.abs(plant["qd"]) < limits.velocity)
    assert np.all(np.abs(plant["tau_applied"]) <= limits.torque)
    assert not np.any(plant["contacts"])


@pytest.mark.slow
def test_without_identifier_the_motion_goes_on_and_without_planner_it_ends_in_holding(tmp_path: Path) -> None:
    fast = {**FAST, "planner": {**FAST["planner"], "plans": 500}}
    nodes: dict[str, dict[str, Any]] = {
        "plant": {"payload": "4lb", "noise": "adversarial"},
        "controller": {"lockstep_patience_s": PATIENCE},
        "identifier": {},
        "planner": {},
    }
    gave_up = "refused lock-step: gave up waiting"
    with running(tmp_path, nodes, fast, robot=MODEL.name) as processes, Probe() as probe:
        seen = references(probe, names=MODEL.joint_names)
        probe.wait(lambda: probe.state() == "tracking" and np.any(np.abs(seen[-1].qd) > 0.02), "motion")
        processes["identifier"].end(signal.SIGKILL)
        probe.wait(lambda: probe.value("controller", gave_up) == "1", "the controller to give up on the identifier")
        taken = int(probe.value("controller", "plans taken"))
        probe.wait(lambda: int(probe.value("controller", "plans taken")) >= taken + 2, "more plans")
        probe.wait(lambda: probe.state() == "tracking" and np.any(np.abs(seen[-1].qd) > 0.02), "motion")
        processes["planner"].end(signal.SIGKILL)
        probe.wait(lambda: probe.value("controller", gave_up) == "2", "the controller to give up on the planner")
        probe.wait(lambda: probe.state() == "holding", "holding")
        rest = seen[-1].stamp_ns
        probe.wait(lambda: seen[-1].stamp_ns > rest + 500_000_000, "simulated time to go on")
        survivors = {name: processes[name] for name in ("plant", "controller")}
        assert all(status == 0 for status, _ in end_all(survivors).values())

    control, plant = load(tmp_path / "controller.npz"), load(tmp_path / "plant.npz")
    assert_within_limits(MODEL, plant)
    states = control["states"][control["state"]]
    order = [str(states[i]) for i in np.flatnonzero(np.append(True, states[1:] != states[:-1]))]
    assert order == ["holding", "tracking", "braking", "holding"]
    assert np.all(np.abs(control["e"]) <= control["e_bound"])
    assert np.all(np.abs(control["de"]) <= control["de_bound"])
    assert np.all(np.abs(plant["qd"][-100:]) < 1e-3)
    assert not np.any(plant["mode"][10:])  # every tick had its command


def test_without_controller_the_drives_brake_and_hold_and_a_new_one_takes_over(tmp_path: Path) -> None:
    fast, controller = {"planner": {"t_f": 2.0, "t_p": 1.9}}, {"await_plans": False, "await_bounds": False}
    nodes = {"plant": {"payload": "4lb", "lockstep_patience_s": 1.0}, "controller": controller}
    with running(tmp_path, nodes, fast, robot=MODEL.name) as processes, Probe() as probe:
        seen = references(probe, names=MODEL.joint_names)
        publisher = probe.publisher(JointTrajectory, "plan", LATCHED)
        publisher.publish(plan_ahead(load_robot(MODEL.name, **fast), seen[-1], 0.4, 1.0, 1.9))
        probe.wait(lambda: np.all(np.abs(seen[-1].qd) > 0.3), "the arm to be fast")
        processes["controller"].end(signal.SIGKILL)
        probe.wait(lambda: probe.value("plant", "refused lock-step: no command") == "1", "the plant to notice")
        probe.wait(lambda: "drives hold" in probe.message("plant"), "the drives to hold")
        killed = probe.value("plant", "time")
        probe.wait(lambda: probe.value("plant", "time") != killed, "the plant to go on alone")

        def stands() -> bool:
            before = probe.value("plant", "time")
            probe.spin(1.2)
            return probe.value("plant", "time") == before

        probe.wait(stands, "the arm to be at rest")
        rest = probe.value("plant", "time")
        probe.diagnostics.pop("controller")
        again = {"robot": MODEL.name, "lockstep": True, **controller, "run_dir": ""}
        processes["second"] = NodeProcess("controller", again, tmp_path / "second")
        probe.wait(lambda: probe.state() == "holding", "a new controller to take over")
        probe.wait(  # a machine so busy that the plant's patience ends once more only delays it
            lambda: (
                float(probe.value("plant", "time")[:-2]) > float(rest[:-2]) + 0.3
                and "moved by commands" in probe.message("plant")
            ),
            "lock-step to go on",
        )
        assert processes["plant"].end()[0] == 0

    plant = load(tmp_path / "plant.npz")
    assert_within_limits(MODEL, plant)
    alone = np.flatnonzero(plant["mode"][10:] == BRAKING) + 10
    assert len(alone) > 500
    assert np.max(np.abs(plant["qd"][alone[0]])) > 0.25
    assert np.all(np.abs(plant["qd"][alone[-1]]) < 1e-3)
    assert np.max(np.abs(plant["q"][alone] - plant["q"][alone[0]])) < 0.2  # rad, from 0.37 rad/s
    moving = np.abs(plant["qd"][alone]).max(axis=1) > 0.01
    assert np.flatnonzero(moving)[-1] < 1000  # ms
    assert np.all(np.abs(np.diff(plant["tau_applied"][alone], axis=0)) < 2.0)  # N m per ms: no jolt
    assert np.all(np.abs(plant["q"][-1] - plant["q"][alone[-1]]) < 0.01)


def test_ctrl_c_ends_every_node_within_two_seconds_even_in_the_middle_of_planning(tmp_path: Path) -> None:
    nodes: dict[str, dict[str, Any]] = {name: {} for name in ("plant", "controller", "identifier", "planner")}
    with running(tmp_path, nodes) as processes, Probe() as probe:
        probe.wait(lambda: probe.value("planner", "busy") == "True", "planning")
        endings = end_all(processes)
        logs = {name: process.log for name, process in processes.items()}
    assert all(status == 0 for status, _ in endings.values()), endings
    assert all(seconds < busy(2.0) for _, seconds in endings.values()), endings
    for file in ("plant.npz", "controller.npz", "identifier.json", "planner.json"):
        assert (tmp_path / file).stat().st_size > 0
    assert not any("Traceback" in log for log in logs.values()), logs


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])  # one handler
def test_signals_may_go_on_while_a_node_ends(tmp_path: Path, number: int) -> None:
    """An impatient person, or a launch file and a shell that both pass a Ctrl-C on."""
    nodes: dict[str, dict[str, Any]] = {"identifier": {}, "controller": {}}
    with running(tmp_path, nodes) as processes:
        for process in processes.values():
            process.wait_ready()
        deadline = time.monotonic() + 60.0
        while any(process.process.poll() is None for process in processes.values()):
            assert time.monotonic() < deadline
            for process in processes.values():
                process.send(number)
            time.sleep(0.002)
        assert [process.process.returncode for process in processes.values()] == [0, 0]
        assert not any("Traceback" in process.log for process in processes.values())
    assert (tmp_path / "identifier.json").stat().st_size > 0


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])  # one handler
def test_a_node_that_still_starts_can_be_stopped(tmp_path: Path, number: int) -> None:
    space = f"/starting_{number}"
    process = NodeProcess("controller", {"lockstep": True}, tmp_path, space)
    try:
        with Probe() as probe:  # its participant exists: the node is under construction, or just ready
            probe.wait(lambda: ("controller", space) in probe.node.get_node_names_and_namespaces(), "the node")
            status, seconds = process.end(number)
    finally:
        process.process.kill()
    assert status == 0, process.log
    assert seconds < busy(2.0)


def test_nonsense_is_told_in_one_line_that_names_it(tmp_path: Path) -> None:
    """By managed nodes, and the plant; what else there is to refuse: test_node_parameters.py."""
    cases: dict[str, tuple[str, dict[str, Any], str]] = {
        "law": ("controller", {"controller.law": "nonsense"}, "controller.law = 'nonsense': expected one of robust"),
        "robot": ("identifier", {"robot": "no_such_arm"}, "no_such_arm"),
        "pose": ("plant", {"start_q": [1.0, 2.0]}, "start_q = [1.0, 2.0]: expected 7 numbers"),
    }
    started = {key: NodeProcess(node, parameters, tmp_path / key) for key, (node, parameters, _) in cases.items()}
    for key, process in started.items():
        status = process.process.wait(120.0)
        last = process.log.strip().splitlines()[-1]
        assert status == 2, (key, process.log)
        assert cases[key][2] in last, (key, process.log)
        assert "Traceback" not in process.log
