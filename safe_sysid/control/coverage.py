"""Whether the tracking theorem covers a command that is late, or that could not follow the law for a moment.

From a quiet state V cannot grow to its bound in a short time, whatever is commanded meanwhile that was right before:
"Late commands" in docs/guarantees.md, :meth:`~safe_sysid.control.gains.ControllerGains.longest_covered_gap`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.control.gains import ControllerGains

__all__ = ["Coverage"]

FloatArray = NDArray[np.float64]


class Coverage:
    """Remembers the last measurement whose command was the law's own and came in time.

    Attributes:
        lost: nothing is claimed until the next command that is the law's own.
    """

    def __init__(self, gains: ControllerGains) -> None:
        """Before the first command the arm rests.

        Args:
            gains: of the controller.
        """
        self._gains = gains
        self._stamp, self._r, self._uncertainty = 0.0, np.zeros(gains.r_bound.size), 0.0
        self.lost = False

    def note(self, stamp: float, r: FloatArray, uncertainty: float) -> None:
        """A command is the law's own.

        Args:
            stamp: of its measurement, s.
            r: (n,) bound of |r| then, rad/s.
            uncertainty: S of the command, sqrt(W/s).
        """
        self._stamp, self._uncertainty, self.lost = stamp, uncertainty, False
        self._r[:] = r

    def lose(self) -> None:
        """Something came too late."""
        self.lost = True

    def covers(self, until: float, uncertainty: float) -> bool:
        """Whether V <= V_max is proved although no command since was the law's own, or none came.

        Args:
            until: when the next one acts, s.
            uncertainty: S of the command that is due now, sqrt(W/s).
        """
        if self.lost:
            return False
        age = until - self._stamp
        longest = self._gains.longest_covered_gap(self._r, max(self._uncertainty, uncertainty))
        return age <= max(longest, self._gains.assumptions.hold_max * (1.0 + 1e-6))
