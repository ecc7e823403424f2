"""Loading of arms agrees with independent readers of the same files; what comes out is complete and read-only."""

from __future__ import annotations

import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from urdf_factory import random_arm, write_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.resources import resource_path
from safe_sysid.robot import is_consistent, load_robot
from safe_sysid.robot.frames import forward_kinematics

SEEDS = st.integers(0, 2**32 - 1)
ARMS = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def pinocchio_state(model: pin.Model, q: np.ndarray) -> np.ndarray:
    """Our q (n,) as Pinocchio's: continuous joints there are (cos, sin)."""
    full = np.zeros(model.nq)
    for j in range(1, model.njoints):
        joint = model.joints[j]
        angle = q[joint.idx_v]
        full[joint.idx_q : joint.idx_q + joint.nq] = [angle] if joint.nq == 1 else [np.cos(angle), np.sin(angle)]
    return full


# --- agreement with independent readers ---


@ARMS
@given(seed=SEEDS, n=st.integers(1, 9))
def test_random_arm_has_the_dynamics_and_kinematics_of_its_urdf(tmp_path, seed, n):
    rng = np.random.default_rng(seed)
    urdf, config = random_arm(rng, n)
    arm = load_robot(write_arm(tmp_path, urdf, config))
    oracle = pin.buildModelFromUrdf(str(tmp_path / "arm.urdf"))  # the untouched file, its own limits and joint types
    data = oracle.createData()
    assert arm.joint_names == tuple(oracle.names)[1:]
    keys = ("coulomb", "viscous", "rotor_inertia", "offset")
    friction = np.array([[config["joints"][j][key] for j in arm.joint_names] for key in keys])
    for _ in range(3):
        q, qd, qdd = rng.uniform(-3, 3, n), rng.normal(size=n), rng.normal(0, 5, n)
        rigid = pin.rnea(oracle, data, pinocchio_state(oracle, q), qd, qdd)
        expected = rigid + friction[0] * np.sign(qd) + friction[1] * qd + friction[2] * qdd + friction[3]
        ours = dynamics_of(arm.kinematics).torque_regressor(q, qd, qdd, 0.0) @ arm.theta_nominal
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
        pin.framesForwardKinematics(oracle, data, pinocchio_state(oracle, q))
        rotations, positions = forward_kinematics(arm.kinematics, q)
        for j in range(n):
            np.testing.assert_allclose(rotations[j], data.oMi[j + 1].rotation, atol=1e-12)
            np.testing.assert_allclose(positions[j], data.oMi[j + 1].translation, atol=1e-12)
        tool = data.oMf[oracle.getFrameId(config["tool_frame"])]
        np.testing.assert_allclose(positions[-1] + rotations[-1] @ arm.flange[1], tool.translation, atol=1e-12)
        np.testing.assert_allclose(rotations[-1] @ arm.flange[0], tool.rotation, atol=1e-12)


@ARMS
@given(seed=SEEDS, n=st.integers(1, 9))
def test_arm_prior_is_relative_plus_floor_and_never_negative_where_physics_forbids(tmp_path, seed, n):
    urdf, config = random_arm(np.random.default_rng(seed), n)
    arm = load_robot(write_arm(tmp_path, urdf, config))
    theta, prior, relative = arm.theta_nominal, arm.arm_prior, config["uncertainty"]["relative"]
    floors = config["uncertainty"]["floor"]
    last = slice(10 * (n - 1), 10 * n)
    assert prior.lower[last].tolist() == config["payload"]["prior_lower"]
    assert prior.upper[last].tolist() == config["payload"]["prior_upper"]
    keys = n * ["mass", *3 * ["first_moment"], *6 * ["inertia"]]
    keys += [key for key in ("coulomb", "viscous", "rotor_inertia", "offset") for _ in range(n)]
    for p, key in enumerate(keys):
        if last.start <= p < last.stop:
            continue
        nominal = Fraction(theta[p])  # exact: the box must hold the real interval, not its rounding
        radius = Fraction(relative) * abs(nominal) + Fraction(floors[key])
        low, high = nominal - radius, nominal + radius
        if key in ("mass", "coulomb", "viscous", "rotor_inertia"):
            low = max(low, Fraction(0))
        assert Fraction(prior.lower[p]) <= low
        assert Fraction(prior.upper[p]) >= high
        assert prior.lower[p] == pytest.approx(float(low), rel=1e-14, abs=1e-15)
        assert prior.upper[p] == pytest.approx(float(high), rel=1e-14, abs=1e-15)
    assert arm.arm_prior.identity == "0:0"


def test_a_prior_without_uncertainty_is_a_point():
    floor = dict.fromkeys(("mass", "first_moment", "inertia", "coulomb", "viscous", "rotor_inertia", "offset"), 0.0)
    arm = load_robot("kinova_gen3", uncertainty={"relative": 0.0, "floor": floor})
    arm_part = np.r_[0:60, 70:98]
    np.testing.assert_allclose(arm.arm_prior.rad[arm_part], 0.0, atol=1e-13)
    assert arm.arm_prior.contains(np.r_[arm.theta_nominal[:60], arm.arm_prior.mid[60:70], arm.theta_nominal[70:]])
    assert not arm.arm_prior.upper[70:77].any()  # no Coulomb friction is exactly none


def test_kinova_agrees_with_mujoco_reading_the_same_urdf():
    mujoco = pytest.importorskip("mujoco")
    arm = load_robot("kinova_gen3")
    text = resource_path("urdf/kinova_gen3.urdf").read_text(encoding="utf-8")
    option = '<mujoco><compiler fusestatic="true" discardvisual="true" balanceinertia="false"/></mujoco></robot>'
    oracle = mujoco.MjModel.from_xml_string(text.replace("</robot>", option))
    oracle.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    data = mujoco.MjData(oracle)
    theta = arm.theta_nominal.copy()
    theta[70:] = 0.0  # friction and rotor inertia are ours, not the URDF's
    rng = np.random.default_rng(3)
    for _ in range(20):
        data.qpos[:], data.qvel[:], data.qacc[:] = q, qd, qdd = rng.normal(size=(3, 7))
        mujoco.mj_inverse(oracle, data)
        ours = dynamics_of(arm.kinematics).torque_regressor(q, qd, qdd, 0.0) @ theta
        np.testing.assert_allclose(ours, data.qfrc_inverse, atol=2e-5)  # MuJoCo stores principal axes, rpy rounded


def test_kinova_has_the_published_numbers():
    arm = load_robot("kinova_gen3")
    assert arm.n == 7
    fingers = 2 * (0.01384773 + 0.04260377 + 0.02969376 + 0.04268589)
    assert arm.theta_nominal[60] == pytest.approx(0.364 + 0.663202 + fingers)
    assert arm.continuous.tolist() == [True, False, True, False, True, False, True]
    for j, degrees in ((1, 128.9), (3, 147.8), (5, 120.3)):
        assert 0 <= np.deg2rad(degrees) - arm.limits.position_upper[j] < 1e-4
        assert arm.limits.position_lower[j] == -arm.limits.position_upper[j]
    np.testing.assert_array_less(arm.limits.velocity, np.deg2rad([100] * 4 + [180] * 3))
    np.testing.assert_allclose(arm.limits.velocity, np.deg2rad([100] * 4 + [180] * 3), rtol=1e-4)
    assert arm.limits.torque.tolist() == [56.7] * 4 + [29.4] * 3
    assert arm.arm_prior.payload_lower.tolist() == [1.2, -0.4, -0.4, -1.0] + [-0.2] * 6
    assert arm.arm_prior.payload_upper.tolist() == [5.2, 0.4, 0.4, -0.1] + [0.2] * 6
    assert all(is_consistent(arm.theta_nominal[10 * j : 10 * j + 10]) for j in range(7))
    # Joint 1's published roll is 3.1416, not pi: digits of the source are kept.
    assert arm.kinematics.rotation[0][2, 1] == pytest.approx(np.sin(3.1416), abs=1e-15)


def test_everything_that_crosses_rooms_is_read_only():
    arm = load_robot("kinova_gen3")
    arrays = [*arm.kinematics[:-1], *arm.kinematics.motors, arm.theta_nominal, *arm.flange, arm.continuous]
    arrays += [arm.arm_prior.lower, arm.arm_prior.upper, *(body.points for body in arm.bodies)]
    arrays += [arm.limits.position_lower, arm.limits.position_upper, arm.limits.velocity, arm.limits.torque]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    with pytest.raises(Exception, match="frozen"):
        arm.settings.controller.K_r = 1.0


def test_loading_is_quick():
    load_robot("kinova_gen3")
    started = time.perf_counter()
    load_robot("kinova_gen3")
    assert time.perf_counter() - started < 1.0


def test_importing_the_room_needs_neither_ros_nor_simulator_nor_plots():
    code = "import sys, safe_sysid.robot; print([m for m in ('rclpy', 'mujoco', 'matplotlib') if m in sys.modules])"
    root = Path(__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert result.stdout.strip() == "[]"


def test_settings_win_over_the_urdf_and_the_urdf_fills_in(tmp_path):
    urdf, config = random_arm(np.random.default_rng(0), 3)
    urdf = urdf.replace('type="continuous"', 'type="revolute"')
    urdf = urdf.replace("<limit effort", '<limit lower="-1" upper="1" effort')
    path = write_arm(tmp_path, urdf, config)
    filled = load_robot(path)
    assert filled.limits.torque.tolist() == [40.0] * 3
    assert filled.limits.velocity.tolist() == [2.0] * 3
    assert np.all(np.isfinite(filled.limits.position_upper))
    changed = load_robot(path, joints={"turn 1": {"position": "continuous", "velocity": 0.5, "torque": 7}})
    assert changed.continuous.tolist() == [False, True, False]
    assert changed.limits.velocity.tolist() == [2.0, 0.5, 2.0]
    assert changed.limits.torque.tolist() == [40.0, 7.0, 40.0]


def test_overrides_merge_and_dotted_keys_are_short_for_nesting():
    nested = load_robot("kinova_gen3", measurement={"torque_abs": 0.2})
    flat = load_robot("kinova_gen3", **{"measurement.torque_abs": 0.2})
    assert nested.settings == flat.settings
    assert nested.settings.measurement.torque_rel == 0.025


def test_arm_without_rotor_inertia_loads():
    arm = load_robot("kinova_gen3", **{f"joints.joint_{j}.rotor_inertia": 0.0 for j in range(1, 8)})
    assert not arm.arm_prior.upper[84:91].any()
