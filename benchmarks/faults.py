"""Every fault in every state, over real topics: what happened, in a table. Writes docs/understand/faults.md.

    python benchmarks/faults.py [--states tracking,holding] [--out docs/understand/faults.md]

The faults and their judgement are the tests' (test/fault_list.py, test/test_nodes_faults.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test"))

from fault_bench import CONTROLLER, OVERRIDES, FaultBench, Outcome  # noqa: E402
from fault_list import FAULTS, STATES, Fault  # noqa: E402
from rich.progress import track  # noqa: E402
from ros_harness import Probe, running  # noqa: E402

from safe_sysid.robot import load_robot  # noqa: E402

HEAD = """# Fault matrix

Each fault in each state of the controller, over real topics in lock-step, as `python benchmarks/faults.py` found it;
the same cases are tests (`test/test_nodes_faults.py`). Kinova Gen3 with 8 lb, adversarial measurement and actuator
errors; the test plays the plant, with the simulated arm and its drives, and encoders of continuous joints that wrap at
pi (in every motion here joint_3 passes through it).

By the trajectory interface: [trajectory.md](../use/trajectory.md#faults).

In real time a stall can add to this: where the drives took over during a gap, the fault "commands do not reach it" says
how long the gap was. Nodes that are killed and started again, and a hand that takes up or lets go while the arm holds,
are in `test/test_nodes_restarts.py` (killed nodes in motion: `test/test_nodes_failures.py`), real time in
`test/test_nodes_realtime.py`.

- *what followed*: the states after it; "as ever" is what happens without any fault (a plan is tracked, braked along its
  tail as none follows, and held; an idle or faulty controller commands nothing).
- *rate*: largest change of the torque in force from one period to the next, drives included, from the hand-over by
  the drives on; declared are {rate:g} N m/s. *torque, velocity*: largest share of the limits. Positions stayed inside
  theirs, {judged}.

"""
USUAL = {"holding": "", "tracking": "braking holding", "braking": "holding", "idle": "", "fault": ""}


def row(fault: Fault, state: str, found: Outcome) -> str:
    """One line of the table."""
    after = " ".join(found.after)
    followed = "as ever" if after == USUAL[state] else " → ".join(found.after)
    reason = found.reason if found.after and (after != USUAL[state] or fault.reason) else ""
    reason = reason.replace("|", "/")[:110]
    numbers = f"{found.rate:.0f} | {found.torque:.2f} | {found.velocity:.2f}"
    return f"| {fault.name} | {followed} | {reason} | {numbers} |"


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", default=",".join(STATES))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "understand" / "faults.md")
    options = parser.parse_args()
    states = options.states.split(",")
    model = load_robot("kinova_gen3", **OVERRIDES)
    cases = [(state, fault) for state in states for fault in FAULTS if state in fault.states]
    tables: dict[str, list[str]] = {state: [] for state in states}
    wrong, inside = [], True
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory), {"controller": CONTROLLER}, OVERRIDES) as processes,
        Probe() as probe,
    ):
        processes["controller"].wait_ready()
        bench = FaultBench(model, probe, processes["controller"])
        for state, fault in track(cases, "faults"):
            bench.enter(state)
            fault.act(bench)
            found = bench.settle(state)
            tables[state].append(row(fault, state, found))
            inside = inside and found.position
            rate = float(model.settings.controller.torque_rate)  # type: ignore[arg-type]
            within = found.position and found.torque <= 1.0 and found.velocity <= 1.0
            if (
                not within
                or found.rate > rate * (1.0 + 1e-6)
                or " ".join(found.after) not in fault.after[state].split("|")
            ):
                wrong.append(f"{state}: {fault.name}: {found}")
    judged = "in every case" if inside else "**not in every case**"
    text = HEAD.format(rate=model.settings.controller.torque_rate, judged=judged)
    for state in states:
        text += f"## {state}\n\n| fault | what followed | reason | rate N m/s | torque | velocity |\n"
        text += "|---|---|---|---|---|---|\n" + "\n".join(tables[state]) + "\n\n"
    text += f"{len(cases)} cases, {len(wrong)} against expectation or a limit.\n"
    text += "".join(f"- {line}\n" for line in wrong)
    options.out.write_text(text)
    print(f"{options.out}: {len(cases)} cases, {len(wrong)} wrong")


if __name__ == "__main__":
    main()
