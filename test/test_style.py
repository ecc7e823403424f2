"""Formatting, lint and types, with the settings of pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def check(tool: str, *arguments: str) -> None:
    if importlib.util.find_spec(tool) is None:
        if os.environ.get("CI"):
            pytest.fail(f"{tool} is not installed: in CI nothing is skipped")
        pytest.skip(f"{tool} is not installed (pip install -e '.[dev]')")
    result = subprocess.run([sys.executable, "-m", tool, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_lint() -> None:
    check("ruff", "check", ".")


def test_format() -> None:
    check("ruff", "format", "--check", "--diff", ".")


@pytest.mark.slow
def test_types() -> None:
    check("pyrefly", "check", "--python-interpreter-path", sys.executable)
