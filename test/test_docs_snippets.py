"""Every Python block of the docs runs, page by page, in one namespace and an empty folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from docs_tables import ROOT, pages

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_BLOCKS = [page for page in pages() if _BLOCK.search(page.read_text(encoding="utf-8"))]


def test_there_are_pages_with_blocks() -> None:
    assert {"extending.md", "units.md"} <= {page.name for page in WITH_BLOCKS}


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    if "mujoco" in text:
        pytest.importorskip("mujoco")
    if "geometry_msgs" in text:
        pytest.importorskip("geometry_msgs")
    namespace: dict[str, Any] = {"__name__": "docs"}
    for match in _BLOCK.finditer(text):
        lines_before = text.count("\n", 0, match.start()) + 1  # so that a traceback names the page's line
        exec(compile("\n" * lines_before + match[1], str(page), "exec"), namespace)
