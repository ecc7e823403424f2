"""The package and what it needs, into the environment."""

from __future__ import annotations

import re
from pathlib import Path

from commands import clean_environment, failure, run
from progress import Progress, SetupError
from state import CONSTRAINTS, ROOT


def install(venv: Path, extras: tuple[str, ...], log: Path, progress: Progress) -> None:
    """Install this clone, editable: changes count at once, and resource files are found where they are."""
    target = f".[{','.join(extras)}]"
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    command += ["--disable-pip-version-check"]
    attempts = [[*command, "-c", str(CONSTRAINTS), "-e", target]] if CONSTRAINTS.exists() else []
    attempts.append([*command, "-e", target])
    for number, attempt in enumerate(attempts):
        status, lines = run(attempt, "asking the package index", log, progress, clean_environment(venv))
        if status == 0:
            link_shared(venv)
            return
        text = "\n".join(lines)
        # The index answered, but lacks a version that was tested: whatever fits instead is worth a try.
        unavailable = "ResolutionImpossible" in text or re.search(r"\(from versions: (?!none\))", text)
        if number + 1 < len(attempts) and unavailable:
            progress.say("the tested versions are not all available here; taking the newest that fit.")
            continue
        raise SetupError(failure("pip install", status, lines, log))


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
