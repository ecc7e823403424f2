"""Tables of a run's report as plain texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from safe_sysid.decimals import at_least, at_most, interval_text, share_at_most
from safe_sysid.planning.certification.certificate import FAMILIES
from safe_sysid.report.run.facts import RunFacts
from safe_sysid.report.run.logs import PlanEntry
from safe_sysid.robot.margin import Margin

__all__ = ["margin_table", "setting_rows", "tiles_of"]

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
