"""Goals, scenes and a killed solver over real topics, in lock-step: what is refused, what is driven, what is told."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from ros_harness import NodeProcess, Probe, busy, running
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger
from test_nodes_failures import assert_within_limits
from test_nodes_lockstep import load, references
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.nodes.common.base import LATCHED_INPUT
from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.planning.plan_files.plan_file import read_plan
from safe_sysid.planning.task.inverse_kinematics import tool_pose
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros

#: Trajectories that are planned in a moment.
QUICK: dict[str, Any] = {
    "planner": {"t_f": 1.0, "t_p": 0.5, "intervals": 32, "k_range": 0.1, "iteration_budget": 4, "plans": 1},
    "identification": {"update_s": 0.5, "take_after_s": 0.3},
}
MODEL = load_robot("three_joint")
N = MODEL.n


class TaskBench(NamedTuple):
    """A running arm at rest, after one exciting trajectory."""

    probe: Probe
    processes: dict[str, NodeProcess]
    directory: Path
    seen: list[JointSample]
    markers: list[MarkerArray]
    certificates: list[Float64MultiArray]
    goal_joints: Any
    scene: Any

    def ask(self, service: str) -> Trigger.Response:
        """Its answer, when the solver has taken in the last change."""
        for _ in range(100):
            answer = self.probe.call(f"planner/{service}")
            if not answer.message.endswith("expected it to be ready"):
                break
            self.probe.spin(0.5)
        return answer

    def refused(self, key: str) -> int:
        return int(self.probe.value("planner", f"refused {key}") or 0)

    def send(self, publisher: Any, message: Any, key: str) -> None:
        """Publish what must be refused for this reason."""
        before = self.refused(key)
        publisher.publish(message)
        self.probe.wait(lambda: self.refused(key) == before + 1, key, 20.0)

    def wait_over(self) -> str:
        self.probe.spin(0.3)  # what is still told of the time before
        self.probe.wait(lambda: self.probe.value("planner", "phase") == "over", "the end of the task")
        return self.probe.value("planner", "task")

    def wait_rest(self) -> np.ndarray:
        stamp = self.seen[-1].stamp_ns
        self.probe.wait(lambda: self.seen[-1].stamp_ns > stamp + 1_500_000_000, "time to go on")
        assert not np.any(self.seen[-1].qd)
        return self.seen[-1].q


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskBench]:
    directory = tmp_path_factory.mktemp("task")
    nodes = {"plant": {"payload": "4lb"}, "controller": {"await_bounds": False}, "planner": {}}
    with running(directory, nodes, QUICK, robot=MODEL.name) as processes, Probe() as probe:
        seen = references(probe, names=MODEL.joint_names)
        markers = probe.heard(MarkerArray, "markers", LATCHED_INPUT)
        certificates = probe.heard(Float64MultiArray, "certificate", LATCHED_INPUT)
        publishers = [probe.publisher(JointTrajectory, "goal_joints"), probe.publisher(MarkerArray, "scene")]
        probe.wait(lambda: probe.value("planner", "phase") == "over", "the exciting trajectory")
        bench = TaskBench(probe, processes, directory, seen, markers, certificates, *publishers)
        bench.wait_rest()
        yield bench


def waypoints(*points: np.ndarray, names: tuple[str, ...] = MODEL.joint_names) -> JointTrajectory:
    message = JointTrajectory(joint_names=list(names))
    message.points = [JointTrajectoryPoint(positions=[float(x) for x in point]) for point in points]
    return message


def box(xyz: tuple[float, ...], size: float = 0.1, frame: str = "world", number: int = 0, **more: Any) -> Marker:
    marker = Marker(ns="table", id=number, type=Marker.CUBE, action=Marker.ADD, **more)
    marker.header.frame_id = frame
    marker.pose.position.x, marker.pose.position.y, marker.pose.position.z = xyz
    marker.pose.orientation.w = 1.0
    marker.scale.x = marker.scale.y = marker.scale.z = size
    return marker


def test_goals_are_reached_with_certified_steps_that_can_be_checked_from_their_files(bench: TaskBench) -> None:
    assert bench.ask("plan").message.startswith("no goal: expected one")
    bench.send(bench.goal_joints, waypoints(np.full(N, np.nan)), "goal_joints: not finite")
    assert not bench.ask("plan").success, "that is no goal"
    start = bench.wait_rest()
    first, second = start + 0.12 * np.array([1, -1, 1]), start + 0.05
    shuffled = [MODEL.joint_names[i] for i in (2, 0, 1)]
    order = [MODEL.joint_names.index(name) for name in shuffled]
    bench.goal_joints.publish(waypoints(first[order], second[order], names=tuple(shuffled)))
    bench.probe.spin(0.3)
    answer = bench.ask("plan")
    assert answer.success, answer.message
    # While it moves nothing else may begin, and nothing may come into its way.
    assert "expected nothing to be planned" in bench.ask("plan").message
    bench.send(bench.scene, MarkerArray(markers=[box((2.0, 0.0, 0.5))]), "scene: not at rest")
    assert bench.wait_over() == "arrived"
    assert np.abs(bench.wait_rest() - second).max() < 1.1e-3
    assert min(np.abs(sample.q - first).max() for sample in bench.seen) < 1.1e-3

    files = sorted(bench.directory.glob("plan_*.json"))
    plans = int(bench.probe.value("planner", "plans"))
    assert len(files) == plans >= 4
    last = read_plan(files[-1]).plan
    assert np.abs(last.trajectory.knots[-1, 0] - second).max() < 1.1e-3
    bench.probe.wait(lambda: bench.markers[-1].markers[0].ns == "swept", "the swept volume")
    boxes = [m for m in bench.markers[-1].markers if m.action == Marker.ADD]
    middle = np.array([[m.pose.position.x, m.pose.position.y, m.pose.position.z] for m in boxes])
    half = 0.5 * np.array([[m.scale.x, m.scale.y, m.scale.z] for m in boxes])
    tool = tool_pose(MODEL, second)[0]
    assert np.any(np.all(np.abs(tool - middle) <= half, axis=1))
    assert len(boxes) == 8 * len(MODEL.bodies)

    message = bench.certificates[-1]
    assert message.layout.dim[0].label.startswith(f"plan {plans - 1}, box 0:0, start ")
    families = [name.split(" [")[0] for name in message.layout.dim[1].label.split(", ")]
    margins = dict(zip(families, np.array(message.data).reshape(-1, 2)[:, 0], strict=True))
    assert set(margins) == {"position", "velocity", "torque", "clearance", "self_clearance", "tracking"}
    assert all(margin >= 0.0 for margin in margins.values())
    told = re.search(r"torque (\d[\d.]*) N m", bench.probe.value("planner", f"plan {plans - 1}"))
    assert told is not None
    assert 0.99 * margins["torque"] < float(told[1]) <= margins["torque"]


def test_the_scene_changes_at_rest_and_what_is_in_the_way_is_the_reason(bench: TaskBench) -> None:
    q = bench.wait_rest()
    goal = q + 0.06
    tool, _ = tool_pose(MODEL, goal)
    bad: list[tuple[Callable[[], Any], str]] = [
        (lambda: [box((0.0, 0.0, np.nan))], "bad marker"),
        (lambda: [box((2.0, 0.0, 0.0), size=-1.0)], "bad marker"),
        (lambda: [box((2.0, 0.0, 0.0), frame="camera")], "unknown frame"),
        (lambda: [box((2.0, 0.0, 0.0), number=i) for i in range(201)], "too long"),
        (lambda: [Marker(type=Marker.TEXT_VIEW_FACING, header=box((0.0,) * 3).header)], "bad type"),
        (lambda: [Marker(action=7)], "bad action"),
    ]
    for markers, reason in bad:
        bench.send(bench.scene, MarkerArray(markers=markers()), f"scene: {reason}")
    vanishing = box((2.0, 0.0, 0.0))
    vanishing.lifetime.sec = 1
    bench.send(bench.scene, MarkerArray(markers=[vanishing]), "scene: bad lifetime")
    assert bench.probe.value("planner", "scene") == "open, 0 obstacles", "all or nothing"

    bench.scene.publish(MarkerArray(markers=[box(tuple(tool)), box((2.0, 0.0, 0.5), number=1)]))
    bench.probe.wait(lambda: bench.probe.value("planner", "scene") == "open, 2 obstacles", "the scene")
    bench.probe.wait(lambda: len([m for m in bench.markers[-1].markers if m.ns == "obstacles"]) == 2, "its picture")
    bench.goal_joints.publish(waypoints(goal))
    bench.probe.spin(0.3)
    answer = bench.ask("plan")
    assert not answer.success
    assert "marker:table/0" in answer.message
    bench.scene.publish(MarkerArray(markers=[Marker(ns="table", id=0, action=Marker.DELETE)]))
    bench.probe.wait(lambda: bench.probe.value("planner", "scene") == "open, 1 obstacles", "the scene")
    assert bench.ask("plan").success
    assert bench.wait_over() == "arrived"
    bench.wait_rest()
    assert bench.ask("reload_scene").success
    bench.probe.wait(lambda: bench.probe.value("planner", "scene") == "open, 0 obstacles", "the file's scene")


@pytest.mark.slow
def test_a_killed_solver_is_replaced_and_the_node_lives_on(bench: TaskBench) -> None:
    def solver() -> int:
        return int(bench.probe.value("planner", "solver").split()[1].rstrip(","))

    bench.goal_joints.publish(waypoints(bench.wait_rest() - 0.05))
    bench.probe.spin(0.3)
    before = solver()
    os.kill(before, signal.SIGKILL)
    bench.probe.wait(lambda: bench.refused("solver: failed") == 1, "the death to be told")
    assert "SIGKILL" in bench.probe.value("planner", "last refusal")
    bench.probe.wait(lambda: "None" not in bench.probe.value("planner", "solver") and solver() != before, "another")
    bench.probe.wait(lambda: bench.ask("plan").success, "a plan by the new one")
    # And in the middle of a task: the same question, asked again.
    os.kill(solver(), signal.SIGKILL)
    assert bench.wait_over() == "arrived"
    bench.wait_rest()


def test_stop_ends_a_task_and_time_goes_on_even_if_the_solver_hangs(bench: TaskBench) -> None:
    bench.goal_joints.publish(waypoints(bench.wait_rest() + np.array([0.8, 0.0, 0.0])))
    bench.probe.spin(0.3)
    assert bench.ask("plan").success
    solver = int(bench.probe.value("planner", "solver").split()[1].rstrip(","))
    os.kill(solver, signal.SIGSTOP)  # like a computation that never ends
    for _ in range(2):  # told anew, and again: the answer to a first question may have been on its way
        bench.probe.diagnostics.pop("planner", None)
        bench.probe.wait(lambda: bench.probe.value("planner", "busy") == "True", "a question that nobody answers")
    assert bench.ask("stop").success
    planner = bench.processes["planner"]
    bench.probe.wait(lambda: "taken for hanging" in planner.log, "its end")
    assert bench.probe.value("planner", "task") != "arrived"
    bench.wait_rest()
    endings = [process.end() for process in bench.processes.values()]
    assert all(status == 0 and seconds < busy(3.0) for status, seconds in endings), endings
    record = json.loads((bench.directory / "planner.json").read_text())
    assert record["task"] == "stopped"
    assert {plan["purpose"] for plan in record["plans"]} == {"excitation", "task"}
    assert_within_limits(MODEL, load(bench.directory / "plant.npz"))
