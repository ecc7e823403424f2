"""An empty environment with pip in it, in whatever way the machine offers."""

from __future__ import annotations

import hashlib
import html
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

from commands import clean_environment, failure, run
from machine import SUPPORTED, install_system_packages
from progress import Progress, SetupError
from state import STAMP, python_of, write_stamp


def create(venv: Path, log: Path, progress: Progress) -> None:
    """Make an empty environment with pip in it, in whatever way this machine offers."""
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    inside = str(venv / "bin" / "python")
    make = [sys.executable, "-I", "-m", "venv", "--without-pip", str(venv)]

    def attempt(command: list[str]) -> bool:
        env = {key: value for key, value in clean_environment(venv).items() if key != "VIRTUAL_ENV"}
        return run(command, "making the environment", log, progress, env)[0] == 0 and has_pip(venv)

    made = importlib.util.find_spec("venv") is not None and run(make, "making the environment", log, progress)[0] == 0
    if made:
        # Debian and Ubuntu ship venv, but keep ensurepip in a package of its own.
        if importlib.util.find_spec("ensurepip") and attempt([inside, "-Im", "ensurepip", "--default-pip"]):
            return
        if attempt([sys.executable, "-m", "pip", "--python", inside, "install", "--no-input", "pip"]):
            return
    if attempt([sys.executable, "-m", "virtualenv", str(venv)]):
        return
    wheel = download_pip(venv) if made else None
    if wheel and attempt([inside, str(wheel / "pip"), "install", "--no-input", "--no-index", str(wheel)]):
        wheel.unlink()
        return
    install_system_packages([f"{python}-venv"], "this Python cannot make environments", log, progress)
    status, lines = run([sys.executable, "-I", "-m", "venv", str(venv)], "making the environment", log, progress)
    if status != 0 or not has_pip(venv):
        raise SetupError(failure(f"{python} -m venv", status, lines, log))


def has_pip(venv: Path) -> bool:
    """True if pip runs in the environment."""
    command = [str(venv / "bin" / "python"), "-I", "-m", "pip", "--version"]
    env = dict(clean_environment(venv), _ROS_WHEELS_BOOTSTRAP_COMPLETE="1")
    try:
        return subprocess.run(command, capture_output=True, timeout=120, check=False, env=env).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def download_pip(venv: Path) -> Path | None:
    """Fetch the newest pip wheel from the package index and compare its checksum; None if that fails."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    try:
        # HTML is what every index speaks; there, each link carries the checksum of its file.
        request = urllib.request.Request(index, headers={"Accept": "text/html"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            page = answer.read().decode("utf-8", "replace")
        found = []
        for tag in re.findall(r"<a\s[^>]*>", page):
            link = re.search(r'href="([^"#]*/(pip-(\d+(?:\.\d+)*)-py3-none-any\.whl))#sha256=([0-9a-f]{64})"', tag)
            if link and "data-yanked" not in tag:
                found.append(([int(part) for part in link[3].split(".")], html.unescape(link[1]), link[2], link[4]))
        if not found:
            return None
        _, address, name, checksum = max(found)
        with urllib.request.urlopen(urllib.parse.urljoin(index, address), timeout=60) as answer:
            content = answer.read()
    except (OSError, ValueError):  # no network, no such address, no certificate
        return None
    if hashlib.sha256(content).hexdigest() != checksum:
        return None
    path = venv / name
    path.write_bytes(content)
    return path


def prepare(venv: Path, log: Path, progress: Progress) -> None:
    """Leave a working, possibly empty, environment at `venv`; never delete what others made."""
    if python_of(venv) is not None and has_pip(venv):
        version = python_of(venv)
        if version not in [f"{major}.{minor}" for major, minor in SUPPORTED]:
            raise SetupError(
                f"{venv} is an environment of Python {version}; 3.11 or 3.12 is needed. Delete or move it."
            )
        return
    if venv.exists() and any(venv.iterdir()):
        if not (venv / STAMP).exists():
            raise SetupError(
                f"{venv} exists, is no working Python environment and was not made by this command.\n"
                "  Move it away, or name another place with SAFE_SYSID_VENV."
            )
        progress.say(f"{venv} does not work any more (another Python, or interrupted): making it again.")
        shutil.rmtree(venv)
    venv.mkdir(parents=True, exist_ok=True)
    write_stamp(venv, "creating", ())
    create(venv, log, progress)
