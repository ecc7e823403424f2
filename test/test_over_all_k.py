"""Sets over all k (benchmarks only, but what they are compared with must be right): laws, attacks, mutations."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from arm_factory import random_arm
from over_all_k import OverAllK
from peer_setup import CENTRE, RANGE, SPHERES, PublishedGains, nothing, peer_family, peer_model, sphere_growth
from polynomial_sets import Basis, PolySet
from reachability_attack import sample_symbols, states_of
from reachability_support import random_box, random_tracking
from sampled_hull import Motion, point_hull, torque_hull

from safe_sysid.dynamics import dynamics_of
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.reachability.cells import time_cells
from safe_sysid.reachability.torque import enclose_torque
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.parameters import ParameterBox

CELLS = 8
WAYS = [("shared", 2, 0), ("shared", 3, 0), ("armour", 2, 0), ("armour", 3, 20), ("shared", 3, 12)]


class Problem:
    """A random arm, box, family, tracking set and damping."""

    def __init__(self, seed: int, n: int, size: float = 0.3) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.n = rng, n
        self.kin, _, theta = random_arm(n, rng)
        self.box, self.tracking = random_box(theta, rng), random_tracking(n, rng)
        state = np.stack([rng.uniform(-3, 3, n), rng.uniform(-0.3, 0.3, n), rng.uniform(-0.5, 0.5, n)])
        self.family = TrajectoryFamily(state, rng.uniform(0.05, size, n), 2.0)
        self.damping = rng.uniform(5, 50, n)
        self.transition = float(rng.choice([0.01, 0.2]))

    def build(self, symbols: str, degree: int, order: int) -> OverAllK:
        return OverAllK.build(
            self.kin,
            self.box,
            self.family,
            CELLS,
            self.tracking,
            self.damping,
            self.transition,
            degree=degree,
            symbols=symbols,
            order=order,
        )

    def excess(self, sets: OverAllK, trials: int = 4, tracking: object = None) -> tuple[float, float]:
        """Largest distance of a reached torque (N m) and of a reached point (m) outside of the sets."""
        rng, n, worst, far = self.rng, self.n, -np.inf, -np.inf
        for trial in range(trials):
            k = rng.choice([-1.0, 1.0], n) * (1.0 if trial == 0 else rng.random(n) ** 0.3)
            trajectory = self.family.trajectory(k)
            grid = time_cells(trajectory, CELLS).grid
            torque, x = sets.torque(k), sample_symbols(300, n, rng)
            cell = rng.integers(CELLS, size=300)
            borders = np.stack([grid[cell], grid[cell + 1]], axis=1)
            q, qd, qd_a, qdd_a, r = states_of(trajectory, borders, tracking or self.tracking, x)
            w = dynamics_of(self.kin).slotine_li_regressor(q, qd, qd_a, qdd_a, self.transition)
            nominal, spread = w @ self.box.mid + self.damping * r, np.abs(w) @ self.box.rad
            over = np.maximum(
                nominal + spread - torque.torque[cell, :, 1], torque.torque[cell, :, 0] - nominal + spread
            )
            worst = max(worst, float(over.max()), float((spread - torque.spread[cell]).max()))
            points = rng.normal(size=(n, 3)) * 0.3
            boxes = sets.points(np.arange(n), points, k)[cell]
            rotations, origins = forward_kinematics(self.kin, q)
            world = np.einsum("bnij,nj->bni", rotations, points) + origins
            far = max(far, float(np.maximum(world - boxes[..., 1], boxes[..., 0] - world).max()))
        return worst, far


@pytest.mark.parametrize(("symbols", "degree", "order"), WAYS)
def test_no_reachable_state_is_outside(symbols: str, degree: int, order: int) -> None:
    for seed, n in ((0, 1), (1, 2), (2, 4)):
        problem = Problem(seed, n)
        torque, point = problem.excess(problem.build(symbols, degree, order))
        assert torque <= 1e-9
        assert point <= 1e-9


def test_sets_of_the_widest_family_hold_too() -> None:
    problem = Problem(5, 3, size=1.5)
    assert max(problem.excess(problem.build("shared", 2, 0))) <= 1e-9


def test_attack_finds_a_lost_remainder() -> None:
    problem = Problem(7, 3, size=1.5)
    # A known arm with next to no tracking error: the spread's own slack cannot hide what is lost.
    problem.box = ParameterBox(problem.box.mid, problem.box.mid)
    problem.tracking = nothing(problem.tracking)
    sets = problem.build("shared", 2, 0)
    assert problem.excess(sets)[0] <= 1e-9
    still = replace(sets, nominal=PolySet(sets.basis, sets.nominal.c, 0.0 * sets.nominal.rho))
    assert problem.excess(still)[0] > 1e-3
    moved = replace(sets, origins=PolySet(sets.basis, sets.origins.c, 0.0 * sets.origins.rho))
    moved = replace(moved, rotations=PolySet(sets.basis, sets.rotations.c, 0.0 * sets.rotations.rho))
    assert problem.excess(moved)[1] > 1e-5


def test_attack_finds_a_tube_that_is_too_small() -> None:
    problem = Problem(8, 3, size=0.1)
    wider = replace(problem.tracking, e=1.5 * problem.tracking.e, r=1.5 * problem.tracking.r)
    for symbols in ("shared", "armour"):
        assert problem.excess(problem.build(symbols, 3, 0), tracking=wider)[0] > 1e-2


def random_sets(basis: Basis, count: int, rng: np.random.Generator, radius: float = 0.1) -> PolySet:
    c = rng.normal(size=(count, basis.size)) * rng.uniform(0.0, 1.0, (count, 1))
    return PolySet(basis, c, radius * rng.random(count))


def values(sets: PolySet, k: np.ndarray, eps: np.ndarray, u: np.ndarray) -> np.ndarray:
    centre, linear, _ = sets.slice(k)
    return centre + linear @ eps + sets.rho * u


@pytest.mark.parametrize("order", [0, 6])
def test_every_operation_holds_the_exact_result(order: int) -> None:
    rng, basis = np.random.default_rng(1), Basis(3, (1, 2, 2), 2, order)
    for _ in range(200):
        x, y = random_sets(basis, 3, rng), random_sets(basis, 3, rng)
        k = np.sign(rng.normal(size=3)) * rng.random(3) ** 0.2
        eps = rng.normal(size=5)
        eps[0] = np.clip(eps[0], -1, 1)
        for part in (slice(1, 3), slice(3, 5)):
            eps[part] /= np.linalg.norm(eps[part])
        a = values(x, k, eps, np.sign(rng.normal(size=3)))
        b = values(y, k, eps, np.sign(rng.normal(size=3)))
        sine, cosine = x.sin_cos()
        for exact, found in (
            (a * b, x * y),
            (a + b, x + y),
            (a - b, x - y),
            (2.3 * a, x.scaled(np.full(3, 2.3))),
            (a.sum(), x.sum(0)),
            (np.sin(a), sine),
            (np.cos(a), cosine),
        ):
            centre, linear, rho = found.slice(k)
            assert np.all(np.abs(exact - centre - linear @ eps) <= rho + 1e-12)
            reach = np.abs(exact - found.c[..., 0])
            assert np.all(reach <= found.reach() + 1e-12)


def test_rounding_of_a_product_is_in_the_remainder() -> None:
    """Constant times affine drops nothing: all that rho may hold is rounding, and it must hold all of it."""
    rng, basis, lost = np.random.default_rng(2), Basis(2, (1,), 2), 0
    for _ in range(200):
        x, y = random_sets(basis, 1, rng, 0.0), random_sets(basis, 1, rng, 0.0)
        x.c[0, 1:] = 0.0
        product = x * y
        error = sum(
            abs(Fraction(float(x.c[0, 0])) * Fraction(float(v)) - Fraction(float(w)))
            for v, w in zip(y.c[0], product.c[0], strict=True)
        )
        lost += error > 0
        assert error <= Fraction(float(product.rho[0]))
        assert product.rho[0] < 1e-11
    assert lost > 100


def test_hull_is_inside_the_enclosures_and_close() -> None:
    problem = Problem(3, 4)
    k = problem.rng.uniform(-1, 1, 4)
    trajectory = problem.family.trajectory(k)
    cells = time_cells(trajectory, CELLS)
    motion, which = Motion(trajectory, cells, problem.tracking), np.array([0, 3, 7])
    (hull,) = torque_hull(
        problem.kin, problem.box, motion, problem.damping, problem.transition, which, problem.rng
    )
    outside = enclose_torque(
        problem.kin, problem.box, cells, problem.tracking, problem.damping, np.ones(4), problem.transition
    ).torque[which]
    sets = problem.build("shared", 3, 0)
    for found in (outside, sets.torque(k).torque[which]):
        assert np.all(hull[..., 0] >= found[..., 0] - 1e-9)
        assert np.all(hull[..., 1] <= found[..., 1] + 1e-9)
    assert np.median(np.ptp(hull, axis=-1) / np.ptp(outside, axis=-1)) > 0.5
    points = problem.rng.normal(size=(4, 3)) * 0.2
    reached = point_hull(problem.kin, np.arange(4), points, motion, which, problem.rng)
    boxes = sets.points(np.arange(4), points, k)[which]
    assert np.all(reached[..., 0] >= boxes[..., 0] - 1e-9)
    assert np.all(reached[..., 1] <= boxes[..., 1] + 1e-9)


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
    # Published: 2 degrees of |r| at M_min; the robust input alone is 0.5 alpha (M_max - M_min) epsilon.
    law = PublishedGains()
    zero = np.zeros((1, 7))
    assert law.half_width(zero, zero)[0, 0] == pytest.approx(0.5 * 20 * (15.79635774 - 8.29938) * law.epsilon)
    assert law.half_width(zero + 2.0, zero, robust=False)[0, 0] == 2.0


def test_growth_holds_every_centre() -> None:
    model, rng = peer_model("declared"), np.random.default_rng(0)
    family = peer_family(np.zeros(7), np.ones(7))
    trajectory = family.trajectory(rng.uniform(-1, 1, 7))
    cells, tracking = time_cells(trajectory, CELLS), PublishedGains().tracking(7)
    growth = sphere_growth(model, cells, tracking)
    reached = point_hull(
        model.kinematics,
        [j for j, _ in SPHERES],
        [p for _, p in SPHERES],
        Motion(trajectory, cells, tracking),
        np.arange(CELLS),
        rng,
    )
    radius = np.linalg.norm(0.5 * np.ptp(reached, axis=-1), axis=-1)
    assert np.all(radius <= growth + 1e-12)
    assert np.median(radius / growth) > 0.8
