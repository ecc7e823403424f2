"""``safe-sysid replay``: finds the identifiers in a bag, and runs each again (:mod:`safe_sysid.logs.online.replay`).

A bag is read as a stream, twice: once for journals and configurations, once with the joint states. What is kept are the
samples of about a second, the messages on ``bounds`` and one line per update.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.errors import SafeSysIdError
from safe_sysid.logs.bags.bag_bounds import PublishedBounds, read_published
from safe_sysid.logs.bags.bag_limits import check_bag
from safe_sysid.logs.bags.bag_recovery import is_unfinished
from safe_sysid.logs.bags.joint_state_messages import JOINT_STATE, JointStateDecoder
from safe_sysid.logs.log import LogError
from safe_sysid.logs.online.configuration import Configuration, read_configuration
from safe_sysid.logs.online.journal import JournalError, read_entry
from safe_sysid.logs.online.replay import Replayer, ReplayResult
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel

__all__ = ["replay_bag"]

_JOURNAL, _CONFIGURATION = "/journal", "/configuration"
_TEXT, _ARRAY = "std_msgs/msg/String", "std_msgs/msg/Float64MultiArray"
_BLOCK = 2048


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Reader and types of a bag; whatever the library raises becomes one line."""
    if not path.exists():
        raise LogError(f"{path}: no such file")
    if path.is_dir() and not any(found for kind in ("metadata.yaml", "*.mcap", "*.db3") for found in path.glob(kind)):
        raise LogError(f"{path}: holds no recording: expected a bag; `safe-sysid demo --record` makes one")
    if is_unfinished(path):
        raise LogError(
            f"{path}: the recording was not finished (a recorder that was killed, or a file that is cut off): expected "
            f"an end of file mark; `safe-sysid replay {path} --recover DIR` makes a bag of what there is"
        )
    try:
        from rosbags.rosbag2 import Reader
        from rosbags.typesys import Stores, get_typestore
    except ImportError:
        raise LogError(f"{path}: reading bags needs the package rosbags (pip install rosbags)") from None
    check_bag(path)
    try:
        with Reader(path) as reader:
            yield reader, get_typestore(Stores.ROS2_JAZZY)
    except SafeSysIdError:
        raise
    except Exception as error:  # on broken files the library raises whatever the bytes lead it to
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise LogError(f"{path}: not a readable ROS 2 bag: {text}") from None


def _identifiers(reader: Any) -> tuple[str, ...]:
    names = {
        c.topic.removesuffix(_JOURNAL) for c in reader.connections if c.topic.endswith(_JOURNAL) and c.msgtype == _TEXT
    }
    return tuple(sorted(names))


def replay_bag(
    path: str | Path,
    node: str | None = None,
    robot: str | None = None,
    topic: str | None = None,
    files: Mapping[str, Path | None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[ReplayResult]:
    """Run all identifiers of a bag again, or one.

    Args:
        node: full name of the identifier; None for all.
        topic: of the joint states; None for ``joint_states`` in the node's namespace.
        files: ``tare`` and ``bounds`` that stand for those of the run.
        progress: called with the share of an identifier that is done.

    Raises:
        LogError: not a bag, or nothing in it to run again.
        SafeSysIdError: a robot or file that cannot be used.
    """
    path = Path(path)
    with _opened(path) as (reader, store):
        known = _identifiers(reader)
        if not known:
            raise LogError(
                f"{path}: no topic .../journal: expected a bag with the topics of an identifier; for bounds from joint "
                f"states alone: safe-sysid identify {path}"
            )
        if node is not None and node not in known:
            raise LogError(f"{path}: no identifier {node}: expected one of {', '.join(known)}")
        names = known if node is None else (node,)
        told, files = progress or (lambda _: None), files or {}
        return [_Bag(path, reader, store, name).replay(robot, topic, files, told) for name in names]


class _Bag:
    """One identifier of an open bag."""

    def __init__(self, path: Path, reader: Any, store: Any, node: str) -> None:
        self.path, self.reader, self.store, self.node = path, reader, store, node
        self.namespace = node.rpartition("/")[0]
        self.notes: list[str] = []

    def replay(
        self, robot: str | None, topic: str | None, files: Mapping[str, Path | None], progress: Callable[[float], None]
    ) -> ReplayResult:
        configurations, begins = self._configurations()
        models = self._models(configurations, begins, robot)
        states = self._states(topic)
        wanted = self._connections((self.node + _JOURNAL, _TEXT), (self.namespace + "/bounds", _ARRAY))
        decoder = JointStateDecoder(str(self.path), states[0].topic, self.store, models[0].joint_names)
        published: list[PublishedBounds] = []
        total = max(sum(c.msgcount for c in [*states, *wanted]), 1)
        with tempfile.TemporaryDirectory(prefix="safe_sysid_replay_") as scratch:
            replayer = Replayer(models, files, Path(scratch), self.node)
            for count, (connection, _, raw) in enumerate(self.reader.messages(connections=[*states, *wanted])):
                if connection.msgtype == JOINT_STATE:
                    decoder.add(raw)
                    if count % _BLOCK == 0:
                        replayer.add_samples(*decoder.take())
                elif connection.msgtype == _ARRAY:
                    published.append(read_published(self._decoded(raw, _ARRAY)))
                else:
                    replayer.add_samples(*decoder.take())
                    self._hand_over(replayer, raw)
                if count % _BLOCK == 0:
                    progress(count / total)
            replayer.add_samples(*decoder.take())
            replayer.finish(published)
        progress(1.0)
        return self._result(replayer, configurations)

    def _hand_over(self, replayer: Replayer, raw: bytes) -> None:
        try:
            entry = read_entry(self._decoded(raw, _TEXT).data)
        except JournalError as error:
            replayer.result.tell(str(error))
            return
        replayer.add_entry(entry)

    def _decoded(self, raw: bytes, message_type: str) -> Any:
        try:
            return self.store.deserialize_cdr(raw, message_type)
        except Exception as error:
            text = " ".join(str(error).split())[:120] or type(error).__name__
            raise LogError(f"{self.path}: a message is broken ({text}): expected {message_type}") from None

    def _connections(self, *topics: tuple[str, str]) -> list[Any]:
        return [c for c in self.reader.connections if (c.topic, c.msgtype) in topics]

    def _states(self, topic: str | None) -> list[Any]:
        name = topic or f"{self.namespace}/joint_states"
        found = self._connections((name, JOINT_STATE))
        if not found:
            there = sorted({c.topic for c in self.reader.connections if c.msgtype == JOINT_STATE})
            raise LogError(
                f"{self.path}: no topic {name} of type {JOINT_STATE}: expected the joint states of {self.node}; the "
                f"bag has {', '.join(there) or 'none'}: say which with --topic"
            )
        return found

    def _configurations(self) -> tuple[list[tuple[int, Configuration]], list[int]]:
        """Configurations of the node, and the beginnings of its sessions, with their times in the bag."""
        configurations, begins = [], []
        topics = ((self.node + _CONFIGURATION, _TEXT), (self.node + _JOURNAL, _TEXT))
        connections = self._connections(*topics)
        for connection, time, raw in self.reader.messages(connections=connections):
            text = self._decoded(raw, _TEXT).data
            if connection.topic.endswith(_CONFIGURATION):
                configurations.append((time, read_configuration(text)))
            elif '"job":"begin"' in text[:300]:
                begins.append(time)
        return configurations, begins

    def _models(
        self, configurations: Sequence[tuple[int, Configuration]], begins: Sequence[int], robot: str | None
    ) -> list[RobotModel]:
        """The robot of each session: of the configuration that was told next to its beginning."""
        if not configurations:
            if robot is None:
                raise LogError(
                    f"{self.path}: no message on {self.node}{_CONFIGURATION}: expected one, or --robot with the file "
                    "of the run's robot"
                )
            self.notes.append(f"the bag has no {self.node}{_CONFIGURATION}: {robot} is believed to be the run's robot")
            return [load_robot(robot)]
        times = np.array([time for time, _ in configurations])
        loaded: dict[int, RobotModel] = {}
        models = []
        for begin in begins or [configurations[0][0]]:
            k = int(np.argmin(np.abs(times - begin)))
            if k not in loaded:
                loaded[k] = configurations[k][1].load_model(robot)
            models.append(loaded[k])
        if len({model.joint_names for model in models}) > 1:
            raise LogError(f"{self.path}: {self.node} had robots with other joints in one bag: expected one robot")
        return models

    def _result(self, replayer: Replayer, configurations: Sequence[tuple[int, Configuration]]) -> ReplayResult:
        result = replayer.result
        model = replayer.model
        result.robot, result.notes = model.name, [*self.notes, *result.notes, *filter(None, [model.drive_note])]
        if configurations:
            configuration = configurations[-1][1]
            result.lockstep = configuration.lockstep
            if result.problems:
                differ = configuration.machine_differences()
                result.notes += [f"not as in the run: {line}" for line in differ]
        if not replayer.ended:
            result.notes.append("the recording ends before the identifier does")
        result.identical = not result.problems and not result.gaps
        return result
