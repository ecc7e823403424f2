"""The second plant: DART under the simulated arm. Its dynamics against ours, its contacts, its integrator's error."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from simulation_support import random_arm
from test_simulation_world import box_at, drive, one_joint_arm

from safe_sysid.apps.arm.tube import TubeMargins, measure_tube
from safe_sysid.control.tube import measured_tube
from safe_sysid.demo.measured_arm import heaviest_payload, record_motions
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements, Sample
from safe_sysid.identification.equations.momentum import momentum_rows
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import NO_PAYLOAD, payload_from_spec
from safe_sysid.simulation.plant import Plant
from safe_sysid.simulation.servo import GazeboServoArm, build_servo_arm

if not os.environ.get("CI"):  # in CI a library that is missing is a failure
    pytest.importorskip("dartpy", reason="dartpy is not installed: pip install '.[dart]'")

from safe_sysid.simulation.engines.dart import DartEngine

pytestmark = pytest.mark.unproved

OPEN = Scene("open")
GAZEBO = "kinova_gen3_gazebo"


def plant_of(model: RobotModel, **options: object) -> Plant:
    theta = np.array(model.theta_nominal)
    theta[model.layout.rotor_inertia] = 0.0
    return Plant(model, theta, NO_PAYLOAD, options.pop("scene", OPEN), engine="dart", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_step_is_our_dynamics_with_friction_at_the_new_velocity(n: int) -> None:
    model = random_arm(n, n, bodies=(), allowed=frozenset(), rotor=0.0)
    dynamics, rng, h = dynamics_of(model.kinematics), np.random.default_rng(n), 1e-3
    for _ in range(5):
        q0, torque = rng.uniform(-3, 3, n), 20.0 * rng.normal(size=n)
        plant = plant_of(model, q0=q0, torque_source="link")
        qd0 = rng.choice([-1.0, 1.0], n) * rng.uniform(0.5, 2.0, n)
        plant.engine.place(q0, qd0)
        effort = plant.step(torque).effort
        q, qd = plant.state
        theta, layout = np.array(plant.theta_true), model.layout
        coulomb, viscous, offset = (theta[part].copy() for part in (layout.coulomb, layout.viscous, layout.offset))
        theta[layout.joint_terms] = 0.0
        # Coulomb friction is an impulse: viscous friction is that of the velocity before it.
        before = qd + h * np.linalg.solve(dynamics.mass_matrix(theta, q0), coulomb * np.sign(qd))
        friction = viscous * before + coulomb * np.sign(qd) + offset
        felt = dynamics.inverse_dynamics(theta, q0[None], qd0[None], ((qd - qd0) / h)[None])[0]
        size = 1e-9 * np.abs(felt).max()
        np.testing.assert_allclose(torque - friction, felt, rtol=0, atol=size)
        # What gz_ros2_control reports, about each joint's own axis: what the link feels, behind friction.
        np.testing.assert_allclose(effort, felt, rtol=0, atol=size)
        np.testing.assert_allclose(q, q0 + h * qd, rtol=0, atol=1e-12)


def test_coulomb_friction_holds_up_to_its_bound_and_no_further() -> None:
    model = random_arm(2, 1, bodies=(), allowed=frozenset(), rotor=0.0, coulomb=4.0)
    plant = plant_of(model)
    fc, gravity = plant.theta_true[model.layout.coulomb], plant.command_in_force
    for share, moves in ((0.9, False), (-0.9, False), (1.1, True)):
        for _ in range(5):
            plant.step(gravity + share * fc)
        assert bool(abs(plant.state[1][0]) > 1e-9) is moves


def test_distances_are_those_of_mujoco_and_contacts_stop_the_arm() -> None:
    model = load_robot(GAZEBO)
    scene, rng = load_scene("six_boxes"), np.random.default_rng(0)
    theta = draw_truth(model, payload_from_spec("8lb"), 1, "nominal")
    theta[model.layout.joint_terms] = 0.0
    two = [Plant(model, theta, payload_from_spec("8lb"), scene, engine=name) for name in ("mujoco", "dart")]
    assert two[0].watched_pairs == two[1].watched_pairs
    both = np.array([[plant.clearance(q)[0] for plant in two] for q in rng.uniform(-2, 2, (25, 7))])
    apart = both[:, 0] > 0.0
    assert 5 < apart.sum() < 25
    np.testing.assert_array_equal(apart, both[:, 1] > 0.0)
    np.testing.assert_allclose(both[apart, 0], both[apart, 1], rtol=0, atol=1e-5)
    model = one_joint_arm()
    plant = plant_of(model, scene=Scene("s", (box_at(model, 1.0),)))
    drive(plant, 1500)
    assert plant.contact_steps > 100
    assert {frozenset(pair) for pair in plant.contact_names} == {frozenset(("arm", "crate"))}
    assert plant.state[0][0] < 1.0  # it would be at 1.4 by now


def test_what_dart_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"rotor inertia .* of joint_2: DART's joints have none"):
        Plant(load_robot("kinova_gen3"), load_robot("kinova_gen3").theta_nominal, NO_PAYLOAD, OPEN, engine="dart")
    hull = Body("stone", 0, np.random.default_rng(0).uniform(-0.1, 0.1, (7, 3)), 0.0)
    with pytest.raises(ModelError, match="stone is a hull"):
        plant_of(random_arm(1, 1, bodies=(hull,), allowed=frozenset(), rotor=0.0))
    ground = box_at(one_joint_arm(), 0.0, "ground")
    with pytest.raises(ModelError, match="base overlaps ground"):
        plant_of(one_joint_arm(), scene=Scene("s", (replace(ground, xyz=np.array([0.0, 0.0, -0.6])),)))
    model = load_robot(GAZEBO)
    with pytest.raises(ParameterError, match="expected one of mujoco, dart"):
        Plant(model, model.theta_nominal, NO_PAYLOAD, OPEN, engine="bullet")
    with pytest.raises(ParameterError, match="motor or command with engine mujoco"):
        Plant(one_joint_arm(), one_joint_arm().theta_nominal, NO_PAYLOAD, OPEN, torque_source="link")
    exact = load_robot(GAZEBO, **{"measurement.torque_abs": 1e-3})
    with pytest.raises(ParameterError, match=r"torque_abs = 0.001: expected at least 0.017 N m"):
        build_servo_arm(exact, NO_PAYLOAD, OPEN, 0, engine="dart")


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def driven(request: pytest.FixtureRequest) -> tuple[RobotModel, GazeboServoArm, list]:
    """Gazebo's arm along random motions as fast as plans may be, with the prior's heaviest payload.

    The first quintics of the chains reach the largest velocity, acceleration and jerk.
    """
    model = load_robot(GAZEBO)
    robot = build_servo_arm(model, NO_PAYLOAD, OPEN, 0, "none", "uniform", "none", engine="dart")
    assert isinstance(robot, GazeboServoArm)
    heavy, ball, _ = heaviest_payload(model, robot.plant.theta_true)
    robot.plant.exchange(heavy, ball)
    from_here = robot.plant.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safe_sysid.demo.measured_arm._PARTS", request.param)
        return model, robot, [record_motions(robot, "heavy", 0), from_here]


@pytest.mark.slow
def test_the_packaged_tube_is_no_tighter_than_what_is_measured(driven: tuple) -> None:
    """By the heaviest payload alone: DART's servos reach their velocities whatever they carry."""
    model, _, (heavy, _) = driven
    measured, declared = measure_tube(model, [heavy], [heavy], 5.2, TubeMargins()), measured_tube(model)
    bounds = {"position": declared.e_bound, "velocity": declared.de_bound, "acceleration": declared.dde_bound}
    for key, bound in bounds.items():
        assert np.all(np.array(measured[key]) <= 1.001 * bound), key
    for key in ("velocity", "acceleration", "jerk"):
        assert np.all(1.02 * np.array(measured[f"largest_{key}"]) >= getattr(declared.assumptions, key)), key


def test_the_integrator_is_off_by_no_more_than_is_declared(driven: tuple) -> None:
    """Exact measurements: what the identifier's own equations miss is the integrator, and torque_abs must hold it."""
    model, robot, (_, from_here) = driven
    truth, theta = robot.plant.truth(), np.array(robot.plant.theta_true)
    rows = np.flatnonzero(truth["t"] > from_here + 0.1)
    samples = [Sample(*row) for row in zip(*(truth[key][rows] for key in ("t", "q", "qd", "effort")), strict=True)]
    windows = [(i, i + 100) for i in range(0, len(samples) - 101, 100)]
    declared = robot.plant._maker.integration_error(model)
    errors = replace(MeasurementErrors.from_model(model), torque_abs=declared, torque_rel=0.0)
    exact = replace(errors, torque_abs=1e-9)
    data = Measurements.of(samples)
    for allowed, holds in ((errors, True), (exact, False)):
        equations = momentum_rows(model.kinematics, model.arm_prior, allowed, data, windows)
        miss = np.abs(equations.matrix @ theta - equations.target) - equations.slack
        assert len(miss) > 300
        assert bool(miss.max() <= 0.0) is holds


def test_efforts_of_motors_take_what_friction_is_off_by_besides() -> None:
    link = load_robot(GAZEBO)
    motor = load_robot(GAZEBO, **{"measurement.torque_source": "motor"})
    of_link, of_motor = (DartEngine.integration_error(model) for model in (link, motor))
    mass = dynamics_of(link.kinematics).mass_matrix(np.array(link.theta_nominal), np.array(link.settings.home))
    upper, layout = link.arm_prior.upper, link.layout
    friction = 1e-3 * upper[layout.viscous] * upper[layout.coulomb] * np.diag(np.linalg.inv(mass))
    assert np.all(of_motor - of_link >= friction)
    assert np.all(of_motor - of_link <= 15.0 * friction + 0.05)  # in the pose that is lightest for a joint
