"""Closed loop in MuJoCo: identify an unknown payload in a random scene, then go to a goal around the obstacles.

Each run draws a scene (3 to 10 obstacles, boxes only or all kinds), a start and a goal, a payload, an arm inside its
declared uncertainty, measurement and actuator errors inside theirs, all from its number; runs the loop in one process
(safe_sysid.episode) and has it judged by the demo's own judge: limits, tracking bounds, bounds of the parameters,
contacts and distances by MuJoCo. One JSON line per run as it ends; an interrupted benchmark goes on where it stopped.

    python benchmarks/closed_loop.py --runs 200 --out closed_loop.jsonl --jobs 2 --json closed_loop.json
    python benchmarks/closed_loop.py --out closed_loop.jsonl --table
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

#: Largest share of a limit or of a proved bound that a run used, per cent.
_SHARES = ("position", "velocity", "torque", "tracking_position", "tracking_velocity", "tracking_energy")
VERSION = 2  # of what a run draws: lines of another one are not comparable


def draw(seed: int, number: int) -> dict[str, Any]:
    """What run ``number`` is about."""
    rng = np.random.default_rng([seed, number])
    return {
        "seed": seed,
        "run": number,
        "version": VERSION,
        "kinds": "box" if rng.random() < 0.5 else "all",
        "pounds": round(float(rng.uniform(2.0, 8.0)), 3),
        "noise": str(rng.choice(["uniform", "adversarial"])),
        "arm": str(rng.choice(["uniform", "corner"])),
        "actuator": str(rng.choice(["random", "adversarial"])),
    }


def run_one(case: dict[str, Any], robot: str, plans: int | None) -> dict[str, Any]:
    """One run; returns a JSON-able record."""
    from safe_sysid.apps.judge.evaluation import evaluate
    from safe_sysid.apps.plan.drive import logs_of_episode
    from safe_sysid.control.gains.design import design_gains
    from safe_sysid.episode import Episode
    from safe_sysid.robot.loading import load_robot
    from safe_sysid.simulation.assembly import build_plant
    from safe_sysid.simulation.payloads import dumbbell
    from safe_sysid.simulation.random_scenes import ALL_KINDS, random_scene

    began = time.perf_counter()
    model = load_robot(robot)
    rng = np.random.default_rng([case["seed"], case["run"], 1])
    kinds = ("box",) if case["kinds"] == "box" else ALL_KINDS
    scene = random_scene(model, rng, kinds=kinds, gains=design_gains(model, lockstep=True))
    payload = dumbbell(case["pounds"], model.settings.payload.envelope.center)
    plant_seed = int(rng.integers(2**31))
    plant = build_plant(
        model, payload, scene, plant_seed, noise=case["noise"], draw=case["arm"], actuator=case["actuator"]
    )
    episode = Episode(model, plant, scene, plans=plans, seed=case["run"], waypoints=scene.goal)
    result = episode.run()
    judged = evaluate(logs_of_episode(result, plant), model, result.gains, plant.clearance)
    moves = [answer for _, answer in result.task_plans]
    shares = {kind: getattr(judged.safety, kind) for kind in _SHARES}
    return {
        **case,
        "obstacles": len(scene.obstacles),
        "violations": judged.violations.model_dump(),
        "gaps": list(judged.gaps),
        "findings": [str(finding) for finding in judged.safety.findings],
        "refusals": result.refusals,
        "clearance_m": judged.safety.clearance.smallest_m,
        "certified_clearance_m": judged.safety.clearance.certified_m,
        "percent": {kind: None if share is None else share.percent for kind, share in shares.items()},
        "planned": sum(answer.plan is not None for answer in result.plans),
        "asked": len(result.plans),
        "plan_s": [answer.wall_time for answer in result.plans],
        "widths": result.updates[-1][1].widths.tolist() if result.updates else None,
        "task": None if result.task is None else result.task.value,
        "task_reasons": list(result.task_reasons),
        "steps": sum(answer.plan is not None for answer in moves),
        "step_s": [answer.wall_time for answer in moves],
        "distance_rad": float(np.abs(scene.goal - scene.start).max()),
        "motion_s": float(result.stamps[-1] - result.stamps[0]),
        "seconds": time.perf_counter() - began,
    }


def attempt(job: tuple[dict[str, Any], str, int | None]) -> dict[str, Any]:
    """A run that raises is a record too."""
    case, robot, plans = job
    try:
        return {**run_one(case, robot, plans), "robot": robot}
    except Exception as error:  # the benchmark must tell of every run
        return {**case, "robot": robot, "error": f"{type(error).__name__}: {error}"}


def summarise(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and quantiles over all runs."""
    good = [r for r in records if "error" not in r]
    kinds = sorted({kind for r in good for kind in r["violations"]})
    violations = {kind: sum(r["violations"][kind] for r in good) for kind in kinds}
    arrived = [r for r in good if r["task"] == "arrived"]
    steps, plans = ([s for r in good for s in r[key]] for key in ("step_s", "plan_s"))

    def quantiles(values: list[float]) -> dict[str, float]:
        known = [v for v in values if v is not None]
        if not known:
            return {}
        return {"median": float(np.median(known)), "p95": float(np.quantile(known, 0.95)), "max": max(known)}

    return {
        "runs": len(records),
        "errors": [r["error"] for r in records if "error" in r],
        "violations": violations,
        "violations_total": sum(violations.values()),
        "runs_with_gaps": sum(bool(r["gaps"]) for r in good),
        "runs_with_refusals": sum(bool(r["refusals"]) for r in good),
        "arrived": len(arrived),
        "refused": sum(r["task"] == "refused" for r in good),
        "arrived_of_boxes": [sum(r["kinds"] == "box" for r in some) for some in (arrived, good)],
        "arrived_of_all_kinds": [sum(r["kinds"] == "all" for r in some) for some in (arrived, good)],
        "smallest_clearance_m": min((r["clearance_m"] for r in good if r["clearance_m"] is not None), default=None),
        **{f"{kind}_percent": quantiles([r["percent"][kind] for r in good]) for kind in _SHARES},
        "excitation_plans": [sum(r["planned"] for r in good), sum(r["asked"] for r in good)],
        "plan_s": quantiles(plans),
        "steps_per_task": quantiles([r["steps"] for r in arrived]),
        "step_s": quantiles(steps),
        "motion_s": quantiles([r["motion_s"] for r in good]),
        "seconds": quantiles([r["seconds"] for r in good]),
    }


def show(records: list[dict[str, Any]], console: Console) -> bool:
    """Print the summary; True if every run is clean."""
    summary = summarise(records)
    table = Table(title=f"closed loop, {len(records)} runs", show_header=False)
    for name, value in summary.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v:.4g}" for k, v in value.items())
        table.add_row(name.replace("_", " "), str(value))
    console.print(table)
    for r in records:
        told = r.get("error") or r["findings"] or r["gaps"] or r["refusals"] or r["task_reasons"]
        if told:
            console.print(f"run {r['run']}: {told}", soft_wrap=True, markup=False)
    return not (summary["errors"] or summary["violations_total"] or summary["runs_with_gaps"])


def main() -> int:
    """Run what is missing in the file, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--plans", type=int, default=None, help="exciting trajectories; default: the robot's")
    parser.add_argument("--out", type=Path, default=Path("closed_loop.jsonl"))
    parser.add_argument("--json", type=Path, default=None, help="summary and all runs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="only print the table of an existing file")
    options = parser.parse_args()
    console = Console()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = [r for r in done if (r["seed"], r["version"], r["robot"]) == (options.seed, VERSION, options.robot)]
    if not options.table:
        known = {r["run"] for r in done}
        todo = [(draw(options.seed, i), options.robot, options.plans) for i in range(options.runs) if i not in known]
        with (
            multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=20) as pool,
            options.out.open("a") as file,
            Progress(console=console) as progress,
        ):
            task = progress.add_task("runs", total=len(todo))
            for record in pool.imap_unordered(attempt, todo):
                done.append(record)
                file.write(json.dumps(record) + "\n")
                file.flush()
                progress.advance(task)
    done.sort(key=lambda r: r["run"])
    if options.json is not None:
        options.json.write_text(json.dumps({"summary": summarise(done), "runs": done}, indent=1))
    return 0 if show(done, console) else 1


if __name__ == "__main__":
    raise SystemExit(main())
