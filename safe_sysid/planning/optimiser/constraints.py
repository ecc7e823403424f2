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
clearance  (F,)    m, arm and payload to the obstacles, by moving joint frame
self_clearance (1,) m, arm and payload to themselves
========== ======= ===========================================================================================

The first four depend on one joint's k each, and linearly: they are bounds on k, exact for all samples at once
(:meth:`FastConstraints.bounds`). The others are linearised at the worst sample of each piece of time.

A certificate of some k says what the margins really are; :meth:`FastConstraints.calibrate` turns the difference into
the reserve, so near that k the optimiser's limits are the certificate's limits. Nothing here is trusted.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from safe_sysid.control.tube import TrackingTube, torque_reserve
from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics.magnitudes import rotor_ceiling
from safe_sysid.planning.distances.proximity import Proximity
from safe_sysid.planning.optimiser.effort import box_effort_kernel, effort_slopes, inertia_share_kernel, share_slopes
from safe_sysid.planning.optimiser.family import Sampler, TrajectoryFamily
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["FAMILIES", "LINEAR", "FastConstraints", "Margins"]

Margins = dict[str, FloatArray]

LINEAR = ("position", "velocity", "acceleration", "jerk")
_BENT = ("torque", "tracking", "inertia", "clearance", "self_clearance")
FAMILIES = (*LINEAR, *_BENT)
#: Margins beyond this many typical sizes do not matter; keeps infinities out of the optimiser.
_FAR = 10.0


@dataclass(frozen=True, eq=False)
class FastConstraints:
    """Margins of the trajectories of one family, as a vector that has to be >= 0, with its Jacobian.

    The vector: the bent families' worst margin in each piece of time, then the linear families' over all times.
    """

    model: RobotModel  #: what the margins are about
    box: ParameterBox  #: what the margins are about
    gains: TrackingTube  #: what the margins are about
    family: TrajectoryFamily  #: what the margins are about
    proximity: Proximity
    clearance_margin: float = 0.005  #: m, first guess of the distances' reserve; what the certificate asks for
    samples: int = 128  #: number of times looked at, ends included
    blocks: int = 16  #: number of pieces of time; each gives one entry per margin, its worst sample
    #: per family what is taken off the raw margin (same shape), in its unit
    reserve: Margins = field(default_factory=dict)
    sampler: Sampler = field(init=False, repr=False)
    #: per family a typical size, by which margins are divided for the optimiser
    scale: Margins = field(init=False, repr=False)
    _spare: FloatArray = field(init=False, repr=False)
    _edges: IntArray = field(init=False, repr=False)
    _limits: FloatArray = field(init=False, repr=False)
    _last: list[tuple[bytes, Margins, Margins]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Precompute; fill the reserve with first guesses where none is given."""
        n, a, limits = self.model.n, self.gains.assumptions, self.model.limits
        # Not the very end: there the trajectory is at rest already, and its last jerk would be missed.
        times = np.linspace(0.0, self.family.duration * (1.0 - 1e-9), self.samples)
        rates = [np.minimum(limits.velocity, a.velocity), a.acceleration, a.jerk]
        upper = np.stack([limits.position_upper, *(np.broadcast_to(x, (n,)) for x in rates)])
        lower = np.stack([limits.position_lower, *-upper[1:]])
        guess = self._first_reserve()
        for name, value in self.reserve.items():
            if name in guess and np.shape(value) == guess[name].shape:
                guess[name] = np.asarray(value, float)
        computed: tuple[tuple[str, object], ...] = (
            ("sampler", self.family.sampler(times)),
            ("scale", self._typical()),
            ("reserve", guess),
            # Links may take what the assumed inertia bound leaves beside the rotors.
            ("_spare", np.maximum(a.inertia_upper - rotor_ceiling(self.model.kinematics, self.box), 1e-9)),
            ("_edges", np.linspace(0, self.samples, self.blocks + 1).astype(np.int64)),
            ("_limits", np.stack([lower, upper])),
            ("_last", []),
        )
        for key, entry in computed:
            object.__setattr__(self, key, entry)

    def _first_reserve(self) -> Margins:
        """What the tracking error may cost: K_d r plus the feed-forward's change, as if joints did not couple."""
        g = self.gains
        one = np.zeros(1)
        return {
            "position": g.e_bound.copy(),
            "velocity": g.de_bound.copy(),
            "acceleration": np.zeros(self.model.n),
            "jerk": np.zeros(self.model.n),
            "torque": torque_reserve(self.model, g, self.box),
            "tracking": one + 0.02 * g.assumptions.uncertainty,
            "inertia": one + 0.05,
            "clearance": np.full(max(len(self.proximity.frames), 1), self.clearance_margin),
            "self_clearance": one + self.clearance_margin,
        }

    def _typical(self) -> Margins:
        """Typical size of each margin, by which it is divided for the optimiser."""
        n, a, limits = self.model.n, self.gains.assumptions, self.model.limits
        one = np.ones(1)
        return {
            "position": np.full(n, 0.3),
            "velocity": 0.3 * limits.velocity,
            "acceleration": 0.3 * np.broadcast_to(a.acceleration, (n,)),
            "jerk": 0.3 * np.broadcast_to(a.jerk, (n,)),
            "torque": 0.1 * limits.torque,
            "tracking": one * 0.2 * a.uncertainty,
            "inertia": one * 0.3,
            "clearance": np.full(max(len(self.proximity.frames), 1), 0.05),
            "self_clearance": one * 0.05,
        }

    @property
    def size(self) -> int:
        """Length m of the vector of margins."""
        bent = sum(self.scale[name].size for name in _BENT)
        return self.blocks * bent + sum(self.scale[name].size for name in LINEAR)

    def with_reserve(self, reserve: Mapping[str, FloatArray]) -> FastConstraints:
        """The same with other reserves."""
        other = copy.copy(self)
        new = {name: np.asarray(value, float) for name, value in reserve.items()}
        object.__setattr__(other, "reserve", {**self.reserve, **new})
        return other

    def resampled(self, samples: int, blocks: int) -> FastConstraints:
        """The same at other times."""
        return replace(self, samples=samples, blocks=blocks)

    def raw(self, k: FloatArray) -> Margins:
        """Worst raw margin over time of every family, without reserve."""
        by_time, _ = self._at(np.asarray(k, float))
        return {name: value[0].min(axis=0) for name, value in by_time.items()}

    def calibrate(self, k: FloatArray, certified: Mapping[str, FloatArray]) -> FastConstraints:
        """Reserves that reproduce the certificate's margins at k; families that it does not report keep theirs."""
        raw = self.raw(k)
        reserve: Margins = {}
        for name, margin in certified.items():
            if name not in raw:
                continue
            old, margin = self.reserve[name], np.asarray(margin, float)
            if name in ("clearance", "self_clearance"):
                # Of what is far the certificate only knows that it is far.
                margin = np.where(margin > 2.0 * self.scale[name].max(), np.nan, margin)
            if margin.size == 1 and raw[name].size > 1:
                # Only the worst one's margin is known: move all reserves by as much.
                found = old + (np.min(raw[name] - old) - margin if np.all(np.isfinite(margin)) else 0.0)
            else:
                known = np.isfinite(raw[name]) & np.isfinite(margin) & (raw[name] < 100.0 * self.scale[name])
                found = np.where(known, np.where(known, raw[name], 0.0) - np.where(known, margin, 0.0), old)
            reserve[name] = found
        return self.with_reserve(reserve)

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper k (n,) between which the linear families hold; all of [-1, 1] for a joint without any."""
        n = self.family.n
        keep = np.stack([self.reserve[name] for name in LINEAR])
        low = (self._limits[0] + keep)[:, None] - np.moveaxis(self.sampler.base, 1, 0)
        high = (self._limits[1] - keep)[:, None] - np.moveaxis(self.sampler.base, 1, 0)
        slope = self.sampler.basis[:, :, None] * self.family.k_range
        lower, upper = -np.ones(n), np.ones(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.stack([low / slope, high / slope])
        # Where the slope vanishes k changes nothing: at the start, or where the rate passes through zero.
        ends = np.where(np.abs(slope) > 1e-6, ends, np.array([-np.inf, np.inf])[:, None, None, None])
        lower = np.maximum(lower, ends.min(axis=0).max(axis=(0, 1)))
        upper = np.minimum(upper, ends.max(axis=0).min(axis=(0, 1)))
        none = lower > upper
        return np.where(none, -1.0, lower), np.where(none, 1.0, upper)

    def values(self, k: FloatArray) -> FloatArray:
        """Scaled margins (m,), feasible when all are >= 0."""
        return self._worst(self._at(np.asarray(k, float))[0])[0][0]

    def batch(self, ks: FloatArray) -> FloatArray:
        """Scaled margins (B, m) of several parameters (B, n)."""
        return self._worst(self._by_time(np.asarray(ks, float))[0])[0]

    def _at(self, k: FloatArray) -> tuple[Margins, Margins]:
        """Of one k; the last one is remembered, because a Jacobian is asked for where values were."""
        key = k.tobytes()
        if not self._last or self._last[0][0] != key:
            self._last[:] = [(key, *self._by_time(k[None]))]
        return self._last[0][1], self._last[0][2]

    def _worst(self, by_time: Margins) -> tuple[FloatArray, IntArray]:
        """The vector (B, m) from margins (B, samples, c), and the samples (B, blocks, c) of its bent part."""
        scaled = {name: (value - self.reserve[name]) / self.scale[name] for name, value in by_time.items()}
        bent = np.concatenate([scaled[name] for name in _BENT], axis=2)
        where = np.stack([bent[:, a:b].argmin(axis=1) + a for a, b in pairwise(self._edges)], axis=1)
        worst = np.take_along_axis(bent, where, axis=1).reshape(len(bent), -1)
        linear = np.concatenate([scaled[name].min(axis=1) for name in LINEAR], axis=1)
        return np.minimum(np.concatenate([worst, linear], axis=1), _FAR), where

    def values_and_jacobian(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Scaled margins (m,) and their derivatives (m, n), exact but for the tracking error's share of distances."""
        k = np.asarray(k, float)
        n = self.family.n
        by_time, slopes = self._at(k)
        values, where = self._worst(by_time)
        samples = where[0]
        state = self.sampler(k)
        by_state = effort_slopes(
            self.model.kinematics, state, self.model.friction_transition_velocity, self.box,
            self.gains.inertia_lower, samples[:, :n], samples[:, n],
        )  # fmt: skip
        by_k = self.sampler.basis[:3].T[:, :, None] * self.family.k_range
        torque = -np.einsum("bjoi,bjoi->bji", by_state[0], by_k[samples[:, :n]])
        tracking = -np.einsum("boi,boi->bi", by_state[1], by_k[samples[:, n]])
        share = -share_slopes(self.model.kinematics, state[0][samples[:, n + 1]], self.box, self._spare)
        share *= by_k[samples[:, n + 1], 0]
        parts = [torque, tracking[:, None], share[:, None]]
        for column, name in ((n + 2, "clearance"), (-1, "self_clearance")):
            at = samples[:, column : column + self.scale[name].size] if column > 0 else samples[:, column:]
            parts.append(slopes[name][at, np.arange(at.shape[1])] * by_k[at, 0])
        bent = np.concatenate(parts, axis=1)
        bent /= np.concatenate([self.scale[name] for name in _BENT])[:, None]
        jacobian = np.concatenate([bent.reshape(-1, n), self._linear_slopes(by_time, k)])
        jacobian[values[0] >= _FAR] = 0.0
        return values[0], jacobian

    def _linear_slopes(self, by_time: Margins, k: FloatArray) -> FloatArray:
        """Of the linear families' worst margins (4 n, n): diagonal blocks."""
        n, joints = self.family.n, np.arange(self.family.n)
        out = np.zeros((4, n, n))
        for order, name in enumerate(LINEAR):
            at = by_time[name][0].argmin(axis=0)
            x = self.sampler.base[at, order, joints] + self.sampler.basis[order, at] * self.family.k_range * k
            # Nearer to which limit?
            side = np.where(self._limits[1, order] - x <= x - self._limits[0, order], -1.0, 1.0)
            slope = side * self.sampler.basis[order, at] * self.family.k_range / self.scale[name]
            out[order, joints, joints] = np.where(np.isfinite(self._limits[1, order]), slope, 0.0)
        return out.reshape(-1, n)

    def _by_time(self, ks: FloatArray) -> tuple[Margins, Margins]:
        """Raw margins (B, samples, c) of all families, and slopes (B samples, c, n) of the distances by q."""
        model, count, n = self.model, len(ks), self.family.n
        step = ks[:, None, None, :] * self.family.k_range * self.sampler.basis.T[:, :, None]
        state = np.ascontiguousarray(np.moveaxis(self.sampler.base + step, 2, 0)).reshape(4, -1, n)
        q, qd, qdd = state[:3]
        kin, total = model.kinematics, count * self.samples
        effort, measure, share = np.empty((total, n)), np.empty(total), np.empty(total)
        box_effort_kernel(
            kin.packed, q, qd, qdd, model.friction_transition_velocity,
            self.box.mid, self.box.rad, self.gains.inertia_lower, effort, measure,
        )  # fmt: skip
        r, p = forward_kinematics(kin, q)
        inertia_share_kernel(kin.axis, r, p, self.box.mid, self.box.rad, self._spare, share)
        near = self.proximity.distances(r, p, self.gains.e_bound)
        lower, upper = self._limits[:, :, None]
        linear = np.minimum(state - lower, upper - state)
        margins = {
            **dict(zip(LINEAR, linear, strict=True)),
            "torque": model.limits.torque - effort,
            "tracking": (self.gains.assumptions.uncertainty - measure)[:, None],
            "inertia": (1.0 - share)[:, None],
            "clearance": near.clearance,
            "self_clearance": near.self_clearance,
        }
        slopes = {"clearance": near.clearance_slope, "self_clearance": near.self_slope}
        return {name: value.reshape(count, self.samples, -1) for name, value in margins.items()}, slopes
