"""Swept boxes hold what they should at sampled and hard states, and not much more."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from arm_factory import random_arm
from reachability_attack import sample_symbols, states_of
from reachability_support import random_tracking, random_trajectory

from safe_sysid.errors import PlanError
from safe_sysid.reachability import swept
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.swept import SweptVolume, swept_boxes
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import Body, Kinematics


def bodies_for(n: int, rng: np.random.Generator) -> tuple[Body, ...]:
    """Points, segments and hulls on every frame, the base included; unequal radii, some zero."""
    bodies = []
    for joint in range(-1, n):
        for count in (1, 2, 6):
            points = rng.uniform(-0.3, 0.3, (count, 3))
            radius = 0.0 if count == 6 else float(rng.uniform(0.01, 0.1))
            bodies.append(Body(f"{joint}_{count}", joint, points, radius, "hull"))
    return tuple(bodies)


def found_boxes(kin: Kinematics, bodies: tuple[Body, ...], states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(B, 3) smallest and largest coordinates of the bodies over configurations (N, n)."""
    lower, upper = np.empty((2, len(bodies), 3))
    rotations, origins = forward_kinematics(kin, states)
    for b, body in enumerate(bodies):
        points = body.points[None]
        if body.joint >= 0:
            points = points @ rotations[:, body.joint].transpose(0, 2, 1) + origins[:, None, body.joint]
        lower[b] = points.min(axis=(0, 1)) - body.radius
        upper[b] = points.max(axis=(0, 1)) + body.radius
    return lower, upper


def attacked(attack: tuple, volume: SweptVolume, samples: int = 150) -> tuple[float, float]:
    """Largest excess over a box, m, and smallest share of a box's width that is found, over three groups."""
    model, trajectory, cells, tracking, rng = attack
    excess, share = -np.inf, np.inf
    for g in rng.integers(len(volume.times), size=3):
        (begin, end), states = volume.times[g], []
        inside = np.flatnonzero((cells.borders[:, 0] >= begin) & (cells.borders[:, 1] <= end))
        for cell in inside:
            x = sample_symbols(samples, model.n, rng)
            states.append(states_of(trajectory, np.tile(cells.borders[cell], (samples, 1)), tracking, x)[0])
        lower, upper = found_boxes(model.kinematics, model.bodies, np.concatenate(states))
        excess = max(excess, float((volume.lower[g] - lower).max()), float((upper - volume.upper[g]).max()))
        share = min(share, float(((upper - lower) / (volume.upper[g] - volume.lower[g])).min()))
    return excess, share


def setting(seed: int, n: int) -> tuple:
    rng = np.random.default_rng(seed)
    kin, _, _ = random_arm(n, rng)
    bodies = bodies_for(n, rng)
    model = SimpleNamespace(n=n, kinematics=kin, bodies=bodies)
    trajectory, tracking = random_trajectory(n, rng), random_tracking(n, rng)
    return model, trajectory, time_cells(trajectory, 48), tracking, rng


@pytest.mark.parametrize("n", [1, 3, 7, 9])
def test_no_body_leaves_its_box_and_boxes_are_tight(n: int) -> None:
    model, trajectory, cells, tracking, _ = attack = setting(n, n)
    volume = swept_boxes(model, cells, tracking, group=4)
    assert volume.names == tuple(b.name for b in model.bodies)
    assert volume.lower.shape == (-(-cells.count // 4), len(model.bodies), 3)
    assert volume.times[0, 0] == 0.0
    assert volume.times[-1, 1] == trajectory.duration
    assert np.array_equal(volume.times[1:, 0], volume.times[:-1, 1])
    assert not volume.lower.flags.writeable
    excess, share = attacked(attack, volume)
    assert excess <= 1e-12
    assert share > 0.3


@pytest.mark.parametrize("broken", ["no tracking error", "no second order", "no remainder of the joints"])
def test_a_broken_swept_volume_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, trajectory, _, tracking, rng = setting(11, 6)
    # Large errors, so that second order counts; many samples of one cell near its border.
    tracking = TrackingSet(6.0 * tracking.e, tracking.r, tracking.k_r)
    cells = time_cells(trajectory, 6)
    good = swept_boxes(model, cells, tracking, group=1)
    if broken == "no tracking error":
        bad = swept_boxes(model, cells, TrackingSet(1e-3 * tracking.e, tracking.r, tracking.k_r), group=1)
    elif broken == "no remainder of the joints":
        forms = cells.forms.copy()
        forms[..., 2] = 0.0
        bad = swept_boxes(model, dataclasses.replace(cells, forms=forms), tracking, group=1)
    else:
        turn = swept.small_turn

        def first_order(v: np.ndarray, *rest: object) -> None:
            before = v[:, -1].copy()
            turn(v, *rest)
            v[:, -1] = before

        monkeypatch.setattr(swept, "small_turn", first_order)
        monkeypatch.setattr(swept, "_kernel", swept._kernel.py_func)
        bad = swept_boxes(model, cells, tracking, group=1)
    attack = (model, trajectory, cells, tracking, rng)
    assert attacked(attack, good, 400)[0] <= 1e-12
    assert attacked(attack, bad, 400)[0] > 1e-5


def test_cells_that_break_down_bound_nothing() -> None:
    model, _, cells, tracking, _ = setting(12, 3)
    forms = cells.forms.copy()
    forms[1, 0, 1, 0] = np.nan
    volume = swept_boxes(model, dataclasses.replace(cells, forms=forms), tracking, group=2)
    moved = [b for b, body in enumerate(model.bodies) if body.joint >= 1]
    assert np.all(np.isnan(volume.lower[0, moved]))
    assert np.all(np.isfinite(volume.lower[1:]))
    with pytest.raises(PlanError, match="group = 0"):
        swept_boxes(model, cells, tracking, group=0)
