"""What holds for every law behind the one interface, and the laws without a theorem of their own."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from rigid_arm import RigidArm, in_use, slotine_li
from urdf_factory import random_arm, write_arm

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.laws import make_law
from safe_sysid.control.laws.adaptive_robust import AdaptiveRobustLaw
from safe_sysid.control.laws.armour import ArmourLaw
from safe_sysid.control.laws.gravity_pid import GravityPidLaw
from safe_sysid.control.laws.inverse_dynamics import ComputedTorqueLaw, ImpedanceLaw
from safe_sysid.control.laws.law import ControlLaw, ModelInUse
from safe_sysid.control.laws.passivity_adaptive import PassivityAdaptiveLaw
from safe_sysid.control.settings import ComputedTorqueSettings, GravityPidSettings, ImpedanceSettings
from safe_sysid.errors import ConfigError
from safe_sysid.extensions import LAWS
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec


def truth(model: RobotModel, seed: int = 0) -> np.ndarray:
    return draw_truth(model, payload_from_spec("8lb"), np.random.default_rng(seed), mode="corner")


def run(law: ControlLaw, model: RobotModel, use: ModelInUse, steps: int = 50) -> np.ndarray:
    """Torques (steps, n) of a law along made-up measurements."""
    rng, out = np.random.default_rng(7), []
    home, z = np.array(model.settings.home), np.zeros(model.n)
    law.reset(0.0, home, z)
    for k in range(steps):
        q, qd = home + 0.01 * rng.normal(size=model.n), 0.05 * rng.normal(size=model.n)
        out.append(law.step(1e-3 * k, q, qd, np.stack([home, z, z]), use).copy())
    return np.array(out)


@pytest.mark.parametrize("name", LAWS)
def test_every_law_keeps_the_interface(model: RobotModel, gains: ControllerGains, name: str) -> None:
    law = make_law(name, model, gains)
    assert isinstance(law, ControlLaw)
    assert law.name == name
    use, home, z = in_use(model.arm_prior, model.theta_nominal), np.array(model.settings.home), np.zeros(model.n)
    reference = np.stack([home + 0.01, z, z, z])  # what the controller hands over has the jerk too
    inputs = [x.copy() for x in (home, z, reference, use.nominal, use.mid, use.rad)]
    law.reset(0.0, home, z)
    first = law.step(0.0, home, z, reference, use)
    assert first.shape == (model.n,)
    assert np.all(np.isfinite(first))
    assert law.step(1e-3, home, z, reference, use) is first  # the same array every time
    for given, before in zip((home, z, reference, use.nominal, use.mid, use.rad), inputs, strict=True):
        np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("name", LAWS)
def test_reset_forgets_everything(model: RobotModel, gains: ControllerGains, name: str) -> None:
    law, use = make_law(name, model, gains), in_use(model.arm_prior, model.theta_nominal)
    np.testing.assert_array_equal(run(law, model, use), run(law, model, use))


@pytest.mark.parametrize("name", LAWS)
def test_a_step_keeps_no_memory(model: RobotModel, gains: ControllerGains, name: str) -> None:
    law, use = make_law(name, model, gains), in_use(model.arm_prior, model.theta_nominal)
    home, z = np.array(model.settings.home), np.zeros(model.n)
    reference = np.stack([home + 1e-3, z, z])
    law.reset(0.0, home, z)
    for _ in range(2100):  # Python keeps up to 2000 tuples of the length of a call's arguments
        law.step(0.0, home, z, reference, use)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for k in range(200):
        law.step(1e-3 * k, home, z, reference, use)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 4096


@pytest.mark.parametrize("name", LAWS)
def test_every_law_holds_a_heavy_payload_in_closed_loop(model: RobotModel, gains: ControllerGains, name: str) -> None:
    """From rest with the prior's middle as nominal, 20 N m of gravity wrong: no law may let go of the arm."""
    law, use = make_law(name, model, gains), in_use(model.arm_prior)
    arm = RigidArm(model, truth(model), np.array(model.settings.home), substeps=1)
    reference = np.stack([arm.q, 0 * arm.q, 0 * arm.q])
    law.reset(0.0, arm.q, arm.qd)
    worst = 0.0
    for k in range(500):
        arm.step(law.step(1e-3 * k, arm.q, arm.qd, reference, use), 1e-3)
        worst = max(worst, float(np.abs(reference[0] - arm.q).max()))
    assert worst < 0.02
    assert np.abs(arm.qd).max() < 0.02


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ({"controller.laws.armour.alpha": -1.0}, "alpha"),
        ({"controller.laws.armour.K_r": [5.0, 5.0]}, "7 numbers, one per joint"),
        ({"controller.laws.impedance.stiffness": [1.0] * 8}, "7 numbers, one per joint"),
        ({"controller.laws.gravity_pid.K_p": [1.0] * 8}, "7 numbers, one per joint"),
        ({"controller.laws.armor": {}}, "armor"),
    ],
)
def test_wrong_settings_are_named(override: dict[str, object], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        load_robot("kinova_gen3", **override)


def test_settings_reach_the_law(gains: ControllerGains) -> None:
    k_p = [120.0, 200.0, 120.0, 120.0, 120.0, 20.0, 20.0]
    laws = {"armour.V_max": 0.5, "impedance.stiffness": 9.0}
    laws |= {"gravity_pid.K_p": k_p, "gravity_pid.K_d": 5.0, "gravity_pid.K_i": 0.1}
    model = load_robot("kinova_gen3", **{f"controller.laws.{key}": value for key, value in laws.items()})
    assert make_law("armour", model, gains).V_max == 0.5
    np.testing.assert_allclose(make_law("impedance", model, gains)._gains[0], 9.0)
    pid = make_law("gravity_pid", model, gains)
    np.testing.assert_array_equal(pid.stiffness, k_p)
    np.testing.assert_array_equal([pid.damping, pid.integral_gain], [[5.0] * 7, [0.1] * 7])


@pytest.mark.parametrize("seed", range(5))
def test_computed_torque_makes_the_error_linear(model: RobotModel, seed: int) -> None:
    """Dde + K_v de + K_p e = 0 exactly, in an arm that Pinocchio accelerates, if the parameters are right."""
    rng, theta = np.random.default_rng(seed), truth(model, seed)
    law = ComputedTorqueLaw(model, ComputedTorqueSettings(bandwidth=11.0, damping_ratio=0.7))
    q, qd = rng.uniform(-2, 2, (2, model.n))
    reference = rng.uniform(-2, 2, (3, model.n))
    torque = law.step(0.0, q, qd, reference, in_use(model.arm_prior, theta))
    qdd = RigidArm(model, theta, q).acceleration(q, qd, torque)
    e, de = reference[0] - q, reference[1] - qd
    np.testing.assert_allclose(reference[2] - qdd, -2 * 0.7 * 11.0 * de - 121.0 * e, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 3, 9])
def test_laws_work_on_any_arm(tmp_path: Path, n: int) -> None:
    """Random axes and frames: what each law says of itself is true there too, not only on the default robot."""
    rng = np.random.default_rng(n)
    arm = load_robot(write_arm(tmp_path, *random_arm(rng, n)))
    box, theta, z = arm.arm_prior, arm.theta_nominal, np.zeros(n)
    use = ModelInUse(theta, theta, box.rad)
    laws = [ArmourLaw(arm), PassivityAdaptiveLaw(arm), AdaptiveRobustLaw(arm), GravityPidLaw(arm)]
    linear, soft = ComputedTorqueLaw(arm), ImpedanceLaw(arm)
    plant = RigidArm(arm, theta, z)
    for _ in range(10):
        q, qd = rng.uniform(-2, 2, (2, n))
        reference = np.stack([q, qd, rng.uniform(-2, 2, n)]) + 0.03 * rng.normal(size=(3, n))
        e, de = reference[0] - q, reference[1] - qd
        for law in (linear, soft):
            k_p, k_v, _ = law._gains
            qdd = plant.acceleration(q, qd, law.step(0.0, q, qd, reference, use))
            np.testing.assert_allclose(qdd, reference[2] + k_p * e + k_v * de, rtol=1e-8, atol=1e-7)
        still = np.stack([q, z, z])
        for law in laws:  # with exact parameters and no error every one of them balances the arm
            law.reset(0.0, q, z)
            torque = law.step(0.0, q, z, still, use)
            assert np.abs(plant.acceleration(q, z, torque)).max() < 1e-8
        armour = laws[0]
        torque = armour.step(0.0, q, qd, reference, in_use(box))
        w_s, r = slotine_li(arm, armour.K_r, q, qd, reference)
        rate = r @ (w_s @ np.where(r @ w_s > 0.0, box.upper, box.lower) - torque)
        assert rate <= armour.alpha * (armour.V_max - armour.energy) + 1e-9 * (1.0 + abs(rate))


@pytest.mark.parametrize("seed", range(5))
def test_impedance_answers_external_torque_as_mass_spring_damper(model: RobotModel, seed: int) -> None:
    """Hybrid paper, eq. 22: M (qdd - qdd_d) + B (qd - qd_d) + K (q - q_d) = tau_ext, the world pushing for real."""
    rng, theta = np.random.default_rng(seed), truth(model, seed)
    mass, stiffness = rng.uniform(0.5, 20.0, model.n), rng.uniform(10, 400, model.n)
    law = ImpedanceLaw(model, ImpedanceSettings(inertia=tuple(mass), stiffness=tuple(stiffness), damping_ratio=0.8))
    q, qd = rng.uniform(-2, 2, (2, model.n))
    reference, external = rng.uniform(-2, 2, (3, model.n)), rng.uniform(-10, 10, model.n)
    law.reset(0.0, q, qd)
    law.external[:] = external
    torque = law.step(0.0, q, qd, reference, in_use(model.arm_prior, theta))
    qdd = RigidArm(model, theta, q).acceleration(q, qd, torque + external)
    damping = 2 * 0.8 * np.sqrt(mass * stiffness)
    left = mass * (qdd - reference[2]) + damping * (qd - reference[1]) + stiffness * (q - reference[0])
    np.testing.assert_allclose(left, external, rtol=1e-8, atol=1e-8)
    law.reset(0.0, q, qd)
    assert np.all(law.external == 0.0)


def test_pid_stands_still_where_gravity_is_known_and_integrates_what_is_not(model: RobotModel) -> None:
    theta, law = truth(model), GravityPidLaw(model)
    start, z = np.array(model.settings.home), np.zeros(model.n)
    arm, reference = RigidArm(model, theta, start, substeps=1), np.stack([start, z, z])
    law.reset(0.0, start, z)
    torque = law.step(0.0, start, z, reference, in_use(model.arm_prior, theta))
    assert np.abs(arm.acceleration(start, z, torque)).max() < 1e-10
    # With the empty hand as nominal, the integral ends as the weight of the payload.
    law.reset(0.0, start, z)
    use = in_use(model.arm_prior, model.theta_nominal)
    for k in range(1500):
        arm.step(law.step(1e-3 * k, arm.q, arm.qd, reference, use), 1e-3)
    assert np.abs(arm.q - start).max() < 1e-5
    missing = law.step(2.0, start, z, reference, in_use(model.arm_prior, theta)) - law.integral
    known = law.step(2.0, start, z, reference, use) - law.integral
    assert np.abs(missing - known).max() > 5.0
    np.testing.assert_allclose(law.integral, missing - known, atol=0.05)


def test_pid_leaves_motion_to_its_gains(model: RobotModel) -> None:
    """Gravity alone comes from the model: with no error, speed and desired acceleration change nothing."""
    law, use = GravityPidLaw(model), in_use(model.arm_prior, model.theta_nominal)
    q, qd, qdd = np.random.default_rng(6).uniform(-2, 2, (3, model.n))
    law.reset(0.0, q, qd)
    moving = law.step(0.0, q, qd, np.stack([q, qd, qdd]), use).copy()
    law.reset(0.0, q, qd)
    np.testing.assert_array_equal(moving, law.step(0.0, q, 0 * qd, np.stack([q, 0 * qd, 0 * qdd]), use))


def test_pid_integral_is_limited_and_leaves_its_limit_at_once(model: RobotModel) -> None:
    law, use = GravityPidLaw(model, GravityPidSettings(windup=0.3)), in_use(model.arm_prior, model.theta_nominal)
    start, z = np.array(model.settings.home), np.zeros(model.n)
    law.reset(0.0, start, z)
    for k in range(5000):
        law.step(0.01 * k, start, z, np.stack([start + 0.5, z, z]), use)
    np.testing.assert_array_equal(law.integral, 0.3 * model.limits.torque)
    law.step(50.0, start, z, np.stack([start - 0.5, z, z]), use)
    assert np.all(law.integral < 0.3 * model.limits.torque)


def test_stamps_that_do_not_advance_add_nothing(model: RobotModel, gains: ControllerGains) -> None:
    """Integrals and estimates take time from stamps: one that repeats or goes back must not move them."""
    home, z = np.array(model.settings.home), np.zeros(model.n)
    use, reference = in_use(model.arm_prior), np.stack([home + 0.05, z, z])
    for name in ("gravity_pid", "adaptive_robust", "passivity_adaptive"):
        law = make_law(name, model, gains)
        law.reset(0.0, home, z)
        law.step(1.0, home, z, reference, use)
        first = law.step(1.0, home, z, reference, use).copy()
        np.testing.assert_array_equal(law.step(0.5, home, z, reference, use), first)
