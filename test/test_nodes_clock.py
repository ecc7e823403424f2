"""Simulated time (``use_sim_time``, as with Gazebo): stamps are judged by /clock, not by this machine's clock."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from ros_harness import PATIENCE, Probe, running
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from safe_sysid.dynamics import dynamics_of
from safe_sysid.nodes.common.base import measurement_qos
from safe_sysid.nodes.common.messages.conversions import JointStateWriter, read_command, write_stamp
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros

#: Simulated time begins here, s; far from the wall clock and far from 0.
BEGIN = 5_000
MS = 1_000_000


@pytest.mark.slow
def test_a_controller_on_simulated_time_takes_an_arm_over(tmp_path: Path) -> None:
    """A statue of an arm at half speed or slower: measured in simulated time it is as fast as it should be."""
    limits: dict[str, Any] = {"measurement": {"max_age_s": 1.0}}  # the longest allowed: tests may stall
    model = load_robot("kinova_gen3", **limits)
    home, zero = np.array(model.settings.home), np.zeros(model.n)
    effort = dynamics_of(model.kinematics).torque_regressor(home, zero, zero) @ model.arm_prior.mid
    nodes: dict[str, dict[str, Any]] = {"controller": {"use_sim_time": True}}
    with running(tmp_path, nodes, limits, lockstep=False) as processes, Probe() as probe:
        processes["controller"].wait_ready()
        clock = probe.publisher(Clock, "/clock")
        states = probe.publisher(JointState, "joint_states", measurement_qos(lockstep=False))
        writer, answers = JointStateWriter(model.joint_names), set()
        probe.listen(Float64MultiArray, "effort_command", lambda m: answers.add(read_command(m, model.n)[0]), 500)

        def measure(stamp_ns: int) -> None:
            states.publish(writer.fill(stamp_ns, home, zero, effort))
            probe.spin(0.002)

        def refused(reason: str) -> int:
            return int(probe.value("controller", f"refused joint_states: {reason}") or 0)

        stamp, deadline = BEGIN * 1000 * MS, time.monotonic() + PATIENCE
        while not refused("from the future"):  # no /clock yet: nobody knows what time it is
            assert time.monotonic() < deadline, probe.summary()
            measure(stamp)
        assert "no measurement has come" in probe.message("controller"), "none that counts"

        stamp, message = stamp + 10_000 * MS, Clock()
        while probe.state() != "holding" or len(answers) < 300:
            assert time.monotonic() < deadline, (probe.summary(), len(answers))
            stamp += MS
            write_stamp(message.clock, stamp)
            clock.publish(message)
            measure(stamp)
        assert not refused("stale")
        assert all(BEGIN * 1000 * MS < answered <= stamp for answered in answers)

        before = refused("from the future")
        while refused("from the future") <= before:  # the wall clock's stamps are what is wrong now
            assert time.monotonic() < deadline, probe.summary()
            measure(time.time_ns())
        assert probe.state() == "holding"
    with np.load(tmp_path / "controller.npz") as log:
        assert np.all(np.abs(log["latency_us"]) < 5e6), "in simulated time, too"
