"""Recent commands: whether the bound of a narrower tube holds from now on, as far as the last commands show.

"Narrower tubes" in docs/understand/guarantees.md: V was small at the measurements of all commands that still count,
these were the law's own, and none asked for more S than the tube assumes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from safe_sysid.control.gains import ControllerGains
from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.decimals import at_least, at_most

__all__ = ["RecentCommands"]

#: So many commands are remembered.
_COUNT = 64
_LITTLE = 1e-9
#: The window, in ages of its oldest command.
_AGES = 3.0


@njit(cache=True)
def _extent(x: FloatArray, error: FloatArray, weight: FloatArray) -> float:
    """Norm of ``weight (|x| + error)``."""
    total = 0.0
    for j in range(x.size):
        value = weight[j] * (abs(x[j]) + error[j])
        total += value * value
    return math.sqrt(total)


@njit(cache=True)
def _note(
    row: FloatArray,
    stamp: float,
    e: FloatArray,
    r: FloatArray,
    bounds: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    uncertainty: float,
    age: float,
) -> None:
    """Fill a row. ``bounds``: errors and weights of e, then of r."""
    row[0], row[1], row[2] = stamp, _extent(r, bounds[2], bounds[3]), _extent(e, bounds[0], bounds[1])
    row[3], row[4] = uncertainty, age


class RecentCommands:
    """Measurements of the last commands: how large r and e were, S, and how old the command before had become."""

    def __init__(self, gains: ControllerGains, r_noise: FloatArray) -> None:
        """Nothing was commanded yet.

        Args:
            gains: of the widest tube.
            r_noise: (n,) bound of the error of r, rad/s.
        """
        self._gains = gains
        e_noise = np.array(np.broadcast_to(gains.assumptions.position_error, r_noise.shape))
        r_weight, e_weight = np.sqrt(gains.assumptions.inertia_upper), gains.K_r / gains.r_bound
        self._bounds = e_noise, e_weight, np.array(r_noise), r_weight
        # Stamp, bounds of sqrt(2 V) and of e (1: on the widest tube's ellipsoid), S, age; a ring.
        self._rows, self._next = np.full((_COUNT, 5), np.nan), 0

    def begin(self) -> None:
        """Control begins: what was in force before counts no longer."""
        self._rows[:] = np.nan

    def note(self, stamp: float, e: FloatArray, r: FloatArray, uncertainty: float, elapsed: float) -> None:
        """A command is given.

        Args:
            stamp: of its measurement, s.
            e, r: (n,) measured, rad and rad/s.
            uncertainty: its S, sqrt(W/s); infinite if it is not, or not only, the law's own.
            elapsed: since the measurement before, s.
        """
        age = elapsed + self._gains.assumptions.delay_max
        _note(self._rows[self._next], stamp, e, r, self._bounds, uncertainty, age)
        self._next = (self._next + 1) % _COUNT

    def grew_old(self, age: float) -> None:
        """The command before the last one became so old before that acted, s."""
        row = self._rows[self._next - 1]
        row[4] = max(row[4], age)

    def why_not(self, tube: ControllerGains, now: float) -> str:
        """Why the bound of a tube may not hold from the last command on; "" if it does.

        Args:
            tube: gains of the same law, for a smaller S or the same.
            now: stamp of the measurement that the next command answers, s.
        """
        a, rows = tube.assumptions, self._rows
        last = float(rows[self._next - 1, 0])
        since, oldest = self._window(last, max(a.hold_max, now - last + a.delay_max))
        # One that is older shows that none is missing.
        if not np.nanmin(rows[:, 0], initial=np.inf) < last - _AGES * oldest:
            return "control has only begun, or commands were late"
        most = float(np.max(rows[since, 3]))
        if np.isinf(most):
            return "a command was not the law's own a moment before (control was taken over, or its rate cut)"
        if not most <= a.uncertainty:
            return f"S was above {at_least(a.uncertainty)}, the most that its tube assumes, a moment before"
        # A late command is followed by holds whose command before is too old for the theorem.
        late = oldest > a.hold_max * (1.0 + 1e-6)
        alone = oldest + 2.0 * a.hold_max if late else oldest
        reason = self._why_too_large(tube, since, alone * self._gains.growth_rate(oldest, a.uncertainty))
        return reason + (f" (a command was {1e3 * oldest:.3g} ms old)" if reason and late else "")

    def why_too_large(self, tube: ControllerGains) -> str:
        """Why the arm may not be in a tube at the last measurement, whatever was late before; "" if it is."""
        last = np.arange(_COUNT) == (self._next - 1) % _COUNT
        return self._why_too_large(tube, last, 0.0) if np.isfinite(self._rows[last, 0]) else "control has only begun"

    def _window(self, last: float, oldest: float) -> tuple[BoolArray, float]:
        """Which commands count at the last one, and the smallest age, s, that none of them exceeds.

        Those in force, the ones before, and what was in force until these acted.
        """
        while True:
            since = self._rows[:, 0] >= last - _AGES * oldest
            age = float(np.max(self._rows[since, 4], initial=0.0))
            if age <= oldest:
                return since, oldest
            oldest = age

    def _why_too_large(self, tube: ControllerGains, since: BoolArray, growth: float) -> str:
        largest = float(np.max(self._rows[since, 1])) + growth
        # r_bound goes with sqrt(V_max).
        far = float(np.max(self._rows[since, 2])) * np.sqrt(self._gains.V_max / tube.V_max)
        if largest <= np.sqrt(2.0 * tube.V_start) * (1.0 - _LITTLE) and far <= 1.0 - _LITTLE:
            return ""
        return (
            f"V may have been {at_most(0.5 * largest**2)} J, and e {at_most(100.0 * far, 3)} % of its tube: expected "
            f"at most {at_least(tube.V_start)} J and 100 %"
        )
