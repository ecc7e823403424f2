"""Functions of eigenvalues: exact values, and derivatives that hold where eigenvalues are repeated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.planning.costs.spectrum import log_condition, log_smallest, log_volume

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]
#: Each with what it stands for, and by how much it may lie above that.
FUNCTIONS: tuple[tuple[Function, Callable[[np.ndarray], float], float], ...] = (
    (log_condition, lambda s: float(np.log(s[0] / s[-1])), np.log(10.0) / 8),
    (log_smallest, lambda s: float(-np.log(s[-1])), np.log(10.0) / 16),
    (log_volume, lambda s: float(-np.log(s).mean()), 0.0),
)
#: Distinct, in one or several eigenspaces, all equal, extremes repeated, far apart.
SPECTRA = (
    np.linspace(1.0, 3.0, 10),
    np.ones(10),
    np.repeat([0.5, 4.0], 5),
    np.array([1e-3, 1e-3, 1e-3, 1.0, 1.0, 2.0, 3.0, 7.0, 7.0, 7.0]),
    np.logspace(-4, 4, 10),
)


def rotated(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    q, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    gram = (q * values) @ q.T
    return 0.5 * (gram + gram.T)


@pytest.mark.parametrize(("function", "exact", "above"), FUNCTIONS)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.0, 1.5))
@settings(max_examples=30, deadline=None)
def test_values_are_those_of_the_singular_values(
    function: Function, exact: Callable[[np.ndarray], float], above: float, seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    # Farther apart, the floor that keeps a hopeless trajectory finite would show.
    rows = rng.normal(size=(25, 10)) * 10.0 ** rng.uniform(-spread, spread, 10)
    value = function(rows.T @ rows)[0]
    expected = exact(np.linalg.svd(rows, compute_uv=False))
    assert expected - 1e-4 <= value <= expected + above + 1e-4


@pytest.mark.parametrize("function", [f for f, _, _ in FUNCTIONS])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_derivative_in_every_direction_also_at_repeated_eigenvalues(function: Function, spectrum: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    gram = rotated(spectrum, rng)
    slope = function(gram)[1]
    assert np.allclose(slope, slope.T, rtol=0, atol=1e-9 * np.abs(slope).max())
    for _ in range(6):
        direction = rotated(rng.normal(size=10), rng)
        step = 1e-4 * spectrum.min()
        up, down = (function(gram + s * step * direction)[0] for s in (1.0, -1.0))
        expected = (up - down) / (2.0 * step)
        size = np.abs(slope).max() * np.linalg.norm(direction)
        assert np.sum(slope * direction) == pytest.approx(expected, rel=1e-4, abs=1e-5 * size + 1e-7)


@pytest.mark.parametrize("function", [f for f, _, _ in FUNCTIONS])
def test_a_matrix_without_rank_is_hopeless_but_finite(function: Function) -> None:
    value, slope = function(np.diag([1.0] * 4 + [0.0] * 6))
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))
    assert value > function(np.eye(10))[0]


def test_more_information_never_costs_more() -> None:
    """Monotone in the sense of positive semidefinite matrices, which the condition number is not."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        a, b = rng.normal(size=(15, 10)), rng.normal(size=(3, 10))
        for function in (log_smallest, log_volume):
            assert function(a.T @ a + b.T @ b)[0] < function(a.T @ a)[0]
