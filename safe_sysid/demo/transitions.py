"""Takes managed nodes from one state to the next by their lifecycle services, and knows why one does not go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

__all__ = ["Transitions"]

_IDS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "cleanup": Transition.TRANSITION_CLEANUP,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
}
_NEWEST = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)


class Transitions:
    """Asks and remembers; whoever owns the node spins it."""

    def __init__(self, node: Node, names: tuple[str, ...], namespace: str = "") -> None:
        """Find the services.

        Args:
            node: to ask with.
            names: of managed nodes.
            namespace: of theirs, with its slash; "" for none.
        """
        self._clients = {
            name: node.create_client(ChangeState, f"{namespace}/{name}/change_state") for name in names
        }
        self.reasons = dict.fromkeys(names, "")
        self._asked: dict[str, tuple[str, Any]] = {}
        for name in names:
            node.create_subscription(
                String, f"{namespace}/{name}/transition_reason", self._keeper(name), _NEWEST
            )

    def _keeper(self, name: str) -> Callable[[String], None]:
        def keep(message: String) -> None:
            self.reasons[name] = message.data

        return keep

    def ask(self, name: str, transition: str) -> None:
        """Ask for a transition, as soon as the node can be asked.

        Args:
            name: of the node.
            transition: ``configure``, ``activate``, ``deactivate`` or ``cleanup``.
        """
        self.reasons[name] = ""
        self._asked[name] = (transition, None)

    def answer(self, name: str) -> bool | None:
        """Whether the last transition was done; None as long as that is open.

        Args:
            name: of the node.
        """
        transition, future = self._asked[name]
        client = self._clients[name]
        if future is None:
            if client.service_is_ready():
                request = ChangeState.Request(transition=Transition(id=_IDS[transition]))
                self._asked[name] = (transition, client.call_async(request))
            return None
        if not future.done():
            return None
        if future.result().success:
            return True
        # The reason comes by another way, perhaps a little later.
        return False if self.reasons[name] else None
