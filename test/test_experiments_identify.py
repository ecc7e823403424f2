"""The exciting motions between lifting and the task: what is tracked, what is learned, where the arm is left."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from experiment_support import FreeCell

from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.studies.experiments.identify_phase import (
    RecordingCell,
    chain,
    follow,
    identify_from,
    plan_and_identify,
    rehearsed_plans,
)
from safe_sysid.studies.experiments.methods import METHODS, model_before
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

pytestmark = pytest.mark.unproved


@pytest.fixture(scope="module")
def ready(model):
    return np.array(model.settings.home, float)


def plans_of(n, rng, origin):
    """Three quintics, each taking over from the one before in motion, and one from rest later."""
    state, start, plans = np.zeros((3, n)), origin, []
    for i in range(3):
        trajectory = QuinticTrajectory.to_rest(state, rng.uniform(-1.0, 1.0, n), 3.0)
        plans.append(Plan(trajectory, start, 1.5, "0:0", i, np.zeros(n)))
        state, start = trajectory.state(1.5)[:3], start + 1.5
    rest = np.zeros((3, n))
    rest[0] = plans[-1].trajectory.knots[-1, 0]
    trajectory = QuinticTrajectory.to_rest(rest, rng.uniform(-1.0, 1.0, n), 2.0)
    plans.append(Plan(trajectory, plans[-1].end_time + 0.7, 1.0, "0:0", 3, np.zeros(n)))
    return plans


@pytest.mark.parametrize("origin", [0.0, 1.5, 4711.25])
def test_a_chain_is_each_plan_until_the_next_takes_over_and_never_jumps(origin):
    plans = plans_of(4, np.random.default_rng(1), origin)
    reference, duration = chain(plans)
    assert duration == pytest.approx(plans[-1].end_time - origin)
    times = np.arange(0.0, duration + 0.5, 1e-3)
    states = np.stack([reference(t)[:3] for t in times])
    for order in (0, 1):  # the integral of the next derivative, and nothing else
        steps = np.diff(states[:, order], axis=0)
        mean = 0.5e-3 * (states[1:, order + 1] + states[:-1, order + 1])
        assert np.abs(steps - mean).max() < 1e-4
    assert np.abs(reference(duration)[0] - plans[-1].trajectory.knots[-1, 0]).max() < 1e-12
    between = plans[2].end_time - origin + 0.3
    assert np.array_equal(reference(between)[1:], np.zeros((3, 4)))


def test_following_leaves_the_arm_at_the_references_end_and_takes_as_long_as_it(model, ready):
    cell = FreeCell(model, "4lb", 2, ready)
    tap = RecordingCell(cell)
    known = model_before(METHODS["conservative"], model)
    law = make_law("robust", model, design_gains(model, lockstep=True))
    there = QuinticTrajectory.to_rest(np.stack([ready, 0 * ready, 0 * ready]), ready + 0.1, 1.2)
    rest = follow(tap, law, known, there.state, 1.2)
    assert np.array_equal(rest, ready + 0.1)
    assert len(tap.log) == 1200
    assert np.abs(cell.measurement.q - rest).max() < 1e-2
    assert len(tap.measurements()) == 1200


def test_sampling_is_told_of_every_measurement(model, ready):
    cell, seen = FreeCell(model, "4lb", 2, ready), []
    tap = RecordingCell(cell, seen.append)
    for _ in range(5):
        tap.step(None)
    assert seen == [m.stamp for m in tap.log]
    assert np.isnan(tap.condition(model))  # no window of data yet


@pytest.fixture(scope="module")
def learned(model, ready):
    """One exciting plan, of Algorithm 2 and drawn, with the same arm and payload."""
    out = {}
    for random in (False, True):
        cell = FreeCell(model, "6lb", 5, ready)
        tap = RecordingCell(cell)
        out[random] = cell, tap, plan_and_identify(model, tap, ready, 7, random, plans=1)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("random", [False, True])
def test_the_truth_is_inside_the_arm_is_back_where_it_began_and_what_is_told_is_nested(model, ready, learned, random):
    cell, tap, found = learned[random]
    assert found.failure == ""
    assert found.box.contains(cell.truth)
    assert found.box.is_inside(dataclasses.replace(model.arm_prior, epoch=found.box.epoch))
    assert found.box.payload_upper[0] - found.box.payload_lower[0] < 1.0  # Table I: 4 kg
    part = found.box.layout.payload
    assert np.all((found.box.payload_lower <= found.nominal) & (found.nominal <= found.box.payload_upper))
    assert abs(found.nominal[0] - cell.truth[part][0]) < 0.3
    assert np.array_equal(found.rest, ready)
    assert np.abs(cell.measurement.q - ready).max() < 5e-3
    assert np.abs(cell.measurement.qd).max() < 1e-2
    notes = found.notes
    assert notes["way_back"] == "arrived"
    assert len(notes["stamps"]) == len(notes["nominal"]) == len(notes["lower"]) == len(notes["upper"])
    assert notes["plans"] == 1
    assert np.all(np.diff(notes["lower"], axis=0) >= 0.0)
    assert np.all(np.diff(notes["upper"], axis=0) <= 0.0)
    assert notes["stamps"][-1] <= tap.log[-1].stamp
    assert notes["condition"] > 1.0


@pytest.mark.slow
def test_the_rehearsed_plans_are_those_of_algorithm_two(model, ready, learned):
    """Same arm, same payload, same seed: the motion that adaptive laws follow is the one that ours drove."""
    _, tap, _ = learned[False]
    plans, reasons = rehearsed_plans(model, FreeCell(model, "6lb", 5, ready).plant, ready, 7, plans=1)
    assert reasons == ()
    reference, duration = chain(plans)
    begin = plans[0].start_time
    for log in tap.log[::500]:
        if begin <= log.stamp <= begin + duration:
            assert np.abs(reference(log.stamp - begin)[0] - log.q).max() < 5e-3


def test_an_arm_that_moves_is_refused_with_the_reason(model, ready):
    cell = FreeCell(model, "4lb", 2, ready)
    tap = RecordingCell(cell)
    tap.measurement = tap.measurement._replace(qd=np.full(model.n, 0.5))
    found = plan_and_identify(model, tap, ready, 0)
    assert found.failure.startswith("identification: start refused")
    assert found.box is model.arm_prior


def test_identifying_from_nothing_says_so(model, ready):
    found = identify_from(model, RecordingCell(FreeCell(model, "4lb", 2, ready)), ready)
    assert found.failure == "identification: no data"


def test_data_of_any_motion_bound_the_payload(model, ready):
    """As for the Fourier series: tracked by a PID, identified afterwards, in batches that need not come out even."""
    cell = FreeCell(model, "5lb", 4, ready)
    tap = RecordingCell(cell)
    law = make_law("gravity_pid", model, design_gains(model, lockstep=True))
    law.reset(cell.time, cell.measurement.q, cell.measurement.qd)
    start = np.stack([ready, 0 * ready, 0 * ready])
    there = QuinticTrajectory.to_rest(start, ready + 0.3 * np.array([1, -1, 1, 1, -1, 1, 1.0]), 2.0)
    rest = follow(tap, law, model_before(METHODS["grav-pid-excit"], model), there.state, 2.0)
    found = identify_from(model, tap, rest)
    assert found.failure == ""
    assert found.box.contains(cell.truth)
    assert len(found.notes["stamps"]) == 2
    assert found.box.payload_upper[0] - found.box.payload_lower[0] < 2.0
