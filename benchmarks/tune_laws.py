"""How the gains of the comparison laws were chosen: one rule for all, on a payload and motions that no experiment uses.

A 3.4 kg block, gripped 2 cm off its centre, is carried by an arm drawn inside its tolerances through six fast motions
(two quintic pieces of 1 s, random joints); commands act 0.5 ms late, velocities are measured with errors of 2 mrad/s.
The rule: **the most accurate candidate (rms error) whose torque chatters no more than the robust law's** in the same
runs (rms of the torque's second difference) and stays below 90 % of the drives' hard limits. Candidates within 10 % of
the most accurate are ties: the first of them in order of rising gains is taken, the gain that a law names first rising
slowest. A winner at the end of a range is named. Published gains are kept where a law has them.

    python benchmarks/tune_laws.py [--laws gravity_pid,...] [--all] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from safe_sysid.control.design import design_gains
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.law import ControlLaw, ModelInUse
from safe_sysid.control.laws import make_law
from safe_sysid.control.settings import LawsSettings
from safe_sysid.extensions import LAWS
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.noise import NoiseModel
from safe_sysid.simulation.payloads import Payload
from safe_sysid.simulation.plant import Plant
from safe_sysid.trajectories.quintic import QuinticTrajectory

MOTIONS, SEED = 6, 20
LATE, VELOCITY_ERROR = 5e-4, 2e-3  # s, rad/s
REST = 0.75  # s, after a motion; the last 0.1 s of it count as the end
TIE = 1.1  # times the least rms error
#: Candidates, in order of rising gains; damping is critical throughout (damping ratio 1).
GRIDS: dict[str, dict[str, list[float]]] = {
    "gravity_pid": {
        "bandwidth": [30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 100.0],
        "integral": [3.0, 10.0, 20.0, 30.0, 50.0, 80.0],
    },
    "computed_torque": {"bandwidth": [20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 100.0]},
    "passivity_adaptive": {
        "K_r": [5.0, 10.0, 20.0, 40.0, 60.0, 80.0],
        "decay": [20.0, 40.0, 60.0, 80.0, 100.0, 140.0],
        "rate": [30.0, 300.0, 3000.0, 30000.0],
    },
    "adaptive_robust": {
        "bandwidth": [20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0],
        "layer": [0.2, 0.1, 0.05, 0.02, 0.01],
        "rate": [3.0, 30.0, 300.0, 3000.0],
    },
    "armour": {},
    "impedance": {},
    "robust": {},
}


def tuning_payload() -> Payload:
    """Block of 3.4 kg, 8 x 10 x 12 cm, its centre 2 cm beside and 15 cm out of the flange."""
    mass, size, centre = 3.4, np.array([0.08, 0.10, 0.12]), np.array([0.012, -0.016, 0.15])
    spin = mass / 12.0 * (np.sum(size**2) - size**2)
    inertia = np.diag(spin) + mass * (centre @ centre * np.eye(3) - np.outer(centre, centre))
    i = inertia
    theta = [mass, *(mass * centre), i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]]
    return Payload("tuning", np.array(theta))


def motion(model: RobotModel, rng: np.random.Generator) -> QuinticTrajectory:
    """Rest to rest in 2 s around home, at most 1.0 rad per joint and 80 % of its velocity limit."""
    home = np.asarray(model.settings.home, float)
    start = home + rng.uniform(-0.3, 0.3, model.n)
    goal = start + rng.uniform(-1.0, 1.0, model.n) * np.minimum(1.0, 0.8 * model.limits.velocity)
    low, high = model.limits.position_lower, model.limits.position_upper
    goal = np.where(np.isfinite(low), np.clip(goal, low + 0.1, high - 0.1), goal)
    middle = np.stack([0.5 * (start + goal), 0.9375 * (goal - start), 0.0 * goal])
    rest = np.zeros((2, model.n))
    knots = np.stack([np.vstack([start, rest]), middle, np.vstack([goal, rest])])
    return QuinticTrajectory(np.array([0.0, 1.0, 2.0]), knots)


def track(
    model: RobotModel,
    law: ControlLaw,
    theta: np.ndarray,
    path: QuinticTrajectory,
    nominal: np.ndarray,
    seed: int,
) -> dict[str, float]:
    """Follow one motion; errors in rad, torque relative to 90 % of the hard limits."""
    noise = NoiseModel("uniform", velocity_error=VELOCITY_ERROR)
    start = path.state(0.0)[0]
    plant = Plant(model, theta, tuning_payload(), load_scene("open"), seed, noise, start)
    hard = 0.9 * 1.7 * model.limits.torque
    use = ModelInUse(nominal, model.arm_prior.mid, model.arm_prior.rad)
    law.reset(0.0, plant.measurement.q, plant.measurement.qd)
    errors, torques = [], []
    for _ in range(round((path.duration + REST) / plant.period)):
        m = plant.measurement
        reference = path.state(m.stamp)
        torque = law.step(m.stamp, m.q, m.qd, reference, use)
        errors.append(reference[0] - m.q)
        torques.append(torque.copy())
        if not np.all(np.abs(torque) < 10.0 * hard):
            break
        plant.step(np.clip(torque, -hard, hard), LATE)
    e, tau = np.array(errors), np.array(torques)
    complete = len(e) >= round((path.duration + REST) / plant.period)
    return {
        "rms": float(np.sqrt(np.mean(e**2))) if complete else np.inf,
        "largest": float(np.max(np.abs(e))),
        "end": float(np.max(np.abs(e[-100:]))) if complete else np.inf,
        "torque": float(np.max(np.abs(tau) / hard)),
        "chatter": float(np.sqrt(np.mean(np.diff(tau[20:], n=2, axis=0) ** 2))) if complete else np.inf,
    }


def judge(
    model: RobotModel,
    gains: ControllerGains,
    name: str,
    settings: dict[str, float],
    nominal: np.ndarray,
    most_chatter: float = np.inf,
) -> dict[str, Any]:
    """Worst figures of one candidate over the motions, rms over all; the first that chatters too much is the last."""
    section = type(getattr(LawsSettings(), name))(**settings) if name != "robust" else None
    laws = LawsSettings(**({name: section} if section else {}))
    law = make_law(name, model, gains, laws)
    truth = draw_truth(model, tuning_payload(), SEED)
    records = []
    for k in range(MOTIONS):
        path = motion(model, np.random.default_rng([SEED, k]))
        records.append(track(model, law, truth, path, nominal, k))
        if records[-1]["chatter"] > most_chatter:
            break
    out: dict[str, Any] = {key: max(r[key] for r in records) for key in records[0]}
    out["rms"] = float(np.sqrt(np.mean([r["rms"] ** 2 for r in records])))
    return {"law": name, "settings": settings, "motions": len(records), **out}


def choose(rows: list[dict[str, Any]], robust: dict[str, Any]) -> dict[str, Any] | None:
    """Mark the admitted candidates, return what the rule of the module's first lines takes."""
    for row in rows:
        row["good"] = bool(
            row["torque"] < 1.0 and row["chatter"] <= robust["chatter"] and np.isfinite(row["rms"])
        )
    good = [row for row in rows if row["good"]]
    least = min((row["rms"] for row in good), default=np.inf)
    return next((row for row in good if row["rms"] <= TIE * least), None)


def at_the_end(name: str, settings: dict[str, float]) -> list[str]:
    """Gains of a winner that no candidate exceeds, or none is below: the range may have been too narrow."""
    ranges = GRIDS[name]
    return [key for key, value in settings.items() if value in (ranges[key][0], ranges[key][-1])]


def main() -> None:
    """Sweep and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--laws", default=",".join(LAWS))
    parser.add_argument("--all", action="store_true", help="show all candidates, not only those chosen")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = load_robot(options.robot)
    gains = design_gains(model, lockstep=False)
    table = Table(title="rms over six motions, worst of the rest")
    for column in (
        "law",
        "gains",
        "rms mrad",
        "largest mrad",
        "end mrad",
        "torque / 90 % hard",
        "chatter N m",
        "",
    ):
        table.add_column(column)
    everything = []
    robust = judge(model, gains, "robust", {}, model.arm_prior.mid)
    for name in options.laws.split(","):
        grid = GRIDS[name]
        # PSO, table II: PID knows the arm with an empty hand; the others start from the middle of the prior.
        nominal = model.theta_nominal if name == "gravity_pid" else model.arm_prior.mid
        rows = [
            judge(
                model,
                gains,
                name,
                dict(zip(grid, values, strict=True)),
                nominal,
                robust["chatter"] if grid else np.inf,
            )
            for values in itertools.product(*grid.values())
        ]
        chosen = choose(rows, robust)
        for row in rows if options.all or chosen is None else [chosen]:
            text = ", ".join(f"{key} {value:g}" for key, value in row["settings"].items()) or "default"
            numbers = [f"{1e3 * row[key]:.3f}" for key in ("rms", "largest", "end")]
            mark = "" if row["good"] else "not admitted"
            if row is chosen and grid:
                ends = at_the_end(name, row["settings"])
                mark = "chosen" + (f", at the end of its range: {', '.join(ends)}" if ends else "")
            table.add_row(name, text, *numbers, f"{row['torque']:.2f}", f"{row['chatter']:.3f}", mark)
        everything += rows
    Console(width=140).print(table)
    if options.json:
        options.json.write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
