"""A viewer process, and an arm that is only told about: what a test says on the topics is all there is."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from ros_harness import NodeProcess, Probe, wait_for
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger

from safe_sysid.nodes.common.base import LATCHED_INPUT
from safe_sysid.nodes.common.messages.conversions import bounds_message
from safe_sysid.robot import load_robot
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ToldArm", "viewing"]

ROBOT = "three_joint"


@contextlib.contextmanager
def viewing(directory: Path, namespace: str = "", **parameters: Any) -> Iterator[tuple[NodeProcess, str]]:
    """A viewer node and its address; ended at the end."""
    process = NodeProcess(
        "viewer", {"robot": ROBOT, "port": 0, "nice": 0, **parameters}, directory, f"/{namespace}" if namespace else ""
    )
    try:
        process.wait_ready()
        wait_for(lambda: "the view is at" in process.log, 10.0, "the address")
        found = re.search(r"the view is at (\S+)", process.log)
        assert found
        yield process, found[1]
    finally:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)


class ToldArm:
    """Publishes what a controller, an identifier and a plant would; serves the controller's services."""

    def __init__(self, probe: Probe, namespace: str = "") -> None:
        self.model = load_robot(ROBOT)
        self._probe, self._inside = probe, f"/{namespace}" if namespace else ""
        node, inside = probe.node, self._inside
        self.states = node.create_publisher(JointState, f"{inside}/joint_states", 5)
        self.boxes = node.create_publisher(Float64MultiArray, f"{inside}/bounds_active", LATCHED_INPUT)
        self.words = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.calls: list[str] = []
        self.answer = (True, "done")
        self._services: list[Any] = []
        self.begun = time.time()

    def serve(self, *names: str) -> None:
        """Offer Trigger services that remember their calls."""

        def handler(name: str) -> Any:
            def handle(_: Any, response: Trigger.Response) -> Trigger.Response:
                self.calls.append(name)
                response.success, response.message = self.answer
                return response

            return handle

        for name in names:
            self._services.append(self._probe.node.create_service(Trigger, f"{self._inside}/{name}", handler(name)))

    def tell(
        self, q: np.ndarray | None = None, state: str = "holding", reason: str = "at rest", level: int = 0
    ) -> None:
        """One measurement, one line of the controller."""
        message = JointState(name=list(self.model.joint_names))
        n = self.model.n
        q = np.array(self.model.settings.home, float) if q is None else q
        message.position, message.velocity, message.effort = q.tolist(), [0.0] * n, [0.0] * n
        message.header.stamp = self._probe.node.get_clock().now().to_msg()
        self.states.publish(message)
        name = f"{self._inside}/controller".lstrip("/")
        self.say(name, f"{state}: {reason}", {"state": state, "reason": reason}, level)

    def say(self, name: str, text: str, values: dict[str, str], level: int = 0) -> None:
        """A line of some node."""
        status = DiagnosticStatus(level=bytes([level]), name=f"{name}: safe_sysid", message=text)
        status.values = [KeyValue(key=key, value=value) for key, value in values.items()]
        self.words.publish(DiagnosticArray(status=[status]))

    def know(self, share: float, identity: tuple[int, int], digest: str = "") -> ParameterBox:
        """Announce a box: the prior, shrunk to a share of it about its middle; returns it."""
        prior = self.model.arm_prior
        middle, half = 0.5 * (prior.lower + prior.upper), 0.5 * share * (prior.upper - prior.lower)
        box = ParameterBox(middle - half, middle + half, *identity)
        self.boxes.publish(bounds_message(box, middle, digest=digest))
        return box
