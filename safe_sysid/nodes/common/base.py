"""Base class of all nodes: guarded callbacks, counted refusals, diagnostics, and logs at the end."""

from __future__ import annotations

import gc
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.executors import Executor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_srvs.srv import Trigger

from safe_sysid.nodes.common.exclusive_publishers import ExclusivePublishers
from safe_sysid.nodes.common.messages.contents import MessageRefusedError, printable
from safe_sysid.nodes.common.messages.rate_limiting import InputRateLimiter, decode
from safe_sysid.nodes.common.output import LogPauses
from safe_sysid.nodes.common.parameters import CommonOptions, NodeParameters, empty_lists_refused
from safe_sysid.nodes.common.realtime.loop import MessageLoop
from safe_sysid.nodes.common.realtime.scheduling import RealtimeOptions, Scheduling
from safe_sysid.robot.model import RobotModel

__all__ = [
    "COMMAND",
    "ERROR",
    "JOURNAL",
    "LATCHED",
    "LATCHED_INPUT",
    "OK",
    "STREAM",
    "WARN",
    "BaseNode",
    "measurement_qos",
]

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
#: Whoever comes later gets the newest message, and none before it.
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
#: The same, heard: what comes faster than it is read waits.
LATCHED_INPUT = QoSProfile(
    depth=20, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
#: Real time: only the newest command counts.
COMMAND = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
STREAM = QoSProfile(depth=20_000, reliability=ReliabilityPolicy.RELIABLE)
#: What happened, entry by entry, also for a recorder that starts some minutes late: a topic of its own.
JOURNAL = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_RECENT = 5.0
#: Of the timer that does what needs no hurry, s; and how many of its turns pass between two looks at the graph.
_TURN, _LOOK = 0.1, 5


def measurement_qos(lockstep: bool, depth: int = 5, history: bool = False) -> QoSProfile:
    """QoS of ``joint_states``: sensor data; reliable in lock-step; with ``history`` late subscribers get everything."""
    if not lockstep:
        return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)
    durability = DurabilityPolicy.TRANSIENT_LOCAL if history else DurabilityPolicy.VOLATILE
    return QoSProfile(depth=20_000, reliability=ReliabilityPolicy.RELIABLE, durability=durability)


class BaseNode(Node):
    """Parameters, robot, guarded callbacks and diagnostics. Subclasses build their core, then their topics.

    Every callback holds ``lock`` while it runs, in whichever thread that is: subclasses need no locks of their own.

    Attributes:
        parameters: that the schema declares for this kind of node.
        simulated: whether stamps are of simulated time (``use_sim_time``).
        exclusive_publishers: watches for others that publish what only one may.
    """

    has_loop = False  #: whether the node drives something at 1 kHz when it runs in real time

    #: options, values: what they said when the node was started, or configured
    options: CommonOptions
    values: Mapping[str, Any]
    model: RobotModel

    def __init__(self, name: str) -> None:
        with empty_lists_refused(name):
            super().__init__(name, automatically_declare_parameters_from_overrides=True)
        self.parameters = NodeParameters(self, name)
        self.simulated = bool(self.get_parameter("use_sim_time").value)
        self.lock = threading.RLock()
        self.loop: MessageLoop | None = None
        self.scheduling = Scheduling(RealtimeOptions(), self.get_logger().warning)
        self._untold: deque[tuple[bytes, str]] = deque(maxlen=1000)
        self.refusals: Counter[str] = Counter()
        self._last_refusal, self._last_refusal_time = "", -1e9
        self._log_pauses = LogPauses()
        self.rate_limiter, self.exclusive_publishers, self._turns = (
            InputRateLimiter(self, self.refuse),
            ExclusivePublishers(self),
            0,
        )
        self.rate_limiter.limit_inherited()
        self._changed, self._published = False, 0.0
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        # Not guarded: writing it all down takes longer than a tick, so the lock is held only where it must be.
        tick = self.guarded("timer", self._turn, locked=False)
        self.create_timer(_TURN, tick, clock=self._steady)
        self._prepare()

    def _prepare(self) -> None:
        """Options and model: at once, or (:mod:`safe_sysid.nodes.common.lifecycle`) when asked to."""
        self._load()

    def _load(self) -> None:
        """Parameters, the robot, and what to ask the system's scheduler for."""
        self.options, self.values = CommonOptions.of(self.parameters), self.parameters.values()
        self.model = self.options.load_model()
        self.scheduling = Scheduling(self.options.realtime, self.get_logger().warning)

    # -- for subclasses -----------------------------------------------------------------------------------------

    def status(self) -> tuple[bytes, str, dict[str, Any]]:
        """Level, one line, and values for /diagnostics."""
        raise NotImplementedError

    def overview(self) -> tuple[bytes, str, dict[str, Any]]:
        """Level, line and values for /diagnostics in any state of the node."""
        return self.status()

    def may_end(self) -> bool:
        """Whether the process may end now. Called repeatedly after a request to end; must be quick, must not raise."""
        return True

    def close(self) -> None:
        """Stop work and write logs; called once, whatever happened before."""

    def spin_some(self, executor: Executor) -> None:
        """Handle waiting callbacks for at most 0.1 s; called repeatedly."""
        executor.spin_once(timeout_sec=0.1)

    def drive(
        self,
        message_type: type,
        topic: str,
        callback: Callable[[bytes], None],
        qos: QoSProfile,
        deadline: Callable[[], int] | None = None,
    ) -> None:
        """Real time: a thread of its own for one topic, as bytes, and a deadline (ns from now); runs from READY on."""
        action = self.rate_limiter.limited(topic, self.guarded(topic, callback), self.options.lockstep)
        self.loop = MessageLoop(self, self.lock, message_type, topic, qos, action, deadline, self.scheduling.check)

    @property
    def full_name(self) -> str:
        """With the namespace, so that two arms can be told apart: ``left/controller``."""
        return self.get_fully_qualified_name().lstrip("/")

    def monotonic(self) -> float:
        """Seconds on a clock that nobody sets."""
        return time.monotonic()

    def now_ns(self) -> int:
        """Now, on the clock of stamps, ns: the wall clock, or /clock with ``use_sim_time`` (0 before it is heard)."""
        return self.get_clock().now().nanoseconds if self.simulated else time.time_ns()

    def loop_thread(self) -> int | None:
        """Native id of the thread whose scheduling matters; None: there is none."""
        return None if self.loop is None else self.loop.thread_id

    # -- callbacks ----------------------------------------------------------------------------------------------

    def listen(self, message_type: type, topic: str, callback: Callable[[Any], None], qos: QoSProfile | int) -> None:
        """Subscribe. Refused, too long or too frequent messages are counted and reported, as errors of ``callback``."""
        read = self.guarded(topic, lambda data: callback(decode(data, message_type)))
        self.rate_limiter.open(message_type, topic, read, qos, self.options.lockstep)

    def guarded(self, source: str, callback: Callable[..., Any], locked: bool = True) -> Callable[..., Any]:
        """Wrap a callback so that it never raises; ``locked``: it holds the node's lock."""
        lock = self.lock if locked else nullcontext()

        def call(*args: Any) -> Any:
            try:
                with lock:
                    return callback(*args)
            except MessageRefusedError as refused:
                self.refuse(source, refused.reason, str(refused))
            except Exception as error:  # a node must not die of a message
                lines = traceback.format_exc(limit=-4).splitlines()  # with what was in the message
                self.refuse(source, type(error).__name__, "\n".join(map(printable, lines)))
            return None

        return call

    def every(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` periodically on the wall clock, whatever simulated time does."""
        self.create_timer(seconds, self.guarded("timer", callback), clock=self._steady)

    def serve(self, name: str, action: Callable[[], str | None]) -> None:
        """Offer ``~/name``; ``action`` returns why it was refused, None if done."""
        ask = self.rate_limiter.service_bucket(name)

        def handle(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            too_often, tells = ask()
            if too_often:
                response.success, response.message = False, too_often
                return response
            try:
                with self.lock:
                    reason = action()
            except Exception as error:
                reason = printable(f"{type(error).__name__}: {error}")
            response.success, response.message = reason is None, reason or f"{name}: done"
            if tells:
                self.say(f"~/{name}: {reason or 'done'}")
            return response

        self.create_service(Trigger, f"~/{name}", handle)

    def serve_later(self, name: str, action: Callable[[Callable[[bool, str], None]], None]) -> None:
        """Offer ``~/name``, answered when ``action`` calls what it is given with success and message, once."""
        ask = self.rate_limiter.service_bucket(name)

        def call(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            return response

        service = self.create_service(Trigger, f"~/{name}", call)
        send = service.send_response

        # The executor sends what a callback returns, at once, and knows no other way: so the sending is put off.
        def hold(response: Trigger.Response, header: Any) -> None:
            def answer(success: bool, message: str, tells: bool = True) -> None:
                response.success, response.message = success, message
                if tells:
                    self.say(f"~/{name}: {message}")
                send(response, header)

            too_often, _ = ask()
            if too_often:
                answer(False, too_often, tells=False)
                return
            try:
                with self.lock:
                    action(answer)
            except Exception as error:
                answer(False, printable(f"{type(error).__name__}: {error}"))

        service.send_response = hold

    # -- telling ------------------------------------------------------------------------------------------------

    def refuse(self, source: str, reason: str, text: str) -> None:
        """Count a refused input; report it to /diagnostics and, with growing pauses, to the log."""
        key, now = f"{source}: {reason}", time.monotonic()
        with self.lock:
            self.refusals[key] += 1
        self._last_refusal, self._last_refusal_time, self._changed = f"{source}: {text}", now, True
        if self._log_pauses.is_due(key, now):
            self._tell(WARN, f"{source}: {text} ({self.refusals[key]} so far)")

    def say(self, text: str, level: bytes = OK) -> None:
        """Log one line at ``level``, and update /diagnostics."""
        self._tell(level, text)
        self._changed = True

    def _tell(self, level: bytes, text: str) -> None:
        """Write to the log. A loop's thread writes later, because a line takes as long as a tick."""
        self._untold.append((level, text))
        if self.loop is None or threading.get_ident() != self.loop.ident:
            self.log_remaining()

    def log_remaining(self) -> None:
        """Log what the loop's thread has left to be told."""
        while True:
            try:
                level, text = self._untold.popleft()
            except IndexError:
                return
            logger = self.get_logger()
            # Each on a line of its own: rclpy remembers the level of a place in the code.
            if level == ERROR:
                logger.error(text)
            elif level == WARN:
                logger.warning(text)
            else:
                logger.info(text)

    def _turn(self) -> None:
        """Periodic work that is not urgent."""
        self._turns += 1
        self.rate_limiter.tick()  # without the lock: to make a subscription takes many ticks
        if self._turns % _LOOK == 0:
            self._watch_publishers()
        self._tick_diagnostics()

    def _watch_publishers(self) -> None:
        before = self.exclusive_publishers.serious
        self.exclusive_publishers.tick()
        if self.exclusive_publishers.serious != before:
            self._changed = True
            with self.lock:
                self.publishers_changed()

    def publishers_changed(self) -> None:
        """Called with the lock held when a second publisher has come or gone."""

    def trust(self, topic: str) -> None:
        """Whether messages on a watched topic may be used. In lock-step, where no arm moves, they always may.

        ``topic``: relative name.

        Raises MessageRefusedError: more than one publishes it.
        """
        reason = self.exclusive_publishers.why_not(topic)
        if reason and not self.options.lockstep:
            raise MessageRefusedError("more than one publisher", reason)

    def _tick_diagnostics(self) -> None:
        self.log_remaining()
        self.scheduling.check()
        now = time.monotonic()
        if not self._changed and now - self._published < self.parameters["diagnostics_period_s"]:
            return
        self._changed, self._published = False, now
        with self.lock:
            level, text, values = self.overview()
            refusals = dict(self.refusals)
        values |= {"scheduling": self.scheduling.text}
        if self.scheduling.warnings:
            level, values = (max(level, WARN), values | {"scheduling warns": "; ".join(self.scheduling.warnings)})
        if found := self.exclusive_publishers.values():
            serious = self.exclusive_publishers.serious
            values, text = values | found, "; ".join([*serious, text])
            level = max(level, ERROR if serious else WARN if self.exclusive_publishers.doubtful else OK)
        if refusals:
            values |= {f"refused {key}": count for key, count in sorted(refusals.items())}
            values["last refusal"] = self._last_refusal
            if now - self._last_refusal_time < _RECENT:
                level = max(level, WARN)
        status = DiagnosticStatus(level=level, name=f"{self.full_name}: safe_sysid", message=text)
        status.hardware_id = self.model.name if hasattr(self, "model") else ""
        if hasattr(self, "model") and self.model.drive_note:
            values["drives"] = self.model.drive_note
        status.values = [KeyValue(key=str(key), value=str(value)) for key, value in values.items()]
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)
        gc.collect(1)  # collection is off in the loop (spin.py); here it costs microseconds
