"""What docs/start/tutorial.md shows of the first two commands; test_docs_commands.py runs all four."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from urdf_factory import TUTORIAL, tutorial_urdf

from safe_sysid.cli import main

TEXT = TUTORIAL.read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.splitlines()]


def shown(command: str) -> list[str]:
    """The lines that the tutorial shows for a command, without dots."""
    after = TEXT.split(f"```sh\n{command}\n```\n\n```text\n")[1].split("```")[0]
    return [line for line in after.splitlines() if "..." not in line]


@pytest.mark.slow
def test_the_tutorial_writes_and_checks_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [shlex.split(command)[1] for command in COMMANDS] == ["config", "config", "demo", "verify"]
    (tmp_path / "my_arm.urdf").write_text(tutorial_urdf(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    told = []
    for command in COMMANDS[:2]:
        assert main(shlex.split(command)[1:]) == 0
        told.append(capsys.readouterr().out)
    for command, text in zip(COMMANDS[:2], told, strict=True):
        for line in shown(command):
            assert line in text.splitlines(), line
    assert "warning: marked as to be measured: joints" in told[1]
