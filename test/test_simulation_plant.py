"""The plant obeys the equations that everything else assumes; what it does not obey is measured here and declared."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pinocchio as pin
import pytest
from simulation_support import holds, pinocchio_arm, random_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ModelError
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.noise import NoiseModel
from safe_sysid.simulation.payloads import NO_PAYLOAD, payload_from_spec
from safe_sysid.simulation.plant import SMOOTH_RESIDUAL_BOUND, Plant

OPEN = Scene("open")


def plant_of(model: RobotModel, seed: int = 0, mode: str = "corner", **options: object) -> Plant:
    theta = options.pop("theta", None)
    theta = draw_truth(model, NO_PAYLOAD, seed, mode) if theta is None else theta
    return Plant(model, theta, NO_PAYLOAD, OPEN, seed, **options)


def without_contacts(seed: int, n: int, **options: object) -> RobotModel:
    return random_arm(seed, n, bodies=(), allowed=frozenset(), **options)


def inertia(model: RobotModel, theta: np.ndarray, q: np.ndarray) -> np.ndarray:
    n = model.n  # all columns at once: a quarter of the time of mass_matrix
    return dynamics_of(model.kinematics).momentum_regressor(np.tile(q, (n, 1)), np.eye(n)) @ theta


def torques(k: int, n: int, size: float = 1.0) -> np.ndarray:
    """Something that shakes every joint and reverses it now and then."""
    j = np.arange(n)
    return size * (6.0 * np.sin(0.02 * k + j) + 3.0 * np.sign(np.sin(0.013 * k + 2.0 * j)))


@pytest.mark.parametrize("n", range(1, 10))
def test_accelerations_agree_with_pinocchio_and_with_our_regressor(n: int) -> None:
    """Forward dynamics of the drawn arm at random states: ABA with rotor inertia, friction and offset added by hand."""
    model = without_contacts(n, n)
    plant = plant_of(model, n)
    theta = plant.theta_true
    arm = pinocchio_arm(model, theta)
    data, dynamics = arm.createData(), dynamics_of(model.kinematics)
    fc, fv, _, beta = theta[10 * n :].reshape(4, n)
    rng = np.random.default_rng(n)
    for _ in range(10):
        q, tau = rng.uniform(-3, 3, n), 20.0 * rng.normal(size=n)
        qd = rng.choice([-1.0, 1.0], n) * rng.uniform(0.01, 2.0, n)  # slip
        simulated = mujoco.MjData(plant.engine.model)
        simulated.qpos[:], simulated.qvel[:], simulated.qfrc_applied[:] = q, qd, tau - beta
        mujoco.mj_forward(plant.engine.model, simulated)
        expected = pin.aba(arm, data, q, qd, tau - fc * np.sign(qd) - fv * qd - beta)
        np.testing.assert_allclose(simulated.qacc, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
        predicted = dynamics.torque_regressor(q, qd, simulated.qacc.copy(), 0.0) @ theta
        np.testing.assert_allclose(predicted, tau, rtol=0, atol=1e-9 * np.abs(tau).max())


def test_coulomb_friction_is_bounded_monotone_and_full_above_its_transition() -> None:
    n = 3
    model = without_contacts(2, n, coulomb=4.0, transition=0.02)
    plant = plant_of(model)
    v_s = plant.coulomb_velocity
    np.testing.assert_allclose(v_s, 0.002)
    fc = plant.theta_true[10 * n : 11 * n]
    simulated = mujoco.MjData(plant.engine.model)
    for speed in (-2.0, -1.0, -0.3, 0.0, 0.5, 1.0, 1.0001, 50.0):
        simulated.qvel[:] = speed * v_s
        mujoco.mj_forward(plant.engine.model, simulated)
        np.testing.assert_allclose(simulated.qfrc_actuator, -fc * np.clip(speed, -1.0, 1.0), rtol=1e-14)


def balance_error(plant: Plant, steps: int, size: float = 1.0, fine: int = 24) -> np.ndarray:
    """Error (steps, n) of every period in ``H qd |  = int C^T qd - g - friction + tau``, N m s.

    The true solution over the period from the plant's own state: our regressors, fine Runge-Kutta steps, the plant's
    friction law. It shares no code with MuJoCo.
    """
    model, theta, n, kin = plant.model, plant.theta_true, plant.model.n, plant.model.kinematics
    fc, v_s = theta[10 * n : 11 * n], plant.coulomb_velocity
    smooth = theta.copy()
    smooth[10 * n : 11 * n] = 0.0

    def acceleration(q: np.ndarray, qd: np.ndarray, tau: np.ndarray) -> np.ndarray:
        bias = dynamics_of(kin).torque_regressor(q, qd, np.zeros(n), 0.0) @ smooth
        return np.linalg.solve(inertia(model, theta, q), tau - bias - fc * np.clip(qd / v_s, -1.0, 1.0))

    errors = np.empty((steps, n))
    hold = plant.truth()["tau_applied"][-1]
    h = plant.period / fine
    for k in range(steps):
        q, qd = (plant.truth()[name][-1].copy() for name in ("q", "qd"))
        tau = hold + torques(k, n, size)
        plant.step(tau)
        np.testing.assert_array_equal(plant.truth()["tau_applied"][-1], tau)
        for _ in range(fine):
            k1 = acceleration(q, qd, tau)
            k2 = acceleration(q + h / 2 * qd, qd + h / 2 * k1, tau)
            k3 = acceleration(q + h / 2 * (qd + h / 2 * k1), qd + h / 2 * k2, tau)
            k4 = acceleration(q + h * (qd + h / 2 * k2), qd + h * k3, tau)
            q, qd = q + h * qd + h * h / 6 * (k1 + k2 + k3), qd + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        end = plant.truth()
        errors[k] = inertia(model, theta, end["q"][-1]) @ end["qd"][-1] - inertia(model, theta, q) @ qd
    return errors


@pytest.mark.parametrize(("n", "rotor"), [(7, 8.0), (4, 0.0)])
def test_smooth_motion_keeps_the_momentum_balance(n: int, rotor: float) -> None:
    model = without_contacts(3, n, coulomb=0.0, rotor=rotor)
    theta = draw_truth(model, NO_PAYLOAD, 1, "corner")
    theta[10 * n : 11 * n] = 0.0
    plant = plant_of(model, theta=theta, q0=np.linspace(-1, 1, n))
    errors = balance_error(plant, 100, np.sqrt(rotor + 0.3), fine=6)
    assert np.abs(plant.truth()["qd"]).max() > 0.1
    assert np.abs(errors).sum(axis=0).max() < SMOOTH_RESIDUAL_BOUND


MILD = [pytest.param(*case, marks=pytest.mark.slow) for case in ((8.0, 0.05, 0), (2.0, 0.5, 1))]


@pytest.mark.parametrize(("rotor", "coulomb", "seed"), [*MILD, (0.3, 0.5, 2)])
def test_coulomb_friction_keeps_the_declared_residual(rotor: float, coulomb: float, seed: int) -> None:
    n = 4
    model = without_contacts(seed, n, coulomb=coulomb, rotor=rotor)
    plant = plant_of(model, seed, q0=np.linspace(-1, 1, n))
    errors = balance_error(plant, 110, 2.0 * np.sqrt(rotor + 0.3))
    truth = plant.truth()
    reversals = (np.diff(np.sign(truth["qd"]), axis=0) != 0).sum(axis=0)
    assert reversals.max() > 0
    acceleration = np.abs(np.diff(truth["qd"], axis=0)).max() / plant.period
    # Where a joint passes through the kinks at +-v_s, Simpson's weights miss its friction by at most 0.06 h a / v_s of
    # Fc h, and by Fc h at the very most: a mean of torques in [-Fc, Fc], friction that the model allows.
    h = plant.period / plant.substeps
    share = np.minimum(1.0, 0.06 * h * acceleration / plant.coulomb_velocity)
    declared = SMOOTH_RESIDUAL_BOUND + share * h * plant.theta_true[10 * n : 11 * n]
    # A reversal has two kinks, a window may hold several; errors of one joint reach the others through H.
    assert np.all(np.abs(errors).max(axis=0) <= declared.max())
    assert np.all(np.abs(errors).sum(axis=0) <= 2.0 * max(1, reversals.max()) * declared.max())
    assert np.all(declared <= SMOOTH_RESIDUAL_BOUND + plant.theta_true[10 * n : 11 * n] * plant.period)


def test_energy_is_kept_without_torque_and_friction() -> None:
    n = 5
    model = without_contacts(8, n, coulomb=0.0)
    theta = model.theta_nominal.copy()
    theta[10 * n : 12 * n] = theta[13 * n :] = 0.0
    plant = plant_of(model, theta=theta, q0=np.linspace(0.2, 1.4, n))

    def energy(q: np.ndarray, qd: np.ndarray) -> float:
        rotation, origin = forward_kinematics(model.kinematics, q)
        moment = sum(theta[10 * j] * origin[j] + rotation[j] @ theta[10 * j + 1 : 10 * j + 4] for j in range(n))
        return 0.5 * qd @ inertia(model, theta, q) @ qd - model.kinematics.gravity @ moment

    for _ in range(800):
        plant.step(np.zeros(n))
    truth = plant.truth()
    assert np.abs(truth["qd"][-1]).max() > 0.5
    energies = [energy(truth["q"][k], truth["qd"][k]) for k in (0, 200, 400, 600, 800)]
    swing = 0.5 * truth["qd"][-1] @ inertia(model, theta, truth["q"][-1]) @ truth["qd"][-1]
    assert np.ptp(energies) < 1e-9 * swing


def test_stamps_and_efforts_follow_the_convention() -> None:
    """JointState k carries the state at t_k and the torque that was held in (t_{k-1}, t_k]."""
    n = 2
    plant = plant_of(random_arm(1, n), start_time=5.0)
    assert plant.measurement.stamp == 5.0
    for k in range(1, 60):
        command = torques(k, n)
        m = plant.step(command)
        assert m.stamp == 5.0 + k * plant.period
        np.testing.assert_array_equal(m.effort, command)
        np.testing.assert_array_equal(m.q, plant.truth()["q"][-1])
    truth = plant.truth()
    assert len(truth["t"]) == 60
    np.testing.assert_array_equal(truth["tau_commanded"][7], torques(7, n))
    # One step of the equations says which interval a torque belongs to.
    p = [inertia(plant.model, plant.theta_true, truth["q"][k]) @ truth["qd"][k] for k in (30, 31)]
    middle = 0.5 * (truth["q"][30] + truth["q"][31]), 0.5 * (truth["qd"][30] + truth["qd"][31])
    rate = dynamics_of(plant.model.kinematics).momentum_rate_regressor(*middle, plant.coulomb_velocity[0])
    felt = (p[1] - p[0]) / plant.period - rate @ plant.theta_true
    np.testing.assert_allclose(felt, truth["tau_applied"][31], atol=2e-2)


def test_the_same_seed_gives_the_same_run() -> None:
    model = random_arm(6, 3)
    noise = NoiseModel("uniform", velocity_error=1e-3, position_error=1e-4)
    options = {"noise": noise, "actuator_mode": "random", "actuator_abs": 0.02, "actuator_rel": 0.002}
    runs = []
    for seed in (4, 4, 5):
        plant = Plant(model, model.theta_nominal, NO_PAYLOAD, OPEN, seed, **options)
        for k in range(50):
            plant.step(torques(k, 3))
        runs.append(plant.truth())
    for name in runs[0]:
        np.testing.assert_array_equal(runs[0][name], runs[1][name])
    assert np.any(runs[0]["effort"] != runs[2]["effort"])
    assert np.any(runs[0]["tau_applied"] != runs[2]["tau_applied"])


def test_effort_can_be_an_echo_of_the_command() -> None:
    plant = plant_of(random_arm(1, 2), torque_source="command", actuator_mode="constant", actuator_abs=1.0)
    m = plant.step(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(m.effort, [1.0, 2.0])
    assert np.all(plant.truth()["tau_applied"][-1] != m.effort)


def test_drives_saturate() -> None:
    plant = plant_of(random_arm(1, 2), torque_limit=[10.0, 20.0])
    plant.step(np.array([1e6, -1e6]))
    np.testing.assert_array_equal(plant.truth()["tau_applied"][-1], [10.0, -20.0])
    np.testing.assert_array_equal(plant.truth()["tau_commanded"][-1], [1e6, -1e6])


def test_the_log_outgrows_its_first_block_and_is_saved(tmp_path: Path) -> None:
    model = without_contacts(1, 1)
    plant = plant_of(model)
    positions = [plant.step(np.array([0.1])).q for _ in range(1000)]
    np.testing.assert_array_equal(plant.truth()["q"][1:], positions)
    with pytest.raises(ValueError, match="read-only"):
        plant.truth()["q"][0] = 1.0
    plant.step(np.array([0.2]))  # reading does not freeze the log itself
    plant.save_log(tmp_path / "truth.npz")
    with np.load(tmp_path / "truth.npz") as saved:
        np.testing.assert_array_equal(saved["q"], plant.truth()["q"])
        np.testing.assert_array_equal(saved["theta_true"], plant.theta_true)
        assert str(saved["scene"]) == "open"


def test_a_simulation_that_blows_up_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = plant_of(without_contacts(1, 2), torque_limit=[1e300, 1e300])
    monkeypatch.chdir(tmp_path)

    def run() -> None:
        for _ in range(50):
            plant.step([1e250, -1e250])

    with pytest.raises(ModelError, match=r"simulated velocity .* expected finite numbers"):
        run()
    assert not list(tmp_path.iterdir())  # MuJoCo's MUJOCO_LOG.TXT


def test_a_plant_is_built_from_what_the_settings_declare_and_keeps_the_bounds_in_a_run() -> None:
    model = load_robot("kinova_gen3", **{"measurement.velocity_error": 1e-3})
    scene, payload = load_scene("six_boxes"), payload_from_spec("5lb")
    measured, actuator = model.settings.measurement, model.settings.actuator
    runs = []
    for noise, drives in (("uniform", "random"), ("adversarial", "adversarial")):
        plant = build_plant(model, payload, scene, 7, noise, actuator=drives)
        hold = plant.truth()["tau_applied"][0]
        for k in range(60):
            plant.step(hold + torques(k, 7, 0.1))
        runs.append(plant)
        truth = plant.truth()
        assert holds(truth["effort"], truth["tau_applied"], measured.torque_abs, measured.torque_rel)
        assert holds(truth["tau_applied"], truth["tau_commanded"], actuator.torque_abs, actuator.torque_rel)
        assert holds(truth["qd_measured"], truth["qd"], 1e-3, 0.0)
        np.testing.assert_array_equal(truth["q_measured"], truth["q"])
        assert np.abs(truth["effort"] - truth["tau_applied"]).max() > 0.9 * measured.torque_abs
        assert np.abs(truth["tau_applied"] - truth["tau_commanded"]).max() > 0.9 * actuator.torque_abs
    one, two = runs
    np.testing.assert_array_equal(one.theta_true, two.theta_true)  # one arm, two kinds of noise
    assert model.arm_prior.contains(one.theta_true)
    np.testing.assert_array_equal(one.truth()["q"][0], scene.start)
    assert np.any(build_plant(model, payload, scene, 8).theta_true != one.theta_true)


def test_stiff_friction_gets_more_steps_and_absurd_friction_is_refused() -> None:
    model = without_contacts(0, 2, coulomb=5.0, rotor=0.3)
    assert plant_of(model).substeps > 2
    with pytest.raises(ModelError, match=r"robot random: Coulomb friction turns round .*friction_transition_velocity"):
        plant_of(model, coulomb_velocity=[1e-6, 1e-6])
    with pytest.raises(ModelError, match=r"joint j0: Coulomb friction .*expected a positive velocity"):
        plant_of(model, coulomb_velocity=[0.0, 0.0])
    sharp = without_contacts(0, 2, coulomb=0.0, transition=0.0)
    theta = sharp.theta_nominal.copy()
    theta[20:22] = 0.0
    plant_of(sharp, theta=theta).step(np.zeros(2))  # no Coulomb friction, no transition needed


def test_friction_too_stiff_for_the_steps_turns_round_as_slowly_as_its_transition_allows() -> None:
    """As where drives are unknown; slower than the transition velocity would be another friction than is declared."""
    model = without_contacts(0, 2, coulomb=40.0, rotor=0.01, transition=0.005)
    with pytest.raises(ModelError, match="expected at most 64"):
        plant_of(model, coulomb_velocity=[5e-4, 5e-4])
    plant = plant_of(model)
    assert np.all((plant.coulomb_velocity > 5e-4) & (plant.coulomb_velocity <= 0.005))
    assert 32 < plant.substeps <= 64
    with pytest.raises(ModelError, match=r"at coulomb_velocity \[0.0005, 0.0005\]: .* expected at most 64"):
        plant_of(without_contacts(0, 2, coulomb=40.0, rotor=0.01, transition=0.0005))


def test_a_maker_knows_the_rotors_that_a_file_calls_unknown() -> None:
    model = without_contacts(0, 2, rotor=0.3)
    theta = model.theta_nominal.copy()
    theta[model.layout.rotor_inertia] *= 0.5
    declared = plant_of(model, theta=theta).nominal_inertia()
    model.settings.drives = "unknown"
    unknown = plant_of(model, theta=theta).nominal_inertia()
    middle = model.arm_prior.mid[model.layout.rotor_inertia]
    np.testing.assert_allclose(declared - unknown, middle - theta[model.layout.rotor_inertia], rtol=1e-9)


def test_parameters_that_no_body_has_are_refused_by_link() -> None:
    model = random_arm(1, 2)
    theta = model.theta_nominal.copy()
    theta[10] = -1.0
    with pytest.raises(ModelError, match=r"link moved by j1: parameters .*expected those of a solid body"):
        plant_of(model, theta=theta)
