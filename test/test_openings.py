"""Hands that open: bodies hold every link at every declared opening, or the file is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import yaml
from arm_links import three_joint_with
from geometry_support import hull_distance
from urdf_factory import EXAMPLE_ROBOTS, needs_example_robots, numbers, random_inertial, random_origin

from safe_sysid.errors import ConfigError
from safe_sysid.robot import RobotModel, load_robot, unchecked

OPENING = [0.0] + 9 * [0.1]


def finger(rng: np.random.Generator, name: str, parent: str, kind: str, axis: str, limit: float, more: str = "") -> str:
    """A link with two shapes on a joint of the hand."""
    size = numbers(rng.uniform(0.01, 0.06, 3))
    return (
        f'<link name="{name}">{random_inertial(rng)}'
        f'<collision>{random_origin(rng)}<geometry><box size="{size}"/></geometry></collision>'
        f'<collision>{random_origin(rng)}<geometry><cylinder radius="0.02" length="0.1"/></geometry></collision></link>'
        f'<joint name="{name}_joint" type="{kind}"><parent link="{parent}"/><child link="{name}"/>{random_origin(rng)}'
        f'<axis xyz="{axis}"/><limit lower="{-limit!r}" upper="{limit!r}" effort="1" velocity="1"/>{more}</joint>'
    )


def hand(seed: int) -> str:
    """Two fingers on one slide, as grippers have them; a thumb of two joints, the tip of which follows and another."""
    rng = np.random.default_rng(seed)
    follow = '<mimic joint="left_joint" multiplier="-1.5" offset="0.01"/>'
    return "".join(
        [
            finger(rng, "left", "forearm", "prismatic", "0 1 0", 0.1),
            finger(rng, "right", "forearm", "prismatic", "0 -1 0", 0.2, follow),
            finger(rng, "thumb", "forearm", "revolute", "1 0 0.3", 1.0),
            finger(rng, "tip", "thumb", "revolute", "0 1 0", 2.0, '<mimic joint="thumb_joint" multiplier="0.8"/>'),
            finger(rng, "nail", "tip", "revolute", "0.2 0 1", 1.0),
        ]
    )


LOCKED = {"left_joint": 0.02, "thumb_joint": 0.3, "nail_joint": 0.0}
TRAVELS = {"left_joint": [0.0, 0.04], "thumb_joint": [-0.2, 0.9], "nail_joint": [-0.5, 0.5]}
FOLLOWS = {"right_joint": lambda p: -1.5 * p["left_joint"] + 0.01, "tip_joint": lambda p: 0.8 * p["thumb_joint"]}


def arm_with_hand(folder: Path, seed: int, **payload: object) -> Path:
    base = yaml.safe_load(three_joint_with(folder, "").read_text())["payload"]
    return three_joint_with(folder, hand(seed), locked=LOCKED, payload=base | payload)


def worst_outside(urdf: Path, model: RobotModel, opening: dict[str, float]) -> float:
    """How far corners of the URDF's own shapes, placed by Pinocchio, are outside of the bodies of their link, m."""
    oracle = pin.buildModelFromUrdf(str(urdf))
    text = re.sub(r"<collision>(?:(?!</collision>).)*<mesh.*?</collision>", "", urdf.read_text(), flags=re.DOTALL)
    shapes = pin.buildGeomFromUrdfString(oracle, text, pin.GeometryType.COLLISION)
    data, q = oracle.createData(), pin.neutral(oracle)
    opening = opening | {name: rule(opening) for name, rule in FOLLOWS.items() if name in oracle.names}
    for name, value in opening.items():
        q[oracle.joints[oracle.getJointId(name)].idx_q] = value
    pin.framesForwardKinematics(oracle, data, q)
    base = data.oMi[oracle.getJointId(model.joint_names[-1])]
    worst = -np.inf
    for shape in shapes.geometryObjects:
        link = oracle.frames[shape.parentFrame].name
        bodies = [body for body in model.bodies if body.link == link]
        if not bodies or bodies[0].joint != model.n - 1:
            continue
        place = base.actInv(data.oMi[shape.parentJoint] * shape.placement)
        if hasattr(shape.geometry, "halfSide"):
            signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
            points, radius = signs * np.asarray(shape.geometry.halfSide).ravel(), 0.0
        else:
            half = shape.geometry.halfLength
            points, radius = np.array([[0, 0, -half], [0, 0, half]], float), shape.geometry.radius
        for point in points @ place.rotation.T + place.translation:
            worst = max(worst, min(hull_distance(body.points, point[None]) + radius - body.radius for body in bodies))
    return float(worst)


@pytest.mark.parametrize("seed", range(3))
def test_bodies_hold_every_link_at_every_opening(tmp_path, seed):
    file = arm_with_hand(tmp_path, seed, hand_opening=[9.0] * 10, hand_joints=TRAVELS)
    model, rng = load_robot(file), np.random.default_rng(seed)
    openings = [LOCKED, *({k: float(rng.choice(v)) for k, v in TRAVELS.items()} for _ in range(4))]
    openings += [{k: float(rng.uniform(*v)) for k, v in TRAVELS.items()} for _ in range(12)]
    for opening in openings:
        assert worst_outside(tmp_path / "arm.urdf", model, opening) < 1e-7
    assert any("left_joint in [0, 0.04]" in line for line in unchecked(model))
    # Without the declaration they do not: the test can fail.
    closed = load_robot(arm_with_hand(tmp_path, seed))
    assert worst_outside(tmp_path / "arm.urdf", closed, LOCKED) < 1e-7
    assert worst_outside(tmp_path / "arm.urdf", closed, LOCKED | {"left_joint": 0.04}) > 1e-3


@needs_example_robots
def test_the_packaged_panda_holds_its_fingers_wide_open():
    """Corners were 7.4 mm outside when bodies stood for the locked position alone."""
    urdf = EXAMPLE_ROBOTS / "panda_description/urdf/panda.urdf"
    model = load_robot("franka_panda")
    held = load_robot("franka_panda", **{"payload.hand_joints": None, "payload.hand_opening": [0.0] * 10})
    for opening in (0.0, 0.013, 0.04):
        both = dict.fromkeys(("panda_finger_joint1", "panda_finger_joint2"), opening)
        assert worst_outside(urdf, model, both) < 1e-7
    assert worst_outside(urdf, held, dict.fromkeys(both, 0.04)) > 0.007


@pytest.mark.parametrize(
    ("payload", "key", "expected"),
    [
        ({"hand_opening": OPENING}, "payload.hand_joints", "left_joint: "),
        ({"hand_joints": {"right_joint": [0, 1]}}, "payload.hand_joints.right_joint", "mimic no other"),
        ({"hand_joints": {"elbow": [0, 1]}}, "payload.hand_joints.elbow", "left_joint"),
        ({"hand_joints": {"left_joint": [0.03, 0.04]}}, "payload.hand_joints.left_joint", "the locked one, 0.02"),
        ({"hand_joints": {"left_joint": [0.04, 0.03]}}, "payload.hand_joints.left_joint", "lower < upper"),
        ({"hand_joints": {"left_joint": 0.03}}, "payload.hand_joints", "list of 2 numbers"),
        ({"hand_joints": TRAVELS, "hand_opening": OPENING}, "payload.hand_opening[", "at least"),
    ],
)  # fmt: skip
def test_openings_that_do_not_fit_are_refused(tmp_path, payload, key, expected):
    with pytest.raises(ConfigError) as caught:
        load_robot(arm_with_hand(tmp_path, 0, **payload))
    assert key in str(caught.value)
    assert expected in str(caught.value)


def test_a_hand_said_to_be_held_at_every_opening_needs_no_joints_and_is_named(tmp_path):
    model = load_robot(arm_with_hand(tmp_path, 0, hand_opening=OPENING, hand_joints={}))
    assert any("every opening" in line for line in unchecked(model))
