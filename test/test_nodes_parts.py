"""The parts of the nodes that need no network: lock-step pending, clock, histogram, recorder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

pytest.importorskip("rclpy")

from safe_sysid.nodes.common.messages.contents import BoundsAnswer, PlanAnswer
from safe_sysid.nodes.common.messages.time_base import TimeBase, to_ns
from safe_sysid.nodes.common.realtime.histograms import Histogram
from safe_sysid.nodes.common.realtime.row_recorder import Recorder
from safe_sysid.nodes.controller.timing import PendingAnswers
from safe_sysid.nodes.planner.markers import path_markers, scene_markers
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories import Plan, QuinticTrajectory

FIRST, T_P, U, TAKE = 4, 3, 4, 1  # ticks; "ns" below are ticks
REST = QuinticTrajectory.hold(np.zeros(2))


def plan(start: int, empty: bool = False) -> PlanAnswer:
    return PlanAnswer(start, "0:0", None if empty else REST)


def bounds(batch: int | None) -> BoundsAnswer:
    return BoundsAnswer(ParameterBox(-np.ones(3), np.ones(3), 0, batch or 0), np.zeros(3), batch)


def run(arrivals: list[tuple[int, object]], ticks: int = 20, plans: bool = True) -> list[tuple[int, str]]:
    """What is taken at which tick if answers arrive in this order, each at its tick or when it is waited for."""
    pending, taken, queue = (PendingAnswers((FIRST, T_P, U, TAKE), plans), [], sorted(arrivals, key=lambda a: a[0]))
    for tick in range(1, ticks):
        while True:
            while queue and queue[0][0] <= tick:
                answer = queue.pop(0)[1]
                pending.put_plan(answer) if isinstance(answer, PlanAnswer) else pending.put_bounds(answer)
            for answer in pending.due_plans(tick):
                taken.append((tick, f"plan {answer.start_ns}"))
                pending.settle_plan(answer, taken=True)
            if not pending.missing(tick):
                taken += [(tick, f"batch {answer.batch}") for answer in pending.due_bounds(tick)]
                break
            if not queue:
                return [*taken, (tick, "stuck")]
            queue[0] = (tick, queue[0][1])  # simulated time stands still: what comes next comes now
    return taken


@given(st.lists(st.integers(0, 9), min_size=8, max_size=8), st.permutations(range(8)))
def test_what_a_tick_takes_does_not_depend_on_when_answers_arrive(delays: list[int], order: list[int]) -> None:
    # Nothing comes before what it answers: a plan not before the last hand-over, bounds not before their data.
    answers = [(0, plan(4)), (4, plan(7)), (7, plan(10)), (10, plan(13, empty=True))]
    answers += [(U * batch, bounds(batch)) for batch in (1, 2, 3, 4)]
    # Bounds have one publisher, whose messages come in order; plans may come in any.
    at = [answer[0] + delay for answer, delay in zip(answers, delays, strict=True)]
    at[4:] = np.maximum.accumulate(at[4:])
    batches = iter(range(4, 8))
    arrivals = [(at[i], answers[i][1]) for i in (next(batches) if i >= 4 else i for i in order)]
    expected = [(4, "plan 4"), (5, "batch 1"), (7, "plan 7"), (9, "batch 2"), (10, "plan 10"), (13, "plan 13")]
    assert run(arrivals) == [*expected, (13, "batch 3"), (17, "batch 4")]


def test_a_missing_answer_stops_time_at_its_tick() -> None:
    assert run([(0, bounds(1)), (0, bounds(2))])[-1] == (4, "stuck")
    assert run([(0, plan(4)), (0, bounds(1)), (0, bounds(2))])[-1] == (7, "stuck")
    assert run([(0, plan(4, empty=True))])[-1] == (5, "stuck")
    assert run([(0, bounds(b)) for b in (1, 2, 3, 4)], plans=False)[-1] == (17, "batch 4")


def test_in_place_of_a_refused_plan_nobody_waits_for_another() -> None:
    pending = PendingAnswers((FIRST, T_P, U, 100))
    refused, other = plan(4), plan(6)
    pending.put_plan(refused)
    assert pending.due_plans(3) == []
    assert pending.due_plans(4) == [refused]
    pending.settle_plan(refused, taken=False)
    assert not any(pending.missing(tick) for tick in range(4, 50))
    pending.put_plan(other)
    assert pending.due_plans(5) == [other], "which may be taken all the same"


def test_who_takes_over_waits_for_nothing_that_was_due_before() -> None:
    pending = PendingAnswers((FIRST, T_P, U, TAKE))
    pending.begin_anew(1, plans=True)
    assert pending.missing(5) == ["the plan for 0.000 s", "the bounds of batch 1"], "at the beginning nothing was"
    pending.begin_anew(17, plans=False)  # batch 4, U = 4, is due at 17
    assert pending.missing(17) == []
    assert pending.missing(20) == []
    assert pending.missing(21) == ["the bounds of batch 5"]


def test_a_plan_for_another_time_does_not_take_the_place_of_the_one_awaited() -> None:
    pending = PendingAnswers((FIRST, T_P, U, 100))
    other = plan(3)
    pending.put_plan(other)
    assert pending.due_plans(2) == []
    assert pending.due_plans(3) == [other]
    pending.settle_plan(other, taken=True)
    assert pending.missing(4)


def test_without_a_planner_to_wait_for_plans_are_judged_at_once() -> None:
    pending = PendingAnswers((FIRST, T_P, U, 100), await_plans=False)
    other = plan(9)
    pending.put_plan(other)
    assert pending.due_plans(1) == [other]
    pending.settle_plan(other, taken=True)
    assert not pending.missing(9)


def test_giving_up_goes_on_without_the_silent_ones_for_good() -> None:
    pending = PendingAnswers((FIRST, T_P, U, TAKE))
    assert pending.missing(5) == ["the plan for 0.000 s", "the bounds of batch 1"]
    pending.give_up(5)
    assert not any(pending.missing(tick) for tick in range(5, 100))
    late = bounds(1)
    pending.put_bounds(late)
    assert pending.due_bounds(9) == [late]


def test_a_flood_of_foreign_answers_is_not_hoarded() -> None:
    pending = PendingAnswers((FIRST, T_P, U, TAKE))
    for i in range(1000):
        pending.put_plan(plan(4))
        pending.put_bounds(bounds(50 + i))
    assert len(pending.due_plans(4)) == 20
    assert pending.due_bounds(4) == []


@given(st.integers(1, 2**62), st.integers(0, 10**13))
def test_seconds_are_exact_to_the_nanosecond_wherever_the_clock_starts(origin: int, later: int) -> None:
    clock = TimeBase(lockstep=False)
    first = clock.seconds(origin)
    assert 0.0 <= first < 1.0
    assert clock.origin_ns + to_ns(clock.seconds(origin + later)) == origin + later


def test_in_lockstep_all_nodes_mean_the_same_time() -> None:
    clock = TimeBase(lockstep=True)
    assert clock.seconds(1_500_000_000) == 1.5
    assert clock.origin_ns == 0
    assert to_ns(1.5) == 1_500_000_000


def test_an_empty_or_absurd_histogram_is_no_problem() -> None:
    histogram = Histogram()
    assert histogram.percentile(99) == 0.0
    for time in (-1.0, 1e9):
        histogram.add(time)
    assert histogram.percentile(99) == 1e9
    assert "of 2" in str(histogram)


def test_the_recorder_keeps_every_row_beyond_its_first_capacity(tmp_path: Path) -> None:
    log, stamp = Recorder({"q": 2, "rest": 1}), 1_795_000_000_123_456_789
    rows = np.random.default_rng(0).normal(size=(33, 2))
    for i, row in enumerate(rows):
        log.append(stamp + i, (row, np.array([float(i)])))
        row[:] = np.nan if i % 2 else row  # the log has its own copy
    log.save(tmp_path / "x.npz", note=np.array("hello"))
    with np.load(tmp_path / "x.npz") as data:
        assert np.array_equal(data["stamp"] - stamp, np.arange(33))
        assert not np.any(np.isnan(data["q"]))
        assert np.array_equal(data["rest"], np.arange(33.0))
        assert str(data["note"]) == "hello"


def test_obstacles_and_plans_can_be_looked_at() -> None:
    model, scene = load_robot("kinova_gen3"), load_scene("six_boxes")
    cubes = scene_markers(scene).markers
    assert [cube.scale.x for cube in cubes] == [box.size[0] for box in scene.obstacles]
    for cube, box in zip(cubes, scene.obstacles, strict=True):
        o = cube.pose.orientation
        np.testing.assert_allclose(Rotation.from_quat([o.x, o.y, o.z, o.w]).as_matrix(), box.rotation, atol=1e-12)
    start = np.zeros((3, 7))
    plan_ = Plan(QuinticTrajectory.to_rest(start, np.full(7, 0.5), 3.0), 0.0, 1.5, "0:0", 0, np.zeros(7))
    way, end = path_markers(model, plan_).markers
    assert len(end.points) == model.n + 1
    assert way.points[-1] == end.points[-1]


def test_without_motion_no_plan_is_awaited() -> None:
    pending = PendingAnswers((FIRST, T_P, U, TAKE))
    pending.forget_plans(3)  # nothing is due yet
    assert pending.missing(4)
    pending.forget_plans(4)
    assert not pending.missing(4)
    assert pending.missing(5) == ["the bounds of batch 1"]
