"""The acceptance campaign: payloads x seeds x noise modes x scenes, each a whole run judged against the truth.

Runs the loop in one process (safe_sysid.episode), in lock-step, and judges it with the demo's own judge. One line per
run goes to a JSON-lines file as it ends, so an interrupted campaign continues where it stopped; `--table` prints the
summary of such a file.

    python benchmarks/campaign.py --out campaign.jsonl --workers 2
    python benchmarks/campaign.py --out campaign.jsonl --table
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

PAYLOADS = ("4lb", "5lb", "6lb", "7lb", "8lb")
SCENES = ("open", "six_boxes")
NOISES = ("uniform", "adversarial")


def run_one(case: dict[str, Any]) -> dict[str, Any]:
    """One run; returns a JSON-able record."""
    from safe_sysid.apps.judge.evaluation import evaluate
    from safe_sysid.apps.plan.drive import logs_of_episode
    from safe_sysid.episode import Episode
    from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
    from safe_sysid.identification.equations.measurements import Measurements
    from safe_sysid.identification.identifier import Identifier
    from safe_sysid.robot.loading import load_robot
    from safe_sysid.robot.scenes.scene import load_scene
    from safe_sysid.simulation.assembly import build_plant
    from safe_sysid.simulation.payloads import payload_from_spec

    began = time.perf_counter()
    model = load_robot(case["robot"], **case["overrides"])
    scene = load_scene(case["scene"])
    payload = payload_from_spec(case["payload"], grip=model.settings.payload.envelope.center)
    plant = build_plant(
        model, payload, scene, case["seed"], noise=case["noise"], draw=case["arm"], actuator=case["actuator"]
    )
    record: dict[str, Any] = dict(case)
    velocity = case["identifier_velocity_error"]
    identifier = Identifier(model, replace(MeasurementErrors.from_model(model), velocity=np.full(model.n, velocity)))
    rng = np.random.default_rng(case["seed"])

    def sensed(data: Measurements) -> Measurements:
        if case["noise"] == "uniform":
            return replace(data, qd=data.qd + velocity * rng.uniform(-1, 1, data.qd.shape))
        return replace(data, qd=data.qd + velocity * rng.choice([-1, 1], data.qd.shape))

    episode = Episode(model, plant, scene, seed=case["seed"], identifier=identifier, sensed=sensed)
    result = episode.run()
    judged = evaluate(logs_of_episode(result, plant), model, result.gains, plant.clearance)
    last = result.updates[-1][1]
    record |= {
        "violations": judged.violations.model_dump(),
        "gaps": list(judged.gaps),
        "findings": [str(x) for x in getattr(judged.safety, "findings", [])],
        "safety": judged.safety.model_dump(mode="json"),
        "refusals": result.refusals,
        "planned": sum(p.plan is not None for p in result.plans),
        "widths": [u.widths.tolist() for _, u in result.updates],
        "statuses": [u.status.name for _, u in result.updates],
        "nominal_error": (last.nominal - plant.theta_true[model.layout.payload]).tolist(),
        "identify_s": [sum(u.timings.values()) for _, u in result.updates],
        "plan_s": [p.wall_time for p in result.plans],
        "condition": [p.condition for p in result.plans],
        "energy_share": float(result.energy.max() / result.gains.V_max),
        "seconds": time.perf_counter() - began,
    }
    return record


def cases(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every combination asked for."""
    overrides: dict[str, Any] = json.loads(options.overrides)
    return [
        {
            "robot": options.robot,
            "payload": payload,
            "seed": seed,
            "noise": noise,
            "scene": scene,
            "arm": options.arm or ("corner" if seed % 2 else "uniform"),
            "actuator": "adversarial" if noise == "adversarial" else "random",
            "overrides": overrides,
            "identifier_velocity_error": options.identifier_velocity_error,
        }
        for seed, scene, noise, payload in itertools.product(
            range(options.seeds), options.scenes, options.noises, options.payloads
        )
    ]


def key(record: dict[str, Any]) -> str:
    """What makes a case that case."""
    names = ("robot", "payload", "seed", "noise", "scene", "arm", "actuator", "overrides")
    velocity = record.get("identifier_velocity_error", 0.0)
    return json.dumps([*(record[name] for name in names), velocity])


def attempt(case: dict[str, Any]) -> dict[str, Any]:
    """A run that raises is a record too."""
    try:
        return run_one(case)
    except Exception as error:  # the campaign must tell of every case
        return {**case, "error": f"{type(error).__name__}: {error}"}


def table(records: list[dict[str, Any]], console: Console) -> bool:
    """Print the summary; True if every run is clean."""
    from safe_sysid.core.layout import PAYLOAD_NAMES
    from safe_sysid.robot.loading import load_robot

    prior = load_robot(records[0]["robot"]).arm_prior
    width = prior.payload_upper - prior.payload_lower
    errors = [r for r in records if "error" in r]
    good = [r for r in records if "error" not in r]
    bad = [r for r in good if sum(r["violations"].values()) or r["gaps"] or r["refusals"]]
    console.print(f"{len(records)} runs: {len(errors)} failed, {len(bad)} with violations, gaps or refusals")
    for r in errors + bad:
        console.print(key(r), r.get("error") or (r["violations"], r["gaps"], r["refusals"]), soft_wrap=True)
    for noise in sorted({r["noise"] for r in good}):
        some = [r for r in good if r["noise"] == noise]
        t = Table(title=f"{noise} noise, {len(some)} runs: final width, median (and over all payloads, worst)")
        for column in ("parameter", "prior", "8 lb median", "all median", "all worst"):
            t.add_column(column, justify="right")
        final = np.array([r["widths"][-1] for r in some])
        heavy = np.array([r["widths"][-1] for r in some if r["payload"] == "8lb"] or [[np.nan] * 10])
        for i, name in enumerate(PAYLOAD_NAMES):
            values = (width[i], np.median(heavy[:, i]), np.median(final[:, i]), final[:, i].max())
            t.add_row(name, *(f"{v:.4f}" for v in values))
        console.print(t)
        planned = np.mean([r["planned"] for r in some])
        energy, nearest = (
            max(r["energy_share"] for r in some),
            min(r["safety"]["clearance"]["smallest_m"] for r in some),
        )
        identify, plan = (np.concatenate([r[key] for r in some]) for key in ("identify_s", "plan_s"))
        console.print(f"{planned:.2f} plans a run; V at most {energy:.2%} of V_max; smallest clearance {nearest:.4f} m")
        console.print(f"medians: identification {np.median(identify):.2f} s, planning {np.median(plan):.2f} s")
    return not errors and not bad


def main() -> int:
    """Run what is missing in the file, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("campaign.jsonl"))
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--payloads", nargs="+", default=PAYLOADS)
    parser.add_argument("--scenes", nargs="+", default=SCENES)
    parser.add_argument("--noises", nargs="+", default=NOISES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--arm", default=None, help="draw of the true arm; default: uniform for even seeds, corner for odd"
    )
    parser.add_argument("--overrides", default="{}", help="JSON of settings, e.g. '{\"measurement.torque_abs\": 0.2}'")
    parser.add_argument(
        "--identifier-velocity-error",
        type=float,
        default=0.0,
        help="rad/s, of the identifier's velocities only; the controller's stay as configured",
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="only print the table of an existing file")
    options = parser.parse_args()
    console = Console()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if not options.table:
        known = {key(r) for r in done}
        todo = [case for case in cases(options) if key(case) not in known]
        with (
            multiprocessing.get_context("spawn").Pool(options.workers, maxtasksperchild=10) as pool,
            options.out.open("a") as file,
            Progress(console=console) as progress,
        ):
            task = progress.add_task("runs", total=len(todo))
            for record in pool.imap_unordered(attempt, todo):
                done.append(record)
                file.write(json.dumps(record) + "\n")
                file.flush()
                progress.advance(task)
    return 0 if table(done, console) else 1


if __name__ == "__main__":
    raise SystemExit(main())
