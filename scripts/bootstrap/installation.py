"""The package and what it needs, into the environment."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

from commands import clean_environment, failure, run
from progress import Progress, SetupError
from state import CONSTRAINTS, ROOT


def install(venv: Path, extras: tuple[str, ...], log: Path, progress: Progress) -> None:
    """Install this clone, editable: changes count at once, and resource files are found where they are.

    uv does it in a seventh of pip's time; where it cannot, pip does it.
    """
    target = f".[{','.join(extras)}]"
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    pip += ["--disable-pip-version-check"]
    attempts = [[*pip, "-c", str(CONSTRAINTS), "-e", target]] if CONSTRAINTS.exists() else []
    attempts.append([*pip, "-e", target])
    if CONSTRAINTS.exists() and (uv := uv_install(venv, [*pip, "-c", str(CONSTRAINTS), "uv"], log, progress)):
        attempts.insert(0, [*uv, "-c", str(CONSTRAINTS), "-e", target])
    for number, attempt in enumerate(attempts):
        status, lines = run(attempt, "asking the package index", log, progress, clean_environment(venv))
        if status == 0:
            link_shared(venv)
            return
        if "uv" in attempt:
            progress.say("uv could not install it (the log says why); pip tries it, which takes longer.")
            continue
        text = "\n".join(lines)
        # The index answered, but lacks a version that was tested: whatever fits instead is worth a try.
        unavailable = "ResolutionImpossible" in text or re.search(r"\(from versions: (?!none\))", text)
        if number + 1 < len(attempts) and unavailable:
            progress.say("the tested versions are not all available here; taking the newest that fit.")
            continue
        raise SetupError(failure("pip install", status, lines, log))


def uv_install(venv: Path, get: list[str], log: Path, progress: Progress) -> list[str]:
    """`uv pip install` with the package indices that pip is configured for; empty if that cannot be had here."""
    python, env = str(venv / "bin" / "python"), clean_environment(venv)
    told = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False, env=env)
    command = uv_command(python, told.stdout) if told.returncode == 0 else []
    return command if command and run(get, "fetching uv", log, progress, env)[0] == 0 else []


def uv_command(python: str, config: str) -> list[str]:
    """`uv pip install` as `pip config list` says; empty if something in it has no counterpart: then pip has to do it.

    An index of one's own must not be passed by.
    """
    names = {"index-url": "--default-index", "extra-index-url": "--index", "find-links": "--find-links"}
    names |= {"constraint": "--constraints", "trusted-host": "--allow-insecure-host"}
    harmless = {"cache-dir", "default-timeout", "disable-pip-version-check", "no-input", "progress-bar"}
    harmless |= {"require-virtualenv", "retries", "timeout", "user"}
    prefix, options = [], ["--index-strategy", "unsafe-best-match", "--system-certs"]  # as pip looks and trusts
    for line in config.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section not in (":env:", "global", "install") or name in harmless:
            continue
        words = str(ast.literal_eval(value)).split()
        if name == "cert":
            prefix = ["env", "SSL_CERT_FILE=" + " ".join(words)]
        elif name in names:
            options += [part for word in words for part in (names[name], word)]
        else:
            return []
    return [*prefix, python, "-m", "uv", "pip", "install", "--python", python, "--no-progress", *options]


def link_shared(venv: Path) -> None:
    """Show the clone to the ament index, `ros2 run` and launch, which an editable installation leaves out."""
    index = venv / "share" / "ament_index" / "resource_index" / "packages"
    executables = venv / "lib" / "safe_sysid"
    links = {index / "safe_sysid": ROOT / "resource" / "safe_sysid", venv / "share" / "safe_sysid": ROOT}
    links |= {executables / path.name: venv / "bin" / path.name for path in (venv / "bin").glob("*_node")}
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
