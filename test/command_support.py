"""Commands called as the command line would, in this process, without workers of their own."""

from __future__ import annotations

from types import ModuleType

import pytest

from safe_sysid.commands.shared.arguments import OneLineParser
from safe_sysid.studies.campaign import runner


def called(command: ModuleType, *arguments: object) -> int:
    """Exit status of a command with these words."""
    parser = OneLineParser(prog="safe-sysid")
    command.configure(parser)
    return int(command.run(parser.parse_args([str(word) for word in arguments])))


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker processes: starting them costs seconds."""

    def instead(campaign, indices, jobs, chunk=None):  # type: ignore[no-untyped-def]
        return runner.in_this_process(campaign, indices)

    monkeypatch.setattr(runner, "in_processes", instead)
    for name in runner.THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")
