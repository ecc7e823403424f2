"""Before the arm is taken over: every start is examined, an emergency stop stays, and no log is written twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from rclpy.parameter import Parameter
from rclpy.serialization import serialize_message
from ros_harness import nodes_here
from sensor_msgs.msg import JointState

from safe_sysid.control.checks.activation import Judgement
from safe_sysid.dynamics import dynamics_of
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import write_stamp
from safe_sysid.nodes.controller.node import ControllerNode
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros


class Checks:
    """In place of the activation checks, whose own tests are elsewhere: says what it is told to say."""

    def __init__(self, node: ControllerNode) -> None:
        self.node, self.said = node, Judgement(np.array(node.model.settings.home), ())
        self.judged, self.added, self.locked = 0, 0, False

    def snapshot(self) -> Checks:
        return self

    def judge(self) -> Judgement:
        self.judged += 1
        # Whoever has the lock for so long stalls the loop: another thread must get it.
        free: list[bool] = []

        def look() -> None:
            free.append(self.node.lock.acquire(timeout=0.2))
            if free[-1]:
                self.node.lock.release()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        self.locked |= free != [True]
        return self.said

    def warnings(self) -> list[str]:
        return []

    def add(self, *_: Any) -> None:
        self.added += 1

    def forget(self) -> None:
        self.added = 0


class Lab:
    """A controller in this process, without a loop of its own."""

    def __init__(self, node: ControllerNode) -> None:
        self.node, self.model = node, node.model
        zero = np.zeros(self.model.n)
        self.home = np.array(self.model.settings.home)
        regressor = dynamics_of(self.model.kinematics).torque_regressor(self.home, zero, zero)
        self.effort = regressor @ self.model.arm_prior.mid
        self.checks = Checks(node)
        node.session.checks = self.checks  # type: ignore[assignment]

    @property
    def state(self) -> str:
        return self.node.session.core.state.value

    def measure(self, off: float = 0.0) -> None:
        """Home, the last joint but one off by so much."""
        message = JointState(name=list(self.model.joint_names))
        q = self.home.copy()
        q[-2] += off
        message.position, message.velocity = q.tolist(), [0.0] * self.model.n
        message.effort = self.effort.tolist()
        for last in range(20, -1, -1):  # a busy machine may come back to it when it is too old
            write_stamp(message.header.stamp, time.time_ns())
            try:
                self.node._on_measurement(serialize_message(message))
                return
            except MessageRefusedError as error:
                if error.reason != "stale" or not last:
                    raise

    def judge(self, soon: bool = True) -> None:
        """As the executor's timer does; ``soon``: without the half second between two tries."""
        if soon:
            self.node.session.start_tried = -1e9
        self.node._judge_start()

    def activate(self) -> str:
        """Why not."""
        for _ in range(20):  # a busy machine may come to it when the measurement is too old
            self.measure()
            self.node.trigger_activate()
            if self.node.active or "no measurement for" not in self.node._refused:
                break
        return "" if self.node.active else self.node._refused


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., ControllerNode]]:
    """Makes a configured controller, in real time."""
    nodes: list[ControllerNode] = []
    stack = ExitStack()

    def make(**parameters: Any) -> ControllerNode:
        given = {"run_dir": str(tmp_path), "robot_settings__driver__command_timeout_s": 0.02, **parameters}
        stack.enter_context(nodes_here(**given))
        node = ControllerNode()
        nodes.append(node)
        node.trigger_configure()
        assert node.lifecycle == "inactive", node._refused
        return node

    with stack:
        yield make
        for node in nodes:
            node.close()
            node.destroy_node()


def test_every_start_is_examined_and_an_emergency_stop_stays(
    build: Callable[..., ControllerNode], tmp_path: Path
) -> None:
    node = build()
    lab = Lab(node)
    checks = lab.checks
    good, bad = checks.said, Judgement(lab.home, ("the elbow touches the table",))

    # Inactive, an emergency stop is not forgotten by whoever tries again.
    node._serve_emergency_stop()
    for _ in range(3):
        assert "emergency stop" in lab.activate()
    assert node._serve_reset_emergency_stop() is None
    assert "expected one" in str(node._serve_reset_emergency_stop())

    # The pose that is taken over is the pose that was judged.
    checks.said = Judgement(lab.home + 1e-3, ())
    assert "off the pose that was judged" in lab.activate()
    checks.said = good
    assert lab.activate() == ""
    assert lab.state == "holding"
    lab.measure()
    assert checks.added == 0, "of an arm that is controlled nothing is remembered"

    # An emergency stop and its reset are two things: neither a start nor a second stop takes it back, and the reset
    # moves nothing.
    node._serve_emergency_stop()
    assert lab.state == "fault"
    assert "expected ~/reset_emergency_stop" in str(node._serve_start())
    node._serve_emergency_stop()
    assert "expected ~/reset_emergency_stop" in str(node._serve_start())
    assert not node.session.start_wanted
    assert node._serve_reset_emergency_stop() is None
    assert lab.state == "fault"
    assert not node.session.start_wanted

    # After it: judged again, without the lock, whatever was judged before.
    lab.measure()
    assert checks.added == 1
    checks.said, judged = bad, checks.judged
    lab.judge()
    assert checks.judged == judged, "nobody asked"
    assert node._serve_start() is None
    lab.measure()
    assert lab.state == "fault", "not judged yet"
    lab.judge()
    assert not checks.locked
    lab.measure()
    assert lab.state == "fault"
    assert "touches the table" in node.session.start_refused
    lab.judge(soon=False)
    assert checks.judged == judged + 1, "not at once again: it takes long"
    checks.said = good
    lab.judge()
    lab.measure(off=2e-3)
    assert lab.state == "fault"
    assert "joint_6" in node.session.start_refused
    lab.measure()
    assert lab.state == "fault", "judged once, used once"
    lab.judge()
    lab.measure(off=5e-5)  # sagging a little
    assert lab.state == "holding", node.session.start_refused

    # What was judged for a start that was taken back is worth nothing.
    node.session.core.fault("something")
    node._serve_start()
    lab.judge()
    node._serve_emergency_stop()
    lab.measure()
    assert lab.state == "fault"
    node.trigger_deactivate()
    assert lab.state == "idle"
    assert "emergency stop" in lab.activate(), "also of a stop while it was active"

    # A configure that fails early must not write the log of the session before.
    written = tmp_path / "controller.npz"
    node.trigger_cleanup()
    assert written.is_file()
    written.unlink()
    node.set_parameters([Parameter("robot", value="no_such_arm")])
    node.trigger_configure()
    assert node.lifecycle == "unconfigured"
    assert not written.exists()


def test_a_start_after_an_activation_without_one_is_examined(build: Callable[..., ControllerNode]) -> None:
    node = build(start_on_activation="false")
    lab = Lab(node)
    assert lab.activate() == ""
    assert lab.state == "idle"
    lab.checks.said = Judgement(lab.home, ("the elbow touches the table",))
    node._serve_start()
    lab.measure()
    lab.judge()
    lab.measure()
    assert lab.state == "idle"
    assert "touches the table" in node.session.start_refused
    lab.checks.said = Judgement(lab.home, ())
    lab.judge()
    lab.measure()
    assert lab.state == "holding", node.session.start_refused


def test_another_pose_than_the_judged_one_is_refused_by_joint() -> None:
    model = load_robot("kinova_gen3", **{"measurement.position_error": 1e-3})
    home = np.array(model.settings.home)
    judged = Judgement(home, ())
    assert judged.why_not(model, home) == []
    for j, name in enumerate(model.joint_names):
        step = np.eye(model.n)[j]
        assert judged.why_not(model, home + 2e-3 * step) == [], "both measurements may be off"
        reasons = judged.why_not(model, home - 2.2e-3 * step)
        assert len(reasons) == 1
        assert name in reasons[0]
        turned = judged.why_not(model, home + 2.0 * np.pi * step)
        assert turned == [] if model.continuous[j] else name in turned[0]
        assert judged.why_not(model, home + np.nan * step)
    assert len(judged.why_not(model, home + 1.0)) == model.n
    assert Judgement(home, ("no",)).why_not(model, home) == ["no"]
    assert Judgement(None, ()).why_not(model, home)
