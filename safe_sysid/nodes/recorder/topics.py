"""Topics that the recorder takes, and the quality of service that it requests."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy
from rclpy.topic_endpoint_info import TopicEndpointInfo

from safe_sysid.errors import ConfigError

__all__ = ["TopicSelection", "bag_qos", "endpoints", "message_class", "profile_for", "weaker"]

#: Not of a namespace, and always of interest.
COMMON = ("/clock", "/diagnostics", "/rosout", "/tf", "/tf_static", "/parameter_events")
#: Of a subscription: what may wait while the recorder is held up; some seconds of a 1 kHz stream.
DEPTH = 20_000
_RELIABLE, _LATCHED = ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL


class TopicSelection:
    """Topics of one namespace and those that belong to nobody; without hidden ones and those that are excluded."""

    def __init__(self, namespace: str, exclude: str = "", everything: bool = False) -> None:
        """Judge the pattern.

        ``exclude``: regular expression; topics that match from their first to their last character are left out.

        Raises ConfigError: not a regular expression.
        """
        try:
            self._exclude = re.compile(exclude) if exclude else None
        except re.error as error:
            raise ConfigError("recorder", "exclude", exclude, f"a regular expression ({error})") from None
        self._prefix = "/" if everything else namespace.rstrip("/") + "/"

    def takes(self, topic: str) -> bool:
        """Whether a topic is recorded."""
        hidden = any(part.startswith("_") for part in topic.split("/"))
        ours = topic.startswith(self._prefix) or topic in COMMON
        return ours and not hidden and not (self._exclude is not None and self._exclude.fullmatch(topic))


def message_class(message_type: str) -> type:
    """The Python class of ``package/msg/Name``.

    Raises ImportError: its package is not installed, or has no such message.
    """
    package, _, name = message_type.partition("/msg/")
    found = getattr(importlib.import_module(f"{package}.msg"), name, None)
    if found is None:
        raise ImportError(f"no message {name} in {package}")
    return found


def endpoints(node: Node, topic: str) -> tuple[list[TopicEndpointInfo], list[TopicEndpointInfo]]:
    """Publishers and subscriptions of a topic, the node's own subscription left out."""
    own = (node.get_name(), node.get_namespace())
    asking = node.get_subscriptions_info_by_topic(topic)
    return (
        list(node.get_publishers_info_by_topic(topic)),
        [info for info in asking if (info.node_name, info.node_namespace) != own],
    )


def profile_for(publishers: Sequence[Any], subscriptions: Sequence[Any], first: bool = False) -> QoSProfile:
    """The most that all publishers offer; before there is one, the most that others ask for.

    ``first``: the most that any publisher offers: what it has latched can be had in no other way.
    """
    asked = [info.qos_profile for info in publishers or subscriptions]
    enough = any if first or not publishers else all
    reliable = enough(qos.reliability == _RELIABLE for qos in asked)
    latched = reliable and enough(qos.durability == _LATCHED for qos in asked)
    return QoSProfile(
        depth=DEPTH,
        reliability=_RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=_LATCHED if latched else DurabilityPolicy.VOLATILE,
    )


def weaker(wanted: QoSProfile, present: QoSProfile) -> bool:
    """Whether a publisher that offers ``wanted`` could not serve a subscription of ``present``."""
    return (present.reliability == _RELIABLE and wanted.reliability != _RELIABLE) or (
        present.durability == _LATCHED and wanted.durability != _LATCHED
    )


def bag_qos(publishers: Sequence[Any]) -> list[Any]:
    """What publishers offer, as the metadata of a bag has it, each profile once."""
    from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability

    profiles: list[Any] = []
    for info in publishers:
        qos = info.qos_profile
        reliable, latched = qos.reliability == _RELIABLE, qos.durability == _LATCHED
        manual = qos.liveliness == LivelinessPolicy.MANUAL_BY_TOPIC
        profile = Qos(
            history=QosHistory.KEEP_LAST,
            # The graph does not tell depths. Who plays a bag must be able to hand out all that was latched.
            depth=1000 if latched else 10,
            reliability=QosReliability.RELIABLE if reliable else QosReliability.BEST_EFFORT,
            durability=QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE,
            deadline=_time(qos.deadline.nanoseconds),
            lifespan=_time(qos.lifespan.nanoseconds),
            liveliness=QosLiveliness.MANUAL_BY_TOPIC if manual else QosLiveliness.AUTOMATIC,
            liveliness_lease_duration=_time(qos.liveliness_lease_duration.nanoseconds),
            avoid_ros_namespace_conventions=False,
        )
        if profile not in profiles:
            profiles.append(profile)
    return profiles


def _time(nanoseconds: int) -> Any:
    from rosbags.interfaces import QosTime

    return QosTime(*divmod(nanoseconds, 10**9))
