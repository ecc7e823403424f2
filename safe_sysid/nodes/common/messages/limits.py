"""Limits of size and rate for messages and services: one table, and the filter that applies it to raw bytes.

A message that is too long is refused by its length, before it is decoded. One that comes too often costs a reading of
the clock. A topic that goes on like that is unsubscribed for a while (:mod:`~.messages.rate_limiting`), so that a flood
costs us no processor time beyond the middleware's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from safe_sysid.input_limits import TokenBucket
from safe_sysid.nodes.common.messages.contents import MessageRefusedError

__all__ = [
    "FREE_SERVICES",
    "OTHER_SERVICES",
    "OWN_SERVICES",
    "PAUSE_S",
    "TOPICS",
    "Limit",
    "MessageFilter",
    "limit_of_service",
    "limits_table",
]

#: A topic that floods a node is not listened to for so long, s.
PAUSE_S = 1.0


@dataclass(frozen=True)
class Limit:
    """Limit of one topic at one node, or of one service."""

    max_bytes: int  #: of a serialised message; 0: the middleware's own type bounds it (a service without fields)
    per_second: float  #: messages, in the long run
    burst: int
    #: whether only the size counts in lock-step, where every message is asked for by the one before
    free_in_lockstep: bool = False


#: By name, whoever listens. Live traffic is far below: docs/use/security.md has the counts.
TOPICS: dict[str, Limit] = {
    "joint_states": Limit(64 * 1024, 3000.0, 4000, free_in_lockstep=True),
    "effort_command": Limit(8 * 1024, 3000.0, 100, free_in_lockstep=True),
    "trajectory_command": Limit(256 * 1024, 3000.0, 100, free_in_lockstep=True),
    # All that waits for a planner whose configuring compiles for minutes, at most (the depth of its subscription).
    "reference": Limit(64 * 1024, 3000.0, 20_000, free_in_lockstep=True),
    "plan": Limit(64 * 1024, 100.0, 200),
    "bounds": Limit(64 * 1024, 100.0, 200),
    "bounds_active": Limit(64 * 1024, 100.0, 200),
    "goal_joints": Limit(256 * 1024, 50.0, 100),
    "goal_pose": Limit(4 * 1024, 50.0, 100),
    "scene": Limit(256 * 1024, 20.0, 50),
}
#: Services of ours, each.
OWN_SERVICES = Limit(0, 10.0, 50)
#: Parameters and lifecycle, each.
OTHER_SERVICES = Limit(0, 100.0, 1000)
#: Never refused for being asked too often: they make the arm safer.
FREE_SERVICES = frozenset({"stop", "emergency_stop"})


def limit_of_service(name: str) -> Limit | None:
    """Limit of ``~/name``, a service of ours; None: there is none. ``name``: last part of the service's name."""
    return None if name in FREE_SERVICES else OWN_SERVICES


def limits_table() -> list[tuple[str, ...]]:
    """The table for the docs: rows of name, largest size, messages a second, at once, and in lock-step."""
    rows: list[tuple[str, ...]] = [
        (
            f"`{name}`",
            f"{limit.max_bytes // 1024} KiB",
            f"{limit.per_second:g}",
            str(limit.burst),
            "size only" if limit.free_in_lockstep else "the same",
        )
        for name, limit in TOPICS.items()
    ]
    for name, limit in (("each service of ours", OWN_SERVICES), ("parameters, lifecycle, each", OTHER_SERVICES)):
        rows.append((name, "", f"{limit.per_second:g}", str(limit.burst), "the same"))
    rows.append((", ".join(f"`~/{name}`" for name in sorted(FREE_SERVICES)), "", "no limit", "", "the same"))
    return rows


class MessageFilter:
    """Filter of one subscription: judges the size and rate of raw messages.

    Attributes:
        passed, too_long, too_often: how many messages.
        largest: bytes of the largest one that passed.
    """

    def __init__(self, limit: Limit, lockstep: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """``lockstep``: of the node; ``clock``: seconds, never going back."""
        self.limit = limit
        self.passed = self.too_long = self.too_often = self.largest = 0
        free = lockstep and limit.free_in_lockstep
        self._bucket = None if free else TokenBucket(limit.per_second, limit.burst, clock)
        self._clock = clock
        self._refused, self._since = 0, clock()  # how many, within the second that began then

    def admit(self, data: bytes) -> None:
        """Count a message that may be read. Raises MessageRefusedError: too long or too often."""
        if self._bucket is not None and not self._bucket.take():
            self.too_often += 1
            self._count()
            text = f"more than {self.limit.burst} at once or {self.limit.per_second:g} a second: expected less"
            raise MessageRefusedError("too often", text)
        size = len(data)
        if size > self.limit.max_bytes:
            self.too_long += 1
            self._count()
            raise MessageRefusedError("too long", f"{size} bytes: expected at most {self.limit.max_bytes}")
        self.passed += 1
        if size > self.largest:
            self.largest = size

    def _count(self) -> None:
        now = self._clock()
        if now - self._since > 1.0:
            self._refused, self._since = 0, now
        self._refused += 1

    @property
    def flooded(self) -> bool:
        """Whether so many messages were refused within a second that the topic should be closed for a while."""
        return self._refused > self.limit.burst

    def forget(self) -> None:
        """Forget earlier refusals, because the topic is open again."""
        self._refused = 0
