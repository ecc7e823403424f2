"""Attacks on the compiled parts of the torque enclosure: small turns, inner products of forms, their rounding."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from reachability_attack import sample_symbols
from reachability_support import random_trajectory
from scipy.spatial.transform import Rotation

from safe_sysid.reachability.affine import reach
from safe_sysid.reachability.cells import TrackingSet, affine_motion, time_cells
from safe_sysid.reachability.entries import inner, norm_and_size
from safe_sysid.reachability.turns import apply_matrix, rank_two_norm, small_turn

N = 4
K = 1 + 2 * N


def forms(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> np.ndarray:
    """Forms over N joints: centres of order one, symbols' parts of order ``size``, some of them zero."""
    x = np.zeros((*shape, K + 2))
    x[..., 0] = rng.normal(size=shape)
    x[..., 1:-1] = size * rng.normal(size=(*shape, K)) * (rng.random((*shape, K)) < 0.7)
    return x


def ball(rng: np.random.Generator, count: int) -> np.ndarray:
    """Unit vectors (count, 3)."""
    u = rng.normal(size=(count, 3))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def symbols(rng: np.random.Generator, count: int) -> np.ndarray:
    x = sample_symbols(count, N, rng)
    x[: count // 4, 0] = 0.0
    return x


def turn_excess(rng: np.random.Generator, size: float, turn: Callable) -> float:
    """Largest distance of a turned vector from the turned form, less its ball, over 300 symbols."""
    axis = ball(rng, 1)[0]
    joint, sign = int(rng.integers(N)), float(rng.choice([-1.0, 1.0]))
    angle = np.array([0.3, *(size * rng.normal(size=2)), 0.0, 0.2 * size * rng.random()])
    v = forms(rng, (3,), size)
    v[:, -1] = 0.1 * size * rng.random()
    if rng.random() < 0.3:
        v[:, 1:] = 0.0  # a constant vector, such as gravity
    x = symbols(rng, 300)
    private = rng.choice([-1.0, 0.0, 1.0], 300)
    d = sign * (angle[1] * x[:, 0] + angle[2] * x[:, 1 + joint] + angle[4] * private)
    points = v[:, 0] + x @ v[:, 1:-1].T + v[0, -1] * ball(rng, 300)
    truth = Rotation.from_rotvec(d[:, None] * axis).apply(points)
    turn(v, axis, angle, sign, joint, N, 0, N, N)
    return float((np.linalg.norm(truth - v[:, 0] - x @ v[:, 1:-1].T, axis=1) - v[0, -1]).max())


@pytest.mark.parametrize("size", [1e-3, 0.02, 0.3, 2.0])
def test_turned_vectors_stay_in_the_turned_form(size: float) -> None:
    rng = np.random.default_rng(0)
    assert max(turn_excess(rng, size, small_turn) for _ in range(60)) <= 1e-13


@pytest.mark.parametrize("lost", ["second order", "third order", "the angle's remainder", "the shift"])
def test_a_turn_that_loses_something_is_found(lost: str) -> None:
    def broken(v: np.ndarray, axis: np.ndarray, angle: np.ndarray, sign: float, joint: int, *rest: int) -> None:
        before, angle = v.copy(), angle.copy()
        if lost == "the angle's remainder":
            angle[4] = 0.0
        small_turn(v, axis, angle, sign, joint, *rest)
        if lost == "second order":
            v[:, -1] = before[:, -1]
        elif lost == "third order":
            # What the same turn without a third order costs: the second order of half as large forms, four times.
            half = before.copy()
            half[:, 1:-1] *= 1e-3
            half[:, -1] = before[:, -1]
            small_angle = angle * [1.0, 1e-3, 1e-3, 1.0, 0.0]
            small_turn(half, axis, small_angle, sign, joint, *rest)
            v[:, -1] = before[:, -1] + 1e6 * (half[0, -1] - before[0, -1])
        elif lost == "the shift":
            v[:, 0] = before[:, 0]

    rng = np.random.default_rng(1)
    size = 1.0 if lost == "third order" else 0.3
    assert any(turn_excess(rng, size, broken) > 1e-4 for _ in range(300))


def test_rank_two_norms_are_bounds_and_exact() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        axis = ball(rng, 1)[0]
        b = np.cross(axis, rng.normal(size=(int(rng.integers(1, 6)), 3)) * 10.0 ** rng.uniform(-8, 3)).T
        g = b @ b.T
        bound = rank_two_norm(g[0, 0], g[1, 1], g[2, 2], g[0, 1], g[0, 2], g[1, 2])
        truth = np.linalg.norm(b, 2)
        assert truth <= bound <= truth * (1.0 + 1e-5)


def test_matrices_move_symbols_and_enlarge_balls() -> None:
    rng = np.random.default_rng(3)
    for transposed in (False, True):
        matrix = Rotation.random(random_state=4).as_matrix()
        v, out = forms(rng, (3,), 0.1), np.full((3, K + 2), 7.0)
        v[:, -1] = 0.2
        apply_matrix(matrix, transposed, 1e-6, 1.0 + 1e-6, v, N, 1, 3, 2, out)
        truth = (matrix.T if transposed else matrix) @ v
        used = [0, 1, 3, 4, 6, 7]
        np.testing.assert_allclose(out[:, used], truth[:, used], atol=1e-15)
        assert np.all(out[:, [2, 5, 8, 9]] == 7.0)
        total = np.abs(v[:, used]).sum()
        assert np.all(out[:, -1] >= 0.2 * (1.0 + 1e-6) + 3e-6 * total)
        assert np.ptp(out[:, -1]) == 0.0 < 0.21 - out[0, -1]


def product_excess(rng: np.random.Generator, size: float, lost: str = "") -> tuple[float, float]:
    """Largest distance of a sum of products from its form, less the remainder; and the share of the range found."""
    terms = int(rng.integers(1, 7))
    first, first_r = int(rng.integers(N + 1)), int(rng.integers(N + 1))
    x, y = forms(rng, (1, terms), size), forms(rng, (1, terms), size)
    x[..., 2 : 2 + first] = 0.0
    x[..., 2 + N : 2 + N + first_r] = 0.0
    x[..., -1], y[..., -1] = 0.1 * size * rng.random((2, 1, terms))
    if lost == "squares":
        # Time, or one error, alone: other symbols' remainders would hide what is lost.
        only = int(rng.integers(1, K))
        for z in (x, y):
            z[..., 1:only], z[..., only + 1 :] = 0.0, 0.0
        first = first_r = 0
    rho_x, rho_y = x[0, :, -1], y[0, :, -1]
    bound = [np.abs(z[0, :, 0]) + np.array([reach(np.ascontiguousarray(f), N) for f in z[0]]) for z in (x, y)]
    private = float(rho_x @ (bound[1] + rho_y) + bound[0] @ rho_y)
    if lost == "private":
        private = 0.0
    out = np.zeros((1, 1, K + 2))
    total = float(np.abs(x[0]).sum(axis=1) @ np.abs(y[0]).sum(axis=1))
    size_out = inner(x, 0, y, 0, 0, terms, N, first, first_r, N, private, total, out, 0, 0)
    form = out[0, 0]
    assert abs(size_out - reach(form, N)) <= 1e-12 * size_out
    if lost == "second order":
        form[-1] = private
    if lost == "squares":
        form[0] = float(x[0, :, 0] @ y[0, :, 0])
    s = symbols(rng, 400)
    u, v = rng.choice([-1.0, 1.0], (2, 400, terms))
    xs = x[0, :, 0] + s @ x[0, :, 1:-1].T + u * rho_x
    ys = y[0, :, 0] + s @ y[0, :, 1:-1].T + v * rho_y
    off = np.abs((xs * ys).sum(axis=1) - form[0] - s @ form[1:-1])
    return float((off - form[-1]).max()), float(off.max() / form[-1])


@pytest.mark.parametrize("size", [1e-3, 0.1, 1.0])
def test_sums_of_products_stay_in_their_form(size: float) -> None:
    rng = np.random.default_rng(5)
    results = [product_excess(rng, size) for _ in range(150)]
    assert max(excess for excess, _ in results) <= 1e-12
    # Not by being far too wide.
    assert np.median([share for _, share in results]) > 0.1
    assert max(share for _, share in results) > 0.5


@pytest.mark.parametrize("lost", ["private", "second order", "squares"])
def test_products_that_lose_something_are_found(lost: str) -> None:
    rng = np.random.default_rng(6)
    assert any(product_excess(rng, 0.5, lost)[0] > 1e-3 for _ in range(150))


def test_rounding_of_products_is_in_the_remainder() -> None:
    """Forms without symbols: what the float sum of products misses must be covered, in exact arithmetic."""
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(100):
        x, y = np.zeros((2, 1, 6, K + 2))
        x[..., 0] = rng.normal(size=6) * 10.0 ** rng.uniform(-6, 6, 6)
        y[..., 0] = rng.normal(size=6) * 10.0 ** rng.uniform(-6, 6, 6)
        out = np.zeros((1, 1, K + 2))
        total = float(np.abs(x[0, :, 0]) @ np.abs(y[0, :, 0]))
        inner(x, 0, y, 0, 0, 6, N, 0, 0, N, 0.0, total, out, 0, 0)
        pairs = zip(x[0, :, 0].tolist(), y[0, :, 0].tolist(), strict=True)
        truth = sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))
        error = abs(truth - Fraction(float(out[0, 0, 0])))
        assert error <= Fraction(float(out[0, 0, -1]))
        assert out[0, 0, -1] <= 1e-12 * total
        missed += error > 0
    assert missed > 50


def test_rounding_of_turns_is_in_the_ball() -> None:
    """A turn by exactly zero of a vector in one direction: the matrix' rounding must be in the ball."""
    rng = np.random.default_rng(8)
    outside = 0
    for _ in range(60):
        matrix = Rotation.random(random_state=int(rng.integers(1 << 30))).as_matrix()
        v = np.zeros((3, K + 2))
        v[:, 0] = rng.normal(size=3) * 1e3
        out = np.zeros_like(v)
        apply_matrix(matrix, False, 0.0, 1.0, v, N, 0, 0, 0, out)
        exact = [sum(Fraction(float(matrix[i, k])) * Fraction(float(v[k, 0])) for k in range(3)) for i in range(3)]
        error = sum((exact[i] - Fraction(float(out[i, 0]))) ** 2 for i in range(3))
        assert error <= Fraction(float(out[0, -1])) ** 2
        outside += error > 0
    assert outside > 30


def test_lengths_are_bounds_and_nan_survives_everything() -> None:
    rng = np.random.default_rng(9)
    v = forms(rng, (3,), 0.2)
    length, total = norm_and_size(v, N, 0, N, N)
    x = symbols(rng, 500)
    assert np.linalg.norm(v[:, 0] + x @ v[:, 1:-1].T, axis=1).max() <= length
    assert total >= np.abs(v).sum() * (1.0 - 1e-12)
    for where in [(0, 0), (1, 1), (2, 3), (0, 2 + N), (1, K + 1)]:
        w = v.copy()
        w[where] = np.nan
        if where[1] <= K:
            assert np.isnan(norm_and_size(w, N, 0, N, N)[0])
        out = np.zeros((3, K + 2))
        apply_matrix(np.eye(3), False, 0.0, 1.0, w, N, 0, N, N, out)
        assert np.isnan(out[:, -1]).all() or where == (1, K + 1)
        w[:, -1] = w[where]
        small_turn(w, np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.1, 0.1, 0.0, 0.0]), 1.0, 1, N, 0, N, N)
        assert np.isnan(w[:, -1]).all()
    for bad in (1, 2, 4):
        angle = np.array([0.0, 0.1, 0.1, 0.0, 0.0])
        angle[bad] = np.nan
        w = v.copy()
        small_turn(w, np.array([0.0, 0.0, 1.0]), angle, 1.0, 1, N, 0, N, N)
        assert np.isnan(w[:, -1]).all()
    assert np.isnan(rank_two_norm(np.nan, 0.0, 0.0, 0.0, 0.0, 0.0))


def test_motion_of_a_joint_depends_on_its_own_errors_only() -> None:
    """What the kernel relies on."""
    rng = np.random.default_rng(10)
    cells = time_cells(random_trajectory(3, rng), 4)
    tracking = TrackingSet(*rng.uniform(0.1, 1.0, (3, 3)))
    for form in affine_motion(cells, tracking):
        for j in range(3):
            others = [k for k in range(2, 8) if k not in (2 + j, 5 + j)]
            assert np.all(form[:, j, others] == 0.0)
