"""``python -m safe_sysid.bring_up.fork_server_process DESCRIPTOR PARENT MODULE ...``: what nodes are forked of.

It imports the modules, then forks a process for each request that comes over the descriptor, and says when one has
ended. It ends with its parent, and so do they.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from safe_sysid.bring_up.child import PARENT, become_node
from safe_sysid.bring_up.fork_server import ForkRequest
from safe_sysid.parent import end_with_parent, name_process, thread_count

__all__ = ["main"]

#: Of the server's environment: whose run it is, and where the ROS wheels' libraries are, without which an import of
#: rclpy would start the whole process anew.
_KEPT = (PARENT, "LD_LIBRARY_PATH", "_ROS_WHEELS_BOOTSTRAP_COMPLETE")


def main(arguments: Sequence[str]) -> None:
    """Import, fork, tell, until the parent has gone; in what was forked it runs the node."""
    descriptor, parent = map(int, arguments[:2])
    if not end_with_parent(parent, signal.SIGTERM):
        os._exit(1)  # it was gone before we asked
    name_process("fork_server")
    for name in arguments[2:]:
        try:
            importlib.import_module(name)
        except Exception:  # a node that needs it will say so; the others do not
            traceback.print_exc()
    gc.collect()
    gc.freeze()  # a collection in a child would copy all that it looks at
    control = Connection(descriptor)
    request = _serve(control)
    control.close()
    _become(*request)


def _serve(control: Connection) -> tuple[ForkRequest, int, bool]:
    """Answer requests; returns in each child: its request, the server's process id, whether it has all its threads."""
    numbers: dict[int, int] = {}  # of the requests, by process id
    ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    try:
                        request = control.recv()
                    except (EOFError, OSError):
                        os._exit(0)  # the parent has gone; the kernel tells the children when we have
                    threads, server, pid = thread_count(), os.getpid(), os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        os.close(ended)
                        os.close(wakeup)
                        return request, server, threads == 1
                    numbers[pid] = request.number
                    _tell(control, request.number, pid, None)
                else:
                    os.read(ended, 4096)
                    _tell_ended(control, numbers)


def _tell_ended(control: Connection, numbers: dict[int, int]) -> None:
    while numbers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid in numbers:  # not what a module has started
            _tell(control, numbers.pop(pid), pid, os.waitstatus_to_exitcode(status))


def _tell(control: Connection, number: int, pid: int, status: int | None) -> None:
    with suppress(OSError):
        control.send((number, pid, status))


def _become(request: ForkRequest, server: int, whole: bool) -> None:
    """What a child does: leads a session, writes to a file, takes over an environment, and is the node."""
    if not end_with_parent(server, signal.SIGTERM):
        sys.exit(1)
    os.setsid()
    for path, flags, targets in (
        (request.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2)),
        (os.devnull, os.O_RDONLY, (0,)),
    ):
        opened = os.open(path, flags)
        for target in targets:
            os.dup2(opened, target)
        os.close(opened)
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    os.environ.clear()
    os.environ.update({**request.environment, **kept})
    if not whole:  # a library of the server has threads, which a fork lacks: start from the beginning
        command = [sys.executable, "-m", "safe_sysid.bring_up.child", request.name, *request.arguments]
        os.execve(sys.executable, command, {**os.environ, PARENT: str(server)})
    become_node(request.name, request.arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
