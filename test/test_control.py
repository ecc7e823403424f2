"""The robust law and its proved tracking bound: algebra, the lemma, the theorem attacked in closed loop."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rigid_arm import RigidArm

from safe_sysid.control.gains import ControllerGains, tracking_margins
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.control.laws.robust import RobustLaw
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import inertia_share, link_norms, torque_sensitivity
from safe_sysid.errors import ParameterError
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.trajectories import QuinticTrajectory
from safe_sysid.trajectories.extrema import derivative_range

START = np.array([1.28159, 0.8, -2.6481, -2.3484, 2.55565, -0.83406, 2.05712])


def in_use(box: ParameterBox) -> ModelInUse:
    return ModelInUse(box.mid, box.mid, box.rad)


def draw(model: RobotModel, seed: int, payload: str = "8lb", mode: str = "corner") -> np.ndarray:
    return draw_truth(model, payload_from_spec(payload), np.random.default_rng(seed), mode=mode)


@given(st.floats(0, 5, exclude_min=True), st.floats(-1, 1), st.floats(-50, 50), st.floats(1e-6, 10))
def test_robust_term_lemma(radius: float, share: float, x: float, eps: float) -> None:
    """X (theta - s) <= eps (|rho| - rho^2 / dtheta), rho = theta - s: the step on which the theorem rests."""
    error = share * radius
    s = radius * np.clip(x / eps, -1, 1)
    rho = error - s
    assert x * rho <= eps * (abs(rho) - rho * rho / radius) + 1e-9 * (1 + abs(x * rho) + eps * radius)


def regressor(model: RobotModel, gains: ControllerGains, q: np.ndarray, qd: np.ndarray, reference: np.ndarray):
    """W_s (n, 14 n) of the law, and its damping (n,)."""
    e, de = reference[0] - q, reference[1] - qd
    r = de + gains.K_r * e
    states = (q + gains.lead * qd, qd, reference[1] + gains.K_r * e)
    qdd_a = reference[2] + gains.K_r * de + gains.own_damping * r
    v_s = model.friction_transition_velocity
    return dynamics_of(model.kinematics).slotine_li_regressor(*states, qdd_a, v_s), gains.K_d * r


@pytest.mark.parametrize("width", [1.0, 0.0])
def test_torque_lies_in_the_image_of_the_box(model: RobotModel, gains: ControllerGains, width: float) -> None:
    """Of a box without width it is computed torque."""
    law = RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
    box, rng = model.arm_prior, np.random.default_rng(0)
    box = ParameterBox(box.mid - width * box.rad, box.mid + width * box.rad)
    for scale in (1e-6, 1e-3, 1.0):
        for _ in range(50):
            q = rng.uniform(-3, 3, model.n)
            qd = rng.uniform(-1, 1, model.n) * scale
            reference = np.stack([q, qd, rng.uniform(-1, 1, model.n)]) + rng.normal(size=(3, model.n)) * 0.01 * scale
            torque = law.step(0.0, q, qd, reference, in_use(box))
            w_s, damping = regressor(model, gains, q, qd, reference)
            slack = np.abs(torque - damping - w_s @ box.mid) - np.abs(w_s) @ box.rad
            assert np.all(slack <= 1e-9)


def test_torque_is_continuous_in_the_error(model: RobotModel, gains: ControllerGains) -> None:
    law = RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
    box, z = model.arm_prior, np.zeros(model.n)
    rng = np.random.default_rng(1)
    direction = rng.normal(size=model.n)
    last = None
    for s in np.linspace(-2e-3, 2e-3, 4001):
        torque = law.step(0.0, START, s * direction, np.stack([START, z, z]), in_use(box)).copy()
        if last is not None:
            assert np.max(np.abs(torque - last)) < 0.5  # a jump in the robust term would be tens of N m
        last = torque


def exciting_trajectory(rng: np.random.Generator, gains: ControllerGains, q: np.ndarray) -> QuinticTrajectory:
    """As fast as the theorem's hypotheses allow."""
    while True:
        goal = q + rng.choice([-1, 1], q.size) * rng.uniform(0.4, 1.0, q.size)
        trajectory = QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), goal, rng.uniform(2.0, 3.5))
        whole = [derivative_range(trajectory, order, 0.0, trajectory.duration) for order in range(4)]
        ranges = np.abs(whole).max(axis=2)
        a = gains.assumptions
        if np.all(ranges[1] + gains.de_bound < a.velocity) and np.all(ranges[2:4] < [a.acceleration, a.jerk]):
            return trajectory


@functools.cache
def with_feed_forward(bound: float) -> tuple[RobotModel, ControllerGains]:
    model = load_robot("kinova_gen3", **{"controller.feed_forward.bound": bound})
    return model, design_gains(model, lockstep=True)


# Even seeds draw the arm inside its box, odd ones at a corner; from 4 on the pushes are random.
SEEDS = [0, 1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 4, 5]


@pytest.mark.parametrize("added", [0.0, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_energy_stays_below_its_bound_under_attack(seed: int, added: float) -> None:
    """Corner parameters, actuator errors and torque added to the law's that push the wrong way, fastest motions."""
    model, gains = with_feed_forward(added)
    rng = np.random.default_rng(seed)
    box = model.arm_prior
    theta = draw(model, seed, mode="corner" if seed % 2 else "uniform")
    arm = RigidArm(model, theta, START)
    law = RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
    trajectory = exciting_trajectory(rng, gains, START)
    a, worst = gains.assumptions, 0.0
    period = model.settings.timing.period_s
    for k in range(1200):
        reference = trajectory.state(k * period)
        torque = law.step(0.0, arm.q, arm.qd, reference, in_use(box)).copy()
        energy = 0.5 * law.r @ arm.inertia(arm.q) @ law.r
        worst = max(worst, energy / gains.V_max)
        assert energy <= gains.V_max
        assert np.all(np.abs(law.r) <= gains.r_bound)
        assert np.all(np.abs(law.e) <= gains.e_bound)
        assert np.all(np.abs(law.de) <= gains.de_bound)
        push = -np.sign(law.r) if seed < 4 else rng.choice([-1, 1], model.n)
        before = arm.qd
        torque += push * added
        arm.step(torque + push * (a.actuator_abs + a.actuator_rel * np.abs(torque)), period)
        assert np.all(np.abs(arm.qd - before) <= gains.acceleration_bound * period)
    assert worst > 1e-6  # the attack did something


def test_bound_holds_from_the_worst_start(model: RobotModel, gains: ControllerGains) -> None:
    """V(0) = V_max in random directions: V never rises above it."""
    rng, box = np.random.default_rng(8), model.arm_prior
    law = RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
    z = np.zeros(model.n)
    for seed in range(8):
        arm = RigidArm(model, draw(model, 50 + seed), START)
        r = rng.normal(size=model.n)
        r *= np.sqrt(2 * gains.V_max / (r @ arm.inertia(arm.q) @ r)) * (1 - 1e-9)
        arm.qd = -r
        for _ in range(60):
            torque = law.step(0.0, arm.q, arm.qd, np.stack([START, z, z]), in_use(box)).copy()
            assert 0.5 * law.r @ arm.inertia(arm.q) @ law.r <= gains.V_max
            a = gains.assumptions
            arm.step(torque - np.sign(law.r) * (a.actuator_abs + a.actuator_rel * np.abs(torque)), 1e-3)


def test_theorem_without_its_damping_is_broken_by_the_attack(model: RobotModel, gains: ControllerGains) -> None:
    """Mutation: no robust term and no damping; the same attack must find it."""
    theta = draw(model, 1)
    arm = RigidArm(model, theta, START)
    z, box = np.zeros(model.n), model.arm_prior
    for _ in range(300):
        w_s = dynamics_of(model.kinematics).slotine_li_regressor(arm.q, arm.qd, z, z, 0.01)
        arm.step(w_s @ box.mid, 1e-3)
        r = -arm.qd - gains.K_r * (arm.q - START)
        if 0.5 * r @ arm.inertia(arm.q) @ r > gains.V_max:
            return
    raise AssertionError("a law without robust term and damping kept the bound: the attack is too weak")


def test_declared_quantities_bound_the_true_ones(model: RobotModel, gains: ControllerGains) -> None:
    rng = np.random.default_rng(3)
    n, box = model.n, model.arm_prior
    norms = link_norms(model.kinematics, box.lower, box.upper)
    for seed in range(10):
        theta = draw(model, seed)
        bare = theta.copy()
        bare[10 * n :] = 0.0
        q, dq = rng.uniform(-3, 3, n), rng.uniform(0, 0.1, n)
        arm = RigidArm(model, theta, q)
        spare = gains.assumptions.inertia_upper - box.upper[box.layout.rotor_inertia]
        share = inertia_share(model.kinematics, box, spare, q, dq)[0]
        for _ in range(5):
            h = arm.inertia(q + rng.uniform(-1, 1, n) * dq) - np.diag(theta[12 * n : 13 * n])
            assert np.linalg.eigvalsh(h / np.sqrt(spare)[:, None] / np.sqrt(spare))[-1] <= share
        qd, qd_a, qdd = rng.uniform(-1, 1, (3, n))
        sens = torque_sensitivity(model.kinematics, norms, np.abs(qd) + 1e-3, np.abs(qd_a) + 1e-3, np.abs(qdd) + 1e-3)
        step = 1e-4
        for i, bound in enumerate((sens.q, sens.qd, sens.qd_a, sens.qdd_a)):
            for j in range(n):
                shift, states = np.zeros((4, n)), np.stack([q, qd, qd_a, qdd])
                shift[i, j] = step
                w = dynamics_of(model.kinematics).slotine_li_regressor
                plus, minus = w(*(states + shift)) @ bare, w(*(states - shift)) @ bare
                assert np.all(np.abs(plus - minus) / (2 * step) <= bound[:, j] * (1 + 1e-6) + 1e-9)


def test_longer_holds_and_noise_cost_bound(model: RobotModel, gains: ControllerGains) -> None:
    slower = design_gains(model, lockstep=False)
    assert slower.V_max > gains.V_max
    noisy = load_robot("kinova_gen3", **{"measurement": {"velocity_error": 1e-3}})
    assert design_gains(noisy, lockstep=True).V_max > gains.V_max


def test_impossible_assumptions_are_refused_with_what_to_relax() -> None:
    slow = {"timing": {"hold_max_s": 0.05, "delay_max_s": 0.04}, "measurement.max_age_s": 0.1}
    bare = {"joints": {"joint_3": {"rotor_inertia": 0.0}}}
    for assumed, words in ((slow, "hold_max"), (bare, r"joint_3.*rotor inertia")):
        with pytest.raises(ParameterError, match=words):
            design_gains(load_robot("kinova_gen3", **assumed))


def test_tracking_margins_name_what_is_too_fast(model: RobotModel, gains: ControllerGains) -> None:
    a, half = gains.assumptions, np.full((1, model.n), 0.01)
    speeds = (1.1 * a.velocity[None], 0.5 * a.acceleration[None], 0.5 * a.jerk[None])
    margins = tracking_margins(
        gains, model.kinematics, model.arm_prior, START[None], half, *speeds, np.array([0.9 * a.uncertainty])
    )
    assert np.all(margins["velocity"] < 0)
    assert all(np.all(margins[key] > 0) for key in ("acceleration", "jerk", "uncertainty", "inertia"))
