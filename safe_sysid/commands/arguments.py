"""Types of command line arguments: text to a value, or a reason in one line."""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from safe_sysid.errors import ConfigError

__all__ = [
    "OneLineParser",
    "at_least",
    "check_directory",
    "check_output",
    "key_value",
    "non_negative",
    "numbers",
    "pair",
    "whole",
]


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """As the base class does; remembers the words, for a hint."""
        self._given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the reason and leave with status 2."""
        message += self._hint(message)
        print(f"{self.prog}: error: {message}  ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)

    def _hint(self, message: str) -> str:
        """What to write where a value that begins with a minus was taken for an option."""
        found = re.match(r"argument (\S+): expected ", message)
        names = found[1].split("/") if found else []
        for name, value in zip(self._given, self._given[1:], strict=False):
            if name in names and re.match(r"-\.?\d", value):
                return f": write {name}={value}"
        return ""


def check_output(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before anything is done for it.

    Args:
        path: of the file; None: nothing to check.

    Raises:
        ConfigError: its directory does not exist or takes no files, or it is a directory itself.
    """
    if path is None:
        return
    if path.is_dir():
        raise ConfigError(option, "file", str(path), "a file, this is a directory")
    if not path.parent.is_dir():
        raise ConfigError(option, "file", str(path), "a file in a directory that exists")
    if not path.exists():
        _try_writing(option, path, path.parent, "file")


def check_directory(option: str, path: Path) -> None:
    """Refuse a directory that cannot be made or written to, before anything is done for it; makes none.

    Args:
        path: of the directory, which need not exist yet.

    Raises:
        ConfigError: what exists of the path is no directory, or takes no files.
    """
    try:
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    except OSError as error:
        raise _unusable(option, path, "directory", error) from None
    _try_writing(option, path, nearest, "directory")


def _try_writing(option: str, path: Path, place: Path, what: str) -> None:
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise _unusable(option, path, what, error) from None


def _unusable(option: str, path: Path, what: str, error: OSError) -> ConfigError:
    return ConfigError(option, what, str(path), f"a {what} that can be written ({error.strerror})")


def key_value(text: str) -> tuple[str, object] | None:
    """``KEY=VALUE`` of ``--set`` with the value as YAML reads it; None if it is not that."""
    from safe_sysid.robot.files.yaml_file import parse_value

    key, equals, value = text.partition("=")
    if not (equals and key.strip()):
        return None
    try:
        return key.strip(), parse_value(value, "--set")
    except ConfigError:
        return None


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
    """Type of ``count`` finite numbers, separated by commas. ``count``: how many; ``example``: shown in the error."""

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
    """Type of a whole number from ``lowest`` up. ``lowest``: smallest number that is taken."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number") from None
        if not lowest <= value < 2**31:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {lowest} to {2**31 - 1}")
        return value

    return integer


def whole(lowest: int, highest: int) -> Callable[[str], int]:
    """A type of arguments: a whole number in a range."""

    def convert(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {lowest} to {highest}")
        return int(text)

    return convert
