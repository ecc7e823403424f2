"""Inertial parameters as shapes for pictures: possible centres of mass, and an ellipsoid of inertia."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import interval_text
from safe_sysid.errors import ParameterError
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.intervals import check_interval, up
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import com_and_inertia, frozen_array

__all__ = ["PayloadShapes", "centre_of_mass_box", "inertia_ellipsoid", "payload_shapes"]


#: Relative to the largest eigenvalue: what rounding may make of a covariance's eigenvalue that is zero.
_FLAT = 1e-9
#: m; an ellipsoid within it cannot be seen.
_POINT = 1e-4


def centre_of_mass_box(lower: ArrayLike, upper: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Box that holds ``h / m`` of every body with ``m > 0`` whose ten parameters lie in an interval vector.

    Rounded outward; an end is infinite where the mass may be arbitrarily small and the first moment has that sign.

    ``lower``: (10,) as in :mod:`safe_sysid.robot.parameters`; kg, kg m, kg m^2; ``upper``: (10,).
    Returns lower and upper ends, each (3,), m, read-only.

    Raises:
        ParameterError: not (10,) finite numbers, ends that cross, or a mass that cannot be positive.
    """
    low, high = frozen_array(lower, (10,), "lower"), frozen_array(upper, (10,), "upper")
    check_interval(low, high, "inertial parameters")
    light, heavy = max(float(low[0]), 0.0), float(high[0])
    if not heavy > 0.0:
        raise ParameterError(f"m in [{low[0]!r}, {high[0]!r}] kg: expected a mass that can be positive")
    ends = np.empty((2, 3))
    for i in range(3):
        ends[0, i] = -_largest_quotient(-float(low[1 + i]), light, heavy)
        ends[1, i] = _largest_quotient(float(high[1 + i]), light, heavy)
    return frozen_array(ends[0], (3,), "centre of mass", finite=False), frozen_array(
        ends[1], (3,), "centre of mass", finite=False
    )


def _largest_quotient(h: float, light: float, heavy: float) -> float:
    """Upper bound of ``h / m`` over the masses ``light <= m <= heavy``, ``m > 0``."""
    if h <= 0.0:
        return float(up(h / heavy))
    with np.errstate(over="ignore", divide="ignore"):
        quotient = float(np.float64(h) / np.float64(light))
    return float(up(quotient)) if np.isfinite(quotient) else np.inf


def inertia_ellipsoid(theta: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The homogeneous solid ellipsoid that has these ten parameters.

    Its density-weighted covariance about its centre is ``m / 5 R diag(a^2) R^T``, and that of a body is
    ``tr(I) / 2 - I``, ``I`` about the centre of mass.

    ``theta``: (10,) as in :mod:`safe_sysid.robot.parameters`.

    Returns:
        Centre (3,), m; rotation (3, 3), whose columns are the principal axes, right-handed; semi-axes (3,), m,
        ascending; a flat body has some that are zero. All in the frame of ``theta``, read-only.

    Raises:
        ParameterError: not (10,) finite numbers, no positive mass, or no body that has these parameters.
    """
    theta = frozen_array(theta, (10,), "theta")
    mass, centre, inertia = com_and_inertia(theta)
    values, vectors = np.linalg.eigh(0.5 * np.trace(inertia) * np.eye(3) - inertia)
    # Of what cancels when the inertia is moved to the centre of mass, and of the mass' own smallness.
    size = max(float(np.abs(values).max()), float(np.abs(theta[4:]).max()), mass * float(centre @ centre))
    if values[0] < -_FLAT * size:
        raise ParameterError(
            f"theta = {theta.tolist()}: smallest second moment about the centre of mass {float(values[0])!r} kg m^2: "
            "expected none below zero (the triangle inequality of principal moments)"
        )
    rotation = vectors if np.linalg.det(vectors) > 0.0 else vectors * np.array([-1.0, 1.0, 1.0])
    axes = np.sqrt(5.0 / mass * np.maximum(values, 0.0))
    return (
        frozen_array(centre, (3,), "centre"),
        frozen_array(rotation, (3, 3), "rotation"),
        frozen_array(axes, (3,), "semi-axes"),
    )


@dataclass(frozen=True, eq=False)
class PayloadShapes:
    """Shapes of the payload alone (without the hand), in the tool frame; arrays are read-only."""

    mass: tuple[float, float]  #: lower and upper bound, kg
    centre_lower: FloatArray  #: (3,) m; box of possible centres of mass, within the payload's declared envelope
    centre_upper: FloatArray  #: (3,) m
    #: the bounds leave no centre of mass within the declared envelope, which is therefore false; the box is then that
    #: of the bounds alone, and may be infinite
    outside_envelope: bool
    #: centre (3,), rotation (3, 3) and semi-axes (3,) of the nominal; None if it has no mass, is hardly more than a
    #: point, or has an inertia that no body within the envelope has
    ellipsoid: tuple[FloatArray, FloatArray, FloatArray] | None

    @property
    def bounded(self) -> bool:
        """Whether the box of possible centres is finite."""
        return bool(np.all(np.isfinite(self.centre_upper - self.centre_lower)))

    @property
    def mass_text(self) -> str:
        """``4.861 .. 5.102 kg``, rounded outward."""
        low, high = interval_text(*self.mass, 3)
        return f"{low} .. {high} kg"


def payload_shapes(model: RobotModel, lower: FloatArray, nominal: FloatArray, upper: FloatArray) -> PayloadShapes:
    """Compute shapes of what is known of the payload alone.

    Args:
        model: with the hand's prior, the tool frame and the payload's envelope.
        lower: (10,) of theta_e: last link, hand and payload in the last joint's frame.
        nominal: (10,).
        upper: (10,).

    Raises:
        ParameterError: an array that is not (10,) finite numbers, or bounds that cross.
    """
    alone = payload_bounds(model, lower, nominal, upper)
    envelope = model.settings.payload.envelope
    middle, half = np.array(envelope.center), 0.5 * np.array(envelope.size)
    mass = (max(float(alone.lower[0]), 0.0), max(float(alone.upper[0]), 0.0))
    if mass[1] > 0.0:
        low, high = centre_of_mass_box(alone.lower, alone.upper)
    else:  # nothing is held: no mass that could have a centre
        low, high = np.full(3, -np.inf), np.full(3, np.inf)
    # A body's centre of mass lies in every box that holds the body.
    clipped_low, clipped_high = np.maximum(low, middle - half), np.minimum(high, middle + half)
    outside = bool(np.any(clipped_low > clipped_high))
    if not outside:
        low, high = clipped_low, clipped_high
    return PayloadShapes(
        mass,
        frozen_array(low, (3,), "centre of mass", finite=False),
        frozen_array(high, (3,), "centre of mass", finite=False),
        outside,
        _ellipsoid(alone.nominal, float(np.linalg.norm(envelope.size))) if alone.possible else None,
    )


def _ellipsoid(theta: FloatArray, diagonal: float) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    try:
        centre, rotation, axes = inertia_ellipsoid(theta)
    except ParameterError:
        return None
    # Mass at both ends of the envelope's diagonal d has the largest second moment, m d^2 / 4 = m a^2 / 5.
    return (centre, rotation, axes) if _POINT < axes[2] <= 0.5 * np.sqrt(5.0) * diagonal else None
