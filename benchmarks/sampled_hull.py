"""Hulls from inside: extreme torques and positions in a time cell, found by ascent over time and tracking error.

Floating-point regressors of :mod:`safe_sysid.dynamics` and kinematics, which share no code with the enclosures.
What is found was reached by a real state, so it is a lower bound of the true hull: ratios to it are upper bounds of
what an enclosure gives away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.dynamics import dynamics_of
from safe_sysid.reachability.cells import TimeCells, TrackingSet
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.quintic import QuinticTrajectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "test"))

from reachability_attack import sample_symbols, states_of

__all__ = ["Motion", "point_hull", "torque_hull"]

FloatArray = NDArray[np.float64]
Values = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Motion:
    """What states in a cell can be.

    Attributes:
        trajectory: desired.
        cells: of time.
        tracking: errors.
    """

    trajectory: QuinticTrajectory
    cells: TimeCells
    tracking: TrackingSet

    def states(self, borders: FloatArray, x: FloatArray) -> tuple[FloatArray, ...]:
        """q, qd, qd_a, qdd_a, r (N, n) for symbols (N, 1 + 2 n) in cells with borders (N, 2)."""
        return states_of(self.trajectory, borders, self.tracking, x)


def torque_hull(
    kin: Kinematics,
    box: ParameterBox,
    motion: Motion,
    damping: ArrayLike,
    friction_transition: float,
    which: ArrayLike,
    rng: np.random.Generator,
    parts: bool = False,
) -> tuple[FloatArray, ...]:
    """(C, n, 2): smallest and largest commanded torque found in the cells ``which`` (C,), N m.

    The worst parameters for a state are a corner of the box, in closed form. ``parts``: two results instead, the hull
    (C, n, 2) of ``W_s mid + K_d r`` alone and the largest ``sum_p |W_jp| rad_p`` (C, n).
    """
    damping, n = np.asarray(damping, float), len(kin.axis)

    def values(borders: FloatArray, x: FloatArray) -> FloatArray:
        q, qd, qd_a, qdd_a, r = motion.states(borders, x)
        w = dynamics_of(kin).slotine_li_regressor(q, qd, qd_a, qdd_a, friction_transition)
        nominal, spread = w @ box.mid + damping * r, np.abs(w) @ box.rad
        if parts:
            return np.concatenate([nominal, -nominal, spread], axis=1)
        return np.concatenate([nominal + spread, spread - nominal], axis=1)

    best = _climb(values, (3 if parts else 2) * n, motion, which, rng)
    hull = np.stack([-best[:, n : 2 * n], best[:, :n]], axis=-1)
    return (hull, best[:, 2 * n :]) if parts else (hull,)


def point_hull(
    kin: Kinematics,
    joints: ArrayLike,
    points: ArrayLike,
    motion: Motion,
    which: ArrayLike,
    rng: np.random.Generator,
) -> FloatArray:
    """(C, P, 3, 2): box around the positions found of points (P, 3) on frames ``joints`` (P,), in cells (C,), m."""
    joints, points = np.asarray(joints, int), np.asarray(points, float)

    def values(borders: FloatArray, x: FloatArray) -> FloatArray:
        rotations, origins = forward_kinematics(kin, motion.states(borders, x)[0])
        world = np.einsum("npij,pj->npi", rotations[:, joints], points) + origins[:, joints]
        flat = world.reshape(len(x), -1)
        return np.concatenate([flat, -flat], axis=1)

    best = _climb(values, 6 * len(joints), motion, which, rng, with_r=False).reshape(-1, 2, len(joints), 3)
    return np.stack([-best[:, 1], best[:, 0]], axis=-1)


def _climb(
    values: Values,
    goals: int,
    motion: Motion,
    which: ArrayLike,
    rng: np.random.Generator,
    with_r: bool = True,
    population: int = 2,
    steps: int = 5,
) -> FloatArray:
    """(C, goals) largest values found, cell by cell.

    Each step jumps to where the linearisation is largest: the goals are nearly linear over a cell, and their extrema
    lie on the border of the symbols' balls.
    """
    n = motion.trajectory.n
    used = 1 + (2 * n if with_r else n)
    out = []
    for cell in np.asarray(which, int):
        border = motion.cells.grid[cell : cell + 2]

        def at(x: FloatArray, border: FloatArray = border) -> FloatArray:
            return values(np.tile(border, (len(x), 1)), x)

        x = sample_symbols(goals * population, n, rng)
        x[: goals + 1] = 0.0
        goal = np.tile(np.arange(goals), population)
        best = at(sample_symbols(64, n, rng)).max(axis=0)
        for _ in range(steps):
            base, h = at(x), 1e-5
            best = np.maximum(best, base.max(axis=0))
            inner = x * (1.0 - 2.0 * h)
            moved = np.repeat(inner[:, None, :], used + 1, axis=1)
            moved[:, np.arange(1, used + 1), np.arange(used)] += h
            near = at(moved.reshape(-1, x.shape[1])).reshape(len(x), used + 1, goals)
            slope = near[np.arange(len(x)), 1:, goal] - near[np.arange(len(x)), :1, goal]
            x = np.zeros_like(x)
            x[:, 0] = np.sign(slope[:, 0])
            for part in (slice(1, n + 1), slice(n + 1, used)):
                size = np.linalg.norm(slope[:, part], axis=1, keepdims=True)
                x[:, part] = slope[:, part] / np.maximum(size, 1e-300) * (1.0 - 1e-15)
        out.append(np.maximum(best, at(x).max(axis=0)))
    return np.array(out)
