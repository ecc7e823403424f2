r"""Distances of the arm's bodies to each other that hold at every pose: for pairs that at most one joint changes.

A body whose points lie on a joint's axis is not moved by that joint. So the joints between two bodies A and B can be
left out from both ends: the first one if A lies on its axis (A then counts as fixed to the link behind it), the last
one if B does. If none is left the distance never changes; if one is left it is a function of that angle alone, and
bounds over cells of one whole turn bound it for good. A point that misses an axis by :math:`\epsilon` is moved by at
most :math:`2 \epsilon`, so each joint left out costs twice the largest miss of the body's points.

A certificate along a motion loses a little to tracking errors. Where a pair is 5.01 mm apart at its nearest and 5 mm
are asked for, that little refuses poses in which nothing can be wrong; what is known for every pose does not.
The proof: "Every pose" in docs/understand/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.reachability.cells import TrackingSet, cells_between
from safe_sysid.reachability.clearance import NEAR, clearance_pairs, verified_bounds
from safe_sysid.robot.model import Body, Kinematics, RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["bounds_at_every_pose", "joint_between", "settled_pairs"]

_MISS = 1e-9  # m from an axis, at most
_CELLS, _ROUNDS = 48, 24  # of a turn; how often the nearest ones are halved
_WORTH = 5e-4  # m above the smallest bound: cells up to there are halved
_GAIN = 2e-6  # m: where halving brought less, it is done
_FINEST = 1e-4  # of a turn: smaller cells are not halved
_DEEP = -0.06  # m: a pair that seems to overlap by more in cells of the first length is left alone
_STILL = 1e-12  # rad, rad/s: nothing is tracked here
_TURN_S = 10.0
_UP = 1.0 + 1e-12


def joint_between(kin: Kinematics, first: Body, second: Body) -> tuple[int, float] | None:
    """The one joint that changes the distance of two bodies (-1: none), and what leaving others out costs, m.

    Returns None where more than one joint does, or one that slides.
    """
    low, high, cost = first.joint + 1, second.joint, 0.0
    if np.any(kin.sliding[low : high + 1]):
        return None
    a, b = np.asarray(first.points, float), np.asarray(second.points, float)
    while low <= high:
        moved = (a - kin.translation[low]) @ kin.rotation[low]
        by_first, by_last = _miss(moved, kin.axis[low]), _miss(b, kin.axis[high])
        if by_first <= _MISS:
            a, low, cost = moved, low + 1, cost + 2.0 * by_first * _UP
        elif by_last <= _MISS:
            b, high, cost = (b @ kin.rotation[high].T + kin.translation[high], high - 1, cost + 2.0 * by_last * _UP)
        else:
            break
    if low > high:
        return -1, cost
    return (low, cost) if low == high else None


def _miss(points: FloatArray, axis: FloatArray) -> float:
    """Largest distance of points (m, 3) from a line through the origin, with room for rounding."""
    away = points - np.outer(points @ axis, axis)
    return float(np.linalg.norm(away, axis=1).max()) + 1e-14 * (1.0 + float(np.abs(points).max()))


@lru_cache(maxsize=8)
def bounds_at_every_pose(model: RobotModel) -> Mapping[tuple[str, str], float]:
    """Lower bounds, m, of the distances of the arm's bodies that hold for every position of every joint.

    Returns:
        By names, in the order of :func:`~safe_sysid.reachability.clearance.clearance_pairs`; pairs that more than one
        joint changes are left out.
    """
    shapes, pairs = clearance_pairs(model, Scene("nothing around"))
    found: dict[tuple[str, str], float] = {}
    by_joint: dict[int, list[tuple[tuple[int, int], float]]] = {}
    for pair in pairs:
        between = joint_between(model.kinematics, shapes[pair[0]], shapes[pair[1]])
        if between is not None:
            by_joint.setdefault(between[0], []).append((pair, between[1]))
    for joint, entries in by_joint.items():
        bounds = _over_a_turn(model, shapes, [pair for pair, _ in entries], joint)
        for ((a, b), cost), bound in zip(entries, bounds, strict=True):
            found[shapes[a].name, shapes[b].name] = float(np.nextafter(bound - cost * _UP, -np.inf))
    return MappingProxyType(found)


def settled_pairs(model: RobotModel, margin: float) -> frozenset[tuple[str, str]]:
    """Pairs that a search need not look at: no motion changes them, or brings them nearer than ``margin`` (m).

    What never changes and is too near is told by the first check of a start.
    """
    bodies = {body.name: body for body in model.bodies}
    return frozenset(
        (a, b)
        for (a, b), bound in bounds_at_every_pose(model).items()
        if bound >= margin or joint_between(model.kinematics, bodies[a], bodies[b])[0] < 0  # type: ignore[index]
    )


def _over_a_turn(model: RobotModel, shapes: list[Body], pairs: list[tuple[int, int]], joint: int) -> FloatArray:
    """Lower bounds (P,) while one joint makes a whole turn and all others are at zero; joint -1: at rest."""
    n = model.n
    tracking = TrackingSet(np.full(n, _STILL), np.full(n, _STILL), np.ones(n))
    knots = np.zeros((3, 3, n))
    if joint >= 0:  # from a little before a whole turn to a little after it, at constant speed, and then to rest
        speed = 2.0 * np.pi * (1.0 + 1e-6) / _TURN_S
        knots[:, 0, joint] = speed * _TURN_S * np.array([-0.5, 0.5, 1.0])
        knots[:2, 1, joint] = speed
    trajectory = QuinticTrajectory(np.array([0.0, 1.0, 2.0]) * _TURN_S, knots)
    edges = np.linspace(0.0, _TURN_S, _CELLS + 1 if joint >= 0 else 2)
    borders = np.stack([edges[:-1], edges[1:]], axis=1)
    bounds = verified_bounds(model, shapes, pairs, cells_between(trajectory, borders), tracking)
    before = np.full(len(pairs), -np.inf)
    for turn in range(_ROUNDS if joint >= 0 else 0):
        lowest = bounds.min(axis=0)
        # Of what cells that are half as long still call an overlap, less and less can be their width's fault.
        open_pairs = (lowest > _DEEP * 0.5**turn) & (lowest < NEAR) & (lowest > before + _GAIN)
        before = lowest
        split = np.any((bounds <= lowest + _WORTH) & open_pairs, axis=1)
        split &= borders[:, 1] - borders[:, 0] > _FINEST * _TURN_S
        if not np.any(split):
            break
        middle = 0.5 * (borders[split, 0] + borders[split, 1])
        halves = np.concatenate(
            [np.stack([borders[split, 0], middle], axis=1), np.stack([middle, borders[split, 1]], axis=1)]
        )
        found = verified_bounds(model, shapes, pairs, cells_between(trajectory, halves), tracking)
        borders, bounds = np.concatenate([borders[~split], halves]), np.concatenate([bounds[~split], found])
    return np.asarray(bounds.min(axis=0))
