"""What every control law is: measured state, reference and what is known of the parameters in, torque out.

A law has no clock and does no I/O. It allocates nothing that grows; the array it returns is its own and is overwritten
by the next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["ControlLaw", "ModelInUse"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ModelInUse:
    """What a law may know of the parameters at this tick; boxes may blend between ticks, so it is passed to every step.

    Attributes:
        nominal: (14 n,) best estimate (order of :mod:`safe_sysid.robot.parameters`).
        mid: (14 n,) centre of the box in use.
        rad: (14 n,) its half widths.
    """

    nominal: FloatArray
    mid: FloatArray
    rad: FloatArray


@runtime_checkable
class ControlLaw(Protocol):
    """One control law for one arm."""

    name: str

    def reset(self, t: float, q: FloatArray, qd: FloatArray) -> None:
        """Forget the past: integrals, estimates, filters. Called at every start."""

    def step(
        self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, model: ModelInUse
    ) -> FloatArray:
        """Torque to command.

        Args:
            t: stamp of the measurement, s.
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 3, n) desired position, velocity, acceleration.
            model: what is known of the parameters.

        Returns:
            (n,) N m, not clipped; the same array every time.
        """
