"""Every parser of files against mutated valid files and against noise: it reads, or refuses in our own words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fuzz_targets import TARGETS, Target, run
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

EXAMPLES = 25  # of each parser; benchmarks/fuzz_files.py tries as many as one likes
SLOW = ("bag mcap", "bag sqlite", "bag recovery")  # half a second each for the library's types
CPU_S = 10.0  # of the processor; an input of a few kB that takes longer is a bomb

Edit = tuple[str, float, int, bytes]


def edits(target: Target) -> st.SearchStrategy[list[Edit]]:
    """Places (share of the file), kinds and what is put there."""
    pieces = st.one_of(
        st.sampled_from(target.words or (b"\0",)), st.binary(max_size=8), st.text(max_size=6).map(str.encode)
    )
    kinds = st.sampled_from(["insert", "replace", "delete", "repeat", "cut", "swap"])
    return st.lists(st.tuples(kinds, st.floats(0.0, 1.0), st.integers(1, 40), pieces), min_size=1, max_size=4)


def edited(content: bytes, changes: list[Edit]) -> bytes:
    """The content with the changes made, one after the other."""
    for kind, share, length, piece in changes:
        at = int(share * len(content))
        head, part, tail = content[:at], content[at : at + length], content[at + length :]
        content = {
            "insert": head + piece + part + tail,
            "replace": head + piece + tail,
            "delete": head + tail,
            "repeat": head + part * 20 + tail,
            "cut": head,
            "swap": tail + part + head,
        }[kind]
    return content


def tries(count: int) -> settings:
    return settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def check(target: Target, content: bytes, folder: Path) -> str:
    """Run it; its time counts in seconds of this process, so a busy machine changes nothing."""
    before = time.process_time()
    answer = run(target, content, folder)
    spent = time.process_time() - before
    if spent > CPU_S:
        raise AssertionError(f"{target.name}: {spent:.1f} s for {len(content)} bytes")
    return answer


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_parser_reads_what_is_valid(name: str, folder: Path) -> None:
    target = TARGETS[name]
    if name in ("plan", "certificate", "tare", "mesh path"):
        pytest.skip("a whole valid one takes an arm and a log: test_plan_file, test_certificates_file, test_tare")
    assert {run(target, seed, folder) for seed in target.seeds()} == {"read"}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_mutations_of_valid_files_are_read_or_refused(name: str, folder: Path) -> None:
    target = TARGETS[name]

    @tries(EXAMPLES if name not in SLOW else EXAMPLES // 3)
    @given(seed=st.sampled_from(target.seeds()), changes=edits(target))
    def attack(seed: bytes, changes: list[Edit]) -> None:
        check(target, edited(seed, changes), folder)

    attack()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_noise_is_read_or_refused(name: str, folder: Path) -> None:
    target = TARGETS[name]

    @tries(EXAMPLES // 2 if name not in SLOW else EXAMPLES // 4)
    @given(st.binary(max_size=300))
    @example(b"")
    def attack(content: bytes) -> None:
        check(target, content, folder)

    attack()


def test_the_test_finds_a_parser_that_dies(folder: Path) -> None:
    def careless(path: Path) -> object:
        return int(path.read_text())

    target = Target("careless", ".txt", careless, lambda: (b"1",))
    assert run(target, b"1", folder) == "read"
    with pytest.raises(ValueError, match="invalid literal"):
        run(target, b"x", folder)
