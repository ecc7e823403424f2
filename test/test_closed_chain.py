"""Mechanisms with loops: Pinocchio's constrained dynamics is the oracle, finite differences the second one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain import ClosureError, Mechanism, check_uniqueness, load_mechanism
from safe_sysid.dynamics.closed_chain.files import mechanism_path, pinocchio_model, read_mechanism_file
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.resources import resource_path
from safe_sysid.robot.files.urdf import read_tree
from safe_sysid.robot.loading import load_robot

pytestmark = pytest.mark.unproved

LOOPED = ("four_bar", "palletiser", "leg")
ALL = (*LOOPED, "four_joint_arm")


@cache
def mechanism(name: str) -> Mechanism:
    return load_mechanism(name)


@cache
def oracle(name: str) -> tuple[pin.Model, pin.StdVec_RigidConstraintModel]:
    """Pinocchio's own model of the mechanism, from the files and nothing of ours but the YAML's numbers."""
    file = mechanism_path(name)
    read = read_mechanism_file(file)
    model = pinocchio_model(read_tree(resource_path(f"urdf/{read.urdf}")), read, str(file))
    constraints = pin.StdVec_RigidConstraintModel()
    for loop in read.loops:
        ends = []
        for end in (loop.first, loop.second):
            frame = model.frames[model.getFrameId(end.link, pin.FrameType.BODY)]
            shift = pin.SE3(pin.rpy.rpyToMatrix(np.array(end.rpy)), np.array(end.xyz))
            ends += [frame.parentJoint, frame.placement * shift]
        kind = pin.ContactType.CONTACT_6D if loop.kind == "6D" else pin.ContactType.CONTACT_3D
        constraints.append(pin.RigidConstraintModel(kind, model, *ends, pin.ReferenceFrame.LOCAL))
    return model, constraints


def wave(m: Mechanism, seed: int, n: int = 40, step: float = 1e-3) -> tuple[np.ndarray, ...]:
    """Stamps, positions, velocities, accelerations of the actuated joints: sines within their limits."""
    rng, t = np.random.default_rng(seed), step * np.arange(n)[:, None]
    low, high = m.position_lower[m.actuated], m.position_upper[m.actuated]
    w, phase = rng.uniform(1, 6, len(low)), rng.uniform(0, 2 * np.pi, len(low))
    middle, size, sine = 0.5 * (low + high), 0.45 * (high - low), np.sin(w * t + phase)
    return t[:, 0], middle + size * sine, size * w * np.cos(w * t + phase), -size * w**2 * sine


@pytest.mark.parametrize("name", LOOPED)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_pinocchio_finds_the_loops_closed_and_their_rates_zero(name: str, seed: int) -> None:
    m, (model, constraints) = mechanism(name), oracle(name)
    data = model.createData()
    motion = m.motion(*wave(m, seed)[1:])
    for k in (0, 39):
        pin.forwardKinematics(model, data, motion.q[k])
        for c in constraints:
            first, second = (data.oMi[c.joint1_id] * c.joint1_placement, data.oMi[c.joint2_id] * c.joint2_placement)
            apart = first.inverse() * second
            assert np.max(np.abs(apart.translation)) < 1e-10
            if c.type == pin.ContactType.CONTACT_6D:
                assert np.max(np.abs(pin.log3(apart.rotation))) < 1e-10
        pin.computeJointJacobians(model, data, motion.q[k])
        for c in constraints:
            ends = []
            for joint, placement in ((c.joint1_id, c.joint1_placement), (c.joint2_id, c.joint2_placement)):
                j = pin.getJointJacobian(model, data, joint, pin.LOCAL_WORLD_ALIGNED) @ motion.transmission[k]
                lever = data.oMi[joint].rotation @ placement.translation
                ends.append(np.vstack([j[:3] - pin.skew(lever) @ j[3:], j[3:]]))
            rows = 6 if c.type == pin.ContactType.CONTACT_6D else 3
            assert np.max(np.abs(ends[1] - ends[0])[:rows]) < 1e-10


@pytest.mark.parametrize("name", LOOPED)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_the_projected_torque_makes_pinocchio_accelerate_as_asked(name: str, seed: int) -> None:
    """Eq. 23 against constrained forward dynamics: no projection, no regressor on that side."""
    m, (model, constraints) = mechanism(name), oracle(name)
    motion = m.motion(*wave(m, seed)[1:])
    motors = m.regressor(motion) @ m.theta_nominal
    fc, fv, ia, beta = m.layout.by_term(np.array(m.theta_nominal))
    model = model.copy()
    model.armature = ia
    data, datas = model.createData(), pin.StdVec_RigidConstraintData()
    datas.extend(c.createData() for c in constraints)
    pin.initConstraintDynamics(model, data, constraints, datas)
    accuracy = pin.ProximalSettings(1e-14, 1e-10, 200)
    for k in (0, 17, 39):
        tau = -fc * np.sign(motion.qd[k]) - fv * motion.qd[k] - beta
        tau[m.actuated] += motors[k]
        qdd = pin.constraintDynamics(model, data, motion.q[k], motion.qd[k], tau, constraints, datas, accuracy)
        np.testing.assert_allclose(qdd, motion.qdd[k], rtol=1e-6, atol=1e-5 * (1 + np.max(np.abs(motion.qdd[k]))))


@pytest.mark.parametrize("name", ALL)
def test_rates_are_those_of_finite_differences(name: str) -> None:
    m = mechanism(name)
    t, *state = wave(m, 3, n=41, step=2e-4)
    motion, step = m.motion(*state), 2 * (t[1] - t[0])

    def close(values: np.ndarray, rates: np.ndarray) -> None:
        change = (values[2:] - values[:-2]) / step
        assert np.max(np.abs(change - rates[1:-1])) < 3e-4 * (1 + np.max(np.abs(rates)))

    close(motion.q, motion.qd)
    close(motion.qd, motion.qdd)
    close(motion.transmission, m.transmission_rate(motion))
    theta = np.array(m.theta_nominal)
    theta[m.layout.coulomb] = 0.0
    momentum, rate = m.momentum_regressors(motion)
    close(momentum @ theta, rate @ theta + m.regressor(motion) @ theta)


@pytest.mark.parametrize("name", ALL)
def test_assumption_1_holds_within_the_limits(name: str) -> None:
    found = check_uniqueness(mechanism(name), samples=30)
    assert found.holds
    assert found.smallest_singular_value > 0.05


def test_without_limits_a_four_bar_has_two_branches() -> None:
    m = mechanism("four_bar")
    wide = replace(m, position_lower=np.full(3, -np.pi), position_upper=np.full(3, np.pi))
    found = check_uniqueness(wide, samples=20)
    assert found.several == 20
    assert not found.holds
    assert found.example is not None
    assert all(wide.is_closed(q) for q in found.example)


def test_a_lost_branch_is_an_error_with_time_and_joint() -> None:
    """Driven by its rocker, this four-bar stops where crank and coupler are in line."""
    m = mechanism("four_bar")
    wide = replace(m, actuated=np.array([2]), position_lower=np.full(3, -7.0), position_upper=np.full(3, 7.0))
    t = np.linspace(0.0, 2.0, 401)
    q_a = (m.start[2] - t)[:, None]
    with pytest.raises(ClosureError, match="ends") as caught:
        wide.positions(q_a, t)
    # There |AC| = 0.45 - 0.20: by the law of cosines at D, 0.25^2 = 0.5^2 + 0.35^2 - 0.35 cos(angle).
    limit = np.arccos((0.3725 - 0.0625) / 0.35) - np.pi
    assert caught.value.time == pytest.approx(m.start[2] - limit, abs=0.006)
    assert caught.value.joint in ("crank", "coupler")
    assert f"{caught.value.time:.6g} s" in str(caught.value)
    short = wide.positions(q_a[: caught.value.sample - 2])
    with pytest.raises(ClosureError, match="singular") as near:
        replace(wide, smallest=0.2).motion(short.take([2], axis=1), 0 * short[:, :1], 0 * short[:, :1], t)
    assert near.value.sample < caught.value.sample


def test_a_passive_joint_beyond_its_limits_is_an_error() -> None:
    m = mechanism("leg")
    upper = np.where(np.array(m.joint_names) == "toe_roll", 0.1, m.position_upper)
    t, q_a, *_ = wave(m, 1, n=2000)
    with pytest.raises(ClosureError, match=r"beyond its limits .* toe_roll"):
        replace(m, position_upper=upper).positions(q_a, t)


@pytest.mark.parametrize(("kind", "message"), [("6D", "3 independent rows of 6"), ("4D", "3D or 6D")])
def test_rows_must_be_as_many_as_passive_joints(kind: str, message: str) -> None:
    m = mechanism("four_bar")
    # The ends turned alike, so that the loop closes as a rigid one: then the crank cannot turn.
    frames = np.array([np.eye(3), pin.rpy.rpyToMatrix(0.0, m.start[2] - m.start[1], 0.0)])
    with pytest.raises(ModelError, match=message):
        replace(m, closures=(replace(m.closures[0], kind=kind, rotations=frames),))


def test_a_loop_that_does_not_reach_is_named() -> None:
    m = mechanism("four_bar")
    far = replace(m.closures[0], points=np.array([[0.1, 0.0, 0.0], [0.05, 0.0, 0.0]]))
    with pytest.raises(ModelError, match="'four_bar' is open by"):
        replace(m, closures=(far,))


def test_an_arm_without_loops_is_its_own_mechanism() -> None:
    robot = load_robot("kinova_gen3")
    m, states = Mechanism.of_robot(robot), np.random.default_rng(0).normal(size=(3, 5, robot.n))
    torque = dynamics_of(robot.kinematics, "pinocchio").inverse_dynamics(robot.theta_nominal, *states)
    np.testing.assert_allclose(m.regressor(m.motion(*states)) @ m.theta_nominal, torque, atol=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("actuated: [crank]", "actuated: [handle]", "actuated"),
        ("link: rocker", "link: roker", "loops.four_bar.first.link"),
        ("kind: 3D", "kind: 5D", "kind"),
        ("urdf: four_bar.urdf", "urdf: none.urdf", "urdf"),
        ("  crank: {", "  handle: {", "joints"),
    ],
)
def test_files_are_checked(tmp_path: Path, old: str, new: str, key: str) -> None:
    text = mechanism_path("four_bar").read_text()
    assert old in text
    file = tmp_path / "mine.yaml"
    file.write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_mechanism(file)
    assert key in caught.value.key


def test_locked_joints_do_not_move(tmp_path: Path) -> None:
    file = tmp_path / "arm.yaml"
    file.write_text("urdf: four_joint_arm.urdf\nlocked: {shoulder_yaw: 0.3}\n")
    m = load_mechanism(file)
    assert m.joint_names == ("shoulder_roll", "shoulder_pitch", "elbow")
    assert m.theta_nominal[::10][:3].sum() == pytest.approx(mechanism("four_joint_arm").theta_nominal[::10][:4].sum())


def test_a_slider_crank_slides_as_its_formula_says(tmp_path: Path) -> None:
    links = "".join(
        f'<link name="{name}"><inertial><mass value="1"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" '
        f'izz="0.01"/></inertial></link>'
        for name in ("frame", "crank", "rod", "slider")
    )
    joint = (
        '<joint name="{0}" type="{1}"><parent link="{2}"/><child link="{0}"/><origin xyz="{3} 0 0"/><axis xyz="{4}"/>'
        '<limit lower="-3" upper="3" effort="9" velocity="9"/></joint>'
    )
    (tmp_path / "engine.urdf").write_text(
        f'<robot name="engine">{links}'
        + joint.format("crank", "revolute", "frame", 0, "0 1 0")
        + joint.format("rod", "revolute", "crank", 0.1, "0 1 0")
        + joint.format("slider", "prismatic", "frame", 0, "1 0 0")
        + "</robot>"
    )
    (tmp_path / "engine.yaml").write_text(
        "urdf: engine.urdf\nactuated: [crank]\nstart: {slider: 0.4}\n"
        "loops: [{name: piston, first: {link: slider}, second: {link: rod, xyz: [0.3, 0, 0]}}]\n"
    )
    m = load_mechanism(tmp_path / "engine.yaml")
    angle = np.linspace(0.0, 2.5, 60)[:, None]
    slides = m.joint_names.index("slider")
    motion = m.motion(angle, np.full_like(angle, 2.0), np.zeros_like(angle))
    sine, cosine = np.sin(angle[:, 0]), np.cos(angle[:, 0])
    root = np.sqrt(0.09 - 0.01 * sine**2)
    np.testing.assert_allclose(motion.q[:, slides], 0.1 * cosine + root, atol=1e-10)
    slope = -0.1 * sine - 0.01 * sine * cosine / root
    np.testing.assert_allclose(motion.qd[:, slides], 2.0 * slope, atol=1e-9)
    curve = -0.1 * cosine - 0.01 * ((cosine**2 - sine**2) / root + 0.01 * (sine * cosine) ** 2 / root**3)
    np.testing.assert_allclose(motion.qdd[:, slides], 4.0 * curve, atol=1e-8)
