"""Distances for every pose: never above the true ones, near the smallest, and only for pairs that one joint changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from safe_sysid.control.gains.design import design_gains
from safe_sysid.planning.certification.certificate import start_check
from safe_sysid.planning.distances.pair_distances import SEARCH_DISTANCE, PairDistances
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import enclose_clearance
from safe_sysid.reachability.every_pose import bounds_at_every_pose, joint_between
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.quintic import QuinticTrajectory


@pytest.fixture(scope="module")
def ur5e() -> RobotModel:
    return load_robot("ur5e")


@pytest.mark.parametrize("robot", [pytest.param("ur5e", marks=pytest.mark.slow), "kinova_gen3", "three_joint_wall"])
def test_no_pose_is_nearer_and_some_pose_is_as_near(robot: str) -> None:
    """Against coal, at random poses and at one turn of the joint concerned."""
    model = load_robot(robot)
    bounds = bounds_at_every_pose(model)
    distances = PairDistances(model, Scene("open"))
    bodies = {body.name: body for body in model.bodies}
    rng = np.random.default_rng(1)
    random = distances.at(rng.uniform(-np.pi, np.pi, (200, model.n)), False)[0]
    assert bounds
    for column, pair in enumerate(distances.names):
        if pair not in bounds:
            continue
        joint, cost = joint_between(model.kinematics, bodies[pair[0]], bodies[pair[1]])
        assert cost < 1e-8
        turn = np.zeros((361, model.n))
        if joint >= 0:
            turn[:, joint] = np.linspace(-np.pi, np.pi, len(turn))
        smallest = float(distances.at(turn, False)[0][:, column].min())
        assert min(bounds[pair], SEARCH_DISTANCE) <= min(smallest, float(random[:, column].min())) + 1e-7
        if 0.0 < smallest < 0.09:  # farther ones are left to bounding spheres
            assert bounds[pair] >= smallest - 2e-5


def test_a_body_beside_the_axis_is_not_taken_for_one_on_it(ur5e: RobotModel) -> None:
    bodies = {body.name: body for body in ur5e.bodies}
    base, arm = bodies["base_link:0"], bodies["upper_arm_link:1"]
    assert joint_between(ur5e.kinematics, base, arm) == (1, pytest.approx(0.0, abs=1e-9))
    beside = replace(base, points=base.points + np.array([1e-6, 0.0, 0.0]))
    assert joint_between(ur5e.kinematics, beside, arm) is None
    moved = tuple(beside if body is base else body for body in ur5e.bodies)
    assert ("base_link:0", "upper_arm_link:1") not in bounds_at_every_pose(replace(ur5e, bodies=moved))


def test_a_thicker_body_is_nearer(ur5e: RobotModel) -> None:
    """No bound is remembered for another model."""
    pair = ("base_link:0", "upper_arm_link:1")
    thicker = tuple(replace(b, radius=b.radius + 0.001) if b.name == pair[0] else b for b in ur5e.bodies)
    gained = bounds_at_every_pose(ur5e)[pair] - bounds_at_every_pose(replace(ur5e, bodies=thicker))[pair]
    assert gained == pytest.approx(0.001, abs=2e-6)


def test_what_no_pose_can_do_refuses_none(ur5e: RobotModel) -> None:
    """The wrists are always 5.65 mm apart; errors in following take a tenth of a millimetre."""
    gains = design_gains(ur5e, lockstep=True)
    q = np.array([0.0, 1.4, 1.2, 0.3, 0.4, 0.0])
    cells = time_cells(QuinticTrajectory.hold(q), 1)
    found = enclose_clearance(ur5e, Scene("open"), cells, TrackingSet.of(gains, ur5e.n))
    at = found.pairs.index(("wrist_1_link:1", "wrist_3_link"))
    assert found.bounds[0, at] < 0.0056 < bounds_at_every_pose(ur5e)[found.pairs[at]]
    reasons = start_check(ur5e, ur5e.arm_prior, Scene("open"), gains, q, 0.0056)
    assert not any("wrist_3_link" in reason for reason in reasons)
