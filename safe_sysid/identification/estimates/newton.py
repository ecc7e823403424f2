r"""Log-Cholesky least squares [PSO, eq. 25] by Newton's method in a trust region, with exact derivatives.

``f(eta) = q(theta(eta))`` with a convex quadratic q in ten parameters: whatever the number of samples, one step costs a
10 x 10 eigenvalue problem. ``grad f = T^T g`` and ``hess f = T^T H T + sum_i g_i theta_i''``, ``g = grad q``, ``T`` the
Jacobian. f is not convex, but a stationary point at finite eta is the global minimum: T is invertible, so ``g = 0``.
If the minimum over the closed cone lies on its boundary, no minimiser exists: diagonal entries run to minus infinity,
f converges, and the search stops when a step promises nothing more. The same happens on faces of the cone that hold no
minimum: there all derivatives in the runaway direction vanish as well (the parameterisation has "spurious minima" at
infinity, and plain searches end there often). Duality tells the two apart, and shows the way out.

The map and its derivatives. ``theta = T(U U^T)`` with T linear and ``U = e^alpha V(d, s, t)`` upper triangular, see
:func:`safe_sysid.robot.parameters.from_log_cholesky`. U is a product of exponentials and linear entries, so every
derivative of U is a matrix with few entries, and those of ``U U^T`` follow by the product rule:
``d_k = U_k U^T + U U_k^T``, ``d_kl = U_kl U^T + U_k U_l^T + U_l U_k^T + U U_kl^T``.

PSO's equation 16 factors ``U^T U`` instead. Both maps are diffeomorphisms onto the consistent parameters
[Rucker2022], so minimisers agree; what differs is where they go when the minimiser lies on the boundary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.estimates.projected import SCALED_UNITS
from safe_sysid.identification.estimates.quadratic import Quadratic
from safe_sysid.robot.parameters import (
    frozen_array,
    inertia_from_com,
    log_cholesky,
    pseudo_inertia,
    pseudo_inertia_to_theta,
)

__all__ = [
    "LogCholeskyAnswer",
    "ball",
    "cost_and_derivatives",
    "factor_derivatives",
    "fit_log_cholesky",
    "log_cholesky_derivatives",
    "starting_point",
]

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


_BOUNDARY = 1e-8  # smallest over largest eigenvalue below which the minimum counts as on the boundary
_RADIUS = 1.0
_TOLERANCE = 1e-13  # decrease promised by a step, over that from the start, at which to stop
_FLAT = SCALED_UNITS.reshape(10, 16)
_FROM_FLAT = np.linalg.solve(_FLAT @ _FLAT.T, _FLAT)  # (10, 16): theta of a scaled pseudo-inertia
_INSIDE = 1e-7  # smallest over largest eigenvalue of a minimiser that needs no search
_RAISED = 0.1  # of the largest eigenvalue, where the others are raised to at the start
_ROUNDING = 1e-12  # relative error of theta that no step removes
_CAUGHT = 10.0  # decrease off the face over that of a step in eta, from which on the search counts as caught
_NUDGE = 1e-9  # of its size that a restart is moved into the cone


@dataclass(frozen=True, eq=False)
class LogCholeskyAnswer:
    """A minimiser, or where the search for one stopped."""

    eta: FloatArray  #: (10,) log-Cholesky parameters
    theta: FloatArray  #: (10,) inertial parameters, strictly consistent up to rounding
    value: float  #: of the quadratic above its own minimum without constraints
    gradient: float  #: largest entry of the gradient in eta, in the unit of value
    iterations: int
    converged: bool  #: whether the last step promised less than the tolerance
    boundary: bool  #: whether eta ran away: theta lies on the boundary, where no minimiser in eta exists
    optimal: bool  #: whether theta is optimal over the whole cone, by its dual matrix; not proved, up to tolerance

    def __post_init__(self) -> None:
        for name in ("eta", "theta"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), (10,), name))


def cost_and_derivatives(
    quadratic: Quadratic, eta: FloatArray, paper: bool = False, best: FloatArray | None = None
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Value above the unconstrained minimum, gradient (10,) and Hessian (10, 10) in eta, and theta (10,).

    Args:
        quadratic: of theta, SI units.
        eta: (10,).
        best: (10,) the quadratic's own minimiser, if it is known already.
        paper: the factorisation of PSO's equation 16.
    """
    theta, jacobian, curvature = log_cholesky_derivatives(eta, paper)
    # Relative to the minimiser: differences of values near the end would drown in the rounding of b.x otherwise.
    from_best = theta - (quadratic.minimiser() if best is None else best)
    g = quadratic.hessian @ from_best
    hessian = jacobian.T @ quadratic.hessian @ jacobian + np.einsum("i,ikl->kl", g, curvature)
    return 0.5 * float(from_best @ g), jacobian.T @ g, hessian, theta


def ball(mass: float = 1.0) -> FloatArray:
    """For both factorisations: (10,) of a ball of 0.1 m radius of gyration about the frame's origin, ``mass`` in kg."""
    return log_cholesky(inertia_from_com(mass, np.zeros(3), 0.01 * mass * np.eye(3)))


def starting_point(quadratic: Quadratic, paper: bool = False) -> FloatArray:
    """Where to begin, (10,): the unconstrained minimum, or, off the cone, with its pseudo-inertia's eigenvalues raised.

    ``quadratic``: of theta (10,), SI units; ``paper``: the factorisation of PSO's equation 16.
    """
    values, vectors = np.linalg.eigh(np.einsum("p,pij->ij", quadratic.minimiser(), SCALED_UNITS))
    if not values[-1] > 0.0:
        return ball()
    if values[0] > _INSIDE * values[-1]:
        return _parameters(quadratic.minimiser(), paper)
    raised = (vectors * np.maximum(values, _RAISED * values[-1])) @ vectors.T
    return _parameters(np.asarray(_FROM_FLAT @ raised.ravel(), float), paper)


def fit_log_cholesky(
    quadratic: Quadratic,
    start: FloatArray | None = None,
    iterations: int = 200,
    paper: bool = False,
    escape: bool = True,
) -> LogCholeskyAnswer:
    """Minimise a convex quadratic of theta over the consistent parameters.

    Args:
        quadratic: of theta (10,), SI units.
        start: eta (10,) to begin with; None for :func:`starting_point`.
        iterations: at most.
        paper: the factorisation of PSO's equation 16.
        escape: leave a face of the cone on which the search was caught; without, this is the plain method.
    """
    eta = starting_point(quadratic, paper) if start is None else np.array(start, float)
    best = quadratic.minimiser()
    first = cost_and_derivatives(quadratic, eta, paper, best)[0]
    # A start at the minimum leaves nothing to decrease: below this everything is rounding.
    enough = max(_TOLERANCE * first, _ROUNDING**2 * float(best @ quadratic.hessian @ best), 1e-300)
    eta, count, converged = _descend(quadratic, eta, best, iterations, enough, paper, escape)
    value, gradient, _, theta = cost_and_derivatives(quadratic, eta, paper, best)
    away = _way_out(quadratic, theta, best)
    relative = np.linalg.eigvalsh(np.einsum("p,pij->ij", theta, SCALED_UNITS))
    return LogCholeskyAnswer(
        eta,
        theta,
        value,
        float(np.max(np.abs(gradient))),
        count,
        converged,
        bool(relative[0] < _BOUNDARY * relative[-1]),
        away is None or away[1] <= 1e3 * enough,
    )


def _descend(
    quadratic: Quadratic, eta: FloatArray, best: FloatArray, iterations: int, enough: float, paper: bool, escape: bool
) -> tuple[FloatArray, int, bool]:
    """Minimise until a step promises less than ``enough``: eta (10,), steps taken, and whether it came to that."""
    value, gradient, hessian, theta = cost_and_derivatives(quadratic, eta, paper, best)
    radius = _RADIUS
    for count in range(1, iterations + 1):
        values, vectors = np.linalg.eigh(hessian)
        # The model's curvature is made positive: a saddle is left downhill, at the scale of the curvature.
        floor = 1e-14 * max(float(np.max(np.abs(values))), 1e-300)
        slope = vectors.T @ gradient
        step = -_in_ball(slope, np.maximum(np.abs(values), floor), radius)
        promised = -float(slope @ step + 0.5 * step @ (np.abs(values) * step))
        away = _way_out(quadratic, theta, best) if escape else None
        if away is not None and away[1] > max(_CAUGHT * promised, enough):
            eta, radius = _parameters(away[0], paper), _RADIUS
            value, gradient, hessian, theta = cost_and_derivatives(quadratic, eta, paper, best)
            continue
        trial = eta + vectors @ step
        with np.errstate(over="ignore", invalid="ignore"):
            new = cost_and_derivatives(quadratic, trial, paper, best)
        if promised <= enough:
            return (trial if new[0] <= value else eta), count, True
        ratio = (value - new[0]) / promised if np.isfinite(new[0]) else -1.0
        if ratio < 0.25:
            radius = 0.25 * float(np.linalg.norm(step))
        elif ratio > 0.75 and np.linalg.norm(step) > 0.9 * radius:
            radius = min(2.0 * radius, 10.0)
        if ratio > 1e-4:
            eta, (value, gradient, hessian, theta) = trial, new
        elif radius < 1e-10:
            return eta, count, False
    return eta, iterations, False


def _way_out(quadratic: Quadratic, theta: FloatArray, best: FloatArray) -> tuple[FloatArray, float] | None:
    """Parameters (10,) after an exact line search off a face of the cone, and the decrease; None at an optimum.

    theta is optimal iff the gradient, as a matrix Z with ``g.theta = <Z, J(theta)>``, is positive semidefinite and
    orthogonal to J. A negative eigenvalue of Z is a direction ``v v^T`` that leads downhill into the cone; in eta it is
    at infinity, where every derivative vanishes, and no test of stationarity sees it.
    """
    g = quadratic.hessian @ (theta - best)
    v = np.linalg.eigh((_FROM_FLAT.T @ g).reshape(4, 4))[1][:, 0]
    direction = _FROM_FLAT @ np.outer(v, v).ravel()
    slope, curvature = float(g @ direction), float(direction @ quadratic.hessian @ direction)
    if not slope < 0.0:
        return None
    moved = theta - slope / curvature * direction
    size = float(np.trace(np.einsum("p,pij->ij", moved, SCALED_UNITS)))
    return moved + _NUDGE * size * (_FROM_FLAT @ np.eye(4).ravel()), 0.5 * slope**2 / curvature


def _parameters(theta: FloatArray, paper: bool) -> FloatArray:
    """Log-Cholesky (10,) of consistent parameters in either factorisation."""
    if not paper:
        return log_cholesky(theta)
    u = np.linalg.cholesky(pseudo_inertia(theta)).T
    v = u / u[3, 3]
    return np.array([np.log(u[3, 3]), *np.log(np.diag(v)[:3]), v[0, 1], v[1, 2], v[0, 2], *v[:3, 3]])


def _in_ball(slope: FloatArray, curvature: FloatArray, radius: float) -> FloatArray:
    """(10,) ``(curvature + s)^-1 slope`` with the smallest s >= 0 that makes its norm at most radius."""
    step = slope / curvature
    if np.linalg.norm(step) <= radius:
        return step
    low, high = 0.0, float(np.linalg.norm(slope)) / radius
    for _ in range(60):
        middle = 0.5 * (low + high)
        if np.linalg.norm(slope / (curvature + middle)) > radius:
            low = middle
        else:
            high = middle
    return slope / (curvature + high)
