"""Decimal output of proved numbers: lower bounds round down, upper bounds round up.

Exact: a float is a rational number, and all that is done with it here is done with whole numbers. Every proved number
that people read is made here: in a terminal, a page, a picture, a comment, a diagnostic. What programs read
(``bounds.yaml``, ``result.json``) holds the floats themselves, as Python writes them, which every reader turns into
the same float.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from safe_sysid.errors import ParameterError

__all__ = [
    "at_least",
    "at_most",
    "bracketed",
    "declared_text",
    "estimate_in",
    "estimate_text",
    "interval_text",
    "share_at_most",
    "width_at_most",
    "width_share",
]

#: What is rounded; a Fraction where a float would already have been rounded.
Number = float | Fraction
#: Of the larger end: how many digits an interval shows at most, and one of width zero.
_MOST_DIGITS, _POINT_DIGITS = 13, 6
#: An end has no more digits than so many, as long as the width has at least so many.
_PLENTY, _FEWEST = 4, 2


def at_least(value: Number, digits: int = 3, scale: int | Fraction = 1, places: int | None = None) -> str:
    """The largest decimal of so many digits that is not above ``scale * value``.

    Args:
        value: proved from below; infinities and NaN are written as such.
        digits: that count, at least 1.
        scale: of the unit that is shown, such as 1000 for a length in m that is shown in mm; > 0.
        places: behind the point, instead of digits that count.
    """
    return _one_sided(value, digits, scale, places, upward=False)


def at_most(value: Number, digits: int = 3, scale: int | Fraction = 1, places: int | None = None) -> str:
    """The smallest decimal of so many digits that is not below ``scale * value``; arguments as :func:`at_least`.

    Args:
        value: proved from above; infinities and NaN are written as such.
        digits: that count, at least 1.
        scale: of the unit that is shown.
        places: behind the point, instead of digits that count.
    """
    return _one_sided(value, digits, scale, places, upward=True)


def interval_text(
    lower: float, upper: float, digits: int = 2, scale: int | Fraction = 1, places: int | None = None
) -> tuple[str, str]:
    """Both ends of an interval, rounded outward to decimals of one step.

    Args:
        lower: may be ``-inf``.
        upper: >= lower, may be ``inf``.
        digits: of the width: 2 is a step of a hundredth to a tenth of it. Of three or more those are left out that
            come after the fourth digit of the larger end, as long as the width has two.
        scale: of the unit that is shown.
        places: behind the point, instead of digits of the width.

    Raises:
        ParameterError: ends that cross, or are not numbers.
    """
    low, _, high = _on_one_step(lower, None, upper, digits, scale, places)
    return low, high


def bracketed(lower: float, upper: float, digits: int = 2) -> str:
    """``[4.86, 5.10]``; arguments and errors as of :func:`interval_text`."""
    low, high = interval_text(lower, upper, digits)
    return f"[{low}, {high}]"


def estimate_text(
    lower: float, estimate: float, upper: float, digits: int = 2, scale: int | Fraction = 1
) -> tuple[str, str, str]:
    """Lower end, estimate, upper end; the estimate to the nearest step, so that it is read inside if it is inside.

    Args:
        lower: may be ``-inf``.
        estimate: proves nothing; finite.
        upper: >= lower, may be ``inf``.
        scale: of the unit that is shown.

    Raises:
        ParameterError: ends that cross, or something that is not a number.
    """
    if not math.isfinite(estimate):
        raise ParameterError(f"estimate {estimate!r}: expected a finite number")
    return _on_one_step(lower, estimate, upper, digits, scale, None)


def estimate_in(lower: float, estimate: float, upper: float, unit: str) -> str:
    """``5.0 in [4.86, 5.10] kg``; arguments and errors as of :func:`estimate_text`."""
    low, middle, high = estimate_text(lower, estimate, upper, 3)
    return f"{middle} in [{low}, {high}] {unit}"


def width_at_most(lower: float, upper: float, digits: int = 3) -> str:
    """Width of an interval, rounded up."""
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return at_most(upper - lower)
    return at_most(Fraction(upper) - Fraction(lower), digits)


def width_share(lower: float, upper: float, prior_lower: float, prior_upper: float) -> Fraction:
    """Width of an interval over its prior's, exactly; 1 where the prior has no width.

    Args:
        lower: of the interval, finite like the others.
        prior_lower: of the prior.
        prior_upper: of the prior.
    """
    whole = Fraction(prior_upper) - Fraction(prior_lower)
    return (Fraction(upper) - Fraction(lower)) / whole if whole > 0 else Fraction(1)


def share_at_most(share: Number, digits: int = 3, places: int | None = None) -> str:
    """``12.4 %``, rounded up.

    ``share``: of one, such as that of :func:`width_share`; ``places``: behind the point, instead of digits that count.
    """
    return f"{at_most(share, digits, 100, places)} %"


def declared_text(value: float, scale: int = 1) -> str:
    """A declared number in another unit, to the last digit: ``0.0049`` m as ``4.9``; read back it is the same float.

    ``scale``: of the unit that is shown, a power of ten.
    """
    return format((Decimal(repr(float(value))) * scale).normalize(), "f")


def _one_sided(value: Number, digits: int, scale: int | Fraction, places: int | None, upward: bool) -> str:
    if not math.isfinite(value):
        return str(value)
    exact = Fraction(value) * scale
    if exact == 0:
        return "0" if places is None else _decimal(0, -places, False)
    power = _power(abs(exact)) + 1 - digits if places is None else -places
    steps = exact / Fraction(10) ** power
    count = math.ceil(steps) if upward else math.floor(steps)
    if places is not None:
        return _decimal(count, power, False)
    while count and count % 10 == 0:  # digits that say nothing
        count, power = count // 10, power + 1
    size = _power(abs(exact))
    return _decimal(count, power, not -5 <= size < max(digits, 6))


def _on_one_step(
    lower: float, estimate: float | None, upper: float, digits: int, scale: int | Fraction, places: int | None
) -> tuple[str, str, str]:
    if not lower <= upper:
        raise ParameterError(f"interval [{lower!r}, {upper!r}]: expected lower <= upper")
    ends = [Fraction(end) * scale for end in (lower, upper) if math.isfinite(end)]
    largest = max((abs(end) for end in ends), default=Fraction(0))
    if largest == 0 and estimate is not None:
        largest = abs(Fraction(estimate) * scale)
    size = _power(largest) if largest else 0
    if places is not None:
        power = -places
    elif len(ends) == 2 and ends[0] < ends[1]:
        width = _power(ends[1] - ends[0])
        enough = min(size + 1 - _PLENTY, width + 1 - _FEWEST)
        power = max(width + 1 - digits, size + 1 - _MOST_DIGITS, enough if digits > _FEWEST else size - _MOST_DIGITS)
    else:
        power = size + 1 - _POINT_DIGITS if largest else 0
    scientific = places is None and (size < -4 or (power > 0 and size >= 6))

    def text(value: float, rounded: type[int] | object) -> str:
        if not math.isfinite(value):
            return str(value)
        return _decimal(rounded(Fraction(value) * scale / Fraction(10) ** power), power, scientific)  # type: ignore[operator]

    return text(lower, math.floor), "" if estimate is None else text(estimate, round), text(upper, math.ceil)


def _power(value: Fraction) -> int:
    """Largest k with ``10**k <= value``, of a value above zero."""
    k = len(str(value.numerator)) - len(str(value.denominator))
    return k if value >= Fraction(10) ** k else k - 1


def _decimal(count: int, power: int, scientific: bool) -> str:
    """``count * 10**power``, all its digits."""
    digits = tuple(int(digit) for digit in str(abs(count)))
    if count == 0:
        scientific, power = False, 0 if scientific else power
    value = Decimal((int(count < 0), digits, power))
    return f"{value:e}" if scientific else f"{value:f}"
