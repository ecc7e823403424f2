"""Detects a second publisher on a topic that only one node may publish, reports it, and acts on it.

A ROS message does not say who sent it. Two planners, or two identifiers, may each be right, but nobody has proved what
they say together. So while there are two, messages of both are refused, and the arm brakes along its certified tail.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rclpy.node import Node

__all__ = ["FORGOTTEN_S", "ExclusivePublishers"]

#: The middleware remembers a process that was killed for 20 s; two of one name for longer are both alive, s.
FORGOTTEN_S = 25.0
_UNKNOWN = "_NODE_NAME_UNKNOWN_"
_SHOWN = 5


@dataclass
class _Topic:
    """A watched topic."""

    name: str
    shared: bool
    since: float | None = None
    text: str = ""
    serious: bool = False


class ExclusivePublishers:
    """Watches publishers of topics that one node alone may publish."""

    def __init__(self, node: Node, clock: Callable[[], float] = time.monotonic) -> None:
        """``node`` asks the graph; ``clock``: seconds, never going back."""
        self._node, self._clock = node, clock
        self._topics: dict[str, _Topic] = {}

    def watch(self, topic: str, shared: bool = False) -> None:
        """Start to watch a topic.

        Args:
            topic: relative name.
            shared: told, never held against anybody: drivers of a gripper publish joint states too.
        """
        self._topics[topic] = _Topic(self._node.resolve_topic_name(topic), shared)

    def forget(self) -> None:
        """Watch nothing."""
        self._topics.clear()

    def tick(self) -> None:
        """Check the graph for publishers; twice a second is enough."""
        for topic in self._topics.values():
            if self._node.count_publishers(topic.name) < 2:
                topic.since, topic.text, topic.serious = None, "", False
                continue
            now = self._clock()
            topic.since = now if topic.since is None else topic.since
            names = [
                f"{info.node_namespace.rstrip('/')}/{info.node_name}"
                for info in self._node.get_publishers_info_by_topic(topic.name)
            ]
            if len(names) < 2:
                continue  # one has just left
            known = {name for name in names if _UNKNOWN not in name}
            topic.serious = not topic.shared and (len(known) > 1 or now - topic.since > FORGOTTEN_S)
            shown = ", ".join(sorted(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            topic.text = f"{len(names)} publishers of {topic.name} ({shown})"
            if not topic.shared:
                topic.text += ": expected one"

    def why_not(self, topic: str) -> str:
        """Why a topic cannot be trusted; "" if it can.

        ``topic``: relative name that is watched.
        """
        found = self._topics.get(topic)
        return found.text if found is not None and found.serious else ""

    @property
    def serious(self) -> list[str]:
        """Certain violations."""
        return [topic.text for topic in self._topics.values() if topic.serious]

    @property
    def doubtful(self) -> list[str]:
        """Possible violations: the second publisher may be one that has just died."""
        return [topic.text for topic in self._topics.values() if topic.text and not (topic.serious or topic.shared)]

    def values(self) -> dict[str, str]:
        """Values for /diagnostics."""
        return {f"publishers of {name}": topic.text for name, topic in self._topics.items() if topic.text}
