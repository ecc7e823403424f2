"""Real-time scheduling of a node's threads, where the system permits it.

Everything here is optional: what the system does not permit is reported and skipped. Only a node with a 1 kHz loop may
ask for real-time priority; planner and identifier may only lower theirs (``nice``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RealtimeOptions", "Scheduling", "wake_on_time"]

#: Longest computation of a real-time thread without a pause, s: then all threads are ordinary ones again; and when
#: the kernel ends the process, should even that be in vain.
_SOFT, _HARD = 0.25, 2.0
#: Share of one core that a process with real-time threads may take over a second.
_SHARE, _WINDOW = 0.9, 1.0
#: Priority of the threads that are not the loop: it may wait for one that holds Python's lock.
_HELPER = 1
_TASKS, _THROTTLE = Path("/proc/self/task"), Path("/proc/sys/kernel/sched_rt_runtime_us")
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT, _PR_SET_TIMERSLACK = 1, 2, 4, 29


@dataclass(frozen=True)
class RealtimeOptions:
    """What a node asks the system for."""

    priority: int = 0  #: SCHED_FIFO priority of the loop, 1 to 99; 0: normal scheduling
    nice: int = 0  #: how much nicer than others all its threads are, 0 to 19
    cpus: tuple[int, ...] = ()  #: that its threads may run on; empty: all
    lock_memory: bool = False  #: keep its memory from being swapped out or dropped


class Scheduling:
    """Applies the options to the threads of this process, once they all exist; and takes them back."""

    def __init__(self, options: RealtimeOptions, warn: Callable[[str], None]) -> None:
        """``warn`` is told what the system does not permit, with what permits it."""
        self.options = options
        self.warnings: list[str] = []
        self._warn_node = warn
        self._granted: list[str] = []
        self._engaged = False
        self._since = (0.0, 0.0)

    @property
    def text(self) -> str:
        """What is in force, e.g. ``SCHED_FIFO 11, cpus 0 1, memory locked``."""
        return ", ".join(self._granted) or "normal"

    def engage(self, loop_thread: int | None) -> None:
        """Apply; call when all threads exist, in the main thread.

        ``loop_thread``: native id of the thread that must not wait; None: there is none.
        """
        options = self.options
        self._granted = []
        if options.nice and self._attempt(self._be_nice, f"nice {options.nice}", "RLIMIT_NICE"):
            self._granted.append(f"nice {options.nice}")
        if options.cpus and self._attempt(self._pin, f"cpus {options.cpus}", "processors that this process has"):
            self._granted.append(f"cpus {' '.join(map(str, options.cpus))}")
        if options.lock_memory and self._attempt(
            _lock_memory, "locking memory", "CAP_IPC_LOCK or `ulimit -l unlimited`"
        ):
            self._granted.append("memory locked")
        if options.priority and loop_thread is None:
            self._warn(f"no SCHED_FIFO {options.priority}: this node has no 1 kHz loop on the wall clock")
        elif options.priority and loop_thread is not None:
            self._raise(loop_thread)

    def relax(self) -> None:
        """Ordinary threads again, before long work as writing logs; what is told was in force until then."""
        if not self._engaged:
            return
        self._engaged = False
        for thread in _threads():
            with contextlib.suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))

    def check(self) -> None:
        """Give real-time scheduling back if this process takes nearly a whole core; from any thread, now and then."""
        if not self._engaged:
            return
        now, used = time.monotonic(), time.process_time()
        wall, share = now - self._since[0], (used - self._since[1]) / max(now - self._since[0], 1e-9)
        if wall < _WINDOW:
            return
        self._since = now, used
        if share > _SHARE:
            self._give_up(f"took {100.0 * share:.0f} % of a core for {wall:.1f} s")

    # -- the parts ----------------------------------------------------------------------------------------------

    def _raise(self, loop_thread: int) -> None:
        """The loop and the threads that bring its messages first, then the others, which hold Python's lock at times.

        A thread that is started later is an ordinary one, and so is every process: SCHED_RESET_ON_FORK.
        """
        priority = self.options.priority

        def apply() -> None:
            _bound_computation(self._on_long_computation)
            for thread in _threads():
                first = thread == loop_thread or _name(thread).startswith("dds.")
                parameter = os.sched_param(priority if first else min(_HELPER, priority))
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    os.sched_setscheduler(thread, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, parameter)

        if not self._attempt(apply, f"SCHED_FIFO {priority}", "CAP_SYS_NICE or `ulimit -r 99`"):
            self._engaged = True  # some threads may have got it
            self.relax()
            return
        self._engaged, self._since = True, (time.monotonic(), time.process_time())
        if any(_name(thread).startswith("dds.shm") for thread in _threads()):
            self._warn(
                "shared memory between processes: the loop may wait for a lock that an ordinary process holds; "
                "expected UDP, as docs/understand/realtime.md says how"
            )
        self._granted.append(f"SCHED_FIFO {priority}")
        with contextlib.suppress(OSError, ValueError):
            if int(_THROTTLE.read_text()) < 0:
                self._warn(f"{_THROTTLE} is -1: the kernel would let real-time threads take the whole machine")

    def _on_long_computation(self, *_: Any) -> None:
        self._give_up(f"computed for {_SOFT:g} s without a pause")

    def _give_up(self, reason: str) -> None:
        if self._engaged:
            self.relax()
            self._granted.append("given back")
            self._warn(f"{reason}: no longer scheduled in real time, so that others may work")

    def _be_nice(self) -> None:
        for thread in _threads():
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, thread, self.options.nice)

    def _pin(self) -> None:
        for thread in _threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, self.options.cpus)

    def _attempt(self, action: Callable[[], None], what: str, needs: str) -> bool:
        try:
            action()
        except (OSError, ValueError, AttributeError) as error:
            self._warn(f"no {what}: {error}; it needs {needs}; going on without")
            return False
        return True

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self._warn_node(text)


def wake_on_time() -> None:
    """Ordinary threads wake up to 50 us late, to save power; not the calling one any more. Needs no permission."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _threads() -> list[int]:
    return [int(name) for name in os.listdir(_TASKS)]


def _name(thread: int) -> str:
    """As its library called it: Fast DDS names its own ``dds.udp.7411`` and so on."""
    try:
        return (_TASKS / str(thread) / "comm").read_text()
    except OSError:
        return ""


def _bound_computation(on_long: Callable[..., None]) -> None:
    """The kernel watches that no real-time thread computes without end: a signal first, then it ends the process."""
    signal.signal(signal.SIGXCPU, on_long)
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    wanted = round(1e6 * _HARD)
    hard = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_RTTIME, (min(round(1e6 * _SOFT), hard), hard))


def _lock_memory() -> None:
    """What is in memory stays there, and what is touched later too; what is only reserved is not fetched."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
