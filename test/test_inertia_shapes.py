"""Shapes of inertial parameters: enclosures hold the truth, the ellipsoid has the inertia that was given."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.errors import ParameterError
from safe_sysid.identification.inertia_shapes import centre_of_mass_box, inertia_ellipsoid, payload_shapes
from safe_sysid.robot.parameters import from_log_cholesky, inertia_from_com, is_consistent, transform_inertial

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
MASSES = st.floats(1e-9, 1e6)
ETA = st.lists(st.floats(-2.0, 2.0), min_size=10, max_size=10).map(np.array)


def box(mass, moments):
    low, high = np.zeros(10), np.zeros(10)
    low[0], high[0] = sorted(mass)
    for i, pair in enumerate(moments):
        low[1 + i], high[1 + i] = sorted(pair)
    return low, high


@given(
    st.lists(MASSES, min_size=2, max_size=2),
    st.lists(st.lists(NUMBERS, min_size=2, max_size=2), min_size=3, max_size=3),
)
def test_every_quotient_of_the_corners_lies_in_the_box_exactly(mass, moments):
    low, high = box(mass, moments)
    lower, upper = centre_of_mass_box(low, high)
    for i in range(3):
        corners = [
            Fraction(float(h)) / Fraction(float(m)) for h in (low[1 + i], high[1 + i]) for m in (low[0], high[0])
        ]
        # The quotient is monotone in each of its two arguments: its extrema are at corners.
        assert Fraction(float(lower[i])) <= min(corners)
        assert max(corners) <= Fraction(float(upper[i]))
        slack = 4.0 * 2.0**-52 * max(abs(float(c)) for c in corners) + 4e-300
        assert lower[i] >= float(min(corners)) - slack  # and not wider than rounding asks for
        assert upper[i] <= float(max(corners)) + slack


@given(NUMBERS, NUMBERS, st.floats(1e-3, 1e3), st.floats(-1e3, 0.0), st.floats(1e-12, 1.0))
def test_where_the_mass_may_vanish_an_end_is_infinite_and_the_other_still_holds(a, b, heavy, light, share):
    low, high = box([light, heavy], [[a, b], [0.0, 0.0], [0.0, 0.0]])
    lower, upper = centre_of_mass_box(low, high)
    mass = heavy * share
    for h in (low[1], high[1]):
        assert Fraction(float(lower[0])) <= Fraction(float(h)) / Fraction(mass) if np.isfinite(lower[0]) else True
        assert Fraction(float(h)) / Fraction(mass) <= Fraction(float(upper[0])) if np.isfinite(upper[0]) else True
    assert np.isinf(upper[0]) == (high[1] > 0.0)
    assert np.isinf(lower[0]) == (low[1] < 0.0)
    assert np.all(np.abs([lower[1:], upper[1:]]) < 1e-290)  # 0 over anything


@given(ETA)
def test_the_ellipsoid_has_the_mass_centre_and_inertia_that_were_given(eta):
    theta = from_log_cholesky(eta)
    centre, rotation, axes = inertia_ellipsoid(theta)
    squares = np.square(axes)
    moments = 0.2 * theta[0] * (squares.sum() - squares)  # of a homogeneous ellipsoid, textbook
    again = inertia_from_com(theta[0], centre, rotation @ np.diag(moments) @ rotation.T)
    np.testing.assert_allclose(again, theta, atol=1e-9 * np.abs(theta).max())
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) > 0.0
    assert np.all(np.diff(axes) >= 0.0)


def test_the_ellipsoid_of_points_inside_one_is_that_one():
    """Against sampling: points drawn evenly inside a known ellipsoid, each with its share of the mass."""
    rng = np.random.default_rng(1)
    axes, centre, mass = np.array([0.02, 0.05, 0.11]), np.array([0.1, -0.2, 0.3]), 4.0
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
    points = rng.normal(size=(200_000, 3))
    points *= (rng.random(len(points)) ** (1 / 3) / np.linalg.norm(points, axis=1))[:, None]
    points = centre + (points * axes) @ turn.T
    share = mass / len(points)
    i = share * (np.sum(points**2) * np.eye(3) - points.T @ points)
    theta = np.array([mass, *(share * points.sum(axis=0)), i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]])
    found_centre, found_turn, found_axes = inertia_ellipsoid(theta)
    np.testing.assert_allclose(found_centre, centre, atol=1e-3)
    np.testing.assert_allclose(found_axes, axes, rtol=1e-2)
    np.testing.assert_allclose(np.abs(np.sum(found_turn * turn, axis=0)), 1.0, atol=1e-3)


def test_flat_and_point_bodies_have_axes_that_are_zero_and_impossible_ones_are_refused():
    point = inertia_from_com(2.0, [0.3, 0.1, 0.2], np.zeros((3, 3)))
    np.testing.assert_allclose(inertia_ellipsoid(point)[2], 0.0, atol=1e-4)
    rod = inertia_from_com(1.0, [0.0, 0.0, 0.5], np.diag([0.1, 0.1, 0.0]))
    np.testing.assert_allclose(inertia_ellipsoid(rod)[2], [0.0, 0.0, np.sqrt(0.5)], atol=1e-6)
    with pytest.raises(ParameterError, match="triangle inequality"):
        inertia_ellipsoid(inertia_from_com(1.0, np.zeros(3), np.diag([0.1, 0.1, 0.3])))
    with pytest.raises(ParameterError, match="expected a positive mass"):
        inertia_ellipsoid(np.zeros(10))
    with pytest.raises(ParameterError, match="finite"):
        inertia_ellipsoid(np.full(10, np.inf))


@given(st.integers(0, 10_000), st.floats(0.05, 3.0))
@settings(max_examples=60)
def test_the_payload_s_centre_and_mass_lie_in_what_is_drawn(model, seed, mass):
    """A payload anywhere in the envelope, any hand of the prior, any box around the truth."""
    rng, envelope = np.random.default_rng(seed), model.settings.payload.envelope
    points = np.array(envelope.center) + np.array(envelope.size) * rng.uniform(-0.5, 0.5, (6, 3))
    payload = sum(inertia_from_com(mass / 6.0, point, np.zeros((3, 3))) for point in points)
    assert is_consistent(payload, 1e-12)
    theta = np.where(rng.random(10) < 0.5, *model.hand_prior) + transform_inertial(*model.flange, payload)
    radius = rng.uniform(0.0, 0.2, (2, 10)) * rng.integers(0, 2)
    shapes = payload_shapes(model, theta - radius[0], theta, theta + radius[1])
    centre = payload[1:4] / payload[0]
    assert not shapes.outside_envelope
    assert shapes.bounded
    assert np.all((shapes.centre_lower <= centre) & (centre <= shapes.centre_upper))
    assert shapes.mass[0] <= mass <= shapes.mass[1]


def test_a_payload_outside_its_envelope_is_told_and_still_held(model):
    payload = inertia_from_com(2.0, [0.4, 0.0, 0.14], 1e-3 * np.eye(3))
    theta = 0.5 * sum(model.hand_prior) + transform_inertial(*model.flange, payload)
    shapes = payload_shapes(model, theta - 1e-3, theta, theta + 1e-3)
    assert shapes.outside_envelope
    assert np.all((shapes.centre_lower <= [0.4, 0.0, 0.14]) & (shapes.centre_upper >= [0.4, 0.0, 0.14]))


def test_the_prior_is_bounded_by_the_envelope_and_an_inertia_too_large_for_it_is_not_drawn(model):
    low, high = model.arm_prior.payload_lower, model.arm_prior.payload_upper
    shapes = payload_shapes(model, low, 0.5 * (low + high), high)
    assert shapes.bounded
    np.testing.assert_allclose(shapes.centre_upper - shapes.centre_lower, model.settings.payload.envelope.size)
    hand = model.theta_nominal[60:70]
    huge = hand + transform_inertial(*model.flange, inertia_from_com(1.0, [0.0, 0.0, 0.14], 0.1 * np.eye(3)))
    assert payload_shapes(model, huge, huge, huge).ellipsoid is None
    none = payload_shapes(model, hand, hand, hand)
    assert none.ellipsoid is None or np.all(np.isfinite(none.ellipsoid[2]))
