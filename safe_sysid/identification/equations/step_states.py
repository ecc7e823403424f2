"""Bounds of the motion between two samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.tied_positions import tied_positions

__all__ = [
    "HeldMotion", "MeanVelocities", "StepStates", "coulomb_sign", "mean_velocities", "outside_travel", "step_states",
]  # fmt: skip

_EPS = 2.0**-52


class MeanVelocities(NamedTuple):
    """Two measurements of each step's mean velocity, rad/s or m/s, and how far each may be off.

    Attributes:
        by_q: (m, n) change of position over the time by the stamps. by_v: (m, n) mean of the velocities at both ends.
        rho_q, rho_v: (m, n) error bounds of either.
        acceleration: (m, n) bound of |qdd| on the step.
        apart: (m, n) whether they are farther apart than declared errors allow.
        jumps: (m, n) whether velocities change faster than that.
    """

    by_q: FloatArray
    by_v: FloatArray
    rho_q: FloatArray
    rho_v: FloatArray
    acceleration: FloatArray
    apart: BoolArray
    jumps: BoolArray


class HeldMotion(NamedTuple):
    """What is known of steps; where nothing more is known than was declared, that.

    Attributes:
        acceleration: (m, n) bound of |qdd|.
        chord: (m, n) by how much the mean velocity may differ from that of the true ones at both ends; infinite where
            only the acceleration says.
    """

    acceleration: FloatArray
    chord: FloatArray


@dataclass(frozen=True, eq=False)
class StepStates:
    """Per step between samples: a state to evaluate at, and what is known about it.

    Attributes:
        q: (m + 1, n) positions of the samples, rad: as measured, or as velocities tie them to each other.
        off: (m + 1, n) error bound of each.
        h: (m,) duration by the stamps, s.
        stamp: (m,) error bound sigma of each of its two stamps, that of their representation included, s.
        centre: (m, n) mid position c, rad.
        mean: (m, n) estimate u of the mean velocity, rad/s; rho: (m, n), ``|u - mean velocity| <= rho``.
        delta: (m, n) change of these positions, rad.
        ride: (m, n) the same by the velocities at both ends; ride_off: its error bound.
        acceleration: (m, n) bound A of |qdd| on the step, rad/s^2.
        wrong: (m,) whether the measurements contradict the declared acceleration bound.
        outside: (m,) whether a prismatic joint may have left its travel, by the measurements.
    """

    q: FloatArray
    off: FloatArray
    h: FloatArray
    stamp: FloatArray
    centre: FloatArray
    mean: FloatArray
    rho: FloatArray
    delta: FloatArray
    ride: FloatArray
    ride_off: FloatArray
    acceleration: FloatArray
    wrong: BoolArray
    outside: BoolArray


def mean_velocities(
    delta: FloatArray,
    first: FloatArray,
    last: FloatArray,
    h: FloatArray,
    sigma: FloatArray,
    e: MeasurementErrors,
    within: HeldMotion | None = None,
    off: FloatArray | None = None,
) -> MeanVelocities:
    """Mean velocity of each step from positions, and from velocities.

    With ``H = h + 2 sigma`` the longest that the step may have lasted:

    - From positions: ``(q1 - q0)/h`` *is* the mean velocity, off by ``2 dq/h`` and by the error of h, which is
      ``(|q1 - q0| + 2 dq)/h`` times ``r/(1 - r)``, ``r = 2 sigma/h``.
    - From velocities: the trapezoid of a function with Lipschitz constant A is off by at most ``A H/4``; where jerk
      is bounded by J, by at most ``J H^2/12``; or by what ``within`` says. Plus the velocity error dv.

    A is the declared bound. Where jerk is bounded, qdd differs from its mean over the step by at most ``J H/2``, so
    ``(|qd1 - qd0| + 2 dv)/(h - 2 sigma) + J H/2`` is a bound too, and the smaller one is taken.

    Args:
        delta: (m, n) change of position as measured.
        first: (m, n) velocity where the step begins.
        last: (m, n) where it ends.
        h: (m,) duration by the stamps, s.
        sigma: (m,) error bound of each of its two stamps, s.
        within: what else is known of the motion, accelerations no larger than A; None: nothing.
        off: (m, n) by how much changes of position may be off; None: twice the position error.
    """
    longest = (h + 2.0 * sigma)[:, None]
    ratio = np.minimum(2.0 * sigma / h, 0.999999)[:, None]
    jump = np.abs(last - first)
    by_q, by_v = delta / h[:, None], 0.5 * (last + first)
    off = (2.0 * e.position if off is None else off) / h[:, None]
    rho_q = off + (np.abs(by_q) + off) * ratio / (1.0 - ratio)
    acceleration = np.broadcast_to(e.acceleration, delta.shape)
    rho_v = 0.25 * acceleration * longest + e.velocity
    if within is not None:
        acceleration = within.acceleration
        rho_v = np.minimum(0.25 * acceleration * longest, within.chord) + e.velocity
    if e.jerk is not None:
        local = (jump + 2.0 * e.velocity) / (h[:, None] * (1.0 - ratio)) + 0.5 * e.jerk * longest
        acceleration = np.minimum(acceleration, local * (1.0 + 1e-12))
        rho_v = np.minimum(0.25 * acceleration * longest, e.jerk * longest**2 / 12.0) + e.velocity
    apart = np.abs(by_q - by_v) > (rho_q + rho_v) * (1.0 + 1e-9) + 1e-12
    jumps = jump > (e.acceleration * longest + 2.0 * e.velocity) * (1.0 + 1e-9) + 1e-12
    return MeanVelocities(by_q, by_v, rho_q, rho_v, acceleration, apart, jumps)


def step_states(
    data: Measurements,
    e: MeasurementErrors,
    travel: FloatArray | None = None,
    zero: FloatArray | float = 0.0,
    within: HeldMotion | None = None,
    tied: bool = False,
) -> StepStates:
    """The mean velocity of each step that :func:`mean_velocities` has the smaller bound of.

    On the step ``|q(t) - c| <= V H/2 + dq``, ``V = |u| + A H/2 + rho``: with this, and its samples, inside the travel,
    every state that a remainder is sized on is inside, as an interval holds what lies between two of its points.

    Args:
        travel: (n, 2) of prismatic joints, m, infinite for others; None: all are infinite.
        zero: by how much all positions of a joint may be off by the same, rad or m.
        within: what else is known of the motion; None: nothing.
        tied: whether velocities tie positions to each other (:mod:`.tied_positions`).
    """
    h = np.diff(data.stamps)
    sigma = e.stamp + _EPS * np.abs(data.stamps[1:])
    longest = (h + 2.0 * sigma)[:, None]
    delta = np.diff(data.q, axis=0)
    first, last = data.qd[:-1], data.qd[1:]
    means = mean_velocities(delta, first, last, h, sigma, e, within)
    wrong = np.any(means.apart | means.jumps, axis=1) | (2.0 * sigma >= h)
    ride = h[:, None] * means.by_v
    ride_off = longest * means.rho_v + 2.0 * sigma[:, None] * np.abs(means.by_v)
    q, off = data.q, np.broadcast_to(e.position, data.q.shape)
    if tied:
        q, off = tied_positions(q, e.position, ride - delta, ride_off, wrong)
        delta = np.diff(q, axis=0)
        means = mean_velocities(delta, first, last, h, sigma, e, within, off[:-1] + off[1:])
    use_q = means.rho_q <= means.rho_v
    centre, mean = 0.5 * (q[1:] + q[:-1]), np.where(use_q, means.by_q, means.by_v)
    rho = np.where(use_q, means.rho_q, means.rho_v) * (1.0 + 1e-12)
    outside = np.zeros(len(h), bool)
    if travel is not None and np.any(np.isfinite(travel)):
        reach = 0.5 * longest * (np.abs(mean) + 0.5 * means.acceleration * longest + rho) + (
            0.5 * (off[1:] + off[:-1]) + zero
        )
        beyond = outside_travel(q, off + zero, travel)
        outside = outside_travel(centre, reach, travel) | beyond[1:] | beyond[:-1]
    return StepStates(
        q=q,
        off=off,
        h=h,
        stamp=sigma,
        centre=centre,
        mean=mean,
        rho=rho,
        delta=delta,
        ride=ride,
        ride_off=ride_off,
        acceleration=np.ascontiguousarray(means.acceleration),
        wrong=wrong,
        outside=outside,
    )


def outside_travel(q: FloatArray, around: FloatArray, travel: FloatArray) -> BoolArray:
    """Which of positions (N, n) may be outside the travel (n, 2) of a prismatic joint, with ``around`` on either side.

    Args:
        q: m, of prismatic joints.
        around: broadcasts to q, >= 0.
    """
    # A checker's own bound of what is around may be a little larger; windows end well before that matters.
    reach = around + 1e-9 * (1.0 + np.abs(q))
    return np.any((q - reach < travel[:, 0]) | (q + reach > travel[:, 1]), axis=1)


def coulomb_sign(data: Measurements, steps: StepStates, e: MeasurementErrors) -> FloatArray:
    """Sign of the velocity over each whole step (m, n), 0 where it is not certain.

    On a step ``|qd(t) - mean velocity| <= A H/2`` (a function with Lipschitz constant A), the estimate of the mean is
    off by at most rho, and beyond the transition velocity the friction is ``Fc sign(qd)``. Also, without a mean
    velocity: ``qd(t) >= (qd0 + qd1)/2 - A H/2 - dv``, as qd is above both ``qd0 - A (t - t0)`` and ``qd1 - A (t1 -
        t)``.

    A window is so split at a reversal into steps. A velocity that may pass through zero in a step leaves
    ``|friction| <= Fc`` there, in the slack: what the friction does below the transition velocity is not declared, so
    there is nothing finer to split at. Taking Fc as the unknown of the row instead of its upper bound would gain its
    relative uncertainty of this one part, less than a tenth of it: not worth unequal sides.
    """
    reach = 0.5 * steps.acceleration * (steps.h + 2.0 * steps.stamp)[:, None] * (1.0 + 1e-12)
    by_mean = np.abs(steps.mean) - steps.rho - reach > e.transition
    ends = 0.5 * (data.qd[1:] + data.qd[:-1])
    by_ends = np.abs(ends) - e.velocity - reach > e.transition
    return np.where(by_mean, np.sign(steps.mean), np.where(by_ends, np.sign(ends), 0.0))
