"""Real node processes for tests, on the test run's own ROS domain, always ended; and a node that listens."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.context import Context
from rclpy.experimental import EventsExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

from safe_sysid.bring_up.domain import own_domain
from safe_sysid.bring_up.fork_server import ForkServer

#: Longest wait for anything on a busy machine, and for a node that has to compile its kernels first, s.
PATIENCE, COMPILATION = 100.0, 220.0
#: A server that has not yet discovered who asks drops its answer: so long after its client is made, s.
_DISCOVERY = 0.3
MANAGED = ("controller", "planner", "identifier")


@functools.cache
def _fork_server() -> ForkServer:
    """As a demo has it, and the gains of the arm that most tests are about."""
    server = ForkServer("safe_sysid.demo.preload", "warm_nodes")
    atexit.register(server.close)
    return server


class Forked:
    """A node of the fork server with the interface of :class:`subprocess.Popen`."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self._process = _fork_server().start(name, arguments, os.environ, log)
        wait_for(
            lambda: self._process.poll() is not None or self._process.pid is not None, COMPILATION, f"a fork: {name}"
        )
        assert self._process.pid is not None, _fork_server().errors()
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        """Exit status, negative if a signal ended it; None while it lives."""
        return self._process.poll()

    def wait(self, timeout: float = 1e9) -> int:
        """Until it has ended."""
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return status

    def send_signal(self, number: int) -> None:
        """Nothing happens to one that has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and is not yet told to us
                os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)


class NodeProcess:
    """One node of the package, its output in a file. Managed nodes become active by themselves, unless told not to."""

    def __init__(self, name: str, parameters: dict[str, Any], directory: Path, namespace: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name, self._log = name, directory / f"{name}.log"
        file = directory / f"{name}.yaml"
        # JSON is YAML; a file, because a command line would take text in braces for a map.
        parameters = {**({"autostart": True} if name in MANAGED else {}), **parameters}
        file.write_text(json.dumps({"/**": {"ros__parameters": parameters}}))
        arguments = ["--ros-args", "--params-file", str(file)]
        arguments += ["-r", f"__ns:={namespace}"] if namespace else []
        self._log.write_bytes(b"")
        self.process = self._started(name, arguments)

    def _started(self, name: str, arguments: list[str]) -> Forked | subprocess.Popen[bytes]:
        """The four that work together are forked; recorder and viewer start as a user starts them."""
        if name in (*MANAGED, "plant"):
            return Forked(name, arguments, self._log)
        command = [sys.executable, "-m", f"safe_sysid.nodes.{name}.node", *arguments]
        with self._log.open("wb") as output:
            return subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=dict(os.environ)
            )

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def wait_ready(self, timeout: float = COMPILATION) -> None:
        """Until it has said READY."""
        wait_for(lambda: f"READY {self.name}" in self.log or self.process.poll() is not None, timeout, self.name)
        assert self.process.poll() is None, f"{self.name} ended at once:\n{self.log}"

    def send(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGINT, timeout: float = 30.0) -> tuple[int, float]:
        """Send a signal and wait; returns exit status and how long it took, s."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10.0)
            raise AssertionError(f"{self.name} did not end within {timeout} s:\n{self.log[-2000:]}") from None
        return status, time.monotonic() - began


@contextlib.contextmanager
def running(
    directory: Path,
    nodes: dict[str, dict[str, Any]],
    overrides: dict[str, Any] | None = None,
    namespace: str = "",
    **common: Any,
) -> Iterator[dict[str, NodeProcess]]:
    """Start nodes (name to parameters), end them whatever happens.

    The plant, whose clock it is, starts when the others are ready: kernels may have to be compiled first. ``common``
    are parameters of all of them; logs are written to ``directory``.
    """
    shared = {"lockstep": True, "run_dir": str(directory), **common}
    if overrides:
        shared["robot_settings"] = overrides
    processes: dict[str, NodeProcess] = {}
    try:
        for name in sorted(nodes, key=lambda name: name == "plant"):
            if name == "plant":
                for process in processes.values():
                    process.wait_ready()
            processes[name] = NodeProcess(name, {**shared, **nodes[name]}, directory, namespace)
        yield processes
    finally:
        alive = [p for p in processes.values() if p.process.poll() is None]
        for process in alive:
            process.process.send_signal(signal.SIGINT)
        for process in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.process.wait(30.0)  # an arm in motion is braked first, and logs are written
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait(10.0)


def end_all(processes: dict[str, NodeProcess], number: int = signal.SIGINT) -> dict[str, tuple[int, float]]:
    """Signal all at once; exit status and duration of each."""
    began = time.monotonic()
    for process in processes.values():
        process.send(number)
    return {name: (p.process.wait(60.0), time.monotonic() - began) for name, p in processes.items()}


def busy(seconds: float) -> float:
    """What so many seconds of a machine with nothing else to do may become on this one, now."""
    return seconds * max(1.0, 2.0 * os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_for(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain for {what}")
        time.sleep(0.02)


@functools.cache
def _domain_here() -> tuple[int, contextlib.ExitStack]:
    stack = contextlib.ExitStack()  # locked as long as this process lives
    return stack.enter_context(own_domain()), stack


@contextlib.contextmanager
def nodes_here(*arguments: str, **parameters: Any) -> Iterator[None]:
    """ROS 2 for nodes in the test's own process, on a domain where no process of another test is.

    ``arguments``: ROS arguments; ``parameters``: of the nodes, ``__`` for the dots of their names.

    A node that is destroyed stays in the graph until Python collects what belonged to it. On the domain of the other
    tests it would be taken for a node of the same name.
    """
    gc.collect()
    given = [f"-p {name.replace('__', '.')}:={value}".split(" ", 1) for name, value in parameters.items()]
    rclpy.init(args=["--ros-args", *itertools.chain(*given), *arguments], domain_id=_domain_here()[0])
    try:
        yield
    finally:
        rclpy.shutdown()


class Probe:
    """A node in the test's process; spins only while the test waits, so there are no threads."""

    def __init__(self, domain: int | None = None) -> None:
        """Join the network of the tests, or of another ROS domain."""
        self._context, by_hand = Context(), SignalHandlerOptions.NO
        rclpy.init(context=self._context, domain_id=domain, signal_handler_options=by_hand, args=["--ros-args"])
        self.node = Node("probe", context=self._context, use_global_arguments=False, enable_rosout=False)
        self._executor = EventsExecutor(context=self._context)
        self._executor.add_node(self.node)
        self.diagnostics: dict[str, DiagnosticStatus] = {}
        self._clients: dict[str, Any] = {}
        self.listen(DiagnosticArray, "/diagnostics", self._on_diagnostics, 50)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(0.5)
        self.node.destroy_node()
        self._context.try_shutdown()

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.diagnostics[status.name.partition(":")[0]] = status

    def listen(self, kind: type, topic: str, callback: Callable[[Any], None], qos: Any = 10) -> None:
        """Subscribe."""
        self.node.create_subscription(kind, topic, callback, qos)

    def heard(
        self, kind: type, topic: str, qos: Any = 10, read: Callable[[Any], Any] = lambda message: message
    ) -> list[Any]:
        """A list of all that comes from now on, as it is read."""
        found: list[Any] = []
        self.listen(kind, topic, lambda message: found.append(read(message)), qos)
        return found

    def publisher(self, kind: type, topic: str, qos: Any = 10, readers: int = 1) -> Any:
        """A publisher that is heard by so many."""
        publisher = self.node.create_publisher(kind, topic, qos)
        self.wait(lambda: publisher.get_subscription_count() >= readers, f"a reader of {topic}")
        return publisher

    def spin(self, seconds: float) -> None:
        """Handle messages for so long."""
        deadline = time.monotonic() + seconds
        while (rest := deadline - time.monotonic()) > 0.0:
            self._executor.spin_once(timeout_sec=rest)

    def wait(self, condition: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
        """Handle messages until a condition holds."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout} s in vain for {what}; diagnostics: {self.summary()}")
            self._executor.spin_once(timeout_sec=0.05)

    def call(self, service: str, kind: Any = Trigger, request: Any = None) -> Any:
        """The answer of a service."""
        if service not in self._clients:
            self._clients[service] = self.node.create_client(kind, service)
        client = self._clients[service]
        if not client.service_is_ready():  # a new client, or a server that was started again
            self.wait(client.service_is_ready, service)
            self.spin(_DISCOVERY)
        request = kind.Request() if request is None else request
        answer = client.call_async(request)
        for _ in range(4 if "/get_" in service else 0):  # what only looks may be asked again
            end = time.monotonic() + 5.0
            while not answer.done() and time.monotonic() < end:
                self.spin(0.1)
            if answer.done():
                break
            answer = client.call_async(request)
        self.wait(answer.done, f"the answer of {service}")
        return answer.result()

    def value(self, node: str, key: str) -> str:
        """A value of a node's diagnostics; empty if it is not told."""
        status = self.diagnostics.get(node)
        return "" if status is None else next((v.value for v in status.values if v.key == key), "")

    def message(self, node: str) -> str:
        """The line that a node tells; empty if it has not."""
        status = self.diagnostics.get(node)
        return "" if status is None else status.message

    def state(self) -> str:
        """State of the controller, as it tells it."""
        return self.value("controller", "state")

    def summary(self) -> str:
        """One line per node."""
        return "; ".join(f"{name}: {status.message}" for name, status in self.diagnostics.items())
