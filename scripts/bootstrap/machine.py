"""What the machine must bring: platform, system libraries."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
from pathlib import Path

from commands import failure, run
from progress import Progress, SetupError

SUPPORTED = ((3, 11), (3, 12))
BROWSER = "chromium"  # Debian's package; Ubuntu has its own only as a snap
DISK_NEEDED = 2.5e9  # bytes: 1.4 GB installed, and what pip unpacks on the way


def check_machine() -> None:
    """Stop before a long download that cannot end well."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise SetupError(
            f"this is {platform.system()} on {platform.machine()}; the ROS 2 wheels are for Linux x86_64.\n"
            "  With ROS 2 Jazzy installed, use colcon instead: README.md, section for ROS 2 users."
        )
    if sys.version_info[:2] not in SUPPORTED:
        raise SetupError(f"needs Python 3.11 or 3.12; {sys.executable} is {platform.python_version()}.")


def missing_libraries() -> list[str]:
    """Debian packages of system libraries that the wheels need and do not bring."""
    missing = []
    for library, package in (("libgomp.so.1", "libgomp1"), ("libstdc++.so.6", "libstdc++6")):
        try:
            ctypes.CDLL(library)
        except OSError:
            missing.append(package)
    return missing


def browser_wanted() -> bool:
    """True if a browser must be installed and can be: CI is set, there is none, and this user may install."""
    names = (os.environ.get("SAFE_SYSID_CHROMIUM") or "chromium", "chromium-browser", "google-chrome")
    there = any(map(shutil.which, names))
    ci = os.environ.get("CI", "").lower() not in ("", "0", "false", "no")
    return ci and not there and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install_system_packages(packages: list[str], why: str, log: Path, progress: Progress) -> None:
    """Have apt-get install packages if this user may, else say what to type."""
    command = "apt-get install " + " ".join(packages)
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupError(f"{why}. Install it, then run this command again:\n\n    sudo {command}\n")
    progress.say(f"{why}: {command}")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    run([apt, "update", "-q"], "apt-get update", log, progress, env)  # lists of a fresh container are empty
    status, lines = run([apt, "install", "-q", "-y", "--no-install-recommends", *packages], command, log, progress, env)
    if status != 0:
        raise SetupError(failure(command, status, lines, log, "Install it in another way, then run this again."))
