"""How tight the enclosures are: half widths over the sampled hull.

Two problems. ``peer``: ARMOUR's own (see peer_setup.py). ``table1``: the shipped configuration, 4 kg of payload
uncertainty, six boxes, a motion near a plan of the package's planner (``--k-range``). In each time cell the enclosure's
half width is divided by the half width of the hull that ascent over time and tracking error reaches (sampled_hull.py),
for the torque of every joint and for the radius of every sphere of the arm's cover. See docs/tightness.md.

    python benchmarks/enclosures.py [--problems peer table1] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from peer_setup import RANGE, SPHERES, machine, nothing, peer_family, peer_model, radius_of, said
from rich.console import Console
from rich.table import Table
from sampled_hull import Motion, point_hull, torque_hull

from safe_sysid.control.design import design_gains
from safe_sysid.control.gains import ControllerGains
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.planner import Planner
from safe_sysid.reachability.cells import TimeCells, TrackingSet, time_cells
from safe_sysid.reachability.pose import point_ranges, relative_poses
from safe_sysid.reachability.torque import enclose_torque
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.trajectories.quintic import QuinticTrajectory

FloatArray = NDArray[np.float64]
_JOINTS = [joint for joint, _ in SPHERES]
_POINTS = [centre for _, centre in SPHERES]


@dataclass(frozen=True, eq=False)
class Case:
    """One trajectory of one family, with its controller.

    Attributes:
        model: the arm; its prior is the box.
        gains: of the controller.
        family: that the trajectory is from.
        k: (n,) which one.
        origin: where k comes from, in words.
    """

    model: RobotModel
    gains: ControllerGains
    family: TrajectoryFamily
    k: FloatArray
    origin: str


@dataclass(frozen=True)
class Enclosed:
    """Half widths (M, n) N m and radii (M, S) m, and the processor time that they took, s."""

    torque: FloatArray
    radius: FloatArray
    seconds: float


def peer_case(options: argparse.Namespace, rng: np.random.Generator) -> Case:
    """The peer's problem, with the gains that are sized for it, at a random k."""
    model = peer_model("declared", False, options.intervals)
    scene = load_scene("six_boxes")
    family = peer_family(scene.start_for(model), np.array(scene.goal))
    return Case(model, design_gains(model), family, rng.uniform(-1.0, 1.0, model.n), "random")


def table1_case(options: argparse.Namespace, rng: np.random.Generator) -> Case:
    """The shipped robot and planner: the plan from the six-box scene's start, at a random k of a family around it."""
    model = load_robot("kinova_gen3", **{"planner.intervals": options.intervals})
    gains, scene = design_gains(model), load_scene("six_boxes")
    planner = Planner(model, scene, gains)
    start = scene.start_for(model)
    state = np.stack([start, 0 * start, 0 * start])
    found = planner.plan_next(state, 0.0, model.arm_prior, int(rng.integers(1000)))
    origin = "no plan: rest" if found.plan is None else "certified plan"
    end = start if found.plan is None else found.plan.trajectory.knots[-1, 0]
    k, duration = rng.uniform(-1.0, 1.0, model.n), model.settings.planner.t_f
    middle = QuinticTrajectory.to_rest(state, end - options.k_range * k, duration)
    family = TrajectoryFamily(state, np.full(model.n, options.k_range), duration, middle)
    return Case(model, gains, family, k, origin)


CASES = {"peer": peer_case, "table1": table1_case}


def enclosed(case: Case, cells: TimeCells, tracking: TrackingSet, moved: TrackingSet) -> Enclosed:
    """The package's own, at the given k."""
    kin, began = case.model.kinematics, time.process_time()
    torque = enclose_torque(
        kin,
        case.model.arm_prior,
        cells,
        tracking,
        case.gains.K_d,
        case.gains.inertia_lower,
        case.model.friction_transition_velocity,
    ).torque
    rotations, origins = relative_poses(kin, cells, moved)
    boxes = [
        point_ranges(rotations[:, 0, j + 1], origins[:, 0, j + 1], np.array([p]))
        for j, p in zip(_JOINTS, _POINTS, strict=True)
    ]
    taken = time.process_time() - began
    return Enclosed(0.5 * (torque[..., 1] - torque[..., 0]), radius_of(np.concatenate(boxes, axis=1)), taken)


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of one problem."""
    rng = np.random.default_rng(options.seed)
    case = CASES[name](options, rng)
    true, assume = TrackingSet.of(case.gains, case.model.n), case.gains.assumptions
    measured = true.enlarged(assume.position_error, assume.velocity_error)
    cells = time_cells(case.family.trajectory(case.k), options.intervals)
    which = np.linspace(0, cells.count - 1, min(options.attacked, cells.count)).round().astype(int)
    rows = []
    for label, tracking, moved in (("with", measured, true), ("without", nothing(measured), nothing(true))):
        motion = Motion(case.family.trajectory(case.k), cells, tracking)
        (hull,) = torque_hull(
            case.model.kinematics,
            case.model.arm_prior,
            motion,
            case.gains.K_d,
            case.model.friction_transition_velocity,
            which,
            rng,
        )
        reached = point_hull(
            case.model.kinematics,
            _JOINTS,
            _POINTS,
            Motion(motion.trajectory, cells, moved),
            which,
            rng,
        )
        truth = 0.5 * (hull[..., 1] - hull[..., 0]), radius_of(reached)
        found = [enclosed(case, cells, tracking, moved) for _ in range(options.runs)][-1]
        rows.append(
            {"problem": name, "k": case.origin, "tracking": label, "cpu_s": found.seconds}
            | _ratios("torque", found.torque, found.torque[which], truth[0])
            | _ratios("radius", found.radius, found.radius[which], truth[1])
        )
    return rows


def _ratios(what: str, widths: FloatArray, attacked: FloatArray, hull: FloatArray) -> dict[str, float]:
    ratio = attacked / hull
    return {
        f"{what}_mean": float(widths.mean()),
        f"{what}_max": float(widths.max()),
        f"{what}_hull_mean": float(hull.mean()),
        f"{what}_ratio_least": float(ratio.min()),
        f"{what}_ratio_median": float(np.median(ratio)),
        f"{what}_ratio_p95": float(np.quantile(ratio, 0.95)),
        f"{what}_ratio_max": float(ratio.max()),
    }


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Print the table."""
    table = Table(
        title="Half width over sampled hull (median, 95 %, worst); torque in N m, radius of a point in mm"
    )
    for column in (
        "problem",
        "tracking error",
        "torque",
        "over hull",
        "radius",
        "over hull",
        "processor time",
    ):
        table.add_column(column, justify="left" if column == "problem" else "right")
    for r in rows:
        cells = [
            f"{scale * r[w + '_mean']:.2f}"
            if j == 0
            else " ".join(f"{r[f'{w}_ratio_{x}']:.2f}" for x in ("median", "p95", "max"))
            for w, scale in (("torque", 1.0), ("radius", 1e3))
            for j in (0, 1)
        ]
        table.add_row(f"{r['problem']} ({r['k']})", r["tracking"], *cells, f"{r['cpu_s']:.3f} s")
    console.print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--intervals", type=int, default=128)
    parser.add_argument(
        "--k-range",
        type=float,
        default=RANGE,
        help="rad; how far table1's motion may end from the plan (pi/24, the peer's)",
    )
    parser.add_argument("--attacked", type=int, default=32, help="cells whose hull is sampled")
    parser.add_argument("--runs", type=int, default=3, help="the last one's time counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, began = Console(width=150), time.perf_counter()
    rows = [row for name in options.problems for row in measure(name, options)]
    show(rows, console)
    on = machine()
    console.print(said(on, time.perf_counter() - began))
    if options.json:
        options.json.write_text(json.dumps({"machine": on, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
