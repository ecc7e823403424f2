"""Tables of a run's report as plain texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np

from safe_sysid.decimals import at_least, at_most, interval_text, share_at_most
from safe_sysid.planning.certification.certificate import FAMILIES
from safe_sysid.report.run.facts import RunFacts
from safe_sysid.report.run.logs import ControllerLog, PlanEntry
from safe_sysid.robot.margin import Margin

__all__ = ["RunEvent", "end_of", "events_of", "margin_table", "setting_rows", "states_of", "tiles_of"]


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


_HEADS = {
    "position": "position",
    "velocity": "speed",
    "torque": "torque",
    "clearance": "obstacles",
    "self_clearance": "itself",
    "tracking": "tracking",
}
_SCALES = {"m": (1000, "mm"), "rad": (1000, "mrad"), "of the limit": (100, "%")}


def tiles_of(facts: RunFacts, payload: Mapping[str, Any] | None) -> list[Mapping[str, str]]:
    """The figures that people look for first. ``payload``: the payload alone, with its shapes; None if not known."""
    tiles: list[Mapping[str, str]] = []
    if payload is not None:
        tiles.append({"value": payload["shapes"].mass_text, "text": "payload alone"})
    elif facts.rows and facts.updates:
        low, high = interval_text(facts.rows[0].lower, facts.rows[0].upper, 3)
        tiles.append({"value": f"{low} .. {high} kg", "text": "last link, hand and payload"})
    if facts.rows and facts.updates:
        tiles.append(
            {
                "value": share_at_most(median(row.width_share for row in facts.rows)),
                "text": "of the prior is left (median of ten)",
            }
        )
        tiles.append({"value": f"{facts.updates[-1].time:.1f} s", "text": f"until the last of {_n(facts.updates)}"})
    planned = sum(plan.planned for plan in facts.logs.plans)
    if planned:
        tiles.append({"value": str(planned), "text": "certified plans"})
    if facts.summary is None:
        return tiles
    safety, counts = facts.summary.safety, facts.summary.violations
    if safety.clearance.smallest_m is not None:
        certified = safety.clearance.certified_m
        promise = "" if certified is None else f", certified {at_least(certified, scale=1000, places=1)} mm"
        tiles.append(
            {
                "value": f"{at_least(safety.clearance.smallest_m, scale=1000, places=1)} mm",
                "text": f"smallest clearance{promise}",
            }
        )
    if safety.torque is not None:
        tiles.append({"value": f"{at_most(safety.torque.percent, places=0)} %", "text": "of a torque limit, at most"})
    if safety.tracking_position is not None:
        tiles.append(
            {
                "value": f"{at_most(safety.tracking_position.percent, places=1)} %",
                "text": "of the proved tracking bound",
            }
        )
    looked = f"violations in {safety.evidence.ticks} ticks"
    tiles.append({"value": str(counts.total), "text": looked})
    return tiles


def _n(updates: Sequence[object]) -> str:
    return f"{len(updates)} update{'' if len(updates) == 1 else 's'}"


def margin_table(plans: Sequence[PlanEntry]) -> Mapping[str, Any] | None:
    """Smallest certified margins of plans, by family."""
    planned = [plan for plan in plans if plan.planned and plan.margins]
    if not planned:
        return None
    families = [name for name in FAMILIES if any(math.isfinite(_value(plan, name)) for plan in planned)]
    worst = {name: min(planned, key=lambda plan: _value(plan, name)) for name in families}
    rows = []
    for plan in planned:
        cells = [
            {
                "text": _shown(plan.margins[name]) if math.isfinite(_value(plan, name)) else "-",
                "worst": math.isfinite(_value(plan, name)) and _value(plan, name) == _value(worst[name], name),
            }
            for name in families
        ]
        rows.append({"name": f"{plan.sequence} {plan.purpose} (box {plan.box})", "cells": cells})
    tightest = [
        f"{_HEADS[name]}: {_shown(plan.margins[name])} at {plan.margins[name].culprit}, plan {plan.sequence}, "
        f"{plan.margins[name].time:.2f} s after its start"
        for name, plan in worst.items()
        if math.isfinite(_value(plan, name))
    ]
    return {"heads": [_HEADS[name] for name in families], "rows": rows, "tightest": tightest}


def _value(plan: PlanEntry, family: str) -> float:
    """Smallest margin; infinite: nothing to keep away from."""
    return plan.margins[family].value if family in plan.margins else math.inf


def _shown(margin: Margin) -> str:
    scale, unit = _SCALES.get(margin.unit, (1, margin.unit))
    return f"{at_least(margin.value, scale=scale)} {unit}"


def setting_rows(facts: RunFacts) -> list[tuple[str, str]]:
    """What was run: robot, scene, noise, versions and digests."""
    rows = [("robot", facts.robot)]
    if facts.joint_names:
        rows.append(("joints", ", ".join(facts.joint_names)))
    summary, certified = facts.summary, facts.certified
    if summary is not None:
        noise = summary.noise
        rows += [
            ("scene", summary.scene),
            ("payload (simulated)", f"{summary.payload}; true arm: {summary.arm}, seed {summary.seed}"),
            (
                "noise",
                f"{noise.mode}; torque {noise.torque_abs} N m + {noise.torque_rel} |torque|, position "
                f"{noise.position_error} rad, velocity {noise.velocity_error} rad/s",
            ),
        ]
    elif facts.plan_files:
        rows.append(("scene", str(facts.plan_files[0].scene.get("name", "?"))))
    for key, value in facts.parameters.items():
        if key == "robot_settings":
            rows.append(("settings instead of the file's", str(value)))
    if certified is not None:
        rows += [
            ("certificates of bounds", f"{certified.count}; the last rests on {certified.samples} samples"),
            ("written by", certified.written_by),
            ("what the URDF says, SHA-256", certified.urdf),
            ("what is declared, SHA-256", certified.settings),
            ("last certificate, SHA-256", certified.digest),
        ]
    elif facts.plan_files:
        rows.append(("written by", facts.plan_files[0].written_by))
    rows.append(("recording", "a rosbag2 bag (mcap)" if facts.recorded else "none"))
    return rows
