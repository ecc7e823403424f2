"""Rotors on moving links: columns, laws and bounds against arms whose rotors are bodies that spin in Pinocchio."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arm_factory import RotorArm, random_arm, rotor_arm

from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.control.laws.robust import RobustLaw
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import (
    inertia_floor,
    link_norms,
    rotor_ceiling,
    rotor_floor,
    spin_shares,
    torque_sensitivity,
)
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.errors import ConfigError
from safe_sysid.planning.certification.certificate import verify_plan
from safe_sysid.planning.costs.excitation import regressor_gradient
from safe_sysid.robot.files.urdf import UrdfChain, read_urdf
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.loading import find_urdf, load_robot
from safe_sysid.robot.model import NO_MOTORS, Kinematics, Motors, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene, config_path
from safe_sysid.robot.suspicious import suspicions
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.simulation.plant import Plant
from safe_sysid.studies.campaign.cases.rotor_bodies import RotorBodies
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

#: Joints, and chance of a joint to slide.
ARMS = [(2, 0.0), (3, 0.0), (5, 0.0), (7, 0.0), (9, 0.0), (4, 0.5), (6, 0.4)]


def some_arm(n: int, slides: float) -> tuple[RotorArm, np.random.Generator]:
    rng = np.random.default_rng(1000 * n + int(10 * slides))
    return rotor_arm(n, rng, slides), rng


def close(value: np.ndarray, expected: np.ndarray, within: float = 1e-10) -> None:
    np.testing.assert_allclose(value, expected, rtol=0.0, atol=within * max(1.0, np.abs(expected).max()))


def slope(of: Callable[[float], Any], h: float) -> Any:
    """Of a function at 0, by five points."""
    return (of(-2 * h) - 8 * of(-h) + 8 * of(h) - of(2 * h)) / (12 * h)


def inertia(kin: Kinematics, theta: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.stack([dynamics_of(kin).momentum_regressor(q, e) @ theta for e in np.eye(len(q))], axis=1)


@pytest.mark.parametrize(("n", "slides"), ARMS)
def test_regressors_are_those_of_arms_with_spinning_bodies(n: int, slides: float) -> None:
    arm, rng = some_arm(n, slides)
    q, qd, qd_a, qdd = rng.uniform(-2, 2, (4, n))
    zero = np.zeros(n)
    gravity = arm.torque(q, zero, zero)
    h = arm.inertia(q)
    torque = arm.torque(q, qd, qdd)
    close(dynamics_of(arm.kin).torque_regressor(q, qd, qdd) @ arm.theta, torque)
    close(dynamics_of(arm.kin).momentum_regressor(q, qd) @ arm.theta, h @ qd)
    close(inertia(arm.kin, arm.theta, q), h)

    def bias(x: np.ndarray) -> np.ndarray:
        return arm.torque(q, x, zero) - gravity

    christoffel = 0.5 * (bias(qd + qd_a) - bias(qd) - bias(qd_a))
    close(dynamics_of(arm.kin).slotine_li_regressor(q, qd, qd_a, qdd) @ arm.theta, h @ qdd + christoffel + gravity)
    # C^T qd is the slope of the kinetic energy.
    rate = dynamics_of(arm.kin).momentum_rate_regressor(q, qd) @ arm.theta
    slopes = [slope(lambda t, e=e: 0.5 * qd @ arm.inertia(q + t * e) @ qd, 1e-4) for e in np.eye(n)]
    close(rate, slopes - gravity, 1e-8)
    out = np.empty(n)
    newton_euler(arm.kin.packed, q, qd, qd_a, qdd, qd_a, 0.0, arm.theta, out)
    close(out, h @ qdd + christoffel + gravity)


def test_without_their_reaction_the_torque_is_wrong() -> None:
    """What the package took for the truth before: the same arm, rotors that do not turn with their links."""
    arm, rng = some_arm(5, 0.0)
    q, qd, qdd = rng.uniform(-2, 2, (3, 5))
    wrong = dynamics_of(arm.kin._replace(motors=NO_MOTORS)).torque_regressor(q, qd, qdd) @ arm.theta
    assert np.abs(wrong - arm.torque(q, qd, qdd)).max() > 0.05


@pytest.mark.parametrize(("n", "slides"), ARMS)
def test_derivative_of_momentum_minus_rate_is_torque_column_by_column(n: int, slides: float) -> None:
    arm, rng = some_arm(n, slides)
    q, qd, qdd = rng.uniform(-2, 2, (3, n))
    ours = dynamics_of(arm.kin)
    rate = slope(lambda t: ours.momentum_regressor(q + qd * t + 0.5 * qdd * t * t, qd + qdd * t), 1e-3)
    left, right = rate - ours.momentum_rate_regressor(q, qd), ours.torque_regressor(q, qd, qdd)
    rotors = slice(12 * n, 13 * n)
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-6 * np.abs(right).max())
    np.testing.assert_allclose(left[:, rotors], right[:, rotors], rtol=0, atol=1e-8 * (1 + np.abs(qdd).max()))


@pytest.mark.parametrize(("n", "slides"), ARMS)
def test_inertia_rate_minus_twice_coriolis_is_skew_and_power_balances(n: int, slides: float) -> None:
    arm, rng = some_arm(n, slides)
    q, qd, qdd = rng.uniform(-1, 1, (3, n))
    z = np.zeros(n)
    gravity = dynamics_of(arm.kin).slotine_li_regressor(q, z, z, z) @ arm.theta
    columns = [dynamics_of(arm.kin).slotine_li_regressor(q, qd, e, z) @ arm.theta - gravity for e in np.eye(n)]
    skew = slope(lambda t: inertia(arm.kin, arm.theta, q + t * qd), 1e-4) - 2 * np.stack(columns, axis=1)
    np.testing.assert_allclose(skew, -skew.T, atol=1e-8 * max(1.0, np.abs(skew).max()))
    power = slope(lambda t: arm.energy(q + t * qd + 0.5 * t * t * qdd, qd + t * qdd), 1e-3)
    assert qd @ (dynamics_of(arm.kin).torque_regressor(q, qd, qdd) @ arm.theta) == pytest.approx(power, rel=1e-7)


def test_motors_that_rest_add_nothing() -> None:
    kin, _, theta = random_arm(4, np.random.default_rng(3))
    q, qd, qdd = np.random.default_rng(4).uniform(-1, 1, (3, 4))
    columns = dynamics_of(kin).torque_regressor(q, qd, qdd)[:, 48:52]
    np.testing.assert_array_equal(columns, np.diag(qdd))
    np.testing.assert_array_equal(dynamics_of(kin).momentum_rate_regressor(q, qd)[:, 48:52], 0.0)
    box = ParameterBox(theta * 0.9 - 0.1, theta * 1.1 + 0.3)
    np.testing.assert_array_equal(rotor_floor(kin, box), box.lower[48:52])
    np.testing.assert_array_equal(rotor_ceiling(kin, box), box.upper[48:52])


def two_parallel() -> tuple[Kinematics, np.ndarray]:
    """Two parallel axes in one place: the smallest counter-example to ``H >= diag(Ia)``."""
    motors = Motors(np.array([1]), np.array([0]), np.array([1 / 50]), np.array([[0.0, 0.0, 1.0]]))
    turning = Kinematics.turning(
        np.tile(np.eye(3), (2, 1, 1)), np.zeros((2, 3)), np.tile([0.0, 0.0, 1.0], (2, 1)), np.zeros(3)
    )
    theta = np.zeros(28)
    for link, moment in enumerate((0.02 - 0.01, 0.01)):
        theta[10 * link : 10 * link + 10] = [1.0, 0, 0, 0, moment, 0, moment, 0, 0, moment]
    theta[24:26] = 0.5
    return turning._replace(motors=motors), theta


def test_rotor_inertia_alone_is_no_floor_of_the_inertia() -> None:
    kin, theta = two_parallel()
    rotors = np.diag(theta[24:26])
    h = inertia(kin, theta, np.zeros(2))
    # Joint 2 alone moves 0.01, both together 0.02; the reaction takes 0.01 from neither, but couples them.
    np.testing.assert_allclose(h - rotors, [[0.02, 0.02], [0.02, 0.01]], atol=1e-15)
    assert np.linalg.eigvalsh(h - rotors)[0] < -0.002, "this was taken for a theorem"
    box = ParameterBox(theta, theta)
    floor = rotor_floor(kin, box)
    np.testing.assert_allclose(floor, [0.49, 0.49], atol=1e-9)
    assert np.linalg.eigvalsh(h - np.diag(floor))[0] >= 0.0
    ones, home = np.ones(2), np.zeros((1, 2))
    assert inertia_floor(kin, box, rotors.diagonal() * ones, home, home)[0] < 1.0
    assert inertia_floor(kin, box, floor, home, home)[0] >= 1.0 - 1e-9


@pytest.mark.parametrize(("n", "slides"), ARMS)
def test_floor_ceiling_and_shares_hold_everywhere_and_are_near(n: int, slides: float) -> None:
    arm, rng = some_arm(n, slides)
    kin, rotors = arm.kin, slice(12 * n, 13 * n)
    lower, upper = arm.theta.copy(), arm.theta.copy()
    lower[rotors] *= 0.8
    upper[rotors] *= 1.3
    box = ParameterBox(lower, upper)
    floor, ceiling, shares = rotor_floor(kin, box), rotor_ceiling(kin, box), spin_shares(kin)
    low = np.where(kin.sliding, kin.travel[:, 0], -np.pi)
    high = np.where(kin.sliding, kin.travel[:, 1], np.pi)
    largest = np.zeros_like(shares)
    for q in rng.uniform(low, high, (400, n)):
        theta = np.zeros(14 * n)
        theta[rotors] = np.where(rng.random(n) < 0.5, lower[rotors], upper[rotors])
        h = inertia(kin, theta, q)
        assert np.linalg.eigvalsh(h - np.diag(floor))[0] >= -1e-12
        assert np.linalg.eigvalsh(np.diag(ceiling) - h)[0] >= -1e-12
        rotation, _ = forward_kinematics(kin, q)
        axes = np.einsum("jab,jb->ja", rotation, kin.axis)
        z = np.einsum("mab,mb->ma", rotation[kin.motors.carrier], kin.motors.axis)
        w = np.abs(z @ axes.T) * ~kin.sliding * (np.arange(n) <= kin.motors.carrier[:, None])
        assert np.all(w <= shares)
        largest = np.maximum(largest, w)
    near = [largest[m, i] / shares[m, i] for m, c in enumerate(kin.motors.carrier) for i in range(c - 1, c + 1)
            if i >= 0 and shares[m, i] > 0.0]  # fmt: skip
    assert min(near, default=1.0) > 0.9, "one or two joints turn everything everywhere: the bounds are reached"


@pytest.mark.parametrize(("n", "slides"), ARMS)
def test_inertia_floor_holds_near_poses(n: int, slides: float) -> None:
    arm, rng = some_arm(n, slides)
    box, rotors = ParameterBox(arm.theta, arm.theta), arm.theta[12 * n : 13 * n]
    for least in (0.5, 1.2):
        lower = least * rotors
        low = np.where(arm.kin.sliding, arm.kin.travel[:, 0], -1.0)
        high = np.where(arm.kin.sliding, arm.kin.travel[:, 1], 1.0)
        q = rng.uniform(low, high)
        dq = np.full(n, 0.002)
        found = inertia_floor(arm.kin, box, lower, q[None], dq[None])[0]
        for _ in range(50):
            h = arm.inertia(q + rng.uniform(-1, 1, n) * dq)
            assert np.linalg.eigvalsh(h / np.sqrt(np.outer(lower, lower)))[0] >= found


@pytest.mark.parametrize(("n", "slides"), ARMS)
def test_sensitivity_bounds_every_derivative_of_the_reaction(n: int, slides: float) -> None:
    """Links without mass: what is left is the reaction, whose bounds are not hidden by those of the links."""
    arm, rng = some_arm(n, slides)
    kin, theta = arm.kin._replace(gravity=np.zeros(3)), np.zeros(14 * n)
    theta[12 * n : 13 * n] = arm.theta[12 * n : 13 * n]
    rotors = theta[12 * n : 13 * n]
    speeds = rng.uniform(0.2, 2.0, (3, n))
    bound = torque_sensitivity(kin, link_norms(kin, theta, theta), *speeds)
    bounds = (bound.q, bound.qd, bound.qd_a, bound.qdd_a)
    step, largest = 1e-5, [np.zeros((n, n)) for _ in range(4)]
    low = np.where(kin.sliding, kin.travel[:, 0], -3.0)
    high = np.where(kin.sliding, kin.travel[:, 1], 3.0)
    for _ in range(60):
        x = [rng.uniform(low, high), *(rng.choice([-1.0, 1.0], n) * s for s in speeds)]
        for which in range(4):
            for i in range(n):
                ends = []
                for sign in (-1.0, 1.0):
                    moved = [v.copy() for v in x]
                    moved[which][i] += sign * step
                    ends.append(dynamics_of(kin).slotine_li_regressor(*moved) @ theta - rotors * moved[3])
                slope = np.abs(ends[1] - ends[0]) / (2 * step)
                assert np.all(slope <= bounds[which][:, i] + 1e-8), (which, i)
                largest[which][:, i] = np.maximum(largest[which][:, i], slope)
    if n == 2 and slides == 0.0:  # one motor on the first link: nothing depends on q, and inertia is the share
        np.testing.assert_allclose(largest[3], bounds[3], rtol=1e-6, atol=1e-9)
        assert not bounds[0].any()
        assert not bounds[1].any()


@pytest.mark.parametrize(("n", "slides"), ARMS)
def test_changes_of_the_torque_in_the_measure_of_the_links(n: int, slides: float) -> None:
    """The power of a change on any motion v: at most ``|v|_M | rows |dx| | + |v| entries |dx|``, turned links included.

    The worst motions are looked for, with the change itself as the first of them.
    """
    arm, rng = some_arm(n, slides)
    kin, theta, bare = arm.kin, arm.theta.copy(), arm.theta.copy()
    theta[10 * n : 12 * n] = bare[10 * n :] = 0.0  # no friction; and no rotors
    norms, reached = link_norms(kin, theta, theta), np.zeros(3)
    low, high = np.where(kin.sliding, kin.travel[:, 0], -3.0), np.where(kin.sliding, kin.travel[:, 1], 3.0)
    for _ in range(40):
        q, (qd, qd_a, qdd) = rng.uniform(low, high), rng.uniform(-1, 1, (3, n)) * 10.0 ** rng.uniform(-1, 0.5, (3, 1))
        speeds = (np.abs(x) + 1e-3 for x in (qd, qd_a, qdd))
        bound = torque_sensitivity(kin, norms, *speeds)
        links = inertia(kin, bare, q)
        for i, parts in enumerate((bound.q_in_mass, bound.qd_in_mass, bound.qd_a_in_mass)):
            for way in (*np.eye(n), rng.normal(size=n), rng.choice([-1.0, 1.0], n)):
                ends = np.stack([q, qd, qd_a, qdd]) + np.array([-1e-5, 1e-5])[:, None, None] * (
                    np.eye(4)[i][:, None] * way
                )
                torque = [dynamics_of(kin).slotine_li_regressor(*x) @ theta for x in ends]
                change = (torque[1] - torque[0]) / 2e-5
                rows, entries = np.linalg.norm(parts.rows @ np.abs(way)), parts.entries @ np.abs(way)
                weighed = np.linalg.solve(links + np.diag(entries + 1e-9), change)
                for v in (weighed, np.linalg.solve(links + 1e-9 * np.eye(n), change), *np.eye(n), change):
                    most = np.sqrt(v @ links @ v) * rows + np.abs(v) @ entries
                    assert v @ change <= most * (1.0 + 1e-6) + 1e-7 * np.abs(v).max(), (i, way)
                    reached[i] = max(reached[i], v @ change / (most + 1e-12))
    assert np.all(reached > 0.2), "a weak attack"


# -- configuration -----------------------------------------------------------------------------------------------


def test_motors_are_as_declared() -> None:
    model = load_robot("three_joint")
    names = model.joint_names
    assert model.kinematics.motors.joint.size == 0
    assert model.undeclared_gears == names[1:], "the first motor is carried by what rests"
    first_link = chain_of(model).joints[0].child
    declared = {f"joints.{name}.gear_ratio": ratio for name, ratio in zip(names, (80.0, -100.0, 50.0), strict=True)}
    elsewhere = {f"joints.{names[2]}.motor_link": first_link, f"joints.{names[2]}.motor_axis": [0.0, 3.0, 4.0]}
    model = load_robot("three_joint", **declared, **elsewhere)
    kin, motors = model.kinematics, model.kinematics.motors
    assert motors.joint.tolist() == [1, 2]
    assert motors.carrier.tolist() == [0, 0]
    np.testing.assert_allclose(motors.gear, [-0.01, 0.02])
    np.testing.assert_allclose(motors.axis, [kin.rotation[1] @ kin.axis[1], [0.0, 0.6, 0.8]])
    assert not any(array.flags.writeable for array in motors)
    assert model.undeclared_gears == ()
    assert "gear_ratio" not in " ".join(model.model_assumptions)


def test_a_motor_in_the_base_turns_in_nothing_that_moves() -> None:
    plain = load_robot("three_joint")
    motor = {"gear_ratio": 90.0, "motor_link": chain_of(plain).root}
    model = load_robot("three_joint", joints=dict.fromkeys(plain.joint_names[1:], motor))
    assert model.kinematics.motors.joint.size == 0
    assert model.undeclared_gears == ()


def chain_of(model: RobotModel) -> UrdfChain:
    return read_urdf(find_urdf(config_path("three_joint", "config"), model.settings), {}, "three_joint")


@pytest.mark.parametrize(
    ("joint", "settings", "field", "expected"),
    [
        (1, {"gear_ratio": 0.0}, "gear_ratio", "other than 0"),
        (1, {"gear_ratio": float("nan")}, "gear_ratio", "finite"),
        (1, {"gear_ratio": "fast"}, "gear_ratio", "number"),
        (1, {"motor_axis": [1.0, 0.0, 0.0]}, "motor_axis", "gear_ratio too"),
        (1, {"motor_link": "base"}, "motor_link", "gear_ratio too"),
        (1, {"gear_ratio": 50.0, "motor_axis": [0.0, 0.0, 0.0]}, "motor_axis", "a direction"),
        (1, {"gear_ratio": 50.0, "motor_axis": [0.0, 1.0]}, "motor_axis", "3 numbers"),
        (1, {"gear_ratio": 50.0, "motor_link": "nowhere"}, "motor_link", "before the joint"),
        (1, {"gear_ratio": 50.0, "motor_link": "<child>"}, "motor_link", "before the joint"),
        (2, {"gear_ratio": 50.0, "motor_link": "<first>"}, "motor_axis", "turn the joint's own"),
    ],
)
def test_wrong_motors_are_named(joint: int, settings: dict[str, object], field: str, expected: str) -> None:
    model = load_robot("three_joint")
    joints = chain_of(model).joints
    place = {"<child>": joints[joint].child, "<first>": joints[0].child}
    name = model.joint_names[joint]
    given = {f"joints.{name}.{key}": place.get(str(value), value) for key, value in settings.items()}
    with pytest.raises(ConfigError) as error:
        load_robot("three_joint", **given)
    assert f"joints.{name}.{field}" in str(error.value)
    assert expected in str(error.value)


def test_by_default_the_motor_is_on_the_parent_link_along_the_joint() -> None:
    """Kinova's joint frames are turned against each other; the default is the joint's own axis."""
    names = load_robot("kinova_gen3").joint_names
    model = load_robot("kinova_gen3", **{f"joints.{name}.gear_ratio": 100.0 for name in names})
    kin = model.kinematics
    assert kin.motors.joint.tolist() == [1, 2, 3, 4, 5, 6]
    assert kin.motors.carrier.tolist() == [0, 1, 2, 3, 4, 5]
    q = np.random.default_rng(0).uniform(-1, 1, 7)
    rotation, _ = forward_kinematics(kin, q)
    for m, j in enumerate(kin.motors.joint):
        own, motor = rotation[j] @ kin.axis[j], rotation[j - 1] @ kin.motors.axis[m]
        np.testing.assert_allclose(motor, own, atol=1e-12)


def test_rotors_without_ratio_are_an_assumption_that_is_said() -> None:
    model = load_robot("kinova_gen3")
    said = " ".join(model.model_assumptions)
    assert "exactly those of its URDF" in said
    assert all(name in said for name in model.joint_names[1:])
    assert model.joint_names[0] not in said
    doubt = [line for line in suspicions(model, config_path("kinova_gen3", "config")) if "gear_ratio" in line]
    assert len(doubt) == 1
    assert all(name in doubt[0] for name in model.joint_names[1:])


def test_a_plan_with_geared_motors_is_certified_and_driven() -> None:
    """Gains, planner, certificate and plant of the same arm: the tracking bound holds where the plant reacts."""
    joints = load_robot("three_joint").joint_names[1:]
    model = load_robot("three_joint", **{f"joints.{name}.gear_ratio": 40.0 for name in joints})
    gains = design_gains(model, lockstep=True)
    plain = load_robot("three_joint")
    assert np.all(gains.inertia_lower < rotor_floor(plain.kinematics, plain.arm_prior))
    home = np.asarray(model.settings.home)
    path = QuinticTrajectory.to_rest(np.stack([home, 0 * home, 0 * home]), home + 0.2, 1.5)
    certificate = verify_plan(
        Plan(path, 0.0, 0.75, "0:0", 0, np.full(3, 0.2)), model, model.arm_prior, Scene("open"), gains
    )
    assert certificate.ok, certificate.summary()
    payload = payload_from_spec("none")
    plant = Plant(model, draw_truth(model, payload, 1, "corner"), payload, Scene("open"), q0=home)
    law = RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
    box, worst = model.arm_prior, 0.0
    for k in range(1500):
        q, qd = plant.state
        state = path.state(k * plant.period)
        if k % 5 == 0:
            r = state[1] - qd + gains.K_r * (state[0] - q)
            h = inertia(model.kinematics, plant.theta_true, q)
            worst = max(worst, 0.5 * r @ h @ r / gains.V_max)
        plant.step(law.step(0.0, q, qd, state, ModelInUse(box.mid, box.mid, box.rad)))
    assert 1e-6 < worst < 1.0


def test_slopes_for_the_optimiser_know_the_reaction() -> None:
    arm, rng = some_arm(5, 0.0)
    states = rng.uniform(-1, 1, (3, 4, 5))
    weight = rng.normal(size=(4, 5, 70))
    weight[:, :, 50:55] = 0.0  # the sign of velocities has no slope
    found = regressor_gradient(arm.kin, *states, weight)
    for which in range(3):
        for j in range(5):
            ends = []
            for sign in (1e-5, -1e-5):
                moved = states.copy()
                moved[which, :, j] += sign
                ends.append(np.einsum("kjc,kjc->k", dynamics_of(arm.kin).torque_regressor(*moved), weight))
            np.testing.assert_allclose(found[:, which, j], (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "slides"), ARMS)
def test_the_campaigns_bodies_are_those_of_this_oracle(n: int, slides: float) -> None:
    """Two trees of bodies, of other masses and places of the rotors: the same arm."""
    arm, rng = some_arm(n, slides)
    bodies = RotorBodies(arm.kin, arm.theta)
    q, qd, qdd = rng.uniform(-1, 1, (3, n))
    torque = arm.torque(q, qd, qdd)
    close(bodies.torque(q, qd, qdd), torque)
    close(bodies.inertia(q), arm.inertia(q))
    close(bodies.acceleration(q, qd, torque), qdd)
    h = 1e-5
    at = [bodies.own_momentum(q + s * h * qd, qd + s * h * qdd) for s in (-1, 1)]
    close((at[1] - at[0]) / (2 * h), bodies.parts(q, qd, qdd)[1], 1e-7)
