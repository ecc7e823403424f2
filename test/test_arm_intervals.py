"""Guaranteed intervals of an arm's base parameters: the truth is inside, a dishonest error bound is found."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from campaign_support import MUTATIONS, each_trial, enough_noticed, is_noticed, make_dishonest
from certificate_support import random_log, random_model

from safe_sysid.identification.arm.bounds import control_box, intervals
from safe_sysid.identification.arm.bounds.control_box import exchanges
from safe_sysid.identification.arm.bounds.intervals import ArmIntervalsError, arm_intervals, base_of
from safe_sysid.identification.bounds.feasible_set import FeasibleSet
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.robot.loading import load_robot
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import NO_PAYLOAD
from safe_sysid.studies.campaign.arm_trial import run_trial
from safe_sysid.studies.campaign.summary import is_sound, summarise


def trials(count, options, start=0):
    return list(each_trial(run_trial, count, options, start))


@cache
def arm():
    """(model, true parameters, two logs) of two joints."""
    rng = np.random.default_rng(0)
    model, theta = random_model(rng, 2)
    return model, theta, [random_log(rng, model, theta, 4.0) for _ in range(2)]


def test_nothing_gets_out_of_honest_intervals():
    results = trials(4, {"fixed": {"joints": 3}}, 40)
    assert [r for r in results if not is_sound(r)] == []
    assert summarise(results)["median_width"] < 0.9


def test_a_wrong_exchange_of_bodies_between_links_is_found(monkeypatch):
    monkeypatch.setattr(
        control_box, "exchanges", lambda kin: np.where(exchanges(kin) < 0.0, 1.05, 1.0) * exchanges(kin)
    )
    assert not all(is_sound(r) for r in each_trial(run_trial, 2, {"fixed": {"joints": 3}}, 40))


def test_logs_tell_more_together_and_each_bound_stands_on_its_multipliers():
    model, theta, logs = arm()
    errors, base, box = MeasurementErrors.from_model(model), base_of(model), model.arm_prior
    both = arm_intervals(model, errors, logs, base, box)
    alone = arm_intervals(model, errors, logs[:1], base, box)
    assert set(both.rows.log.tolist()) == {0, 1}
    narrow = (both.upper - both.lower) / (both.prior_upper - both.prior_lower)
    assert np.median(narrow) < np.median((alone.upper - alone.lower) / (both.prior_upper - both.prior_lower))
    assert np.median(narrow) < 0.3
    exact = [Fraction(x) for x in theta.tolist()]
    target, slack = both.rows.target, both.rows.slack
    for i, c in enumerate(base.matrix):
        truth = sum((Fraction(float(x)) * t for x, t in zip(c, exact, strict=True)), Fraction(0))
        assert Fraction(float(both.lower[i])) <= truth <= Fraction(float(both.upper[i]))
        for y, sign, bound in (
            (both.multipliers[i], -1.0, both.lower[i]),
            (both.multipliers[len(base) + i], 1.0, both.upper[i]),
        ):
            rest = c - both.rows.matrix.T @ y
            proved = y @ target + sign * (np.abs(y) @ slack) + rest @ box.mid + sign * (np.abs(rest) @ box.rad)
            room = 3e-7 * (np.abs(c) @ (box.upper - box.lower))
            assert -1e-12 <= sign * (bound - proved) <= room
    far = theta + 0.2 * box.rad * np.resize([1.0, -1.0], theta.size)  # beyond what is proved of some
    law = control_box.control_box(both, model, far)
    own = np.setdiff1d(np.arange(theta.size), np.arange(theta.size)[model.layout.payload])
    assert np.all((law.box.lower[own] <= far[own]) & (far[own] <= law.box.upper[own]))
    proved = [x.box for x in control_box.control_boxes(both, model, far)]
    assert any(np.any((far[own] < x.lower[own]) | (x.upper[own] < far[own])) for x in proved)
    assert any(np.all((law.box.lower <= x.lower) & (x.upper <= law.box.upper)) for x in proved)


@pytest.mark.slow
def test_of_long_logs_a_part_is_taken_that_is_spread_over_them(monkeypatch):
    model, theta, logs = arm()
    errors = MeasurementErrors.from_model(model)
    whole = arm_intervals(model, errors, logs, box=model.arm_prior)
    monkeypatch.setattr(intervals, "_MOST", 200)
    monkeypatch.setattr(intervals, "_PIECE", 500)
    some = arm_intervals(model, errors, logs, box=model.arm_prior)
    every = arm_intervals(model, errors, logs, box=model.arm_prior, thorough=True)
    assert every.equations > 0.9 * whole.equations  # no window reaches from one piece to the next
    lengths = len(default_windows(model, errors))
    assert some.equations < 300 * lengths < whole.equations
    assert set(some.rows.log.tolist()) == {0, 1}
    assert some.rows.last.max() > 0.7 * len(logs[0])
    truth = some.base.matrix @ theta
    assert np.all((some.lower <= truth) & (truth <= some.upper))
    narrow, width = some.upper - some.lower, some.prior_upper - some.prior_lower
    assert np.sum(narrow < 0.5 * width) > 5  # 200 equations of each length say something
    assert np.median(narrow / width) > np.median((whole.upper - whole.lower) / width)  # and fewer than all


def test_a_bias_that_is_another_in_each_log_excludes_no_truth():
    model, theta, logs = arm()
    bias = np.array([0.3, -0.2])
    biased = [replace(log, effort=log.effort + s * bias) for log, s in zip(logs, (1.0, -1.0), strict=True)]
    errors = replace(MeasurementErrors.from_model(model), torque_bias=np.abs(bias))
    found = arm_intervals(model, errors, biased, box=model.arm_prior)
    truth = found.base.matrix @ theta
    assert np.all((found.lower <= truth) & (truth <= found.upper))
    assert not np.any(found.errors.torque_bias)
    with pytest.raises(ArmIntervalsError, match="false"):  # as one unknown it would be a contradiction
        arm_intervals(model, replace(errors, torque_bias=np.zeros(2)), biased, box=model.arm_prior)


def test_a_combination_of_one_parameter_is_bounded_like_the_parameter():
    model, _, logs = arm()
    errors, box = MeasurementErrors.from_model(model), model.arm_prior
    rows = MomentumStream(model, errors, default_windows(model, errors)).push(logs[0], box)
    one, other = FeasibleSet(box), FeasibleSet(box, functionals=4.0 * np.eye(box.size))
    at = np.arange(10, 16)
    for each in (one, other):
        each.add(rows)
    found, scaled = one.bound(at, box), other.bound(other.unknowns + at, box)
    width = box.upper[at] - box.lower[at]
    np.testing.assert_allclose(scaled.lower / 4.0, found.lower, atol=0.03 * width.max())
    np.testing.assert_allclose(scaled.upper / 4.0, found.upper, atol=0.03 * width.max())
    assert np.any(found.upper < box.upper[at] - 0.1 * width)


def test_a_false_declaration_is_said_and_no_log_is_no_interval():
    model, _, logs = arm()
    errors = MeasurementErrors.from_model(model)
    far = model.arm_prior.with_payload(np.full(10, 30.0), np.full(10, 31.0))
    with pytest.raises(ArmIntervalsError, match="a declared assumption is false; largest part: window"):
        arm_intervals(model, errors, logs, box=far)
    with pytest.raises(ArmIntervalsError, match="no momentum equations") as said:
        arm_intervals(model, errors, [logs[0][:3]])
    assert said.value.without_equations


@pytest.mark.slow
def test_faults_that_fit_another_arm_contradict_a_declared_one():
    """All torques 1.3 times too large, or another gear ratio of a nearly round last link: no arm within 30 % is so."""
    model = load_robot("ur5e", **{"uncertainty.relative": 0.3})
    rng = np.random.default_rng(1)
    log = random_log(rng, model, draw_truth(model, NO_PAYLOAD, rng, "uniform"), 1.5)
    errors, last = MeasurementErrors.from_model(model), np.where(np.arange(model.n) == model.n - 1, 2.0, 1.0)
    arm_intervals(model, errors, [log])
    for q, qd, effort in ((1.0, 1.0, 1.3), (last, last, 1.0)):
        with pytest.raises(ArmIntervalsError, match="a declared assumption is false"):
            arm_intervals(model, errors, [replace(log, q=q * log.q, qd=qd * log.qd, effort=effort * log.effort)])


@pytest.mark.parametrize(
    "name", [name if name == "coulomb" else pytest.param(name, marks=pytest.mark.slow) for name in MUTATIONS]
)
def test_a_dishonest_error_bound_is_found_by_six_trials(monkeypatch, name):
    fixed, floor = MUTATIONS[name]
    options = {"fixed": {"noise": "aimed", "lost": False, "simulated": False, "joints": 3} | fixed}
    assert not any(map(is_noticed, trials(6, options)))
    make_dishonest(monkeypatch, name)
    assert enough_noticed(min(floor, 2), each_trial(run_trial, 6, options))


@pytest.mark.slow
def test_sixty_trials():
    results = trials(60, {}, 1000)
    assert [r for r in results if not is_sound(r)] == []
    options = {"beyond": 1.05, "fixed": {"noise": "ascent", "level": "coarse", "lost": False}}
    assert enough_noticed(5, each_trial(run_trial, 16, options))
