"""The simulated flexible arm against foreign integrators, its own balance of energy, and textbook formulas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.integrate import solve_ivp

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ConfigError, ModelError, ParameterError
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.flexible import Effects, FlexibleArm, read_effects
from safe_sysid.simulation.flexible.kernel import mass_matrix, rates

pytestmark = pytest.mark.unproved

ROOT = Path(__file__).resolve().parent.parent
#: Of the numbers of the arm that models are trained on, frozen before the first training: another digest is another
#: experiment. Comments and sources are words.
FROZEN = {
    "config/hybrid/panda.yaml": "624979c33ff58e8eb101ed4ff98a39e9f684ec377c72184ffaaa43d8c8af8cfe",
    "config/hybrid/panda_effects.yaml": "fd22deccb15017d14d157a1dfd340cd28372e841b8a682ffff743174b1e49184",
    "urdf/panda_dynamics.urdf": "28a9c15558d1d21f7c9e2cfc1899d71df8ac7d2c10bac9a54874c972e8422c5a",
}
SCALES = (0.0, 0.5, 1.0, 2.0)


@cache
def panda() -> RobotModel:
    return load_robot(ROOT / "config/hybrid/panda.yaml")


def effects(scale: float) -> Effects:
    return read_effects(ROOT / "config/hybrid/panda_effects.yaml", panda().theta_nominal, scale)


def arm(scale: float) -> FlexibleArm:
    return FlexibleArm(panda(), effects(scale), panda().settings.home)


def weight_of(simulated: FlexibleArm) -> np.ndarray:
    return dynamics_of(panda().kinematics).gravity(simulated.theta, simulated.state[:7])


def pushed(simulated: FlexibleArm, ticks: int) -> Iterator[np.ndarray]:
    """Torques that carry the weight and push besides."""
    for k in range(ticks):
        push = np.array([2.0, 3.0, 2.0, 2.0, 1.0, 0.7, 0.4]) * np.sin(8.0e-3 * k + np.arange(7))
        yield weight_of(simulated) + push


def numbers(x: object) -> object:
    """Without sources."""
    if isinstance(x, dict):
        return {key: numbers(value) for key, value in x.items() if key != "source"}
    return [numbers(value) for value in x] if isinstance(x, list) else x


def test_what_models_are_trained_on_is_frozen() -> None:
    for name, digest in FROZEN.items():
        content = (ROOT / name).read_bytes()
        if name.endswith(".yaml"):
            content = json.dumps(numbers(yaml.safe_load(content)), sort_keys=True).encode()
        assert hashlib.sha256(content).hexdigest() == digest, name


def test_mass_matrix_is_that_of_the_regressors() -> None:
    rng, out = np.random.default_rng(1), np.empty((7, 7))
    simulated, dynamics = arm(1.0), dynamics_of(panda().kinematics)
    for q in rng.uniform(-2.0, 2.0, (20, 7)):
        mass_matrix(panda().kinematics.packed, simulated.theta, q, out)
        assert out == pytest.approx(dynamics.mass_matrix(simulated.theta, q), abs=1e-13)


def derivative(simulated: FlexibleArm, y: np.ndarray, torque: np.ndarray) -> np.ndarray:
    out, work = np.empty_like(y), np.empty((9, 7))
    rates(panda().kinematics.packed, simulated.theta, simulated.effects.joints, torque, y, out, work)
    return out


def test_without_effects_it_is_the_rigid_arm() -> None:
    """Inverse dynamics of the package, friction and rotors included, gives back the torque of every state."""
    rng, simulated, dynamics = np.random.default_rng(2), arm(0.0), dynamics_of(panda().kinematics)
    for _ in range(20):
        y = np.zeros(37)
        y[:7], y[7:14], torque = rng.uniform(-1.5, 1.5, 7), rng.normal(0.0, 0.5, 7), rng.normal(0.0, 20.0, 7)
        slope = derivative(simulated, y, torque)
        found = dynamics.inverse_dynamics(panda().theta_nominal, y[:7], y[7:14], slope[7:14], 0.02)
        assert found == pytest.approx(torque, abs=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_energy_is_balanced(scale: float) -> None:
    simulated = arm(scale)
    start = simulated.energy()
    for torque in pushed(simulated, 300):
        simulated.step(torque)
    given, lost = simulated.state[-2:]
    assert abs(given) > 0.01
    assert lost > 0.01
    assert simulated.energy() - start == pytest.approx(given - lost, abs=2e-8)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_motion_is_that_of_a_stiff_solver(scale: float) -> None:
    """Radau with tolerances of 1e-10, torque held for each period."""
    ours, errors = arm(scale), []
    y = ours.state
    for torque in pushed(ours, 60):
        found = solve_ivp(
            lambda _, x, u=torque: derivative(ours, x, u), (0.0, 1e-3), y, "Radau", rtol=1e-10, atol=1e-12
        )
        y = found.y[:, -1]
        ours.step(torque)
        errors.append(np.abs(ours.state[:14] - y[:14]))
    assert np.max(np.abs(y[:7] - panda().settings.home)) > 1e-3, "it moved"
    assert np.max(np.array(errors)[:, :7]) < 2e-8, "rad"
    assert np.max(np.array(errors)[:, 7:]) < 2e-6, "rad/s"


def turned(simulated: FlexibleArm, velocity: float, seconds: float) -> float:
    """Mean torque that turns the first joint, whose axis is vertical, at a velocity; the others carry their weight."""
    y = simulated.state
    y[[7, 21]] = velocity
    simulated.state = y
    slack, ticks, felt = 0.0, round(seconds * 1e3), []
    for _ in range(ticks):
        torque, off = weight_of(simulated), velocity - simulated.state[21]
        slack += 1e-3 * off
        torque[0] = 150.0 * off + 1500.0 * slack
        simulated.step(torque)
        felt.append(torque[0])
    return float(np.mean(felt[ticks // 3 :]))


@pytest.mark.slow
def test_friction_against_velocity_is_stribecks_curve() -> None:
    """A controller turns a joint at constant velocities; the mean of its torque is g(v) + s2 v."""
    e = effects(1.0)
    still = e.joints.gear * [1.0, 0.0, 1.0]  # waves would keep the velocity from being constant
    e = replace(e, joints=e.joints._replace(gear=still, ripple=still, cogging=still))
    coulomb, static, v_s, _, _, viscous = e.joints.friction[:, 0]
    measured, expected = [], []
    for v in (0.01, 0.03, 0.1, 0.4, -0.06):
        measured.append(turned(FlexibleArm(panda(), e, panda().settings.home), v, 2.0 if v == 0.01 else 1.2))
        level = coulomb + (static - coulomb) * np.exp(-((v / v_s) ** 2))
        expected.append(np.sign(v) * level + viscous * v)
    assert measured == pytest.approx(expected, rel=0.01)
    assert measured[0] > 1.2 * coulomb, "it sticks"
    assert measured[2] < 0.85 * measured[0], "friction falls with velocity"
    assert measured[3] > measured[2], "then it grows"


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("joint", [0, 3, 6])
def test_resonance_is_that_of_the_formula(joint: int, locked: bool) -> None:
    """One joint rings, the others are stiff: ``sqrt(K / I)``, with a free motor ``sqrt(K (1 / I + 1 / B))``."""
    e, home = effects(1.0), np.array(panda().settings.home)
    stiffness, rotor = np.full(7, 1e7), np.full(7, 1e8)
    stiffness[joint] = e.joints.flexible[0, joint]
    if not locked:
        rotor[joint] = e.joints.rotor[joint]
    friction = np.zeros((6, 7))
    friction[2], friction[3] = 1.0, np.inf
    still = e.joints.gear * [1.0, 0.0, 1.0]
    joints = e.joints._replace(
        flexible=np.stack([stiffness, np.zeros(7)]), rotor=rotor, friction=friction, gear=still, ripple=still,
        cogging=still,
    )  # fmt: skip
    simulated = FlexibleArm(panda(), replace(e, joints=joints), home)
    weight, y = weight_of(simulated), simulated.state
    y[joint] += 1e-5
    simulated.state = y
    ring = []
    for _ in range(150):
        simulated.step(weight)
        ring.append(simulated.state[joint] - simulated.state[14 + joint])
    inertia = np.empty((7, 7))
    mass_matrix(panda().kinematics.packed, simulated.theta, home, inertia)
    formula = np.sqrt(stiffness[joint] * (1.0 / inertia[joint, joint] + 1.0 / rotor[joint]))
    wave = np.array(ring) - np.mean(ring)
    up = np.flatnonzero((wave[:-1] < 0.0) & (wave[1:] >= 0.0))
    crossings = up - wave[up] / (wave[up + 1] - wave[up])
    period = 1e-3 * (crossings[-1] - crossings[0]) / (len(crossings) - 1)
    assert 2.0 * np.pi / period == pytest.approx(formula, rel=0.01)


def test_bristles_are_passive_at_every_scale() -> None:
    """``s2 Fc > s1 (Fs - Fc)`` [Barabanov2000], so that friction never feeds a motion."""
    for scale in SCALES[1:]:
        coulomb, static, _, _, s1, s2 = effects(scale).joints.friction
        assert np.all(s2 * coulomb > s1 * (static - coulomb))


def test_sensors_are_late_and_round() -> None:
    simulated = arm(2.0)
    positions = [simulated.state[:7]]
    for torque in pushed(simulated, 30):
        simulated.step(torque)
        positions.append(simulated.state[:7])
    counts = simulated.q / simulated.effects.quantum
    assert counts == pytest.approx(np.round(counts), abs=1e-6)
    assert simulated.effects.delay_s == pytest.approx(2e-3)
    assert np.max(np.abs(simulated.q - positions[-3])) <= 0.5001 * simulated.effects.quantum
    exact = arm(0.0)
    for torque in pushed(exact, 30):
        exact.step(torque)
    assert np.array_equal(exact.q, exact.state[:7])
    assert np.array_equal(exact.qd, exact.state[7:14])


def test_what_is_wrong_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "config/hybrid/panda_effects.yaml").read_text()
    bad = tmp_path / "effects.yaml"
    bad.write_text(text.replace("static_over_coulomb: 1.3", "static_over_coulomb: 0.9"))
    with pytest.raises(ConfigError, match=r"friction\.static_over_coulomb"):
        read_effects(bad, panda().theta_nominal)
    bad.write_text(text.replace("  damping: [16.0, 16.0,", "  damping: [16.0,"))
    with pytest.raises(ParameterError, match="6 numbers"):
        read_effects(bad, panda().theta_nominal)
    with pytest.raises(ParameterError, match="scale = -1"):
        read_effects(ROOT / "config/hybrid/panda_effects.yaml", panda().theta_nominal, -1.0)
    simulated = arm(1.0)
    y = simulated.state
    y[7] = 5.0
    simulated.state = y
    with pytest.raises(ModelError, match="at most twice the limits"):
        simulated.step(np.zeros(7))
