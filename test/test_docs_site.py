"""The docs site: builds without a warning, loads nothing from elsewhere, and reads well where it must."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docs_tables import DOCS, ROOT, pages, prose

#: Attributes by which a page makes a browser fetch something by itself.
FETCHING = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "link": ("href",),
}


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
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", str(out / "doctrees"), str(DOCS), str(out / "site")],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return out / "site"


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    """Every page of the site."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_is_on_the_site_and_in_its_menu(site: Path, built: dict[Path, Page]) -> None:
    front = {urlsplit(link).path for link in built[site / "index.html"].links}
    for page in DOCS.rglob("*.md"):
        address = page.relative_to(DOCS).with_suffix(".html")
        assert site / address in built
        assert page.name == "index.md" or str(address) in front, f"{page.name} is in no menu"


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


def test_no_page_fetches_anything_from_elsewhere(site: Path, built: dict[Path, Page]) -> None:
    for path, page in built.items():
        assert page.fetched, path
        assert [address for address in page.fetched if urlsplit(address).netloc] == [], path
    for style in site.rglob("*.css"):
        addresses = re.findall(r"url\(([^)]*)\)|@import\s+(\S+)", style.read_text(encoding="utf-8"))
        assert [
            a for a in addresses if "//" in "".join(a) and not "".join(a).strip("'\"").startswith("data:")
        ] == []


def test_links_work_where_the_pages_are_read_as_files() -> None:
    """Code hosts show the same files: every relative link names a file of the repository."""
    missing = []
    for page in pages():
        for address in re.findall(
            r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page.read_text("utf-8")))
        ):
            if not urlsplit(address).scheme and not address.startswith("#"):
                target = (page.parent / address.partition("#")[0]).resolve()
                if not (target.is_file() and target.is_relative_to(ROOT)):
                    missing.append(f"{page.name}: {address}")
    assert missing == []


def test_every_fence_says_its_language() -> None:
    bare = [
        f"{page.name}: {line}"
        for page in pages()
        for i, line in enumerate(page.read_text(encoding="utf-8").split("```"))
        if i % 2 and not re.match(r"[a-z]+\n", line)
    ]
    assert bare == []


def test_drawings_are_inert() -> None:
    for drawing in (DOCS / "images").glob("*.svg"):
        text = drawing.read_text(encoding="utf-8")
        assert not re.search(r"<script|<foreignObject|\bon\w+=|(?:href|src)=", text), drawing.name
