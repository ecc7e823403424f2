"""The payload without the hand: bounds and nominal of what the payload's link carries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.estimates.projected import body_margin, make_consistent
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array, pseudo_inertia, pseudo_inertia_to_theta, transform_inertial

__all__ = ["PayloadBounds", "payload_bounds"]


#: Far more than the rounding of ten products and of the matrix that they are made with.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class PayloadBounds:
    """Ten parameters of the payload alone, in the payload's frame, inertia about its origin; arrays are read-only."""

    lower: FloatArray  #: (10,)
    nominal: FloatArray  #: (10,), inside the bounds
    upper: FloatArray  #: (10,)
    consistent: bool  #: the nominal difference was a possible body as it was; otherwise one near it stands there
    #: the nominal is a possible body; if not, none was found inside the bounds, and the nominal is only the point of
    #: the bounds nearest to the difference: nothing to show as an estimate
    possible: bool


def payload_bounds(model: RobotModel, lower: FloatArray, nominal: FloatArray, upper: FloatArray) -> PayloadBounds:
    """The payload without the hand, in the payload's frame.

    Args:
        model: with the hand's prior and the flange.
        lower: (10,) of theta_e, last joint's frame.
        nominal: (10,) of theta_e.
        upper: (10,) of theta_e.

    Returns:
        Intervals of ``theta_e - theta_hand - opening``, carried into the payload's frame (wider there, as that is
        linear and mixes components), and the nominal difference, moved to a possible body inside these intervals if it
        is none.

    Raises:
        ParameterError: an array that is not (10,) finite numbers.
    """
    lower, upper = frozen_array(lower, (10,), "lower"), frozen_array(upper, (10,), "upper")
    nominal = frozen_array(nominal, (10,), "nominal")
    hand_lower, hand_upper = model.hand_prior
    opening = np.asarray(model.settings.payload.hand_opening, float)
    low, high = lower - hand_upper - opening, upper - hand_lower + opening
    rotation, translation = model.payload_frame
    back, shift = rotation.T, -rotation.T @ translation
    linear = np.column_stack([transform_inertial(back, shift, unit) for unit in np.eye(10)])
    middle, radius = linear @ (0.5 * (low + high)), np.abs(linear) @ (0.5 * (high - low))
    size = np.maximum(np.maximum(np.abs(lower), np.abs(upper)), np.maximum(np.abs(low), np.abs(high)))
    radius = radius + _ROUNDING * (1.0 + np.abs(linear) @ size)
    hand = model.theta_nominal[model.layout.payload]
    least, most = middle - radius, middle + radius
    theta, consistent, possible = _estimate(linear @ (nominal - hand), least, most)
    return PayloadBounds(
        frozen_array(least, (10,), "payload lower"),
        frozen_array(theta, (10,), "payload nominal"),
        frozen_array(most, (10,), "payload upper"),
        consistent,
        possible,
    )


def _estimate(theta: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, bool, bool]:
    """A possible body inside intervals near a point, whether it is that point, and whether one was found.

    The true payload is one, if what is declared is true; only a solver that gives up leaves none.
    """

    def inside(values: FloatArray) -> bool:
        return bool(np.all(lower <= values) and np.all(values <= upper))

    body, consistent = _possible(theta)
    if inside(body):
        return body, consistent, True
    # The body nearest to the point, by its eigenvalues alone, weighs more or less than the intervals allow.
    moved, possible = make_consistent(theta, lower, upper)
    return moved, False, possible and inside(moved) and body_margin(moved) >= 0.0


def _possible(theta: FloatArray) -> tuple[FloatArray, bool]:
    """Ten parameters with their pseudo-inertia's negative eigenvalues set to zero, and whether there were none."""
    scale = np.diag([10.0, 10.0, 10.0, 1.0])  # lengths in 0.1 m: makes moments comparable with masses
    values, vectors = np.linalg.eigh(scale @ pseudo_inertia(theta) @ scale)
    if values[0] >= 0.0:
        return theta, True
    back = np.linalg.inv(scale) @ vectors
    return pseudo_inertia_to_theta(back @ np.diag(np.maximum(values, 0.0)) @ back.T), False
