r"""Rigorous version of Theorem 13 in midpoint-radius interval arithmetic; the answer may be "not proved".

Let [m] be the box of all unknowns of the right-hand side: ``U = T - R theta_r`` with ``|T - T_true| <= slack``,
``theta_r in [theta_r]``. Let C be any matrix, E an interval of eta about some point, ``H(E, [m])`` an enclosure of the
Hessian. If the Krawczyk operator

``K = c - C grad J(c, [m]) + (I - C H(E, [m])) (E - c)``

lies inside E, then for each m in [m] there is exactly one stationary point in E. Claim: it is the truth for the true m.
Proof: P' is invertible at finite eta, so stationary means ``Y^T (Y P - U) = 0``; if Y has full column rank (checked by
``|I - A Y^T Y| < 1`` for some A) that has one solution; and the true parameters solve ``Y theta = U(m_true)`` exactly:
the slack covers every error of the equations. Hence ``theta_e in P(c) + P'(E) H(E)^-1 P'(E)^T Y^T ([U] - U(c))``, where
the remainder at c, ``grad J(c, m)``, counts among the perturbations.

Since the stationary point is linear in m anyway, :func:`linear_bounds` needs none of this and is tighter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.baselines.regression import Regression
from safe_sysid.identification.estimates.newton import _PLACES, _TO_THETA, LogCholeskyAnswer

__all__ = ["BallMatrix", "enclosed_bounds", "interval_map", "linear_bounds"]

Sides = tuple[FloatArray, ...]
_EPS = 2.0**-52
_TINY = 1e-300
_TRIES = 12  # sizes of the interval of eta that are tried, each 1.5 times the last
_EXP = 1e-14  # relative error of numpy's exp, taken far larger than the few units in the last place that it has


class BallMatrix:
    """Arrays of intervals, of any shape, as midpoint and radius; every operation rounds outward [Rump1999]."""

    def __init__(self, mid: FloatArray, rad: FloatArray | float = 0.0) -> None:
        """Intervals ``mid +- rad``."""
        self.mid = np.asarray(mid, float)
        self.rad = np.broadcast_to(np.asarray(rad, float), self.mid.shape)

    @classmethod
    def of(cls, lower: FloatArray, upper: FloatArray) -> BallMatrix:
        """Smallest intervals about rounded midpoints that hold [lower, upper]."""
        mid = 0.5 * (lower + upper)
        rad = np.maximum(upper - mid, mid - lower)
        return cls(mid, rad * (1.0 + 4.0 * _EPS) + np.abs(mid) * _EPS + _TINY)

    def __add__(self, other: BallMatrix) -> BallMatrix:
        mid = self.mid + other.mid
        rad = (self.rad + other.rad) * (1.0 + 4.0 * _EPS) + np.abs(mid) * _EPS + _TINY
        return BallMatrix(mid, rad)

    def __neg__(self) -> BallMatrix:
        return BallMatrix(-self.mid, self.rad)

    def __sub__(self, other: BallMatrix) -> BallMatrix:
        return self + (-other)

    def __matmul__(self, other: BallMatrix) -> BallMatrix:
        mid = self.mid @ other.mid
        size = np.abs(self.mid) @ np.abs(other.mid)
        spread = np.abs(self.mid) @ other.rad + self.rad @ (np.abs(other.mid) + other.rad)
        k = self.mid.shape[-1] + 4
        return BallMatrix(mid, (spread + k * _EPS * size) * (1.0 + 4.0 * k * _EPS) + k * _TINY)

    def __getitem__(self, key: Any) -> BallMatrix:
        return BallMatrix(self.mid[key], self.rad[key])

    @property
    def T(self) -> BallMatrix:
        """Last two axes exchanged."""
        return BallMatrix(self.mid.swapaxes(-1, -2), self.rad.swapaxes(-1, -2))

    @property
    def size(self) -> FloatArray:
        """Largest absolute value of each interval."""
        return (np.abs(self.mid) + self.rad) * (1.0 + 2.0 * _EPS)

    def sides(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds, rounded outward."""
        wide = self.rad * (1.0 + 2.0 * _EPS) + np.abs(self.mid) * _EPS + _TINY
        return np.nextafter(self.mid - wide, -np.inf), np.nextafter(self.mid + wide, np.inf)


def interval_map(lower: FloatArray, upper: FloatArray) -> tuple[BallMatrix, BallMatrix, BallMatrix]:
    """The map P (10,), P' (10, 10) and P'' (10, 10, 10) over an interval of eta, index of theta first.

    ``lower``: (10,) of eta; ``upper``: (10,).
    """

    def exponential(low: float, high: float) -> tuple[float, float]:
        return float(np.exp(low)) * (1.0 - _EXP), float(np.exp(high)) * (1.0 + _EXP)

    u = np.zeros((2, 4, 4))
    first, second = np.zeros((2, 10, 4, 4)), np.zeros((2, 10, 10, 4, 4))
    alpha = exponential(lower[0], upper[0])
    u[:, 3, 3] = alpha
    for k, place in enumerate(_PLACES, start=1):
        if k <= 3:
            value = exponential(lower[0] + lower[k] - 4 * _EPS, upper[0] + upper[k] + 4 * _EPS)
            # Rounding of the sum in the exponent: relative 1e-14 more covers sums below 40 in size.
            value = (value[0] * (1.0 - _EXP), value[1] * (1.0 + _EXP))
            slope = value
            second[(slice(None), k, k, *place)] = value
        else:
            corners = [a * s for a in alpha for s in (lower[k], upper[k])]
            value = (float(np.nextafter(min(corners), -np.inf)), float(np.nextafter(max(corners), np.inf)))
            slope = alpha
        u[(slice(None), *place)] = value
        first[(slice(None), k, *place)] = slope
        second[(slice(None), 0, k, *place)] = second[(slice(None), k, 0, *place)] = slope
    first[:, 0] = u
    second[:, 0, 0] = u
    factor, d1, d2 = (BallMatrix.of(a[0], a[1]) for a in (u, first, second))
    square, j1 = factor @ factor.T, d1 @ factor.T
    left = BallMatrix(d1.mid[:, None], d1.rad[:, None])
    j2 = d2 @ factor.T + left @ d1.T
    theta = _to_theta(square)
    jacobian = BallMatrix(2.0 * _to_theta(j1).mid, 2.0 * _to_theta(j1).rad)
    curvature = BallMatrix(2.0 * _to_theta(j2).mid, 2.0 * _to_theta(j2).rad)
    return theta, jacobian, curvature


def _to_theta(j: BallMatrix) -> BallMatrix:
    """Parameters of pseudo-inertias (.., 4, 4), theta's index first; sums of at most three entries."""
    mid = np.einsum("iab,...ab->i...", _TO_THETA, j.mid)
    rad = np.einsum("iab,...ab->i...", np.abs(_TO_THETA), j.rad + 16.0 * _EPS * np.abs(j.mid))
    return BallMatrix(mid, rad * (1.0 + 64.0 * _EPS) + _TINY)


def linear_bounds(problem: Regression, arm: Sides, payload: Sides) -> tuple[FloatArray, FloatArray, str | None]:
    """Rigorous interval of theta_e by a left inverse A of Y: ``A U + (I - A Y) theta_e``.

    Returns lower (10,), upper (10,), and why they are not proved, or None.

    Args:
        arm: lower and upper (P - 10,) of theta_r.
        payload: lower and upper (10,) of theta_e's prior; only multiplies what A lacks to be an inverse.
    """
    inverse = BallMatrix(np.asarray(np.linalg.pinv(problem.payload), np.float64))
    residual = BallMatrix(np.eye(10)) - inverse @ BallMatrix(problem.payload)
    arm_box, payload_box = BallMatrix.of(*arm), BallMatrix.of(*payload)
    response = inverse @ BallMatrix(problem.target[:, None], problem.slack[:, None])
    # A R first: the arm's parameters are the same in every row.
    through = (inverse @ BallMatrix(problem.arm)) @ arm_box[:, None]
    total = response - through + residual @ payload_box[:, None]
    lower, upper = total[:, 0].sides()
    return (lower, upper, None if problem.proved else "not proved: the equations' errors are not all in their slack")


def enclosed_bounds(
    problem: Regression, answer: LogCholeskyAnswer, arm: Sides, payload: Sides
) -> tuple[FloatArray, FloatArray, str | None]:
    """Theorem 13 with Hessian and derivative enclosed over an interval proved to hold all minimisers.

    Args:
        answer: approximate minimiser at the measured m.
        arm: lower and upper (P - 10,) of theta_r.
        payload: lower and upper (10,) of theta_e's prior, returned where nothing is proved.

    Returns:
        lower (10,), upper (10,), and why they are not proved, or None. Unproved bounds are the prior's.
    """
    fail = (payload[0].copy(), payload[1].copy())
    if not problem.proved:
        return (*fail, "not proved: the equations' errors are not all in their slack")
    if answer.boundary:
        return (*fail, "not proved: the estimate is on the boundary, where no minimiser in log-Cholesky form exists")
    scale = np.sqrt(np.mean(problem.payload**2)) * np.sqrt(len(problem))
    rows = BallMatrix(problem.payload / scale)  # rounding of the scaled rows: see below
    rounded = BallMatrix(rows.mid, np.abs(rows.mid) * _EPS)
    gram = rounded.T @ rounded
    rank = BallMatrix(np.eye(10)) - BallMatrix(np.linalg.pinv(gram.mid)) @ gram
    if not np.max(rank.size.sum(axis=1)) < 1.0:
        return (*fail, "not proved: Y might not have full column rank")
    arm_box = BallMatrix.of(*arm)
    target = BallMatrix(problem.target / scale, np.abs(problem.target / scale) * _EPS)
    columns = BallMatrix(problem.arm / scale, np.abs(problem.arm / scale) * _EPS)
    slack = problem.slack / scale * (1.0 + 2.0 * _EPS)
    # Y^T dU/dm per unit of each perturbation: torque of each row, then each arm parameter about its midpoint.
    by_row = BallMatrix(rounded.T.mid * slack, rounded.T.rad * slack + 2.0 * _EPS * rounded.T.size * slack + _TINY)
    through = rounded.T @ columns
    by_arm = BallMatrix(
        through.mid * arm_box.rad, through.rad * arm_box.rad + 4.0 * _EPS * through.size * arm_box.rad + _TINY
    )
    effect = BallMatrix(
        np.concatenate([by_row.mid, by_arm.mid], axis=1), np.concatenate([by_row.rad, by_arm.rad], axis=1)
    )
    middle = rounded.T @ (target[:, None] - columns @ BallMatrix(arm_box.mid[:, None]))
    eta = answer.eta
    at, slope, curve = interval_map(eta, eta)
    gradient = slope.T @ (gram @ at[:, None] - middle)
    hessian = _hessian(slope, curve, gram, gram @ at[:, None] - middle)
    try:
        inverse = np.linalg.inv(hessian.mid)
    except np.linalg.LinAlgError:
        return (*fail, "not proved: the Hessian is singular at the estimate")
    c = BallMatrix(inverse)
    shift = (c @ gradient).size[:, 0] + (c @ (slope.T @ effect)).size.sum(axis=1) * (1.0 + 1e-12)
    perturbed = effect.size.sum(axis=1)[:, None] * (1.0 + 1e-12)  # |Y^T (U - U(middle))|
    reach = shift * 1.1 + 1e-12
    worst = np.inf
    for _ in range(_TRIES):
        if np.max(reach) > 3.0:
            break
        low, high = np.nextafter(eta - reach, -np.inf), np.nextafter(eta + reach, np.inf)
        value, slope_e, curve_e = interval_map(low, high)
        spread = gram @ value[:, None] - middle - BallMatrix(np.zeros((10, 1)), perturbed)
        lack = BallMatrix(np.eye(10)) - c @ _hessian(slope_e, curve_e, gram, spread)
        magnitude = lack.size
        worst = float(np.max(magnitude @ reach / reach))
        new = (shift + magnitude @ reach) * (1.0 + 1e-12)
        if np.all(new < reach):
            return (*_mean_value(at, slope_e, c, magnitude, effect, gradient), None)
        reach = np.maximum(new * 1.1, 1.5 * reach)
    return (
        *fail,
        f"not proved: the enclosed Hessian is not known to be regular (contraction {worst:.3g}, needs below 1)",
    )


def _hessian(slope: BallMatrix, curve: BallMatrix, gram: BallMatrix, g: BallMatrix) -> BallMatrix:
    """Equation 43: ``P'^T Y^T Y P' + sum_i g_i P''_i``."""
    bent = BallMatrix(curve.mid.transpose(1, 2, 0), curve.rad.transpose(1, 2, 0)) @ g
    return slope.T @ gram @ slope + bent[..., 0]


def _mean_value(
    at: BallMatrix, slope: BallMatrix, c: BallMatrix, magnitude: FloatArray, effect: BallMatrix, gradient: BallMatrix
) -> tuple[FloatArray, FloatArray]:
    """``P(c) + P'(E) H(E)^-1 (..)``: with ``|H^-1 w - C w| <= (I - |B|)^-1 |B| |C w|`` for each perturbation."""
    # P'(E) on the right belongs to d^2 J/dm d eta at the same intermediate point as H: enclosed over E as well.
    columns = c @ (slope.T @ effect)
    start = c @ gradient
    size = np.concatenate([columns.size, start.size], axis=1)
    bound = np.linalg.solve(np.eye(10) - magnitude, magnitude @ size)
    # Any x >= 0 with (I - |B|) x >= |B| s bounds (I - |B|)^-1 |B| s: enlarge until it is verified.
    need = magnitude @ size
    bound = np.abs(bound) * (1.0 + 1e-9) + 1e-290
    factor = 1.0
    while not np.all(factor * bound - magnitude @ (factor * bound) >= need * (1.0 + 1e-12)):
        factor *= 2.0
        if factor > 1e6:
            return np.full(10, -np.inf), np.full(10, np.inf)
    solved = BallMatrix(
        np.concatenate([columns.mid, start.mid], axis=1),
        np.concatenate([columns.rad, start.rad], axis=1) + factor * bound,
    )
    half = (slope @ solved).size.sum(axis=1) * (1.0 + 1e-12)
    return BallMatrix(at.mid, at.rad + half).sides()
