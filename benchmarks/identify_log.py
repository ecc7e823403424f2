"""Time and memory of `safe-sysid identify` on a long log: 10 minutes at 1 kHz, 7 joints (docs/identify.md).

The log is made fast: a periodic motion whose torque is integrated over each step (Simpson's rule on the torque
regressor, fourth order), repeated, with fresh noise inside the declared bounds in every period.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot import load_robot
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import dumbbell

PERIOD = 20.0  # s


def make_log(minutes, rate, seed):
    """Stamps, q, qd, effort of a periodic motion, noise included; and theta_e."""
    model = load_robot("kinova_gen3")
    rng = np.random.default_rng(seed)
    theta = draw_truth(model, dumbbell(8), rng, "uniform")
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
    return model, data, theta[model.arm_prior.layout.payload]


def main():
    """Make a log, run the command on it, print a table and the memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="sdp")
    parser.add_argument("--format", choices=("npz", "csv", "mcap"), default="npz")
    parser.add_argument("--keep", type=Path, help="directory for the log and the output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        model, data, truth = make_log(options.minutes, options.rate, options.seed)
        path = write(folder, options.format, model.joint_names, data)
        print(f"made {path.name}: {len(data)} samples in {time.perf_counter() - begin:.1f} s")
        out = folder / "out"
        command = [sys.executable, "-m", "safe_sysid", "identify", str(path), "--out", str(out), "--quiet"]
        command += ["--method", options.method]
        begin = time.perf_counter()
        done = subprocess.run(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, check=False)
        wall = time.perf_counter() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak = used.ru_maxrss / 1024.0
        result = json.loads((out / "result.json").read_text())
        inside = all(p["lower"] <= x <= p["upper"] for p, x in zip(result["parameters"], truth, strict=True))
        seconds = {key: round(value, 1) for key, value in result["seconds"].items()}
        print(f"exit {done.returncode}, truth inside {inside}, {len(result['updates'])} updates")
        print(
            f"wall {wall:.1f} s {seconds}, CPU {used.ru_utime + used.ru_stime:.1f} s, peak memory {peak:.0f} MiB"
        )


def write(folder, kind, names, data):
    """The log as a file of some format."""
    if kind == "npz":
        write_log(folder / "log.npz", names, data)
        return folder / "log.npz"
    if kind == "csv":
        path = folder / "log.csv"
        header = [
            "time",
            *(f"{word}_{name}" for word in ("position", "velocity", "effort") for name in names),
        ]
        table = np.column_stack([data.stamps, data.q, data.qd, data.effort])
        np.savetxt(path, table, delimiter=",", header=",".join(header), comments="", fmt="%.17g")
        return path
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    kinds = [
        store.types[name]
        for name in ("sensor_msgs/msg/JointState", "std_msgs/msg/Header", "builtin_interfaces/msg/Time")
    ]
    state, header, stamp = kinds
    path = folder / "bag"
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/joint_states", "sensor_msgs/msg/JointState", typestore=store)
        for k in range(len(data)):
            ns = 1_700_000_000_000_000_000 + round(float(data.stamps[k]) * 1e9)
            head = header(stamp(ns // 10**9, ns % 10**9), "")
            message = state(head, list(names), data.q[k], data.qd[k], data.effort[k])
            writer.write(connection, ns, store.serialize_cdr(message, "sensor_msgs/msg/JointState"))
    return path


if __name__ == "__main__":
    main()
