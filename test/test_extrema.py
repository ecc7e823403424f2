"""Ranges of piecewise quintics: exact values stay inside, the range is attained, degenerate polynomials are no case."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.errors import PlanError
from safe_sysid.trajectories import QuinticTrajectory, extrema
from safe_sysid.trajectories.extrema import derivative_range, interval_ranges

SEEDS = st.integers(0, 2**32 - 1)
KINDS = ("free", "to rest", "constant", "linear", "short", "long", "tiny step on a large angle", "turning back")


def trajectory_of(kind: str, rng: np.random.Generator, n: int = 2) -> QuinticTrajectory:
    """Trajectories whose coefficients vanish, nearly vanish, or differ by many orders of magnitude."""
    knots = np.zeros((int(rng.integers(2, 4)), 3, n))
    knots[:, 0] = rng.uniform(-3, 3, (len(knots), n))
    knots[:-1, 1:] = rng.uniform(-2, 2, (len(knots) - 1, 2, n))
    times = np.cumsum([0.0, *rng.uniform(0.2, 2.0, len(knots) - 1)])
    if kind == "to rest":
        knots[:, 1:] = 0.0
    elif kind == "constant":
        knots[:] = knots[0]
        knots[:, 1:] = 0.0
    elif kind == "linear":
        # Exactly representable: leading coefficients vanish in the first segment.
        times = np.array([0.0, 1.0, 2.0])
        knots = np.zeros((3, 3, n))
        knots[0, 1] = knots[1, 1] = knots[1, 0] = 0.5
        knots[2, 0] = 1.0
    elif kind == "short":
        times = times * 1e-3
    elif kind == "long":
        times = times * 50.0
    elif kind == "tiny step on a large angle":
        knots[:, 0] = 1e3 + 1e-9 * knots[:, 0]
        knots[:, 1:] *= 1e-9
    elif kind == "turning back":
        # A double root of the velocity in the middle of each segment.
        knots[:] = 0.0
        knots[1::2, 0] = rng.uniform(0.5, 1.0, n)
    return QuinticTrajectory(times, knots)


def exact(trajectory: QuinticTrajectory, joint: int, order: int, t: float) -> Fraction:
    """The polynomial of the segment that holds at t, in rational arithmetic."""
    if t >= trajectory.times[-1]:
        return Fraction(float(trajectory.knots[-1, 0, joint])) if order == 0 else Fraction(0)
    s = int(np.searchsorted(trajectory.times, t, side="right")) - 1
    x = Fraction(float(t)) - Fraction(float(trajectory.times[s]))
    value = Fraction(0)
    for i in range(5, order - 1, -1):
        factor = int(np.prod(np.arange(i - order + 1, i + 1), initial=1))
        value = value * x + Fraction(float(trajectory.coefficients[s, joint, i])) * factor
    return value


def hard_times(trajectory: QuinticTrajectory, joint: int, order: int, t0: float, t1: float) -> np.ndarray:
    """Ends, knots, samples, and the real roots of the next derivative."""
    found = [t0, t1, *np.linspace(t0, t1, 7), *trajectory.times]
    # The jerk jumps at knots.
    found += np.nextafter(trajectory.times, 0.0).tolist()
    for s, start in enumerate(trajectory.times[:-1]):
        c = np.polynomial.Polynomial(trajectory.coefficients[s, joint]).deriv(order + 1)
        c = np.trim_zeros(c.coef, "b")
        if c.size > 1:
            roots = np.polynomial.Polynomial(c).roots()
            found += [start + x for r in roots[np.abs(roots.imag) < 1e-6] for x in (r.real, r.real + 1e-9)]
    times = np.array(found)
    return np.unique(np.clip(times[(times >= t0 - 1e-12) & (times <= t1 + 1e-12)], t0, t1))


def check(trajectory: QuinticTrajectory, rng: np.random.Generator) -> tuple[float, float]:
    """Largest excess of exact values over a range, and of ranges over the hull of values, per size of the segment."""
    excess, slack = -np.inf, -np.inf
    t0, t1 = np.sort(rng.uniform(0.0, trajectory.duration * 1.1, 2))
    kind = rng.integers(4)
    if kind == 0:
        t0, t1 = 0.0, trajectory.duration
    elif kind == 1:
        t0, t1 = 0.98 * trajectory.duration, 1.1 * trajectory.duration
    for order in range(4):
        ranges = derivative_range(trajectory, order, t0, t1)
        for j in range(trajectory.n):
            values = [exact(trajectory, j, order, float(t)) for t in hard_times(trajectory, j, order, t0, t1)]
            low, high = Fraction(float(ranges[j, 0])), Fraction(float(ranges[j, 1]))
            excess = max(excess, float(low - min(values)), float(max(values) - high))
            span = np.diff(trajectory.times)
            size = max((np.abs(trajectory.coefficients[:, j]) * span[:, None] ** np.arange(6)).sum(axis=1))
            size *= max(60.0 / span**order)
            slack = max(slack, float(max(min(values) - low, high - max(values))) / size)
    return excess, slack


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(KINDS))
def test_exact_values_are_inside_and_the_range_is_attained(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    excess, slack = check(trajectory_of(kind, rng), rng)
    assert excess <= 0.0
    # Nothing but rounding is given away.
    assert slack <= 2e-12


@pytest.mark.parametrize("broken", ["interior extrema", "the shift", "the knot inside", "the rest"])
def test_a_broken_range_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken == "interior extrema":
        monkeypatch.setattr(extrema, "_maximum", lambda b, degree, stack: max(b[0], b[degree]))
        monkeypatch.setattr(extrema, "_ranges", extrema._ranges.py_func)
    elif broken == "the shift":
        kernel = extrema._ranges
        monkeypatch.setattr(extrema, "_ranges", lambda c, s, left, width, *rest: kernel(c, s, 0.9 * left, width, *rest))
    else:
        honest = interval_ranges

        def short(trajectory: QuinticTrajectory, borders: object, order: int) -> np.ndarray:
            borders = np.array(borders)
            limit = trajectory.times[1 if broken == "the knot inside" else -1] * (1 - 1e-9)
            return honest(trajectory, np.minimum(borders, limit), order)

        monkeypatch.setattr(extrema, "interval_ranges", short)
    worst = max(
        check(trajectory_of(kind, rng), rng)[0]
        for kind in ("free", "to rest", "turning back")
        for rng in map(np.random.default_rng, range(8))
    )
    assert worst > 1e-6


def test_rounding_has_room() -> None:
    """At the very ends and extrema the float result alone is on the wrong side about half of the time."""
    rng = np.random.default_rng(4)
    wrong = total = 0
    for _ in range(40):
        trajectory = trajectory_of("free", rng, 1)
        t = float(rng.uniform(0.0, trajectory.times[1]))
        value = Fraction(float(trajectory.state(t)[0, 0]))
        truth = exact(trajectory, 0, 0, t)
        low, high = derivative_range(trajectory, 0, t, t)[0]
        assert Fraction(float(low)) <= truth <= Fraction(float(high))
        assert Fraction(float(low)) <= value <= Fraction(float(high))
        assert high - low < 1e-9
        wrong += value < truth
        total += value != truth
    assert 0 < wrong < total


def test_cells_of_a_grid_and_single_intervals_agree() -> None:
    trajectory = trajectory_of("free", np.random.default_rng(5))
    grid = np.linspace(0.0, trajectory.duration + 0.5, 23)
    borders = np.stack([grid[:-1], grid[1:]], axis=1)
    for order in range(6):
        ranges = interval_ranges(trajectory, borders, order)
        assert ranges.shape == (22, 2, 2)
        for m in (0, 7, 21):
            np.testing.assert_array_equal(ranges[m], derivative_range(trajectory, order, *borders[m]))
        whole = derivative_range(trajectory, order, 0.0, grid[-1])
        np.testing.assert_allclose(whole, np.stack([ranges[..., 0].min(0), ranges[..., 1].max(0)], -1), atol=1e-9)
    # After the end: rest.
    np.testing.assert_array_equal(interval_ranges(trajectory, borders[-2:], 1)[1], 0.0)
    np.testing.assert_array_equal(derivative_range(trajectory, 0, 90.0, 91.0).T, [trajectory.knots[-1, 0]] * 2)


def test_overflow_bounds_nothing_and_nonsense_is_refused() -> None:
    wild = QuinticTrajectory.to_rest(np.array([[0.0], [1e300], [1e300]]), [0.0], 3.0)
    with np.errstate(all="ignore"):
        ranges = derivative_range(wild, 0, 0.0, 3.0)
    assert not np.all(np.abs(ranges) <= 1e280)
    trajectory = QuinticTrajectory.hold([0.0])
    for borders in ([[0.5, 0.4]], [[-0.1, 0.4]], [[0.0, np.nan]]):
        with pytest.raises(PlanError, match="expected 0 <= first"):
            interval_ranges(trajectory, borders, 0)
    with pytest.raises(PlanError, match=r"expected \(M, 2\)"):
        interval_ranges(trajectory, [0.0, 1.0], 0)
    with pytest.raises(PlanError, match="order = 6"):
        interval_ranges(trajectory, [[0.0, 1.0]], 6)
