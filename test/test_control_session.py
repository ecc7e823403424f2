"""Control session, without ROS: which measurement is answered when, in lock-step and in real time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_control import START

from safe_sysid.control.checks.activation import Judgement
from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.gains import ControllerGains
from safe_sysid.nodes.common.messages.contents import (
    NOT_AWAITED,
    BoundsAnswer,
    JointSample,
    MessageRefusedError,
    PlanAnswer,
)
from safe_sysid.nodes.common.messages.time_base import TimeBase
from safe_sysid.nodes.controller.session import ControlSession
from safe_sysid.nodes.controller.tick_log import TorqueTickLog
from safe_sysid.nodes.controller.timing import ControlTiming, RealTimeControlTiming
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories import QuinticTrajectory

MS = 1_000_000
S = 1000 * MS
#: First hand-over, time between two, batch, and from a batch's end to its answer, ns.
TIMES = (20 * MS, 500 * MS, 50 * MS, 10 * MS)
AGE = 0.05


class Checks:
    """In place of the activation checks: says what it is told to say."""

    box: ParameterBox | None = None

    def __init__(self) -> None:
        self.said, self.judged = Judgement(START, ()), 0

    def snapshot(self) -> Checks:
        return self

    def judge(self) -> Judgement:
        self.judged += 1
        return self.said

    def add(self, *_: Any) -> None:
        pass

    forget = add


@pytest.fixture
def core(model: RobotModel, gains: ControllerGains) -> Controller:
    return Controller(model, gains)


class Node:
    """What a node does around a session; ``now`` is both of its clocks, s."""

    simulated = False

    def __init__(self, core: Controller, lockstep: bool, await_plans: bool = True, await_bounds: bool = False) -> None:
        self.active, self.now = False, 0.0 if lockstep else 1000.0
        self.commands: list[tuple[int, bool]] = []
        self.references: list[int] = []
        self.states: list[str] = []
        self.told: list[str] = []
        self.repeated = self.tries = 0
        self.checks, self.core = Checks(), core
        timing: Any = RealTimeControlTiming(TIMES, AGE)
        if lockstep:
            timing = ControlTiming(TIMES, await_plans, await_bounds)
        self.session = ControlSession(
            self.core, self.checks, timing, self, TimeBase(lockstep), TorqueTickLog(self.core, lockstep), 10, 5.0  # type: ignore[arg-type]
        )  # fmt: skip

    def monotonic(self) -> float:
        return self.now

    def now_ns(self) -> int:
        return round(self.now * S)

    def publish_command(self, stamp_ns: int, torque: np.ndarray | None) -> None:
        self.commands.append((stamp_ns, torque is not None))

    def repeat_command(self) -> None:
        self.repeated += 1

    def decline(self, *_: Any) -> None:
        """Nobody asks what these tell."""

    publish_box = decline

    def publish_reference(self, stamp_ns: int, *_: Any) -> None:
        self.references.append(stamp_ns)

    def retry_autostart(self) -> None:
        self.tries += 1

    def refuse(self, source: str, reason: str, text: str) -> None:
        self.told.append(f"{source}: {reason}: {text}")

    def say(self, text: str) -> None:
        self.told.append(text)

    def state_changed(self, before: ControllerState, now: ControllerState, reason: str) -> None:
        self.states.append(now.value)

    def measure(self, stamp_ns: int, frame: str = "", off: float = 0.0) -> None:
        """An arm that rests."""
        zero = np.zeros(START.size)
        self.session.on_measurement(JointSample(stamp_ns, START + off, zero, None, frame), 1)

    def rest(self, first: int, end: int) -> None:
        """Ticks in lock-step."""
        for k in range(first, end):
            self.measure(k * MS)

    def activate(self, start: bool = True) -> list[str]:
        """As a managed node does."""
        self.session.judged = self.checks.judge()
        reasons = self.session.activate(start, 0.0)
        if not reasons:
            self.active = True
            self.session.activated()
        return reasons


def none(start_ns: int, next_ns: int | None = None) -> PlanAnswer:
    return PlanAnswer(start_ns, "0:0", None, next_ns)


def test_lockstep_every_state_is_answered_once_and_time_waits_for_what_is_due(core: Controller) -> None:
    node = Node(core, lockstep=True)
    session = node.session
    node.measure(MS)
    assert (node.commands, node.tries) == ([], 1), "before the first activation time stands still"
    node.measure(MS)
    assert node.repeated == 0, "there was no answer yet"
    assert node.activate() == []
    assert node.commands == [(MS, False)], "control begins: answered at once, with no torque yet"
    node.measure(2 * MS)
    node.measure(2 * MS)
    assert node.commands[1:] == [(2 * MS, True)]
    assert node.repeated == 1, "the arm asks again for what it has not heard"
    node.rest(3, 20)
    assert len(node.commands) == 19
    node.measure(20 * MS)
    assert len(node.commands) == 19, "the first hand-over waits for its plan"
    assert session.missing == ["the plan for 0.020 s"]
    session.on_plan(none(20 * MS, 40 * MS))
    assert node.commands[-1] == (20 * MS, True)
    node.rest(21, 40)
    assert node.commands[-1][0] == 39 * MS
    node.measure(40 * MS)
    node.now = 0.6
    references = len(node.references)
    session.check_patience()
    session.check_patience()
    assert len(node.references) == references + 1, "for a planner that came late, every half second"
    node.now = 5.1
    session.check_patience()
    assert node.commands[-1] == (40 * MS, True)
    assert any("gave up waiting" in line and "0.040 s" in line for line in node.told)


def test_lockstep_a_batch_is_waited_for_and_its_box_is_taken_at_its_time(core: Controller) -> None:
    node = Node(core, lockstep=True, await_plans=False, await_bounds=True)
    node.measure(MS)
    assert node.activate() == []
    prior = node.core.box
    lower = 0.9 * prior.payload_lower + 0.1 * prior.payload_upper
    smaller = prior.with_payload(lower, prior.payload_upper, 1)
    node.session.on_bounds(BoundsAnswer(smaller, smaller.mid, 1))
    for k in range(2, 60):
        node.measure(k * MS)
        assert not node.core.blending, "early: it waits for its tick"
    node.measure(60 * MS)
    assert node.core.blending
    assert node.commands[-1] == (60 * MS, True)
    node.rest(61, 111)
    assert node.commands[-1][0] == 109 * MS
    assert node.session.missing == ["the bounds of batch 2"]


def test_lockstep_a_plant_that_goes_on_alone_gets_no_torque(core: Controller) -> None:
    node = Node(core, lockstep=True, await_plans=False)
    node.measure(MS)
    assert node.activate() == []
    node.measure(2 * MS)
    node.measure(3 * MS, NOT_AWAITED)
    assert node.commands[-1] == (3 * MS, False)
    node.measure(4 * MS)
    assert node.commands[-1] == (4 * MS, True)


def test_real_time_answers_nobody_while_inactive_and_refuses_what_is_old(core: Controller) -> None:
    node = Node(core, lockstep=False)
    stamp = node.now_ns()
    node.measure(stamp)
    assert node.activate() == []
    assert node.commands == [], "no empty commands"
    assert node.states == ["holding"]
    node.measure(stamp + MS)
    node.measure(stamp + 2 * MS)
    assert [torque for _, torque in node.commands] == [True, True]
    with pytest.raises(MessageRefusedError, match="not newer"):
        node.measure(stamp + 2 * MS)
    node.now += 0.1
    with pytest.raises(MessageRefusedError, match="stale"):
        node.measure(stamp + 3 * MS)
    with pytest.raises(MessageRefusedError, match="from the future"):
        node.measure(node.now_ns() + 60 * MS)
    assert len(node.commands) == 2
    node.session.deactivate()
    node.active = False
    node.session.deactivated()
    assert node.states[-1] == "idle"
    node.measure(node.now_ns())
    assert len(node.commands) == 2


def test_real_time_a_silent_arm_is_not_taken_over(core: Controller) -> None:
    node = Node(core, lockstep=False)
    assert "expected one" in node.activate()[0]
    node.measure(node.now_ns())
    node.session.judged = node.checks.said
    assert "expected joint_states to go on" in node.session.activate(True, 2 * AGE)[0]
    node.checks.said = Judgement(START + 1e-2, ())
    assert "off the pose that was judged" in node.activate()[0]
    assert node.core.state is ControllerState.IDLE


def test_real_time_a_start_is_judged_outside_the_loop_and_each_judgement_is_used_once(core: Controller) -> None:
    node = Node(core, lockstep=False)
    session = node.session
    node.measure(node.now_ns())
    assert node.activate(start=False) == []
    assert node.core.state is ControllerState.IDLE
    assert session.start_to_judge() is None, "nobody asked"
    session.want_start()
    assert session.start_to_judge() is not None
    assert session.start_to_judge() is None, "not at once again: it takes long"
    session.start_judged(Judgement(START, ("the elbow touches the table",)))
    node.now += 1e-3
    node.measure(node.now_ns())
    assert "touches the table" in session.start_refused
    assert session.start_wanted, "it is tried again"
    node.now += 0.6
    assert session.start_to_judge() is not None
    session.start_judged(Judgement(START, ()))
    node.measure(node.now_ns(), off=1e-2)
    assert node.core.state is ControllerState.IDLE, "in the pose that was judged, or not at all"
    node.now += 1e-3
    node.measure(node.now_ns())
    assert node.core.state is ControllerState.IDLE, "judged once, used once"
    node.now += 0.6
    session.start_to_judge()
    session.start_judged(Judgement(START, ()))
    node.measure(node.now_ns())
    assert node.core.state is ControllerState.HOLDING
    assert not session.start_wanted
    assert session.stop() is None
    session.emergency_stop()
    assert node.core.state is ControllerState.FAULT
    session.want_start()
    assert session.stop() is None, "a wanted start is withdrawn"
    assert "expected holding" in str(session.stop())


def test_lockstep_judges_a_start_in_its_tick(core: Controller) -> None:
    node = Node(core, lockstep=True, await_plans=False)
    node.measure(MS)
    assert node.activate(start=False) == []
    node.session.want_start()
    assert node.session.start_to_judge() is None
    judged = node.checks.judged
    node.measure(2 * MS)
    assert (node.checks.judged, node.core.state) == (judged + 1, ControllerState.HOLDING)
    node.measure(3 * MS)
    assert node.commands[-1] == (3 * MS, True)


def test_in_motion_a_deactivation_brakes_first(core: Controller) -> None:
    node = Node(core, lockstep=True, await_plans=False)
    session = node.session
    node.measure(MS)
    assert node.activate() == []
    node.rest(2, 100)
    at = np.stack([START, 0 * START, 0 * START])
    trajectory = QuinticTrajectory.to_rest(at, at[0] + 1e-4, 1.0)
    session.on_plan(PlanAnswer(120 * MS, "0:0", trajectory))
    node.rest(100, 140)
    assert session.plans == 1, node.told
    assert session.moves
    assert "the arm moves" in session.deactivate()[0]
    assert session.brake_to_end() > 0.9
    node.rest(140, 1200)
    assert not session.moves
    assert session.deactivate() == []
    assert node.core.state is ControllerState.IDLE


@pytest.mark.parametrize("lockstep", [False, True])
def test_bounds_that_come_before_the_start_are_judged_and_started_with(core: Controller, lockstep: bool) -> None:
    """In real time; lock-step has its hour for each."""
    node, prior = Node(core, lockstep), core.box
    session = node.session
    share = 0.5 * (prior.payload_upper - prior.payload_lower)
    box = prior.with_payload(prior.payload_lower + 0.5 * share, prior.payload_upper - 0.5 * share, 1)
    session.on_bounds(BoundsAnswer(box, box.mid, 7))  # latched: before the first measurement
    node.measure(MS if lockstep else node.now_ns())
    assert core.box.identity == ("0:0" if lockstep else "0:1")
    assert session.snapshot().box is core.box
    if not lockstep:
        node.checks.said = Judgement(START, (), core.box)
        assert node.activate() == []
        assert (core.box.identity, core.blending) == ("0:1", False)
        # A wider one than what was judged is not started with.
        assert session.deactivate() == []
        node.active = False
        session.deactivated()
        assert session.reset_box() is None
        node.now += 0.01
        node.measure(node.now_ns())
        assert "judged with" in node.activate()[0]


@pytest.mark.parametrize("lockstep", [False, True])
def test_bounds_that_are_contradicted_end_the_claim_and_no_start_rests_on_them(
    core: Controller, lockstep: bool
) -> None:
    """The identifier knows that an assumption is false: nothing is claimed, until bounds are reset."""
    node, box = Node(core, lockstep, await_plans=False), core.box
    session, first = node.session, MS if lockstep else node.now_ns()
    node.measure(first)
    assert node.activate() == []
    node.measure(first + MS)
    node.measure(first + 2 * MS)
    core.bound_status.lost = ""  # these stamps are late by any clock
    session.on_bounds(BoundsAnswer(box, box.mid, None, "", contradicted=True))
    node.measure(first + 3 * MS)
    assert "no parameters fit" in core.bound_status.lost
    assert core.state is ControllerState.HOLDING, "it holds the arm all the same"
    assert session.deactivate() == []
    node.active = False
    session.deactivated()
    node.now += 0.004
    node.measure(first + 4 * MS)
    assert "controller/reset_bounds begins anew" in node.activate()[0]
    assert session.reset_box() is None
    node.measure(first + 5 * MS)
    assert node.activate() == []
    # What was said of the epoch before is of the payload before.
    session.on_bounds(BoundsAnswer(box, box.mid, None, "", contradicted=True))
    node.measure(first + 6 * MS)
    assert "no parameters fit" not in core.bound_status.lost
