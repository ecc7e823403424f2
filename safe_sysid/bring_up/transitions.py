"""Lifecycle transitions: leads managed nodes from state to state by their services, and reports refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

__all__ = ["NO_REASON", "Transitions"]

_IDS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "cleanup": Transition.TRANSITION_CLEANUP,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
}
#: Where each leads from and to.
_WAYS = {
    "configure": (State.PRIMARY_STATE_UNCONFIGURED, State.PRIMARY_STATE_INACTIVE),
    "cleanup": (State.PRIMARY_STATE_INACTIVE, State.PRIMARY_STATE_UNCONFIGURED),
    "activate": (State.PRIMARY_STATE_INACTIVE, State.PRIMARY_STATE_ACTIVE),
    "deactivate": (State.PRIMARY_STATE_ACTIVE, State.PRIMARY_STATE_INACTIVE),
}
_PRIMARY = {state for way in _WAYS.values() for state in way}
NO_REASON = "the reason did not arrive, see the node's log"
#: After so long without an answer the node is asked for its state, and again, s.
_DOUBT = 3.0
_NEWEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)


@dataclass
class _TransitionRequest:
    """One transition, and what is known of it."""

    transition: str
    since: float  #: time of the last question, s
    answers: list[Any] = field(default_factory=list)
    state: Any = None  #: answer to the last question for the node's state; None: taken in
    stayed: int = 0  #: how often in a row that was a state to stay in, and not the goal
    outcome: bool | None = None
    refused: float = 0.0  #: time of the first answer that said so, s


class Transitions:
    """Asks and remembers; whoever owns the node spins it.

    The middleware loses a request or its answer where the two processes have not yet discovered each other wholly. So
    where no answer comes, the node is asked for its state: it may be there already, or may have heard nothing.
    """

    def __init__(
        self, node: Node, names: tuple[str, ...], namespace: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Find the services.

        ``namespace``: of theirs, with its slash; "" for none; ``clock``: seconds, never going back.
        """
        self._clock = clock
        self._changes = {name: node.create_client(ChangeState, f"{namespace}/{name}/change_state") for name in names}
        self._states = {name: node.create_client(GetState, f"{namespace}/{name}/get_state") for name in names}
        self.reasons = dict.fromkeys(names, "")
        self._requests: dict[str, _TransitionRequest] = {}
        for name in names:
            node.create_subscription(String, f"{namespace}/{name}/transition_reason", self._keeper(name), _NEWEST)

    def _keeper(self, name: str) -> Callable[[String], None]:
        def keep(message: String) -> None:
            pending = self._requests.get(name)
            done = message.data.partition(": done")
            if pending is None or not done[1] or done[0] == pending.transition:  # else: news of the one before
                self.reasons[name] = message.data

        return keep

    def ask(self, name: str, transition: str) -> None:
        """Ask for a transition, as soon as the node can take one.

        ``transition``: ``configure``, ``activate``, ``deactivate`` or ``cleanup``.
        """
        self.reasons[name] = ""
        self._requests[name] = _TransitionRequest(transition, self._clock())

    def answer(self, name: str) -> bool | None:
        """Whether the last transition was done; None as long as that is open."""
        pending = self._requests[name]
        if pending.outcome is None and not pending.answers:
            if self._changes[name].service_is_ready():
                self._send(name, pending)
        elif pending.outcome is None:
            pending.outcome = self._outcome(name, pending)
        return pending.outcome

    def _outcome(self, name: str, pending: _TransitionRequest) -> bool | None:
        done = [answer.result().success for answer in pending.answers if answer.done()]
        if any(done):
            return True
        if done and len(pending.answers) == 1:
            return self._refused(name, pending)
        return self._doubt(name, pending)  # asked twice: refused may mean that it is there already

    def _refused(self, name: str, pending: _TransitionRequest) -> bool | None:
        """The reason comes by another way, perhaps a little later, and may be lost like anything else."""
        pending.refused = pending.refused or self._clock()
        if not self.reasons[name] and self._clock() - pending.refused > _DOUBT:
            self.reasons[name] = f"{pending.transition} refused: {NO_REASON}"
        return False if self.reasons[name] else None

    def _send(self, name: str, pending: _TransitionRequest) -> None:
        request = ChangeState.Request(transition=Transition(id=_IDS[pending.transition]))
        pending.answers.append(self._changes[name].call_async(request))
        pending.since, pending.stayed, pending.state = self._clock(), 0, None

    def _doubt(self, name: str, pending: _TransitionRequest) -> bool | None:
        """No answer yet: is the node there, or has it not heard?

        A node in the middle of a transition answers nothing, or that it is between states; one that says twice that it
        stays somewhere else than at the goal has nothing else to do.
        """
        begin, goal = _WAYS[pending.transition]
        if pending.state is not None and pending.state.done():
            state, pending.state = pending.state.result().current_state.id, None
            if state == goal:
                return True
            pending.stayed = pending.stayed + 1 if state in _PRIMARY else 0
            if pending.stayed >= 2:
                if self.reasons[name]:
                    return False  # refused, or failed; the answer was lost
                if state == begin:
                    self._send(name, pending)
        elif self._clock() - pending.since > _DOUBT and self._states[name].service_is_ready():
            pending.state, pending.since = self._states[name].call_async(GetState.Request()), self._clock()
        return None
