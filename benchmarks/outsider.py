"""What another machine on the network can do to the nodes of an arm, tried: docs/use/security.md has the table.

    sudo python benchmarks/outsider.py [--config localhost ...]

Two network namespaces, joined by a pair of virtual devices, are two machines: in one plant, controller, identifier and
the web view run in real time, in the other a stranger with an ordinary ROS 2 tries what can be tried. Needs root and
``ip`` (iproute2), and takes away all that it made.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ("demo", "localhost", "subnet")
VICTIM, STRANGER, PORT, DOMAIN = "10.213.7.1", "10.213.7.2", 8123, 91
_PATIENCE = 12.0


# -- two machines -----------------------------------------------------------------------------------------------


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def two_machines() -> Iterator[tuple[str, str]]:
    """Names of two namespaces whose devices are joined."""
    names = (f"arm{os.getpid()}", f"far{os.getpid()}")
    ends = (f"va{os.getpid()}"[:15], f"vb{os.getpid()}"[:15])
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, end, address in zip(names, ends, (VICTIM, STRANGER), strict=True):
            _ip("link", "set", end, "netns", name)
            inside = ("-n", name)
            _ip(*inside, "addr", "add", f"{address}/24", "dev", end)
            _ip(*inside, "link", "set", end, "up", "multicast", "on")
            _ip(*inside, "link", "set", "lo", "up")
            _ip(*inside, "route", "add", "239.0.0.0/8", "dev", end)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def inside(namespace: str, command: list[str], environment: dict[str, str], **more: Any) -> subprocess.Popen[bytes]:
    """Start a command on one of the machines, which has a shared memory of its own."""
    script = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    words = ["ip", "netns", "exec", namespace, "unshare", "--mount", "sh", "-c", script, "sh", *command]
    return subprocess.Popen(words, env={**os.environ, **environment}, start_new_session=True, **more)


# -- the arm's machine ------------------------------------------------------------------------------------------


def environment_of(config: str, directory: Path) -> dict[str, str]:
    """ROS environment of the arm's machine."""
    from safe_sysid.bring_up.domain import ros_environment

    if config == "demo":  # as `safe-sysid demo --real-time` has it
        return ros_environment(DOMAIN, directory, lockstep=False)
    return {
        "ROS_DOMAIN_ID": str(DOMAIN),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": config.upper(),
        "ROS_LOG_DIR": str(directory),
    }


def victim(directory: Path) -> int:
    """Run the nodes until stdin ends."""
    sys.path.insert(0, str(ROOT / "test"))
    from ros_harness import running

    view = [sys.executable, "-m", "safe_sysid", "view", "--robot", "three_joint", "--port", str(PORT)]
    with (directory / "view.log").open("wb") as log:
        page = subprocess.Popen(view, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            nodes: dict[str, dict[str, Any]] = {"controller": {}, "identifier": {}, "plant": {}}
            with running(directory, nodes, lockstep=False, robot="three_joint") as processes:
                processes["plant"].wait_ready()
                print("READY", flush=True)
                sys.stdin.read()
        finally:
            page.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                page.wait(10.0)
            page.kill()
    return 0


# -- the stranger's machine -------------------------------------------------------------------------------------


class Stranger:
    """Tries one thing after the other; what it finds out is JSON on stdout."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "test"))
        from ros_harness import Probe

        self.probe = Probe()
        self.node = self.probe.node
        self.found: dict[str, str] = {}
        self.active: Any = None

    def attempt(self, what: str, how: Callable[[], str]) -> None:
        """Note what came of it."""
        try:
            self.found[what] = how()
        except Exception as error:
            self.found[what] = f"no ({type(error).__name__}: {str(error)[:80]})"

    def until(self, condition: Callable[[], bool]) -> bool:
        """Whether it became true in time."""
        end = time.monotonic() + _PATIENCE
        while not condition() and time.monotonic() < end:
            self.probe.spin(0.05)
        return condition()

    def run(self) -> None:
        """All of it."""
        from sensor_msgs.msg import JointState
        from std_msgs.msg import Float64MultiArray

        from safe_sysid.nodes.common.base import LATCHED, measurement_qos

        heard: list[JointState] = []
        self.probe.listen(JointState, "joint_states", heard.append, measurement_qos(False))
        self.probe.listen(Float64MultiArray, "bounds_active", lambda m: setattr(self, "active", m), LATCHED)
        names = lambda: {name for name in self.node.get_node_names() if name != "probe"}  # noqa: E731
        self.attempt(
            "list nodes", lambda: f"yes: {', '.join(sorted(names()))}" if self.until(lambda: len(names()) > 2) else "no"
        )
        self.attempt("read joint_states", lambda: "yes" if self.until(lambda: len(heard) > 10) else "no")
        self.attempt("read diagnostics, bounds", lambda: "yes" if self.until(lambda: self.active is not None) else "no")
        self.attempt("publish bounds", self.bounds)
        self.attempt("publish a plan that nobody certified", self.plan)
        self.attempt("publish joint_states of other angles", lambda: self.joint_states(heard))
        self.attempt("set a parameter", self.parameter)
        self.attempt("publish effort_command", self.effort)
        self.attempt("call controller/emergency_stop", lambda: self.call("controller/emergency_stop"))
        self.attempt("deactivate the controller", self.deactivate)
        self.attempt("open the web view", self.page)

    def _told(self, key: str) -> int:
        return sum(
            int(v.value)
            for v in (self.probe.diagnostics["controller"].values if "controller" in self.probe.diagnostics else ())
            if v.key.startswith(f"refused {key}")
        )

    def bounds(self) -> str:
        """A box half as large, with the digest that everybody can read."""
        from std_msgs.msg import Float64MultiArray

        from safe_sysid.nodes.common.base import LATCHED
        from safe_sysid.nodes.common.messages.conversions import bounds_message, read_bounds
        from safe_sysid.robot.parameters import ParameterBox

        if self.active is None:
            return "no: nothing to imitate"
        answer = read_bounds(self.active, len(self.active.data) // 3)
        box = answer.box
        half = ParameterBox(0.5 * (box.lower + box.mid), 0.5 * (box.upper + box.mid), box.epoch, box.seq + 1)
        publisher = self.node.create_publisher(Float64MultiArray, "bounds", LATCHED)
        if not self.until(lambda: publisher.get_subscription_count() > 0):
            return "no: nobody listens"
        self.probe.spin(2.0)  # it is seen meanwhile
        before = self._told("bounds")
        publisher.publish(bounds_message(half, half.mid, digest=answer.digest))
        taken = self.until(lambda: self._told("bounds") > before or self.active.layout.dim[0].label == half.identity)
        self.node.destroy_publisher(publisher)
        if taken and self.active.layout.dim[0].label == half.identity:
            return "yes: taken"
        return "refused: more than one publisher" if self._told("bounds: more than one publisher") else "not taken"

    def plan(self) -> str:
        """One that connects, with the digest of the controller itself; there is no planner to contradict it."""
        from trajectory_msgs.msg import JointTrajectory

        from safe_sysid.nodes.common.base import LATCHED

        publisher = self.node.create_publisher(JointTrajectory, "plan", LATCHED)
        if not self.until(lambda: publisher.get_subscription_count() > 0):
            return "no: nobody listens"
        return "yes: it is heard; a forger who knows digest, pose and box moves the arm"

    def joint_states(self, heard: list[Any]) -> str:
        """Measurements that are false."""
        from sensor_msgs.msg import JointState

        from safe_sysid.nodes.common.base import measurement_qos
        from safe_sysid.nodes.common.messages.conversions import write_stamp

        if not heard:
            return "no: nothing to imitate"
        publisher = self.node.create_publisher(JointState, "joint_states", measurement_qos(False))
        if not self.until(lambda: publisher.get_subscription_count() > 0):
            return "no: nobody listens"
        false = heard[-1]
        false.position = [q + 0.3 for q in false.position]
        for _ in range(200):
            write_stamp(false.header.stamp, time.time_ns())
            publisher.publish(false)
            self.probe.spin(0.002)
        self.probe.spin(1.5)
        self.node.destroy_publisher(publisher)
        return f"yes: the controller is now in {self.probe.state() or 'an unknown state'}"

    def effort(self) -> str:
        """Torques beside the controller's."""
        from std_msgs.msg import Float64MultiArray

        publisher = self.node.create_publisher(Float64MultiArray, "effort_command", 1)
        if not self.until(lambda: publisher.get_subscription_count() > 0):
            return "no: nobody listens"
        for _ in range(100):
            publisher.publish(Float64MultiArray(data=[1.0, 1.0, 1.0]))
            self.probe.spin(0.005)
        told = self.until(lambda: "publishers of" in self.probe.message("controller"))
        self.node.destroy_publisher(publisher)
        return f"yes: the drives hear it; the controller {'tells it (ERROR)' if told else 'does not notice'}"

    def call(self, name: str) -> str:
        """A service without fields."""
        from std_srvs.srv import Trigger

        client = self.node.create_client(Trigger, name)
        if not self.until(client.service_is_ready):
            return "no: no such service"
        answer = client.call_async(Trigger.Request())
        return f"yes: {answer.result().message[:60]}" if self.until(answer.done) else "no: no answer"

    def parameter(self) -> str:
        """A live one."""
        from rcl_interfaces.msg import Parameter, ParameterValue
        from rcl_interfaces.srv import SetParameters

        client = self.node.create_client(SetParameters, "controller/set_parameters")
        if not self.until(client.service_is_ready):
            return "no: no such service"
        value = ParameterValue(type=2, integer_value=20)
        answer = client.call_async(SetParameters.Request(parameters=[Parameter(name="reference_every", value=value)]))
        if not self.until(answer.done):
            return "no: no answer"
        return f"yes: {answer.result().results[0].successful}"

    def deactivate(self) -> str:
        """A transition."""
        from lifecycle_msgs.srv import ChangeState

        client = self.node.create_client(ChangeState, "controller/change_state")
        if not self.until(client.service_is_ready):
            return "no: no such service"
        request = ChangeState.Request()
        request.transition.label = "deactivate"
        answer = client.call_async(request)
        return f"yes: {answer.result().success}" if self.until(answer.done) else "no: no answer"

    def page(self) -> str:
        """Its first byte."""
        try:
            with urllib.request.urlopen(f"http://{VICTIM}:{PORT}/", timeout=_PATIENCE) as answer:
                return f"yes: status {answer.status}"
        except urllib.error.HTTPError as error:
            return f"refused: status {error.code}"
        except OSError as error:
            return f"no: {getattr(error, 'reason', error)}"


# -- together ---------------------------------------------------------------------------------------------------


def one(config: str, machines: tuple[str, str], scratch: Path) -> dict[str, str]:
    """What the stranger found out."""
    directory = scratch / config
    directory.mkdir()
    path = {"PYTHONPATH": str(ROOT)}
    me = [sys.executable, str(Path(__file__).resolve()), "--inside"]
    arm = inside(
        machines[0], [*me, "victim", "--directory", str(directory)], {**path, **environment_of(config, directory)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        if arm.stdout is None or arm.stdout.readline().strip() != b"READY":
            raise RuntimeError("the nodes did not start")
        time.sleep(3.0)
        ros = {"ROS_DOMAIN_ID": str(DOMAIN), "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET", "ROS_LOG_DIR": str(directory)}
        other = inside(machines[1], [*me, "stranger"], {**path, **ros}, stdout=subprocess.PIPE)
        text, _ = other.communicate(timeout=400.0)
        return dict(json.loads(text.decode().strip().splitlines()[-1]))
    finally:
        if arm.stdin is not None:
            arm.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            arm.wait(40.0)
        with suppress(ProcessLookupError):
            os.killpg(arm.pid, signal.SIGKILL)


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", action="append", choices=CONFIGS)
    parser.add_argument("--inside", choices=("victim", "stranger"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside == "victim":
        return victim(options.directory)
    if options.inside == "stranger":
        stranger = Stranger()
        stranger.run()
        print(json.dumps(stranger.found), flush=True)
        return 0
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("needs root and ip (Debian: iproute2), to make two network namespaces", file=sys.stderr)
        return 2
    sys.path.insert(0, str(ROOT))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the namespaces are taken away
    results: dict[str, dict[str, str]] = {}
    with two_machines() as machines, tempfile.TemporaryDirectory() as scratch:
        for config in options.config or CONFIGS:
            results[config] = one(config, machines, Path(scratch))
            print(f"{config}: {results[config]}", file=sys.stderr, flush=True)
    configs = list(results)
    print(f"| what | {' | '.join(configs)} |\n|---{'|---' * len(configs)}|")
    for what in results[configs[0]]:
        print(f"| {what} | {' | '.join(results[config].get(what, '') for config in configs)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
