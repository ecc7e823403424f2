"""The judge: from the logs of a run to counts of violations and the safety record. Pure; knows the truth, tells no node.

It shares no code with what it judges: limits are compared with the plant's true states at every tick, clearances are
MuJoCo's own, the tracking bound is compared with the true error and the true inertia matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.control.gains import ControllerGains
from safe_sysid.demo.logs import ControllerLog, PlanEntry, PlantLog, RunLogs, UpdateEntry
from safe_sysid.report.summary import Clearance, Evidence, Safety, Tracking, Use, Violations
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.robot.regressors import momentum_regressor

__all__ = ["CLEARANCE_STRIDE", "Curves", "Evaluation", "evaluate"]

FloatArray = NDArray[np.float64]
Oracle = Callable[[ArrayLike], tuple[float, tuple[str, str] | None]]

#: Every so many ticks the clearance is measured (at 1 kHz and 1 rad/s a link of 1 m moves 5 mm meanwhile).
CLEARANCE_STRIDE = 5
#: Two logs mean the same tick if their stamps agree to this, s.
_SAME_TICK = 1e-6
#: Around a general rounded hull MuJoCo gets a polytope, up to this share of the radius larger (simulation.world).
_POLYTOPE = 0.025
_SKIN = 1e-6  # m: below this radius it is the body itself
_DISTANCE = 1e-7  # m: what MuJoCo's iteration leaves open
_CHUNK = 2000


@dataclass(frozen=True, eq=False)
class Curves:
    """What the pictures show over time (s): clearance (m), and true tracking errors as a share of their proved bounds."""

    clearance_time: FloatArray
    clearance: FloatArray
    tracking_time: FloatArray
    position_share: FloatArray
    velocity_share: FloatArray
    energy_share: FloatArray


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outcome.

    Attributes:
        violations: counts.
        safety: record.
        gaps: what could not be judged for lack of data; a run with gaps is not a success.
        curves: for the pictures.
    """

    violations: Violations
    safety: Safety
    gaps: tuple[str, ...]
    curves: Curves

    @property
    def ok(self) -> bool:
        """Whether everything was looked at and nothing was violated."""
        return self.violations.total == 0 and not self.gaps


@dataclass
class _Sheet:
    """Collects while judging."""

    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    def add(self, kind: str, count: int, text: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + int(count)
        self.findings.append(f"{kind}: {text}")


def evaluate(logs: RunLogs, model: RobotModel, gains: ControllerGains, clearance: Oracle | None) -> Evaluation:
    """Judge a run.

    Args:
        logs: of the four nodes.
        model: the arm, with the overrides of the run.
        gains: that planner and controller used.
        clearance: distance (m) at a position between solids that must stay apart, and which; None: not judged (a gap).
    """
    sheet = _Sheet(gaps=list(logs.missing))
    plant = logs.plant
    uses: dict[str, Use | None] = dict.fromkeys(("position", "velocity", "torque"))
    tracking: dict[str, Tracking | None] = dict.fromkeys(("position", "velocity", "energy"))
    distances = (np.zeros(0), np.zeros(0))
    shares = (np.zeros(0), np.zeros((0, model.n)), np.zeros((0, model.n)), np.zeros(0))
    margin = model.settings.planner.clearance_margin
    nearest = Clearance(smallest_m=None, pair=[], time_s=None, certified_m=_promised(logs.plans, margin))
    if plant is not None:
        if plant.time.size == 0:
            sheet.gaps.append("plant.npz: no ticks")
        elif not _all_finite(plant):
            sheet.add("position", 1, "the plant's own state is not finite")
        else:
            uses = _limits(sheet, plant, model)
            _contacts(sheet, plant)
            if clearance is None:
                sheet.gaps.append("clearance: no independent geometry to measure it")
            else:
                nearest, distances = _clearances(sheet, plant, logs.plans, model, clearance, nearest)
            if logs.controller is not None:
                tracking, shares = _tracking(sheet, plant, logs.controller, model, gains)
        _bounds(sheet, plant.theta_true, logs.updates, model)
    elif not logs.missing:
        sheet.gaps.append("plant.npz: not written")
    planned = sum(plan.planned for plan in logs.plans)
    if not planned:
        sheet.gaps.append("planner: not one certified plan")
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
        findings=sheet.findings,
    )
    return Evaluation(Violations(**sheet.counts), safety, tuple(sheet.gaps), Curves(*distances, *shares))


def _all_finite(plant: PlantLog) -> bool:
    columns = (plant.time, plant.q, plant.qd, plant.commanded, plant.applied)
    return all(bool(np.all(np.isfinite(column))) for column in columns)


# -- limits ---------------------------------------------------------------------------------------------------------


def _limits(sheet: _Sheet, plant: PlantLog, model: RobotModel) -> dict[str, Use | None]:
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
    uses: dict[str, Use | None] = {}
    for kind, share, bad, value, unit, borders in cases:
        k, j = np.unravel_index(int(np.argmax(share)), share.shape)
        joint, time = model.joint_names[j], float(plant.time[k])
        measurable = kind != "position" or bool(np.any(bounded))
        uses[kind] = Use(percent=100.0 * float(share[k, j]), joint=joint, time_s=time) if measurable else None
        ticks = np.flatnonzero(bad.any(axis=1))
        if ticks.size:
            first = int(ticks[0])
            j = int(np.argmax(np.where(bad[first], share[first], -1.0)))
            limit = getattr(limits, kind)[j] if borders is None else [float(borders[0][j]), float(borders[1][j])]
            sheet.add(
                kind,
                ticks.size,
                f"{model.joint_names[j]} at {value[first, j]:.6g} {unit}, limit {limit}, first at "
                f"{plant.time[first]:.3f} s, {ticks.size} ticks; worst use {100.0 * share.max():.4g} %",
            )
    return uses


def _contacts(sheet: _Sheet, plant: PlantLog) -> None:
    ticks = np.flatnonzero(plant.contacts > 0)
    if ticks.size:
        names = "; ".join(plant.contact_names) or "pair not recorded"
        sheet.add("contact", ticks.size, f"{names}, first at {plant.time[ticks[0]]:.3f} s, {ticks.size} ticks")


# -- clearance ------------------------------------------------------------------------------------------------------


def _promise(plan: PlanEntry, margin: float) -> float | None:
    """Distance that a plan's certificate guarantees, m: obstacles and the arm itself; None if it constrains nothing."""
    known = [
        float(plan.margins[name]["smallest"]) + margin
        for name in ("clearance", "self_clearance")
        if name in plan.margins and plan.margins[name]["smallest"] is not None
    ]
    return min(known) if known else None


def _promised(plans: tuple[PlanEntry, ...], margin: float) -> float | None:
    known = [value for plan in plans if plan.planned and (value := _promise(plan, margin)) is not None]
    return min(known) if known else None


def _promise_over_time(plans: tuple[PlanEntry, ...], time: FloatArray, margin: float) -> FloatArray:
    """Certified clearance at each time, -inf where nothing is. Old and new plan overlap: the smaller promise holds."""
    promise = np.full(time.size, np.inf)
    planned = sorted((plan for plan in plans if plan.planned), key=lambda plan: plan.start)
    for i, plan in enumerate(planned):
        value = _promise(plan, margin)
        last = i == len(planned) - 1  # the arm rests at its end, for which the certificate holds as well
        until = np.inf if last else float(plan.end or plan.start)
        under_way = (time >= plan.start - _SAME_TICK) & (time <= until)
        promise[under_way] = np.minimum(promise[under_way], -np.inf if value is None else value)
    return np.where(np.isinf(promise), -np.inf, promise)


def _clearances(
    sheet: _Sheet,
    plant: PlantLog,
    plans: tuple[PlanEntry, ...],
    model: RobotModel,
    oracle: Oracle,
    nearest: Clearance,
) -> tuple[Clearance, tuple[FloatArray, FloatArray]]:
    """Distances at every few ticks, the last one included: below zero, or below what the certificate promised."""
    picked = np.unique(np.append(np.arange(0, plant.time.size, CLEARANCE_STRIDE), plant.time.size - 1))
    time = plant.time[picked]
    measured = [oracle(q) for q in plant.q[picked]]
    distance = np.array([value for value, _ in measured])
    if np.any(np.isnan(distance)):
        sheet.gaps.append("clearance: the independent geometry gave no number")
        distance = np.where(np.isnan(distance), np.inf, distance)
    overlap = distance < 0.0
    radii = [body.radius for body in model.bodies if len(body.points) > 2 and body.radius > _SKIN]
    promise = _promise_over_time(plans, time, model.settings.planner.clearance_margin)
    promise -= 2.0 * _POLYTOPE * max(radii, default=0.0) + _DISTANCE
    short = ~overlap & (distance < promise)
    for bad, what in ((overlap, "overlap"), (short, "less than certified")):
        where = np.flatnonzero(bad)
        if where.size:
            worst = int(where[np.argmin(distance[where])])
            promised = f", certified {promise[worst]:.4f} m" if np.isfinite(promise[worst]) else ""
            sheet.add(
                "clearance",
                where.size,
                f"{what}: {_pair(measured[worst][1])} at {distance[worst]:.4f} m{promised}, {time[worst]:.3f} s, "
                f"{where.size} samples, first at {time[where[0]]:.3f} s",
            )
    k = int(np.argmin(distance))
    if not np.isfinite(distance[k]):
        return nearest, (time, distance)  # nothing to hit
    found = Clearance(
        smallest_m=float(distance[k]),
        pair=list(measured[k][1] or ()),
        time_s=float(time[k]),
        certified_m=nearest.certified_m,
    )
    return found, (time, distance)


def _pair(names: tuple[str, str] | None) -> str:
    return " - ".join(names) if names else "nothing"


# -- tracking -------------------------------------------------------------------------------------------------------


def _common_ticks(plant: PlantLog, controller: ControllerLog) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of plant and controller that belong to one stamp, guarantee in force."""
    rows = np.flatnonzero(controller.guaranteed)
    stamps = controller.time[rows]
    after = np.clip(np.searchsorted(plant.time, stamps - _SAME_TICK), 0, plant.time.size - 1)
    same = np.abs(plant.time[after] - stamps) <= _SAME_TICK
    return after[same], rows[same]


def _tracking(
    sheet: _Sheet, plant: PlantLog, controller: ControllerLog, model: RobotModel, gains: ControllerGains
) -> tuple[dict[str, Tracking | None], tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """True errors and true V of every tick against the bounds that the controller's theorem gives."""
    ours, theirs = _common_ticks(plant, controller)
    guaranteed = int(np.count_nonzero(controller.guaranteed))
    n = model.n
    if theirs.size == 0:
        sheet.gaps.append("tracking: no tick of the controller's log, guarantee in force, is in the plant's log")
        return dict.fromkeys(("position", "velocity", "energy")), (
            np.zeros(0),
            np.zeros((0, n)),
            np.zeros((0, n)),
            np.zeros(0),
        )
    if theirs.size < guaranteed:
        sheet.gaps.append(f"tracking: {guaranteed - theirs.size} ticks of the controller are not in the plant's log")
    skipped = _skipped(plant, controller, ours)
    if skipped:
        sheet.gaps.append(skipped)
    faults = np.flatnonzero(controller.state == "fault")
    if faults.size:
        sheet.gaps.append(f"controller: fault at {controller.time[faults[0]]:.3f} s, no guarantee from then on")
    q, qd = plant.q[ours], plant.qd[ours]
    e = controller.q_d[theirs] - q
    turns = np.where(model.continuous, np.round(e / (2.0 * np.pi)), 0.0)
    e = e - 2.0 * np.pi * turns
    de = controller.qd_d[theirs] - qd
    energy = _energy(model, plant.theta_true, q, de + gains.K_r * e)
    time = plant.time[ours]
    position, velocity, share = np.abs(e) / gains.e_bound, np.abs(de) / gains.de_bound, energy / gains.V_max
    # NaN must count as a violation: "not (<= 1)".
    bad = ~((position <= 1.0).all(axis=1) & (velocity <= 1.0).all(axis=1) & (share <= 1.0))
    result: dict[str, Tracking | None] = {}
    cases = (("position", position, e, gains.e_bound, "rad"), ("velocity", velocity, de, gains.de_bound, "rad/s"))
    for kind, shares, value, bound, unit in cases:
        k, j = np.unravel_index(int(np.argmax(np.nan_to_num(shares, nan=np.inf))), shares.shape)
        result[kind] = _worst(shares[k, j], model.joint_names[j], time[k], abs(value[k, j]), bound[j], unit)
    k = int(np.argmax(np.nan_to_num(share, nan=np.inf)))
    result["energy"] = _worst(share[k], "all joints", time[k], energy[k], gains.V_max, "J")
    if np.any(bad):
        first = int(np.flatnonzero(bad)[0])
        worst = max((item for item in result.values() if item is not None), key=lambda item: item.percent)
        sheet.add(
            "tracking",
            int(np.count_nonzero(bad)),
            f"{worst.joint} off by {worst.value:.4g} {worst.unit} at {worst.time_s:.3f} s, bound {worst.bound:.4g}; "
            f"{np.count_nonzero(bad)} ticks, first at {time[first]:.3f} s",
        )
    return result, (time, position, velocity, share)


def _worst(share: float, joint: str, time: float, value: float, bound: float, unit: str) -> Tracking:
    big = 1e300  # JSON has no infinity
    return Tracking(
        percent=float(np.nan_to_num(100.0 * share, nan=big, posinf=big)),
        joint=joint,
        time_s=float(time),
        value=float(np.nan_to_num(value, nan=big, posinf=big)),
        bound=float(bound),
        unit=unit,
    )


def _skipped(plant: PlantLog, controller: ControllerLog, ours: NDArray[np.intp]) -> str | None:
    """Ticks of the plant, while the guarantee was in force, that the controller did not log or that nobody commanded."""
    inside = np.zeros(plant.time.size, bool)
    inside[ours[0] : ours[-1] + 1] = True
    # The torque of the tick after the first answer is the first that the controller gave.
    alone = np.flatnonzero(inside & plant.braking & (np.arange(plant.time.size) > ours[0] + 1))
    alone = alone[plant.time[alone] > plant.time[ours[0]] + 0.1]  # it may take a moment until commands flow
    if alone.size:
        return f"plant: braked by itself at {plant.time[alone[0]]:.3f} s, commands had stopped"
    logged = np.zeros(plant.time.size, bool)
    logged[ours] = True
    gone = np.flatnonzero(inside & ~logged)
    if gone.size > 0.05 * np.count_nonzero(inside):
        return (
            f"tracking: the controller's log has {ours.size} of {np.count_nonzero(inside)} ticks, "
            f"the first gap at {plant.time[gone[0]]:.3f} s"
        )
    return None


def _energy(model: RobotModel, theta: FloatArray, q: FloatArray, r: FloatArray) -> FloatArray:
    """``V = r^T H r / 2`` with the true parameters, (N,), J."""
    energy = np.empty(len(q))
    for start in range(0, len(q), _CHUNK):
        part = slice(start, start + _CHUNK)
        momentum = momentum_regressor(model.kinematics, np.ascontiguousarray(q[part]), np.ascontiguousarray(r[part]))
        energy[part] = 0.5 * np.einsum("kj,kj->k", r[part], momentum @ theta)
    return energy


# -- bounds ---------------------------------------------------------------------------------------------------------


def _bounds(sheet: _Sheet, theta: FloatArray, updates: tuple[UpdateEntry, ...], model: RobotModel) -> None:
    """Every box holds the truth and lies in the one before it, the prior first."""
    prior, part = model.arm_prior, model.arm_prior.payload_slice
    truth = theta[part]
    # What was assumed: a truth outside the prior is no unknown payload but a broken experiment.
    if not prior.contains(theta):
        sheet.gaps.append("bounds: the true parameters are not in the prior that everything rests on")
    if not updates:
        sheet.gaps.append("identifier: not one update of the bounds")
    lower, upper = prior.payload_lower, prior.payload_upper
    bad, first = 0, ""
    for number, update in enumerate(updates, 1):
        name = f"update {number} ({update.identity or 'no identity'}, {update.time:.3f} s)"
        holds = (update.lower <= truth) & (truth <= update.upper)
        nested = (update.lower >= lower) & (update.upper <= upper)
        if not (np.all(holds) and np.all(nested)):
            bad += 1
            i = int(np.argmin(holds)) if not np.all(holds) else int(np.argmin(nested))
            what = f"truth {truth[i]:.6g}" if not holds[i] else f"before [{lower[i]:.6g}, {upper[i]:.6g}]"
            first = first or (
                f"{name}: {PAYLOAD_NAMES[i]} in [{update.lower[i]:.6g}, {update.upper[i]:.6g}] {PAYLOAD_UNITS[i]}, {what}"
            )
        lower, upper = update.lower, update.upper
    if bad:
        sheet.add("bounds", bad, first + (f"; {bad} updates in all" if bad > 1 else ""))
