"""Attack on the enclosures: look for states and parameters outside of them, by sampling and by ascent on the violation.

Uses the floating-point regressors and kinematics of :mod:`safe_sysid.dynamics.recursion`, which share no code with the
enclosures. Also measures tightness: the hull of what was found over the width of the enclosure.
"""

from __future__ import annotations

from dataclasses import dataclass

import coal
import numpy as np
from numpy.typing import NDArray

from safe_sysid.dynamics import dynamics_of
from safe_sysid.reachability.cells import TimeCells, TrackingSet
from safe_sysid.reachability.clearance import Clearance, clearance_pairs, coal_core
from safe_sysid.reachability.torque import TorqueEnclosure
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import Body, Kinematics, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["AttackResult", "attack_clearance", "attack_torque", "body_distances", "sample_symbols", "states_of"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class AttackResult:
    """What an attack found.

    Attributes:
        torque, measure, motion: largest excess over the enclosure; at most rounding if the enclosure holds. N m,
            (W/s)^(1/2), rad/s or rad/s^2.
        torque_tightness: (n,) mean over the attacked cells of hull width / enclosure width.
        measure_tightness: mean of the largest S found / its bound.
    """

    torque: float
    measure: float
    motion: float
    torque_tightness: FloatArray
    measure_tightness: float


def sample_symbols(count: int, n: int, rng: np.random.Generator) -> FloatArray:
    """(count, 1 + 2 n) symbols: time in [-1, 1], e and r in unit balls; most of them on the border, some at corners."""
    x = np.empty((count, 1 + 2 * n))
    x[:, 0] = np.where(rng.random(count) < 0.5, rng.choice([-1.0, 1.0], count), rng.uniform(-1, 1, count))
    for part in (slice(1, n + 1), slice(n + 1, None)):
        y = rng.normal(size=(count, n))
        # A third along one axis, a third along a diagonal.
        kind = rng.integers(3, size=count)
        y[kind == 1] = np.sign(y[kind == 1])
        y[kind == 2] *= np.eye(n)[rng.integers(n, size=int(np.sum(kind == 2)))]
        x[:, part] = y * (rng.random((count, 1)) ** 0.05 / np.linalg.norm(y, axis=1, keepdims=True))
    return _project(x, n)


def _project(x: FloatArray, n: int) -> FloatArray:
    x[:, 0] = np.clip(x[:, 0], -1.0, 1.0)
    for part in (slice(1, n + 1), slice(n + 1, None)):
        x[:, part] /= np.maximum(1.0, np.linalg.norm(x[:, part], axis=1, keepdims=True)) * (1.0 + 1e-15)
    return x


def states_of(
    trajectory: QuinticTrajectory, borders: FloatArray, tracking: TrackingSet, x: FloatArray
) -> tuple[FloatArray, ...]:
    """``q, qd, qd_a, qdd_a, r`` (N, n) for symbols (N, 1 + 2 n) in the cells with these borders (N, 2)."""
    n = len(tracking.e)
    times = borders[:, 0] + 0.5 * (x[:, 0] + 1.0) * (borders[:, 1] - borders[:, 0])
    desired = _desired(trajectory, np.clip(times, borders[:, 0], borders[:, 1]))
    e, r = x[:, 1 : n + 1] * tracking.e, x[:, n + 1 :] * tracking.r
    qd_a = desired[:, 1] + tracking.k_r * e
    qdd_a = desired[:, 2] + tracking.k_r * (r - tracking.k_r * e) + tracking.own_damping * r
    return desired[:, 0] - e, qd_a - r, qd_a, qdd_a, r


def states_in(
    borders: FloatArray, trajectory: QuinticTrajectory, tracking: TrackingSet, count: int, rng: np.random.Generator
) -> tuple[FloatArray, ...]:
    """:func:`states_of` for so many random symbols in one cell, with these borders (2,)."""
    return states_of(trajectory, np.tile(borders, (count, 1)), tracking, sample_symbols(count, len(tracking.e), rng))


def _desired(trajectory: QuinticTrajectory, times: FloatArray) -> FloatArray:
    """(N, 3, n) position, velocity, acceleration: :meth:`QuinticTrajectory.state` for many times."""
    segment = np.clip(np.searchsorted(trajectory.times, times, side="right") - 1, 0, len(trajectory.times) - 2)
    local = (times - trajectory.times[segment])[:, None]
    c = np.moveaxis(trajectory.coefficients[segment], -1, 0)
    out = []
    for _ in range(3):
        value = np.zeros_like(c[0])
        for term in c[::-1]:
            value = value * local + term
        out.append(value)
        c = c[1:] * np.arange(1.0, len(c))[:, None, None]
    return np.stack(out, axis=1)


def attack_torque(
    kin: Kinematics,
    box: ParameterBox,
    trajectory: QuinticTrajectory,
    cells: TimeCells,
    tracking: TrackingSet,
    damping: FloatArray,
    inertia_lower: FloatArray,
    friction_transition: float,
    enclosure: TorqueEnclosure,
    rng: np.random.Generator,
    which: FloatArray,
    population: int = 4,
    steps: int = 25,
    lead: float = 0.0,
) -> AttackResult:
    """Climb, in the cells ``which``, on every joint's largest and smallest torque over the box, and on S.

    The worst parameter for given symbols is a known corner of the box, so only the symbols are searched.
    """
    n = len(kin.axis)
    goals = 2 * n + 1

    def values(cell: int, x: FloatArray) -> tuple[FloatArray, tuple[FloatArray, ...]]:
        """(N, 2 n + 1): torque upward, torque downward, S at N symbols."""
        motion = states_of(trajectory, np.tile(cells.grid[cell : cell + 2], (len(x), 1)), tracking, x)
        w = dynamics_of(kin).slotine_li_regressor(
            motion[0] + lead * motion[1], motion[1], motion[2], motion[3], friction_transition
        )
        nominal, spread = w @ box.mid + damping * motion[4], np.abs(w) @ box.rad
        measure = np.sqrt((spread**2 / np.asarray(inertia_lower)).sum(axis=1))
        return np.concatenate([nominal + spread, spread - nominal, measure[:, None]], axis=1), motion

    excess = np.full(3, -np.inf)
    ratios, shares = [], []
    for cell in np.asarray(which, dtype=int):
        x = sample_symbols(goals * population, n, rng)
        goal = np.repeat(np.arange(goals), population)
        rows = np.arange(len(x))
        best = np.full(goals, -np.inf)
        limit = np.concatenate([enclosure.torque[cell, :, 1], -enclosure.torque[cell, :, 0], enclosure.measure[[cell]]])
        for step in range(steps + 1):
            all_values, motion = values(cell, x)
            best = np.maximum(best, all_values.max(axis=0))
            for found, ranges in zip(motion[1:4], (enclosure.qd, enclosure.qd_a, enclosure.qdd_a), strict=True):
                over = np.maximum(ranges[cell, :, 0] - found, found - ranges[cell, :, 1])
                excess[2] = max(excess[2], float(over.max()))
            if step == steps:
                break
            f0, h = all_values[rows, goal], 1e-6
            moved = np.repeat(x[:, None], x.shape[1], axis=1) * (1.0 - 2e-6)
            base, _ = values(cell, moved[:, 0])
            moved[:, np.arange(x.shape[1]), np.arange(x.shape[1])] += h
            near, _ = values(cell, moved.reshape(-1, x.shape[1]))
            slope = near.reshape(len(x), x.shape[1], goals)[rows, :, goal] - base[rows, goal][:, None]
            slope /= np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), 1e-300)
            trial = _project(x + 2.0 * 0.85**step * slope, n)
            better = values(cell, trial)[0][rows, goal] > f0
            x[better] = trial[better]
        excess[0] = max(excess[0], float((best - limit)[: 2 * n].max()))
        excess[1] = max(excess[1], float(best[-1] - limit[-1]))
        width = limit[:n] + limit[n : 2 * n]
        ratios.append((best[:n] + best[n : 2 * n]) / np.where(width > 0.0, width, 1.0))
        shares.append(best[-1] / limit[-1] if limit[-1] > 0.0 else 1.0)
    worst = [float(x) for x in excess]
    return AttackResult(worst[0], worst[1], worst[2], np.mean(ratios, axis=0), float(np.mean(shares)))


def body_distances(kin: Kinematics, first: Body, second: Body, q: FloatArray) -> FloatArray:
    """(N,) distances of two bodies at configurations (N, n), by coal, m; negative where they overlap."""
    rotations, origins = forward_kinematics(kin, q)
    shapes, poses, radius = [], [], 0.0
    for body in (first, second):
        shape, rotation, centre, core = coal_core(body)
        turns, places = np.tile(rotation, (len(q), 1, 1)), np.tile(centre, (len(q), 1))
        if body.joint >= 0:
            turns = rotations[:, body.joint] @ rotation
            places = rotations[:, body.joint] @ centre + origins[:, body.joint]
        shapes.append(shape)
        poses.append([coal.Transform3s(*pose) for pose in zip(turns, places, strict=True)])
        radius += body.radius - core
    found = np.empty(len(q))
    for k, (one, two) in enumerate(zip(*poses, strict=True)):
        result = coal.DistanceResult()
        coal.distance(shapes[0], one, shapes[1], two, coal.DistanceRequest(), result)
        found[k] = result.min_distance - radius
    return found


def attack_clearance(
    model: RobotModel,
    scene: Scene,
    trajectory: QuinticTrajectory,
    cells: TimeCells,
    tracking: TrackingSet,
    clearance: Clearance,
    rng: np.random.Generator,
    which: FloatArray,
    samples: int = 8,
    steps: int = 12,
    nearest: int = 12,
) -> tuple[float, float]:
    """Descend on the distance of the ``nearest`` pairs in the cells ``which``.

    Returns:
        Largest (bound - distance found), m: at most coal's tolerance if the bounds hold; and the median of
        (distance found - bound) over what was attacked, m: how much the bounds give away.
    """
    n, kin = model.n, model.kinematics
    shapes, pairs = clearance_pairs(model, scene)
    worst, gaps = -np.inf, []
    for cell in np.asarray(which, dtype=int):
        order = np.argsort(clearance.bounds[cell])
        # A bound below zero claims nothing that coal's penetration depth could refute.
        for p in order[clearance.bounds[cell][order] > 0.0][:nearest]:
            a, b = (shapes[i] for i in pairs[p])
            borders = cells.grid[cell : cell + 2][None, :]

            def distances(x: FloatArray) -> FloatArray:
                q = states_of(trajectory, np.tile(borders, (len(x), 1)), tracking, x)[0]  # noqa: B023 - in this turn only
                return body_distances(kin, a, b, q)  # noqa: B023

            candidates = sample_symbols(samples, n, rng)
            values = distances(candidates)
            x, found = candidates[int(np.argmin(values))], float(values.min())
            for step in range(steps):
                moved = np.tile(x, (n + 1, 1))
                moved[:, : n + 1] += 1e-4 * np.eye(n + 1)
                slope = np.zeros(len(x))
                slope[: n + 1] = distances(moved) - found
                slope /= max(float(np.linalg.norm(slope)), 1e-300)
                trial = _project((x - 1.5 * 0.8**step * slope)[None, :], n)
                value = float(distances(trial)[0])
                if value < found:
                    x, found = trial[0], value
            worst = max(worst, clearance.bounds[cell, p] - found)
            gaps.append(found - clearance.bounds[cell, p])
    return float(worst), float(np.median(gaps)) if gaps else 0.0
