"""Every fault in every state, over real topics, in lock-step: what follows, and all limits hold whatever happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from fault_bench import CONTROLLER, OVERRIDES, FaultBench
from fault_list import FAULTS, STATES, Fault
from ros_harness import Probe, running

from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros

#: On the tail a plan takes twice as long to get to, and where nothing is commanded most faults change nothing.
_IDLE = ("NaN for 60 ms", "position jumps for good", "clock jumps back", "parameters", "stop", "start", "emergency")
_SOME = {"idle": _IDLE, "fault": _IDLE, "braking": ("position jumps for good", "clock jumps back", "emergency stop")}
#: benchmarks/faults.py goes through all of them.
_BRAKING = ("NaN for 60 ms", "position jumps", "clock jumps back", "emergency stop", "payload released without")
#: In motion they are refused or passed over as at rest.
_AT_REST = (
    "plan too late", "plan for another payload", "one NaN", "no measurement for 5 ms", "no measurement for 2 s",
    "commands lost for 10 ms", "parameters", "/clock", "payload released after a reset", "joint misnamed",
    "measurement overtaken", "plan that does not connect", "box that is not nested", "velocity beyond the limit once",
    "position jumps by 0.05 rad once",
)  # fmt: skip


def _slow(state: str, fault: Fault) -> bool:
    if state == "tracking":
        return fault.name.startswith(_AT_REST)
    return not fault.name.startswith(_SOME.get(state, ""))


CASES = [
    pytest.param(state, fault, id=f"{state}: {fault.name}", marks=pytest.mark.slow if _slow(state, fault) else ())
    for state in STATES
    for fault in FAULTS
    if state in fault.states and (state != "braking" or fault.name.startswith(_BRAKING))
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultBench]:
    directory = tmp_path_factory.mktemp("faults")
    with running(directory, {"controller": CONTROLLER}, OVERRIDES) as processes, Probe() as probe:
        processes["controller"].wait_ready()
        bench = FaultBench(load_robot("kinova_gen3", **OVERRIDES), probe, processes["controller"])
        bench.idle()  # it becomes active once it has seen an arm
        yield bench


@pytest.mark.parametrize(("state", "fault"), CASES)
def test_what_follows_is_as_it_must_be_and_all_limits_hold(bench: FaultBench, state: str, fault: Fault) -> None:
    outcome = fault.outcome(bench, state)
    assert outcome.rate <= 1e4 * (1.0 + 1e-6), outcome
    assert outcome.torque <= 1.0, outcome
    assert outcome.velocity <= 1.0, outcome
    assert outcome.position, outcome
