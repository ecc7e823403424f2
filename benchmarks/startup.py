"""From the start of a node's process to ``inactive``, for each node and robot: wall clock and processor time.

Each node starts alone, with ``autostart``, in the cache of compiled kernels that the first, uncounted run has filled;
``inactive`` is when it tells that configure is done. Processor time is that of the process and its children (the
planner's solver) up to there. ``bare`` is an interpreter that imports rclpy and makes a node, for comparison.

    python benchmarks/startup.py [--runs 5] [--robots kinova_gen3 ...] [--nodes controller ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from safe_sysid.bring_up.domain import own_domain, ros_environment

NODES = ("controller", "identifier", "planner")
ROBOTS = ("kinova_gen3", "franka_panda", "ur5e", "three_joint")
_PATIENCE = 600.0  # s, the first run compiles
_TICK = os.sysconf("SC_CLK_TCK")
_BARE = """
import rclpy
rclpy.init()
node = rclpy.create_node("bare")
print("READY bare", flush=True)
rclpy.spin(node)
"""


def processor_time(pid: int) -> float:
    """Of a process and its living and ended children, s."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    own = sum(map(int, fields[11:15])) / _TICK
    threads = Path(f"/proc/{pid}/task").glob("*/children")  # a thread's children are its own
    children = [child for file in threads for child in file.read_text(encoding="ascii").split()]
    return own + sum(processor_time(int(child)) for child in children)


def start(node: str, robot: str, environment: dict[str, str], directory: Path) -> tuple[float, float]:
    """Wall clock and processor time of one start, s."""
    command = [sys.executable, "-u", "-c", _BARE]
    if node != "bare":
        parameters = {"lockstep": True, "autostart": True, "robot": robot, "run_dir": ""}
        if node == "identifier":
            parameters["start_on_activation"] = False
        file = directory / "parameters.yaml"
        file.write_text(json.dumps({"/**": {"ros__parameters": parameters}}))
        command = [sys.executable, "-u", "-m", f"safe_sysid.nodes.{node}.node"]
        command += ["--ros-args", "--params-file", str(file)]
    log = directory / "log"
    with log.open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        while f"READY {node}" not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() - began > _PATIENCE:
                raise SystemExit(f"{node} of {robot} did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.005)
        return time.monotonic() - began, processor_time(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--robots", nargs="+", default=ROBOTS)
    parser.add_argument("--nodes", nargs="+", default=NODES, choices=NODES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console(stderr=True)
    cases = [("bare", "-"), *((node, robot) for robot in options.robots for node in options.nodes)]
    results = []
    with own_domain() as domain, tempfile.TemporaryDirectory() as name:
        environment = ros_environment(domain, Path(name))
        for node, robot in cases:
            runs = [
                start(node, robot, environment, Path(name))
                for _ in track(range(options.runs + 1), f"{node} {robot}", console=console, transient=True)
            ][1:]
            wall, cpu = (statistics.median(values) for values in zip(*runs, strict=True))
            load = os.getloadavg()[0]
            results.append(
                {"node": node, "robot": robot, "wall_s": wall, "cpu_s": cpu, "load": load, "runs": runs}
            )
    table = Table("robot", "node", "wall s", "processor s", "load", title=f"median of {options.runs} starts")
    for row in results:
        table.add_row(
            row["robot"], row["node"], *(f"{row[k]:.2f}" for k in ("wall_s", "cpu_s")), f"{row['load']:.1f}"
        )
    Console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
