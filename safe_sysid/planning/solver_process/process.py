"""Owner's side of the solver process: submits, cancels and restarts, and survives whatever the process does.

A crash or a hang ends in a ``failed`` event with the reason, and in a new process. No call waits for the solver, but
those that say so. Pure: no ROS.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

from safe_sysid.errors import SafeSysIdError
from safe_sysid.parent import child_environment
from safe_sysid.planning.solver_process.forked import ForkedSolver, fork_solver
from safe_sysid.planning.solver_process.solver import Solver
from safe_sysid.wire import dumps, loads

__all__ = ["Event", "Job", "PlannerProcess", "SolverError"]

#: Done by the solver process, which it gets as its argument; must be picklable.
Job = Callable[[Solver], Any]

#: A start includes compiling, the first time on a machine, s.
_START_LIMIT = 600.0
#: What waited while the process was set up may take so long at least, s.
_LEAST = 1.0
#: Pauses before a process that died without having done anything is started again, s; after the last, only for a job.
_PAUSES = (0.0, 0.5, 2.0, 5.0)
#: How often limits are looked at, s.
_POLL = 0.05
#: How long a process that is told to end may take, s.
_PATIENCE = 1.0


class SolverError(SafeSysIdError):
    """The solver process cannot do what it was asked for."""


@dataclass(frozen=True, eq=False)
class Event:
    """What the solver process says, or what became of it."""

    #: ``progress`` (any number of them), then one of ``done`` and ``failed``
    kind: Literal["progress", "done", "failed"]
    ticket: int  #: of the job; 0 (``failed``): set-up of a process that was started again
    value: Any = None  #: what the job told or returned; None if it failed
    text: str = ""  #: why it failed


@dataclass
class _Pending:
    data: bytes
    limit: float | None  # monotonic time; None: it may take as long as it likes
    setup: bool


class PlannerProcess:
    """Owner of one solver process; events come from a thread of its own, one after the other.

    Attributes:
        restarts: how often a process had to be replaced.
    """

    def __init__(self, on_event: Callable[[Event], None] | None = None, preload: Sequence[str] = ()) -> None:
        """Start the process, which imports what it needs meanwhile.

        Args:
            on_event: called in the thread; what it raises goes to stderr. May be set later.
            preload: modules that jobs need; where they are loaded here, the first process is forked of this one.
        """
        self.on_event, self._preload = on_event, tuple(preload)
        self._forked = fork_solver(self._preload)  # before there is a second thread
        # The child must find what we find, modules of jobs included.
        self._environment = child_environment()
        self._changed = threading.Condition()
        self._setup: dict[str, tuple[int, bytes]] = {}
        # In the order of their work; set-up jobs of a process started again, which nobody waits for, are below 0.
        self._pending: dict[int, _Pending] = {}
        self._outcome: dict[int, str] = {}  # of set-up jobs
        self._tickets, self._vain, self._cancelled = 0, 0, 0
        self._closed = False
        self._process: subprocess.Popen[bytes] | ForkedSolver | None = None
        self._socket: socket.socket | None = None
        self._outbox: queue.SimpleQueue[bytes | None] | None = None
        self.restarts = 0
        self._thread = threading.Thread(target=self._serve, name="safe_sysid solver", daemon=True)
        self._thread.start()

    # -- for the owner ------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """Of the process that works now, if any."""
        process = self._process
        return None if process is None else process.pid

    @property
    def ready(self) -> bool:
        """Whether there is a process that has done its set-up jobs."""
        with self._changed:
            return self._process is not None and not any(job.setup for job in self._pending.values())

    def configure(self, name: str, job: Job) -> int:
        """A job that every new process does before all others; a later one of this name takes its place.

        If the process dies of a job before it, a new one does it. Returns the ticket of its first time, which
        :meth:`wait` takes.
        """
        data = dumps(job)
        with self._changed:
            self._setup[name] = (self._tickets + 1, data)
            return self._submit(_Pending(data, time.monotonic() + _START_LIMIT, True))

    def submit(self, job: Job, limit: float | None = None) -> int:
        """Do it after those before; returns its ticket.

        ``limit``: reading of the monotonic clock after which the process counts as hanging and is killed; None: never.
        """
        data = dumps(job)
        with self._changed:
            return self._submit(_Pending(data, limit, False))

    def cancel(self, grace: float = 1.0) -> None:
        """Ask all jobs to end with what they have; a process that does not within ``grace`` (s) is killed."""
        with self._changed:
            jobs = {ticket: job for ticket, job in self._pending.items() if not job.setup}
            if not jobs:
                return
            self._cancelled = max(jobs)
            self._put("cancel", self._cancelled)
            deadline = time.monotonic() + grace
            for job in jobs.values():
                job.limit = deadline if job.limit is None else min(deadline, job.limit)

    def wait(self, ticket: int, timeout: float) -> None:
        """Wait until a set-up job is done.

        Raises:
            SolverError: it failed, or is not done after ``timeout`` (s).
        """
        with self._changed:
            if not self._changed.wait_for(lambda: ticket in self._outcome or self._closed, timeout):
                raise SolverError(f"solver process: expected it to be ready within {timeout:g} s")
            if self._outcome.get(ticket):
                raise SolverError(self._outcome[ticket])

    def close(self) -> None:
        """End the process; returns when it has ended."""
        with self._changed:
            self._closed = True
            self._hang_up()
            self._changed.notify_all()
        self._thread.join(_PATIENCE + 5.0)

    # -- sending ------------------------------------------------------------------------------------------------

    def _submit(self, job: _Pending) -> int:
        self._tickets += 1
        self._pending[self._tickets] = job
        self._put("job", self._tickets, job.data)
        self._changed.notify_all()
        return self._tickets

    def _put(self, kind: str, ticket: int, data: bytes = b"") -> None:
        if self._outbox is not None:
            self._outbox.put(dumps((kind, ticket, data)))

    def _lose(self, doomed: dict[int, _Pending], reason: str) -> list[int]:
        """A process has ended; the next one does what this one had not begun of its set-up, all else is lost.

        ``doomed``: what it was to do, the first of which it had begun. Returns tickets of what is lost.
        """
        under_way, needed = next(iter(doomed), 0), {ticket for ticket, _ in self._setup.values()}
        with self._changed:
            kept = {
                ticket: job for ticket, job in doomed.items() if job.setup and ticket in needed and ticket != under_way
            }
            lost = [ticket for ticket in doomed if ticket not in kept]
            self._outcome |= {ticket: reason for ticket in lost if doomed[ticket].setup}
            self._pending = kept | self._pending
            self._changed.notify_all()
        return lost

    def _hang_up(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # either side wakes up and sees the end

    # -- the thread ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        # Inherited by the process: Ctrl-C, which a terminal sends to everyone, is its owner's business.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while self._wants_process():
            doomed, text = self._run_process()
            if self._closed:
                return
            self.restarts += 1
            for ticket in self._lose(doomed, text) or [0]:
                self._emit(Event("failed", max(ticket, 0), text=text))
        if self._forked is not None:  # closed before it was needed
            process, ours = self._forked
            ours.close()
            process.kill()
            process.wait()

    def _wants_process(self) -> bool:
        """Whether to start one (again), after a pause if the last ones did nothing; False when closed."""
        with self._changed:
            if self._vain < len(_PAUSES):
                self._changed.wait_for(lambda: self._closed, _PAUSES[self._vain])
            else:
                self._changed.wait_for(lambda: self._closed or bool(self._pending))
            return not self._closed

    def _run_process(self) -> tuple[dict[int, _Pending], str]:
        """Start a process, handle what it says until it has ended; what it had not done, and why, in words."""
        try:
            process, ours = self._forked or self._spawn()
        except OSError as error:
            self._vain += 1
            with self._changed:
                doomed, self._pending = self._pending, {}
            return doomed, f"solver process: cannot be started: {error}"
        self._forked = None
        with ours:
            connection, outbox = Connection(ours.detach()), queue.SimpleQueue[bytes | None]()
            with self._changed:
                self._process, self._outbox = process, outbox
                self._socket = socket.socket(fileno=os.dup(connection.fileno()))
                self._send_all()
            writer = threading.Thread(target=_write, args=(connection, outbox), daemon=True)
            writer.start()
            self._vain += 1
            reason = self._listen(connection)
            with self._changed:
                self._hang_up()
                outbox.put(None)
                self._socket.close()
                # What comes from now on is not lost with it, however long it takes to be gone.
                self._process = self._socket = self._outbox = None
                doomed, self._pending = self._pending, {}
            if reason:
                process.kill()
            try:
                status = process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            writer.join(1.0)
            connection.close()
        return doomed, reason or f"solver process: {_how(status)}"

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """A process that loads everything anew, and our end of its connection. Raises OSError."""
        ours, theirs = socket.socketpair()
        words = (str(theirs.fileno()), str(os.getpid()), *self._preload)
        command = [sys.executable, "-m", "safe_sysid.planning.solver_process.solver", *words]
        with theirs:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, env=self._environment, pass_fds=(theirs.fileno(),)
                )
            except OSError:
                ours.close()
                raise
        return process, ours

    def _send_all(self) -> None:
        """To a new process: its set-up, then what waits."""
        limit, pending = time.monotonic() + _START_LIMIT, self._pending
        setup = {}
        for k, (ticket, data) in enumerate(self._setup.values()):
            known = pending.get(ticket)
            setup[-1 - k if known is None else ticket] = known or _Pending(data, None, True)
        for job in setup.values():
            job.limit = limit
        self._pending = setup | {ticket: job for ticket, job in pending.items() if not job.setup}
        for ticket, job in self._pending.items():
            self._put("job", ticket, job.data)
        self._put("cancel", self._cancelled)  # there may have been nobody to tell

    def _listen(self, connection: Connection) -> str:
        """Handle what it says until it hangs up; why it has to be killed, "" if it need not."""
        try:
            while not self._closed:
                if connection.poll(_POLL):
                    self._handle(Event(*loads(connection.recv_bytes())))
                if self._hangs(time.monotonic()):
                    return "solver process: no answer in the time given: taken for hanging, and killed"
        except (EOFError, OSError):
            return ""
        except Exception as error:  # this thread must go on
            return f"solver process: said what cannot be read ({type(error).__name__}: {error}): killed"
        return ""

    def _hangs(self, now: float) -> bool:
        """Whether a limit has passed. What waits for a set-up job, which may take minutes, is given that time, too."""
        with self._changed:
            for job in self._pending.values():
                if job.limit is not None and now > job.limit:
                    return True
                if job.setup:
                    return False
        return False

    def _grant(self) -> None:
        """What waited for a set-up job begins only now, whatever its limit was; if it was cancelled it ends at once."""
        least = time.monotonic() + _LEAST
        for job in self._pending.values():
            if not job.setup and job.limit is not None:
                job.limit = max(job.limit, least)

    def _handle(self, event: Event) -> None:
        if event.kind == "progress":
            self._emit(event)
            return
        with self._changed:
            job = self._pending.pop(event.ticket, None)
            if event.kind == "done":
                self._vain = 0
            if job is not None and job.setup:
                self._outcome[event.ticket] = event.text
                self._grant()
            self._changed.notify_all()
        if event.ticket > 0:
            self._emit(event)
        elif event.kind == "failed":
            self._emit(Event("failed", 0, text=event.text))

    def _emit(self, event: Event) -> None:
        try:
            if self.on_event is not None:
                self.on_event(event)
        except Exception:
            traceback.print_exc()  # the thread must go on


def _write(connection: Connection, outbox: queue.SimpleQueue[bytes | None]) -> None:
    """Send what is put out; a process that does not listen stops this thread and nobody else."""
    with contextlib.suppress(OSError):
        while (data := outbox.get()) is not None:
            connection.send_bytes(data)


def _how(status: int) -> str:
    """How a process ended, in words."""
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"
