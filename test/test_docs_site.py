"""The docs site: builds without a warning, loads nothing from elsewhere, and reads well where it must."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser_support import browser, needs_browser, scrolls_sideways
from conftest import CI
from docs_tables import DOCS, ROOT, pages, prose

#: Attributes by which a page makes a browser fetch something by itself.
FETCHING = {"link": ("href",), **dict.fromkeys(("script", "img", "iframe", "source"), ("src", "srcset"))}
#: Pages with the widest tables, longest lines and largest drawings.
WIDE = (
    *("index", "start/concepts", "start/comparison", "use/ros_tools", "refer/messages", "refer/parameters"),
    *("understand/benchmarks", "understand/guarantees"),
)


class Page(HTMLParser):
    """Anchors, links, and what is fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.fetched += [given[name] for name in FETCHING.get(tag, ()) if name in given]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `./safe-sysid docs` builds it."""
    for tool in ("sphinx", "myst_parser", "furo", "sphinx_copybutton"):
        if importlib.util.find_spec(tool) is None:
            (pytest.fail if CI else pytest.skip)(f"{tool} is not installed: expected the extra `docs`")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", str(out / "doctrees"), str(DOCS), str(out / "site")],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return out / "site"


def test_a_misspelt_option_of_docs_makes_no_environment(tmp_path: Path) -> None:
    elsewhere = {"SAFE_SYSID_PYTHON": sys.executable, "SAFE_SYSID_VENV": str(tmp_path / "venv")}
    done = subprocess.run(
        [ROOT / "safe-sysid", "docs", "--sreve"], env={"PATH": "/usr/bin:/bin", **elsewhere},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "usage: ./safe-sysid docs [--serve]\n")
    assert not any(tmp_path.iterdir())


def test_docs_fails_if_the_site_does(tmp_path: Path) -> None:
    """With an environment in which Sphinx finds something wrong, or nothing."""
    sys.path.insert(0, str(ROOT / "scripts" / "bootstrap"))
    try:
        docs = runpy.run_path(str(ROOT / "scripts" / "bootstrap" / "__main__.py"))["docs"]
    finally:
        sys.path.remove(str(ROOT / "scripts" / "bootstrap"))
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    for status in (0, 1):
        python.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit {status}\n')
        python.chmod(0o755)
        assert docs([], tmp_path) == status
        asked = (tmp_path / "asked").read_text().split()
        assert asked[:2] == ["-m", "sphinx"]
        assert "--fail-on-warning" in asked


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    """Every page of the site."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_every_page_is_on_the_site_and_in_its_menu(site: Path, built: dict[Path, Page]) -> None:
    front = {urlsplit(link).path for link in built[site / "index.html"].links}
    for page in DOCS.rglob("*.md"):
        address = page.relative_to(DOCS).with_suffix(".html")
        assert site / address in built
        assert page.name == "index.md" or str(address) in front, f"{page.name} is in no menu"


@pytest.mark.slow
def test_every_link_and_anchor_leads_somewhere(site: Path, built: dict[Path, Page]) -> None:
    """Sphinx looks at links between pages; this at what it made of them, and at links to files."""
    broken = []
    for path, page in built.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme in ("https", "http", "mailto"), link
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                broken.append(f"{path.name}: {link}")
            elif parts.fragment and target in built and unquote(parts.fragment) not in built[target].anchors:
                broken.append(f"{path.name}: {link}: no such anchor")
    assert broken == []


@pytest.mark.slow
def test_no_page_fetches_anything_from_elsewhere(site: Path, built: dict[Path, Page]) -> None:
    for path, page in built.items():
        assert page.fetched, path
        assert [address for address in page.fetched if urlsplit(address).netloc] == [], path
    for style in site.rglob("*.css"):
        addresses = re.findall(r"url\(([^)]*)\)|@import\s+(\S+)", style.read_text(encoding="utf-8"))
        assert [a for a in addresses if "//" in "".join(a) and not "".join(a).strip("'\"").startswith("data:")] == []


@pytest.mark.slow
def test_pages_read_well_on_a_phone_without_a_server(site: Path, built: dict[Path, Page]) -> None:
    """Opened as files in a real browser: asked of nobody, nothing wider than the screen, and search works."""
    needs_browser()
    with browser() as open_tab:
        tab = open_tab((site / "index.html").as_uri(), 360, 740)
        wide = []
        for path in (site / f"{name}.html" for name in WIDE):
            assert path in built
            tab.page.goto(path.as_uri())
            if scrolls_sideways(tab):
                wide.append(path.name)
        assert wide == []
        # The browser gives up on a page's icon when it is led on to the next page.
        assert [error for error in tab.errors if "icon.svg" not in error] == []
        # (Of files the search finds the pages; excerpts of them it only gets from a server.)
        tab.page.goto((site / "search.html").as_uri() + "?q=certificate")
        tab.wait(lambda: "certificates.html" in tab.page.inner_html("#search-results"), "what was searched for")
        assert {urlsplit(address).scheme for address in tab.requests} <= {"file", "data"}


def test_links_work_where_the_pages_are_read_as_files() -> None:
    """Code hosts show the same files: every relative link names a file of the repository."""
    missing = []
    for page in pages():
        text = re.sub(r"`[^`\n]*`", "", prose(page.read_text("utf-8")))
        for address in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text):
            if not urlsplit(address).scheme and not address.startswith("#"):
                target = (page.parent / address.partition("#")[0]).resolve()
                if not (target.is_file() and target.is_relative_to(ROOT)):
                    missing.append(f"{page.name}: {address}")
    assert missing == []


def test_the_order_of_rooms_is_that_of_the_code() -> None:
    text = (DOCS / "refer" / "development.md").read_text(encoding="utf-8")
    written = re.search(r"```text\n(errors .*?)```", text, re.DOTALL)
    assert written
    code = (ROOT / "test" / "test_architecture.py").read_text(encoding="utf-8")
    (rooms,) = (ast.literal_eval(found) for found in re.findall(r"^ROOMS = (.*?^\))", code, re.DOTALL | re.MULTILINE))
    assert re.findall(r"\w+", written[1]) == [room for room in rooms if room != "__main__"]


def test_drawings_are_inert() -> None:
    for drawing in (DOCS / "images").glob("*.svg"):
        text = drawing.read_text(encoding="utf-8")
        assert not re.search(r"<script|<foreignObject|\bon\w+=|(?:href|src)=", text), drawing.name
