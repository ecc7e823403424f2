"""The viewer's process among other nodes: it publishes nothing, lets nobody in without a key, and ends when told."""

from __future__ import annotations

import http.client
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("rclpy")

from ros_harness import NodeProcess, Probe
from view_support import viewing


def ask(address: str, target: str, **headers: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30.0)
    try:
        connection.request("GET", target, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def publishes(probe: Probe) -> set[str]:
    """Types of what the viewer publishes."""
    topics = probe.node.get_publisher_names_and_types_by_node("viewer", "/elsewhere")
    return {kind for _, kinds in topics for kind in kinds}


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_it_publishes_nothing_and_ends_when_told(tmp_path: Path, number: int) -> None:
    with Probe() as probe, viewing(tmp_path, "elsewhere", read_only=True) as (process, address):
        probe.wait(lambda: ("viewer", "/elsewhere") in probe.node.get_node_names_and_namespaces(), "the node")
        assert publishes(probe) <= {"rcl_interfaces/msg/ParameterEvent"}
        clients = probe.node.get_client_names_and_types_by_node("viewer", "/elsewhere")
        assert clients == [], "without buttons it can call nobody"
        assert urlsplit(address).hostname == "127.0.0.1"
        assert ask(address, "/") == 403
        assert ask(address, "/", Host="attacker.example") == 403
        assert ask(address, "/?" + urlsplit(address).query) == 303
        status, _ = process.end(number)
    assert status == 0
    assert "Traceback" not in process.log


@pytest.mark.slow  # the same refusal, by the function that the node calls: test_view_guard.py
def test_an_address_of_another_machine_is_refused_in_words(tmp_path: Path) -> None:
    process = NodeProcess("viewer", {"port": 0, "host": "203.0.113.1"}, tmp_path)
    assert process.process.wait(100.0) == 2
    assert all(word in process.log for word in ("203.0.113.1", "address"))
    assert "Traceback" not in process.log
