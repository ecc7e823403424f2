r"""PSO's method [PSO, Algorithm 1]: log-Cholesky least squares, and its sensitivity to everything that is uncertain.

``m = (tau_1, .., tau_N, theta_r)``; at a minimiser eta* of ``J(m, eta) = |Y P(eta) - U(m)|^2 / 2`` (eq. 25, 40)

``d theta*/d m = - P' (d^2 J/d eta^2)^-1 d^2 J/(dm d eta)``, ``d^2 J/(dm d eta) = - P'^T Y^T dU/dm`` (eq. 42 to 46),

and Theorem 13 says ``theta_e in theta*(m) + (d theta*/dm)([m]) ([m] - m)``. Variants:

- ``paper``: the derivative at the measured m only, from one floating-point factorisation, as published code does. Not
  guaranteed: it is no enclosure over [m], Euler sums have errors of their own, and on the boundary of the consistent
  set no minimiser exists: there P' loses rank and the interval collapses in some directions.
- ``per_row``: the same with arm parameters treated as if they changed from equation to equation.
- ``enclosed``: :mod:`safe_sysid.identification.baselines.enclosed`, Hessian and derivative enclosed over an interval
  that is proved to hold every minimiser, or "not proved".
- ``linear``: what is left of the theorem without log-Cholesky. A finite minimiser has ``Y^T (Y theta - U) = 0`` (P' is
  invertible), so theta* is ordinary least squares and *linear* in m: any left inverse A of Y bounds
  ``theta_e = A U(m)`` rigorously. Guaranteed, consistent or not.

Two factorisations: ``U^T U`` is PSO's equation 16, ``U U^T`` this package's. In the interior both give the same minimum
and derivative. Where the minimum lies on the boundary, the former's search creeps through a valley (alpha runs to minus
infinity, the parameters of the first moments to infinity) and stops anywhere in it.
"""

from __future__ import annotations

import time

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.baselines.enclosed import enclosed_bounds, linear_bounds
from safe_sysid.identification.baselines.regression import (
    BaselineResult,
    Regression,
    euler_regression,
    proved_regression,
    split,
)
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.estimates.newton import (
    LogCholeskyAnswer,
    ball,
    cost_and_derivatives,
    fit_log_cholesky,
    log_cholesky_derivatives,
)
from safe_sysid.identification.estimates.quadratic import Quadratic
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import is_consistent

__all__ = ["VARIANTS", "estimate_sensitivity", "normal_quadratic", "theorem_13"]

VARIANTS = ("paper", "per_row", "enclosed", "linear")
_PAPER = "not guaranteed: one floating-point derivative instead of an enclosure over [m]; Euler sums without error term"


def normal_quadratic(problem: Regression, theta_r: FloatArray) -> Quadratic:
    """``|Y theta - U|^2 / 2`` as a quadratic in theta (10,)."""
    return Quadratic(problem.payload.T @ problem.payload, problem.payload.T @ problem.response(theta_r))


def theorem_13(
    problem: Regression,
    answer: LogCholeskyAnswer,
    theta_r: FloatArray,
    arm_radius: FloatArray,
    per_row: bool = False,
    paper: bool = False,
) -> tuple[FloatArray, bool]:
    """Half widths (10,) by equation 46 at the measured m, and whether the Hessian's factorisation succeeded.

    Args:
        theta_r: (P - 10,) nominal arm.
        arm_radius: (P - 10,) half width of [theta_r].
        per_row: sum the arm's share row by row in absolute value.
        paper: answer is in the parameters of equation 16.
    """
    quadratic = normal_quadratic(problem, theta_r)
    _, _, hessian, _ = cost_and_derivatives(quadratic, answer.eta, paper)
    _, jacobian, _ = log_cholesky_derivatives(answer.eta, paper)
    gain, regular = _solved(hessian, jacobian.T)
    sensitivity = jacobian @ gain @ problem.payload.T  # (10, M): d theta* / d U
    torque = np.abs(sensitivity) @ problem.slack
    if per_row:
        return torque + np.abs(sensitivity) @ (np.abs(problem.arm) @ arm_radius), regular
    return torque + np.abs(sensitivity @ problem.arm) @ arm_radius, regular


def _solved(hessian: FloatArray, right: FloatArray) -> tuple[FloatArray, bool]:
    """``hessian^-1 right``, columns scaled; by eigenvalues, leaving out those that vanish, if Cholesky fails."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
    scaled = hessian * scale[:, None] * scale
    try:
        factor = np.linalg.cholesky(scaled)
        half = np.linalg.solve(factor, scale[:, None] * right)
        return scale[:, None] * np.linalg.solve(factor.T, half), True
    except np.linalg.LinAlgError:
        return scale[:, None] * (np.linalg.pinv(scaled, rcond=1e-12) @ (scale[:, None] * right)), False


def estimate_sensitivity(
    model: RobotModel,
    errors: MeasurementErrors,
    measurements: Measurements,
    window: float = 0.1,
    variant: str = "paper",
    factor: str = "UUt",
) -> BaselineResult:
    """PSO's estimate and bounds of theta_e from one log.

    Args:
        model: the arm; its prior gives [theta_r] and the nominal.
        window: length of a window, s.
        variant: one of :data:`VARIANTS`.
        factor: "UtU", equation 16, or "UUt"; only for the variants that are not proved.

    Raises:
        ParameterError: unknown variant or factor, no window fits, or the motion does not excite all ten parameters.
    """
    if variant not in VARIANTS:
        raise ParameterError(f"variant = {variant!r}: expected one of {', '.join(VARIANTS)}")
    if factor not in ("UtU", "UUt"):
        raise ParameterError(f"factor = {factor!r}: expected UtU or UUt")
    published = variant in ("paper", "per_row")
    paper = published and factor == "UtU"
    began = time.perf_counter()
    make = euler_regression if published else proved_regression
    problem = make(model, errors, measurements, window)
    problem.require_rank()
    _, theta_r = split(model.theta_nominal, model.arm_prior)
    payload_box, arm_box = (
        tuple(side)
        for side in zip(
            *(split(side, model.arm_prior) for side in (model.arm_prior.lower, model.arm_prior.upper)), strict=True
        )
    )
    rows_done = time.perf_counter()
    quadratic = normal_quadratic(problem, theta_r)
    answer = fit_log_cholesky(quadratic, ball() if published else None, paper=paper, escape=not published)
    fitted = time.perf_counter()
    guaranteed = False
    if published:
        # m's interval need not be centred at the nominal: a half width about the nominal that covers it.
        radius = np.maximum(arm_box[1] - theta_r, theta_r - arm_box[0])
        half, regular = theorem_13(problem, answer, theta_r, radius, per_row=variant == "per_row", paper=paper)
        lower, upper = answer.theta - half, answer.theta + half
        message = _PAPER + ("" if regular else "; Hessian not positive definite")
        if not answer.converged:
            message += f"; no minimiser within {answer.iterations} iterations"
        if not answer.optimal:
            message += "; the search was caught on a face of the cone that holds no minimum"
        if answer.boundary:
            message += "; estimate on the boundary of the consistent set: the interval collapses there"
    elif variant == "linear":
        lower, upper, proof = linear_bounds(problem, arm_box, payload_box)
        guaranteed, message = (proof is None, proof or "guaranteed: any left inverse of Y bounds theta_e linearly")
    else:
        lower, upper, proof = enclosed_bounds(problem, answer, arm_box, payload_box)
        guaranteed = proof is None
        message = proof or "guaranteed: one minimiser for every m, proved in interval arithmetic"
    done = time.perf_counter()
    return BaselineResult(
        method=f"sensitivity ({variant})",
        estimate=answer.theta,
        lower=lower,
        upper=upper,
        guaranteed=guaranteed,
        confidence=None,
        message=message,
        consistent=is_consistent(answer.theta),
        iterations=answer.iterations,
        boundary=answer.boundary,
        timings={"regressors": rows_done - began, "estimate": fitted - rows_done, "bound": done - fitted},
    )
