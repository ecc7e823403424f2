"""Contacts are seen, allowed ones are not, and clearances are distances."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from geometry_support import hull_distance, random_obstacles
from reachability_attack import sample_symbols, states_of
from scipy.spatial.transform import Rotation
from simulation_support import random_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ModelError
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import enclose_clearance
from safe_sysid.robot import Body, load_robot, load_scene
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.obstacles import Obstacle, SceneBox, SceneZonotope, box_corners
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.payloads import NO_PAYLOAD, Payload, payload_from_spec
from safe_sysid.simulation.plant import Plant
from safe_sysid.simulation.shapes import Shape
from safe_sysid.trajectories.quintic import QuinticTrajectory


def box_points(rng: np.random.Generator, size: float) -> np.ndarray:
    return box_corners(2.0 * size * rng.uniform(0.3, 1.0, 3)) @ Rotation.random(random_state=rng).as_matrix().T


def random_body(rng: np.random.Generator, name: str, joint: int, kind: str) -> Body:
    centre = rng.uniform(-0.2, 0.2, 3)
    points = {
        "sphere": np.zeros((1, 3)),
        "capsule": rng.uniform(-0.1, 0.1, (2, 3)),
        "box": box_points(rng, 0.05),
        "skinned box": box_points(rng, 0.05),
        "hull": rng.uniform(-0.08, 0.08, (7, 3)),
        "round hull": rng.uniform(-0.08, 0.08, (3, 3)),
    }[kind]
    radius = {"box": 0.0, "skinned box": 1e-9, "hull": 0.0}.get(kind, rng.uniform(0.01, 0.05))
    return Body(name, joint, points + centre, radius)


KINDS = ("sphere", "capsule", "box", "skinned box", "hull", "round hull")


def distance(model: RobotModel, q: np.ndarray, other: Body | Obstacle) -> float:
    """From the arm's only moving body, by another solver."""
    rotation, origin = forward_kinematics(model.kinematics, q)
    points = model.bodies[0].points @ rotation[1].T + origin[1]
    return hull_distance(points, other.points) - model.bodies[0].radius - other.radius


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_clearance_is_the_distance_of_the_solids(kind: str, other: str) -> None:
    """Of two bodies, at random poses."""
    rng = np.random.default_rng(KINDS.index(kind) * 10 + len(other))
    for trial in range(4):
        one, two = random_body(rng, "one", 1, kind), random_body(rng, "two", -1, other)
        two = Body("two", -1, two.points + np.array([1.0, 0.4, 0.3]), two.radius, "base")
        model = random_arm(trial, 2, bodies=(one, two), allowed=frozenset())
        plant = Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("s"))
        q = rng.uniform(-3, 3, 2)
        expected = distance(model, q, two)
        got, names = plant.clearance(q)
        assert set(names) == {"one", "two"}
        # Hulls with a radius are made a little larger (2 % of it), never smaller.
        over = 0.03 * sum(body.radius for body, its in ((one, kind), (two, other)) if its == "round hull")
        assert expected - over - 2e-6 <= got <= expected + 2e-6


def one_joint_arm(allowed: frozenset = frozenset(), payload_bodies: tuple[Body, ...] = ()) -> RobotModel:
    """A capsule that sweeps a circle about its joint; the test puts a box into it."""
    arm = Body("arm", 0, np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]]), 0.05)
    base = Body("base", -1, np.array([[0.0, 0.0, -0.6]]), 0.1, "base")
    return random_arm(3, 1, bodies=(arm, base, *payload_bodies), allowed=allowed, coulomb=0.0)


def box_at(model: RobotModel, q: float, name: str = "crate") -> SceneBox:
    rotation, origin = forward_kinematics(model.kinematics, np.array([q]))
    tip = origin[0] + rotation[0] @ np.array([0.4, 0.0, 0.0])
    return SceneBox(name, tip, np.zeros(3), np.full(3, 0.1))


def drive(plant: Plant, steps: int) -> None:
    """Constant velocity by inverse dynamics, until something is in the way."""
    dynamics = dynamics_of(plant.model.kinematics)
    for _ in range(steps):
        q, qd = plant.state
        plant.step(dynamics.torque_regressor(q, qd, 20.0 * (1.0 - qd), 0.0) @ plant.theta_true)


def test_driving_into_a_box_is_counted_named_and_seen_in_the_clearance() -> None:
    model = one_joint_arm()
    plant = Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("s", (box_at(model, 1.0),)))
    assert plant.clearance([0.0])[0] > 0.0
    drive(plant, 1500)
    truth = plant.truth()
    touched = truth["contacts"] > 0
    assert plant.contact_steps == touched.sum() > 100
    assert plant.contact_names in ({("arm", "crate")}, {("crate", "arm")})
    first = int(np.argmax(touched))
    assert plant.clearance(truth["q"][first - 3])[0] > 0.0
    assert plant.clearance(truth["q"][first + 3])[0] < 0.0
    assert truth["q"][-1] < 1.0  # it is a real obstacle


def test_an_allowed_pair_passes_through() -> None:
    model = one_joint_arm()
    scene = Scene("s", (box_at(model, 1.0),), frozenset({frozenset({"crate", "arm"})}))
    plant = Plant(model, model.theta_nominal, NO_PAYLOAD, scene)
    assert plant.watched_pairs == [("arm", "base")]
    drive(plant, 1500)
    assert plant.contact_steps == 0
    assert plant.truth()["q"][-1] > 1.2


def test_the_arm_hits_itself_unless_that_is_allowed() -> None:
    for allowed in (frozenset(), frozenset({frozenset({"arm", "base"})})):
        arm = Body("arm", 0, np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]]), 0.05)
        bare = random_arm(3, 1, bodies=(arm,), allowed=frozenset())
        post = Body("base", -1, box_at(bare, 1.0).xyz[None], 0.08, "base")
        model = random_arm(3, 1, bodies=(arm, post), allowed=allowed, coulomb=0.0)
        plant = Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("s"))
        drive(plant, 1500)
        assert (plant.contact_steps > 0) == (not allowed)


def test_the_payload_touches_with_its_solids_or_else_with_its_envelope() -> None:
    corners = np.array([[x, y, z] for x in (0.6, 1.0) for y in (-0.1, 0.1) for z in (-0.1, 0.1)])
    envelope = Body("payload", 0, corners, 0.0, "payload")
    model = one_joint_arm(frozenset({frozenset({"arm", "payload"})}), (envelope,))
    rotation, position = model.flange
    place = rotation.T @ (np.array([0.8, 0.0, 0.0]) - position)
    ball = Payload("ball", Shape("sphere", (0.03,), place).inertial(0.5), (Shape("sphere", (0.03,), place),))
    joint, origin = forward_kinematics(model.kinematics, np.array([1.0]))
    crate = SceneBox("crate", origin[0] + joint[0] @ [0.8, 0.0, 0.0], np.zeros(3), np.full(3, 0.05))
    scene = Scene("s", (crate,))
    plant = Plant(model, model.theta_nominal, ball, scene)
    drive(plant, 1500)
    assert plant.contact_names <= {("payload", "crate"), ("crate", "payload")}
    assert plant.contact_steps > 0
    numbers = payload_from_spec("0.5,0,0,0,0.001,0,0.001,0,0,0.001")
    far, near = (Plant(model, model.theta_nominal, p, scene).clearance([0.4])[0] for p in (ball, numbers))
    assert near < far
    empty = Plant(model, model.theta_nominal, NO_PAYLOAD, scene)
    assert all("payload" not in pair for pair in empty.watched_pairs)


def test_asking_for_a_clearance_does_not_disturb_the_run() -> None:
    model = random_arm(4, 3)
    runs = []
    for ask in (False, True):
        plant = Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("s"))
        for k in range(30):
            plant.step(np.array([1.0, -1.0, 0.5]) * k)
            if ask:
                plant.clearance([1.0, 2.0, 3.0])
        runs.append(plant.truth()["q"].copy())
    np.testing.assert_array_equal(*runs)


def test_a_base_inside_the_scene_is_refused_unless_allowed() -> None:
    model = one_joint_arm()
    ground = SceneBox("ground", np.array([0.0, 0.0, -0.65]), np.zeros(3), np.array([2.0, 2.0, 0.01]))
    refusal = r"base overlaps ground of the scene by .* m: expected clear or an allowed pair"
    with pytest.raises(ModelError, match=refusal):
        Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("s", (ground,)))
    Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("s", (ground,), frozenset({frozenset({"base", "ground"})})))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_obstacle_stands_in_the_simulated_world_as_it_is(kind: str) -> None:
    seed = KINDS.index(kind)
    rng = np.random.default_rng(seed)
    flat = SceneZonotope("flat", np.zeros(3), rng.normal(scale=0.1, size=(2, 3)))
    for obstacle in (*random_obstacles(rng), flat):
        body = random_body(rng, "one", 1, kind)
        model = random_arm(seed, 2, bodies=(body,), allowed=frozenset())
        moved = dataclasses.replace(obstacle, xyz=obstacle.xyz + np.array([1.5, 0.5, 0.0]))
        plant = Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("s", (moved,)))
        for q in rng.uniform(-3, 3, (3, 2)):
            expected = distance(model, q, moved)
            got, names = plant.clearance(q)
            assert set(names) == {"one", obstacle.name}
            # Thin solids are made a little thicker, grown hulls are polytopes: never further away than the real one.
            over = 0.0 if obstacle.kind in ("box", "sphere", "capsule") else 3e-4
            over += 0.03 * body.radius if kind == "round hull" else 0.0
            assert expected - over - 2e-6 <= got <= expected + 2e-6


GROUND = frozenset({frozenset({"ground", "base_link"})})


def clear_of(model: RobotModel, obstacle: Obstacle, q: np.ndarray) -> bool:
    rotation, origin = forward_kinematics(model.kinematics, q)
    return all(
        hull_distance(obstacle.points, b.points if b.joint < 0 else b.points @ rotation[b.joint].T + origin[b.joint])
        > b.radius + obstacle.radius + 0.05
        for b in model.bodies
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_judge_never_sees_less_than_what_is_certified(seed: int) -> None:
    """MuJoCo's distances at tracking errors on their bound, among obstacles of all kinds, against the enclosure's."""
    model, rng = load_robot("kinova_gen3"), np.random.default_rng(seed)
    start = np.asarray(load_scene("six_boxes").start)
    kept = [o for o in random_obstacles(rng) if clear_of(model, o, start)]
    assert kept
    scene = Scene("s", (*load_scene("six_boxes").obstacles, *kept), GROUND)
    tracking = TrackingSet(np.full(7, 0.015), np.full(7, 0.06), np.full(7, 5.0))
    plan = QuinticTrajectory.to_rest(np.stack([start, 0 * start, 0 * start]), start + rng.uniform(-0.5, 0.5, 7), 3.0)
    cells = time_cells(plan, 64)
    found = enclose_clearance(model, scene, cells, tracking)
    payload = payload_from_spec("0.5,0,0,0,0.001,0,0.001,0,0,0.001")  # known by numbers: the envelope stands for it
    plant = Plant(model, model.theta_nominal, payload, scene)
    checked = 0
    for cell in rng.integers(cells.count, size=25):
        x = sample_symbols(1, 7, rng)
        q = states_of(plan, cells.grid[cell : cell + 2][None], tracking, x)[0][0]
        seen, pair = plant.clearance(q)
        if found.bounds[cell].min() > 0.0:  # a negative bound claims no depth
            checked += 1
            assert seen >= found.bounds[cell].min() - 3e-4, pair  # thin solids are a little thicker for the judge
    assert checked > 5
