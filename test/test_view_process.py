"""The viewer's process among other nodes: it publishes nothing, lets nobody in without a key, and ends when told."""

from __future__ import annotations

import contextlib
import http.client
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("rclpy")

from ros_harness import Probe
from view_support import viewing


def ask(address: str, target: str, **headers: str) -> int:
    with contextlib.closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=30.0)) as connection:
        connection.request("GET", target, headers=headers)
        return connection.getresponse().status


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_it_publishes_nothing_and_ends_when_told(tmp_path: Path, number: int) -> None:
    with Probe() as probe, viewing(tmp_path, "elsewhere", read_only=True) as (process, address):
        probe.wait(lambda: ("viewer", "/elsewhere") in probe.node.get_node_names_and_namespaces(), "the node")
        topics = probe.node.get_publisher_names_and_types_by_node("viewer", "/elsewhere")
        assert {kind for _, kinds in topics for kind in kinds} <= {"rcl_interfaces/msg/ParameterEvent"}
        clients = probe.node.get_client_names_and_types_by_node("viewer", "/elsewhere")
        assert clients == [], "without buttons it can call nobody"
        assert urlsplit(address).hostname == "127.0.0.1"
        assert ask(address, "/") == 403
        assert ask(address, "/", Host="attacker.example") == 403
        assert ask(address, "/?" + urlsplit(address).query) == 303
        status, _ = process.end(number)
    assert status == 0
    assert "Traceback" not in process.log
