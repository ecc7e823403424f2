"""Real nodes at rest: nobody is busy, nothing grows, latched topics keep one message."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import InertiaStamped
from message_bench import MessageBench
from ros_harness import Probe, running
from std_msgs.msg import Float64MultiArray, String
from test_nodes_lockstep import references
from test_nodes_task import QUICK
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.identification.identifier import UpdateStatus
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.nodes.common.base import ERROR, LATCHED_INPUT
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros

LATCHED_TOPICS: dict[str, type] = {
    "bounds": Float64MultiArray,
    "bounds_active": Float64MultiArray,
    "plan": JointTrajectory,
    "certificate": Float64MultiArray,
    "payload": InertiaStamped,
    "last_link_with_payload": InertiaStamped,
    "intervals": DiagnosticArray,
    "identifier/configuration": String,
    "controller/transition_reason": String,
}


def processor_time(process: int) -> float:
    """Of a process and its threads so far, s."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow  # a session at rest does nothing: test_quiet.py
def test_at_rest_nobody_is_busy_and_latched_topics_keep_the_newest_message(tmp_path: Path) -> None:
    """Reviewed: a core and a half for ever; `ros2 topic echo --once` showed bounds 5 to 20 updates old."""
    nodes: dict[str, dict[str, Any]] = {
        "plant": {"payload": "8lb"}, "controller": {}, "identifier": {"rest_s": 1.0}, "planner": {"plans": 3},
    }  # fmt: skip

    def grown() -> dict[str, Any]:
        return {str(path): path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}

    with running(tmp_path, nodes, QUICK) as processes, Probe() as probe:
        told = {topic: probe.heard(kind, topic, LATCHED_INPUT) for topic, kind in LATCHED_TOPICS.items()}
        seen = references(probe)
        probe.wait(lambda: "0.1 of real time" in probe.value("plant", "pace"), "time to slow down")
        assert probe.state() == "holding"
        probe.spin(0.5)

        began, stamp, before = time.monotonic(), seen[-1].stamp_ns, grown()
        used = {name: processor_time(process.process.pid) for name, process in processes.items()}
        probe.spin(3.0)
        elapsed = time.monotonic() - began
        assert 1e-9 * (seen[-1].stamp_ns - stamp) <= 0.1 * elapsed + 0.05
        assert grown() == before, "no line, no certificate, nothing"
        used = {name: (processor_time(processes[name].process.pid) - was) / elapsed for name, was in used.items()}
        print({name: f"{share:.3f} cores" for name, share in used.items()})
        assert sum(used.values()) < 0.6, used

        # Whoever comes now gets the newest message of each topic, and none before it.
        assert len({message.layout.dim[0].label for message in told["bounds"]}) >= 2
        with Probe() as late:
            heard = {topic: late.heard(kind, topic, LATCHED_INPUT) for topic, kind in LATCHED_TOPICS.items()}
            late.wait(lambda: all(heard.values()), "one message of each topic")
            late.spin(0.5)
        probe.spin(0.5)
        for topic, messages in heard.items():
            assert len(messages) == 1 or topic == "bounds", topic  # the answer to a batch may just have come
            assert messages[0] in told[topic][-2:], topic

        # The payload is told alone, and with what carries it.
        model = load_robot("kinova_gen3")
        lower, nominal, upper = np.array(told["bounds"][-1].data).reshape(3, -1)[:, 60:70]
        alone, all_together = told["payload"][-1].inertia, told["last_link_with_payload"][-1].inertia
        assert all_together.m == pytest.approx(nominal[0], abs=1e-12)
        assert alone.m == pytest.approx(payload_bounds(model, lower, nominal, upper).nominal[0], abs=1e-12)
        assert alone.m < all_together.m - 0.5
        for status, told_mass in zip(told["intervals"][-1].status, (alone.m, all_together.m), strict=True):
            assert status.message == UpdateStatus.OK.value
            mass = {pair.key: pair.value for pair in status.values}["m"].split()
            assert float(mass[1]) <= told_mass <= float(mass[5])
            assert mass[6] == "kg"

        # Time goes on as soon as something happens.
        assert not probe.call("identifier/forward_payload").success  # nobody is named
        plans = len(told["plan"])
        assert probe.call("planner/start").success
        probe.wait(lambda: probe.value("plant", "pace") == "as fast as it goes", "time to go on")
        probe.wait(lambda: any(message.points for message in told["plan"][plans:]), "an answer")


def test_a_contradiction_is_an_error_in_the_log_and_in_the_diagnostics_once(tmp_path: Path) -> None:
    """Reviewed: `no parameters agree` was a line like any other."""
    bench = MessageBench(tmp_path)
    told: list[tuple[bytes, str]] = []
    try:
        node = bench.identifier
        node._tell = lambda level, text: told.append((level, text))  # type: ignore[method-assign]
        current_result = node._session.current_result()
        empty = replace(current_result, status=UpdateStatus.EMPTY_SET, message=UpdateStatus.EMPTY_SET.value)
        for _ in range(3):
            node._session.update = lambda batch: empty  # type: ignore[method-assign]
            node._update(1, 1_000_000_000)
        level, text, _ = node.overview()
        assert (level, text) == (ERROR, UpdateStatus.EMPTY_SET.value)
        assert node._contradicted, "and the controller is told"
        node._reset(1)
        assert not node._contradicted
        lines = [level for level, text in told if UpdateStatus.EMPTY_SET.value in text]
        assert lines == [ERROR]
        # Nor is a fault of the controller.
        told.clear()
        bench.controller._tell = node._tell  # type: ignore[method-assign]
        bench.controller.session.core.fault("V is at least 2 J, above V_max = 1 J: an assumption is false")
        bench.controller.session.tell_state()
        assert [level for level, text in told if "an assumption is false" in text] == [ERROR]
        assert bench.controller.overview()[0] == ERROR
    finally:
        bench.close()
