"""Size and rate limits of incoming messages and requests, enforced before they are decoded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rclpy.service import Service
from rclpy.subscription import Subscription

from safe_sysid.input_limits import TokenBucket
from safe_sysid.nodes.common.messages.contents import MessageRefusedError, printable
from safe_sysid.nodes.common.messages.limits import (
    OTHER_SERVICES,
    OWN_SERVICES,
    PAUSE_S,
    TOPICS,
    MessageFilter,
    limit_of_service,
)

__all__ = ["InputRateLimiter", "decode"]

#: Source, reason and text of what is not used.
Refuse = Callable[[str, str, str], None]


def decode(data: bytes, message_type: type) -> Any:
    """The message object. Raises MessageRefusedError: it is not readable as that."""
    try:
        return deserialize_message(data, message_type)
    except Exception as error:
        text = f"{len(data)} bytes: expected a {message_type.__name__} ({type(error).__name__})"
        raise MessageRefusedError("not readable", text) from None


@dataclass
class _LimitedInput:
    """One limited subscription."""

    message_type: type
    topic: str
    receive: Callable[[bytes], bool]
    qos: QoSProfile | int
    message_filter: MessageFilter
    subscription: Subscription | None = None
    opens_again: float = 0.0


class InputRateLimiter:
    """Limits all subscriptions and services of a node.

    Attributes:
        receivers: what is called with each message of a topic, serialised.
    """

    def __init__(self, node: Node, refuse: Refuse) -> None:
        """``refuse`` counts and tells."""
        self._node, self._refuse = node, refuse
        self._inputs: list[_LimitedInput] = []
        self.filters: dict[str, MessageFilter] = {}
        self.receivers: dict[str, Callable[[bytes], bool]] = {}
        self._limited: set[Service] = set()

    # -- topics -------------------------------------------------------------------------------------------------

    def limited(self, topic: str, callback: Callable[[bytes], Any], lockstep: bool) -> Callable[[bytes], bool]:
        """Put a filter before the callback; returns whether a message may pass.

        Args:
            topic: relative name, as in the table of limits.
            callback: gets what may pass, serialised; must not raise.
        """
        message_filter = self.filters[topic] = MessageFilter(TOPICS[topic], lockstep)

        def receive(data: bytes) -> bool:
            try:
                message_filter.admit(data)
            except MessageRefusedError as refused:
                self._refuse(topic, refused.reason, str(refused))
                return False
            callback(data)
            return True

        self.receivers[topic] = receive
        return receive

    def open(
        self, message_type: type, topic: str, callback: Callable[[bytes], None], qos: QoSProfile | int, lockstep: bool
    ) -> None:
        """Subscribe.

        Args:
            topic: relative name, as in the table of limits.
            callback: gets what may pass, serialised; must not raise.
        """
        receive = self.limited(topic, callback, lockstep)
        limited = _LimitedInput(message_type, topic, receive, qos, self.filters[topic])
        self._inputs.append(limited)
        self._subscribe(limited)

    def _subscribe(self, limited: _LimitedInput) -> None:
        limited.subscription = self._node.create_subscription(
            limited.message_type, limited.topic, limited.receive, limited.qos, raw=True
        )

    def tick(self) -> None:
        """Close flooded topics, and reopen them after a pause. Called by a timer, never by a message's callback."""
        now = time.monotonic()
        for limited in self._inputs:
            if limited.subscription is None:
                if now >= limited.opens_again:
                    limited.message_filter.forget()
                    self._subscribe(limited)
            elif limited.message_filter.flooded:
                self._node.destroy_subscription(limited.subscription)
                limited.subscription, limited.opens_again = None, now + PAUSE_S
                count = limited.message_filter.too_often + limited.message_filter.too_long
                text = f"not listened to for {PAUSE_S:g} s: {count} messages too often or too long so far"
                self._refuse(limited.topic, "flooded", text)

    def forget(self) -> None:
        """Forget all subscriptions; the node's cleanup destroys them."""
        self._inputs.clear()
        self.filters.clear()
        self.receivers.clear()

    # -- services -----------------------------------------------------------------------------------------------

    def service_bucket(self, name: str) -> Callable[[], tuple[str, bool]]:
        """For a service of ours: called per request, tells why it is refused ("" if not) and whether to tell of it.

        ``name``: of the service, without the node's.
        """
        limit = limit_of_service(name)
        rate = limit or OWN_SERVICES
        bucket = TokenBucket(rate.per_second, rate.burst)

        def ask() -> tuple[str, bool]:
            if bucket.take():
                return "", True
            if limit is None:
                return "", False
            text = (
                f"too often: more than {rate.burst} at once or {rate.per_second:g} a second: "
                f"expected less, again in {bucket.wait():.2f} s"
            )
            self._refuse(f"~/{name}", "too often", text)
            return text, False

        return ask

    def limit_inherited(self) -> None:
        """All services that rclpy has made by now, for parameters and lifecycle."""
        for service in set(self._node.services) - self._limited:
            self._limited.add(service)
            self._limit(service)

    def _limit(self, service: Service) -> None:
        """Too often, or tripped over by rclpy, it is answered emptily: an exception would end the executor."""
        bucket, answer = TokenBucket(OTHER_SERVICES.per_second, OTHER_SERVICES.burst), service.callback
        name = service.srv_name.rpartition("/")[2]

        def limited(request: Any, response: Any) -> Any:
            if not bucket.take():
                rate = f"more than {OTHER_SERVICES.burst} at once or {OTHER_SERVICES.per_second:g} a second"
                self._refuse(f"~/{name}", "too often", f"{rate}: expected less")
                return response
            try:
                return answer(request, response)
            except Exception as error:
                self._refuse(f"~/{name}", type(error).__name__, printable(f"{error}: expected a sound request"))
                return response

        service.callback = limited
