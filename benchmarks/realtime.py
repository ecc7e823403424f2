"""1 kHz over real topics on the wall clock: what the loop keeps, scheduled so or so, on an idle and on a busy machine.

    python benchmarks/realtime.py run [--seconds 60] [--json FILE]       # plant and controller; planner and identifier
    python benchmarks/realtime.py run --load idle --robots kinova_gen3 lip.yaml hybrid.yaml   # feed-forwards
    python benchmarks/realtime.py drives [--seconds 20] [--json FILE]    # what could drive the controller's loop
    python benchmarks/realtime.py table FILE...                          # print what is in files

Loads: "idle": the arm holds, nobody else is there. "work": planner and identifier work all the time; whenever they have
nothing more to find the bounds are reset and they begin again. "burn": as work, and an endless loop per core beside
them. The nodes are those of the package, as processes, in a ROS domain of their own. The first second of a run is left
out. "stolen" is processor time that a hypervisor took away: no scheduling of ours can help against that; the bare
thread in the title sleeps to every millisecond and does nothing else, in real time if it may.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from safe_sysid.demo.realtime_check import BareLoop

LOADS, SCHEDULINGS = ("idle", "work", "burn"), ("fifo", "normal")
DRIVES = ("thread", "events", "single", "timer", "multi")
#: Parameters of the nodes, as the demo sets them.
FIFO = {"plant": 10, "controller": 11}
NICE = {"planner": 5, "identifier": 10}
WARM_UP = 1.0  # s


# -- the nodes --------------------------------------------------------------------------------------------------


def node_main(drive: str, arguments: list[str]) -> int:
    """This process becomes a controller that is driven in another way."""
    from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
    from rclpy.experimental import EventsExecutor
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import JointState

    from safe_sysid.nodes.common.process import run_node
    from safe_sysid.nodes.controller.node import ControllerNode

    class Driven(ControllerNode):
        """The product but for its loop."""

        _newest: bytes | None = None

        def _drive_by_measurements(self, qos: QoSProfile) -> None:
            answer = self.guarded("joint_states", self._on_measurement)
            if drive != "timer":
                self.create_subscription(JointState, "joint_states", answer, qos, raw=True)
                return

            def keep(data: bytes) -> None:
                self._newest = data

            def tick() -> None:
                if self._newest is not None:
                    data, self._newest = self._newest, None
                    answer(data)

            self.create_subscription(JointState, "joint_states", keep, qos, raw=True)
            self.create_timer(1e-3, tick, clock=self._steady)

        def loop_thread(self) -> int | None:
            return threading.get_native_id()

    executors = {"events": EventsExecutor, "multi": MultiThreadedExecutor}
    return run_node(Driven, arguments, executors.get(drive, SingleThreadedExecutor))


class Node:
    """One process, its output in a file."""

    def __init__(self, name: str, parameters: dict[str, Any], directory: Path, environment: dict[str, str], drive: str):
        self.name, self._log = name, directory / f"{name}.log"
        file = directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
        own = drive != "thread" and name == "controller"
        start = [__file__, "node", drive] if own else ["-m", f"safe_sysid.nodes.{name}.node"]
        command = [sys.executable, *start, "--ros-args", "--params-file", str(file)]
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    def await_ready(self, patience: float) -> None:
        """Until it has said that it works."""
        deadline = time.monotonic() + patience
        while f"READY {self.name}" not in self._log.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} does not start:\n{self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)

    def cpu(self) -> float:
        """Processor time used so far, s."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return float("nan")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Ask, then kill."""
        self.process.send_signal(2)
        try:
            self.process.wait(15.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5.0)


class Foreman:
    """Keeps planner and identifier at work, and the controller going, over the topics and services that users have."""

    def __init__(self, environment: dict[str, str]) -> None:
        from safe_sysid.bring_up.domain import environment_of

        with environment_of(environment):
            import rclpy
            from diagnostic_msgs.msg import DiagnosticArray
            from rclpy.context import Context
            from rclpy.executors import SingleThreadedExecutor
            from rclpy.signals import SignalHandlerOptions
            from std_srvs.srv import Trigger

            self._context = Context()
            domain = int(environment["ROS_DOMAIN_ID"])
            rclpy.init(context=self._context, domain_id=domain, signal_handler_options=SignalHandlerOptions.NO, args=[])
            self._node = rclpy.create_node("foreman", context=self._context, use_global_arguments=False)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 50)
        names = ("controller/start", "controller/reset_bounds", "planner/start")
        self._clients = {name: self._node.create_client(Trigger, name) for name in names}
        self._request = Trigger.Request()
        self._asked = dict.fromkeys(names, 0.0)
        self.values: dict[str, dict[str, str]] = {}
        self.counts = {"restarts": 0, "rounds": 0}

    def _on_diagnostics(self, message: Any) -> None:
        for status in message.status:
            self.values[status.name.partition(":")[0]] = {item.key: item.value for item in status.values}

    def _call(self, name: str, pause: float = 2.0) -> bool:
        if time.monotonic() - self._asked[name] < pause or not self._clients[name].service_is_ready():
            return False
        self._asked[name] = time.monotonic()
        self._clients[name].call_async(self._request)
        return True

    def value(self, node: str, key: str) -> str:
        """Of a node's diagnostics; empty if it is not told."""
        return self.values.get(node, {}).get(key, "")

    def spin(self, seconds: float) -> None:
        """Look after them for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._executor.spin_once(timeout_sec=0.1)
            state, phase = self.value("controller", "state"), self.value("planner", "phase")
            if state in ("idle", "fault") and self._call("controller/start"):
                self.counts["restarts"] += 1
            since = time.monotonic() - self._asked["controller/reset_bounds"]
            if state == "holding" and phase == "over":
                if since > 5.0:
                    self._call("controller/reset_bounds")
                elif since > 1.0 and self._call("planner/start"):
                    self.counts["rounds"] += 1

    def close(self) -> None:
        """Leave the network."""
        self._executor.shutdown(0.5)
        self._node.destroy_node()
        self._context.try_shutdown()


@contextmanager
def burning(processes: int) -> Iterator[None]:
    """Endless loops, as ordinary processes."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


# -- one measurement --------------------------------------------------------------------------------------------


def measure(
    scheduling: str, load: str, seconds: float, drive: str = "thread", pin: bool = False, robot: str = "kinova_gen3"
) -> dict[str, Any]:
    """Start, run, stop and read the logs."""
    from safe_sysid.bring_up.domain import own_domain, ros_environment

    work = load != "idle" and drive == "thread"
    names = ["controller", *(("planner", "identifier") if work else ()), "plant"]
    with tempfile.TemporaryDirectory() as scratch, own_domain() as domain:
        directory = Path(scratch)
        environment = ros_environment(domain, directory / "ros", lockstep=False)
        nodes: dict[str, Node] = {}
        foreman = None
        try:
            for name in names:
                parameters = {"robot": robot, **_parameters(name, scheduling, directory, pin)}
                nodes[name] = Node(name, parameters, directory, environment, drive)
            for node in nodes.values():  # the controller when it has seen the arm and is active
                node.await_ready(400.0)
            foreman = Foreman(environment)
            foreman.spin(WARM_UP)
            with burning((os.cpu_count() or 1) if load == "burn" or (load != "idle" and not work) else 0):
                before = {name: node.cpu() for name, node in nodes.items()}
                began, stolen = time.monotonic(), _stolen()
                foreman.spin(seconds)
                wall, stolen = time.monotonic() - began, _stolen() - stolen
                used = {name: node.cpu() - before[name] for name, node in nodes.items()}
        finally:
            for node in nodes.values():
                node.end()
            if foreman is not None:
                foreman.close()
        record = _read(directory, seconds)
    granted = {name: foreman.value(name, "scheduling") for name in ("plant", "controller")}
    return {
        "drive": drive,
        "robot": robot,
        "scheduling": scheduling,
        "load": load,
        "granted": granted,
        "seconds": seconds,
        **record,
        "cpu_percent": {name: 100.0 * value / wall for name, value in used.items()},
        "stolen_percent": 100.0 * stolen / wall / (os.cpu_count() or 1),
        "rounds": foreman.counts["rounds"],
        "restarts": foreman.counts["restarts"],
        "diagnostics": {key: foreman.value("controller", key) for key in foreman.values.get("controller", {})},
    }


def _parameters(name: str, scheduling: str, directory: Path, pin: bool) -> dict[str, Any]:
    parameters: dict[str, Any] = {"run_dir": str(directory), "lockstep": False}
    if name in FIFO:
        fifo = {"priority": FIFO[name], "lock_memory": True} if scheduling == "fifo" else {}
        cpus = {"cpus": str(list(FIFO).index(name))} if pin and (os.cpu_count() or 1) > 1 else {}
        parameters["realtime"] = {"priority": 0, **fifo, **cpus}
    else:
        parameters["realtime"] = {"nice": NICE[name]}
    if name == "plant":
        parameters["payload"] = "8lb"
    else:
        parameters["autostart"] = True
    if name == "planner":
        parameters["plans"] = 1000
    return parameters


def _read(directory: Path, seconds: float) -> dict[str, Any]:
    """What the nodes wrote down, from the end of the first second on."""
    with np.load(directory / "controller.npz") as log:
        control = {key: log[key] for key in log.files}
    with np.load(directory / "plant.npz") as log:
        plant = {key: log[key] for key in log.files}
    last = control["stamp"][-1]
    late = control["stamp"] > last - round(1e9 * seconds)  # the measured time is the end of the run
    period = control["period_us"][late]
    states = control["states"][control["state"][late]]
    share = {str(state): float(np.mean(states == state)) for state in np.unique(states)}
    told = plant["command_stamp"] > last - round(1e9 * seconds)
    end = round(1e-6 * float(last - plant["origin_ns"]))  # afterwards the plant was alone
    mode = plant["mode"][max(end - round(1000 * seconds), 0) : end]
    identifier, planner = directory / "identifier.json", directory / "planner.json"
    updates = json.loads(identifier.read_text())["updates"] if identifier.exists() else []
    plans = json.loads(planner.read_text())["plans"] if planner.exists() else []
    return {
        "ticks": int(late.sum()),
        "expected_ticks": round(1000 * seconds),
        "missed_percent": 100.0 * float(np.mean(period > 1500.0)),
        "period_us": _quantiles(period),
        "latency_us": _quantiles(control["latency_us"][late]),
        "compute_us": _quantiles(control["compute_us"][late]),
        "measurement_to_command_us": _quantiles(1e6 * plant["delay"][told]),
        "age_us": _quantiles(1e6 * plant["age"][told]),
        "without_command_percent": 100.0 * float(np.mean(mode != 0)),
        "states": share,
        "plans": sum(plan["status"] == "planned" for plan in plans),
        "updates": len(updates),
        "counts": [str(text) for text in control["counts"]],
    }


def _quantiles(values: np.ndarray) -> dict[str, float]:
    if not values.size:
        return {}
    ranks = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
    return {name: float(np.percentile(values, rank)) for name, rank in ranks.items()}


def _stolen() -> float:
    """Processor time that the hypervisor has taken away since the start of the machine, s."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def bare_thread(seconds: float) -> dict[str, Any]:
    """How late a thread wakes up that does nothing else: the floor below everything here, us."""
    with BareLoop(seconds) as loop:
        pass
    values = 1e6 * loop.late
    later = 100.0 * float(np.mean(values > 500.0))
    return {**_quantiles(values), "later_than_500us_percent": later, "as": loop.scheduling}


# -- tables -----------------------------------------------------------------------------------------------------


def show(record: dict[str, Any], console: Console) -> None:
    """The table of one file."""
    floor, rows = record["bare_thread"], record["rows"]
    title = (
        f"{record['kind']}: {record['cores']} cores, {record['processor']}; bare thread ({floor['as']}) wakes "
        f"p99 {floor['p99']:.0f}, p99.9 {floor['p99.9']:.0f}, max {floor['max']:.0f} us late"
    )
    table = Table(title=title)
    for name in ("drive", "scheduling", "load", "ticks", "> 1.5 ms", "period p99 / 99.9 / max", "latency p50 / p99"):
        table.add_column(name + (" ms" if "/" in name else ""), justify="right")
    last = ("controller, plant CPU", "stolen", "plans, boxes", "states", "robot", "feed-forward late")
    for name in ("99.9 / max", "compute p50 / p99", *last):
        table.add_column(name, justify="right")
    for row in rows:
        if "error" in row:
            table.add_row(row["drive"], row["scheduling"], row["load"], row["error"])
            continue
        period, latency, compute, cpu = (row["period_us"], row["latency_us"], row["compute_us"], row["cpu_percent"])
        granted = row["granted"]["controller"]
        refused = row["scheduling"] == "fifo" and granted != "" and "FIFO" not in granted
        table.add_row(
            row["drive"], "refused" if refused else row["scheduling"], row["load"],
            f"{100.0 * row['ticks'] / row['expected_ticks']:.1f} %", f"{row['missed_percent']:.2f} %",
            _ms(period, "p99", "p99.9", "max"), _ms(latency, "p50", "p99"), _ms(latency, "p99.9", "max"),
            _ms(compute, "p50", "p99"), f"{cpu['controller']:.0f} %, {cpu['plant']:.0f} %",
            f"{row['stolen_percent']:.2f} %", f"{row['plans']}, {row['updates']}",
            ", ".join(f"{state} {100.0 * share:.0f} %" for state, share in row["states"].items()),
            Path(row["robot"]).stem, row["diagnostics"].get("count: feed-forward late", "0"),
        )  # fmt: skip
    console.print(table)


def _ms(values: dict[str, float], *names: str) -> str:
    return " / ".join(f"{1e-3 * values[name]:.2f}" if name in values else "-" for name in names)


def main() -> int:
    """Measure row by row; the file is written after each."""
    if sys.argv[1:2] == ["node"]:
        return node_main(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, seconds in (("run", 60.0), ("drives", 20.0)):
        command = commands.add_parser(name)
        command.add_argument("--seconds", type=float, default=seconds, help="per row (default: %(default)g)")
        command.add_argument("--scheduling", nargs="+", choices=SCHEDULINGS, default=SCHEDULINGS)
        command.add_argument("--load", nargs="+", choices=LOADS, default=LOADS if name == "run" else ("idle", "burn"))
        command.add_argument("--robots", nargs="+", default=["kinova_gen3"], metavar="NAME|FILE", help="a row for each")
        command.add_argument("--pin", action="store_true", help="plant and controller each on a core of its own")
        command.add_argument("--json", type=Path, default=None)
        if name == "drives":
            command.add_argument("--drives", nargs="+", choices=DRIVES, default=DRIVES)
    commands.add_parser("table").add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    console = Console(width=200)
    if options.command == "table":
        for file in options.files:
            show(json.loads(file.read_text()), console)
        return 0
    record: dict[str, Any] = {
        "kind": "real time" if options.command == "run" else "what drives the loop",
        "cores": os.cpu_count(),
        "processor": _processor(),
        "kernel": platform.release(),
        "pinned": options.pin,
        "bare_thread": bare_thread(min(options.seconds, 10.0)),
        "rows": [],
    }
    cases = [
        (drive, scheduling, load, robot)
        for load in options.load
        for scheduling in options.scheduling
        for drive in getattr(options, "drives", ("thread",))
        for robot in options.robots
    ]
    for drive, scheduling, load, robot in cases:
        console.print(f"{drive}, {scheduling}, {load}, {robot}: {options.seconds:g} s")
        try:
            row = measure(scheduling, load, options.seconds, drive, options.pin, robot)
        except Exception as error:  # a drive that does not answer must not cost the other rows
            row = {"drive": drive, "scheduling": scheduling, "load": load, "error": f"{type(error).__name__}: {error}"}
        record["rows"].append(row)
        if options.json is not None:
            options.json.write_text(json.dumps(record, indent=1))
    show(record, console)
    return 0


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    raise SystemExit(main())
