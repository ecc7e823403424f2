"""Entry point of the comparison methods: a log in, estimate and interval of theta_e out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.baselines.least_squares import LeastSquaresFit, check_confidence, fit_irls, fit_ols
from safe_sysid.identification.baselines.regression import BaselineResult, Regression, proved_regression, split
from safe_sysid.identification.baselines.sensitivity import estimate_sensitivity
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import is_consistent

__all__ = ["METHODS", "RecursiveLeastSquares", "estimate_with"]


class RecursiveLeastSquares:
    """``min sum f^(M - i) (x_i.theta - y_i)^2 + (theta - start).P0^-1.(theta - start)``, updated by each row."""

    def __init__(self, start: FloatArray, covariance: FloatArray, forgetting: float = 1.0) -> None:
        """Start before any equation.

        Args:
            start: (K,) initial estimate.
            covariance: (K, K) P0, in units of the error's variance: large for little trust in ``start``.
            forgetting: weight of an equation relative to the next one, in (0, 1]; 1 forgets nothing.

        Raises:
            ParameterError: forgetting outside (0, 1].
        """
        if not 0.0 < forgetting <= 1.0:
            raise ParameterError(f"forgetting = {forgetting!r}: expected a number in (0, 1]")
        self.estimate, self._p = np.array(start, float), np.array(covariance, float)
        self._forgetting = forgetting
        self._squares = np.zeros_like(self._p)  # sum of forgetting^(2 (M - i)) x x^T
        self._residual = 0.0  # weighted sum of squared errors
        self._weight = 0.0  # sum of weights
        self.count = 0

    def add(self, matrix: FloatArray, target: FloatArray) -> None:
        """Take equations (M, K), (M,) in, in order."""
        forgetting = self._forgetting
        for x, y in zip(matrix, target, strict=True):
            px = self._p @ x
            divisor = forgetting + float(x @ px)
            gain = px / divisor
            error = float(y) - float(x @ self.estimate)
            self.estimate = self.estimate + gain * error
            p = (self._p - np.outer(gain, px)) / forgetting
            self._p = 0.5 * (p + p.T)
            self._squares = forgetting**2 * self._squares + np.outer(x, x)
            # Error before times error after the update: their weighted sum is the weighted residual sum of squares.
            self._residual = forgetting * self._residual + error * error * forgetting / divisor
            self._weight = forgetting * self._weight + 1.0
            self.count += 1

    def fit(self) -> LeastSquaresFit:
        """Estimate and covariance now.

        For independent errors of variance v the estimate's covariance is ``v P S P``, S the doubly forgotten squares;
        P0's part is left out. Degrees of freedom are those of as many equations as the weights amount to.
        """
        degrees = max(self._weight - len(self.estimate), 1.0)
        covariance = (self._residual / degrees) * self._p @ self._squares @ self._p
        return LeastSquaresFit(self.estimate.copy(), covariance, degrees)


METHODS = ("sensitivity", "ols", "irls", "rls")
_LITTLE_TRUST = 1e6  # of the prior's centre, in squared radii of the prior
_APART = 1e4  # condition number up to which columns count as different
_UNPROVED = (
    "not guaranteed: {share:g} % for each component alone if equation errors were independent, of zero mean and{more} "
    "equal variance, and the arm's links exactly nominal"
)


def estimate_with(
    method: str,
    model: RobotModel,
    errors: MeasurementErrors,
    measurements: Measurements,
    *,
    window: float | None = None,
    confidence: float = 0.95,
    **options: Any,
) -> BaselineResult:
    """Estimate theta_e from one log with a comparison method.

    Args:
        method: one of :data:`METHODS`.
        window: length of the momentum windows, s; None for the configuration's.
        confidence: of the intervals; not used by "sensitivity".
        options: "sensitivity" takes ``variant`` and ``factor``, see
            :func:`~safe_sysid.identification.baselines.sensitivity.estimate_sensitivity`; "rls" takes ``forgetting``,
            the weight of a *second* relative to the next one.

    Raises:
        ParameterError: unknown method or option, a log without a window, or one that does not excite all ten.
    """
    if method not in METHODS:
        raise ParameterError(f"method = {method!r}: expected one of {', '.join(METHODS)}")
    window = model.settings.identification.window_s if window is None else window
    known = {"sensitivity": {"variant", "factor"}, "rls": {"forgetting"}}.get(method, set())
    for name in options:
        if name not in known:
            raise ParameterError(f"option {name!r} of method {method!r}: expected one of {sorted(known)}")
    if method == "sensitivity":
        return estimate_sensitivity(model, errors, measurements, window, **options)
    check_confidence(confidence)
    began = time.perf_counter()
    # About the measured torque: with a relative error, proved equations stand about the middle of what it may mean.
    measured = replace(errors, torque_rel=np.zeros(model.n))
    problem = proved_regression(model, errors if method == "rls" else measured, measurements, window)
    problem.require_rank()
    response = problem.response(split(model.theta_nominal, model.arm_prior)[1])
    rows_done = time.perf_counter()
    if method == "rls":
        fit = _recursive(model, problem, response, window, **options)
    else:
        columns = np.hstack([problem.payload, _friction(model, errors, problem)])
        fit = (fit_ols(columns, response) if method == "ols" else fit_irls(columns, response, problem.joint)).first(10)
    half = fit.half_widths(confidence)
    message = _UNPROVED.format(share=100.0 * confidence, more=" per joint" if method == "irls" else "")
    if not fit.converged:
        message += f"; weights had not settled after {fit.iterations} iterations"
    return BaselineResult(
        method=method,
        estimate=fit.estimate,
        lower=fit.estimate - half,
        upper=fit.estimate + half,
        guaranteed=False,
        confidence=confidence,
        message=message,
        consistent=is_consistent(fit.estimate),
        iterations=fit.iterations,
        timings={"regressors": rows_done - began, "estimate": time.perf_counter() - rows_done},
    )


def _friction(model: RobotModel, errors: MeasurementErrors, problem: Regression) -> FloatArray:
    """(M, F) columns of friction and offsets, beside the nominal ones, as far as the motion tells them apart."""
    layout = model.layout
    blocks = (layout.offset,) if errors.torque_source == "link" else (layout.coulomb, layout.viscous, layout.offset)
    kept = problem.payload
    for block in blocks:
        for index in range(*block.indices(layout.size)):
            trial = np.column_stack([kept, problem.arm[:, index - 10]])  # they stand behind theta_e's ten
            norm = np.linalg.norm(trial, axis=0)
            if norm[-1] > 0.0 and np.linalg.cond(trial / np.where(norm > 0.0, norm, 1.0)) < _APART:
                kept = trial
    return kept[:, 10:]


def _recursive(
    model: RobotModel, problem: Regression, response: FloatArray, window: float, forgetting: float = 1.0
) -> LeastSquaresFit:
    if not 0.0 < forgetting <= 1.0:
        raise ParameterError(f"forgetting = {forgetting!r}: expected a number in (0, 1]")
    prior = model.arm_prior
    payload = prior.layout.payload
    # P0 is in units of the error's variance: equations are brought to the size of one first.
    unit = float(np.sqrt(np.mean(problem.slack**2))) or 1.0
    covariance = np.diag(_LITTLE_TRUST * np.maximum(prior.rad[payload], 1e-6) ** 2 / unit**2)
    rls = RecursiveLeastSquares(prior.mid[payload], covariance, forgetting ** (window / model.n))
    rls.add(problem.payload, response)
    return rls.fit()
