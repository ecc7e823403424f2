"""Times of the parts that must be fast, each beside a named peer in the same run; medians over runs.

python benchmarks/kernels.py [--runs 7] [--json FILE]
python benchmarks/kernels.py --before DIR    # another checkout: both in turn, and how much longer this one takes
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pinocchio as pin
from numba import njit
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.control.laws.c_code import write_law
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.dynamics import dynamics_of
from safe_sysid.extensions import LAWS
from safe_sysid.identification.equations.linearisation import DERIVATIVES, derivative_bounds
from safe_sysid.planning.certification.certificate import verify_plan
from safe_sysid.planning.costs.excitation import regressor_gradient
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import enclose_clearance
from safe_sysid.reachability.swept import swept_boxes
from safe_sysid.reachability.torque import enclose_torque
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import NO_MOTORS, Kinematics, RobotModel
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.trajectories import Plan, QuinticTrajectory

FloatArray = NDArray[np.float64]
SAMPLES = 7500


def median(
    function: Callable[[], object], runs: int, repeat: int = 1, clock: Callable[[], float] = time.thread_time
) -> float:
    """Median over runs of the mean time of a call, s; one call before to compile.

    By default it is the processor time of this thread, which other programs change less; of two threads, the wall's.
    """
    function()
    times = []
    for _ in range(runs):
        began = clock()
        for _ in range(repeat):
            function()
        times.append((clock() - began) / repeat)
    return float(np.median(times))


def peer_model(model: RobotModel) -> pin.Model:
    """The same chain in Pinocchio."""
    kin, out = model.kinematics, pin.Model()
    for j in range(model.n):
        placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
        out.addJoint(j, pin.JointModelRevoluteUnaligned(np.array(kin.axis[j])), placement, model.joint_names[j])
        theta = model.theta_nominal[model.layout.link(j)]
        out.appendBodyToJoint(j + 1, pin.Inertia.FromDynamicParameters(np.array(theta)), pin.SE3.Identity())
    return out


def in_c(model: RobotModel) -> float | None:
    """A tick of the C file of the robust law, s: the least of its self-test's rounds of 10,000; None: no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        tested = write_law(model, design_gains(model), Path(folder) / "law")
    return float(re.findall(r"([0-9]+) ns a tick", tested)[0]) * 1e-9 if tested else None


def compare(before: Path, options: argparse.Namespace) -> None:
    """Run this script's two versions in turn, so that both see the same machine, and print ratios of medians."""
    here, times = Path(__file__).resolve().parent.parent, ({}, {})
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        for _ in range(options.rounds):
            for root, found in zip((before.resolve(), here), times, strict=True):
                script = [sys.executable, str(root / "benchmarks" / "kernels.py"), "--json", str(out)]
                settings = ["--robot", options.robot, "--runs", str(options.runs), *["--short"][: options.short]]
                environment = {**os.environ, "PYTHONPATH": str(root)}
                subprocess.run([*script, *settings], cwd=root, env=environment, check=True, capture_output=True)
                for row in json.loads(out.read_text(encoding="utf-8")):
                    found.setdefault(row["ours"], []).append(row["s"])
    table = Table(title=f"{options.robot}, medians of {options.rounds} rounds, in turn")
    for column in ("what", "before", "now", "now / before"):
        table.add_column(column)
    for what in (what for what in times[1] if what in times[0]):
        old, new = (float(np.median(found[what])) for found in times)
        table.add_row(what, f"{old * 1e3:.4f} ms", f"{new * 1e3:.4f} ms", f"{new / old:.3f}")
    Console(width=140).print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--short", action="store_true", help="dynamics and laws only, no certificates")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="of both, with --before")
    options = parser.parse_args()
    if options.before is not None:
        compare(options.before, options)
        return
    model = load_robot(options.robot)
    kin, n, rng = model.kinematics, model.n, np.random.default_rng(0)
    q, qd, qd_a, qdd = rng.uniform(-2, 2, (4, SAMPLES, n))
    peer = peer_model(model)
    data = peer.createData()

    weight = rng.normal(size=(SAMPLES, n, model.layout.size))
    box, dynamics, steps = model.arm_prior, dynamics_of(kin), 500
    centre, spread = box.mid[model.layout.links], box.rad[model.layout.links]
    bounds, kin_alone = np.zeros((len(DERIVATIVES), n, max(n, 3))), kin._replace(motors=NO_MOTORS)

    @njit
    def all_derivatives(
        kin: Kinematics, mid: FloatArray, rad: FloatArray, q: FloatArray, qd: FloatArray, out: FloatArray
    ) -> None:
        for k in range(q.shape[0]):
            derivative_bounds(kin, mid, rad, 1.0, True, True, q[k], qd[k], out)

    def derivatives() -> None:
        all_derivatives(kin_alone, centre, spread, q[:steps], qd[:steps], bounds)

    regressors: dict[str, Callable[[], object]] = {
        "W_s": lambda: dynamics.slotine_li_regressor(q, qd, qd_a, qdd),
        "W": lambda: dynamics.torque_regressor(q, qd, qdd),
        "W_m": lambda: dynamics.momentum_regressor(q, qd),
        "W_c": lambda: dynamics.momentum_rate_regressor(q, qd),
        "gradient of W": lambda: regressor_gradient(kin, q, qd, qdd, weight),
        "forward kinematics": lambda: forward_kinematics(kin, q),
        f"derivatives of momentum columns at {steps} states": derivatives,
    }

    def theirs() -> None:
        # Pinocchio's torque regressor alone, once per sample: W only.
        for k in range(SAMPLES):
            pin.computeJointTorqueRegressor(peer, data, q[k], qd[k], qdd[k])

    gains = design_gains(model, lockstep=True)
    home = np.array(model.settings.home)
    reference = np.stack([home, 0 * home, 0 * home])
    in_use = ModelInUse(model.theta_nominal, box.mid, box.rad)

    def rnea() -> None:
        pin.rnea(peer, data, q[0], qd[0], qdd[0])

    rows: list[tuple[str, float, str, float]] = []
    seconds = median(theirs, options.runs)
    for what, regressor in regressors.items():
        rows.append((what, median(regressor, options.runs), "Pinocchio's torque regressor, each", seconds))
    seconds = median(rnea, options.runs, 1000)
    for name in LAWS:
        law = make_law(name, model, gains)
        step = median(lambda f=law.step: f(0.0, home, 0 * home, reference, in_use), options.runs, 1000)  # type: ignore[misc]
        rows.append((f"one step of the law {name}", step, "pin.rnea once", seconds))
    if (tick := in_c(model)) is not None:
        rows.append(("one step of the law robust, as C file", tick, "pin.rnea once", seconds))
    for name in ("open", "six_boxes") if not options.short else ():
        scene = load_scene(name)
        start = scene.start_for(model)
        trajectory = QuinticTrajectory.to_rest(np.stack([start, 0 * start, 0 * start]), start + 0.1, 3.0)
        plan = Plan(trajectory, 0.0, 1.5, box.identity, 0, np.zeros(n))
        certificates = {
            threads: median(
                lambda p=plan, s=scene, t=threads: verify_plan(  # type: ignore[misc]
                    p, model, box, s, gains, splits=0, threads=t
                ),
                options.runs,
                clock=time.perf_counter,
            )
            for threads in (1, 2)
        }

        def sampled(t: QuinticTrajectory = trajectory) -> None:
            # What a plan costs to *sample*: 1000 instants, inverse dynamics at the nominal only, no obstacles.
            for s in np.linspace(0.0, 3.0, 1000):
                x = t.state(float(s))
                pin.rnea(peer, data, x[0], x[1], x[2])

        beside = median(sampled, options.runs)
        for threads, seconds in certificates.items():
            rows.append((f"certificate, {name}, {threads} threads", seconds, "1000 samples of rnea", beside))
        cells, tracking = time_cells(trajectory, model.settings.planner.intervals), TrackingSet.of(gains, n)
        parts = {
            "its torque": lambda c=cells, t=tracking: enclose_torque(  # type: ignore[misc]
                kin, box, c, t, gains.K_d, gains.inertia_lower, model.friction_transition_velocity
            ),
            "its clearance": lambda c=cells, t=tracking, s=scene: enclose_clearance(model, s, c, t),  # type: ignore[misc]
            "swept boxes": lambda c=cells, t=tracking: swept_boxes(model, c, t),  # type: ignore[misc]
        }
        for part, function in parts.items():
            rows.append((f"{part}, {name}", median(function, options.runs), "1000 samples of rnea", beside))
    table = Table(title=f"{options.robot}, medians of {options.runs} runs")
    for column in ("ours", "time", "beside it", "time", "ratio"):
        table.add_column(column)
    for what, mine, other, yours in rows:
        table.add_row(what, f"{mine * 1e3:.3f} ms", other, f"{yours * 1e3:.3f} ms", f"{mine / yours:.2f}")
    Console(width=140).print(table)
    if options.json:
        options.json.write_text(
            json.dumps([dict(zip(("ours", "s", "peer", "peer_s"), row, strict=True)) for row in rows])
        )


if __name__ == "__main__":
    main()
