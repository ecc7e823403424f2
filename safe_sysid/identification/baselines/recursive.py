"""Recursive least squares with forgetting [Ljung1999]: one equation at a time, constant memory."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.baselines.least_squares import LeastSquaresFit

__all__ = ["RecursiveLeastSquares"]


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
