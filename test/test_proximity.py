"""The optimiser's distances: near the truth for every kind of obstacle, exact slopes, and culling changes nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import coal
import numpy as np
import pytest
from geometry_support import random_obstacles
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.planning.distances.balls import cover
from safe_sysid.planning.distances.proximity import FAR_AWAY, SEARCH_DISTANCE, Proximity
from safe_sysid.planning.distances.solids import Solids, solid_distance
from safe_sysid.reachability.clearance import coal_core
from safe_sysid.robot import Body, RobotModel, Scene, forward_kinematics, load_scene

SEEDS = st.integers(0, 2**32 - 1)


def around_the_arm(rng: np.random.Generator) -> Scene:
    """All kinds of obstacles, twice, within the arm's reach."""
    found = [o for _ in range(2) for o in random_obstacles(rng)]
    for i, o in enumerate(found):
        object.__setattr__(o, "name", f"{o.name}_{i}")
    return Scene("s", tuple(found))


def library_distance(first: Body, a: coal.Transform3s, second: Body, b: coal.Transform3s) -> float:
    shapes = [coal_core(body) for body in (first, second)]
    poses = [pose * coal.Transform3s(s[1], s[2]) for pose, s in zip((a, b), shapes, strict=True)]
    result = coal.DistanceResult()
    coal.distance(shapes[0][0], poses[0], shapes[1][0], poses[1], coal.DistanceRequest(), result)
    return result.min_distance - sum(body.radius - s[3] for body, s in zip((first, second), shapes, strict=True))


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_a_point_and_a_solid_are_as_far_apart_as_the_library_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for obstacle in random_obstacles(rng):
        body = obstacle.body()
        solids = Solids.of([body])
        work = np.zeros((4, 3))
        for _ in range(6):
            x = obstacle.xyz + rng.normal(scale=0.3, size=3)
            arguments = (x, solids.radius[0], solids.ends[0], solids.triangles, solids.planes)
            found, _ = solid_distance(*arguments, 1e29, work)
            normal = work[0].copy()
            ball = Body("x", -1, x[None], 0.0)
            true = library_distance(ball, coal.Transform3s(), body, coal.Transform3s())
            if true > 1e-3:
                assert found == pytest.approx(true, abs=3e-4)  # flat hulls are a little thick on both sides
                step = 1e-7 * normal
                ahead, _ = solid_distance(x + step, *arguments[1:], 1e29, work)
                assert (ahead - found) / 1e-7 == pytest.approx(1.0, abs=1e-4)
            elif true < -1e-3:
                assert found < 0.0
            assert solid_distance(*arguments, found - 1e-9, work)[0] == 1e30


def all_values(proximity: Proximity, kin: object, q: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = proximity.distances(*forward_kinematics(kin, q), e)
    parts = (found.clearance, found.self_clearance), (found.clearance_slope, found.self_slope)
    return tuple(np.concatenate(part, axis=1) for part in parts)


@pytest.mark.parametrize("seed", range(3))
def test_slopes_are_exact_tracking_reach_included(model: RobotModel, seed: int) -> None:
    rng = np.random.default_rng(seed)
    proximity, e = Proximity.build(model, around_the_arm(rng)), rng.uniform(0.0, 0.05, 7)
    q = rng.uniform(-2.0, 2.0, (40, 7))
    value, slope = all_values(proximity, model.kinematics, q, e)
    h, wrong, total = 1e-6, 0, 0
    for i in range(7):
        up, down = (all_values(proximity, model.kinematics, q + s * h * np.eye(7)[i], e)[0] for s in (1.0, -1.0))
        seen = (np.abs(value) < 900.0) & (np.abs(up) < 900.0) & (np.abs(down) < 900.0)
        error = np.abs((up - down) / (2.0 * h) - slope[..., i])[seen]
        wrong += int(np.sum(error > 1e-7))
        total += error.size
    assert total > 500
    assert wrong <= 0.005 * total  # where the nearest pair changes between the two


@pytest.mark.parametrize("seed", range(2))
def test_culling_changes_nothing(model: RobotModel, seed: int) -> None:
    rng = np.random.default_rng(10 + seed)
    scene = around_the_arm(rng)
    proximity = Proximity.build(model, scene)
    solids, balls = Solids.of(scene.bodies()), cover(model.bodies)
    q = rng.uniform(-2.0, 2.0, (6, 7))
    r, p = forward_kinematics(model.kinematics, q)
    found, work = proximity.distances(r, p, np.zeros(7)), np.zeros((4, 3))
    for m in range(len(q)):
        for f, frame in enumerate(proximity.frames):
            best = np.inf
            for b in np.flatnonzero(balls.joint == frame):
                x = r[m, frame] @ balls.centre[b] + p[m, frame]
                for o in range(len(solids.radius)):
                    rows = slice(solids.first[o], solids.first[o + 1])
                    args = (solids.radius[o], solids.ends[o], solids.triangles[rows], solids.planes[rows])
                    best = min(best, solid_distance(x, *args, 1e29, work)[0] - balls.radius[b])
            assert found.clearance[m, f] == pytest.approx(best if best < SEARCH_DISTANCE else FAR_AWAY, abs=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_frame_by_frame_the_truth_is_near(model: RobotModel, seed: int) -> None:
    rng = np.random.default_rng(20 + seed)
    scene = around_the_arm(rng)
    proximity = Proximity.build(model, scene)
    q = rng.uniform(-2.0, 2.0, (8, 7))
    r, p = forward_kinematics(model.kinematics, q)
    found = proximity.distances(r, p, np.zeros(7))
    for m in range(len(q)):
        for f, frame in enumerate(proximity.frames):
            pose = coal.Transform3s(r[m, frame], p[m, frame])
            pairs = product([body for body in model.bodies if body.joint == frame], scene.bodies())
            true = min(library_distance(body, pose, obstacle, coal.Transform3s()) for body, obstacle in pairs)
            if -0.02 < true < SEARCH_DISTANCE - 0.05:
                assert found.clearance[m, f] == pytest.approx(true, abs=0.045)


def test_what_may_touch_is_not_looked_at_and_nothing_near_is_far_away(model: RobotModel) -> None:
    scene = load_scene("six_boxes")
    q = np.tile(scene.start, (2, 1))
    r, p = forward_kinematics(model.kinematics, q)
    far = Proximity.build(model, Scene("open")).distances(r, p, np.full(7, 0.02))
    assert np.all(far.clearance == FAR_AWAY)
    assert not np.any(far.clearance_slope)
    near = Proximity.build(model, scene).distances(r, p, np.full(7, 0.02)).clearance[0]
    worst = int(np.argmin(near))
    names = [b.name for b in model.bodies if b.joint == Proximity.build(model, scene).frames[worst]]
    free = frozenset(frozenset((o.name, n)) for o in scene.obstacles for n in names)
    relaxed = Proximity.build(model, Scene("s", scene.obstacles, free)).distances(r, p, np.full(7, 0.02))
    assert relaxed.clearance[0, worst] == FAR_AWAY
    others = np.arange(len(near)) != worst
    np.testing.assert_array_equal(relaxed.clearance[0, others], near[others])


def test_tracking_errors_cost_what_they_can_move(model: RobotModel) -> None:
    rng = np.random.default_rng(5)
    proximity, e = Proximity.build(model, around_the_arm(rng)), rng.uniform(0.0, 0.01, 7)
    q = rng.uniform(-2.0, 2.0, (20, 7))
    exact, _ = all_values(proximity, model.kinematics, q, np.zeros(7))
    reduced, _ = all_values(proximity, model.kinematics, q, e)
    for _ in range(50):
        moved, _ = all_values(proximity, model.kinematics, q + e * rng.choice([-1.0, 1.0], 7), np.zeros(7))
        seen = (exact < 900.0) & (moved < 900.0)
        assert np.all((reduced - moved)[seen] <= 1e-3)  # to first order


def test_an_arm_without_bodies_on_some_frames(model: RobotModel) -> None:
    rng = np.random.default_rng(0)
    bodies = (Body("base", -1, np.zeros((1, 3)), 0.1, "base"), Body("tip", 2, np.zeros((2, 3)), 0.05))
    few = replace(model, bodies=bodies, allowed_pairs=frozenset())
    proximity = Proximity.build(few, around_the_arm(rng))
    assert proximity.frames.tolist() == [2]
    value, slope = all_values(proximity, model.kinematics, rng.uniform(-1, 1, (4, 7)), np.zeros(7))
    assert value.shape == (4, 2)
    assert slope.shape == (4, 2, 7)
    nothing = replace(model, bodies=(), allowed_pairs=frozenset())
    poses = forward_kinematics(model.kinematics, np.zeros((2, 7)))
    empty = Proximity.build(nothing, Scene("open")).distances(*poses, np.zeros(7))
    assert empty.clearance.shape == (2, 0)
    assert np.all(empty.self_clearance == FAR_AWAY)
