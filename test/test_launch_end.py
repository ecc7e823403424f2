"""A launch file run with real processes: neither a planner that dies nor the end of all stops the arm at speed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from ros_harness import COMPILATION, Probe, busy
from sensor_msgs.msg import JointState
from test_nodes_ending import FAST, MODEL, assert_braked

from safe_sysid.bring_up.arrangement import WRITES
from safe_sysid.control.states import longest_braking
from safe_sysid.nodes.common.base import STREAM
from safe_sysid.nodes.common.messages.conversions import JointReader

pytestmark = pytest.mark.ros

ROOT = Path(__file__).resolve().parent.parent
#: Short motions above 0.3 rad/s; half as fast as real time, so that signals meet the arm in motion.
PARAMETERS = """
/**:
  ros__parameters:
    robot_settings.planner.t_f: 2.0
    robot_settings.planner.t_p: 1.0
    robot_settings.planner.intervals: 48
    robot_settings.planner.iteration_budget: 8
plant:
  ros__parameters: {lockstep_pace: 0.5}
"""


class Launched:
    """``sim.launch.py`` in a process group of its own, and what the controller says."""

    def __init__(self, directory: Path, probe: Probe) -> None:
        (directory / "parameters.yaml").write_text(PARAMETERS)
        self.run, self.probe, self._log = directory / "run", probe, directory / "launch.log"
        arguments = [f"robot:={MODEL.name}", "payload:=4lb", "plans:=50", f"run_dir:={self.run}"]
        arguments += ["state_publisher:=false", f"params_file:={directory / 'parameters.yaml'}"]
        file = str(ROOT / "launch" / "sim.launch.py")
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "test" / "launch_stand_in.py"), file, *arguments],
                stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self.seen: list[Any] = []
        reader = JointReader(MODEL.joint_names)
        probe.listen(JointState, "reference", lambda m: self.seen.append(reader.read(m)), STREAM)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def nodes(self) -> dict[str, int]:
        """Ids of living processes of this launch, by executable."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                group = int((entry / "stat").read_text().rpartition(")")[2].split()[2])
                dead = ") Z " in (entry / "stat").read_text()
            except (OSError, ValueError, UnicodeDecodeError):
                continue
            if group == self.process.pid and not dead:
                for name in ("planner", "identifier", "controller", "plant"):
                    if f"safe_sysid.nodes.{name}.node" in words or any(w.endswith(f"/{name}_node") for w in words):
                        found[name] = int(entry.name)
        return found

    def fast(self) -> None:
        self.probe.wait(
            lambda: (bool(self.seen) and np.abs(self.seen[-1].qd).max() > FAST) or self.process.poll() is not None,
            f"motion: {self.log[-1500:]}", COMPILATION,
        )  # fmt: skip
        assert self.process.poll() is None, self.log

    def ended(self) -> float:
        """Until nobody is left; how long that took, s."""
        began = time.monotonic()
        self.probe.wait(lambda: self.process.poll() is not None and not self.nodes(), "the end", 60.0)
        return time.monotonic() - began


@contextmanager
def launched(directory: Path) -> Iterator[Launched]:
    with Probe() as probe:
        launch = Launched(directory, probe)
        try:
            launch.fast()
            yield launch
        finally:
            for pid in launch.nodes().values():
                os.kill(pid, signal.SIGKILL)
            if launch.process.poll() is None:
                launch.process.kill()
            launch.process.wait(10.0)


LONGEST = longest_braking(2.0, lockstep=True) + WRITES


@pytest.mark.slow  # that the arm is braked without a planner: test_nodes_failures.py
def test_a_planner_that_dies_is_started_again_and_the_arm_is_braked_meanwhile(tmp_path: Path) -> None:
    with launched(tmp_path) as launch:
        before = launch.nodes()
        os.kill(before["planner"], signal.SIGKILL)
        launch.probe.wait(lambda: not np.any(launch.seen[-1].qd), "rest")
        launch.fast()  # a new plan
        after = launch.nodes()
        assert after.pop("planner") != before.pop("planner")
        assert after == before, "nobody else was started again"
        assert "started again" in launch.log
        launch.process.send_signal(signal.SIGINT)
        assert launch.ended() < busy(LONGEST)
    assert_braked(launch.run)
    assert list((launch.run / "planner_again_1").glob("plan_*.json")), "beside those of the one before"


@pytest.mark.slow  # what ends a node brakes first: test_nodes_ending.py
@pytest.mark.parametrize(
    ("number", "whom"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill), (signal.SIGKILL, os.kill)]
)
def test_whatever_ends_a_launch_in_motion_the_arm_is_braked_first(tmp_path: Path, number: int, whom: Any) -> None:
    """Ctrl-C in a terminal tells all; SIGTERM and SIGKILL end launch alone, and its nodes find out."""
    with launched(tmp_path) as launch:
        whom(launch.process.pid, number)
        assert launch.ended() < busy(LONGEST)
    assert_braked(launch.run)
