r"""One plausible point of the bounds: least squares within them, made physically consistent. Carries no guarantee.

``min sum ((a.theta - t)/sigma)^2 + 3 sum ((theta - mid)/rad)^2`` over the box, prior included: the mode of the
posterior if errors and prior were normal with the variances of uniform ones. Then alternating projections between the
box of theta_e and the cone of positive semidefinite pseudo-inertias, whose intersection holds the truth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from safe_sysid.identification.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox, pseudo_inertia, pseudo_inertia_to_theta

__all__ = ["NominalEstimate", "make_consistent"]

FloatArray = NDArray[np.float64]
_LENGTH = 0.1  # m, makes first moments and inertias comparable with masses in the projection
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
    theta: FloatArray, lower: FloatArray, upper: FloatArray, iterations: int = 300
) -> tuple[FloatArray, bool]:
    """A point of the box near ``theta`` (10,) with positive semidefinite pseudo-inertia, and whether one was found."""
    s = np.diag([1.0 / _LENGTH] * 3 + [1.0])
    s_inverse = np.diag([_LENGTH] * 3 + [1.0])
    theta = np.clip(theta, lower, upper)
    for _ in range(iterations):
        values, vectors = np.linalg.eigh(s @ pseudo_inertia(theta) @ s)
        floor = 1e-6 * max(values[-1], 0.0)
        if values[0] >= 0.5 * floor > 0.0:
            return theta, True
        clipped = (vectors * np.maximum(values, floor)) @ vectors.T
        theta = np.clip(pseudo_inertia_to_theta(s_inverse @ clipped @ s_inverse), lower, upper)
    return theta, False
