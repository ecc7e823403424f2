"""Which point estimate to trust: error of the torque it predicts on motions it has not seen, parameter error, time.

For each payload, noise mode and log (7.5 s) every method gives one theta_e. Judged on another motion of the same arm:

- feed-forward: the torque of (nominal arm, estimated theta_e) against the true torque, what a controller would see;
- payload: the torque of the error of theta_e alone, as if the arm were known exactly.

Second table: minimisers of the log-Cholesky least squares [PSO, eq. 25], and the convex program beside them.

    python benchmarks/nominal.py --logs 4 --json nominal.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from payload_logs import NOISE, log_of, measured
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import minimize

from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.baselines.regression import (
    Regression,
    euler_regression,
    proved_regression,
    split,
)
from safe_sysid.identification.baselines.sensitivity import normal_quadratic
from safe_sysid.identification.bounds.knowledge import PayloadKnowledge
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.identification.estimates import (
    NominalEstimate,
    cost_and_derivatives,
    fit_log_cholesky,
    project_payload,
)
from safe_sysid.identification.estimates.newton import ball
from safe_sysid.identification.identifier import Identifier
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import is_consistent
from safe_sysid.simulation.payloads import DUMBBELLS

FloatArray = NDArray[np.float64]
STEP = 25  # every so many samples of the held-out motion are predicted
ESTIMATES: dict[str, tuple[str, bool]] = {
    "projected": ("projected", False),
    "projected, payload alone": ("projected", True),
    "log-Cholesky": ("log_cholesky", False),
    "log-Cholesky, payload alone": ("log_cholesky", True),
    "centre": ("centre", False),
    "centre, payload alone": ("centre", True),
    "centre of bounds and cone": ("bounds", False),
    "the same, payload alone": ("bounds", True),
}


def held_out(
    model: RobotModel, payload: str, seed: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Regressor's part (S n, 10), the nominal arm's torque, the true torque and the true theta_e, another motion."""
    log = log_of(model, payload, seed, motion=seed + 10**5)
    picked = slice(STEP, len(log.stamps) - STEP, STEP)
    # Acceleration from the true states of neighbouring samples; friction's sign where it is certain.
    acceleration = (log.qd[2:] - log.qd[:-2])[picked.start - 1 : picked.stop - 1 : STEP] / 2e-3
    q, qd = log.q[picked], log.qd[picked]
    regressor = dynamics_of(model.kinematics).torque_regressor(
        q, qd, acceleration, model.friction_transition_velocity
    )
    payload_part, arm_part = split(regressor.reshape(-1, model.layout.size), model.arm_prior)
    arm_truth, arm_nominal = (split(theta, model.arm_prior)[1] for theta in (log.truth, model.theta_nominal))
    truth = log.truth[model.arm_prior.layout.payload]
    return payload_part, arm_part @ arm_nominal, payload_part @ truth + arm_part @ arm_truth, truth


def estimates(
    model: RobotModel, payload: str, seed: int, noise: str
) -> dict[str, tuple[FloatArray, bool, float]]:
    """By method: theta_e, consistent or not, seconds for all rows and one estimate."""
    errors, prior = MeasurementErrors.from_model(model), model.arm_prior
    data = measured(model, log_of(model, payload, seed), noise, seed)
    rows = MomentumStream(model, errors, default_windows(model, errors)).push(data, prior)
    identifier = Identifier(model, errors)
    identifier.add(data)
    identifier.update()
    box = identifier.box
    out: dict[str, tuple[FloatArray, bool, float]] = {
        "centre of the bounds": (
            box.mid[box.layout.payload],
            bool(is_consistent(box.mid[box.layout.payload])),
            0.0,
        )
    }
    for name, (method, alone) in ESTIMATES.items():
        began = time.perf_counter()
        estimate = NominalEstimate(prior, PayloadKnowledge.from_model(model) if alone else None, method)
        for first in range(0, len(rows), 10_000):
            estimate.add(rows.take(slice(first, first + 10_000)))
        theta, consistent = estimate.estimate(box)
        out[name] = theta, consistent, time.perf_counter() - began
    arm = split(model.theta_nominal, prior)[1]
    began = time.perf_counter()
    problem = proved_regression(model, errors, data, 0.1)
    quadratic = normal_quadratic(problem, arm)
    lower, upper = box.payload_lower, box.payload_upper
    answer = fit_log_cholesky(quadratic)
    out["PSO: nominal arm, log-Cholesky"] = answer.theta, True, time.perf_counter() - began
    theta, consistent = project_payload(quadratic, lower, upper)
    out["nominal arm, projected"] = theta, consistent, time.perf_counter() - began
    theta = quadratic.minimiser()
    out["nominal arm, ordinary"] = theta, is_consistent(theta), time.perf_counter() - began
    return out


def minimisers(problem: Regression, arm: FloatArray) -> list[dict[str, Any]]:
    """Iterations, time and cost reached on one log-Cholesky problem, relative to the least residual of all theta."""
    quadratic = normal_quadratic(problem, arm)
    best = quadratic.minimiser()
    start = ball()

    def value(eta: FloatArray) -> float:
        return cost_and_derivatives(quadratic, eta, best=best)[0]

    def gradient(eta: FloatArray) -> FloatArray:
        return cost_and_derivatives(quadratic, eta, best=best)[1]

    def hessian(eta: FloatArray) -> FloatArray:
        return cost_and_derivatives(quadratic, eta, best=best)[2]

    def scipy(method: str, derivatives: int) -> Callable[[], tuple[int, float]]:
        extra: dict[str, Any] = {"jac": gradient} if derivatives else {}
        if derivatives > 1:
            extra["hess"] = hessian

        def solve() -> tuple[int, float]:
            with np.errstate(all="ignore"):
                answer = minimize(value, start, method=method, options={"maxiter": 500}, **extra)
            return int(answer.nit), float(answer.fun)

        return solve

    def newton(paper: bool, first: FloatArray | None = start) -> Callable[[], tuple[int, float]]:
        def solve() -> tuple[int, float]:
            answer = fit_log_cholesky(quadratic, first, iterations=500, paper=paper)
            return answer.iterations, answer.value

        return solve

    def convex() -> tuple[int, float]:
        theta, _ = project_payload(quadratic, np.full(10, -50.0), np.full(10, 50.0))
        return 0, 0.5 * float((theta - best) @ quadratic.hessian @ (theta - best))

    solvers: dict[str, Callable[[], tuple[int, float]]] = {
        "convex program (Clarabel)": convex,
        "Newton, trust region (ours)": newton(False),
        "the same, from raised least squares": newton(False, None),
        "Newton, factor of PSO's eq. 16": newton(True),
        "scipy trust-exact, gradient and Hessian": scipy("trust-exact", 2),
        "scipy Newton-CG, gradient and Hessian": scipy("Newton-CG", 2),
        "scipy BFGS, gradient": scipy("BFGS", 1),
        "scipy L-BFGS-B, gradient": scipy("L-BFGS-B", 1),
        "scipy BFGS, no derivatives": scipy("BFGS", 0),
    }
    out = []
    for name, solve in solvers.items():
        solve()
        began = time.perf_counter()
        iterations, reached = solve()
        out.append(
            {
                "solver": name,
                "iterations": iterations,
                "seconds": time.perf_counter() - began,
                "value": reached,
            }
        )
    floor = 0.5 * float(np.sum((problem.payload @ best - problem.response(arm)) ** 2))
    least = min(entry["value"] for entry in out)
    for entry in out:
        entry["excess"] = (entry["value"] - least) / floor
    return out


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--payloads", nargs="+", choices=DUMBBELLS, default=list(DUMBBELLS))
    parser.add_argument("--noise", nargs="+", choices=NOISE, default=list(NOISE))
    parser.add_argument("--logs", type=int, default=4, help="per payload and noise mode")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model, console = load_robot(options.robot), Console(stderr=True)
    errors = MeasurementErrors.from_model(model)
    arm = split(model.theta_nominal, model.arm_prior)[1]
    records: list[dict[str, Any]] = []
    solvers: list[dict[str, Any]] = []
    cases = list(itertools.product(options.payloads, options.noise, range(options.logs)))
    for i, (payload, noise, k) in enumerate(
        track(cases, "logs", console=console, disable=not console.is_terminal)
    ):
        seed = options.seed + 100 * int(payload[0]) + k
        columns, arm_torque, torque, truth = held_out(model, payload, seed)
        for name, (theta, consistent, seconds) in estimates(model, payload, seed, noise).items():
            forward = arm_torque + columns @ theta - torque
            records.append(
                {
                    "payload": payload,
                    "noise": noise,
                    "seed": seed,
                    "method": name,
                    "feed_forward_rms": float(np.sqrt(np.mean(forward**2))),
                    "payload_rms": float(np.sqrt(np.mean((columns @ (theta - truth)) ** 2))),
                    "parameter_error": np.abs(theta - truth).tolist(),
                    "consistent": consistent,
                    "seconds": seconds,
                }
            )
        if i % 4 == 0:
            data = measured(model, log_of(model, payload, seed), noise, seed)
            solvers += minimisers(euler_regression(model, errors, data, 0.1), arm)
    names = list(dict.fromkeys(r["method"] for r in records))
    summary: dict[str, Any] = {"logs": len(cases), "estimates": {}, "solvers": {}}
    table = Table(
        title=f"held-out torque error, RMS over joints and time, N m; medians over {len(cases)} logs"
    )
    columns_of = ["feed-forward", *(f"payload, {noise}" for noise in options.noise)]
    columns_of += ["worst payload", "mass, kg", "first moment, kg m", "inertia, kg m^2", "consistent", "s"]
    table.add_column("")
    for title in columns_of:
        table.add_column(title, justify="right")
    for name in names:
        mine = [r for r in records if r["method"] == name]
        error = np.median([r["parameter_error"] for r in mine], axis=0)
        entry = {
            "feed_forward_rms": float(np.median([r["feed_forward_rms"] for r in mine])),
            "payload_rms": {
                noise: float(np.median([r["payload_rms"] for r in mine if r["noise"] == noise]))
                for noise in options.noise
            },
            "worst_payload_rms": float(np.max([r["payload_rms"] for r in mine])),
            "parameter_error": error.tolist(),
            "consistent": float(np.mean([r["consistent"] for r in mine])),
            "seconds": float(np.median([r["seconds"] for r in mine])),
        }
        summary["estimates"][name] = entry
        table.add_row(
            name,
            f"{entry['feed_forward_rms']:.3f}",
            *(f"{entry['payload_rms'][noise]:.3f}" for noise in options.noise),
            f"{entry['worst_payload_rms']:.3f}",
            f"{error[0]:.3f}",
            f"{np.mean(error[1:4]):.4f}",
            f"{np.mean(error[4:]):.4f}",
            f"{100 * entry['consistent']:.0f} %",
            f"{entry['seconds']:.3f}",
        )
    Console(width=170).print(table)
    table = Table(title="log-Cholesky least squares: medians")
    for title in ("solver", "iterations", "ms", "cost above the least", "worst"):
        table.add_column(title)
    for name in dict.fromkeys(s["solver"] for s in solvers):
        mine = [s for s in solvers if s["solver"] == name]
        middle = {
            key: float(np.median([s[key] for s in mine])) for key in ("iterations", "seconds", "excess")
        }
        middle["worst_excess"] = float(np.max([s["excess"] for s in mine]))
        summary["solvers"][name] = middle
        table.add_row(
            name,
            f"{middle['iterations']:.0f}",
            f"{1e3 * middle['seconds']:.1f}",
            f"{100 * middle['excess']:.2g} %",
            f"{100 * middle['worst_excess']:.2g} %",
        )
    Console(width=170).print(table)
    if options.json:
        options.json.write_text(json.dumps({**summary, "records": records}, indent=1))


if __name__ == "__main__":
    main()
