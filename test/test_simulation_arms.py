"""Drawn arms: inside the declared uncertainty, physically possible, and really out at the corners."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulation_support import random_arm

from safe_sysid.errors import ParameterError
from safe_sysid.robot import load_robot
from safe_sysid.robot.parameters import is_consistent, pseudo_inertia_to_theta
from safe_sysid.simulation.arms import draw_link, draw_truth, hand_box, is_simulable
from safe_sysid.simulation.payloads import DUMBBELLS, NO_PAYLOAD, payload_from_spec, theta_e_with_payload


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 9), mode=st.sampled_from(["uniform", "corner", "nominal"]))
def test_a_drawn_arm_is_possible_and_inside_its_prior(seed: int, n: int, mode: str) -> None:
    model = random_arm(seed, n)
    theta = draw_truth(model, NO_PAYLOAD, seed, mode)
    assert model.arm_prior.contains(theta)
    for j in range(n):
        assert is_consistent(theta[10 * j : 10 * j + 10])
    assert np.all(theta[10 * n : 13 * n] >= 0.0)
    lower, upper = hand_box(model)
    hand = theta[10 * n - 10 : 10 * n]
    assert np.all((lower <= hand) & (hand <= upper))
    np.testing.assert_array_equal(theta, draw_truth(model, NO_PAYLOAD, seed, mode))


def test_draws_differ_by_seed_and_nominal_is_nominal() -> None:
    model = random_arm(1, 3)
    assert np.any(draw_truth(model, NO_PAYLOAD, 1) != draw_truth(model, NO_PAYLOAD, 2))
    np.testing.assert_array_equal(draw_truth(model, NO_PAYLOAD, 1, "nominal"), model.theta_nominal)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), width=st.sampled_from([0.02, 0.2, 0.8]))
@example(seed=19045, width=0.8)
@example(seed=601139, width=0.8)
def test_a_corner_draw_cannot_be_pushed_farther(seed: int, width: float) -> None:
    """Each parameter is at a bound of the box, or a small step towards that bound is no solid body."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 4)) * 0.2
    nominal = pseudo_inertia_to_theta(root @ root.T + 1e-3 * np.eye(4))
    radius = width * np.abs(nominal) * rng.uniform(0.3, 1.0, 10)
    lower, upper = nominal - radius, nominal + radius
    theta = draw_link(rng, lower, upper, nominal, "corner")
    assert is_simulable(theta)
    assert np.all((theta >= lower) & (theta <= upper))
    for i in np.flatnonzero((theta != lower) & (theta != upper)):
        stuck = []
        for step in (-0.05, 0.05):
            pushed = theta.copy()
            pushed[i] += step * radius[i]
            stuck.append(not is_simulable(pushed))
        assert any(stuck), f"parameter {i} is free to move both ways"


def test_uniform_draws_fill_the_box_of_a_round_body() -> None:
    rng = np.random.default_rng(0)
    nominal = pseudo_inertia_to_theta(np.diag([0.1, 0.1, 0.1, 3.0]))
    radius = 0.05 * np.abs(nominal) + 1e-4
    draws = np.array([draw_link(rng, nominal - radius, nominal + radius, nominal, "uniform") for _ in range(400)])
    scaled = (draws - nominal) / radius
    assert np.all(scaled.min(axis=0) < -0.95)
    assert np.all(scaled.max(axis=0) > 0.95)
    assert np.all(np.abs(scaled.mean(axis=0)) < 0.15)


def test_a_box_with_hardly_any_possible_body_still_gives_one() -> None:
    """Rejection fails here: a rod on the edge of consistency in a wide box."""
    rng = np.random.default_rng(1)
    nominal = pseudo_inertia_to_theta(np.diag([1e-5, 1.1e-5, 1.0, 2.0]))
    assert is_simulable(nominal)
    radius = np.full(10, 5.0)
    radius[0] = 0.5
    for _ in range(5):
        theta = draw_link(rng, nominal - radius, nominal + radius, nominal, "uniform")
        assert is_simulable(theta)


@pytest.mark.parametrize("mode", ["uniform", "corner"])
@pytest.mark.parametrize("name", [*DUMBBELLS, "none"])
def test_every_gen3_with_every_dumbbell_lies_in_the_prior(name: str, mode: str) -> None:
    model = load_robot("kinova_gen3")
    payload = payload_from_spec(name)
    # The arm is the same, whatever it holds.
    for seed in range(8 if mode == "uniform" or name in ("8lb", "none") else 2):
        theta = draw_truth(model, payload, seed, mode)
        assert model.arm_prior.contains(theta)
        assert all(is_simulable(theta[10 * j : 10 * j + 10]) for j in range(7))


def test_the_hand_varies_under_the_payload() -> None:
    model = load_robot("kinova_gen3")
    payload = payload_from_spec("8lb")
    draws = np.array([draw_truth(model, payload, seed, "corner")[60:70] for seed in range(12)])
    nominal = theta_e_with_payload(model, model.theta_nominal[60:70], payload)
    lower, upper = hand_box(model)
    assert nominal[3] < 0.0  # the flange points along -z of joint 7
    assert np.ptp(draws[:, 0]) > 0.9 * (upper[0] - lower[0])  # mass: 5 % of the hand, not of hand and payload
    assert np.all(np.abs(draws - nominal) <= 0.5 * (upper - lower) + 1e-12)


def test_errors_name_what_is_wrong() -> None:
    model = random_arm(2, 2)
    with pytest.raises(ParameterError, match=r"draw mode = 'edge': expected one of nominal, uniform, corner"):
        draw_truth(model, NO_PAYLOAD, 0, "edge")
    gen3 = load_robot("kinova_gen3")
    with pytest.raises(ParameterError, match=r"payload numbers: m = .* outside the prior \[1.2, 5.2\]"):
        draw_truth(gen3, payload_from_spec("6,0,0,0.01,0.01,0,0.01,0,0,0.01"), 0)


def test_a_nominal_link_that_is_no_body_is_named() -> None:
    model = random_arm(3, 3)
    theta = model.theta_nominal.copy()
    theta[14] = 1e3  # Ixx of link 1
    object.__setattr__(model, "theta_nominal", theta)
    with pytest.raises(ParameterError, match=r"link moved by j1: nominal parameters .*expected those of a solid body"):
        draw_truth(model, NO_PAYLOAD, 0)
