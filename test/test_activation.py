"""Activation checks, attacked: a declared number that measurements at rest can refute is refuted, nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.control.checks.activation import ActivationChecks, StartCheck
from safe_sysid.control.checks.start import check_static_gravity, signs_confirmed
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.demo.options import DemoOptions
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

PERIOD = 1_000_000  # ns
BEGIN = 1_795_000_000_000_000_000
#: Declared as on an arm with encoders: positions to 10 urad, velocities to 0.02 rad/s.
ERRORS = {"measurement.position_error": 1e-5, "measurement.velocity_error": 0.02}


def arm(**settings: object) -> RobotModel:
    return load_robot("kinova_gen3", **{"driver.command_timeout_s": 0.02, **settings})


@cache
def gains(lockstep: bool) -> ControllerGains:
    """Of the arm as shipped; what they allow for is a matter of their own tests."""
    return design_gains(arm(), lockstep)


def gravity(model: RobotModel, q: np.ndarray) -> np.ndarray:
    zero = np.zeros(model.n)
    return np.asarray(dynamics_of(model.kinematics).torque_regressor(q, zero, zero) @ model.arm_prior.mid)


def every(period: int = PERIOD, count: int = 400) -> np.ndarray:
    """Stamps, ns."""
    return BEGIN + period * np.arange(count)


def filled(
    model: RobotModel,
    stamps: np.ndarray | None = None,
    delay: object = 200_000,  # ns, of all or of each in turn
    *,
    bound: ControllerGains | None = None,
    lockstep: bool = False,
    frozen: bool = False,
    simulated: bool = False,
    q: Callable[[float], np.ndarray] | None = None,
    qd: Callable[[float], np.ndarray] | None = None,
    effort: Callable[[np.ndarray], np.ndarray | None] = lambda effort: effort,
    start_check: StartCheck | None = None,
) -> ActivationChecks:
    """At rest in the home pose unless said otherwise; functions of time, s."""
    home, zero = np.array(model.settings.home), np.zeros(model.n)
    checks = ActivationChecks(model, bound or gains(lockstep), start_check, lockstep, simulated)
    known, stamps = effort(gravity(model, home)), every() if stamps is None else stamps
    for k, (stamp, late) in enumerate(zip(stamps.tolist(), np.resize(delay, len(stamps)).tolist(), strict=True)):
        t = 1e-9 * (stamp - BEGIN)
        # A sensor's last bits change, unless it is frozen.
        given = known if known is None else known + (0.0 if frozen else 1e-9 * (k % 2))
        checks.add(stamp, stamp + late, q(t) if q else home, qd(t) if qd else zero, given)
    return checks


def only(checks: ActivationChecks, *words: str) -> None:
    reasons = checks.reasons()
    assert len(reasons) >= 1
    assert all(any(word in reason for reason in reasons) for word in words), reasons


def test_an_arm_at_rest_as_declared_may_start() -> None:
    for settings_ in ({}, ERRORS):
        assert filled(arm(**settings_)).reasons() == []
    assert filled(arm(), every(count=1), lockstep=True).reasons() == []


def test_nothing_and_too_little_are_told_apart() -> None:
    model = arm()
    only(filled(model, every(count=0)), "no measurement")
    only(filled(model, every(count=150)), "0.149 s only: expected 0.2 s")
    checks = filled(model)
    checks.forget()
    only(checks, "no measurement")


def test_a_gap_or_an_older_stamp_begins_anew() -> None:
    model, home = arm(), np.array(arm().settings.home)
    zero, effort = np.zeros(model.n), gravity(model, home)
    checks = filled(model)
    late = BEGIN + 600 * PERIOD
    for k in range(50):
        checks.add(late + k * PERIOD, late + k * PERIOD, home, zero, effort)
    only(checks, "a gap of 0.201 s before")
    checks = filled(model)
    checks.add(BEGIN, BEGIN, home, zero, effort)
    only(checks, "0.000 s only")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stamps": every(2 * PERIOD)}, ("(500 Hz): expected measurement.rate_hz = 1000", "timing.hold_max_s")),
        ({"delay": 700_000}, ("0.700 ms after their stamp: expected at most timing.delay_max_s",)),
        ({"delay": -300_000}, ("0.300 ms before their stamp",)),
        ({"delay": 3_600_000_000_000}, ("are all clocks the same",)),
    ],
)
def test_rate_and_delay_must_be_those_of_the_gains(change: dict, words: tuple[str, ...]) -> None:
    only(filled(arm(), **change), *words)
    assert filled(arm(), lockstep=True, **change).reasons() == []


def test_what_run_time_judges_is_told_and_not_refused() -> None:
    """A third of measurements later than declared, by less than a hold: told in numbers, and judged one by one."""
    assert not [text for text in filled(arm()).warnings() if "later" in text]
    checks = filled(arm(), delay=(100_000, 200_000, 1_000_000))
    assert checks.reasons() == []
    (text,) = [text for text in checks.warnings() if "later" in text]
    assert "33 % of measurements come later than declared" in text
    assert "1.000 ms" in text
    assert "timing.delay_max_s = 0.5 ms" in text
    assert filled(arm(), lockstep=True, delay=(100_000, 1_000_000)).warnings() == []


def test_no_more_than_rare_measurements_may_be_beyond_what_run_time_covers() -> None:
    """Reviewed: whatever most measurements are, the others decide."""
    model, rng, grid = arm(), np.random.default_rng(0), every(count=600)
    for share in (0.1, 0.5, 0.7):
        for late in (2_000_000, 15_000_000):
            checks = filled(model, grid, np.where(rng.random(600) < share, late, 100_000))
            only(checks, "after their stamp", *(["would be in force for"] if late > 10_000_000 else []))
    assert filled(model, grid, np.where(rng.random(600) < 0.02, 15_000_000, 100_000)).reasons() == []
    only(filled(model, grid[np.arange(600) % 3 != 0], 100_000), "33 % of measurements are missing")
    assert filled(model, grid[np.arange(600) % 25 != 0], 100_000).reasons() == []
    bursts = BEGIN + np.cumsum(np.where(rng.random(600) < 0.45, 15 * PERIOD, PERIOD))
    only(filled(model, bursts, 100_000), "are missing", "would be in force for 15.1")


def test_a_frozen_sensor_is_refused_unless_it_may_repeat() -> None:
    only(filled(arm(), frozen=True), "are the same numbers in")
    assert filled(arm(**{"driver.may_repeat": True}), frozen=True).reasons() == []
    assert filled(arm(), frozen=True, lockstep=True).reasons() == []
    assert filled(arm(), frozen=True, simulated=True).reasons() == []
    for noise, repeats in (("uniform", False), ("none", True), ("adversarial", True)):
        model = arm(**DemoOptions(noise=noise, lockstep=False).overrides)
        assert (filled(model, frozen=True).reasons() == []) == repeats
        assert DemoOptions(noise=noise).overrides == {}


@pytest.mark.parametrize("name", ["kinova_gen3", "ur5e", "three_joint_wall"])
def test_joints_that_gravity_does_not_load_are_named_and_one_loaded_is_needed(name: str) -> None:
    """The check is asked about its own power: a sign that is not confirmed may be wrong, a confirmed one may not."""
    model, rng = load_robot(name, **{"driver.command_timeout_s": 0.1}), np.random.default_rng(0)
    bound, zero, box = design_gains(model), np.zeros(model.n), model.arm_prior

    def checked(q: np.ndarray, effort: np.ndarray) -> ActivationChecks:
        return filled(model, delay=100_000, bound=bound, q=lambda t: q, effort=lambda _: effort)

    home = np.array(model.settings.home)
    assert checked(home, gravity(model, home)).reasons() == []
    loaded = 0
    lower, upper = np.maximum(model.limits.position_lower, -2.0), np.minimum(model.limits.position_upper, 2.0)
    for q in [home, zero, *rng.uniform(lower, upper, (8, model.n))]:
        effort = gravity(model, q)
        seen = signs_confirmed(model, box, q, zero, effort)
        told = " ".join(text for text in checked(q, effort).warnings() if "not confirmed" in text)
        assert [name in told for name in model.joint_names] == [not confirmed for confirmed in seen]
        for j in range(model.n):
            wrong = np.where(np.arange(model.n) == j, -effort, effort)
            assert (check_static_gravity(model, box, q, zero, wrong) != []) == seen[j]
        if seen.any():
            loaded += 1
            assert check_static_gravity(model, box, q, zero, -effort)
    assert loaded > 6
    # Efforts that are zero, or all of the wrong sign, are refused at every pose, whether or not gravity loads it.
    for q in (home, zero):
        for factor in (0.0, -1.0):
            reasons = checked(q, factor * gravity(model, q)).reasons()
            assert [text for text in reasons if "effort" in text], (name, q, factor)


def test_the_drivers_timeout_must_be_declared_and_be_possible() -> None:
    only(filled(load_robot("kinova_gen3", **{"driver.command_timeout_s": None})), "command_timeout_s is not declared")
    only(filled(arm(**{"driver.command_timeout_s": 0.001})), "expected more than timing.hold_max_s")
    silent = load_robot("kinova_gen3", **{"driver.command_timeout_s": None})
    assert filled(silent, lockstep=True).reasons() == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda effort: None, "without finite efforts"),
        (lambda effort: np.full_like(effort, np.nan), "without finite efforts"),
        (lambda effort: -effort, "the wrong sign of"),
        (lambda effort: 1e3 * effort, "efforts in mN m"),
        (lambda effort: np.zeros_like(effort), "no torque at all"),
    ],
)
def test_efforts_that_gravity_does_not_explain_are_refused(wrong: Callable, words: str) -> None:
    only(filled(arm(), effort=wrong), words)


def test_without_the_gravity_check_efforts_are_not_asked_for() -> None:
    model = arm(**{"controller.gravity_check": False})
    assert filled(model, effort=lambda effort: None).reasons() == []


def test_an_arm_that_moves_is_not_at_rest() -> None:
    model = arm(**ERRORS)
    home, speed = np.array(model.settings.home), np.full(model.n, 0.3)
    only(filled(model, q=lambda t: home + speed * t, qd=lambda t: speed), "not at rest")


def test_the_start_pose_is_asked_about() -> None:
    asked: list[tuple[np.ndarray, ParameterBox]] = []

    def never(q: np.ndarray, box: ParameterBox) -> tuple[list[str], int]:
        asked.append((q, box))
        return ["joint_2: holding may need too much"], 0

    only(filled(arm(), start_check=never), "holding may need")
    np.testing.assert_array_equal(asked[0][0], arm().settings.home)
    assert asked[0][1].identity == arm().arm_prior.identity


def sines(rng: np.random.Generator, n: int) -> tuple[Callable, Callable]:
    """A smooth motion with |qdd| <= 15 rad/s^2, its position and velocity."""
    rates = rng.uniform(0.5, 60.0, n)
    size = rng.uniform(0.0, 1.0, n) * 15.0 / rates**2
    phase = rng.uniform(0.0, 6.0, n)
    return (lambda t: size * np.sin(rates * t + phase), lambda t: size * rates * np.cos(rates * t + phase))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None)
def test_no_motion_with_errors_as_declared_contradicts_them(seed: int) -> None:
    """The law behind the check: whatever the arm does, errors inside their bounds are never called larger."""
    rng = np.random.default_rng(seed)
    position, velocity = 10.0 ** rng.uniform(-7, -3), 10.0 ** rng.uniform(-4, -1)
    model = arm(**{"measurement.position_error": position, "measurement.velocity_error": velocity})
    home, (q, qd) = np.array(model.settings.home), sines(rng, model.n)
    checks = filled(
        model,
        q=lambda t: home + q(t) + position * rng.choice([-1.0, 1.0], model.n),
        qd=lambda t: qd(t) + velocity * rng.choice([-1.0, 1.0], model.n),
    )
    assert [reason for reason in checks.reasons() if "differences of positions" in reason] == []


@pytest.mark.parametrize("joint", [0, 3])
def test_velocity_errors_beyond_the_declared_are_found(joint: int) -> None:
    """Offset, noise, unit, sign: each on an arm that moves or stands as it may."""
    model, rng = arm(**ERRORS), np.random.default_rng(1)
    home, one = np.array(model.settings.home), np.eye(model.n)[joint]
    found = f"joint_{joint + 1}: measured velocity is off"
    only(filled(model, qd=lambda t: 0.08 * one), found)
    only(filled(model, qd=lambda t: 0.08 * rng.uniform(-1.0, 1.0) * one), found)
    for factor in (-1.0, 180.0 / np.pi, 0.0):
        moving = filled(model, q=lambda t: home + 0.3 * t * one, qd=lambda t, f=factor: 0.3 * f * one)
        only(moving, found)


def test_a_joint_that_wraps_turns_without_a_reason() -> None:
    """Across +-pi the difference of positions is a small one; only the driver that says it wraps is held to it."""
    model = arm(**ERRORS, **{"driver.wraps_continuous": True})
    home, slow = np.array(model.settings.home), 0.02 * np.eye(model.n)[0]

    def turning(t: float) -> np.ndarray:
        q = home + (np.pi - 0.005) * np.eye(model.n)[0] + slow * t
        return np.where(model.continuous, (q + np.pi) % (2.0 * np.pi) - np.pi, q)

    path = np.array([turning(1e-3 * k)[0] for k in range(400)])
    assert path.max() > 3.0
    assert path.min() < -3.0
    checks = filled(model, q=turning, qd=lambda t: slow)
    assert [reason for reason in checks.reasons() if "joint_1" in reason and "rest" not in reason] == []
    beyond = filled(model, q=lambda t: home + 2.0 * np.pi * np.eye(model.n)[0])
    only(beyond, "joint_1 at 6.2832 rad: expected within +-pi")
