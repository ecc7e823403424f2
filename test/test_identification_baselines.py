"""Classical least squares: algebra, rates of confidence intervals, and the one entry for all comparison methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from identification_plant import exciting_plans, simulate

from safe_sysid.errors import ParameterError
from safe_sysid.identification.baselines.least_squares import fit_irls, fit_ols
from safe_sysid.identification.baselines.methods import METHODS, RecursiveLeastSquares, estimate_with
from safe_sysid.identification.baselines.regression import BaselineResult
from safe_sysid.identification.baselines.sensitivity import VARIANTS
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.loading import load_robot
from safe_sysid.simulation.payloads import payload_from_spec, theta_e_with_payload

pytestmark = pytest.mark.unproved

SEEDS = st.integers(0, 10**6)
GROUPS = np.arange(240) % 3


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_recursive_equals_ordinary_least_squares_without_forgetting(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(60, 5)) * np.geomspace(0.1, 10.0, 5)
    target = matrix @ rng.normal(size=5) + 0.3 * rng.normal(size=60)
    rls = RecursiveLeastSquares(np.zeros(5), 1e9 * np.eye(5))
    for first in range(0, 60, 7):
        rls.add(matrix[first : first + 7], target[first : first + 7])
    fit, ols = rls.fit(), fit_ols(matrix, target)
    assert fit.estimate == pytest.approx(ols.estimate, rel=1e-4, abs=1e-5)
    assert np.diag(fit.covariance) == pytest.approx(np.diag(ols.covariance), rel=1e-3)


@given(SEEDS, st.floats(0.7, 0.99))
@settings(max_examples=25, deadline=None)
def test_forgetting_is_exponential_weighting(seed, forgetting):
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(50, 4)), rng.normal(size=50)
    rls = RecursiveLeastSquares(np.zeros(4), 1e9 * np.eye(4), forgetting)
    rls.add(matrix, target)
    weight = np.sqrt(forgetting ** np.arange(49, -1, -1.0))
    assert rls.fit().estimate == pytest.approx(
        np.linalg.lstsq(matrix * weight[:, None], target * weight, rcond=None)[0], rel=1e-4, abs=1e-5
    )


def reweighted(matrix, target):
    return fit_irls(matrix, target, GROUPS)


def forgetting(matrix, target):
    rls = RecursiveLeastSquares(np.zeros(4), 1e8 * np.eye(4), 0.97)
    rls.add(matrix, target)
    return rls.fit()


@pytest.mark.parametrize(
    ("fit", "confidence", "trials", "sigma", "more"),
    [
        (fit_ols, 0.5, 1500, np.ones(9), 0.0),
        (fit_ols, 0.9, 1500, np.ones(9), 0.0),
        (reweighted, 0.9, 120, np.array([0.1, 1.0, 10.0])[GROUPS], 0.015),  # asymptotic: the scales are estimated too
        (forgetting, 0.9, 120, np.ones(200), 0.01),  # Student's quantile is no exact one under weights
    ],
)
def test_intervals_hold_the_truth_at_the_stated_rate(fit, confidence, trials, sigma, more):
    """Over many draws of normal errors, within four standard deviations of the share of components inside."""
    rng, inside = np.random.default_rng(0), 0
    for _ in range(trials):
        matrix, truth = rng.normal(size=(len(sigma), 4)), rng.normal(size=4)
        found = fit(matrix, matrix @ truth + sigma * rng.normal(size=len(sigma)))
        inside += int(np.sum(np.abs(found.estimate - truth) <= found.half_widths(confidence)))
    deviation = np.sqrt(confidence * (1.0 - confidence) / (4 * trials))
    assert abs(inside / (4 * trials) - confidence) < 4.0 * deviation + more


def test_reweighting_uses_the_quiet_joint_and_shrugs_off_outliers():
    rng = np.random.default_rng(2)
    errors = {"ordinary": [], "reweighted": []}
    for _ in range(40):
        groups = np.arange(200) % 2
        matrix, truth = rng.normal(size=(200, 4)), rng.normal(size=4)
        noise = np.where(groups == 0, 0.1, 2.0) * rng.normal(size=200)
        noise[rng.random(200) < 0.05] += 30.0
        fit = fit_irls(matrix, matrix @ truth + noise, groups)
        assert fit.converged
        errors["reweighted"].append(np.linalg.norm(fit.estimate - truth))
        errors["ordinary"].append(np.linalg.norm(fit_ols(matrix, matrix @ truth + noise).estimate - truth))
    assert np.median(errors["reweighted"]) < 0.1 * np.median(errors["ordinary"])


def test_result_refuses_what_contradicts_itself():
    zero = np.zeros(10)
    good = {"method": "x", "estimate": zero, "lower": zero - 1, "upper": zero + 1, "confidence": None, "message": ""}
    result = BaselineResult(**good, guaranteed=True)
    assert result.contains(zero)
    assert not result.contains(zero + 2)
    assert result.half_widths == pytest.approx(np.ones(10))
    with pytest.raises(ParameterError, match="at most upper"):
        BaselineResult(**{**good, "lower": zero + 2}, guaranteed=False)
    with pytest.raises(ParameterError, match="at most upper"):
        BaselineResult(**{**good, "upper": zero * np.nan}, guaranteed=False)
    with pytest.raises(ParameterError, match="one of both"):
        BaselineResult(**{**good, "confidence": 0.9}, guaranteed=True)
    with pytest.raises(ValueError, match="read-only"):
        result.estimate[0] = 1.0


@pytest.fixture(scope="module")
def exact():
    """The nominal Kinova with a dumbbell, noise-free: 3 s."""
    model = load_robot("kinova_gen3")
    theta, last = model.theta_nominal.copy(), model.arm_prior.layout.payload
    theta[last] = theta_e_with_payload(model, theta[last], payload_from_spec("6lb"))
    rng = np.random.default_rng(1)
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=2, t_f=2.0, t_p=1.0)
    log = simulate(model.kinematics, theta, model.friction_transition_velocity, plans, substeps=1)
    errors = MeasurementErrors.from_model(model)
    return model, errors, Measurements(log.stamps, log.q, log.qd, log.torque), theta[last]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_truth_of_an_exact_log(exact, method):
    model, errors, data, truth = exact
    # Declared noise moves the middle of what a torque may be: (1 + b^2)/(1 - b^2) of it. Here there is none.
    errors = replace(errors, torque_abs=0.0, torque_rel=0.0)
    result = estimate_with(method, model, errors, data, window=0.05)
    # Sensitivity sums by Euler's rule, as in the paper: that leaves an error of its own.
    tolerance = 0.03 if method == "sensitivity" else 2e-3
    assert np.abs(result.estimate - truth).max() < tolerance
    assert not result.guaranteed
    assert result.message.startswith("not guaranteed")
    assert (result.confidence is None) == (method == "sensitivity")
    assert result.timings["regressors"] > 0.0


@pytest.mark.parametrize("method", ["ols", "irls"])
def test_friction_and_offsets_that_nobody_declared_are_fitted(exact, method):
    model, errors, data, truth = exact
    errors = replace(errors, torque_abs=0.1, torque_rel=0.05)
    effort = np.array(data.effort)
    effort[1:] += 0.5 * 0.5 * (data.qd[1:] + data.qd[:-1]) + 0.4
    result = estimate_with(method, model, errors, replace(data, effort=effort), window=0.05)
    assert np.abs(result.estimate - truth).max() < 2e-3


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_proved_variants_are_labelled_guaranteed(exact, variant):
    model, errors, data, truth = exact
    result = estimate_with("sensitivity", model, errors, data, window=0.1, variant=variant)
    assert result.contains(truth)
    label = {"linear": "guaranteed", "enclosed": "not proved"}.get(variant, "not guaranteed")
    assert result.message.split(":")[0] == label
    assert result.guaranteed == (variant == "linear")  # with 5 % of arm nothing else is proved


def test_wrong_requests_are_refused(exact):
    model, errors, data, _ = exact
    with pytest.raises(ParameterError, match=r"method = 'magic': expected one of sensitivity, ols, irls, rls"):
        estimate_with("magic", model, errors, data)
    with pytest.raises(ParameterError, match="option 'forgetting' of method 'ols'"):
        estimate_with("ols", model, errors, data, forgetting=0.9)
    with pytest.raises(ParameterError, match=r"forgetting = 1\.5"):
        estimate_with("rls", model, errors, data, forgetting=1.5)
    with pytest.raises(ParameterError, match=r"confidence = 1\.0"):
        estimate_with("ols", model, errors, data, confidence=1.0)
    with pytest.raises(ParameterError, match="variant = 'best'"):
        estimate_with("sensitivity", model, errors, data, variant="best")
    still = Measurements(data.stamps, 0 * data.q + 0.1, 0 * data.qd, 0 * data.effort)
    with pytest.raises(ParameterError, match=r"rank \d of 10: expected a motion that excites"):
        estimate_with("ols", model, errors, still)
    with pytest.raises(ParameterError, match="expected at least one window"):
        estimate_with("sensitivity", model, errors, data[:10])
