"""Nodes that are told to end while the arm moves: it is braked along the certified tail first, whoever is told."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from fault_bench import plan_ahead
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from ros_harness import NodeProcess, Probe, busy, end_all, running
from test_nodes_failures import assert_within_limits
from test_nodes_lockstep import load, references
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.control.states import longest_braking
from safe_sysid.nodes.common.base import LATCHED
from safe_sysid.robot import load_robot
from safe_sysid.simulation.plant import COMMANDED

pytestmark = pytest.mark.ros

#: A plan of two seconds, and so many seconds of simulated time in one of wall time, so that signals meet it in motion.
TIMES: dict[str, Any] = {"planner": {"t_f": 2.0, "t_p": 1.9}}
PACE = 0.5
FAST = 0.3  # rad/s
MODEL = load_robot("three_joint", **TIMES)


@contextmanager
def in_motion(directory: Path) -> Iterator[tuple[dict[str, NodeProcess], Probe]]:
    """Plant and controller, all joints faster than 0.3 rad/s."""
    nodes: dict[str, dict[str, Any]] = {
        "plant": {"payload": "4lb", "noise": "adversarial", "lockstep_pace": PACE},
        "controller": {"await_plans": False, "await_bounds": False},
    }
    with running(directory, nodes, TIMES, robot=MODEL.name) as processes, Probe() as probe:
        seen = references(probe, names=MODEL.joint_names)
        publisher = probe.publisher(JointTrajectory, "plan", LATCHED)
        publisher.publish(plan_ahead(MODEL, seen[-1], 0.4, 0.3, TIMES["planner"]["t_p"]))
        probe.wait(lambda: bool(np.all(np.abs(seen[-1].qd) > FAST)), "the arm to be fast")
        yield processes, probe


def assert_braked(directory: Path) -> None:
    """The arm was fast under command, and slow before commands ended; its own brakes had nothing to do."""
    plant = load(directory / "plant.npz")
    assert_within_limits(MODEL, plant)
    speed = np.abs(plant["qd"]).max(axis=1)
    commanded = np.flatnonzero(plant["mode"] == COMMANDED)
    first, last = commanded[0], commanded[-1]
    assert np.all(plant["mode"][first : last + 1] == COMMANDED), "without a gap"
    assert speed[first:last].max() > FAST
    assert speed[last:].max() < 5e-3, "rad/s where commands end"
    control = load(directory / "controller.npz")
    assert np.all(np.abs(control["e"]) <= control["e_bound"])
    assert np.all(np.abs(control["de"]) <= control["de_bound"])
    assert np.all(control["qd_d"][-1] == 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])  # one handler
def test_a_controller_that_is_told_to_end_brakes_first(tmp_path: Path, number: int) -> None:
    with in_motion(tmp_path) as (processes, _):
        status, seconds = processes["controller"].end(number)
        assert status == 0
        assert seconds < busy(longest_braking(2.0, lockstep=True))
        assert "braking along the certified tail" in processes["controller"].log
        assert processes["plant"].end()[0] == 0
    assert_braked(tmp_path)


def test_whoever_is_told_to_end_the_arm_is_braked(tmp_path: Path) -> None:
    """As at Ctrl-C in a terminal: everyone is told at once, and perhaps once more by a launch file."""
    with in_motion(tmp_path) as (processes, _):
        for process in processes.values():
            process.send(signal.SIGINT)
        time.sleep(0.2)
        endings = end_all(processes)
        assert all(status == 0 for status, _ in endings.values()), endings
        assert all(seconds < busy(longest_braking(2.0, lockstep=True)) for _, seconds in endings.values()), endings
    assert_braked(tmp_path)


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    with in_motion(tmp_path) as (processes, _):
        process = processes["controller"]
        process.send(signal.SIGINT)
        time.sleep(1.2)  # it takes two more seconds to come to rest
        assert process.process.poll() is None
        status, seconds = process.end(signal.SIGINT)
        assert status == 0
        assert seconds < busy(0.7)
    plant = load(tmp_path / "plant.npz")
    assert_within_limits(MODEL, plant)
    last = np.flatnonzero(plant["mode"] == COMMANDED)[-1]
    assert np.abs(plant["qd"][last]).max() > 0.05, "the drives braked"
    assert np.abs(plant["qd"][-1]).max() < 0.05, "and the arm was there until they had"


@pytest.mark.slow
def test_a_plant_that_vanishes_holds_no_controller_back(tmp_path: Path) -> None:
    with in_motion(tmp_path) as (processes, _):
        processes["controller"].send(signal.SIGINT)
        processes["plant"].end(signal.SIGTERM)  # waits for the arm to be at rest
        assert processes["controller"].process.wait(10.0) == 0
    assert_braked(tmp_path)


def test_a_shutdown_in_motion_is_refused_and_brakes(tmp_path: Path) -> None:
    """As a deactivation: else commands would end at speed, for rclpy lets no callback refuse a shutdown."""
    with in_motion(tmp_path) as (processes, probe):
        client = probe.node.create_client(ChangeState, "controller/change_state")
        probe.wait(client.service_is_ready, "the service")

        def shut_down() -> bool:
            request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_ACTIVE_SHUTDOWN))
            answer = client.call_async(request)
            probe.wait(lambda: answer.done() or processes["controller"].process.poll() is not None, "an answer")
            return not answer.done() or answer.result().success

        assert not shut_down()
        assert "shutdown refused: the arm moves" in processes["controller"].log
        probe.wait(lambda: probe.state() == "holding", "rest")
        assert shut_down()
        assert processes["controller"].process.wait(10.0) == 0
        processes["plant"].end()
    assert_braked(tmp_path)
