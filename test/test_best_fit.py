"""The estimate of a log: better than the box's centre, inside the bounds, a body; and what makes bounds wide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from identification_plant import TrueLog, exciting_plans, simulate

from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.diagnosis.excitation_words import WeakCombination, describe_excitation
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.estimates.best_fit import best_fit
from safe_sysid.identification.estimates.projected import body_margin
from safe_sysid.logs.checks.effort_checks import sample_windows
from safe_sysid.logs.log import Log
from safe_sysid.logs.run import LogRun, run_log, with_best_fit
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec

pytestmark = pytest.mark.unproved

GAIN, NOISE = np.array([1.01, 0.99, 1.01]), 0.15
DECLARED = {"measurement.torque_abs": 0.65, "measurement.torque_rel": 0.045}


@pytest.fixture(scope="module")
def moved() -> tuple[np.ndarray, TrueLog]:
    """True parameters and what the arm does."""
    model, rng = load_robot("three_joint"), np.random.default_rng(4)
    truth = draw_truth(model, payload_from_spec("4lb"), rng, "uniform")
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=3, t_f=2.5, amplitude=0.8)
    return truth, simulate(model.kinematics, truth, model.friction_transition_velocity, plans)


def measured(log: TrueLog, rng: np.random.Generator, torque: np.ndarray) -> Log:
    """With Gaussian noise."""
    effort = torque + np.clip(rng.normal(0.0, NOISE, torque.shape), -0.6, 0.6)
    return Log(load_robot("three_joint").joint_names, Measurements(log.stamps, log.q, log.qd, effort))


@pytest.fixture(scope="module")
def recorded(moved: tuple[np.ndarray, TrueLog]) -> tuple[np.ndarray, Log]:
    """True parameters, and a log with gains that are off."""
    return moved[0], measured(moved[1], np.random.default_rng(4), moved[1].torque * GAIN)


#: The robot, what is proved of the log, and the same with the best fit.
Fitted = tuple[RobotModel, LogRun, LogRun]


@pytest.fixture(scope="module")
def fitted(recorded: tuple[np.ndarray, Log]) -> Fitted:
    model = load_robot("three_joint", **DECLARED)
    run = run_log(recorded[1], model)
    return model, run, with_best_fit(run, recorded[1], model)


def test_the_estimate_is_the_best_fit_inside_the_bounds(recorded: tuple[np.ndarray, Log], fitted: Fitted) -> None:
    model, before, after = fitted
    truth = recorded[0][model.layout.payload]
    last, old = after.records[-1], before.records[-1]
    assert np.array_equal(last.lower, old.lower)
    assert np.array_equal(last.upper, old.upper)
    assert np.all((last.lower <= last.nominal) & (last.nominal <= last.upper))
    assert after.fit is not None
    assert after.fit.consistent
    assert body_margin(last.nominal) >= 0.0
    off, before = abs(last.nominal[1] - truth[1]), abs(old.nominal[1] - truth[1])
    assert off < min(0.03 * abs(truth[1]), before)  # what gravity tells: m c along the arm


def test_noise_does_not_make_masses_smaller(moved: tuple[np.ndarray, TrueLog], fitted: Fitted) -> None:
    """As it does where the gain of a sensor is a factor of what was measured; nor do declared errors move the fit."""
    (truth, log), (model, run, _), rng = moved, fitted, np.random.default_rng(5)
    off, prior = [], replace(run, box=model.arm_prior)
    for _ in range(8):
        fit = with_best_fit(prior, measured(log, rng, log.torque), model).fit
        assert fit is not None
        off.append((fit.theta[0] - truth[model.layout.payload][0]) / fit.standard_error[0])
    assert abs(np.mean(off)) < 0.3, off


def test_friction_of_a_joint_that_stands_is_not_taken_for_payload(fitted: Fitted) -> None:
    """It may be anything within Fc then: a motor that pushes against it tells nothing of offsets and masses."""
    model, run, _ = fitted
    rng = np.random.default_rng(7)
    truth = draw_truth(model, payload_from_spec("4lb"), rng, "uniform")
    v_c = model.friction_transition_velocity
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=2, t_f=2.5, amplitude=0.8)
    log = simulate(model.kinematics, truth, v_c, [*plans[:-1], (plans[-1][0], 5.0)])
    recorded = measured(log, rng, log.torque + 0.95 * truth[model.layout.coulomb] * (np.abs(log.qd) < v_c))
    fit = with_best_fit(replace(run, box=model.arm_prior), recorded, model).fit
    assert fit is not None
    assert abs(fit.theta[0] - truth[model.layout.payload][0]) < 2.0 * fit.standard_error[0]


def test_standard_errors_are_those_of_the_errors(recorded: tuple[np.ndarray, Log], fitted: Fitted) -> None:
    """Neither beside the truth by many of them, nor as wide as the proved interval."""
    model, _, after = fitted
    fit, last = after.fit, after.records[-1]
    assert fit is not None
    off = np.abs(last.nominal - recorded[0][model.layout.payload]) / fit.standard_error
    assert np.mean(off < 1.96) >= 0.9
    assert fit.standard_error[0] < 0.4 * (last.upper[0] - last.lower[0])


def test_errors_are_finite_of_equations_that_hold_exactly(recorded: tuple[np.ndarray, Log]) -> None:
    """A constant error, or none, leaves weights so large that rounding is more than what is known beforehand."""
    truth, log = recorded
    model = load_robot("three_joint")
    windows = sample_windows(log, model, MeasurementErrors.from_model(model), 400)
    assert windows is not None
    rows = windows.rows(model, MeasurementErrors.from_model(model))
    rows = replace(rows, target=rows.matrix @ truth)
    narrow = ParameterBox(*(np.where(np.arange(truth.size) % 7 == 0, truth + sign * 1e-12, side) for sign, side in (
        (-1.0, model.arm_prior.lower), (1.0, model.arm_prior.upper))))  # fmt: skip
    found = best_fit(rows, narrow, narrow, np.zeros(model.n), PayloadConstraints.from_model(model))
    assert np.all(np.isfinite(found.standard_error))
    assert np.isfinite(found.payload_mass_error)


def test_spikes_hardly_move_it(recorded: tuple[np.ndarray, Log], fitted: Fitted) -> None:
    model, before, after = fitted
    effort = np.array(recorded[1].measurements.effort)
    effort[::1100] += 80.0  # one window in eleven has one
    spiked = replace(recorded[1], measurements=replace(recorded[1].measurements, effort=effort))
    moved = with_best_fit(before, spiked, model).records[-1].nominal[0] - after.records[-1].nominal[0]
    assert abs(moved) < 0.15


def test_the_cause_that_dominates_is_named(fitted: Fitted) -> None:
    usual = fitted[1].causes
    assert sum(usual.values()) == pytest.approx(1.0)
    assert next(iter(usual)) == "torque error"
    weak = [WeakCombination(np.eye(10)[0], "kg", 0.4, 1.0, "hold more postures")]
    (line,) = describe_excitation(weak, fitted[1].widths)  # no motion is asked for where the declaration is the cause
    assert line.startswith("wide: m is known to")
    assert line.endswith("torque error")
    assert describe_excitation(weak)[0].endswith("hold more postures")


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("uncertainty.relative", 0.3, "arm parameters"),
        pytest.param("uncertainty.floor.offset", 3.0, "friction", marks=pytest.mark.slow),
    ],
)
def test_what_is_declared_more_widely_makes_more_of_the_width(
    recorded: tuple[np.ndarray, Log], fitted: Fitted, key: str, value: float, cause: str
) -> None:
    usual, widths = fitted[1].causes, fitted[1].records[-1]
    wider = run_log(recorded[1], load_robot("three_joint", **{**DECLARED, key: value}))
    last = wider.records[-1]
    before = usual[cause] * (widths.upper[0] - widths.lower[0])
    assert wider.causes[cause] * (last.upper[0] - last.lower[0]) > 1.05 * before, (cause, usual, wider.causes)
