"""How near the estimate of a log is: beside FIGAROH and least squares with friction, on realistic logs.

Each simulated motion is recorded in several ways: by motor torques or behind the gears, at 100 Hz to 1 kHz, with raw or
low-passed velocities. Torque sensors have a gain that is off by up to 4 %, Gaussian noise of 0.15 N m, and joints
Coulomb friction as the true arm has it, which is drawn inside the prior. Columns: median error of the payload's mass
and of m c (largest component), per cent; share of truths within the intervals, within 1.96 standard errors; seconds.

    .venv/bin/python benchmarks/estimate.py --motions 34 --seed 1000 --figaroh --json estimate.json

With ``--sensor``: intervals alone, with errors taken from each log as ``identify --sensor`` takes them, beside the
widths with errors declared that cover the true ones.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from peers import arm_arrays, figaroh
from rich.console import Console
from rich.table import Table
from scipy.signal import butter, filtfilt, lfilter

from safe_sysid.apps.identify.sensors import SENSORS, log_settings, torque_settings
from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.baselines.least_squares import fit_irls, fit_ols
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.log import Log
from safe_sysid.logs.run import run_log, with_best_fit
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.hand import payload_in_hand
from safe_sysid.simulation.payloads import NO_PAYLOAD, Payload, theta_e_with_payload
from safe_sysid.trajectories.quintic import QuinticTrajectory

FloatArray = NDArray[np.float64]
GAIN, NOISE = 0.04, 0.15
METHODS = ("best fit", "centre", "least squares", "irls", "FIGAROH, arm as drawn", "FIGAROH, all links")
#: Sensor, rate in Hz, cut-off of the velocities' filter in Hz (None: raw).
WAYS = (
    ("motor", 1000, None),
    ("motor", 500, 40.0),
    ("motor", 100, None),
    ("motor", 250, 20.0),
    ("link", 1000, None),
    ("link", 500, 40.0),
)


@dataclass(frozen=True, eq=False)
class TrueLog:
    """What happened: (N,) stamps and (N, n) states; ``torque[k]`` was held over the step before ``stamps[k]``."""

    stamps: FloatArray
    q: FloatArray
    qd: FloatArray
    torque: FloatArray
    truth: FloatArray


def simulate(model: RobotModel, payload: Payload, seed: int, plans: int) -> TrueLog:
    """Random quintics in receding horizon, tracked by computed torque; RK4 at 1 kHz by Pinocchio, no code of ours."""
    rng, n, kin, h = np.random.default_rng([seed, 2]), model.n, model.kinematics, 1e-3
    truth = draw_truth(model, payload, np.random.default_rng([seed, 1]), "uniform")
    plant = pin.Model()
    plant.gravity.linear = np.array(kin.gravity)
    for j in range(n):
        placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
        plant.addJoint(j, pin.JointModelRevoluteUnaligned(np.array(kin.axis[j])), placement, f"j{j}")
        link = pin.Inertia.FromDynamicParameters(truth[model.layout.link(j)])
        plant.appendBodyToJoint(j + 1, link, pin.SE3.Identity())
    plant.armature = np.array(truth[model.layout.rotor_inertia])
    data, v_c = plant.createData(), max(model.friction_transition_velocity, 1e-9)
    coulomb, viscous, offset = (truth[getattr(model.layout, k)] for k in ("coulomb", "viscous", "offset"))

    def resist(v: FloatArray) -> FloatArray:
        return coulomb * np.clip(v / v_c, -1.0, 1.0) + viscous * v + offset

    start = np.array(model.settings.home) + rng.uniform(-0.3, 0.3, n)
    low, high = (np.clip(x, -50.0, 50.0) for x in (model.limits.position_lower, model.limits.position_upper))
    state, q, v = np.stack([start, 0 * start, 0 * start]), start.copy(), np.zeros(n)
    out = [(q, v, np.zeros(n))]
    for i in range(plans):
        goal = np.clip(start + rng.uniform(-0.9, 0.9, n), low + 0.1, high - 0.1)
        way = QuinticTrajectory.to_rest(state, goal, 3.0)
        for step in range(3000 if i == plans - 1 else 1500):
            ref = way.state(step * h)
            tau = pin.rnea(plant, data, q, v, ref[2] + 40.0 * (ref[1] - v) + 400.0 * (ref[0] - q)) + resist(v)
            k1 = pin.aba(plant, data, q, v, tau - resist(v))
            v2 = v + 0.5 * h * k1
            k2 = pin.aba(plant, data, q + 0.5 * h * v, v2, tau - resist(v2))
            v3 = v + 0.5 * h * k2
            k3 = pin.aba(plant, data, q + 0.5 * h * v2, v3, tau - resist(v3))
            v4 = v + h * k3
            k4 = pin.aba(plant, data, q + h * v3, v4, tau - resist(v4))
            q = q + h / 6.0 * (v + 2.0 * v2 + 2.0 * v3 + v4)
            v = v + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
            out.append((q, v, tau))
        state = way.state(1.5)[:3]
    q_all, v_all, torque = (np.array([row[k] for row in out]) for k in range(3))
    return TrueLog(h * np.arange(len(out)), q_all, v_all, torque, truth)


def record(
    log: TrueLog, model: RobotModel, way: tuple[str, int, float | None], seed: int, noise: float
) -> tuple[Log, dict]:
    """A log as people record it, and the errors that cover it."""
    sensor, rate, cut = way
    rng, n = np.random.default_rng([seed, rate]), model.n
    step = 1000 // rate
    torque = log.torque
    if sensor == "link":
        layout, v_c = model.layout, max(model.friction_transition_velocity, 1e-9)
        v = 0.5 * (log.qd[1:] + log.qd[:-1])
        own = log.truth[layout.rotor_inertia] * np.diff(log.qd, axis=0) / np.diff(log.stamps)[:, None]
        friction = log.truth[layout.coulomb] * np.clip(v / v_c, -1.0, 1.0) + log.truth[layout.viscous] * v
        torque = torque.copy()
        torque[1:] -= own + friction
    count = (len(torque) - 1) // step
    mean = torque[1 : 1 + count * step].reshape(count, step, n).mean(axis=1)
    effort = np.vstack([mean[:1], mean]) * (1.0 + GAIN * rng.uniform(-1.0, 1.0, n))
    effort += np.clip(rng.normal(0.0, noise, effort.shape), -4.0 * noise, 4.0 * noise)
    qd = log.qd
    if cut is not None:
        pole = np.exp(-2e-3 * np.pi * cut)
        qd = lfilter([1.0 - pole], [1.0, -pole], qd, axis=0)
    qd = qd + rng.normal(0.0, 2e-4, qd.shape).clip(-8e-4, 8e-4)
    pick = slice(0, count * step + 1, step)
    fastest = np.abs(np.diff(log.qd, axis=0) / 1e-3).max(axis=0)
    declared = {
        "measurement.torque_source": sensor,
        "measurement.rate_hz": float(rate),
        "measurement.torque_abs": 4.0 * noise * 1.1,
        "measurement.torque_rel": 1.1 * GAIN,
        "measurement.velocity_error": [float(x) for x in 1.1 * np.abs(qd - log.qd).max(axis=0)],
        "identification.acceleration_bound": [float(x) for x in 1.3 * fastest],
    }
    data = Measurements(log.stamps[pick], log.q[pick], qd[pick], effort)
    return Log(model.joint_names, data), declared


@dataclass(frozen=True, eq=False)
class Samples:
    """What least squares gets: (K, n) low-passed positions, velocities, accelerations and torques."""

    q: FloatArray
    qd: FloatArray
    qdd: FloatArray
    torque: FloatArray


def low_passed(model: RobotModel, log: Log) -> Samples:
    """At most 100 samples a second below 8 Hz, without the ends; accelerations by central differences."""
    m, rate = log.measurements, model.settings.measurement.rate_hz
    b, a = butter(4, min(8.0 / (0.5 * rate), 0.9))
    q, qd, torque = (filtfilt(b, a, x, axis=0) for x in (m.q, m.qd, m.effort))
    qdd = np.gradient(qd, m.stamps, axis=0)
    keep = slice(max(1, int(rate // 20)), -max(1, int(rate // 20)), max(1, int(rate // 100)))
    return Samples(q[keep], qd[keep], qdd[keep], torque[keep])


def textbook(model: RobotModel, samples: Samples, weights: bool) -> FloatArray:
    """theta_e (10,) by inverse dynamics: the arm as drawn, payload, friction and offsets fitted."""
    n, layout = model.n, model.layout
    w = dynamics_of(model.kinematics).torque_regressor(samples.q, samples.qd, samples.qdd, 0.02)
    w = w.reshape(-1, layout.size)
    free = [*range(*layout.payload.indices(layout.size))]
    link = model.settings.measurement.torque_source == "link"
    for block in (layout.offset,) if link else (layout.coulomb, layout.viscous, layout.offset):
        free += range(*block.indices(layout.size))
    nominal = np.array(model.theta_nominal)
    if link:
        for block in (layout.coulomb, layout.viscous, layout.rotor_inertia):
            nominal[block] = 0.0
    nominal[free] = 0.0
    target = samples.torque.ravel() - w @ nominal
    columns, used = w[:, free], []
    for k in range(len(free)):  # those that the motion tells apart
        trial = columns[:, [*used, k]]
        norm = np.linalg.norm(trial, axis=0)
        if norm[-1] > 1e-9 and np.linalg.cond(trial / norm) < 1e4:
            used.append(k)
    joint = np.tile(np.arange(n), len(target) // n)
    fit = fit_irls(columns[:, used], target, joint) if weights else fit_ols(columns[:, used], target)
    out = np.array(model.theta_nominal[layout.payload])
    for value, k in zip(fit.estimate, used, strict=True):
        if k < 10:
            out[k] = value
    return out


def for_figaroh(arm: RobotModel, samples: Samples) -> dict[str, Any]:
    """The same samples and the arm as drawn, as `peer_figaroh.py payload` reads them."""
    motor = arm.settings.measurement.torque_source != "link"
    return arm_arrays(arm) | vars(samples) | {"motor": motor}


def one(
    case: argparse.Namespace, model: RobotModel, true: TrueLog, payload: Payload, way: Any, seed: int
) -> tuple[dict[str, Any], Any, Any]:
    """What the methods here give on one log; the problem for FIGAROH, and what judges its estimate."""
    recorded, declared = record(true, model, way, seed, case.noise)
    arm = load_robot(case.robot, **declared)
    samples = low_passed(arm, recorded)
    truth = true.truth[model.layout.payload]
    zero = np.zeros(10)
    held = theta_e_with_payload(model, zero, payload) - theta_e_with_payload(model, zero, NO_PAYLOAD)
    main = 1 + int(np.argmax(np.abs(held[1:4])))

    def error(theta: FloatArray | None) -> list[float]:
        return [np.nan if theta is None else float(abs((theta[k] - truth[k]) / held[k])) for k in (0, main)]

    began = time.perf_counter()
    run = run_log(recorded, arm)
    if run.empty or not run.records:
        return {"way": way, "seed": seed, "status": run.message}, None, None
    proved = time.perf_counter() - began
    last = run.records[-1]
    fitted = with_best_fit(run, recorded, arm)
    fit = fitted.fit
    final = fitted.records[-1]
    inside = bool(np.all((last.lower <= truth) & (truth <= last.upper)))
    out: dict[str, Any] = {
        "way": way,
        "seed": seed,
        "status": last.status,
        "inside": inside,
        "width": float(last.upper[0] - last.lower[0]),
        "consistent": None if fit is None else fit.consistent,
        "in_bounds": bool(np.all((final.lower <= final.nominal) & (final.nominal <= final.upper))),
        "centre": error(last.nominal),
        "best fit": error(final.nominal),
        "seconds": [proved, time.perf_counter() - began - proved],
        "least squares": error(textbook(arm, samples, False)),
        "irls": error(textbook(arm, samples, True)),
    }
    if fit is not None:
        out["z"] = ((final.nominal - truth) / np.maximum(fit.standard_error, 1e-12)).tolist()
    return out, for_figaroh(arm, samples), error


def seen(case: argparse.Namespace, model: RobotModel, true: TrueLog, way: Any, seed: int) -> dict[str, Any]:
    """Intervals of one log whose errors nobody told, and of the same with errors that cover the true ones."""
    recorded, declared = record(true, model, way, seed, case.noise)
    kind = SENSORS["current" if way[0] == "motor" else "joint-torque"]
    said: dict[str, Any] = {"measurement.torque_source": kind.source, "measurement.torque_rel": kind.relative}
    said |= log_settings(recorded, load_robot(case.robot, **said))
    said |= torque_settings(recorded, load_robot(case.robot, **said))
    truth = true.truth[model.layout.payload]
    out: dict[str, Any] = {"way": way, "seed": seed, "torque_abs": said["measurement.torque_abs"]}
    for name, settings in (("sensor", said), ("declared", declared)):
        run = run_log(recorded, load_robot(case.robot, **settings))
        last = run.records[-1] if run.records and not run.empty else None
        out[name] = None if last is None else float(last.upper[0] - last.lower[0])
        out[f"{name} inside"] = last is not None and bool(np.all((last.lower <= truth) & (truth <= last.upper)))
    return out


def tell_seen(records: list[dict[str, Any]]) -> None:
    """One row for each kind of log."""
    table = Table(title=f"errors taken from {len(records)} logs")
    for name in ("sensor", "Hz", "filter, Hz", "logs", "all ten inside", "contradictions", "width / declared, median"):
        table.add_column(name)
    for way in WAYS:
        mine = [r for r in records if r["way"] == way]
        ratios = [r["sensor"] / r["declared"] for r in mine if r["sensor"] and r["declared"]]
        cells = (*way, len(mine), sum(r["sensor inside"] for r in mine), sum(r["sensor"] is None for r in mine))
        table.add_row(*map(str, cells), f"{np.median(ratios):.2f}" if ratios else "")
    Console().print(table)
    inside = sum(r["declared inside"] for r in records)
    print(f"with declared errors all ten intervals hold in {inside} of {len(records)}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="three_joint", help="name or file")
    parser.add_argument("--payload", default="4lb", help="as of `safe-sysid demo`, or auto")
    parser.add_argument("--motions", type=int, default=8)
    parser.add_argument("--plans", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the first motion")
    parser.add_argument("--noise", type=float, default=NOISE, help="N m, deviation of measured torques")
    parser.add_argument("--figaroh", action="store_true", help="also FIGAROH, in an environment of its own")
    parser.add_argument("--sensor", action="store_true", help="take the errors from each log; intervals alone")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model, records = load_robot(options.robot), []
    payload = payload_in_hand(model, options.payload)
    if options.sensor:
        for seed in range(options.seed, options.seed + options.motions):
            true = simulate(model, payload, seed, options.plans)
            records += [seen(options, model, true, way, seed) for way in WAYS]
            if options.json is not None:
                options.json.write_text(json.dumps(records), encoding="utf-8")
        tell_seen(records)
        return
    for seed in range(options.seed, options.seed + options.motions):
        true = simulate(model, payload, seed, options.plans)
        told = [one(options, model, true, payload, way, seed) for way in WAYS]
        records += [record for record, _, _ in told]
        judged = [case for case in told if case[2] is not None]
        answers = figaroh("payload", [problem for _, problem, _ in judged]) if options.figaroh and judged else []
        for (record, _, error), answer in zip(judged, answers, strict=False):
            record.update({name: error(found["theta"]) for name, found in answer.items()})
        if options.json is not None:
            options.json.write_text(json.dumps(records), encoding="utf-8")
    done = [r for r in records if "best fit" in r]
    table = Table(title=f"{options.robot}, {options.payload}: {len(done)} of {len(records)} logs")
    for name in ("method", "mass, median", "mass, 90 %", "m c, median", "m c, 90 %"):
        table.add_column(name)
    for name in (name for name in METHODS if name in done[0]):
        errors = np.array([r[name] for r in done])
        cells = [f"{100 * np.nanquantile(errors[:, k], p):.1f} %" for k in (0, 1) for p in (0.5, 0.9)]
        missing = int(np.isnan(errors[:, 0]).sum())
        table.add_row(name + (f" ({missing} without a solution)" if missing else ""), *cells)
    console = Console()
    console.print(table)
    z = np.abs([r["z"] for r in done if "z" in r])
    console.print(
        f"intervals hold: {sum(r['inside'] for r in done)} of {len(done)}; estimate inside, consistent: "
        f"{sum(r['in_bounds'] for r in done)}, {sum(bool(r['consistent']) for r in done)}"
    )
    console.print(f"within 1.96 standard errors: mass {np.mean(z[:, 0] < 1.96):.0%}, all ten {np.mean(z < 1.96):.0%}")
    console.print(
        f"seconds, median: bounds {np.median([r['seconds'][0] for r in done]):.2f}, "
        f"estimate {np.median([r['seconds'][1] for r in done]):.2f}"
    )


if __name__ == "__main__":
    main()
