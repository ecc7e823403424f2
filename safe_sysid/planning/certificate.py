"""The certificate of one plan: every constraint, for every instant, error and parameter, or the reason why not.

Recomputed from the knots alone, in outward-rounded arithmetic, by code that shares nothing with the optimiser. It
rests on the controller's tracking theorem, whose hypotheses along this plan it checks as well (family ``tracking``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.control.gains import ControllerGains, tracking_margins
from safe_sysid.errors import PlanError
from safe_sysid.reachability.cells import TimeCells, TrackingSet, time_cells
from safe_sysid.reachability.clearance import Clearance, enclose_clearance
from safe_sysid.reachability.torque import TorqueEnclosure, enclose_torque
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scene import Scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["FAMILIES", "Certificate", "FamilyMargin", "start_check", "verify_plan"]

FloatArray = NDArray[np.float64]
FAMILIES = ("position", "velocity", "torque", "clearance", "self_clearance", "tracking")
_UNITS = dict(zip(FAMILIES, ("rad", "rad/s", "N m", "m", "m", "of the limit"), strict=True))
_UP = 1.0 + 8 * 2.0**-52


@dataclass(frozen=True)
class FamilyMargin:
    """Smallest margin of one family of constraints: how much, where, when.

    Attributes:
        family: one of ``FAMILIES``.
        smallest: margin, in ``unit``; negative is a violation, NaN an enclosure that broke down, inf no constraint.
        unit: rad, rad/s, N m, m or share of the limit.
        time: trajectory time of the worst cell's start, s.
        culprit: joint, pair of bodies, or hypothesis.
    """

    family: str
    smallest: float
    unit: str
    time: float
    culprit: str

    @property
    def ok(self) -> bool:
        """Whether the family is certified; False for NaN."""
        return self.smallest >= 0.0

    def __str__(self) -> str:
        """E.g. ``torque 1.3 N m (joint_6, 0.42 s)``."""
        if self.smallest == math.inf:
            return f"{self.family} unconstrained"
        return f"{self.family} {self.smallest:.4g} {self.unit} ({self.culprit}, {self.time:.2f} s)"


@dataclass(frozen=True, eq=False)
class Certificate:
    """The outcome of :func:`verify_plan`.

    Attributes:
        ok: whether every margin is at least zero.
        status: ``certified``, or the cause in words.
        families: the smallest margin of each family.
        margins: per family, (M, ..) margins of all cells and constraints; read-only.
        labels: per family, the names of the constraints.
        grid: (M + 1,) cell borders, s.
        box_identity: the box that it holds for, nested boxes included.
    """

    ok: bool
    status: str
    families: Mapping[str, FamilyMargin]
    margins: Mapping[str, FloatArray]
    labels: Mapping[str, tuple[str, ...]]
    grid: FloatArray
    box_identity: str

    def summary(self) -> str:
        """One line for logs: verdict and the smallest margin of each family."""
        parts = "; ".join(str(self.families[name]) for name in FAMILIES if name in self.families)
        return f"{self.status} [box {self.box_identity}]: {parts}" if parts else self.status


def verify_plan(
    plan: Plan,
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: ControllerGains,
    *,
    intervals: int | None = None,
    clearance_margin: float | None = None,
) -> Certificate:
    """Certify a plan for a box of parameters (and every box nested in it) and for the rest at its end.

    Args:
        plan: only its trajectory and box identity are used.
        model: the arm.
        box: that the controller works with, now or until the plan ends.
        scene: what stands around.
        gains: of the controller; its tracking bound is what everything here rests on.
        intervals: number of time cells; None for the model's setting.
        clearance_margin: smallest distance asked for, m; None for the model's setting.

    Raises:
        PlanError: plan, model and gains are not of one size.
    """
    if plan.box_identity != box.identity:
        status = f"not certified: the plan is for box {plan.box_identity}, asked for {box.identity}"
        empty: Mapping[str, Any] = MappingProxyType({})
        return Certificate(False, status, empty, empty, empty, np.zeros(0), box.identity)
    settings = model.settings.planner
    return _certify(
        plan.trajectory,
        model,
        box,
        scene,
        gains,
        settings.intervals if intervals is None else intervals,
        settings.clearance_margin if clearance_margin is None else clearance_margin,
    )[0]


def start_check(
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: ControllerGains,
    q: ArrayLike,
    clearance_margin: float | None = None,
) -> list[str]:
    """Reasons, in words, why the arm may not start by holding pose ``q`` (n,) rad; empty if it may.

    Holding is a plan that stays: the same enclosures, the tracking error's share included.
    """
    margin = model.settings.planner.clearance_margin if clearance_margin is None else clearance_margin
    q = np.asarray(q, float)
    if q.shape != (model.n,) or not np.all(np.isfinite(q)):
        return [f"start pose {q.tolist()}: expected {model.n} finite joint angles"]
    certificate, torque, clearance = _certify(QuinticTrajectory.hold(q), model, box, scene, gains, 1, margin)
    reasons = []
    for family in FAMILIES:
        margins = certificate.margins[family]
        for c in np.flatnonzero(~np.all(margins >= 0.0, axis=0)):
            name, short = certificate.labels[family][c], float(np.min(margins[:, c]))
            reasons.append(_reason(family, name, int(c), short, model, q, torque, clearance, margin))
    return reasons


def _reason(
    family: str,
    name: str,
    index: int,
    short: float,
    model: RobotModel,
    q: FloatArray,
    torque: TorqueEnclosure,
    clearance: Clearance,
    margin: float,
) -> str:
    limits = model.limits
    if family == "position":
        low, high = limits.position_lower[index], limits.position_upper[index]
        return f"{name}: {q[index]:.4f} rad with its tracking error leaves [{low:.4f}, {high:.4f}] by {-short:.4f} rad"
    if family == "torque":
        low, high = torque.torque[0, index]
        spread, limit = torque.spread[0, index], limits.torque[index]
        return (
            f"{name}: holding may need {low:.1f} to {high:.1f} N m ({spread:.1f} N m of it from unknown parameters), "
            f"with actuator error {-short:.1f} N m beyond the limit of {limit:.1f} N m"
        )
    if family in ("clearance", "self_clearance"):
        bound = short + margin
        distance = f"only {bound:.4f} m apart" if bound >= 0.0 else f"overlap (by about {-bound:.4f} m)"
        return f"{name}: {distance}, {margin:g} m asked for"
    return f"{family}, {name}: margin {short:.4g} {_UNITS[family]}: expected at least 0"


@np.errstate(invalid="ignore", over="ignore")  # NaN and inf are answers here: not certified
def _certify(
    trajectory: QuinticTrajectory,
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: ControllerGains,
    intervals: int,
    clearance_margin: float,
) -> tuple[Certificate, TorqueEnclosure, Clearance]:
    n, limits, assume = model.n, model.limits, gains.assumptions
    if trajectory.n != n or box.n != n:
        raise PlanError(f"trajectory of {trajectory.n} joints, box of {box.n}: expected {n} as {model.name}")
    if not clearance_margin >= 0.0:
        raise PlanError(f"clearance_margin = {clearance_margin!r}: expected a number >= 0")
    cells = time_cells(trajectory, intervals)
    true = TrackingSet.of(gains, n)
    measured = true.enlarged(
        np.broadcast_to(assume.position_error, (n,)), np.broadcast_to(assume.velocity_error, (n,))
    )
    position, velocity = _widened(cells.ranges(0), gains.e_bound), _widened(cells.ranges(1), gains.de_bound)
    torque = enclose_torque(
        model.kinematics,
        box,
        cells,
        measured,
        gains.K_d,
        gains.inertia_lower,
        model.friction_transition_velocity,
    )
    clearance = enclose_clearance(model, scene, cells, true)

    speed = np.abs(velocity).max(axis=-1)
    command = np.abs(torque.torque).max(axis=-1)
    actual = (command * (1.0 + assume.actuator_rel) * _UP + assume.actuator_abs) * _UP
    room = np.minimum(position[..., 0] - limits.position_lower, limits.position_upper - position[..., 1])
    margins = {
        "position": np.where(np.isnan(room), np.nan, room - 1e-15 * (1.0 + np.abs(position).max(axis=-1))),
        "velocity": limits.velocity - speed * _UP,
        "torque": limits.torque - actual * _UP,
        "clearance": (clearance.bounds - clearance_margin * _UP)[:, ~clearance.is_self],
        "self_clearance": (clearance.bounds - clearance_margin * _UP)[:, clearance.is_self],
    }
    names = [f"{a} - {b}" for a, b in clearance.pairs]
    labels = dict.fromkeys(("position", "velocity", "torque"), model.joint_names)
    labels["clearance"] = tuple(name for name, own in zip(names, clearance.is_self, strict=True) if not own)
    labels["self_clearance"] = tuple(name for name, own in zip(names, clearance.is_self, strict=True) if own)
    margins["tracking"], labels["tracking"] = _tracking(model, box, gains, cells, position, speed, torque)
    return _conclude(cells, margins, labels, box.identity), torque, clearance


def _widened(ranges: FloatArray, bound: FloatArray) -> FloatArray:
    """Ranges (M, n, 2) plus an error of at most ``bound`` (n,)."""
    lower, upper = ranges[..., 0] - bound, ranges[..., 1] + bound
    slack = 2.0**-51 * (np.abs(lower) + np.abs(upper) + bound)
    return np.stack([lower - slack, upper + slack], axis=-1)


def _tracking(
    model: RobotModel,
    box: ParameterBox,
    gains: ControllerGains,
    cells: TimeCells,
    position: FloatArray,
    speed: FloatArray,
    torque: TorqueEnclosure,
) -> tuple[FloatArray, tuple[str, ...]]:
    """Margins (M, ..) of the tracking theorem's hypotheses along the plan, with their names."""
    q_mid = position.mean(axis=-1)
    q_half = np.maximum(position[..., 1] - q_mid, q_mid - position[..., 0]) * _UP
    found = tracking_margins(
        gains,
        model.kinematics,
        box,
        q_mid=q_mid,
        q_half=q_half,
        qd_abs=speed,
        qdd_d_abs=np.abs(cells.ranges(2)).max(axis=-1) * _UP,
        jerk_d_abs=np.abs(cells.ranges(3)).max(axis=-1) * _UP,
        uncertainty=torque.measure,
    )
    n = model.n
    columns, names = [], []
    for hypothesis, values in found.items():
        values = np.asarray(values, float)
        if values.ndim == 1:
            columns.append(values[:, None])
            names.append(hypothesis)
        else:
            columns.append(values)
            names += [f"{hypothesis} of {joint}" for joint in model.joint_names]
    # The measure was weighted with the gains' inertia: it must be a lower bound for this box, too.
    rotor = box.lower[12 * n : 13 * n] / gains.inertia_lower - 1.0
    for j in np.flatnonzero(~(rotor >= 0.0)):
        columns.append(np.full((cells.count, 1), rotor[j]))
        names.append(f"rotor inertia of {model.joint_names[j]}")
    return np.concatenate(columns, axis=1), tuple(names)


def _conclude(
    cells: TimeCells, margins: dict[str, FloatArray], labels: dict[str, tuple[str, ...]], identity: str
) -> Certificate:
    families = {}
    for family in FAMILIES:
        values = margins[family] = np.ascontiguousarray(margins[family])
        values.setflags(write=False)
        if values.size == 0:
            families[family] = FamilyMargin(family, math.inf, _UNITS[family], 0.0, "none")
            continue
        # argmin finds NaN first, if there is one.
        cell, column = np.unravel_index(int(np.argmin(values)), values.shape)
        families[family] = FamilyMargin(
            family,
            float(values[cell, column]),
            _UNITS[family],
            float(cells.grid[cell]),
            labels[family][column],
        )
    bad = [str(f) for f in families.values() if not f.ok]
    status = "certified" if not bad else "not certified: " + ", ".join(bad)
    grid = cells.grid.copy()
    grid.setflags(write=False)
    freeze = MappingProxyType
    return Certificate(not bad, status, freeze(families), freeze(margins), freeze(labels), grid, identity)
