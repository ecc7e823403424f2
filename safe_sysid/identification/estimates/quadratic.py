r"""Least squares over all parameters of arm, payload and empty hand, accumulated in constant memory.

Unknowns ``x = [theta (14 n) | theta_h (10)]`` (the second part only if the empty hand is known), scaled by the prior:
``theta = mid + scale z``. Each row ``|a.theta - t| <= w`` with standard deviation sigma adds
``((a.theta - t) / sigma)^2 / 2``; the prior adds ``3 z_j^2 / 2``, the variance of a uniform distribution on [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["PRIOR_WEIGHT", "NormalEquations", "Quadratic"]

PRIOR_WEIGHT = 3.0  # 1 / variance of uniform on [-1, 1]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``f(x) = x.H x / 2 - b.x``, strictly convex. ``hessian``: (K, K) H, positive definite; ``linear``: (K,) b."""

    hessian: FloatArray
    linear: FloatArray

    def value(self, x: FloatArray) -> float:
        """``f(x)`` at x (K,)."""
        return float(x @ (0.5 * (self.hessian @ x) - self.linear))

    def gradient(self, x: FloatArray) -> FloatArray:
        """(K,) gradient at x (K,)."""
        return self.hessian @ x - self.linear

    def minimiser(self) -> FloatArray:
        """(K,) unconstrained minimiser."""
        return np.asarray(np.linalg.solve(self.hessian, self.linear), np.float64)

    def reduced(self, keep: slice) -> Quadratic:
        """Minimum over all other unknowns as a function of those in ``keep``, up to a constant (Schur complement)."""
        inside = np.zeros(len(self.linear), bool)
        inside[keep] = True
        cross = self.hessian[np.ix_(~inside, inside)]
        gain = np.linalg.solve(self.hessian[np.ix_(~inside, ~inside)], cross)
        hessian = self.hessian[np.ix_(inside, inside)] - cross.T @ gain
        return Quadratic(0.5 * (hessian + hessian.T), self.linear[inside] - gain.T @ self.linear[~inside])

    def definite(self) -> Quadratic:
        """The same, with a Cholesky factor in floating-point numbers, too.

        Of equations that hold exactly weights are so large that rounding hides the part of the prior. What is added
        is of the size of that rounding; where that does not help, nothing is.
        """
        if _has_factor(self.hessian):
            return self
        rounding = np.finfo(float).eps * float(np.trace(self.hessian))
        for added in rounding * 10.0 ** np.arange(6):
            raised = self.hessian + added * np.eye(len(self.linear))
            if _has_factor(raised):
                return Quadratic(raised, self.linear)
        return self

    def transformed(self, matrix: FloatArray, offset: FloatArray) -> Quadratic:
        """As a function of y (L,) where ``x = matrix y + offset``, up to a constant."""
        return Quadratic(matrix.T @ self.hessian @ matrix, matrix.T @ (self.linear - self.hessian @ offset))


def _has_factor(matrix: FloatArray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


class NormalEquations:
    """Information matrix of all rows ever seen, also of those that the polytope forgets."""

    def __init__(self, prior: ParameterBox, payload_constraints: PayloadConstraints | None = None) -> None:
        """Start at the prior's centre.

        Args:
            prior: box of all 14 n parameters.
            payload_constraints: of hand and payload; None if only theta_e as a whole is known to be consistent.
        """
        self.prior, self.payload_constraints = prior, payload_constraints
        mid, rad = prior.mid, prior.rad
        if payload_constraints is not None:
            mid = np.concatenate([mid, 0.5 * (payload_constraints.hand_lower + payload_constraints.hand_upper)])
            rad = np.concatenate([rad, 0.5 * (payload_constraints.hand_upper - payload_constraints.hand_lower)])
        self.mid, self.scale = mid, np.where(rad > 0.0, rad, 1.0)
        self.free = rad > 0.0
        self._hessian = PRIOR_WEIGHT * np.eye(mid.size)
        self._linear = np.zeros(mid.size)

    def columns(self, rows: MomentumRows) -> FloatArray:
        """(M, P) rows over all unknowns: those of a tare log speak of the empty hand instead of theta_e."""
        matrix = rows.matrix
        if self.payload_constraints is None:
            return matrix
        payload = self.prior.layout.payload
        tare = rows.log == 1
        out = np.concatenate([matrix, np.where(tare[:, None], matrix[:, payload], 0.0)], axis=1)
        out[tare, payload] = 0.0
        return out

    def usable(self, rows: MomentumRows) -> MomentumRows:
        """Rows that speak of these unknowns: without a hand, not those of a tare log."""
        return rows if self.payload_constraints is not None else rows.take(rows.log == 0)

    def add(self, rows: MomentumRows) -> None:
        """Take rows in; costs P^2 a row, keeps none."""
        rows = self.usable(rows)
        columns = self.columns(rows)
        a = columns * (self.scale / rows.sigma[:, None])
        self._hessian += a.T @ a
        self._linear += a.T @ ((rows.target - columns @ self.mid) / rows.sigma)

    def quadratic(self) -> Quadratic:
        """In the scaled unknowns z (P,), zero at the prior's centre."""
        return Quadratic(self._hessian.copy(), self._linear.copy())

    def unscaled(self, z: FloatArray) -> FloatArray:
        """Parameters (P,) of scaled unknowns z (P,)."""
        return self.mid + self.scale * z

    def payload_quadratic(self) -> tuple[Quadratic, FloatArray]:
        """What must be a body, and what is added to it, all else at its best value.

        Returns:
            The quadratic in theta_e (10,), SI units; or, if the hand is known, in ``theta_p = theta_e - theta_h``.
            And a (10, 11) affine map ``[A, b]`` from that to theta_e, ``theta_e = A theta_p + b``.
        """
        payload = self.prior.layout.payload
        if self.payload_constraints is None:
            kept = self.quadratic().reduced(payload)
            scaled = kept.transformed(np.diag(1.0 / self.scale[payload]), -(self.mid / self.scale)[payload])
            return scaled, np.concatenate([np.eye(10), np.zeros((10, 1))], axis=1)
        keep = np.zeros(len(self.mid), bool)
        keep[payload], keep[UnknownsLayout(self.prior.layout).hand] = True, True
        order = np.concatenate([np.flatnonzero(keep), np.flatnonzero(~keep)])
        full = self.quadratic()
        pair = Quadratic(full.hessian[np.ix_(order, order)], full.linear[order]).reduced(slice(0, 20))
        si = pair.transformed(np.diag(1.0 / self.scale[keep]), -(self.mid / self.scale)[keep])
        eye, zero = np.eye(10), np.zeros((10, 10))
        split = si.transformed(np.block([[eye, eye], [zero, eye]]), np.zeros(20))  # theta_e = theta_p + theta_h
        # theta_h at its best given theta_p: H_hh theta_h = b_h - H_hp theta_p.
        hand = np.linalg.solve(split.hessian[10:, 10:], np.column_stack([-split.hessian[10:, :10], split.linear[10:]]))
        back = hand.copy()
        back[:, :10] += np.eye(10)
        return split.reduced(slice(0, 10)), np.asarray(back, np.float64)
