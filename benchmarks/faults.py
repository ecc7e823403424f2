"""Every fault in every state, over real topics: what happened, in a table. Writes a page of docs/understand.

    python benchmarks/faults.py [--interface trajectory] [--states tracking,holding] [--out docs/understand/faults.md]

The faults and their judgement are the tests' (test/fault_list.py, test/test_nodes_faults.py; by the trajectory
interface test/servo_bench.py, test/test_nodes_trajectory_faults.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from fault_bench import CONTROLLER, OVERRIDES, FaultBench, Outcome  # noqa: E402
from fault_list import FAULTS, STATES, Fault  # noqa: E402
from rich.progress import track  # noqa: E402
from ros_harness import Probe, running  # noqa: E402
from servo_bench import SERVO_FAULTS, ServoBench, servo_bench  # noqa: E402

from safe_sysid.robot import load_robot  # noqa: E402

HEAD = """# Fault matrix

Each fault in each state of the controller, over real topics in lock-step, as `python benchmarks/faults.py` found it;
the same cases are tests (`test/test_nodes_faults.py`). Kinova Gen3 with 8 lb, adversarial measurement and actuator
errors; the test plays the plant, with the simulated arm and its drives, and encoders of continuous joints that wrap at
pi (in every motion here joint_3 passes through it).

By the trajectory interface: [faults_trajectory.md](faults_trajectory.md).

In real time a stall can add to this: where the drives took over during a gap, the fault "commands do not reach it" says
how long the gap was. Nodes that are killed and started again, and a hand that takes up or lets go while the arm holds,
are in `test/test_nodes_restarts.py` (killed nodes in motion: `test/test_nodes_failures.py`; nodes and launch files that
are told to end in motion: `test/test_nodes_ending.py`, `test/test_launch_end.py`), real time in
`test/test_nodes_realtime.py`.

- *what followed*: the states after it; "as ever" is what happens without any fault (a plan is tracked, braked along its
  tail as none follows, and held; an idle or faulty controller commands nothing).
- *rate*: largest change of the torque in force from one period to the next, drives included, from the hand-over by
  the drives on; declared are {rate:g} N m/s. *torque, velocity*: largest share of the limits. Positions stayed inside
  theirs, {judged}.

"""
HEAD_TRAJECTORY = """# Fault matrix, trajectory interface

Each fault in each state of a controller with `interface: trajectory`, over real topics in lock-step, as
`python benchmarks/faults.py --interface trajectory` found it; the same cases are tests
(`test/test_nodes_trajectory_faults.py`). `three_joint` with the heaviest payload of its prior, behind a simulated servo
and a trajectory controller at 500 Hz; the tube was measured on this arm; no noise. The test plays the arm. In one
process, at random instants of a chain of plans: [trajectory.md](../use/trajectory.md#faults). By torques:
[faults.md](faults.md).

- *what followed*: the states after it; "as ever" is what happens without any fault (a plan is followed, braked along
  its tail as none follows, and held).
- *not claimed since*: the tube, as the diagnostics tell; stamps of an arm that is new in each case. Empty: claimed
  throughout.
- *claimed at most*: largest share of the outer tube that the **true** state took of any sample while that was claimed,
  of position or velocity: at most 1, and positions inside their limits, {judged}.
- *torque, velocity*: largest share of the limits. What the arm's own servo does after a fault of its own is its own
  affair: its drives saturate at 1.70, and no message of ours prevents it. In all other cases limits held.

In lock-step nothing moves but in simulation, so a second publisher is told and each message judged by itself; in real
time plans are refused while there is one. Where a claim ends, it ends with the last usable sample before. Payloads are
not exchanged here.

"""
NUMBERS = {"torque": ("rate N m/s",), "trajectory": ("not claimed since", "claimed at most")}
USUAL = {"holding": "", "tracking": "braking holding", "braking": "holding", "idle": "", "fault": ""}


def row(fault: Fault, state: str, found: Outcome, trajectory: bool) -> str:
    """One line of the table."""
    after = " ".join(found.after)
    followed = "as ever" if after == USUAL[state] else " → ".join(found.after)
    reason = found.reason if found.after and (after != USUAL[state] or fault.reason) else ""
    numbers = f"{found.rate:.0f}"
    if trajectory:
        numbers = f"{found.lost.replace('|', '/')[:110]} | {found.share:.2f}"
    numbers += f" | {found.torque:.2f} | {found.velocity:.2f}"
    return f"| {fault.name} | {followed} | {reason.replace('|', '/')[:110]} | {numbers} |"


@contextmanager
def torque_bench(directory: Path) -> Iterator[FaultBench]:
    """A controller process and its bench."""
    with running(directory, {"controller": CONTROLLER}, OVERRIDES) as processes, Probe() as probe:
        processes["controller"].wait_ready()
        yield FaultBench(load_robot("kinova_gen3", **OVERRIDES), probe, processes["controller"])


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interface", choices=("torque", "trajectory"), default="torque")
    parser.add_argument("--states", default=",".join(STATES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    states, trajectory = options.states.split(","), options.interface == "trajectory"
    out = options.out or ROOT / "docs" / "understand" / ("faults_trajectory.md" if trajectory else "faults.md")
    faults = SERVO_FAULTS if trajectory else FAULTS
    cases = [(state, fault) for state in states for fault in faults if state in fault.states]
    tables: dict[str, list[str]] = {state: [] for state in states}
    wrong, inside = [], True
    with tempfile.TemporaryDirectory() as place, (servo_bench if trajectory else torque_bench)(Path(place)) as bench:
        rate = float(bench.model.settings.controller.torque_rate)
        for state, fault in track(cases, "faults"):
            bench.enter(state)
            fault.act(bench)
            found = bench.settle(state)
            tables[state].append(row(fault, state, found, trajectory))
            inside = inside and found.position and found.share <= 1.0
            if isinstance(bench, ServoBench):
                beyond = bench.wrong(fault, found)
            else:
                within = found.position and found.torque <= 1.0 and found.velocity <= 1.0
                beyond = not within or found.rate > rate * (1.0 + 1e-6)
            if beyond or " ".join(found.after) not in fault.after[state].split("|"):
                wrong.append(f"{state}: {fault.name}: {found}")
    judged = "in every case" if inside else "**not in every case**"
    text = (HEAD_TRAJECTORY if trajectory else HEAD).format(rate=rate, judged=judged)
    columns = ["fault", "what followed", "reason", *NUMBERS[options.interface], "torque", "velocity"]
    for state in states:
        text += f"## {state}\n\n| {' | '.join(columns)} |\n"
        text += "|" + "---|" * len(columns) + "\n" + "\n".join(tables[state]) + "\n\n"
    text += f"{len(cases)} cases, {len(wrong)} against expectation or a limit.\n"
    text += "".join(f"- {line}\n" for line in wrong)
    out.write_text(text)
    print(f"{out}: {len(cases)} cases, {len(wrong)} wrong")


if __name__ == "__main__":
    main()
