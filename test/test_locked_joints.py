"""Joints beside or in the arm that are fixed at a value, their followers, and a base that is mounted somewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import yaml
from urdf_factory import needs_example_robots, numbers, random_inertial, random_origin

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.resources import resource_path
from safe_sysid.robot import load_robot
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.frames import forward_kinematics

#: Name, type, parent, child, more: an arm of shoulder, lift and elbow, a hand with two fingers, one with a tip.
JOINTS = (
    ("shoulder", "revolute", "base", "upper", ""),
    ("lift", "prismatic", "upper", "carriage", ""),
    ("elbow", "continuous", "carriage", "lower", ""),
    ("finger", "prismatic", "lower", "left", ""),
    ("other finger", "prismatic", "lower", "right", '<mimic joint="finger" multiplier="-0.5" offset="0.01"/>'),
    ("tip", "revolute", "right", "end", '<mimic joint="other finger"/>'),
    ("lamp", "revolute", "upper", "shade", ""),
)
LOCKED = {"finger": 0.03, "lamp": -0.7, "lift": 0.04}
#: What follows: -0.5 * 0.03 + 0.01.
EVERYWHERE = LOCKED | {"other finger": -0.005, "tip": -0.005}


def write_gripper_arm(folder: Path, **settings: object) -> Path:
    rng = np.random.default_rng(5)
    links = [f'<link name="base">{sphere(rng)}</link>']
    joints = []
    for name, kind, parent, child, more in JOINTS:
        links.append(f'<link name="{child}">{random_inertial(rng)}{sphere(rng)}</link>')
        limit = '<limit effort="50" velocity="2"/>'
        if kind != "continuous":
            limit = '<limit lower="-0.9" upper="0.9" effort="50" velocity="2"/>'
        joints.append(
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
            f'{random_origin(rng)}<axis xyz="{numbers(rng.normal(size=3))}"/>{limit}{more}</joint>'
        )
    (folder / "arm.urdf").write_text(f'<robot name="gripper">{"".join(links + joints)}</robot>', encoding="utf-8")
    config = read_yaml(resource_path("config/kinova_gen3.yaml"))
    entry = {"rotor_inertia": 2.0, "viscous": 1.0, "coulomb": 0.1, "offset": 0.0}
    config |= {
        "name": "gripper", "urdf": "arm.urdf", "base_link": "base", "tool_frame": "lower",
        "joints": {"shoulder": entry, "elbow": entry}, "locked": LOCKED, "home": [0.1, 0.2],
    }  # fmt: skip
    config["controller"]["inertia_ratio"] = 2.4
    path = folder / "arm.yaml"
    path.write_text(yaml.safe_dump(config | settings, sort_keys=False), encoding="utf-8")
    return path


def sphere(rng: np.random.Generator) -> str:
    return f'<collision>{random_origin(rng)}<geometry><sphere radius="0.03"/></geometry></collision>'


@pytest.fixture
def file(tmp_path) -> Path:
    return write_gripper_arm(tmp_path)


def oracle_of(file: Path) -> pin.Model:
    """Pinocchio's model of all joints; mimics are ignored."""
    return pin.buildModelFromUrdf(str(file.parent / "arm.urdf"))


def whole(oracle: pin.Model, shoulder: float, elbow: float) -> np.ndarray:
    """A configuration of all joints: the arm's own are told, the locked ones are in their places."""
    q = pin.neutral(oracle)
    for name, value in (EVERYWHERE | {"shoulder": shoulder}).items():
        q[oracle.joints[oracle.getJointId(name)].idx_q] = value
    at = oracle.joints[oracle.getJointId("elbow")].idx_q
    q[at : at + 2] = np.cos(elbow), np.sin(elbow)
    return q


def test_locked_links_are_lumped_with_what_carries_them(file):
    """Torques of the arm's own joints are those of the full model whose other joints are held."""
    arm, oracle = load_robot(file), oracle_of(file)
    assert arm.joint_names == ("shoulder", "elbow")
    data, rng = oracle.createData(), np.random.default_rng(0)
    theta = arm.theta_nominal.copy()
    theta[20:] = 0.0
    at = [oracle.joints[oracle.getJointId(name)].idx_v for name in arm.joint_names]
    for _ in range(20):
        q, qd, qdd = rng.uniform(-0.8, 0.8, (3, 2))
        speed, rate = np.zeros((2, oracle.nv))
        speed[at], rate[at] = qd, qdd
        expected = pin.rnea(oracle, data, whole(oracle, *q), speed, rate)[at]
        found = dynamics_of(arm.kinematics).torque_regressor(q, qd, qdd) @ theta
        np.testing.assert_allclose(found, expected, atol=1e-11)


def test_bodies_move_with_what_carries_them(file):
    arm, oracle = load_robot(file), oracle_of(file)
    where = {body.name: body.joint for body in arm.bodies}
    assert where == {
        "base": -1, "upper": 0, "carriage": 0, "shade": 0, "lower": 1, "left": 1, "right": 1, "end": 1, "payload": 1,
    }  # fmt: skip
    data, q = oracle.createData(), np.array([0.4, -0.9])
    geometry = pin.buildGeomFromUrdf(oracle, str(file.parent / "arm.urdf"), pin.GeometryType.COLLISION)
    placed = geometry.createData()
    pin.updateGeometryPlacements(oracle, data, geometry, placed, whole(oracle, *q))
    r, p = forward_kinematics(arm.kinematics, q)
    for item, place in zip(geometry.geometryObjects, placed.oMg, strict=True):
        body = next(b for b in arm.bodies if item.name.startswith(b.name))
        point = body.points[0] if body.joint < 0 else p[body.joint] + r[body.joint] @ body.points[0]
        np.testing.assert_allclose(point, place.translation, atol=1e-12)


def test_hand_links_behind_locked_joints_belong_to_the_hand(file):
    kinds = {body.name: body.kind for body in load_robot(file).bodies}
    assert {name for name, kind in kinds.items() if kind == "hand"} == {"lower", "left", "right", "end"}


@pytest.mark.parametrize(
    ("settings", "key", "expected"),
    [
        ({"locked": LOCKED | {"finger": 0.95}}, "locked.finger", r"limits \[-0.9, 0.9\] m"),
        ({"locked": LOCKED | {"lamp": -1.0}}, "locked.lamp", r"limits \[-0.9, 0.9\] rad"),
        ({"locked": LOCKED | {"other finger": 0.0}}, "locked.other finger", "follows 'finger'"),
        ({"locked": LOCKED | {"knee": 0.0}}, "locked.knee", "a moving joint of .*shoulder"),
        ({"locked": LOCKED | {"elbow": 0.0}}, "joints.elbow", "moves by itself"),
        ({"locked": LOCKED | {"lift": "high"}}, "locked.lift", "number"),
        ({"locked": LOCKED | {"lift": float("nan")}}, "locked.lift", "finite"),
        ({"locked": [1.0]}, "locked", "mapping"),
        ({"mounting": {"rpy": [0.0, 0.0]}}, "mounting.rpy", "3 numbers"),
        ({"mounting": {"xyz": [0.0, 0.0, float("inf")]}}, r"mounting.xyz[2]", "finite"),
        ({"mounting": {"quat": [0.0, 0.0, 0.0, 1.0]}}, "mounting.quat", "rpy, xyz"),
    ],
)
def test_mistakes_name_key_value_and_expectation(tmp_path, settings, key, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        load_robot(write_gripper_arm(tmp_path, **settings))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("finger", "'other finger' mimics 'finger', which is not locked"),
        ("lamp", "'elbow' branches off beside joint 'lamp'|'lamp' branches off beside"),
        ("lift", r"joints\.lift = 'missing': expected an entry .* or a position for it under `locked`"),
    ],
)
def test_every_moving_joint_is_the_arms_or_locked(tmp_path, left_out, message):
    locked = {name: value for name, value in LOCKED.items() if name != left_out}
    with pytest.raises((ConfigError, ModelError), match=message):
        load_robot(write_gripper_arm(tmp_path, locked=locked))


def test_followers_in_a_ring_are_refused(file):
    urdf = file.parent / "arm.urdf"
    urdf.write_text(urdf.read_text().replace('<mimic joint="finger" multiplier', '<mimic joint="tip" multiplier'))
    with pytest.raises(ModelError, match="mimics"):
        load_robot(file)


def test_mounting_places_everything_in_the_world(tmp_path):
    """Frames, base and hand as if the whole arm were carried there; gravity stays the world's."""
    xyz, rpy = (0.4, -0.2, 1.3), (np.pi, 0.3, -1.0)
    level = load_robot(write_gripper_arm(tmp_path))
    mounted = load_robot(write_gripper_arm(tmp_path, mounting={"xyz": list(xyz), "rpy": list(rpy)}))
    turn, q = pin.rpy.rpyToMatrix(*rpy), np.array([0.3, -1.2])
    (r0, p0), (r1, p1) = (forward_kinematics(arm.kinematics, q) for arm in (level, mounted))
    np.testing.assert_allclose(r1, turn @ r0, atol=1e-14)
    np.testing.assert_allclose(p1, p0 @ turn.T + xyz, atol=1e-14)
    np.testing.assert_array_equal(mounted.kinematics.gravity, level.kinematics.gravity)
    base, there = (next(b for b in arm.bodies if b.joint < 0) for arm in (level, mounted))
    np.testing.assert_allclose(there.points, base.points @ turn.T + xyz, atol=1e-14)
    np.testing.assert_array_equal(mounted.theta_nominal, level.theta_nominal)
    tilted = load_robot(write_gripper_arm(tmp_path, gravity=(turn.T @ [0.0, 0.0, -9.81]).tolist()))
    qd, qdd = np.array([[0.5, -0.4], [1.0, 2.0]])
    a, b = (dynamics_of(arm.kinematics).torque_regressor(q, qd, qdd) @ arm.theta_nominal for arm in (mounted, tilted))
    np.testing.assert_allclose(a, b, atol=1e-11)


def test_a_mounting_of_nothing_changes_nothing(tmp_path):
    plain = load_robot(write_gripper_arm(tmp_path))
    same = load_robot(write_gripper_arm(tmp_path, mounting={}))
    a, b = ((*arm.kinematics[:-1], *arm.kinematics.motors) for arm in (plain, same))
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_link_named_world_is_no_obstacle_to_mounting(tmp_path):
    file = write_gripper_arm(tmp_path, mounting={"xyz": [0.0, 0.0, 1.0]}, base_link="world")
    urdf = file.parent / "arm.urdf"
    urdf.write_text(urdf.read_text().replace('"base"', '"world"'))
    assert load_robot(file).kinematics.translation[0, 2] > 0.5


@needs_example_robots
def test_fingers_of_a_published_hand_are_where_they_are_locked():
    arm, wide = (load_robot("franka_panda", locked={"panda_finger_joint1": opening}) for opening in (0.02, 0.04))
    hand = {body.name.split(":")[0] for body in arm.bodies if body.kind == "hand"}
    assert hand == {"panda_hand", "panda_leftfinger", "panda_rightfinger"}
    # Two fingers of 15 g, 20 mm farther out on either side: the moments about x and z grow, the mass does not.
    change = wide.theta_nominal[60:70] - arm.theta_nominal[60:70]
    assert abs(change[0]) < 1e-15
    assert change[9] == pytest.approx(2 * 0.015 * (0.04**2 - 0.02**2), rel=0.05)
