"""The view of a real run, all processes over topics: the page says what the controller says, and its buttons act."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

from browser_support import Tab, browser, needs_browser
from ros_harness import Probe, wait_for
from std_msgs.msg import Float64MultiArray

from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.nodes.common.base import LATCHED_INPUT

DEMO = [sys.executable, "-m", "safe_sysid.cli", "demo"]
pytestmark = pytest.mark.slow


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = tmp_path / "demo.log"
    options = ["--view", "0", "--plans", "6", "--pace", "0.3", "--out", str(tmp_path / "run")]
    with log.open("wb") as output:
        process = subprocess.Popen([*DEMO, *options], stdout=output, stderr=subprocess.STDOUT, cwd=tmp_path)
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(30.0)


def found(log: Path, pattern: str) -> str:
    match = re.search(pattern, log.read_text(errors="replace"))
    return match[1] if match else ""


def shown(tab: Tab) -> np.ndarray:
    rows = [tab.page.get_attribute(f"#ss-interval-{name}", "title") or "nan nan" for name in PAYLOAD_NAMES]
    return np.array([[float(word) for word in row.split()] for row in rows])


def test_the_page_of_a_run(demo: tuple[subprocess.Popen[bytes], Path]) -> None:
    needs_browser()
    process, log = demo
    wait_for(lambda: bool(found(log, r"look at (http://\S+)")) or process.poll() is not None, 240.0, "an address")
    wait_for(lambda: bool(found(log, r"ROS domain (\d+)")) or process.poll() is not None, 60.0, "a domain")
    assert process.poll() is None, log.read_text()
    began = time.monotonic()
    heard: dict[str, np.ndarray] = {}

    def note(message: Float64MultiArray) -> None:
        heard[message.layout.dim[0].label] = np.array(message.data).reshape(3, -1)

    with Probe(int(found(log, r"ROS domain (\d+)"))) as probe:
        probe.listen(Float64MultiArray, "/bounds_active", note, LATCHED_INPUT)
        with browser() as open_tab:
            tab = open_tab(found(log, r"look at (http://\S+)"), 800, 600)
            compared = set()

            def agrees() -> bool:
                """The page shows the last box announced, number by number."""
                probe.spin(0.2)
                before, last = tab.text("#ss-box"), list(heard)[-1:]
                numbers = shown(tab)
                if last and before.lower() == f"box {last[0]}" == tab.text("#ss-box").lower():
                    rows = heard[last[0]]
                    end = 10 * (rows.shape[1] // 14)  # 14 parameters per joint, ten of them inertial, those first
                    np.testing.assert_array_equal(numbers.T, rows[::2, end - 10 : end])
                    compared.add(last[0])
                return len(compared) >= 3 and "Following" in tab.text("#ss-phase")

            tab.wait(agrees, "three boxes that agree, and motion", 500.0)
            simulated = float(tab.text("#ss-clock").partition(" s")[0])
            assert 0.0 < simulated < 0.3 * (time.monotonic() - began) + 1.0, "no faster than --pace"
            tab.press("Emergency stop")
            tab.wait(lambda: "Fault" in tab.text("#ss-phase") or "Failed" in tab.text("#ss-phase"), "the fault")
            wait_for(lambda: "FAILED: the controller is in fault" in log.read_text(), 120.0, "the demo's verdict")
            tab.wait(lambda: "Failed: the controller is in fault" in tab.text("#ss-phase"), "the verdict on the page")
            assert process.poll() is None, "the page stays"
    process.send_signal(signal.SIGINT)
    assert process.wait(60.0) == 1
    assert "Traceback" not in log.read_text()


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [*DEMO, "--view", str(taken.getsockname()[1]), "--out", str(tmp_path / "run")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 2
    assert "a port that is free" in done.stderr
    assert "starting controller" not in done.stdout
