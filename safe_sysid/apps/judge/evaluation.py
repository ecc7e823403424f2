"""Evaluation of a run: from the nodes' logs to counts of violations and the safety record.

It shares no code with what it judges: limits are compared with the plant's true states at every tick, clearances are
MuJoCo's own, the tracking bound is compared with the true error and the true inertia matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.apps.judge.clearance import CLEARANCE_STRIDE, Oracle, certified_clearance, judge_clearance
from safe_sysid.apps.judge.record import JudgeRecord
from safe_sysid.apps.judge.tracking import judge_tracking
from safe_sysid.control.tube import TrackingTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.identification.diagnosis.narrowed import why_taught_nothing
from safe_sysid.report.run.logs import PlantLog, RunLogs, UpdateEntry
from safe_sysid.report.run.summary import ClearanceSummary, Evidence, LimitUse, Safety, Tracking, Violations
from safe_sysid.robot.model import RobotModel

__all__ = ["CLEARANCE_STRIDE", "Curves", "Evaluation", "Oracle", "evaluate"]


@dataclass(frozen=True, eq=False)
class Curves:
    """What the pictures show over time (s): clearance (m), and true tracking errors as a share of their proved bounds.

    ``certified`` is the clearance that the certificates promise, NaN where they say nothing.
    """

    clearance_time: FloatArray
    clearance: FloatArray
    certified: FloatArray
    tracking_time: FloatArray
    position_share: FloatArray
    velocity_share: FloatArray
    energy_share: FloatArray


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outcome. ``gaps``: what could not be judged for lack of data; a run with gaps is not a success."""

    violations: Violations
    safety: Safety
    gaps: tuple[str, ...]
    curves: Curves

    @property
    def ok(self) -> bool:
        """Whether everything was looked at and nothing was violated."""
        return self.violations.total == 0 and not self.gaps


def evaluate(logs: RunLogs, model: RobotModel, gains: TrackingTube, clearance: Oracle | None) -> Evaluation:
    """Judge a run.

    ``clearance``: distance (m) at a position between solids that must stay apart, and which; None: not judged (a gap).
    """
    record = JudgeRecord(gaps=list(logs.missing))
    plant = logs.plant
    uses: dict[str, LimitUse | None] = dict.fromkeys(("position", "velocity", "torque"))
    tracking: dict[str, Tracking | None] = dict.fromkeys(("position", "velocity", "energy"))
    distances = (np.zeros(0), np.zeros(0), np.zeros(0))
    shares = (np.zeros(0), np.zeros((0, model.n)), np.zeros((0, model.n)), np.zeros(0))
    margin = model.settings.planner.clearance_margin
    nearest = ClearanceSummary(
        smallest_m=None, pair=[], time_s=None, certified_m=certified_clearance(logs.plans, margin)
    )
    if plant is not None:
        if plant.time.size == 0:
            record.gaps.append("plant.npz: no ticks")
        elif not _all_finite(plant):
            record.add("position", 1, "the plant's own state is not finite")
        else:
            uses = _limits(record, plant, model)
            _contacts(record, plant)
            if clearance is None:
                record.gaps.append("clearance: no independent geometry to measure it")
            else:
                nearest, distances = judge_clearance(record, plant, logs.plans, model, clearance, nearest)
            if logs.controller is not None:
                tracking, shares = judge_tracking(record, plant, logs.controller, model, gains)
        _bounds(record, plant.theta_true, logs.updates, model)
    elif not logs.missing:
        record.gaps.append("plant.npz: not written")
    planned = sum(plan.planned for plan in logs.plans)
    if not planned:
        why = "; ".join(logs.plans[-1].reasons) if logs.plans else ""
        record.gaps.append("planner: not one certified plan" + (f": {why}" if why else ""))
    evidence = Evidence(
        ticks=0 if plant is None else plant.time.size,
        tracking_ticks=shares[0].size,
        clearance_samples=distances[0].size,
        updates=len(logs.updates),
        plans=planned,
    )
    safety = Safety(
        clearance=nearest,
        position=uses["position"],
        velocity=uses["velocity"],
        torque=uses["torque"],
        tracking_position=tracking["position"],
        tracking_velocity=tracking["velocity"],
        tracking_energy=tracking["energy"],
        evidence=evidence,
        findings=record.findings,
    )
    return Evaluation(Violations(**record.counts), safety, tuple(record.gaps), Curves(*distances, *shares))


def _all_finite(plant: PlantLog) -> bool:
    columns = (plant.time, plant.q, plant.qd, plant.commanded, plant.applied)
    return all(bool(np.all(np.isfinite(column))) for column in columns)


# -- limits ---------------------------------------------------------------------------------------------------------


def _limits(record: JudgeRecord, plant: PlantLog, model: RobotModel) -> dict[str, LimitUse | None]:
    """Position, velocity and torque of every tick against their limits."""
    limits = model.limits
    bounded = np.isfinite(limits.position_lower) & np.isfinite(limits.position_upper)
    low = np.where(bounded, limits.position_lower, -1.0)
    high = np.where(bounded, limits.position_upper, 1.0)
    inside = np.abs(plant.q - 0.5 * (low + high)) / (0.5 * (high - low))
    outside = bounded & ((plant.q < limits.position_lower) | (plant.q > limits.position_upper))
    torque = np.maximum(np.abs(plant.commanded), np.abs(plant.applied))
    cases = (
        ("position", np.where(bounded, inside, 0.0), outside, plant.q, "rad", [low, high]),
        ("velocity", np.abs(plant.qd) / limits.velocity, np.abs(plant.qd) > limits.velocity, plant.qd, "rad/s", None),
        ("torque", torque / limits.torque, torque > limits.torque, torque, "N m", None),
    )
    uses: dict[str, LimitUse | None] = {}
    for kind, share, bad, value, unit, borders in cases:
        k, j = divmod(int(np.argmax(share)), share.shape[1])
        joint, time = model.joint_names[j], float(plant.time[k])
        measurable = kind != "position" or bool(np.any(bounded))
        uses[kind] = LimitUse(percent=100.0 * float(share[k, j]), joint=joint, time_s=time) if measurable else None
        ticks = np.flatnonzero(bad.any(axis=1))
        if ticks.size:
            first = int(ticks[0])
            j = int(np.argmax(np.where(bad[first], share[first], -1.0)))
            limit = getattr(limits, kind)[j] if borders is None else [float(borders[0][j]), float(borders[1][j])]
            record.add(
                kind,
                ticks.size,
                f"{model.joint_names[j]} at {value[first, j]:.6g} {unit}, limit {limit}, first at "
                f"{plant.time[first]:.3f} s, {ticks.size} ticks; worst use {100.0 * share.max():.4g} %",
            )
    return uses


def _contacts(record: JudgeRecord, plant: PlantLog) -> None:
    ticks = np.flatnonzero(plant.contacts > 0)
    if ticks.size:
        names = "; ".join(plant.contact_names) or "pair not recorded"
        record.add("contact", ticks.size, f"{names}, first at {plant.time[ticks[0]]:.3f} s, {ticks.size} ticks")


# -- bounds ---------------------------------------------------------------------------------------------------------


def _bounds(record: JudgeRecord, theta: FloatArray, updates: tuple[UpdateEntry, ...], model: RobotModel) -> None:
    """Every box holds the truth and lies in the one before it, the prior first."""
    prior, part = model.arm_prior, model.arm_prior.layout.payload
    truth = theta[part]
    # What was assumed: a truth outside the prior is no unknown payload but a broken experiment.
    if not prior.contains(theta):
        record.gaps.append("bounds: the true parameters are not in the prior that everything rests on")
    if not updates:
        record.gaps.append("identifier: not one update of the bounds")
    broken = [update for update in updates if update.status == "EMPTY_SET"]
    if broken:
        record.gaps.append(f"identifier: no parameters agree with all measurements at {broken[0].time:.3f} s")
    lower, upper = prior.payload_lower, prior.payload_upper
    bad, first = 0, ""
    for number, update in enumerate(updates, 1):
        name = f"update {number} ({update.identity or 'no identity'}, {update.time:.3f} s)"
        holds = (update.lower <= truth) & (truth <= update.upper)
        nested = (update.lower >= lower) & (update.upper <= upper)
        if not (np.all(holds) and np.all(nested)):
            bad += 1
            i = int(np.argmin(holds)) if not np.all(holds) else int(np.argmin(nested))
            what = (
                f"truth {float(truth[i])!r}" if not holds[i] else f"before [{float(lower[i])!r}, {float(upper[i])!r}]"
            )
            first = first or (
                f"{name}: {PAYLOAD_NAMES[i]} in [{float(update.lower[i])!r}, {float(update.upper[i])!r}] "
                f"{PAYLOAD_UNITS[i]}, {what}"
            )
        lower, upper = update.lower, update.upper
    # Standing still breaks no limit either: a run that has taught nothing is no success.
    if updates and (nothing := why_taught_nothing(model, lower, upper)):
        record.gaps.append(f"identifier: {nothing}; the last of {len(updates)} updates was at {updates[-1].time:.1f} s")
    if bad:
        record.add("bounds", bad, first + (f"; {bad} updates in all" if bad > 1 else ""))
