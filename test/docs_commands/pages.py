"""What the pages show: fenced blocks, the commands in them, and code spans in prose."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
#: Languages of fences: shell commands; a session (`$ command`, then what it printed); everything else is no command.
SHELL, SESSION = frozenset({"sh", "bash"}), "console"
OTHER = frozenset({"text", "yaml", "xml", "json", "python", "ini", "toml", "html", "{eval-rst}"})
#: First words of what would be a command if it stood in a shell block.
PROGRAMS = "safe-sysid|./safe-sysid|ros2|python|python3|pip|colcon|rosdep|git|apt|apt-get|sudo|source|export|docker"
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<language>[^\s`]*)(?P<rest>[^`]*)$")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
_PLACEHOLDER = re.compile(r"<([a-z][^<>\n]*)>")


class PageError(Exception):
    """A page that cannot be read as pages are written here."""


@dataclass(frozen=True)
class Fence:
    """A fenced block: where its first line stands, its language and its lines without the fence's indentation."""

    page: str
    line: int
    language: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """One simple command: words with `<that run>` written as `@that_run@`, and in a session what it printed."""

    page: str
    line: int
    fence: int
    text: str
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    background: bool = False
    shown: tuple[str, ...] | None = None
    target: str = ""  # file that takes what it prints

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page}:{self.line}"


@cache
def pages() -> tuple[str, ...]:
    """README and everything in docs, relative to the clone."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return ("README.md", *(page for page in found if "/_" not in page))


@cache
def text_of(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def fences(page: str, text: str) -> list[Fence]:
    """All fenced blocks.

    Raises:
        PageError: a block does not end.
    """
    found: list[Fence] = []
    start: re.Match[str] | None = None
    began, body = 0, []
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if start is None:
            if match:
                start, began, body = match, number, []
        elif match and not match["language"] and match["ticks"].startswith(start["ticks"]):
            indent = len(start["indent"])
            lines = tuple(row[indent:] if not row[:indent].strip() else row for row in body)
            found.append(Fence(page, began + 1, start["language"], lines))
            start = None
        else:
            body.append(line)
    if start is not None:
        raise PageError(f"{page}:{began}: a fence that does not end")
    return found


def prose(text: str) -> str:
    """The text without its fenced blocks, lines kept."""
    out, inside = [], ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if inside:
            out.append("")
            if match and not match["language"] and match["ticks"].startswith(inside):
                inside = ""
        elif match:
            inside = match["ticks"]
            out.append("")
        else:
            out.append(line)
    return "\n".join(out)


def spans(text: str) -> list[tuple[int, str]]:
    """Code spans of the prose: line and content, line breaks as spaces."""
    words = prose(text)
    return [(words.count("\n", 0, m.start()) + 1, " ".join(m[2].split())) for m in _SPAN.finditer(words)]


def escaped(page: str, text: str) -> list[str]:
    """Lines that are commands by their looks and stand where no test would find them."""
    looks = re.compile(rf"^\s*(\$ |({PROGRAMS.replace('.', '[.]')}) (?!\w+: ))")
    found = [
        f"{page}:{fence.line + offset}: in a block of {fence.language or 'no language'}: {line}"
        for fence in fences(page, text)
        if fence.language not in SHELL and fence.language != SESSION
        for offset, line in enumerate(fence.lines)
        if looks.match(line)
    ]
    previous = ""
    for number, line in enumerate(prose(text).splitlines(), 1):
        if line.startswith("    ") and not previous.strip() and looks.match(line):
            found.append(f"{page}:{number}: in an indented block: {line.strip()}")
        previous = line
    return found


def commands(page: str, text: str) -> list[Command]:
    """All commands of all shell blocks and sessions, in order.

    Raises:
        PageError: a line that cannot be taken apart: quotes that do not end, redirections, substitutions.
    """
    found: list[Command] = []
    for index, fence in enumerate(fences(page, text)):
        if fence.language in SHELL:
            for line, words in _joined(fence.line, fence.lines):
                found += _simple(page, line, index, words, None)
        elif fence.language == SESSION:
            for line, words, shown in _session(fence):
                found += _simple(page, line, index, words, shown)
    return found


def _session(fence: Fence) -> list[tuple[int, str, tuple[str, ...]]]:
    """Line, command and output of each `$ ` of a session."""
    starts = [i for i, row in enumerate(fence.lines) if row.startswith("$ ")]
    if not starts or starts[0] != 0:
        raise PageError(f"{fence.page}:{fence.line}: a session begins with '$ '")
    found = []
    for start, end in zip(starts, [*starts[1:], len(fence.lines)], strict=True):
        rows = [fence.lines[start][2:], *fence.lines[start + 1 : end]]
        length = next(i for i, row in enumerate(rows, 1) if not row.endswith("\\"))
        command = "".join(row.removesuffix("\\") for row in rows[:length])
        found.append((fence.line + start, command, tuple(rows[length:])))
    return found


def _joined(first: int, lines: tuple[str, ...]) -> list[tuple[int, str]]:
    """Logical lines: continued with a backslash, or because a quote is open."""
    found, line, start = [], "", first
    for number, row in enumerate(lines, first):
        if not line:
            start = number
        if row.endswith("\\"):
            line += row.removesuffix("\\") + " "
            continue
        line += row
        try:
            shlex.split(_PLACEHOLDER.sub("x", line), comments=True)
        except ValueError:
            line += "\n"
            continue
        if line.strip() and not line.lstrip().startswith("#"):
            found.append((start, line))
        line = ""
    if line.strip():
        raise PageError(f"line {start}: quotes that do not end: {line!r}")
    return found


def _simple(page: str, line: int, fence: int, text: str, shown: tuple[str, ...] | None) -> list[Command]:
    """The simple commands of one line: joined by `;`, `&&`, ended by `&`."""
    place = f"{page}:{line}"
    lexer = shlex.shlex(
        _PLACEHOLDER.sub(lambda m: f"@{m[1].replace(' ', '_')}@", text), posix=True, punctuation_chars=";&|<>()"
    )
    lexer.whitespace_split, lexer.commenters = True, "#"
    parts: list[list[str]] = [[]]
    ends: list[str] = []
    for word in lexer:
        if word in (";", "&&", "&"):
            ends.append(word)
            parts.append([])
        elif word == ">":
            parts[-1].append("\0")
        elif set(word) <= set(";&|<>()"):
            raise PageError(f"{place}: shell syntax that no test runs, {word!r}: {text.strip()}")
        else:
            parts[-1].append(word)
    ends.append("")
    found = []
    for words, end in zip(parts, ends, strict=True):
        variables = []
        while words and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[0], re.S)):
            variables.append((match[1], match[2]))
            words = words[1:]
        target = ""
        if "\0" in words:
            *words, arrow, target = words
            if arrow != "\0" or "\0" in words:
                raise PageError(f"{place}: a redirection that no test runs: {text.strip()}")
        if any("$(" in word or "`" in word for word in words):
            raise PageError(f"{place}: a substitution that no test runs: {text.strip()}")
        if words or variables:
            told = shown if len(parts) == 1 or not end else None
            whole = shlex.join([*(f"{k}={v}" for k, v in variables), *words]) + (f" > {target}" if target else "")
            found.append(Command(page, line, fence, whole, tuple(words), tuple(variables), end == "&", told, target))
    return found
