"""Without commands the drives brake by themselves: smoothly, within limits, and they hold what they carry."""

from __future__ import annotations

import numpy as np
import pytest
from simulation_support import random_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.actuator import QuickStop
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import NO_PAYLOAD, payload_from_spec
from safe_sysid.simulation.plant import BRAKING, COMMANDED, HELD, Plant


def test_the_last_command_is_held_until_the_watchdog_barks() -> None:
    model = random_arm(2, 3)
    plant = Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("open"), watchdog_s=0.02)
    command = plant.truth()["tau_applied"][0] + 1.0
    plant.step(command)
    for _ in range(40):
        plant.step(None)
    truth = plant.truth()
    assert truth["mode"][1] == COMMANDED
    np.testing.assert_array_equal(truth["mode"][2:21], HELD)
    np.testing.assert_array_equal(truth["mode"][21:], BRAKING)
    np.testing.assert_array_equal(truth["tau_applied"][2:21], np.tile(command, (19, 1)))
    assert plant.braking
    plant.step(command)
    assert not plant.braking
    assert plant.truth()["mode"][-1] == COMMANDED


@pytest.mark.parametrize("bad", [[np.nan, 0, 0], [np.inf, -np.inf, 0], [1.0, 2.0], [[1.0, 2.0, 3.0]], []])
def test_a_command_that_is_no_command_counts_as_none(bad: list) -> None:
    model = random_arm(2, 3)
    plant = Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("open"))
    command = plant.truth()["tau_applied"][0]
    plant.step(command)
    for _ in range(30):
        plant.step(bad)
    assert plant.rejected_commands == 30
    assert plant.braking
    assert np.all(np.isfinite(plant.truth()["q"]))


@pytest.mark.parametrize("name", ["open", "six_boxes"])
@pytest.mark.parametrize("weight", ["4lb", "8lb"])
def test_the_arm_stands_still_and_clear_before_the_first_command(name: str, weight: str) -> None:
    model, payload, scene = load_robot("kinova_gen3"), payload_from_spec(weight), load_scene(name)
    q0 = scene.start_for(model)
    plant = Plant(model, draw_truth(model, payload, 0), payload, scene, q0=q0)
    clearance, pair = plant.clearance(q0)
    assert clearance > 0.0, pair
    for _ in range(300):
        plant.step(None)
    assert plant.contact_steps == 0
    assert np.abs(plant.truth()["q"] - q0).max() < 1e-6
    assert np.abs(plant.truth()["qd"]).max() < 1e-6


@pytest.mark.parametrize("speed", [-1.2, 0.3, 0.6])
def test_the_quick_stop_follows_its_ramp(speed: float) -> None:
    """On a bare inertia: speed^2 / (2 a) to the stop, deceleration a, and the hold torque is the feed-forward."""
    inertia, period, a = np.array([4.0]), 1e-3, 1.5
    drive = QuickStop(inertia, np.array([50.0]), period)
    q, qd, load = np.zeros(1), np.array([speed]), np.array([7.0])
    drive.trip(q, qd, load)
    slopes = []
    for _ in range(2000):
        acceleration = (drive.torque(q, qd) - load) / inertia
        q = q + period * qd + 0.5 * period**2 * acceleration
        qd = qd + period * acceleration
        slopes.append(acceleration[0])
    assert q[0] == pytest.approx(np.sign(speed) * speed**2 / (2.0 * a), rel=0.02, abs=2e-3)
    assert abs(qd[0]) < 1e-3
    assert drive.torque(q, qd)[0] == pytest.approx(7.0, abs=0.1)
    assert np.abs(slopes).max() < 1.3 * a


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 6))])
def test_a_dead_controller_at_full_speed_with_the_heaviest_payload(seed: int) -> None:
    """0.6 rad/s in every joint, corner arms, adversarial actuators: stops within all limits, and stays."""
    model = load_robot("kinova_gen3")
    payload = payload_from_spec("8lb")
    theta = draw_truth(model, payload, seed, "corner")
    kin, limits, n = model.kinematics, model.limits, model.n
    rng = np.random.default_rng(seed)

    def weight(q: np.ndarray) -> np.ndarray:
        return np.abs(dynamics_of(kin).momentum_rate_regressor(q, np.zeros(n), 1.0) @ theta)

    while True:  # a pose around which the arm can carry this load at all, as a certified plan would have it
        q0 = rng.uniform(-1.3, 1.3, n)
        if all(np.all(weight(q0 + d) < 0.75 * limits.torque) for d in rng.uniform(-0.5, 0.5, (60, n))):
            break
    direction = rng.choice([-0.6, 0.6], n)
    settings = model.settings.actuator
    plant = Plant(
        model, theta, payload, load_scene("open"), seed, q0=q0,
        actuator_mode="adversarial", actuator_abs=settings.torque_abs, actuator_rel=settings.torque_rel,
    )  # fmt: skip
    for k in range(600):
        q, qd = plant.state
        share = min(k / 500, 1.0)
        acceleration = direction / 0.5 * (share < 1.0) + 20.0 * (direction * share - qd)
        plant.step(dynamics_of(kin).torque_regressor(q, qd, acceleration, 0.01) @ theta)
    start = len(plant.truth()["t"])
    assert np.all(np.abs(plant.truth()["qd"][-1]) > 0.55)
    for _ in range(1500):
        plant.step(None)
    truth = {name: column[start:] for name, column in plant.truth().items()}
    assert np.all(np.abs(truth["tau_applied"]) <= limits.torque)
    assert np.all(np.abs(truth["qd"]) <= 0.65)
    assert np.all((truth["q"] >= limits.position_lower) & (truth["q"] <= limits.position_upper))
    assert np.abs(truth["q"] - truth["q"][0]).max() < 0.25
    assert np.abs(truth["qd"][-300:]).max() < 0.01
    rate = np.abs(np.diff(truth["tau_applied"], axis=0)).max()
    assert rate <= 1.0 + 2.0 * (settings.torque_abs + settings.torque_rel * limits.torque.max())  # no jolt


def test_a_mad_last_command_does_not_throw_the_arm() -> None:
    """The controller dies with a full-scale torque on the wire."""
    model = load_robot("kinova_gen3")
    payload = payload_from_spec("4lb")
    plant = Plant(model, draw_truth(model, payload, 0), payload, load_scene("open"), q0=model.settings.home)
    plant.step(model.limits.torque * np.array([1, -1, 1, -1, 1, -1, 1.0]))
    for _ in range(3000):
        plant.step(None)
    truth = plant.truth()
    assert np.all(np.abs(truth["qd"]) < model.limits.velocity)
    assert np.all(np.abs(truth["tau_applied"][1:]) <= model.limits.torque)
    assert np.abs(truth["q"] - model.settings.home).max() < 0.2
    assert np.abs(truth["qd"][-300:]).max() < 0.01


@pytest.mark.parametrize(("n", "rotor"), [(1, 0.0), (4, 0.2), (9, 3.0)])
def test_any_arm_is_stopped(n: int, rotor: float) -> None:
    model = random_arm(n, n, rotor=rotor, bodies=(), allowed=frozenset())
    theta = draw_truth(model, NO_PAYLOAD, n, "uniform")
    plant = Plant(model, theta, NO_PAYLOAD, Scene("open"), n, q0=np.linspace(-1, 1, n))
    for _ in range(250):
        q, qd = plant.state
        plant.step(dynamics_of(model.kinematics).torque_regressor(q, qd, 20.0 * (0.3 - qd), 0.01) @ theta)
    for _ in range(1500):
        plant.step(None)
    assert np.abs(plant.truth()["qd"][-300:]).max() < 0.02
