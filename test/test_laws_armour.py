"""ARMOUR's law: its disturbance and energy dominate every corner, its barrier holds, and where the code departs."""

from __future__ import annotations

import numpy as np
import pytest
from rigid_arm import RigidArm, in_use, slotine_li

from safe_sysid.control.laws.armour import ArmourLaw
from safe_sysid.control.laws.interval_newton_euler import interval_newton_euler
from safe_sysid.control.settings import ArmourSettings
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec


@pytest.fixture(scope="module")
def law(model: RobotModel) -> ArmourLaw:
    return ArmourLaw(model)


def random_box(model: RobotModel, rng: np.random.Generator) -> ParameterBox:
    """Unequal uncertainties, some none at all, the nominal not in the middle."""
    prior = model.arm_prior
    a, b = np.sort(rng.choice([0.0, 0.2, 0.7, 1.0], (2, prior.size)), axis=0)
    return ParameterBox(prior.lower + a * 2.0 * prior.rad * 0.999, prior.lower + b * 2.0 * prior.rad * 0.999)


def random_case(model: RobotModel, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, qd, reference with errors from nothing to more than the law is meant for."""
    q, qd = rng.uniform(-3, 3, model.n), rng.uniform(-1, 1, model.n)
    size = 10.0 ** rng.uniform(-6, -0.5)
    reference = np.stack([q, qd, rng.uniform(-3, 3, model.n)])
    reference[:2] += size * rng.normal(size=(2, model.n)) * np.array([[0.2], [1.0]])
    return q, qd, reference


def test_disturbance_and_energy_dominate_every_corner(model: RobotModel, law: ArmourLaw) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        box = random_box(model, rng)
        nominal = rng.uniform(box.lower, box.upper)
        q, qd, ref = random_case(model, rng)
        law.step(0.0, q, qd, ref, in_use(box, nominal))
        w_s, r = slotine_li(model, law.K_r, q, qd, ref)
        # The largest torque that the box leaves open in each joint, all at once: no corner does more.
        most = np.abs(w_s @ box.mid - w_s @ nominal) + np.abs(w_s) @ box.rad
        assert law.disturbance >= np.linalg.norm(most) - 1e-9
        columns = dynamics_of(model.kinematics).momentum_regressor(q, r)
        energy = 0.5 * (r @ columns @ box.mid + np.abs(r @ columns) @ box.rad)
        assert law.energy >= energy * (1.0 - 1e-12) - 1e-15


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_disturbance_is_exact_where_the_recursion_is(model: RobotModel, law: ArmourLaw, end: str) -> None:
    """Only joint parameters uncertain, the nominal at one end: the whole box is on one side of it."""
    prior, rng = model.arm_prior, np.random.default_rng(4)
    lower, upper = model.theta_nominal.copy(), model.theta_nominal.copy()
    joints = slice(10 * model.n, None)
    lower[joints], upper[joints] = prior.lower[joints], prior.upper[joints]
    box = ParameterBox(lower, upper)
    for _ in range(20):
        q, qd, ref = random_case(model, rng)
        law.step(0.0, q, qd, ref, in_use(box, getattr(box, end)))
        w_s, _ = slotine_li(model, law.K_r, q, qd, ref)
        one_way = w_s @ (box.mid - getattr(box, end))
        exact = np.linalg.norm(np.abs(w_s) @ box.rad + np.abs(one_way))
        assert exact - 1e-9 <= law.disturbance <= exact + 1e-6


@pytest.mark.parametrize("norm", [True, False])
def test_barrier_condition_holds_for_the_worst_parameters(model: RobotModel, norm: bool) -> None:
    """dV/dt <= alpha (V_max - V): r^T (W_s theta - tau) is dV/dt but for friction that only dissipates."""
    law, rng = ArmourLaw(model, ArmourSettings(norm=norm)), np.random.default_rng(1)
    active = 0
    for _ in range(200):
        box = random_box(model, rng)
        q, qd, ref = random_case(model, rng)
        nominal = rng.uniform(box.lower, box.upper)
        torque = law.step(0.0, q, qd, ref, in_use(box, nominal)).copy()
        active += law.robust_gain > 0.0
        w_s, r = slotine_li(model, law.K_r, q, qd, ref)
        slope = r @ w_s
        theta = np.where(slope > 0.0, box.upper, box.lower)  # the corner that pushes hardest
        rate = r @ (w_s @ theta - torque)
        energy = 0.5 * r @ dynamics_of(model.kinematics).mass_matrix(theta, q) @ r
        assert rate <= law.alpha * (law.V_max - energy) + 1e-9
    assert 20 < active < 200  # both branches of the law were tried


def test_barrier_condition_is_met_with_equality_where_nothing_is_lost(model: RobotModel, law: ArmourLaw) -> None:
    """One uncertain offset, r along its joint: the norm is exact, and the law asks for no more than it must."""
    rng, n, active = np.random.default_rng(5), model.n, 0
    for k in range(40):
        j = k % n
        spread = rng.uniform(5.0, 50.0) * np.eye(14 * n)[13 * n + j]
        lower, upper = model.theta_nominal - spread, model.theta_nominal + spread
        q, qd = rng.uniform(-3, 3, n), rng.uniform(-1, 1, n)
        reference = np.stack([q, qd, rng.uniform(-1, 1, n)])
        speed = rng.choice([-1.0, 1.0]) * rng.uniform(1e-3, 0.06)
        reference[1, j] += speed
        torque = law.step(0.0, q, qd, reference, in_use(ParameterBox(lower, upper)))
        w_s, r = slotine_li(model, law.K_r, q, qd, reference)
        rate = r @ (w_s @ (upper if speed > 0.0 else lower) - torque)
        inertia = dynamics_of(model.kinematics).mass_matrix(model.theta_nominal, q)
        allowed = law.alpha * (law.V_max - 0.5 * r @ inertia @ r)
        assert rate <= allowed + 1e-9
        if law.robust_gain > 0.0:
            active += 1
            assert rate >= allowed - 1e-9
    assert active > 10


def test_without_norm_no_joint_pays_more_than_half_of_norm_and_row(model: RobotModel) -> None:
    """Sum |r_i| w_i / |r| times |r_j| / |r| is at most (|w| + w_j) / 2; the larger input of the norm is at most |w|."""
    rng, box = np.random.default_rng(6), model.arm_prior
    laws = [ArmourLaw(model, ArmourSettings(norm=norm, V_max=1000.0, alpha=0.001)) for norm in (True, False)]
    bounds = np.empty((model.n, 2))
    pairs = np.stack([box.lower, box.upper], axis=-1).copy()
    less = 0
    for _ in range(100):
        q, qd, ref = random_case(model, rng)
        ref[1, rng.integers(model.n)] += rng.uniform(1.0, 3.0)
        inputs = []
        for law in laws:
            torque = law.step(0.0, q, qd, ref, in_use(box)).copy()
            w_s, _ = slotine_li(model, law.K_r, q, qd, ref)
            inputs.append(np.abs(torque - w_s @ box.mid))
            assert law.energy <= law.V_max  # beyond V_max the barrier adds to either input
        e, de = ref[0] - q, ref[1] - qd
        qd_a, qdd_a = ref[1] + law.K_r * e, ref[2] + law.K_r * de
        motion, transition = (q, qd, qd_a, qdd_a, qd_a), model.friction_transition_velocity
        interval_newton_euler(model.kinematics.packed, *motion, transition, True, pairs, bounds)
        w = np.maximum(bounds[:, 1] - w_s @ box.mid, w_s @ box.mid - bounds[:, 0])
        assert np.all(inputs[0] <= np.linalg.norm(w) + 1e-9)
        assert np.all(inputs[1] <= 0.5 * (np.linalg.norm(w) + w) + 1e-9)
        less += np.linalg.norm(inputs[1]) < np.linalg.norm(inputs[0])
    assert less > 10


def test_robust_input_lies_along_r_and_vanishes_near_zero(model: RobotModel, law: ArmourLaw) -> None:
    rng = np.random.default_rng(2)
    box = model.arm_prior
    for _ in range(50):
        q, qd, ref = random_case(model, rng)
        torque = law.step(0.0, q, qd, ref, in_use(box, model.theta_nominal))
        w_s, r = slotine_li(model, law.K_r, q, qd, ref)
        along = law.robust_gain * r / np.linalg.norm(r)
        np.testing.assert_allclose(torque - w_s @ model.theta_nominal, along, rtol=1e-9, atol=1e-9)
        # No dead zone is needed: where |w| |r| <= alpha (V_max - V_sup) the law asks for nothing by itself.
        if law.disturbance * np.linalg.norm(r) <= law.alpha * (law.V_max - law.energy):
            assert law.robust_gain == 0.0
    home, z = np.array(model.settings.home), np.zeros(model.n)
    assert np.all(np.isfinite(law.step(0.0, home, z, np.stack([home, z, z]), in_use(box))))
    assert law.robust_gain == 0.0


def test_the_published_dead_zone_changes_nothing_and_a_wide_one_breaks_the_barrier(model: RobotModel) -> None:
    """Inside |r| <= alpha V_max / |w| the robust input is zero anyway: only a wider dead zone leaves the proof."""
    box, rng = model.arm_prior, np.random.default_rng(3)
    exact, published = ArmourLaw(model), ArmourLaw(model, ArmourSettings(dead_zone=1e-8))
    wide = ArmourLaw(model, ArmourSettings(dead_zone=0.2))
    broken = 0
    for _ in range(100):
        q, qd, ref = random_case(model, rng)
        a = exact.step(0.0, q, qd, ref, in_use(box)).copy()
        np.testing.assert_array_equal(a, published.step(0.0, q, qd, ref, in_use(box)))
        torque = wide.step(0.0, q, qd, ref, in_use(box)).copy()
        w_s, r = slotine_li(model, wide.K_r, q, qd, ref)
        theta = np.where(r @ w_s > 0.0, box.upper, box.lower)
        energy = 0.5 * r @ dynamics_of(model.kinematics).mass_matrix(theta, q) @ r
        broken += r @ (w_s @ theta - torque) > wide.alpha * (wide.V_max - energy) + 1e-9
    assert broken > 0


@pytest.mark.parametrize("seed", range(2))
def test_energy_stays_below_v_max_in_closed_loop(model: RobotModel, law: ArmourLaw, seed: int) -> None:
    """Corner parameters, the true arm pulled off by the nominal's error; sampled at 5 kHz, nearly continuous."""
    payload = payload_from_spec("8lb" if seed else "4lb")
    theta = draw_truth(model, payload, np.random.default_rng(seed), mode="corner")
    box, rng = model.arm_prior, np.random.default_rng(seed)
    corner = np.where(theta > box.mid, box.lower, box.upper)  # a nominal as wrong as the box allows
    start = np.array(model.settings.home)
    amplitude, rate = rng.uniform(-0.3, 0.3, model.n), rng.uniform(1.0, 3.0, model.n)
    arm, dt, most, active = RigidArm(model, theta, start, substeps=1), 2e-4, 0.0, 0
    for k in range(1500):
        t = k * dt
        sine, cosine = np.sin(rate * t), np.cos(rate * t)
        reference = np.stack([1.0 - cosine, rate * sine, rate**2 * cosine]) * amplitude
        reference[0] += start
        torque = law.step(t, arm.q, arm.qd, reference, in_use(box, corner))
        r = reference[1] - arm.qd + law.K_r * (reference[0] - arm.q)
        most, active = max(most, 0.5 * r @ arm.inertia(arm.q) @ r), active + (law.robust_gain > 0.0)
        arm.step(torque, dt)
    assert most <= law.V_max
    assert active > 500  # without the robust input the wrong nominal would have pulled the arm out
