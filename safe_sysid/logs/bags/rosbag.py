"""ROS 2 bags (mcap, sqlite3) with sensor_msgs/JointState, read by the `rosbags` library; no ROS needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.bags.bag_limits import check_bag
from safe_sysid.logs.bags.joint_state_messages import JOINT_STATE, JointStateDecoder
from safe_sysid.logs.log import Log, LogError

__all__ = ["is_bag", "open_bag", "read_bag"]

_MAX_SAMPLES = 50_000_000
_BLOCK = 8192


def is_bag(path: str | Path) -> bool:
    """Whether a path looks like a bag: a directory with ``metadata.yaml``, or a file ``.mcap`` or ``.db3``."""
    path = Path(path)
    return (path.is_dir() and (path / "metadata.yaml").is_file()) or path.suffix in (".mcap", ".db3", ".bag")


def read_bag(
    path: str | Path,
    joint_names: Sequence[str],
    topic: str | None = None,
    progress: Callable[[float], None] | None = None,
    may_lack_velocity: bool = False,
) -> Log:
    """Read the joint states of a bag: stamps of the headers, in order of arrival, joints matched by name.

    Args:
        path: of the bag's directory, or of one storage file.
        joint_names: n names of the robot's joints; others in the messages are ignored.
        topic: to read; None for the only one of this type that has all the joints, or else the only one of them that
            is called ``joint_states``.
        progress: called with the share of the messages that is read.
        may_lack_velocity: whether messages without velocities will do; they are nan then.

    Raises:
        LogError: not a bag, no such topic, joints, velocities or efforts missing, or a message that is broken.
    """
    with open_bag(Path(path)) as reader:
        return _read(Path(path), reader, tuple(joint_names), topic, progress, may_lack_velocity)


@contextmanager
def open_bag(path: Path) -> Iterator[Any]:
    """A bag to read from, within limits; whatever goes wrong with it meanwhile is a :class:`LogError`."""
    if not path.exists():
        raise LogError(f"{path}: no such file")
    if path.suffix == ".bag":
        raise LogError(f"{path}: a ROS 1 bag: expected a ROS 2 bag (rosbags-convert makes one of it)")
    try:
        from rosbags.rosbag2 import Reader
    except ImportError:
        raise LogError(f"{path}: reading bags needs the package rosbags (pip install rosbags)") from None
    check_bag(path)
    try:
        with Reader(path) as reader:
            yield reader
    except SafeSysIdError:
        raise
    except Exception as error:  # on broken files the library raises whatever the bytes lead it to
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise LogError(f"{path}: not a readable ROS 2 bag: {text}") from None


def _read(
    path: Path,
    reader: Any,
    joint_names: tuple[str, ...],
    topic: str | None,
    progress: Callable[[float], None] | None,
    may_lack_velocity: bool,
) -> Log:
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    name = _topic(path, reader, store, joint_names, topic)
    connections = [c for c in reader.connections if c.topic == name and c.msgtype == JOINT_STATE]
    total = max(sum(c.msgcount for c in connections), 1)
    decoder = JointStateDecoder(str(path), name, store, joint_names, may_lack_velocity)
    for count, (_, _, raw) in enumerate(reader.messages(connections=connections)):
        decoder.add(raw)
        if decoder.seen - decoder.lacking > _MAX_SAMPLES:
            raise LogError(f"{path}: more than {_MAX_SAMPLES} messages: expected a shorter log")
        if progress is not None and count % _BLOCK == 0:
            progress(min(1.0, count / total))
    return _log(path, name, decoder, joint_names)


def _topic(path: Path, reader: Any, store: Any, joint_names: tuple[str, ...], topic: str | None) -> str:
    """Name of the topic to read."""
    found = sorted({c.topic for c in reader.connections if c.msgtype == JOINT_STATE})
    others = sorted({f"{c.topic} ({c.msgtype})" for c in reader.connections})
    if topic is not None:
        if topic not in found:
            raise LogError(
                f"{path}: topic {topic!r} of type {JOINT_STATE} is not there: expected one of "
                f"{', '.join(found) or 'none'}; the bag has {', '.join(others[:20]) or 'no topics'}"
            )
        return topic
    if not found:
        raise LogError(
            f"{path}: no topic of type {JOINT_STATE}: expected one; the bag has {', '.join(others[:20]) or 'no topics'}"
        )
    if len(found) == 1:
        return found[0]
    good = [name for name in found if _has_joints(reader, store, name, joint_names)]
    named = [name for name in good if name.rpartition("/")[2] == "joint_states"]
    if len(good) == 1 or len(named) == 1:
        return (named or good)[0]
    reason = "none has all joints of the robot, " + ", ".join(joint_names) if not good else "several have all joints"
    raise LogError(f"{path}: topics {', '.join(good or found)}: {reason}: say which with --topic")


def _has_joints(reader: Any, store: Any, topic: str, joint_names: tuple[str, ...]) -> bool:
    """Whether one of the first messages of a topic has all joints."""
    connections = [c for c in reader.connections if c.topic == topic and c.msgtype == JOINT_STATE]
    for count, (_, _, raw) in enumerate(reader.messages(connections=connections)):
        message = store.deserialize_cdr(raw, JOINT_STATE)
        if set(joint_names) <= set(message.name):
            return True
        if count >= 50:
            return False
    return False


def _log(path: Path, topic: str, decoder: JointStateDecoder, joints: tuple[str, ...]) -> Log:
    stamps, values = decoder.take()
    if not len(stamps):
        seen = f"{decoder.seen} messages, none with all joints" if decoder.seen else "no messages"
        raise LogError(f"{path}: {topic} has {seen}: expected {', '.join(joints)}")
    if len(stamps) > 1 and np.all(stamps == stamps[0]):
        raise LogError(
            f"{path}: all header stamps of {topic} are {stamps[0] / 1e9:.9f} s: "
            f"expected the time of each measurement; receive times are no substitute"
        )
    origin = int(stamps[0] // 10**9) * 10**9
    seconds = (stamps - origin) / 1e9
    columns = {
        key: [f"{topic} {word} of {joint}" for joint in joints]
        for key, word in (("q", "position"), ("qd", "velocity"), ("effort", "effort"))
    }
    columns["stamps"] = [f"{topic} header.stamp"]
    if decoder.lacking:
        columns["lacking"] = [str(decoder.lacking)]
    measurements = Measurements(seconds, values[:, 0], values[:, 1], values[:, 2])
    return Log(joints, measurements, origin, columns)
