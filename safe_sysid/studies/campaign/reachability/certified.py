"""Attack on a whole certificate: every margin, at every state visited, the controller's own command included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.control.laws.robust import RobustLaw
from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import rotor_ceiling
from safe_sysid.planning.certification.certificate import PlanCertificate
from safe_sysid.reachability.cells import TimeCells
from safe_sysid.reachability.clearance import clearance_pairs
from safe_sysid.studies.campaign.reachability.case import ReachabilityCase
from safe_sysid.studies.campaign.reachability.distances import PairTruth
from safe_sysid.studies.campaign.reachability.exact import digits, exact_states, number
from safe_sysid.studies.campaign.reachability.record import AttackRecord
from safe_sysid.studies.campaign.reachability.torques import TorqueTruth, extreme_times
from safe_sysid.studies.campaign.reachability.tube import desired

__all__ = ["attack_certificate", "corner_points"]


def corner_points(case: ReachabilityCase, cells: TimeCells) -> tuple[FloatArray, FloatArray]:
    """Where single joints' positions and velocities are worst, and rest after the end: times (N,), symbols (N, ..)."""
    tube, n = case.tube, case.n
    every = extreme_times(case, cells)
    ratio = np.where(tube.e > 0.0, tube.e_box / np.where(tube.e > 0.0, tube.e, 1.0), 0.0)
    times, symbols = [], []
    for j in range(n):
        at = np.concatenate([every[0][j], every[1][j]])
        at = np.append(
            at if len(at) < 60 else at[np.linspace(0, len(at) - 1, 60).astype(int)], case.trajectory.duration + 1.0
        )
        for side in (-1.0, 1.0):
            x = np.zeros((len(at), tube.size))
            x[:, 1 + j] = side * ratio[j]
            x[:, 1 + n + j] = -side
            times.append(at)
            symbols.append(x)
    return np.concatenate(times), tube.project(np.concatenate(symbols))


def attack_certificate(
    case: ReachabilityCase,
    certificate: PlanCertificate,
    times: FloatArray,
    x: FloatArray,
    rng: np.random.Generator,
    record: AttackRecord,
    commands: int = 40,
    pairs_each: int = 4,
) -> None:
    """Compare what really happens at some states with the margins of the cell that they are in.

    Args:
        times: (N,) s; after the end is the rest.
        x: (N, size) symbols.
        commands: states at which the controller is asked for its command.
        pairs_each: pairs of bodies looked at in each of ``commands`` states.
    """
    grid, duration = certificate.grid, case.trajectory.duration
    if not (grid[0] == 0.0 and grid[-1] >= duration and np.all(np.diff(grid) > 0.0)):
        record.check("time", np.zeros(1), np.ones(1), lambda _: {"grid": [float(grid[0]), float(grid[-1])]})
    row = np.clip(np.searchsorted(grid, times, side="right") - 1, 0, len(grid) - 2)
    facts = _Facts(case, times, x)
    smooth = ~np.isin(times, case.trajectory.times)
    n = case.n

    def where(at: tuple[int, ...], family: str) -> dict[str, Any]:
        column = at[1] if len(at) > 1 else 0
        return {
            "cell": int(row[at[0]]), "label": certificate.labels[family][column], "time": float(times[at[0]]),
            "symbols": x[at[0]].tolist(),
        }  # fmt: skip

    def compare(
        name: str, family: str, columns: slice, found: FloatArray, exact: Callable[[int, int], Any] | None = None,
        keep: Any = slice(None), size: Any = 0.0,
    ) -> None:  # fmt: skip
        margins = certificate.margins[family][row][:, columns]
        rows = np.arange(len(times))[keep]
        first = columns.start or 0
        record.check(
            f"certified {name}",
            -margins[rows],
            -found[rows],
            lambda at: where((int(rows[at[0]]), at[1] + first), family),
            None if exact is None else lambda at: -exact(int(rows[at[0]]), at[1]),
            size,
        )

    compare("position", "position", slice(0, n), facts.room, facts.exact_room)
    compare("velocity", "velocity", slice(0, n), facts.speed_left, facts.exact_speed_left)
    compare("torque", "torque", slice(0, n), facts.torque_left, facts.exact_torque_left)
    labels = certificate.labels["tracking"]
    compare("hypothesis velocity", "tracking", slice(0, n), facts.velocity_share)
    compare("hypothesis acceleration", "tracking", slice(n, 2 * n), facts.acceleration_share)
    compare("hypothesis jerk", "tracking", slice(2 * n, 3 * n), facts.jerk_share, keep=smooth)
    for name, found in (("uncertainty", facts.uncertainty_share), ("inertia", facts.inertia_share)):
        if (name, "") in labels:
            column = labels.index((name, ""))
            compare(f"hypothesis {name}", "tracking", slice(column, column + 1), found[:, None])
    record.samples += len(times)
    chosen = rng.choice(len(times), min(commands, len(times)), replace=False)
    _commands(case, certificate, facts, chosen, row, rng, record)
    _distances(case, certificate, facts, chosen, row, rng, record, pairs_each)


class _Facts:
    """What happens at some states: what is left to every limit."""

    def __init__(self, case: ReachabilityCase, times: FloatArray, x: FloatArray) -> None:
        self.case, self.times, self.x = case, times, x
        self.truth = TorqueTruth(case)
        self.states = states = case.tube.states(times, x)
        limits, assume = case.model.limits, case.gains.assumptions
        self.room = np.minimum(states.q - limits.position_lower, limits.position_upper - states.q)
        self.speed_left = limits.velocity - np.abs(states.qd)
        nominal, spread, measure = self.truth.parts(states)
        self.torque_left = self.left(np.abs(nominal) + spread)
        self.velocity_share = 1.0 - np.abs(states.qd) / assume.velocity
        self.acceleration_share = 1.0 - np.abs(states.acceleration) / assume.acceleration
        self.jerk_share = 1.0 - np.abs(states.jerk) / assume.jerk
        self.uncertainty_share = 1.0 - measure / assume.uncertainty
        self.inertia_share = 1.0 - _inertia_ratio(case, states.q)
        self._cache: dict[int, Any] = {}

    def left(self, command: FloatArray) -> FloatArray:
        """What a law's command (.., n) leaves of the torque limit to a feed-forward and the actuator's error."""
        assume = self.case.gains.assumptions
        out: FloatArray = self.case.model.limits.torque - (
            (command + assume.feed_forward) * (1.0 + assume.actuator_rel) + assume.actuator_abs
        )
        return out

    def _exact(self, i: int) -> Any:
        if i not in self._cache:
            self._cache[i] = exact_states(self.case.tube, float(self.times[i]), self.x[i])
        return self._cache[i]

    def exact_room(self, i: int, j: int) -> Any:
        """Room to the position limits in 40 digits."""
        q, limits = self._exact(i).q[j], self.case.model.limits
        with digits():
            sides = [q - number(limits.position_lower[j]), number(limits.position_upper[j]) - q]
            return min(sides)

    def exact_speed_left(self, i: int, j: int) -> Any:
        """Room to the velocity limit in 40 digits."""
        with digits():
            return number(self.case.model.limits.velocity[j]) - abs(self._exact(i).qd[j])

    def exact_torque_left(self, i: int, j: int) -> Any:
        """Room to the torque limit in 40 digits."""
        nominal, spread, _ = self.truth.exact(float(self.times[i]), self.x[i])
        assume = self.case.gains.assumptions
        with digits():
            command = abs(nominal[j]) + spread[j] + number(float(assume.feed_forward[j]))
            part = command * (1 + number(float(assume.actuator_rel[j]))) + number(float(assume.actuator_abs[j]))
            return number(self.case.model.limits.torque[j]) - part


def _inertia_ratio(case: ReachabilityCase, q: FloatArray) -> FloatArray:
    """Largest eigenvalue (N,) of the true arm's inertia without rotors, scaled by what the theorem leaves for it."""
    n, box = case.n, case.box
    spare = case.gains.assumptions.inertia_upper - rotor_ceiling(case.model.kinematics, box)
    if not np.all(spare > 0.0):
        return np.full(len(q), -np.inf)
    inertial = box.layout.links
    inertia = np.stack(
        [
            dynamics_of(case.model.kinematics).momentum_regressor(q, np.tile(row, (len(q), 1)))[..., inertial]
            @ case.true[inertial]
            for row in np.eye(n)
        ],
        axis=-1,
    )
    scale = 1.0 / np.sqrt(spare)
    largest = np.linalg.eigvalsh(inertia * scale[:, None] * scale)[:, -1]
    return np.asarray(largest * (1.0 - 1e-12), dtype=float)


def _commands(
    case: ReachabilityCase,
    certificate: PlanCertificate,
    facts: _Facts,
    chosen: IntArray,
    row: IntArray,
    rng: np.random.Generator,
    record: AttackRecord,
) -> None:
    """The controller's own command, with the box or any nested one, and the actuator's worst answer to it."""
    law = RobustLaw(case.model.kinematics, case.gains, case.model.friction_transition_velocity)
    box, margins = case.box, certificate.margins["torque"]
    wanted = desired(case.trajectory, facts.times[chosen])
    for k, i in enumerate(chosen):
        lower, upper = box.lower, box.upper
        if rng.random() < 0.7:  # a later box, or a blend towards it, or one corner
            ends = np.sort(rng.uniform(0.0, 1.0, (2, box.size)), axis=0)
            ends[:, rng.random(box.size) < 0.5] = rng.choice([0.0, 1.0])
            width = upper - lower
            lower, upper = lower + ends[0] * width, np.minimum(lower + ends[1] * width, upper)
        mid, rad = 0.5 * (lower + upper), np.maximum(0.5 * (upper - lower), 0.0)
        torque = np.abs(law.step(0.0, facts.states.q_m[i], facts.states.qd_m[i], wanted[k], ModelInUse(mid, mid, rad)))
        left = facts.left(torque)

        def where(at: tuple[int, ...], i: int = int(i)) -> dict[str, Any]:
            return {"cell": int(row[i]), "joint": at[0], "time": float(facts.times[i]), "symbols": facts.x[i].tolist()}

        record.check("controller's command", -margins[row[i]], -left, where, None, torque)


def _distances(
    case: ReachabilityCase,
    certificate: PlanCertificate,
    facts: _Facts,
    chosen: IntArray,
    row: IntArray,
    rng: np.random.Generator,
    record: AttackRecord,
    each: int,
) -> None:
    shapes, pairs = clearance_pairs(case.model, case.scene)
    if not pairs:
        return
    by_name = {(shapes[a].name, shapes[b].name): PairTruth(case, shapes[a], shapes[b]) for a, b in pairs}
    for family in ("clearance", "self_clearance"):
        labels = certificate.labels[family]
        if not labels:
            continue
        for i in chosen:
            margins = certificate.margins[family][row[i]]
            for column in np.unique([int(np.argmin(margins)), *rng.integers(0, len(labels), each)]):
                bound = margins[column] + case.clearance_margin
                if not bound > 1e-12:
                    continue
                truth = by_name[labels[column]]
                time, x = float(facts.times[i]), facts.x[i]
                found = truth.distance(facts.states.q[i])
                record.check(
                    f"certified {family.replace('_', ' ')}",
                    -float(margins[column]),
                    -(found - case.clearance_margin),
                    lambda _, t=time, x=x, c=int(column), names=labels: {  # type: ignore[misc]
                        "label": names[c], "time": t, "symbols": x.tolist(),
                    },
                    lambda _, truth=truth, t=time, x=x: number(case.clearance_margin) - truth.exact(t, x),  # type: ignore[misc]
                    1.0,
                )  # fmt: skip
