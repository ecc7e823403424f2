"""Trees: recursions that walk them, and the arm of a robot with more than one chain, loaded by its tip."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import yaml
from urdf_factory import numbers, random_inertial, random_origin

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.nodes.planner.goals import known_frames
from safe_sysid.resources import resource_path
from safe_sysid.robot.files.packages import package_file
from safe_sysid.robot.files.urdf import MOVING, joints_between, read_tree
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.kinematics import NO_EXCESS, Kinematics, Motors
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel

#: Chains of the humanoid: first link's parent, and its joints ("r" turns, "p" slides, "f" is fixed).
CHAINS = {
    "torso": ("pelvis", "rr"),
    "head": ("torso_2", "rr"),
    "left_arm": ("torso_2", "rrrfrrrr"),
    "left_finger": ("left_arm_8", "p"),
    "left_thumb": ("left_arm_8", "r"),
    "left_sensor": ("left_arm_4", "r"),
    "right_arm": ("torso_2", "rrrrrrr"),
    "left_leg": ("pelvis", "rrr"),
    "right_leg": ("pelvis", "rrr"),
}
KINDS = {"r": "revolute", "p": "prismatic", "f": "fixed"}


def random_tree(rng: np.random.Generator, n: int) -> tuple[Kinematics, pin.Model, np.ndarray]:
    """A tree, some of whose joints slide and drive geared rotors, and Pinocchio's model of it without the rotors."""
    model, theta = pin.Model(), []
    parent = np.full(n, -1)
    for j in range(1, n):  # depth first: Pinocchio's CRBA is wrong in any other order
        ends = [j - 1]
        while ends[-1] >= 0:
            ends.append(int(parent[ends[-1]]))
        parent[j] = rng.choice(ends)
    rotation, translation, axis = np.empty((n, 3, 3)), rng.uniform(-0.4, 0.4, (n, 3)), rng.normal(size=(n, 3))
    axis /= np.linalg.norm(axis, axis=1)[:, None]
    travel = np.where(rng.random((n, 1)) < 0.3, [-0.4, 0.4], [-np.inf, np.inf])
    for j in range(n):
        quaternion = rng.normal(size=4)
        rotation[j] = pin.Quaternion(quaternion / np.linalg.norm(quaternion)).toRotationMatrix()
        slides = np.isfinite(travel[j, 0])
        kind = pin.JointModelPrismaticUnaligned if slides else pin.JointModelRevoluteUnaligned
        placement = pin.SE3(rotation[j], translation[j])
        model.addJoint(int(parent[j]) + 1, kind(axis[j]), placement, f"joint_{j}")
        link = pin.Inertia.Random()
        model.appendBodyToJoint(j + 1, link, pin.SE3.Identity())
        theta.append(link.toDynamicParameters())
    gravity = rng.normal(size=3)
    model.gravity.linear = gravity
    theta += [rng.uniform(0.1, 2.0, 3 * n), rng.normal(size=n)]
    driven = [j for j in range(n) if parent[j] >= 0 and rng.random() < 0.5]
    spins = rng.normal(size=(len(driven), 3))
    spins /= np.linalg.norm(spins, axis=1)[:, None]
    gear = rng.choice([-1.0, 1.0], len(driven)) / rng.uniform(3.0, 20.0, len(driven))
    motors = Motors(np.array(driven, np.int64), parent[driven], gear, spins)
    kinematics = Kinematics(parent, rotation, translation, axis, gravity, travel, NO_EXCESS, motors)
    return kinematics, model, np.concatenate(theta)


@pytest.mark.parametrize("seed", range(12))
def test_recursions_on_trees_equal_pinocchio(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 2 + seed % 8
    kin, model, theta = random_tree(rng, n)
    bare = theta.copy()
    bare[10 * n :] = 0.0
    ours, data = dynamics_of(kin), model.createData()
    q, qd, qd_a, qdd = rng.uniform(-1, 1, (4, n))
    scale = {"rtol": 0.0, "atol": 1e-11 * np.abs(theta).max() * n}
    torque = pin.rnea(model, data, q, qd, qdd).copy()
    np.testing.assert_allclose(ours.torque_regressor(q, qd, qdd) @ bare, torque, **scale)
    np.testing.assert_allclose(ours.inverse_dynamics(bare, q, qd, qdd), torque, **scale)
    gravity = pin.computeGeneralizedGravity(model, data, q).copy()
    np.testing.assert_allclose(ours.gravity(theta, q), gravity, **scale)
    upper = np.triu(pin.crba(model, data, q))
    inertia = upper + np.triu(upper, 1).T
    np.testing.assert_allclose(ours.mass_matrix(bare, q), inertia, **scale)
    np.testing.assert_allclose(ours.momentum_regressor(q, qd) @ bare, inertia @ qd, **scale)
    coriolis = pin.computeCoriolisMatrix(model, data, q, qd).copy()
    rate = ours.momentum_rate_regressor(q, qd) @ bare
    np.testing.assert_allclose(rate, coriolis.T @ qd - gravity, **scale)
    # Rotors: the other backend has them from the carriers' Jacobians.
    theirs = dynamics_of(kin, "pinocchio")
    found = ours.slotine_li_regressor(q, qd, qd_a, qdd, 0.1)
    np.testing.assert_allclose(found, theirs.slotine_li_regressor(q, qd, qd_a, qdd, 0.1), **scale)
    np.testing.assert_allclose(
        ours.inverse_dynamics(theta, q, qd, qdd), theirs.inverse_dynamics(theta, q, qd, qdd), **scale
    )
    for name in ("momentum_regressor", "momentum_rate_regressor"):
        np.testing.assert_allclose(getattr(ours, name)(q, qd), getattr(theirs, name)(q, qd), **scale, err_msg=name)
    pin.forwardKinematics(model, data, q)
    rotations, origins = forward_kinematics(kin, q)
    for j in range(n):
        np.testing.assert_allclose(rotations[j], data.oMi[j + 1].rotation, atol=1e-13)
        np.testing.assert_allclose(origins[j], data.oMi[j + 1].translation, atol=1e-13)


def write_humanoid(folder: Path, rng: np.random.Generator, extra: str = "", **settings: object) -> Path:
    """A humanoid on a floating joint, of which the left arm is asked for; returns the path of the YAML file."""
    links, joints, locked = {"map": '<link name="map"/>'}, [], {}

    def link(name: str) -> None:
        ball = f'<collision>{random_origin(rng)}<geometry><sphere radius="0.02"/></geometry></collision>'
        links[name] = f'<link name="{name}">{random_inertial(rng)}{ball}</link>'

    link("pelvis")
    joints.append('<joint name="world" type="floating"><parent link="map"/><child link="pelvis"/></joint>')
    for chain, (before, kinds) in CHAINS.items():
        for j, kind in enumerate(kinds, start=1):
            name = f"{chain}_{j}"
            link(name)
            low, high = (-0.1, 0.1) if kind == "p" else (-2.0, 2.0)
            joints.append(
                f'<joint name="{name}_joint" type="{KINDS[kind]}"><parent link="{before}"/><child link="{name}"/>'
                f'{random_origin(rng)}<axis xyz="{numbers(rng.normal(size=3))}"/>'
                f'<limit lower="{low}" upper="{high}" effort="150" velocity="1.5"/></joint>'
            )
            if kind != "f":
                locked[f"{name}_joint"] = float(rng.uniform(low, high))
            before = name
    folder.mkdir(parents=True, exist_ok=True)
    text = f'<robot name="humanoid">{"".join(links.values())}{"".join(joints)}{extra}</robot>'
    (folder / "humanoid.urdf").write_text(text, encoding="utf-8")
    ours = [f"left_arm_{j}_joint" for j in (1, 2, 3, 5, 6, 7, 8)]
    config = read_yaml(resource_path("config/kinova_gen3.yaml"))
    config |= {
        "name": "humanoid", "urdf": "humanoid.urdf", "base_link": "torso_2", "tip_link": "left_arm_8",
        "tool_frame": "left_arm_8", "home": [0.1] * 7,
        "joints": {n: {"rotor_inertia": 9.0, "viscous": 8.0, "coulomb": 0.5, "offset": 0.0} for n in ours},
        "locked": {name: value for name, value in locked.items() if name not in ours},
    }  # fmt: skip
    config["payload"] |= {"prior_lower": [0.0, *[-9.0] * 9], "prior_upper": [9.0] * 10}
    for key in ("hand_joints", "hand_links", "hand_opening"):
        config["payload"].pop(key, None)
    for key in ("geometry", "allowed_pairs", "mounting"):
        config.pop(key, None)
    config |= settings
    path = folder / "humanoid.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path


def pinocchios_model(urdf: Path) -> pin.Model:
    """The whole file as Pinocchio reads it, what may float standing at its origin."""
    text = urdf.read_text(encoding="utf-8")
    return pin.buildModelFromXML(text.replace('"floating"', '"fixed"').replace('"planar"', '"fixed"'))


def put(model: pin.Model, q: np.ndarray, name: str, value: float) -> None:
    """Set a joint's position; Pinocchio has cosine and sine of continuous ones."""
    joint = model.joints[model.getJointId(name)]
    q[joint.idx_q : joint.idx_q + joint.nq] = value if joint.nq == 1 else (np.cos(value), np.sin(value))


def check_dynamics(arm: RobotModel, model: pin.Model, held: np.ndarray, rng: np.random.Generator) -> None:
    """The arm is the whole robot with all other joints held, to Pinocchio's rounding."""
    others = [model.getJointId(name) for name in list(model.names)[1:] if name not in arm.joint_names]
    reduced = pin.buildReducedModel(model, others, held)
    assert list(reduced.names)[1:] == list(arm.joint_names)
    data, dynamics, theta = reduced.createData(), dynamics_of(arm.kinematics), arm.theta_nominal.copy()
    theta[10 * arm.n :] = 0.0
    for _ in range(5):
        q, qd, qdd = rng.uniform(-1, 1, (3, arm.n))
        there = pin.neutral(reduced)
        for name, value in zip(arm.joint_names, q, strict=True):
            put(reduced, there, name, value)
        expected = pin.rnea(reduced, data, there, qd, qdd)
        close = {"rtol": 0.0, "atol": 1e-13 * float(np.abs(expected).max())}
        np.testing.assert_allclose(dynamics.inverse_dynamics(theta, q, qd, qdd), expected, **close)
        np.testing.assert_allclose(dynamics.torque_regressor(q, qd, qdd) @ theta, expected, **close)


@pytest.mark.parametrize(("base", "tip"), [("torso_2", "left_arm_8"), (None, "left_arm_8"), ("torso_2", "right_arm_7")])
def test_one_arm_of_a_humanoid_is_pinocchios_reduced_model(tmp_path: Path, base: str | None, tip: str) -> None:
    rng = np.random.default_rng(3)
    file = write_humanoid(tmp_path, rng)
    config = read_yaml(file)
    if tip.startswith("right"):
        left, ours = config["joints"], [name for name in config["locked"] if name.startswith("right_arm")]
        config["joints"] = dict(zip(ours, left.values(), strict=True))
        config["locked"] = {k: v for k, v in config["locked"].items() if k not in ours} | dict.fromkeys(left, 0.3)
    config |= {"base_link": base, "tip_link": tip, "tool_frame": tip}
    file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    arm = load_robot(file)
    assert arm.joint_names == tuple(config["joints"])
    model = pinocchios_model(tmp_path / "humanoid.urdf")
    held = pin.neutral(model)
    for name, value in arm.settings.locked.items():
        put(model, held, name, value)
    check_dynamics(arm, model, held, rng)
    # Whatever hangs on the robot is somewhere in its bodies, where Pinocchio has it: legs and the other arm, too.
    q = rng.uniform(-1, 1, arm.n)
    whole = held.copy()
    for name, value in zip(arm.joint_names, q, strict=True):
        put(model, whole, name, value)
    all_data = model.createData()
    pin.framesForwardKinematics(model, all_data, whole)
    rotations, origins = forward_kinematics(arm.kinematics, q)
    geometry = pin.buildGeomFromUrdfString(
        model, (tmp_path / "humanoid.urdf").read_text(encoding="utf-8").replace('"floating"', '"fixed"'),
        pin.GeometryType.COLLISION,
    )  # fmt: skip
    centres = {}
    for shape in geometry.geometryObjects:
        placed = all_data.oMi[shape.parentJoint] * shape.placement
        centres[model.frames[shape.parentFrame].name] = placed.translation
    bodies = {body.link: body for body in arm.bodies if body.link}
    assert set(bodies) == set(centres)
    for link, body in bodies.items():
        middle = body.points.mean(axis=0)
        at = middle if body.joint < 0 else rotations[body.joint] @ middle + origins[body.joint]
        np.testing.assert_allclose(at, centres[link], atol=1e-9, err_msg=link)
    assert known_frames(arm) == ("world",)  # the base link stands elsewhere


@pytest.mark.skipif(
    not any((Path(entry) / "cmeel.prefix/share/example-robot-data").is_dir() for entry in sys.path),
    reason="the registry package example-robot-data is not installed",
)
@pytest.mark.parametrize(
    ("file", "base", "tip"),
    [
        ("talos_data/robots/talos_full_v2.urdf", "torso_2_link", "gripper_left_base_link"),
        ("talos_data/robots/talos_full_v2.urdf", "torso_2_link", "gripper_right_base_link"),
        ("tiago_description/robots/tiago_dual.urdf", "torso_lift_link", "arm_left_tool_link"),
        ("pr2_description/urdf/pr2.urdf", "torso_lift_link", "l_gripper_palm_link"),
        ("baxter_description/urdf/baxter.urdf", "torso", "left_gripper_base_link"),
    ],
)
def test_arms_of_known_robots_are_pinocchios_reduced_models(tmp_path: Path, file: str, base: str, tip: str) -> None:
    uri = f"package://example-robot-data/robots/{file}"
    urdf, rng = package_file(uri, tmp_path / "x"), np.random.default_rng(1)
    tree = read_tree(urdf)
    ours = joints_between(tree, base, tip)
    n, locked, mimics = len(ours), {}, {}
    for joint in tree.joints:
        if joint.mimic is not None:
            mimics[joint.name] = joint.mimic
        elif joint.kind in MOVING and joint.name not in ours:
            bounded = joint.kind != "continuous" and joint.lower is not None and joint.upper is not None
            locked[joint.name] = float(rng.uniform(*((joint.lower, joint.upper) if bounded else (-1.0, 1.0))))
    config = read_yaml(write_humanoid(tmp_path, rng))
    config |= {"urdf": uri, "base_link": base, "tip_link": tip, "tool_frame": tip, "home": [0.0] * n}
    limits = {"position": [-3.0, 3.0], "velocity": 1.0, "torque": 100.0}
    settings = next(iter(config["joints"].values()))
    config |= {"locked": locked, "joints": dict.fromkeys(ours, settings | limits)}
    config["geometry"] = {link: [] for link in tree.masses}  # meshes of the whole robot: not what is asked here
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    arm = load_robot(path)
    assert len(locked) > 6
    assert n == 7

    def position(name: str) -> float:
        mimic = mimics.get(name)
        return locked[name] if mimic is None else mimic.multiplier * position(mimic.master) + mimic.offset

    model = pinocchios_model(urdf)
    held = pin.neutral(model)
    for name in list(model.names)[1:]:
        if name not in ours:
            put(model, held, name, position(name))
    check_dynamics(arm, model, held, rng)


@pytest.mark.parametrize(
    ("change", "key", "expected"),
    [
        ({"tip_link": "left_hand"}, "tip_link", "a link of"),
        ({"base_link": "nowhere"}, "base_link", "a link of"),
        ({"base_link": "head_1"}, "tip_link", "hangs on base_link 'head_1'"),
        ({"locked": {}}, "locked.torso_1_joint", "torso_1_joint, torso_2_joint, head_1_joint"),
        ({"tip_link": "left_arm_7"}, "locked.left_arm_8_joint", "left_arm_8_joint"),
        ({"base_link": "left_arm_2"}, "locked.left_arm_1_joint", "left_arm_1_joint, left_arm_2_joint"),
        ({"tip_link": None}, "base_link", "root link"),
        ({"tool_frame": "right_arm_7"}, "tool_frame", "the last joint 'left_arm_8_joint' moves"),
    ],
)
def test_what_does_not_fit_the_tree_is_refused_by_name(
    tmp_path: Path, change: dict[str, object], key: str, expected: str
) -> None:
    file = write_humanoid(tmp_path, np.random.default_rng(0), **change)
    with pytest.raises(ConfigError) as raised:
        load_robot(file)
    assert raised.value.key == key
    assert expected in str(raised.value)


def test_a_floating_joint_that_the_arm_moves_is_refused(tmp_path: Path) -> None:
    loose = '<joint name="loose" type="floating"><parent link="left_arm_2"/><child link="ball"/></joint>'
    file = write_humanoid(tmp_path, np.random.default_rng(0), extra=f'<link name="ball"/>{loose}')
    with pytest.raises(ModelError, match="'loose' of type 'floating' is moved by joint 'left_arm_2_joint'"):
        load_robot(file)


def test_an_arm_has_one_tip() -> None:
    arm = load_robot("three_joint")
    branched = arm.kinematics._replace(parent=np.array([-1, 0, 0]))
    with pytest.raises(ModelError, match=r"parent = \[-1, 0, 0\]: expected those of a serial chain"):
        type(arm)(**{**vars(arm), "kinematics": branched})
