"""The benchmarks of tightness: the hull that they sample is reached, and the peer's problem is the peer's."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from arm_factory import random_arm
from peer_setup import CENTRE, RANGE, SPHERES, peer_family, peer_model
from reachability_support import random_box, random_tracking
from sampled_hull import Motion, point_hull, torque_hull

from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.reachability.cells import time_cells
from safe_sysid.reachability.pose import point_ranges, relative_poses
from safe_sysid.reachability.torque import enclose_torque

CELLS = 8


def test_hull_is_inside_the_enclosures_and_close() -> None:
    rng, n, transition = np.random.default_rng(3), 4, 0.2
    kin, _, theta = random_arm(n, rng)
    box, tracking, damping = random_box(theta, rng), random_tracking(n, rng), rng.uniform(5, 50, n)
    state = np.stack([rng.uniform(-3, 3, n), rng.uniform(-0.3, 0.3, n), rng.uniform(-0.5, 0.5, n)])
    family = TrajectoryFamily(state, rng.uniform(0.05, 0.3, n), 2.0)
    trajectory = family.trajectory(rng.uniform(-1, 1, n))
    cells = time_cells(trajectory, CELLS)
    motion, which = Motion(trajectory, cells, tracking), np.array([0, 3, 7])
    (hull,) = torque_hull(kin, box, motion, damping, transition, which, rng)
    found = enclose_torque(kin, box, cells, tracking, damping, np.ones(n), transition).torque[which]
    assert np.all(hull[..., 0] >= found[..., 0] - 1e-9)
    assert np.all(hull[..., 1] <= found[..., 1] + 1e-9)
    assert np.median(np.ptp(hull, axis=-1) / np.ptp(found, axis=-1)) > 0.5
    points = rng.normal(size=(n, 3)) * 0.2
    reached = point_hull(kin, np.arange(n), points, motion, which, rng)
    rotations, origins = relative_poses(kin, cells, tracking)
    boxes = [point_ranges(rotations[:, 0, j + 1], origins[:, 0, j + 1], points[None, j]) for j in range(n)]
    inside = np.concatenate(boxes, axis=1)[which]
    assert np.all(reached[..., 0] >= inside[..., 0] - 1e-9)
    assert np.all(reached[..., 1] <= inside[..., 1] + 1e-9)


def test_peer_problem_is_the_peers() -> None:
    model = peer_model("declared", joints_certain=True)
    theta, box = model.theta_nominal, model.arm_prior
    share = box.rad[:70] / np.maximum(np.abs(theta[:70]), 1e-300)
    assert np.allclose(share[:60][theta[:60] != 0.0], 0.05)
    assert np.allclose(share[60:][theta[60:70] != 0.0], 0.2)
    assert np.all(box.rad[70:] == 0.0)
    uncertain = peer_model("declared").arm_prior
    assert np.all(uncertain.rad[12 * 7 : 13 * 7] >= 0.0499 * theta[12 * 7 : 13 * 7])
    start, goal = np.linspace(-1, 1, 7), np.array([1.0, -1, 1, -1, 1, -1, 1]) * 3
    family = peer_family(start, goal)
    for k in (-np.ones(7), np.ones(7)):
        end = family.trajectory(k).knots[-1, 0]
        assert np.allclose(np.abs(end - start - CENTRE * np.sign(goal - start)), RANGE)
    assert len(SPHERES) == 20
