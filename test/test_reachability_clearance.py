"""Attacks on poses and clearances: points and distances at sampled tracking errors, random arms and the Gen3."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from arm_factory import random_arm
from geometry_support import random_obstacles
from hypothesis import given, settings
from hypothesis import strategies as st
from reachability_attack import attack_clearance, body_distances, states_in
from reachability_support import random_tracking, random_trajectory

from safe_sysid.errors import PlanError
from safe_sysid.reachability import clearance
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import clearance_pairs, coal_core, enclose_clearance
from safe_sysid.reachability.pose import point_ranges, relative_poses
from safe_sysid.reachability.separation import separation_kernel
from safe_sysid.robot import Body, Scene, SceneBox, SceneSphere, forward_kinematics, load_robot, load_scene
from safe_sysid.trajectories.quintic import QuinticTrajectory

SEEDS = st.integers(0, 2**32 - 1)
#: coal's own tolerance on distances, m.
COAL = 2e-6
SCENE_BOX = SceneBox("post", np.array([0.4, 0.1, 0.3]), np.array([0.2, -0.4, 1.0]), np.array([0.1, 0.2, 0.5]))


def bodies_of(n: int, rng: np.random.Generator) -> tuple[Body, ...]:
    """A ball, segments and boxes, some flat, on random joints and on the base."""
    out = [Body("foot", -1, rng.normal(scale=0.1, size=(2, 3)), 0.05, "base")]
    for j in range(n):
        count = int(rng.choice([1, 2, 3, 4, 8]))
        points = rng.normal(scale=0.1, size=(count, 3))
        if count == 4 and rng.random() < 0.5:
            points[:, 2] = 0.0
        out.append(Body(f"body_{j}", j, points, float(rng.choice([0.0, 0.03]))))
    return tuple(out)


def stand_in(kin: object, bodies: tuple[Body, ...], allowed: frozenset = frozenset()) -> SimpleNamespace:
    """What clearance needs of a model."""
    return SimpleNamespace(kinematics=kin, bodies=bodies, allowed_pairs=allowed, n=len(kin.axis))


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_points_stay_in_their_boxes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    kin, _, _ = random_arm(n, rng)
    trajectory, tracking = random_trajectory(n, rng), random_tracking(n, rng)
    cells = time_cells(trajectory, 32)
    rotations, origins = relative_poses(kin, cells, tracking)
    points = rng.normal(scale=0.3, size=(3, 3))
    for cell in rng.integers(cells.count, size=3):
        q = states_in(cells.grid[cell : cell + 2], trajectory, tracking, 40, rng)[0]
        r, p = forward_kinematics(kin, q)
        r = np.concatenate([np.tile(np.eye(3), (40, 1, 1, 1)), r], axis=1)
        p = np.concatenate([np.zeros((40, 1, 3)), p], axis=1)
        for a in range(n + 1):
            for b in range(a, n + 1):
                box = point_ranges(rotations[cell : cell + 1, a, b], origins[cell : cell + 1, a, b], points)[0]
                world = np.einsum("kij,pj->kpi", r[:, b], points) + p[:, b][:, None]
                seen = np.einsum("kji,kpj->kpi", r[:, a], world - p[:, a][:, None])
                assert np.all(box[..., 0] <= seen + 1e-12)
                assert np.all(seen <= box[..., 1] + 1e-12)


def test_point_boxes_are_tight() -> None:
    model = load_robot("kinova_gen3")
    rng = np.random.default_rng(0)
    tracking = TrackingSet(np.full(7, 0.012), np.full(7, 0.06), np.full(7, 5.0))
    q = np.array(model.settings.home)
    trajectory = QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), q + 0.3, 3.0)
    cells = time_cells(trajectory, 128)
    rotations, origins = relative_poses(model.kinematics, cells, tracking)
    box = point_ranges(rotations[60:61, 0, 7], origins[60:61, 0, 7], np.array([[0.0, 0.0, -0.2]]))[0, 0]
    q = states_in(cells.grid[60:62], trajectory, tracking, 20000, rng)[0]
    r, p = forward_kinematics(model.kinematics, q)
    tip = p[:, 6] + r[:, 6] @ np.array([0.0, 0.0, -0.2])
    assert np.all(np.ptp(tip, axis=0) > 0.7 * (box[:, 1] - box[:, 0]))


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_verified_bounds_stay_below_the_distance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    kin, _, _ = random_arm(n, rng)
    model, scene = stand_in(kin, bodies_of(n, rng)), Scene("test", (SCENE_BOX, *random_obstacles(rng)))
    trajectory, tracking = random_trajectory(n, rng), random_tracking(n, rng)
    cells = time_cells(trajectory, 24)
    found = enclose_clearance(model, scene, cells, tracking, near=float(rng.choice([0.0, 0.1, 10.0])))
    shapes, pairs = clearance_pairs(model, scene)
    assert found.bounds.shape == (cells.count, len(pairs))
    for cell in rng.integers(cells.count, size=2):
        q = states_in(cells.grid[cell : cell + 2], trajectory, tracking, 10, rng)[0]
        for column, (a, b) in enumerate(pairs):
            # The stand-in for a flat body is thicker than the body: as an oracle it errs by that.
            thick = sum(coal_core(s)[3] for s in (shapes[a], shapes[b]) if len(s.points) > 2)
            distance = body_distances(kin, shapes[a], shapes[b], q).min()
            # When bodies overlap, coal's depth and a separating direction need not agree: only the sign counts.
            assert found.bounds[cell, column] <= max(distance, 0.0) + thick + COAL


def test_the_gen3_among_boxes_withstands_descent_and_is_tight() -> None:
    model, scene = load_robot("kinova_gen3"), load_scene("six_boxes")
    rng = np.random.default_rng(1)
    tracking = TrackingSet(np.full(7, 0.012), np.full(7, 0.06), np.full(7, 5.0))
    q = np.asarray(scene.start)
    trajectory = QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), q + rng.uniform(-0.3, 0.3, 7), 3.0)
    cells = time_cells(trajectory, 128)
    found = enclose_clearance(model, scene, cells, tracking)
    told = model, scene, trajectory, cells, tracking, found
    worst, given_away = attack_clearance(*told, rng, which=[0, 50, 80], steps=10)
    assert worst <= COAL
    assert given_away < 1e-3


def test_a_wrong_direction_gives_a_weak_bound_not_a_wrong_one() -> None:
    rng = np.random.default_rng(2)
    kin, _, _ = random_arm(3, rng)
    trajectory, tracking = random_trajectory(3, rng), random_tracking(3, rng)
    cells = time_cells(trajectory, 8)
    rotations, origins = relative_poses(kin, cells, tracking)
    a = Body("a", 0, rng.normal(scale=0.05, size=(2, 3)), 0.02)
    b = Body("b", 2, rng.normal(scale=0.05, size=(8, 3)), 0.0)
    points, first = np.concatenate([a.points, b.points]), np.array([0, 2, 10])
    useless = np.array([0.0, np.nan, 1e300])[:, None] * np.ones(3)
    directions = np.vstack([rng.normal(size=(60, 3)), useless])
    tasks = np.tile([3, 0, 1], (len(directions), 1))
    out = np.full(len(directions), -np.inf)
    args = (rotations, origins, points, first, np.array([1, 3]), np.array([a.radius, b.radius]))
    separation_kernel(*args, tasks, directions, out)
    q = states_in(cells.grid[3:5], trajectory, tracking, 200, rng)[0]
    distance = body_distances(kin, a, b, q).min()
    assert np.all(out <= distance + COAL)
    assert np.all(out[-3:] == -np.inf)
    # Length does not count, and the best of many directions comes near the distance.
    scaled = np.full(len(directions), -np.inf)
    separation_kernel(*args, tasks, 1e-3 * directions, scaled)
    np.testing.assert_allclose(scaled[:60], out[:60], rtol=1e-9, atol=1e-12)


def test_pairs_that_count() -> None:
    model, scene = load_robot("kinova_gen3"), load_scene("six_boxes")
    shapes, pairs = clearance_pairs(model, scene)
    names = {frozenset((shapes[a].name, shapes[b].name)) for a, b in pairs}
    assert frozenset(("ground", "base_link")) not in names
    assert frozenset(("ground", "payload")) in names
    assert frozenset(("payload", "forearm_link")) in names
    assert not names & set(model.allowed_pairs)
    joint = {s.name: s.joint for s in shapes}
    boxes = {box.name for box in scene.obstacles}
    # Everything else is there: every two bodies of different joints, every body with every box, no two boxes.
    bodies = [b.name for b in model.bodies]
    expected = {frozenset((a, b)) for a in bodies for b in bodies if joint[a] != joint[b]}
    expected |= {frozenset((a, b)) for a in bodies for b in boxes}
    assert names == expected - set(model.allowed_pairs) - set(scene.allowed_pairs)
    assert all(shapes[a].joint <= shapes[b].joint for a, b in pairs)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_enclosure_is_no_clearance(broken: float) -> None:
    rng = np.random.default_rng(3)
    kin, _, _ = random_arm(2, rng)
    cells = time_cells(random_trajectory(2, rng), 4)
    forms = cells.forms.copy()
    forms[2, 0, 0, 0] = broken
    model = stand_in(kin, (Body("base", -1, np.zeros((1, 3)), 0.01), Body("tip", 1, np.ones((1, 3)), 0.01)))
    found = enclose_clearance(model, Scene("open"), type(cells)(cells.grid, forms), random_tracking(2, rng))
    assert not np.any(found.bounds[2] >= 0.0)
    assert np.all(np.isfinite(found.bounds[[0, 1, 3]]))


def test_no_pairs_no_bounds() -> None:
    rng = np.random.default_rng(4)
    kin, _, _ = random_arm(1, rng)
    cells = time_cells(random_trajectory(1, rng), 4)
    found = enclose_clearance(stand_in(kin, ()), Scene("open"), cells, random_tracking(1, rng))
    assert found.bounds.shape == (cells.count, 0)


# --- directions: re-used, re-checked, lied about ---


def gen3_case(seed: int, cells: int = 64) -> tuple:
    """The Gen3 among obstacles of all kinds, along some motion."""
    model = load_robot("kinova_gen3")
    rng = np.random.default_rng(seed)
    scene = Scene("all kinds", (*load_scene("six_boxes").obstacles, *random_obstacles(rng)))
    tracking = TrackingSet(rng.uniform(0.005, 0.02, 7), np.full(7, 0.06), np.full(7, 5.0))
    q = np.asarray(load_scene("six_boxes").start)
    trajectory = QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), q + rng.uniform(-0.6, 0.6, 7), 3.0)
    return model, scene, time_cells(trajectory, cells), tracking, trajectory


def test_directions_make_the_bounds_again_without_coal_and_threads_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, scene, cells, tracking, _ = gen3_case(0)
    found = enclose_clearance(model, scene, cells, tracking)
    assert found.directions.shape == (cells.count, len(found.pairs), 3)
    two = enclose_clearance(model, scene, cells, tracking, threads=2)
    np.testing.assert_array_equal(two.bounds, found.bounds)
    np.testing.assert_array_equal(two.directions, found.directions)
    monkeypatch.setattr(clearance, "_propose", None)  # calling it would fail
    again = enclose_clearance(model, scene, cells, tracking, directions=found.directions)
    np.testing.assert_array_equal(again.bounds, found.bounds)
    with pytest.raises(PlanError, match="expected"):
        enclose_clearance(model, scene, cells, tracking, directions=found.directions[:, :-1])


def test_asking_coal_rarely_gives_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        model, scene, cells, tracking, _ = gen3_case(seed)
        asked = []
        propose = clearance._propose
        monkeypatch.setattr(clearance, "_propose", lambda *a: asked.append(len(a[1])) or propose(*a))  # noqa: B023
        few = enclose_clearance(model, scene, cells, tracking)
        rarely, asked[:] = sum(asked), []
        monkeypatch.setattr(clearance, "_STRIDE", 1)
        all_ = enclose_clearance(model, scene, cells, tracking)
        monkeypatch.undo()
        assert rarely < 0.4 * sum(asked)
        close = all_.bounds < 0.05
        assert np.any(close)
        assert np.all((all_.bounds - few.bounds)[close] < 2e-3)
        assert np.all((all_.bounds > 0.0) <= (few.bounds > -1e-3))


def test_far_pairs_never_reach_coal(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, cells, tracking, _ = gen3_case(0)
    far = Scene("far", tuple(SceneBox(f"b{i}", np.array([3.0, i, 0.0]), np.zeros(3), np.ones(3)) for i in range(3)))
    seen = set()
    propose = clearance._propose
    monkeypatch.setattr(clearance, "_propose", lambda *a: seen.update(a[0]) or propose(*a))
    found = enclose_clearance(model, far, cells, tracking)
    assert seen
    assert min(seen) >= len(far.obstacles)
    assert np.all(found.bounds[:, ~found.is_self] > clearance.NEAR)


def test_lies_about_directions_only_weaken_bounds() -> None:
    model, scene, cells, tracking, _ = gen3_case(1, 16)
    found = enclose_clearance(model, scene, cells, tracking, near=10.0)
    rng = np.random.default_rng(0)
    lies = {
        "noise": rng.normal(size=found.directions.shape),
        "other way": -found.directions,
        "of other pairs": np.roll(found.directions, 1, axis=1),
        "of other cells": np.roll(found.directions, 3, axis=0),
        "nan": np.full(found.directions.shape, np.nan),
        "huge": np.full(found.directions.shape, 1e200),
        "tiny": 1e-200 * found.directions,
    }
    for name, lie in lies.items():
        told = enclose_clearance(model, scene, cells, tracking, near=10.0, directions=lie)
        # coal's direction is the best at the middle of a cell; another may be better over the whole of it, a little.
        assert np.all(told.bounds <= np.maximum(found.bounds, 0.0) + 2e-2), name
        assert not np.any(np.isnan(told.bounds)), name


@pytest.mark.parametrize(
    "mutation", ["nothing", "no tracking error", "radii lost", "one obstacle moved", "cells swapped"]
)
def test_broken_clearances_are_found_by_descent(mutation: str) -> None:
    """What an implementation may get wrong: the attack of the certificate must see it."""
    model, scene, cells, tracking, trajectory = gen3_case(4)
    told = (model, scene, cells, tracking)
    if mutation == "no tracking error":
        told = (model, scene, cells, TrackingSet(1e-6 * tracking.e, tracking.r, tracking.k_r))
    elif mutation == "radii lost":
        thin = tuple(Body(b.name, b.joint, b.points, 0.9 * b.radius, b.kind) for b in model.bodies)
        told = (dataclasses.replace(model, bodies=thin), scene, cells, tracking)
    elif mutation == "one obstacle moved":
        first, second, *others = scene.obstacles
        moved = dataclasses.replace(second, xyz=[0.7, 0.0, -0.005])
        told = (model, Scene("moved", (first, moved, *others)), cells, tracking)
    found = enclose_clearance(*told)
    if mutation == "cells swapped":
        found = dataclasses.replace(found, bounds=np.roll(found.bounds, 8, axis=0))
    attacked = model, scene, trajectory, cells, tracking, found, np.random.default_rng(0)
    worst, _ = attack_clearance(*attacked, which=[10, 50], nearest=16, samples=4, steps=6)
    assert (worst > 10 * COAL) == (mutation != "nothing"), worst


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_spheres_alone_are_bounded_soundly(seed: int) -> None:
    """Bodies that are balls: what culling says is all there is, and it is attacked at its own border."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    kin, _, _ = random_arm(n, rng)
    bodies = [Body("base", -1, rng.normal(scale=0.2, size=(1, 3)), 0.05, "base")]
    bodies += [Body(f"b{j}", j, rng.normal(scale=0.2, size=(1, 3)), 0.02) for j in range(n)]
    model, scene = stand_in(kin, tuple(bodies)), Scene("s", (SceneSphere("ball", rng.normal(size=3), 0.1),))
    trajectory, tracking = random_trajectory(n, rng), random_tracking(n, rng)
    cells = time_cells(trajectory, 24)
    found = enclose_clearance(model, scene, cells, tracking, near=-np.inf)  # everything is culled
    tight = enclose_clearance(model, scene, cells, tracking, near=np.inf)
    assert np.all(found.bounds <= tight.bounds + 1e-9)
    shapes, pairs = clearance_pairs(model, scene)
    for cell in rng.integers(cells.count, size=3):
        q = states_in(cells.grid[cell : cell + 2], trajectory, tracking, 60, rng)[0]
        r, p = forward_kinematics(kin, q)
        points = [(s.joint, s.points[0]) for s in shapes]
        centre = [np.tile(x, (60, 1)) if j < 0 else r[:, j] @ x + p[:, j] for j, x in points]
        for column, (a, b) in enumerate(pairs):
            true = np.linalg.norm(centre[a] - centre[b], axis=1).min() - shapes[a].radius - shapes[b].radius
            assert tight.bounds[cell, column] <= true + 1e-12
