r"""Weighted least squares within the bounds and the physically consistent parameters: one convex program.

``min x.H x / 2 - b.x`` over the boxes of all unknowns, with the pseudo-inertia of the payload alone (of theta_e where
the empty hand is unknown) positive semidefinite: a quadratic program with one 4 x 4 semidefinite cone [Wensing2018],
solved by Clarabel. Its answer is never trusted: it is clipped to the box and its eigenvalues are looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
import scipy  # scipy.sparse when it is first used

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.estimates.quadratic import Quadratic
from safe_sysid.robot.parameters import pseudo_inertia

__all__ = ["ConvexAnswer", "body_margin", "make_consistent", "opened_hand", "project_payload", "solve_convex"]

_LENGTH = 0.1  # m, makes second moments comparable with masses
_DIAGONAL = np.diag([1.0 / _LENGTH] * 3 + [1.0])
SCALED_UNITS = np.stack([_DIAGONAL @ pseudo_inertia(unit) @ _DIAGONAL for unit in np.eye(10)])
_MARGINS = (1e-5, 1e-8, 1e-11)  # smallest eigenvalue asked for, kg, with lengths in units of 0.1 m
_TRIANGLE = tuple((i, j) for j in range(4) for i in range(j + 1))  # Clarabel's order, column by column
_VECTOR = np.stack([SCALED_UNITS[:, i, j] * (1.0 if i == j else np.sqrt(2.0)) for i, j in _TRIANGLE])


@dataclass(frozen=True, eq=False)
class ConvexAnswer:
    """Answer of the convex solver."""

    x: FloatArray  #: (K,) point, not yet clipped to the bounds
    solved: bool  #: whether the solver says so; nothing may rest on it
    iterations: int
    margin: float  #: smallest eigenvalue that was asked for, kg


def body_margin(theta: FloatArray) -> float:
    """Smallest eigenvalue of theta's (10,) pseudo-inertia with lengths in units of 0.1 m, kg; >= 0 for a body."""
    return float(np.linalg.eigvalsh(np.einsum("p,pij->ij", theta, SCALED_UNITS))[0])


def opened_hand(payload_constraints: PayloadConstraints) -> tuple[FloatArray, FloatArray]:
    """Bounds (10,), (10,) of the hand as it holds the payload: the empty hand's, wider by what opening it changes."""
    return (
        payload_constraints.hand_lower - payload_constraints.opening,
        payload_constraints.hand_upper + payload_constraints.opening,
    )


def solve_convex(
    quadratic: Quadratic,
    lower: FloatArray,
    upper: FloatArray,
    body: FloatArray,
    offset: FloatArray,
    inequalities: FloatArray | None = None,
    limits: FloatArray | None = None,
) -> ConvexAnswer:
    """Minimise within a box such that ``body x + offset`` are parameters of a body.

    Args:
        quadratic: over x (K,).
        lower: (K,) of the box.
        upper: (K,) of the box; equal to lower for what is fixed.
        body: (10, K) linear part of the body's parameters.
        offset: (10,) constant part.
        inequalities: (L, 10) further rows g with ``g.(body x + offset) >= limits``.
        limits: (L,).
    """
    # About the unconstrained minimum: without a linear term the cost loses no digits, and is the size of a residual.
    size = len(lower)
    best = quadratic.minimiser()
    extra = np.zeros((0, 10)) if inequalities is None else inequalities
    floor = np.zeros(0) if limits is None else limits
    constant = body @ best + offset
    eye = scipy.sparse.identity(size, format="csc")
    matrix = scipy.sparse.vstack(
        [eye, -eye, scipy.sparse.csc_matrix(-extra @ body), scipy.sparse.csc_matrix(-_VECTOR @ body)], format="csc"
    )
    hessian = scipy.sparse.csc_matrix(np.triu(quadratic.hessian))
    cones = [clarabel.NonnegativeConeT(2 * size + len(extra)), clarabel.PSDTriangleConeT(4)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    answer = ConvexAnswer(np.clip(np.zeros(size), lower, upper), False, 0, 0.0)
    for margin in _MARGINS:
        cone = _VECTOR @ constant - margin * np.array([float(i == j) for i, j in _TRIANGLE])
        side = np.concatenate([upper - best, best - lower, extra @ constant - floor, cone])
        solver = clarabel.DefaultSolver(hessian, np.zeros(size), matrix, side, cones, settings)
        raw = _solved(solver)
        if raw is None:
            continue
        solved = raw.status in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved)
        x = best + np.asarray(raw.x, float)
        answer = ConvexAnswer(x, solved and bool(np.all(np.isfinite(x))), raw.iterations, margin)
        if answer.solved:
            break
    return answer


def _solved(solver: clarabel.DefaultSolver) -> clarabel.DefaultSolution | None:
    """The solver's answer; None where it panics, as it does when an iterate of a hard problem overflows."""
    try:
        return solver.solve()
    except BaseException as error:  # a Rust panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return None


def project_payload(
    quadratic: Quadratic, lower: FloatArray, upper: FloatArray, payload_constraints: PayloadConstraints | None = None
) -> tuple[FloatArray, bool]:
    """Minimiser in theta_e (10,) over its box with a consistent payload, and whether it is one.

    Args:
        quadratic: in theta_e, SI units.
        lower: (10,) bounds of theta_e.
        upper: (10,) bounds of theta_e.
        payload_constraints: of hand and payload; None to ask consistency of theta_e as a whole.
    """
    scale = np.where(upper > lower, 0.5 * (upper - lower), 1.0)
    middle = 0.5 * (lower + upper)
    inner = quadratic.transformed(np.diag(scale), middle)
    unit = np.where(upper > lower, 1.0, 0.0)
    body, offset, sides = np.diag(scale), middle, (-unit, unit)
    rows = limits = None
    if payload_constraints is not None:
        # theta_p = theta_e - h, h in the hand's box opened by its opening; h has no cost of its own.
        h_lower, h_upper = opened_hand(payload_constraints)
        h_scale = 0.5 * (h_upper - h_lower)
        body = np.hstack([body, -np.diag(h_scale)])
        offset = middle - 0.5 * (h_lower + h_upper)
        wide = np.where(h_scale > 0.0, 1.0, 0.0)
        sides = (np.concatenate([-unit, -wide]), np.concatenate([unit, wide]))
        weight = 1e-9 * float(np.max(np.diag(inner.hessian)))  # picks one h of many
        inner = Quadratic(
            np.block([[inner.hessian, np.zeros((10, 10))], [np.zeros((10, 10)), weight * np.eye(10)]]),
            np.concatenate([inner.linear, np.zeros(10)]),
        )
        rows, limits = payload_constraints.fixed.coefficients(), payload_constraints.fixed.constant
    answer = solve_convex(inner, *sides, body, offset, rows, limits)
    if not answer.solved:
        return np.clip(middle + scale * np.clip(inner.minimiser()[:10], -1.0, 1.0), lower, upper), False
    x = np.clip(answer.x, *sides)
    theta = np.clip(middle + scale * x[:10], lower, upper)
    return theta, body_margin(body @ x + offset) >= 0.0


def make_consistent(
    theta: FloatArray, lower: FloatArray, upper: FloatArray, payload_constraints: PayloadConstraints | None = None
) -> tuple[FloatArray, bool]:
    """Nearest point of a box to ``theta`` (10,) in units of the box that is consistent, and whether one was found.

    Args:
        theta: (10,) where to start; need not lie in the box.
        lower: (10,) bounds.
        upper: (10,) bounds.
        payload_constraints: of hand and payload; None to ask consistency of theta as a whole.
    """
    start = np.clip(theta, lower, upper)
    width = np.where(upper > lower, upper - lower, 1.0)
    hessian = np.diag(1.0 / width**2)
    return project_payload(Quadratic(hessian, hessian @ start), lower, upper, payload_constraints)
