"""Parts of the controller, attacked: start checks, take-over, torque rate, blend, measurements, other laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rigid_arm import RigidArm
from test_control import START, draw
from test_controller import PERIOD, plan_from, rest

from safe_sysid.control.blending import BoxBlend
from safe_sysid.control.checks.command_watch import CommandWatch
from safe_sysid.control.checks.measurement_watch import MeasurementStatus, MeasurementWatch
from safe_sysid.control.checks.start import check_static_gravity, static_effort_range, why_not_rate
from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.control.take_over import effort_error
from safe_sysid.control.torque_rate import TorqueRate
from safe_sysid.dynamics import dynamics_of
from safe_sysid.extensions import LAWS
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories import Plan, QuinticTrajectory

# -- static gravity -------------------------------------------------------------------------------------------------


def measured(model: RobotModel, theta: np.ndarray, q: np.ndarray, signs: np.ndarray, source: str) -> np.ndarray:
    """Effort at rest with every error at a bound."""
    n, m, a = model.n, model.settings.measurement, model.settings.actuator
    z = np.zeros(n)
    tau = (dynamics_of(model.kinematics).torque_regressor(q, z, z)[:, : 10 * n]) @ theta[: 10 * n]
    if source != "link":
        tau = tau + theta[13 * n :] + signs * theta[10 * n : 11 * n]  # sticking
    tau = tau + signs * (np.asarray(a.torque_abs) + np.asarray(a.torque_rel) * np.abs(tau))
    return tau + signs * (np.asarray(m.torque_abs) + np.asarray(m.torque_rel) * np.abs(tau))


@pytest.mark.parametrize("source", ["motor", "link"])
def test_no_arm_of_the_box_is_ever_refused(source: str) -> None:
    model = load_robot("kinova_gen3", **{"measurement.torque_source": source})
    rng, n, box = np.random.default_rng(4), model.n, model.arm_prior
    for _ in range(200):
        theta = np.where(rng.integers(0, 2, 14 * n) == 1, box.upper, box.lower)
        q, signs = rng.uniform(-np.pi, np.pi, n), rng.choice([-1.0, 1.0], n)
        effort = measured(model, theta, q, signs, source)
        assert check_static_gravity(model, box, q, np.zeros(n), effort) == []


def test_what_is_wrong_is_named(model: RobotModel) -> None:
    theta, z = draw(model, 3, "8lb", "uniform"), np.zeros(model.n)
    good = measured(model, theta, START, z, "motor")

    def said(effort: np.ndarray, q: np.ndarray = START, of: RobotModel = model) -> str:
        return "; ".join(check_static_gravity(of, of.arm_prior, q, z, effort))

    assert said(good) == ""
    assert "wrong sign of the effort of joint_2, joint_3, joint_4" in said(np.where(np.arange(7) < 5, -good, good))
    assert "in mN m" in said(1e3 * good)
    assert "per cent" in said(100.0 * good / model.limits.torque)
    assert "no torque at all" in said(0.001 * good)
    assert "positions in degrees" in said(good, np.rad2deg(START))
    assert "joint_2: effort" in said(-good)
    assert "expected finite" in said(good * np.nan)


def test_a_torque_source_that_is_not_the_declared_one_is_named() -> None:
    model = load_robot("kinova_gen3", **{f"joints.joint_{j}.offset": 4.0 for j in range(1, 8)})
    lower, upper = static_effort_range(model, model.arm_prior, START, np.zeros(7), "link")
    reasons = check_static_gravity(model, model.arm_prior, START, np.zeros(7), 0.5 * (lower + upper))
    assert any("torque_source: link" in reason for reason in reasons)


# -- torque rate and take-over --------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 0.03), st.booleans())
def test_no_sequence_of_wanted_torques_makes_a_jump(seed: int, duration: float, known: bool) -> None:
    rng, rate, dt = np.random.default_rng(seed), np.array([1000.0, 3000.0]), 1e-3
    limiter = TorqueRate(rate, dt)
    force = rng.uniform(-50, 50, 2)
    if known:
        limiter.take_over(duration + 1e-6, force)
    wanted, last = rng.uniform(-50, 50, 2), force
    for k in range(300):
        if rng.random() < 0.1 and k < 60:
            wanted = rng.uniform(-50, 50, 2)
        elapsed = dt * rng.uniform(0.5, 20.0)
        command = wanted.copy()
        cut = limiter.next(command, elapsed)
        if known or k:
            assert np.all(np.abs(command - last) <= rate * min(elapsed, dt) * (1 + 1e-8))
            way = wanted - last
            if cut >= 0 and not limiter.taking_over and np.all(way != 0.0):  # one share for all joints
                share = (command - last) / way
                np.testing.assert_allclose(share, share[0], rtol=1e-6, atol=1e-9)
        last = command
    np.testing.assert_array_equal(last, wanted)


@pytest.mark.parametrize("payload", ["none", "4lb", "8lb"])
def test_a_start_departs_from_the_measured_effort_and_stays_inside_the_bound(
    model: RobotModel, gains: ControllerGains, payload: str
) -> None:
    rng = np.random.default_rng(2)
    for seed in range(4):
        theta = draw(model, seed, payload, "uniform")
        arm, controller = RigidArm(model, theta, START, substeps=1), Controller(model, gains)
        last = measured(model, theta, START, rng.choice([-1.0, 1.0], model.n), "motor")
        assert controller.start(0.0, arm.q, arm.qd, last) == []
        for k in range(200):
            out = controller.step((k + 1) * PERIOD, arm.q, arm.qd)
            assert np.all(np.abs(out.torque - last) <= 3.0)  # N m in 1 ms; without the ramp up to 14
            assert out.energy < 0.1 * gains.V_max
            last = out.torque.copy()
            arm.step(out.torque, PERIOD)
        assert not controller.taking_over
        assert controller.counts["torque rate cut"] == 0


def test_while_control_is_taken_over_nothing_but_rest_is_desired() -> None:
    """|W_s theta - tau_0|_* <= O is what the ramp is proved with: a plan that begins during it would break that."""
    model = load_robot("kinova_gen3", **{"controller.jerk": 30.0})
    gains = design_gains(model, lockstep=True)
    hold, v_s = gains.assumptions.hold_max, model.friction_transition_velocity
    seconds = 0.277  # with these 7 joints the jerk and the acceleration reach their bounds
    goal = START + 0.999 * min(30.0 * seconds**3 / 60.0, 0.8 * seconds**2 / 5.78)
    for seed in range(3):
        theta = draw(model, seed, "8lb", "uniform")
        effort = measured(model, theta, START, -np.ones(7), "motor")
        most = effort_error(model, gains, model.arm_prior, effort)
        arm, controller = RigidArm(model, theta, START, substeps=1), Controller(model, gains)
        assert controller.start(0.0, arm.q, arm.qd, effort) == []

        def plan(start: float) -> Plan:
            way = QuinticTrajectory.to_rest(rest(START), goal, seconds)
            return Plan(way, start, 0.5 * seconds, "0:0", 0, np.zeros(7))

        begins, alone, refused, worst, without = 0.0, 0.0, 0, 0.0, 0.0
        for k in range(60):
            stamp = (k + 1) * PERIOD
            if not begins and controller.offer_plan(plan(stamp + PERIOD), stamp) is None:
                begins = stamp + PERIOD
            refused += not begins
            out = controller.step(stamp, arm.q, arm.qd)
            # The torque of rest is in no command that counts for this instant from here on.
            alone = stamp + 2.0 * hold if controller.taking_over else alone
            for reference in (out.reference, plan(PERIOD).trajectory.state(stamp)):
                e, de = reference[0] - arm.q, reference[1] - arm.qd
                qd_a, qdd_a = reference[1] + gains.K_r * e, reference[2] + gains.K_r * de
                w = dynamics_of(model.kinematics).slotine_li_regressor(arm.q, arm.qd, qd_a, qdd_a, v_s)
                size = float(np.linalg.norm((w @ theta - effort) / np.sqrt(gains.inertia_lower)))
                if stamp < alone - 1e-9 and reference is out.reference:
                    worst = max(worst, size)
                elif controller.taking_over:
                    without = max(without, size)
            arm.step(out.torque, PERIOD)
        assert worst <= most < without, "without the refusal the bound does not hold"
        assert alone <= begins <= alone + 2.0 * PERIOD, "and nobody waits longer than that"
        assert refused == controller.counts["plan refused"] > 10
        assert controller.state is ControllerState.TRACKING


def test_a_ramp_that_late_measurements_prolong_begins_no_plan(model: RobotModel, gains: ControllerGains) -> None:
    effort = measured(model, draw(model, 1, "8lb", "uniform"), START, np.zeros(7), "motor")
    controller = Controller(model, gains)
    assert controller.start(0.0, START, 0 * START, effort) == []
    early = plan_from(rest(START), 0.0215)
    assert "taken over: expected a start after 0.0220 s" in controller.offer_plan(early, 0.0)
    assert controller.offer_plan(replace(early, start_time=0.022), 0.0) is None
    for stamp in (*PERIOD * np.arange(1, 10), *PERIOD * np.arange(14, 24)):  # four are lost
        controller.step(float(stamp), START, 0 * START)
    assert controller.state is ControllerState.HOLDING
    assert controller.plan is None
    assert controller.pending_plan is None
    assert "taken over" in controller.reason
    late = replace(early, start_time=0.030)
    assert controller.offer_plan(late, 0.023) is None
    for stamp in PERIOD * np.arange(24, 32):
        controller.step(float(stamp), START, 0 * START)
    assert controller.state is ControllerState.TRACKING


def test_a_start_that_the_bound_does_not_allow_is_refused(gains: ControllerGains) -> None:
    slow = load_robot("kinova_gen3", **{"controller.torque_rate": 200.0})
    effort = measured(slow, draw(slow, 3, "8lb", "uniform"), START, np.zeros(7), "motor")
    (reason,) = Controller(slow, gains).start(0.0, START, 0 * START, effort)
    assert "taking over takes" in reason
    assert "torque_rate" in reason


def test_a_torque_rate_that_cannot_reach_the_limits_is_refused(model: RobotModel) -> None:
    for j in range(model.n):
        for factor, good in ((1.0, True), (0.999, False)):
            wanted = model.limits.torque / 0.02 * np.where(np.arange(model.n) == j, factor, 1.0)
            reason = why_not_rate(load_robot("kinova_gen3", **{"controller.torque_rate": wanted.tolist()}))
            assert (reason == "") == good
            assert good or model.joint_names[j] in reason


# -- blend ----------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(4e-4, 0.2), st.booleans())
def test_every_box_of_a_blend_holds_what_both_hold(seed: int, step: float, grows: bool) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=14)
    inner = ParameterBox(truth - rng.uniform(0, 1e-3, 14), truth + rng.uniform(0, 1e-3, 14))
    outer = ParameterBox(inner.lower - rng.uniform(0, 1, 14), inner.upper + rng.uniform(0, 1, 14))
    first, last = (inner, outer) if grows else (outer, inner)
    blend = BoxBlend(first, 0.25, 0.002)
    blend.begin(last, truth)
    reached, count, before = None, 0, first
    while reached is None:
        reached = blend.advance(step if count else 0.0)
        mid, rad = blend.model.mid, blend.model.rad
        assert np.all(mid - rad <= truth)
        assert np.all(truth <= mid + rad)
        assert np.all((blend.lower <= blend.model.nominal) & (blend.model.nominal <= blend.upper))
        # A tick counts for 2 ms at most: 1/125 of the way.
        assert np.all(np.abs(blend.lower - before.lower) <= np.abs(last.lower - first.lower) / 124)
        before = ParameterBox(blend.lower, blend.upper)
        count += 1
    assert reached is last
    assert count >= 125


# -- measurements ---------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_no_possible_motion_is_refused_and_angles_are_unwrapped(model: RobotModel, seed: int) -> None:
    rng, watch = np.random.default_rng(seed), MeasurementWatch(model)
    turns = np.where(model.continuous, 2.0 * np.pi, 0.0)
    true = rng.uniform(-2.0, 2.0, model.n)
    watch.begin(0.0, true)
    t = 0.0
    for _ in range(40):
        dt = rng.uniform(5e-4, 0.5)
        qd = rng.uniform(-1.0, 1.0, model.n) * model.limits.velocity
        true, t = true + dt * qd, t + dt
        assert watch.judge(t, true + turns * rng.integers(-2, 3, model.n), qd) is MeasurementStatus.GOOD
        np.testing.assert_allclose(watch.q, true, atol=1e-9)
    assert watch.judge(t + 1e-3, true + 0.1 * np.eye(model.n)[1], 0 * true) is MeasurementStatus.BAD
    assert watch.judge(t + 2e-3, true, 0 * true) is MeasurementStatus.GOOD


def test_lost_commands_are_noticed_and_late_ones_are_not(model: RobotModel) -> None:
    rng, watch = np.random.default_rng(0), CommandWatch(model)
    m, a, command = model.settings.measurement, model.settings.actuator, np.zeros(model.n)
    sent = []
    for k in range(300):
        command = command + rng.uniform(-0.5, 0.5, model.n)
        sent.append(command)
        watch.note(command)
        delayed = sent[max(k - rng.integers(0, 3), 0)]
        signs = rng.choice([-1.0, 1.0], model.n)
        tau = delayed + signs * (a.torque_abs + a.torque_rel * np.abs(delayed))
        effort = tau + signs * (m.torque_abs + m.torque_rel * np.abs(tau))
        assert watch.disagrees(effort) == -1
    found = [watch.disagrees(command + 9.0) for _ in range(6)]
    assert found[:4] == [-1] * 4
    assert found[-1] >= 0
    assert watch.gap == ""  # nothing but lost commands


def test_a_gap_before_lost_commands_is_told_for_a_while(model: RobotModel) -> None:
    watch, command = CommandWatch(model), np.zeros(model.n)
    for _ in range(10):
        watch.note(command)
    assert watch.disagrees(command, 0.0015) == -1
    assert watch.gap == ""
    for elapsed in (0.019, 0.008, 0.001):
        watch.disagrees(command + 9.0, elapsed)
    assert "no command for 19 ms before" in watch.gap
    for _ in range(60):
        watch.disagrees(command, 0.001)
    assert watch.gap == ""
    watch.disagrees(command, 0.01)
    watch.clear()
    assert watch.gap == ""


# -- laws, limits ---------------------------------------------------------------------------------------------------


# Compiling ``armour`` takes twenty seconds, the adaptive ones' kernels eight; test_laws*.py drive them.
COMPILED = ("armour", "adaptive_robust", "passivity_adaptive")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in COMPILED else name for name in LAWS]
)
def test_any_law_holds_and_only_one_is_called_proved(model: RobotModel, gains: ControllerGains, name: str) -> None:
    theta, law = draw(model, 3, "5lb", "uniform"), make_law(name, model, gains)
    arm, controller = RigidArm(model, theta, START, substeps=1), Controller(model, gains, law=law)
    assert controller.proved == (name == "robust")
    effort = measured(model, theta, START, np.zeros(model.n), "motor")
    assert controller.start(0.0, arm.q, arm.qd, effort) == []
    for k in range(150):
        out = controller.step((k + 1) * PERIOD, arm.q, arm.qd)
        assert controller.state is ControllerState.HOLDING, controller.reason
        assert out.torque is not None
        arm.step(out.torque, PERIOD)
    e, de, r = controller.tracking_error
    np.testing.assert_allclose(r, de + gains.K_r * e)
    assert np.max(np.abs(arm.q - START)) < 0.02


def test_torque_that_is_clipped_in_motion_brakes_along_the_tail_and_ends_in_a_fault(
    model: RobotModel, gains: ControllerGains
) -> None:
    """Cannot happen under a certificate: the law is made to ask for more than the limit, once."""
    theta = draw(model, 3, "4lb", "uniform")
    arm, controller = RigidArm(model, theta, START, substeps=1), Controller(model, gains)
    assert controller.start(0.0, arm.q, arm.qd) == []
    assert controller.offer_plan(plan_from(rest(START), 0.02), 0.0) is None
    law, limit = controller.law.step, model.limits.torque
    states = []
    for k in range(1200):
        if k == 200:
            controller._rate.rate = 1e9 * np.ones(model.n)
            controller.law.step = lambda *args: law(*args) + 100.0
        elif k == 201:
            controller.law.step = law
        out = controller.step((k + 1) * PERIOD, arm.q, arm.qd)
        states.append(controller.state.value)
        if out.torque is None:
            break
        assert np.all(np.abs(out.torque) <= limit)
        arm.step(out.torque, PERIOD)
    assert list(dict.fromkeys(states)) == ["holding", "tracking", "braking", "fault"]
    assert len(states) > 1000  # to the end of the tail
    assert "was clipped" in controller.reason
    assert controller.counts["saturation"] == 1
