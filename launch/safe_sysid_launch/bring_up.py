"""From started processes to working nodes: lifecycle transitions in order, every refusal with its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import OpaqueCoroutine
from launch.events import IncludeLaunchDescription, Shutdown
from launch.logging import get_logger
from launch_ros.ros_adapters import get_ros_node
from lifecycle_msgs.msg import TransitionEvent

from safe_sysid.bring_up.transitions import Transitions

__all__ = ["bring_up"]

_POLL = 0.05  # s
_AGAIN = 1.0  # s between two tries of a transition that was refused
_SILENCE = 30.0  # s
_PATIENCE = "after an installation code is compiled once, which takes minutes"


class _Guide:
    """Leads the nodes of one arm from state to state; launch's own ROS node is spun by launch."""

    def __init__(self, transitions: Transitions, namespace: str) -> None:
        self._transitions, self._namespace = transitions, namespace
        self._told: dict[str, str] = {}

    def reason(self, name: str) -> str:
        """Why a node did not go."""
        return self._transitions.reasons[name] or "no reason given, see its log"

    async def lead(self, name: str, transition: str) -> bool:
        """Ask for a transition and wait for the answer, however long it takes; the node's log has the reasons too."""
        log, loop = get_logger(f"{self._namespace}/{name}".lstrip("/")), asyncio.get_running_loop()
        self._transitions.ask(name, transition)
        told = began = loop.time()
        while (done := self._transitions.answer(name)) is None:
            await asyncio.sleep(_POLL)
            if loop.time() - told >= _SILENCE:
                told = loop.time()
                log.info(f"has been asked to {transition} for {told - began:.0f} s; {_PATIENCE}")
        if not done and self.reason(name) != self._told.get(name):  # once, however often it is asked again
            self._told[name] = self.reason(name)
            log.warning(f"does not {transition}: {self.reason(name)}")
        return done

    async def insist(self, name: str, transition: str, patience: float) -> bool:
        """Ask again, once a second, for as long as ``patience`` (s) lasts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while not await self.lead(name, transition):
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(_AGAIN)
        return True


def _keeper(states: dict[str, str], name: str) -> Callable[[TransitionEvent], None]:
    def keep(event: TransitionEvent) -> None:
        states[name] = event.goal_state.label

    return keep


def bring_up(
    names: Sequence[str],
    namespace: str,
    *,
    activate: bool,
    patience: float,
    states: dict[str, str],
    then: Sequence[LaunchDescriptionEntity] = (),
) -> OpaqueCoroutine:
    """Configure nodes together, then activate them one after the other.

    A node that cannot be configured ends the launch: its settings are wrong. One that does not become active stays
    inactive, for there ``ros2 lifecycle set`` can try again.

    Args:
        names: in the order of their activation.
        namespace: of theirs, with its slash; "" for none.
        activate: whether to go beyond ``inactive``.
        patience: for how long a refused activation is tried again, s: measurements have to come first.
        states: gets the state of each node, by name, whoever leads it there.
        then: started when all are configured, before any is activated.
    """

    async def run(context: LaunchContext, *_: Any) -> None:
        log, node = get_logger("bring_up"), get_ros_node(context)
        for name in names:
            topic = f"{namespace}/{name}/transition_event"
            node.create_subscription(TransitionEvent, topic, _keeper(states, name), 10)
        guide = _Guide(Transitions(node, tuple(names), namespace), namespace)
        done = await asyncio.gather(*(guide.lead(name, "configure") for name in names))
        if not all(done):
            failed = [name for name, good in zip(names, done, strict=True) if not good]
            reason = "; ".join(f"{namespace}/{name}: {guide.reason(name)}" for name in failed)
            await context.emit_event(Shutdown(reason=reason))
            return
        if then:
            await context.emit_event(IncludeLaunchDescription(LaunchDescription(list(then))))
        commands = "; ".join(f"ros2 lifecycle set {namespace}/{name} activate" for name in names)
        if not activate:
            log.info(f"inactive, as asked; {commands}")
            return
        for name in names:
            if not await guide.insist(name, "activate", patience):
                log.error(f"{namespace}/{name} stays inactive; when the reason is gone: {commands}")
                return
        log.info(f"active: {', '.join(f'{namespace}/{name}' for name in names)}")

    return OpaqueCoroutine(coroutine=run)
