"""Control laws side by side, in one run: time per tick, and ours against ARMOUR's in torque and tracking error.

Time: every law computes the torque of the same tick, one after the other, along a motion at 1 kHz, with the prior box
(all 98 parameters of a 7-joint arm uncertain). What is timed is a call of `step` from Python, nothing more:
by the wall clock, and by the thread's processor time, which other programs on the machine hardly change.
Torque: what the box may add to or take from the nominal torque of each joint, along the same motion. Ours commands the
torque of a parameter in the box plus damping, row by row; ARMOUR's robust input may put its whole norm on one joint.
Tracking: MuJoCo plant, parameters at corners of the box, adversarial actuator, 0.2 ms delay.

    python benchmarks/laws.py [--ticks 20000] [--cases 6] [--json FILE]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from safe_sysid.control.design import design_gains
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.law import ControlLaw, ModelInUse
from safe_sysid.control.laws import make_law
from safe_sysid.control.laws.armour import ArmourLaw
from safe_sysid.control.laws.interval_newton_euler import interval_newton_euler
from safe_sysid.control.settings import ArmourSettings
from safe_sysid.dynamics import dynamics_of
from safe_sysid.extensions import LAWS
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.simulation.plant import Plant
from safe_sysid.trajectories.quintic import QuinticTrajectory

console = Console(width=140)


def in_use(model: RobotModel) -> ModelInUse:
    """The prior, its middle as nominal."""
    box = model.arm_prior
    return ModelInUse(box.mid, box.mid, box.rad)


def motion(model: RobotModel, gains: ControllerGains, rng: np.random.Generator) -> QuinticTrajectory:
    """Rest to rest, as fast as the theorem's hypotheses allow."""
    a, home = gains.assumptions, np.asarray(model.settings.home, float)
    way = rng.choice([-1.0, 1.0], model.n) * rng.uniform(0.3, 0.8, model.n)
    # Peaks of a rest-to-rest quintic of length 1 in time 1: 1.875, 5.774, 60.
    duration = float(
        max(
            np.max(1.875 * np.abs(way) / (a.velocity - gains.de_bound)),
            np.max(np.sqrt(5.774 * np.abs(way) / a.acceleration)),
            np.max(np.cbrt(60.0 * np.abs(way) / a.jerk)),
        )
    )
    return QuinticTrajectory.to_rest(np.stack([home, 0 * home, 0 * home]), home + way, 1.01 * duration)


def armour_as_ours(model: RobotModel, gains: ControllerGains) -> ArmourLaw:
    """ARMOUR's law asked for our own tracking bound: the same K_r and V_max."""
    return ArmourLaw(model, ArmourSettings(K_r=tuple(gains.K_r), V_max=gains.V_max))


def time_ticks(model: RobotModel, gains: ControllerGains, ticks: int) -> list[dict[str, Any]]:
    """Microseconds per step of every law."""
    laws = {name: make_law(name, model, gains) for name in LAWS}
    rng, use = np.random.default_rng(0), in_use(model)
    path = motion(model, gains, rng)
    states = [path.state(1e-3 * (k % int(1e3 * path.duration))) for k in range(ticks)]
    noise = 1e-3 * rng.normal(size=(ticks, 2, model.n))
    spent = {name: np.empty((2, ticks)) for name in laws}
    for law in laws.values():
        law.reset(0.0, states[0][0], states[0][1])
        law.step(0.0, states[0][0], states[0][1], states[0], use)
    gc.collect()
    gc.disable()
    for k in range(ticks):
        q, qd = states[k][0] + noise[k, 0], states[k][1] + noise[k, 1]
        for name, law in laws.items():
            began, busy = time.perf_counter_ns(), time.thread_time_ns()
            law.step(1e-3 * k, q, qd, states[k], use)
            spent[name][1, k] = time.thread_time_ns() - busy
            spent[name][0, k] = time.perf_counter_ns() - began
    gc.enable()
    return [
        {
            "law": name,
            "median_us": 1e-3 * float(np.median(t[0])),
            "p99_us": 1e-3 * float(np.quantile(t[0], 0.99)),
            "cpu_median_us": 1e-3 * float(np.median(t[1])),
            "cpu_p99_us": 1e-3 * float(np.quantile(t[1], 0.99)),
            "cpu_p999_us": 1e-3 * float(np.quantile(t[1], 0.999)),
        }
        for name, t in spent.items()
    ]


def torque_bounds(model: RobotModel, gains: ControllerGains, cases: int) -> dict[str, list[float]]:
    """Largest part of the torque, per joint, that is due to the uncertainty or to damping; N m."""
    box, n, rng = model.arm_prior, model.n, np.random.default_rng(1)
    pairs = np.stack([box.lower, box.upper], axis=-1).copy()
    bounds = np.empty((n, 2))
    exact, interval, norm, least, halves, least_halves = np.zeros((6, n))
    for _ in range(cases):
        path = motion(model, gains, rng)
        for t in np.linspace(0.0, path.duration, 200):
            q, qd, qdd = path.state(float(t))[:3]
            transition = model.friction_transition_velocity
            w_s = dynamics_of(model.kinematics).slotine_li_regressor(q, qd, qd, qdd, transition)
            spread = np.abs(w_s) @ box.rad
            exact, least = np.maximum(exact, spread), np.maximum(least, np.linalg.norm(spread))
            interval_newton_euler(
                model.kinematics.packed, q, qd, qd, qdd, qd, transition, True, pairs, bounds
            )
            w = np.maximum(bounds[:, 1] - w_s @ box.mid, w_s @ box.mid - bounds[:, 0])
            interval, norm = np.maximum(interval, w), np.maximum(norm, np.linalg.norm(w))
            halves = np.maximum(halves, 0.5 * (np.linalg.norm(w) + w))
            least_halves = np.maximum(least_halves, 0.5 * (np.linalg.norm(spread) + spread))
    damping = gains.K_d * gains.r_bound
    return {
        "ours: box": exact.tolist(),
        "ours: damping K_d r_bound": damping.tolist(),
        "ours: together": (exact + damping).tolist(),
        "ARMOUR: interval RNEA alone": interval.tolist(),
        "ARMOUR: robust input up to |w|": norm.tolist(),
        "ARMOUR: without `norm`, (|w| + w_j) / 2": halves.tolist(),
        "with `norm`, were w the exact range": least.tolist(),
        "without, were w the exact range": least_halves.tolist(),
        "ours, share of torque limit %": (100 * (exact + damping) / model.limits.torque).tolist(),
        "ARMOUR, share of torque limit %": (100 * norm / model.limits.torque).tolist(),
    }


def track(
    model: RobotModel, gains: ControllerGains, law: ControlLaw, case: int, K_r: np.ndarray
) -> dict[str, float]:
    """Closed loop of one case; errors relative to nothing, rad; torque relative to the limit; V in J."""
    rng = np.random.default_rng([2, case])
    path, payload = motion(model, gains, rng), payload_from_spec(["4lb", "8lb"][case % 2])
    theta = draw_truth(model, payload, rng, mode="corner")
    s = model.settings.actuator
    plant = Plant(
        model,
        theta,
        payload,
        load_scene("open"),
        case,
        q0=path.state(0.0)[0],
        actuator_mode="adversarial",
        actuator_abs=per_joint(s.torque_abs, model.n),
        actuator_rel=per_joint(s.torque_rel, model.n),
    )
    use, kin, m = in_use(model), model.kinematics, plant.measurement
    law.reset(m.stamp, m.q, m.qd)
    errors, torques, energy = [], [], 0.0
    while m.stamp < path.duration + 0.3:
        reference = path.state(m.stamp)
        torque = law.step(m.stamp, m.q, m.qd, reference, use)
        e, r = reference[0] - m.q, reference[1] - m.qd + K_r * (reference[0] - m.q)
        errors.append(e)
        torques.append(torque.copy())
        energy = max(energy, 0.5 * float(np.ravel(dynamics_of(kin).momentum_regressor(m.q, r) @ theta) @ r))
        m = plant.step(torque, 2e-4)
    e, tau = np.abs(np.array(errors)), np.array(torques)
    return {
        "largest_mrad": 1e3 * float(e.max()),
        "rms_mrad": 1e3 * float(np.sqrt(np.mean(e**2))),
        "torque_share": float(np.max(np.abs(tau) / model.limits.torque)),
        "torque_change": float(np.abs(np.diff(tau, axis=0)).max()),
        "energy": energy,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--ticks", type=int, default=20000)
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = load_robot(options.robot)
    gains = design_gains(model)
    load = os.getloadavg()[0]

    rows = time_ticks(model, gains, options.ticks)
    uncertain = int(np.count_nonzero(model.arm_prior.rad))
    table = Table(
        title=f"time per tick, us; {uncertain} uncertain parameters, {options.ticks} ticks, load {load:.1f}"
    )
    for column in ("law", "median", "p99", "processor: median", "p99", "p99.9"):
        table.add_column(column)
    for row in rows:
        table.add_row(row["law"], *(f"{value:.1f}" for key, value in row.items() if key != "law"))
    console.print(table)

    bounds = torque_bounds(model, gains, options.cases)
    table = Table(title="what uncertainty and damping may do to the torque, N m per joint, prior box")
    for column in ("", *model.joint_names):
        table.add_column(column)
    for what, values in bounds.items():
        table.add_row(what, *(f"{value:.1f}" for value in values))
    console.print(table)

    contenders: dict[str, tuple[ControlLaw, np.ndarray, float]] = {
        "ours": (make_law("robust", model, gains), gains.K_r, gains.V_max)
    }
    published, same = ArmourLaw(model), armour_as_ours(model, gains)
    contenders["ARMOUR, published gains"] = (published, published.K_r, published.V_max)
    contenders["ARMOUR, our K_r and V_max"] = (same, same.K_r, same.V_max)
    table = Table(title=f"closed loop, worst of {options.cases} cases")
    names = ("law", "proved |e| mrad", "largest |e|", "rms e", "V / V_max %", "torque / limit %", "step N m")
    for column in names:
        table.add_column(column)
    closed = {}
    for what, (law, K_r, v_max) in contenders.items():
        records = [track(model, gains, law, case, K_r) for case in range(options.cases)]
        worst = {key: max(record[key] for record in records) for key in records[0]}
        proved = 1e3 * float(np.max(np.sqrt(2.0 * v_max / gains.inertia_lower) / K_r))
        closed[what] = {"proved_mrad": proved, "V_max": v_max, **worst}
        table.add_row(
            what,
            f"{proved:.1f}",
            f"{worst['largest_mrad']:.2f}",
            f"{worst['rms_mrad']:.2f}",
            f"{100 * worst['energy'] / v_max:.1f}",
            f"{100 * worst['torque_share']:.0f}",
            f"{worst['torque_change']:.1f}",
        )
    console.print(table)
    if options.json:
        options.json.write_text(
            json.dumps({"load": load, "ticks": rows, "torque_bounds": bounds, "closed_loop": closed})
        )


if __name__ == "__main__":
    main()
