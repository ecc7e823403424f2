"""Service calls for the viewer's buttons: requested from any thread, sent by the node's own, each answered once."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence

from rclpy.client import Client
from rclpy.node import Node
from std_srvs.srv import Trigger

__all__ = ["ServiceCalls"]

Answer = Callable[[bool, str], None]
#: s; planning may take long, everything else answers at once.
_PATIENCE = 20.0
_MOST = 16


class ServiceCalls:
    """Trigger services by relative name; no others can be called."""

    def __init__(self, node: Node, services: Sequence[str]) -> None:
        """Look for them.

        Args:
            node: that calls; its subscriptions are read elsewhere, so no executor may spin it.
            services: relative names.
        """
        self._clients: dict[str, Client] = {name: node.create_client(Trigger, name) for name in services}
        self._calls: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()
        self._waiting: dict[tuple[str, int], tuple[Answer, float]] = {}

    def ask(self, service: str, answer: Answer) -> None:
        """Call a service soon; from any thread. ``answer``: gets success and message, once, in the node's thread."""
        self._calls.put((service, answer))

    def work(self) -> None:
        """Send what was asked, hand on what was answered; in the node's thread."""
        while not self._calls.empty():
            self._send(*self._calls.get())
        now = time.monotonic()
        for name, client in self._clients.items():
            if any(key[0] == name for key in self._waiting):
                self._receive(name, client)
        for key in [key for key, (_, end) in self._waiting.items() if now > end]:
            answer, _ = self._waiting.pop(key)
            answer(False, f"{key[0]} did not answer within {_PATIENCE:g} s; it may still do it")

    def _send(self, name: str, answer: Answer) -> None:
        client = self._clients.get(name)
        if client is None:
            answer(False, f"{name}: expected one of {', '.join(self._clients)}")
        elif not client.service_is_ready():
            answer(False, f"nobody offers {client.srv_name}")
        elif sum(waits == name for waits, _ in self._waiting) >= _MOST:  # of this one: others never bar a stop
            answer(False, f"{_MOST} calls of {client.srv_name} wait for their answers already")
        else:
            with client.handle:
                number = client.handle.send_request(Trigger.Request())
            self._waiting[name, number] = answer, time.monotonic() + _PATIENCE

    def _receive(self, name: str, client: Client) -> None:
        while True:
            with client.handle:
                header, response = client.handle.take_response(Trigger.Response)
            if header is None:
                return
            found = self._waiting.pop((name, header.request_id.sequence_number), None)
            if found is not None:
                found[0](bool(response.success), str(response.message))
