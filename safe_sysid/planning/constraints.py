r"""Fast, non-rigorous constraint margins for the optimiser, calibrated by the certificates it gets.

Margins are evaluated at samples in time, without tracking error but with a *reserve* for it, family by family:

========== ======= ===========================================================================================
family     shape   margin (physical unit; negative = violated)
========== ======= ===========================================================================================
position   (n,)    rad to the nearer limit (infinite for continuous joints)
velocity   (n,)    rad/s, limit less |qd|
acceleration (n,)  rad/s^2, what the tracking proof assumes less |qdd|
jerk       (n,)    rad/s^3, the same for the jerk
torque     (n,)    N m, limit less ``|W theta_mid| + |W| rad``: every parameter of the box
tracking   (1,)    sqrt(W/s), what the tracking proof assumes less ``S = sum_p rad_p |W_p|_*``
inertia    (1,)    1, less the share of the assumed inertia bound that the links take
clearance  (1,)    m, arm and payload to the obstacles
self       (1,)    m, arm and payload to themselves
========== ======= ===========================================================================================

A certificate of some k says what the margins really are; :meth:`FastConstraints.calibrate` turns the difference into
the reserve, so near that k the optimiser's limits are the certificate's limits. Nothing here is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from safe_sysid.control.gains import ControllerGains
from safe_sysid.planning.effort import box_effort_kernel, inertia_share_kernel
from safe_sysid.planning.family import Sampler, TrajectoryFamily
from safe_sysid.planning.proximity import (
    BallCover,
    box_distance_kernel,
    cover,
    pair_distance_kernel,
)
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.regressors import kinematics_kernel
from safe_sysid.robot.scene import Scene

__all__ = ["FAMILIES", "FastConstraints", "Margins", "Obstacles"]

FloatArray = NDArray[np.float64]
Margins = dict[str, FloatArray]

FAMILIES = (
    "position",
    "velocity",
    "acceleration",
    "jerk",
    "torque",
    "tracking",
    "inertia",
    "clearance",
    "self",
)
#: Margins beyond this many typical sizes do not matter; keeps infinities out of the optimiser.
_FAR = 10.0
_STEP = 1e-6


@dataclass(frozen=True, eq=False)
class Obstacles:
    """Geometry that the optimiser sees, built once per scene: balls for the arm, boxes for the rest."""

    balls: BallCover
    pairs: NDArray[np.int64]
    rotation: FloatArray
    centre: FloatArray
    half: FloatArray

    @classmethod
    def build(cls, model: RobotModel, scene: Scene) -> Obstacles:
        """Cover the model's bodies with balls and list the pairs that must not touch."""
        balls = cover(model.bodies)
        count = len(scene.boxes)
        return cls(
            balls,
            balls.pairs(model.bodies, model.allowed_pairs),
            np.array([box.rotation for box in scene.boxes]).reshape(count, 3, 3),
            np.array([box.xyz for box in scene.boxes]).reshape(count, 3),
            0.5 * np.array([box.size for box in scene.boxes]).reshape(count, 3),
        )


@dataclass(frozen=True, eq=False)
class FastConstraints:
    """Margins of the trajectories of one family, as a vector that has to be >= 0, with its Jacobian.

    Attributes:
        model, box, gains, family, obstacles: what the margins are about.
        clearance_margin: m, first guess of the distances' reserve; what the certificate asks for.
        samples: number of times looked at, ends included.
        blocks: number of pieces of time; each gives one entry per margin, its worst sample.
        reserve: per family what is taken off the raw margin (same shape), in its unit.
        scale: per family a typical size, by which margins are divided for the optimiser.
    """

    model: RobotModel
    box: ParameterBox
    gains: ControllerGains
    family: TrajectoryFamily
    obstacles: Obstacles
    clearance_margin: float = 0.005
    samples: int = 21
    blocks: int = 5
    reserve: Margins = field(default_factory=dict)
    sampler: Sampler = field(init=False, repr=False)
    scale: Margins = field(init=False, repr=False)
    _edges: NDArray[np.int64] = field(init=False, repr=False)
    _columns: dict[str, slice] = field(init=False, repr=False)
    _reserves: FloatArray = field(init=False, repr=False)
    _scales: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Precompute; fill the reserve with first guesses where none is given."""
        # Not the very end: there the trajectory is at rest already, and its last jerk would be missed.
        times = np.linspace(0.0, self.family.duration * (1.0 - 1e-9), self.samples)
        object.__setattr__(self, "sampler", self.family.sampler(times))
        object.__setattr__(self, "scale", self._typical())
        object.__setattr__(self, "_edges", np.linspace(0, self.samples, self.blocks + 1).astype(np.int64))
        guess = self._first_reserve()
        guess.update(self.reserve)
        object.__setattr__(self, "reserve", guess)
        ends = np.cumsum([self.scale[name].size for name in FAMILIES])
        columns = {
            name: slice(int(end) - self.scale[name].size, int(end))
            for name, end in zip(FAMILIES, ends, strict=True)
        }
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_reserves", np.concatenate([guess[name] for name in FAMILIES]))
        object.__setattr__(self, "_scales", np.concatenate([self.scale[name] for name in FAMILIES]))

    def _first_reserve(self) -> Margins:
        """What the tracking error may cost: K_d r plus the feed-forward's change, as if joints did not couple."""
        g = self.gains
        rotor = self.box.upper[12 * self.model.n : 13 * self.model.n]
        one = np.zeros(1)
        return {
            "position": g.e_bound.copy(),
            "velocity": g.de_bound.copy(),
            "acceleration": np.zeros(self.model.n),
            "jerk": np.zeros(self.model.n),
            "torque": (g.K_d + 2.0 * g.K_r * rotor) * g.r_bound,
            "tracking": one + 0.02 * g.assumptions.uncertainty,
            "inertia": one + 0.05,
            "clearance": one + self.clearance_margin,
            "self": one + self.clearance_margin,
        }

    def _typical(self) -> Margins:
        """Typical size of each margin, by which it is divided for the optimiser."""
        a, limits = self.gains.assumptions, self.model.limits
        one = np.ones(1)
        return {
            "position": np.full(self.model.n, 0.3),
            "velocity": 0.3 * limits.velocity,
            "acceleration": 0.3 * a.acceleration,
            "jerk": 0.3 * a.jerk,
            "torque": 0.1 * limits.torque,
            "tracking": one * 0.2 * a.uncertainty,
            "inertia": one * 0.3,
            "clearance": one * 0.05,
            "self": one * 0.05,
        }

    def with_reserve(self, reserve: Mapping[str, FloatArray]) -> FastConstraints:
        """The same with other reserves."""
        merged = {**self.reserve, **{name: np.asarray(value, float) for name, value in reserve.items()}}
        return FastConstraints(
            self.model,
            self.box,
            self.gains,
            self.family,
            self.obstacles,
            self.clearance_margin,
            self.samples,
            self.blocks,
            merged,
        )

    def raw(self, k: FloatArray) -> Margins:
        """Worst raw margin over time of every family, without reserve."""
        worst = self._by_time(np.asarray(k, float)[None], gradient=False)[0][0].min(axis=0)
        return {name: worst[columns] for name, columns in self._columns.items()}

    def calibrate(self, k: FloatArray, certified: Mapping[str, FloatArray]) -> FastConstraints:
        """Reserves that reproduce the certificate's margins at k; families that it does not report keep theirs."""
        raw = self.raw(k)
        reserve: Margins = {}
        for name, margin in certified.items():
            if name not in raw:
                continue
            old, margin = self.reserve[name], np.asarray(margin, float)
            known = np.isfinite(raw[name]) & np.isfinite(margin)
            if margin.size == 1 and raw[name].size > 1:
                # Only the worst joint's margin is known: move all joints' reserves by as much.
                found = old + (np.min(raw[name] - old) - margin if np.all(np.isfinite(margin)) else 0.0)
            else:
                found = np.where(known, np.where(known, raw[name], 0.0) - np.where(known, margin, 0.0), old)
            reserve[name] = found
        return self.with_reserve(reserve)

    def values(self, k: FloatArray) -> FloatArray:
        """Scaled margins (m,), feasible when all are >= 0."""
        return self.batch(np.asarray(k, float)[None])[0]

    def batch(self, ks: FloatArray) -> FloatArray:
        """Scaled margins (B, m) of several parameters (B, n)."""
        return self._worst(self._by_time(np.asarray(ks, float), gradient=False)[0])[0]

    def values_and_jacobian(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Scaled margins (m,) and their derivatives (m, n): forward differences, for distances by geometry."""
        k = np.asarray(k, float)
        n = self.family.n
        ks = np.concatenate([k[None], k[None] + _STEP * np.eye(n)])
        by_time, slopes = self._by_time(ks, gradient=True)
        values, where = self._worst(by_time[:1])
        # Infinite margins (continuous joints) have no slope.
        finite = np.minimum(by_time, 1e6)
        change = (finite[1:] - finite[:1]) / _STEP
        slope = np.take_along_axis(change, np.broadcast_to(where, (n, *where.shape[1:])), axis=1)
        for name, by_k in slopes.items():
            column = self._columns[name].start
            slope[:, :, column] = by_k[where[0, :, column]].T
        jacobian = (slope / self._scales).reshape(n, -1).T
        jacobian[values[0] >= _FAR] = 0.0
        return values[0], jacobian

    def restore(self, k: FloatArray, steps: int = 12, cushion: float = 0.05) -> FloatArray:
        """Move k until all margins hold, or as far as that goes: damped Gauss-Newton on what is violated."""
        k = np.clip(np.asarray(k, float), -1.0, 1.0)
        values, jacobian = self.values_and_jacobian(k)
        damping = 1e-2
        for _ in range(steps):
            if values.min() >= 0.0:
                break
            short = np.minimum(values - cushion, 0.0)
            near = jacobian[short < 0.0]
            step = np.linalg.solve(near.T @ near + damping * np.eye(len(k)), -near.T @ short[short < 0.0])
            trial = np.clip(k + np.clip(step, -0.5, 0.5), -1.0, 1.0)
            trial_values, trial_jacobian = self.values_and_jacobian(trial)
            if np.sum(np.minimum(trial_values - cushion, 0.0) ** 2) < np.sum(short**2):
                k, values, jacobian, damping = trial, trial_values, trial_jacobian, max(0.3 * damping, 1e-4)
            else:
                damping *= 10.0
        return k

    def _worst(self, by_time: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
        """Worst sample per block of (B, samples, c): scaled (B, blocks c), and its index (B, blocks, c)."""
        where = np.stack([by_time[:, a:b].argmin(axis=1) + a for a, b in pairwise(self._edges)], axis=1)
        worst = np.take_along_axis(by_time, where, axis=1)
        scaled = np.minimum((worst - self._reserves) / self._scales, _FAR)
        return scaled.reshape(len(by_time), -1), where

    def _by_time(self, ks: FloatArray, gradient: bool) -> tuple[FloatArray, Margins]:
        """Raw margins (B, samples, c) of all families; slopes (samples, n) of the distances of the first k, if asked.

        With slopes asked for, distances are those of the first k for all.
        """
        model, count, n = self.model, len(ks), self.family.n
        states = [self.sampler(k) for k in ks]
        q, qd, qdd = (np.concatenate([state[i] for state in states]) for i in range(3))
        jerk = self.sampler.jerk(ks)

        limits, assume = model.limits, self.gains.assumptions
        kin = model.kinematics
        effort, measure = np.empty((len(q), n)), np.empty(len(q))
        box_effort_kernel(
            *kin,
            q,
            qd,
            qdd,
            model.friction_transition_velocity,
            self.box.mid,
            self.box.rad,
            self.gains.inertia_lower,
            effort,
            measure,
        )
        r, p = np.empty((len(q), n, 3, 3)), np.empty((len(q), n, 3))
        kinematics_kernel(kin.rotation, kin.translation, kin.axis, q, r, p)
        share = np.empty(len(q))
        spare = np.maximum(assume.inertia_upper - self.box.upper[12 * n : 13 * n], 1e-9)
        inertia_share_kernel(kin.axis, r, p, self.box.mid, self.box.rad, spare, share)
        # Distances have exact slopes, so of the perturbed parameters only the first one is needed.
        looked_at = slice(0, self.samples if gradient else len(q))
        distance, slope = self._distances(r[looked_at], p[looked_at])
        times = len(q) // len(distance["self"])
        margins = {
            "position": np.minimum(q - limits.position_lower, limits.position_upper - q),
            "velocity": np.minimum(limits.velocity, assume.velocity) - np.abs(qd),
            "acceleration": assume.acceleration - np.abs(qdd),
            "jerk": assume.jerk - np.abs(jerk),
            "torque": limits.torque - effort,
            "tracking": (assume.uncertainty - measure)[:, None],
            "inertia": (1.0 - share)[:, None],
            **{name: np.tile(value, times)[:, None] for name, value in distance.items()},
        }
        by_time = np.concatenate([margins[name] for name in FAMILIES], axis=1).reshape(
            count, self.samples, -1
        )
        by_k = self.sampler.basis[0][:, None] * self.family.k_range
        return by_time, {name: value * by_k for name, value in slope.items()} if gradient else {}

    def _distances(self, r: FloatArray, p: FloatArray) -> tuple[Margins, Margins]:
        axis, o, count, n = self.model.kinematics.axis, self.obstacles, len(r), self.family.n
        value = {name: np.full(count, 1e3) for name in ("clearance", "self")}
        slope = {name: np.zeros((count, n)) for name in ("clearance", "self")}
        b = (o.balls.joint, o.balls.centre, o.balls.radius)
        e = self.gains.e_bound
        if len(o.half):
            box_distance_kernel(
                axis, r, p, *b, o.rotation, o.centre, o.half, e, value["clearance"], slope["clearance"]
            )
        if len(o.pairs):
            pair_distance_kernel(axis, r, p, *b, o.pairs, e, value["self"], slope["self"])
        return value, slope
