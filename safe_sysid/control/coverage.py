"""Coverage of late commands: whether the tracking theorem holds although a command came late or was cut.

From a quiet state V cannot grow to its bound in a short time, whatever is commanded meanwhile that was right before:
"Late commands" in docs/understand/guarantees.md, :meth:`~safe_sysid.control.gains.ControllerGains.longest_covered_gap`.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.core.arrays import FloatArray

__all__ = ["Coverage"]


class Coverage:
    """Remembers the last measurement whose command was the law's own and came in time.

    A command that the rate cuts is a mix of the law's commands since then.

    Attributes:
        older: by how much the oldest measurement behind the last command is older than the last one, s.
        mixed: largest S of the law's commands that the last command is a mix of, sqrt(W/s); inf: not known.
        lost: nothing is claimed until the next command that is the law's own.
    """

    def __init__(self, gains: ControllerGains, silence: float) -> None:
        """Before the first command the arm rests.

        Args:
            silence: time without a command after which another may be in force than the last, s: the drives' own, or
                that of a ramp from the measured effort. Beyond it nothing is covered.
        """
        self._gains, self._silence = gains, silence
        self._stamp, self.older, self.mixed = 0.0, 0.0, 0.0
        self._r, self._uncertainty, self._oldest = np.zeros(gains.r_bound.size), 0.0, 0.0
        self.lost = False

    def use(self, gains: ControllerGains) -> None:
        """Judge by the bound of these gains from now on: of the same law, for another bound of S."""
        self._gains = gains

    def begin(self, stamp: float, r: FloatArray) -> None:
        """Control begins: no command was in force before.

        ``stamp``: of the first measurement, s; ``r``: (n,) bound of |r| then, rad/s.
        """
        self.mixed = 0.0
        self.note(stamp, r, 0.0)
        self._oldest = 0.0

    def note(self, stamp: float, r: FloatArray, uncertainty: float) -> None:
        """A command is the law's own. The one before it is in force until it acts.

        Args:
            stamp: of its measurement, s.
            r: (n,) bound of |r| then, rad/s.
            uncertainty: S of the command, sqrt(W/s).
        """
        self._oldest = stamp + self._gains.assumptions.delay_max - self._stamp
        self._uncertainty = max(self.mixed, uncertainty)
        self._stamp, self.older, self.mixed, self.lost = stamp, 0.0, uncertainty, False
        self._r[:] = r

    def cut(self, stamp: float, uncertainty: float) -> None:
        """A command goes only some of the way to the law's.

        ``stamp``: of its measurement, s; ``uncertainty``: S of the law's, sqrt(W/s).
        """
        self.older = stamp - self._stamp
        self.mixed = max(self.mixed, uncertainty)
        self._uncertainty = max(self._uncertainty, uncertainty)

    def is_in_time(self, elapsed: float, stamp: float, proved: bool) -> bool:
        """Whether a command was in force as long as declared, or as long as the theorem covers.

        By stamps alone: a controller does not know how late its commands act. With delays inside ``delay_max`` a
        command can be older than ``hold_max`` though this says nothing of it: a node's log judges ages as they were.

        Args:
            elapsed: since the measurement before, s.
            stamp: of the measurement that ends it, s.
            proved: whether the theorem's other hypotheses hold.
        """
        a = self._gains.assumptions
        if elapsed <= a.hold_max * (1.0 + 1e-6):
            return True
        self.lost = self.lost or not (proved and self.covers(stamp + a.delay_max))
        return not self.lost

    def covers(self, until: float) -> bool:
        """Whether V <= V_max is proved although no command since was the law's own, or none came.

        ``until``: when the next one acts, s.
        """
        if self.lost:
            return False
        age, in_time = until - self._stamp, self._gains.assumptions.hold_max * (1.0 + 1e-6)
        oldest = self._oldest if self._oldest > in_time else 0.0
        if age <= in_time and not oldest:
            return True
        return age <= min(self._silence, self._gains.longest_covered_gap(self._r, self._uncertainty, oldest))
