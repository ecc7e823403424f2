"""Fast motions keep what they say, seen by other code and more densely; or are refused, with the reason."""

from __future__ import annotations

import dataclasses

import numpy as np
import pinocchio as pin
import pytest
from certificate_support import random_model
from geometry_support import hull_distance, one_sided_slopes, random_obstacles
from hypothesis import given, settings
from hypothesis import strategies as st
from rigid_arm import pinocchio_model

from safe_sysid.errors import PlanError
from safe_sysid.planning.distances.pair_distances import SEARCH_DISTANCE, PairDistances
from safe_sysid.planning.motions.fast_motion import (
    FastMotion,
    LimitDistances,
    MotionLimits,
    MotionRefusedError,
    check_motion,
    fast_motion,
)
from safe_sysid.planning.motions.knot_family import KnotFamily
from safe_sysid.planning.motions.motion_rows import MotionRows, evenly
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import enclose_clearance
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.scenes.scene import Scene, SceneBox
from safe_sysid.simulation.payloads import dumbbell, theta_e_with_payload
from safe_sysid.trajectories.quintic import QuinticTrajectory

SEEDS = st.integers(0, 2**32 - 1)
LOW = np.array([0.0, 0.9, np.pi, -1.5, 0.0, 0.8, 1.5708])
SIDE = np.array([0.8, 0, 0, 0, 0, 0, 0])
#: 90 % of the hard thresholds, as in the paper's experiments.
TORQUE = [90.0] * 4 + [45.0] * 3


@pytest.fixture(scope="module")
def theta(model: RobotModel) -> np.ndarray:
    """Of the Gen3 with the 8 lb dumbbell."""
    theta = np.array(model.theta_nominal)
    theta[60:70] = theta_e_with_payload(model, theta[60:70], dumbbell(8))
    return theta


def post(height: float) -> Scene:
    """A post where the payload would pass between ``LOW - SIDE`` and ``LOW + SIDE``."""
    xyz = np.array([0.85, 0.0, 0.5 * height])
    return Scene("post", (SceneBox("post", xyz, np.zeros(3), np.array([0.1, 0.1, height])),))


def straight_in(seconds: float) -> QuinticTrajectory:
    return QuinticTrajectory.to_rest(np.stack([LOW - SIDE, 0 * LOW, 0 * LOW]), LOW + SIDE, seconds)


def pinocchio_torques(model: RobotModel, theta: np.ndarray, states: np.ndarray) -> np.ndarray:
    """|torque| (N, n) by Pinocchio's recursion, with friction and rotors added by hand, worst Coulomb sign."""
    n = model.n
    chain = pinocchio_model(model, theta)
    chain.gravity = pin.Motion(np.array(model.kinematics.gravity), np.zeros(3))
    data = chain.createData()
    coulomb, viscous, rotor, offset = theta[10 * n :].reshape(4, n)
    out = [
        np.abs(pin.rnea(chain, data, q, qd, qdd) + viscous * qd + rotor * qdd + offset) + np.abs(coulomb)
        for q, qd, qdd in states[:, :3]
    ]
    return np.array(out)


def verified_distances(model: RobotModel, scene: Scene, trajectory: QuinticTrajectory) -> dict[bool, float]:
    """Lower bounds over *all* instants by the certificate's own rigorous code, by whether the pair is the arm's own."""
    zero = np.zeros(model.n)
    found = enclose_clearance(model, scene, time_cells(trajectory, 400), TrackingSet(zero, zero, zero))
    return {own: float(found.bounds[:, found.is_self == own].min(initial=np.inf)) for own in (False, True)}


def check_independently(
    model: RobotModel, theta: np.ndarray, scene: Scene, motion: FastMotion, limits: MotionLimits, keep: LimitDistances
) -> None:
    """Everything that is kept, by code that the search does not use."""
    trajectory = motion.trajectory
    t = np.linspace(0.0, trajectory.duration, 4001)
    states = trajectory.states(t)
    q, qd, qdd = states[:, 0], states[:, 1], states[:, 2]
    room = np.minimum(q - limits.position_lower, limits.position_upper - q).min()
    assert room >= keep.position - 1e-9
    assert motion.kept["position"].value == pytest.approx(room, abs=1e-4)
    speed = (limits.velocity - np.abs(qd)).min()
    assert np.all(np.abs(qd) <= (1.0 - keep.velocity) * limits.velocity + 1e-9)
    assert motion.kept["velocity"].value == pytest.approx(speed, abs=1e-4)
    assert np.all(np.abs(qdd) <= (1.0 - keep.acceleration) * limits.acceleration + 1e-9)
    torque = pinocchio_torques(model, theta, states)
    # Between the search's own samples of a millisecond a torque moves by less than this.
    assert np.all(torque <= (1.0 - keep.torque) * limits.torque + 1e-3)
    assert motion.kept["torque"].value == pytest.approx((limits.torque - torque).min(), abs=2e-3)
    for own, name in ((False, "clearance"), (True, "self_clearance")):
        bound, said = verified_distances(model, scene, trajectory)[own], motion.kept[name].value
        if said < 0.09:
            # The enclosure of a cell is a little wider than what happens in it.
            assert bound <= said + 1e-4
            assert bound >= said - 4e-3


# -- the family of motions -----------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(SEEDS)
def test_jerk_is_its_own_integral_with_its_slope(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pieces = rng.uniform(0.3, 2.0, int(rng.integers(1, 5)))
    family = KnotFamily(rng.normal(size=3), rng.normal(size=3), pieces)
    x = rng.normal(size=(3, family.free))
    value, slope = family.jerk(x)
    trajectory = family.trajectory(x)
    # Midpoints of many cells per piece; a parabola's square is smooth there.
    total = 0.0
    for a, h in zip(trajectory.times[:-1], np.diff(trajectory.times), strict=True):
        t = a + (np.arange(500) + 0.5) * h / 500
        total += float(np.sum(trajectory.states(t)[:, 3] ** 2)) * h / 500
    assert value == pytest.approx(total, rel=1e-4)
    along = rng.normal(size=x.shape)
    ahead, behind = (family.jerk(x + sign * 1e-4 * along)[0] for sign in (1.0, -1.0))
    assert float(np.sum(slope * along)) == pytest.approx((ahead - behind) / 2e-4, rel=1e-6, abs=1e-6)


@settings(max_examples=15)
@given(SEEDS)
def test_the_smoothest_motion_is_one_quintic_and_has_the_least_jerk(seed: int) -> None:
    """From rest to rest in time T the least jerk is ``720 d^2 / T^5``, whatever the knots."""
    rng = np.random.default_rng(seed)
    family = KnotFamily(rng.normal(size=2), rng.normal(size=2), rng.uniform(0.3, 2.0, int(rng.integers(1, 5))))
    least = 720.0 * float(np.sum((family.goal - family.start) ** 2)) / family.duration**5
    x = family.smoothest()
    assert family.jerk(x)[0] == pytest.approx(least, rel=1e-9)
    if family.free:
        assert family.jerk(x + 0.1 * rng.normal(size=x.shape))[0] > least
        inner = rng.normal(size=(len(family.pieces) - 1, 2))
        through = family.smoothest(inner)
        assert family.trajectory(through).knots[1:-1, 0] == pytest.approx(inner, abs=1e-9)
        moved = through + 0.1 * rng.normal(size=x.shape) * (np.arange(family.free) % 3 > 0)
        assert family.jerk(moved)[0] > family.jerk(through)[0]
    assert family.knots(family.trajectory(x)) == pytest.approx(x, abs=1e-12)


@settings(max_examples=10)
@given(SEEDS)
def test_samples_are_the_trajectorys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    family = KnotFamily(rng.normal(size=3), rng.normal(size=3), rng.uniform(0.3, 2.0, 3))
    x, t = rng.normal(size=(3, family.free)), np.sort(rng.uniform(0.0, 0.9 * family.duration, 9))
    states = np.stack(family.sampler(t).states(x), axis=1)
    assert states == pytest.approx(family.trajectory(x).states(t), rel=1e-9, abs=1e-9)


# -- distances and rows --------------------------------------------------------------------------------------------


def arm_with_bodies(rng: np.random.Generator, n: int) -> tuple[RobotModel, np.ndarray]:
    """A random arm with balls, capsules and hulls."""
    model, theta = random_model(rng, n)
    bodies = [Body("foot", -1, rng.normal(scale=0.1, size=(2, 3)), 0.05, "base")]
    for j in range(model.n):
        count = int(rng.choice([1, 2, 5]))
        bodies.append(Body(f"body_{j}", j, rng.normal(scale=0.1, size=(count, 3)), float(rng.choice([0.0, 0.03]))))
    return dataclasses.replace(model, bodies=tuple(bodies)), theta


@settings(max_examples=10)
@given(SEEDS)
def test_distances_are_those_of_the_hulls_with_exact_slopes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, _ = arm_with_bodies(rng, 3)
    scene = Scene("random", random_obstacles(rng))
    pairs = PairDistances(model, scene)
    q, step = rng.uniform(-3.0, 3.0, (6, 3)), 1e-5
    found, slopes = pairs.at(q)
    r, p = forward_kinematics(model.kinematics, q)
    shapes = {body.name: body for body in (*scene.bodies(), *model.bodies)}
    for k in range(len(q)):
        for c, names in enumerate(pairs.names):
            hulls = []
            for body in (shapes[name] for name in names):
                j = body.joint
                hulls.append(body.points if j < 0 else body.points @ r[k, j].T + p[k, j])
            true = hull_distance(*hulls) - sum(shapes[name].radius for name in names)
            if true < SEARCH_DISTANCE - 1e-4 and hull_distance(*hulls) > 1e-3:
                # Flat hulls are a tenth of a millimetre thicker on either side.
                assert true - 2.1e-4 <= found[k, c] <= true + 1e-5
                flat = any(len(shapes[name].points) == 4 for name in names)
                assert flat or found[k, c] >= true - 1e-5
            elif true > SEARCH_DISTANCE + 1e-4:
                assert found[k, c] == SEARCH_DISTANCE
                assert not np.any(slopes[k, c])
    for j in range(3):
        ahead, behind = (pairs.at(q + sign * step * np.eye(3)[j], want_slopes=False)[0] for sign in (1.0, -1.0))
        forward, backward = (ahead - found) / step, (found - behind) / step
        near = (found > 1e-3) & (np.maximum(ahead, behind) < SEARCH_DISTANCE - 1e-3)
        # coal's own tolerance of 1e-6 m over the step; nearest features that change bend the distance.
        low, high = np.minimum(forward, backward) - 0.2, np.maximum(forward, backward) + 0.2
        assert np.all((slopes[..., j] >= low) & (slopes[..., j] <= high) | ~near)


@settings(max_examples=6)
@given(SEEDS)
def test_rows_have_the_slopes_that_they_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, theta = arm_with_bodies(rng, 3)
    limits = MotionLimits(
        np.full(3, -3.0), np.full(3, 3.0), rng.uniform(1, 3, 3), rng.uniform(3, 9, 3), rng.uniform(10, 99, 3)
    )
    scene = Scene("random", random_obstacles(rng))
    family = KnotFamily(rng.normal(size=3), rng.normal(size=3), np.array([0.7, 0.9]))
    pairs = PairDistances(model, scene)
    at = evenly(family.duration, 5.0)
    rows = MotionRows(model, theta, pairs, family, limits, LimitDistances(clearance=0.1, opening=0.3), at, at[::2], 0.1)
    x, step = rng.normal(size=3 * family.free), 1e-5
    values, jacobian = rows.values_and_jacobian(x)
    assert values == pytest.approx(rows.values(x), abs=1e-12)
    low, high = one_sided_slopes(rows.values, x, step)
    bodies = np.concatenate([np.full(part.size, "clearance" in name) for name, part in rows.parts(x).items()])
    room = np.where(bodies, 2.0, 1e-3)[:, None] * (1.0 + 0.1 * np.abs(jacobian))
    assert np.all((jacobian >= low - room) & (jacobian <= high + room) | (values > 3.9)[:, None] | bodies[:, None])
    # Distances: coal's tolerance over the step; where bodies overlap their depth is not smooth.
    smooth = bodies & (values < 1.0) & (values > -1.0)
    agree = np.abs(jacobian - 0.5 * (low + high))[smooth] <= 0.3 + 0.1 * np.abs(jacobian[smooth])
    assert agree.mean() > 0.9 if agree.size else True
    # What is asked for grows away from the ends: alone, because there coal's tolerance cancels.
    wide = dataclasses.replace(rows, keep=LimitDistances(clearance=0.14, self_clearance=0.14, opening=0.06))
    narrow = dataclasses.replace(wide, keep=dataclasses.replace(wide.keep, opening=0.0))
    slope = wide.values_and_jacobian(x)[1] - narrow.values_and_jacobian(x)[1]
    low, high = one_sided_slopes(lambda y: wide.values(y) - narrow.values(y), x, step)
    assert np.all((slope >= low - 1e-3) & (slope <= high + 1e-3))


@settings(max_examples=8)
@given(SEEDS)
def test_rows_are_the_margins_that_other_code_finds(seed: int) -> None:
    """Every family, at random motions of random arms with friction, in shares of the limit less what is to be kept."""
    rng = np.random.default_rng(seed)
    model, theta = arm_with_bodies(rng, 3)
    theta[30:] = rng.uniform(1.0, 9.0, 12)  # friction and rotors that matter
    limits = MotionLimits(
        np.full(3, -3.0), rng.uniform(2.0, 4.0, 3), rng.uniform(1, 3, 3), rng.uniform(3, 9, 3), rng.uniform(10, 99, 3)
    )
    keep = LimitDistances(0.07, 0.11, 0.13, 0.17, 0.06, 0.03, 0.2)
    scene = Scene("random", random_obstacles(rng))
    family = KnotFamily(rng.normal(size=3), rng.normal(size=3), np.array([0.7, 0.9]))
    pairs = PairDistances(model, scene)
    at, looked = (np.arange(10) + 0.5) * 0.16, (np.arange(13) + 0.5) * 1.6 / 13
    rows = MotionRows(model, theta, pairs, family, limits, keep, at, looked, 0.01)
    x = rng.normal(size=(3, family.free))
    parts, trajectory = rows.parts(x.ravel()), family.trajectory(x)
    states = trajectory.states(at)
    q, qd, qdd = (states[:, i] for i in range(3))
    room = np.minimum(q - limits.position_lower, limits.position_upper - q) - keep.position
    expected = {
        "position": np.minimum(2.0 * room, 5.0),
        "velocity": 1.0 - keep.velocity - np.abs(qd) / limits.velocity,
        "acceleration": 1.0 - keep.acceleration - np.abs(qdd) / limits.acceleration,
        "torque": 1.0 - keep.torque - pinocchio_torques(model, theta, states) / limits.torque,
    }
    for name, value in expected.items():
        assert parts[name] == pytest.approx(value, abs=1e-9), name
    q = trajectory.states(looked)[:, 0]
    near, ends = pairs.at(q, want_slopes=False)[0], pairs.at(np.stack([family.start, family.goal]))[0]
    for name, own, wanted in (("clearance", False, 0.06), ("self_clearance", True, 0.03)):
        mine = pairs.is_self == own
        away = [np.linalg.norm(q - end, axis=1)[:, None] for end in (family.start, family.goal)]
        asked = np.minimum(wanted, np.minimum(ends[0] + 0.2 * away[0], ends[1] + 0.2 * away[1])[:, mine])
        value = np.where(near[:, mine] >= SEARCH_DISTANCE, 5.0, 10.0 * (near[:, mine] - asked))
        assert parts[name] == pytest.approx(value, abs=2e-4), name
    flat = np.concatenate([part.ravel() for part in parts.values()])
    assert rows.values(x.ravel()) == pytest.approx(flat - 0.01, abs=1e-12)
    # Where a closer look finds less than the cushion, at a low in time, the next search looks, too.
    dense = rows.at(evenly(1.6, 100.0), evenly(1.6, 50.0))
    closer = rows.with_low_instants(dense, x.ravel())
    for name, part in dense.parts(x.ravel()).items():
        times, known = (dense.times, closer.times) if "clearance" not in name else (dense.pose_times, closer.pose_times)
        assert set(rows.times if "clearance" not in name else rows.pose_times) <= set(known)
        for c in np.flatnonzero(part.min(axis=0, initial=np.inf) < 0.01) if part.size else ():
            assert times[int(part[:, c].argmin())] in known


# -- motions -------------------------------------------------------------------------------------------------------


def test_without_anything_in_the_way_it_is_the_motion_of_least_jerk(model: RobotModel, theta: np.ndarray) -> None:
    limits = MotionLimits.of(model, torque=TORQUE)
    motion = fast_motion(model, theta, Scene("open"), LOW - SIDE, LOW + SIDE, limits=limits, starts=1)
    assert motion.jerk == pytest.approx(720.0 * 1.6**2 / 2.0**5, rel=1e-3)
    check_independently(model, theta, Scene("open"), motion, limits, LimitDistances())
    assert np.array_equal(motion.trajectory.knots[0, 0], LOW - SIDE)
    assert np.array_equal(motion.trajectory.knots[-1, 0], LOW + SIDE)


@pytest.mark.parametrize("height", [0.2, pytest.param(0.5, marks=pytest.mark.slow)])
def test_it_goes_around_an_obstacle(model: RobotModel, theta: np.ndarray, height: float) -> None:
    limits, keep = MotionLimits.of(model, torque=TORQUE), LimitDistances(clearance=0.03)
    straight, scene = straight_in(2.0), post(height)
    assert check_motion(model, theta, scene, straight, limits)["clearance"].value < 0.03, "it is in the way"
    motion = fast_motion(model, theta, scene, LOW - SIDE, LOW + SIDE, limits=limits, keep=keep, starts=1)
    assert motion.kept["clearance"].value >= 0.03 - 1e-6
    check_independently(model, theta, scene, motion, limits, keep)
    assert 720.0 * 1.6**2 / 2.0**5 < motion.jerk < 200.0


@pytest.mark.slow
def test_less_torque_costs_jerk_until_it_is_refused(model: RobotModel, theta: np.ndarray) -> None:
    """Rotor inertia of 8 kg m^2 makes torque what binds; what no motion can keep is named."""
    far, last = 1.15 * SIDE, 0.0
    for limit in (60.0, 32.0):
        limits = MotionLimits.of(model, torque=[limit, *TORQUE[1:]], velocity=2.0)
        motion = fast_motion(model, theta, Scene("open"), LOW - far, LOW + far, limits=limits, starts=1)
        check_independently(model, theta, Scene("open"), motion, limits, LimitDistances())
        assert motion.jerk > last + 1e-3
        last = motion.jerk
    slow = MotionLimits.of(model, torque=TORQUE, velocity=[0.9, *(3.0,) * 6])
    with pytest.raises(MotionRefusedError, match="velocity of joint_1") as refusal:
        fast_motion(model, theta, Scene("open"), LOW - far, LOW + far, limits=slow, starts=1)
    assert refusal.value.best is not None
    assert refusal.value.best.kept["velocity"].value < 0.05 * 0.9


@pytest.mark.slow
def test_near_its_goal_it_may_be_as_near_as_the_goal_is(model: RobotModel, theta: np.ndarray) -> None:
    """The payload comes to rest 8 mm above a table: it comes down on it, and is never nearer than at the end."""
    goal = LOW + SIDE
    bottom = -_payload_above(model, goal)
    table = SceneBox("table", np.array([0.6, -0.6, bottom - 0.108]), np.zeros(3), np.array([0.9, 0.9, 0.2]))
    scene = Scene("t", (table,))
    own = check_motion(model, theta, scene, QuinticTrajectory.hold(goal))["clearance"]
    assert own.value == pytest.approx(0.008, abs=1e-4)
    limits, keep = MotionLimits.of(model, torque=TORQUE), LimitDistances(clearance=0.04, opening=0.2)
    motion = fast_motion(model, theta, scene, LOW - SIDE, goal, limits=limits, keep=keep, starts=1)
    assert motion.kept["clearance"].value >= own.value - 1e-4
    pairs = PairDistances(model, scene)
    states = motion.trajectory.states(np.linspace(0.0, 2.0, 300))[:, 0]
    nearest = pairs.at(states, want_slopes=False)[0][:, ~pairs.is_self].min(axis=1)
    asked = np.minimum(keep.clearance, own.value + keep.opening * np.linalg.norm(states - goal, axis=1))
    assert np.all(nearest >= asked - 1e-3)


def _payload_above(model: RobotModel, q: np.ndarray) -> float:
    """Minus the height of the payload's lowest corner, m."""
    r, p = forward_kinematics(model.kinematics, q)
    body = next(body for body in model.bodies if body.kind == "payload")
    return -float((body.points @ r[body.joint].T + p[body.joint])[:, 2].min() - body.radius)


def test_bad_ends_are_named(model: RobotModel, theta: np.ndarray) -> None:
    low = np.array([0.0, 1.4, np.pi, -1.5, 0.0, 0.8, 1.5708])
    bent = LOW.copy()
    bent[3] = -2.57
    floor = Scene("f", (SceneBox("floor", np.array([0.5, 0.0, 0.0]), np.zeros(3), np.array([2.0, 2.0, 0.01])),))
    floor = dataclasses.replace(floor, allowed_pairs=frozenset({frozenset({"floor", "base_link"})}))
    with pytest.raises(MotionRefusedError, match=r"goal: floor - payload overlap") as refusal:
        fast_motion(model, theta, floor, LOW, low)
    assert refusal.value.best is None
    with pytest.raises(MotionRefusedError, match=r"start: joint_4 at -2.5700 rad .* too near"):
        fast_motion(model, theta, Scene("open"), bent, LOW)
    with pytest.raises(MotionRefusedError, match=r"goal: holding takes .* at joint_2"):
        fast_motion(model, theta, Scene("open"), LOW, LOW + SIDE, limits=MotionLimits.of(model, torque=20.0))
    with pytest.raises(PlanError, match="pieces"):
        fast_motion(model, theta, Scene("open"), LOW, LOW, pieces=(1.0, 0.0))
    with pytest.raises(PlanError, match="torque"):
        MotionLimits.of(model, torque=[90.0] * 6 + [np.nan])
    with pytest.raises(PlanError, match="clearance"):
        LimitDistances(clearance=1.0)


def test_the_same_seed_gives_the_same_motion() -> None:
    """Random poses half way are tried, so the seed matters; the same one gives the same knots, bit for bit."""
    rng = np.random.default_rng(3)
    model, _ = random_model(rng, 2)
    limits = MotionLimits(np.full(2, -3.0), np.full(2, 3.0), np.full(2, 3.0), np.full(2, np.inf), np.full(2, 200.0))
    start, goal = rng.uniform(-1.0, 1.0, (2, 2))
    given = (model, model.theta_nominal, Scene("nothing"), start, goal, (0.9, 0.9), limits)
    first, second = (fast_motion(*given, seed=4, starts=3) for _ in range(2))
    assert np.array_equal(first.trajectory.knots, second.trajectory.knots)
    assert first.seed == 4


@settings(max_examples=6)
@given(SEEDS)
def test_on_any_arm_it_keeps_everything_or_refuses(seed: int) -> None:
    """Small arms with random axes, friction and obstacles: what comes back is checked by other code."""
    rng = np.random.default_rng(seed)
    model, theta = arm_with_bodies(rng, 2)
    scene = Scene("random", random_obstacles(rng)[:2])
    start, goal = rng.uniform(-1.0, 1.0, (2, 2))
    still = pinocchio_torques(model, theta, np.array([[start, 0 * start, 0 * start], [goal, 0 * goal, 0 * goal]]))
    inertia = theta[24:26] + 1.0
    limits = MotionLimits(
        np.full(2, -2.0), np.full(2, 2.0), rng.uniform(1.0, 4.0, 2), np.full(2, np.inf),
        1.2 * still.max(axis=0) + inertia * rng.uniform(2.0, 12.0) + 5.0,
    )  # fmt: skip
    keep = LimitDistances(clearance=0.01, self_clearance=0.005)
    try:
        motion = fast_motion(model, theta, scene, start, goal, (0.6, 0.5), limits, keep, seed=seed % 99, starts=2)
    except MotionRefusedError as error:
        motion = error.best
        # Refused for a reason: at its ends, or what came nearest does not keep what is asked.
        if motion is not None:
            with pytest.raises(AssertionError):
                check_independently(model, theta, scene, motion, limits, keep)
        return
    check_independently(model, theta, scene, motion, limits, keep)


def test_what_a_motion_keeps_is_told_of_bad_ones_too(model: RobotModel, theta: np.ndarray) -> None:
    """Every family's margin goes negative where it should, and names the culprit."""
    limits = MotionLimits.of(model, acceleration=5.0)
    kept = check_motion(model, theta, post(0.5), straight_in(1.0), limits)
    peak = 1.6 * np.array([1.875, 5.7735])
    assert kept["velocity"].value == pytest.approx(1.7453 - peak[0], abs=1e-9)
    assert kept["acceleration"].value == pytest.approx(5.0 - peak[1], abs=1e-3)
    assert kept["torque"].value < -20.0
    assert kept["clearance"].value < 0.0
    assert "joint_1" in (kept["velocity"].culprit, kept["torque"].culprit)
    assert "post" in kept["clearance"].culprit
    bent = LOW.copy()
    bent[3] = -2.7
    out = check_motion(model, theta, Scene("open"), QuinticTrajectory.hold(bent))
    assert out["position"].value == pytest.approx(2.5795 - 2.7)
    assert out["position"].culprit == "joint_4"
    with pytest.raises(PlanError, match="2 joints"):
        check_motion(model, theta, Scene("open"), QuinticTrajectory.hold(np.zeros(2)))
