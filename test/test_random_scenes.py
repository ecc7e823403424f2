"""Random scenes: the same seed gives the same scene, start and goal are clear and can be held, for any arm."""

from __future__ import annotations

import numpy as np
import pytest

from safe_sysid.control.gains import ControllerGains
from safe_sysid.planning.certification.certificate import start_check
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation import NO_PAYLOAD, Plant
from safe_sysid.simulation.random_scenes import ALL_KINDS, random_scene


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_scenes_are_repeatable_clear_and_holdable(model: RobotModel, gains: ControllerGains, seed: int) -> None:
    kinds = ALL_KINDS if seed % 2 else ("box",)
    scene, again = (random_scene(model, np.random.default_rng(seed), kinds=kinds, gains=gains) for _ in range(2))
    assert 3 <= len(scene.obstacles) <= 10
    assert {o.kind for o in scene.obstacles} <= set(kinds)
    for one, two in zip(scene.obstacles, again.obstacles, strict=True):
        np.testing.assert_array_equal(one.points, two.points)
    assert scene.start is not None
    assert scene.goal is not None
    np.testing.assert_array_equal(scene.start, again.start)
    plant = Plant(model, model.theta_nominal, NO_PAYLOAD, scene)
    for q in (scene.start, scene.goal):
        assert not start_check(model, model.arm_prior, scene, gains, q)
        assert plant.clearance(q)[0] > 0.0
    # Obstacles are in the way, not somewhere: most can be touched by the arm.
    reach = np.linalg.norm(model.kinematics.translation, axis=1).sum() + 0.4
    assert all(np.linalg.norm(o.xyz) < reach + 0.5 for o in scene.obstacles)
