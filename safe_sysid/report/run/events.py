"""Events of a run in order: states of the controller, missing plans, contradictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from safe_sysid.decimals import at_least
from safe_sysid.report.run.facts import RunFacts
from safe_sysid.report.run.logs import ControllerLog
from safe_sysid.robot.margin import Margin

__all__ = ["RunEvent", "end_of", "events_of", "states_of"]

Level = Literal["", "weak", "bad"]


@dataclass(frozen=True)
class RunEvent:
    """Something that happened: time (s), who, what, and how bad it is."""

    time: float
    who: str
    text: str
    level: Level = ""


def states_of(log: ControllerLog | None) -> list[tuple[str, float, float]]:
    """States of the controller: name, begin and end, s. ``log``: of the controller; None: no states."""
    if log is None or not log.time.size:
        return []
    changes = np.flatnonzero(log.state[1:] != log.state[:-1]) + 1
    begins = [0, *changes.tolist()]
    ends = [*changes.tolist(), log.time.size - 1]
    return [(str(log.state[a]), float(log.time[a]), float(log.time[b])) for a, b in zip(begins, ends, strict=True)]


def events_of(facts: RunFacts) -> list[RunEvent]:
    """All events, in order."""
    events = []
    for number, (name, begin, _) in enumerate(states_of(facts.logs.controller)):
        bad = name == "fault"
        text = "fault: no guarantee from here on" if bad else name if number else f"{name}, first command"
        events.append(RunEvent(begin, "controller", text, "bad" if bad else ""))
    for plan in facts.logs.plans:
        if plan.planned:
            worst = _tightest(plan.margins)
            events.append(RunEvent(plan.start, "planner", f"plan {plan.sequence} ({plan.purpose}) certified{worst}"))
        else:
            why = "; ".join(plan.reasons[:3]) or plan.status
            events.append(RunEvent(plan.start, "planner", f"no plan: {why}", "weak"))
    for update in facts.logs.updates:
        events += _update(update.time, update.identity, update.status)
    return sorted(events, key=lambda event: event.time)


def _tightest(margins: Mapping[str, Margin]) -> str:
    """The nearest thing to the plan, for the timeline."""
    distances = (margins.get(name) for name in ("clearance", "self_clearance"))
    margin = next((found for found in distances if found and math.isfinite(found.value)), None)
    if margin is None:
        return ""
    return f", {at_least(margin.value, scale=1000, places=1)} mm to spare at {margin.culprit}"


def _update(time: float, identity: str, status: str) -> Sequence[RunEvent]:
    if status == "EMPTY_SET":
        return [
            RunEvent(time, "identifier", "no parameters agree with all measurements: an assumption is false", "bad")
        ]
    if status not in ("OK", ""):
        return [RunEvent(time, "identifier", f"box {identity}: {status.replace('_', ' ').lower()}", "weak")]
    return [RunEvent(time, "identifier", f"box {identity}")]


def end_of(facts: RunFacts) -> float:
    """When the run ended, s: the last thing that any log knows of."""
    times = [0.0]
    if facts.logs.plant is not None:
        times += facts.logs.plant.time[-1:].tolist()
    if facts.logs.controller is not None:
        times += facts.logs.controller.time[-1:].tolist()
    times += [update.time for update in facts.logs.updates]
    times += [plan.hand_over for plan in facts.logs.plans if plan.hand_over is not None]
    return float(max(time for time in times if np.isfinite(time)))
