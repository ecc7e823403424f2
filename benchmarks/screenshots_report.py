"""Pictures of the report of a run for the docs, from a run directory: report_desktop.png and report_phone.png.

    python benchmarks/screenshots_report.py runs/<that run>        # writes docs/images/report_*.png

``benchmarks/screenshots.py`` calls :func:`report_pictures`, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from browser_support import Tab, browser  # noqa: E402

from safe_sysid.report.run.facts import read_facts  # noqa: E402
from safe_sysid.report.run.html import write_run_report  # noqa: E402
from safe_sysid.report.run.robot import robot_of_run  # noqa: E402

__all__ = ["report_pictures"]

#: Width and height of the window, and pixels per pixel, by name of the picture.
_WINDOWS = {"report_desktop": (1000, 1130, 1.0), "report_phone": (360, 900, 2.0)}
_LARGEST = 400_000  # bytes


def report_pictures(open_tab: Callable[..., Tab], images: Path, run_dir: Path | None = None) -> list[Path]:
    """Make the page and take its pictures. Raises RuntimeError: a picture is too large for the docs.

    Args:
        open_tab: of :func:`browser_support.browser`.
        images: directory for them.
        run_dir: of a demo; None: of one that is run for it.
    """
    written = []
    with tempfile.TemporaryDirectory() as folder:
        if run_dir is None:
            run_dir = Path(folder) / "run"
            command = [sys.executable, "-m", "safe_sysid", "demo", "--scene", "six_boxes", "--quiet"]
            subprocess.run([*command, "--out", str(run_dir)], check=True, cwd=ROOT)
        facts = read_facts(run_dir)
        page, _ = write_run_report(facts, Path(folder) / "report.html", robot_of_run(facts))
        for name, (width, height, scale) in _WINDOWS.items():
            tab = open_tab(page.as_uri(), width, height, device_scale_factor=scale, color_scheme="light")
            path = images / f"{name}.png"
            tab.page.screenshot(path=str(path))
            if path.stat().st_size > _LARGEST:
                raise RuntimeError(f"{path}: {path.stat().st_size} bytes: expected at most {_LARGEST}")
            written.append(path)
    return written


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", nargs="?", help="(default: a demo is run)")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    with browser() as open_tab:
        for path in report_pictures(open_tab, options.images, options.run_dir):
            print(path)


if __name__ == "__main__":
    main()
