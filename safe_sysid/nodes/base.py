"""What the four nodes share: callbacks that cannot kill a node, counted refusals, diagnostics, logs at the end."""

from __future__ import annotations

import gc
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.executors import Executor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_srvs.srv import Trigger

from safe_sysid.nodes.messages import RefusedError
from safe_sysid.nodes.parameters import CommonOptions

__all__ = ["ERROR", "HISTORY", "LATCHED", "OK", "STREAM", "WARN", "BaseNode", "measurement_qos"]

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
LATCHED = QoSProfile(
    depth=20, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
STREAM = QoSProfile(depth=500, reliability=ReliabilityPolicy.RELIABLE)
#: A stream that a node which starts later sees from its beginning: what lock-step needs.
HISTORY = QoSProfile(
    depth=500, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
_PERIOD, _RECENT = 0.5, 5.0


def measurement_qos(lockstep: bool, depth: int = 5, history: bool = False) -> QoSProfile:
    """Of ``joint_states``: sensor data; in lock-step nothing is lost, with ``history`` not even for latecomers."""
    if not lockstep:
        return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)
    durability = DurabilityPolicy.TRANSIENT_LOCAL if history else DurabilityPolicy.VOLATILE
    return QoSProfile(depth=4000, reliability=ReliabilityPolicy.RELIABLE, durability=durability)


class BaseNode(Node):
    """Parameters, robot, guarded callbacks and diagnostics. Subclasses build their core, then their topics."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.options = CommonOptions.of(self)
        self.model = self.options.load_model()
        self.refusals: Counter[str] = Counter()
        self._last_refusal, self._last_refusal_time = "", -1e9
        self._logged: dict[str, float] = {}
        self._changed, self._published = False, 0.0
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.every(0.1, self._tick_diagnostics)

    # -- for subclasses -----------------------------------------------------------------------------------------

    def status(self) -> tuple[bytes, str, dict[str, Any]]:
        """Level, one line, and values for /diagnostics."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop work and write logs; called once, whatever happened before."""

    def spin_some(self, executor: Executor) -> None:
        """Handle what has come, for at most 0.1 s; called again and again."""
        executor.spin_once(timeout_sec=0.1)

    # -- callbacks ----------------------------------------------------------------------------------------------

    def listen(
        self, message_type: type, topic: str, callback: Callable[[Any], None], qos: QoSProfile | int
    ) -> None:
        """Subscribe; a message that ``callback`` refuses, or trips over, is counted and told."""
        self.create_subscription(message_type, topic, self.guarded(topic, callback), qos)

    def guarded(self, source: str, callback: Callable[..., Any]) -> Callable[..., Any]:
        """The callback, never raising."""

        def call(*args: Any) -> Any:
            try:
                return callback(*args)
            except RefusedError as refused:
                self.refuse(source, refused.reason, str(refused))
            except Exception as error:  # a node must not die of a message
                self.refuse(source, type(error).__name__, traceback.format_exc(limit=-4))
            return None

        return call

    def every(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call on the wall clock, whatever simulated time does."""
        self.create_timer(seconds, self.guarded("timer", callback), clock=self._steady)

    def serve(self, name: str, action: Callable[[], str | None]) -> None:
        """Offer ``~/name``; ``action`` returns why it was refused, None if done."""

        def handle(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            try:
                reason = action()
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            response.success, response.message = reason is None, reason or f"{name}: done"
            self.say(f"~/{name}: {reason or 'done'}")
            return response

        self.create_service(Trigger, f"~/{name}", handle)

    def serve_later(self, name: str, action: Callable[[Callable[[bool, str], None]], None]) -> None:
        """Offer ``~/name``, answered when ``action`` calls what it is given with success and message, once."""

        def call(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            return response

        service = self.create_service(Trigger, f"~/{name}", call)
        send = service.send_response

        # The executor sends what a callback returns, at once, and knows no other way: so the sending is put off.
        def hold(response: Trigger.Response, header: Any) -> None:
            def answer(success: bool, message: str) -> None:
                response.success, response.message = success, message
                self.say(f"~/{name}: {message}")
                send(response, header)

            try:
                action(answer)
            except Exception as error:
                answer(False, f"{type(error).__name__}: {error}")

        service.send_response = hold

    # -- telling ------------------------------------------------------------------------------------------------

    def refuse(self, source: str, reason: str, text: str) -> None:
        """Count something that is not used; tell the log (each kind once a second at most) and /diagnostics."""
        key, now = f"{source}: {reason}", time.monotonic()
        self.refusals[key] += 1
        self._last_refusal, self._last_refusal_time, self._changed = f"{source}: {text}", now, True
        if now - self._logged.get(key, -1e9) >= 1.0:
            self._logged[key] = now
            self.get_logger().warning(f"{source}: {text} ({self.refusals[key]} so far)")

    def say(self, text: str) -> None:
        """One line for people; /diagnostics follow."""
        self.get_logger().info(text)
        self._changed = True

    def _tick_diagnostics(self) -> None:
        now = time.monotonic()
        if not self._changed and now - self._published < _PERIOD:
            return
        self._changed, self._published = False, now
        level, text, values = self.status()
        if self.refusals:
            values |= {f"refused {key}": count for key, count in sorted(self.refusals.items())}
            values["last refusal"] = self._last_refusal
            if now - self._last_refusal_time < _RECENT:
                level = max(level, WARN)
        status = DiagnosticStatus(level=level, name=f"{self.get_name()}: safe_sysid", message=text)
        status.hardware_id = self.model.name
        status.values = [KeyValue(key=str(key), value=str(value)) for key, value in values.items()]
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)
        gc.collect(1)  # collection is off in the loop (spin.py); here it costs microseconds
