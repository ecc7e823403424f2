"""docs/tutorial.md, followed literally."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from safe_sysid.cli import main

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.splitlines()]


def write_urdf(folder: Path) -> None:
    """The arm of the tutorial."""
    (folder / "my_arm.urdf").write_text(TEXT.split("```xml\n")[1].split("```")[0], encoding="utf-8")


def follow(folder: Path, commands: list[str]) -> list[str]:
    """What the commands print, each with status 0."""
    write_urdf(folder)
    told = []
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "safe-sysid"
        done = subprocess.run(
            [sys.executable, "-m", "safe_sysid", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        told.append(done.stdout)
    return told


def shown(command: str) -> list[str]:
    """The lines that the tutorial shows for a command, without dots."""
    after = TEXT.split(f"```sh\n{command}\n```\n\n```text\n")[1].split("```")[0]
    return [line for line in after.splitlines() if "..." not in line]


def test_the_tutorial_writes_and_checks_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [shlex.split(command)[1] for command in COMMANDS] == ["config", "config", "demo", "verify"]
    write_urdf(tmp_path)
    monkeypatch.chdir(tmp_path)
    told = []
    for command in COMMANDS[:2]:
        assert main(shlex.split(command)[1:]) == 0
        told.append(capsys.readouterr().out)
    for command, text in zip(COMMANDS[:2], told, strict=True):
        for line in shown(command):
            assert line in text.splitlines(), line
    assert "warning: marked as to be measured: joints" in told[1]


@pytest.mark.slow
def test_the_tutorial_ends_with_bounds_that_hold(tmp_path: Path) -> None:
    told = follow(tmp_path, COMMANDS)
    assert "every bound held, nothing was violated" in told[2]
    assert "safety record" in told[2]
