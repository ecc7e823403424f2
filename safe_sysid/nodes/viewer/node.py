"""Viewer node: shows an arm's topics in a browser and calls services for the page's buttons. It publishes nothing.

Nothing here waits for messages. Thirty times a second the node takes what the middleware has kept, which is only the
newest measurement: so a 1 kHz stream costs thirty readings a second and never slows down its sender.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from rclpy.signals import SignalHandlerOptions
from rclpy.subscription import Subscription
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.inertia_shapes import PayloadShapes, payload_shapes
from safe_sysid.nodes.common.digest import configuration_digest
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.parameters import NodeParameters, empty_lists_refused
from safe_sysid.nodes.viewer.demo_result import read_verdict
from safe_sysid.nodes.viewer.service_calls import ServiceCalls
from safe_sysid.nodes.viewer.state import DRAWN, ViewerState
from safe_sysid.robot.loading import load_robot
from safe_sysid.view.arm_shapes import arm_shapes
from safe_sysid.view.page import BUTTONS, LivePage
from safe_sysid.view.server import open_server
from safe_sysid.view.snapshot import BoundsView

__all__ = ["ViewerNode", "main"]

_LATCHED = QoSProfile(depth=50, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_EVENTS = QoSProfile(depth=50, reliability=ReliabilityPolicy.RELIABLE)
_NEWEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
#: Of pictures and of the panel, s; who is there is asked now and then.
_FRAME, _PANEL, _LOOK, _UNSEEN = 1.0 / 30.0, 0.25, 1.0, 0.5
#: Of one topic and frame, and no more once the frame is over; what is left comes with the next.
_AT_ONCE = 20
#: Bytes; larger messages are not even decoded.
_LARGEST = {"joint_states": 20_000, "reference": 20_000, "markers": 8_000_000, "/diagnostics": 1_000_000}
_LARGEST_OTHER = 200_000


class ViewerNode:
    """Listens and draws; the ROS node inside has no parameter services and no log topic."""

    def __init__(self) -> None:
        with empty_lists_refused("viewer"):
            self.node = Node(
                "viewer",
                enable_rosout=False,
                start_parameter_services=False,
                automatically_declare_parameters_from_overrides=True,
            )
        parameters = NodeParameters(self.node, "viewer")
        given = parameters.values()
        with suppress(OSError):
            os.nice(given["nice"])
        robot = given["robot"]
        model = load_robot(robot, **parameters.overrides)
        self._model = model
        namespace = self.node.get_namespace().strip("/")
        digests = (configuration_digest(model, True), configuration_digest(model, False))
        self.view_state = ViewerState(model, namespace, digests)
        domain = self.node.context.get_domain_id()
        self._where = f"ROS domain {domain}" + (f", namespace /{namespace}" if namespace else "")
        self._listening: list[tuple[str, Subscription, type, Callable[[Any], None]]] = []
        for topic, kind, qos in (
            ("joint_states", JointState, _NEWEST),
            ("reference", JointState, _NEWEST),
            ("bounds_active", Float64MultiArray, _LATCHED),
            ("plan", JointTrajectory, _LATCHED),
            ("certificate", Float64MultiArray, _LATCHED),
            ("markers", MarkerArray, _LATCHED),
            ("/diagnostics", DiagnosticArray, _EVENTS),
        ):
            self._listen(topic, kind, qos)
        self._service_calls = None if given["read_only"] else ServiceCalls(self.node, [b.service for b in BUTTONS])
        names = tuple(part.strip() for part in (given["names"] or "").split(",") if part.strip())
        self.server = open_server(given["host"], given["port"], label="safe_sysid", names=names, key=given["key"])
        call = None if self._service_calls is None else self._service_calls.ask
        self.page = LivePage(self.server.viser, model, arm_shapes(model, robot), self._where, call)
        self._results = None if given["results"] is None else Path(given["results"])
        self._missing: tuple[str, ...] = ()
        self._simulated = False
        self._drawn_box: BoundsView | None = None
        self._next_panel = self._next_look = self._next_picture = 0.0

    def _listen(self, topic: str, kind: type, qos: QoSProfile) -> None:
        take = getattr(self.view_state, topic.lstrip("/"))
        subscription = self.node.create_subscription(kind, topic, lambda _: None, qos, raw=True)
        self._listening.append((topic, subscription, kind, take))

    def spin_once(self) -> None:
        """One picture: take what has come, draw what has changed, wait for the next."""
        began = time.monotonic()
        for topic, subscription, kind, take in self._listening:
            self._serve()
            self._take(topic, subscription, kind, take, began + _FRAME)
        self._serve()
        self._draw(began)
        time.sleep(max(0.0, _FRAME - (time.monotonic() - began)))

    def _serve(self) -> None:
        """Buttons, between any two topics: who floods one of them must not hold up what stops the arm."""
        if self._service_calls is not None:
            self._service_calls.work()

    def _take(
        self, topic: str, subscription: Subscription, kind: type, take: Callable[[Any], None], end: float
    ) -> None:
        for count in range(_AT_ONCE):
            if count and time.monotonic() > end:
                return
            with subscription.handle:
                taken = subscription.handle.take_message(subscription.msg_type, True)
            if taken is None:
                return
            data = taken[0]
            name = topic.lstrip("/")
            if len(data) > _LARGEST.get(topic, _LARGEST_OTHER):
                self.view_state.dropped[f"{name}: too long"] += 1
                continue
            try:
                take(deserialize_message(data, kind))
                self.view_state.heard[topic] = time.monotonic()
            except MessageRefusedError as refused:
                self.view_state.dropped[f"{name}: {refused.reason}"] += 1
            except Exception as error:  # a view must not die of a message
                self.view_state.dropped[f"{name}: {type(error).__name__}"] += 1

    def _draw(self, now: float) -> None:
        view_state, page = self.view_state, self.page
        if now < self._next_picture:
            return
        # What nobody looks at is kept up to date for whoever comes, but not smooth.
        self._next_picture = now + (0.0 if self.server.viser.get_clients() else _UNSEEN)
        with self.server.viser.atomic():
            if view_state.q is not None:
                page.pose(view_state.q)
            if now < self._next_panel:
                return
            self._next_panel = now + _PANEL
            for namespace, draw in zip(DRAWN, (page.scene.obstacles, page.scene.way, page.scene.swept), strict=True):
                if namespace in view_state.changed:
                    draw(view_state.drawn(namespace))
            if left_out := page.scene.left_out:
                view_state.dropped["obstacle: too many triangles"] = left_out
            bounds = view_state.bounds_now
            if bounds is not None and bounds is not self._drawn_box:
                self._drawn_box = bounds
                shapes = self._shapes(bounds)
                page.payload_mass = None if shapes is None else shapes.mass
                page.scene.payload(shapes)
            if now >= self._next_look:
                self._next_look = now + _LOOK
                self._look_around()
            page.show(view_state.snapshot(self._missing, self._simulated))

    def _shapes(self, bounds: BoundsView) -> PayloadShapes | None:
        try:
            return payload_shapes(self._model, bounds.lower, bounds.nominal, bounds.upper)
        # Numbers that are finite, and beyond all measure.
        except (SafeSysIdError, ArithmeticError, np.linalg.LinAlgError) as error:
            self.view_state.dropped[f"payload: {type(error).__name__}"] += 1
            return None

    def _look_around(self) -> None:
        """Who is there, and what is not."""
        # Simulated arms in namespaces have each a clock of its own.
        self._simulated = any(self.node.count_publishers(clock) for clock in ("/clock", "clock"))
        missing = []
        for topic in ("joint_states", "bounds_active"):
            full = self.node.resolve_topic_name(topic)
            if not self.node.count_publishers(full):
                missing.append(f"nobody publishes {full} in {self._where}")
            elif topic not in self.view_state.heard:
                missing.append(f"nothing comes on {full} in {self._where}, though somebody publishes it")
            elif topic == "joint_states" and self.view_state.silent(topic):
                missing.append(f"nothing comes on {full} any more: the arm is drawn where it was last")
        self._missing = tuple(missing)
        if self._results is not None and self.view_state.verdict is None:
            self.view_state.verdict = read_verdict(self._results)

    def close(self) -> None:
        """Browsers see that it is over."""
        self.server.close()
        self.node.destroy_node()


class _SignalAtStart(BaseException):
    """A signal while the node starts."""


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``viewer_node``: until SIGINT or SIGTERM."""
    stopping: list[int] = []
    looping = False

    def stop(number: int, frame: Any) -> None:
        stopping.append(number)
        if not looping:
            raise _SignalAtStart

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    viewer, status = None, 0
    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
        viewer = ViewerNode()
        looping = True
        print(f"READY viewer\nthe view is at {viewer.server.address}", flush=True)
        while not stopping:
            viewer.spin_once()
    except SafeSysIdError as error:
        print(f"viewer: {error}", file=sys.stderr, flush=True)
        status = 2
    except _SignalAtStart:
        pass
    finally:
        looping = True
        if viewer is not None:
            viewer.close()
        with suppress(Exception):
            rclpy.shutdown(uninstall_handlers=False)  # it has none; to look for them, SIGINT is deadly for a moment
    return status


if __name__ == "__main__":
    sys.exit(main())
