"""Nodes that work together agree on what proofs rest on; a pause leaves no work behind. Without processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from rclpy.parameter import Parameter
from ros_harness import nodes_here

from safe_sysid.nodes.common import digest as digests
from safe_sysid.nodes.common.digest import configuration_digest, difference, plan_digest
from safe_sysid.nodes.common.lifecycle import ManagedNode
from safe_sysid.nodes.common.messages.contents import JointSample, MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import empty_plan_message
from safe_sysid.nodes.controller.node import ControllerNode
from safe_sysid.nodes.identifier.node import IdentifierNode
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.robot.scenes.scene import Scene

MODEL = load_robot("three_joint")
SIX, OPEN = load_scene("six_boxes"), Scene("open")
MOVED = replace(SIX, obstacles=SIX.obstacles[1:])


# -- digests ----------------------------------------------------------------------------------------------------


def test_a_scene_is_compared_by_what_stands_where_and_only_between_those_who_have_one() -> None:
    identifier, controller, planner = (configuration_digest(MODEL, True, scene) for scene in (None, SIX, MOVED))
    renamed = configuration_digest(MODEL, True, replace(SIX, name="cell", goal=None, start=None, file="x"))
    allowed = replace(SIX, allowed_pairs=frozenset({frozenset({SIX.obstacles[0].name, "hand"})}))
    assert difference(planner, controller) == difference(controller, planner) == "scene"
    assert difference(configuration_digest(MODEL, True, allowed), controller) == "scene"
    assert difference(renamed, controller) == ""
    assert difference(identifier, controller) == difference(controller, identifier) == ""
    other = configuration_digest(load_robot("three_joint", **{"controller.law": "armour"}), True, MOVED)
    assert difference(other, controller) == "controller, scene"
    assert difference(other, identifier) == "controller"


def test_what_a_plan_says_is_enough_to_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = configuration_digest(MODEL, True, SIX)
    assert difference(plan_digest(ours), ours) == ""
    assert difference(plan_digest(configuration_digest(MODEL, True, MOVED)), ours) == "scene"
    assert "settings" in difference(plan_digest(configuration_digest(MODEL, False, SIX)), ours)
    monkeypatch.setattr(digests, "__version__", "0.0.1")
    monkeypatch.setattr("safe_sysid.logs.online.configuration.proof_digest.__defaults__", ("0.0.1",))
    older = configuration_digest(MODEL, True, SIX)
    assert difference(older, ours) == "version"
    assert difference(plan_digest(older), ours)


def test_the_controller_takes_no_plan_of_another_scene_or_configuration() -> None:
    taken: list[Any] = []
    session = SimpleNamespace(on_plan=taken.append)
    node = SimpleNamespace(
        model=MODEL, digest=configuration_digest(MODEL, True, SIX), session=session, _foreign={},
        options=SimpleNamespace(lockstep=True, robot="three_joint"), _topic="effort_command",
        exclusive_publishers=SimpleNamespace(why_not=lambda topic: ""),
    )  # fmt: skip
    for name in ("check_digest", "trust"):
        setattr(node, name, MethodType(getattr(ManagedNode, name), node))

    def offer(scene: Scene | None, lockstep: bool = True) -> None:
        digest = "" if scene is None else plan_digest(configuration_digest(MODEL, lockstep, scene))
        ControllerNode._on_plan(node, empty_plan_message(10**9, "0:0", MODEL.joint_names, digest=digest))

    for arguments, words in (
        ((None,), "expected a digest"), ((MOVED,), ": scene: expected"), ((OPEN,), ": scene: expected"),
        ((SIX, False), "settings"),
    ):  # fmt: skip
        with pytest.raises(MessageRefusedError, match="the planner works with another configuration") as refused:
            offer(*arguments)
        assert words in str(refused.value)
        assert node._foreign
    assert taken == []
    offer(SIX)
    assert len(taken) == 1
    assert node._foreign == {}


class Toy(ManagedNode):
    """Has a scene; does nothing in it."""

    has_scene = True

    def __init__(self, kind: str = "controller") -> None:
        super().__init__(kind)

    def status(self) -> tuple[bytes, str, dict[str, Any]]:
        return b"\x00", "toy", {}


@pytest.fixture
def toy() -> Iterator[Toy]:
    with nodes_here():
        node = Toy()
        node.set_parameters([Parameter("robot", value="three_joint"), Parameter("lockstep", value=True)])
        yield node
        node.close()
        node.destroy_node()


@pytest.mark.ros
def test_the_law_and_the_scene_in_force_are_in_the_digest(toy: Toy) -> None:
    toy.trigger_configure()
    assert toy.digest == configuration_digest(MODEL, True, OPEN)
    toy.trigger_cleanup()
    assert toy.set_parameters([Parameter("controller.law", value="armour")])[0].successful
    assert toy.set_parameters([Parameter("scene", value="open")])[0].successful
    toy.trigger_configure()
    assert toy.model.settings.controller.law == "armour"
    assert difference(toy.digest, configuration_digest(MODEL, True, OPEN)) == "controller"
    assert toy.digest == configuration_digest(load_robot("three_joint", **{"controller.law": "armour"}), True, OPEN)


@pytest.mark.ros
def test_cleanup_forgets_who_worked_with_something_else(toy: Toy) -> None:
    toy.trigger_configure()
    for who in ("the planner", "the identifier"):
        with pytest.raises(MessageRefusedError):
            toy.check_digest(who, "")
    toy.check_digest("the identifier", toy.digest)
    assert len(toy.foreign) == 1, "one that is right does not excuse the other"
    assert "the planner works with another configuration" in toy.overview()[1]
    toy.trigger_cleanup()
    assert toy.foreign == []
    assert "another configuration" not in toy.overview()[1]


# -- pauses -----------------------------------------------------------------------------------------------------


def _identifier(lockstep: bool) -> tuple[Any, list[Any]]:
    """What takes samples in, with a worker that only remembers: batches of a second."""
    jobs: list[Any] = []
    second = 1_000_000_000
    node = SimpleNamespace(
        options=SimpleNamespace(lockstep=lockstep), active=True, foreign=[], _running=False, _samples=[],
        _batch=1, _batch_end=0, _piece_end=0, _take_ns=second // 2, _last_stamp=0, _update_ns=second,
        _submit=jobs.append, _was_active=False, refuse=lambda *what: node.refused.append(what), refused=[],
        model=MODEL, now_ns=lambda: node.now,
        _reader=SimpleNamespace(read=lambda sample: sample), _time=SimpleNamespace(seconds=lambda stamp: stamp),
        _session=SimpleNamespace(start=None),
    )  # fmt: skip
    node._add, node._update, node._stand = lambda *_: None, lambda *_: None, lambda *_: None
    own = "run hand_over begin_batch on_measurement check_stamp forget_time is_awaited let_pass begin_at"
    for name in own.split():
        setattr(node, f"_{name}", MethodType(getattr(IdentifierNode, f"_{name}"), node))
    return node, jobs


def _feed(node: Any, jobs: list[Any], begin: float, seconds: float) -> list[int]:
    """Measurements at 100 Hz; numbers of the batches that were ordered to be updated with, negative: to be answered."""
    before, still = len(jobs), np.zeros(3)
    for k in range(round(100 * seconds)):
        node.now = round((begin + k / 100) * 1e9)
        node._on_measurement(JointSample(node.now, still, still, still, ""))
    kinds = {node._update: 1, node._stand: -1}
    ordered = [job for job in jobs[before:] if getattr(job, "func", None) in kinds]
    return [kinds[job.func] * job.args[0] for job in ordered]


def test_an_hour_s_pause_orders_no_update_for_each_of_its_seconds() -> None:
    node, jobs = _identifier(lockstep=False)
    node._run(True)
    assert _feed(node, jobs, 100.0, 3.5) == [1, 2, 3]
    node._run(False)
    node._run(True)  # an hour later
    assert _feed(node, jobs, 3700.0, 2.5) == [4, 5], "a batch begins with the first measurement after the pause"
    # The arm's driver was silent, the identifier ran on.
    assert _feed(node, jobs, 9000.0, 2.5) == [6, 7, 8], "one for what was left, then every second"
    node, jobs = _identifier(lockstep=True)
    node._run(True)
    assert _feed(node, jobs, 0.01, 1.0) == [1]
    assert _feed(node, jobs, 4.0, 0.01) == [2, 3, 4], "in lock-step the controller awaits each by its number"


def test_in_lockstep_who_identifies_nothing_is_not_waited_for() -> None:
    node, jobs = _identifier(lockstep=True)
    node.active = False
    assert _feed(node, jobs, 0.01, 1.5) == [], "before it was active: nodes may start in any order"
    node.active = node._was_active = True
    assert _feed(node, jobs, 1.51, 1.0) == [-1, -2], "active, and told to wait; time may stand still for the first"
    node._run(True)
    assert _feed(node, jobs, 2.51, 1.0) == [3]
    node._run(False)
    assert _feed(node, jobs, 3.51, 1.0) == [-4]
    node.active = False
    assert _feed(node, jobs, 4.51, 100.0) == [-number for number in range(5, 105)]
    node.active = True
    node._run(True)
    assert _feed(node, jobs, 104.51, 1.0) == [105], "a long pause is no jump of time"
    # One that is started when simulated time is far ahead owes nothing for what was before.
    node, jobs = _identifier(lockstep=True)
    node._run(True)
    assert _feed(node, jobs, 500.01, 1.0) == [-499, -500, 501]


def test_in_lockstep_one_that_was_active_for_a_moment_only_is_not_waited_for() -> None:
    node, jobs = _identifier(lockstep=True)
    node._was_active, node.active = True, False  # there was no measurement in between
    assert _feed(node, jobs, 0.01, 1.5) == [-1]


def test_in_lockstep_a_stranger_s_time_is_no_time_of_ours() -> None:
    """However long another controller was heard, the right one's measurements are taken in at once."""
    node, jobs = _identifier(lockstep=True)
    node._run(True)
    assert _feed(node, jobs, 0.01, 1.0) == [1]
    node.foreign = ["the controller works with another configuration"]
    assert _feed(node, jobs, 1.01, 0.5) == []
    node.foreign = []
    assert _feed(node, jobs, 100.01, 1.0) == [-99, -100, 101]
    assert not node.refused


@pytest.mark.parametrize("lockstep", [True, False])
def test_time_that_went_back_is_told_and_batches_begin_anew(lockstep: bool) -> None:
    node, jobs = _identifier(lockstep)
    node._run(True)
    assert len(_feed(node, jobs, 50.01, 2.0)) >= 1
    ordered = _feed(node, jobs, 3.01, 2.1)
    assert [abs(number) for number in ordered][-2:] == ([4, 5] if lockstep else [2, 3])
    assert len(node.refused) == 1
    assert "went back" in node.refused[0][1]
    assert len(node._samples) < 200, "nothing piles up until the old time comes again"
