"""Trials of Tables IV and V: condition numbers of random motions, and of four plans that are chosen or not."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from safe_sysid.episode import Episode
from safe_sysid.errors import PlanError
from safe_sysid.planning.costs import CostSpec
from safe_sysid.planning.costs.observation import MomentumObservation, condition_number
from safe_sysid.planning.excitation.random_excitation import RandomPlanner
from safe_sysid.planning.planner import PlannerOptions
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.studies.experiments.correlation import DRAWS, motion_conditions
from safe_sysid.studies.experiments.runner import case

__all__ = ["RANDOM", "CostCase", "run_case", "run_excitation", "run_motion"]

#: Stands for random certified plans where a cost is asked for.
RANDOM = "random"


@dataclass(frozen=True)
class CostCase:
    """One run."""

    cost: str  #: what its plans are chosen by (:class:`~safe_sysid.planning.costs.CostSpec`), or :data:`RANDOM`
    noise: str = "uniform"  #: of the measurements, "uniform" or "adversarial"
    seed: int = 0  #: of the true arm (a corner of its box where odd), its errors and the planner
    payload: str = "8lb"  #: by name
    scene: str = "open"  #: by name
    robot: str = "kinova_gen3"  #: by name
    plans: int = 4  #: how many

    def __post_init__(self) -> None:
        """Validate the cost. Raises PlanError: it cannot be read."""
        if self.cost != RANDOM:
            CostSpec.parse(self.cost)


def run_case(case: CostCase) -> dict[str, Any]:
    """Run it; a record for JSON. Raises PlanError: the start was refused, or the run taught nothing.

    Returns:
        The case's fields and ``widths`` (updates, 10), ``prior`` (10,) widths, ``inside`` (whether every box held the
        truth), ``planned``, ``refusals``, ``condition`` (2-norm condition number of PSO's Y, unscaled, over all data),
        ``condition_scaled`` (columns times the prior's radii), ``plan_s`` and ``seconds``.
    """
    began = time.perf_counter()
    model, scene = load_robot(case.robot), load_scene(case.scene)
    payload = payload_from_spec(case.payload, grip=model.settings.payload.envelope.center)
    plant = build_plant(
        model,
        payload,
        scene,
        case.seed,
        noise=case.noise,
        draw="corner" if case.seed % 2 else "uniform",
        actuator="adversarial" if case.noise == "adversarial" else "random",
    )
    options = PlannerOptions() if case.cost == RANDOM else PlannerOptions(cost=case.cost)
    episode = Episode(model, plant, scene, plans=case.plans, seed=case.seed, options=options)
    if case.cost == RANDOM:
        episode.planner = RandomPlanner(model, scene, episode.gains, options=options, seed=case.seed)
    result = episode.run()
    if not result.updates:
        raise PlanError("no update of the bounds: expected at least one in a run")
    payload_truth = plant.theta_true[model.arm_prior.layout.payload]
    boxes = [update.box for _, update in result.updates]
    times, q, qd = (np.asarray(plant.truth()[name]) for name in ("t", "q", "qd"))
    samples = round(model.settings.identification.window_s / model.settings.timing.period_s)
    driven = [p.plan for p in result.plans if p.plan is not None]
    if not driven:
        raise PlanError(f"no plan in a run: {'; '.join(result.plans[0].reasons)}: expected at least one")
    if result.failure:
        raise PlanError(f"a run: {result.failure}")
    moving = (times >= driven[0].start_time) & (times <= driven[-1].end_time)
    rows = MomentumObservation(model.kinematics, times[moving], q[moving], qd[moving]).rows(samples)
    prior = model.arm_prior.payload_upper - model.arm_prior.payload_lower
    return {
        **asdict(case),
        "widths": [update.widths.tolist() for _, update in result.updates],
        "prior": prior.tolist(),
        "inside": bool(
            all(np.all((b.payload_lower <= payload_truth) & (payload_truth <= b.payload_upper)) for b in boxes)
        ),
        "planned": sum(p.plan is not None for p in result.plans),
        "refusals": list(result.refusals),
        "condition": condition_number(rows),
        "condition_scaled": condition_number(rows, 0.5 * prior),
        "plan_s": [p.wall_time for p in result.plans],
        "seconds": time.perf_counter() - began,
    }


#: What plans are chosen by: Table V's own cost (PSO eq. 30), or nothing.
_COSTS = {"ours": "condition", "random": RANDOM}


@lru_cache(maxsize=2)
def _robot(name: str) -> RobotModel:
    return load_robot(name)


def run_motion(seed: int, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """Condition numbers of one random Fourier motion, drawn slow and fast.

    ``options``: ``robot``. Returns ``index`` and for each draw ``torque``, ``momentum`` (H,) and ``trapezoid`` (H,).
    """
    result: dict[str, Any] = {"index": index}
    for name, draw in DRAWS.items():
        torque, euler, trapezoid = motion_conditions(_robot(options["robot"]), seed, index, draw=draw)
        result[name] = {"torque": torque, "momentum": euler.tolist(), "trapezoid": trapezoid.tolist()}
    return result


def run_excitation(seed: int, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """Four plans with one dumbbell, chosen or not; the record of :func:`run_case`.

    ``options``: ``robot``, ``methods`` and ``payloads``.
    """
    which = case("condition", options, index)
    study = CostCase(
        _COSTS[which["method"]], seed=seed + which["trial"], payload=which["payload"], robot=options["robot"]
    )
    return {"index": index, "method": which["method"], "trial": which["trial"], **run_case(study)}
