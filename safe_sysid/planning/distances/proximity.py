"""Cheap signed distances for the optimiser: bodies as balls, obstacles as they are. Approximate, with exact gradients.

The certificate uses the true convex bodies; this only has to point the right way. What it gets wrong at a candidate is
measured against the certificate there and added as a reserve, see :mod:`safe_sysid.planning.optimiser.constraints`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.planning.distances.balls import BallCover, cover
from safe_sysid.planning.distances.solids import EDGE, FACE, VERTEX, Solids, solid_distance
from safe_sysid.reachability.every_pose import settled_pairs
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["FAR_AWAY", "SEARCH_DISTANCE", "Distances", "Proximity"]

#: Distances beyond SEARCH_DISTANCE are not looked for, m; they count as FAR_AWAY.
SEARCH_DISTANCE = 0.5
FAR_AWAY = 1000.0


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances at N samples, m, less the tracking error's reach, with exact derivatives; :data:`FAR_AWAY` when far."""

    clearance: FloatArray  #: (N, F) smallest distance of each frame's bodies to any obstacle
    clearance_slope: FloatArray  #: (N, F, n) its derivative by the joints, m/rad
    self_clearance: FloatArray  #: (N, 1) smallest distance of the arm to itself
    self_slope: FloatArray  #: (N, 1, n) its derivative


class Poses(NamedTuple):
    """N configurations, and the tracking error."""

    axis: FloatArray  #: (n, 3) joint axes
    r: FloatArray  #: (N, n, 3, 3) rotations of the joint frames in the world
    p: FloatArray  #: (N, n, 3) their origins, m
    e_bound: FloatArray  #: (n,) tracking error, rad


class Balls(NamedTuple):
    """The bodies' balls, sorted by frame and by body: B of them."""

    joint: IntArray  #: (B,) frame of each
    centre: FloatArray  #: (B, 3) in it, and (B,), m
    radius: FloatArray  #: (B, 3) in it, and (B,), m
    owner: IntArray  #: (B,) body of each
    frames: IntArray  #: (F,) indices of the joint frames that have bodies
    around: FloatArray  #: (F, 4) centre and radius of a ball around all of a frame
    first: IntArray  #: (F + 1,) balls of each frame
    extent: IntArray  #: balls of each body, one number more than bodies
    whole: FloatArray  #: (bodies, 4) centre and radius of a ball around all of a body
    pairs: IntArray  #: (P, 2) bodies whose distance is looked at
    allowed: BoolArray  #: (bodies, obstacles) that may touch


@dataclass(frozen=True, eq=False)
class Proximity:
    """Arm and obstacles as the optimiser sees them; built once per scene."""

    frames: IntArray  #: (F,) indices of the joint frames that have bodies
    axis: FloatArray  #: (n, 3) joint axes
    balls: BallCover  #: that stand for the bodies, as :mod:`safe_sysid.planning.distances.balls` has them
    #: pairs of the arm's bodies, in the order of certificates, that are left out: no motion changes them, or brings
    #: them nearer than is asked for
    settled: frozenset[tuple[str, str]]
    _balls: Balls
    _solids: Solids

    @classmethod
    def build(cls, model: RobotModel, scene: Scene, margin: float | None = None) -> Proximity:
        """Cover the model's bodies with balls, sort them by frame, and prepare the scene's obstacles.

        ``margin``: smallest distance that certificates will ask for, m; None for the model's setting.

        Raises:
            ConfigError: the arm has a prismatic joint.
        """
        if np.any(model.kinematics.sliding):
            model.require_turning("planning")
        bodies = sorted(model.bodies, key=lambda body: body.joint)  # frames' balls are rows one after another
        balls = cover(bodies)
        frames = np.unique(balls.joint[balls.joint >= 0])
        first = np.searchsorted(balls.joint, np.append(frames, model.n))
        around = [_ball_around(balls.centre[a:b], balls.radius[a:b]) for a, b in pairwise(first)]
        obstacles = scene.bodies()
        allowed = np.array(
            [[frozenset((o.name, b.name)) in scene.allowed_pairs for o in obstacles] for b in bodies], dtype=bool
        ).reshape(len(bodies), len(obstacles))
        extent = np.searchsorted(balls.body, np.arange(len(bodies) + 1))
        whole = [_ball_around(balls.centre[a:b], balls.radius[a:b]) for a, b in pairwise(extent)]
        settled = settled_pairs(model, model.settings.planner.clearance_margin if margin is None else margin)
        left_out = model.allowed_pairs | {frozenset(pair) for pair in settled}
        pairs = [
            (i, k)
            for i in range(len(bodies))
            for k in range(i)
            if bodies[i].joint != bodies[k].joint and frozenset((bodies[i].name, bodies[k].name)) not in left_out
        ]
        return cls(
            frames,
            np.array(model.kinematics.axis),
            balls,
            settled,
            Balls(
                balls.joint,
                balls.centre,
                balls.radius,
                balls.body,
                frames,
                np.array(around, dtype=float).reshape(-1, 4),
                first.astype(np.int64),
                extent.astype(np.int64),
                np.array(whole, dtype=float).reshape(-1, 4),
                np.array(pairs, dtype=np.int64).reshape(-1, 2),
                allowed,
            ),
            Solids.of(obstacles),
        )

    def distances(self, r: FloatArray, p: FloatArray, e_bound: FloatArray) -> Distances:
        """Distances at N configurations.

        Args:
            r: (N, n, 3, 3) rotations of the joint frames in the world, of :func:`forward_kinematics`.
            p: (N, n, 3) their origins, m.
            e_bound: (n,) tracking error, rad; what it can cost to first order is taken off.
        """
        count, n = len(r), len(self.axis)
        value, slope = np.empty((count, len(self.frames))), np.zeros((count, len(self.frames), n))
        own, own_slope = np.empty((count, 1)), np.zeros((count, 1, n))
        poses = Poses(self.axis, r, p, np.array(e_bound, float))  # a copy: kernels compile anew for what is read-only
        clearance_kernel(poses, self._balls, self._solids, value, slope)
        self_kernel(poses, self._balls, own, own_slope)
        return Distances(value, slope, own, own_slope)


def _ball_around(centre: FloatArray, radius: FloatArray) -> tuple[float, float, float, float]:
    middle = 0.5 * (centre.min(axis=0) + centre.max(axis=0))
    reach = float((np.linalg.norm(centre - middle, axis=1) + radius).max())
    return float(middle[0]), float(middle[1]), float(middle[2]), reach


@njit(cache=True, nogil=True)
def _velocities(
    r: FloatArray, p: FloatArray, axis: FloatArray, joint: int, x: FloatArray, z: FloatArray, v: FloatArray
) -> None:
    """Joint axes z (n, 3) in the world, and velocities v (n, 3) of a point of frame ``joint`` per unit joint speed."""
    for i in range(axis.shape[0]):
        if i > joint:
            v[i] = 0.0
            continue
        for k in range(3):
            z[i, k] = r[i, k, 0] * axis[i, 0] + r[i, k, 1] * axis[i, 1] + r[i, k, 2] * axis[i, 2]
        d0, d1, d2 = x[0] - p[i, 0], x[1] - p[i, 1], x[2] - p[i, 2]
        v[i, 0] = z[i, 1] * d2 - z[i, 2] * d1
        v[i, 1] = z[i, 2] * d0 - z[i, 0] * d2
        v[i, 2] = z[i, 0] * d1 - z[i, 1] * d0


@njit(cache=True, nogil=True)
def _triple(a: FloatArray, b: FloatArray, c: FloatArray) -> float:
    """``(a x b) . c``."""
    return (a[1] * b[2] - a[2] * b[1]) * c[0] + (a[2] * b[0] - a[0] * b[2]) * c[1] + (a[0] * b[1] - a[1] * b[0]) * c[2]


@njit(cache=True, nogil=True)
def _bend(u: FloatArray, w: FloatArray, normal: FloatArray, tangent: FloatArray, feature: int, length: float) -> float:
    """``u . H w`` with the distance's second derivative H at a distance ``length`` from its nearest feature."""
    if feature == FACE:
        return 0.0
    both, un, wn, ut, wt = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(3):
        both += u[i] * w[i]
        un += u[i] * normal[i]
        wn += w[i] * normal[i]
        ut += u[i] * tangent[i]
        wt += w[i] * tangent[i]
    return (both - un * wn - (ut * wt if feature == EDGE else 0.0)) / length


@njit(cache=True, nogil=True)
def _less_tracking(
    value: float,
    normal: FloatArray,
    tangent: FloatArray,
    feature: int,
    length: float,
    e_bound: FloatArray,
    z: FloatArray,
    v: FloatArray,
    joint: int,
    v_other: FloatArray,
    other: int,
    slope: FloatArray,
) -> float:
    """``value - sum_i e_i |s_i|`` for ``s_i = n . (v_i - v_other_i)``, and its derivative by the joints in ``slope``.

    ``d (n . v_i) / d q_k = (z_a x v_b) . n + v_i . H v_k`` with a, b the smaller and the larger of i and k.
    """
    n = slope.shape[0]
    last = max(joint, other)
    s, u = np.zeros(n), np.zeros((n, 3))
    for i in range(last + 1):
        for k in range(3):
            u[i, k] = v[i, k] - v_other[i, k]
            s[i] += normal[k] * u[i, k]
    for k in range(n):
        slope[k] = s[k]
    for i in range(last + 1):
        if e_bound[i] == 0.0 or s[i] == 0.0:
            continue
        reach = e_bound[i] if s[i] > 0.0 else -e_bound[i]
        value -= reach * s[i]
        for k in range(last + 1):
            a, b = min(i, k), max(i, k)
            change = _bend(u[i], u[k], normal, tangent, feature, length)
            if b <= joint:
                change += _triple(z[a], v[b], normal)
            if b <= other:
                change -= _triple(z[a], v_other[b], normal)
            slope[k] -= reach * change
    return value


@njit(cache=True, nogil=True)
def clearance_kernel(poses: Poses, balls: Balls, solids: Solids, value: FloatArray, slope: FloatArray) -> None:
    """Fill ``value`` (N, F) and ``slope`` (N, F, n): see :class:`Distances`.

    Frame by frame: obstacles whose ball is beyond the frame's ball by more than the best so far cost one comparison,
    and so do balls; the nearest pair of the last sample is looked at first.
    """
    axis, r, p, e_bound = poses
    frames, around, first, allowed = balls.frames, balls.around, balls.first, balls.allowed
    centre, radius, owner = balls.centre, balls.radius, balls.owner
    solid_around, solid_radius, ends, rows, triangles, planes = solids
    n, count, frame_count, solid_count = axis.shape[0], r.shape[0], frames.shape[0], solid_around.shape[0]
    work, middle, x = np.zeros((4, 3)), np.zeros(3), np.zeros(3)
    z, v, still = np.zeros((n, 3)), np.zeros((n, 3)), np.zeros((n, 3))
    near_ball, near_solid = np.full(frame_count, -1), np.full(frame_count, -1)
    for m in range(count):
        for f in range(frame_count):
            j = frames[f]
            best, ball, solid = SEARCH_DISTANCE, -1, -1
            for turn in range(2):
                if turn == 0 and near_ball[f] < 0:
                    continue
                if turn == 1:
                    _move(r[m, j], p[m, j], around[f], middle)
                for o in range(solid_count):
                    if turn == 0 and o != near_solid[f]:
                        continue
                    if turn == 1 and _apart(middle, solid_around[o], best + around[f, 3] + solid_around[o, 3]):
                        continue
                    start, stop = rows[o], rows[o + 1]
                    if turn == 1 and _beyond(middle, planes, start, stop, best + around[f, 3] + solid_radius[o]):
                        continue
                    for b in range(first[f], first[f + 1]):
                        if (turn == 0 and b != near_ball[f]) or allowed[owner[b], o]:
                            continue
                        _move(r[m, j], p[m, j], centre[b], x)
                        if _apart(x, solid_around[o], best + radius[b] + solid_around[o, 3]) or _beyond(
                            x, planes, start, stop, best + radius[b] + solid_radius[o]
                        ):
                            continue
                        d, _ = solid_distance(
                            x, solid_radius[o], ends[o], triangles[start:stop], planes[start:stop],
                            best + radius[b], work,
                        )  # fmt: skip
                        if d - radius[b] < best:
                            best, ball, solid = d - radius[b], b, o
            near_ball[f], near_solid[f] = ball, solid
            value[m, f] = FAR_AWAY
            slope[m, f] = 0.0
            if ball >= 0:
                solid_rows = slice(rows[solid], rows[solid + 1])
                _move(r[m, j], p[m, j], centre[ball], x)
                d, feature = solid_distance(
                    x, solid_radius[solid], ends[solid], triangles[solid_rows], planes[solid_rows], 1e29, work
                )
                _velocities(r[m], p[m], axis, j, x, z, v)
                value[m, f] = _less_tracking(
                    best, work[0], work[1], feature, d + solid_radius[solid], e_bound, z, v, j, still, -1,
                    slope[m, f],
                )  # fmt: skip


@njit(cache=True, nogil=True)
def self_kernel(poses: Poses, balls: Balls, value: FloatArray, slope: FloatArray) -> None:
    """Fill ``value`` (N, 1) and ``slope`` (N, 1, n) with the smallest distance of the pairs of bodies (P, 2)."""
    axis, r, p, e_bound = poses
    joint, centre, radius = balls.joint, balls.centre, balls.radius
    extent, whole, pairs = balls.extent, balls.whole, balls.pairs
    n = axis.shape[0]
    world, middle = np.zeros((joint.shape[0], 3)), np.zeros((whole.shape[0], 3))
    z, v, v_other = np.zeros((n, 3)), np.zeros((n, 3)), np.zeros((n, 3))
    normal, last_a, last_b = np.zeros(3), -1, -1
    for m in range(r.shape[0]):
        for b in range(joint.shape[0]):
            _place_one(r[m], p[m], joint[b], centre[b], world[b])
        for i in range(whole.shape[0]):
            _place_one(r[m], p[m], joint[extent[i]], whole[i], middle[i])
        best, first, second = SEARCH_DISTANCE, -1, -1
        if last_a >= 0:
            best = _gap(world[last_a], world[last_b]) - radius[last_a] - radius[last_b]
            first, second = last_a, last_b
            if not best < SEARCH_DISTANCE:
                best, first, second = SEARCH_DISTANCE, -1, -1
        for c in range(pairs.shape[0]):
            i, k = pairs[c, 0], pairs[c, 1]
            if _apart(middle[i], middle[k], best + whole[i, 3] + whole[k, 3]):
                continue
            for a in range(extent[i], extent[i + 1]):
                if _apart(world[a], middle[k], best + radius[a] + whole[k, 3]):
                    continue
                for b in range(extent[k], extent[k + 1]):
                    if _apart(world[a], world[b], best + radius[a] + radius[b]):
                        continue
                    d = _gap(world[a], world[b]) - radius[a] - radius[b]
                    if d < best:
                        best, first, second = d, a, b
        last_a, last_b = first, second
        value[m, 0] = FAR_AWAY
        slope[m, 0] = 0.0
        if first >= 0:
            length = max(best + radius[first] + radius[second], 1e-9)
            for i in range(3):
                normal[i] = (world[first, i] - world[second, i]) / length
            _velocities(r[m], p[m], axis, joint[second], world[second], z, v_other)
            _velocities(r[m], p[m], axis, max(joint[first], joint[second]), world[first], z, v)
            for i in range(joint[first] + 1, n):
                v[i] = 0.0
            value[m, 0] = _less_tracking(
                best, normal, normal, VERTEX, length, e_bound, z, v, joint[first], v_other, joint[second],
                slope[m, 0],
            )  # fmt: skip


@njit(cache=True, nogil=True)
def _move(r: FloatArray, p: FloatArray, point: FloatArray, out: FloatArray) -> None:
    for i in range(3):
        out[i] = p[i] + r[i, 0] * point[0] + r[i, 1] * point[1] + r[i, 2] * point[2]


@njit(cache=True, nogil=True)
def _place_one(r: FloatArray, p: FloatArray, joint: int, point: FloatArray, out: FloatArray) -> None:
    if joint < 0:
        for i in range(3):
            out[i] = point[i]
    else:
        _move(r[joint], p[joint], point, out)


@njit(cache=True, nogil=True)
def _gap(a: FloatArray, b: FloatArray) -> float:
    return np.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2)


@njit(cache=True, nogil=True)
def _beyond(x: FloatArray, planes: FloatArray, start: int, stop: int, reach: float) -> bool:
    """Whether a point is at least ``reach`` beyond one of some planes."""
    for f in range(start, stop):
        if planes[f, 0] * x[0] + planes[f, 1] * x[1] + planes[f, 2] * x[2] - planes[f, 3] >= reach:
            return True
    return False


@njit(cache=True, nogil=True)
def _apart(a: FloatArray, b: FloatArray, reach: float) -> bool:
    """Whether two points are at least ``reach`` apart."""
    square = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2
    return reach <= 0.0 or square >= reach * reach
