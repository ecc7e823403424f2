"""Which pairs of an arm's own bodies go unchecked: only what is proved to overlap in every pose, or was asked for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from arm_links import three_joint_with
from geometry_support import hull_distance
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from test_certificate import gains_for, plan_of
from urdf_factory import random_arm, write_arm

from safe_sysid.planning.certification.certificate import verify_plan
from safe_sysid.robot import Body, Kinematics, RobotModel, Scene, forward_kinematics, load_robot, load_scene, unchecked
from safe_sysid.robot.files.urdf import read_urdf
from safe_sysid.robot.shapes.pairs import allowed_pairs, overlap_in_every_pose
from safe_sysid.trajectories.quintic import QuinticTrajectory

SEEDS = st.integers(0, 2**32 - 1)


def box(link: str, size: str, xyz: str) -> str:
    shape = f'<origin xyz="{xyz}"/><geometry><box size="{size}"/></geometry>'
    return f'<link name="{link}"><collision>{shape}</collision></link>'


def fixed(parent: str, child: str) -> str:
    return f'<joint name="{child}_mount" type="fixed"><parent link="{parent}"/><child link="{child}"/></joint>'


#: A post on the pedestal, beside the turntable; a bracket on the turntable, which reaches over the post's place.
POST = box("post", "0.03 0.03 0.30", "0.20 0 0.25") + fixed("pedestal", "post")
BRACKET = box("bracket", "0.20 0.03 0.03", "0.15 0 0.06") + fixed("turntable", "bracket")


def certified(model: RobotModel, start: float, goal: float):
    """The turntable turns, the arm stays folded over it."""
    q, box = np.array([start, -1.5, 0.5]), model.arm_prior
    trajectory = QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), np.array([goal, -1.5, 0.5]), 3.0)
    gains = gains_for(model, box, 0.005, uncertainty=1e4, inertia_upper=1e4 * np.ones(3))
    return verify_plan(plan_of(trajectory, box), model, box, Scene("nothing around"), gains)


def test_a_bracket_on_the_turntable_does_not_sweep_through_a_post_on_the_pedestal(tmp_path):
    model = load_robot(three_joint_with(tmp_path, POST + BRACKET, torque=1e3))
    assert frozenset(("bracket", "post")) not in model.allowed_pairs
    certificate = certified(model, 0.5, -0.5)  # half-way the bracket is where the post is
    assert not certificate.ok
    assert certificate.families["self_clearance"].culprit == "post - bracket"
    assert certificate.families["self_clearance"].value < -0.02
    assert abs(certificate.families["self_clearance"].time - 1.5) < 0.2
    beside = certified(model, 2.2, 1.2)
    assert beside.ok, beside.summary()


def test_only_the_two_links_of_a_joint_are_left_out_and_verdicts_name_them(tmp_path):
    model = load_robot(three_joint_with(tmp_path, POST + BRACKET))
    bodies = {body.name: body for body in model.bodies}
    apart = {pair for pair in model.allowed_pairs if len({bodies[name].joint for name in pair}) == 2}
    chain = ("pedestal", "turntable", "upper_arm", "forearm")
    assert apart == set(map(frozenset, pairwise(chain)))
    (line,) = unchecked(model)
    assert line.endswith("forearm - upper_arm, pedestal - turntable, turntable - upper_arm")
    stated = load_robot(three_joint_with(tmp_path, POST + BRACKET, allowed_pairs=[["post", "bracket"]]))
    assert any("allowed_pairs): bracket - post" in line for line in unchecked(stated))
    scene = load_scene("six_boxes")
    assert any("scene six_boxes says" in line for line in unchecked(load_robot("kinova_gen3"), scene))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=SEEDS, n=st.integers(1, 6))
def test_what_goes_unchecked_overlaps_in_every_pose(tmp_path, seed, n):
    """Random arms with links fixed to links, in the chain and beside it: by the URDF's tree and least squares."""
    rng = np.random.default_rng(seed)
    urdf, config = random_arm(rng, n)
    file = write_arm(tmp_path, urdf, config)
    arm, chain = load_robot(file), read_urdf(tmp_path / "arm.urdf")
    joined = {frozenset((joint.parent, joint.child)) for joint in chain.joints}
    bodies = {body.name: body for body in arm.bodies}
    for pair in arm.allowed_pairs:
        a, b = (bodies[name] for name in pair)
        if a.joint == b.joint:
            continue
        assert frozenset((a.link, b.link)) in joined
        for _ in range(5):
            rotation, origin = forward_kinematics(arm.kinematics, rng.uniform(-7.0, 7.0, n))
            placed = [
                body.points if body.joint < 0 else body.points @ rotation[body.joint].T + origin[body.joint]
                for body in (a, b)
            ]
            assert hull_distance(*placed) <= a.radius + b.radius + 1e-8


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS)
def test_balls_on_the_axis_decide_as_their_radii_do(seed):
    """Bodies whose shares of the axis are known: they overlap for ever if and only if the shares do."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=3)
    axis /= np.linalg.norm(axis)
    turn = Rotation.random(random_state=seed % 2**31).as_matrix()[None]
    kin = Kinematics.turning(turn, rng.uniform(-0.3, 0.3, (1, 3)), axis[None], np.zeros(3))
    ends = np.sort(rng.uniform(-0.3, 0.3, (2, 2)), axis=1)
    radius = rng.uniform(1e-3, 0.1, 2)
    parent, child = (end[:, None] * axis for end in ends)
    a = Body("a", -1, kin.translation[0] + parent @ kin.rotation[0].T, radius[0], "base")
    b = Body("b", 0, child, radius[1])
    gap = max(ends[0, 0] - ends[1, 1], ends[1, 0] - ends[0, 1]) - radius.sum()
    if abs(gap) > 1e-6:
        assert overlap_in_every_pose(a, b, 0, kin) == (gap < 0.0)
    aside = np.cross(axis, rng.normal(size=3))
    aside *= (radius[1] + 1e-3) / np.linalg.norm(aside)
    assert not overlap_in_every_pose(a, Body("b", 0, child + aside, radius[1]), 0, kin)


def test_links_that_only_meet_in_a_wrist_are_checked():
    """No joint joins them, so nobody's word keeps them apart: they go unchecked only if the robot's file says so."""
    turn = Rotation.from_rotvec(np.outer([0.0, 0.5 * np.pi, -0.5 * np.pi], [1.0, 0.0, 0.0])).as_matrix()
    kin = Kinematics.turning(turn, np.zeros((3, 3)), np.tile([0.0, 0.0, 1.0], (3, 1)), np.zeros(3))
    bodies = [Body(f"b{j}", j, np.zeros((1, 3)), 0.1, link=f"b{j}") for j in range(-1, 3)]
    joined = [(f"b{j - 1}", f"b{j}") for j in range(3)]
    pairs = {tuple(sorted(pair)) for pair in allowed_pairs(bodies, kin, joined)}
    assert pairs == {("b-1", "b0"), ("b0", "b1"), ("b1", "b2")}
