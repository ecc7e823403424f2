"""The certificate of one plan: proves every constraint for every instant, error and parameter, or says why it cannot.

Recomputed from the knots alone, in outward-rounded arithmetic, by code that shares nothing with the optimiser. It
rests on the controller's tracking theorem, whose hypotheses along this plan it checks as well (family ``tracking``).
The proof is "Plans" in docs/understand/guarantees.md; what a plan must keep is that of [ARMOUR] and [PSO].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.tube import TrackingTube, tubes_of
from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.decimals import at_least, at_most
from safe_sysid.errors import PlanError
from safe_sysid.planning.certification.cell_margins import FAMILIES, CellMargins, Labels, MarginFinder, thread_count
from safe_sysid.reachability.cells import time_cells
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["FAMILIES", "PlanCertificate", "may_rest", "start_check", "start_tube", "verify_plan"]

#: Between two poses of :func:`may_rest`, s: the motion there is not looked at, and so slow that its jerk is none.
_PAUSE = 100.0


@dataclass(frozen=True, eq=False)
class PlanCertificate:
    """The outcome of :func:`verify_plan`."""

    ok: bool  #: whether every margin is at least zero
    status: str  #: ``certified``, or the cause in words
    families: Mapping[str, Margin]  #: the smallest margin of each family
    margins: Mapping[str, FloatArray]  #: per family, (M, ..) margins of all cells and constraints; read-only
    labels: Mapping[str, Labels]  #: per family, ``a`` and ``b`` of the constraints' margins
    grid: FloatArray  #: (M + 1,) cell borders, s
    box_identity: str  #: the box that it holds for, nested boxes included
    #: (M, P, 3) directions that separate the pairs of bodies, clearance's and self-clearance's in the order of
    #: :func:`safe_sysid.reachability.clearance.clearance_pairs`; any direction proves what it proves
    witness: FloatArray
    tube: int = 0  #: that it is for, a place in :func:`~safe_sysid.control.tube.tubes_of`

    def summary(self) -> str:
        """One line for logs: verdict and the smallest margin of each family."""
        parts = "; ".join(str(self.families[name]) for name in FAMILIES if name in self.families)
        tube = f", tube {self.tube}" if self.tube else ""
        return f"{self.status} [box {self.box_identity}{tube}]: {parts}" if parts else self.status


def verify_plan(
    plan: Plan,
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: TrackingTube,
    *,
    intervals: int | None = None,
    clearance_margin: float | None = None,
    splits: int = 2,
    threads: int | None = None,
    grid: ArrayLike | None = None,
    directions: ArrayLike | None = None,
) -> PlanCertificate:
    """Certify a plan for a box of parameters (and every box nested in it) and for the rest at its end.

    Cells in which a margin is negative are halved and done again. A plan that cannot be saved is given up early: no
    cell is halved if a constraint fails whose range is exact already, and all others only if the worst cell of
    each family could be certified.

    Args:
        plan: only its trajectory, box identity and tube are used.
        box: that the controller works with, now or until the plan ends.
        gains: of the controller, the widest tube; the tracking bound of the plan's tube, which is one of theirs, is
            what everything here rests on.
        intervals: number of time cells to begin with; None for the model's setting.
        clearance_margin: smallest distance asked for, m; None for the model's setting.
        splits: how often a cell may be halved.
        threads: to work in; None: one per processor, two at most. The outcome does not depend on it.
        grid: (M + 1,) times of the cells to begin with instead, s; from 0 to the plan's end, knots included.
        directions: (M, P, 3) ``witness`` of a certificate on this grid, to do without coal.

    Raises:
        PlanError: plan, model and gains are not of one size, or an argument is not as expected.
        ConfigError: the scene does not fit the robot, or the robot has a prismatic joint.
    """
    if plan.box_identity != box.identity:
        status = f"not certified: the plan is for box {plan.box_identity}, asked for {box.identity}"
        empty: Mapping[str, Any] = MappingProxyType({})
        none = np.zeros(0)
        return PlanCertificate(False, status, empty, empty, empty, none, box.identity, none.reshape(0, 0, 3))
    if plan.tube:
        tubes = tubes_of(model, gains)
        if not plan.tube < len(tubes):
            raise PlanError(f"plan.tube = {plan.tube}: expected at most {len(tubes) - 1}, the narrowest of these gains")
        gains = tubes[plan.tube]
    settings = model.settings.planner
    borders = _borders(plan.trajectory, settings.intervals if intervals is None else intervals, grid)
    if not (isinstance(splits, int) and splits >= 0):
        raise PlanError(f"splits = {splits!r}: expected a number >= 0")
    margin = settings.clearance_margin if clearance_margin is None else clearance_margin
    find = _finder(plan.trajectory, model, box, scene, gains, margin, thread_count(threads))
    if directions is not None:
        directions = np.ascontiguousarray(directions, dtype=float)
        if directions.ndim != 3 or len(directions) != len(borders) or directions.shape[2] != 3:
            raise PlanError(
                f"directions of shape {directions.shape}: expected ({len(borders)}, P, 3), one per cell and pair"
            )
    return _conclude(find.labels, _refined(find, find(borders, directions), splits), box.identity, plan.tube)


def _borders(trajectory: QuinticTrajectory, intervals: int, grid: ArrayLike | None) -> FloatArray:
    """(M, 2) cells to begin with."""
    if grid is None:
        return time_cells(trajectory, intervals).borders
    times = np.array(grid, dtype=float)
    covers = times.ndim == 1 and len(times) > 1 and times[0] == 0.0 and times[-1] == trajectory.duration
    if not (covers and np.all(np.diff(times) > 0.0) and np.all(np.isin(trajectory.times, times))):
        raise PlanError(
            f"grid of shape {times.shape}: expected increasing times from 0 to {trajectory.duration} s that "
            f"include the knots {trajectory.times.tolist()}"
        )
    return np.stack([times[:-1], times[1:]], axis=1)


def _refined(find: MarginFinder, first: CellMargins, splits: int) -> CellMargins:
    """The cells with the failing ones halved, as far as there is hope."""
    fails = first.failing()
    if splits == 0 or not np.any(fails) or not find.can_gain(first):
        return first
    # The worst cell of each family first: NaN counts as the worst of all.
    worst = np.zeros(len(fails), dtype=bool)
    for values in first.values.values():
        if values.size and not np.all(values >= 0.0):
            worst[int(np.argmin(values)) // values.shape[1]] = True
    probed = find.resolve(first.take(worst), splits)
    others = first.take(fails & ~worst)
    if len(others.borders) and not np.any(probed.failing()):
        others = find.resolve(others, splits)
    return CellMargins.join([first.take(~fails), probed, others])


def start_check(
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: TrackingTube,
    q: ArrayLike,
    clearance_margin: float | None = None,
) -> list[str]:
    """Reasons, in words, why the arm may not start by holding pose ``q`` (n,) rad; empty if it may.

    Holding is a plan that stays: the same enclosures, the tracking error's share included.

    ``clearance_margin``: smallest distance asked for, m; None for the model's setting.

    Raises:
        ConfigError: as :func:`verify_plan`.
    """
    margin = model.settings.planner.clearance_margin if clearance_margin is None else clearance_margin
    q = np.asarray(q, float)
    if q.shape != (model.n,) or not np.all(np.isfinite(q)):
        return [f"start pose {q.tolist()}: expected {model.n} finite joint angles"]
    find = _finder(QuinticTrajectory.hold(q), model, box, scene, gains, margin, 1)
    cells = find(np.array([[0.0, find.trajectory.duration]]))
    reasons, start = [], cells.borders[:, 0]
    for family in FAMILIES:
        values, labels = cells.values[family], find.labels[family]
        for c in np.flatnonzero(~np.all(values >= 0.0, axis=0)).tolist():
            worst = Margin.smallest(family, labels[c : c + 1], values[:, c : c + 1], start)
            reasons.append(_reason(worst, c, find, q))
    return reasons


def start_tube(
    model: RobotModel, box: ParameterBox, scene: Scene, gains: TrackingTube, q: ArrayLike
) -> tuple[list[str], int]:
    """:func:`start_check`'s reasons, and the widest tube that has none: its place in ``tubes_of(model, gains)``.

    A heavy payload that is known well may be held in a narrow tube where the widest would ask for too much torque.

    Returns:
        No reasons and the tube; or the reasons of the widest, and 0, where no tube allows it.
    """
    tubes = tubes_of(model, gains)
    reasons = start_check(model, box, scene, gains, q)
    if not reasons:
        return [], 0
    for tube, narrower in enumerate(tubes[1:], 1):
        if not start_check(model, box, scene, narrower, q):
            return [], tube
    return reasons, 0


def may_rest(
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: TrackingTube,
    poses: ArrayLike,
    clearance_margin: float | None = None,
) -> tuple[BoolArray, list[tuple[Margin, ...]]]:
    """Which of many poses (N, n) rad the arm may rest at: what :func:`start_check` says, in a fifth of its time.

    Returns:
        (N,) whether it may, and for each pose every margin that speaks against it, family by family, the smallest
        of each first; none where it may.

    Raises:
        PlanError, ParameterError: poses that are not (N, n) finite numbers.
        ConfigError: as :func:`verify_plan`.
    """
    margin = model.settings.planner.clearance_margin if clearance_margin is None else clearance_margin
    poses = np.atleast_2d(np.asarray(poses, float))
    knots = np.zeros((2 * len(poses), 3, poses.shape[1]))
    knots[:, 0] = np.repeat(poses, 2, axis=0)
    starts = (1.0 + _PAUSE) * np.arange(len(poses))
    times = np.stack([starts, starts + 1.0], axis=1, dtype=float).ravel()
    find = _finder(QuinticTrajectory(times, knots), model, box, scene, gains, margin, 1)
    cells = find(times.reshape(-1, 2))
    free = ~cells.failing()
    against: list[tuple[Margin, ...]] = [()] * len(poses)
    for i in np.flatnonzero(~free):
        found: list[Margin] = []
        for family in FAMILIES:
            values, labels = cells.values[family][i], find.labels[family]
            order = np.argsort(np.where(np.isnan(values), -np.inf, values), kind="stable")
            bad = [int(c) for c in order if not values[c] >= 0.0]
            found += [Margin(family, *labels[c], float(values[c]), float(times[2 * i])) for c in bad]
        against[i] = tuple(found)
    return free, against


def _reason(found: Margin, index: int, find: MarginFinder, q: FloatArray) -> str:
    family, name, short = found.family, found.culprit, found.value
    limits, margin = find.model.limits, find.clearance_margin
    if family == "position":
        low, high = limits.position_lower[index], limits.position_upper[index]
        return (
            f"{name}: {q[index]:.4f} rad with its tracking error leaves [{low:.4f}, {high:.4f}] by at most "
            f"{at_most(-short, places=4)} rad"
        )
    if family == "torque":
        low, high = find.torque.torque[0, index]
        spread, limit = find.torque.spread[0, index], limits.torque[index]
        most = find.gains.assumptions.feed_forward[index]
        added = f"and up to {at_most(most)} N m of a feed-forward " if most else ""
        return (
            f"{name}: holding may need {at_least(low, places=1)} to {at_most(high, places=1)} N m "
            f"({at_most(spread, places=1)} N m of it from unknown parameters), "
            f"with actuator error {added}{at_most(-short, places=1)} N m beyond the limit of {limit:.1f} N m"
        )
    if family in ("clearance", "self_clearance"):
        bound = short + margin
        distance = (
            f"only {at_least(bound, places=4)} m apart"
            if bound >= 0.0
            else f"overlap (by at most {at_most(-bound, places=4)} m)"
        )
        return f"{name}: {distance}, {margin:g} m asked for"
    return f"{family}, {name}: margin {at_least(short, 4)} {found.unit}: expected at least 0"


def _finder(
    trajectory: QuinticTrajectory,
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: TrackingTube,
    clearance_margin: float,
    threads: int,
) -> MarginFinder:
    """Check the arguments that certificate and start check share."""
    model.require_turning("certificates of motions and poses")
    model.require_known_reactions("certificates of motions and poses")
    if trajectory.n != model.n or box.n != model.n:
        raise PlanError(f"trajectory of {trajectory.n} joints, box of {box.n}: expected {model.n} as {model.name}")
    if not clearance_margin >= 0.0:
        raise PlanError(f"clearance_margin = {clearance_margin!r}: expected a number >= 0")
    scene.check(model)  # a name that obstacle and body share, or a pair of two bodies, would switch pairs off
    return MarginFinder(trajectory, model, box, scene, gains, clearance_margin, threads)


def _conclude(labels: Mapping[str, Labels], cells: CellMargins, identity: str, tube: int) -> PlanCertificate:
    start = cells.borders[:, 0]
    families = {name: Margin.smallest(name, labels[name], cells.values[name], start) for name in FAMILIES}
    margins = {family: frozen_array(cells.values[family], None, family, finite=False) for family in FAMILIES}
    bad = [str(margin) for margin in families.values() if not margin.ok]
    status = "certified" if not bad else "not certified: " + ", ".join(bad)
    freeze = MappingProxyType
    grid = np.append(cells.borders[:, 0], cells.borders[-1, 1])
    witness = np.array(cells.directions)
    for array in (grid, witness):
        array.setflags(write=False)
    return PlanCertificate(
        not bad, status, freeze(families), freeze(margins), freeze(dict(labels)), grid, identity, witness, tube
    )
