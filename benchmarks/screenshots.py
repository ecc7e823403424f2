"""Pictures of the view and of the report for the docs, of a real run in a real browser: docs/images/.

python benchmarks/screenshots.py [view] [report]

A run over topics, in headless Chromium (software WebGL): before it begins, while the arm moves, when all is known, and
after an emergency stop that is pressed on the page; and as a phone shows it. Some minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

from browser_support import Tab, browser, why_no_browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDE, PHONE = (1440, 900), (390, 844)
LARGEST = 400_000
#: Of the report: width and height of the window, and pixels per pixel, by name of the picture.
_REPORT = {"report_desktop": (1000, 1130, 1.0), "report_phone": (360, 900, 2.0)}
_HIDE = "document.querySelectorAll('.mantine-Notification-root').forEach(n => { n.style.display = 'none'; })"


class Run:
    """A demo with a view, ended with its processes."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.log = directory / "demo.log"
        command = [sys.executable, "-m", "safe_sysid.cli", "demo", "--view", "0", "--out", str(directory / "run")]
        with self.log.open("w") as output:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self._process = subprocess.Popen(
                [*command, *options], stdout=output, stderr=subprocess.STDOUT, env=environment
            )
        end = time.monotonic() + 300.0
        while not (found := re.search(r"look at (http://\S+)", self.log.read_text())):
            if self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the demo does not start:\n{self.log.read_text()}")
            time.sleep(0.1)
        self.address = found[1]

    def close(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(30.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def take(tab: Tab, name: str, settled: bool = False) -> None:
    """A picture, with at most 256 colours where it would be too large otherwise."""
    from PIL import Image

    # That the picture is made without a graphics card is no news.
    tab.page.evaluate(_HIDE)
    path = IMAGES / f"{name}.png"
    tab.picture(path, settled)
    with Image.open(path) as picture:
        smaller = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    if path.stat().st_size > LARGEST:
        smaller.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size} bytes", flush=True)
    if size > LARGEST:
        raise SystemExit(f"{path}: {size} bytes: expected at most {LARGEST}")


def _number(tab: Tab) -> int:
    """Of the box in force; -1 before there is one."""
    found = re.search(r"0:(\d+)$", tab.text("#ss-box"))
    return int(found[1]) if found else -1


def views(open_tab: Any, directory: Path) -> None:
    """Of one run from its beginning to its end, and of one that is stopped."""
    # Slowly: a software renderer needs seconds for a picture, and the arm is to be in motion in it.
    slow = ("--scene", "six_boxes", "--plans", "5", "--pace", "0.1")
    run = Run(directory / "whole", *slow)
    try:
        tab = open_tab(run.address, *WIDE)
        tab.wait(lambda: tab.text("#ss-box").lower().startswith("box 0:"), "the prior", 600.0)
        tab.page.wait_for_timeout(10000)  # the page fades in
        take(tab, "view_before")
        tab.wait(lambda: _number(tab) >= 2, "bounds", 600.0)
        tab.wait(lambda: "Following" in tab.text("#ss-phase"), "motion", 600.0)
        take(tab, "view_exciting")
        tab.wait(lambda: "Every bound held" in tab.text("#ss-phase"), "the end", 900.0)
        take(tab, "view_identified", settled=True)
        tab.page.context.close()
        tab = open_tab(run.address, *PHONE, has_touch=True, is_mobile=True, device_scale_factor=2)
        tab.wait(lambda: "Every bound held" in tab.text("#ss-phase"), "the end", 100.0)
        take(tab, "view_phone", settled=True)
        tab.page.context.close()
    finally:
        run.close()
    run = Run(directory / "stopped", *slow)
    try:
        tab = open_tab(run.address, *WIDE)
        tab.wait(lambda: _number(tab) >= 1 and "Following" in tab.text("#ss-phase"), "motion", 900.0)
        tab.press("Emergency stop")
        tab.wait(lambda: "Fault" in tab.text("#ss-phase"), "the fault", 60.0)
        take(tab, "view_fault")
    finally:
        run.close()


def report(open_tab: Any, directory: Path) -> None:
    """The page of a run, on a desk and on a phone."""
    from safe_sysid.report.run.facts import read_facts
    from safe_sysid.report.run.html import write_run_report
    from safe_sysid.report.run.robot import robot_of_run

    run_dir = directory / "reported"
    command = [sys.executable, "-m", "safe_sysid", "demo", "--scene", "six_boxes", "--quiet"]
    subprocess.run([*command, "--out", str(run_dir)], check=True, cwd=ROOT)
    facts = read_facts(run_dir)
    page, _ = write_run_report(facts, directory / "report.html", robot_of_run(facts))
    for name, (width, height, scale) in _REPORT.items():
        tab = open_tab(page.as_uri(), width, height, device_scale_factor=scale, color_scheme="light")
        path = IMAGES / f"{name}.png"
        tab.page.screenshot(path=str(path))
        if path.stat().st_size > LARGEST:
            raise SystemExit(f"{path}: {path.stat().st_size} bytes: expected at most {LARGEST}")


def main() -> int:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=("view", "report", []), help="(default: all)")
    which = parser.parse_args().which or ["view", "report"]
    if reason := why_no_browser():
        print(reason, file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for part in ("whole", "stopped"):
            (Path(scratch) / part).mkdir()
        with browser() as open_tab:
            if "view" in which:
                views(open_tab, Path(scratch))
            if "report" in which:
                report(open_tab, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
