"""The adaptive laws: projection, the Lyapunov inequality of every update, convergence where the motion excites."""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rigid_arm import RigidArm, in_use, slotine_li
from test_laws import truth

from safe_sysid.control.laws.adaptive_robust import AdaptiveRobustLaw
from safe_sysid.control.laws.inverse_dynamics import ComputedTorqueLaw
from safe_sysid.control.laws.law import ControlLaw, ModelInUse
from safe_sysid.control.laws.passivity_adaptive import PassivityAdaptiveLaw
from safe_sysid.control.settings import AdaptiveRobustSettings, ComputedTorqueSettings, PassivityAdaptiveSettings
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

DT = 1e-3


def exciting(model: RobotModel, t: float) -> np.ndarray:
    """Reference (3, n) that moves every joint at a rate of its own, from rest."""
    home, j = np.array(model.settings.home), np.arange(model.n)
    rate = 1.2 + 0.45 * j
    amplitude = 0.5 / rate
    sine, cosine = np.sin(rate * t), np.cos(rate * t)
    return np.stack([home + amplitude * (1 - cosine), amplitude * rate * sine, amplitude * rate**2 * cosine])


def follow(model: RobotModel, law: ControlLaw, theta: np.ndarray, use: ModelInUse, seconds: float) -> np.ndarray:
    """Position errors (N, n), the arm starting where the reference does."""
    arm, errors = RigidArm(model, theta, exciting(model, 0.0)[0], substeps=1), []
    law.reset(0.0, arm.q, arm.qd)
    for k in range(round(seconds / DT)):
        reference = exciting(model, k * DT)
        errors.append(reference[0] - arm.q)
        arm.step(law.step(k * DT, arm.q, arm.qd, reference, use), DT)
    return np.array(errors)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_estimate_stays_in_any_box_and_no_update_moves_away_from_any_truth(model: RobotModel, seed: int) -> None:
    r"""With P = |estimate - theta|^2 in Gamma^-1: P+ - P <= 2 dt r^T W (estimate - theta) + dt^2 |W^T r|^2 in Gamma.

    The first term cancels against that of r^T H r / 2, which is the theorem; only projections in that metric keep it.
    """
    rng = np.random.default_rng(seed)
    law = PassivityAdaptiveLaw(model, PassivityAdaptiveSettings(rate=float(10.0 ** rng.uniform(-2, 4))))
    box, free, stamp, z = model.arm_prior, law.adaptation > 0.0, 0.0, np.zeros(model.n)
    law.reset(stamp, z, z)
    law.step(stamp, z, z, np.zeros((3, model.n)), in_use(box))
    for _ in range(20):
        # A nested box, as identification publishes them; the truth at one of its corners.
        share = rng.choice([0.0, 0.1, 0.4], (2, box.size))
        box = ParameterBox(box.lower + share[0] * box.rad, box.upper - share[1] * box.rad)
        theta = np.where(rng.random(box.size) < 0.5, box.lower, box.upper)
        q, qd = rng.uniform(-3, 3, (2, model.n))
        reference = rng.uniform(-3, 3, (3, model.n))
        before, dt = law.estimate.copy(), float(rng.uniform(0, 5e-3))
        stamp += dt
        law.step(stamp, q, qd, reference, in_use(box))
        assert np.all((box.mid - box.rad <= law.estimate) & (law.estimate <= box.mid + box.rad))
        w_s, r = slotine_li(model, law.K_r, q, qd, reference)
        slope, scale = (r @ w_s)[free], law.adaptation[free]
        error, after = (before - theta)[free], (law.estimate - theta)[free]
        change = np.sum(after**2 / scale) - np.sum(error**2 / scale)
        allowed = 2.0 * dt * slope @ error + dt * dt * np.sum(scale * slope**2)
        assert change <= allowed + 1e-9 * (1.0 + abs(allowed) + np.sum(error**2 / scale))


def test_unknown_rates_and_gaps_do_not_throw_the_estimate(model: RobotModel) -> None:
    """Stamps that stand still or go back move nothing; a gap counts as max_age_s at most."""
    law, box = PassivityAdaptiveLaw(model), model.arm_prior
    use, q, z = in_use(box, model.theta_nominal), np.array(model.settings.home), np.zeros(7)
    reference = np.stack([q + 1e-3, z, z])
    law.reset(0.0, q, z)
    law.step(5.0, q, z, reference, use)
    first = law.estimate.copy()
    for stamp in (5.0, 4.0):
        law.step(stamp, q, z, reference, use)
        np.testing.assert_array_equal(law.estimate, first)
    steps = []
    for gap in (model.settings.measurement.max_age_s, 1e6):
        law.reset(0.0, q, z)
        law.step(0.0, q, z, reference, use)
        law.step(gap, q, z, reference, use)
        steps.append(law.estimate.copy())
    np.testing.assert_array_equal(*steps)
    law.reset(0.0, q, z)
    law.step(0.0, q, z, reference, use)
    np.testing.assert_array_equal(law.estimate, np.clip(model.theta_nominal, box.mid - box.rad, box.mid + box.rad))


def test_lyapunov_function_falls_and_excitation_brings_the_torque_to_the_truth(model: RobotModel) -> None:
    """V = r^T H r / 2 + |estimate - theta|^2 / 2 falls from every 10 ms to the next, though sampled at 1 kHz."""
    theta, box = truth(model, 0), model.arm_prior
    settings_of = functools.partial(PassivityAdaptiveSettings, K_r=3.0, decay=20.0)
    law, use = PassivityAdaptiveLaw(model, settings_of(rate=1000.0)), in_use(box)
    free, energies = law.adaptation > 0.0, []
    arm = RigidArm(model, theta, exciting(model, 0.0)[0], substeps=1)
    law.reset(0.0, arm.q, arm.qd)
    for k in range(2500):
        reference = exciting(model, k * DT)
        torque = law.step(k * DT, arm.q, arm.qd, reference, use)
        if k % 10 == 0:
            r = reference[1] - arm.qd + law.K_r * (reference[0] - arm.q)
            off = (law.estimate - theta)[free]
            energies.append(0.5 * r @ arm.inertia(arm.q) @ r + 0.5 * np.sum(off**2 / law.adaptation[free]))
        arm.step(torque, DT)
    assert np.all(np.diff(energies) < 0.0)

    def wrong(estimate: np.ndarray) -> float:
        """Torque that an estimate gets wrong, rms over the same kind of motion, N m."""
        q, qd, qdd = np.moveaxis([exciting(model, t) for t in np.linspace(5.0, 8.0, 40)], 1, 0)
        w_s = dynamics_of(model.kinematics).slotine_li_regressor(q, qd, qd, qdd, 0.01)
        return float(np.sqrt(np.mean((w_s @ (estimate - theta)) ** 2)))

    assert wrong(law.estimate) < 0.25 * wrong(box.mid)
    frozen = follow(model, PassivityAdaptiveLaw(model, settings_of(rate=1e-9)), theta, use, 2.0)
    moved = follow(model, law, theta, use, 2.0)
    assert np.abs(moved[1000:]).max() < 0.15 * np.abs(frozen[1000:]).max()


def test_adaptive_robust_metric_is_lyapunovs() -> None:
    """P of the docstring solves A^T P + P A = -Q with Q > 0, and z = B^T P (e, de), for any gains that may be given."""
    for bandwidth, ratio in ((1.0, 0.3), (10.0, 1.0), (60.0, 3.0)):
        k_p, k_v = bandwidth**2, 2.0 * ratio * bandwidth
        p = 0.5 * k_v
        matrix = np.array([[k_p + p * k_v, p], [p, 1.0]])
        a = np.array([[0.0, 1.0], [-k_p, -k_v]])
        np.testing.assert_allclose(a.T @ matrix + matrix @ a, -np.diag([2 * p * k_p, 2 * (k_v - p)]), atol=1e-9)
        assert np.all(np.linalg.eigvalsh(matrix) > 0.0)
        assert k_v - p > 0.0


def test_adaptive_robust_learns_a_bound_and_beats_its_own_nominal_loop(model: RobotModel) -> None:
    theta, use, bounds = truth(model, 1), in_use(model.arm_prior), []

    class Recorded(AdaptiveRobustLaw):
        def step(self, *args: object) -> np.ndarray:
            torque = super().step(*args)
            bounds.append(self.rho)
            return torque

    law = Recorded(model, AdaptiveRobustSettings(bandwidth=10.0, rate=100.0, layer=0.02))
    adaptive = follow(model, law, theta, use, 2.0)
    plain = follow(model, ComputedTorqueLaw(model, ComputedTorqueSettings(bandwidth=10.0)), theta, use, 2.0)
    assert np.abs(adaptive[1000:]).max() < 0.5 * np.abs(plain[1000:]).max()
    # rho only grows, and stops: inside the layer nothing is learned from noise.
    assert np.all(np.diff(bounds) >= 0.0)
    assert bounds[-1] == bounds[-400] > 2.0 * bounds[0]
    np.testing.assert_array_equal(law.estimate, use.nominal)


def test_adaptive_robust_energy_falls_outside_of_the_layer(model: RobotModel) -> None:
    """The exact condition of the proof: z^T (eta - w) <= |z| (|eta| - rho) where |z| >= layer rho, for any eta."""
    rng, law = np.random.default_rng(3), AdaptiveRobustLaw(model)
    use = in_use(model.arm_prior, truth(model, 5))
    k_p, k_v, slope, _, layer = law._gains
    for _ in range(50):
        q, qd = rng.uniform(-2, 2, (2, model.n))
        reference = np.stack([q, qd, rng.uniform(-2, 2, model.n)])
        reference[:2] += 0.05 * rng.normal(size=(2, model.n))
        law.reset(0.0, q, qd)
        torque = law.step(0.0, q, qd, reference, use)
        # The commanded acceleration of the nominal arm, found by inverting its own dynamics.
        arm = RigidArm(model, use.nominal, q)
        a = arm.acceleration(q, qd, torque)
        e, de = reference[0] - q, reference[1] - qd
        w = a - (reference[2] + k_v * de + k_p * e)
        z = de + slope * e
        norm = np.linalg.norm(z)
        assert norm > layer * law.rho
        np.testing.assert_allclose(w, law.rho * z / norm, rtol=1e-6, atol=1e-6)
