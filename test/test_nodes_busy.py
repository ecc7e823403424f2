"""An identifier on a machine too busy for one update per batch: bounds of all data, as soon as there are any."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from ros_harness import nodes_here

from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.identifier.node import IdentifierNode
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation import Plant, draw_truth, payload_from_spec

pytestmark = pytest.mark.ros

UPDATE, BATCHES = 0.3, 8  # s


@pytest.fixture
def identifier(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[IdentifierNode]:
    """In this process, active; nobody talks to it but the test."""
    given = {"robot": "three_joint", "run_dir": tmp_path, "lockstep": request.param}
    quiet = ("--log-level", "fatal", "--disable-external-lib-logs")
    with nodes_here(*quiet, **given, robot_settings__identification__update_s=UPDATE):
        node = IdentifierNode()
        node.trigger_configure()
        node.trigger_activate()
        assert node.active, node._refused
        yield node
        node.close()
        node.destroy_node()


@pytest.mark.parametrize(
    ("identifier", "answered"), [("false", [BATCHES]), ("true", list(range(1, BATCHES + 1)))],
    indirect=["identifier"],
)  # fmt: skip
def test_of_updates_that_wait_only_the_last_is_done(identifier: IdentifierNode, answered: list[int]) -> None:
    """Lock-step answers each all the same: it is awaited by number."""
    node, model, payload = identifier, identifier.model, payload_from_spec("4lb")
    plant = Plant(model, draw_truth(model, payload, 1, "uniform"), payload, Scene("open"), 1,
                  q0=np.array(model.settings.home))  # fmt: skip
    worker, go_on, done = node._worker, threading.Event(), threading.Event()
    assert worker is not None
    heard: list[Any] = []
    node._bounds = SimpleNamespace(publish=heard.append)
    worker.submit(lambda: go_on.wait(60.0) and None)  # no core for it
    writer, steps = conversions.JointStateWriter(model.joint_names), round(1e3 * UPDATE * BATCHES) + 5
    origin = 0 if node.options.lockstep else time.time_ns() - steps * 1_000_000
    for k in range(1, steps):
        x = plant.step(None)
        node._on_measurement(writer.fill(origin + k * 1_000_000, x.q, x.qd, x.effort))
    go_on.set()
    worker.submit(done.set)
    assert done.wait(60.0)
    size = model.arm_prior.size
    assert [conversions.read_bounds(message, size).batch for message in heard] == answered
    last = node._updates[-1]
    assert node._session.samples >= round(1e3 * UPDATE * BATCHES), "of all data"
    lower, upper = np.array(last["lower"]), np.array(last["upper"])
    truth = plant.theta_true[model.arm_prior.layout.payload]
    assert np.all((lower <= truth) & (truth <= upper))
    assert upper[0] - lower[0] < 0.5 * (model.arm_prior.payload_upper - model.arm_prior.payload_lower)[0]


@pytest.mark.parametrize("identifier", ["true"], indirect=True)
@pytest.mark.parametrize("ends", [True, False])
def test_the_end_of_the_node_shares_nothing_with_an_update_under_way(
    identifier: IdentifierNode, ends: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two threads in one solver crashed the process, or lost ``identifier.json``, on a machine slow enough."""
    node, core = identifier, identifier._session.core
    monkeypatch.setattr("safe_sysid.nodes.identifier.node._LAST_UPDATE", 30.0 if ends else 0.2)
    began, go_on, under_way, met = threading.Event(), threading.Event(), [0], []
    update = core.update

    def slow(final: bool = False) -> Any:
        under_way[0] += 1
        met.append(under_way[0])
        began.set()
        if not final:
            go_on.wait(60.0)
        result = update(final=final)
        under_way[0] -= 1
        return result

    monkeypatch.setattr(core, "update", slow)
    writer = conversions.JointStateWriter(node.model.joint_names)
    for k in range(1, round(1e3 * UPDATE) + 2):
        node._on_measurement(writer.fill(k * 1_000_000, node.model.settings.home, *np.zeros((2, node.model.n))))
    assert began.wait(60.0)
    if ends:
        threading.Timer(1.0, go_on.set).start()
    node.close()
    assert met == [1, 1] if ends else met == [1]
    go_on.set()
    assert (tmp_path / "log.npz").exists()
    assert (tmp_path / "identifier.json").exists()
