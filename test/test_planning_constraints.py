"""The optimiser's fast margins: right at samples, right derivatives, calibrated by certificates; families of k."""

from __future__ import annotations

import coal
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_sysid.control.design import design_gains
from safe_sysid.errors import PlanError
from safe_sysid.planning.constraints import FAMILIES, FastConstraints, Obstacles
from safe_sysid.planning.effort import inertia_share_kernel
from safe_sysid.planning.family import TrajectoryFamily, shape
from safe_sysid.planning.proximity import cover
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.magnitudes import inertia_share
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.regressors import forward_kinematics, torque_regressor
from safe_sysid.robot.scene import Scene, load_scene


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return load_robot("kinova_gen3")


def constraints(model: RobotModel, scene: Scene, moving: bool = False, **changes: object) -> FastConstraints:
    rng = np.random.default_rng(1)
    motion = rng.uniform(-0.2, 0.2, (2, model.n)) if moving else np.zeros((2, model.n))
    family = TrajectoryFamily(np.stack([scene.start_for(model), *motion]), 0.785, 3.0)
    gains = design_gains(model, lockstep=True)
    return FastConstraints(
        model, model.arm_prior, gains, family, Obstacles.build(model, scene), 0.005, **changes
    )


unit = st.floats(-1.0, 1.0, allow_nan=False)


@given(st.lists(unit, min_size=3, max_size=3), st.lists(st.floats(-2, 2), min_size=9, max_size=9))
def test_every_k_gives_a_connected_trajectory_that_ends_at_rest(k: list[float], start: list[float]) -> None:
    first = TrajectoryFamily(np.array(start).reshape(3, 3), np.array([0.3, 0.8, 1.5]), 3.0)
    before = first.trajectory(k)
    at = before.state(1.5)[:3]
    after = TrajectoryFamily(at, first.k_range, 3.0).trajectory(np.flip(k))
    assert np.array_equal(after.knots[0], at)
    assert np.abs(after.state(0.0)[:3] - before.state(1.5)[:3]).max() <= 1e-12
    assert np.all(after.knots[-1, 1:] == 0.0)
    assert np.allclose(first.parameter(first.goal(k)), k, atol=1e-12)


@given(
    st.lists(st.floats(-2, 2), min_size=6, max_size=6), st.floats(-0.5, 0.5).filter(lambda x: abs(x) > 1e-3)
)
def test_zero_is_the_smoothest_way_to_rest(start: list[float], k: float) -> None:
    """No other end has a smaller integral of squared jerk."""
    family = TrajectoryFamily(np.array(start).reshape(3, 2), 1.0, 2.0)
    t = np.linspace(0.0, 2.0, 400, endpoint=False) + 2.5e-3

    def effort(parameter: np.ndarray) -> float:
        return float(np.square(family.trajectory(parameter).states(t)[:, 3]).mean())

    assert effort(np.zeros(2)) < effort(np.array([k, 0.0])) + 1e-12


def test_sampler_is_the_trajectory() -> None:
    rng = np.random.default_rng(0)
    family = TrajectoryFamily(rng.normal(size=(3, 4)), rng.uniform(0.2, 2.0, 4), 2.5)
    k, t = rng.uniform(-1, 1, 4), np.linspace(0.0, 2.4999, 50)
    exact = family.trajectory(k).states(t)
    sampler = family.sampler(t)
    for order, found in enumerate((*sampler(k), sampler.jerk(k[None]))):
        assert np.allclose(found, exact[:, order], atol=1e-10)
    assert np.allclose(shape([0.0, 1.0])[:3], [[0, 1], [0, 0], [0, 0]])


@pytest.mark.parametrize("k", [[0.0, 0.0, 1.1], [0.0, 0.0, np.nan], [0.0, 0.0]])
def test_k_outside_its_range_is_refused(k: list[float]) -> None:
    with pytest.raises(PlanError, match="numbers in"):
        TrajectoryFamily(np.zeros((3, 3)), 1.0, 3.0).trajectory(k)


@pytest.mark.parametrize(("k_range", "duration"), [(0.0, 3.0), (-1.0, 3.0), (1.0, 0.0), (1.0, np.inf)])
def test_senseless_family_is_refused(k_range: float, duration: float) -> None:
    with pytest.raises(PlanError, match="expected"):
        TrajectoryFamily(np.zeros((3, 3)), k_range, duration)


def test_margins_are_those_of_direct_evaluation(model: RobotModel) -> None:
    c = constraints(model, load_scene("open"), moving=True)
    k = np.random.default_rng(2).uniform(-0.5, 0.5, 7)
    x = c.family.trajectory(k).states(np.linspace(0.0, 3.0 * (1 - 1e-9), c.samples))
    raw, box, a = c.raw(k), c.box, c.gains.assumptions
    corners = np.random.default_rng(3).choice([-1.0, 1.0], (200, box.size)) * box.rad + box.mid
    regressor = torque_regressor(
        model.kinematics, x[:, 0], x[:, 1], x[:, 2], model.friction_transition_velocity
    )
    worst = np.abs(regressor @ box.mid) + np.abs(regressor) @ box.rad
    assert np.allclose(raw["torque"], (model.limits.torque - worst).min(axis=0))
    assert np.all(
        raw["torque"] <= (model.limits.torque - np.abs(regressor @ corners.T).max(axis=(0, 2))) + 1e-9
    )
    exact = np.sqrt((np.square(regressor) / c.gains.inertia_lower[:, None]).sum(axis=1))
    assert raw["tracking"][0] == pytest.approx(a.uncertainty - (exact @ box.rad).max())
    assert np.allclose(raw["jerk"], (a.jerk - np.abs(x[:, 3])).min(axis=0))
    assert np.allclose(raw["acceleration"], (a.acceleration - np.abs(x[:, 2])).min(axis=0))
    limit = np.minimum(a.velocity, model.limits.velocity)
    assert np.allclose(raw["velocity"], (limit - np.abs(x[:, 1])).min(axis=0))
    room = np.minimum(x[:, 0] - model.limits.position_lower, model.limits.position_upper - x[:, 0])
    assert np.array_equal(np.isinf(raw["position"]), model.continuous)
    assert np.allclose(raw["position"][~model.continuous], room.min(axis=0)[~model.continuous])
    assert set(raw) == set(FAMILIES)


def test_inertia_share_is_that_of_the_proof(model: RobotModel) -> None:
    rng = np.random.default_rng(4)
    q, spare = rng.uniform(-3, 3, (30, 7)), rng.uniform(1.0, 9.0, 7)
    r, p = forward_kinematics(model.kinematics, q)
    box, out = model.arm_prior, np.empty(30)
    inertia_share_kernel(model.kinematics.axis, r, p, box.mid, box.rad, spare, out)
    exact = inertia_share(model.kinematics, box, spare, q, np.zeros_like(q))
    assert np.allclose(out, exact, rtol=0.02)
    assert np.median(np.abs(out / exact - 1.0)) < 1e-3


@pytest.mark.parametrize("moving", [False, True])
def test_jacobian(model: RobotModel, moving: bool) -> None:
    """Away from kinks forward and backward differences agree; there the Jacobian must too."""
    c = constraints(model, load_scene("six_boxes"), moving)
    # The tracking error's share of a distance is not differentiated.
    object.__setattr__(c.gains, "e_bound", np.zeros(7))
    for seed in range(3):
        k = np.random.default_rng(seed).uniform(-0.6, 0.6, 7)
        values, jacobian = c.values_and_jacobian(k)
        assert np.array_equal(values, c.values(k))
        up, down = (np.array([c.values(k + s * 1e-5 * d) for d in np.eye(7)]).T for s in (1, -1))
        forward, backward = (up - values[:, None]) / 1e-5, (values[:, None] - down) / 1e-5
        smooth = np.abs(forward - backward) < 1e-3 * (1.0 + np.abs(forward))
        assert smooth.mean() > 0.9
        assert np.abs(jacobian - 0.5 * (forward + backward))[smooth].max() < 1e-2


@pytest.mark.parametrize("scene_name", ["open", "six_boxes"])
def test_distances_are_close_to_a_librarys(model: RobotModel, scene_name: str) -> None:
    """The balls stand for the bodies to within a few centimetres, at poses all over the workspace."""
    scene = load_scene(scene_name)
    c = constraints(model, scene)
    q = scene.start_for(model) + np.random.default_rng(5).uniform(-0.8, 0.8, (25, 7))
    r, p = forward_kinematics(model.kinematics, q)
    object.__setattr__(c.gains, "e_bound", np.zeros(7))
    found, _ = c._distances(r, p)

    def shape_of(body: Body) -> coal.ConvexBase:
        points = np.vstack([body.points, body.points + 1e-6 * np.eye(3)[[0]]])
        if len(body.points) < 4:
            axis = points[1] - points[0]
            side = np.cross(axis, [0.3, 0.5, 0.8])
            side = 1e-6 * side / np.linalg.norm(side)
            points = np.vstack([points, points + side, points + np.cross(side, axis)])
        cloud = coal.StdVec_Vec3s()
        cloud.extend(points)
        return coal.Convex.convexHull(cloud, True, "Qt")

    shapes = {body.name: shape_of(body) for body in model.bodies}
    for i in range(len(q)):
        poses = {
            b.name: coal.Transform3s(r[i, b.joint], p[i, b.joint]) if b.joint >= 0 else coal.Transform3s()
            for b in model.bodies
        }

        def distance(a: Body, b: Body, poses: dict = poses) -> float:
            request = coal.DistanceRequest()
            result = coal.DistanceResult()
            coal.distance(shapes[a.name], poses[a.name], shapes[b.name], poses[b.name], request, result)
            return result.min_distance - a.radius - b.radius

        own = min(
            distance(a, b)
            for n, a in enumerate(model.bodies)
            for b in model.bodies[:n]
            if a.joint != b.joint and frozenset((a.name, b.name)) not in model.allowed_pairs
        )
        if own > -0.02:
            assert found["self"][i] == pytest.approx(own, abs=0.04)
        if scene.boxes:
            outer = np.inf
            for box in scene.boxes:
                solid, at = coal.Box(*box.size), coal.Transform3s(box.rotation, box.xyz)
                for body in model.bodies:
                    if body.joint >= 0:
                        result = coal.DistanceResult()
                        coal.distance(
                            shapes[body.name], poses[body.name], solid, at, coal.DistanceRequest(), result
                        )
                        outer = min(outer, result.min_distance - body.radius)
            if outer > -0.02:
                assert found["clearance"][i] == pytest.approx(outer, abs=0.04)


def test_balls_fill_their_bodies(model: RobotModel) -> None:
    """Points of a body lie in a ball, or within a centimetre and a half of one."""
    balls = cover(model.bodies)
    rng = np.random.default_rng(6)
    for index, body in enumerate(model.bodies):
        own = balls.body == index
        assert own.any()
        weights = rng.dirichlet(np.full(len(body.points), 0.4), 300)
        inside = weights @ body.points
        gap = np.linalg.norm(inside[:, None] - balls.centre[own], axis=2) - balls.radius[own]
        assert gap.min(axis=1).max() <= 0.015


def test_calibration_reproduces_the_certificate(model: RobotModel) -> None:
    c = constraints(model, load_scene("six_boxes"))
    rng = np.random.default_rng(7)
    k = rng.uniform(-0.4, 0.4, 7)
    certified = {name: value - rng.uniform(0.0, 0.1, value.shape) for name, value in c.raw(k).items()}
    calibrated = c.calibrate(k, certified)
    for name, value in calibrated.raw(k).items():
        finite = np.isfinite(value)
        assert np.allclose((value - calibrated.reserve[name])[finite], certified[name][finite], atol=1e-12)
    # The vector seen by the optimiser then has its worst entry where the certificate has it.
    worst = min(
        float(np.min((certified[n] / c.scale[n])[np.isfinite(certified[n])], initial=10.0)) for n in certified
    )
    assert calibrated.values(k).min() == pytest.approx(worst, abs=1e-9)


def test_calibration_from_the_worst_joint_alone(model: RobotModel) -> None:
    c = constraints(model, load_scene("open"))
    k = np.full(7, 0.2)
    before = c.raw(k)["torque"] - c.reserve["torque"]
    after = c.calibrate(k, {"torque": np.array(before.min() - 1.5)})
    assert np.allclose(c.raw(k)["torque"] - after.reserve["torque"], before - 1.5)
    assert np.array_equal(c.calibrate(k, {"nonsense": np.zeros(1)}).values(k), c.values(k))
    assert np.array_equal(c.calibrate(k, {"torque": np.full(7, np.nan)}).values(k), c.values(k))


def test_restore_finds_back(model: RobotModel) -> None:
    """From parameters that break limits it comes back to ones that do not."""
    c = constraints(model, load_scene("open"))
    easy = c.with_reserve({name: 0.2 * value for name, value in c.reserve.items()})
    rng = np.random.default_rng(8)
    broken = [k for k in rng.uniform(-1, 1, (60, 7)) if easy.values(k).min() < -0.2][:10]
    assert len(broken) >= 3
    restored = [easy.restore(k) for k in broken]
    assert np.mean([easy.values(k).min() >= 0.0 for k in restored]) >= 0.7
    assert all(np.all(np.abs(k) <= 1.0) for k in restored)


@pytest.mark.parametrize("name", ["clearance", "self"])
def test_tracking_error_comes_off_the_distances(model: RobotModel, name: str) -> None:
    """By what it moves the nearest pair towards each other, to first order: sum of e_j |d distance / d q_j|."""
    c = constraints(model, load_scene("six_boxes"))
    q = np.random.default_rng(9).uniform(-1, 1, (20, 7)) + c.family.start[0]
    r, p = forward_kinematics(model.kinematics, q)
    e = np.linspace(0.001, 0.02, 7)
    object.__setattr__(c.gains, "e_bound", np.zeros(7))
    without, slope = c._distances(r, p)
    object.__setattr__(c.gains, "e_bound", e)
    with_error, _ = c._distances(r, p)
    assert np.allclose(with_error[name], without[name] - np.abs(slope[name]) @ e, atol=1e-12)
    assert np.any(np.abs(slope[name]) > 0.1), "or nothing was tested"
