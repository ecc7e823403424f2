"""Solver process: does one job after the other for its owner, and ends when the owner ends.

A job is a picklable callable that gets the :class:`Solver`; what it returns is the answer. Nothing here knows what a
job does (:mod:`safe_sysid.planning.solver_process.jobs`), so that a job that crashes or hangs can be tried in a test.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import queue
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from safe_sysid.parent import end_with_parent, name_process
from safe_sysid.wire import dumps, loads

__all__ = ["Solver", "main"]


class Solver:
    """What a job sees of its process. ``state``: whatever jobs leave for later ones: the planner, a task under way."""

    def __init__(self, connection: Connection) -> None:
        """Answer over ``connection``, which the parent holds the other end of."""
        self.state: dict[str, Any] = {}
        self._connection = connection
        self._jobs: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._ticket, self._cancelled = 0, 0

    def cancelled(self) -> bool:
        """Whether the job under way should end, with what it has."""
        return self._ticket <= self._cancelled

    def tell(self, value: Any) -> None:
        """Progress of the job under way: for instance a plan that is certified, while a better one is looked for."""
        self._connection.send_bytes(dumps(("progress", self._ticket, value, "")))

    def run(self) -> None:
        """Work until the parent has gone."""
        threading.Thread(target=self._listen, name="parent", daemon=True).start()
        while True:
            self._ticket, data = self._jobs.get()
            try:
                answer = dumps(("done", self._ticket, loads(data)(self), ""))
            except Exception:
                answer = dumps(("failed", self._ticket, None, traceback.format_exc(limit=-6)))
            self._connection.send_bytes(answer)

    def _listen(self) -> None:
        try:
            while True:
                kind, ticket, data = loads(self._connection.recv_bytes())
                if kind == "cancel":
                    self._cancelled = max(self._cancelled, ticket)
                else:
                    # Unpickled by the other thread: it may import what the job needs.
                    self._jobs.put((ticket, data))
        except (EOFError, OSError):
            os._exit(0)  # the parent has gone: nobody wants the answer, whatever is being computed


def main(arguments: list[str]) -> int:
    """``FD PID MODULE ..``: inherited descriptor of the connection, who started us, and what to import at once."""
    descriptor, parent = map(int, arguments[:2])
    if not end_with_parent(parent, signal.SIGKILL):  # should we hang in compiled code and not see it leave
        os._exit(1)
    name_process("solver")
    faulthandler.enable()  # a crash in compiled code leaves its stack in the log
    for name in arguments[2:]:
        importlib.import_module(name)
    Solver(Connection(descriptor)).run()
    return 0


if __name__ == "__main__":
    # Not this copy, which is called __main__: jobs know the module by its name.
    from safe_sysid.planning.solver_process import solver

    sys.exit(solver.main(sys.argv[1:]))
