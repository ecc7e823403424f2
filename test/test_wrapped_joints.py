"""A driver that gives continuous joints within +-pi: controller, planner and identifier work across the seam."""

from __future__ import annotations

import numpy as np

from safe_sysid.control.controller import ControllerState
from safe_sysid.episode import Episode
from safe_sysid.identification.equations.measurements import Sample
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.simulation import Plant, payload_from_spec
from safe_sysid.simulation.assembly import build_plant


class WrappedPlant:
    """The arm behind such a driver."""

    def __init__(self, plant: Plant) -> None:
        self._plant, self.seams = plant, 0
        self._before: np.ndarray | None = None

    def _wrapped(self, m: Sample) -> Sample:
        q = np.where(self._plant.model.continuous, (m.q + np.pi) % (2.0 * np.pi) - np.pi, m.q)
        if self._before is not None:
            self.seams += int(np.sum(np.abs(q - self._before) > np.pi))
        self._before = q
        return m._replace(q=q)

    @property
    def measurement(self) -> Sample:
        return self._wrapped(self._plant.measurement)

    def step(self, torque: np.ndarray | None) -> Sample:
        return self._wrapped(self._plant.step(torque))


def test_a_run_across_the_seam_is_tracked_and_its_bounds_hold() -> None:
    """Joints 1 and 7 start some way before +pi, and the exciting motion takes them across."""
    model = load_robot("kinova_gen3", **{"driver.wraps_continuous": True})
    scene, start = load_scene("open"), np.array(model.settings.home)
    start[[0, 6]] = np.pi - 0.2, np.pi - 0.3
    plant = build_plant(model, payload_from_spec("5lb"), scene, 3, "uniform", "uniform", "random", q0=start)
    wrapped = WrappedPlant(plant)
    result = Episode(model, wrapped, scene, plans=1, seed=0).run()
    assert wrapped.seams >= 1
    assert result.refusals == []
    assert ControllerState.TRACKING.value in result.states
    assert result.states[-1] == ControllerState.HOLDING.value
    assert np.max(result.energy) <= result.gains.V_max
    box = result.announced[-1][1]
    assert box.contains(plant.theta_true)
    assert box.seq >= 1
    assert box.rad[-1] <= model.arm_prior.rad[-1]
