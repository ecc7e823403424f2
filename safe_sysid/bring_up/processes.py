"""Processes of a run: starts them in their own groups, watches them, and ends them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from safe_sysid.bring_up.fork_server import ForkServer
from safe_sysid.bring_up.shared_memory import mapped_segments, port_segments, remove_leftovers
from safe_sysid.errors import SafeSysIdError
from safe_sysid.parent import SAME

__all__ = ["NodeProcess", "ProcessDiedError", "ProcessGroup"]

#: Signals in the order of rising insistence, and how long each is given, s.
_ESCALATION = ((signal.SIGINT, 6.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0))
_TAIL_LINES = 12


class ProcessDiedError(SafeSysIdError):
    """A process ended that should run."""


class NodeProcess:
    """One node, its output in a file."""

    def __init__(
        self,
        server: ForkServer,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        braking: float = 0.0,
    ) -> None:
        """Start it; ``braking``: so long it may take to bring the arm to rest before it ends, s."""
        self.name, self.log, self.braking, self._server = name, log, braking, server
        self.ready = False
        self._read = 0
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        self.process = server.start(name, arguments, environment, log)

    def check_ready(self) -> bool:
        """Whether it has said that it works."""
        if not self.ready:
            with suppress(OSError), self.log.open("rb") as stream:
                stream.seek(max(self._read - 64, 0))
                text = stream.read()
                self._read = stream.tell()
                self.ready = any(line.startswith(b"READY") for line in text.splitlines())
        return self.ready

    def tail(self) -> list[str]:
        """Last lines of its output."""
        try:
            text = self.log.read_bytes()[-20_000:].decode("utf-8", "replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()][-_TAIL_LINES:]

    def exit_report(self) -> str:
        """Name, how it ended and its last lines."""
        code = self.process.returncode
        if self.process.pid is None:
            return "\n".join(
                [
                    f"{self.name} could not be started: the process that nodes are forked of ended",
                    *self._server.errors(),
                ]
            )
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"was killed by {signal.Signals(-code).name}"
                return "\n".join([f"{self.name} {how}; its last lines:", *self.tail()])
        return "\n".join([f"{self.name} ended with exit status {code}; its last lines:", *self.tail()])

    def send(self, number: int) -> None:
        """Signal its whole group, if there is anything left of it."""
        pid = self.process.pid
        if pid is None:
            return
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            if self.process.poll() is None:  # forked this moment, it does not lead its group yet
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)


class ProcessGroup:
    """All processes of a run. Use as a context: whatever happens, none is left behind."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self.processes: list[NodeProcess] = []
        self._segments: set[str] = set()

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path, braking: float = 0.0
    ) -> NodeProcess:
        """Start one more, see :class:`NodeProcess`."""
        process = NodeProcess(self._server, name, arguments, environment, log, braking)
        self.processes.append(process)
        return process

    def check(self) -> None:
        """Look after everyone. Raises ProcessDiedError: one has ended; the message has its last lines."""
        for process in self.processes:
            if process.process.poll() is not None:
                raise ProcessDiedError(process.exit_report())

    def remember_shared_memory(self) -> None:
        """Note what the living use, so that it can be removed should they be killed."""
        living = (p.process for p in self.processes if p.process.poll() is None)
        self._segments |= mapped_segments(process.pid for process in living if process.pid is not None)

    @property
    def alive(self) -> list[NodeProcess]:
        """Those that run."""
        return [process for process in self.processes if process.process.poll() is None]

    def stop(self) -> list[str]:
        """End all: ask, insist, kill; each with a bounded wait. Returns the names of those that had to be killed.

        Who moves the arm brakes it first. A further Ctrl-C meanwhile goes to the next step at once; so does whatever
        else interrupts, which is raised when nobody is left.
        """
        killed: list[str] = []
        interrupted: BaseException | None = None
        self.remember_shared_memory()
        if any(process.process.pid is None for process in self.alive):
            self._server.close()  # it has not got so far, and would take no signal for them
        for number, patience in _ESCALATION:
            alive = self.alive
            if not alive:
                break
            if number == signal.SIGKILL:
                killed = [process.name for process in alive]
            asked = time.monotonic()
            for process in alive:
                process.send(number)
            try:
                _wait(alive, patience, brakes=number == signal.SIGINT)
            except KeyboardInterrupt:
                _be_another(asked)
            except BaseException as signalled:  # SIGTERM, a terminal that was closed
                interrupted = signalled
                _be_another(asked)
        for process in self.processes:
            process.send(signal.SIGKILL)  # anything that a node may have started itself
        remove_leftovers(self._segments | port_segments())
        self._segments = set()
        if interrupted is not None:
            raise interrupted
        return killed


def _wait(processes: list[NodeProcess], patience: float, brakes: bool = False) -> None:
    """Until all have ended, or those that have not have had their time."""
    began = time.monotonic()
    while any(
        process.process.poll() is None and time.monotonic() - began < patience + (process.braking if brakes else 0.0)
        for process in processes
    ):
        time.sleep(0.02)


def _be_another(asked: float) -> None:
    """Nodes take a signal soon after the first for the same: wait until the next one is another."""
    with suppress(BaseException):
        time.sleep(max(asked + SAME + 0.1 - time.monotonic(), 0.0))
