"""Who runs a command, by its first word."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from importlib import metadata
from itertools import pairwise
from pathlib import Path

from docs_commands.pages import ROOT, Command
from docs_commands.table import UNTIL_CTRL_C, Ledger
from docs_commands.workspace import Outcome, Workspace


class NotCoveredError(AssertionError):
    """A command that no program here runs and no entry of the table explains."""


def _program(space: Workspace, words: list[str]) -> Outcome:
    return space.run_program(words[1:], until_of(words))


def _python(space: Workspace, words: list[str]) -> Outcome:
    """A script of this clone, a module, or `-m pip`."""
    if words[1:3] == ["-m", "pip"]:
        return _pip(space, words[2:])
    rest = words[1:]
    if rest and rest[0] != "-m":
        if not (ROOT / rest[0]).is_file():
            raise NotCoveredError(f"{rest[0]} is no script of this clone: {shlex.join(words)}")
        rest[0] = str(ROOT / rest[0])
    return space.shared.execute(
        [sys.executable, *rest], space.folder, space.variables, until_of(words), shlex.join(words)
    )


def _pip(_: Workspace, words: list[str]) -> Outcome:
    """Nothing is installed: every name must be one that this clone knows, or be installed."""
    assert words[1] == "install", shlex.join(words)
    known = (ROOT / "scripts" / "constraints.txt").read_text(encoding="utf-8").lower()
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    for before, word in pairwise(words[1:]):
        if word.startswith("-") or before == "--extra-index-url":
            continue
        if extras := re.fullmatch(r"\.(?:\[([\w,]+)\])?", word):
            missing = [extra for extra in (extras[1] or "").split(",") if extra and f'"{extra}"' not in setup]
            if missing:
                return Outcome(1, f"setup.py has no extra {missing[0]}")
            continue
        name = re.split(r"[<>=\[]", word)[0]
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            if not re.search(rf"^{re.escape(name.lower())}==", known, re.M):
                return Outcome(1, f"{name} is neither installed nor in scripts/constraints.txt")
    return Outcome(0, "")


def _export(space: Workspace, words: list[str]) -> Outcome:
    """Later commands of the block see it. Dots before `share` stand for where this package is installed."""
    for word in words[1:]:
        name, _, value = word.partition("=")
        if value.startswith(".../share/safe_sysid"):
            value = value.replace(".../share/safe_sysid", str(ROOT))
            if not Path(value).exists():
                return Outcome(1, f"{value} does not exist")
        space.variables[name] = value
    return Outcome(0, "")


def _mkdir(space: Workspace, words: list[str]) -> Outcome:
    for word in (word for word in words[1:] if not word.startswith("-")):
        (space.folder / word).mkdir(parents=True, exist_ok=True)
    return Outcome(0, "")


RUNNERS: dict[str, Callable[[Workspace, list[str]], Outcome]] = {
    "safe-sysid": _program,
    "./safe-sysid": _program,
    "python": _python,
    "python3": _python,
    "pip": _pip,
    "export": _export,
    "mkdir": _mkdir,
}


def until_of(words: list[str]) -> str:
    """What a program prints that goes on until Ctrl-C; empty for others."""
    text = shlex.join(words)
    return next((sign for pattern, sign in UNTIL_CTRL_C if re.search(pattern, text)), "")


def covered(command: Command, ledger: Ledger) -> str:
    """Who runs a command: a program's name, or `elsewhere`.

    Raises:
        NotCoveredError: nobody.
    """
    if ledger.elsewhere(command.text):
        return "elsewhere"
    first = command.words[0] if command.words else "export"
    if first in RUNNERS or first == "ros2":
        return first
    raise NotCoveredError(f"{command.place}: nobody runs {command.text!r}; see test/docs_commands/table.py")


def run(space: Workspace, command: Command, ledger: Ledger) -> Outcome:
    """Run a command that is not `ros2`."""
    if not command.words:
        return _export(space, ["export", *(f"{name}={value}" for name, value in command.variables)])
    words = space.resolve(list(ledger.shorten(command.words)))
    before = dict(space.variables)
    space.variables.update(command.variables)
    outcome = RUNNERS[words[0]](space, words)
    if words[0] != "export":
        space.variables = before
    if command.target:
        (space.folder / command.target).write_text(outcome.output, encoding="utf-8")
    return outcome
