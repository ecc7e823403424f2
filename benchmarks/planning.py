"""How fast plans are found, and how often: the six-box scene and random ones, three sets of parameters.

Problems: the scene's start at rest, the robot's prior set (Table I), an identified set (the last one that an episode of
four plans with a 5 lb dumbbell published) and a 5 % set of the same payload. Each line of the file is one planning call
or one chain of four calls, and what is there is not done again. Times are wall-clock times of this process alone; say
what else the machine did.

    nice python benchmarks/planning.py --out planning.jsonl --scenes 100
    python benchmarks/planning.py --out planning.jsonl --table
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

SETS = ("prior", "identified", "5 %")
#: A plan counts as moving if some joint ends at least so far from where the gentlest one does, share of k_range.
MOVES = 0.05


def box_of(model: Any, kind: str) -> Any:
    """Table I's prior, or a smaller box about a payload inside it.

    Args:
        model: the arm.
        kind: of ``SETS``.
    """
    prior = model.arm_prior
    if kind == "prior":
        return prior
    from safe_sysid.simulation.payloads import payload_from_spec, theta_e_with_payload

    if kind == "identified":
        return identified_box(model)
    payload = payload_from_spec("5lb", grip=model.settings.payload.envelope.center)
    truth = theta_e_with_payload(model, model.theta_nominal[prior.layout.payload], payload)
    radius = 0.05 * np.abs(truth) + 1e-4
    lower = np.maximum(truth - radius, prior.payload_lower)
    return prior.with_payload(lower, np.minimum(truth + radius, prior.payload_upper), 1)


@cache
def identified_box(model: Any) -> Any:
    """What a run of four plans in the open knows of a 5 lb dumbbell at its end."""
    from safe_sysid.episode import Episode
    from safe_sysid.robot.scenes.scene import load_scene
    from safe_sysid.simulation.assembly import build_plant
    from safe_sysid.simulation.payloads import payload_from_spec

    scene = load_scene("open")
    payload = payload_from_spec("5lb", grip=model.settings.payload.envelope.center)
    result = Episode(model, build_plant(model, payload, scene, 0), scene, plans=4).run()
    return result.updates[-1][1].box


def scene_of(model: Any, gains: Any, index: int) -> Any:
    """Scene 0 is the six boxes; the others are random, 3 to 10 boxes, the number is the seed."""
    from safe_sysid.robot.scenes.scene import load_scene
    from safe_sysid.simulation.random_scenes import random_scene

    return (
        load_scene("six_boxes")
        if index == 0
        else random_scene(model, np.random.default_rng(index), gains=gains)
    )


def run_case(model: Any, gains: Any, case: dict[str, Any], real_time: bool) -> dict[str, Any]:
    """A chain of plans in one scene; the first one from rest.

    Args:
        model: the arm.
        gains: of its controller.
        case: scene, set, cost, plans.
        real_time: a deadline of t_p less the node's margin for every call, instead of the lock-step budget.
    """
    from safe_sysid.planning.planner import Planner, PlannerOptions, hand_over_state

    scene, box = scene_of(model, gains, case["scene"]), box_of(model, case["set"])
    planner = Planner(model, scene, gains, options=PlannerOptions(cost=case["cost"]))
    state = np.zeros((3, model.n))
    state[0] = scene.start_for(model)
    start, previous, calibration, calls = 0.0, None, None, []
    information = np.zeros((10, 10))
    for sequence in range(case["plans"]):
        margin = 0.25
        deadline = time.monotonic() + planner.settings.t_p - margin if real_time else None
        began, cpu = time.perf_counter(), time.process_time()
        result = planner.plan_next(
            state, start, box, sequence, previous, information, planner.budget(deadline),
            sequence == case["plans"] - 1, calibration,
        )  # fmt: skip
        calls.append(
            {
                "status": result.status.value,
                "first_s": result.first_time,
                "wall_s": time.perf_counter() - began,
                "cpu_s": time.process_time() - cpu,
                "late_s": 0.0 if deadline is None else max(0.0, time.monotonic() - deadline),
                "certify_s": result.certify_time,
                "certificates": result.certificates,
                "iterations": result.iterations,
                "cost": result.cost,
                "moves": 0.0 if result.plan is None else float(np.abs(result.plan.k).max()),
            }
        )
        if result.plan is None:
            calls[-1]["reasons"] = list(result.reasons)
            break
        previous, calibration = result.plan, result.calibration
        state, start = hand_over_state(previous), previous.hand_over_time
        information = information + result.information
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return {**case, "real_time": real_time, "calls": calls, "peak_mib": peak, "load": os.getloadavg()[0]}


def evaluation_times(model: Any, gains: Any, repeats: int = 30) -> dict[str, float]:
    """Median time (ms) of one evaluation of all constraint families at 128 samples, and of the parts of a plan."""
    from safe_sysid.planning.certification.certificate import start_check
    from safe_sysid.planning.planner import Planner

    scene = scene_of(model, gains, 0)
    planner = Planner(model, scene, gains)
    state = np.zeros((3, model.n))
    state[0] = scene.start_for(model)
    problem = planner.build_problem(state, model.arm_prior, 0)
    c, rng = problem.constraints, np.random.default_rng(0)
    work = {
        "constraints": c.values,
        "constraints and Jacobian": c.values_and_jacobian,
        "cost and gradient": problem.cost.value_and_gradient,
        "start check": lambda k: start_check(model, model.arm_prior, scene, gains, state[0]),
    }
    out = {}
    for name, call in work.items():
        took = []
        for _ in range(repeats):
            k = rng.uniform(-0.5, 0.5, model.n)
            began = time.perf_counter()
            call(k)
            took.append(1e3 * (time.perf_counter() - began))
        out[name] = float(np.median(took))
    return out


def show(records: list[dict[str, Any]], console: Console) -> None:
    """Tables of a file's records."""
    for title, wanted in (("first plans, from rest", True), ("later plans, from a moving start", False)):
        table = Table("set", "cost", "mode", "calls", "certified", "moving", "first s (median, p95)",
                      "returned s (median, p95)", "CPU s (median)", "late ms (max)", "cost (median)",
                      title=title)  # fmt: skip
        keys = sorted({(r["set"], r["cost"], r["real_time"]) for r in records})
        for key in keys:
            mine = [r for r in records if (r["set"], r["cost"], r["real_time"]) == key]
            calls = [c for r in mine for c in (r["calls"][:1] if wanted else r["calls"][1:])]
            if not calls:
                continue
            good = [c for c in calls if c["status"] == "planned"]

            def spread(name: str, among: list[dict[str, Any]]) -> str:
                values = [c[name] for c in among]
                return f"{np.median(values):.2f}, {np.quantile(values, 0.95):.2f}" if values else "-"

            table.add_row(
                key[0], key[1], "real time" if key[2] else "lock-step", str(len(calls)),
                f"{100 * len(good) / len(calls):.0f} %",
                f"{100 * np.mean([c['moves'] > MOVES for c in calls]):.0f} %",
                spread("first_s", good), spread("wall_s", calls),
                f"{np.median([c['cpu_s'] for c in calls]):.2f}",
                f"{1e3 * max(c['late_s'] for c in calls):.0f}",
                f"{np.median([c['cost'] for c in good]):.3f}" if good else "-",
            )  # fmt: skip
        console.print(table)
    console.print(f"peak memory {max(r['peak_mib'] for r in records):.0f} MiB; "
                  f"load {min(r['load'] for r in records):.1f} to {max(r['load'] for r in records):.1f}")  # fmt: skip


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per chain of plans")
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--scenes", type=int, default=100, help="random scenes besides the six boxes")
    parser.add_argument("--plans", type=int, default=2, help="plans per chain")
    parser.add_argument("--costs", nargs="+", default=["condition"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--real-time", action="store_true", help="a deadline instead of an iteration budget")
    parser.add_argument("--table", action="store_true", help="only print what is in the file")
    options = parser.parse_args()
    console = Console()
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    records = [json.loads(line) for line in lines]
    if not options.table:
        from safe_sysid.control.design import design_gains
        from safe_sysid.robot.loading import load_robot

        model = load_robot(options.robot)
        gains = design_gains(model, lockstep=True)
        keys = ("scene", "set", "cost", "plans")
        done = {(*(r[k] for k in keys), r["real_time"]) for r in records}
        cases = [
            dict(zip(keys, (scene, box, cost, options.plans), strict=True))
            for scene in range(options.scenes + 1)
            for box in options.sets
            for cost in options.costs
        ]
        left = [case for case in cases if (*(case[k] for k in keys), options.real_time) not in done]
        if left:
            run_case(model, gains, {**left[0], "plans": 1}, False)  # compile
            for name, value in evaluation_times(model, gains).items():
                console.print(f"{name}: {value:.2f} ms")
        with options.out.open("a") as file:
            for case in track(left, "planning", console=console):
                records.append(run_case(model, gains, case, options.real_time))
                print(json.dumps(records[-1]), file=file, flush=True)
    if records:
        show(records, console)


if __name__ == "__main__":
    main()
