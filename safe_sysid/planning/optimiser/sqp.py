r"""Sequential quadratic programming for few variables, many margins and a box, with OSQP for the subproblems.

``min f(k)`` subject to ``c(k) >= 0`` and ``lower <= k <= upper``. Fletcher's exact penalty with the largest violation:
the step d minimises

``g^T d + d^T H d / 2 + mu t``  subject to  ``c + J d + t >= 0, t >= 0, |d| <= radius, lower <= k + d <= upper``,

which always has a solution; where the margins cannot be kept at all, it goes where they are broken least. The step is
taken if ``f + mu max(0, -min c)`` falls by a share of what the model promised, else corrected for the margins'
curvature once, else the radius shrinks (Fletcher, Practical Methods of Optimization, 14.4; Nocedal and Wright, 18.5).
H is the cost's own stand-in for its second derivative if it has one, else a damped BFGS matrix of the Lagrangian.

No clock and no random numbers: the same problem gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy  # scipy.sparse when it is first used
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray

__all__ = ["Objective", "SqpOptions", "SqpResult", "Subproblem", "minimise"]

#: Unit of the largest violation in the subproblem, and least slope of a margin: they keep OSQP's numbers alike.
_UNIT, _LEAST_SLOPE = 0.3, 1e-2
#: How often margins that a step would break, and that the subproblem did not know, are added; and by how much.
_ROUNDS, _MISSED = 6, 1e-4
#: Largest weight of a violation.
_HARDEST = 1e4


class Objective(Protocol):
    """A smooth function to minimise."""

    def value_and_gradient(self, k: FloatArray, /) -> tuple[float, FloatArray]:
        """Value and derivative (n,)."""
        ...

    def gauss_newton(self, k: FloatArray, /) -> FloatArray | None:
        """Positive semidefinite stand-in (n, n) for the second derivative, or None."""
        ...


class Inequalities(Protocol):
    """Margins that have to be >= 0, of order one where they matter."""

    def values(self, k: FloatArray, /) -> FloatArray:
        """(m,) at k (n,)."""
        ...

    def values_and_jacobian(self, k: FloatArray, /) -> tuple[FloatArray, FloatArray]:
        """(m,) and (m, n)."""
        ...


@dataclass(frozen=True)
class SqpOptions:
    """Constants of the method."""

    radius: float = 0.25  #: of the first step's box, in units of k
    smallest: float = 1e-3
    penalty: float = 10.0  #: first weight of the largest violation in the subproblem; grows where it does not suffice
    least_weight: float = 0.5  #: of the largest violation when a step is judged
    tolerance: float = 1e-3
    feasible: float = 1e-3  #: largest violation that counts as none


@dataclass(frozen=True, eq=False)
class SqpResult:
    """Where :func:`minimise` came to."""

    k: FloatArray  #: (n,) last iterate; value, violation: there
    value: float
    violation: float
    best: tuple[float, FloatArray] | None  #: (value, k) of the best iterate that keeps all margins, or None
    iterations: int
    converged: bool  #: whether it stopped by itself


class Subproblem:
    """The elastic quadratic program of n variables and of those margins that a step can exhaust.

    Keeps OSQP's memory and starting point from one solve to the next.

    Args:
        n: number of variables.
        rows: number of margins that one subproblem may have; the nearest ones are taken.
    """

    def __init__(self, n: int, rows: int = 40) -> None:
        """Set OSQP up once; every solve only exchanges numbers."""
        import osqp  # 0.2 s, which a node that only describes searches need not wait

        self._n, self._m, m = n, rows, rows
        size = n + 1
        self._upper = np.triu_indices(n)
        # Column by column: that is the order of the upper triangle's data.
        order = np.lexsort((self._upper[0], self._upper[1]))
        self._upper = (self._upper[0][order], self._upper[1][order])
        hessian = scipy.sparse.csc_matrix(
            (np.append(np.ones(len(order)), 1e-6), (np.append(self._upper[0], n), np.append(self._upper[1], n))),
            shape=(size, size),
        )
        rows = scipy.sparse.csc_matrix(np.vstack([np.ones((m, size)), np.eye(size)]))
        self._bounds = np.full(m + size, np.inf)
        self._solver = osqp.OSQP()
        self._solver.setup(
            hessian,
            np.zeros(size),
            rows,
            -self._bounds,
            self._bounds,
            verbose=False,
            eps_abs=1e-5,
            eps_rel=1e-5,
            max_iter=1000,
            polishing=True,
            # By iterations, not by time: the same problem must give the same answer.
            adaptive_rho_interval=50,
            check_termination=25,
        )

    def solve(
        self,
        gradient: FloatArray,
        hessian: FloatArray,
        values: FloatArray,
        jacobian: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        penalty: float,
    ) -> tuple[FloatArray, FloatArray]:
        """Step (n,) and the margins' multipliers (m,).

        Args:
            gradient: (n,).
            hessian: (n, n) positive semidefinite.
            values: (m,) margins.
            jacobian: (m, n).
            lower: (n,) bounds of the step, around 0.
            upper: (n,).
            penalty: weight of the largest violation.
        """
        reach = values + np.minimum(jacobian * lower, jacobian * upper).sum(axis=1)
        chosen = np.argsort(reach, kind="stable")[: self._m]
        for _ in range(_ROUNDS):
            step, slack, multipliers = self._solve_with(
                chosen, gradient, hessian, values, jacobian, lower, upper, penalty
            )
            after = values + jacobian @ step
            missed = np.flatnonzero(after < -slack - _MISSED)
            missed = missed[~np.isin(missed, chosen)]
            if not len(missed):
                break
            # The worst of them take the places of those with the most room; what holds the step stays.
            missed = missed[np.argsort(after[missed], kind="stable")][: max(self._m // 2, 1)]
            kept = chosen[np.lexsort((after[chosen], -multipliers[chosen]))]
            chosen = np.concatenate([kept[: self._m - len(missed)], missed])
        return step, multipliers

    def _solve_with(
        self,
        chosen: NDArray[np.intp],
        gradient: FloatArray,
        hessian: FloatArray,
        values: FloatArray,
        jacobian: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        penalty: float,
    ) -> tuple[FloatArray, float, FloatArray]:
        """Step, t and all margins' multipliers with some of the margins."""
        n, m = self._n, self._m
        # Rows of one length, and only those that some step could exhaust: OSQP needs a third of the iterations.
        room = values[chosen] + np.minimum(jacobian[chosen] * lower, jacobian[chosen] * upper).sum(axis=1)
        chosen = chosen[room < 0.0]
        size = len(chosen)
        share = 1.0 / np.maximum(np.linalg.norm(jacobian[chosen], axis=1), _LEAST_SLOPE)
        matrix = np.zeros((n + 1, m + 1))
        matrix[:n, :size] = (jacobian[chosen] * share[:, None]).T
        matrix[n, :size] = _UNIT * share
        matrix[:, m] = 1.0
        low, high = -self._bounds, self._bounds.copy()
        low[:size] = -values[chosen] * share
        low[m : m + n], high[m : m + n] = lower, upper
        low[m + n] = 0.0
        self._solver.update(
            q=np.append(gradient, _UNIT * penalty),
            l=low,
            u=high,
            Px=np.append(hessian[self._upper], 1e-6),
            Ax=matrix.ravel(),
        )
        found = self._solver.solve(raise_error=False)
        step, multipliers = found.x[:n], np.zeros(len(values))
        multipliers[chosen] = np.maximum(-found.y[:size], 0.0) * share
        if not (np.all(np.isfinite(step)) and np.all(np.isfinite(multipliers))):
            return np.zeros(n), np.inf, np.zeros(len(values))
        return np.clip(step, lower, upper), max(_UNIT * float(found.x[n]), 0.0), multipliers


def _violation(values: FloatArray) -> float:
    return max(0.0, -float(values.min(initial=0.0)))


def minimise(
    objective: Objective,
    constraints: Inequalities,
    start: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    subproblem: Subproblem,
    iterations: int,
    stop: Callable[[], bool] = lambda: False,
    options: SqpOptions | None = None,
) -> SqpResult:
    """A local minimum near ``start``, or as far as the iterations go.

    Args:
        start: (n,).
        lower: (n,) bounds that every iterate keeps.
        upper: (n,).
        subproblem: of the right sizes; may be used again, its last solution is where OSQP starts.
        iterations: at most so many steps are tried.
        stop: asked before every step; True ends the search with what there is.
    """
    o = SqpOptions() if options is None else options
    k = np.clip(np.asarray(start, float), lower, upper)
    value, gradient = objective.value_and_gradient(k)
    values, jacobian = constraints.values_and_jacobian(k)
    violation, radius, penalty = _violation(values), o.radius, o.penalty
    hessian = _first_hessian(objective, k)
    best: tuple[float, FloatArray] | None = None
    if violation <= o.feasible and np.isfinite(value):
        best = value, k
    count, converged = 0, False
    while np.isfinite(value) and count < iterations and not stop():
        count += 1
        low, high = np.maximum(lower - k, -radius), np.minimum(upper - k, radius)
        step, multipliers = subproblem.solve(gradient, hessian, values, jacobian, low, high, penalty)
        linear = _violation(values + jacobian @ step)
        if linear > o.feasible and penalty < _HARDEST:
            # Does the penalty hold it back, or can it not be better?
            harder, more = subproblem.solve(gradient, hessian, values, jacobian, low, high, 10.0 * penalty)
            if _violation(values + jacobian @ harder) < 0.9 * linear:
                penalty, step, multipliers = 10.0 * penalty, harder, more
                linear = _violation(values + jacobian @ step)
        rise, drop = float(gradient @ step + 0.5 * step @ hessian @ step), violation - linear
        # As heavy as the multipliers say, and so heavy that what mends the margins counts as progress; not heavier:
        # a step along a bent margin would then always look bad.
        weight = max(1.5 * float(multipliers.sum()), o.least_weight)
        if rise > 0.0 and drop > 1e-9:
            weight = max(weight, 2.0 * rise / drop)
        predicted = -rise + weight * drop
        if predicted <= o.tolerance or np.abs(step).max() < o.smallest:
            if violation > o.feasible and penalty < _HARDEST:
                penalty, radius = 10.0 * penalty, max(radius, 0.25 * o.radius)
                continue
            converged = True
            break
        merit = value + weight * violation
        trial = np.clip(k + step, lower, upper)
        (new_value, new_gradient), new_values = objective.value_and_gradient(trial), constraints.values(trial)
        ratio = (merit - new_value - weight * _violation(new_values)) / predicted
        if not ratio > 0.1 and _violation(new_values) > max(linear, o.feasible):
            # The margins bend: aim at where they really are.
            bent = new_values - jacobian @ (trial - k)
            again, _ = subproblem.solve(gradient, hessian, bent, jacobian, low, high, penalty)
            other = np.clip(k + again, lower, upper)
            other_value, other_gradient = objective.value_and_gradient(other)
            other_ratio = (merit - other_value - weight * _violation(constraints.values(other))) / predicted
            if other_ratio > ratio or not np.isfinite(ratio):
                trial, step, ratio = other, again, other_ratio
                new_value, new_gradient = other_value, other_gradient
        if ratio > 0.75 and np.abs(step).max() > 0.9 * radius:
            radius = min(2.0 * radius, 2.0)
        elif not ratio > 0.25:
            radius = 0.4 * min(radius, float(np.abs(step).max()))
        if ratio > 1e-3:
            old_k, old_gradient, old_jacobian = k, gradient, jacobian
            k, value, gradient = trial, new_value, new_gradient
            values, jacobian = constraints.values_and_jacobian(k)
            violation = _violation(values)
            if violation <= o.feasible and (best is None or value < best[0]):
                best = value, k
            change = gradient - old_gradient - (jacobian - old_jacobian).T @ multipliers
            hessian = _next_hessian(objective, hessian, k, k - old_k, change)
        elif radius < o.smallest:
            if violation > o.feasible and penalty < _HARDEST:
                penalty, radius = 10.0 * penalty, 0.25 * o.radius
                continue
            converged = True
            break
    return SqpResult(k, value, violation, best, count, converged)


def _first_hessian(objective: Objective, k: FloatArray) -> FloatArray:
    exact = objective.gauss_newton(k)
    if exact is not None:
        return exact + 1e-6 * np.eye(len(k))
    # Costs are of order one over the box.
    return np.eye(len(k))


def _next_hessian(
    objective: Objective, hessian: FloatArray, k: FloatArray, step: FloatArray, change: FloatArray
) -> FloatArray:
    """The cost's own, or Powell's damped BFGS update, which keeps it positive definite."""
    exact = objective.gauss_newton(k)
    if exact is not None:
        return exact + 1e-6 * np.eye(len(k))
    along = hessian @ step
    bend = float(step @ along)
    if bend < 1e-14:
        return hessian
    share = float(step @ change)
    if share < 0.2 * bend:
        theta = 0.8 * bend / (bend - share)
        change = theta * change + (1.0 - theta) * along
        share = float(step @ change)
    updated = hessian - np.outer(along, along) / bend + np.outer(change, change) / share
    return np.asarray(0.5 * (updated + updated.T), dtype=np.float64)
