"""How wide published intervals are over those of a nearly exact optimum, with and without `--thorough`.

Nearly exact: one equation for every step, at the true states, of which nothing but the torque's own error is unknown
(accelerations known to a thousandth; a step on which a velocity may change sign keeps its Coulomb part), every program
solved to its end. No method that knows as much can do better; with position errors it knows what none can.

    .venv/bin/python benchmarks/tightness.py --seeds 5
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
from estimate import simulate
from rich.console import Console
from rich.table import Table

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.bounds.feasible_set import FeasibleSet
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import momentum_rows
from safe_sysid.logs.log import Log
from safe_sysid.logs.run import run_log
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel

#: Arm, payload, seconds, further settings.
PROBLEMS: tuple[tuple[str, str, float, dict[str, Any]], ...] = (
    ("three_joint", "5lb", 1.5, {}),
    ("kinova_gen3", "8lb", 1.5, {}),
    ("kinova_gen3", "8lb", 1.5, {"measurement.position_error": 2e-5}),
)


def optimum(model: RobotModel, errors: MeasurementErrors, data: Measurements, fastest: FloatArray) -> FloatArray:
    """(10,) half widths of the nearly exact optimum."""
    zero = np.zeros(model.n)
    exact = replace(errors, position=zero, velocity=zero, acceleration=np.minimum(errors.acceleration, 1.001 * fastest))
    steps = np.arange(len(data) - 1)
    prior = sensor_prior(model.arm_prior, errors)
    windows = np.stack([steps, steps + 1], axis=1)
    rows = momentum_rows(model.kinematics, prior, exact, data, windows, unknowns=model.unknowns)
    rows = replace(rows, slack=rows.parts[:, 0] + rows.parts[:, 3] + 1e-9)
    known = PayloadConstraints.from_model(model)
    found = FeasibleSet(prior, payload_constraints=known, method="sdp", unknowns=model.unknowns, thorough=True)
    found.add(rows)
    bounds = found.bound(np.arange(model.n * 10 - 10, model.n * 10), prior)
    if bounds.empty:
        raise SystemExit("the nearly exact set is empty: its equations are not true")
    return 0.5 * (bounds.upper - bounds.lower)


def ratios(arm: str, payload: str, seconds: float, changes: dict[str, Any], noise: str, seed: int) -> list[Any]:
    """Half widths over the optimum (10,), as published and thorough, and the seconds of both."""
    model = load_robot(arm, **changes)
    errors, rng = MeasurementErrors.from_model(model), np.random.default_rng([seed, 9])
    true = simulate(load_robot(arm), payload, seed, max(1, int(np.ceil((seconds - 1.5) / 1.5))))
    part = slice(0, int(1000 * seconds) + 1)
    q, qd, torque = true.q[part], true.qd[part], np.vstack([true.torque[1:2], true.torque[1:]])[part]
    sign = rng.uniform(-1.0, 1.0, q.shape) if noise == "uniform" else rng.choice([-1.0, 1.0], q.shape)
    effort = torque + 0.995 * sign * (errors.torque_abs + errors.torque_rel * np.abs(torque))
    off = 0.995 * rng.uniform(-1.0, 1.0, q.shape) * errors.position
    fastest = np.abs(np.diff(qd, axis=0) / 1e-3).max(axis=0)
    best = optimum(model, errors, Measurements(true.stamps[part], q, qd, effort), fastest)
    log = Log(model.joint_names, Measurements(true.stamps[part], q + off, qd, effort))
    out: list[Any] = []
    for thorough in (False, True):
        begin = time.perf_counter()
        box = run_log(log, model, thorough=thorough).box
        spent = time.perf_counter() - begin
        truth = true.truth[model.layout.payload]
        if not np.all((box.payload_lower <= truth) & (truth <= box.payload_upper)):
            raise SystemExit(f"{arm}, seed {seed}: the truth is outside")
        out += [0.5 * (box.payload_upper - box.payload_lower) / best, spent]
    return out


def main() -> None:
    """Print a table: median and largest ratio over logs and parameters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    table = Table("problem", "noise", "published: median", "most", "s", "thorough: median", "most", "s")
    for arm, payload, seconds, changes in PROBLEMS:
        for noise in ("uniform", "on its bounds"):
            found = [ratios(arm, payload, seconds, changes, noise, seed) for seed in range(options.seeds)]
            cells = []
            for ratio, spent in ((0, 1), (2, 3)):
                all_of = np.array([x[ratio] for x in found])
                cells += [
                    f"{np.median(all_of):.2f}",
                    f"{all_of.max():.2f}",
                    f"{np.median([x[spent] for x in found]):.1f}",
                ]
            name = ", ".join([arm, f"{seconds:g} s", *(f"{k.split('.')[1]} {v:g}" for k, v in changes.items())])
            table.add_row(name, noise, *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
