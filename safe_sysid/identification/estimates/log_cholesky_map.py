r"""First and second derivatives of the log-Cholesky map, in closed form.

``theta = T(U U^T)`` with T linear and ``U = e^alpha V(d, s, t)`` upper triangular, see
:func:`safe_sysid.robot.parameters.from_log_cholesky`. U is a product of exponentials and linear entries, so every
derivative of U is a matrix with few entries, and those of ``U U^T`` follow by the product rule:
``d_k = U_k U^T + U U_k^T``, ``d_kl = U_kl U^T + U_k U_l^T + U_l U_k^T + U U_kl^T``.

PSO's equation 16 factors ``U^T U`` instead. Both maps are diffeomorphisms onto the consistent parameters
[Rucker2022], so minimisers agree; what differs is where they go when the minimiser lies on the boundary.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.parameters import pseudo_inertia_to_theta

__all__ = ["factor_derivatives", "log_cholesky_derivatives"]

# eta = [alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3]: place of each of the last nine in U.
_PLACES = ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3))
_TO_THETA = np.zeros((10, 4, 4))  # theta_i = sum_ab _TO_THETA[i, a, b] J[a, b], symmetric in a and b
for _a in range(4):
    for _b in range(4):
        _unit = np.zeros((4, 4))
        _unit[_a, _b] += 0.5
        _unit[_b, _a] += 0.5
        _TO_THETA[:, _a, _b] = pseudo_inertia_to_theta(_unit)


def factor_derivatives(eta: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The factor U (4, 4) and its derivatives.

    ``eta``: (10,) log-Cholesky parameters; the diagonal entries may be so negative that their exponential is zero.
    Returns U (4, 4), its first (10, 4, 4) and second derivatives (10, 10, 4, 4).
    """
    eta = np.asarray(eta, float)
    u = np.zeros((4, 4))
    first, second = np.zeros((10, 4, 4)), np.zeros((10, 10, 4, 4))
    scale = np.exp(eta[0])
    u[3, 3] = scale
    for k, place in enumerate(_PLACES, start=1):
        diagonal = k <= 3
        value = scale * (np.exp(eta[k]) if diagonal else eta[k])
        slope = value if diagonal else scale
        u[place] = value
        first[(k, *place)] = slope
        second[(0, k, *place)] = second[(k, 0, *place)] = slope
        if diagonal:
            second[(k, k, *place)] = value
    first[0] = u  # all of U is proportional to e^alpha
    second[0, 0] = u
    return u, first, second


def log_cholesky_derivatives(eta: ArrayLike, paper: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Parameters and their derivatives.

    Returns theta (10,), its Jacobian (10, 10) and second derivatives (10, 10, 10), first index theta's.

    Args:
        eta: (10,) as in :func:`safe_sysid.robot.parameters.from_log_cholesky`.
        paper: the factorisation ``U^T U`` of PSO's equation 16 instead of ``U U^T``.
    """
    u, first, second = factor_derivatives(eta)
    if paper:
        u, first, second = u.T, first.swapaxes(-1, -2), second.swapaxes(-1, -2)
    j1 = first @ u.T
    j2 = second @ u.T + np.einsum("kab,lcb->klac", first, first)
    # T takes the symmetric part, so half of the product rule's terms, doubled, is enough.
    theta = np.einsum("iab,ab->i", _TO_THETA, u @ u.T)
    jacobian = 2.0 * np.einsum("iab,kab->ik", _TO_THETA, j1)
    curvature = 2.0 * np.einsum("iab,klab->ikl", _TO_THETA, j2)
    return theta, jacobian, 0.5 * (curvature + curvature.swapaxes(1, 2))
