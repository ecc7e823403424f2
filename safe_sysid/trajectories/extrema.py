r"""Exact ranges of piecewise quintics and their derivatives over time intervals, outward rounded.

On an interval a polynomial is a combination ``sum b_i B_i`` of Bernstein's polynomials, which are positive and sum to
one: its values lie between the smallest and the largest b_i, and b_0, b_N *are* values, those at the ends. Halving the
interval (de Casteljau: averages only) brings the b_i to the values quadratically, so branch and bound ends with the
exact range but for rounding [Farouki2012]. No root is sought: double roots, vanishing leading coefficients and
constants need no cases of their own, and nothing rests on a root finder's tolerance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError

if TYPE_CHECKING:
    from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["derivative_range", "interval_ranges", "knot_slack"]

_EPS = 2.0**-52
_TINY = 1e-300
#: Share of a segment's size ``S = sum |c_k| h^k`` by which its end may differ from the knot there, and its values in
#: floats (Horner's scheme) from its exact ones. A knot's data are below S, 5 S / h, 20 S / h^2, so the terms of the
#: formulas for c_3 h^3, c_4 h^4, c_5 h^5 are below 63 S, 108 S and 47 S, with at most 14 roundings each.
_KNOT_SLACK = 5e-13
#: Largest ``k! / (k - order)!``.
_DERIVATIVE = (1.0, 5.0, 20.0, 60.0, 120.0, 120.0)
#: Halvings after which an interval is shorter than the root of a float's unit; also bounds the work space.
_DEPTH = 40


@njit(cache=True, nogil=True)
def _bernstein(c: FloatArray, order: int, left: float, width: float, out: FloatArray) -> float:
    """Fill ``out[: 6 - order]`` for the order-th derivative of a quintic c (6,) on [left, left + width].

    Returns an upper bound of the sum of all magnitudes that take part.
    """
    degree = 5 - order
    size, reach = 0.0, abs(left) + width
    for k in range(degree + 1):
        factor = 1.0
        for i in range(k + 1, k + order + 1):
            factor *= i
        out[k] = c[k + order] * factor
    for k in range(degree, -1, -1):
        size = size * reach + abs(out[k])
    for i in range(degree):
        for k in range(degree - 1, i - 1, -1):
            out[k] += left * out[k + 1]
    # Powers of the interval's own parameter, then b_i = sum_k binomial(i, k) / binomial(N, k) s_k by differences.
    power, binomial = 1.0, 1.0
    for k in range(degree + 1):
        out[k] *= power / binomial
        power *= width
        binomial *= (degree - k) / (k + 1.0)
    for i in range(degree):
        for k in range(degree, i, -1):
            out[k] += out[k - 1]
    return size


@njit(cache=True, nogil=True)
def _maximum(b: FloatArray, degree: int, stack: FloatArray) -> float:
    """Upper bound of the largest value of ``sum b_i B_i``, exact but for the rounding of averages; NaN if b has one."""
    attained, top, magnitude = max(b[0], b[degree]), b[0], 0.0
    for i in range(degree + 1):
        if b[i] != b[i]:
            return math.nan
        top = max(top, b[i])
        magnitude = max(magnitude, abs(b[i]))
    if top <= attained:
        return top
    tolerance = 4.0 * _EPS * magnitude
    for i in range(degree + 1):
        stack[0, i] = b[i]
    stack[0, 6] = 0.0
    count, upper = 1, attained
    while count > 0:
        count -= 1
        node = stack[count]
        top = node[0]
        for i in range(1, degree + 1):
            top = max(top, node[i])
        # An infinite tolerance (overflow) ends here, too.
        if not top > attained + tolerance or node[6] >= _DEPTH:
            upper = max(upper, top)
            continue
        # Left half over the node itself, right half behind it; rounded averages stay between what they average.
        right = stack[count + 1]
        depth = node[6] + 1.0
        right[degree] = node[degree]
        for i in range(degree):
            for k in range(degree, i, -1):
                node[k] = 0.5 * node[k - 1] + 0.5 * node[k]
            right[degree - 1 - i] = node[degree]
        node[6] = right[6] = depth
        attained = max(attained, right[0])
        count += 2
    return upper


@njit(cache=True, nogil=True)
def _ranges(
    coefficients: FloatArray, slack: FloatArray, left: FloatArray, width: FloatArray, order: int, out: FloatArray
) -> None:
    """Fill ``out`` (M, n, 2) for one segment's coefficients (n, 6) on [left, left + width] (M,), its local time."""
    degree = 5 - order
    b, negative, stack = np.empty(6), np.empty(6), np.empty((_DEPTH + 2, 7))
    for m in range(left.shape[0]):
        for j in range(out.shape[1]):
            size = _bernstein(coefficients[j], order, left[m], width[m], b)
            for i in range(degree + 1):
                negative[i] = -b[i]
            # Below 60 roundings on each term of b, and one per average of 5 * _DEPTH.
            room = (64 + 5 * _DEPTH) * _EPS * size + slack[j] + _TINY
            out[m, j, 0] = -_maximum(negative, degree, stack) - room
            out[m, j, 1] = _maximum(b, degree, stack) + room


def knot_slack(trajectory: QuinticTrajectory, order: int) -> FloatArray:
    """(segments, n): room for the difference of a segment's derivative and the knots' and of its values in floats."""
    span = np.diff(trajectory.times)[:, None]
    size = np.sum(np.abs(trajectory.coefficients) * span[..., None] ** np.arange(6.0), axis=-1)
    return _KNOT_SLACK * _DERIVATIVE[order] * size / span**order + _TINY


def interval_ranges(trajectory: QuinticTrajectory, borders: ArrayLike, order: int) -> FloatArray:
    """Exact ranges of the order-th derivative over closed time intervals.

    Returns (M, n, 2) lower and upper ends: the range of the real trajectory plus room for rounding (relative 1e-12).

    Args:
        trajectory: it rests after its end.
        borders: (M, 2) first and last time of each interval, from 0 s; it may hold any number of knots.
        order: 0 position .. 5, the constant fifth derivative; units rad / s^order.

    Raises:
        PlanError: an interval that ends before it begins or begins before 0, or another order.
    """
    borders = np.asarray(borders, float)
    if borders.ndim != 2 or borders.shape[1] != 2:
        raise PlanError(f"time intervals of shape {borders.shape}: expected (M, 2)")
    start, end = borders.T
    bad = np.flatnonzero(~((start >= 0.0) & (start <= end)))
    if bad.size:
        raise PlanError(f"time interval {borders[bad[0]].tolist()}: expected 0 <= first <= last")
    if order not in range(6):
        raise PlanError(f"order = {order!r}: expected a derivative from 0 to 5")
    times, knots = trajectory.times, trajectory.knots
    out = np.empty((len(borders), trajectory.n, 2))
    out[..., 0], out[..., 1] = np.inf, -np.inf
    rests = end >= times[-1]
    out[rests] = knots[-1, 0][:, None] if order == 0 else 0.0
    slack = knot_slack(trajectory, order)
    for s in range(len(times) - 1):
        # At a knot the next segment holds.
        meets = np.flatnonzero((end >= times[s]) & (start < times[s + 1]))
        if not meets.size:
            continue
        # Differences of floats are rounded once; a polynomial goes on beyond its knots.
        left, right = (np.clip(x[meets], times[s], times[s + 1]) - times[s] for x in (start, end))
        left, right = left * (1.0 - 2 * _EPS), right * (1.0 + 2 * _EPS)
        found = np.empty((len(meets), trajectory.n, 2))
        coefficients = np.array(trajectory.coefficients[s])
        _ranges(coefficients, slack[s], left, (right - left) * (1.0 + 2 * _EPS), order, found)
        # NaN passes through both.
        out[meets, :, 0] = np.minimum(out[meets, :, 0], found[..., 0])
        out[meets, :, 1] = np.maximum(out[meets, :, 1], found[..., 1])
    return out


def derivative_range(trajectory: QuinticTrajectory, order: int, t0: float, t1: float) -> FloatArray:
    """(n, 2): range of the order-th derivative over [t0, t1] s; see :func:`interval_ranges`."""
    return interval_ranges(trajectory, [[t0, t1]], order)[0]
