"""The recursions under the laws: equal to the regressor, and intervals that hold every parameter."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from arm_factory import random_arm
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.control.laws.interval_newton_euler import interval_newton_euler
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.robot.model import Kinematics

pytestmark = pytest.mark.unproved

TRANSITION = 0.02


def torque(kin: Kinematics, theta: np.ndarray, *motion: np.ndarray) -> np.ndarray:
    out = np.empty(len(kin.axis))
    newton_euler(kin.packed, *motion, motion[2], TRANSITION, theta, out)
    return out


def bounds(
    kin: Kinematics, lower: np.ndarray, upper: np.ndarray, *motion: np.ndarray, offset: bool = True
) -> np.ndarray:
    out, box = np.empty((len(kin.axis), 2)), np.stack([lower, upper], axis=-1).copy()
    interval_newton_euler(kin.packed, *motion, motion[2], TRANSITION, offset, box, out)
    return out


def random_motion(n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """q, qd, qd_a, qdd_a; sometimes at rest, sometimes slow, sometimes fast, so that no term hides another."""
    scale = rng.choice([0.0, 1e-6, 0.01, 1.0, 5.0], 3)
    return [rng.uniform(-7, 7, n), *(s * rng.uniform(-1, 1, n) for s in scale)]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 9])
def test_recursion_is_the_regressor_times_parameters(n: int) -> None:
    """Which is Pinocchio's torque: test_regressors.py."""
    rng = np.random.default_rng(n)
    for _ in range(20):
        kin, _, theta = random_arm(n, rng)
        motion = random_motion(n, rng)
        w_s = dynamics_of(kin).slotine_li_regressor(*motion, TRANSITION)
        scale = np.abs(w_s) @ np.abs(theta)
        assert np.all(np.abs(torque(kin, theta, *motion) - w_s @ theta) <= 1e-12 * (1.0 + scale))


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_interval_holds_the_exact_range_of_unequal_uncertainties(seed: int, n: int) -> None:
    """The range of a linear function over a box is known: corners included, whatever axis is used for which joint."""
    rng = np.random.default_rng(seed)
    kin, _, theta = random_arm(n, rng)
    rad = np.abs(theta) * rng.choice([0.0, 1e-9, 0.05, 2.0], theta.size) + rng.choice([0.0, 0.3], theta.size)
    lower, upper = theta - rad, theta + rad
    motion = random_motion(n, rng)
    w_s = dynamics_of(kin).slotine_li_regressor(*motion, TRANSITION)
    found = bounds(kin, lower, upper, *motion)
    low = np.minimum(w_s * lower, w_s * upper).sum(axis=1)
    high = np.maximum(w_s * lower, w_s * upper).sum(axis=1)
    # What the oracle itself rounds; the bounds round outward.
    rounding = 1e-14 * (np.abs(w_s) @ (np.abs(theta) + rad))
    assert np.all(found[:, 0] <= low + rounding)
    assert np.all(found[:, 1] >= high - rounding)
    # Each joint's own corner, through an independent evaluation.
    for j in range(n):
        corner = np.where(w_s[j] > 0.0, upper, lower)
        assert found[j, 0] - rounding[j] <= torque(kin, corner, *motion)[j] <= found[j, 1] + rounding[j]


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_a_point_is_held_with_all_its_rounding_and_hardly_more(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    kin, _, theta = random_arm(n, rng)
    motion = random_motion(n, rng)
    found = bounds(kin, theta, theta, *motion)
    # Two algorithms that round differently: both are within rounding of the truth, which the bounds hold.
    w_s = dynamics_of(kin).slotine_li_regressor(*motion, TRANSITION)
    for value in (torque(kin, theta, *motion), w_s @ theta):
        assert np.all((found[:, 0] <= value) & (value <= found[:, 1]))
    assert np.all(found[:, 1] - found[:, 0] <= 1e-10 * (1.0 + np.abs(w_s) @ np.abs(theta)))


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_sums_and_products_are_rounded_outward(seed: int) -> None:
    """Massless links leave friction and rotor inertia, which rationals add up exactly: not one bit may be lost."""
    rng, n = np.random.default_rng(seed), 3
    kin, _, theta = random_arm(n, rng)
    theta[: 10 * n] = 0.0
    lower, upper = theta - rng.uniform(0, 1, theta.size), theta + rng.uniform(0, 1, theta.size)
    lower[: 10 * n] = upper[: 10 * n] = 0.0
    motion = [rng.uniform(-3, 3, n), *rng.normal(size=(3, n)) * 10.0 ** rng.uniform(-8, 3, (3, 1))]
    found = bounds(kin, lower, upper, *motion)
    for j in range(n):
        v = float(motion[2][j])
        sign = max(Fraction(-1), min(Fraction(1), Fraction(v) / Fraction(TRANSITION)))
        factors = (sign, Fraction(v), Fraction(float(motion[3][j])), Fraction(1))
        of_joint = slice(10 * n + j, None, n)
        ends = [
            [factor * Fraction(float(end)) for end in ends_of]
            for factor, *ends_of in zip(factors, lower[of_joint], upper[of_joint], strict=True)
        ]
        low, high = sum(min(end) for end in ends), sum(max(end) for end in ends)
        assert Fraction(float(found[j, 0])) <= low
        assert high <= Fraction(float(found[j, 1]))
        assert found[j, 1] - found[j, 0] <= float(high - low) + 1e-13 * (1.0 + max(abs(found[j])))


def test_smaller_boxes_give_smaller_intervals() -> None:
    rng = np.random.default_rng(8)
    for _ in range(20):
        kin, _, theta = random_arm(5, rng)
        motion = random_motion(5, rng)
        below, above = np.abs(theta) * rng.uniform(0, 0.5, (2, theta.size))
        share = rng.uniform(0, 1, (2, theta.size))
        wide = bounds(kin, theta - below, theta + above, *motion)
        narrow = bounds(kin, theta - share[0] * below, theta + share[1] * above, *motion)
        assert np.all((wide[:, 0] <= narrow[:, 0]) & (narrow[:, 1] <= wide[:, 1]))


def test_without_gravity_velocity_and_offset_it_is_the_inertia() -> None:
    rng = np.random.default_rng(9)
    kin, _, theta = random_arm(6, rng)
    weightless = kin._replace(gravity=np.zeros(3))
    q, r, still = rng.uniform(-3, 3, 6), rng.uniform(-1, 1, 6), np.zeros(6)
    found = bounds(weightless, theta, theta, q, still, still, r, offset=False)
    inertia = np.stack([dynamics_of(kin).momentum_regressor(q, unit) @ theta for unit in np.eye(6)], axis=-1)
    np.testing.assert_allclose(found.mean(axis=1), inertia @ r, rtol=1e-9)
