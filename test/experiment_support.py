"""A work cell without a cell: the simulated arm with a dumbbell already in its hand, and nothing around it."""

from __future__ import annotations

import numpy as np

from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.studies.experiments.interfaces import CarryTask, DumbbellPhase
from safe_sysid.trajectories.quintic import QuinticTrajectory


class FreeCell:
    """A :class:`safe_sysid.studies.experiments.interfaces.Cell`."""

    def __init__(self, model, dumbbell="4lb", seed=0, q=None, **options):
        self.model, self.held = model, dumbbell
        self._scene = load_scene("open")
        if q is not None:
            options["q0"] = q
        payload = payload_from_spec(dumbbell, grip=model.settings.payload.envelope.center)
        self.plant = build_plant(model, payload, self._scene, seed, **options)
        self.measurement, self.period = self.plant.measurement, self.plant.period

    @property
    def time(self):
        return self.plant.time

    @property
    def truth(self):
        return self.plant.theta_true

    def step(self, torque):
        self.measurement = self.plant.step(torque)
        return self.measurement

    def scene(self):
        return self._scene

    def contacts(self):
        return []

    def pose(self, name):
        return np.zeros(3), np.eye(3)


def motion_about(q, by=0.3, seconds=2.0):
    """From rest to rest, there and back."""
    q = np.asarray(q, float)
    still = np.zeros_like(q)
    middle = np.stack([q + by * np.sign(np.sin(np.arange(len(q)) + 1.0)), still, still])
    ends = np.stack([q, still, still])
    return QuinticTrajectory(np.array([0.0, 0.5, 1.0]) * seconds, np.stack([ends, middle, ends]))


def task_at(q, carry, dumbbell="4lb"):
    """A task whose motions begin and end at one pose."""
    q = np.asarray(q, float)
    return CarryTask(dumbbell, q, QuinticTrajectory.hold(q), carry, None)


def run_phase(driver, cell, phase, trajectory):
    """As the choreography does: announce, then track to the end; returns largest error and largest torque (n,)."""
    start = cell.measurement.stamp
    assert driver.motion(phase, trajectory, start) == ""
    error, most = np.zeros(cell.model.n), np.zeros(cell.model.n)
    while cell.measurement.stamp < start + trajectory.duration - 0.5 * cell.period:
        reference = trajectory.state(cell.measurement.stamp - start)
        torque = driver.torque(cell.measurement, reference)
        error = np.maximum(error, np.abs(reference[0] - cell.measurement.q))
        most = np.maximum(most, np.abs(torque))
        cell.step(torque)
    return error, most


def drive(driver, cell, task, ready):
    """Lift, identify, carry; returns the identification, and error and torque of the carry."""
    driver.begin(task, cell)
    run_phase(driver, cell, DumbbellPhase.LIFT, QuinticTrajectory.hold(ready, 0.3))
    found = driver.identify(cell, ready)
    if np.any(found.rest != ready):
        back = QuinticTrajectory.to_rest(np.stack([found.rest, 0 * ready, 0 * ready]), ready, 4.0)
        run_phase(driver, cell, DumbbellPhase.RETURN, back)
    run_phase(driver, cell, DumbbellPhase.RETURN, QuinticTrajectory.hold(ready, 0.3))
    return found, run_phase(driver, cell, DumbbellPhase.CARRY, task.carry)
