"""The acceptance campaign: payloads x seeds x noise modes x scenes, each a whole run judged against the truth.

By torques the loop runs in one process (safe_sysid.episode), in lock-step, and the demo's own judge judges it. By the
trajectory interface each run is one of `safe-sysid demo`, over topics. One line per run goes to a JSON-lines file as it
ends, so an interrupted campaign continues where it stopped; runs of other options in the same file are kept apart, and
have tables of their own. `--table` prints the summary of such a file.

    python benchmarks/campaign.py --out campaign.jsonl --workers 2
    python benchmarks/campaign.py --out campaign.jsonl --interface trajectory --arm uniform
    python benchmarks/campaign.py --out campaign.jsonl --engine dart --arm uniform
    python benchmarks/campaign.py --out campaign.jsonl --table

The second: an arm as it is sold, whose tube the demo measures first, at --driver-rate. The third: Gazebo's engine; the
robot's file has the trajectory interface, with a tube of its own (measured anew with --interface trajectory).
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import subprocess
import sys
import tempfile
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
#: Of a case, beside what every line has: lines of before there was a choice do not name it.
DEFAULTS = {"identifier_velocity_error": 0.0, "interface": "torque", "driver_rate": None, "engine": "mujoco"}
#: Largest share of a limit or of a bound that was used, as the judge's record calls it.
SHARES = ("position", "velocity", "torque", "tracking_position", "tracking_velocity")


def run_demo(case: dict[str, Any]) -> dict[str, Any]:
    """One run over topics; returns a JSON-able record."""
    began = time.perf_counter()
    arm = "random" if case["arm"] == "uniform" else case["arm"]
    command = [sys.executable, "-m", "safe_sysid", "demo", "--quiet", "--arm", arm]
    for name in ("robot", "payload", "seed", "noise", "scene", "engine"):
        command += [f"--{name}", str(case[name])]
    if case["driver_rate"] is not None:
        command += ["--interface", "trajectory", "--driver-rate", str(case["driver_rate"])]
    with tempfile.TemporaryDirectory() as directory:
        ended = subprocess.run([*command, "--out", directory], capture_output=True, text=True, check=False)
        file = Path(directory) / "summary.json"
        if not file.exists():
            raise RuntimeError(f"status {ended.returncode}: {' '.join(ended.stderr.splitlines()[-1:])}")
        summary = json.loads(file.read_text())
    if not all(summary["safety"]["evidence"][name] for name in ("ticks", "updates")):
        raise RuntimeError(summary["exit"]["reason"])
    planner = [warning for warning in summary["warnings"] if warning.startswith("planner: ")]
    rows, plans = summary["parameters"], summary["plans"]
    return case | {
        "violations": summary["violations"],
        "gaps": [summary["exit"]["reason"]] if summary["exit"]["status"] else [],
        "findings": summary["safety"]["findings"],
        "safety": summary["safety"],
        "refusals": [warning for warning in summary["warnings"] if warning not in planner],
        "warnings": planner,
        "planned": sum(plan["end_s"] is not None for plan in plans),
        "widths": [[row["upper"] - row["lower"] for row in rows]],
        "nominal_error": [row["nominal"] - row["truth"] for row in rows],
        "identify_s": [summary["timing"]["identification"]["median_s"]],
        "plan_s": [plan["planning_s"] for plan in plans if plan["planning_s"] is not None],
        "seconds": time.perf_counter() - began,
    }


def run_one(case: dict[str, Any]) -> dict[str, Any]:
    """One run in this process; returns a JSON-able record."""
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
        model,
        payload,
        scene,
        case["seed"],
        noise=case["noise"],
        draw=case["arm"],
        actuator=case["actuator"],
        engine=case["engine"],
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
    by_torque = options.interface == "torque"
    return [
        {
            "robot": options.robot,
            "payload": payload,
            "seed": seed,
            "noise": noise,
            "scene": scene,
            "arm": options.arm or ("corner" if seed % 2 else "uniform"),
            "actuator": ("adversarial" if noise == "adversarial" else "random") if by_torque else None,
            "overrides": overrides,
            "identifier_velocity_error": options.identifier_velocity_error,
            "interface": options.interface,
            "driver_rate": options.driver_rate,
            "engine": options.engine,
        }
        for seed, scene, noise, payload in itertools.product(
            range(options.seeds), options.scenes, options.noises, options.payloads
        )
    ]


def key(record: dict[str, Any]) -> str:
    """What makes a case that case."""
    names = ("payload", "seed", "noise", "scene", "arm", "actuator")
    return json.dumps([*(record[name] for name in names), *setup(record)])


def setup(record: dict[str, Any]) -> tuple[Any, ...]:
    """What the runs of a table have in common."""
    return record["robot"], json.dumps(record["overrides"]), *(record.get(name, DEFAULTS[name]) for name in DEFAULTS)


def title(record: dict[str, Any]) -> str:
    """The same in words."""
    robot, overrides, velocity, interface, rate, engine = setup(record)
    words = [robot, f"{interface} interface", *([f"measured at {rate:g} Hz"] if rate else []), engine]
    words += [overrides] if overrides != "{}" else []
    words += [f"identifier's velocities {velocity:g} rad/s off"] if velocity else []
    return ", ".join(words)


def attempt(case: dict[str, Any]) -> dict[str, Any]:
    """A run that raises is a record too."""
    try:
        return run_one(case) if case["interface"] == "torque" else run_demo(case)
    except Exception as error:  # the campaign must tell of every case
        return {**case, "error": f"{type(error).__name__}: {error}"}


def table(records: list[dict[str, Any]], console: Console) -> bool:
    """Print the summary; True if every run is clean."""
    errors = [r for r in records if "error" in r]
    good = [r for r in records if "error" not in r]
    bad = [r for r in good if sum(r["violations"].values()) or r["gaps"] or r["refusals"]]
    console.print(f"{len(records)} runs: {len(errors)} failed, {len(bad)} with violations, gaps or refusals")
    for r in errors + bad:
        console.print(key(r), r.get("error") or (r["violations"], r["gaps"], r["refusals"]), soft_wrap=True)
    for r in good:
        for warning in r.get("warnings", ()):
            console.print(key(r), warning, soft_wrap=True)
    for alike in sorted({setup(r) for r in good}, key=str):
        for noise in sorted({r["noise"] for r in good if setup(r) == alike}):
            widths([r for r in good if (setup(r), r["noise"]) == (alike, noise)], console)
    return not errors and not bad


def widths(some: list[dict[str, Any]], console: Console) -> None:
    """Final widths and largest shares of runs that differ in payload, seed and scene alone."""
    from safe_sysid.core.layout import PAYLOAD_NAMES
    from safe_sysid.robot.loading import load_robot

    prior = load_robot(some[0]["robot"]).arm_prior
    width = prior.payload_upper - prior.payload_lower
    t = Table(
        title=f"{title(some[0])}, {some[0]['noise']} noise, {len(some)} runs: final width, median "
        "(and over all payloads, worst)"
    )
    for column in ("parameter", "prior", "8 lb median", "all median", "all worst"):
        t.add_column(column, justify="right")
    final = np.array([r["widths"][-1] for r in some])
    heavy = np.array([r["widths"][-1] for r in some if r["payload"] == "8lb"] or [[np.nan] * 10])
    for i, name in enumerate(PAYLOAD_NAMES):
        values = (width[i], np.median(heavy[:, i]), np.median(final[:, i]), final[:, i].max())
        t.add_row(name, *(f"{v:.4f}" for v in values))
    console.print(t)
    safety = [r["safety"] for r in some]
    shares = {kind: max((s[kind]["percent"] for s in safety if s[kind]), default=np.nan) for kind in SHARES}
    told = ", ".join(f"{kind.replace('_', ' ')} {share:.1f} %" for kind, share in shares.items())
    nearest = min((m for s in safety if (m := s["clearance"]["smallest_m"]) is not None), default=np.nan)
    energy = [f"; V at most {max(r['energy_share'] for r in some):.2%} of V_max"] if "energy_share" in some[0] else []
    console.print(f"largest shares of limits and tracking bounds: {told}{''.join(energy)}", soft_wrap=True)
    identify, plan = (np.concatenate([r[kind] for r in some]) for kind in ("identify_s", "plan_s"))
    console.print(f"{np.mean([r['planned'] for r in some]):.2f} plans a run; smallest clearance {nearest:.4f} m")
    console.print(f"medians: identification {np.median(identify):.2f} s, planning {np.median(plan):.2f} s")


def settle(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Robot, interface and rate where they were not said; what does not go together is an error."""
    from safe_sysid.robot.loading import load_robot

    options.robot = options.robot or ("kinova_gen3_gazebo" if options.engine == "dart" else "kinova_gen3")
    own = load_robot(options.robot).settings.controller.interface
    measured = options.interface == "trajectory"
    options.interface = options.interface or own
    options.scenes = options.scenes or (SCENES if options.interface == "torque" else SCENES[:1])
    if options.interface != own and not measured:
        parser.error(f"--interface torque: {options.robot} has the {own} interface")
    if measured:
        options.driver_rate = options.driver_rate or 500.0
    elif options.driver_rate is not None:
        parser.error("--driver-rate: only with --interface trajectory")
    if options.interface != "torque" and (options.overrides != "{}" or options.identifier_velocity_error):
        parser.error("--overrides, --identifier-velocity-error: by torques alone")


def main() -> int:
    """Run what is missing in the file, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("campaign.jsonl"))
    parser.add_argument("--robot", help="default: kinova_gen3; with --engine dart kinova_gen3_gazebo")
    parser.add_argument(
        "--interface",
        choices=("torque", "trajectory"),
        help="trajectory: with a tube that the demo measures first (default: what the robot file has)",
    )
    parser.add_argument("--driver-rate", type=float, help="Hz, with --interface trajectory (default: 500)")
    parser.add_argument("--engine", choices=("mujoco", "dart"), default="mujoco")
    parser.add_argument("--payloads", nargs="+", default=PAYLOADS)
    parser.add_argument("--scenes", nargs="+", help="default: both by torques, else open: measured tubes are wide")
    parser.add_argument("--noises", nargs="+", default=NOISES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--arm",
        choices=("uniform", "corner", "nominal"),
        help="draw of the true arm; default: uniform for even seeds, corner for odd",
    )
    parser.add_argument("--overrides", default="{}", help="JSON of settings, e.g. '{\"measurement.torque_abs\": 0.2}'")
    parser.add_argument(
        "--identifier-velocity-error",
        type=float,
        default=0.0,
        help="rad/s, of the identifier's velocities only; the controller's stay as configured",
    )
    parser.add_argument("--workers", type=int, default=1, help="a run over topics has four processes of its own")
    parser.add_argument("--table", action="store_true", help="only print the table of an existing file")
    options = parser.parse_args()
    console = Console()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if not options.table:
        settle(options, parser)
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
