"""Damping by the arm's own inertia: what its proof adds to the theorem's (docs/understand/guarantees.md), attacked."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.gains.motion_hypotheses import configured_hypotheses
from safe_sysid.control.gains.power_loss import ClosedLoop
from safe_sysid.control.gains.synthesis import synthesise
from safe_sysid.control.laws.c_code import write_law
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.control.laws.robust import RobustLaw
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import rotor_floor
from safe_sysid.errors import ParameterError
from safe_sysid.planning.certification.certificate import may_rest
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import starts
import tracking

#: Published rotor inertia of the Panda, kg m^2 (docs/use/arms.md).
LIGHT = (0.606, 0.606, 0.462, 0.462, 0.206, 0.206, 0.206)


@pytest.fixture(scope="module")
def own() -> tuple[RobotModel, ControllerGains]:
    model = load_robot("kinova_gen3")
    return model, design_gains(model)


def inertia(model: RobotModel, theta: np.ndarray, q: np.ndarray) -> np.ndarray:
    return dynamics_of(model.kinematics).momentum_regressor(np.tile(q, (model.n, 1)), np.eye(model.n)) @ theta


def largest(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Smallest and largest eigenvalue of ``a^-1 b``."""
    found = np.linalg.eigvals(np.linalg.solve(a, b)).real
    return float(found.min()), float(found.max())


def test_inertia_hardly_changes_while_a_command_counts(own: tuple[RobotModel, ControllerGains]) -> None:
    """Matrices of a hold, all poses as far apart as motion, lead and errors allow, in units of the law's inertia."""
    model, gains = own
    rng, n, a, kappa = np.random.default_rng(0), model.n, gains.assumptions, gains.own_damping
    loop = ClosedLoop(
        model.kinematics, gains.box, a, gains.inertia_lower, gains.K_r, gains.K_d, gains.kappa,
        model.friction_transition_velocity, kappa,
    )  # fmt: skip
    assert np.all(gains.K_d == 0.0)
    assert kappa > gains.kappa == loop.kappa > 0.97 * kappa
    far = 3.0 * a.hold_max * a.velocity + a.position_error + a.hold_max * a.velocity_error
    nu, reached = float(np.sqrt(2 * gains.V_max)), 0.0
    for seed in range(20):
        theta = draw_truth(model, payload_from_spec("8lb"), np.random.default_rng(seed % 4), mode="corner")
        q = rng.uniform(-2.5, 2.5, n)
        true, law, before = (inertia(model, theta, q + way * far) for way in (0.0, *rng.choice([-1.0, 1.0], (2, n))))
        unit = law / loop.stretch
        low, high = largest(unit, true)
        assert low >= 1.0
        assert high <= loop.mu
        assert np.linalg.eigvalsh(unit - np.diag(loop.root**2))[0] >= 0.0
        reached = max(reached, high / loop.stretch - 1.0, 1.0 - low / loop.stretch)
        half = np.linalg.cholesky(unit)
        back = np.linalg.inv(half.T)
        for damping in (kappa * law, kappa * before):
            scaled = half.T @ np.linalg.solve(true, damping) @ back
            assert np.linalg.norm(scaled - loop.c_d * np.eye(n), 2) <= loop.e_d
            assert largest(unit, damping)[1] <= loop.mu_d
            assert np.linalg.norm(np.linalg.solve(half, damping - kappa * law) @ back, 2) <= loop.e_d
        assert largest(true, kappa * law)[0] >= loop.kappa
        qd = rng.choice([-1.0, 1.0], n) * a.velocity
        turn = np.linalg.solve(half, inertia(model, theta, q + a.hold_max * qd) - true) @ back
        assert np.linalg.norm(turn, 2) <= 2.0 * loop.motion_bounds(nu).qd_a.gain * a.hold_max
        x = rng.normal(size=n) * np.array([0.1, 10.0])[rng.integers(2, size=n)]
        if np.linalg.eigvalsh(true - np.diag(a.inertia_upper))[-1] <= 0.0:
            assert np.sqrt(x @ unit @ x) <= min(loop.across * np.linalg.norm(x * loop.root), loop.motion_norm(x))
    assert reached > 0.1 * (loop.stretch - 1.0), "a weak attack"


@pytest.mark.parametrize(
    ("robot", "payload"), [("kinova_gen3", "8lb"), ("light_panda", tracking.SMALL), ("ur5e", tracking.SMALL)]
)
def test_change_since_the_measurement_in_units_of_the_arm_s_own_inertia(robot: str, payload: str) -> None:
    """Step 6 with L = H_k / sigma: Delta' along motions as fast as allowed, from states and errors at their bounds."""
    light = {f"joints.panda_joint{i + 1}.rotor_inertia": x for i, x in enumerate(LIGHT)}
    model = load_robot("franka_panda", **light) if robot == "light_panda" else load_robot(robot)
    rng, n, kin, box = np.random.default_rng(5), model.n, model.kinematics, model.arm_prior
    hypotheses, s = configured_hypotheses(model), model.settings
    assume = TrackingAssumptions(
        hypotheses.velocity, hypotheses.acceleration, hypotheses.jerk, hypotheses.uncertainty, hypotheses.inertia_upper,
        np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.asarray(model.limits.torque), np.zeros(n), 1.5e-3, 5e-4,
    )  # fmt: skip
    floor, k = rotor_floor(kin, box), float(s.controller.K_r)
    loop = ClosedLoop(
        kin, box, assume, floor, np.full(n, k), np.zeros(n), 20.0, model.friction_transition_velocity, 20.0
    )
    regressor = dynamics_of(kin).slotine_li_regressor
    nu, age_max, lead, speed, reached = 0.1, assume.hold_max, 5e-4, 20.0, 0.0
    bound, slow = loop.change(nu, speed, age_max, lead), model.friction_transition_velocity
    for _ in range(400):
        theta = draw_truth(model, payload_from_spec(payload), rng, mode="corner")
        q, age = rng.uniform(-2.5, 2.5, n), float(rng.choice([1.0, rng.uniform()])) * age_max

        def error(x: np.ndarray, size: float, q: np.ndarray = q, theta: np.ndarray = theta) -> np.ndarray:
            """Along x, as long as the arm's inertia lets a motion of this size be."""
            return size * x / np.sqrt(x @ inertia(model, theta, q) @ x)

        qd = rng.choice([-1.0, 1.0], n) * assume.velocity * rng.uniform(0.3, 0.98)
        r, ke = (error(rng.normal(size=n) * rng.choice([0.1, 1.0], n), 0.7 * nu) for _ in range(2))
        dr = error(rng.normal(size=n), 0.1 * nu) / age_max
        desired = rng.choice([-1.0, 1.0], n) * assume.acceleration
        qdd_a = desired + k * (r - ke)
        turned = qdd_a + age * (rng.choice([-1.0, 1.0], n) * assume.jerk + k * (dr - k * (r - ke)))
        later = qd + age * (qdd_a - dr), qd + r + age * qdd_a, turned
        before = regressor(q + lead * qd, qd, qd + r, qdd_a, slow) @ theta
        true, law = q + age * qd + 0.5 * age**2 * (qdd_a - dr), inertia(model, theta, q + lead * qd)
        if np.linalg.eigvalsh(inertia(model, theta, true) - np.diag(assume.inertia_upper))[-1] > 0.0:
            continue
        change = regressor(true, *later, slow) @ theta - before - loop.k * inertia(model, theta, true) @ (age * dr)
        half = np.linalg.cholesky(law / loop.stretch)
        found, delta = np.linalg.norm(np.linalg.solve(half, change)), np.linalg.norm(half.T @ (age * dr))
        allowed = bound.moved * abs(age - lead) + bound.aged * age + bound.fixed + bound.by_r * delta
        assert found <= allowed
        reached = max(reached, found / allowed)
    assert reached > 0.02, "a weak attack"  # levers are the longest of any pose; each derivative: test_rotors.py


def test_an_arm_of_next_to_no_inertia_is_refused() -> None:
    """Neither rotors nor viscous friction: nothing says how much its inertia turns in a hold, and the error says so."""
    model = load_robot("three_joint")
    ready = design_gains(model)
    assume, box = ready.assumptions, ready.box
    lower = box.lower.copy()
    lower[box.layout.viscous] = lower[box.layout.rotor_inertia] = 0.0
    light = replace(box, lower=lower)
    with pytest.raises(ParameterError, match="bound"):
        synthesise(
            model.kinematics, light, assume, np.full(model.n, 2e-3), 8.0, 30.0, model.friction_transition_velocity,
            model.joint_names, True,
        )  # fmt: skip


def test_the_law_asks_for_an_acceleration(own: tuple[RobotModel, ControllerGains]) -> None:
    """Known parameters: the torque that makes ``dr = -kappa r``, whatever the pose; a box: in its image."""
    model, gains = own
    law, theta = RobustLaw(model.kinematics, gains, model.friction_transition_velocity), model.theta_nominal
    box, rng = model.arm_prior, np.random.default_rng(2)
    q, qd, q_d, qd_d, qdd_d = rng.uniform(-1, 1, (5, model.n))
    e, de = q_d - q, qd_d - qd
    r = de + gains.K_r * e
    w = dynamics_of(model.kinematics).slotine_li_regressor(
        q + gains.lead * qd, qd, qd_d + gains.K_r * e, qdd_d + gains.K_r * de + gains.own_damping * r, 0.01
    )
    reference = np.stack([q_d, qd_d, qdd_d])
    known = law.step(0.0, q, qd, reference, ModelInUse(theta, theta, np.zeros_like(theta)))
    np.testing.assert_allclose(known, w @ theta, rtol=1e-12, atol=1e-9)
    torque = law.step(0.0, q, qd, reference, ModelInUse(box.mid, box.mid, box.rad))
    assert np.all(np.abs(torque - w @ box.mid) <= np.abs(w) @ box.rad + 1e-9)


def test_every_claim_holds_in_closed_loop() -> None:
    """Corners, jumps, errors on their bounds, longest and irregular holds; rotors as bodies on moving links, too."""
    lines = [tracking.run(number, 1, duration=0.06) for number in range(4)]
    lines += [tracking.run(0, 1, duration=0.03, gears=20.0)]
    found = tracking.summarise(lines)
    assert found["violated"] == 0, found
    kinds = [kind for kind in tracking.KINDS if kind in found]
    reached = {claim: max(found[kind][claim] for kind in kinds) for claim in tracking.CLAIMS}
    assert min(reached[claim] for claim in ("V", "r", "lemma", "U", "movement")) > 0.3, "a weak attack"


@pytest.mark.parametrize(
    ("how", "claim"), [("damping", "lemma"), ("robust", "V"), ("steepness", "lemma"), ("delay", "age")]
)
def test_broken_laws_are_caught(how: str, claim: str) -> None:
    assert any(tracking.run(k, 1, how, duration=0.08)["share"][claim] > 1.01 for k in range(8))


def test_poses_of_much_inertia_may_be_rested_at(tmp_path: Path) -> None:
    """What refused two of three starts was the hypothesis on H; the tube is no wider. And the law in C is this one."""
    refused, tubes = {}, {}
    poses = starts.restful(load_robot("three_joint"), Scene("open"), 30, np.random.default_rng(0))
    for damping, changes in (("constant", starts.CONSTANT["three_joint"]), ("inertia", {})):
        model = load_robot("three_joint", **changes)
        gains = design_gains(model)
        free, _ = may_rest(model, model.arm_prior, Scene("open"), gains, poses)
        refused[damping], tubes[damping] = 1.0 - float(np.mean(free)), float(gains.e_bound.max())
    assert refused["constant"] > 0.5
    assert refused["inertia"] < 0.15
    assert tubes["inertia"] < 1.1 * tubes["constant"]
    write_law(model, gains, tmp_path / "law")
