"""Margins of motions beyond what is to be kept, for one theta, as rows for an optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.planning.costs.excitation import regressor_gradient
from safe_sysid.planning.distances.pair_distances import SEARCH_DISTANCE, PairDistances
from safe_sysid.planning.motions.knot_family import KnotFamily, MotionSampler
from safe_sysid.planning.motions.motion_limits import LimitDistances, MotionLimits, torques, without_coulomb
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.model import RobotModel

__all__ = ["FAR", "METRE", "RADIAN", "MotionRows", "evenly", "rate_rows"]

#: A distance of this size counts as one unit for the optimiser, m; an angle, rad.
METRE, RADIAN = 0.1, 0.5
#: Rows with more room than this do not matter.
FAR = 5.0
#: How far a joint without limits may leave its ends, rad; acceleration of a knot, rad, times the duration squared.
_TURN, _FASTEST = 2.0 * math.pi, 100.0
#: An end counts as that much farther from everything than it is: rounding of coal's, m.
_TOUCH = 1e-5


def evenly(duration: float, rate: float) -> FloatArray:
    """Midpoints (N,) of equal pieces of time, about ``rate`` per s, at least two."""
    count = max(math.ceil(duration * rate), 2)
    return np.asarray((np.arange(count) + 0.5) * (duration / count), float)


def rate_rows(
    sampler: MotionSampler,
    x: FloatArray,
    limits: MotionLimits,
    keep: LimitDistances,
    slopes: list[FloatArray] | None = None,
) -> dict[str, FloatArray]:
    """Rows of position, velocity and acceleration, each (N, n): what limits leave beyond what is to be kept.

    Args:
        x: (n, m) the motion.
        keep: how far to stay away.
        slopes: their derivatives (N n, n m) are appended, family by family.
    """
    state = sampler.states(x)
    below, above = state[0] - limits.position_lower, limits.position_upper - state[0]
    out = {"position": np.minimum((np.minimum(below, above) - keep.position) / RADIAN, FAR)}
    toward = [np.where(below < above, 1.0, -1.0) / RADIAN]
    for order, name in ((1, "velocity"), (2, "acceleration")):
        limit = getattr(limits, name)
        rows = 1.0 - getattr(keep, name) - np.abs(state[order]) / limit
        out[name] = np.where(np.isfinite(limit), rows, FAR)
        toward.append(-np.sign(state[order]) / limit)
    if slopes is not None:
        slopes += [sampler.own(order, slope) for order, slope in enumerate(toward)]
    return out


@dataclass(frozen=True, eq=False)
class MotionRows:
    """Margins of a family's motions beyond what is to be kept, as rows >= 0 with their Jacobian, for the optimiser."""

    model: RobotModel  #: what the margins are about
    theta: FloatArray  #: what the margins are about
    distances: PairDistances  #: what the margins are about
    family: KnotFamily  #: what the margins are about
    limits: MotionLimits  #: what the margins are about
    keep: LimitDistances  #: what the margins are about
    times: FloatArray  #: (N,) s, at which positions, rates and torques are looked at
    pose_times: FloatArray  #: (N',) s, at which distances are
    cushion: float = 0.0  #: asked for on top, in the rows' units
    ends_distance: FloatArray = field(init=False, repr=False)  #: (2, P) distances of all pairs at start and goal, m
    _states: MotionSampler = field(init=False, repr=False)
    _poses: MotionSampler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ends = np.stack([self.family.start, self.family.goal])
        object.__setattr__(self, "ends_distance", self.distances.at(ends, want_slopes=False)[0])
        object.__setattr__(self, "_states", self.family.sampler(self.times))
        object.__setattr__(self, "_poses", self.family.sampler(self.pose_times))

    def at(self, times: FloatArray, pose_times: FloatArray, cushion: float = 0.0) -> MotionRows:
        """The same at other instants."""
        return replace(self, times=times, pose_times=pose_times, cushion=cushion)

    def with_low_instants(self, dense: MotionRows, x: FloatArray) -> MotionRows:
        """The same with more instants: those at which a closer look finds x lowest, where that is below the cushion.

        ``dense``: the same rows at many more instants; ``x``: (n m,) the motion.
        """
        found: dict[bool, list[FloatArray]] = {True: [], False: []}
        for name, part in dense._parts(x, None).items():
            away = name.endswith("clearance")
            padded = np.pad(part, ((1, 1), (0, 0)), constant_values=np.inf)
            low = (part <= padded[:-2]) & (part <= padded[2:]) & (part < self.cushion)
            found[away].append((dense.pose_times if away else dense.times)[low.any(axis=1)])
        return self.at(
            np.unique(np.concatenate([self.times, *found[False]])),
            np.unique(np.concatenate([self.pose_times, *found[True]])),
            self.cushion,
        )

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper x (n m,): knots inside the limits."""
        family, limits, pieces = self.family, self.limits, len(self.family.pieces) - 1
        ends = np.stack([family.start, family.goal])
        reach = [
            np.maximum(limits.position_lower, ends.min(axis=0) - _TURN),
            np.minimum(limits.position_upper, ends.max(axis=0) + _TURN),
        ]
        rate = np.minimum(limits.acceleration, _FASTEST / family.duration**2)
        lower, upper = (
            np.tile(np.stack([q, sign * limits.velocity, sign * rate], axis=1), (1, pieces)) / family.unit
            for q, sign in zip(reach, (-1.0, 1.0), strict=True)
        )
        return lower.ravel(), upper.ravel()

    def values(self, x: FloatArray) -> FloatArray:
        """(m,) at x (n m,)."""
        return np.concatenate([part.ravel() for part in self._parts(x, None).values()]) - self.cushion

    def parts(self, x: FloatArray) -> dict[str, FloatArray]:
        """Rows by family, without the cushion: (N, n), or (N', P) for distances; in shares or in typical sizes."""
        return self._parts(x, None)

    def values_and_jacobian(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(m,) and (m, n m)."""
        slopes: list[FloatArray] = []
        parts = self._parts(x, slopes)
        values = np.concatenate([part.ravel() for part in parts.values()]) - self.cushion
        jacobian = np.concatenate(slopes)
        jacobian[values >= FAR - 1.0] = 0.0
        return values, jacobian

    def _parts(self, x: FloatArray, slopes: list[FloatArray] | None) -> dict[str, FloatArray]:
        """Rows by family, without the cushion; appends (rows, n m) to ``slopes`` if given."""
        n, keep, limits, sampler = self.family.n, self.keep, self.limits, self._states
        x = np.asarray(x, float).reshape(n, self.family.free)
        out = rate_rows(sampler, x, limits, keep, slopes)
        state = sampler.states(x)[:3]
        smooth = dynamics_of(self.model.kinematics).torque_regressor(*state) @ without_coulomb(self.theta)
        coulomb = np.abs(self.theta[self.model.layout.coulomb])
        out["torque"] = 1.0 - keep.torque - (np.abs(smooth) + coulomb) / limits.torque
        if slopes is not None:
            slopes.append(self._torque_slopes(state, -np.sign(smooth) / limits.torque))
        self._add_distances(x, out, slopes)
        return out

    def _torque_slopes(self, state: tuple[FloatArray, ...], weight: FloatArray) -> FloatArray:
        """(N n, n m): derivatives of ``weight`` (N, n) times the torques."""
        count, n = weight.shape
        q, qd, qdd = (np.repeat(values, n, axis=0) for values in state)
        rows = np.zeros((count * n, n, self.model.layout.size))
        at = np.arange(count * n), np.tile(np.arange(n), count)
        rows[at] = weight.reshape(-1, 1) * without_coulomb(self.theta)
        by_state = regressor_gradient(self.model.kinematics, q, qd, qdd, rows)
        return self._states.chain(by_state.reshape(count, n, 3, n))

    def _add_distances(self, x: FloatArray, out: dict[str, FloatArray], slopes: list[FloatArray] | None) -> None:
        """Rows of distances; what is asked for grows from what an end has itself."""
        q = self._poses.states(x)[0]
        found, by_q = self.distances.at(q, want_slopes=slopes is not None)
        wanted = np.where(self.distances.is_self, self.keep.self_clearance, self.keep.clearance)
        wanted_now, grows = np.broadcast_to(wanted, found.shape), np.zeros(by_q.shape)
        for end, own in zip((self.family.start, self.family.goal), self.ends_distance, strict=True):
            away = q - end
            length = np.linalg.norm(away, axis=1)
            opened = own + self.keep.opening * length[:, None] - _TOUCH
            less = opened < wanted_now
            wanted_now = np.where(less, opened, wanted_now)
            if slopes is not None:
                direction = self.keep.opening * away / np.maximum(length, 1e-9)[:, None]
                grows = np.where(less[..., None], direction[:, None, :], grows)
        # Beyond what is looked at only that is known.
        row = np.where(found >= SEARCH_DISTANCE, FAR, (found - wanted_now) / METRE)
        for name, mine in (("clearance", ~self.distances.is_self), ("self_clearance", self.distances.is_self)):
            out[name] = row[:, mine]
            if slopes is not None:
                slopes.append(self._poses.chain((by_q - grows)[:, mine, None, :] / METRE))

    def missing(self, x: FloatArray) -> dict[str, float]:
        """By how much each family's worst row at these samples is short of what is to be kept; negative: not at all."""
        return {name: -float(part.min(initial=FAR)) for name, part in self._parts(x, None).items()}

    def reasons(self, x: FloatArray) -> list[str]:
        """What is not kept at x, in words: the worst instant of each family."""
        out = []
        for name, part in self._parts(x, None).items():
            if part.size == 0 or not part.min() < 0.0:
                continue
            s, c = (int(i) for i in np.unravel_index(int(np.argmin(part)), part.shape))
            short = -float(part[s, c])
            if name.endswith("clearance"):
                which = np.flatnonzero(self.distances.is_self == (name == "self_clearance"))[c]
                time, between, size = self.pose_times[s], self.distances.names[int(which)], METRE
            else:
                time, between = self.times[s], (self.model.joint_names[c], "")
                size = RADIAN if name == "position" else float(getattr(self.limits, name)[c])
            worst, short = Margin(name, *between, -short * size, float(time)), short * size
            out.append(
                f"{name} of {worst.culprit} at {worst.time:.2f} s: {short:.4g} {worst.unit} short of what is to be kept"
            )
        return out

    def end_reasons(self) -> list[str]:
        """Why no motion may begin at the start or end at the goal; empty if one may."""
        out, family = [], self.family
        still = np.zeros((1, family.n))
        for place, q, near in zip(("start", "goal"), (family.start, family.goal), self.ends_distance, strict=True):
            room = np.minimum(q - self.limits.position_lower, self.limits.position_upper - q) - self.keep.position
            static = torques(self.model, self.theta, q[None], still, still)[0]
            spare = (1.0 - self.keep.torque) * self.limits.torque - static
            for j, name in enumerate(self.model.joint_names):
                if not room[j] >= 0.0:
                    out.append(f"{place}: {name} at {q[j]:.4f} rad is {-room[j]:.4f} rad too near to its limit")
                if not spare[j] >= 0.0:
                    out.append(f"{place}: holding takes {static[j]:.1f} N m at {name}, {-spare[j]:.1f} N m too much")
            for c in np.flatnonzero(~(near >= 0.0)):
                out.append(f"{place}: {' - '.join(self.distances.names[c])} overlap by {-near[c]:.4f} m")
        return out
