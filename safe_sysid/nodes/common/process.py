"""Runs a node as a process: signals, executor, garbage collection, a clean end, and a thread for heavy work."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import rclpy
from rclpy.executors import Executor
from rclpy.experimental import EventsExecutor
from rclpy.signals import SignalHandlerOptions

from safe_sysid.errors import SafeSysIdError
from safe_sysid.nodes.common.base import BaseNode
from safe_sysid.nodes.common.lifecycle import ManagedNode
from safe_sysid.nodes.common.output import OutputPump
from safe_sysid.parent import LAUNCH, SAME, end_with_parent

__all__ = ["Worker", "run_node"]


#: s; for so long at most the loop's thread waits for Python's lock while the main thread computes.
_SWITCH = 5e-5


class _StopRequested(BaseException):
    """Ends a start. Not KeyboardInterrupt: some libraries let Python die of that even if it is caught."""


class _StopSignals:
    """SIGINT, SIGTERM, SIGHUP: the first asks the loop to end, or ends a start that is still under way.

    Attributes:
        insisted: there was another, later: whatever moves, the process ends now.
        looping: whether the loop runs, which looks at the two.
    """

    def __init__(self) -> None:
        self.requested, self.insisted, self.looping = False, False, False
        self._first = 0.0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # a closed terminal, unless told not to care (nohup)
            signal.signal(signal.SIGHUP, self._handle)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Meanwhile a signal ends the loop at once: what is done in here may take minutes."""
        before, self.looping = self.looping, False
        try:
            if self.requested:
                raise _StopRequested
            yield
        finally:
            self.looping = before

    def _handle(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if not self.requested:
            self._first = now
        self.requested, self.insisted = True, self.insisted or now - self._first > SAME
        if not self.looping:
            raise _StopRequested

    def ends(self, node: BaseNode) -> bool:
        """Whether the process ends now: asked to, and nothing moves any more that the node moves."""
        return self.requested and (self.insisted or node.may_end())


def run_node(
    node_type: Callable[[], BaseNode],
    args: list[str] | None = None,
    executor_type: Callable[[], Executor] = EventsExecutor,
) -> int:
    """Run a node until it is told to stop; returns the exit status.

    It is 0 for one that stopped, 1 if not all that it had to write then was written, 2 for one that cannot start.

    A signal asks it to end: it goes on until :meth:`~.BaseNode.may_end` allows it. A second one ends it at once.

    One line ``READY <name>`` on stdout says that it works, compiled code included; a managed node says so when it can
    be asked to configure, with ``autostart`` when it has configured itself and tried to become active.
    """
    node, work, status = None, None, 0
    try:
        stop = _StopSignals()
        if os.environ.get(LAUNCH) == str(os.getppid()):  # not so where something like a debugger is in between
            end_with_parent(os.getppid(), signal.SIGTERM)
        rclpy.init(args=_arguments(args, node_type), signal_handler_options=SignalHandlerOptions.NO)
        node = node_type()
        executor = executor_type()
        executor.add_node(node)
        work = _NodeWork(node)
        if isinstance(node, ManagedNode):
            node.interruptible, node.work_begins, node.work_ends = stop.interruptible, work.begin, work.end
            done = node.go_on()
        else:
            work.begin()
            done = True
        stop.looping = True
        print(f"READY {node.get_name()}", flush=True)
        while not stop.ends(node) and not (isinstance(node, ManagedNode) and node.finalized):
            node.spin_some(executor)
            if node.loop is not None:
                node.loop.raise_error()
            if isinstance(node, ManagedNode) and not (done or stop.requested):
                done = node.go_on()
    except SafeSysIdError as error:
        print(f"{node_type.__name__}: {error}", file=sys.stderr, flush=True)
        status = 2
    except _StopRequested:
        pass
    finally:
        stop.looping = True  # a second signal must not disturb the end
        if node is not None:
            try:
                if work is not None:
                    work.end(for_good=True)
                node.log_remaining()
                if work is not None:
                    work.close()
                node.close()
            except Exception:
                traceback.print_exc()
                status = status or 1
    return _leave(status)


class _NodeWork:
    """What a node that works asks of its process: nothing may stall its loop. Ends when the node is cleaned up."""

    def __init__(self, node: BaseNode) -> None:
        self._node = node
        self._pump: OutputPump | None = None
        self._switch = sys.getswitchinterval()
        self._working = False

    def begin(self) -> None:
        """Everything that the node needs is built."""
        node, self._working = self._node, True
        gc.collect()
        gc.freeze()  # nothing that exists now is garbage: never look at it again
        gc.disable()  # a collection would stall the loop; BaseNode collects the little there is
        if node.loop is not None:
            self._pump = self._pump or OutputPump()
            sys.setswitchinterval(_SWITCH)
            node.loop.start()
        node.scheduling.engage(node.loop_thread())

    def end(self, for_good: bool = False) -> None:
        """It is about to be taken away; writing logs takes long.

        ``for_good``: the process ends with it, and need not look for garbage any more.
        """
        if not self._working:
            return
        self._working, node = False, self._node
        if node.loop is not None:
            node.loop.stop()
        node.scheduling.relax()
        sys.setswitchinterval(self._switch)
        if not for_good:
            gc.unfreeze()
            gc.enable()

    def close(self) -> None:
        """The process ends."""
        if self._pump is not None:
            self._pump.close()


def _arguments(args: list[str] | None, node_type: Callable[[], BaseNode]) -> list[str] | None:
    """Those of the command line; a node with a loop leaves the log file out, for a busy disk would stall it."""
    if not getattr(node_type, "has_loop", False):
        return args
    return [*(sys.argv if args is None else args), "--ros-args", "--disable-external-lib-logs"]


def _leave(status: int) -> int:
    with contextlib.suppress(Exception):
        # No handlers of rclpy's are installed; to take them away, it makes SIGINT deadly for some microseconds.
        rclpy.shutdown(uninstall_handlers=False)
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread.daemon and thread.name == Worker.NAME for thread in threading.enumerate()):
        os._exit(status)  # a solver in the middle of a long call would hold the process back
    # All is written: a signal while Python itself ends, which takes a while, must not look as if the node had died.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return status


class Worker:
    """One thread for heavy work, so that callbacks never wait; jobs run in the order of their submission."""

    NAME = "safe_sysid worker"

    def __init__(self, on_error: Callable[[str], None]) -> None:
        """``on_error`` is told, in the thread, what went wrong in a job; the thread goes on."""
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._on_error = on_error
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.NAME, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Do it as soon as those before are done."""
        self._jobs.put(job)

    def cancelled(self) -> bool:
        """Whether a job should end early: the process stops."""
        return self._stopped.is_set()

    def stop(self, patience: float = 0.5) -> bool:
        """Ask the job to end and wait for it, for ``patience`` seconds; returns whether it did.

        If it did not, what it works with is its own still: nobody else may touch that.
        """
        self._stopped.set()
        self._jobs.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._stopped.is_set():
            try:
                job()
            except Exception:
                self._on_error(traceback.format_exc(limit=-6))
