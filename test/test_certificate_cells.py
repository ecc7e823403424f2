"""Adaptive cells, threads and witnesses of the certificate: more is certified, nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from plan_support import certify, narrow_box, reach_out, wild, with_limits

from safe_sysid.errors import PlanError
from safe_sysid.planning.certification import cell_margins
from safe_sysid.planning.certification.certificate import FAMILIES
from safe_sysid.reachability import clearance
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene, SceneBox, load_scene
from safe_sysid.trajectories.quintic import QuinticTrajectory


@pytest.fixture(scope="module")
def box(model: RobotModel) -> ParameterBox:
    return narrow_box(model)


def tight(model: RobotModel, box: ParameterBox, family: str, share: float = 0.5) -> tuple[RobotModel, dict]:
    """A limit between what 16 cells can show and what 64 can; fails where the margin is smallest only."""
    coarse, fine = certify(model, box), certify(model, box, intervals=64)
    gap = share * (fine.families[family].value - coarse.families[family].value)
    assert gap > 0.0
    lost = coarse.families[family].value + gap
    if family == "torque":
        return with_limits(model, torque=model.limits.torque - lost), {}
    return model, {"clearance_margin": 0.002 + lost}


@pytest.mark.parametrize("family", ["torque", "self_clearance"])
def test_cells_that_fail_are_halved_and_the_others_are_not(model: RobotModel, box: ParameterBox, family: str) -> None:
    model, more = tight(model, box, family)
    before, after = certify(model, box, splits=0, **more), certify(model, box, splits=2, **more)
    assert not before.ok
    assert before.families[family].value < 0.0
    assert after.ok, after.summary()
    assert after.families[family].value >= 0.0
    assert len(before.grid) == 17
    assert 17 < len(after.grid) < 65
    assert np.all(np.isin(before.grid, after.grid))
    # Only failing cells were cut, each in halves of halves at most.
    failing = np.any([~np.all(before.margins[name] >= 0.0, axis=1) for name in FAMILIES], axis=0)
    inside = np.searchsorted(after.grid, before.grid)
    pieces = np.diff(inside)
    assert np.all(pieces[~failing] == 1)
    assert np.all((pieces[failing] > 1) & (pieces[failing] <= 4))
    for name in FAMILIES:
        assert len(after.margins[name]) == len(after.grid) - 1 == len(after.witness)
        for cell in np.flatnonzero(~failing):
            np.testing.assert_array_equal(before.margins[name][cell], after.margins[name][inside[cell]])
        # A part of a cell has no smaller margins than the cell; but coal's directions are another matter.
        for cell in np.flatnonzero(failing) if "clearance" not in name else ():
            parts = after.margins[name][inside[cell] : inside[cell + 1]]
            if parts.size:
                assert np.all(parts >= before.margins[name][cell] - 1e-9)


def test_a_plan_that_cannot_be_saved_is_given_up_early(
    model: RobotModel, box: ParameterBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, enclose = [], cell_margins.enclose_clearance

    def counted(*arguments: object, **more: object) -> object:
        calls.append(arguments[2].count)
        return enclose(*arguments, **more)

    monkeypatch.setattr(cell_margins, "enclose_clearance", counted)
    q = np.array(model.settings.home)
    # A range that is exact already: no halving at all.
    low = with_limits(model, position_lower=np.where(np.arange(7) == 3, q - 1e-6, -np.inf))
    bad = certify(low, box)
    assert not bad.ok
    assert calls == [16]
    assert len(bad.grid) == 17
    # Everywhere in a wall: the worst cell is tried, the others are not.
    calls.clear()
    wall = Scene("wall", (SceneBox("wall", np.array([0.6, 0.0, 0.4]), np.zeros(3), np.array([2.0, 2.0, 2.0])),))
    bad = certify(model, box, scene=wall)
    assert not bad.ok
    assert calls[0] == 16
    assert sum(calls[1:]) <= 12
    assert len(bad.grid) < 30
    # NaN is not saved either.
    calls.clear()
    assert not certify(model, box, wild()).ok
    assert calls == [16]


def test_threads_change_nothing(model: RobotModel, box: ParameterBox) -> None:
    scene = load_scene("six_boxes")
    trajectory = reach_out(model, np.asarray(scene.start), 0.1, seed=4)
    one, two, three = (certify(model, box, trajectory, scene, intervals=40, threads=threads) for threads in (1, 2, 3))
    for other in (two, three):
        np.testing.assert_array_equal(one.grid, other.grid)
        for name in FAMILIES:
            np.testing.assert_array_equal(one.margins[name], other.margins[name])
    for threads in (0, 1.5, -1):
        with pytest.raises(PlanError, match="threads"):
            certify(model, box, threads=threads)


def test_a_witness_does_without_coal_and_a_bad_one_proves_less(
    model: RobotModel, box: ParameterBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = load_scene("six_boxes")
    trajectory = reach_out(model, np.asarray(scene.start), 0.1, seed=4)
    first = certify(model, box, trajectory, scene)
    assert first.ok, first.summary()
    assert first.witness.shape[::2] == (len(first.grid) - 1, 3)
    assert not first.witness.flags.writeable
    monkeypatch.setattr(clearance.coal, "distance", None)
    again = certify(model, box, trajectory, scene, grid=first.grid, directions=first.witness)
    assert again.ok
    for name in FAMILIES:
        np.testing.assert_array_equal(first.margins[name], again.margins[name])
    rng = np.random.default_rng(3)
    for bad in (rng.normal(size=first.witness.shape), -first.witness, np.full_like(first.witness, np.nan)):
        lied = certify(model, box, trajectory, scene, grid=first.grid, directions=bad, splits=0)
        for name in ("clearance", "self_clearance"):
            # Far pairs are done by their spheres; a lie never gains what a library's direction could not show.
            assert np.all(~(lied.margins[name] > first.margins[name] + 0.05))
        assert not lied.ok
    for shape in ((3,), (5, first.witness.shape[1], 3), (16, 2, 3)):
        with pytest.raises(PlanError, match="directions"):
            certify(model, box, trajectory, scene, directions=np.zeros(shape))


def test_a_grid_must_cover_the_plan(model: RobotModel, box: ParameterBox) -> None:
    good = certify(model, box, grid=np.linspace(0.0, 3.0, 12) ** 2 / 3.0)
    assert good.ok
    assert len(good.grid) == 12
    middle = np.stack([np.array(model.settings.home)] + [np.zeros(7)] * 2)
    knotted = QuinticTrajectory(np.array([0.0, 1.37, 3.0]), np.stack([middle] * 3))
    wrong = ([0.0, 1.0, 2.9], [0.1, 3.0], [0.0, 2.0, 1.0, 3.0], [0.0, np.nan, 3.0])
    for other, grid in (*((None, grid) for grid in wrong), (knotted, [0.0, 1.0, 2.0, 3.0])):
        with pytest.raises(PlanError, match="grid of shape"):
            certify(model, box, other, grid=grid)
    with pytest.raises(PlanError, match="splits"):
        certify(model, box, splits=-1)


def test_exact_ranges_lose_nothing_to_the_cells(model: RobotModel, box: ParameterBox) -> None:
    """Position and velocity margins over the whole plan do not depend on how it is cut."""
    coarse, fine = certify(model, box, intervals=1, splits=0), certify(model, box, intervals=96, splits=0)
    for family in ("position", "velocity"):
        few, many = coarse.margins[family].min(axis=0), fine.margins[family].min(axis=0)
        np.testing.assert_allclose(few[np.isfinite(few)], many[np.isfinite(few)], atol=1e-9)
