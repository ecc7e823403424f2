"""The process that nodes are forked of: what a fork has of its own, how it ends, what is told of a dead server."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ros_harness import wait_for

from safe_sysid.bring_up.fork_server import ForkServer
from safe_sysid.bring_up.processes import NodeProcess, ProcessDiedError, ProcessGroup

# What the forks of these tests are in the place of a node: each name ends in its own way.
FORKS = """
import os, signal, sys, time
from safe_sysid.bring_up.child import become_node as real
def become_node(name, arguments):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # may be ignored by what the tests run in
    if name == "told":
        print("READY", *arguments, os.environ["COLOUR"], os.environ.get("OF_THE_SERVER"), os.getsid(0) == os.getpid())
        sys.exit(3)
    if name == "broken":
        raise ValueError("no such joint")
    real("no_such_node", arguments) if name == "real" else print("READY", name, flush=True)
    time.sleep(600)
sys.modules["__main__"].become_node = become_node
"""
Start = Callable[..., ForkServer]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts servers that fork the above, after the modules whose text is given."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OF_THE_SERVER", "1")
    servers = []

    def start(**modules: str) -> ForkServer:
        for name, text in ({"be_something": FORKS} | modules).items():
            (tmp_path / f"{name}.py").write_text(text)
        servers.append(ForkServer("be_something", *modules))
        return servers[-1]

    yield start
    for one in servers:
        one.close()


def ended(process: NodeProcess) -> int:
    wait_for(lambda: process.process.poll() is not None, 30.0, "its end")
    return process.process.returncode


def test_a_fork_has_its_own_environment_session_output_and_exit_status(server: Start, tmp_path: Path) -> None:
    with ProcessGroup(server()) as group:
        told = group.start("told", ["a", "b"], {"COLOUR": "blue"}, tmp_path / "logs" / "told.log")
        broken = group.start("broken", [], {"COLOUR": "red"}, tmp_path / "broken.log")
        assert ended(told) == 3
        assert ended(broken) == 1
    assert told.log.read_text() == "READY a b blue None True\n"
    assert "ValueError: no such joint" in broken.log.read_text()
    assert broken.exit_report().startswith("broken ended with exit status 1; its last lines:")


def test_a_signal_reaches_one_fork_and_is_told(server: Start, tmp_path: Path) -> None:
    with ProcessGroup(server()) as group:
        two = [group.start(name, [], {}, tmp_path / f"{name}.log") for name in ("one", "other")]
        wait_for(lambda: all(process.check_ready() for process in two), 30.0, "READY")
        os.kill(two[0].process.pid, signal.SIGKILL)
        assert ended(two[0]) == -signal.SIGKILL
        with pytest.raises(ProcessDiedError, match="one was killed by SIGKILL"):
            group.check()
        assert group.alive == [two[1]]
        assert group.stop() == []
        assert two[1].process.returncode == -signal.SIGINT


def test_a_module_that_cannot_be_imported_is_told_and_the_rest_goes_on(server: Start, tmp_path: Path) -> None:
    one = server(missing="import no_such_library")
    with ProcessGroup(one) as group:
        assert ended(group.start("told", [], {"COLOUR": "blue"}, tmp_path / "log")) == 3
    assert one.errors()[-1] == "ModuleNotFoundError: No module named 'no_such_library'"


def test_forks_end_with_the_server_and_count_as_ended(server: Start, tmp_path: Path) -> None:
    one = server()
    with ProcessGroup(one) as group:
        process = group.start("one", [], {}, tmp_path / "log")
        wait_for(process.check_ready, 30.0, "READY")
        pid = process.process.pid
        one.close()
        wait_for(lambda: not alive(pid), 10.0, "the fork's end")
        with pytest.raises(ProcessDiedError, match="one was killed by SIGKILL"):
            group.check()
        late = group.start("late", [], {}, tmp_path / "late.log")
        group.processes[:] = [late]
        with pytest.raises(ProcessDiedError, match="late could not be started: the process that nodes are forked of"):
            group.check()


def test_a_group_that_stops_before_anything_is_forked_waits_for_nothing(server: Start, tmp_path: Path) -> None:
    began = time.monotonic()
    with ProcessGroup(server(slow="import time; time.sleep(60)")) as group:
        process = group.start("one", [], {}, tmp_path / "log")
    assert time.monotonic() - began < 20.0
    assert process.process.pid is None
    assert process.process.returncode == -signal.SIGKILL


def test_a_server_with_threads_starts_a_process_that_has_none_of_them(server: Start, tmp_path: Path) -> None:
    """A fork has only the thread that forked: a library that counts on another would wait for ever."""
    threads = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    for modules, forked in (({}, True), ({"threads": threads}, False)):
        with ProcessGroup(server(**modules)) as group:
            process = group.start("real" if forked else "no_such_node", [], dict(os.environ), tmp_path / "log")
            assert ended(process) == 1
        log = process.log.read_text()
        assert "No module named 'safe_sysid.nodes.no_such_node'" in log
        assert ("fork_server_process" in log) == forked


def test_server_and_forks_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "be_something.py").write_text(FORKS)
    script = f"""
import sys, time
from pathlib import Path
from safe_sysid.bring_up.fork_server import ForkServer
sys.path.insert(0, {str(tmp_path)!r})
server = ForkServer("be_something")
process = server.start("one", [], {{}}, Path({str(tmp_path / "log")!r}))
while process.pid is None:
    process.poll()
print(process.pid, server._server.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        parent.kill()
        wait_for(lambda: not any(alive(pid) for pid in pids), 10.0, "the end of both")


def alive(pid: int) -> bool:
    """Not so for one that has ended and is not yet waited for."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
