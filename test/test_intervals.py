"""Outward rounding, against exact rational arithmetic and high-precision decimals."""

from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_sysid import intervals as iv
from safe_sysid.errors import ParameterError

numbers = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda x: x == 0.0 or abs(x) > 1e-100)
getcontext().prec = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def pair(a: float, b: float) -> tuple[float, float]:
    return min(a, b), max(a, b)


@given(numbers, numbers, numbers, numbers, st.floats(0, 1), st.floats(0, 1))
def test_operations_hold_the_exact_result(a, b, c, d, s, t) -> None:
    x, y = pair(a, b), pair(c, d)
    u = min(max(x[0] + s * (x[1] - x[0]), x[0]), x[1])
    v = min(max(y[0] + t * (y[1] - y[0]), y[0]), y[1])
    for operation, exact in (
        (iv.iadd, Fraction(u) + Fraction(v)),
        (iv.isub, Fraction(u) - Fraction(v)),
        (iv.imul, Fraction(u) * Fraction(v)),
    ):
        lo, hi = operation(*x, *y)
        assert Fraction(lo) <= exact <= Fraction(hi)


def decimal_sin(x: Decimal) -> Decimal:
    x = x % (2 * PI)
    term, total, k = x, x, 1
    while abs(term) > Decimal("1e-55"):
        term = -term * x * x / ((k + 1) * (k + 2))
        total, k = total + term, k + 2
    return max(min(total, Decimal(1)), Decimal(-1))  # the truth lies there; the oracle's last digits may not


@given(st.floats(-50, 50), st.floats(0, 7), st.floats(0, 1))
def test_sine_and_cosine_hold_the_exact_value(lo: float, width: float, s: float) -> None:
    hi = lo + width
    x = min(lo + s * (hi - lo), hi)
    exact = Decimal(x)
    for kernel, value in ((iv.sin_interval, decimal_sin(exact)), (iv.cos_interval, decimal_sin(exact + PI / 2))):
        low, high = kernel(lo, hi)
        assert Decimal(low) <= value <= Decimal(high)


@pytest.mark.parametrize("k", range(-5, 6))
def test_extrema_are_not_missed(k: int) -> None:
    x = k * np.pi / 2
    for kernel, f in ((iv.sin_interval, np.sin), (iv.cos_interval, np.cos)):
        for a, b in ((x - 1e-3, x + 1e-3), (x, x), (x - 1e-16, x + 0.1), (x - 3.2, x)):
            low, high = kernel(a, b)
            samples = f(np.linspace(a, b, 101))
            assert low <= samples.min()
            assert samples.max() <= high
            assert high - low <= samples.max() - samples.min() + 1e-3


def test_wide_or_huge_arguments_give_the_whole_range() -> None:
    assert iv.sin_interval(0.0, 7.0) == (-1.0, 1.0)
    assert iv.cos_interval(1e9, 1e9 + 1) == (-1.0, 1.0)
    assert iv.cos_interval(float("nan"), 1.0) == (-1.0, 1.0)


@given(st.integers(0, 2**31), st.integers(1, 60))
def test_matvec_bounds_hold_the_exact_product(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(2, n)) * 10.0 ** rng.integers(-6, 6, (2, n))
    x = rng.normal(size=n) * 10.0 ** rng.integers(-6, 6, n)
    a[1] = np.where(np.arange(n) % 2, 1.0, -1.0) / np.where(x == 0, 1, x)  # massive cancellation
    lower, upper = iv.matvec_bounds(a, x)
    for row, lo, hi in zip(a, lower, upper, strict=True):
        exact = sum(Fraction(float(p)) * Fraction(float(q)) for p, q in zip(row, x, strict=True))
        assert Fraction(float(lo)) <= exact <= Fraction(float(hi))


def test_an_empty_interval_is_refused() -> None:
    with pytest.raises(ParameterError, match="lower <= upper"):
        iv.check_interval(np.array([0.5, 2.0]), np.array([1.0, 1.0]), "meet")
