"""Decimals of proved numbers: outward, exactly, against rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safe_sysid.decimals import (
    at_least,
    at_most,
    declared_text,
    estimate_text,
    interval_text,
    share_at_most,
    width_at_most,
    width_share,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALES = st.sampled_from([1, 100, 1000, Fraction(1, 1000), Fraction(22, 7)])


@given(FINITE, st.integers(1, 17), SCALES)
@example(0.0005, 17, 1000)  # times 1000.0 it is a float that lies below the product
def test_one_side_is_never_rounded_inward_and_loses_less_than_a_step(
    value: float, digits: int, scale: int | Fraction
) -> None:
    exact = Fraction(value) * scale
    low, high = Fraction(at_least(value, digits, scale)), Fraction(at_most(value, digits, scale))
    assert low <= exact <= high
    assert exact - low <= abs(exact) * Fraction(10) ** (1 - digits)
    assert high - exact <= abs(exact) * Fraction(10) ** (1 - digits)


@given(FINITE, FINITE, st.integers(1, 9), SCALES)
@example(3.0414, 3.1414000001, 2, 1)  # a true mass of 3.1414 kg was printed outside of it
def test_interval_is_never_rounded_inward_and_grows_by_less_than_its_digits(
    a: float, b: float, digits: int, scale: int | Fraction
) -> None:
    lower, upper = min(a, b), max(a, b)
    low, high = (Fraction(text) for text in interval_text(lower, upper, digits, scale))
    exact = Fraction(lower) * scale, Fraction(upper) * scale
    assert low <= exact[0]
    assert exact[1] <= high
    largest = max(abs(exact[0]), abs(exact[1]))
    finest = largest * Fraction(10) ** -12  # more digits than these nobody reads
    width = exact[1] - exact[0]
    plenty = min(largest / 1000, width / 10) if digits > 2 else 0  # four digits, of which two say the width
    step = max(width * Fraction(10) ** (1 - digits), finest, plenty)
    if lower == upper:
        step = largest * Fraction(10) ** -5
    assert exact[0] - low <= step
    assert high - exact[1] <= step


@given(FINITE, FINITE, FINITE, st.integers(1, 6))
def test_an_estimate_inside_is_read_inside(a: float, b: float, c: float, digits: int) -> None:
    lower, estimate, upper = sorted((a, b, c))
    low, middle, high = (Fraction(text) for text in estimate_text(lower, estimate, upper, digits))
    assert low <= middle <= high
    assert estimate_text(lower, estimate, upper, digits)[::2] == interval_text(lower, upper, digits)


@given(FINITE, FINITE, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_widths_and_shares_are_rounded_up(a: float, b: float, s: float, t: float) -> None:
    prior = min(a, b) / 4.0, max(a, b) / 4.0
    ends = sorted(min(max(prior[0] + x * (prior[1] - prior[0]), prior[0]), prior[1]) for x in (s, t))
    width = Fraction(ends[1]) - Fraction(ends[0])
    assert Fraction(width_at_most(*ends)) >= width
    share = Fraction(share_at_most(width_share(*ends, *prior)).removesuffix(" %"))
    whole = Fraction(prior[1]) - Fraction(prior[0])
    assert share >= 100 * width / whole if whole else share == 100


@pytest.mark.parametrize(
    ("lower", "upper", "digits", "texts"),
    [
        (4.8612, 5.0977, (), ("4.86", "5.10")),
        (-0.004, 0.0071, (), ("-0.005", "0.008")),
        (-1e-9, 5.0, (), ("-0.1", "5.0")),
        (0.0, 0.0, (), ("0", "0")),
        (0.5, 0.5, (), ("0.500000", "0.500000")),
        (-math.inf, 2.0, (), ("-inf", "2.00000")),
        (-math.inf, math.inf, (), ("-inf", "inf")),
        (1.21e-7, 1.29e-7, (), ("1.210e-7", "1.291e-7")),
        (123456.7, 234567.8, (), ("120000", "240000")),
        (1.2e9, 2.3e9, (), ("1.2e+9", "2.3e+9")),
        # Four digits are plenty, unless they do not show the width.
        (3.82903, 3.84652, (3,), ("3.829", "3.847")),
        (-0.21639, -0.21432, (3,), ("-0.2164", "-0.2143")),
        (-0.000424, 0.000569, (3,), ("-0.000425", "0.000569")),
        (5.00012, 5.00034, (3,), ("5.00011", "5.00034")),
    ],
)
def test_intervals_as_people_want_to_read_them(
    lower: float, upper: float, digits: tuple[int, ...], texts: tuple[str, str]
) -> None:
    assert interval_text(lower, upper, *digits) == texts


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (0.0123456, "0.0123", "0.0124"),
        (-0.0123456, "-0.0124", "-0.0123"),
        (9.996, "9.99", "10"),
        (5.0, "5", "5"),
        (0.0, "0", "0"),
        (-0.0, "0", "0"),
        (123456.0, "123000", "124000"),
        (1.5e-7, "1.49e-7", "1.5e-7"),
        (math.inf, "inf", "inf"),
        (-math.inf, "-inf", "-inf"),
        (math.nan, "nan", "nan"),
    ],
)
def test_one_sided_as_people_want_to_read_them(value: float, low: str, high: str) -> None:
    assert at_least(value) == low
    assert at_most(value) == high


def test_places_behind_the_point() -> None:
    assert (at_least(1.23456, places=4), at_most(1.23456, places=4)) == ("1.2345", "1.2346")
    assert at_least(-0.00001, places=4) == "-0.0001"
    assert at_most(-0.00001, places=4) == "0.0000"
    assert interval_text(1.23456, 2.0, places=4) == ("1.2345", "2.0000")


def test_a_declared_number_in_another_unit_loses_no_digit() -> None:
    for value, text in ((0.005, "5"), (0.0049, "4.9"), (0.0051234567, "5.1234567"), (0.0, "0"), (1e-9, "0.000001")):
        assert declared_text(value, 1000) == text
    for value in np.random.default_rng(0).uniform(0.0, 0.1, 1000):
        assert float(declared_text(value)) == value
