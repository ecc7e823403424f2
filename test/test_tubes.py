"""Narrower tubes of the same law ("Narrower tubes" in docs/understand/guarantees.md): chosen, begun, kept, left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_controller import PERIOD, Loop, rest
from test_plan_file import CELLS, forged, outcome
from test_planner import at_rest
from test_planning_task import known
from test_report_evaluation import clean_logs, counts, rig

from safe_sysid.apps.judge.evaluation import evaluate
from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.gains.power_loss import ClosedLoop
from safe_sysid.control.laws import make_law
from safe_sysid.control.recent_commands import RecentCommands
from safe_sysid.control.tube import tubes_of
from safe_sysid.errors import PlanError
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import plan_message, read_plan
from safe_sysid.planning.certification.certificate import verify_plan
from safe_sysid.planning.plan_files.plan_check import PlanChecker
from safe_sysid.planning.plan_files.plan_file import PlanFileError, write_plan
from safe_sysid.planning.plan_files.plan_file import read_plan as read_plan_file
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.solver_process.jobs import PlanRequest, _asked_for
from safe_sysid.planning.tube_choice import narrowest_tube
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.trajectories import Plan, QuinticTrajectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import tracking

BLEND_S = 0.3
Tubes = tuple[ControllerGains, ...]


def hold(q: np.ndarray, start: float, tube: int, identity: str = "0:1", sequence: int = 0) -> Plan:
    """To stay, 3 s; a successor may take over after one."""
    trajectory = QuinticTrajectory.to_rest(rest(q), q, 3.0)
    return Plan(trajectory, start, 1.0, identity, sequence, np.zeros(q.size), tube)


@pytest.fixture(scope="module")
def tubes(model: RobotModel, gains: ControllerGains) -> Tubes:
    return tubes_of(model, gains)


@pytest.fixture
def loop(model: RobotModel, gains: ControllerGains) -> Loop:
    """An arm that is held, its box small."""
    found = Loop(model, gains)
    found.start()
    assert found.controller.offer_box(found.truth_box(0.01, 1), 0.0) is None
    found.run(BLEND_S + 0.05)
    assert found.controller.box.identity == "0:1"
    return found


def offered(loop: Loop, tube: int) -> Plan:
    plan = hold(loop.held(), loop.t + 0.01, tube)
    assert loop.controller.offer_plan(plan, loop.t) is None
    return plan


def between(tubes: Tubes) -> np.ndarray:
    """(n,) r, rad/s, with more V than the narrowest tube begins with, and less than the widest holds."""
    gains, narrow = tubes[0], tubes[-1]
    r = np.zeros(gains.K_r.size)
    r[0] = np.sqrt(2.0 * np.sqrt(narrow.V_max * gains.V_start) / gains.assumptions.inertia_upper[0])
    return r


# -- what is proved ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "lockstep"), [("kinova_gen3", False), ("three_joint", True)])
def test_it_is_one_law_with_bounds_that_fall(name: str, lockstep: bool) -> None:
    model = load_robot(name)
    gains = design_gains(model, lockstep)
    tubes = tubes_of(model, gains)
    assert tubes[0] is gains
    assert len(tubes) > 3
    for wide, tube in pairwise(tubes):
        for number in ("kappa", "robust_gain", "lead", "own_damping", "box"):
            assert getattr(tube, number) is getattr(gains, number) or getattr(tube, number) == getattr(gains, number)
        for array in ("K_r", "K_d", "inertia_lower"):
            assert np.array_equal(getattr(tube, array), getattr(gains, array))
        assert replace(tube.assumptions, uncertainty=0.0).hold_max == gains.assumptions.hold_max
        assert tube.assumptions.uncertainty < wide.assumptions.uncertainty
        assert tube.V_max < wide.V_start
        assert np.all(tube.e_bound < wide.e_bound)
        loop = ClosedLoop(
            model.kinematics, gains.box, tube.assumptions, gains.inertia_lower, gains.K_r, gains.K_d, gains.kappa,
            model.friction_transition_velocity, gains.own_damping,
        )  # fmt: skip
        # Dissipated at V_max, and at all that is larger up to the widest.
        for V in np.linspace(tube.V_max, gains.V_max, 20):
            assert loop.power_loss(float(np.sqrt(2.0 * V)), gains.robust_gain, gains.lead).power <= 2.0 * loop.kappa * V
        common = min(len(tube.late_rates), len(wide.late_rates))
        assert np.all(tube.late_rates[:common] < wide.late_rates[:common])


def test_laws_that_prove_nothing_have_one_tube() -> None:
    model = load_robot("kinova_gen3", **{"controller.law": "armour"})
    gains = design_gains(model, lockstep=True)
    assert tubes_of(model, gains) == (gains,)


@pytest.mark.parametrize("number", range(4))
def test_closed_loops_at_the_edge_of_what_is_assumed_stay_in_the_narrow_tube(number: int) -> None:
    """Pinocchio's arm, the box as large as the tube's S allows, some starts on V_start."""
    share = tracking.run(number, 7, duration=0.1, tube=3)["share"]
    assert 0.5 < share["S"] <= 1.0
    assert max(share.values()) <= 1.0 + 1e-6


def test_a_law_without_its_robust_term_leaves_it() -> None:
    broken = [tracking.run(number, 7, "robust", duration=0.1, tube=3)["share"] for number in range(4)]
    assert max(share["lemma"] for share in broken) > 1.5


# -- the controller begins, keeps and leaves it -----------------------------------------------------------------------


def test_a_quiet_arm_begins_a_narrow_plan_and_keeps_its_tube(loop: Loop, tubes: Tubes) -> None:
    controller, narrow = loop.controller, len(tubes) - 1
    assert controller.tube == 0
    offered(loop, narrow)
    loop.run(0.02)
    assert controller.state is ControllerState.TRACKING
    assert (controller.tube, controller.claimed, controller.proved) == (narrow, tubes[narrow], True)
    assert f"{narrow}, errors below" in str(controller.status["tube"])
    # The next one in motion goes on with it, and so does the rest after it.
    following = hold(loop.held(), controller.plan.hand_over_time, narrow, sequence=1)
    assert controller.offer_plan(following, loop.t) is None
    loop.run(4.5)
    assert controller.state is ControllerState.HOLDING
    assert (controller.tube, controller.counts["plan refused"]) == (narrow, 0)
    # A wider one needs no leave.
    offered(loop, 1)
    loop.run(0.02)
    assert (controller.state, controller.tube) == (ControllerState.TRACKING, 1)


@pytest.mark.parametrize(
    ("what", "expected"), [("fast", "V may have been"), ("large box", "S was above"), ("begun", "only begun")]
)
def test_a_narrow_plan_is_not_begun_where_v_or_s_may_have_been_larger(
    model: RobotModel, tubes: Tubes, what: str, expected: str
) -> None:
    loop = Loop(model, tubes[0])
    loop.start()
    controller, identity = loop.controller, "0:0"
    if what == "fast":
        controller.offer_box(loop.truth_box(0.01, 1), 0.0)
        loop.run(BLEND_S + 0.05)
        identity = "0:1"
    elif what == "large box":
        loop.run(0.1)
    assert controller.offer_plan(hold(loop.held(), loop.t + 0.002, len(tubes) - 1, identity), loop.t) is None
    if what == "fast":
        loop.arm.qd = loop.arm.qd - between(tubes)
    loop.run(0.004)
    assert controller.state is ControllerState.HOLDING
    assert controller.counts["plan refused"] == 1
    assert expected in controller.reason
    assert (controller.tube, controller.proved) == (0, True)
    # A plan of the widest tube begins all the same.
    assert controller.offer_plan(hold(loop.held(), loop.t + 0.002, 0, identity), loop.t) is None
    loop.run(0.004)
    assert (controller.state, controller.proved) == (ControllerState.TRACKING, True)


def test_what_counts_is_every_command_that_is_still_in_force(model: RobotModel) -> None:
    """Each condition alone: V, S, age, e, and how far back; in real time, one command in 64 that was late."""
    gains = design_gains(model)
    tubes, h, still = tubes_of(model, gains), gains.assumptions.hold_max, np.zeros(model.n)
    tube, large = tubes[-1], between(tubes)

    def why(bad: int = -1, late: Any = None, now: float = 0.064, usual: Any = still, **row: Any) -> str:
        """Of 64 commands with the usual r, one of them bad, and the ages to which some came to be in force."""
        recent = RecentCommands(gains, np.full(model.n, 1e-5))
        for k in range(64):
            e, r, S = (row.get(x, y) if k == bad else y for x, y in (("e", still), ("r", usual), ("S", 0.1)))
            recent.note(1e-3 * k, e, r, S, 1e-3)
            recent.grew_old((late or {}).get(k, 0.0))
        return recent.why_not(tube, now)

    edge = tube.r_bound / tube.K_r * np.eye(model.n)[0]
    assert why() == ""
    for k in (60, 61, 62, 63):  # 3 h of 1.5 ms back from the last one
        assert "V may have been" in why(k, r=large)
        assert "V may have been" in why(k, e=1.01 * edge)
        assert why(k, e=0.99 * edge, r=still) == ""
        for bad in (1.01 * tube.assumptions.uncertainty, np.nan):
            assert "S was above" in why(k, S=bad)
        assert "not the law's own" in why(k, S=np.inf)
    assert why(58, r=large) == why(58, e=1.01 * edge) == why(58, S=np.inf) == ""
    # A late one lets V grow longer, by two holds more than it was late, and more commands count.
    rate = gains.growth_rate(2.0 * h, tube.assumptions.uncertainty)
    for share, expected in ((1.02, ""), (0.98, "(a command was 3 ms old)")):
        size = np.sqrt(2.0 * tube.V_start) - share * 4.0 * h * rate
        r = size / np.sqrt(gains.assumptions.inertia_upper[0]) * np.eye(model.n)[0]
        found = why(late={62: 2.0 * h}, usual=r)
        assert (expected in found) if expected else found == ""
    assert why(late={62: 1.5 * h}) == ""
    assert "V may have been" in why(late={62: 12 * h})
    assert "V may have been" in why(now=0.063 + 12 * h)
    assert "only begun" in why(late={62: 25 * h})
    # One that was late long ago costs nothing; one that is in the window widens it, and what it then holds counts.
    assert why(late={58: 12 * h}) == ""
    assert "not the law's own" in why(56, late={62: 1.5 * h, 58: 1.7 * h}, S=np.inf)
    # Measurements that come unevenly: what was in force until the command before the last acted counts.
    recent, stamps = RecentCommands(gains, np.zeros(model.n)), [1e-3 * k for k in range(60)]
    stamps += [stamps[-1] + x for x in (1.05e-3, 2.1e-3, 3.15e-3, 3.16e-3)]
    for before, stamp in zip([-1e-3, *stamps], stamps, strict=False):
        recent.note(stamp, still, still, np.inf if stamp == stamps[-5] else 0.1, stamp - before)
    assert "not the law's own" in recent.why_not(tube, stamps[-1] + 1e-5)
    assert "only begun" in RecentCommands(gains, np.full(model.n, 1e-5)).why_not(tube, 0.0)


def test_in_motion_a_plan_that_may_not_begin_is_braked_for(loop: Loop, tubes: Tubes) -> None:
    controller = loop.controller
    offered(loop, 0)
    loop.run(0.9)
    following = hold(loop.held(), controller.plan.hand_over_time, len(tubes) - 1, sequence=1)
    assert controller.offer_plan(following, loop.t) is None
    while loop.t < following.start_time - 2.5 * PERIOD:
        loop.run(PERIOD)
    loop.arm.qd = loop.arm.qd - between(tubes)
    loop.run(0.004)
    assert controller.state is ControllerState.BRAKING
    assert "V may have been" in controller.reason
    assert controller.tube == 0


def test_late_commands_are_judged_by_the_tube_that_is_claimed(loop: Loop, tubes: Tubes) -> None:
    """A gap that the widest tube's numbers cover, and the narrow one's do not, or the other way round."""
    controller = loop.controller
    offered(loop, len(tubes) - 1)
    loop.run(0.02)
    r = np.abs(controller.tracking_error[2])
    gaps = [tube.longest_covered_gap(r, controller.uncertainty) for tube in (tubes[0], tubes[-1])]
    assert abs(gaps[0] - gaps[1]) > 2e-4
    for gap, covered in ((0.98 * gaps[1], True), (1.02 * gaps[1], False)):
        assert controller.followed.covers(loop.t + gap) is covered


def test_bounds_that_are_reset_end_the_narrow_tube_and_not_the_widest(loop: Loop, tubes: Tubes) -> None:
    controller = loop.controller
    offered(loop, 2)
    loop.run(3.2)
    assert (controller.state, controller.tube) == (ControllerState.HOLDING, 2)
    assert controller.reset_box() is None
    most, seen = tubes[2].assumptions.uncertainty, []
    for _ in range(400):
        loop.run(PERIOD)
        seen.append((controller.uncertainty <= most, controller.tube))
        assert controller.proved
    assert set(seen) == {(True, 2), (False, 0)}
    assert controller.counts["S above assumed"] == 0


@pytest.mark.parametrize("ends", ["fault", "release", "epoch"])
def test_what_ends_a_run_or_an_epoch_ends_the_narrow_tube(loop: Loop, ends: str) -> None:
    controller = loop.controller
    offered(loop, 2)
    loop.run(3.2)
    assert controller.tube == 2
    if ends == "epoch":  # of a prior that is no wider
        controller._take(replace(controller.box, epoch=1, seq=0))
    else:
        getattr(controller, ends)("test")
    assert controller.tube == 0
    assert "tube" not in controller.status


def test_a_claim_that_was_interrupted_begins_again_where_v_was_seen() -> None:
    """S above the assumed while a pose is held: no claim, and no plan, before all commands that count had less."""
    packaged = load_robot("three_joint")
    q, still = np.array(packaged.settings.home), np.zeros(3)
    controller = Controller(packaged, design_gains(packaged, lockstep=True))
    assert controller.start(0.0, q, still) == []
    controller.step(PERIOD, q, still)
    most = 0.97 * controller.uncertainty
    model = load_robot("three_joint", **{"controller.uncertainty": most})
    prior, controller = model.arm_prior, Controller(model, design_gains(model, lockstep=True))
    assert controller.start(0.0, q, still) == []
    half = ParameterBox(prior.mid - 0.5 * prior.rad, prior.mid + 0.5 * prior.rad, 0, 1)
    assert controller.offer_box(half, 0.0) is None
    claimed, above, refused = [], [], []
    for k in range(1, 400):
        t = k * PERIOD
        if controller.pending_plan is None and controller.state is ControllerState.HOLDING:
            controller.offer_plan(hold(q, t + 0.5 * PERIOD, 0, "0:0"), t)
        controller.step(t, q, still)
        claimed.append(controller.proved)
        above.append(controller.uncertainty > most)
        refused.append("S was above" in controller.reason)
        if above[-2:] == [True, False]:
            assert "V was not seen to be small again" in controller.bound_status.why_not
    falls = above.index(False)
    assert not any(above[falls:])
    assert claimed == [k >= falls + 4 for k in range(len(claimed))]
    assert any(refused[:falls])
    assert controller.state is ControllerState.TRACKING


def test_a_plan_is_not_begun_outside_its_tube_though_nothing_is_claimed(loop: Loop, tubes: Tubes) -> None:
    loop.controller.note_late(False, "late")
    for tube, expected in ((len(tubes) - 1, ControllerState.HOLDING), (0, ControllerState.TRACKING)):
        assert loop.controller.offer_plan(hold(loop.held(), loop.t + 0.002, tube), loop.t) is None
        loop.arm.qd = -between(tubes)
        loop.run(0.004)
        assert loop.controller.state is expected
        assert not loop.controller.proved


def test_where_nothing_is_claimed_nothing_is_asked(model: RobotModel, gains: ControllerGains) -> None:
    """A claim that is lost, or a law that proves nothing: the plan begins, and nothing is proved."""
    for lost in (True, False):
        loop = Loop(model, gains)
        if not lost:
            loop.controller = type(loop.controller)(model, gains, law=make_law("computed_torque", model, gains))
        loop.start()
        if lost:
            loop.run(0.01)
            loop.controller.note_late(False, "late")
        assert loop.controller.offer_plan(hold(loop.held(), loop.t + 0.002, 2, "0:0"), loop.t) is None
        loop.run(0.004)
        assert (loop.controller.state, loop.controller.proved) == (ControllerState.TRACKING, False)


def test_a_start_begins_with_the_widest_and_an_unknown_tube_is_refused(loop: Loop, tubes: Tubes) -> None:
    controller, count = loop.controller, len(tubes)
    reason = controller.offer_plan(hold(loop.held(), loop.t + 0.1, count), loop.t)
    assert reason == f"plan is certified for tube {count}: expected at most {count - 1}, this controller's narrowest"
    offered(loop, 2)
    loop.run(0.02)
    controller.fault("test")
    loop.arm.qd = np.zeros(loop.model.n)
    loop.start()
    assert controller.tube == 0


# -- planner, files, messages, judge ----------------------------------------------------------------------------------


def test_the_planner_takes_the_narrowest_tube_that_the_box_allows(model: RobotModel, tubes: Tubes) -> None:
    planner = Planner(model, Scene("open"), tubes[0])
    found = [narrowest_tube(model, tubes, box) for box in (model.arm_prior, known(model, 0.3), known(model, 0.02))]
    assert found[0] == 0 < found[1] < found[2]
    box, home = known(model, 0.02), np.array(model.settings.home)
    answer = planner.plan_next(at_rest(home), 0.0, box, 0, goal=home + 0.05, cost="goal")
    assert answer.plan.tube == answer.certificate.tube == found[2]
    assert f"tube {found[2]}]" in answer.certificate.summary()
    # Where a plan of it was not begun, the widest.
    wide = planner.in_widest_tube()
    assert wide.with_tube(box) is wide
    assert planner.with_tube(box).tube == found[2]
    # In motion, that of the plan under way.
    assert planner.with_tube(box, replace(answer.plan, tube=1)).tube == 1
    # Its certificate is no other tube's.
    wide = planner.certificate(replace(answer.plan, tube=0), box)
    for family in ("position", "torque", "clearance", "self_clearance"):
        assert answer.certificate.families[family].value >= wide.families[family].value
    assert answer.certificate.families["torque"].value > wide.families["torque"].value
    with pytest.raises(PlanError, match="expected at most"):
        planner.certificate(replace(answer.plan, tube=len(tubes)), box)


def test_the_widest_tube_is_asked_for_only_where_the_arm_may_rest_in_it(
    model: RobotModel, gains: ControllerGains
) -> None:
    """A task would be refused for good at a pose that only a narrower tube allows."""
    planner, box, home = Planner(model, Scene("open"), gains), known(model, 0.02), np.array(model.settings.home)
    away = np.where(np.arange(model.n) == 1, model.limits.position_upper[1] + 0.1, home)
    for widest, goals, tubes in ((True, (), 1), (True, (home,), 1), (True, (away,), 2), (False, (), 2)):
        request = PlanRequest(at_rest(home), 0.0, box, 0, widest=widest)
        assert min(len(_asked_for(planner, request, *goals).tubes), 2) == tubes


@pytest.fixture(scope="module")
def narrow_file(tmp_path_factory: pytest.TempPathFactory, model: RobotModel, gains: ControllerGains) -> Path:
    scene, box, home = load_scene("open"), known(model, 0.3), np.array(model.settings.home)
    plan = replace(hold(home, 0.0, 1, box.identity), t_plan=model.settings.planner.t_p)
    certificate = verify_plan(plan, model, box, scene, gains, intervals=CELLS)
    assert certificate.ok, certificate.status
    path = tmp_path_factory.mktemp("plans") / "narrow.json"
    with pytest.raises(PlanFileError, match="tube: plan 2, certificate 1"):
        write_plan(path, replace(plan, tube=2), certificate, model, box, scene, gains, intervals=CELLS)
    return write_plan(path, plan, certificate, model, box, scene, gains, intervals=CELLS)


@pytest.mark.parametrize(
    ("tube", "expected"),
    [
        (1, ""),
        (None, "claimed, recomputed is"),
        (3, "tracking"),
        (900, "expected at most"),
        (0, "expected a number >= 1"),
        (-1, "expected a number >= 1"),
    ],
)
def test_a_file_may_not_claim_another_tube(
    narrow_file: Path, tmp_path: Path, model: RobotModel, tube: int | None, expected: str
) -> None:
    """Neither a wider one, whose margins are smaller, nor a narrower one, whose S the box does not keep."""

    def change(content: dict) -> None:
        content["plan"]["tube"] = tube

    assert read_plan_file(narrow_file).plan.tube == 1
    path = narrow_file if tube == 1 else forged(narrow_file, tmp_path / "forged.json", change)
    checker = PlanChecker(model, load_scene("open"), lockstep=True)
    found = outcome(checker, path)
    assert (expected in found) if expected else found == ""
    if tube == 1:
        assumed = checker.check(path).assumed[0]
        assert "begins plans of tube 1 only where it has seen V and S small enough for it" in assumed


def test_a_message_names_the_tube(model: RobotModel) -> None:
    plan, digest = hold(np.zeros(model.n), 0.0, 3), "0" * 32 + ",scene=" + "0" * 16
    for text in ("", digest):
        message = plan_message(plan, model.joint_names, 10**9, text)
        answer = read_plan(message, model.joint_names)
        assert (answer.tube, answer.digest, answer.box_identity) == (3, text, "0:1")
        assert answer.plan(0.0, 1.0, 0).tube == 3
        plain = read_plan(plan_message(replace(plan, tube=0), model.joint_names, 10**9, text), model.joint_names)
        assert (plain.tube, plain.digest) == (0, text)
    for bad in ("tube=0", "tube=-1", "tube=1000", "tube=2 tube=2", "tube=2 ", "Tube=2"):
        message.header.frame_id = f"0:1 {bad}"
        with pytest.raises(MessageRefusedError, match="bad digest"):
            read_plan(message, model.joint_names)


def test_a_run_is_judged_by_the_tube_that_was_claimed() -> None:
    r, logs = rig(), clean_logs()
    tubes = tubes_of(r.model, r.gains)
    controller, plant = logs.controller, logs.plant
    assert controller is not None
    off = np.zeros_like(controller.q_d)
    off[50, 0] = 0.5 * (tubes[0].e_bound + tubes[-1].e_bound)[0]  # inside the widest, outside the narrowest
    moved = replace(logs, plant=replace(plant, q=plant.q - off), controller=controller)

    def judge(tube: Callable[[int], int]) -> dict[str, int]:
        claimed = np.array([tube(k) for k in range(controller.time.size)])
        return counts(evaluate(replace(moved, controller=replace(controller, tube=claimed)), r.model, r.gains, None))

    assert "tracking" not in counts(evaluate(moved, r.model, r.gains, None))
    assert "tracking" not in judge(lambda k: 0 if k == 50 else len(tubes) - 1)
    assert judge(lambda k: len(tubes) - 1)["tracking"] == 1
