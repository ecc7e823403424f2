"""Bounds from a file narrow what a node publishes for the payload that they are of, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from safe_sysid.errors import ConfigError
from safe_sysid.identification.identifier import Identifier, UpdateStatus
from safe_sysid.logs.bounds_file import SavedBounds, bounds_of, write_bounds
from safe_sysid.logs.online.known_bounds import KnownBounds
from safe_sysid.robot import RobotModel, load_robot


def written(folder: Path, model: RobotModel, **changes: object) -> tuple[SavedBounds, Path]:
    """A tenth of the prior, about its middle, in a file."""
    low, high = model.arm_prior.payload_lower, model.arm_prior.payload_upper
    middle, half = 0.5 * (low + high), 0.05 * (high - low)
    bounds = bounds_of(model, (middle - half, middle, middle + half), (0, 4), "sdp", True, "certificate_0_00004.json")
    bounds, path = replace(bounds, **changes), folder / "bounds.yaml"
    write_bounds(path, bounds)
    return bounds, path


def result_with(model: RobotModel, lower: np.ndarray, upper: np.ndarray, seq: int, epoch: int = 0):
    result = Identifier(model, epoch=epoch).update()
    box = result.box.with_payload(lower, upper, seq)
    return replace(result, status=UpdateStatus.OK, box=box, nominal=0.5 * (lower + upper))


def test_published_boxes_are_nested_within_both(tmp_path: Path, model: RobotModel) -> None:
    bounds, path = written(tmp_path, model)
    known = KnownBounds(path, model)
    first = known.narrow(Identifier(model).update())
    assert first.box.identity == "0:1"
    np.testing.assert_array_equal(first.box.payload_lower, bounds.lower)
    rng, last = np.random.default_rng(0), first.box
    for seq in range(1, 5):
        width = (bounds.upper - bounds.lower) / seq
        lower = bounds.nominal - width * rng.uniform(0, 1, 10)
        upper = bounds.nominal + width * rng.uniform(0, 1, 10)
        update = known.narrow(result_with(model, lower, upper, seq))
        assert update.box.is_inside(last)
        assert update.box.seq == seq + 1
        assert np.all(update.box.payload_lower >= lower)
        assert np.all(update.box.payload_upper <= upper)
        assert update.box.contains(np.clip(update.box.mid, update.box.lower, update.box.upper))
        assert np.all(update.widths == update.box.payload_upper - update.box.payload_lower)
        last = update.box


def test_another_payload_is_noticed_and_another_epoch_left_alone(tmp_path: Path, model: RobotModel) -> None:
    bounds, path = written(tmp_path, model)
    known = KnownBounds(path, model)
    other = result_with(model, bounds.upper + 1e-3, bounds.upper + 2e-3, 1)
    update = known.narrow(other)
    assert update.status is UpdateStatus.EMPTY_SET
    assert "is the payload another one?" in update.message
    np.testing.assert_array_equal(update.box.payload_lower, bounds.lower)
    assert known.narrow(result_with(model, bounds.upper, bounds.upper + 1.0, 1, epoch=1)).box.epoch == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"robot": "ur5e"}, "ur5e"),
        ({"guaranteed": False}, "guaranteed"),
        ({"identity": "0" * 64}, "identity"),
        ({"seq": 0}, "box 0 of an epoch is the robot's prior"),
    ],
)
def test_bounds_of_something_else_are_refused(tmp_path: Path, model: RobotModel, changes, words) -> None:
    with pytest.raises(ConfigError, match=words):
        KnownBounds(written(tmp_path, model, **changes)[1], model)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("measurement.torque_abs", 0.02),
        ("measurement.velocity_error", 0.001),
        ("friction_transition_velocity", 0.02),
        ("payload.hand_opening", [0.0] * 10),
        ("joints.joint_1.coulomb", 0.1),
    ],
)
def test_bounds_hold_under_what_they_were_proved_with(tmp_path: Path, model: RobotModel, key, value) -> None:
    """An arm that declares other errors is not the one that they are of; the message says which setting, and how."""
    _, path = written(tmp_path, model)
    with pytest.raises(ConfigError, match=rf"assumed\.{key}.*give the same settings"):
        KnownBounds(path, load_robot("kinova_gen3", **{key: value}))


@pytest.mark.slow
@pytest.mark.ros
def test_the_node_starts_with_them(tmp_path: Path, model: RobotModel) -> None:
    pytest.importorskip("rclpy")
    from ros_harness import Probe, running
    from std_msgs.msg import Float64MultiArray

    from safe_sysid.nodes.common.base import LATCHED_INPUT
    from safe_sysid.nodes.common.messages.conversions import read_bounds as read_message

    bounds, path = written(tmp_path, model)
    node = {"identifier": {"bounds_file": str(path)}}
    with running(tmp_path, node, {}) as processes, Probe() as probe:
        processes["identifier"].wait_ready()
        boxes = []
        size = model.arm_prior.size
        probe.listen(Float64MultiArray, "bounds", lambda m: boxes.append(read_message(m, size)), LATCHED_INPUT)
        probe.wait(lambda: bool(boxes), "the first box")
        assert boxes[0].box.identity == "0:1"
        np.testing.assert_array_equal(boxes[0].box.payload_upper, bounds.upper)
