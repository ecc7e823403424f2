"""Point-to-point motions in random scenes: how often a certified way to the goal is found, and how long it takes.

Scenes of 3 to 10 obstacles (boxes, or all kinds) with a random start and goal that may be held with any payload of the
prior; the payload known as by the robot's prior (Table I), to 5 % (an 8 lb dumbbell), or to 1 % (about what four
exciting trajectories leave). Nothing is simulated: each step is planned from where the one before hands over. One JSON
line per motion; an interrupted benchmark goes on where it stopped.

    python benchmarks/tasks.py --scenes 100 --out tasks.jsonl --json tasks.json
"""

from __future__ import annotations

import argparse
import json
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from safe_sysid.control.design import design_gains
from safe_sysid.control.gains import ControllerGains
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.task.task import TaskPlanner, TaskStatus, follow
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.payloads import payload_from_spec, theta_e_with_payload
from safe_sysid.simulation.random_scenes import ALL_KINDS, random_scene

SETS = ("table_1", "5_percent", "1_percent")
VERSION = 1  # of what is drawn


@lru_cache(maxsize=1)
def arm(name: str) -> tuple[RobotModel, ControllerGains]:
    """The robot, and its gains in lock-step."""
    model = load_robot(name)
    return model, design_gains(model, lockstep=True)


def parameter_set(model: RobotModel, name: str) -> ParameterBox:
    """What is known of the payload."""
    prior = model.arm_prior
    if name == "table_1":
        return prior
    grip = model.settings.payload.envelope.center
    hand = model.theta_nominal[prior.layout.payload]
    truth = theta_e_with_payload(model, hand, payload_from_spec("8lb", grip=grip))
    radius = (0.05 if name == "5_percent" else 0.01) * np.abs(truth) + 1e-4
    lower, upper = (
        np.maximum(truth - radius, prior.payload_lower),
        np.minimum(truth + radius, prior.payload_upper),
    )
    return prior.with_payload(lower, upper)


def run_one(robot: str, seed: int, number: int, known: str) -> dict[str, Any]:
    """One motion; returns a JSON-able record."""
    model, gains = arm(robot)
    rng = np.random.default_rng([seed, number])
    kinds = ("box",) if number % 2 == 0 else ALL_KINDS
    scene = random_scene(model, rng, kinds=kinds, gains=gains)
    planner = Planner(model, scene, gains)
    task = TaskPlanner(planner, scene.goal, seed=number)
    began = time.perf_counter()
    answers = list(follow(task, scene.start, parameter_set(model, known)))
    seconds = time.perf_counter() - began
    plans = [answer.plan for answer in answers if answer.plan is not None]
    straight = task.status is TaskStatus.ARRIVED and all(answer.plan is not None for answer in answers)
    return {
        "seed": seed,
        "number": number,
        "version": VERSION,
        "set": known,
        "kinds": "box" if kinds == ("box",) else "all",
        "obstacles": len(scene.obstacles),
        "status": task.status.value,
        "reasons": list(task.reasons),
        "distance_rad": float(np.abs(scene.goal - scene.start).max()),
        "steps": len(plans),
        "without_a_stop": straight,
        "motion_s": plans[-1].end_time if plans else 0.0,
        "step_s": [answer.wall_time for answer in answers],
        "certificates": [answer.certificates for answer in answers],
        "seconds": seconds,
    }


def summarise(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Success and times by parameter set."""
    out: dict[str, dict[str, Any]] = {}
    for name in SETS:
        some = [r for r in records if r["set"] == name]
        if not some:
            continue
        arrived = [r for r in some if r["status"] == "arrived"]
        later = [s for r in some for s in r["step_s"][1:]]
        first = [r["step_s"][0] for r in some if r["step_s"]]
        out[name] = {
            "motions": len(some),
            "arrived": len(arrived),
            "arrived_of_boxes": [sum(r["kinds"] == "box" for r in part) for part in (arrived, some)],
            "without_a_stop": sum(r["without_a_stop"] for r in arrived),
            "steps_median": float(np.median([r["steps"] for r in arrived])) if arrived else None,
            "motion_s_median": float(np.median([r["motion_s"] for r in arrived])) if arrived else None,
            "first_step_s": [float(np.quantile(first, q)) for q in (0.5, 0.95)] if first else None,
            "later_step_s": [float(np.quantile(later, q)) for q in (0.5, 0.95)] if later else None,
        }
    return out


def main() -> int:
    """Run what is missing in the file, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--out", type=Path, default=Path("tasks.jsonl"))
    parser.add_argument("--json", type=Path, default=None, help="summary and all motions")
    options = parser.parse_args()
    console = Console()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = [r for r in done if (r["seed"], r["version"]) == (options.seed, VERSION)]
    known = {(r["number"], r["set"]) for r in done}
    todo = [(i, name) for i in range(options.scenes) for name in options.sets if (i, name) not in known]
    with options.out.open("a") as file:
        for number, name in track(todo, "motions", console=console):
            done.append(run_one(options.robot, options.seed, number, name))
            file.write(json.dumps(done[-1]) + "\n")
            file.flush()
    summary = summarise(done)
    table = Table(title="certified ways to random goals in random scenes")
    table.add_column("")
    for name in summary:
        table.add_column(name, justify="right")
    for key in next(iter(summary.values()), {}):
        table.add_row(key.replace("_", " "), *(str(column[key]) for column in summary.values()))
    console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps({"summary": summary, "motions": done}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
