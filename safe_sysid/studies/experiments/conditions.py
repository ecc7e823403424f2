"""One trial of Table IV (a random motion) and of Table V (four exciting plans): condition numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.campaign.excitation.correlation import DRAWS, motion_conditions
from safe_sysid.studies.campaign.excitation.episodes import RANDOM, CostCase, run_case
from safe_sysid.studies.experiments.runner import case

__all__ = ["run_excitation", "run_motion"]

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
