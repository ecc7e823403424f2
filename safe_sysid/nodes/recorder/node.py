"""Recorder node: every topic of its namespace, as bytes, into a rosbag2 bag that stock tools and replay read.

It only listens. What comes is written as it came, undecoded; a chunk goes to the system every second, so that a
recorder that is killed loses a second. What the middleware had to drop is counted, told and noted in the bag.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.executors import Executor
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription

from safe_sysid import __version__
from safe_sysid.errors import ConfigError
from safe_sysid.logs.bags.bag_writer import BagWriter, Topic
from safe_sysid.logs.log import LogError
from safe_sysid.nodes.common.base import ERROR, OK, WARN, BaseNode
from safe_sysid.nodes.common.process import run_node
from safe_sysid.nodes.common.realtime.scheduling import RealtimeOptions, Scheduling
from safe_sysid.nodes.recorder.topics import TopicSelection, bag_qos, endpoints, message_class, profile_for, weaker

__all__ = ["RecorderNode", "main"]

_LOOK, _MOST_TOPICS = 0.1, 500
#: What is latched comes in this time after a subscription; only then is less asked for, where others offer less, s.
_HISTORY = 0.5
#: At the end: for so long at most the others' last words are waited for; and for so long when all have left.
_DRAIN, _QUIET = 4.0, 0.1


@dataclass
class _Recorded:
    """One topic."""

    kind: str
    qos: QoSProfile
    subscription: Subscription | None = None
    since: float = field(default_factory=time.monotonic)
    publishers: int = 0
    settled: bool = False  # whether all of these can serve the subscription
    topic: Topic | None = None  # of the bag, once there is a publisher, whose profile goes with it


class RecorderNode(BaseNode):
    """Looks for topics ten times a second and writes what comes."""

    def __init__(self) -> None:
        super().__init__("recorder")
        given = self.values
        self._selection = TopicSelection(self.get_namespace(), given["exclude"] or "", given["all_namespaces"])
        bag = Path(given["bag"] or time.strftime("rosbag2_%Y_%m_%d-%H_%M_%S"))
        try:
            self._bag = BagWriter(bag, given["compression"], {"recorder": f"safe_sysid {__version__}"})
        except LogError as error:
            raise ConfigError("parameters of recorder", "bag", str(bag), str(error)) from None
        self._topics: dict[str, _Recorded] = {}
        self._skipped: dict[str, str] = {}
        self._lost: Counter[str] = Counter()
        self._failed = ""
        self._executor: Executor | None = None
        self._look()
        self.every(_LOOK, self._look)
        self.every(given["flush_s"], self._flush)

    def _load(self) -> None:
        """No robot, no scene: whatever arm it is, a recorder writes what is said."""
        self.parameters.check("exclude", lambda pattern: TopicSelection("/", pattern))
        self.values = self.parameters.values()
        options = RealtimeOptions(nice=self.values["realtime.nice"])
        self.scheduling = Scheduling(options, self.get_logger().warning)

    # -- topics -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Subscribe to what is new; ask for less where a publisher offers less."""
        if self._failed:
            return
        for name, types in self.get_topic_names_and_types():
            if name in self._skipped or not self._selection.takes(name):
                continue
            recorded = self._topics.get(name)
            if recorded is not None and recorded.settled and self.count_publishers(name) == recorded.publishers:
                continue  # to ask who they are costs ten times as much
            publishers, asking = endpoints(self, name)
            if not publishers and not asking:
                continue
            qos = profile_for(publishers, asking)
            if recorded is None:
                recorded = self._add(name, types, profile_for(publishers, asking, first=True))
            elif publishers and weaker(qos, recorded.qos) and time.monotonic() > recorded.since + _HISTORY:
                before = recorded.subscription
                recorded.qos = qos
                recorded.subscription = self._subscribe(name, recorded, qos)
                if before is not None:
                    self.destroy_subscription(before)
                self.say(f"{name}: a publisher offers less than the others: asked for that from now on")
            if recorded is None:
                continue
            if publishers and recorded.topic is None:
                recorded.topic = self._bag.topic(name, recorded.kind, bag_qos(publishers))
            recorded.publishers = len(publishers)
            recorded.settled = not publishers or not weaker(qos, recorded.qos)

    def _add(self, name: str, types: list[str], qos: QoSProfile) -> _Recorded | None:
        try:
            if len(self._topics) >= _MOST_TOPICS:
                raise LogError(f"more than {_MOST_TOPICS} topics")
            recorded = _Recorded(types[0], qos)
            self._bag.check(name, types[0])
            recorded.subscription = self._subscribe(name, recorded, qos)
        except (ImportError, LogError) as error:
            self._skipped[name] = str(error)
            self.refuse(name, "not recorded", str(error))
            return None
        self._topics[name] = recorded
        if len(types) > 1:
            self.say(f"{name}: has types {', '.join(types)}: only {types[0]} is recorded")
        return recorded

    def _subscribe(self, name: str, recorded: _Recorded, qos: QoSProfile) -> Subscription:
        events = SubscriptionEventCallbacks(message_lost=partial(self._on_lost, name))
        kind, callback = message_class(recorded.kind), self._writer_of(name, recorded)
        return self.create_subscription(kind, name, callback, qos, event_callbacks=events, raw=True)

    def _on_lost(self, name: str, info: Any) -> None:
        self._lost[name] += info.total_count_change
        self.refuse(name, "lost", f"{self._lost[name]} messages were lost before they could be recorded")

    # -- messages -----------------------------------------------------------------------------------------------

    def _writer_of(self, name: str, recorded: _Recorded) -> Callable[[bytes], None]:
        """The callback of a topic: as little as possible, for some come a thousand times a second."""
        write, now_ns = self._bag.write, self.now_ns

        def call(message: bytes) -> None:
            if self._failed:
                return
            try:
                if recorded.topic is None:
                    publishers, _ = endpoints(self, name)
                    recorded.topic = self._bag.topic(name, recorded.kind, bag_qos(publishers))
                write(recorded.topic, now_ns(), message)
            except Exception as error:
                self._fail(error)

        return call

    def _flush(self) -> None:
        if self._failed:
            return
        try:
            self._bag.flush()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Nothing can be written any more; what is in the file stays."""
        self._failed = f"recording ended: {error}"
        self.refuse("bag", "not written", self._failed)

    # -- node ---------------------------------------------------------------------------------------------------

    def spin_some(self, executor: Executor) -> None:
        """As all nodes; the executor is remembered for the messages that are under way at the end."""
        self._executor = executor
        executor.spin_once(timeout_sec=0.1)

    def status(self) -> tuple[bytes, str, dict[str, Any]]:
        """How much is recorded, and what is not."""
        bag = self._bag
        text = f"{bag.written} messages of {len(self._topics)} topics, {bag.bytes / 1e6:.1f} MB, in {bag.path}"
        values: dict[str, Any] = {"bag": bag.path, "messages": bag.written, "lost": sum(self._lost.values())}
        values |= {f"lost on {name}": count for name, count in self._lost.items()}
        values |= {f"not recorded: {name}": reason for name, reason in self._skipped.items()}
        values["processor time"] = f"{time.process_time():.1f} s"
        if self._failed:
            return ERROR, self._failed, values
        return (WARN if self._lost or self._skipped else OK), text, values

    def close(self) -> None:
        """Take what the others still say, then write index and metadata."""
        end, executor = time.monotonic() + _DRAIN, self._executor
        seen, quiet = -1, 0.0
        while executor is not None and time.monotonic() < end and not self._failed:
            executor.spin_once(timeout_sec=0.02)
            if self._bag.written != seen:
                seen, quiet = self._bag.written, time.monotonic() + _QUIET
            if time.monotonic() > quiet and not self._others():
                break
        notes = {f"lost on {name}": str(count) for name, count in self._lost.items()}
        notes |= {f"not recorded: {name}": reason for name, reason in self._skipped.items()}
        self._bag.close(notes)
        print(
            f"recorder: {self._bag.written} messages of {len(self._topics)} topics in {self._bag.path}, "
            f"{sum(self._lost.values())} lost, {time.process_time():.1f} s of processor time",
            flush=True,
        )

    def _others(self) -> bool:
        """Whether anybody else is left who publishes what is recorded."""
        own = (self.get_name(), self.get_namespace())
        found = (info for name in self._topics for info in self.get_publishers_info_by_topic(name))
        return any((info.node_name, info.node_namespace) != own for info in found)


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``recorder_node``."""
    return run_node(RecorderNode, args)


if __name__ == "__main__":
    sys.exit(main())
