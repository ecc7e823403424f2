"""Every fault in every state by the trajectory interface, over real topics: what follows, and what is claimed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from fault_list import STATES, Fault
from servo_bench import SERVO_FAULTS, ServoBench, servo_bench

pytestmark = pytest.mark.ros

#: The quick ones; benchmarks/faults.py --interface trajectory goes through all of them.
_QUICK = {
    "holding": ("every joint slips", "deactivation", "no measurement for 60 ms", "joint missing"),
    "tracking": ("servo hears no message", "emergency stop, the next"),
}
CASES = [
    pytest.param(
        state,
        fault,
        id=f"{state}: {fault.name}",
        marks=() if fault.name.startswith(_QUICK.get(state, "-")) else pytest.mark.slow,
    )
    for state in STATES
    for fault in SERVO_FAULTS
    if state in fault.states
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServoBench]:
    with servo_bench(tmp_path_factory.mktemp("faults")) as bench:
        yield bench


@pytest.mark.parametrize(("state", "fault"), CASES)
def test_what_follows_is_as_it_must_be_and_nothing_outside_the_tube_is_claimed(
    bench: ServoBench, state: str, fault: Fault
) -> None:
    outcome = fault.outcome(bench, state)
    assert not bench.wrong(fault, outcome), outcome
