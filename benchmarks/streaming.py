"""A long run: time of every update of the ten intervals, rows kept and resident memory, for each method and noise.

The arm follows sines that never repeat; torque is the mean over each period (Simpson on the torque regressor), the
noise uniform or on its bounds with random sign. Times are wall clock and processor time of this process, one thread.

    OPENBLAS_NUM_THREADS=1 python benchmarks/streaming.py [--minutes 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier, UpdateStatus
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec

FloatArray = NDArray[np.float64]
NOISE = ("uniform", "bounds")
_SPEED = 0.55  # rad/s, of all sines together


def resident() -> float:
    """Resident memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def batches(
    model: RobotModel, theta: FloatArray, minutes: float, batch: float, noise: str, seed: int
) -> Iterator[Measurements]:
    """Measurements of consecutive batches of ``batch`` s."""
    rng, n, period = np.random.default_rng(seed), model.n, 1.0 / model.settings.measurement.rate_hz
    omega = rng.uniform(0.3, 2.5, (3, n)) * np.array([[0.4], [1.0], [1.8]])
    share = rng.dirichlet(np.ones(3), n).T
    amplitude, phase = _SPEED * share / omega, rng.uniform(0, 2 * np.pi, (3, n))
    home = np.array(model.settings.home)
    a = per_joint(model.settings.measurement.torque_abs, n)
    b = per_joint(model.settings.measurement.torque_rel, n)

    def state(t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        x = t[:, None, None] * omega + phase
        return (
            home + np.sum(amplitude * np.sin(x), axis=1),
            np.sum(amplitude * omega * np.cos(x), axis=1),
            np.sum(-amplitude * omega**2 * np.sin(x), axis=1),
        )

    def torque(t: FloatArray) -> FloatArray:
        return (
            dynamics_of(model.kinematics).torque_regressor(*state(t), model.friction_transition_velocity)
            @ theta
        )

    count = round(batch / period)
    for k in range(round(60.0 * minutes / batch)):
        stamps = period * (k * count + np.arange(0, count + 1))
        ends, middles = torque(stamps), torque(stamps[1:] - 0.5 * period)
        mean = (ends[:-1] + 4.0 * middles + ends[1:]) / 6.0
        q, qd, _ = state(stamps[1:])
        sign = rng.uniform(-1, 1, mean.shape) if noise == "uniform" else rng.choice([-1.0, 1.0], mean.shape)
        # A thousandth less than declared: Simpson's rule is not exact where Coulomb friction turns.
        yield Measurements(stamps[1:], q, qd, mean + 0.999 * sign * (a + b * np.abs(mean)))


def run(model: RobotModel, method: str, noise: str, options: argparse.Namespace) -> dict[str, Any]:
    """One long run; returns a JSON-able record."""
    theta = draw_truth(model, payload_from_spec("8lb"), np.random.default_rng(options.seed))
    identifier = Identifier(model, method=method)
    identifier.reset()
    record: dict[str, Any] = {"method": method, "noise": noise, "contained": True, "statuses": []}
    series: dict[str, list[float]] = {
        key: [] for key in ("rows_s", "rows_cpu_s", "programs_s", "cpu_s", "rss_mib", "kept", "proof_rows")
    }
    stream = batches(model, theta, options.minutes, options.batch, noise, options.seed)
    total = round(60.0 * options.minutes / options.batch)
    for data in track(stream, f"{method} {noise}", total, console=Console(stderr=True)):
        began, start = time.perf_counter(), time.process_time()
        identifier.add(data)
        added, cpu = time.perf_counter(), time.process_time()
        result = identifier.update()
        spent = time.process_time() - cpu
        series["rows_s"].append(added - began)
        series["rows_cpu_s"].append(cpu - start)
        series["programs_s"].append(result.timings.get("programs", 0.0) + result.timings.get("prune", 0.0))
        series["cpu_s"].append(spent - result.timings.get("nominal", 0.0))
        series["rss_mib"].append(resident())
        series["kept"].append(result.rows)
        series["proof_rows"].append(0 if result.proof is None else len(result.proof.rows))
        record["statuses"].append(result.status.name)
        # A batch that says nothing new leaves the box as it is (NO_DATA).
        fine = result.status in (UpdateStatus.OK, UpdateStatus.NO_DATA)
        record["contained"] &= result.box.contains(theta) and fine
    payload = model.layout.payload
    record["widths"] = (identifier.box.upper - identifier.box.lower)[payload].tolist()
    return record | {"series": series}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--batch", type=float, default=1.5, help="data between updates, s")
    parser.add_argument("--methods", nargs="+", default=["lp", "sdp"])
    parser.add_argument("--noise", nargs="+", choices=NOISE, default=list(NOISE))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = load_robot(options.robot)
    records = [run(model, method, noise, options) for method in options.methods for noise in options.noise]
    table = Table(
        title=f"{options.minutes:g} min at {model.settings.measurement.rate_hz:g} Hz, {model.n} joints"
    )
    for head in (
        "method", "noise", "truth", "median ms", "max of 10", "max later", "CPU median", "CPU max",
        "rows ms", "rows CPU", "kept", "RSS MiB"
    ):  # fmt: skip
        table.add_column(head)
    for record in records:
        s = {key: np.array(value) for key, value in record["series"].items()}
        later = s["programs_s"][10:] if len(s["programs_s"]) > 10 else s["programs_s"]
        table.add_row(
            record["method"],
            record["noise"],
            "inside" if record["contained"] else "OUTSIDE",
            f"{1e3 * np.median(s['programs_s']):.0f}",
            f"{1e3 * s['programs_s'][:10].max():.0f}",
            f"{1e3 * later.max():.0f}",
            f"{1e3 * np.median(s['cpu_s']):.0f}",
            f"{1e3 * s['cpu_s'].max():.0f}",
            f"{1e3 * np.median(s['rows_s']):.0f}",
            f"{1e3 * np.median(s['rows_cpu_s']):.0f}",
            f"{s['kept'].max():.0f}",
            f"{s['rss_mib'][min(10, len(s['rss_mib']) - 1)]:.0f}, {s['rss_mib'][-1]:.0f}",
        )
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(records), encoding="utf-8")


if __name__ == "__main__":
    main()
