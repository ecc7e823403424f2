"""Draws of the true arm: anywhere in the physically consistent part of the declared uncertainty, or at its corners."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.payloads import Payload, check_inside_prior, theta_e_with_payload

__all__ = ["DRAW_MODES", "draw_link", "draw_truth", "hand_box", "is_simulable"]


DRAW_MODES = ("nominal", "uniform", "corner")
_MARGIN = 1e-6  # smallest second moment over the sum of the three: keeps MuJoCo's triangle test and RK4 comfortable
_TRIES = 500
_BISECTIONS = 40
_PASSES = 3
_MORE_PASSES = 200
_STILL = 1e-6  # of the box's width: less is no move
_REDRAWS = 50


def is_simulable(theta: ArrayLike) -> bool:
    """Whether ten parameters (10,) are those of a solid body, strictly, so that MuJoCo takes them."""
    m, hx, hy, hz, xx, xy, yy, xz, yz, zz = np.asarray(theta, float).tolist()
    if not (m > 0.0 and math.isfinite(m + hx + hy + hz + xx + xy + yy + xz + yz + zz)):
        return False
    # Second moments about the centre, less the margin: positive definite by Cholesky's steps. Numbers, not arrays: a
    # drawn arm asks thousands of times.
    half = 0.5 * (xx + yy + zz)
    a, b, c = half - xx - hx * hx / m, half - yy - hy * hy / m, half - zz - hz * hz / m
    margin = _MARGIN * abs(a + b + c)
    a, b, c = a - margin, b - margin, c - margin
    ab, ac, bc = -xy - hx * hy / m, -xz - hx * hz / m, -yz - hy * hz / m
    if not a > 0.0:
        return False
    b, bc = b - ab * ab / a, bc - ab * ac / a
    return bool(b > 0.0 and c - ac * ac / a - bc * bc / b > 0.0)


def draw_link(
    rng: np.random.Generator, lower: FloatArray, upper: FloatArray, inside: FloatArray, mode: str
) -> FloatArray:
    """One link's ten parameters from the consistent part of a box.

    Args:
        lower: (10,) of the box.
        upper: (10,) of the box.
        inside: (10,) a consistent point of the box, the nominal.
        mode: "nominal", "uniform" (rejection; a draw that is never accepted is moved towards the nominal) or "corner"
            (from a random vertex as far out as consistency lets it, then each parameter alone out to its bound).
    """
    if mode == "nominal":
        return inside.copy()
    if mode == "uniform":
        for _ in range(_TRIES):
            theta = rng.uniform(lower, upper)
            if is_simulable(theta):
                return theta
        return _towards(inside, rng.uniform(lower, upper))
    vertex = np.where(rng.integers(0, 2, lower.size) == 1, upper, lower)
    theta = _towards(inside, vertex)
    for _ in range(_PASSES):  # what one parameter gives way, others can take
        theta = _pushed(theta, vertex, rng.permutation(lower.size))
    for _ in range(_MORE_PASSES):  # until none gives way any more
        farther = _pushed(theta, vertex, np.arange(lower.size))
        if np.all(np.abs(farther - theta) <= _STILL * (upper - lower)):
            break
        theta = farther
    return np.clip(theta, lower, upper)


def _pushed(theta: FloatArray, vertex: FloatArray, order: IntArray) -> FloatArray:
    """Each parameter alone, one after the other, as far towards its bound as it can go."""
    for i in order:
        target = theta.copy()
        target[i] = vertex[i]
        theta = _towards(theta, target)
    return theta


def _towards(inside: FloatArray, target: FloatArray) -> FloatArray:
    """Farthest simulable point on the segment from a simulable point to a target."""
    if is_simulable(target):
        return target
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if is_simulable(inside + middle * (target - inside)):
            low = middle
        else:
            high = middle
    return inside + low * (target - inside)


def hand_box(model: RobotModel) -> tuple[FloatArray, FloatArray]:
    """Bounds (10,), (10,) of the last link with *empty* hand: the same relative uncertainty as every other link.

    The box's own theta_e block cannot serve: it is the prior of hand and payload together. Where something is proved
    of the last link, that.
    """
    if model.proved_link(model.n - 1) is not None:
        return model.hand_prior
    nominal = model.theta_nominal[model.layout.payload]
    uncertainty = model.settings.uncertainty
    floor = np.array([uncertainty.floor.mass] + 3 * [uncertainty.floor.first_moment] + 6 * [uncertainty.floor.inertia])
    radius = uncertainty.relative * np.abs(nominal) + floor
    return nominal - radius, nominal + radius


def draw_truth(
    model: RobotModel, payload: Payload, rng: np.random.Generator | int, mode: str = "uniform"
) -> FloatArray:
    """True parameters (14 n,) of an arm that is built within its tolerances and holds a payload.

    ``rng``: generator or seed; the same one gives the same arm; ``mode``: one of :data:`DRAW_MODES`.

    Raises:
        ParameterError: the payload does not fit the prior with any hand that was drawn (named parameter), the
            nominal of a link is not a physical body, or the mode is unknown.
    """
    if mode not in DRAW_MODES:
        raise ParameterError(f"draw mode = {mode!r}: expected one of {', '.join(DRAW_MODES)}")
    rng = np.random.default_rng(rng)
    n, box = model.n, model.arm_prior
    theta = model.theta_nominal.copy()
    for j in range(n):
        link = model.layout.link(j)
        if not is_simulable(theta[link]):
            raise ParameterError(
                f"link moved by {model.joint_names[j]}: nominal parameters {theta[link].tolist()}: expected those of "
                "a solid body (positive mass; inertia about the centre positive definite, strict triangle inequality)"
            )
        if j < n - 1:
            theta[link] = draw_link(rng, box.lower[link], box.upper[link], theta[link], mode)
    rest = model.layout.joint_terms
    theta[rest] = _draw_joint_parameters(rng, model, mode)
    hand = model.layout.payload
    lower, upper = hand_box(model)
    for attempt in range(_REDRAWS):
        drawn = draw_link(rng, lower, upper, model.theta_nominal[hand], mode)
        theta[hand] = theta_e_with_payload(model, drawn, payload)
        try:
            check_inside_prior(model, theta[hand], payload)
            break
        except ParameterError:
            if attempt == _REDRAWS - 1 or mode == "nominal":
                raise
    outside = np.flatnonzero((theta < box.lower) | (theta > box.upper))
    if outside.size:
        i = int(outside[0])
        raise ParameterError(
            f"true {model.layout.names(model.joint_names)[i]} = {float(theta[i])!r}: expected a value in the prior "
            f"[{float(box.lower[i])!r}, {float(box.upper[i])!r}]"
        )
    return theta


def _draw_joint_parameters(rng: np.random.Generator, model: RobotModel, mode: str) -> FloatArray:
    """Friction, rotor inertia and offset; friction and inertia not negative, whatever the box says."""
    layout, lower = model.layout, model.arm_prior.lower.copy()
    lower[layout.never_negative] = np.maximum(lower[layout.never_negative], 0.0)
    rest = layout.joint_terms
    lower, upper = lower[rest], model.arm_prior.upper[rest]
    if np.any(upper < lower):
        i = int(np.flatnonzero(upper < lower)[0])
        name = layout.names(model.joint_names)[rest][i]
        raise ParameterError(f"prior of {name}: upper bound {float(upper[i])!r}: expected a value >= 0")
    if mode == "nominal":
        return model.theta_nominal[rest].copy()
    if mode == "uniform":
        return rng.uniform(lower, upper)
    return np.where(rng.integers(0, 2, lower.size) == 1, upper, lower)
