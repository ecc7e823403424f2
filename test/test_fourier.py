"""Fourier series: rest at the ends, proved ranges, quintics through them; and the exciting series made of them."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pinocchio as pin
import pytest
from certificate_support import random_model
from geometry_support import one_sided_slopes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import chebyshev
from rigid_arm import pinocchio_model

from safe_sysid.control.gains.design import design_gains
from safe_sysid.errors import PlanError
from safe_sysid.planning.certification.certificate import verify_plan
from safe_sysid.planning.costs.condition import payload_scale
from safe_sysid.planning.excitation.fourier_excitation import certified_fourier, classical_fourier
from safe_sysid.planning.motions.certified_rows import CertifiedRows
from safe_sysid.planning.motions.fast_motion import check_motion
from safe_sysid.planning.motions.knot_family import MotionSampler
from safe_sysid.planning.motions.motion_limits import MotionLimits
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene, SceneBox, load_scene
from safe_sysid.trajectories.fourier import FourierFamily, FourierTrajectory
from safe_sysid.trajectories.plan import Plan

SEEDS = st.integers(0, 2**32 - 1)
#: What the user guide of the Gen3 says, rad/s^2.
ACCELERATION = np.deg2rad([297.94] * 4 + [572.95] * 3)


def draw(seed: int) -> FourierTrajectory:
    """A random series; sizes of joints a million apart, some harmonics missing, one joint that rests."""
    rng = np.random.default_rng(seed)
    family = FourierFamily(rng.normal(size=3), float(rng.uniform(0.1, 30.0)), int(rng.integers(2, 12)))
    x = rng.normal(size=(3, family.free)) * np.array([[1.0], [1e-6], [rng.choice([0.0, 1e3])]])
    return family.trajectory(x * (rng.random(x.shape) < 0.7))


def test_a_series_is_what_the_formula_says() -> None:
    """One harmonic of each kind, written out; the second is there to leave the ends at rest."""
    w = 2.0 * np.pi / 4.0
    series = FourierTrajectory(np.array([0.3]), 4.0, np.array([[0.5, -0.5]]), np.array([[0.4, -0.2]]))
    t = np.linspace(0.1, 3.9, 7)
    q = (
        0.3
        + 0.5 * (np.sin(w * t) / w - np.sin(2 * w * t) / (2 * w))
        + 0.4 * (1.0 - np.cos(w * t)) / w
        - 0.2 * (1.0 - np.cos(2 * w * t)) / (2 * w)
    )
    assert series.states(t)[:, 0, 0] == pytest.approx(q, abs=1e-13)


@settings(max_examples=25)
@given(SEEDS)
def test_states_are_each_others_derivatives(seed: int) -> None:
    series = draw(seed)
    # Chebyshev interpolation over a piece of the period differentiates to many digits.
    middle, half = 0.5 * series.period, 0.2 * series.period
    nodes = np.cos(np.pi * (np.arange(40) + 0.5) / 40)
    states = series.states(middle + half * nodes)
    states[:, 0] -= series.start
    for order in range(3):
        fitted = chebyshev.chebfit(nodes, states[:, order], 39)
        slope = chebyshev.chebval(nodes, chebyshev.chebder(fitted)).T / half
        scale = series.magnitude(order + 1) + 1e-9 * series.magnitude(order) / half
        assert np.all(np.abs(slope - states[:, order + 1]) <= 1e-6 * scale)


@settings(max_examples=25)
@given(SEEDS)
def test_it_rests_at_both_ends_and_outside(seed: int) -> None:
    series = draw(seed)
    size = np.stack([series.magnitude(order) for order in range(3)])
    inside = series.states([1e-12 * series.period, (1.0 - 1e-12) * series.period])[:, :3]
    rest = np.stack([series.start, np.zeros(3), np.zeros(3)])
    assert np.all(np.abs(inside - rest) <= 1e-9 * (size + np.abs(rest)) + 1e-9 * size[1:].max())
    outside = series.states([-1.0, 0.0, series.period, series.period + 1.0])
    assert np.all(outside[:, 0] == series.start)
    assert np.all(outside[:, 1:] == 0.0)


@settings(max_examples=8)
@given(SEEDS)
def test_ranges_hold_every_instant_and_are_tight(seed: int) -> None:
    series = draw(seed)
    t = np.linspace(0.0, series.period, 2001)[1:-1]
    states = series.states(t)
    for order in range(4):
        ranges, size = series.ranges(order), series.magnitude(order)
        # Where a sample is highest, look closer: the attack must find what is between samples.
        for j in range(series.n):
            for pick, side, sign in ((np.argmin, 0, -1.0), (np.argmax, 1, 1.0)):
                best = t[np.argsort(sign * states[:, order, j])[-40:]]  # of peaks that are nearly as high, too
                step = t[0]
                for _ in range(2):
                    near = (best[:, None] + np.linspace(-1, 1, 41) * step).ravel()
                    near = np.clip(near, 1e-6 * t[0], series.period - 1e-6 * t[0])  # at the ends it rests
                    values = series.states(near)[:, order, j]
                    best, step = near[[int(pick(values))]], step / 20.0
                found = values[int(pick(values))]
                assert sign * (ranges[j, side] - found) >= 0.0
                assert sign * (ranges[j, side] - found) <= 1e-5 * size[j] + 1e-15


def test_a_range_with_its_peak_between_all_first_cells_is_found() -> None:
    """The highest harmonic alone decides, and its peaks are narrower than a first cell."""
    harmonics = 50
    cosine = np.zeros((1, harmonics))
    cosine[0, -1], cosine[0, 0] = 1.0, -float(harmonics)
    series = FourierTrajectory(np.zeros(1), 1.0, np.zeros((1, harmonics)), cosine)
    found = series.states(np.linspace(0.0, 1.0, 20_001))[:, 2, 0].max()
    assert series.ranges(2)[0, 1] >= found
    assert series.ranges(2)[0, 1] == pytest.approx(found, rel=1e-4)


@settings(max_examples=15)
@given(SEEDS, st.integers(0, 60))
def test_quintics_stay_as_near_as_they_say(seed: int, pieces: int) -> None:
    series = draw(seed)
    trajectory, error = series.quintic(pieces), series.quintic_error(pieces)
    t = np.linspace(0.0, series.period, 997)
    found = np.abs(trajectory.states(t)[:, 0] - series.states(t)[:, 0]).max(axis=0)
    assert np.all(found <= error + 1e-12 * (series.magnitude(0) + np.abs(series.start)))
    assert np.array_equal(trajectory.knots[:, 0], series.states(trajectory.times)[:, 0])
    if pieces == 0:
        assert np.all(error <= 1e-6 * series.magnitude(0))


@settings(max_examples=10)
@given(SEEDS)
def test_the_family_is_linear_and_holds_every_series_at_rest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    family = FourierFamily(rng.normal(size=2), 3.0, int(rng.integers(2, 8)))
    x, t = rng.normal(size=(2, family.free)), rng.uniform(0.01, 2.99, 20)
    states = family.trajectory(x).states(t)
    states[:, 0] -= family.start
    assert np.einsum("ota,ja->toj", family.basis(t), x) == pytest.approx(states, abs=1e-9)
    # Any coefficients at rest are in it: two linear conditions on 2 L of them.
    rest = np.zeros((2, 2 * family.harmonics))
    rest[0, : family.harmonics], rest[1, family.harmonics :] = 1.0, np.arange(1, family.harmonics + 1)
    span = np.zeros((2 * family.harmonics, family.free))
    span[: family.harmonics, : family.free // 2] = family.sine
    span[family.harmonics :, family.free // 2 :] = family.cosine
    assert np.linalg.matrix_rank(span) == family.free
    assert np.abs(rest @ span).max() < 1e-12


# -- excitation ----------------------------------------------------------------------------------------------------


def pinocchio_condition(
    model: RobotModel, series: FourierTrajectory, samples: int, scale: float | np.ndarray = 1.0
) -> float:
    """Condition number of theta_e's columns, each times its scale, by Pinocchio's own regressor."""
    chain = pinocchio_model(model, model.theta_nominal)
    data = chain.createData()
    states = series.states((np.arange(samples) + 0.5) * series.period / samples)
    rows = [pin.computeJointTorqueRegressor(chain, data, *state[:3])[:, -10:] for state in states]
    return float(np.linalg.cond(np.concatenate(rows) * scale))


@pytest.fixture(scope="module")
def classical():  # type: ignore[no-untyped-def]
    model = load_robot("kinova_gen3")
    limits = MotionLimits.of(model, torque=[90.0] * 4 + [45.0] * 3, acceleration=ACCELERATION)
    start = np.array(model.settings.home)
    return model, limits, start, classical_fourier(model, start, limits, starts=1, iterations=80)


def test_the_classical_series_keeps_what_it_promises(classical) -> None:  # type: ignore[no-untyped-def]
    _, limits, start, found = classical
    t = np.linspace(0.0, 10.0, 20_001)
    for motion in (found.series, found.trajectory):
        states = motion.states(t)
        assert np.all(states[:, 0] >= limits.position_lower - 1e-12)
        assert np.all(states[:, 0] <= limits.position_upper + 1e-12)
        assert np.all(np.abs(states[:, 1]) <= limits.velocity + 1e-12)
        assert np.all(np.abs(states[:, 2]) <= limits.acceleration + 1e-12)
        assert np.all(states[0, 0] == start)
        assert np.abs(states[:, 1] / limits.velocity).max() > 0.9, "it uses what it is given"


def test_the_classical_series_excites_better_than_random_ones(classical) -> None:  # type: ignore[no-untyped-def]
    model, limits, start, found = classical
    assert found.condition == pytest.approx(pinocchio_condition(model, found.series, 128), rel=1e-6)
    rng = np.random.default_rng(0)
    family, others = FourierFamily(start, 10.0, 5), []
    for _ in range(10):
        x = rng.normal(size=(7, family.free))
        speed = np.abs(family.trajectory(x).ranges(1)).max(axis=1)
        series = family.trajectory(x * (limits.velocity / speed)[:, None])
        others.append(pinocchio_condition(model, series, 64))
    assert found.condition < min(others)


def test_the_classical_series_breaks_torque_limits(classical) -> None:  # type: ignore[no-untyped-def]
    """As the paper says of it (section VI-E), even with the lightest dumbbell: here with nothing in the hand."""
    model, limits, _, found = classical
    kept = check_motion(model, model.theta_nominal, load_scene("open"), found.trajectory, limits)
    assert kept["torque"].value < 0.0
    assert kept["acceleration"].value >= 0.0


def test_tighter_limits_are_kept_and_cost_condition(classical) -> None:  # type: ignore[no-untyped-def]
    model, limits, start, found = classical
    tight = dataclasses.replace(limits, velocity=0.2 * limits.velocity, acceleration=0.1 * limits.acceleration)
    slow = classical_fourier(model, start, tight, starts=1, iterations=20)
    states = slow.trajectory.states(np.linspace(0.0, 10.0, 5001))
    assert np.all(np.abs(states[:, 1]) <= tight.velocity)
    assert np.all(np.abs(states[:, 2]) <= tight.acceleration)
    assert slow.condition > found.condition
    with pytest.raises(PlanError, match="start"):
        classical_fourier(model, np.full(7, 3.0), limits)


@settings(max_examples=2)
@given(SEEDS)
def test_rows_have_the_slopes_that_they_say(seed: int) -> None:
    """Of everything that a certificate asks for, on a random arm with bodies."""
    rng = np.random.default_rng(seed)
    model, _ = random_model(rng, 3)
    kinova = load_robot("kinova_gen3")
    gains = design_gains(kinova, lockstep=True)
    small = dataclasses.replace(
        gains.assumptions,
        velocity=np.full(3, 2.0), acceleration=np.full(3, 9.0), jerk=np.full(3, 90.0), inertia_upper=np.full(3, 40.0),
    )  # fmt: skip
    cut = {name: getattr(gains, name)[:3] for name in ("K_r", "K_d", "inertia_lower", "r_bound", "e_bound", "de_bound")}
    fake = SimpleNamespace(**cut, assumptions=small, own_damping=gains.own_damping)  # what rows read of gains
    scene = Scene("s", (SceneBox("post", rng.normal(size=3), np.zeros(3), np.full(3, 0.3)),))
    family = FourierFamily(rng.normal(size=3), 4.0, 3)
    times = np.linspace(0.2, 3.8, 5)
    base = np.zeros((4, 5, 3))
    base[0] = family.start
    rows = CertifiedRows.build(model, model.arm_prior, scene, fake, MotionSampler(times, base, family.basis(times)))  # type: ignore[arg-type]
    x, step = 0.2 * rng.normal(size=3 * family.free), 1e-6
    values, jacobian = rows.values_and_jacobian(x)
    assert values == pytest.approx(rows.values(x), abs=1e-12)
    low, high = one_sided_slopes(rows.values, x, step)
    # At a kink one side's slope is as good as the other's; what does not matter any more has none.
    matters = values < 3.9
    scale = 1e-3 * (1.0 + np.abs(jacobian))
    assert np.all((jacobian >= low - scale) & (jacobian <= high + scale) | ~matters[:, None])


@pytest.mark.slow
def test_the_certified_series_is_certified() -> None:
    model, scene = load_robot("kinova_gen3"), load_scene("open")
    gains, box = design_gains(model, lockstep=True), model.arm_prior
    start = scene.start_for(model)
    found = certified_fourier(
        model, box, scene, gains, start, period=5.0, harmonics=3, starts=1, iterations=8, rounds=2
    )
    assert found.certificate is not None
    plan = Plan(found.trajectory, 0.0, 5.0, box.identity, 0, np.zeros(7))
    again = verify_plan(plan, model, box, scene, gains, intervals=150)
    assert again.ok, again.summary()
    assert np.array_equal(found.trajectory.knots[0, 0], start)
    assert found.scaled == pytest.approx(pinocchio_condition(model, found.series, 128, payload_scale(box)), rel=1e-6)
    assert found.scaled < 1e4, "it moves"


def test_a_start_that_may_not_be_held_is_refused() -> None:
    model = load_robot("kinova_gen3")
    gains = design_gains(model, lockstep=True)
    scene = Scene("wall", (SceneBox("wall", np.array([0.3, 0.0, 0.6]), np.zeros(3), np.full(3, 0.5)),))
    with pytest.raises(PlanError, match="wall"):
        certified_fourier(model, model.arm_prior, scene, gains, np.array(model.settings.home))
