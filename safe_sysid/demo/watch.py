"""Watcher: the demo's own ROS node. It listens and leads the nodes from state to state."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.bring_up.transitions import Transitions
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.demo.state import BoxSeen, NodeStatus, PlanSeen, RunState

__all__ = ["Watcher"]

_LATCHED = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_NEWEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


class Watcher:
    """Fills a :class:`RunState` from the topics of one domain."""

    def __init__(self, state: RunState, domain: int, n: int, lockstep: bool) -> None:
        """Join the network of the run."""
        self.state = state
        self._layout, self._lockstep = ParameterLayout(n), lockstep
        self._context = Context()
        rclpy.init(
            context=self._context, domain_id=domain, signal_handler_options=SignalHandlerOptions.NO, args=["--ros-args"]
        )
        self._node = Node(
            "demo",
            context=self._context,
            enable_rosout=False,
            start_parameter_services=False,
            use_global_arguments=False,
        )
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._zero: int | None = None
        listen = self._node.create_subscription
        listen(DiagnosticArray, "/diagnostics", self._guard(self._on_diagnostics), 50)
        listen(JointState, "reference", self._guard(self._on_reference), _NEWEST)
        listen(Float64MultiArray, "bounds", self._guard(self._on_bounds), _LATCHED)
        listen(JointTrajectory, "plan", self._guard(self._on_plan), _LATCHED)

    def transitions(self, names: tuple[str, ...]) -> Transitions:
        """To lead managed nodes with; spin meanwhile."""
        return Transitions(self._node, names)

    def heard_by(self, topic: str, listener: str) -> bool:
        """Whether a node called ``listener`` subscribes to ``topic``."""
        return any(info.node_name == listener for info in self._node.get_subscriptions_info_by_topic(f"/{topic}"))

    def close(self) -> None:
        """Leave the network."""
        self._executor.shutdown(timeout_sec=0.5)
        self._node.destroy_node()
        self._context.try_shutdown()

    def spin(self, seconds: float) -> None:
        """Handle what has come for so long. Polls, so that a fast run costs no more than a slow one."""
        deadline = time.monotonic() + seconds
        while True:
            for _ in range(200):
                before = time.monotonic()
                self._executor.spin_once(timeout_sec=0.0)
                if time.monotonic() - before < 2e-5:
                    break
            rest = deadline - time.monotonic()
            if rest <= 0.0:
                return
            time.sleep(min(rest, 0.05))

    def _guard(self, callback: Callable[[Any], None]) -> Callable[[Any], None]:
        """What cannot be read is left out; the nodes are the ones to tell about it."""

        def call(message: Any) -> None:
            with suppress(ValueError, IndexError, AttributeError):
                callback(message)

        return call

    def _seconds(self, stamp: Any) -> float:
        """Seconds since the plant's clock began: the first stamp that was seen, in lock-step zero."""
        ns = 1_000_000_000 * int(stamp.sec) + int(stamp.nanosec)
        if self._zero is None:
            self._zero = 0 if self._lockstep else ns
        return 1e-9 * (ns - self._zero)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            level = status.level[0] if isinstance(status.level, (bytes, bytearray)) else int(status.level)
            name = status.name.partition(":")[0].strip().rpartition("/")[2]
            values = {item.key: item.value for item in status.values}
            self.state.nodes[name] = NodeStatus(level, status.message, values)

    def _on_reference(self, message: JointState) -> None:
        self.state.time = max(self.state.time, self._seconds(message.header.stamp))

    def _on_bounds(self, message: Float64MultiArray) -> None:
        first, second = message.layout.dim
        rows = np.array(message.data, dtype=float).reshape(3, -1)
        part = self._layout.payload if rows.shape[1] == self._layout.size else slice(0, 10)
        label = second.label.partition(";")[0].removeprefix("batch:")
        batch = int(label) if label.isdigit() else None
        seen = self.state.boxes
        if seen and (seen[-1].identity, seen[-1].batch) == (first.label, batch):
            return
        seen.append(BoxSeen(self.state.time, first.label, batch, *(row[part] for row in rows)))

    def _on_plan(self, message: JointTrajectory) -> None:
        start = self._seconds(message.header.stamp)
        end = None
        if len(message.points) > 1:  # a single one announces when the next plan will begin
            last = message.points[-1].time_from_start
            end = start + last.sec + 1e-9 * last.nanosec
        self.state.plans.append(PlanSeen(start, end, message.header.frame_id.partition(" ")[0]))
