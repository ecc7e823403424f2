"""Types of command line arguments: text to a value, or a reason in one line."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from typing import NoReturn

__all__ = ["OneLineParser", "at_least", "non_negative", "numbers", "pair"]


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the reason and leave with status 2."""
        print(f"{self.prog}: error: {message}  ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def non_negative(text: str) -> float:
    """A finite number >= 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number") from None
    if not (math.isfinite(value) and value >= 0.0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a finite number >= 0")
    return value


def pair(text: str) -> tuple[float, float]:
    """Two numbers >= 0, as ``a,b``."""
    parts = text.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"{text!r}: expected two numbers a,b as in 0.05,0.025")
    return non_negative(parts[0]), non_negative(parts[1])


def numbers(count: int, example: str) -> Callable[[str], tuple[float, ...]]:
    """Type of ``count`` finite numbers, separated by commas.

    Args:
        count: how many.
        example: shown in the error.
    """

    def parse(text: str) -> tuple[float, ...]:
        expected = f"expected {count} numbers separated by commas, as in {example}"
        try:
            values = tuple(float(part) for part in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: {expected}") from None
        if len(values) != count or not all(math.isfinite(value) for value in values):
            raise argparse.ArgumentTypeError(f"{text!r}: {expected}")
        return values

    return parse


def at_least(lowest: int) -> Callable[[str], int]:
    """Type of a whole number from ``lowest`` up.

    Args:
        lowest: smallest number that is taken.
    """

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number") from None
        if not lowest <= value < 2**31:
            raise argparse.ArgumentTypeError(
                f"{text!r}: expected a whole number from {lowest} to {2**31 - 1}"
            )
        return value

    return integer
