"""Live nodes for the `ros2` commands of the docs: a simulated arm in each namespace that is asked for."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros_harness import PATIENCE, NodeProcess, Probe
from std_msgs.msg import String
from std_srvs.srv import Trigger

from safe_sysid.nodes.common.base import LATCHED

MANAGED = ("planner", "identifier", "controller")
#: State to what leads towards it from below, and from above.
_ORDER = ("unconfigured", "inactive", "active")
_UP = {"unconfigured": Transition.TRANSITION_CONFIGURE, "inactive": Transition.TRANSITION_ACTIVATE}
_DOWN = {"active": Transition.TRANSITION_DEACTIVATE, "inactive": Transition.TRANSITION_CLEANUP}


class Graph:
    """Nodes by namespace, a node that asks them, and programs that were started beside them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: dict[str, dict[str, NodeProcess]] = {}
        self._beside: list[subprocess.Popen[bytes]] = []
        self._clients: dict[str, Any] = {}
        self.probe = Probe()

    def close(self) -> None:
        """End every process."""
        for namespace in list(self._nodes):
            self.end(namespace)
        self.probe.__exit__()

    def names(self) -> list[str]:
        """All nodes, by their full names."""
        pairs = self.probe.node.get_node_names_and_namespaces()
        return sorted(f"{space.rstrip('/')}/{name}" for name, space in pairs)

    def has(self, namespace: str) -> bool:
        """Whether there is an arm in a namespace."""
        return namespace in self._nodes

    def end(self, namespace: str) -> None:
        """End the nodes of an arm."""
        processes = self._nodes.pop(namespace)
        for process in processes.values():
            process.send(signal.SIGINT) if process.process.poll() is None else None
        for process in processes.values():
            with contextlib.suppress(AssertionError):
                process.end(timeout=20.0)
        for name in [
            name for name in self._clients if name.rpartition("/")[0].rpartition("/")[0] == namespace
        ]:
            self.probe.node.destroy_client(self._clients.pop(name))
        gone = [f"{namespace}/{name}" for name in processes]
        self.probe.wait(lambda: not set(gone) & set(self.names()), f"the end of {gone}")

    def named(self, text: str) -> bool:
        """Whether a command names the namespace of an arm."""
        return any(namespace and f"{namespace}/" in text for namespace in self._nodes)

    def keep(self, namespaces: set[str]) -> None:
        """A page begins: arms that it does not name end, those that stay are at rest, programs beside them end."""
        self.end_beside()
        for namespace in list(self._nodes):
            if namespace not in namespaces:
                self.end(namespace)
                continue
            for node in ("planner", "controller"):  # what an earlier page set in motion is over
                self.bring(f"{namespace}/{node}", "inactive")
                self.bring(f"{namespace}/{node}", "active")
            plans = Parameter("plans", value=1).to_parameter_msg()
            self.call(
                SetParameters,
                f"{namespace}/planner/set_parameters",
                SetParameters.Request(parameters=[plans]),
            )

    def arm(
        self, namespace: str = "", payload: str = "4lb", state: str = "active", moving: bool = False
    ) -> None:
        """Have an arm in a namespace, its nodes in a state; ``moving``: its exciting motion has begun."""
        if namespace not in self._nodes:
            try:
                self._start(namespace, payload)
            except AssertionError:
                self.end(namespace)
                raise
        for node in MANAGED:
            self.bring(f"{namespace}/{node}", state)
        if moving:
            answer = self.call(Trigger, f"{namespace}/planner/start", Trigger.Request())
            assert answer.success or answer.message == "planning already", answer.message

    def _start(self, namespace: str, payload: str) -> None:
        folder = self._folder / (namespace.strip("/") or "root")
        common = {"lockstep": True, "lockstep_patience_s": 600.0, "run_dir": str(folder), "autostart": False}
        own = {"planner": {"plans": 1, "start_on_activation": False, "iteration_budget": 20}}
        nodes = self._nodes[namespace] = {}
        for name in MANAGED:
            nodes[name] = NodeProcess(name, {**common, **own.get(name, {})}, folder, namespace)
        for process in nodes.values():
            process.wait_ready()
        configured = [
            self._change(f"{namespace}/{node}", Transition.TRANSITION_CONFIGURE) for node in MANAGED
        ]
        for node, future in zip(MANAGED, configured, strict=True):
            self.probe.wait(future.done, f"{node} configured", 2 * PATIENCE)
            assert future.result().success, nodes[node].log[-2000:]
        nodes["plant"] = NodeProcess("plant", {**common, "payload": payload}, folder, namespace)
        nodes["plant"].wait_ready()

    # -- asking -----------------------------------------------------------------------------------------------

    def client(self, kind: Any, name: str) -> Any:
        """A client whose service is there."""
        client = self._clients.get(name) or self.probe.node.create_client(kind, name)
        self._clients[name] = client
        self.probe.wait(client.service_is_ready, f"service {name}", PATIENCE)
        return client

    def call(self, kind: Any, name: str, request: Any) -> Any:
        """Ask a service; what changes nothing the second time is asked again where no answer comes."""
        client = self.client(kind, name)
        for _ in range(4 if kind in (GetState, SetParameters) else 0):
            future = client.call_async(request)
            with contextlib.suppress(AssertionError):
                self.probe.wait(future.done, f"an answer of {name}", PATIENCE / 5.0)
                return future.result()
        future = client.call_async(request)
        self.probe.wait(future.done, f"an answer of {name}")
        return future.result()

    def state(self, node: str) -> str:
        """Lifecycle state of a node, by its full name."""
        return str(self.call(GetState, f"{node}/get_state", GetState.Request()).current_state.label)

    def _change(self, node: str, number: int) -> Any:
        request = ChangeState.Request(transition=Transition(id=number))
        return self.client(ChangeState, f"{node}/change_state").call_async(request)

    def change(self, node: str, number: int) -> bool:
        """Ask for a transition; whether it was made."""
        future = self._change(node, number)
        self.probe.wait(future.done, f"a transition of {node}")
        return bool(future.result().success)

    def bring(self, node: str, aim: str) -> None:
        """Lead a node to a state; refusals (an arm in motion, no measurement yet) are waited for."""
        deadline = time.monotonic() + PATIENCE
        while (now := self.state(node)) != aim:
            assert time.monotonic() < deadline, f"{node} is {now}, not {aim}"
            step = _UP[now] if _ORDER.index(now) < _ORDER.index(aim) else _DOWN[now]
            if not self.change(node, step):
                self.probe.spin(0.3)

    def reason(self, node: str) -> str:
        """Why a node's last transition was not made, as it tells it."""
        told: list[str] = []
        listener = self.probe.node.create_subscription(
            String, f"{node}/transition_reason", lambda m: told.append(m.data), LATCHED
        )
        try:
            self.probe.wait(lambda: bool(told), f"the reason of {node}")
        except AssertionError as error:
            return str(error)
        finally:
            self.probe.node.destroy_subscription(listener)
        return told[-1]

    # -- programs beside ----------------------------------------------------------------------------------------

    def beside(self, module: str, arguments: list[str], folder: Path) -> str:
        """Start a node of this package until the page ends; what it says until it is ready."""
        log = folder / f"{module}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self._beside.append(process)
        deadline = time.monotonic() + PATIENCE
        while "READY" not in log.read_text(errors="replace"):
            assert process.poll() is None, f"{module} ended:\n{log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{module} is not ready:\n{log.read_text()[-2000:]}"
            time.sleep(0.05)
        return log.read_text(errors="replace")

    def end_beside(self) -> None:
        """End what was started beside."""
        for process in self._beside:
            process.send_signal(signal.SIGINT)
        for process in self._beside:
            try:
                status = process.wait(30.0)
            finally:
                process.kill()
                process.wait()
            assert status == 0, f"{process.args} ended with {status}"
        self._beside.clear()
