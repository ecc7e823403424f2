"""Recent commands: whether the bound of a narrower tube holds from now on, as far as the last commands show.

"Narrower tubes" in docs/understand/guarantees.md: V was small at the measurements of all commands that still count,
these were the law's own, and none asked for more S than the tube assumes.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least, at_most

__all__ = ["RecentCommands"]

#: So many commands are remembered.
_COUNT = 64
_LITTLE = 1e-9


class RecentCommands:
    """Measurements of the last commands: stamp, bound of sqrt(2 V), S, and how old the command before had become."""

    def __init__(self, gains: ControllerGains, r_noise: FloatArray) -> None:
        """Nothing was commanded yet.

        Args:
            gains: of the widest tube.
            r_noise: (n,) bound of the error of r, rad/s.
        """
        self._gains, self._noise = gains, r_noise
        self._weight = np.sqrt(gains.assumptions.inertia_upper)
        self._rows, self._next = np.full((_COUNT, 4), np.nan), 0

    def begin(self) -> None:
        """Control begins: what was in force before counts no longer."""
        self._rows[:] = np.nan

    def note(self, stamp: float, r: FloatArray, uncertainty: float, elapsed: float) -> None:
        """A command is given.

        Args:
            stamp: of its measurement, s.
            r: (n,) measured, rad/s.
            uncertainty: its S, sqrt(W/s); infinite if it is not, or not only, the law's own.
            elapsed: since the measurement before, s.
        """
        size = float(np.linalg.norm(self._weight * (np.abs(r) + self._noise)))
        self._rows[self._next] = stamp, size, uncertainty, elapsed + self._gains.assumptions.delay_max
        self._next = (self._next + 1) % _COUNT

    def grew_old(self, age: float) -> None:
        """The command before the last one became so old before that acted, s."""
        row = self._rows[self._next - 1]
        row[3] = max(row[3], age)

    def why_not(self, tube: ControllerGains, e: FloatArray, now: float) -> str:
        """Why the bound of a tube may not hold from the last command on; "" if it does.

        Args:
            tube: gains of the same law, for a smaller S or the same.
            e: (n,) measured at the last command, rad.
            now: stamp of the measurement that the next command answers, s.
        """
        a, rows = tube.assumptions, self._rows
        last = float(rows[self._next - 1, 0])
        oldest = max(float(np.nanmax(rows[:, 3], initial=0.0)), a.hold_max, now - last + a.delay_max)
        since = rows[:, 0] >= last - 2.0 * oldest
        # One that is older shows that none is missing.
        if not np.nanmin(rows[:, 0], initial=np.inf) < last - 2.0 * oldest:
            return "control has only begun, or commands were late"
        if not np.max(rows[since, 2]) <= a.uncertainty:
            return f"S was above {at_least(a.uncertainty)} a moment before, which its tube assumes"
        growth = oldest * self._gains.growth_rate(oldest, a.uncertainty)
        largest = float(np.max(rows[since, 1])) + growth
        spread = float(np.sum(np.square(tube.K_r * (np.abs(e) + a.position_error) / tube.r_bound)))
        if largest <= np.sqrt(2.0 * tube.V_start) * (1.0 - _LITTLE) and spread <= 1.0:
            return ""
        return (
            f"V may have been {at_most(0.5 * largest**2)} J: expected at most {at_least(tube.V_start)} J for its tube"
        )
