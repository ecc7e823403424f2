"""The SQP: right minima of problems with known answers, convergence from infeasible starts, determinism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from safe_sysid.planning.optimiser.sqp import SqpOptions, SqpResult, Subproblem, minimise

EXACT = SqpOptions(smallest=1e-7, tolerance=1e-9, feasible=1e-6)


@dataclass
class Function:
    """Anything with a gradient, and maybe a Hessian."""

    f: Callable[[np.ndarray], tuple[float, np.ndarray]]
    hessian: np.ndarray | None = None

    def value_and_gradient(self, k: np.ndarray) -> tuple[float, np.ndarray]:
        return self.f(k)

    def gauss_newton(self, k: np.ndarray) -> np.ndarray | None:
        return self.hessian


@dataclass
class Margins:
    """Margins with their Jacobian."""

    c: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

    def values(self, k: np.ndarray) -> np.ndarray:
        return self.c(k)[0]

    def values_and_jacobian(self, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.c(k)


FREE = Margins(lambda k: (np.ones(1), np.zeros((1, len(k)))))


def linear(matrix: np.ndarray, offset: np.ndarray) -> Margins:
    return Margins(lambda k: (matrix @ k + offset, matrix))


def run(f: Function, c: Margins, start: np.ndarray, iterations: int = 200, **changes: object) -> SqpResult:
    n = len(start)
    return minimise(f, c, start, -np.ones(n), np.ones(n), Subproblem(n, 24), iterations, options=EXACT, **changes)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_convex_quadratics_with_linear_margins(seed: int) -> None:
    """Minimum as found by another solver; with the exact Hessian and with BFGS."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 8)), int(rng.integers(1, 20))
    root = rng.normal(size=(n, n))
    hessian, g = root @ root.T + 0.1 * np.eye(n), 3.0 * rng.normal(size=n)
    matrix = rng.normal(size=(m, n))
    inside = rng.uniform(-0.5, 0.5, n)
    offset = rng.uniform(0.0, 0.5, m) - matrix @ inside

    def f(k: np.ndarray) -> tuple[float, np.ndarray]:
        return float(g @ k + 0.5 * k @ hessian @ k), g + hessian @ k

    reference = minimize(
        f, inside, jac=True, method="SLSQP", bounds=[(-1, 1)] * n, options={"ftol": 1e-14, "maxiter": 500},
        constraints={"type": "ineq", "fun": lambda k: matrix @ k + offset, "jac": lambda k: matrix},
    )  # fmt: skip
    for known in (hessian, None):
        found = run(Function(f, known), linear(matrix, offset), rng.uniform(-1, 1, n))
        assert (matrix @ found.best[1] + offset).min() >= -EXACT.feasible
        assert found.best[0] == pytest.approx(reference.fun, abs=2e-3)


@pytest.mark.parametrize("angle", [0.5, 0.7, 0.9, 1.2])
def test_curved_margin_bends_the_step_back(angle: float) -> None:
    """A circle's outside and inside at once (Maratos): the answer is on it; uncorrected steps take 40 and more."""

    def f(k: np.ndarray) -> tuple[float, np.ndarray]:
        return 2.0 * (k @ k - 1.0) - k[0], 4.0 * k - np.array([1.0, 0.0])

    def c(k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # The classic: on the unit circle the full step raises both cost and violation.
        return np.array([k @ k - 1.0, 1.0 - k @ k]), np.array([2.0 * k, -2.0 * k])

    found = run(Function(f), Margins(c), np.array([np.cos(angle), np.sin(angle)]), 60)
    # As exactly as OSQP solves a program without any room.
    assert found.violation < 1e-3
    assert found.value < -0.998
    assert found.iterations < 30


@pytest.mark.parametrize("seed", range(5))
def test_comes_back_from_far_outside(seed: int) -> None:
    """From a start that breaks curved margins to a local minimum that keeps them."""
    rng = np.random.default_rng(seed)
    centre, target = rng.uniform(-0.3, 0.3, 5), rng.uniform(-1, 1, 5)

    def c(k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d = k - centre
        return np.array([0.16 - d @ d, np.sin(3 * k[0]) + 0.6]), np.array([-2 * d, [3 * np.cos(3 * k[0]), 0, 0, 0, 0]])

    f = Function(lambda k: (10.0 * float((k - target) @ (k - target)), 20.0 * (k - target)))
    start = centre + 0.9 * np.sign(rng.normal(size=5))
    assert c(np.clip(start, -1, 1))[0].min() < -0.1
    found = run(f, Margins(c), start)
    reference = minimize(
        lambda k: f.f(k)[0], found.best[1], method="SLSQP", bounds=[(-1, 1)] * 5,
        constraints={"type": "ineq", "fun": lambda k: c(k)[0]}, options={"ftol": 1e-12},
    )  # fmt: skip
    assert found.best[0] <= reference.fun + 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_margins_that_cannot_be_kept_are_broken_least(seed: int) -> None:
    """No best, and the last iterate has nearly the smallest largest violation there is (a linear program)."""
    rng = np.random.default_rng(seed)
    n, m = 4, 10
    matrix, offset = rng.normal(size=(m, n)), rng.normal(size=m) - 2.0
    program = linprog(
        np.append(np.zeros(n), 1.0), A_ub=np.hstack([-matrix, -np.ones((m, 1))]), b_ub=offset,
        bounds=[(-1, 1)] * n + [(0, None)],
    )  # fmt: skip
    assert program.fun > 0.1, "or it could be kept"
    found = run(Function(lambda k: (float(k @ k), 2 * k)), linear(matrix, offset), np.zeros(n))
    assert found.best is None
    assert found.violation == pytest.approx(program.fun, abs=5e-3)


def test_the_worst_of_many_margins_is_never_forgotten() -> None:
    """More margins than a subproblem has rows: a polygon with 400 sides, all of them in the way in turn."""
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    sides = -np.stack([np.cos(angle), np.sin(angle)], axis=1)
    f = Function(lambda k: (float(-k[0] - 0.5 * k[1]), np.array([-1.0, -0.5])))
    found = run(f, linear(sides, np.full(400, 0.5)), np.array([-0.4, 0.1]))
    assert (sides @ found.best[1] + 0.5).min() >= -1e-6
    assert found.best[0] == pytest.approx(-0.5 * np.hypot(1, 0.5), abs=1e-3)


def test_bounds_stops_and_counts() -> None:
    f = Function(lambda k: (float(np.sum((k - 3.0) ** 2)), 2 * (k - 3.0)))
    found = minimise(f, FREE, np.full(3, 9.0), -np.ones(3), np.full(3, 0.25), Subproblem(3), 50)
    assert np.array_equal(found.k, np.full(3, 0.25))
    assert found.converged
    stop = iter((False, False, False, True)).__next__
    stopped = minimise(f, FREE, -np.ones(3), -np.ones(3), np.ones(3), Subproblem(3), 50, stop, SqpOptions(radius=0.1))
    assert stopped.iterations == 3
    assert not stopped.converged
    assert minimise(f, FREE, np.zeros(3), -np.ones(3), np.ones(3), Subproblem(3), 0).best is not None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_cost_that_breaks_down_is_kept_away_from(bad: float) -> None:
    """Beyond 0.5 the cost is NaN or infinite: the answer is on this side, or there is none."""

    def f(k: np.ndarray) -> tuple[float, np.ndarray]:
        return (bad, np.full(2, bad)) if k[0] > 0.5 else (float(-k[0] + k[1] ** 2), np.array([-1.0, 2 * k[1]]))

    found = run(Function(f), FREE, np.zeros(2))
    assert np.isfinite(found.best[0])
    assert 0.4 < found.best[1][0] <= 0.5
    assert run(Function(f), FREE, np.array([0.9, 0.0])).best is None


def test_the_same_problem_gives_the_same_answer_whatever_was_solved_before() -> None:
    """OSQP adapts by iterations, not by time; a fresh subproblem knows nothing."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(15, 4))
    c = Margins(lambda k: (0.5 + np.tanh(matrix @ k), (1 - np.tanh(matrix @ k) ** 2)[:, None] * matrix))
    f = Function(lambda k: (float(np.sin(3 * k).sum()), 3 * np.cos(3 * k)))
    answers = [run(f, c, np.full(4, begin)) for begin in (0.3, 0.3, 0.3, -0.5, 0.3)]
    same = answers[:3] + answers[4:]
    assert len({(a.k.tobytes(), a.iterations) for a in same}) == 1
