"""Attack on clearances and obstacles: how near bodies can really come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.reachability.cells import TimeCells
from safe_sysid.reachability.clearance import Clearance, clearance_pairs
from safe_sysid.robot.model import Body
from safe_sysid.robot.scenes.obstacles import PLACEMENT
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.studies.campaign.reachability.case import ReachabilityCase
from safe_sysid.studies.campaign.reachability.distance import nearest_points
from safe_sysid.studies.campaign.reachability.exact import digits, exact, exact_poses, exact_states, number, root
from safe_sysid.studies.campaign.reachability.places import position_only
from safe_sysid.studies.campaign.reachability.record import AttackRecord, climb
from safe_sysid.studies.campaign.reachability.scenery import body_corners

__all__ = ["PairTruth", "attack_clearances", "attack_obstacles"]


@dataclass(frozen=True, eq=False)
class PairTruth:
    """Distance of two bodies at given states, from above. ``first``, ``second``: bodies; joint -1 is the world."""

    case: ReachabilityCase
    first: Body
    second: Body

    def points(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Corners of both in the world for one pose (n,)."""
        model = self.case.model
        return body_corners(model, self.first, q), body_corners(model, self.second, q)

    def weights(self, q: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Distance, and the weights of both bodies' corners that give a pair of nearest points."""
        a, b = self.points(q)
        weight_a, weight_b = np.empty(len(a)), np.empty(len(b))
        core = nearest_points(np.array(a), np.array(b), weight_a, weight_b)
        return core - self.first.radius - self.second.radius, weight_a, weight_b

    def distance(self, q: FloatArray) -> float:
        """Distance at one pose, m; minus the radii where the hulls overlap."""
        return self.weights(q)[0]

    def exact(self, time: float, x: FloatArray) -> Any:
        """Distance, in 40 digits, of the two points that floats found nearest: no less than the true distance."""
        tube = self.case.tube
        q = tube.states(np.array([time]), x[None])[0][0]
        _, weight_a, weight_b = self.weights(q)
        with digits():
            r, p = exact_poses(self.case.model.kinematics, exact_states(tube, time, x).q)
            place = []
            for body, weight in ((self.first, weight_a), (self.second, weight_b)):
                share = exact(weight)
                point = (share / sum(share)) @ exact(body.points)
                place.append(p[body.joint + 1] + r[body.joint + 1] @ point)
            gap = place[0] - place[1]
            radii = number(self.first.radius) + number(self.second.radius)
            return root(gap @ gap) - radii


def _true_reach(obstacle: Any, d: FloatArray) -> FloatArray:
    """How far (N,) an obstacle reaches in directions d (N, 3) of length one, from what it was made of, m."""
    reach: FloatArray = d @ obstacle.xyz
    local = d @ obstacle.rotation
    if obstacle.kind == "box":
        return reach + np.abs(local) @ (0.5 * obstacle.size)
    if obstacle.kind == "sphere":
        return reach + obstacle.radius
    if obstacle.kind == "capsule":
        return reach + 0.5 * obstacle.length * np.abs(local[:, 2]) + obstacle.radius
    if obstacle.kind == "mesh":
        return reach + (local @ obstacle.vertices.T).max(axis=1) + obstacle.error
    return reach + np.abs(local @ obstacle.generators.T).sum(axis=1)


def attack_obstacles(scene: Scene, rng: np.random.Generator, record: AttackRecord, directions: int = 30) -> None:
    """Obstacles as bodies reach as far, in any direction, as what they stand for."""
    for obstacle in scene.obstacles:
        d = rng.normal(size=(directions, 3))
        d /= np.linalg.norm(d, axis=1, keepdims=True)
        reach = _true_reach(obstacle, d)
        body = scene.body(obstacle.name)
        claimed = (d @ body.points.T).max(axis=1) + body.radius

        def where(i: tuple[int, ...], name: str = obstacle.name, d: FloatArray = d) -> dict[str, Any]:
            return {"obstacle": name, "direction": d[i[0]].tolist()}

        record.check("obstacle", claimed + PLACEMENT, reach, where)
        record.samples += directions


def attack_clearances(
    case: ReachabilityCase,
    cells: TimeCells,
    clearance: Clearance,
    rng: np.random.Generator,
    record: AttackRecord,
    tasks: int = 8,
    samples: int = 60,
) -> tuple[FloatArray, FloatArray]:
    """Descend on the distance of some pairs in some cells, the nearest pairs first.

    ``samples``: states at which all pairs near each other are looked at.
    Returns times (N,) and symbols (N, size) of the nearest approaches.
    """
    tube = case.tube
    shapes, pairs = clearance_pairs(case.model, case.scene)
    times, places = [np.zeros(0)], [np.zeros((0, tube.size))]
    if not pairs:
        return times[0], places[0]
    bounds = clearance.bounds
    truths = [PairTruth(case, shapes[a], shapes[b]) for a, b in pairs]

    def check(family: str, pair: int, cell: int, time: float, x: FloatArray, found: float) -> None:
        truth = truths[pair]
        record.check(
            family,
            -float(bounds[cell, pair]),
            -found,
            lambda _: {"cell": cell, "pair": list(clearance.pairs[pair]), "time": time, "symbols": x.tolist()},
            lambda _: -truth.exact(time, x),
            1.0,
        )

    flat = np.argsort(np.where(bounds > 0.0, bounds, np.inf), axis=None)[: max(tasks // 2, 1)]
    chosen = [tuple(int(i) for i in np.unravel_index(k, bounds.shape)) for k in flat]
    chosen += [(int(rng.integers(cells.count)), int(rng.integers(len(pairs)))) for _ in range(tasks - len(chosen))]
    for cell, pair in chosen:
        truth = truths[pair]
        # A bound below zero claims nothing: bodies may overlap.
        if not bounds[cell, pair] > 0.0:
            continue
        borders = np.tile(cells.grid[cell : cell + 2], (2, 1))

        def value(rows: IntArray, x: FloatArray, borders: Any = borders, truth: Any = truth) -> FloatArray:
            q = tube.states(tube.times(borders[rows], x), x).q
            return -np.array([truth.distance(pose) for pose in q])

        x, best = climb(position_only(tube), tube.sample(rng, 2), value, turns=4)
        at = tube.times(borders, x)
        own = "self clearance" if clearance.is_self[pair] else "clearance"
        for i in range(len(x)):
            check(own, pair, cell, float(at[i]), x[i], float(-best[i]))
        middle = truth.distance(tube.states(np.array([0.5 * borders[0].sum()]), 0.0 * x[:1]).q[0])
        moved = middle - bounds[cell, pair]
        record.attacked(own, 1, np.array([(middle + best.max()) / moved]) if moved > 0.0 else None)
        times.append(at)
        places.append(x)
    which = rng.integers(0, cells.count, samples)
    x = tube.sample(rng, samples)
    at = tube.times(np.stack([cells.grid[which], cells.grid[which + 1]], axis=1), x)
    q = tube.states(at, x).q
    for i in range(samples):
        for pair in rng.permutation(len(pairs))[:10]:
            if bounds[which[i], pair] > 0.0:
                found = truths[pair].distance(q[i])
                own = "self clearance" if clearance.is_self[pair] else "clearance"
                check(own, int(pair), int(which[i]), float(at[i]), x[i], found)
    record.samples += samples
    return np.concatenate(times), np.concatenate(places)
