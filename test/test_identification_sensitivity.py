"""PSO's Theorem 13: where it holds, where it does not, and that enclosures enclose."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.identification.baselines.enclosed import BallMatrix, enclosed_bounds, interval_map, linear_bounds
from safe_sysid.identification.baselines.regression import Regression
from safe_sysid.identification.baselines.sensitivity import normal_quadratic, theorem_13
from safe_sysid.identification.estimates.newton import ball, fit_log_cholesky, log_cholesky_derivatives
from safe_sysid.robot.parameters import from_log_cholesky, inertia_from_com, log_cholesky

SEEDS = st.integers(0, 10**6)
ARM = 6


def problem(rng, theta, size, rows=80, signs=None, theta_r=None, proved=True):
    """Equations of a truth with arm parameters at a corner and noise on its bounds; unequal slacks and radii."""
    payload, arm = rng.normal(size=(rows, 10)), rng.normal(size=(rows, ARM))
    slack = size * rng.uniform(0.5, 1.5, rows)
    nominal, radius = rng.normal(size=ARM), size * rng.uniform(0.2, 1.0, ARM)
    true_arm = nominal + radius * (rng.choice([-1.0, 1.0], ARM) if theta_r is None else theta_r)
    sign = rng.choice([-1.0, 1.0], rows) if signs is None else signs(payload, arm)
    target = payload @ theta + arm @ true_arm + slack * sign
    found = Regression(payload, arm, target, slack, np.zeros(rows, np.int64), proved)
    return found, nominal, radius, (nominal - radius, nominal + radius)


def body(rng, spread=0.3):
    return from_log_cholesky(rng.normal(0, spread, 10))


def prior_about(theta):
    return theta - 5.0, theta + 5.0


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_linear_bounds_hold_corner_arms_and_corner_noise(seed):
    rng = np.random.default_rng(seed)
    theta = body(rng)
    found, _, _, arm = problem(rng, theta, 0.2)
    lower, upper, reason = linear_bounds(found, arm, prior_about(theta))
    assert reason is None
    assert np.all((lower <= theta) & (theta <= upper))


def test_linear_bounds_are_attained_and_the_attack_has_teeth():
    """Errors in the worst direction reach the bound; 5 % beyond what is declared, they leave it."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        theta, component = body(rng), int(rng.integers(10))
        payload, arm_columns = rng.normal(size=(80, 10)), rng.normal(size=(80, ARM))
        slack, nominal, radius = rng.uniform(0.1, 0.3, 80), rng.normal(size=ARM), rng.uniform(0.05, 0.2, ARM)
        inverse = np.linalg.pinv(payload)
        for much, holds in ((1.0 - 1e-9, True), (1.05, False)):
            true_arm = nominal + much * radius * np.sign(inverse[component] @ arm_columns)
            target = payload @ theta + arm_columns @ true_arm + much * slack * np.sign(inverse[component])
            found = Regression(payload, arm_columns, target, slack, np.zeros(80, np.int64), True)
            lower, upper, _ = linear_bounds(found, (nominal - radius, nominal + radius), prior_about(theta))
            assert np.all((lower <= theta) & (theta <= upper)) == holds
            if holds:
                assert min(theta[component] - lower[component], upper[component] - theta[component]) < 1e-6


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_theorem_13_in_the_interior_is_linear_least_squares_and_holds(seed):
    """Away from the boundary the Hessian drops out: both factorisations give |Y^+ dU/dm| rad(m), and it holds."""
    rng = np.random.default_rng(seed)
    theta = body(rng)
    found, nominal, radius, _ = problem(rng, theta, 0.003)
    inverse = np.linalg.pinv(found.payload)
    expected = np.abs(inverse) @ found.slack + np.abs(inverse @ found.arm) @ radius
    for paper in (False, True):
        answer = fit_log_cholesky(normal_quadratic(found, nominal), paper=paper, iterations=1000)
        if answer.boundary or not answer.converged:  # a small eigenvalue, and noise larger than it
            continue
        half, regular = theorem_13(found, answer, nominal, radius, paper=paper)
        assert regular
        assert half == pytest.approx(expected, rel=1e-3)
        assert np.all(np.abs(answer.theta - theta) <= half * (1.0 + 1e-6) + 1e-6)
        rows, _ = theorem_13(found, answer, nominal, radius, per_row=True, paper=paper)
        assert np.all(rows >= half * (1.0 - 1e-9))


def hanging_body(rng):
    """Like a dumbbell in a hand: moments about its centre small beside m c^2: noise pushes estimates off the cone."""
    centre = [0.0, 0.0, -0.17 + 0.01 * rng.normal()]
    return inertia_from_com(rng.uniform(2, 5), centre, np.diag([0.02, 0.015, 0.01]) * rng.uniform(0.5, 1.5))


def ill_conditioned(rng, theta, size, condition=300.0, rows=80):
    """Equations that excite some combinations of parameters much less than others, as real motions do."""
    found, nominal, radius, arm = problem(rng, theta, size, rows, signs=lambda y, r: rng.uniform(-1, 1, rows))
    q, _ = np.linalg.qr(rng.normal(size=(10, 10)))
    mix = (q * np.geomspace(1.0, 1.0 / condition, 10)).T / np.maximum(np.abs(theta), 0.02)
    payload = found.payload @ mix
    target = found.target + (payload - found.payload) @ theta
    return Regression(payload, found.arm, target, found.slack, found.joint, True), nominal, radius, arm


def test_theorem_13_excludes_the_truth_at_the_boundary_and_the_proved_variant_does_not():
    """The reported failure, reproduced: an estimate on the boundary, a collapsed interval, the truth outside."""
    outside = on_boundary = labelled = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        theta = hanging_body(rng)
        found, nominal, radius, arm = ill_conditioned(rng, theta, 1.0)
        answer = fit_log_cholesky(normal_quadratic(found, nominal), ball(), escape=False)
        half, _ = theorem_13(found, answer, nominal, radius)
        lower, upper, _ = linear_bounds(found, arm, prior_about(theta))
        assert np.all((lower <= theta) & (theta <= upper))
        if np.any(np.abs(answer.theta - theta) > half):
            outside += 1
            on_boundary += answer.boundary
            reason = enclosed_bounds(found, answer, arm, prior_about(theta))[2]
            labelled += reason is not None and reason.startswith("not proved")
    assert outside >= 3
    assert on_boundary >= outside - 1
    assert labelled == outside


def test_enclosed_theorem_is_proved_for_small_uncertainty_and_holds():
    proved = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        theta = body(rng)
        found, nominal, radius, arm = problem(rng, theta, 3e-5)
        answer = fit_log_cholesky(normal_quadratic(found, nominal))
        lower, upper, reason = enclosed_bounds(found, answer, arm, prior_about(theta))
        assert np.all((lower <= theta) & (theta <= upper))
        if reason is None:
            proved += 1
            half, _ = theorem_13(found, answer, nominal, radius)
            assert np.all(0.5 * (upper - lower) >= half * (1.0 - 1e-6))  # an enclosure is never below one sample of it
            assert np.median(0.5 * (upper - lower) / half) < 3.0
    assert proved >= 15


def test_nothing_is_proved_where_it_cannot_be():
    rng = np.random.default_rng(0)
    theta = body(rng)
    prior = prior_about(theta)
    found, nominal, _, arm = problem(rng, theta, 2.0)
    answer = fit_log_cholesky(normal_quadratic(found, nominal))
    *bounds, reason = enclosed_bounds(found, answer, arm, prior)
    assert reason.startswith("not proved")
    np.testing.assert_array_equal(bounds, prior)
    euler, nominal, _, arm = problem(rng, theta, 1e-4, proved=False)
    answer = fit_log_cholesky(normal_quadratic(euler, nominal))
    assert "slack" in enclosed_bounds(euler, answer, arm, prior)[2]
    assert "slack" in linear_bounds(euler, arm, prior)[2]
    singular = Regression(found.payload * (np.arange(10) > 0), found.arm, found.target, found.slack, found.joint, True)
    assert "rank" in enclosed_bounds(singular, answer, arm, prior)[2]


@given(SEEDS, st.sampled_from([0.0, 1e-12, 1e-3, 0.3]))
@settings(max_examples=40, deadline=None)
def test_interval_map_holds_every_sample_and_every_derivative(seed, radius):
    rng = np.random.default_rng(seed)
    eta, rad = rng.normal(0, 1.0, 10), radius * rng.uniform(0, 1, 10)
    lower, upper = np.nextafter(eta - rad, -np.inf), np.nextafter(eta + rad, np.inf)
    sides = [ball_matrix.sides() for ball_matrix in interval_map(lower, upper)]
    for k in range(25):
        corner = rng.choice([-1.0, 1.0], 10) if k % 2 else rng.uniform(-1, 1, 10)
        for value, (low, high) in zip(log_cholesky_derivatives(eta + rad * corner), sides, strict=True):
            assert np.all((low <= value) & (value <= high))
    if radius == 0.0:
        width = max(float(np.max(high - low)) for low, high in sides)
        assert width < 1e-10 * max(float(np.max(np.abs(high))) for _, high in sides) + 1e-12


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_products_of_balls_hold_exact_products(seed):
    """Rational arithmetic as the oracle; wildly different sizes make rounding visible."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(3, 6)) * 10.0 ** rng.integers(-8, 8, (3, 6))
    b = rng.normal(size=(6, 2)) * 10.0 ** rng.integers(-8, 8, (6, 2))
    ra, rb = (np.abs(x) * rng.choice([0.0, 1e-16, 1e-3], x.shape) for x in (a, b))
    low, high = (BallMatrix(a, ra) @ BallMatrix(b, rb)).sides()
    low_sum, high_sum = (BallMatrix(a, ra) - BallMatrix(b[:, :1].T, rb[:, :1].T)).sides()
    rational = np.vectorize(Fraction)
    for _ in range(5):
        fa, fb = (
            rational(x) + rng.choice([-1, 0, 1], x.shape).astype(object) * rational(r) for x, r in ((a, ra), (b, rb))
        )
        assert np.all((rational(low) <= fa @ fb) & (fa @ fb <= rational(high)))
        assert np.all((rational(low_sum) <= fa - fb[:, 0]) & (fa - fb[:, 0] <= rational(high_sum)))


def test_interval_of_eta_holds_the_eta_of_the_truth():
    """The claim behind the proof: the stationary point that is enclosed is the truth's own log-Cholesky vector."""
    rng = np.random.default_rng(4)
    theta = body(rng)
    found, nominal, _, _ = problem(rng, theta, 1e-6, signs=lambda y, r: np.zeros(len(y)), theta_r=np.zeros(ARM))
    answer = fit_log_cholesky(normal_quadratic(found, nominal))
    assert answer.eta == pytest.approx(log_cholesky(theta), abs=1e-6)
