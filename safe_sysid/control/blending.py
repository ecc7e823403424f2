"""Blending of parameter boxes: the law's box moves to a new one in small steps and always contains the truth.

A convex combination of two boxes that hold the truth holds it. Rounding cannot spoil that: every bound is clipped
between those of the two boxes, and centre and half width are rounded outwards.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.core.arrays import FloatArray
from safe_sysid.intervals import mid_rad
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["BoxBlend"]


class BoxBlend:
    """From the box in force to another one; ``model`` is what the law is given.

    Attributes:
        lower, upper: (14 n,) of the box at this tick.
        model: the same as centre and half widths, and the nominal.
        target: the box that is being blended in, None if none is.
    """

    def __init__(self, box: ParameterBox, duration: float, largest_step: float) -> None:
        """Start in a box.

        Args:
            box: in force.
            duration: of a blend, s.
            largest_step: time that one tick counts for at most, s: a gap or a clock that jumps makes no step of torque.
        """
        self._duration, self._largest = duration, largest_step
        self.target: ParameterBox | None = None
        self.use(box)

    def use(self, box: ParameterBox, nominal: FloatArray | None = None) -> None:
        """Work with a box from now on, at once.

        ``box``: in force; ``nominal``: (14 n,) best estimate in it; None for its centre.
        """
        self.lower, self.upper, self.target = box.lower, box.upper, None
        nominal = box.mid if nominal is None else np.clip(nominal, box.lower, box.upper)
        self.model = ModelInUse(nominal, box.mid, box.rad)

    def finish(self) -> ParameterBox | None:
        """Nothing is commanded any more: what was being blended in is in force; None if nothing was."""
        target = self.target
        if target is not None:
            self.use(target, self._nominal)
        return target

    def begin(self, target: ParameterBox, nominal: FloatArray | None = None) -> None:
        """Blend to another box, from where the blend under way has come; both hold the truth.

        ``nominal``: (14 n,) best estimate in it; None for its centre.
        """
        self._from_lower, self._from_upper = self.lower, self.upper
        self._from_nominal = self.model.nominal
        self._nominal = target.mid if nominal is None else np.clip(nominal, target.lower, target.upper)
        self.target, self._share = target, 0.0

    def advance(self, elapsed: float) -> ParameterBox | None:
        """One tick; returns the target when it is reached. ``elapsed``: since the last tick, s."""
        target = self.target
        if target is None:
            return None
        self._share += min(max(elapsed, 0.0), self._largest) / self._duration
        s = self._share
        if s >= 1.0 - 1e-9:
            self.use(target, self._nominal)
            return target
        self.lower = _between(self._from_lower, target.lower, s)
        self.upper = _between(self._from_upper, target.upper, s)
        nominal = np.clip((1.0 - s) * self._from_nominal + s * self._nominal, self.lower, self.upper)
        self.model = ModelInUse(nominal, *mid_rad(self.lower, self.upper))
        return None


def _between(a: FloatArray, b: FloatArray, s: float) -> FloatArray:
    """``(1 - s) a + s b``, never outside [a, b] by rounding."""
    return np.clip((1.0 - s) * a + s * b, np.minimum(a, b), np.maximum(a, b))
