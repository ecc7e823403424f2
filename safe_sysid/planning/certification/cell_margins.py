"""Margins of every family of constraints over time cells: what :mod:`~.certification.certificate` is made of.

The statement and its proof: "Plans" in docs/understand/guarantees.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from safe_sysid.control.gains import tracking_margins
from safe_sysid.control.tube import MeasuredTube, TrackingTube
from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.errors import PlanError
from safe_sysid.reachability.cells import ErrorBox, TrackingSet, cells_between
from safe_sysid.reachability.clearance import Clearance, enclose_clearance
from safe_sysid.reachability.every_pose import bounds_at_every_pose
from safe_sysid.reachability.torque import TorqueEnclosure, TorqueTask
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.extrema import interval_ranges
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["FAMILIES", "CellMargins", "Labels", "MarginFinder", "halves", "thread_count"]

Labels = tuple[tuple[str, str], ...]
FAMILIES = ("position", "velocity", "torque", "clearance", "self_clearance", "tracking")
#: Families whose enclosures are wider than what they enclose: in shorter cells their margins grow.
SPLIT_FAMILIES = ("torque", "clearance", "self_clearance")
#: Hypotheses of the tracking theorem of which the same is true.
SPLIT_HYPOTHESES = ("uncertainty", "inertia", "inertia below")
_UP = 1.0 + 8 * 2.0**-52
#: Fewer cells than this are not worth a thread.
_WORTH_A_THREAD = 12


@dataclass(frozen=True, eq=False)
class CellMargins:
    """Margins of cells, in any order."""

    borders: FloatArray  #: (M, 2) of the cells, s
    values: dict[str, FloatArray]  #: per family, (M, ..) margins; negative or NaN is not certified
    directions: FloatArray  #: (M, P, 3) separating directions of the pairs of bodies

    def failing(self) -> BoolArray:
        """(M,) cells with a margin that is negative or NaN."""
        return np.any([~np.all(self.values[name] >= 0.0, axis=1) for name in FAMILIES], axis=0)

    def take(self, which: BoolArray | IntArray) -> CellMargins:
        """Some of the cells."""
        values = {name: v[which] for name, v in self.values.items()}
        return CellMargins(self.borders[which], values, self.directions[which])

    @staticmethod
    def join(parts: Iterable[CellMargins]) -> CellMargins:
        """All cells of several, in the order of time."""
        parts = list(parts)
        borders = np.concatenate([p.borders for p in parts])
        order = np.argsort(borders[:, 0], kind="stable")
        values = {name: np.concatenate([p.values[name] for p in parts])[order] for name in FAMILIES}
        return CellMargins(borders[order], values, np.concatenate([p.directions for p in parts])[order])


def thread_count(threads: int | None) -> int:
    """``threads``, or one for each of at most two processors that this process may use.

    Raises:
        PlanError: not a positive number.
    """
    if threads is None:
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(2, available)
    if not (isinstance(threads, int) and threads >= 1):
        raise PlanError(f"threads = {threads!r}: expected a positive number, or None")
    return threads


class MarginFinder:
    """Margins of one trajectory's cells, for one arm, box, scene and controller.

    Attributes:
        labels: per family, ``a`` and ``b`` of its constraints' margins; known after the first call.
    """

    torque: TorqueEnclosure  #: enclosures of the last call
    clearance: Clearance  #: enclosures of the last call

    def __init__(
        self,
        trajectory: QuinticTrajectory,
        model: RobotModel,
        box: ParameterBox,
        scene: Scene,
        gains: TrackingTube,
        clearance_margin: float,
        threads: int = 1,
    ) -> None:
        """Arguments as :func:`safe_sysid.planning.certification.certificate.verify_plan`."""
        self.trajectory, self.model, self.box, self.scene, self.gains = trajectory, model, box, scene, gains
        self.clearance_margin, self.threads = clearance_margin, threads
        self.labels: dict[str, Labels] = {}
        self._always = bounds_at_every_pose(model)
        n, assume = model.n, gains.assumptions
        self._true: TrackingSet | ErrorBox
        self._law: TrackingSet | ErrorBox  # the errors that the torque is made of
        if isinstance(gains, MeasuredTube):
            # Whoever commands it: the torque that moves the arm is that of the true motion.
            self._true = self._law = ErrorBox(gains.e_bound, gains.de_bound, gains.dde_bound)
            self._damping, self._lead = np.zeros(n), 0.0
        else:
            self._true = own = TrackingSet.of(gains, n)
            self._law = own.enlarged(
                np.broadcast_to(assume.position_error, (n,)), np.broadcast_to(assume.velocity_error, (n,))
            )
            self._damping, self._lead = gains.K_d, gains.lead

    @np.errstate(invalid="ignore", over="ignore")  # NaN and inf are answers here: not certified
    def __call__(self, borders: FloatArray, directions: FloatArray | None = None) -> CellMargins:
        """Margins of the cells with these borders (M, 2), each between two knots.

        Args:
            borders: s; a cell that ends with the trajectory includes the rest after it.
            directions: (M, P, 3) that separate the pairs of bodies; None: coal looks for them.
        """
        model, gains, limits = self.model, self.gains, self.model.limits
        assume = gains.assumptions
        self._enclose(borders, directions)
        torque, clearance = self.torque, self.clearance
        position, velocity, acceleration, jerk = (
            interval_ranges(self.trajectory, borders, order) for order in range(4)
        )
        position, velocity = _widened(position, gains.e_bound), _widened(velocity, gains.de_bound)
        speed = np.abs(velocity).max(axis=-1)
        # What the drives are asked for: the law's torque, and whatever a feed-forward adds to it.
        command = np.abs(torque.torque).max(axis=-1) + assume.feed_forward
        actual = (command * (1.0 + assume.actuator_rel) * _UP + assume.actuator_abs) * _UP
        room = np.minimum(position[..., 0] - limits.position_lower, limits.position_upper - position[..., 1])
        # What holds at every pose holds here, too; of errors in following a motion it knows nothing.
        always = [self._always.get(pair, -np.inf) for pair in clearance.pairs]
        distance = np.maximum(clearance.bounds, always) - self.clearance_margin * _UP
        values = {
            "position": np.where(np.isnan(room), np.nan, room - 1e-15 * (1.0 + np.abs(position).max(axis=-1))),
            "velocity": limits.velocity - speed * _UP,
            "torque": limits.torque - actual * _UP,
            "clearance": distance[:, ~clearance.is_self],
            "self_clearance": distance[:, clearance.is_self],
        }
        joints = tuple((joint, "") for joint in model.joint_names)
        self.labels |= dict.fromkeys(("position", "velocity", "torque"), joints)
        for name, is_self in (("clearance", False), ("self_clearance", True)):
            mine = zip(clearance.pairs, clearance.is_self, strict=True)
            self.labels[name] = tuple(pair for pair, own in mine if own == is_self)
        values["tracking"], self.labels["tracking"] = self._tracking(position, speed, acceleration, jerk)
        return CellMargins(borders, values, clearance.directions)

    def _enclose(self, borders: FloatArray, directions: FloatArray | None) -> None:
        """Torque in other threads, without Python's lock, while this one does the clearance."""
        model, gains = self.model, self.gains
        cells = cells_between(self.trajectory, borders)
        task = TorqueTask(
            model.kinematics,
            self.box,
            cells,
            self._law,
            self._damping,
            gains.inertia_lower,
            model.friction_transition_velocity,
            lead=self._lead,
        )
        others = self.threads - 1
        if others == 0 or cells.count < _WORTH_A_THREAD:
            task.run()
            self.clearance = enclose_clearance(model, self.scene, cells, self._true, directions=directions)
        else:
            cuts = np.linspace(0, cells.count, others + 1).astype(int).tolist()
            with ThreadPoolExecutor(others) as pool:
                running = [pool.submit(task.run, *cuts[i : i + 2]) for i in range(others)]
                self.clearance = enclose_clearance(model, self.scene, cells, self._true, directions=directions)
                for part in running:
                    part.result()
        self.torque = task.enclosure()

    def _tracking(
        self, position: FloatArray, speed: FloatArray, acceleration: FloatArray, jerk: FloatArray
    ) -> tuple[FloatArray, Labels]:
        """Margins (M, ..) of the tracking theorem's hypotheses, or of a measured tube's, with their names."""
        model, gains, box = self.model, self.gains, self.box
        q_mid = position.mean(axis=-1)
        q_half = np.maximum(position[..., 1] - q_mid, q_mid - position[..., 0]) * _UP
        most, jump = (np.abs(x).max(axis=-1) * _UP for x in (acceleration, jerk))
        if isinstance(gains, MeasuredTube):
            # It was measured with desired motions as fast as these; here even the true speed, de included, is no more.
            a = gains.assumptions
            asked = (
                ("velocity", speed * _UP, a.velocity),
                ("acceleration", most, a.acceleration),
                ("jerk", jump, a.jerk),
            )
            found = {name: 1.0 - values / limit for name, values, limit in asked}
        else:
            found = tracking_margins(
                gains,
                model.kinematics,
                box,
                q_mid=q_mid,
                q_half=q_half,
                qd_abs=speed,
                qdd_d_abs=most,
                jerk_d_abs=jump,
                uncertainty=self.torque.measure,
            )
        columns: list[FloatArray] = []
        names: list[tuple[str, str]] = []
        for hypothesis, values in found.items():
            values = np.asarray(values, float)
            if values.ndim == 1:
                columns.append(values[:, None])
                names.append((hypothesis, ""))
            else:
                columns.append(values)
                names += [(hypothesis, joint) for joint in model.joint_names]
        # Friction and sensitivities entered the theorem as those of the gains' own box.
        beyond = np.maximum(gains.box.lower - box.lower, box.upper - gains.box.upper)
        outside = np.flatnonzero(~(beyond <= 0.0))
        if outside.size:
            parameters = model.layout.names(model.joint_names)
            size = np.maximum(np.maximum(np.abs(gains.box.lower), np.abs(gains.box.upper)), 1e-12)
            columns.append(np.broadcast_to(-beyond[outside] / size[outside], (len(speed), outside.size)))
            names += [(f"{parameters[p]} within the box", "the gains") for p in outside]
        return np.concatenate(columns, axis=1), tuple(names)

    def can_gain(self, cells: CellMargins) -> bool:
        """Whether halving the failing cells may help: not if a family fails whose ranges are exact already."""
        for name in FAMILIES:
            values = cells.values[name]
            if name == "tracking":
                exact = [i for i, (what, _) in enumerate(self.labels[name]) if what not in SPLIT_HYPOTHESES]
                values = values[:, exact]
            elif name in SPLIT_FAMILIES:
                continue
            if not np.all(values >= 0.0):
                return False
        return True

    def resolve(self, cells: CellMargins, splits: int) -> CellMargins:
        """Halve cells and what still fails of them, up to ``splits`` times; returns the final cells."""
        done, todo = [], cells
        for _ in range(splits):
            new = self(halves(todo.borders))
            fails = new.failing()
            done.append(new.take(~fails))
            todo = new.take(fails)
            if not np.any(fails):
                break
        return CellMargins.join([*done, todo])


def halves(borders: FloatArray) -> FloatArray:
    """(2 M, 2): cells (M, 2) cut in their middles. Both halves share that float, so nothing is lost between them."""
    middle = 0.5 * (borders[:, 0] + borders[:, 1])
    first, second = np.stack([borders[:, 0], middle], axis=1), np.stack([middle, borders[:, 1]], axis=1)
    return np.concatenate([first, second])


def _widened(ranges: FloatArray, bound: FloatArray) -> FloatArray:
    """Ranges (M, n, 2) plus an error of at most ``bound`` (n,)."""
    lower, upper = ranges[..., 0] - bound, ranges[..., 1] + bound
    slack = 2.0**-51 * (np.abs(lower) + np.abs(upper) + bound)
    return np.stack([lower - slack, upper + slack], axis=-1)
