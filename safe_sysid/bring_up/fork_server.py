"""Nodes are forked of one process that has loaded what all of them begin with: each alone would take 2 s for that.

Here is who starts that process and asks it; what it does is in :mod:`safe_sysid.bring_up.fork_server_process`. Not
multiprocessing's: that runs the caller's main module again in every child, which a script of a user may not stand.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from pathlib import Path

from safe_sysid.bring_up.child import PARENT
from safe_sysid.parent import child_environment

__all__ = ["ForkRequest", "ForkServer", "ForkedProcess"]


@dataclass(frozen=True)
class ForkRequest:
    """What the server is asked for."""

    number: int
    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    log: str


class ForkedProcess:
    """One node, as :class:`subprocess.Popen` shows a process."""

    def __init__(self, server: ForkServer) -> None:
        """Asked for, not yet there."""
        self._server = server
        self.told: tuple[int | None, int | None] = None, None  #: process id and exit status, by the server

    @property
    def pid(self) -> int | None:
        """Process id; None until the server has forked it."""
        self._server.receive()
        return self.told[0]

    @property
    def returncode(self) -> int | None:
        """What :meth:`poll` says."""
        return self.poll()

    def poll(self) -> int | None:
        """Exit status, negative if a signal ended it; None while it lives or waits to be forked."""
        self._server.receive()
        return self.told[1]


class ForkServer:
    """The process that others are forked of. Use as a context: at its end it is gone, and so are they."""

    def __init__(self, *modules: str) -> None:
        """Start it; ``modules`` are imported before it forks, which takes a while and is not waited for."""
        self._control, theirs = Pipe()
        self._processes: list[ForkedProcess] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the server is
        with theirs:
            words = (str(theirs.fileno()), str(os.getpid()), *modules)
            self._server = subprocess.Popen(
                [sys.executable, "-m", "safe_sysid.bring_up.fork_server_process", *words],
                env={**child_environment(), PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the parent to pass on
            )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> ForkedProcess:
        """Ask for a node; its output goes to the end of ``log``, which exists. It comes when modules are imported."""
        process = ForkedProcess(self)
        request = ForkRequest(len(self._processes), name, tuple(arguments), dict(environment), str(log.resolve()))
        self._processes.append(process)
        with suppress(OSError):  # the server has gone: see below
            self._control.send(request)
        self.receive()
        return process

    def receive(self) -> None:
        """Take what the server has said until now; if it has gone, what has gone with it counts as ended."""
        with suppress(OSError, EOFError):
            while self._control.poll():
                number, pid, status = self._control.recv()
                self._processes[number].told = pid, status
        if self._server.poll() is not None:
            for process in self._processes:
                pid, status = process.told
                if status is None and not _lives(pid):
                    process.told = pid, self._server.returncode

    def errors(self) -> list[str]:
        """Lines that the server has written: modules that it could not import, or why it has ended."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").splitlines()

    def close(self) -> None:
        """End it; what it has forked is told to end (SIGTERM), what it has not counts as ended."""
        self._server.kill()
        self._server.wait()
        self.receive()


def _lives(pid: int | None) -> bool:
    """Not so for one that has ended, and whose new parent, after the server, has not asked for its status."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
