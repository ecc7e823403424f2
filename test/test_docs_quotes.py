"""What docs/start/troubleshooting.md says that the program says, the program can say."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from docs_tables import DOCS, ROOT

#: Stands for what an f-string puts in, or two texts that are joined at run time.
HOLE = "\x00"
#: Between two texts.
END = "\x01"


@cache
def texts() -> str:
    """Every text in the program, constants and f-strings, joined ones as one; each ends with END."""
    found = [(ROOT / "safe-sysid").read_text(encoding="utf-8")]
    for top in ("safe_sysid", "scripts"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = text_of(node)
                if text.strip(HOLE):
                    found.append(text)
    return END.join([*found, ""])


def text_of(node: ast.AST) -> str:
    """The text that an expression makes, holes where it is not known; empty if it makes none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else HOLE for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return "".join(text_of(side) or HOLE for side in (node.left, node.right))
    return ""


def is_said(quote: str) -> bool:
    """Whether the parts of a quote stand in one text, in this order, with something between."""
    parts = (re.escape(part.strip()) for part in quote.split("..."))
    return re.search(f"[^{END}]*?".join(parts), texts()) is not None


def quotes() -> list[str]:
    """First cells of the tables headed `says`."""
    page, found, inside = (DOCS / "start" / "troubleshooting.md").read_text(encoding="utf-8"), [], False
    for line in page.splitlines():
        inside = line.startswith("| says |") or (inside and line.startswith("|"))
        if inside and (match := re.match(r"\| `([^`]+)`", line)):
            found.append(match[1])
    return found


def test_there_is_something_to_compare() -> None:
    assert len(quotes()) > 40
    assert not is_said("the arm is made of cheese")
    assert not is_said("expected one ... no measurement has come")  # another order


@pytest.mark.parametrize("quote", quotes())
def test_what_is_quoted_is_said(quote: str) -> None:
    assert is_said(quote), "no text in safe_sysid/ or scripts/ has this"
