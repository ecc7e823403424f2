"""The state machine: every transition and every refusal, on a real (Pinocchio-integrated) arm."""

import re
from dataclasses import replace

import numpy as np
import pytest
from rigid_arm import RigidArm
from test_control import START, draw

from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.gains import ControllerGains
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories import Plan, QuinticTrajectory

PERIOD = 1e-3


class Loop:
    """Controller and arm, tick by tick."""

    def __init__(self, model: RobotModel, gains: ControllerGains, seed: int = 3) -> None:
        self.theta = draw(model, seed, "4lb", "uniform")
        self.model, self.arm = model, RigidArm(model, self.theta, START, substeps=1)
        self.controller = Controller(model, gains)
        self.t, self.torques = 0.0, []
        self.announced: list[ParameterBox] = []

    def start(self) -> None:
        assert self.controller.start(self.t, self.arm.q, self.arm.qd) == []

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD)):
            self.t = round((self.t + PERIOD) / PERIOD) * PERIOD
            out = self.controller.step(self.t, self.arm.q, self.arm.qd)
            if out.announce is not None:
                self.announced.append(out.announce)
            if out.torque is None:
                return
            self.torques.append(out.torque.copy())
            self.arm.step(out.torque, PERIOD)

    def held(self) -> np.ndarray:
        """The pose that is held, after one more tick."""
        hold = self.controller.step(self.t + PERIOD, self.arm.q, self.arm.qd).reference[0].copy()
        self.t += PERIOD
        return hold

    def offer(self) -> np.ndarray:
        """Offer a plan from the pose that is held, which is returned."""
        hold = self.held()
        assert self.controller.offer_plan(plan_from(rest(hold), 0.1), self.t) is None
        return hold

    def largest_step(self, begin: int) -> float:
        """Of any torque from one tick to the next, since tick number ``begin``."""
        return float(np.max(np.abs(np.diff(self.torques[begin:], axis=0))))

    def truth_box(self, share: float, seq: int) -> ParameterBox:
        """A nested box around the truth, ``share`` of the prior's size."""
        prior = self.controller.box
        lower = self.theta - share * (self.theta - prior.lower)
        upper = self.theta + share * (prior.upper - self.theta)
        inner = ParameterBox(np.maximum(lower, prior.lower), np.minimum(upper, prior.upper))
        return self.model.arm_prior.with_payload(inner.payload_lower, inner.payload_upper, seq)


def plan_from(state: np.ndarray, start: float, identity: str = "0:0", sequence: int = 0, step: float = 0.1) -> Plan:
    trajectory = QuinticTrajectory.to_rest(state, state[0] + step, 1.0)
    return Plan(trajectory, start, 0.5, identity, sequence, np.zeros(state.shape[1]))


def rest(q: np.ndarray) -> np.ndarray:
    return np.stack([q, 0 * q, 0 * q])


@pytest.fixture
def loop(model: RobotModel, gains: ControllerGains) -> Loop:
    loop = Loop(model, gains)
    loop.start()
    loop.run(0.05)
    return loop


def test_idle_it_commands_nothing_and_starts_only_at_rest_in_range_and_finite(
    model: RobotModel, gains: ControllerGains
) -> None:
    controller, z = Controller(model, gains), np.zeros(model.n)
    assert controller.step(0.0, START, z).torque is None
    assert any("not at rest" in r for r in controller.start(0.0, START, z + 0.5))
    outside = START.copy()
    outside[1] = 3.0
    assert any("joint_2" in r for r in controller.start(0.0, outside, z))
    error = np.broadcast_to(gains.assumptions.position_error, model.n)[1]
    assert error > 0.0
    outside[1] = model.limits.position_upper[1] - 0.5 * error  # measured inside; it may be outside
    assert any("joint_2" in r for r in controller.start(0.0, outside, z))
    assert any("finite" in r for r in controller.start(0.0, START * np.nan, z))
    assert controller.state is ControllerState.IDLE
    assert controller.start(0.0, START, z) == []
    assert any("state is holding" in r for r in controller.start(0.0, START, z))


def test_plan_is_tracked_then_braked_then_held(loop: Loop) -> None:
    c = loop.controller
    hold = loop.offer()
    loop.run(0.1)
    assert c.state is ControllerState.TRACKING
    loop.run(0.6)
    assert c.state is ControllerState.BRAKING
    assert "no plan" in c.reason
    loop.run(0.5)
    assert c.state is ControllerState.HOLDING
    np.testing.assert_allclose(loop.arm.q, hold + 0.1, atol=np.max(c.gains.e_bound))
    assert np.all(np.abs(loop.torques) <= loop.model.limits.torque)


def test_next_plan_takes_over_at_the_hand_over(loop: Loop) -> None:
    c = loop.controller
    first = plan_from(rest(loop.held()), 0.1)
    assert c.offer_plan(first, loop.t) is None
    loop.run(0.2)
    state = first.trajectory.state(first.t_plan)[:3]
    # What a stamp since 1970 rounds must not shift the desired motion: the hand-over is where the first plan says.
    second = plan_from(state, first.hand_over_time + 5e-7, sequence=1, step=-0.05)
    assert c.offer_plan(second, loop.t) is None
    jump = len(loop.torques)
    loop.run(0.5)
    assert c.state is ControllerState.TRACKING
    assert c.plan.trajectory is second.trajectory
    assert c.plan.start_time == first.hand_over_time
    assert loop.largest_step(jump) < 1.0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"start": 0.01}, "too late"),
        ({"start": 100.0}, "within"),
        ({"identity": "1:0"}, "epoch"),
        ({"identity": "0:7"}, "not announced"),
        ({"shift": 1e-6}, "does not connect.*joint_1"),
        ({"joints": 2}, "2 joints"),
    ],
)
def test_bad_plans_are_refused_with_the_reason(loop: Loop, change: dict, expected: str) -> None:
    c, hold = loop.controller, loop.held()[: change.pop("joints", None)]
    hold[0] += change.pop("shift", 0.0)
    plan = plan_from(rest(hold), **{"start": 0.5} | change)
    assert re.search(expected, c.offer_plan(plan, loop.t))
    assert c.counts["plan refused"] == 1
    loop.run(0.6)
    assert c.state is ControllerState.HOLDING


def test_tighter_box_is_blended_in_and_announced(loop: Loop) -> None:
    c = loop.controller
    box = loop.truth_box(0.2, 1)
    assert c.offer_box(box, loop.t) is None
    begin = len(loop.torques)
    loop.run(0.4)
    assert [b.identity for b in loop.announced] == ["0:1"]
    assert c.box is box
    assert loop.largest_step(begin) < 0.5
    # A plan certified for the wider box stays acceptable, one for a box never announced does not.
    assert c.offer_plan(plan_from(rest(loop.held()), loop.t + 0.2, "0:0"), loop.t) is None


def test_boxes_that_do_not_shrink_are_refused(loop: Loop) -> None:
    c = loop.controller
    assert c.offer_box(loop.truth_box(0.5, 1), loop.t) is None
    good = loop.truth_box(0.4, 2)
    for box, words in (
        (loop.truth_box(0.7, 2), "inside"),
        (loop.truth_box(0.4, 1), "sequence"),
        (ParameterBox(good.lower, good.upper, epoch=3, seq=2), "epoch"),
        (ParameterBox(np.zeros(14), np.ones(14), 0, 2), "parameters"),
    ):
        assert words in str(c.offer_box(box, loop.t))
    assert c.counts["bounds refused"] == 4


def test_blending_interrupted_by_a_tighter_box_stays_nested(loop: Loop) -> None:
    c = loop.controller
    assert c.offer_box(loop.truth_box(0.6, 1), loop.t) is None
    loop.run(0.1)
    assert c.offer_box(loop.truth_box(0.3, 2), loop.t) is None
    begin = len(loop.torques)
    loop.run(0.5)
    assert c.box.identity == "0:2"
    assert loop.largest_step(begin) < 0.5


def test_reset_is_taken_only_at_rest_and_begins_an_epoch(loop: Loop) -> None:
    c = loop.controller
    loop.offer()
    loop.run(0.2)
    assert "tracking" in str(c.reset_box())
    loop.run(1.0)
    assert c.offer_box(loop.truth_box(0.1, 1), loop.t) is None
    loop.run(0.4)
    assert c.box.identity == "0:1"
    begin = len(loop.torques)
    assert c.reset_box() is None
    assert "already" in str(c.reset_box())
    assert "reset" in str(c.offer_box(loop.truth_box(0.05, 2), loop.t))
    end = c._hold[0].copy()
    assert "reset" in str(c.offer_plan(plan_from(rest(end), loop.t + 1, "0:1"), loop.t))
    loop.run(0.3)
    assert loop.largest_step(begin) < 0.5  # the box grows, the torque does not jump
    assert c.box.identity == "1:0"
    assert [b.identity for b in loop.announced] == ["0:1", "1:0"]
    assert "epoch" in str(c.offer_plan(plan_from(rest(end), loop.t + 1, "0:1"), loop.t))


@pytest.mark.parametrize("ends", ["release", "fault"])
def test_a_reset_is_not_lost_where_commands_end_before_its_blend(loop: Loop, ends: str) -> None:
    """Else the next start would judge, and claim, with the box of the payload before."""
    c = loop.controller
    assert c.offer_box(loop.truth_box(0.1, 1), loop.t) is None
    loop.run(0.4)
    assert c.reset_box() is None
    loop.run(0.01)
    assert c.blending
    c.release("deactivated") if ends == "release" else c.fault("emergency stop")
    assert c.start(loop.t + PERIOD, loop.arm.q, loop.arm.qd) == []
    assert c.box.identity == "1:0"
    assert not c.blending
    assert np.array_equal(c.box.lower, loop.model.arm_prior.lower)


@pytest.mark.parametrize("bad", ["nan", "jump", "fast", "clock", "gap"])
def test_bad_measurements_brake_along_the_tail(loop: Loop, bad: str) -> None:
    c = loop.controller
    loop.offer()
    loop.run(0.3)
    assert c.state is ControllerState.TRACKING
    q, qd, shift = loop.arm.q, loop.arm.qd, np.eye(loop.model.n)[2]
    if bad == "nan":
        assert c.step(loop.t + PERIOD, q * np.nan, qd).torque is None
    elif bad == "jump":
        assert c.step(loop.t + PERIOD, q + 0.01 * shift, qd).torque is None
        assert "joint_3 jumped by 0.01" in c.reason
    elif bad == "fast":
        assert c.step(loop.t + PERIOD, q, qd + 9.0 * shift).torque is None
        assert "velocity of joint_3 is 9" in c.reason
    elif bad == "clock":
        assert c.step(loop.t - 1.0, q, qd).torque is None
        assert c.state is ControllerState.TRACKING  # it may have been overtaken on its way
        assert c.step(loop.t - 0.999, q, qd).torque is None
        assert c.state is ControllerState.FAULT
        assert "went back by" in c.reason
    else:
        c.step(loop.t + 0.2, loop.arm.q, loop.arm.qd)
    assert c.state in (ControllerState.BRAKING, ControllerState.FAULT)


def test_broken_assumption_is_a_fault_and_stops_commands(loop: Loop) -> None:
    c = loop.controller
    out = c.step(loop.t + PERIOD, loop.arm.q, loop.arm.qd + 1.0)
    assert out.torque is None
    assert c.state is ControllerState.FAULT
    assert "assumption" in c.reason
    assert c.start(loop.t + 2 * PERIOD, loop.arm.q, loop.arm.qd) == []


def test_stop_brakes_and_takes_no_further_plan(loop: Loop) -> None:
    c = loop.controller
    loop.offer()
    loop.run(0.2)
    c.stop()
    assert c.state is ControllerState.BRAKING
    loop.run(1.0)
    assert c.state is ControllerState.HOLDING
    # Nor later: who stopped the arm says when it may move again.
    again = plan_from(rest(loop.held()), loop.t + 0.1)
    reason = c.offer_plan(again, loop.t)
    assert "stopped" in reason
    assert "stopped" in c.reason
    c.go_on()
    assert c.reason == "at rest"
    assert c.offer_plan(again, loop.t) is None
    c.stop()  # before it begins
    loop.run(0.3)
    assert c.state is ControllerState.HOLDING
    c.release("deactivated")
    assert c.start(loop.t + PERIOD, loop.arm.q, loop.arm.qd) == []
    assert not c.stopped


def test_torque_beyond_the_limit_is_clipped_counted_and_braked(model: RobotModel, gains: ControllerGains) -> None:
    """Cannot happen under a certificate; a weaker declared limit makes it happen."""
    weak = replace(model, limits=replace(model.limits, torque=np.full(model.n, 20.0)))
    loop = Loop(weak, gains)
    loop.start()
    loop.run(0.01)
    assert loop.controller.counts["saturation"] > 0
    assert np.max(np.abs(loop.torques)) <= 20.0
