"""Logs of a run that never was: an arm that follows its reference well inside every bound, to plant violations in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.report.run.logs import BRAKING, COMMANDED, ControllerLog, PlanEntry, PlantLog, RunLogs, UpdateEntry
from safe_sysid.robot import load_robot
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation import draw_truth, payload_from_spec

TICKS = 2400
PERIOD = 1e-3
PLAN_START, HAND_OVER, PLAN_END = 0.5, 1.1, 1.7
PAIR = ("payload", "post")


@dataclass(frozen=True)
class Rig:
    model: RobotModel
    gains: ControllerGains
    theta: np.ndarray


@lru_cache(maxsize=1)
def rig() -> Rig:
    """The packaged arm, gains of lock-step, a truth inside the prior."""
    model = load_robot("kinova_gen3")
    theta = draw_truth(model, payload_from_spec("8lb"), 3)
    return Rig(model, design_gains(model, lockstep=True), theta)


def margins(smallest: float) -> dict[str, Margin]:
    """A plan's certificate: so much clearance beyond the margin that was asked for."""
    found = {"clearance": smallest, "self_clearance": smallest + 0.1}
    return {family: Margin(family, "payload", "post", value, 0.3) for family, value in found.items()}


def clean_logs(rng: np.random.Generator | None = None) -> RunLogs:
    """A run without any violation; every array is a fresh copy that a test may spoil."""
    rng = rng or np.random.default_rng(0)
    r = rig()
    n = r.model.n
    time = PERIOD * np.arange(TICKS)
    phase = rng.uniform(0.0, 6.0, n)
    q_d = np.array(r.model.settings.home) + 0.1 * np.sin(2.0 * time[:, None] + phase)
    qd_d = 0.2 * np.cos(2.0 * time[:, None] + phase)
    # |e| <= |r|/K_r and V <= V_max leave room for a tenth of either bound.
    e = 0.02 * r.gains.e_bound * np.sin(9.0 * time[:, None] + phase)
    de = 0.02 * r.gains.de_bound * np.sin(7.0 * time[:, None])
    torque = 0.5 * r.model.limits.torque * np.sin(3.0 * time[:, None] + phase)
    mode = np.full(TICKS, COMMANDED, np.int8)
    mode[0] = BRAKING
    plant = PlantLog(time, q_d - e, qd_d - de, torque, torque + 0.01, np.zeros(TICKS, int), mode, r.theta.copy(), ())
    controller = ControllerLog(
        time.copy(),
        q_d.copy(),
        qd_d.copy(),
        np.ones(TICKS, bool),
        np.full(TICKS, "tracking"),
        np.full(TICKS, 1e-4),
        np.full(TICKS, PERIOD),
        np.zeros(0),
    )
    lower, upper = r.model.arm_prior.payload_lower, r.model.arm_prior.payload_upper
    truth = r.theta[r.model.arm_prior.layout.payload]
    updates = tuple(
        UpdateEntry(t, truth + s * (lower - truth), truth, truth + s * (upper - truth), f"0:{i + 1}", "bounds updated")
        for i, (t, s) in enumerate([(0.8, 0.6), (1.4, 0.3), (2.2, 0.3)])
    )
    plans = (
        PlanEntry(0, "planned", PLAN_START, HAND_OVER, PLAN_END, "0:0", (0.1,) * n, 3.0, 0.7, margins(0.015)),
        PlanEntry(
            1, "planned", HAND_OVER, HAND_OVER + 0.6, HAND_OVER + 1.2, "0:1", (0.2,) * n, 2.0, 0.6, margins(0.035)
        ),
    )
    return RunLogs(plant, controller, updates, plans)


def oracle(q: np.ndarray) -> tuple[float, tuple[str, str] | None]:
    """Clearance of the clean run: far more than promised."""
    return 0.2 + 0.01 * float(np.sin(q[0])), PAIR
