"""The 1 kHz loop: one thread with its own wait set, for one topic and a deadline (docs/understand/realtime.md).

All else of the node (services, parameters, plans, diagnostics) is handled by the executor in the main thread. Both take
the node's lock, so that code of a node needs no thought about threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

# Private, because rclpy (7.1.6) has no public way to wait for one subscription: only its executors wait, and they serve
# all of a node in turn, so that diagnostics delay a tick by up to 3 ms (docs/understand/realtime.md). Of the private
# module three classes are used, as `rclpy.wait_for_message` uses them.
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.type_support import check_is_valid_msg_type

from safe_sysid.nodes.common.realtime.scheduling import wake_on_time

__all__ = ["MessageLoop"]

_IDLE = 100_000_000  # ns; without a deadline: how often to look whether to stop
_CHECK = 500  # turns
#: After a message that was one too many, s: others wait for this thread's locks, an emergency stop among them.
_BREATH = 1e-3


class MessageLoop:
    """Calls back in its thread when a message has come, and with the lock held when the deadline has."""

    def __init__(
        self,
        node: Node,
        lock: AbstractContextManager[Any],
        message_type: type,
        topic: str,
        qos: QoSProfile,
        on_message: Callable[[bytes], bool],
        deadline: Callable[[], int] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Subscribe; :meth:`start` begins.

        Args:
            node: that the subscription belongs to; its executor never sees it.
            lock: held while ``deadline`` runs.
            topic: name, relative to the node's namespace.
            on_message: gets every message serialised, see :mod:`~.messages.serialised`, and takes the lock if it needs
                it; returns False if there were too many; must not raise.
            deadline: does what is due and returns the time to the next call, ns; must not raise.
            check: called now and then, without the lock; must not raise.
        """
        check_is_valid_msg_type(message_type)  # loads its type support
        with node.handle:
            self._subscription = _rclpy.Subscription(node.handle, message_type, topic, qos.get_c_qos_profile())
        self._type, self._lock = message_type, lock
        self._on_message, self._deadline, self._check = on_message, deadline, check
        context = node.context.handle
        self._wake = _rclpy.GuardCondition(context)
        self._set = _rclpy.WaitSet(1, 1, 0, 0, 0, 0, context)
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="safe_sysid loop", daemon=True)

    @property
    def thread_id(self) -> int | None:
        """Of the operating system; None before the start."""
        return self._thread.native_id

    @property
    def ident(self) -> int | None:
        """Of the thread, as :func:`threading.get_ident` returns it in there; None before the start."""
        return self._thread.ident

    def start(self) -> None:
        """Begin; the thread lives until :meth:`stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the subscription; may be called again, and without a start."""
        if self._stopping:
            return
        self._stopping = True
        if self._thread.ident is not None:
            self._wake.trigger_guard_condition()
            self._thread.join()
        for entity in (self._set, self._subscription, self._wake):
            entity.destroy_when_not_in_use()

    def raise_error(self) -> None:
        """What has ended the thread, if anything has, goes on in the caller's."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._spin()
        except BaseException as error:
            self._error = error

    def _spin(self) -> None:
        wake_on_time()
        waits, subscription, take = self._set, self._subscription, self._subscription.take_message
        kind, lock, on_message, deadline = self._type, self._lock, self._on_message, self._deadline
        pause, turns = _IDLE, 0
        with waits, subscription, self._wake:
            while not self._stopping:
                turns += 1
                if turns % _CHECK == 0 and self._check is not None:
                    self._check()
                if deadline is not None:
                    with lock:
                        pause = deadline()
                waits.clear_entities()
                waits.add_subscription(subscription)
                waits.add_guard_condition(self._wake)
                waits.wait(max(pause, 0))
                taken = take(kind, True) if waits.is_ready("subscription", 0) else None
                if taken is not None and not on_message(taken[0]):
                    time.sleep(_BREATH)
