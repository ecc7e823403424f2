"""The lowest versions that setup.py asks for are those that were tried, and they work."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TRIED: dict[str, dict[str, Any]] = json.loads((ROOT / "scripts" / "versions_tried.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def versions() -> Any:
    pytest.importorskip("setuptools")
    sys.path.insert(0, str(ROOT / "scripts"))
    import versions

    return versions


@pytest.mark.parametrize("key", sorted(TRIED))
def test_what_was_tried_is_what_is_asked_for(versions: Any, key: str) -> None:
    """A bound that is moved must be tried anew: scripts/versions.py lowest --note."""
    packaging = pytest.importorskip("packaging.requirements")
    tried = TRIED[key]
    assert (tried["failed"], tried["demo"]) == (0, 0)
    for text in versions.requirements(versions.EXTRAS):
        requirement = packaging.Requirement(text)
        version = tried["versions"][versions.name_of(text)]
        assert version in requirement.specifier, f"{text}: tried {version}"
        if key.startswith("lowest"):
            (lowest,) = (part.version for part in requirement.specifier if part.operator in (">=", "=="))
            # The first that has a wheel: 6.0.1 for >=6.0 on a Python that is younger than 6.0.0.
            assert f"{version}.".startswith(f"{lowest}."), f"{text}: tried {version}"


def test_every_test_that_is_tried_exists(versions: Any) -> None:
    assert [name for name in versions.TESTS if name.startswith("test/") and not (ROOT / name).is_file()] == []


def test_an_index_that_is_not_there_is_told(tmp_path: Path) -> None:
    if importlib.util.find_spec("uv") is None:
        pytest.skip("uv is not installed (pip install -e '.[dev]')")
    command = [sys.executable, "scripts/versions.py", "lowest", "--keep", str(tmp_path / "env")]
    dead = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_CACHE_DIR": str(tmp_path / "cache")}
    environment = dict(os.environ, **dead, UV_HTTP_RETRIES="0")
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("versions: ")
    assert "pip install failed" in result.stderr
