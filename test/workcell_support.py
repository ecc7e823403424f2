"""Drivers for work cells: one that knows everything, and others that err on purpose."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.experiments.cell.dumbbells import draw_arm, in_hand
from safe_sysid.studies.experiments.cell.simulation import CellSimulation
from safe_sysid.studies.experiments.cell.workcell import Workcell, load_workcell
from safe_sysid.studies.experiments.interfaces import DumbbellPhase, Identification


@lru_cache(maxsize=1)
def gen3() -> RobotModel:
    return load_robot("kinova_gen3")


@lru_cache(maxsize=3)
def workcell(name: str) -> Workcell:
    return load_workcell(name)


def simulation(name: str, seed: int = 0, mode: str = "uniform", **options: object) -> CellSimulation:
    cell, model = workcell(name), gen3()
    theta = draw_arm(model, [in_hand(item.payload) for item in cell.dumbbells], seed, mode)
    return CellSimulation(cell, model, theta, seed, **options)


class Perfect:
    """Computed torque with the true parameters: what the scenes must be possible for."""

    name = "computed torque with the true parameters"
    knows_payload = True
    stiffness, damping = 100.0, 20.0  # 1/s^2, 1/s

    def __init__(self) -> None:
        self.phases: list[DumbbellPhase] = []

    def begin(self, task, cell) -> None:
        self.task, self.cell = task, cell
        self.dynamics = dynamics_of(cell.model.kinematics)

    def motion(self, phase, trajectory, start_time) -> str:
        self.phases.append(phase)
        return ""

    def wanted(self, reference: np.ndarray) -> np.ndarray:
        return reference

    def torque(self, measurement, reference) -> np.ndarray:
        m, aim = measurement, self.wanted(reference)
        qdd = aim[2] + self.damping * (aim[1] - m.qd) + self.stiffness * (aim[0] - m.q)
        theta = self.cell.theta_true if self.knows_payload else self.cell.theta_arm
        return self.dynamics.torque_regressor(m.q, m.qd, qdd, 0.01) @ theta

    def identify(self, cell, ready) -> Identification:
        return Identification(ready)
