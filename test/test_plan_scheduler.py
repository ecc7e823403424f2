"""Plan scheduler, without ROS: when it requests plans, and what it publishes whatever the solver does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.nodes.common.messages.time_base import TimeBase
from safe_sysid.nodes.planner import timing
from safe_sysid.nodes.planner.objectives import ExcitationObjective, PlanStart
from safe_sysid.nodes.planner.scheduler import PlanScheduler
from safe_sysid.nodes.planner.scheduler_parts import SchedulerSettings
from safe_sysid.planning.results import PlannerResult, PlanStatus
from safe_sysid.planning.solver_process.jobs import Step, TaskProgress
from safe_sysid.planning.solver_process.process import Event
from safe_sysid.planning.task.task import TaskStatus
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories import Plan, QuinticTrajectory

S = 1_000_000_000
T_P, T_F = S, 2 * S
BOX = ParameterBox(-np.ones(28), np.ones(28))
HOME, NONE = np.zeros(2), PlanStatus.NO_CERTIFIED_PLAN


class World:
    """Clock, solver and controller in one; ``now`` in s, monotonic; stamps are later by ``ahead``."""

    def __init__(self, lockstep: bool, ahead: float = 0.0, **changes: Any) -> None:
        self.now, self.ready, self.ahead = 1000.0, True, ahead
        self.jobs: list[tuple[Callable[[Event], None], Any, float]] = []
        self.published: list[tuple[int, Plan]] = []
        self.nothing: list[tuple[int, int | None]] = []
        self.told: list[str] = []
        self.cancelled: list[float] = []  # with how much grace, s
        values = {"plans": 3, "first_ns": T_P, "margin": 0.1, "patience": 50.0, "then_goal": None} | changes
        values |= {"t_p_ns": T_P, "seed": 0, "update_ns": S // 2, "digest_ns": S // 4}
        settings = SchedulerSettings(lockstep=lockstep, **values)
        self.scheduler = PlanScheduler(settings, self, self, TimeBase(lockstep))
        self.scheduler.activate()
        assert self.scheduler.start() is None
        self.scheduler.on_box(BOX)

    # the clocks and the output
    def monotonic(self) -> float:
        return self.now

    def now_ns(self) -> int:
        return round((self.now + self.ahead) * S)

    def publish_plan(self, start_ns: int, box: ParameterBox, result: PlannerResult, purpose: str) -> str:
        assert result.plan.start_time == pytest.approx(self.seconds(start_ns), abs=1e-9)
        self.published.append((start_ns, result.plan))
        return "plan"

    def publish_none(self, start_ns: int, identity: str, next_ns: int | None) -> None:
        self.nothing.append((start_ns, next_ns))

    def note_failure(self, *_: Any) -> None: ...

    def refuse(self, source: str, reason: str, text: str) -> None:
        self.told.append(text)

    def say(self, text: str) -> None:
        self.told.append(text)

    failed = say

    # the solver
    def submit(self, job: Any, handler: Callable[[Event], None], limit: float | None = None) -> int:
        assert limit is not None
        self.jobs.append((handler, job, limit))
        return len(self.jobs)

    def cancel(self, grace: float) -> None:
        self.cancelled.append(grace)

    # what the tests do
    @property
    def request(self) -> Any:
        """What is asked for last."""
        return self.jobs[-1][1].keywords["request"]

    def seconds(self, ns: int) -> float:
        return self.scheduler._time.seconds(ns)

    def reference(self, stamp_ns: int, q: np.ndarray = HOME, qd: float = 0.0) -> None:
        self.scheduler.on_reference(JointSample(stamp_ns, q, np.full(2, qd), None, BOX.identity))

    def follow(self, stamp_ns: int) -> None:
        """The reference of the plan that is driven then."""
        start, plan = self.published[-1]
        state = plan.trajectory.state((stamp_ns - start) / 1e9)
        self.scheduler.on_reference(JointSample(stamp_ns, state[0], state[1], None, BOX.identity))

    def say_event(
        self, kind: Any, reach: float | None = 0.5, which: int = -1, progress: Any = None, why: PlanStatus = NONE
    ) -> None:
        """The solver speaks about a job; ``reach`` (rad) of the plan, None: there is none, and why."""
        handler, job, _ = self.jobs[which]
        request = job.keywords["request"]
        plan = None
        if reach is not None:
            trajectory = QuinticTrajectory.to_rest(request.state, request.state[0] + reach, T_F / 1e9)
            plan = Plan(trajectory, request.start_time, T_P / 1e9, BOX.identity, request.sequence, HOME)
        status = PlanStatus.PLANNED if plan else why
        step = Step(PlannerResult(status, plan, reasons=() if plan else ("in the way",)), progress)
        handler(Event(kind, 1, step if kind != "failed" else None, "boom" if kind == "failed" else ""))


@pytest.fixture(autouse=True)
def references_may_be_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    for patience in ("_SILENT", "_UNHEARD"):
        monkeypatch.setattr(timing, patience, 1e6)


def moving(**changes: Any) -> World:
    """Real time, the first plan just begun, the second asked for."""
    world = World(lockstep=False, **changes)
    world.reference(1000 * S)
    world.say_event("done")
    start = world.published[0][0]
    assert start == round(1000.1 * S), "at rest a plan begins as soon as it is there"
    world.now = start / S
    world.follow(start)
    assert len(world.jobs) == 2
    return world


def test_in_real_time_the_best_plan_so_far_is_published_at_the_deadline() -> None:
    world = moving()
    deadline = world.now + 1.0 - 0.1
    assert world.request.deadline == pytest.approx(deadline - 0.05)
    assert world.jobs[-1][2] > deadline, "the solver is given time to notice"
    for reach in (0.1, 0.2):
        world.say_event("progress", reach)
    world.now = deadline - 0.001
    world.scheduler.watch()
    assert len(world.published) == 1
    world.now = deadline + 0.001
    world.scheduler.watch()
    assert len(world.published) == 2
    assert world.published[1][0] == world.published[0][0] + T_P
    knots = world.published[1][1].trajectory.knots
    assert knots[-1, 0] - knots[0, 0] == pytest.approx(0.2), "the last is the best"
    assert world.cancelled == [1.0]
    world.say_event("done", 0.9)
    world.say_event("progress", 0.9)
    assert len(world.published) == 2, "what comes later is not published"
    assert world.nothing == []


def test_at_rest_nobody_waits_for_long_nor_in_vain() -> None:
    """The search is given t_p; where that was too little, six seconds more; then it waits for a smaller box."""
    world = World(lockstep=False)
    world.reference(1000 * S)
    assert world.request.deadline == pytest.approx(1001.0 - 0.05)
    world.now = 1001.01
    world.scheduler.watch()
    assert (len(world.jobs), world.published) == (2, [])
    assert world.cancelled == [15.0], "it may be compiling: nobody waits for it"
    assert world.jobs[-1][2] == pytest.approx(1007.01 + 15.0)
    assert world.request.deadline == pytest.approx(1007.01 - 0.1)
    world.say_event("done", 0.3, which=0)
    assert world.published == [], "the answer to the first question"
    world.say_event("progress", 0.3)
    world.now = 1007.02
    world.scheduler.watch()
    assert [start for start, _ in world.published] == [round(1007.12 * S)]
    assert world.nothing == []


@pytest.mark.parametrize("ahead", [-990.0, 1e9])
def test_stamps_of_a_plan_are_of_the_nodes_clock_deadlines_of_the_monotonic_one(ahead: float) -> None:
    """Simulated time begins anywhere."""
    world = World(lockstep=False, ahead=ahead)
    world.reference(world.now_ns())
    world.say_event("done")
    start = world.published[0][0]
    assert start == world.now_ns() + S // 10
    world.now += 0.1
    world.follow(start)
    deadline = world.request.deadline
    assert deadline == pytest.approx(world.now + 1.0 - 0.1 - 0.05, abs=1e-6)


def test_in_real_time_nothing_certified_means_silence_and_another_try_at_rest() -> None:
    world = moving()
    world.say_event("done", None)
    assert len(world.published) == 1
    assert world.nothing == []
    assert world.scheduler.phase == "excitation"
    end = world.published[0][0] + T_F
    world.follow(end - S // 2)
    assert len(world.jobs) == 2, "the arm is braking"
    world.reference(end + S, world.published[0][1].trajectory.knots[-1, 0])
    assert len(world.jobs) == 2, "the same box has the same answer"
    smaller = ParameterBox(-0.5 * np.ones(28), 0.5 * np.ones(28), 0, 1)
    world.scheduler.on_box(smaller)
    q = world.published[0][1].trajectory.knots[-1, 0]
    world.scheduler.on_reference(JointSample(end + 2 * S, q, np.zeros(2), None, smaller.identity))
    assert len(world.jobs) == 3
    assert world.request.box is smaller


@pytest.mark.parametrize("why", [PlanStatus.NO_LESSON, PlanStatus.STOPPED])
def test_at_rest_a_search_without_a_lesson_is_given_more_time_and_ends_with_its_reason(why: PlanStatus) -> None:
    """Four searches, each longer; nothing is counted, and nobody waits for ever."""
    world = World(lockstep=False)
    world.reference(1000 * S)
    given = []
    for _ in range(4):
        given.append(world.request.deadline - world.now)
        world.say_event("progress", None, why=why)
        world.now += given[-1] + 0.6
        world.scheduler.watch()
    assert given == pytest.approx([1.0, 6.0, 12.0, 24.0], abs=0.51)
    assert len(world.jobs) == 4
    assert world.published == []
    assert world.scheduler.phase == "over"
    for words in ("excitation failed after 0 plans, 3 more were wanted", why.value, "in the way"):
        assert words in world.scheduler.failure
    assert world.scheduler.text == world.scheduler.failure == world.told[-1]
    assert any("in the way: the arm rests, searching for 12 s" in line for line in world.told)
    world.reference(2000 * S)
    assert len(world.jobs) == 4
    assert world.scheduler.start() is None
    assert world.scheduler.failure == ""


@pytest.mark.parametrize("lockstep", [False, True])
def test_in_motion_no_lesson_brakes_and_is_looked_for_again_at_rest(lockstep: bool) -> None:
    """However often there was too little time in motion: every such time a lesson was driven before."""
    world = World(lockstep=lockstep, plans=5)
    objective = world.scheduler.objective
    assert isinstance(objective, ExcitationObjective)
    stamp, q = (0 if lockstep else 1000 * S), HOME
    for number in range(5):
        world.now = max(world.now, stamp / S)
        world.reference(stamp, q)
        assert world.scheduler.busy
        assert objective.left == 5 - number
        world.say_event("done")
        start, plan = world.published[-1]
        world.now = start / S
        world.follow(start)
        if number == 4:
            break
        assert world.scheduler.busy, "the next one is asked for in motion"
        world.say_event("done", None, why=PlanStatus.NO_LESSON)
        assert len(world.published) == number + 1
        assert objective.left == 4 - number, "the one that is driven to its end counts"
        stamp, q = start + T_F + S // 10, plan.trajectory.knots[-1, 0]
    assert len(world.published) == 5
    assert world.scheduler.phase == "over"
    assert "all trajectories are planned" in world.scheduler.text
    assert world.scheduler.failure == ""


def test_a_solver_that_dies_is_asked_again_and_what_was_certified_before_is_not_lost() -> None:
    world = moving()
    world.say_event("progress", 0.3)
    world.say_event("failed")
    assert len(world.jobs) == 3
    world.say_event("failed")
    assert len(world.published) == 2, "certified is certified"
    assert "boom" in world.told


@pytest.mark.parametrize("starting", [False, True])
def test_nothing_changes_while_the_arm_moves_even_where_its_reference_stands_still(starting: bool) -> None:
    """At the first instant of a motion the reference has no speed yet; of the last plan's too."""
    world = World(lockstep=False, plans=1)
    assert world.scheduler.not_at_rest()
    world.reference(1000 * S)
    assert "planning" in world.scheduler.not_at_rest()
    world.say_event("done")
    start = world.published[0][0]
    assert world.scheduler.not_at_rest(), "announced, and about to begin"
    world.now = start / S
    world.follow(start)
    assert world.scheduler.phase == "over"
    assert "the arm moves" in world.scheduler.not_at_rest()
    assert "the arm moves" in world.scheduler.not_ready()
    world.follow(start + T_F // 2)
    assert "rad/s" in world.scheduler.not_ready()
    world.reference(start + T_F, world.published[0][1].trajectory.knots[-1, 0])
    assert world.scheduler.not_at_rest() == ""
    world.ready = not starting
    assert bool(world.scheduler.not_ready()) is starting


def test_a_controller_that_does_something_else_is_noticed() -> None:
    world = moving()
    start = world.published[0][0]
    world.reference(start + S // 10, HOME, 0.1)
    assert "does not follow plan 0" in world.told[-1]
    assert world.cancelled == [1.0]
    world.say_event("done")
    assert len(world.published) == 1, "from where the arm is not"
    assert world.scheduler.phase == "excitation"
    world.reference(start + S)
    assert len(world.jobs) == 3, "at rest it goes on"


def test_time_that_went_back_ends_what_was_asked_for_before() -> None:
    """Another simulation, or a clock that was set: the plan that was offered has no time any more."""
    world = moving()
    world.now = 400.0
    world.reference(400 * S)
    assert world.scheduler.phase == "over"
    assert "went back" in world.scheduler.text
    world.reference(400 * S + S // 10)
    assert world.scheduler.not_ready() == "", "at rest, whatever moved before"
    assert world.scheduler.start() is None
    jobs = len(world.jobs)
    world.reference(400 * S + 2 * S)
    assert len(world.jobs) == jobs + 1


def test_in_lockstep_a_new_run_has_all_its_attempts_again() -> None:
    world = World(lockstep=True, plans=100)
    for _ in range(3):
        stamp = 0 if world.scheduler._latest is None else world.scheduler._latest.stamp_ns
        for _ in range(3):  # plans that are not followed
            world.reference(stamp)
            world.say_event("done")
            start = world.published[-1][0]
            world.reference(start + S // 10, HOME, 0.1)
            stamp = start + 10 * S
        assert world.scheduler.phase == "excitation"
        world.scheduler.stop("a person")
        assert "a person" in world.scheduler.text
        assert world.scheduler.start() is None


def test_an_arm_that_rested_while_a_plan_was_looked_for_shows_nothing_about_its_bounds() -> None:
    """Boxes that came meanwhile are no reason to end a run that has hardly begun."""
    same = [replace(BOX, seq=number) for number in range(6)]
    objective = ExcitationObjective(5, 4)
    assert objective.over(same[:1], same[0]) == ""
    state = np.zeros((3, 2))
    objective.job(PlanStart(state, 0.0, BOX, 0, None, None))
    objective.planned(Step(PlannerResult(PlanStatus.PLANNED)))
    assert objective.over(same[:4], same[3]) == "", "the arm rested until now"
    assert "stopped improving" in objective.over(same, same[5])


def test_bounds_that_had_stopped_improving_do_not_end_another_run_before_it_begins() -> None:
    same = [replace(BOX, seq=number) for number in range(6)]
    objective, again = ExcitationObjective(5, 1), ExcitationObjective(5, 1)
    assert objective.over(same[:1], same[0]) == ""
    assert "stopped improving" in objective.over(same[:4], same[3])
    assert again.over(same[:4], same[3]) == ""
    assert again.over(same, same[4]) == ""
    assert "stopped improving" in again.over(same, same[5])
    other = [replace(BOX, epoch=1, seq=number) for number in range(3)]
    assert again.over([*same, *other], other[0]) == "", "another payload"


@given(st.lists(st.sampled_from(["progress", "done", "none", "failed", "late"]), min_size=1, max_size=12))
def test_in_lockstep_every_hand_over_gets_exactly_one_answer(events: list[str]) -> None:
    world = World(lockstep=True)
    world.reference(10_000_000)
    answered: list[int] = []
    for event in events:
        if not world.scheduler.busy:
            break
        if event == "late" and len(world.jobs) > 1:
            world.say_event("done", which=0)
        elif event == "none":
            world.say_event("done", None)
        elif event != "late":
            world.say_event(event)
        answered = [start for start, _ in [*world.published, *world.nothing]]
        assert len(set(answered)) == len(answered)
        if world.published and not world.scheduler.busy and not world.nothing:
            start = world.published[-1][0]
            world.follow(start)
    awaited = [T_P * (k + 1) for k in range(len(answered))]
    assert answered == awaited, "in order, none left out"
    if world.nothing:
        assert world.scheduler.phase == "over"


def test_after_the_identification_to_the_goal_in_simulated_time_that_everyone_knows() -> None:
    goal = np.array([0.7, 0.7])
    world = World(lockstep=True, plans=1, then_goal=goal)
    world.reference(10_000_000)
    world.say_event("done", 0.5)
    world.follow(T_P)  # plan 0 begins: nothing follows at its hand-over, but the task after rest and all of its data
    end = T_P + T_F
    begins = end + S // 4 + T_P
    assert world.nothing == [(2 * T_P, begins)]
    q = world.published[0][1].trajectory.knots[-1, 0]
    world.reference(end, q)
    assert not world.scheduler.busy
    world.reference(end + S // 4, q)
    request = world.request
    assert request.start_time == begins / S
    assert np.array_equal(world.jobs[-1][1].keywords["waypoints"], goal[None])
    there = TaskProgress(TaskStatus.MOVING, (), 0, 0.0, True, True)
    world.say_event("done", 0.2, progress=there)
    world.follow(begins)
    assert world.nothing[1:] == [(begins + T_P, None)], "it is driven to its end, and nothing is left to do"
    world.reference(begins + T_F, goal)
    world.say_event("done", None, progress=TaskProgress(TaskStatus.ARRIVED, (), 0, 0.0, False, False))
    assert (world.scheduler.phase, world.scheduler.outcome) == ("over", "arrived")


def asked_for_a_goal() -> tuple[World, list[tuple[bool, str]]]:
    """In lock-step a goal was asked for: the world, and the answers that are given."""
    world, answers = World(lockstep=True, plans=1), []
    world.scheduler.objective = None
    world.reference(S)
    world.scheduler.go(np.ones((1, 2)), lambda *answer: answers.append(answer))
    assert world.nothing == [(S, S + T_P)], "simulated time will wait for the first step"
    world.reference(S + 10_000_000)
    return world, answers


def test_a_task_looks_for_other_ways_and_says_why_it_gives_up() -> None:
    world, answers = asked_for_a_goal()
    stuck = TaskProgress(TaskStatus.MOVING, (), 0, 1.0, False, False)
    for _ in range(3):
        world.say_event("done", None, progress=stuck)
        assert world.scheduler.busy
    world.say_event("done", None, progress=TaskProgress(TaskStatus.REFUSED, ("goal: stuck",), 0, 1.0, False, False))
    assert answers == [(False, "refused; goal: stuck")]
    assert world.nothing[1:] == [(S + T_P, None)]
    assert world.scheduler.outcome == "refused; goal: stuck"


def test_stop_answers_who_waits_and_lets_time_go_on() -> None:
    world, answers = asked_for_a_goal()
    world.scheduler.stop()
    world.scheduler.stop()
    assert answers == [(False, "stopped")]
    assert world.nothing[1:] == [(S + T_P, None)]
    world.say_event("done")
    assert world.published == []
    assert world.scheduler.start() is None
    assert world.scheduler.start() == "planning already"


def steady(world: World, begin: int, end: int) -> None:
    """References at rest every 10 ms, and the clock with them, ns."""
    for stamp in range(begin, end, S // 100):
        world.now = stamp / S
        world.reference(stamp)
        world.scheduler.watch()


@pytest.mark.parametrize("seen", [True, False])
def test_a_controller_that_began_anew_is_not_moved_by_what_was_asked_before(
    monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """After a fault, an emergency stop or a deactivation; whether the silence or only its end is noticed."""
    monkeypatch.undo()  # references are not sparse here
    world = World(lockstep=False)
    world.now = 1020.0
    world.scheduler.watch()
    assert world.scheduler.phase == "excitation", "the controller may begin later"
    steady(world, 1020 * S, 1020 * S + S // 5)
    assert len(world.jobs) == 1
    if seen:
        world.now += 1.5
        world.scheduler.watch()
        assert world.scheduler.phase == "over"
        assert "expected a controller that commands" in world.scheduler.not_ready()
    steady(world, 1020 * S + S // 2, 1023 * S)
    assert world.scheduler.phase == "over"
    assert "commanded nothing" in world.scheduler.text
    world.say_event("done")
    assert (world.published, len(world.jobs), world.cancelled) == ([], 1, [1.0])
    assert world.scheduler.start() is None
    steady(world, 1023 * S, 1023 * S + S // 10)
    assert len(world.jobs) == 2, "whoever asks again is obeyed"


def test_an_inactive_planner_moves_nothing_whoever_asks() -> None:
    world = World(lockstep=False)
    world.scheduler.stop()
    world.reference(1000 * S)
    assert world.scheduler.not_ready() == ""
    told: list[tuple[bool, str]] = []
    world.scheduler.deactivate()
    assert "not active" in world.scheduler.not_ready()
    assert "not active" in str(world.scheduler.start())
    world.scheduler.go(np.zeros((1, 2)), lambda *answer: told.append(answer))
    world.reference(1000 * S + S // 100)
    assert [success for success, _ in told] == [False]
    assert (world.jobs, world.published, world.scheduler.phase) == ([], [], "over")
    pytest.importorskip("rclpy")
    from safe_sysid.nodes.planner.goals import Goal, GoalServer

    # Of two goals that are asked for one after the other, both wait for their angles when it is deactivated.
    world.scheduler.activate()
    node: Any = SimpleNamespace(listen=lambda *_: None, serve_later=lambda *_: None)
    goals = GoalServer(node, world.scheduler, world)  # type: ignore[arg-type]
    goals._goal = Goal("a pose", pose=(np.zeros(3), np.eye(3)))
    for _ in range(2):
        goals._plan(lambda *answer: told.append(answer))
    assert len(world.jobs) == 2
    world.scheduler.deactivate()
    goals.drop("deactivated")
    assert told[1:] == [(False, "deactivated")] * 2
    world.scheduler.activate()
    for handler, _, _ in world.jobs:
        handler(Event("done", 1, np.full(2, 0.1)))
    assert (len(told), world.scheduler.phase) == (3, "over")
