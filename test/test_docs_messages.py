"""docs/refer/messages.md and the SROS2 policy against what the nodes really make, and what limits.py really says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from docs_tables import table

pytest.importorskip("rclpy")

from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from ros_harness import MANAGED, Probe, running
from test_security_policy import PLACES

from safe_sysid.nodes.common.access_policy import NODES as POLICY
from safe_sysid.nodes.common.access_policy import OPTIONAL, TRAJECTORIES, full_name
from safe_sysid.nodes.common.messages.limits import limits_table

pytestmark = pytest.mark.ros

NODES = (*MANAGED, "plant")
#: Of every node, or of every managed one; the page says so in a sentence.
EVERYWHERE = {"/rosout", "/parameter_events"}
LIFECYCLE = {"change_state", "get_available_states", "get_available_transitions", "get_state", "get_transition_graph"}
PARAMETERS = {
    "describe_parameters", "get_parameter_types", "get_parameters", "get_type_description", "list_parameters",
    "set_parameters", "set_parameters_atomically",
}  # fmt: skip


def nodes_in(cell: str) -> set[str]:
    """Names of nodes in a cell."""
    return set(re.findall(r"`(\w+)`", cell))


def written() -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
    """Type by (node, topic), for publishers and for listeners."""
    published, heard = {}, {}
    for row in table("refer/messages.md", "Topics", "topic"):
        name, kind = row["topic"].strip("`"), row["type"].strip("`").replace("/", "/msg/")
        for column, into in (("published by", published), ("heard by", heard)):
            for node in nodes_in(row[column]):
                into[node, full(name, node)] = kind
    return published, heard


def full(name: str, node: str) -> str:
    return name.replace("~", f"/{node}") if name.startswith("~") else name if name.startswith("/") else f"/{name}"


def made(probe: Probe) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str], set[str]]:
    """The same, of the graph, and all services."""
    node, found, services = probe.node, ({}, {}), set()
    present = set(node.get_node_names_and_namespaces())
    for name in NODES:
        if (name, "/") not in present:  # not discovered yet
            continue
        both = (node.get_publisher_names_and_types_by_node, node.get_subscriber_names_and_types_by_node)
        for into, ask in zip(found, both, strict=True):
            into.update({(name, topic): kinds[0] for topic, kinds in ask(name, "/") if topic not in EVERYWHERE})
        services |= {service for service, _ in node.get_service_names_and_types_by_node(name, "/")}
    return *found, services


def profile(info: Any) -> tuple[str, str]:
    """Reliability and durability in the page's words."""
    qos = info.qos_profile
    return (
        "reliable" if qos.reliability == ReliabilityPolicy.RELIABLE else "best effort",
        "transient local" if qos.durability == DurabilityPolicy.TRANSIENT_LOCAL else "volatile",
    )


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """All four nodes, an arm that is held, and a looker-on."""
    nodes: dict[str, dict[str, Any]] = {name: {"robot": "three_joint"} for name in NODES}
    nodes["planner"]["start_on_activation"] = False
    with Probe() as probe, running(tmp_path_factory.mktemp("rest"), nodes) as processes:
        for process in processes.values():
            process.wait_ready()
        probe.wait(lambda: probe.state() == "holding", "a controller at work")
        yield probe


@pytest.mark.slow
def test_nodes_create_what_the_policy_allows_and_nothing_else(at_rest: Probe) -> None:
    node = at_rest.node
    of: dict[str, Any] = {
        "publish": node.get_publisher_names_and_types_by_node,
        "subscribe": node.get_subscriber_names_and_types_by_node,
        "serve": node.get_service_names_and_types_by_node,
        "request": node.get_client_names_and_types_by_node,
    }
    for name, access in POLICY.items():
        wanted = {place: {full_name(item) for item in getattr(access, place)} for place in PLACES}
        wanted["subscribe"] -= OPTIONAL | {full_name(TRAJECTORIES)}
        wanted["publish"] -= {full_name(TRAJECTORIES)}

        def complete(name: str = name, wanted: dict[str, set[str]] = wanted) -> bool:
            try:
                return {place: {topic for topic, _ in ask(name, "/")} for place, ask in of.items()} == wanted
            except Exception:  # not discovered yet
                return False

        at_rest.wait(complete, f"what {name} creates")


@pytest.mark.slow
def test_topics_and_services_of_the_page_are_those_of_the_nodes(at_rest: Probe) -> None:
    probe = at_rest
    published, heard = written()
    rows = table("refer/messages.md", "Services", "service")
    services = {f"/{name}" for row in rows for name in re.findall(r"`([^`]+)`", row["service"])}
    services |= {f"/{node}/{name}" for node in NODES for name in PARAMETERS}
    services |= {f"/{node}/{name}" for node in MANAGED for name in LIFECYCLE}
    kinds = {row["QoS"]: row for row in table("refer/messages.md", "Topics", "QoS")}
    with contextlib.suppress(AssertionError):  # discovery takes a moment; then the comparison says what differs
        probe.wait(lambda: made(probe) == (published, heard, services), "the page's topics", 10.0)
    really_published, really_heard, really_served = made(probe)
    assert really_published == published
    assert really_heard == heard
    assert really_served == services
    publishers, listeners = probe.node.get_publishers_info_by_topic, probe.node.get_subscriptions_info_by_topic
    for row in table("refer/messages.md", "Topics", "topic"):
        kind = kinds[row["QoS"]]
        expected = tuple(kind[what].rpartition("lock-step: ")[2] for what in ("reliability", "durability"))
        column = "published by" if row["published by"] else "heard by"
        ask = publishers if row["published by"] else listeners
        for node in nodes_in(row[column]):
            topic = full(row["topic"].strip("`"), node)
            ours = [info for info in ask(topic) if info.node_name == node]
            assert {profile(info) for info in ours} == {expected}, topic


def test_limits_of_the_page_are_those_in_force() -> None:
    rows = table("refer/messages.md", "How large, how often", "name")
    assert [tuple(row.values()) for row in rows] == limits_table()
