"""The work cells' files: complete, consistent with their motions, feasible in themselves; wrong files are refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from workcell_support import gen3, workcell

from safe_sysid.control.gains import ControllerGains
from safe_sysid.errors import ConfigError
from safe_sysid.planning.certification.certificate import start_check
from safe_sysid.planning.motions.fast_motion import check_motion
from safe_sysid.planning.task.inverse_kinematics import tool_pose
from safe_sysid.resources import resource_path
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.experiments.cell.make_motions import holding, surroundings, theta_with
from safe_sysid.studies.experiments.cell.workcell import GRIP, load_workcell, reversed_motion, tool_axes, wanted_motions
from safe_sysid.trajectories.quintic import QuinticTrajectory

pytestmark = pytest.mark.unproved

CELLS = ("a", "b", "c")


@pytest.mark.parametrize("name", CELLS)
def test_what_the_paper_says_is_in_the_file(name: str) -> None:
    cell = workcell(name)
    names = [item.name for item in cell.dumbbells]
    assert names == (["8lb"] if name == "c" else ["4lb", "5lb", "6lb", "7lb", "8lb"])
    for item in cell.dumbbells:
        assert item.payload.theta[0] == pytest.approx(float(item.name[:-2]) * 0.45359237)
    assert cell.release == (name != "c")
    if cell.release:
        assert cell.place[0] == {"a": 0.25, "b": 0.5}[name]
        steps = np.diff([cell.target(item)[2] for item in names])
        heights = [item.height for item in cell.dumbbells]
        np.testing.assert_allclose(steps, 0.5 * (np.array(heights[:-1]) + heights[1:]))
    assert cell.criteria.position == 0.01
    assert cell.criteria.angle == pytest.approx(np.radians(3.0), abs=1e-4)
    np.testing.assert_array_equal(cell.criteria.torque, 0.9 * cell.criteria.drive_torque)


@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.slow), "c"])
def test_motions_begin_and_end_where_they_should_and_keep_their_limits(name: str) -> None:
    model, cell = gen3(), workcell(name)
    wanted = wanted_motions(cell.file)
    heaviest = cell.dumbbells[-1]
    for item, task in zip(cell.dumbbells, cell.tasks, strict=True):
        up = np.array([0.0, 0.0, cell.gap if cell.release else 0.0])
        placed = task.carry.knots[-1, 0], cell.target(item.name) + up, cell.place_rotation
        for q, middle, rotation in ((task.pick, item.position, item.rotation), placed):
            position, axes = tool_pose(model, q)
            np.testing.assert_allclose(position + axes @ GRIP, middle, atol=1e-5)
            np.testing.assert_allclose(axes, tool_axes(rotation), atol=1e-5)
        np.testing.assert_array_equal(task.lift.knots[-1, 0], cell.ready)
        np.testing.assert_array_equal(task.carry.knots[0, 0], cell.ready)
        assert not np.any(task.lift.knots[[0, -1], 1:])
        assert not np.any(task.carry.knots[[0, -1], 1:])
        np.testing.assert_array_equal(task.carry.times, [0.0, 1.0, 2.0])  # two quintics of 1 s
        slow = np.abs(task.lift.states(np.linspace(0.0, task.lift.duration, 400))).max(axis=(0, 2))
        assert np.all(slow[1:] <= np.array([wanted.lift_velocity, wanted.lift_acceleration, wanted.lift_jerk]))
        scene = surroundings(cell, item.name)
        kept = check_motion(holding(model, item), theta_with(model, heaviest), scene, task.carry)
        assert min(kept[family].value for family in kept) > 0.0, kept


@pytest.mark.parametrize("name", CELLS)
def test_a_robust_method_may_stand_at_the_ready_pose_knowing_only_the_prior(
    name: str, model: RobotModel, gains: ControllerGains
) -> None:
    cell = workcell(name)
    scene = surroundings(cell, cell.dumbbells[0].name)
    assert start_check(model, model.arm_prior, scene, gains, cell.ready) == []


def test_a_motion_reversed_takes_the_same_way() -> None:
    rng = np.random.default_rng(0)
    knots = rng.normal(size=(3, 3, 2))
    knots[[0, -1], 1:] = 0.0
    there = QuinticTrajectory(np.array([0.0, 0.7, 2.0]), knots)
    back = reversed_motion(there, 1.6)
    assert back.duration == pytest.approx(3.2)
    for t in rng.uniform(0.0, 2.0, 20):
        one, two = there.state(t), back.state(1.6 * (2.0 - t))
        np.testing.assert_allclose(two[0], one[0], atol=1e-12)
        np.testing.assert_allclose(two[1], -one[1] / 1.6, atol=1e-11)
        np.testing.assert_allclose(two[2], one[2] / 1.6**2, atol=1e-11)


def copied(folder: Path, edit: tuple[str, str] | None = None) -> Path:
    for name in ("pso_c.yaml", "pso_c_motions.yaml"):
        shutil.copy(resource_path(f"config/experiments/{name}"), folder / name)
    path = folder / "pso_c.yaml"
    if edit is not None:
        text, count = re.subn(edit[0], edit[1], path.read_text(), count=1)
        assert count == 1
        path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("release: false", "release: false\n  realese: true"), "realese"),
        (("supports: \\[rack_near", "supports: [rack_neer"), "rack_neer"),
        (("name: 8lb, pounds", "name: far_obstacle, pounds"), "a name that no box"),
        (("xyz: \\[0.40, 0.13", "xyz: [0.40, 0.14"), "make the motions anew"),
        (("position: 0.01 ", "position: -1.0 "), "position"),
        (("pounds: 8.0", "pounds: 1.0"), "its handle"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, edit: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_workcell(copied(tmp_path, edit))


def test_criteria_may_be_edited_and_missing_motions_are_named(tmp_path: Path) -> None:
    path = copied(tmp_path, ("position: 0.01 ", "position: 0.02 "))
    assert load_workcell(path).criteria.position == 0.02
    (tmp_path / "pso_c_motions.yaml").unlink()
    with pytest.raises(ConfigError, match="pso_c_motions"):
        load_workcell(path)
    with pytest.raises(ConfigError, match="pso_a"):
        load_workcell("nowhere")
