"""A solver process that is forked of its owner, where that has loaded what jobs need: to load it again takes 2 s."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress

from safe_sysid.parent import thread_count
from safe_sysid.planning.solver_process import solver

__all__ = ["ForkedSolver", "fork_solver"]


class ForkedSolver:
    """The process, as :class:`subprocess.Popen` shows one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def kill(self) -> None:
        """At once; nothing happens to one that has ended."""
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative if a signal ended it. Raises subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            pid, status = os.waitpid(self.pid, 0 if end is None else os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            elif end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("solver", timeout or 0.0)
            else:
                time.sleep(0.01)
        return self._status


def fork_solver(preload: Sequence[str]) -> tuple[ForkedSolver, socket.socket] | None:
    """The process and our end of its connection; None where it has to be started by itself.

    That is where ``preload`` (modules of jobs) is not loaded here, or where other threads are, which a fork lacks.
    """
    if not preload or not all(name in sys.modules for name in preload) or thread_count() > 1:
        return None
    ours, theirs = socket.socketpair()
    owner, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            ours.close()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # that is its owner's business
            os._exit(solver.main([str(theirs.detach()), str(owner)]))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # nothing of the owner's is to be ended by its child
    theirs.close()
    return ForkedSolver(pid), ours
