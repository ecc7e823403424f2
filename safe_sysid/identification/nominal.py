r"""One plausible point of the bounds: least squares within them, made physically consistent. Carries no guarantee.

``min sum ((a.theta - t)/sigma)^2 + 3 sum ((theta - mid)/rad)^2`` over the box, prior included: the mode of the
posterior if errors and prior were normal with the variances of uniform ones. Then the nearest point of theta_e's box
with positive semidefinite pseudo-inertia: the truth is such a point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, lsq_linear

from safe_sysid.identification.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox, pseudo_inertia

__all__ = ["NominalEstimate", "make_consistent"]

FloatArray = NDArray[np.float64]
_LENGTH = 0.1  # m, makes first moments and inertias comparable with masses in the projection
_FLOOR = 1e-5  # smallest over largest eigenvalue that is aimed at
_UNIT_PSEUDO_INERTIAS = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])
_PRIOR_WEIGHT = 3.0  # 1 / variance of uniform on [-1, 1]


class NominalEstimate:
    """Accumulates the normal equations of all rows ever seen, also of those that the polytope forgets."""

    def __init__(self, prior: ParameterBox) -> None:
        """Start at the prior's centre."""
        self._prior = prior
        self._scale = np.where(prior.rad > 0.0, prior.rad, 1.0)
        self._information = _PRIOR_WEIGHT * np.eye(prior.size)
        self._right = np.zeros(prior.size)

    def add(self, rows: MomentumRows) -> None:
        """Take rows in."""
        a = rows.matrix * (self._scale / rows.sigma[:, None])
        self._information += a.T @ a
        self._right += a.T @ ((rows.target - rows.matrix @ self._prior.mid) / rows.sigma)

    def estimate(self, box: ParameterBox) -> tuple[FloatArray, bool]:
        """theta_e (10,) inside the box, and whether it is physically consistent too."""
        lower = (box.lower - self._prior.mid) / self._scale
        upper = np.maximum((box.upper - self._prior.mid) / self._scale, lower + 1e-12)
        factor = np.linalg.cholesky(self._information).T  # information = factor^T factor
        solution = lsq_linear(factor, np.linalg.solve(factor.T, self._right), (lower, upper), method="bvls")
        theta = self._prior.mid + self._scale * solution.x
        return make_consistent(theta[box.payload_slice], box.payload_lower, box.payload_upper)


def make_consistent(
    theta: FloatArray, lower: FloatArray, upper: FloatArray, iterations: int = 80
) -> tuple[FloatArray, bool]:
    """Nearest point of a box to ``theta`` (10,) with positive semidefinite pseudo-inertia, and whether one was found.

    Nearest in units of the box. A pseudo-inertia J is positive semidefinite iff ``v J v >= 0`` for all v, linear in
    theta: as long as there is an eigenvector v that breaks it, take it in and solve the linear program again.
    """
    width = np.where(upper > lower, upper - lower, 1.0)
    theta = np.clip(theta, lower, upper)
    start = (theta - lower) / width
    scale = np.diag([1.0 / _LENGTH] * 3 + [1.0])
    # min t over (x, t) with |x - start| <= t, theta = lower + width x.
    near = np.block([[np.eye(10), -np.ones((10, 1))], [-np.eye(10), -np.ones((10, 1))]])
    sides = np.concatenate([start, -start])
    cuts, floors = np.zeros((0, 11)), np.zeros(0)
    bounds = [(0.0, float(free)) for free in upper > lower] + [(0.0, None)]
    for _ in range(iterations):
        values, vectors = np.linalg.eigh(scale @ pseudo_inertia(theta) @ scale)
        floor = _FLOOR * max(values[-1], 0.0)
        if values[0] >= 0.5 * floor > 0.0:
            return theta, True
        for v in (scale @ vectors).T[values < floor]:
            gradient = _UNIT_PSEUDO_INERTIAS @ v @ v  # of v J v
            cuts = np.vstack([cuts, np.append(-gradient * width, 0.0)])
            floors = np.append(floors, gradient @ lower - floor)
        answer = linprog(
            np.append(np.zeros(10), 1.0),
            np.vstack([near, cuts]),
            np.concatenate([sides, floors]),
            bounds=bounds,
        )
        if answer.status != 0:
            break
        theta = np.clip(lower + width * answer.x[:10], lower, upper)
    return theta, False
