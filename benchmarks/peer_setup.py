"""The peer's problem, shared by the benchmarks: the public C++ ARMOUR (RAPTOR) on the Kinova Gen3 with its gripper.

Sphere cover, uncertainties and trajectories are its own.
"""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.reachability.cells import TrackingSet
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = [
    "DECLARED",
    "SETTINGS",
    "SPHERES",
    "machine",
    "nothing",
    "peer_family",
    "peer_model",
    "radius_of",
    "said",
]

FloatArray = NDArray[np.float64]

DURATION, CENTRE, RANGE = 2.0, np.pi / 12, np.pi / 24

#: Joint frame (from 0), centre in it (m): the peer's cover, whose growth it reports.
SPHERES: tuple[tuple[int, tuple[float, float, float]], ...] = (
    *((1, (0.0, -y, -0.01)) for y in (0.05, 0.11, 0.17, 0.24, 0.30, 0.36, 0.43)),
    *((3, (0.0, -y, 0.0)) for y in (0.07, 0.14, 0.21, 0.28, 0.32)),
    *((5, (0.0, -y, 0.0)) for y in (0.07, 0.14)),
    *((6, (x, -0.06, -0.055)) for x in (-0.03, 0.0, 0.03)),
    *((6, (0.0, 0.0, -z)) for z in (0.10, 0.15, 0.20)),
)

#: Hypotheses of the tracking theorem, sized for the peer's motions and sets instead of the 4 kg of Table I.
DECLARED: dict[str, Any] = {
    "controller.velocity": 0.45,
    "controller.acceleration": 0.65,
    "controller.jerk": 3.2,
    "controller.uncertainty": 2.0,
    "controller.inertia_ratio": 1.6,
    # Stated, so that the comparison does not move with the file.
    "controller.K_r": 3.0,
    "timing.hold_max_s": 0.00125,
    "timing.delay_max_s": 0.0002,
}
#: Configurations of our synthesis. "shipped" is the file as it is.
SETTINGS: dict[str, dict[str, Any]] = {
    "shipped": {},
    "declared": DECLARED,
    "tuned": DECLARED | {"controller.kappa": 7.0, "controller.K_r": 2.0},
}


def peer_family(start: ArrayLike, goal: ArrayLike) -> TrajectoryFamily:
    """The peer's trajectories: from rest at ``start`` (n,) to within RANGE of CENTRE towards ``goal`` (n,), rad."""
    q = np.asarray(start, float)
    state = np.stack([q, 0 * q, 0 * q])
    middle = QuinticTrajectory.to_rest(state, q + CENTRE * np.sign(np.asarray(goal, float) - q), DURATION)
    return TrajectoryFamily(state, np.full(len(q), RANGE), DURATION, middle)


def peer_model(settings: str = "tuned", joints_certain: bool = False, intervals: int = 128) -> RobotModel:
    """Kinova with the peer's uncertainties: arm 5 %, last link with its empty hand 20 % of each entry.

    Args:
        settings: one of ``SETTINGS``.
        joints_certain: as the peer has it: rotor inertia and friction exact, no floors, links only. Otherwise those are
            uncertain by 5 % as well, with the configuration's floors.
        intervals: time cells.
    """
    planner = {"planner.t_f": DURATION, "planner.t_p": 0.5 * DURATION, "planner.intervals": intervals}
    hand = {"payload.envelope": {"center": [0.0, 0.0, 0.14], "size": [1e-3] * 3}}
    model = load_robot("kinova_gen3", **SETTINGS[settings], **planner, **hand)
    theta, last = model.theta_nominal, model.layout.payload
    if joints_certain:
        radius = np.zeros_like(theta)
        radius[model.layout.links] = 0.05 * np.abs(theta[model.layout.links])
        lower, upper = theta - radius, theta + radius
    else:
        lower, upper = model.arm_prior.lower.copy(), model.arm_prior.upper.copy()
    lower[last], upper[last] = (
        theta[last] - 0.2 * np.abs(theta[last]),
        theta[last] + 0.2 * np.abs(theta[last]),
    )
    return replace(model, arm_prior=ParameterBox(lower, upper))


def nothing(tracking: TrackingSet) -> TrackingSet:
    """No tracking error (but for 1e-12 of it: semi-axes are positive)."""
    return TrackingSet(tracking.e * 1e-12, tracking.r * 1e-12, tracking.k_r)


def radius_of(boxes: FloatArray) -> FloatArray:
    """(...) half the diagonal of boxes (..., 3, 2)."""
    return np.asarray(np.linalg.norm(0.5 * (boxes[..., 1] - boxes[..., 0]), axis=-1))


def said(on: dict[str, Any], seconds: float) -> str:
    """The same as a line under a table."""
    return (
        f"{on['cores']} cores, {on['processor']}, Python {on['python']}, load {on['load'][0]:.1f}, "
        f"{seconds:.0f} s, peak memory {on['peak_mb']:.0f} MB"
    )


def machine() -> dict[str, Any]:
    """What the numbers were measured on; ``load`` says what else ran there, ``peak_mb`` the memory of this process."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        name = lines[0].split(":", 1)[1].strip() if lines else name
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()),
        "python": platform.python_version(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }
