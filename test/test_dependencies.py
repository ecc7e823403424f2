"""docs/refer/dependencies.md is current, and every licence fits."""

from __future__ import annotations

import importlib.metadata
import sys
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def dependencies() -> Any:
    pytest.importorskip("packaging")
    pytest.importorskip("setuptools")
    sys.path.insert(0, str(ROOT / "scripts"))
    import dependencies

    return dependencies


class Package:
    """A package with this metadata, as importlib.metadata has it."""

    files: tuple[Path, ...] = ()

    def __init__(self, **metadata: str) -> None:
        self.metadata = Message()
        self.metadata["Name"] = "somebody"
        for key, value in metadata.items():
            self.metadata[key.replace("_", "-")] = value


def test_the_page_is_current_and_nobody_is_passed_over(dependencies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dependencies.PAGE.read_text(encoding="utf-8")
    assert dependencies.page(before) == before, "run scripts/dependencies.py"
    pins = {**dependencies.pinned(), "somebody": "1.0"}
    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "pinned", lambda: pins)
        with pytest.raises(KeyError, match="somebody"):
            dependencies.page(before)
    monkeypatch.setattr(dependencies, "installed", dict)
    assert dependencies.page(before) == before, "it can be made where nothing is installed"


def test_every_licence_of_the_page_fits(dependencies: Any) -> None:
    from licences import fits

    licences, _ = dependencies.told(dependencies.PAGE.read_text(encoding="utf-8"))
    assert set(licences) >= set(dependencies.pinned())
    assert {name: text for name, text in licences.items() if not fits(text)} == {}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"License": "GPLv3"},
        {"License_Expression": "MIT AND GPL-3.0-only"},
        {"License_Expression": "MIT OR AGPL-3.0-or-later"},
        {"License": "BSD", "Classifier": "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"},
        {"License": "Free for everybody\nwho asks"},
        {"Classifier": "License :: Other/Proprietary License"},
    ],
)
def test_a_licence_that_does_not_fit_or_cannot_be_told_is_refused(dependencies: Any, metadata: dict[str, str]) -> None:
    from licences import LicenceError, licence_of

    with pytest.raises(LicenceError, match="somebody"):
        licence_of(Package(**metadata))  # type: ignore[arg-type]


def test_what_packages_say_is_read(dependencies: Any) -> None:
    from licences import licence_of

    said = {
        "MIT": {"License_Expression": "MIT"},
        "Apache-2.0": {"License": "Apache License, Version 2.0"},
        "MPL-2.0": {"Classifier": "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)"},
        "BSD": {"License": "BSD", "Classifier": "License :: OSI Approved :: BSD License"},
    }
    assert {text: licence_of(Package(**one)) for text, one in said.items()} == {text: text for text in said}  # type: ignore[arg-type]
    assert licence_of(importlib.metadata.distribution("pytest")) == "MIT"
