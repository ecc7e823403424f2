"""The plant with rotors on moving links (by Newton) against rotors as bodies in Pinocchio, and our regressors."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from arm_factory import RotorArm, rotor_arm
from simulation_support import random_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import NO_MOTORS
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.payloads import NO_PAYLOAD
from safe_sysid.simulation.plant import Plant


def plant_of(arm: RotorArm, rng: np.random.Generator, friction: float = 1.0, **options: object) -> Plant:
    n = len(arm.kin.axis)
    model = replace(random_arm(n, n, bodies=(), allowed=frozenset()), kinematics=arm.kin)
    theta = arm.theta.copy()
    theta[10 * n : 12 * n] = friction * rng.uniform(0.1, 1.0, 2 * n)
    theta[13 * n :] = friction * rng.normal(size=n)
    return Plant(model, theta, NO_PAYLOAD, Scene("open"), **options)


@pytest.mark.parametrize("n", [2, 3, 5, 7, 9])
def test_accelerations_are_those_of_an_arm_with_spinning_bodies(n: int) -> None:
    rng = np.random.default_rng(n)
    arm = rotor_arm(n, rng)
    plant = plant_of(arm, rng)
    fc, fv, _, beta = plant.theta_true[10 * n :].reshape(4, n)
    for _ in range(5):
        q, tau = rng.uniform(-3, 3, n), 20.0 * rng.normal(size=n)
        qd = rng.choice([-1.0, 1.0], n) * rng.uniform(0.01, 2.0, n)
        felt = tau - beta - fc * np.sign(qd) - fv * qd
        expected = np.linalg.solve(arm.inertia(q), felt - arm.torque(q, qd, np.zeros(n)))
        simulated = mujoco.MjData(plant.engine.model)
        simulated.qpos[:], simulated.qvel[:], simulated.qfrc_applied[:] = q, qd, tau - beta
        found = plant.engine.gears.accelerate(simulated)
        size = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9 * size)
        assert np.abs(simulated.qacc - expected).max() > 1e-4 * size, "without the reaction it is another arm"
        ours = dynamics_of(arm.kin).torque_regressor(q, qd, found, 0.0) @ plant.theta_true
        np.testing.assert_allclose(ours, tau, rtol=1e-8, atol=1e-8 * np.abs(tau).max())


def test_a_free_arm_keeps_its_energy() -> None:
    rng = np.random.default_rng(4)
    arm = rotor_arm(5, rng)
    plant = plant_of(arm, rng, friction=0.0)
    plant.engine.model.opt.gravity[:] = 0.0
    data = mujoco.MjData(plant.engine.model)
    data.qpos[:], data.qvel[:] = rng.uniform(-1, 1, 5), rng.normal(size=5)

    def energy() -> float:
        return 0.5 * float(data.qvel @ arm.inertia(data.qpos) @ data.qvel)

    before = energy()
    plant.engine.gears.advance(data, 500)
    assert data.time == pytest.approx(500 * plant.engine.model.opt.timestep)
    assert energy() == pytest.approx(before, rel=1e-9)


def test_momentum_is_the_integral_of_torque_as_identification_takes_it() -> None:
    rng = np.random.default_rng(8)
    arm = rotor_arm(4, rng)
    plant = plant_of(arm, rng, friction=0.0, substeps=4, watchdog_s=1.0)
    kin, theta, steps = arm.kin, plant.theta_true, 200
    rest = -dynamics_of(kin).momentum_rate_regressor(plant.state[0], np.zeros(4)) @ theta
    states, total = [plant.state], np.zeros(4)
    for k in range(steps):
        # Held for two periods, so that the kinks lie where Simpson's parabolas meet.
        command = rest + 3.0 * np.sin(0.05 * (k - k % 2) + np.arange(4))
        plant.step(command)
        states.append(plant.state)
        total += plant.period * command
    q, qd = (np.array(x) for x in zip(*states, strict=True))
    weights = np.full(steps + 1, 2.0)
    weights[1::2], weights[0], weights[-1] = 4.0, 1.0, 1.0
    errors = []
    for motors in (kin.motors, NO_MOTORS):
        used = kin._replace(motors=motors)
        growth = np.diff((dynamics_of(used).momentum_regressor(q[[0, -1]], qd[[0, -1]]) @ theta), axis=0)[0]
        rate = dynamics_of(used).momentum_rate_regressor(q, qd) @ theta
        errors.append(np.abs(growth - total - plant.period / 3.0 * weights @ rate).max())
    assert errors[0] < 1e-8
    assert errors[1] > 1e-4, "an arm without the reaction does not explain the run"
