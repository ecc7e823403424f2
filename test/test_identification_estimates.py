"""Point estimates: derivatives, optimality by duality, inside box and cone, constant memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from identification_plant import plain_rows

from safe_sysid.identification.bounds.payload_constraints import PayloadBox, PayloadConstraints
from safe_sysid.identification.estimates.centre import NearRows, analytic_centre
from safe_sysid.identification.estimates.newton import (
    ball,
    cost_and_derivatives,
    fit_log_cholesky,
    log_cholesky_derivatives,
)
from safe_sysid.identification.estimates.nominal import ESTIMATES, NominalEstimate
from safe_sysid.identification.estimates.projected import body_margin, make_consistent, project_payload, solve_convex
from safe_sysid.identification.estimates.quadratic import NormalEquations, Quadratic
from safe_sysid.robot.parameters import (
    ParameterBox,
    from_log_cholesky,
    inertia_from_com,
    is_consistent,
    log_cholesky,
    pseudo_inertia,
)

pytestmark = pytest.mark.unproved

SEEDS = st.integers(0, 10**6)
UNITS = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])


def complex_map(eta, paper):
    """The map in complex arithmetic, written out: for derivatives by complex step."""
    a, d1, d2, d3, s12, s23, s13, t1, t2, t3 = eta
    e = np.exp
    u = e(a) * np.array([[e(d1), s12, s13, t1], [0, e(d2), s23, t2], [0, 0, e(d3), t3], [0, 0, 0, 1]])
    j = u.T @ u if paper else u @ u.T
    sigma, h = j[:3, :3], j[:3, 3]
    i = np.trace(sigma) * np.eye(3) - sigma
    return np.array([j[3, 3], *h, i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]])


def complex_jacobian(eta, paper):
    step = 1e-200
    return np.stack([complex_map(eta + 1j * step * unit, paper).imag / step for unit in np.eye(10)], axis=1)


def random_quadratic(rng, target=None, condition=1e3):
    q, _ = np.linalg.qr(rng.normal(size=(10, 10)))
    hessian = (q * np.geomspace(1.0, condition, 10)) @ q.T
    target = from_log_cholesky(rng.normal(0, 0.4, 10)) if target is None else target
    return Quadratic(hessian, hessian @ target)


def impossible(rng):
    """Mass, centre, and second moments about it, one or two of them negative: noise has pushed them off the cone."""
    mass, centre = rng.uniform(0.5, 3.0), rng.normal(0, 0.5, 3)
    moments = rng.uniform(0.05, 1.0, 3)
    moments[: rng.integers(1, 3)] *= -0.5
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    j = mass * np.outer([*centre, 1.0], [*centre, 1.0])
    j[:3, :3] += (q * moments) @ q.T
    flat = UNITS.reshape(10, 16)
    return np.linalg.solve(flat @ flat.T, flat @ j.ravel())


@pytest.mark.parametrize("paper", [False, True])
@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_derivatives_of_the_map(paper, seed):
    rng = np.random.default_rng(seed)
    eta = rng.normal(0, 1.0, 10)
    theta, jacobian, curvature = log_cholesky_derivatives(eta, paper)
    assert theta == pytest.approx(complex_map(eta, paper).real, rel=1e-12, abs=1e-12)
    size = np.abs(jacobian).max()
    assert np.abs(jacobian - complex_jacobian(eta, paper)).max() < 1e-13 * size
    h, v = 1e-5, rng.normal(size=10)
    along = (complex_jacobian(eta + h * v, paper) - complex_jacobian(eta - h * v, paper)) / (2 * h)
    assert np.abs(curvature @ v - along).max() < 1e-6 * np.abs(curvature).max()
    assert np.array_equal(curvature, curvature.swapaxes(1, 2))


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize("far", [-5.0, -40.0, -800.0])
def test_derivatives_at_the_boundary(paper, far):
    """Where an exponential is tiny, or zero in floating point: finite, right, and the Jacobian's column vanishes."""
    rng = np.random.default_rng(3)
    for k in (1, 2, 3):
        eta = rng.normal(0, 0.5, 10)
        eta[k] = far
        theta, jacobian, curvature = log_cholesky_derivatives(eta, paper)
        assert np.all(np.isfinite(curvature))
        assert np.abs(jacobian - complex_jacobian(eta, paper)).max() < 1e-13 * np.abs(jacobian).max()
        assert np.abs(jacobian[:, k]).max() <= 40.0 * np.exp(far)
        assert abs(np.linalg.eigvalsh(pseudo_inertia(theta))[0]) < 10.0 * np.exp(2.0 * far) + 1e-14


@pytest.mark.parametrize("paper", [False, True])
@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_gradient_and_hessian_of_the_cost(paper, seed):
    rng = np.random.default_rng(seed)
    quadratic, eta = random_quadratic(rng), rng.normal(0, 0.7, 10)
    value, gradient, hessian, theta = cost_and_derivatives(quadratic, eta, paper)
    best = quadratic.minimiser()
    assert value == pytest.approx(0.5 * (theta - best) @ quadratic.hessian @ (theta - best), rel=1e-9)
    v, h = rng.normal(size=10), 1e-5
    ahead, behind = (cost_and_derivatives(quadratic, eta + s * h * v, paper) for s in (1, -1))
    assert gradient @ v == pytest.approx((ahead[0] - behind[0]) / (2 * h), rel=1e-5, abs=1e-5 * value)
    change = (ahead[1] - behind[1]) / (2 * h)
    assert np.abs(hessian @ v - change).max() < 1e-5 * np.abs(hessian).max()


def dual_matrix(gradient):
    """Z with ``gradient . theta = <Z, J(theta)>`` for all theta."""
    flat = UNITS.reshape(10, 16)
    return (flat.T @ np.linalg.solve(flat @ flat.T, gradient)).reshape(4, 4)


@given(SEEDS, st.booleans())
@example(86002, True)
@example(315, True)
@example(1106, True)
@settings(max_examples=30, deadline=None)
def test_newton_and_convex_program_reach_the_same_proved_optimum(seed, outside):
    rng = np.random.default_rng(seed)
    quadratic = random_quadratic(rng, impossible(rng) if outside else None)
    best = quadratic.minimiser()
    newton = fit_log_cholesky(quadratic)
    convex, consistent = project_payload(quadratic, np.full(10, -100.0), np.full(10, 100.0))
    assert consistent
    if not newton.converged:
        assert outside  # and how often: see the next test
        return
    assert newton.optimal
    if outside:  # the flag has a threshold; the optimum itself is on the boundary
        values = np.linalg.eigvalsh(pseudo_inertia(newton.theta))
        assert newton.boundary or values[0] < 1e-4 * values[-1]
    # Optimal over the cone iff the gradient is a matrix of the dual cone, orthogonal to the point.
    floor = 0.5 * best @ quadratic.hessian @ best
    for theta, tolerance in ((newton.theta, 1e-5), (convex, 1e-3)):
        z, j = dual_matrix(quadratic.gradient(theta)), pseudo_inertia(theta)
        size = np.abs(quadratic.hessian).max() * (1.0 + np.abs(best).max())
        assert np.linalg.eigvalsh(z)[0] > -tolerance * size
        assert abs(np.sum(z * j)) < tolerance * size * np.abs(j).max()
    value = 0.5 * (convex - best) @ quadratic.hessian @ (convex - best)
    assert newton.value == pytest.approx(value, rel=5e-3, abs=1e-4 * floor)


def test_how_often_the_search_is_caught():
    """With the way out nearly always solved; the plain method from a ball stops at infinity as if solved."""
    solved, plain_solved, plain_wrong = 0, 0, 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        quadratic = random_quadratic(rng, impossible(rng) if seed % 2 else None)
        answer = fit_log_cholesky(quadratic)
        solved += answer.converged and answer.optimal
        plain = fit_log_cholesky(quadratic, ball(), escape=False)
        plain_solved += plain.converged and plain.optimal
        if plain.converged and not plain.optimal:
            plain_wrong += 1
            assert plain.boundary
            assert plain.value > answer.value
    assert solved >= 28
    assert plain_solved < solved - 5
    assert plain_wrong >= 3


def test_newton_needs_few_iterations_and_is_exact_inside():
    counts = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        theta = from_log_cholesky(rng.normal(0, 0.4, 10))
        answer = fit_log_cholesky(random_quadratic(rng, theta))
        assert answer.converged
        assert not answer.boundary
        assert answer.theta == pytest.approx(theta, abs=1e-4)
        counts.append(answer.iterations)
    assert np.median(counts) <= 25


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_projection_is_the_least_squares_point_of_box_and_cone(seed):
    rng = np.random.default_rng(seed)
    inside = from_log_cholesky(rng.normal(0, 0.4, 10))
    rad = rng.uniform(0.01, 1.0, 10) * (np.abs(inside) + 0.05)
    lower, upper = inside - rad * rng.uniform(0, 1, 10), inside + rad * rng.uniform(0, 1, 10)
    fixed = rng.random(10) < 0.2
    lower[fixed] = upper[fixed] = inside[fixed]
    quadratic = random_quadratic(rng, inside + rng.normal(0, 1.0, 10) * rad)
    theta, consistent = project_payload(quadratic, lower, upper)
    assert consistent
    assert is_consistent(theta, 1e-12)
    assert np.all((lower <= theta) & (theta <= upper))
    gradient = quadratic.gradient(theta)
    size = np.linalg.norm(gradient) * np.linalg.norm(upper - lower) + 1e-9
    candidates = [inside]
    for _ in range(30):  # other members of the set: random points of the box drawn towards the known one
        point = rng.uniform(lower, upper)
        while not is_consistent(point):
            point = 0.5 * (point + inside) if np.any(np.abs(point - inside) > 1e-12) else inside
        candidates.append(point)
    for point in candidates:
        assert gradient @ (point - theta) > -1e-3 * size


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_nearest_consistent_point_leaves_a_good_point_alone(seed):
    rng = np.random.default_rng(seed)
    theta = from_log_cholesky(rng.normal(0, 0.3, 10))
    found, ok = make_consistent(theta, theta - 0.1, theta + 0.2)
    assert ok
    assert found == pytest.approx(theta, abs=1e-3)


def test_box_without_a_body_is_said_to_have_none():
    lower = np.array([1.0, 0.5, 0, 0, 0.01, 0, 0.01, 0, 0, 0.01])  # centre 0.5 m out, inertia far below m c^2
    theta, ok = make_consistent(lower, lower, lower + 0.01)
    assert not ok
    assert np.all((lower <= theta) & (theta <= lower + 0.01))


# Estimates from rows -----------------------------------------------------------------------------------------------


def arm_problem(rng, n=2, rows=300, noise=1.0, slack=0.02):
    """Truth with a payload in its hand, prior box with unequal radii that holds it, rows and tare rows."""
    theta = np.concatenate([*[from_log_cholesky(rng.normal(0, 0.3, 10)) for _ in range(n)], rng.uniform(0.5, 2, 4 * n)])
    hand = inertia_from_com(rng.uniform(0.5, 1.0), rng.normal(0, 0.05, 3), 1e-2 * np.eye(3))
    corners = rng.uniform(-0.1, 0.1, (8, 3)) + np.array([0.0, 0.0, 0.2])
    masses, last = rng.uniform(0.1, 0.4, 8), slice(10 * (n - 1), 10 * n)
    payload = sum(inertia_from_com(m, c, 1e-4 * np.eye(3)) for m, c in zip(masses, corners, strict=True))
    theta[last] = hand + payload
    rad = rng.uniform(0.02, 0.1, 14 * n) * (np.abs(theta) + 0.1)
    rad[last] *= 10.0
    shift = rad * rng.uniform(-0.9, 0.9, 14 * n)
    prior = ParameterBox(theta + shift - rad, theta + shift + rad)
    h_rad = 0.05 * np.abs(hand) + 1e-3
    h_shift = h_rad * rng.uniform(-0.9, 0.9, 10)
    box = PayloadBox(np.array([0, 0, 0.2]), np.full(3, 0.25), np.eye(3), np.zeros(3))
    payload_constraints = PayloadConstraints(hand + h_shift - h_rad, hand + h_shift + h_rad, None, box)
    scale = np.full(rows, slack)

    def measured(truth, log):
        matrix = rng.normal(size=(rows, 14 * n))
        return plain_rows(matrix, matrix @ truth + noise * scale * rng.uniform(-1, 1, rows), scale, log)

    empty = theta.copy()
    empty[last] = hand
    return theta, hand, prior, payload_constraints, measured(theta, 0), measured(empty, 1)


def fed(estimate, *some_rows):
    """The estimate with these rows in it."""
    for rows in some_rows:
        estimate.add(rows)
    return estimate


@pytest.mark.parametrize("method", ESTIMATES)
@given(SEEDS)
@settings(max_examples=8, deadline=None)
def test_estimates_lie_inside_the_box_and_are_consistent(method, seed):
    rng = np.random.default_rng(seed)
    theta, _, prior, payload_constraints, rows, tare = arm_problem(rng, rows=40, slack=0.3)
    truth = theta[prior.layout.payload]
    for know in (None, payload_constraints):
        estimate = fed(NominalEstimate(prior, know, method), rows, *([tare] if know else []))
        # Any box that holds the truth: the estimate must follow it, wherever least squares is.
        width = rng.uniform(0.01, 0.5, 10) * prior.rad[prior.layout.payload]
        box = prior.with_payload(
            np.maximum(truth - width * rng.uniform(0, 1, 10), prior.payload_lower),
            np.minimum(truth + width * rng.uniform(0, 1, 10), prior.payload_upper),
        )
        point, consistent = estimate.estimate(box)
        assert np.all((box.payload_lower <= point) & (point <= box.payload_upper))
        assert consistent
        if know is None:
            assert is_consistent(point, 1e-12)
        else:  # some hand of the declared ones leaves a payload that is a body
            hand = payload_constraints.hand_lower, payload_constraints.hand_upper
            fits = solve_convex(Quadratic(np.eye(10), point - truth), *hand, -np.eye(10), point)
            assert body_margin(point - np.clip(fits.x, *hand)) > -1e-6


@pytest.mark.parametrize("slack", [1e-14, 1e-120])
@pytest.mark.parametrize("method", ESTIMATES)
def test_weights_beyond_any_factorisation_cost_the_estimate_not_the_bounds(method, slack):
    _, _, prior, payload_constraints, rows, _ = arm_problem(np.random.default_rng(3), rows=40)
    tiny = plain_rows(rows.matrix[:7], rows.target[:7], np.full(7, slack))
    with np.errstate(all="ignore"):
        point, _ = fed(NominalEstimate(prior, payload_constraints, method), tiny).estimate(prior)
    assert np.all((prior.payload_lower <= point) & (point <= prior.payload_upper))


@pytest.mark.parametrize("method", ["projected", "log_cholesky"])
def test_estimates_find_the_truth_as_errors_vanish(method):
    rng = np.random.default_rng(5)
    theta, _, prior, payload_constraints, rows, tare = arm_problem(rng, rows=400, slack=1e-6)
    for know in (None, payload_constraints):
        point, consistent = fed(NominalEstimate(prior, know, method), rows, tare).estimate(prior)
        assert consistent
        assert point == pytest.approx(theta[prior.layout.payload], abs=1e-4)


def test_tare_rows_speak_of_the_hand_alone():
    rng = np.random.default_rng(6)
    theta, hand, prior, payload_constraints, rows, tare = arm_problem(rng, rows=400, slack=1e-6)
    for know in (payload_constraints, None):  # without a hand: tare rows must not be read as rows with payload
        normal = fed(NormalEquations(prior, know), rows, tare)
        found = normal.unscaled(normal.quadratic().minimiser())
        assert know is None or found[-10:] == pytest.approx(hand, abs=1e-4)
        assert found[prior.layout.payload] == pytest.approx(theta[prior.layout.payload], abs=1e-4)


def test_quadratic_of_the_payload_is_the_minimum_over_everything_else():
    rng = np.random.default_rng(7)
    _, _, prior, payload_constraints, rows, tare = arm_problem(rng, rows=60)
    normal = fed(NormalEquations(prior, payload_constraints), rows, tare)
    reduced, back = normal.payload_quadratic()
    full, payload = normal.quadratic(), prior.layout.payload
    size = len(normal.mid)
    values = []
    for _ in range(3):
        theta_p = rng.normal(size=10)
        # Minimise over all else with theta_e = theta_p + theta_h held: KKT of the equality-constrained problem.
        hold = np.zeros((10, size))
        hold[:, payload] = np.diag(normal.scale[payload])
        hold[:, -10:] = -np.diag(normal.scale[-10:])
        kkt = np.block([[full.hessian, hold.T], [hold, np.zeros((10, 10))]])
        side = np.concatenate([full.linear, theta_p - normal.mid[payload] + normal.mid[-10:]])
        z = np.linalg.solve(kkt, side)[:size]
        values.append((reduced.value(theta_p), full.value(z)))
        assert normal.unscaled(z)[payload] == pytest.approx(back[:, :10] @ theta_p + back[:, 10], rel=1e-6, abs=1e-6)
    difference = [a - b for a, b in values]
    assert difference == pytest.approx([difference[0]] * 3, rel=1e-6, abs=1e-6 * abs(values[0][0]))


@pytest.mark.parametrize("method", ESTIMATES)
def test_memory_is_constant_and_pieces_add_up(method):
    rng = np.random.default_rng(8)
    _, _, prior, _, rows, _ = arm_problem(rng, rows=1500, slack=0.05)
    whole = fed(NominalEstimate(prior, None, method), rows)
    parts = (rows.take(np.arange(first, min(first + 77, len(rows)))) for first in range(0, len(rows), 77))
    pieces = fed(NominalEstimate(prior, None, method), *parts)
    a, b = whole.estimate(prior)[0], pieces.estimate(prior)[0]
    if method != "centre":  # which rows it keeps depends on the order in which they come
        assert a == pytest.approx(b, abs=1e-6)

    def numbers(thing, depth=0):
        if isinstance(thing, np.ndarray):
            return thing.size
        inner = getattr(thing, "__dict__", None)
        return sum(numbers(x, depth + 1) for x in inner.values()) if inner and depth < 3 else 0

    assert numbers(pieces) == numbers(fed(pieces, rows, rows, rows))


def test_cuts_of_the_payload_box_hold_for_the_projection():
    """The payload's box keeps the centre of mass where least squares would not."""
    rng = np.random.default_rng(9)
    theta, _, prior, payload_constraints, _, _ = arm_problem(rng)
    far = theta[prior.layout.payload] + np.array([0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0])
    point, ok = make_consistent(far, prior.payload_lower - 1, prior.payload_upper + 1, payload_constraints)
    assert ok
    cuts, hand_lower = payload_constraints.fixed, payload_constraints.hand_lower
    best = np.abs(cuts.coefficients()) @ (payload_constraints.hand_upper - hand_lower) - cuts.constant
    assert np.all(cuts.coefficients() @ (point - hand_lower) + best >= -1e-6)
    alone, _ = make_consistent(far, prior.payload_lower - 1, prior.payload_upper + 1)
    assert np.min(cuts.coefficients() @ (alone - hand_lower) + best) < 0.0


# Analytic centre -----------------------------------------------------------------------------------------------------


def cone_problem(rng, rows):
    size = 12
    body = np.zeros((10, size))
    body[:, :10] = 0.3 * np.eye(10)
    offset = from_log_cholesky(np.zeros(10))
    near = NearRows(size)
    matrix = rng.normal(size=(rows, size))
    truth = rng.uniform(-0.3, 0.3, size)
    near.add(matrix, matrix @ truth + rng.uniform(-0.9, 0.9, rows), np.zeros(size))
    return near, -np.ones(size), np.ones(size), body, offset


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_centre_is_stationary_and_inside_everything(seed):
    rng = np.random.default_rng(seed)
    near, lower, upper, body, offset = cone_problem(rng, 60)
    z, scale = analytic_centre(near, lower, upper, body, offset, np.zeros(12))
    assert scale == 1.0
    assert np.max(np.abs(near.matrix @ z - near.target)) < 1.0
    assert np.all((lower < z) & (z < upper))
    assert is_consistent(body @ z + offset)

    def barrier(x):
        residual = near.matrix @ x - near.target
        j = pseudo_inertia(body @ x + offset)
        return -np.log(1 - residual**2).sum() - np.log(1 - x**2).sum() - np.linalg.slogdet(j)[1]

    step = 1e-6
    gradient = np.array([(barrier(z + step * e) - barrier(z - step * e)) / (2 * step) for e in np.eye(12)])
    assert np.abs(gradient).max() < 1e-2 * np.abs(near.matrix).sum(axis=0).max()


def test_scale_of_contradicting_rows_is_the_smallest_that_agrees():
    near = NearRows(12)
    unit = np.zeros((2, 12))
    unit[:, 11] = 5.0
    near.add(unit, np.array([-2.0, 2.0]), np.zeros(12))  # 5 z = -2 and 5 z = 2, each within 1: consistent from 2 on
    _, lower, upper, body, offset = cone_problem(np.random.default_rng(0), 1)
    _, scale = analytic_centre(near, lower, upper, body, offset, np.zeros(12))
    assert scale == pytest.approx(2.0, rel=2e-3)


def test_start_of_newton_may_be_any_body():
    rng = np.random.default_rng(11)
    quadratic = random_quadratic(rng)
    for _ in range(5):
        answer = fit_log_cholesky(quadratic, log_cholesky(from_log_cholesky(rng.normal(0, 1.0, 10))))
        assert answer.converged
        assert answer.theta == pytest.approx(quadratic.minimiser(), abs=1e-4)
