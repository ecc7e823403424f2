"""The optimiser's fast margins: right at samples, right derivatives, calibrated by certificates; families of k."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_sysid.control.gains.design import design_gains
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import inertia_share
from safe_sysid.errors import PlanError
from safe_sysid.planning.distances.proximity import Proximity
from safe_sysid.planning.optimiser.constraints import FAMILIES, LINEAR, FastConstraints
from safe_sysid.planning.optimiser.effort import effort_slopes, inertia_share_kernel
from safe_sysid.planning.optimiser.family import TrajectoryFamily, shape
from safe_sysid.planning.optimiser.optimise import restore
from safe_sysid.planning.optimiser.sqp import Subproblem
from safe_sysid.robot import RobotModel, Scene, forward_kinematics, load_scene


def constraints(model: RobotModel, scene: Scene, moving: bool = False, **changes: object) -> FastConstraints:
    rng = np.random.default_rng(1)
    motion = rng.uniform(-0.2, 0.2, (2, model.n)) if moving else np.zeros((2, model.n))
    family = TrajectoryFamily(np.stack([scene.start_for(model), *motion]), 0.785, 3.0)
    gains = design_gains(model, lockstep=True)
    return FastConstraints(model, model.arm_prior, gains, family, Proximity.build(model, scene), 0.005, **changes)


@given(st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3), st.lists(st.floats(-2, 2), min_size=9, max_size=9))
def test_every_k_gives_a_connected_trajectory_that_ends_at_rest(k: list[float], start: list[float]) -> None:
    first = TrajectoryFamily(np.array(start).reshape(3, 3), np.array([0.3, 0.8, 1.5]), 3.0)
    before = first.trajectory(k)
    at = before.state(1.5)[:3]
    after = TrajectoryFamily(at, first.k_range, 3.0).trajectory(np.flip(k))
    assert np.array_equal(after.knots[0], at)
    assert np.abs(after.state(0.0)[:3] - before.state(1.5)[:3]).max() <= 1e-12
    assert np.all(after.knots[-1, 1:] == 0.0)
    assert np.allclose(first.parameter(first.goal(k)), k, atol=1e-12)


@given(st.lists(st.floats(-2, 2), min_size=6, max_size=6), st.floats(-0.5, 0.5).filter(lambda x: abs(x) > 1e-3))
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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("until", [0.7, 1.5, 2.4])
def test_a_tail_goes_on_as_the_plan_before_did(seed: int, until: float) -> None:
    """Zero is the rest of the plan under way, then rest; every k connects, ends at rest, and its knots are few."""
    rng = np.random.default_rng(seed)
    first = TrajectoryFamily(rng.uniform(-1, 1, (3, 4)), rng.uniform(0.2, 1.0, 4), 3.0)
    previous = first.trajectory(rng.uniform(-1, 1, 4))
    start = previous.state(until)[:3]
    along = TrajectoryFamily.along(previous, start, until, first.k_range, 3.0)
    t = np.linspace(0.0, 2.999, 61)
    assert np.abs(along.trajectory(np.zeros(4)).states(t) - previous.states(t + until))[:, :3].max() < 1e-11
    k = rng.uniform(-1, 1, 4)
    trajectory = along.trajectory(k)
    assert len(trajectory.times) == 3
    assert np.array_equal(trajectory.knots[0], start)
    assert np.allclose(trajectory.knots[-1, 0], along.goal(k), atol=1e-14)
    # Linear in k between the knots too, and what the sampler says.
    move = trajectory.states(t)[:, :3] - along.trajectory(np.zeros(4)).states(t)[:, :3]
    assert np.allclose(move, (shape(t / 3.0)[:3] / 3.0 ** np.arange(3)[:, None]).T[:, :, None] * along.k_range * k)
    for order, found in enumerate((*along.sampler(t)(k), along.sampler(t).jerk(k[None]))):
        assert np.allclose(found, trajectory.states(t)[:, order], atol=1e-9)
    # And so on: the next tail, half a plan later, has no more knots than that.
    again = TrajectoryFamily.along(trajectory, trajectory.state(1.5)[:3], 1.5, along.k_range, 3.0)
    if until >= 1.5:
        assert len(again.trajectory(k).times) <= 3
    else:
        assert again is None, "four knots"


def test_a_tail_that_does_not_fit_is_none_or_refused() -> None:
    first = TrajectoryFamily(np.ones((3, 2)), 1.0, 3.0)
    trajectory = first.trajectory(np.zeros(2))
    assert TrajectoryFamily.along(trajectory, trajectory.state(0.5)[:3], 0.5, first.k_range, 2.0) is None
    assert TrajectoryFamily.along(trajectory, trajectory.state(3.0)[:3], 3.0, first.k_range, 3.0) is None
    with pytest.raises(PlanError, match="tail"):
        TrajectoryFamily(np.zeros((3, 2)), 1.0, 3.0, trajectory)
    with pytest.raises(PlanError, match="tail"):
        TrajectoryFamily(first.start, 1.0, 2.0, trajectory)


def test_margins_are_those_of_direct_evaluation(model: RobotModel) -> None:
    c = constraints(model, load_scene("open"), moving=True)
    k = np.random.default_rng(2).uniform(-0.5, 0.5, 7)
    x = c.family.trajectory(k).states(np.linspace(0.0, 3.0 * (1 - 1e-9), c.samples))
    raw, box, a = c.raw(k), c.box, c.gains.assumptions
    corners = np.random.default_rng(3).choice([-1.0, 1.0], (200, box.size)) * box.rad + box.mid
    motion = x[:, 0], x[:, 1], x[:, 2], model.friction_transition_velocity
    regressor = dynamics_of(model.kinematics).torque_regressor(*motion)
    worst = np.abs(regressor @ box.mid) + np.abs(regressor) @ box.rad
    assert np.allclose(raw["torque"], (model.limits.torque - worst).min(axis=0))
    assert np.all(raw["torque"] <= (model.limits.torque - np.abs(regressor @ corners.T).max(axis=(0, 2))) + 1e-9)
    exact = np.sqrt((np.square(np.abs(regressor) @ box.rad) / c.gains.inertia_lower).sum(axis=1))
    assert raw["tracking"][0] == pytest.approx(a.uncertainty - exact.max())
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
    for seed in range(3):
        k = np.random.default_rng(seed).uniform(-0.6, 0.6, 7)
        values, jacobian = c.values_and_jacobian(k)
        assert np.array_equal(values, c.values(k))
        assert values.shape == (c.size,)
        up, down = (np.array([c.values(k + s * 1e-5 * d) for d in np.eye(7)]).T for s in (1, -1))
        forward, backward = (up - values[:, None]) / 1e-5, (values[:, None] - down) / 1e-5
        smooth = np.abs(forward - backward) < 1e-3 * (1.0 + np.abs(forward))
        assert smooth.mean() > 0.9
        assert np.abs(jacobian - 0.5 * (forward + backward))[smooth].max() < 1e-2


def test_slopes_of_torque_and_measure_on_random_states(model: RobotModel) -> None:
    """Against central differences in q, qd and qdd, slow joints (Coulomb's columns) included."""
    rng = np.random.default_rng(10)
    box, weight, transition = model.arm_prior, rng.uniform(1.0, 9.0, 7), 0.05
    state = np.ascontiguousarray(rng.uniform(-1, 1, (3, 6, 7)))
    state[1, :3] *= 0.01

    def both(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w = dynamics_of(model.kinematics).torque_regressor(x[0], x[1], x[2], transition)
        spread = np.abs(w) @ box.rad
        return np.abs(w @ box.mid) + spread, np.sqrt((np.square(spread) / weight).sum(axis=1))

    at = rng.integers(0, 6, (4, 7))
    torque, measure = effort_slopes(model.kinematics, tuple(state), transition, box, weight, at, at[:, 0])
    for order in range(3):
        for i in range(7):
            step = np.zeros_like(state)
            step[order, :, i] = 1e-6
            (up, up_measure), (down, down_measure) = both(state + step), both(state - step)
            expected = ((up - down) / 2e-6)[at, np.arange(7)]
            close = np.isclose(torque[:, :, order, i], expected, rtol=1e-4, atol=1e-4)
            assert close.mean() > 0.95, "a corner of the box may change within the step"
            assert np.allclose(measure[:, order, i], ((up_measure - down_measure) / 2e-6)[at[:, 0]], atol=1e-4)


@pytest.mark.parametrize("moving", [False, True])
def test_bounds_are_where_the_linear_margins_end(model: RobotModel, moving: bool) -> None:
    """Inside the bounds all linear families hold; just outside of one that is no end of [-1, 1], one is broken."""
    c = constraints(model, load_scene("open"), moving)
    lower, upper = c.bounds()
    assert np.all(lower < upper)
    assert np.any(lower > -1.0) or np.any(upper < 1.0), "or nothing was tested"

    def worst(k: np.ndarray) -> float:
        raw = c.raw(k)
        return min(float(np.min(raw[name] - c.reserve[name])) for name in LINEAR)

    rng = np.random.default_rng(11)
    for _ in range(10):
        assert worst(lower + rng.uniform(0, 1, 7) * (upper - lower)) >= -1e-9
        assert worst(np.where(rng.random(7) < 0.5, lower, upper)) >= -1e-9
    middle = 0.5 * (lower + upper)
    for j in range(7):
        for end, sign in ((lower[j], -1.0), (upper[j], 1.0)):
            if abs(end) < 1.0:
                k = middle.copy()
                k[j] = end + sign * 1e-3
                assert worst(k) < 0.0


def test_no_bounds_where_nothing_would_be_left(model: RobotModel) -> None:
    c = constraints(model, load_scene("open"))
    broken = c.with_reserve({"position": np.full(7, 10.0)})
    assert np.array_equal(broken.bounds()[0][~model.continuous], -np.ones(3))
    assert broken.values(np.zeros(7)).min() < 0.0


def test_resampled_looks_at_the_same_margins(model: RobotModel) -> None:
    c = constraints(model, load_scene("six_boxes"))
    coarse = c.resampled(32, 8)
    assert coarse.size < c.size
    for k in np.random.default_rng(12).uniform(-0.5, 0.5, (5, 7)):
        fine, few = c.raw(k), coarse.raw(k)
        for name in FAMILIES:
            finite = np.isfinite(fine[name]) & (fine[name] < 100.0)
            gap = (few[name][finite] - fine[name][finite]) / c.scale[name][finite]
            assert np.all(np.abs(gap) < 0.6)


def test_calibration_reproduces_the_certificate(model: RobotModel) -> None:
    c = constraints(model, load_scene("six_boxes"))
    rng = np.random.default_rng(7)
    k = rng.uniform(-0.4, 0.4, 7)
    certified = {name: value - rng.uniform(0.0, 0.1, value.shape) for name, value in c.raw(k).items()}
    far = {name: certified[name] > 2.0 * c.scale[name] for name in ("clearance", "self_clearance")}
    calibrated = c.calibrate(k, certified)
    for name, value in calibrated.raw(k).items():
        told = np.isfinite(value) & ~far.get(name, np.zeros(value.shape, bool))
        assert np.allclose((value - calibrated.reserve[name])[told], certified[name][told], atol=1e-12)
    # Of what is far a certificate only says that it is far: nothing to learn.
    assert any(np.any(x) for x in far.values())
    for name, x in far.items():
        assert np.array_equal(calibrated.reserve[name][x], c.reserve[name][x])
    # The vector seen by the optimiser then has its worst entry where the certificate has it.
    worst = min(float(np.min((certified[n] / c.scale[n])[np.isfinite(certified[n])], initial=10.0)) for n in certified)
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
    c = constraints(model, load_scene("open")).resampled(32, 8)
    easy = c.with_reserve({name: 0.2 * value for name, value in c.reserve.items()})
    rng = np.random.default_rng(8)
    broken = [k for k in rng.uniform(-1, 1, (60, 7)) if easy.values(k).min() < -0.2][:10]
    assert len(broken) >= 3
    subproblem = Subproblem(7)
    restored = [restore(easy, k, subproblem) for k in broken]
    assert np.mean([easy.values(k).min() >= -1e-3 for k in restored]) >= 0.7
    assert all(np.all(np.abs(k) <= 1.0) for k in restored)
