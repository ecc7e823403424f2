"""What floods of messages and requests do to the 1 kHz loop: docs/use/security.md has the table.

    python benchmarks/flood.py [--seconds 10] [--case NAME ...] [--tree DIR]

Plant and controller hold the arm in real time while another process sends as fast as it can. Told of each case: how
many were sent a second, the time from measurement to command, steps of the plant without a command, what the
controller did, and how long an emergency stop took to be obeyed in the middle of it. ``--tree``: another checkout whose
nodes are measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Topic, type of message, bytes (None: a sound message but for what only the right sender knows).
CASES: dict[str, tuple[str, str, int | None]] = {
    "nothing": ("", "", None),
    "bounds, small": ("bounds", "bounds", None),
    "bounds, 1 MB each": ("bounds", "bounds", 1_000_000),
    "plan": ("plan", "plan", None),
    "joint_states, without the joints": ("joint_states", "joints", None),
    "joint_states, 1 MB each": ("joint_states", "joints", 1_000_000),
    "effort_command, wrong length": ("effort_command", "bounds", None),
    "controller/reset_bounds": ("service", "controller/reset_bounds", None),
    "controller/get_parameters": ("parameters", "controller/get_parameters", None),
}


def flood(case: str, sent: Any, stop: Any) -> None:
    """The other process."""
    import rclpy
    from rcl_interfaces.srv import GetParameters
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import JointState
    from std_msgs.msg import Float64MultiArray
    from std_srvs.srv import Trigger
    from trajectory_msgs.msg import JointTrajectory

    topic, what, size = CASES[case]
    rclpy.init()
    node = rclpy.create_node("stranger")
    if topic in ("service", "parameters"):
        kind = Trigger if topic == "service" else GetParameters
        client = node.create_client(kind, what)
        client.wait_for_service()
        while not stop.is_set():
            for _ in range(50):
                client.call_async(kind.Request())
                sent.value += 1
            rclpy.spin_once(node, timeout_sec=0.0)
        return
    kind = {"bounds": Float64MultiArray, "plan": JointTrajectory, "joints": JointState}[what]
    message = kind()
    if size is not None:
        setattr(message, "data" if what == "bounds" else "position", [0.0] * (size // 8))
    data = serialize_message(message)
    reliability = ReliabilityPolicy.BEST_EFFORT if topic == "joint_states" else ReliabilityPolicy.RELIABLE
    durability = DurabilityPolicy.TRANSIENT_LOCAL if topic in ("bounds", "plan") else DurabilityPolicy.VOLATILE
    publisher = node.create_publisher(kind, topic, QoSProfile(depth=10, reliability=reliability, durability=durability))
    while publisher.get_subscription_count() == 0:
        time.sleep(0.01)
    while not stop.is_set():
        for _ in range(20):
            publisher.publish(data)
        sent.value += 20


def one(case: str, seconds: float, directory: Path) -> dict[str, Any]:
    """One case, with fresh nodes."""
    import numpy as np
    from ros_harness import Probe, running
    from std_srvs.srv import Trigger

    context = multiprocessing.get_context("spawn")
    sent, stop = context.Value("q", 0), context.Event()
    found: dict[str, Any] = {"case": case}
    nodes_of = {name: {"realtime.priority": priority} for name, priority in (("controller", 11), ("plant", 10))}
    with running(directory, nodes_of, lockstep=False) as nodes, Probe() as probe:
        probe.wait(lambda: probe.state() == "holding", "the arm to be held")
        other = context.Process(target=flood, args=(case, sent, stop)) if CASES[case][0] else None
        if other is not None:
            other.start()
            probe.wait(lambda: sent.value > 0, "the flood")
        began, count, start_ns = time.monotonic(), sent.value, time.time_ns()
        probe.spin(seconds)
        found["sent per s"] = round((sent.value - count) / (time.monotonic() - began))
        found["state"], end_ns = probe.state(), time.time_ns()
        client = probe.node.create_client(Trigger, "controller/emergency_stop")
        probe.wait(client.service_is_ready, "the service")
        asked = time.monotonic()
        answer = client.call_async(Trigger.Request())
        probe.wait(answer.done, "the emergency stop", 60.0)
        found["emergency stop ms"] = round(1e3 * (time.monotonic() - asked), 1)
        stop.set()
        if other is not None:
            other.join(5.0)
            other.kill()
        probe.spin(1.5)
        found["alive"] = all(p.process.poll() is None for p in nodes.values())
        refused = {
            v.key.removeprefix("refused "): int(v.value)
            for v in probe.diagnostics["controller"].values
            if v.key.startswith("refused ")
        }
        found["refused"] = refused
    with np.load(directory / "plant.npz") as log:
        stamps = log["command_stamp"]
        delay = 1e3 * log["delay"][(stamps > start_ns) & (stamps < end_ns)]
        found["commands per s"] = round(len(delay) / (1e-9 * (end_ns - start_ns)))
        found["delay ms p50 p99 max"] = (
            [round(float(x), 2) for x in np.percentile(delay, (50, 99, 100))] if len(delay) else None
        )
        found["|q - q0| max rad"] = round(float(np.max(np.abs(log["q"] - log["q"][0]))), 5)
    return found


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--tree", type=Path, default=ROOT)
    options = parser.parse_args()
    tree = str(options.tree.resolve())
    os.environ["PYTHONPATH"] = tree
    os.chdir(tree)  # where python -m looks first
    sys.path[:0] = [tree, str(Path(tree) / "test")]
    from safe_sysid.bring_up.domain import own_domain, ros_environment

    with own_domain() as domain, tempfile.TemporaryDirectory() as scratch:
        os.environ |= ros_environment(domain, Path(scratch), lockstep=False)
        for number, case in enumerate(options.case or CASES):
            result = one(case, options.seconds, Path(scratch) / str(number))
            print("; ".join(f"{key}: {value}" for key, value in result.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
