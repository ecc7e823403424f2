"""Attacks on the torque enclosure, its regressor, the tracking measure and the motion's ranges."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from arm_factory import random_arm
from hypothesis import given, settings
from hypothesis import strategies as st
from reachability_attack import attack_torque, sample_symbols, states_in, states_of
from reachability_support import random_box, random_tracking, random_trajectory

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import PlanError
from safe_sysid.reachability.cells import TrackingSet, cells_between, time_cells
from safe_sysid.reachability.torque import enclose_torque
from safe_sysid.robot import Kinematics, ParameterBox
from safe_sysid.studies.campaign.cases.arms import draw_motors
from safe_sysid.trajectories.quintic import QuinticTrajectory

SEEDS = st.integers(0, 2**32 - 1)
#: The floating-point regressor that attacks is itself rounded.
ROUNDING = 1e-9


def setting(n: int, rng: np.random.Generator, geared: bool = False) -> tuple:
    kin, _, theta = random_arm(n, rng)
    if geared:  # rotors on moving links; the rest as without them
        kin = kin._replace(motors=draw_motors(np.random.default_rng(n), n))
    damping, inertia = rng.uniform(20, 200, n), rng.uniform(1, 10, n)
    return kin, theta, damping, inertia, float(rng.choice([0.0, 0.01, 0.1]))


ARMS = [(n, False) for n in (1, 2, 3, 5, 7, 9)] + [(n, True) for n in (2, 4, 7)]
ARMS += [pytest.param(n, False, marks=pytest.mark.slow) for n in (4, 6, 8)]


@pytest.mark.parametrize(("n", "geared"), ARMS)
def test_nothing_is_found_outside(n: int, geared: bool) -> None:
    rng = np.random.default_rng(100 + n)
    kin, theta, damping, inertia, v_c = setting(n, rng, geared)
    box, trajectory, tracking = random_box(theta, rng), random_trajectory(n, rng), random_tracking(n, rng)
    tracking = replace(tracking, own_damping=20.0 if n % 2 else 0.0)
    cells = time_cells(trajectory, 64)
    enclosure = enclose_torque(kin, box, cells, tracking, damping, inertia, v_c)
    attacked = kin, box, trajectory, cells, tracking, damping, inertia, v_c, enclosure, rng
    result = attack_torque(*attacked, which=rng.integers(cells.count, size=3), population=2, steps=20)
    assert max(result.torque, result.measure, result.motion) <= ROUNDING
    # Tight, too: an enclosure that is infinitely wide would pass the attack.
    assert np.all(result.torque_tightness > 0.35)
    assert result.measure_tightness > 0.7


@pytest.mark.parametrize("n", [2, 5])
def test_regressor_at_the_position_ahead(n: int) -> None:
    """The controller's regressor is that of ``q + lead qd``; an enclosure that does not know it is broken."""
    rng = np.random.default_rng(200 + n)
    kin, theta, damping, inertia, v_c = setting(n, rng)
    box, trajectory, tracking = random_box(theta, rng), random_trajectory(n, rng), random_tracking(n, rng)
    cells = time_cells(trajectory, 64)
    excess = {}
    for told in (0.05, 0.0):
        found = enclose_torque(kin, box, cells, tracking, damping, inertia, v_c, lead=told)
        attacked = kin, box, trajectory, cells, tracking, damping, inertia, v_c, found, np.random.default_rng(1)
        which = np.arange(0, cells.count, 8)
        result = attack_torque(*attacked, which=which, population=2, steps=10, lead=0.05)
        excess[told] = max(result.torque, result.measure)
    assert excess[0.05] <= ROUNDING < excess[0.0]


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_regressor_holds_at_sampled_errors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    kin, theta, damping, inertia, v_c = setting(n, rng)
    trajectory, tracking = random_trajectory(n, rng), random_tracking(n, rng)
    cells = time_cells(trajectory, 16)
    found = enclose_torque(kin, random_box(theta, rng), cells, tracking, damping, inertia, v_c, want_regressor=True)
    for cell in rng.integers(cells.count, size=3):
        motion = states_in(cells.grid[cell : cell + 2], trajectory, tracking, 100, rng)
        w = dynamics_of(kin).slotine_li_regressor(*motion[:4], v_c)
        scale = ROUNDING * (1.0 + np.abs(w))
        assert np.all(found.regressor[cell, ..., 0] <= w + scale)
        assert np.all(w <= found.regressor[cell, ..., 1] + scale)


def steepest(
    kin: Kinematics, trajectory: QuinticTrajectory, borders: np.ndarray, tracking: TrackingSet, v_c: float, sign: float
) -> tuple[np.ndarray, np.ndarray]:
    """Symbols where each entry of W_s is largest (or smallest) to first order: (n, 14 n, 1 + 2 n), and W_s there.

    Gradients by differences of the regressor in floats; an entry's own worst point is found in one step, which sums
    over parameters would hide.
    """
    n = len(kin.axis)

    def regressor(x: np.ndarray) -> np.ndarray:
        motion = states_of(trajectory, np.tile(borders, (len(x), 1)), tracking, x)
        return dynamics_of(kin).slotine_li_regressor(*motion[:4], v_c)

    h = 1e-4
    steps = h * np.concatenate([np.eye(1 + 2 * n), -np.eye(1 + 2 * n)])
    up, down = np.split(regressor(steps), 2)
    slope = np.moveaxis(up - down, 0, -1)
    x = np.empty_like(slope)
    for part in (slice(0, 1), slice(1, n + 1), slice(n + 1, None)):
        length = np.linalg.norm(slope[..., part], axis=-1, keepdims=True)
        x[..., part] = sign * slope[..., part] / np.maximum(length, 1e-300) * (1.0 - 1e-12)
    found = regressor(x.reshape(-1, 1 + 2 * n)).reshape(n, 14 * n, n, 14 * n)
    return x, np.einsum("jpjp->jp", found)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_every_entry_is_held_at_its_own_worst_error(n: int, size: float) -> None:
    rng = np.random.default_rng(40 + n)
    for _ in range(3):
        kin, theta, damping, inertia, v_c = setting(n, rng)
        trajectory, tracking = random_trajectory(n, rng), random_tracking(n, rng)
        tracking = TrackingSet(size * tracking.e, size * tracking.r, tracking.k_r)
        start = float(rng.uniform(0.0, 0.9))
        borders = np.array([[start, start + 0.01 * size]])
        cells = cells_between(trajectory, borders)
        told = kin, random_box(theta, rng), cells, tracking, damping, inertia, v_c
        found = enclose_torque(*told, want_regressor=True).regressor[0]
        low, high = (steepest(kin, trajectory, borders[0], tracking, v_c, s)[1] for s in (-1.0, 1.0))
        over = np.maximum(found[..., 0] - low, high - found[..., 1])
        assert np.all(over <= ROUNDING * (1.0 + np.abs(high)))
        # Coulomb's sign is no smooth function.
        inertial = np.arange(14 * n) // n != 10
        width, hull = np.ptp(found, axis=-1)[:, inertial], (high - low)[:, inertial]
        # To first order every entry is exact: small errors leave nothing else. A range that is wrong but wide is found.
        second = 1e-6 * (1.0 + np.abs(high[:, inertial]))
        slack = width - hull - (second if size < 1.0 else 0.0)
        assert np.mean(slack <= (0.25 if size == 1.0 else 0.01) * hull) >= (0.5 if size == 1.0 else 1.0)


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_a_command_with_any_parameter_of_a_nested_box_is_held(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    kin, theta, damping, inertia, v_c = setting(n, rng)
    box, trajectory, tracking = (random_box(theta, rng, 0.5), random_trajectory(n, rng), random_tracking(n, rng))
    cells = time_cells(trajectory, 32)
    found = enclose_torque(kin, box, cells, tracking, damping, inertia, v_c)
    a, b = rng.uniform(box.lower, box.upper), rng.uniform(box.lower, box.upper)
    nested = ParameterBox(np.clip(np.minimum(a, b), box.lower, box.upper), np.clip(np.maximum(a, b), None, box.upper))
    assert nested.is_inside(box)
    for cell in rng.integers(cells.count, size=3):
        motion = states_in(cells.grid[cell : cell + 2], trajectory, tracking, 50, rng)
        # The robust law's own shape: middle of its box plus a saturated term, each parameter anywhere in between.
        law = nested.mid + nested.rad * np.clip(3.0 * rng.normal(size=(50, nested.size)), -1.0, 1.0)
        w = dynamics_of(kin).slotine_li_regressor(*motion[:4], v_c)
        torque = np.einsum("kjp,kp->kj", w, law) + damping * motion[4]
        assert np.all(found.torque[cell, :, 0] <= torque + ROUNDING)
        assert np.all(torque <= found.torque[cell, :, 1] + ROUNDING)


def test_a_wider_box_and_larger_errors_give_wider_enclosures() -> None:
    rng = np.random.default_rng(3)
    kin, theta, damping, inertia, v_c = setting(5, rng)
    box, trajectory, tracking = random_box(theta, rng), random_trajectory(5, rng), random_tracking(5, rng)
    cells = time_cells(trajectory, 32)
    small = enclose_torque(kin, box, cells, tracking, damping, inertia, v_c)
    wide_box = ParameterBox(2 * box.lower - box.mid, 2 * box.upper - box.mid)
    more = TrackingSet(1.5 * tracking.e, 1.5 * tracking.r, tracking.k_r)
    for wide in (
        enclose_torque(kin, wide_box, cells, tracking, damping, inertia, v_c),
        enclose_torque(kin, box, cells, more, damping, inertia, v_c),
    ):
        assert np.all(wide.torque[..., 0] <= small.torque[..., 0])
        assert np.all(small.torque[..., 1] <= wide.torque[..., 1])
        assert np.all(small.measure <= wide.measure)


def test_a_known_arm_at_rest_has_one_torque() -> None:
    rng = np.random.default_rng(4)
    kin, theta, damping, inertia, _v_c = setting(6, rng)
    tiny = TrackingSet(np.full(6, 1e-12), np.full(6, 1e-12), np.full(6, 5.0))
    q = rng.uniform(-3, 3, 6)
    cells = time_cells(QuinticTrajectory.hold(q), 1)
    found = enclose_torque(kin, ParameterBox(theta, theta), cells, tiny, damping, inertia, 0.1)
    zero = np.zeros(6)
    exact = dynamics_of(kin).slotine_li_regressor(q, zero, zero, zero, 0.1) @ theta
    np.testing.assert_allclose(found.torque.mean(axis=-1)[0], exact, rtol=1e-8, atol=1e-8)
    assert np.ptp(found.torque, axis=-1).max() < 1e-7
    assert found.measure[0] < 1e-8


def test_nan_and_overflow_certify_nothing() -> None:
    rng = np.random.default_rng(5)
    kin, theta, damping, inertia, v_c = setting(3, rng)
    box, cells, tracking = (random_box(theta, rng), time_cells(random_trajectory(3, rng), 4), random_tracking(3, rng))
    for broken in (np.nan, np.inf, 1e200):
        forms = cells.forms.copy()
        forms[1, 1, 1, 0] = broken
        found = enclose_torque(kin, box, type(cells)(cells.grid, forms), tracking, damping, inertia, v_c)
        certified = np.abs(found.torque[1]).max(axis=-1) <= 1e6
        assert not np.all(certified)
        assert not found.measure[1] <= 1e6
        assert np.all(np.isfinite(found.torque[0]))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_time_cells_hold_every_instant(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    trajectory = random_trajectory(n, rng, float(rng.uniform(0.1, 5.0)))
    cells = time_cells(trajectory, int(rng.integers(1, 40)))
    assert cells.grid[0] == 0.0
    assert cells.grid[-1] == trajectory.duration
    assert np.all(np.isin(trajectory.times, cells.grid))
    for cell in rng.integers(cells.count, size=5):
        lo, hi = cells.grid[cell : cell + 2]
        for t in (lo, hi, *rng.uniform(lo, hi, 5)):
            state = trajectory.state(t)
            s = (t - 0.5 * (lo + hi)) / (0.5 * (hi - lo))
            for order in range(3):
                c, g, rho = np.moveaxis(cells.forms[cell, order], -1, 0)
                assert np.all(np.abs(state[order] - (c + g * s)) <= rho + 1e-14)
            # The jerk jumps at knots: there state() is the next segment's.
            if t not in trajectory.times:
                jerk = cells.forms[cell, 3]
                assert np.all(np.abs(state[3] - jerk[:, 0]) <= np.abs(jerk[:, 1:]).sum(-1))
    # The rest afterwards belongs to the last cell.
    rest = trajectory.state(trajectory.duration + 1.0)
    last = cells.ranges(0)[-1]
    assert np.all(last[:, 0] <= rest[0])
    assert np.all(rest[0] <= last[:, 1])


def test_a_cell_one_rounding_wide_beside_a_knot_belongs_to_its_own_segment() -> None:
    for knot in np.linspace(0.3, 2.7, 50):
        changes = np.array([[[1.0], [0.0], [0.0]], [[0.0], [0.0], [0.0]]])
        trajectory = QuinticTrajectory([0.0, knot, 3.0], np.concatenate([np.zeros((1, 3, 1)), changes]))
        before, after = np.nextafter(knot, 0.0), np.nextafter(knot, 9.0)
        cells = cells_between(trajectory, np.array([[before, knot], [knot, after]]))
        assert np.all(np.abs(cells.ranges(0) - 1.0) < 1e-9)
        with pytest.raises(PlanError, match="between two knots"):
            cells_between(trajectory, np.array([[before, after]]))


def test_tracking_set_follows_from_the_filter() -> None:
    """Integrate de = r - K_r e with hard inputs from the ball of r and per-joint K_r, against the claimed ball of e."""
    rng = np.random.default_rng(6)
    n = 4
    k_r, r_bound = np.array([4.0, 4.0, 6.0, 9.0]), rng.uniform(0.02, 0.1, n)
    gains = SimpleNamespace(K_r=k_r, r_bound=r_bound, e_bound=r_bound / k_r, own_damping=0.0)
    tracking = TrackingSet.of(gains, n)
    count, dt, e = 40, 1e-3, np.zeros((40, n))
    # Switch between directions of the ball: first what the slow joints remember, then the fast ones.
    switch = rng.uniform(0.0, 0.6, (count, 1))
    u = np.abs(rng.normal(size=(2, count, n))) * np.where(rng.random((2, count, n)) < 0.4, 0.02, 1.0)
    u /= np.linalg.norm(u, axis=2, keepdims=True)
    for step in range(2000):
        r = np.where(step * dt < 2.0 - switch, *u)
        e = e + (r * r_bound / k_r - e) * -np.expm1(-k_r * dt)
    assert 0.85 < np.linalg.norm(e / tracking.e, axis=1).max() <= 1.0
    assert np.all(tracking.e >= r_bound / k_r)


def test_measured_errors_are_in_the_enlarged_set() -> None:
    rng = np.random.default_rng(7)
    n = 5
    tracking = random_tracking(n, rng)
    dq, dv = rng.uniform(0, 1e-3, n), rng.uniform(0, 5e-3, n)
    large = tracking.enlarged(dq, dv)
    for _ in range(200):
        x = sample_symbols(1, n, rng)[0]
        a, b = dq * rng.choice([-1, 1], n), dv * rng.choice([-1, 1], n)
        e_m = x[1 : n + 1] * tracking.e - a
        r_m = x[n + 1 :] * tracking.r - b - tracking.k_r * a
        assert np.linalg.norm(e_m / large.e) <= 1.0
        assert np.linalg.norm(r_m / large.r) <= 1.0
    same = tracking.enlarged(0.0, 0.0)
    np.testing.assert_allclose([same.e, same.r], [tracking.e, tracking.r], rtol=1e-14)
