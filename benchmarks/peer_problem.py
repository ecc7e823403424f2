"""The public C++ ARMOUR's own problem, solved by this package: time of a plan, torque half width, swept-volume growth.

Six-box scene, Kinova Gen3 with its gripper, 5 % (arm) and 20 % (hand) uncertainty, trajectories of 2 s that end within
pi/24 of pi/12 towards the goal, 64 and 128 time intervals. Half widths and growth are those of the plan that was found,
and besides of random trajectories of the family; with the tracking error and without; with gains from our synthesis
and with the published ones. See docs/tightness.md.

    python benchmarks/peer_problem.py [--runs 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from peer_setup import PEER, SETTINGS, machine, peer_family, peer_model, said
from peer_widths import Widths, mean_of, ours, published
from rich.console import Console
from rich.table import Table

from safe_sysid.control.design import design_gains
from safe_sysid.control.gains import ControllerGains
from safe_sysid.errors import SafeSysIdError
from safe_sysid.planning.certification.certificate import verify_plan
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.planner import Planner, PlannerOptions
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.trajectories.plan import Plan

FloatArray = NDArray[np.float64]


class PeerPlanner(Planner):
    """The package's planner on the peer's trajectories."""

    goal: FloatArray

    def family(self, start_state: Any, *under_way: Any) -> TrajectoryFamily:
        """See the package's; every plan here starts at rest, with none under way."""
        return peer_family(np.asarray(start_state, float)[0], self.goal)


def plan(
    model: RobotModel, gains: ControllerGains, scene: Scene, goal: FloatArray, runs: int
) -> dict[str, Any]:
    """Plan ``runs`` times; medians, and the last plan's k."""
    start = scene.start_for(model)
    planner = PeerPlanner(model, scene, gains, options=PlannerOptions(cost="goal"))
    planner.goal = goal
    state = np.stack([start, 0 * start, 0 * start])
    first, whole, certify, cpu, results = [], [], [], [], []
    for run in range(runs + 1):  # the first compiles
        began = time.process_time()
        result = planner.plan_next(state, 0.0, model.arm_prior, 0, goal=goal)
        if run:
            cpu.append(time.process_time() - began)
            first.append(result.first_time)
            whole.append(result.wall_time)
            certify.append(result.certify_time / max(result.certificates, 1))
        results.append(result)
    found = results[-1]
    return {
        "planned": sum(r.plan is not None for r in results[1:]),
        "runs": runs,
        "first_s": float(np.median(first)),
        "returned_s": float(np.median(whole)),
        "cpu_s": float(np.median(cpu)),
        "certificate_s": float(np.median(certify)),
        "k": None if found.plan is None else found.plan.k.tolist(),
        "reasons": list(found.reasons),
        "summary": "" if found.certificate is None else found.certificate.summary(),
    }


def certified_share(
    model: RobotModel, gains: ControllerGains, scene: Scene, ks: FloatArray, family: TrajectoryFamily
) -> float:
    """Share of trajectories with a certificate, clearance included."""
    good = 0
    for k in ks:
        one = Plan(family.trajectory(k), 0.0, 1.0, model.arm_prior.identity, 0, k)
        good += verify_plan(one, model, model.arm_prior, scene, gains).ok
    return good / len(ks)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of the report."""
    scene, rng = load_scene("six_boxes"), np.random.default_rng(options.seed)
    if scene.goal is None:
        raise SystemExit("scene six_boxes: no goal: expected the published one")
    goal = np.array(scene.goal)
    rows: list[dict[str, Any]] = []
    for intervals, certain in itertools.product(options.intervals, (False, True)):
        base = peer_model("shipped", certain, intervals)
        family = peer_family(scene.start_for(base), goal)
        ks = rng.uniform(-1.0, 1.0, (options.samples, base.n))
        for settings in options.settings:
            model = peer_model(settings, certain, intervals)
            row: dict[str, Any] = {"gains": settings, "joints_certain": certain, "intervals": intervals}
            try:
                gains = design_gains(model)
            except SafeSysIdError as error:
                rows.append(row | {"error": str(error)})
                continue
            row |= {"V_max": gains.V_max, "kappa": gains.kappa, "K_d": gains.K_d.tolist()}
            row |= {"r_bound": gains.r_bound.tolist(), "e_bound": gains.e_bound.tolist()}
            if options.runs:
                row["plan"] = plan(model, gains, scene, goal, options.runs)
                if row["plan"]["k"] is not None:
                    found = family.trajectory(np.array(row["plan"]["k"]))
                    row["at_plan"] = asdict(ours(model, gains, found, intervals))
            row["over_family"] = asdict(
                mean_of([ours(model, gains, family.trajectory(k), intervals) for k in ks])
            )
            row["certified_share"] = certified_share(model, gains, scene, ks, family)
            rows.append(row)
        rows.append(
            {
                "gains": "published",
                "joints_certain": certain,
                "intervals": intervals,
                "over_family": asdict(
                    mean_of([published(base, family.trajectory(k), intervals) for k in ks])
                ),
            }
        )
    return rows


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Print the table, the peer's figures on top."""
    table = Table(title="The peer's problem: half widths in N m, growth in mm; (..) without tracking error")
    for column in (
        "gains",
        "rotors, friction",
        "cells",
        "torque mean",
        "max",
        "growth mean",
        "max",
        "certified",
        "first plan",
        "returned",
    ):
        table.add_column(column, justify="left" if column == "gains" else "right")
    p = PEER
    for cells in (64, 128):
        table.add_row(
            "PEER, as measured",
            "exact",
            str(cells),
            f"{p['torque_mean']} [{p['torque_mean_repaired']}]",
            "",
            f"{1e3 * p['growth_mean']:.0f}",
            f"{1e3 * p['growth_max']:.0f}",
            "",
            "",
            f"{p['plan_s'][cells]} s",
        )
    for row in rows:
        joints = "exact" if row["joints_certain"] else "5 %"
        start = [row["gains"], joints, str(row["intervals"])]
        if "error" in row:
            table.add_row(*start, "no gains exist")
            continue
        for what in ("at_plan", "over_family"):
            if what not in row:
                continue
            w, planned = Widths(**row[what]), row.get("plan")
            label = f"{row['gains']}, " + {"at_plan": "the plan", "over_family": "random k"}[what]
            times = ["", "", ""]
            if planned and not planned["planned"]:
                times = [f"0/{planned['runs']}", "", f"{planned['returned_s']:.2f} s"]
            if what == "at_plan" and planned:
                times = [
                    f"{planned['planned']}/{planned['runs']}",
                    f"{planned['first_s']:.3f} s",
                    f"{planned['returned_s']:.2f} s (cpu {planned['cpu_s']:.2f})",
                ]
            elif "certified_share" in row:
                times[0] = f"{100 * row['certified_share']:.0f} %"
            table.add_row(
                label,
                *start[1:],
                f"{w.torque_mean:.2f} ({w.torque_mean_still:.2f})",
                f"{w.torque_max:.2f} ({w.torque_max_still:.2f})",
                f"{1e3 * w.growth_mean:.1f} ({1e3 * w.growth_mean_still:.1f})",
                f"{1e3 * w.growth_max:.1f} ({1e3 * w.growth_max_still:.1f})",
                *times,
            )
    console.print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--intervals", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    parser.add_argument(
        "--runs", type=int, default=5, help="plans per row, medians are given; 0: do not plan"
    )
    parser.add_argument("--samples", type=int, default=10, help="random trajectories per row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, began = Console(width=170), time.perf_counter()
    rows = measure(options)
    show(rows, console)
    on = machine()
    console.print(said(on, time.perf_counter() - began))
    if options.json:
        options.json.write_text(json.dumps({"machine": on, "peer": PEER, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
