"""The solver process dies, hangs, floods, refuses to listen: its owner is told and lives on."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from safe_sysid.planning.solver_process.process import Event, PlannerProcess, SolverError
from safe_sysid.planning.solver_process.solver import Solver
from safe_sysid.wire import dumps, loads

#: Longest wait for anything on a busy machine, s.
PATIENCE = 60.0


# Jobs: found by name in the other process.


def remember(solver: Solver, value: Any) -> None:
    solver.state["value"] = value


def recall(solver: Solver) -> Any:
    return solver.state.get("value"), os.getpid()


def crash(solver: Solver) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(solver: Solver) -> None:
    os._exit(3)


def fail(solver: Solver) -> None:
    raise ValueError("k = nan: expected a number")


def hang(solver: Solver) -> None:
    while True:
        time.sleep(1.0)


def hang_deaf(solver: Solver) -> None:
    """As compiled code that never returns: no other thread of the process gets a turn."""
    sys.setswitchinterval(1e6)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True:
        pass


def count(solver: Solver, steps: int) -> int:
    """Anytime: tells every step, ends when cancelled with what it has."""
    for k in range(steps):
        solver.tell(k)
        if solver.cancelled():
            return k
        time.sleep(0.005)
    return steps


def linger(solver: Solver) -> None:
    time.sleep(1.0)


def unspeakable(solver: Solver) -> Any:
    return threading.Lock()


class Owner:
    """A process and all that it has said."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.process = PlannerProcess(self.events.append)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.events
            time.sleep(0.005)

    def end_of(self, ticket: int) -> Event:
        self.wait(lambda: any(e.ticket == ticket and e.kind != "progress" for e in self.events))
        return next(e for e in self.events if e.ticket == ticket and e.kind != "progress")

    def do(self, job: Callable[[Solver], Any], limit: float | None = None) -> Event:
        return self.end_of(self.process.submit(job, limit))


@pytest.fixture(scope="module")
def shared() -> Iterator[Owner]:
    """One process for all tests here: whatever the one before did, the next finds it working."""
    owner = Owner()
    ticket = owner.process.configure("memory", partial(remember, value="set up"))
    owner.process.wait(ticket, PATIENCE)
    yield owner
    pid = owner.process.pid
    owner.process.close()
    assert pid is None or not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(("job", "said"), [(crash, "killed by SIGSEGV"), (leave, "exit status 3")])
def test_a_process_that_dies_is_told_and_replaced_and_set_up_again(
    shared: Owner, job: Callable[[Solver], Any], said: str
) -> None:
    before = shared.do(recall).value[1]
    ended = shared.do(job)
    assert ended.kind == "failed"
    assert said in ended.text
    value, pid = shared.do(recall).value
    assert value == "set up", "every new process does the set-up jobs first"
    assert pid != before
    assert not is_alive(before)


def test_one_that_is_killed_from_outside_fails_what_was_waiting_and_goes_on(shared: Owner) -> None:
    pid = shared.do(recall).value[1]
    tickets = [shared.process.submit(hang), shared.process.submit(recall)]
    os.kill(pid, signal.SIGKILL)
    assert ["SIGKILL" in shared.end_of(ticket).text for ticket in tickets] == [True, True]
    assert shared.do(recall).kind == "done"


@pytest.mark.parametrize("job", [hang, hang_deaf])
def test_a_hanging_job_is_killed_at_its_limit_and_its_owner_never_waits(
    shared: Owner, job: Callable[[Solver], Any]
) -> None:
    shared.do(recall)
    began = time.monotonic()
    ticket = shared.process.submit(job, time.monotonic() + 0.3)
    time.sleep(0.2)
    # More than any pipe holds: a process that does not read must not stop the one that writes.
    more = [shared.process.submit(partial(remember, value=np.zeros(200_000))) for _ in range(3)]
    shared.process.cancel(grace=0.1)
    assert time.monotonic() - began < 0.2 + 5.0
    assert "hanging" in shared.end_of(ticket).text
    assert all(shared.end_of(t).kind == "failed" for t in more)
    assert shared.do(recall).value[0] == "set up"


def test_an_anytime_job_tells_what_it_has_and_ends_when_cancelled(shared: Owner) -> None:
    seen = len(shared.events)
    ticket = shared.process.submit(partial(count, steps=10_000))
    shared.wait(lambda: len(shared.events) > seen + 3)
    pid = shared.process.pid
    shared.process.cancel(grace=PATIENCE)
    ended = shared.end_of(ticket)
    told = [e.value for e in shared.events[seen:] if e.kind == "progress"]
    assert ended.kind == "done"
    assert told == list(range(len(told)))
    assert ended.value == told[-1] < 9_999
    assert shared.process.pid == pid, "who listens is not killed"
    assert shared.do(partial(count, steps=2)).value == 2, "a cancellation is for the jobs before it"


def test_errors_of_a_job_are_its_answer_and_the_process_stays(shared: Owner) -> None:
    pid = shared.do(recall).value[1]
    failed, unsent = shared.do(fail), shared.do(unspeakable)
    assert "ValueError: k = nan: expected a number" in failed.text
    assert unsent.kind == "failed"
    assert "pickle" in unsent.text
    assert shared.do(recall).value[1] == pid


def test_set_up_is_replaced_by_name_and_what_fails_in_it_is_raised(shared: Owner) -> None:
    ticket = shared.process.configure("memory", partial(remember, value="new"))
    shared.process.wait(ticket, PATIENCE)
    shared.do(crash)
    assert shared.do(recall).value[0] == "new"
    with pytest.raises(SolverError, match="k = nan"):
        shared.process.wait(shared.process.configure("more", fail), PATIENCE)
    shared.process.configure("more", partial(remember, value="set up"))


def deaf(solver: Solver) -> None:
    """As a process that a busy machine does not let end: it has hung up, and is still there."""
    sys.setswitchinterval(1e6)
    ctypes.PyDLL(None).shutdown(solver._connection.fileno(), socket.SHUT_RDWR)  # no other thread gets a turn
    while True:
        pass


@pytest.mark.parametrize("moment", ["behind a search", "while the process dies"])
def test_set_up_survives_the_search_before_it(shared: Owner, moment: str) -> None:
    """A planner that is cleaned up while it plans and configured again at once: the search ends late, and is killed."""
    shared.do(recall)
    if moment == "behind a search":
        search = shared.process.submit(hang)
        shared.process.cancel(grace=0.3)
    else:
        search = shared.process.submit(deaf)
        shared.wait(lambda: shared.process.pid is None)
    tickets = [shared.process.configure("memory", partial(remember, value=k)) for k in (1, "set up")]
    shared.process.wait(tickets[1], PATIENCE)
    assert shared.end_of(search).kind == "failed"
    assert shared.do(recall).value[0] == "set up"
    assert not shared.process._pending
    with pytest.raises(SolverError):  # it was replaced before anybody did it
        shared.process.wait(tickets[0], 0.1)


def test_set_up_of_a_process_that_has_worked_for_long_is_given_its_own_time(
    shared: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = shared.do(recall).value[1]
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600.0)
    monkeypatch.setattr("safe_sysid.planning.solver_process.process.time", later)
    shared.process.wait(shared.process.configure("memory", partial(remember, value="set up")), PATIENCE)
    assert shared.do(recall).value == ("set up", pid)


def test_what_is_cancelled_while_the_process_starts_is_no_reason_to_kill_it(shared: Owner) -> None:
    shared.process.configure("slow", linger)
    shared.do(crash)  # the next one is set up slowly
    restarts = shared.process.restarts
    ticket = shared.process.submit(partial(count, steps=10_000))
    shared.process.cancel(grace=0.05)
    assert shared.end_of(ticket).kind == "done"
    assert shared.process.restarts == restarts
    shared.process.wait(shared.process.configure("slow", partial(remember, value="set up")), PATIENCE)


def test_what_was_read_only_still_is() -> None:
    array = np.arange(6.0).reshape(2, 3)
    array.setflags(write=False)
    there = loads(dumps({"a": array, "b": MappingProxyType({"c": array}), "d": np.zeros(2)}))
    assert np.array_equal(there["a"], array)
    assert not there["a"].flags.writeable
    assert there["d"].flags.writeable
    with pytest.raises(TypeError):
        there["b"]["c"] = 1


def test_no_solver_outlives_an_owner_that_is_killed() -> None:
    """Not even one in the middle of compiled code that never returns."""
    script = """
import time
import test_planning_process as jobs
owner = jobs.Owner()
print(owner.do(jobs.recall).value[1], flush=True)
owner.process.submit(jobs.hang_deaf)
time.sleep(600)
"""
    command, here = [sys.executable, "-c", script], Path(__file__).parent
    owner = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, text=True)
    try:
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
    finally:
        owner.kill()
        owner.wait()
    deadline = time.monotonic() + 10.0
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


class Riddle:
    """What cannot be read where it arrives."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _misread, (os.getpid(),)


def _misread(sender: int) -> int:
    if os.getpid() != sender:
        raise ModuleNotFoundError("no such thing here")
    return sender


def riddle(solver: Solver) -> Riddle:
    return Riddle()


def test_an_answer_that_cannot_be_read_is_told_and_the_next_one_is_heard(shared: Owner) -> None:
    assert "said what cannot be read (ModuleNotFoundError: no such thing here)" in shared.do(riddle).text
    assert shared.do(recall).kind == "done"


def test_the_first_process_is_forked_where_its_jobs_are_loaded_and_replaced_by_one_that_is_not() -> None:
    """In a process of its own, which has one thread; who has more, as this one may, starts it by itself."""
    script = """
import os, time
import test_planning_process as jobs
from safe_sysid.planning.solver_process.process import PlannerProcess
events = []
process = PlannerProcess(events.append, preload=("test_planning_process",))
while process.pid is None: time.sleep(0.001)
first = process.pid
process.wait(process.configure("memory", jobs.partial(jobs.remember, value="set up")), 60.0)
own = open("/proc/self/cmdline").read()
print(open(f"/proc/{first}/cmdline").read() == own, open(f"/proc/{first}/comm").read().strip())
def answer(job):
    ticket = process.submit(job)
    while not any(e.ticket == ticket for e in events): time.sleep(0.001)
    event = next(e for e in events if e.ticket == ticket)
    return event.text or event.value
print(answer(jobs.recall) == ("set up", first))
print(answer(jobs.crash))
state, second = answer(jobs.recall)
print(state, second != first, "solver_process.solver" in open(f"/proc/{second}/cmdline").read())
process.close()
print(jobs.is_alive(first), jobs.is_alive(second))
while len(os.listdir("/proc/self/task")) > 1: time.sleep(0.001)  # a thread that was joined is seen a moment longer
class Late(PlannerProcess):
    def _serve(self):
        time.sleep(0.1)
        super()._serve()
closed_before_it_began = Late(preload=("test_planning_process",))
children = f"/proc/self/task/{os.getpid()}/children"
print(len(open(children).read().split()))
closed_before_it_began.close()
print(len(open(children).read().split()))
"""
    command, here = [sys.executable, "-c", script], Path(__file__).parent
    run = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120.0)
    told = ["True solver", "True", "solver process: killed by SIGSEGV", "set up True True", "False False", "1", "0"]
    assert run.stdout.splitlines() == told, run.stderr
