"""Types of command line arguments: each makes a value of a text.

Each raises argparse.ArgumentTypeError, which the parser tells in one line, where the text is no such value.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

from safe_sysid.errors import ConfigError

__all__ = [
    "OneLineParser",
    "add_settings",
    "at_least",
    "check_directory",
    "check_output",
    "column",
    "joint_value",
    "names",
    "non_negative",
    "numbers",
    "pair",
    "positive",
    "share",
    "utc_time",
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

    ``path``: of the file; None: nothing to check.

    Raises ConfigError: its directory does not exist or takes no files, or it is a directory itself.
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

    ``path``: of the directory, which need not exist yet.

    Raises ConfigError: what exists of the path is no directory, or takes no files.
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


def non_negative(text: str) -> float:
    """A finite number >= 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number") from None
    if not (math.isfinite(value) and value >= 0.0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a finite number >= 0")
    return value


def positive(text: str) -> float:
    """A finite number > 0."""
    if not (value := non_negative(text)) > 0.0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number > 0")
    return value


def share(text: str) -> float:
    """A number from 0 to below 1."""
    if not (value := non_negative(text)) < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to below 1")
    return value


def names(text: str) -> tuple[str, ...]:
    """``a,b``: one or more."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected names separated by commas")
    return found


def column(text: str) -> tuple[str, str]:
    """``joint_1.position=q1``: of a log's table."""
    key, equals, name = text.partition("=")
    if not (equals and key and name):
        raise argparse.ArgumentTypeError(f"{text!r}: expected JOINT.position=COLUMN, or time=COLUMN")
    return key, name


def joint_value(text: str) -> tuple[str, float]:
    """``finger_joint=0.02``."""
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r}: expected JOINT=VALUE as in finger_joint=0.02")
    return name, value


def add_settings(parser: argparse._ActionsContainer, meaning: str) -> None:
    """Add ``--set KEY=VALUE``, a list of pairs. ``parser``: or a group of one; ``meaning``: for the help."""
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="KEY=VALUE", help=meaning)


def _setting(text: str) -> tuple[str, object]:
    """``measurement.torque_bias=0.1``, the value as YAML reads it."""
    from safe_sysid.robot.files.yaml_file import parse_value

    key, equals, value = text.partition("=")
    with suppress(ConfigError):
        if equals and key.strip():
            return key.strip(), parse_value(value, "--set")
    raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE, as measurement.torque_bias=0.1")


def utc_time(text: str) -> datetime:
    """UTC, unless it names another zone."""
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected ISO 8601, as 2026-05-01T14:00") from None
    return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)


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


def at_least(lowest: int, highest: int = 2**31 - 1) -> Callable[[str], int]:
    """Type of a whole number from ``lowest`` up, to ``highest`` at most."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number") from None
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {lowest} to {highest}")
        return value

    return integer
