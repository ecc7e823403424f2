"""Trials of Tables IV and V: condition numbers of random motions, and of four plans that are chosen or not.

Random Fourier series, ``q_j(t) = q0_j + sum_l (a_jl sin(l w t) - b_jl cos(l w t)) / (l w)`` [PSO's reference 5], are
sampled for 10 s at 1 ms. The paper does not say how its coefficients are drawn; here they are uniform.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.episode import Episode
from safe_sysid.errors import PlanError
from safe_sysid.planning.costs import CostSpec
from safe_sysid.planning.costs.observation import MomentumObservation, condition_number, torque_observation
from safe_sysid.planning.excitation.random_excitation import RandomPlanner
from safe_sysid.planning.planner import PlannerOptions
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.studies.experiments.runner import case

__all__ = [
    "DRAWS",
    "RANDOM",
    "TABLE_FOUR",
    "Correlations",
    "CostCase",
    "FourierDraw",
    "motion_conditions",
    "run_case",
    "run_excitation",
    "run_motion",
]


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
        """Validate the cost.

        Raises:
            PlanError: it cannot be read.
        """
        if self.cost != RANDOM:
            CostSpec.parse(self.cost)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> CostCase:
        """The case that a record is of."""
        return cls(**{name: record[name] for name in cls.__dataclass_fields__})


def run_case(case: CostCase) -> dict[str, Any]:
    """Run it; a record for JSON.

    Returns:
        The case's fields and ``widths`` (updates, 10), ``prior`` (10,) widths, ``inside`` (whether every box held the
        truth), ``planned``, ``refusals``, ``condition`` (2-norm condition number of PSO's Y, unscaled, over all data),
        ``condition_scaled`` (columns times the prior's radii), ``plan_s`` and ``seconds``.

    Raises:
        PlanError: the start was refused, or the run taught nothing.
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


#: PSO Table IV: forward integration horizon h (samples of 1 ms) to Pearson's correlation of cond(W) and cond(Y).
TABLE_FOUR = {1: 1.0000, 5: 1.0000, 10: 0.9994, 20: 0.9934, 50: 0.9540, 100: 0.6709, 200: 0.3537, 500: 0.2789}


@dataclass(frozen=True)
class FourierDraw:
    """How random Fourier motions are drawn."""

    duration: float = 10.0  #: s
    period: float = 1e-3  #: s, of the samples
    base: float = 10.0  #: s, period of the first harmonic
    harmonics: int = 5  #: how many
    coefficient: float = 0.3  #: rad/s, a and b are uniform in its negative to it

    def motion(
        self, centre: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Times (N,) s and q, qd, qdd, each (N, n), of one draw about a centre (n,), rad."""
        steps = round(self.duration / self.period)
        times = np.asarray(np.arange(steps + 1) * self.period, dtype=np.float64)
        harmonic = np.arange(1, self.harmonics + 1, dtype=np.float64)
        w = np.asarray(2.0 * np.pi / self.base * harmonic, dtype=np.float64)
        a, b = rng.uniform(-self.coefficient, self.coefficient, (2, self.harmonics, len(centre)))
        sine, cosine = np.sin(np.outer(times, w)), np.cos(np.outer(times, w))
        q: FloatArray = centre + (sine / w) @ a - (cosine / w) @ b
        qd: FloatArray = cosine @ a + sine @ b
        qdd: FloatArray = (-sine * w) @ a + (cosine * w) @ b
        return times, q, qd, qdd


#: Slow motions, as an arm is usually excited, and fast ones, whose shortest period is no longer far from the windows.
DRAWS = {"slow": FourierDraw(), "fast": FourierDraw(base=1.0, harmonics=10, coefficient=3.0)}


@dataclass(frozen=True, eq=False)
class Correlations:
    """Condition numbers of T motions, and what they have in common."""

    horizons: tuple[int, ...]  #: (H,) h, samples
    torque: FloatArray  #: (T,) cond(W)
    momentum: FloatArray  #: (T, H) cond(Y), W_c integrated by left rectangles as in the paper
    trapezoid: FloatArray  #: (T, H) the same by trapezoids: what is left when the error of integration is gone

    def pearson(self, rule: str = "euler") -> FloatArray:
        """(H,) correlation of cond(W) and cond(Y)."""
        other = self.momentum if rule == "euler" else self.trapezoid
        return np.array([np.corrcoef(self.torque, column)[0, 1] for column in other.T])

    def spearman(self, rule: str = "euler") -> FloatArray:
        """(H,) the same of ranks: what matters for choosing a motion, and a few wild ones do not decide it."""
        other = self.momentum if rule == "euler" else self.trapezoid
        ranks = np.argsort(np.argsort(self.torque))
        return np.array([np.corrcoef(ranks, np.argsort(np.argsort(column)))[0, 1] for column in other.T])


def motion_conditions(
    model: RobotModel,
    seed: int,
    index: int,
    horizons: Sequence[int] = tuple(TABLE_FOUR),
    draw: FourierDraw | None = None,
) -> tuple[float, FloatArray, FloatArray]:
    """Condition numbers of one random motion about the arm's home.

    ``draw``: how motions are drawn; None for the default.
    Returns cond(W), and cond(Y) (H,) by left rectangles and (H,) by trapezoids.
    """
    draw = FourierDraw() if draw is None else draw
    kin, centre = model.kinematics, np.array(model.settings.home, float)
    times, q, qd, qdd = draw.motion(centre, np.random.default_rng([seed, index]))
    observed = MomentumObservation(kin, times, q, qd)
    euler = np.array([condition_number(observed.rows(h)) for h in horizons])
    trapezoid = np.array([condition_number(observed.rows(h, "trapezoid")) for h in horizons])
    return condition_number(torque_observation(kin, q, qd, qdd)), euler, trapezoid


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
