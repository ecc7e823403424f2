"""Command watch: compares measured efforts with the last commands, to detect commands that do not reach the joints.

Where commands are lost, the arm's drives brake by themselves sooner or later, and a controller that did not notice
would come back with a jump of torque. For sensors on the link's side there is no such check: they also measure
friction, which is not known well enough.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel

__all__ = ["CommandWatch"]

#: An effort may be that of any of so many commands, or of one after the other: they take their time.
_COMMANDS = 4
#: So many measurements in a row must disagree: well below any drive's watchdog.
_PATIENCE = 5
#: A gap as long as so many periods is one that drives may not wait for; it is remembered for so many measurements.
_GAP, _REMEMBERED = 5, 50


@njit(cache=True)
def _outside(commands: FloatArray, effort: FloatArray, absolute: FloatArray, relative: FloatArray) -> int:
    """First joint whose effort is none of the commands' nor between them; -1 if there is none."""
    for j in range(effort.size):
        low = high = commands[0, j]
        for i in range(1, commands.shape[0]):
            low, high = min(low, commands[i, j]), max(high, commands[i, j])
        error = absolute[j] + relative[j] * max(abs(low), abs(high))
        if effort[j] < low - error or effort[j] > high + error:
            return j
    return -1


class CommandWatch:
    """Remembers the last commands."""

    def __init__(self, model: RobotModel) -> None:
        """Errors are those that the model's settings declare."""
        m, a, n = model.settings.measurement, model.settings.actuator, model.n
        (absolute, sensor), actuator = m.torque_error(n), per_joint(a.torque_rel, n)
        self._absolute = absolute + (1.0 + sensor) * per_joint(a.torque_abs, n) + 1e-9
        self._relative = sensor + actuator + sensor * actuator + 1e-9
        self._sees = m.torque_source != "link"
        self._commands = np.zeros((_COMMANDS, n))
        self._count, self._odd = 0, 0
        self._longest = _GAP * model.settings.timing.period_s
        self._gap, self._since = 0.0, 0

    @property
    def gap(self) -> str:
        """What a gap shortly before says of efforts that are not as commanded, for people; "" if there was none."""
        if not self._gap:
            return ""
        return f" (the drives may have taken over: no command for {1e3 * self._gap:.0f} ms before)"

    def clear(self) -> None:
        """Nothing was commanded for a while."""
        self._count = self._odd = 0
        self._gap, self._since = 0.0, 0

    def note(self, torque: FloatArray) -> None:
        """A command has been sent. ``torque``: (n,) N m."""
        self._commands[self._count % _COMMANDS] = torque
        self._count += 1

    def disagrees(self, effort: FloatArray, elapsed: float = 0.0) -> int:
        """Joint whose effort has long been another than commanded, or -1.

        ``effort``: (n,) measured, N m; ``elapsed``: since the measurement before, s; nothing was commanded meanwhile.
        """
        if elapsed > self._longest:
            self._gap, self._since = max(self._gap, elapsed), 0
        elif self._gap:
            self._since += 1
            self._gap = self._gap if self._since < _REMEMBERED else 0.0
        if not self._sees or self._count < _COMMANDS:
            return -1
        joint = int(_outside(self._commands, effort, self._absolute, self._relative))
        self._odd = self._odd + 1 if joint >= 0 else 0
        return joint if self._odd >= _PATIENCE else -1
