"""What a page promises of a command: its status, what a session shows, options that are named in prose."""

from __future__ import annotations

import argparse
import re
import shlex
from functools import cache

from docs_commands.pages import ROOT, Command
from docs_commands.workspace import Outcome
from safe_sysid.cli import build_parser

#: What a session shows of a command that is refused.
_REFUSED = "error:"
#: How a run in real time says that the machine held it up: on a busy one that is no fault of the page.
_TOO_BUSY = re.compile(
    r"braked by itself|no command for \d+ ms|does not start|not covered|come later than declared|drives brake"
)
#: Options of other programs that pages name: stock ROS 2 tools, pip, pytest, git, sphinx, launchers.
_OTHERS = frozenset(
    """--all --show-args --once --ros-args --params-file --qos-durability --qos-reliability --user --pdb --help
    --version --exclude-editable --system-site-packages --field --full-length""".split()  # noqa: SIM905
)


def disagreement(command: Command, outcome: Outcome) -> str:
    """What differs from what the page says; empty: nothing."""
    refused = any(_REFUSED in line for line in command.shown or ())
    if outcome.status == 1 and "--real-time" in command.words and _TOO_BUSY.search(outcome.output):
        return ""
    if (outcome.status != 0) != refused:
        expected = "to be refused" if refused else "status 0"
        return f"status {outcome.status}, expected {expected}:\n{_tail(outcome.output)}"
    return ""


def _tail(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-25:])


@cache
def options() -> dict[str, frozenset[str]]:
    """Options of every command, by its words: `plan`, `campaign identification`, ..."""
    found: dict[str, frozenset[str]] = {}

    def collect(parser: argparse.ArgumentParser, name: str) -> None:
        found[name] = frozenset(word for action in parser._actions for word in action.option_strings)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, below in action.choices.items():
                    collect(below, f"{name} {word}".strip())

    collect(build_parser(), "")
    return found


def unknown_options(span: str) -> list[str]:
    """Options in a code span that nothing has, commands of this program that do not exist."""
    try:
        words = shlex.split(span.replace("[", " ").replace("]", " ").replace("|", " "))
    except ValueError:
        return []
    named = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word)]
    if words[:1] in (["safe-sysid"], ["./safe-sysid"]):
        return _of_program(words[1:], named)
    for word in words[:2]:
        if re.fullmatch(r"(benchmarks|scripts)/\S+\.py", word):
            if not (files := sorted(ROOT.glob(word))):
                return [f"{word} does not exist"]
            source = "".join(file.read_text(encoding="utf-8") for file in files)
            return [f"{word} has no {option}" for option in named if f'"{option}"' not in source]
    if words and words[0].startswith("--") and words[0] != "--ros-args":
        known = frozenset().union(*options().values()) | _OTHERS | _of_scripts()
        return [f"no command has {option}" for option in named if option not in known]
    return []


@cache
def _of_scripts() -> frozenset[str]:
    """Options of the scripts in benchmarks."""
    files = (ROOT / "benchmarks").rglob("*.py")
    return frozenset(re.findall(r'"(--[a-z][\w-]*)"', "".join(file.read_text(encoding="utf-8") for file in files)))


def _of_program(words: list[str], named: list[str]) -> list[str]:
    if not words or words[0].startswith("-") or not re.fullmatch(r"[a-z]+", words[0]):
        return []
    if words[0] in ("test", "docs"):
        return []
    if words[0] not in options():
        return [f"no command {words[0]!r}"]
    below = " ".join(words[:2])
    name = below if below in options() else words[0]
    known = options()[name].union(*(own for other, own in options().items() if other.startswith(f"{name} ")))
    return [f"safe-sysid {name} has no {option}" for option in named if option not in known]
