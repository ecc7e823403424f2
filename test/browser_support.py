"""A real headless Chromium for tests and pictures: where it is, how it is started, and what its pages say."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ["Tab", "browser", "chromium_path", "colours_in", "needs_browser", "scrolls_sideways"]

#: Software WebGL, no sandbox (tests run as root in containers), nothing that asks the network.
FLAGS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
)
#: Wherever a browser waits, ms: a software renderer on a busy machine takes its time.
PATIENCE_MS = 120_000


def chromium_path() -> str | None:
    """The system's Chromium, or what ``SAFE_SYSID_CHROMIUM`` names; None if there is none."""
    given = os.environ.get("SAFE_SYSID_CHROMIUM")
    names = (given,) if given else ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def why_no_browser() -> str:
    """In one sentence; empty where there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed: expected the extra dev"
    return "" if chromium_path() else "no Chromium: expected the Debian package chromium, or SAFE_SYSID_CHROMIUM"


def needs_browser() -> None:
    """Skip the test where there is no browser; where CI is set, fail."""
    reason = why_no_browser()
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


class Tab:
    """A page, and everything that went wrong in it.

    Attributes:
        page: playwright's.
        errors: console errors, uncaught exceptions and requests that failed, in words.
        requests: addresses of everything that was asked for.
    """

    def __init__(self, page: Any) -> None:
        """Listen."""
        self.page, self.errors, self.requests = page, [], []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda m: self.errors.append(f"console: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(f"exception: {error.message}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", lambda request: self.errors.append(f"failed: {request.url}: {request.failure}"))

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE_MS / 1e3) -> Any:
        """Poll until a condition holds; returns what it returned."""
        end = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}; errors: {self.errors}"
            self.page.wait_for_timeout(50)

    def press(self, name: str) -> None:
        """Press a button, at once: a page that is painted by software never stands still for a real mouse."""
        self.page.get_by_role("button", name=name, exact=True).dispatch_event("click")

    def text(self, selector: str) -> str:
        """Text of the first element; empty where there is none."""
        found = self.page.query_selector(selector)
        return "" if found is None else found.inner_text()

    def picture(self, path: Path | None = None, settled: bool = False, seconds: float = 120.0) -> np.ndarray:
        """A screenshot (h, w, 3).

        Args:
            path: also written there.
            settled: take more, until two in a row are nearly the same.
            seconds: for so long at most; then the last one will do.
        """
        end = time.monotonic() + seconds
        before = self._shot(path)
        while settled and time.monotonic() < end:
            self.page.wait_for_timeout(1500)
            after = self._shot(path)
            if np.mean(np.abs(after.astype(int) - before.astype(int))) < 1.0:
                return after
            before = after
        return before

    def _shot(self, path: Path | None) -> np.ndarray:
        import io

        import matplotlib.image

        data = self.page.screenshot(timeout=PATIENCE_MS, **({} if path is None else {"path": str(path)}))
        return (255.0 * matplotlib.image.imread(io.BytesIO(data), format="png")[..., :3]).astype(np.uint8)


@contextlib.contextmanager
def browser() -> Iterator[Callable[..., Tab]]:
    """Yield what opens a page: ``open(url, width, height, **context)``. Everything is closed at the end."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="safe_sysid_chromium_") as home, sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium_path(), args=list(FLAGS), env={**os.environ, "HOME": home}
        )
        try:

            def open_tab(url: str, width: int = 1280, height: int = 800, **context: Any) -> Tab:
                page = running.new_context(viewport={"width": width, "height": height}, **context).new_page()
                tab = Tab(page)
                page.goto(url, timeout=PATIENCE_MS)
                return tab

            yield open_tab
        finally:
            running.close()


def scrolls_sideways(tab: Tab) -> bool:
    """Whether the page is wider than the window."""
    script = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    return bool(tab.page.evaluate(script))


def colours_in(picture: np.ndarray) -> int:
    """How many different colours, of 5 bits per channel, there are in (h, w, 3): one in a blank picture."""
    reduced = (picture >> 3).astype(np.int64).reshape(-1, 3)
    return len(np.unique(reduced @ np.array([1, 32, 1024])))
