"""From started processes to working nodes: lifecycle transitions in order, every refusal with its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import launch.logging
from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import OpaqueCoroutine
from launch.events import IncludeLaunchDescription, Shutdown
from launch_ros.ros_adapters import get_ros_node
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

__all__ = ["Managed", "bring_up"]

_POLL = 0.05  # s
_AGAIN = 1.0  # s between two tries of a transition that was refused
_SILENCE = 30.0  # s
_PATIENCE = "after an installation code is compiled once, which takes minutes"
_LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
_WORDS = {Transition.TRANSITION_CONFIGURE: "configure", Transition.TRANSITION_ACTIVATE: "activate"}


class Managed:
    """A managed node as seen from the launch process."""

    def __init__(self, context: LaunchContext, name: str) -> None:
        """Listen to the reasons of a node (full name), and reach for its service."""
        node = get_ros_node(context)
        self.name, self.reason = name, ""
        self._told = "nothing"
        self._changes = node.create_client(ChangeState, f"{name}/change_state")
        self._reasons = node.create_subscription(
            String, f"{name}/transition_reason", self._on_reason, _LATCHED
        )
        self._log = launch.logging.get_logger(name.lstrip("/"))

    def _on_reason(self, message: String) -> None:
        self.reason = message.data

    async def change(self, transition: int) -> bool:
        """Ask for a transition and wait for the answer, however long it takes; the node's log has the reasons too."""
        while not self._changes.service_is_ready():
            await asyncio.sleep(_POLL)
        before = self.reason
        future = self._changes.call_async(ChangeState.Request(transition=Transition(id=transition)))
        told = began = asyncio.get_running_loop().time()
        while not future.done():
            await asyncio.sleep(_POLL)
            now = asyncio.get_running_loop().time()
            if now - told >= _SILENCE:
                told = now
                self._log.info(f"has been asked to {_WORDS[transition]} for {now - began:.0f} s; {_PATIENCE}")
        result = future.result()
        done = result is not None and result.success
        if not done:
            for _ in range(10):  # the reason may come after the answer
                if self.reason != before:
                    break
                await asyncio.sleep(_POLL)
            if self.reason != self._told:  # once, however often it is asked again
                self._told = self.reason
                self._log.warning(f"does not {_WORDS[transition]}: {self.reason or 'see its log'}")
        return done

    async def insist(self, transition: int, patience: float) -> bool:
        """Ask again, once a second, for as long as ``patience`` (s) lasts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while not await self.change(transition):
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(_AGAIN)
        return True


def bring_up(
    names: Sequence[str],
    *,
    activate: bool,
    patience: float,
    then: Sequence[LaunchDescriptionEntity] = (),
) -> OpaqueCoroutine:
    """Configure nodes together, then activate them one after the other.

    A node that cannot be configured ends the launch: its settings are wrong. One that does not become active stays
    inactive, for there ``ros2 lifecycle set`` can try again.

    Args:
        names: full names, in the order of their activation.
        activate: whether to go beyond ``inactive``.
        patience: for how long a refused activation is tried again, s: measurements have to come first.
        then: started when all are configured, before any is activated.
    """

    async def run(context: LaunchContext, *_: Any) -> None:
        log = launch.logging.get_logger("bring_up")
        nodes = [Managed(context, name) for name in names]
        done = await asyncio.gather(*(node.change(Transition.TRANSITION_CONFIGURE) for node in nodes))
        if not all(done):
            failed = [node for node, good in zip(nodes, done, strict=True) if not good]
            reason = "; ".join(f"{node.name}: {node.reason or 'no reason given'}" for node in failed)
            await context.emit_event(Shutdown(reason=reason))
            return
        if then:
            await context.emit_event(IncludeLaunchDescription(LaunchDescription(list(then))))
        commands = "; ".join(f"ros2 lifecycle set {name} activate" for name in names)
        if not activate:
            log.info(f"inactive, as asked; {commands}")
            return
        for node in nodes:
            if not await node.insist(Transition.TRANSITION_ACTIVATE, patience):
                log.error(f"{node.name} stays inactive; when the reason is gone: {commands}")
                return
        log.info(f"active: {', '.join(names)}")

    return OpaqueCoroutine(coroutine=run)
