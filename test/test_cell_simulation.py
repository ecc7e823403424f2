"""The simulated work cell: grasp and release as mechanics has them, contacts seen, stacks that stand or fall."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from simulation_support import random_arm
from test_simulation_world import box_at, one_joint_arm
from workcell_support import Perfect, gen3, simulation, workcell

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.parameters import com_and_inertia
from safe_sysid.robot.scenes.obstacles import SceneBox
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.simulation.engines.mujoco import ContactSearch
from safe_sysid.simulation.payloads import NO_PAYLOAD, dumbbell, hexagonal_dumbbell, theta_e_with_payload
from safe_sysid.simulation.plant import Plant
from safe_sysid.simulation.shapes import Shape
from safe_sysid.studies.experiments.cell.dumbbells import draw_arm, in_hand
from safe_sysid.studies.experiments.cell.settling import BodyState, Settling
from safe_sysid.studies.experiments.cell.simulation import CellSimulation, GraspError
from safe_sysid.studies.experiments.choreography import run_workcell
from safe_sysid.studies.experiments.interfaces import Cell, Driver, DumbbellPhase

pytestmark = pytest.mark.unproved


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "seed", "mode"),
    [pytest.param("a", 0, "corner", marks=SLOW), pytest.param("b", 1, "uniform", marks=SLOW), ("c", 2, "corner")],
)
def test_a_controller_that_knows_the_truth_succeeds(name: str, seed: int, mode: str) -> None:
    """Fairness of the scenes: what fails in them fails for what it does not know."""
    cell = simulation(name, seed, mode, noise="uniform", actuator="random")
    driver = Perfect()
    assert isinstance(cell, Cell)
    assert isinstance(driver, Driver)
    report = run_workcell(cell, driver, record=name == "c")
    assert report.success, report.reason
    assert len(report.placements) == len(workcell(name).tasks)
    for placement in report.placements:
        assert placement.contacts == ()
        assert placement.position_error < 2e-3  # a fifth of what is allowed
        assert placement.angle_error < 0.01
        assert placement.torque_ratio < 0.7
    assert driver.phases == [DumbbellPhase.LIFT, DumbbellPhase.CARRY] * len(report.placements)
    if report.recording is not None:
        tracked = np.array(report.recording.reference)[:, 0] - np.array(report.recording.q)
        assert np.abs(tracked).max() < 5e-3
        assert set(report.recording.phase) == {"grasp", "lift", "carry", "hold"}
        assert len(report.recording.torque) == len(report.recording.stamp) == len(tracked)


def held(name: str = "c") -> CellSimulation:
    cell = simulation(name, noise="none", actuator="none")
    cell.grasp(cell.workcell.tasks[0].dumbbell)
    return cell


def test_the_arm_with_a_dumbbell_is_hand_and_dumbbell_as_they_are() -> None:
    model, cell = gen3(), held()
    item = cell.workcell.dumbbells[0]
    hand = model.layout.payload
    expected = theta_e_with_payload(model, cell.theta_arm[hand], in_hand(item.payload))
    np.testing.assert_allclose(cell.theta_true[hand], expected, atol=1e-5)
    np.testing.assert_array_equal(np.delete(cell.theta_true, hand), np.delete(cell.theta_arm, hand))
    position, rotation = cell.pose("8lb")
    np.testing.assert_allclose(position, item.position, atol=1e-12)
    np.testing.assert_allclose(rotation, item.rotation, atol=1e-12)
    assert cell.held == "8lb"
    assert "8lb" not in {obstacle.name for obstacle in cell.scene().obstacles}
    cell.release()
    np.testing.assert_array_equal(cell.theta_true, cell.theta_arm)
    assert cell.held is None


def test_a_hand_that_is_full_far_away_or_moving_takes_nothing() -> None:
    with pytest.raises(GraspError, match="an empty hand"):
        held().grasp("8lb")
    cell = simulation("c")
    with pytest.raises(GraspError, match="in it"):
        cell.release()
    far = simulation("c", q0=cell.workcell.ready)
    with pytest.raises(GraspError, match="m and"):
        far.grasp("8lb")
    for _ in range(30):
        cell.step(np.array([60.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    with pytest.raises(GraspError, match="rad/s"):
        cell.grasp("8lb")


def test_taking_up_a_load_keeps_momentum_and_letting_go_keeps_velocity() -> None:
    rng = np.random.default_rng(3)
    model = random_arm(5, 4, bodies=())
    payload = dumbbell(6.0)
    last = slice(30, 40)
    plant = Plant(model, model.theta_nominal, NO_PAYLOAD, Scene("s"))
    for _ in range(50):
        plant.step(rng.normal(size=4) * 5.0)
    q, qd = plant.state
    heavy = model.theta_nominal.copy()
    heavy[last] = theta_e_with_payload(model, heavy[last], payload)
    momentum = dynamics_of(model.kinematics).momentum_regressor
    before = momentum(q, qd) @ model.theta_nominal
    time, rows = plant.time, len(plant.truth()["t"])
    plant.exchange(heavy, payload)
    q_after, slower = plant.state
    np.testing.assert_array_equal(q_after, q)
    np.testing.assert_allclose(momentum(q, slower) @ heavy, before, rtol=1e-9)
    assert momentum(q, slower) @ heavy @ slower < before @ qd
    plant.exchange(model.theta_nominal, NO_PAYLOAD)
    np.testing.assert_array_equal(plant.state[1], slower)
    plant.step(np.zeros(4))
    assert plant.time > time
    assert len(plant.truth()["t"]) == rows + 1


def test_what_is_let_go_in_motion_flies_on_with_the_hand_s_velocity() -> None:
    cell = held()
    lift = cell.workcell.tasks[0].lift
    driver = Perfect()
    driver.begin(cell.workcell.tasks[0], cell)
    for k in range(1500):
        before = cell.pose("8lb")
        cell.step(driver.torque(cell.measurement, lift.state(k * cell.period)))
    after = cell.pose("8lb")
    velocity = (after[0] - before[0]) / cell.period
    assert np.linalg.norm(velocity) > 0.05
    cell.release()
    q = cell.measurement.q
    for _ in range(10):
        cell.step(dynamics_of(cell.model.kinematics).torque_regressor(q, 0 * q, 0 * q, 0.01) @ cell.theta_arm)
    fall = np.array([0.0, 0.0, -9.81]) * 0.5 * 0.01**2
    np.testing.assert_allclose(cell.pose("8lb")[0], after[0] + 0.01 * velocity + fall, atol=2e-4)
    assert cell.still_falling()


@pytest.mark.parametrize("force", [-60.0, 60.0])
def test_a_touch_is_reported_with_who_where_when_and_how_deep(force: float) -> None:
    """Pushed down by 60 N the dumbbell stands on both rails of its rack; pulled up it leaves them."""
    cell = held()
    cell.phase = DumbbellPhase.LIFT
    q0, kin = cell.measurement.q, cell.model.kinematics
    rotation, origin = forward_kinematics(kin, q0)
    axes = np.einsum("jab,jb->ja", rotation, kin.axis)
    push = np.cross(axes, cell.pose("8lb")[0] - origin)[:, 2] * force
    for _ in range(300):
        m = cell.measurement
        hold = dynamics_of(kin).torque_regressor(m.q, m.qd, 10.0 * (q0 - m.q) - 6.0 * m.qd, 0.01) @ cell.theta_true
        cell.step(hold + push)
    raised = cell.pose("8lb")[0][2] - cell.workcell.dumbbells[0].position[2]
    if force < 0.0:
        assert {c[:2] for c in cell.contacts()} == {("payload", "rack_near"), ("payload", "rack_far")}
        rails = {(DumbbellPhase.LIFT, "payload", rail) for rail in ("rack_near", "rack_far")}
        assert {(c.phase, c.one, c.two) for c in cell.touched()} == rails
        assert all(0.0 < c.depth < 5e-3 for c in cell.touched())
        assert -5e-3 < raised < 0.0
    else:
        assert cell.contacts() == []
        assert raised > 1e-3
    cell.forget()
    assert cell.touched() == ()


@pytest.mark.parametrize("seed", range(3))
def test_no_distance_changes_by_more_than_lever_arms_times_angles(seed: int) -> None:
    """The law that leaving out contacts rests on, for capsules, boxes and hulls, small steps and large."""
    rng = np.random.default_rng(seed)
    model = random_arm(seed, 4)
    box = SceneBox("box", rng.uniform([-0.5, -0.5, 0.3], [0.5, 0.5, 1.3]), rng.uniform(-1, 1, 3), np.full(3, 0.3))
    plant = Plant(model, model.theta_nominal, hexagonal_dumbbell(6), Scene("s", (box,)), q0=np.zeros(4))
    reach = plant.engine.world.reach
    used = 0.0
    for _ in range(120):
        q = rng.uniform(-2.0, 2.0, 4)
        turn = rng.normal(size=4) * 10.0 ** rng.uniform(-3, 0) * (rng.uniform(size=4) < 0.5)
        change = abs(plant.clearance(q + turn)[0] - plant.clearance(q)[0])
        bound = np.abs(turn) @ reach
        assert change <= bound + 1e-5
        used = max(used, change / bound) if bound > 1e-3 else used
    assert used > 0.1  # and is of the right size


def test_leaving_out_the_search_for_contacts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, in runs that hit something and push on, at full speed."""

    def run(model, scene, payload, speed) -> dict[str, np.ndarray]:
        q0 = np.zeros(model.n) if scene.start is None else scene.start
        plant = Plant(model, model.theta_nominal, payload, scene, q0=q0)
        dynamics = dynamics_of(model.kinematics)
        for _ in range(600):
            q, qd = plant.state
            plant.step(dynamics.torque_regressor(q, qd, 20.0 * (speed - qd), 0.01) @ plant.theta_true)
        return plant.truth()

    crate = one_joint_arm()
    cases = [(crate, Scene("s", (box_at(crate, 0.4),)), NO_PAYLOAD, np.ones(1))]
    boxes = load_scene("six_boxes")
    axes = 1.5 * np.eye(7)
    cases += [(gen3(), boxes, dumbbell(8.0), speed) for speed in (axes[0], -axes[0], axes[1], axes[5] - axes[3])]
    quick = [run(*case) for case in cases]
    monkeypatch.setattr(ContactSearch, "prepare", lambda self, q, qd: None)
    thorough = [run(*case) for case in cases]
    assert sum(bool(np.any(truth["contacts"])) for truth in thorough) >= 3
    for one, two in zip(quick, thorough, strict=True):
        for key in ("q", "qd", "contacts"):
            np.testing.assert_array_equal(one[key], two[key])


def test_hexagons_weigh_and_reach_what_they_should() -> None:
    rng = np.random.default_rng(0)
    shape = Shape("hexagon", (0.07, 0.05), [0.01, -0.02, 0.03])
    spec = mujoco.MjSpec()
    mesh = spec.add_mesh(name="m")
    mesh.uservert = shape.corners().ravel()
    body = spec.worldbody.add_body(name="b", pos=shape.position)
    body.add_freejoint()
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="m", density=1000.0)
    compiled = spec.compile()
    mass = float(compiled.body_mass[1])
    assert shape.volume() == pytest.approx(mass / 1000.0, rel=1e-6)
    principal = np.linalg.eigvalsh(com_and_inertia(shape.inertial(mass))[2])
    np.testing.assert_allclose(np.sort(compiled.body_inertia[1]), principal, rtol=1e-6)
    for direction in rng.normal(size=(20, 3)):
        inside = (shape.corners() + shape.position) @ direction
        assert shape.support(direction) == pytest.approx(inside.max())
    assert shape.support([1.0, 0.0, 0.0]) == pytest.approx(0.01 + 0.035)  # flats across x
    assert shape.support([0.0, 1.0, 0.0]) == pytest.approx(-0.02 + 0.07 / np.sqrt(3.0))
    for pounds in (4, 8):
        round_heads, flat_heads = dumbbell(pounds), hexagonal_dumbbell(pounds)
        assert round_heads.theta[0] == flat_heads.theta[0]
        np.testing.assert_allclose(flat_heads.theta, round_heads.theta, rtol=0.06, atol=1e-12)


def stacked(offsets: np.ndarray) -> dict[str, float]:
    """Displacement of each dumbbell after they were let go one on the other, off by ``offsets`` (5, 2), m."""
    cell = workcell("a")
    standing: dict = {}
    for item, (x, y) in zip(cell.dumbbells, offsets, strict=True):
        place = cell.target(item.name) + np.array([x, y, cell.gap])
        standing[item.name] = (item.payload, BodyState.at_rest(place, cell.place_rotation))
        world = Settling(standing, cell.scene.obstacles, cell.friction, gen3().kinematics.gravity)
        world.settle(0.3, 1.5)
        states = world.states()
        standing = {name: (payload, states[name]) for name, (payload, _) in standing.items()}
    return {name: float(np.linalg.norm(s.position - cell.target(name))) for name, (_, s) in standing.items()}


def test_a_good_stack_stands_and_a_bad_one_falls() -> None:
    zigzag = np.outer([1.0, -1.0, 1.0, -1.0, 1.0], [1.0, 0.0])
    assert max(stacked(0.004 * zigzag).values()) < 0.006
    assert max(stacked(0.018 * zigzag).values()) > 0.03  # beyond the edge of the flat below


def test_an_arm_is_drawn_that_fits_with_every_dumbbell_or_the_reason_is_told() -> None:
    model = gen3()
    payloads = [in_hand(item.payload) for item in workcell("a").dumbbells]
    for mode in ("nominal", "uniform", "corner"):
        theta = draw_arm(model, payloads, 11, mode)
        np.testing.assert_array_equal(theta, draw_arm(model, payloads, 11, mode))
        for payload in payloads:
            full = theta.copy()
            full[60:70] = theta_e_with_payload(model, theta[60:70], payload)
            assert np.all((model.arm_prior.lower <= full) & (full <= model.arm_prior.upper))
    with pytest.raises(ParameterError, match="outside the prior"):
        draw_arm(model, [in_hand(hexagonal_dumbbell(9.5, np.zeros(3)))], 0, "nominal")
