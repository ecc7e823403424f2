"""The payload without the hand: bounds and nominal of what the tool frame carries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import (
    frozen_array,
    pseudo_inertia,
    pseudo_inertia_to_theta,
    transform_inertial,
)

__all__ = ["PayloadBounds", "payload_bounds"]

FloatArray = NDArray[np.float64]

#: Far more than the rounding of ten products and of the matrix that they are made with.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class PayloadBounds:
    """Ten parameters of the payload alone, in the tool frame, inertia about its origin; arrays are read-only.

    Attributes:
        lower: (10,).
        nominal: (10,), a possible body; not always inside the bounds.
        upper: (10,).
        consistent: the nominal difference was a possible body as it was; otherwise the nearest one stands there.
    """

    lower: FloatArray
    nominal: FloatArray
    upper: FloatArray
    consistent: bool


def payload_bounds(
    model: RobotModel, lower: FloatArray, nominal: FloatArray, upper: FloatArray
) -> PayloadBounds:
    """The payload without the hand, in the tool frame.

    Args:
        model: with the hand's prior and the flange.
        lower: (10,) of theta_e, last joint's frame.
        nominal: (10,) of theta_e.
        upper: (10,) of theta_e.

    Returns:
        Intervals of ``theta_e - theta_hand - opening``, carried into the tool frame (wider there, as that is linear and
        mixes components), and the nominal difference, moved to the nearest possible body if it is none.

    Raises:
        ParameterError: an array that is not (10,) finite numbers.
    """
    lower, upper = frozen_array(lower, (10,), "lower"), frozen_array(upper, (10,), "upper")
    nominal = frozen_array(nominal, (10,), "nominal")
    hand_lower, hand_upper = model.hand_prior
    opening = np.asarray(model.settings.payload.hand_opening, float)
    low, high = lower - hand_upper - opening, upper - hand_lower + opening
    rotation, translation = model.flange
    back, shift = rotation.T, -rotation.T @ translation
    linear = np.column_stack([transform_inertial(back, shift, unit) for unit in np.eye(10)])
    middle, radius = linear @ (0.5 * (low + high)), np.abs(linear) @ (0.5 * (high - low))
    size = np.maximum(np.maximum(np.abs(lower), np.abs(upper)), np.maximum(np.abs(low), np.abs(high)))
    radius = radius + _ROUNDING * (1.0 + np.abs(linear) @ size)
    hand = model.theta_nominal[10 * (model.n - 1) : 10 * model.n]
    theta, consistent = _possible(linear @ (nominal - hand))
    return PayloadBounds(
        frozen_array(middle - radius, (10,), "payload lower"),
        frozen_array(theta, (10,), "payload nominal"),
        frozen_array(middle + radius, (10,), "payload upper"),
        consistent,
    )


def _possible(theta: FloatArray) -> tuple[FloatArray, bool]:
    """Ten parameters with their pseudo-inertia's negative eigenvalues set to zero, and whether there were none."""
    scale = np.diag([10.0, 10.0, 10.0, 1.0])  # lengths in 0.1 m: makes moments comparable with masses
    values, vectors = np.linalg.eigh(scale @ pseudo_inertia(theta) @ scale)
    if values[0] >= 0.0:
        return theta, True
    back = np.linalg.inv(scale) @ vectors
    return pseudo_inertia_to_theta(back @ np.diag(np.maximum(values, 0.0)) @ back.T), False
