"""`identify-arm` beside FIGAROH and plain least squares on the same logs, and on ten minutes at 1 kHz.

Arms are off their drawing by 5 to 30 %; torques are Pinocchio's, with friction, rotors, offsets and noise of which the
drawing knows nothing. Every method gets the same filtered samples and is judged on the same held-out ones. With
`--figaroh` the first run makes an environment for FIGAROH 1.0.2 in the user's cache folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pinocchio as pin
from peers import arm_arrays, figaroh

from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain import Mechanism
from safe_sysid.identification.arm.identify import ArmOptions, identify_samples
from safe_sysid.identification.arm.logs.preparation import prepare
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot import load_robot
from safe_sysid.robot.parameters import com_and_inertia, is_consistent
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import NO_PAYLOAD

PERIOD = 20.0  # s, of the long log
ARMS = ("kinova_gen3", "three_joint", "franka_panda", "ur5e")


def true_arm(model, rng):
    """Pinocchio's model of an arm that is not as drawn, and all its parameters."""
    layout = model.layout
    theta = np.array(model.theta_nominal)
    for j in range(model.n):
        theta[layout.link(j)] *= 1.0 + rng.choice([-1, 1]) * rng.uniform(0.05, 0.3)
    theta[layout.coulomb] = rng.uniform(0.5, 2.0, model.n)
    theta[layout.viscous] = theta[layout.viscous] * rng.uniform(0.7, 1.3, model.n) + rng.uniform(0.0, 1.0)
    theta[layout.rotor_inertia] *= rng.uniform(0.7, 1.3, model.n)
    theta[layout.offset] = rng.uniform(-0.5, 0.5, model.n)
    kin, arm = model.kinematics, pin.Model()
    for j in range(model.n):
        kind = pin.JointModelPrismaticUnaligned if kin.sliding[j] else pin.JointModelRevoluteUnaligned
        place = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
        index = arm.addJoint(int(kin.parent[j]) + 1, kind(np.array(kin.axis[j])), place, str(j))
        mass, com, inertia = com_and_inertia(theta[layout.link(j)])
        arm.appendBodyToJoint(index, pin.Inertia(mass, com, inertia), pin.SE3.Identity())
    arm.gravity = pin.Motion(np.concatenate([kin.gravity, np.zeros(3)]))
    return arm, theta


def motion(model, rng, seconds, rate):
    """q, qd, qdd and stamps of a Fourier motion within half the limits."""
    n, t = model.n, np.arange(0.0, seconds, 1.0 / rate)[:, None, None]
    speed, phase = rng.uniform(0.4, 3.0, (n, 5)), rng.uniform(0.0, 6.0, (n, 5))
    size = rng.uniform(0.1, 0.5, (n, 5)) / speed * np.where(model.kinematics.sliding, 0.2, 1.0)[:, None]
    x = speed * t + phase
    return (
        t[:, 0, 0],
        (size * np.sin(x)).sum(axis=-1),
        (size * speed * np.cos(x)).sum(axis=-1),
        -(size * speed**2 * np.sin(x)).sum(axis=-1),
    )


def record(model, rng, seconds, rate):
    """A log (Measurements) of an arm that is not as drawn."""
    arm, theta = true_arm(model, rng)
    fc, fv, ia, offset = model.layout.by_term(theta)
    stamps, q, qd, qdd = motion(model, rng, seconds, rate)
    data = arm.createData()
    rigid = np.array([pin.rnea(arm, data, *x) for x in zip(q, qd, qdd, strict=True)])
    torque = rigid + fc * np.sign(qd) + fv * qd + ia * qdd + offset
    noise = 0.01 * np.sqrt(np.mean(torque**2, axis=0)) + 0.05
    noisy = [x + s * rng.normal(size=x.shape) for x, s in ((q, 2e-5), (qd, 1e-3), (torque, noise))]
    return Measurements(stamps, *noisy)


def rms(residual, n):
    """Root mean square by joint."""
    return np.sqrt(np.mean(residual.reshape(-1, n) ** 2, axis=0))


def least_squares(mechanism, samples, held_out):
    """Plain least squares with friction, in base parameters (those of `numpy.linalg.lstsq`'s rank)."""
    rows = [mechanism.regressor(x.motion(mechanism)).reshape(-1, mechanism.layout.size) for x in (samples, held_out)]
    theta = np.linalg.lstsq(rows[0], samples.torque.ravel(), rcond=1e-10)[0]
    return theta, rms(held_out.torque.ravel() - rows[1] @ theta, samples.q.shape[1])


def held_out_by_figaroh(model, samples, held_out):
    """Held-out RMS of FIGAROH's base parameters, plain and weighted by joint, and its time."""
    arrays = arm_arrays(model) | {k: getattr(samples, k) for k in ("q", "qd", "qdd", "torque")}
    arrays |= {f"{k}_o": getattr(held_out, k) for k in ("q", "qd", "qdd", "torque")}
    return figaroh("arm", [arrays])[0]


def one(name, seed, with_figaroh):
    """All methods on one log: worst over joints of held-out RMS over the least of them, and seconds."""
    model = load_robot(name)
    mechanism = Mechanism.of_robot(model)
    log = record(model, np.random.default_rng([seed, ARMS.index(name)]), 60.0, 500.0)
    samples, held_out = prepare([log], mechanism.actuated_names).split(0.3)
    begin = time.perf_counter()
    found = identify_samples(mechanism, samples, held_out, ArmOptions())
    seconds = {"ours": time.perf_counter() - begin}
    begin = time.perf_counter()
    theta, plain = least_squares(mechanism, samples, held_out)
    seconds["least squares"] = time.perf_counter() - begin
    by_method = {"ours": found.rms, "least squares": plain}
    if with_figaroh:
        peer = held_out_by_figaroh(model, samples, held_out)
        by_method |= {k: np.array(v) for k, v in peer["rms"].items()}
        seconds["FIGAROH"] = peer["seconds"]
    best = np.min([v for k, v in by_method.items() if k != "ours"], axis=0)
    real = {
        k: all(is_consistent(x[model.layout.link(j)]) for j in range(model.n))
        for k, x in (("ours", found.theta), ("least squares", theta))
    }
    return {
        "robot": name, "seed": seed, "rms": {k: v.tolist() for k, v in by_method.items()},
        "ratio": (found.rms / best).tolist(), "seconds": seconds, "consistent": real,
    }  # fmt: skip


def periodic_log(minutes, rate, seed):
    """A log of a periodic motion with errors inside what is declared; each torque is its mean over a step (Simpson)."""
    model = load_robot("kinova_gen3")
    rng = np.random.default_rng(seed)
    theta = draw_truth(model, NO_PAYLOAD, rng, "uniform")
    n, count = model.n, round(PERIOD * rate)
    order = rng.integers(2, 12, (3, n))  # whole cycles per period: the end joins the start
    amplitude = rng.uniform(0.02, 0.1, (3, n))
    phase = rng.uniform(0.0, 2.0 * np.pi, (3, n))
    home = np.array(model.settings.home)

    def state(t):
        omega = 2.0 * np.pi * order / PERIOD
        x = omega * t[:, None, None] + phase
        q = home + np.sum(amplitude * np.sin(x), axis=1)
        qd = np.sum(amplitude * omega * np.cos(x), axis=1)
        qdd = np.sum(-amplitude * omega**2 * np.sin(x), axis=1)
        return q, qd, qdd

    v_c = model.friction_transition_velocity

    def torque(t):
        out = np.empty((len(t), n))
        for part in np.array_split(np.arange(len(t)), max(1, len(t) // 4000)):
            out[part] = dynamics_of(model.kinematics).torque_regressor(*state(t[part]), v_c) @ theta
        return out

    t = np.arange(count) / rate
    mean = (torque(t - 1.0 / rate) + 4.0 * torque(t - 0.5 / rate) + torque(t)) / 6.0
    q, qd, _ = state(t)
    repeats = max(1, round(60.0 * minutes / PERIOD))
    effort = np.tile(mean, (repeats, 1))
    m = model.settings.measurement
    effort += rng.uniform(-1.0, 1.0, effort.shape) * (m.torque_abs + m.torque_rel * np.abs(effort)) * 0.999
    stamps = np.arange(len(effort)) / rate
    data = Measurements(stamps, np.tile(q, (repeats, 1)), np.tile(qd, (repeats, 1)), effort)
    return model, data


def long_log(minutes):
    """Seconds, processor seconds and memory of the command on a long log, intervals included and not."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "long.npz")
        model, log = periodic_log(minutes, 1000.0, 5)  # errors inside what is declared
        write_log(file, model.joint_names, log, 0)
        told = {}
        for words in ((), ("--thorough",), ("--estimates-only",)):
            begin = time.perf_counter()
            command = [sys.executable, "-m", "safe_sysid", "identify-arm", str(file), "--out", f"{folder}/o", *words]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            told[" ".join(words) or "with intervals"] = {
                "status": os.waitstatus_to_exitcode(status),
                "seconds": time.perf_counter() - begin,
                "processor_s": usage.ru_utime + usage.ru_stime,
                "memory_gb": usage.ru_maxrss / 1e6,
                "intervals": json.loads(Path(folder, "o", "result.json").read_text())["intervals"],
            }
    return told


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=5, help="of each arm; 0: none")
    parser.add_argument("--figaroh", action="store_true", help="also FIGAROH, in an environment of its own")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the long log; 0: none")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [one(name, seed, options.figaroh) for name in ARMS for seed in range(options.logs)]
    for name in ARMS if rows else ():
        mine = [row for row in rows if row["robot"] == name]
        ratio = np.array([row["ratio"] for row in mine])
        spent = {k: np.median([row["seconds"][k] for row in mine]) for k in mine[0]["seconds"]}
        print(
            f"{name}: held-out RMS over the best other, median {np.median(ratio):.4f}, worst {ratio.max():.4f}; "
            f"consistent {sum(r['consistent']['ours'] for r in mine)} of {len(mine)} (least squares "
            f"{sum(r['consistent']['least squares'] for r in mine)}); "
            + ", ".join(f"{k} {v:.2f} s" for k, v in spent.items())
        )
    told = {"rows": rows, "long": long_log(options.minutes) if options.minutes else None}
    print(json.dumps(told["long"], indent=1))
    if options.json:
        options.json.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
