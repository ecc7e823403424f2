"""What a run leaves in shared memory is removed, and nothing of anybody who lives."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from safe_sysid.bring_up import shared_memory
from safe_sysid.bring_up.shared_memory import port_segments, remove_leftovers

#: Holds a lock as the middleware does, until its standard input ends.
_HOLDER = (
    "import fcntl, os, sys\nfcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\nprint(flush=True)\ninput()"
)


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three ports with their mutexes and lock files; of numbers that no process of this machine has."""
    monkeypatch.setattr(shared_memory, "_DIRECTORY", tmp_path)
    for name in _all_of(970000, 970001, 970002):
        (tmp_path / name).touch()
    return tmp_path


def _left(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def _all_of(*numbers: int) -> set[str]:
    names = ("fastrtps_port{}", "fastrtps_port{}_el", "sem.fastrtps_port{}_mutex")
    return {name.format(number) for number in numbers for name in names}


def test_ports_of_the_living_stay_with_their_mutexes(ports: Path) -> None:
    """Whoever opens a port whose mutex was removed may take it for broken, and make it anew: its owner is deaf then."""
    command = [sys.executable, "-c", _HOLDER, str(ports / "fastrtps_port970001_el")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        removed = remove_leftovers(port_segments())
        assert _left(ports) == _all_of(970001)
        assert set(removed) == _all_of(970000, 970002)
        holder.kill()
        holder.wait()
        remove_leftovers(port_segments())
        assert _left(ports) == set()


def test_a_participant_of_this_very_process_counts(ports: Path) -> None:
    with (ports / "fastrtps_port970000_el").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_leftovers(port_segments())
    assert _left(ports) == _all_of(970000)


def test_what_others_have_in_their_memory_stays(ports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "mapped_segments", lambda _: {"fastrtps_port970002"})
    remove_leftovers(port_segments())
    assert _left(ports) == _all_of(970002)
