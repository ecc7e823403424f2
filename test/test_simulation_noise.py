"""Measurement and actuator errors keep their declared bounds to the last digit, and the adversary sits on them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation_support import holds, random_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot import load_robot
from safe_sysid.simulation.actuator import ACTUATOR_MODES, Actuator
from safe_sysid.simulation.noise import PATTERNS, NoiseModel, perturb

VALUE = st.one_of(st.floats(-1e3, 1e3), st.floats(-1e-6, 1e-6), st.just(0.0), st.floats(1e14, 1e16))
ABSOLUTE = st.one_of(st.just(0.0), st.floats(1e-12, 10.0))
RELATIVE = st.one_of(st.just(0.0), st.floats(1e-9, 0.99))
UNIT = st.one_of(st.sampled_from([-1.0, 1.0]), st.floats(-1.0, 1.0))


@settings(max_examples=200)
@given(value=VALUE, absolute=ABSOLUTE, relative=RELATIVE, unit=UNIT)
def test_the_inequality_holds_exactly_for_rounded_numbers(
    value: float, absolute: float, relative: float, unit: float
) -> None:
    v, a, b, s = (np.array([x]) for x in (value, absolute, relative, unit))
    out = np.empty(1)
    perturb(v, a, b, s, out)
    assert holds(out, v, a, b)
    bound = absolute + relative * abs(value)
    if abs(unit) == 1.0 and bound > 1e-6 * abs(value):  # on the bound, not merely inside it
        assert abs(out[0] - value) >= bound * (1.0 - 1e-9)


def states(n: int, count: int = 400) -> list[tuple[float, np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(n)
    p, _, r = rng.uniform(0.0, 6.0, (3, n))
    times = np.arange(count) * 1e-3
    return [(t, np.sin(9.0 * t + p), 9.0 * np.cos(9.0 * t + p), 30.0 * np.sin(5.0 * t + r)) for t in times]


@pytest.mark.parametrize(("mode", "pattern"), [("uniform", None), *(("adversarial", p) for p in PATTERNS)])
def test_every_measurement_of_a_run_is_inside_the_bounds(mode: str, pattern: str | None) -> None:
    n = 4
    a, b = np.array([0.05, 0.2, 0.0, 1.0]), np.array([0.025, 0.0, 0.1, 0.3])
    e_q, e_v = np.array([1e-3, 0.0, 2e-4, 1e-5]), np.array([0.0, 1e-3, 5e-3, 2e-4])
    noise = NoiseModel(mode, a, b, e_q, e_v, pattern=pattern)
    kinematics, ratios = random_arm(0, n).kinematics, []
    stream, again = (noise.stream(kinematics, np.random.default_rng(1)) for _ in range(2))
    for t, q, qd, tau in states(n, 150):
        measured = stream.measure(t, q, qd, tau)
        for got, same in zip(measured, again.measure(t, q, qd, tau), strict=True):
            np.testing.assert_array_equal(got, same)
        assert holds(measured[0], q, e_q, 0.0)
        assert holds(measured[1], qd, e_v, 0.0)
        assert holds(measured[2], tau, a, b)
        ratios.append(np.abs(measured[2] - tau) / (a + b * np.abs(tau)))
        if mode == "adversarial":
            np.testing.assert_allclose(np.abs(measured[1] - qd), e_v, rtol=0, atol=1e-14)
    if mode == "adversarial":
        assert np.min(ratios) > 1.0 - 1e-9
    else:
        assert np.max(ratios) > 0.98
        assert 0.4 < np.mean(ratios) < 0.6


@pytest.mark.parametrize("mode", ["uniform", "adversarial"])
def test_a_zero_that_is_off_stays_the_same_over_a_run_and_inside_its_bound(mode: str) -> None:
    off, e_q = np.array([0.01, 0.0, 0.002]), 1e-4
    noise = NoiseModel(mode, position_error=e_q, zero_error=off.tolist())
    stream = noise.stream(random_arm(0, 3).kinematics, np.random.default_rng(3))
    shifts = np.array([stream.measure(*s)[0] - s[1] for s in states(3)])
    assert np.ptp(shifts, axis=0).max() <= 2.0 * e_q + 1e-15
    middle = 0.5 * (shifts.min(axis=0) + shifts.max(axis=0))
    assert np.all(np.abs(middle) <= off + 1e-5)
    assert np.abs(middle[0]) > 10.0 * e_q, "the zero is off"
    settings = load_robot("three_joint", **{"joints.elbow.zero_error": 2e-4}).settings
    assert list(NoiseModel.declared(settings, mode).zero_error) == [0.0, 0.0, 2e-4]  # type: ignore[arg-type]


def test_patterns_do_what_their_names_say() -> None:
    n, parameter = 3, 5
    arm = random_arm(4, n)
    seen = {}
    for pattern in PATTERNS:
        noise = NoiseModel("adversarial", 0.1, 0.02, 0.0, 0.0, pattern=pattern, parameter=parameter)
        stream = noise.stream(arm.kinematics, np.random.default_rng(2))
        seen[pattern] = np.array([np.sign(stream.measure(*s)[2] - s[3]) for s in states(n)])
    _, q, qd, tau = (np.array(column) for column in zip(*states(n), strict=True))
    assert np.all(seen["constant"] == seen["constant"][0])
    np.testing.assert_array_equal(seen["with_torque"], np.where(tau == 0.0, seen["with_torque"], np.sign(tau)))
    np.testing.assert_array_equal(seen["with_velocity"], np.sign(qd))
    np.testing.assert_array_equal(seen["against_velocity"], -np.sign(qd))
    flips = np.flatnonzero(np.any(np.diff(seen["square_wave"], axis=0) != 0.0, axis=1)) + 1
    np.testing.assert_array_equal(flips, [100, 200, 300])
    acceleration = np.vstack([np.zeros(n), np.diff(qd, axis=0) / 1e-3])
    column = dynamics_of(arm.kinematics).torque_regressor(q, qd, acceleration)[:, :, 10 * (n - 1) + parameter]
    clear = np.abs(column) > 1e-9
    np.testing.assert_array_equal(seen["raise_parameter"][clear], np.sign(column)[clear])
    np.testing.assert_array_equal(seen["lower_parameter"][clear], -np.sign(column)[clear])
    # Least squares for this parameter alone errs by as much as these bounds can make it: no other signs do worse.
    bias = {p: float(np.sum(column * seen[p] * (0.1 + 0.02 * np.abs(tau)))) for p in PATTERNS}
    assert max(bias, key=bias.get) == "raise_parameter"
    assert min(bias, key=bias.get) == "lower_parameter"


def test_seeds_reach_every_pattern_and_velocity_errors_alternate_with_windows() -> None:
    kinematics = random_arm(0, 2).kinematics
    noise = NoiseModel("adversarial", velocity_error=1e-3)
    drawn = {noise.stream(kinematics, np.random.default_rng(seed)).pattern for seed in range(80)}
    assert drawn == set(PATTERNS)
    stream = noise.stream(kinematics, np.random.default_rng(0))
    error = np.array([np.sign(stream.measure(*s)[1] - s[2]) for s in states(2)])
    assert np.all(error[0] == -error[100])
    assert np.all(error[100] == error[199])


def test_no_noise_is_none_and_copies() -> None:
    stream = NoiseModel("none").stream(random_arm(0, 2).kinematics, np.random.default_rng(0))
    q, qd, tau = np.ones(2), np.zeros(2), np.full(2, 3.0)
    for got, given_ in zip(stream.measure(0.0, q, qd, tau), (q, qd, tau), strict=True):
        np.testing.assert_array_equal(got, given_)
        assert got is not given_


@pytest.mark.parametrize("mode", ACTUATOR_MODES)
def test_actuator_errors_stay_inside_their_bound_and_use_it(mode: str) -> None:
    n = 3
    a, b, limit = np.array([0.02, 0.0, 0.5]), np.array([0.002, 0.1, 0.0]), np.array([30.0, 20.0, 10.0])
    actuator, again = (Actuator(mode, a, b, limit, np.random.default_rng(3)) for _ in range(2))
    rng = np.random.default_rng(4)
    largest = np.zeros(n)
    for k in range(1000):
        command, qd = rng.uniform(-1.0, 1.0, n) * limit * 0.8, rng.normal(size=n)
        applied = actuator.apply(k * 1e-3, command, qd).copy()
        np.testing.assert_array_equal(applied, again.apply(k * 1e-3, command, qd))
        assert holds(applied, command, a, b)
        largest = np.maximum(largest, np.abs(applied - command) / (a + b * np.abs(command)))
    if mode == "none":
        assert np.all(largest == 0.0)
    elif mode == "constant":
        assert np.all(largest > 0.5 - 1e-9)
    else:
        assert np.all(largest > 0.9)
    assert np.all(np.abs(actuator.apply(0.0, 100.0 * limit, np.ones(n))) <= limit)


def test_the_adversarial_actuator_feeds_the_motion_or_eats_it() -> None:
    signs = set()
    for seed in range(10):
        actuator = Actuator("adversarial", np.ones(2), np.zeros(2), np.full(2, 9.0), np.random.default_rng(seed))
        power = [actuator.apply(0.0, np.zeros(2), qd) @ qd for qd in np.random.default_rng(0).normal(size=(20, 2))]
        assert np.all(np.sign(power) == np.sign(power[0]))
        signs.add(float(np.sign(power[0])))
    assert signs == {-1.0, 1.0}
