"""Pacing of simulation steps on the wall clock: which steps are due, and when a command came within its step."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Pacer", "PlantStep", "TimedCommand"]


class TimedCommand(NamedTuple):
    """A command and when it came, ns on the pacer's clock: a torque (n,) in N m, or points of a trajectory."""

    arrival: int
    torque: Any


class PlantStep(NamedTuple):
    """One period: the command that came in it (or None), and how far into it, s."""

    torque: Any
    late: float


class Pacer:
    """Absolute deadlines: what a step ends in is told when its period is over. Times in ns.

    A step is simulated as soon as its command is there, so that the simulation's own time is no latency; a second
    command in the same period acts from the next one on.
    """

    def __init__(self, period: int, now: int) -> None:
        """The first period begins now."""
        self.period, self._start = period, now
        self._command: TimedCommand | None = None
        self._done = False

    def put(self, command: TimedCommand) -> None:
        """The newest command replaces one that came in the same period."""
        self._command = command

    def wait(self, now: int) -> int:
        """How long until the next step is due; not positive if it is."""
        return self._start + self.period - now

    def lateness(self, now: int) -> int:
        """How late the oldest step that is due would be now."""
        return now - self._start - self.period

    def ahead(self, now: int) -> PlantStep | None:
        """The step under way, if its command is there: what happens until its end is known, so it can be simulated."""
        if self._done or self._command is None or self.wait(now) <= 0:
            return None
        self._done = True
        return self._take()

    def due(self, now: int) -> list[PlantStep]:
        """All steps whose end has come and that were not simulated ahead; begins the next period.

        After a stall of this process there are several; a command acts in the one in which it came.
        """
        steps = []
        while self.wait(now) <= 0:
            if not self._done:
                steps.append(self._take())
            self._done = False
            self._start += self.period
        return steps

    def _take(self) -> PlantStep:
        command = self._command
        if command is None or command.arrival >= self._start + self.period:
            return PlantStep(None, 0.0)
        self._command = None
        return PlantStep(command.torque, 1e-9 * max(command.arrival - self._start, 0))
