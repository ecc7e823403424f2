"""Safe dual values and the feasible set: bounds hold whatever the multipliers, and are tight with good ones."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from identification_plant import plain_rows
from scipy.optimize import linprog

from safe_sysid.identification.bounds import dual_bounds
from safe_sysid.identification.bounds.dual_bounds import is_proved_empty, safe_lower, safe_upper
from safe_sysid.identification.bounds.feasible_set import FeasibleSet
from safe_sysid.identification.bounds.programs import Programs, Solution
from safe_sysid.identification.estimates.projected import make_consistent
from safe_sysid.robot.parameters import ParameterBox, from_log_cholesky, is_consistent


def polytope(rng, m, p, width=0.1, degenerate=False):
    """Random rows and box around a point x that satisfies all of them."""
    x = rng.normal(size=p)
    box_lower, box_upper = x - rng.uniform(0.1, 1.0, p), x + rng.uniform(0.1, 1.0, p)
    if degenerate:
        fixed = rng.random(p) < 0.3
        box_lower[fixed] = box_upper[fixed] = x[fixed]
    matrix = rng.normal(size=(m, p)) * 10.0 ** rng.uniform(-3, 3, (m, 1)) * 10.0 ** rng.uniform(-2, 2, p)
    size = np.abs(matrix).sum(axis=1)
    slack = width * size * rng.uniform(0.1, 1.0, m)
    target = matrix @ x + slack * rng.uniform(-0.99, 0.99, m)
    return x, matrix, target, slack, box_lower, box_upper


def problem(seed, m, width):
    """A random polytope's point, its box as a prior, and its rows as those of a log; 14 parameters."""
    x, matrix, target, slack, lower, upper = polytope(np.random.default_rng(seed), m, 14, width)
    return x, ParameterBox(lower, upper), plain_rows(matrix, target, slack)


def holds(bounds, x):
    return not bounds.empty and np.all((bounds.lower <= x) & (x <= bounds.upper))


def least(c, matrix, row_lower, row_upper, lower, upper):
    """SciPy's answer."""
    rows, sides = np.vstack([matrix, -matrix]), np.concatenate([row_upper, -row_lower])
    return linprog(c, rows, sides, bounds=np.column_stack([lower, upper]))


def exact(c, x):
    return sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(c, x, strict=True))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["random", "nan", "huge", "solver", "negated", "noisy"]))
def test_any_multipliers_give_a_bound(seed, kind):
    rng = np.random.default_rng(seed)
    m, p = int(rng.integers(0, 12)), int(rng.integers(1, 7))
    x, matrix, target, slack, lower, upper = polytope(rng, m, p, degenerate=bool(rng.integers(2)))
    c = rng.normal(size=p) * (rng.random(p) < 0.7)
    row_lower, row_upper = target - slack * 1.01, target + slack * 1.01
    if m and rng.random() < 0.3:
        row_upper[0] = np.inf
    y = rng.normal(size=m) * 10.0 ** rng.uniform(-5, 5, m)
    if kind in ("solver", "negated", "noisy") and m:
        answer = least(-c, matrix, row_lower, np.minimum(row_upper, 1e6), lower, upper)
        if answer.status == 0:
            y = -answer.ineqlin.marginals[:m] + answer.ineqlin.marginals[m:]
            y = {"solver": y, "negated": -y, "noisy": y * rng.normal(1, 0.3, m)}[kind]
    if kind == "nan" and m:
        y[rng.integers(m)] = rng.choice([np.nan, np.inf, -np.inf])
    if kind == "huge":
        y = y * 10.0 ** rng.uniform(50, 300)
    data = (matrix, row_lower, row_upper, lower, upper)
    high, low = safe_upper(c, *data, y), safe_lower(c, *data, y)
    # Exact arithmetic: x is feasible, so its value lies between.
    assert Fraction(low) <= exact(c, x) <= Fraction(high)
    prior = sum(abs(float(v)) for v in c * np.maximum(np.abs(lower), np.abs(upper)))
    assert high <= prior * (1 + 1e-12) + 1e-12  # never worse than the box alone
    assert not is_proved_empty(*data, y)


def test_good_multipliers_make_the_bound_tight():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        _, matrix, target, slack, lower, upper = polytope(rng, 30, 6, width=0.01)
        c = rng.normal(size=6)
        row_lower, row_upper = target - slack, target + slack
        answer = least(-c, matrix, row_lower, row_upper, lower, upper)
        y = -answer.ineqlin.marginals[:30] + answer.ineqlin.marginals[30:]
        bound = safe_upper(c, matrix, row_lower, row_upper, lower, upper, y)
        assert bound == pytest.approx(-answer.fun, rel=1e-6, abs=1e-6)


def test_rounding_is_on_the_safe_side():
    """A point polytope: every feasible value is known exactly, and rounding to nearest would cut it."""
    cut = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        x, c, matrix = rng.normal(size=5), rng.normal(size=5), rng.normal(size=(3, 5))
        sides = np.array([float(exact(row, x)) for row in matrix])
        row_lower, row_upper = np.nextafter(sides, -np.inf), np.nextafter(sides, np.inf)
        y = rng.normal(size=3)
        high = safe_upper(c, matrix, row_lower, row_upper, x, x, y)
        assert Fraction(high) >= exact(c, x)
        naive = y @ np.where(y > 0, row_upper, row_lower) + (c - matrix.T @ y) @ x
        cut += Fraction(float(naive)) < exact(c, x)
    assert cut > 10


def test_emptiness_needs_a_proof():
    matrix, square = np.array([[1.0, 1.0], [1.0, -1.0]]), (np.zeros(2), np.ones(2))
    apart = (matrix, np.array([2.5, -9.0]), np.array([9.0, 9.0]), *square)  # x + y >= 2.5 in the unit square
    assert is_proved_empty(*apart, np.array([1.0, 0.0]))
    assert is_proved_empty(*apart, np.array([-1.0, 0.0]))  # either sign convention of the solver's ray
    assert not is_proved_empty(*apart, np.array([0.0, 1.0]))
    assert not is_proved_empty(*apart, np.array([np.nan, 0.0]))
    touching = (matrix, np.array([2.0, -9.0]), np.array([9.0, 9.0]), *square)
    for y in (1.0, -1.0, 1e9, 1e-9):
        assert not is_proved_empty(*touching, np.array([y, 0.0]))


# --- the set -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "p"), [(5, 14), (60, 14), (900, 28), pytest.param(3000, 42, marks=pytest.mark.slow)])
def test_set_agrees_with_a_plain_linear_program(m, p):
    rng = np.random.default_rng(m)
    x, matrix, target, slack, lower, upper = polytope(rng, m, p, width=0.3, degenerate=True)
    prior, rows = ParameterBox(lower, upper), plain_rows(matrix, target, slack)
    polytope_set, index = FeasibleSet(prior), np.arange(min(p, 10))
    for half in np.array_split(np.arange(m), 2):
        polytope_set.add(rows.take(half))
        bounds = polytope_set.bound(index, prior)
        assert holds(bounds, x[index])
    data = (matrix, target - slack, target + slack, lower, upper)
    for k in index:
        low, high = (sign * least(sign * np.eye(p)[k], *data).fun for sign in (1.0, -1.0))
        width = upper[k] - lower[k]
        assert bounds.lower[k] <= low + 1e-9
        assert bounds.upper[k] >= high - 1e-9
        # The set stops when another round of rows promises less than a hundredth of the width.
        assert bounds.upper[k] - bounds.lower[k] <= (high - low) + 0.1 * width + 1e-9


def test_forgetting_rows_keeps_the_truth():
    x, prior, rows = problem(2, 1200, width=0.3)
    polytope_set = FeasibleSet(prior, max_rows=150)
    for part in np.array_split(np.arange(1200), 8):
        polytope_set.add(rows.take(part))
        bounds = polytope_set.bound(np.arange(14), prior)
        polytope_set.prune()
        assert len(polytope_set) <= 150 + 300
        assert polytope_set.rows.matrix.shape == (len(polytope_set), 14)
        assert holds(bounds, x)


def test_contradiction_is_proved_and_blamed():
    x, prior, rows = problem(7, 400, width=0.02)
    polytope_set = FeasibleSet(prior)
    polytope_set.add(rows)
    assert not polytope_set.bound(np.arange(14), prior).empty
    wrong = rows.matrix[:1] @ x - 200.0 * rows.slack[:1]
    polytope_set.add(plain_rows(rows.matrix[:1], wrong, rows.slack[:1]))
    bounds = polytope_set.bound(np.arange(14), prior)
    assert bounds.empty
    assert bounds.culprit in (0, 400)


def test_a_solver_that_lies_cannot_make_a_bound_too_tight(monkeypatch):
    rng, (x, prior, rows) = np.random.default_rng(8), problem(8, 60, width=0.1)
    honest = Programs.solve
    for lie in ("scaled", "random", "nan", "swapped"):
        polytope_set = FeasibleSet(prior)
        polytope_set.add(rows)

        def lying(self, program, last_resort, lie=lie):
            found = honest(self, program, last_resort)
            y = {"scaled": 1.7 * found.y, "random": rng.normal(size=found.y.size),
                 "nan": np.full(found.y.size, np.nan), "swapped": -found.y}[lie]  # fmt: skip
            outcome = "infeasible" if lie == "swapped" and program[1] < 0 else found.outcome
            return Solution(outcome, found.z, y)

        monkeypatch.setattr(Programs, "solve", lying)
        assert holds(polytope_set.bound(np.arange(14), prior), x), lie


def test_dual_bounds_import_no_solver():
    source = Path(dual_bounds.__file__).read_text(encoding="utf-8")
    assert "highs" not in source.lower().replace("imports no solver", "")
    assert "scipy" not in source


def test_consistent_point_of_a_box():
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        theta = from_log_cholesky(rng.normal(0, 0.5, 10))
        rad = rng.uniform(0.01, 0.5, 10) * np.abs(theta)
        shift = rng.uniform(-1, 1, 10) * rad
        lower, upper = theta + shift - rad, theta + shift + rad
        start = np.where(rng.random(10) < 0.5, lower, upper)
        point, ok = make_consistent(start, lower, upper)
        assert np.all((lower <= point) & (point <= upper))
        assert is_consistent(point) or not ok
        found += ok
    assert found >= 36


def test_rows_that_wait_for_an_update_do_not_pile_up():
    x, prior, rows = problem(4, 600, width=0.3)
    polytope_set = FeasibleSet(prior, max_rows=150)
    polytope_set.add(rows.take(np.arange(100)))
    first = polytope_set.bound(np.arange(14), prior)
    for _ in range(6):
        polytope_set.add(rows)
        assert len(polytope_set) <= 20 * 150
    bounds = polytope_set.bound(np.arange(14), prior)
    assert holds(bounds, x)
    assert np.mean(bounds.upper - bounds.lower) <= 1.02 * np.mean(first.upper - first.lower)


def test_asking_again_gives_the_same():
    _, prior, rows = problem(6, 200, width=0.3)
    polytope_set = FeasibleSet(prior)
    polytope_set.add(rows)
    first, again = (polytope_set.bound(np.arange(14), prior) for _ in range(2))
    assert np.allclose(again.lower, first.lower, atol=1e-6)
    assert np.allclose(again.upper, first.upper, atol=1e-6)
    nested = ParameterBox(first.lower, first.upper)
    third = polytope_set.bound(np.arange(14), nested)
    assert np.array_equal(third.lower, first.lower)
    assert third.solved == 28
