"""Affine forms hold the exact result: checked in rational (or extended) arithmetic at sampled symbols."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.reachability import affine

SEEDS = st.integers(0, 2**32 - 1)


def symbols(n: int, groups: int, rng: np.random.Generator) -> np.ndarray:
    """(1 + groups n,) floats: time in [-1, 1], then vectors of the unit ball, mostly on its border."""
    parts = [[rng.choice([-1.0, 1.0, rng.uniform(-1, 1)])]]
    for _ in range(groups):
        y = rng.normal(size=n) * rng.choice([0.0, 1.0], n, p=[0.3, 0.7])
        y = np.sign(y) if rng.random() < 0.3 else y
        y = y * (1 - 1e-14) / max(np.linalg.norm(y), 1e-300)
        assert sum(Fraction(v) ** 2 for v in y) <= 1
        parts.append(y)
    return np.concatenate(parts)


def random_form(n: int, groups: int, rng: np.random.Generator, size: float = 1.0) -> np.ndarray:
    """A form of mixed magnitudes; now and then without remainder, without centre, or sparse."""
    form = rng.normal(size=3 + groups * n) * 10.0 ** rng.integers(-6, 3, 3 + groups * n) * size
    form[rng.random(len(form)) < 0.3] = 0.0
    form[-1] = abs(form[-1])
    return form


def value(form: np.ndarray, eps: np.ndarray, u: float) -> Fraction:
    """The exact member of the set for these symbols and this private one."""
    out = Fraction(float(form[0])) + Fraction(float(form[-1])) * Fraction(u)
    return out + sum(Fraction(float(g)) * Fraction(float(s)) for g, s in zip(form[1:-1], eps, strict=True))


def excess(form: np.ndarray, eps: np.ndarray, exact: Fraction) -> float:
    """How far ``exact`` is outside of what the form allows at these symbols; > 0 is a violation."""
    return float(abs(exact - value(form, eps, 0.0)) - Fraction(float(form[-1])))


def privates(count: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice([-1.0, 1.0, 0.5], count)


def worst_excess(operation: Callable[..., tuple], rng: np.random.Generator, rounds: int = 40) -> float:
    """Largest violation of an operation ``(n, groups, rng) -> (operands, exact function, result)``."""
    worst = -np.inf
    for _ in range(rounds):
        n, groups = int(rng.integers(1, 5)), int(rng.integers(1, 3))
        operands, exact, result = operation(n, groups, rng)
        for _ in range(6):
            eps, us = symbols(n, groups, rng), privates(len(operands), rng)
            members = [value(x, eps, u) for x, u in zip(operands, us, strict=True)]
            worst = max(worst, excess(result, eps, exact(*members)))
    return worst


def on_two(function: Callable, exact: Callable) -> Callable[..., tuple]:
    def operation(n, groups, rng):
        x, y = random_form(n, groups, rng), random_form(n, groups, rng)
        out = np.empty_like(x)
        function(x, y, out)
        return (x, y), exact, out

    return operation


do_add, do_sub = on_two(affine.add, operator.add), on_two(affine.sub, operator.sub)


def do_add_scaled(n, groups, rng):
    x, y, factor = random_form(n, groups, rng), random_form(n, groups, rng), float(rng.normal())
    out = y.copy()
    affine.add_scaled(x, factor, out)
    return (x, y), lambda a, b: b + Fraction(factor) * a, out


def do_scale(n, groups, rng):
    x, factor = random_form(n, groups, rng), float(rng.normal())
    out = np.empty_like(x)
    affine.scale(x, factor, out)
    return (x,), lambda a: Fraction(factor) * a, out


def do_constant(n, groups, rng):
    x, shift = random_form(n, groups, rng), float(rng.normal() * 1e3)
    out = x.copy()
    affine.add_constant(shift, out)
    return (x,), lambda a: a + Fraction(shift), out


def do_mul(n, groups, rng):
    x, y = random_form(n, groups, rng), random_form(n, groups, rng)
    if rng.random() < 0.3:
        y = x * float(rng.choice([-2.0, 1.0]))
        y[-1] = abs(y[-1])
    out = np.empty_like(x)
    affine.dot(x[None], y[None], n, out)
    return (x, y), lambda a, b: a * b, out


def do_dot(n, groups, rng):
    m = int(rng.integers(2, 4))
    xs = np.array([random_form(n, groups, rng) for _ in range(m)])
    ys = np.array([random_form(n, groups, rng) for _ in range(m)])
    if rng.random() < 0.5:
        # As a joint's rotation: two symbols only, the same in all of xs.
        keep = np.zeros(xs.shape[1], dtype=bool)
        keep[[0, 1, 2 + int(rng.integers(n)), -1]] = True
        xs[:, ~keep] = 0.0
    out = np.empty_like(xs[0])
    affine.dot(xs, ys, n, out)
    return (*xs, *ys), lambda *v: sum(a * b for a, b in zip(v[:m], v[m:], strict=True)), out


@pytest.mark.parametrize("operation", [do_add, do_sub, do_add_scaled, do_scale, do_constant, do_mul, do_dot])
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_operation_holds_the_exact_result(operation: Callable[..., tuple], seed: int) -> None:
    assert worst_excess(operation, np.random.default_rng(seed)) <= 0.0


@pytest.mark.parametrize(
    ("operation", "spoil"),
    [
        (do_sub, lambda ops, out: out.__setitem__(-1, ops[0][-1])),
        (do_sub, lambda ops, out: out.__setitem__(-1, abs(ops[0][-1] - ops[1][-1]))),
        (do_add, lambda ops, out: out.__setitem__(-1, ops[0][-1] + ops[1][-1])),
        # The product's own remainder assigned: what the first operand's brings is lost.
        (do_mul, lambda ops, out: out.__setitem__(-1, out[-1] - ops[0][-1] * abs(ops[1][0]))),
        (do_mul, lambda ops, out: out.__setitem__(-1, out[-1] * 0.8)),
        (do_dot, lambda ops, out: out.__setitem__(-1, out[-1] * 0.8)),
        (do_scale, lambda ops, out: out.__setitem__(-1, ops[0][-1])),
        (do_constant, lambda ops, out: out.__setitem__(-1, ops[0][-1])),
    ],
)
def test_the_check_finds_a_lost_remainder(operation: Callable[..., tuple], spoil: Callable) -> None:
    def mutated(n, groups, rng):
        operands, exact, result = operation(n, groups, rng)
        spoil(operands, result)
        return operands, exact, result

    assert any(worst_excess(mutated, np.random.default_rng(seed), 10) > 0.0 for seed in range(32))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_range_holds_every_member_and_is_attained(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, groups = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    x = random_form(n, groups, rng)
    lo, hi = affine.affine_range(x, n)
    for _ in range(20):
        member = value(x, symbols(n, groups, rng), float(privates(1, rng)[0]))
        assert Fraction(lo) <= member <= Fraction(hi)
    best = [np.sign(x[1])]
    for g in range(groups):
        part = x[2 + g * n : 2 + (g + 1) * n]
        best.extend(part / max(np.linalg.norm(part), 1e-300) * (1 - 1e-14))
    top = float(value(x, np.array(best), 1.0))
    assert top >= hi - 1e-11 * (1.0 + np.abs(x).sum())


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_sine_and_cosine_hold_over_the_range(seed: int) -> None:
    assert worst_sine(np.random.default_rng(seed), affine.sin_cos) <= 0.0


def worst_sine(rng: np.random.Generator, sin_cos: Callable, rounds: int = 20) -> float:
    """Largest violation, with sine and cosine in extended precision (64-bit mantissa) as the oracle."""
    worst = -np.inf
    for _ in range(rounds):
        n = int(rng.integers(1, 4))
        x = random_form(n, 1, rng, 10.0 ** rng.integers(-4, 1))
        x[0] = rng.choice([0.0, np.pi / 2, np.pi, rng.uniform(-7, 7), 1000 * rng.normal()])
        if rng.random() < 0.3:
            x[-1] = 0.0
        s, c = np.empty_like(x), np.empty_like(x)
        sin_cos(x, n, s, c)
        for _ in range(8):
            eps = symbols(n, 1, rng)
            member = value(x, eps, float(privates(1, rng)[0]))
            angle = np.longdouble(float(member))
            rest = float(member - Fraction(float(member)))
            for form, found in ((s, np.sin(angle) + rest * np.cos(angle)), (c, np.cos(angle) - rest * np.sin(angle))):
                # The oracle's own error is some 1e-19 (1 + |angle|) / 8: two parts of it are exact here.
                oracle = Fraction(float(found)) + Fraction(float(found - np.longdouble(float(found))))
                worst = max(worst, excess(form, eps, oracle) - 1e-18)
    return worst


def test_the_check_finds_a_sine_remainder_at_the_centre() -> None:
    def spoiled(x, n, s, c):
        affine.sin_cos(x, n, s, c)
        # First-order Taylor form with the second derivative at the centre instead of over the range.
        radius = abs(affine.affine_range(x, n)[1] - x[0])
        s[0], s[1:-1] = np.sin(x[0]), np.cos(x[0]) * x[1:-1]
        s[-1] = x[-1] + 0.5 * radius**2 * abs(np.sin(x[0])) + 1e-14

    assert any(worst_sine(np.random.default_rng(seed), spoiled) > 0.0 for seed in range(3))


def test_sine_of_a_wide_or_broken_form_is_everything_or_nan() -> None:
    s, c = np.empty(4), np.empty(4)
    affine.sin_cos(np.array([0.3, 2.0, 0.0, 0.0]), 1, s, c)
    assert s.tolist() == c.tolist() == [0.0, 0.0, 0.0, 1.0]
    affine.sin_cos(np.array([np.nan, 0.0, 0.0, 0.0]), 1, s, c)
    assert np.isnan(s[-1])
    assert np.isnan(c[-1])


def test_products_of_errors_in_a_ball_do_not_count_n_squared_times() -> None:
    n = 7
    x = np.concatenate([[0.0, 0.0], np.ones(n), [0.0]])
    out = np.empty_like(x)
    affine.dot(x[None], x[None], n, out)
    lo, hi = affine.affine_range(out, n)
    # (sum eps)^2 over the unit ball is [0, n]; a box would give n^2.
    assert lo >= -1e-6
    assert hi <= n + 1e-6
