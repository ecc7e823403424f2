"""Payload prior and envelope for a declared payload mass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.scenes.obstacles import box_corners

__all__ = ["CENTRED", "GRIP", "PayloadGuess", "envelope_size", "out_of_arm", "prior_of"]

#: Where a hand holds things: m out of the flange, along its z, or against it (:func:`out_of_arm`).
GRIP = 0.14
_HANDLE = 0.11  # m, length of what the hand closes around
_DENSITY = 7200.0  # kg/m^3, cast iron: what is heavy and small
_SMALLEST = 0.04  # m
#: The centre of mass lies in the middle of the box: within this share of its edges.
CENTRED = 0.25


@dataclass(frozen=True)
class PayloadGuess:
    """What the hand may hold."""

    mass: float  #: largest, kg
    #: center, size: (3,) of the box in the tool frame that contains it, m
    center: tuple[float, float, float]
    size: tuple[float, float, float]

    @classmethod
    def of(cls, mass: float, side: float = 1.0) -> PayloadGuess:
        """A dumbbell of cast iron, handle along the tool's y.

        ``mass``: kg; ``side``: 1, or -1 if the tool frame's z points into the arm.
        """
        return cls(mass, (0.0, 0.0, side * GRIP), envelope_size(mass))


def out_of_arm(flange: tuple[FloatArray, FloatArray]) -> float:
    """1 where the tool frame's z points away from the last joint, as it should, -1 where towards it.

    ``flange``: rotation (3, 3) and translation (3,) of the tool frame in the last joint's frame.
    """
    rotation, translation = flange
    return -1.0 if float(rotation[:, 2] @ translation) < -0.01 else 1.0


def envelope_size(mass: float) -> tuple[float, float, float]:
    """Box around a dumbbell of this mass (kg): heads 0.6 times as long as across; m, a centimetre to spare."""
    across = (0.5 * mass / _DENSITY / (np.pi / 4.0 * 0.6)) ** (1.0 / 3.0)
    width = max(float(np.ceil(100.0 * across) / 100.0) + 0.01, _SMALLEST)
    long = max(float(np.ceil(100.0 * (_HANDLE + 1.2 * across)) / 100.0) + 0.01, _SMALLEST)
    return width, long, width


def prior_of(
    guess: PayloadGuess, hand: tuple[FloatArray, FloatArray], flange: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Bounds (10,), (10,) of the last link with any payload up to the mass inside the envelope, last joint's frame.

    They hold for every such payload whose centre of mass is in the middle (:data:`CENTRED`) of the envelope: moments of
    inertia are integrals over its mass of polynomials of the place, bounded over the envelope's bounding box in the
    joint's frame.

    Args:
        hand: bounds (10,), (10,) of the last link with the empty hand.
        flange: rotation (3, 3) and translation (3,) of the tool frame in the last joint's frame.
    """
    rotation, translation = flange

    def bounding(size: FloatArray) -> tuple[FloatArray, FloatArray]:
        corners = (np.array(guess.center) + box_corners(size)) @ rotation.T + translation
        return corners.min(axis=0), corners.max(axis=0)

    near, far = bounding(CENTRED * np.array(guess.size))
    low, high = bounding(np.array(guess.size))
    square = np.maximum(low**2, high**2)
    lower, upper = np.zeros(10), np.zeros(10)
    upper[0] = 1.0
    lower[1:4], upper[1:4] = np.minimum(near, 0.0), np.maximum(far, 0.0)
    for at, (i, j) in zip(range(4, 10), ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)), strict=True):
        if i == j:
            upper[at] = square.sum() - square[i]
        else:
            products = np.outer([low[i], high[i]], [low[j], high[j]])
            lower[at], upper[at] = min(-products.max(), 0.0), max(-products.min(), 0.0)
    return hand[0] + guess.mass * lower, hand[1] + guess.mass * upper
