"""Gains for a box, a motion, noisy sensors, and arms without rotor inertia."""

import functools
from pathlib import Path

import numpy as np
import pytest
from urdf_factory import random_arm, write_arm

from safe_sysid.control.controller import Controller
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import _STEPS, STIFFEST, design_gains, gains_for_motion
from safe_sysid.control.gains.motion_hypotheses import hypotheses_of, torque_of
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.planning.certification.certificate import PlanCertificate, start_check, verify_plan
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.trajectories import QuinticTrajectory
from safe_sysid.trajectories.plan import Plan


def identified(model: RobotModel) -> ParameterBox:
    """The prior with a payload known to 5 %."""
    prior = model.arm_prior
    middle, half = (0.5 * (prior.payload_lower + prior.payload_upper), prior.payload_upper - prior.payload_lower)
    return prior.with_payload(middle - 0.025 * half, middle + 0.025 * half, 1)


def fast(model: RobotModel) -> QuinticTrajectory:
    """Two one-second pieces, twice as fast as exciting plans may be."""
    q = np.asarray(model.settings.home, float)
    z = np.zeros(model.n)
    way = np.array([0.9, 0.1, 0.2, 0.3, 0.2, 0.2, 0.4])
    knots = [[q, z, z], [q + 0.5 * way, 0.94 * way, z], [q + way, z, z]]
    return QuinticTrajectory(np.array([0.0, 1.0, 2.0]), np.array(knots))


def certificate(model: RobotModel, gains: ControllerGains) -> PlanCertificate:
    """Of the fast motion with the identified payload."""
    box = identified(model)
    plan = Plan(fast(model), 0.0, 1.0, box.identity, 0, np.zeros(model.n))
    return verify_plan(plan, model, box, load_scene("open"), gains)


@functools.cache
def searched(model: RobotModel, lockstep: bool) -> ControllerGains:
    """Gains for the fast motion with the identified payload, searched for once."""
    return gains_for_motion(model, fast(model), identified(model), lockstep)


@pytest.mark.parametrize("lockstep", [True, False])
def test_gains_for_a_fast_motion_with_an_identified_payload(model: RobotModel, lockstep: bool) -> None:
    gains, usual = searched(model, lockstep), design_gains(model, lockstep)
    assert gains.V_max < 0.5 * usual.V_max
    assert np.max(gains.assumptions.velocity) > np.max(usual.assumptions.velocity)
    found = certificate(model, gains)
    assert found.families["tracking"].ok, found.summary()
    assert found.families["torque"].ok, found.summary()
    # Those of the configuration do not cover it.
    assert not certificate(model, usual).families["tracking"].ok


def test_demands_are_those_of_the_motion(model: RobotModel) -> None:
    trajectory, box = fast(model), identified(model)
    found = hypotheses_of(model, trajectory, box, headroom=1.0)
    peaks = np.abs(trajectory.states(np.linspace(0.0, 2.0, 2001))).max(axis=0)
    for name, order in (("velocity", 1), ("acceleration", 2), ("jerk", 3)):
        assert np.all(getattr(found, name) >= peaks[order] - 1e-9)
        assert np.max(getattr(found, name)) <= np.max(peaks[order]) * 1.01
    more = hypotheses_of(model, trajectory, box, r_bound=0.05, headroom=1.2)
    assert np.all(more.velocity > found.velocity)
    assert more.uncertainty > 1.2 * found.uncertainty
    assert hypotheses_of(model, trajectory, model.arm_prior).uncertainty > 3.0 * found.uncertainty


def test_a_smaller_box_needs_less(model: RobotModel) -> None:
    prior, box = model.arm_prior, identified(model)
    small, large = (gains_for_motion(model, fast(model), b, True, K_r=5.0, kappa=15.0) for b in (box, prior))
    assert small.V_max < large.V_max
    with pytest.raises(ParameterError, match="inside the prior"):
        design_gains(model, box=ParameterBox(prior.lower - 1e-3, prior.upper))


@pytest.mark.parametrize("lockstep", [pytest.param(True, marks=pytest.mark.slow), False])
def test_velocity_errors_of_a_milliradian_per_second_may_start(lockstep: bool) -> None:
    timing = {"timing": {"hold_max_s": 0.0013, "delay_max_s": 0.0003}}
    noise = {"measurement": {"velocity_error": 1e-3, "position_error": 2e-5}}
    noisy, good = load_robot("kinova_gen3", **noise, **timing), load_robot("kinova_gen3", **timing)
    gains, exact = design_gains(noisy, lockstep), design_gains(good, lockstep)
    assert exact.V_max < gains.V_max < 4.0 * exact.V_max
    home = np.asarray(noisy.settings.home, float)
    assert start_check(noisy, noisy.arm_prior, load_scene("open"), gains, home) == []
    controller = Controller(noisy, gains)
    rng = np.random.default_rng(0)
    reasons = controller.start(0.0, home, 1e-3 * rng.choice([-1.0, 1.0], noisy.n))
    assert not [reason for reason in reasons if "not at rest" in reason], reasons


def bare_arm(folder: Path, **controller: object) -> RobotModel:
    """Two joints without rotor inertia and a heavy tool, known to 1 %."""
    urdf, config = random_arm(np.random.default_rng(3), 2)
    for joint in config["joints"].values():
        joint |= {"rotor_inertia": 0.0, "viscous": 0.5, "coulomb": 0.0, "offset": 0.0}
    config["uncertainty"] = {"relative": 0.01, "floor": dict.fromkeys(config["uncertainty"]["floor"], 0.0)}
    mass, com = 4.0, np.array([0.2, 0.1, 0.4])
    about = np.diag([0.05, 0.06, 0.04]) + mass * (com @ com * np.eye(3) - np.outer(com, com))
    theta = np.array([mass, *mass * com, *about[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]])
    config["identification"]["acceleration_bound"] = 15  # its stamps have errors: below 14 it is refused
    config["payload"]["prior_lower"] = (theta - 0.01 * np.abs(theta)).tolist()
    config["payload"]["prior_upper"] = (theta + 0.01 * np.abs(theta)).tolist()
    config["controller"] = {
        "uncertainty": 2.0, "inertia_ratio": 6.0, "kappa": 5.0, "K_r": 3.0, "velocity": 0.5,
        "acceleration": 1.0, "jerk": 8.0, **controller,
    }  # fmt: skip
    return load_robot(write_arm(folder, urdf, config))


def test_an_arm_without_rotor_inertia(tmp_path: Path) -> None:
    """Its inertia from below is declared, and proved along every plan, or the plan is refused."""
    with pytest.raises(ParameterError, match="inertia_lower"):
        design_gains(bare_arm(tmp_path), True)
    arm = bare_arm(tmp_path, inertia_lower=[0.3, 0.3])
    gains, box = design_gains(arm, True), arm.arm_prior
    assert np.array_equal(gains.inertia_lower, [0.3, 0.3])
    rng, outcomes = np.random.default_rng(1), set()
    for q in rng.uniform(-1.5, 1.5, (12, 2)):
        path = QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), q + 0.1, 1.5)
        plan = Plan(path, 0.0, 1.0, box.identity, 0, np.zeros(2))
        found = verify_plan(plan, arm, box, Scene("open"), gains, intervals=32)
        column = found.labels["tracking"].index(("inertia below", ""))
        proved = bool(np.all(found.margins["tracking"][:, column] >= 0.0))
        outcomes.add(proved)
        for t in np.linspace(0.0, 1.5, 20):
            at = path.state(float(t))[0]
            h = dynamics_of(arm.kinematics).mass_matrix(box.mid, at)
            assert np.linalg.eigvalsh(h)[0] >= 0.3 or not proved
    assert outcomes == {True, False}


@pytest.mark.parametrize("lockstep", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gains_for_a_motion_are_searched_for(model: RobotModel, lockstep: bool) -> None:
    """The tube is no wider than with the configuration's gains or a neighbour's; torques fit where they can."""
    box, trajectory, gains = identified(model), fast(model), searched(model, lockstep)
    assert np.all(gains.K_r <= STIFFEST[0] * (1.0 + 1e-12))
    assert gains.kappa <= STIFFEST[1]
    settings = model.settings.controller
    fixed = gains_for_motion(model, trajectory, box, lockstep, K_r=settings.K_r, kappa=settings.kappa)
    assert np.all(gains.e_bound < fixed.e_bound)
    assert np.all(torque_of(model, trajectory, box, gains) <= model.limits.torque)
    again = gains_for_motion(model, trajectory, box, lockstep)
    assert (again.V_max, again.kappa) == (gains.V_max, gains.kappa)


@pytest.mark.slow
def test_what_is_given_is_not_searched_for(model: RobotModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safe_sysid.control.gains.design._STEPS", _STEPS[::4])
    box, trajectory = identified(model), fast(model)
    gains = gains_for_motion(model, trajectory, box, True, K_r=3.0)
    assert np.array_equal(gains.K_r, np.full(model.n, 3.0))
    damped = gains_for_motion(model, trajectory, box, True, kappa=12.0)
    assert damped.own_damping == 12.0, "this arm is damped by its own inertia"


def test_torque_that_a_motion_asks_for_is_nearly_what_is_certified(model: RobotModel) -> None:
    """Samples from below, but for their share of K_d r, which a certificate knows better."""
    box, trajectory = identified(model), fast(model)
    gains = gains_for_motion(model, trajectory, box, True, K_r=5.0, kappa=15.0)
    proved = np.asarray(model.limits.torque) - certificate(model, gains).margins["torque"].min(axis=0)
    assert np.abs(torque_of(model, trajectory, box, gains) - proved).max() < 0.15 * np.max(proved)
