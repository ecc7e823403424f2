"""Study: what a controller that used tighter sets of parameters than its box would gain in torque half width.

The law commands ``W_s theta' + K_d r`` with any theta' of its box, so the certificate has to allow for all of them.
Here the half width of ``W_s theta`` is computed, state by state along a plan, over other sets that hold the truth too:

- ``consistent``: those of the box where every link, and the payload alone, is physically consistent (SDP),
- ``in its box``: and the payload lies in the declared envelope (SDP),
- ``identified box``: what the identifier publishes after its plans, the box that the controller really uses then,
- ``polytope``: all parameters in that box that agree with the equations the identifier keeps (LP),
- ``polytope, consistent``: both (SDP).

Values are the solvers' (Clarabel, HiGHS): a study, no certificate. Tracking error is left out: it adds the same to all.

    python benchmarks/tighter_sets.py [--payload 8lb] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from peer_setup import machine, said
from rich.console import Console
from rich.table import Table

from safe_sysid.dynamics import dynamics_of
from safe_sysid.episode import Episode
from safe_sysid.identification.bounds.consistency import box_cuts
from safe_sysid.identification.bounds.knowledge import PayloadBox
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, pseudo_inertia
from safe_sysid.robot.scene import load_scene
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.trajectories.quintic import QuinticTrajectory

FloatArray = NDArray[np.float64]
Support = Callable[[FloatArray], float]
_UNITS = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])


def box_support(box: ParameterBox) -> Support:
    """Largest ``c.theta`` over a box."""
    return lambda c: float(c @ box.mid + np.abs(c) @ box.rad)


class ConvexSet:
    """Largest ``c.theta`` over a set of cvxpy constraints, for many c.

    Args:
        model: the arm.
        box: of all parameters.
        consistent: every link and the payload physically consistent.
        inside: and the payload inside the declared envelope.
        rows: of the identifier, or None.
    """

    def __init__(
        self,
        model: RobotModel,
        box: ParameterBox,
        consistent: bool,
        inside: bool = False,
        rows: MomentumRows | None = None,
    ) -> None:
        """Build the program once."""
        n, size = model.n, box.size
        self.inaccurate = 0
        # Scaled unknowns: z = (theta - mid) / rad in [-1, 1]; parameters known exactly drop out.
        self._box, z = box, cp.Variable(size)
        self._z, self._cost = z, cp.Parameter(size)
        theta = box.mid + cp.multiply(box.rad, z)
        limits: list[Any] = [z <= 1.0, z >= -1.0]
        if rows is not None:
            tightness = 1.0 / rows.slack
            scaled = rows.matrix * box.rad * tightness[:, None]
            target = (rows.target - rows.matrix @ box.mid) * tightness
            limits += [scaled @ z - target <= 1.0, scaled @ z - target >= -1.0]
        if consistent:
            low, high = model.hand_prior
            hand = cp.Variable(10)
            limits += [hand >= low, hand <= high, _pseudo(hand) >> 0.0]
            payload = theta[box.layout.payload] - hand
            limits += [_pseudo(theta[box.layout.link(j)]) >> 0.0 for j in range(n - 1)]
            limits += [_pseudo(payload) >> 0.0]
            if inside:
                envelope = model.settings.payload.envelope
                held = PayloadBox(np.array(envelope.center), np.array(envelope.size), *model.flange)
                limits += [box_cuts(held.functions()).coefficients() @ payload >= 0.0]
        self._program = cp.Problem(cp.Maximize(self._cost @ z), limits)
        self._solver = cp.CLARABEL if consistent else cp.HIGHS

    def __call__(self, c: FloatArray) -> float:
        """Largest value."""
        cost = c * self._box.rad
        scale = float(np.max(np.abs(cost)))
        self._cost.value = cost / scale
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it warns of what is counted here
            self._program.solve(solver=self._solver)
        self.inaccurate += self._program.status != "optimal"
        if self._program.status not in ("optimal", "optimal_inaccurate"):
            return float("nan")
        return float(c @ self._box.mid + scale * self._program.value)


def _pseudo(theta: Any) -> Any:
    """(4, 4) pseudo-inertia of ten parameters, in decimetres so that its entries are of one size."""
    scale = np.diag([10.0, 10.0, 10.0, 1.0])
    return sum(theta[i] * (scale @ _UNITS[i] @ scale) for i in range(10))


def half_widths(regressors: FloatArray, support: Support) -> FloatArray:
    """(N, n) half widths over a set of rows of W_s (N, n, P)."""
    flat = regressors.reshape(-1, regressors.shape[-1])
    found = [0.5 * (support(row) + support(-row)) for row in flat]
    return np.array(found).reshape(regressors.shape[:2])


def identified(model: RobotModel, options: argparse.Namespace) -> tuple[Episode, Any]:
    """A whole run in simulation."""
    scene = load_scene(options.scene)
    payload = payload_from_spec(options.payload, grip=model.settings.payload.envelope.center)
    plant = build_plant(model, payload, scene, options.seed)
    episode = Episode(model, plant, scene, seed=options.seed)
    return episode, episode.run()


def states(trajectory: QuinticTrajectory, count: int) -> FloatArray:
    """(3, N, n) desired position, velocity, acceleration in the middles of N parts."""
    times = (np.arange(count) + 0.5) / count * trajectory.duration
    return np.moveaxis(trajectory.states(times)[:, :3], 1, 0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--payload", default="8lb")
    parser.add_argument("--scene", default="open")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--states", type=int, default=6, help="along the run's first plan")
    parser.add_argument("--rows", type=int, default=600, help="equations taken, those that cut the box most")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, began = Console(width=130), time.perf_counter()
    model = load_robot("kinova_gen3")
    episode, result = identified(model, options)
    plan = next(p.plan for p in result.plans if p.plan is not None)
    q, qd, qdd = states(plan.trajectory, options.states)
    w = dynamics_of(model.kinematics).slotine_li_regressor(q, qd, qd, qdd, model.friction_transition_velocity)
    prior, box = model.arm_prior, result.updates[-1][1].box
    rows = _strongest(episode.identifier.rows, box, options.rows)
    sets: list[tuple[str, Support]] = [
        ("prior box", box_support(prior)),
        ("prior, consistent", ConvexSet(model, prior, True)),
        ("prior, consistent, payload in its box", ConvexSet(model, prior, True, True)),
        ("identified box", box_support(box)),
        ("identified box, consistent", ConvexSet(model, box, True)),
        (f"polytope ({len(rows)} equations)", ConvexSet(model, box, False, rows=rows)),
        ("polytope, consistent, payload in its box", ConvexSet(model, box, True, True, rows)),
    ]
    table = Table(title=f"Half width of W_s theta, N m, mean over {options.states} states; {options.payload}")
    for column in ("set", *model.joint_names, "mean", "of prior box", "s per program"):
        table.add_column(column, justify="left" if column == "set" else "right")
    report, reference = [], 0.0
    for name, support in sets:
        start = time.perf_counter()
        found = half_widths(w, support)
        taken = (time.perf_counter() - start) / (2 * found.size)
        reference = reference or float(found.mean())
        report.append(
            {"set": name, "joints": found.mean(axis=0).tolist(), "mean": float(found.mean())}
            | {"share": float(found.mean()) / reference, "seconds": taken}
            | {"inaccurate": getattr(support, "inaccurate", 0)}
        )
        joints = [f"{x:.2f}" for x in found.mean(axis=0)]
        table.add_row(name, *joints, f"{found.mean():.2f}", f"{found.mean() / reference:.2f}", f"{taken:.3f}")
    console.print(table)
    on = machine()
    console.print(said(on, time.perf_counter() - began))
    if options.json:
        options.json.write_text(json.dumps({"machine": on, "rows": report}, indent=1))


def _strongest(rows: MomentumRows, box: ParameterBox, count: int) -> MomentumRows:
    """The equations whose slack is smallest beside what the box leaves open: any subset is a valid polytope."""
    power = np.abs(rows.matrix) @ box.rad / rows.slack
    return rows.take(np.argsort(-power)[:count])


if __name__ == "__main__":
    main()
