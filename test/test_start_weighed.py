"""Real time: the payload is weighed while the drives hold the arm, and control begins with what that shows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from rigid_arm import RigidArm
from test_activation import filled
from test_control import draw
from test_controller import PERIOD
from test_planner import at_rest

from safe_sysid.control.checks.activation import Judgement
from safe_sysid.control.checks.start import signs_confirmed
from safe_sysid.control.controller import Controller
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.tube import tubes_of
from safe_sysid.dynamics import dynamics_of
from safe_sysid.planning.certification.certificate import start_check, start_tube
from safe_sysid.planning.planner import Planner, PlanStatus
from safe_sysid.planning.task.task import TaskPlanner
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import starts

#: A pose at which the prior asks for more torque than joint_2 has (docs/use/arms.md, "Poses to start from").
POSE = np.array([0.504743, -0.905747, 1.080676, -1.5502, 2.777879, -0.566429, -2.478746])
#: Payloads, and the widest tube in which each may be held there once it was weighed.
HEAVY = [("4lb", 0), ("8lb", 2)]
OPEN = Scene("open")


@pytest.fixture(scope="module")
def arm() -> RobotModel:
    return load_robot("kinova_gen3")


@pytest.fixture(scope="module")
def bound(arm: RobotModel) -> ControllerGains:
    return design_gains(arm)


def weighed(model: RobotModel, payload: str = "4lb", q: np.ndarray = POSE) -> tuple[np.ndarray, ParameterBox]:
    theta = draw(model, 3, payload)
    return theta, starts.weigh(model, q, theta, np.random.default_rng(3))


@pytest.mark.parametrize(("payload", "tube"), HEAVY)
def test_a_pose_that_the_prior_refuses_is_held_and_left(
    arm: RobotModel, bound: ControllerGains, payload: str, tube: int
) -> None:
    """The true arm at a corner, efforts wrong by all that is declared: held and moved inside of all that is claimed."""
    theta, box = weighed(arm, payload)
    assert start_tube(arm, arm.arm_prior, OPEN, bound, POSE)[0]
    assert start_tube(arm, box, OPEN, bound, POSE) == ([], tube)
    controller, real = Controller(arm, bound), RigidArm(arm, theta, POSE, substeps=1)
    assert controller.offer_box(box, 0.0) is None
    assert controller.box is box
    zero = np.zeros(arm.n)
    gravity = dynamics_of(arm.kinematics).torque_regressor(POSE, zero, zero) @ theta
    assert controller.start(0.0, POSE, zero, 1.02 * gravity, tube=tube) == []
    assert controller.tube == tube
    answer = Planner(arm, OPEN, bound).plan_next(
        at_rest(POSE), 0.2, box, 0, goal=POSE - 0.1 * np.sign(POSE), cost="goal"
    )
    assert answer.status is PlanStatus.PLANNED
    assert answer.plan.tube >= tube
    limit, t = arm.limits.torque, 0.0
    for k in range(900):
        t = (k + 1) * PERIOD
        out = controller.step(t, real.q, real.qd)
        if k == 100:
            assert controller.offer_plan(answer.plan, t) is None
        assert controller.proved, controller.bound_status.text
        assert out.energy <= controller.claimed.V_max
        assert np.all(np.abs(out.torque) <= limit)
        assert controller.uncertainty <= controller.claimed.assumptions.uncertainty
        e, _, r = controller.tracking_error
        assert np.all(np.abs(e) <= controller.claimed.e_bound)
        assert np.all(np.abs(r) <= controller.claimed.r_bound)
        if controller.plan is None:
            assert controller.tube == tube
        real.step(out.torque, PERIOD)
    assert controller.plan is not None
    assert controller.tube == answer.plan.tube


def test_the_tube_that_is_claimed_from_the_start_is_the_one_that_is_judged(
    arm: RobotModel, bound: ControllerGains
) -> None:
    """More V than a narrow tube begins with, and less than the widest: a start in the narrow one is refused."""
    zero = np.zeros(arm.n)
    _, box = weighed(arm)
    narrow = tubes_of(arm, bound)[3]
    qd = zero.copy()
    qd[0] = np.sqrt(2.0 * np.sqrt(narrow.V_max * bound.V_start) / bound.assumptions.inertia_upper[0])
    for tube, refused in ((0, False), (3, True)):
        controller = Controller(arm, bound)
        assert controller.offer_box(box, 0.0) is None
        reasons = controller.start(0.0, POSE, qd, tube=tube)
        assert any("not at rest" in reason for reason in reasons) == refused
        assert controller.tube == (0 if refused else tube)


def test_a_box_that_grows_ends_the_narrow_tube_and_not_the_widest(arm: RobotModel, bound: ControllerGains) -> None:
    payload, tube = HEAVY[1]
    theta, box = weighed(arm, payload)
    controller, real = Controller(arm, bound), RigidArm(arm, theta, POSE, substeps=1)
    assert controller.offer_box(box, 0.0) is None
    assert controller.start(0.0, POSE, np.zeros(arm.n), tube=tube) == []
    assert controller.reset_box() is None
    for k in range(600):
        out = controller.step((k + 1) * PERIOD, real.q, real.qd)
        if out.torque is None:
            break
        real.step(out.torque, PERIOD)
    assert controller.tube == 0


def test_while_nothing_is_commanded_a_box_is_in_force_at_once(arm: RobotModel, bound: ControllerGains) -> None:
    _, box = weighed(arm)
    controller = Controller(arm, bound)
    wider = ParameterBox(arm.arm_prior.lower - 1.0, arm.arm_prior.upper, 0, 1)
    assert "inside" in controller.offer_box(wider, 0.0)
    assert controller.box is arm.arm_prior
    assert controller.offer_box(box, 0.0) is None
    assert (controller.box, controller.blending) == (box, False)
    # A new epoch is the prior again, whatever was weighed.
    assert controller.reset_box() is None
    assert controller.offer_box(box, 0.0)
    assert np.array_equal(controller.box.upper, arm.arm_prior.upper)


def test_a_judgement_is_of_a_box(arm: RobotModel) -> None:
    _, box = weighed(arm)
    judged = Judgement(POSE, (), box, 1)
    assert judged.why_not(arm, POSE, box) == []
    assert "judged with" in judged.why_not(arm, POSE, arm.arm_prior)[0], "bounds were reset meanwhile"
    asked: list[ParameterBox] = []

    def check(q: np.ndarray, box: ParameterBox) -> tuple[list[str], int]:
        asked.append(box)
        return [], 2

    checks = filled(arm, start_check=check)
    checks.box = box
    found = checks.judge()
    assert (found.box, found.tube, asked) == (box, 2, [box])


def test_efforts_that_the_weighed_box_does_not_explain_are_refused(arm: RobotModel) -> None:
    """Another payload than the one that was weighed: no bounds of that one may be started with."""
    home = np.array(arm.settings.home)
    _, box = weighed(arm, q=home)
    checks = filled(arm, effort=lambda effort: 0.6 * effort)
    assert not any("for the parameters in box" in reason for reason in checks.reasons())
    checks.box = box
    reasons = checks.reasons()
    assert any("for the parameters in box" in reason for reason in reasons)
    assert any("another payload than that of these bounds" in reason for reason in reasons)


def test_the_planner_starts_in_the_tube_in_which_the_arm_may_rest(arm: RobotModel, bound: ControllerGains) -> None:
    payload, tube = HEAVY[1]
    _, box = weighed(arm, payload)
    assert start_check(arm, box, OPEN, bound, POSE), "not in the widest"
    planner = Planner(arm, OPEN, bound)
    found, reasons = planner.resting_at(POSE, box)
    assert (found.tube, reasons) == (tube, ())
    assert planner.resting_at(POSE, arm.arm_prior)[1], "and with the prior in none"
    task = TaskPlanner(planner, [POSE - 0.05 * np.sign(POSE)])
    step = task.next(at_rest(POSE), 0.0, box, 0)
    assert step.plan is not None, step.reasons
    assert step.plan.tube >= tube


def test_signs_are_confirmed_by_the_prior_alone() -> None:
    """A box that comes from reversed efforts excludes their opposite: it would confirm what is wrong."""
    model = load_robot("three_joint", **{"driver.command_timeout_s": 0.02})
    pose, zero = np.array([0.428, -1.544, -0.14]), np.zeros(3)
    theta = model.arm_prior.mid
    effort = dynamics_of(model.kinematics).torque_regressor(pose, zero, zero) @ theta
    checks = filled(model, bound=design_gains(model), q=lambda _: pose, effort=lambda _: effort)
    assert any("all of the opposite sign" in reason for reason in checks.reasons())
    payload = theta[model.layout.payload]
    checks.box = model.arm_prior.with_payload(payload, payload, 1)
    assert signs_confirmed(model, checks.box, pose, zero, effort).any(), "the box would confirm"
    assert any("all of the opposite sign" in reason for reason in checks.reasons())


def test_what_was_being_blended_in_is_in_force_when_control_ends(arm: RobotModel, bound: ControllerGains) -> None:
    home = np.array(arm.settings.home)
    _, box = weighed(arm, q=home)
    for end in (Controller.emergency_stop, lambda controller: controller.release("test")):
        controller = Controller(arm, bound)
        assert controller.start(0.0, home, np.zeros(arm.n)) == []
        assert controller.offer_box(box, 0.0) is None
        controller.step(PERIOD, home, np.zeros(arm.n))
        assert (controller.blending, controller.box.identity) == (True, "0:0")
        end(controller)
        assert (controller.blending, controller.box) == (False, box)
        assert np.array_equal(controller._blend.upper, box.upper)


def test_a_narrow_tube_is_not_left_during_the_ramp_that_was_chosen_for_it(
    arm: RobotModel, bound: ControllerGains
) -> None:
    payload, tube = HEAVY[1]
    theta, box = weighed(arm, payload)
    zero = np.zeros(arm.n)
    gravity = dynamics_of(arm.kinematics).torque_regressor(POSE, zero, zero) @ theta
    controller = Controller(arm, bound)
    assert controller.offer_box(box, 0.0) is None
    assert "has to be judged again" in controller.start(0.0, POSE, zero, gravity, tube=5)[0], "S is above tube 5's"
    assert (controller.state.commands, controller.tube) == (False, 0)
    assert controller.start(0.0, POSE, zero, gravity, tube=tube) == []
    assert controller.taking_over
    assert "being taken over" in controller.reset_box()
    for k in range(60):
        controller.step((k + 1) * PERIOD, POSE, zero)
    assert controller.reset_box() is None
