r"""Ordinary and iteratively reweighted least squares for theta_e, with confidence intervals [Gautier1988; Huber1981].

The arm's links are taken at their nominal, friction and offsets of the joints are fitted. Intervals are those of
regression theory: they hold the truth with the stated probability if the equations' errors are independent, of one
variance (per joint, for the reweighted method) and zero mean *and the links are exactly their nominal*. Declared
bounded errors are neither independent nor of zero mean, and links never are their nominal: nothing is guaranteed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit  # scipy.stats alone would take longer to import than all else here

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError

__all__ = ["LeastSquaresFit", "check_confidence", "fit_irls", "fit_ols"]

_HUBER = 1.345  # 95 % efficient under normal errors [Huber1981]
_ITERATIONS = 100
_SCALE_ROUNDS = 10
_MAD = 1.482602218505602  # standard deviation over median absolute deviation of a normal distribution


@dataclass(frozen=True, eq=False)
class LeastSquaresFit:
    """A fit of K parameters to M equations."""

    estimate: FloatArray  #: (K,)
    covariance: FloatArray  #: (K, K) of the estimate, under the method's assumptions
    degrees: float  #: of freedom left, M - K
    iterations: int = 1  #: of reweighting; 1 without
    converged: bool = True  #: whether the weights settled

    def first(self, count: int) -> LeastSquaresFit:
        """The first parameters alone, as if nobody had asked for the others."""
        return replace(self, estimate=self.estimate[:count], covariance=self.covariance[:count, :count])

    def half_widths(self, confidence: float) -> FloatArray:
        """(K,) half widths of the intervals for each component alone, by Student's distribution.

        Raises:
            ParameterError: confidence not inside (0, 1).
        """
        check_confidence(confidence)
        quantile = stdtrit(max(self.degrees, 1.0), 0.5 + 0.5 * confidence)
        return quantile * np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def check_confidence(confidence: float) -> None:
    """Check that a confidence lies strictly between 0 and 1.

    Raises:
        ParameterError: it is not.
    """
    if not 0.0 < confidence < 1.0:
        raise ParameterError(f"confidence = {confidence!r}: expected a number between 0 and 1, such as 0.95")


def fit_ols(matrix: FloatArray, target: FloatArray) -> LeastSquaresFit:
    """``min |X x - y|^2`` by QR. ``matrix``: (M, K) X of full column rank, M > K; ``target``: (M,) y.

    Raises:
        ParameterError: not more equations than unknowns.
    """
    rows, unknowns = matrix.shape
    if rows <= unknowns:
        raise ParameterError(f"{rows} equations for {unknowns} parameters: expected more equations than parameters")
    scale = np.linalg.norm(matrix, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    q, r = np.linalg.qr(matrix / scale)
    inverse = np.linalg.inv(r) / scale[:, None]
    estimate = inverse @ (q.T @ target)
    residual = target - matrix @ estimate
    variance = float(residual @ residual) / (rows - unknowns)
    return LeastSquaresFit(estimate, variance * inverse @ inverse.T, rows - unknowns)


def fit_irls(matrix: FloatArray, target: FloatArray, group: IntArray) -> LeastSquaresFit:
    """Huber's estimate with one unknown scale per group (joint), both iterated together.

    Args:
        matrix: (M, K) of full column rank, M > K.
        target: (M,).
        group: (M,) index of the group of each equation.

    Raises:
        ParameterError: not more equations than unknowns.
    """
    fit = fit_ols(matrix, target)
    rows, unknowns = matrix.shape
    shrink = np.sqrt(rows / (rows - unknowns))  # residuals of a fit are smaller than errors
    estimate, converged, count = fit.estimate, False, 0
    scale = np.ones(rows)
    for count in range(1, _ITERATIONS + 1):
        residual = target - matrix @ estimate
        if count <= _SCALE_ROUNDS:  # medians jump: with scales settled, what is left is a convex problem
            scale = _scales(residual, group) * shrink
        size = np.abs(residual / scale)
        weight = np.where(size > _HUBER, _HUBER / np.maximum(size, 1e-300), 1.0)
        half = np.sqrt(weight) / scale
        step = fit_ols(matrix * half[:, None], target * half)
        change = np.abs(step.estimate - estimate) / np.sqrt(np.maximum(np.diag(step.covariance), 1e-300))
        estimate = step.estimate
        if np.max(change) < 1e-9 and count > 1:
            converged = True
            break
    standard = (target - matrix @ estimate) / scale
    inside = np.abs(standard) <= _HUBER
    # Huber 1981, 7.6: covariance of an M-estimate with the correction for K fitted parameters.
    share = max(float(np.mean(inside)), 1e-3)
    correction = 1.0 + unknowns / rows * (1.0 - share) / share
    clipped = np.clip(standard, -_HUBER, _HUBER)
    variance = correction**2 * float(clipped @ clipped) / (rows - unknowns) / share**2
    whitened = matrix / scale[:, None]
    covariance = variance * np.linalg.inv(whitened.T @ whitened)
    return LeastSquaresFit(estimate, covariance, rows - unknowns, count, converged)


def _scales(residual: FloatArray, group: IntArray) -> FloatArray:
    """(M,) robust standard deviation of each equation's group."""
    out = np.empty(len(residual))
    for g in np.unique(group):
        here = group == g
        out[here] = max(_MAD * float(np.median(np.abs(residual[here]))), 1e-300)
    return out
