r"""Bounds of what a single step or sample contributes to a row and its error, over a parameter box, rounded upward.

Notation: c, u, rho, A, h, H = longest of :class:`~safe_sysid.identification.certificates.log_view.LogSteps`; dq the
error of positions (for a step the mean of both ends, shift: the larger), dv of velocities; w = away, V = speed;
``x = V H/2 + dq`` bounds ``|q(t) - c|``, ``x1 = A H^2/12 + dq`` the
mean of ``q(t) - c`` (the trapezoid rule misses the integral of a function with a Lipschitz slope by ``A H^3/12``).
D is the derivative of p or f at ``(c, u)`` itself, enclosed, or along the direction in question the Leibniz bound of
:mod:`~safe_sysid.identification.certificates.interval_dynamics.link_bounds` if that is smaller; p2, f2 bound
second derivatives along (x, w) at speeds up to V.

- rate: ``|int f - h* f(c, u)| <= h* rate``, ``rate = D_q f x1 + D_qd f rho + f2/2``.
- slope: ``|int (t - mid)(f - f(c, u))| <= H^2 slope``, ``slope = (D_q f V + D_qd f A) H/12 + f2/8``: ``q(t) - q(mid)``
  and ``qd(t) - qd(mid)`` are at most ``V |t - mid|`` and ``A |t - mid|``, constants integrate to zero,
  ``int |t - mid| = H^2/4``.
- ramp: ``|int p - H(c) (q1 - q0)| <= h* ramp``, ``ramp = D_q p x1 + p2/2``: Taylor for ``p(q, qd) - H(c) qd``.
- shift: ``|H(c) e| + Ia |e|`` for ``|e| <= dq``; twist: the change of ``H e`` from the step before to this one.
- zeros: a joint is at q + delta, ``|delta| <= zero``, q what is measured but for dq. Every second-order term is along
  ``x + zero``. To first order the derivative along delta, at the middle of the box, is a column of its own; what
  another theta of the box makes of it, at most ``left``, adds to rate, ramp, end, size and change. Errors of
  ``q1 - q0`` have no delta, but the factor ``H(c) + D_q H delta``: shift gains p1 along ``(zero, 0)``, twist half of
  p2 along the centres' change and zero. df/dg is ``x1 + zero`` and ``x + zero`` from where it is taken.
- gravity: true gravity is within gamma of the declared one, and f linear in it: ``gamma |int df/dg| / h*``, at c
  enclosed, its change on the step by Taylor as above, b1 along x1 and b2 along x; or b0, what it is anywhere.
- size, change: of ``X = tau + f(c, u) - Fc s - beta``, which the duration multiplies, and of its difference to the
  step before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.core.layout import PER_LINK
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray, exactly, inflate
from safe_sysid.identification.certificates.interval_dynamics.derivatives import derivatives_at, slopes_at
from safe_sysid.identification.certificates.interval_dynamics.held_steps import HeldTorque
from safe_sysid.identification.certificates.interval_dynamics.link_bounds import LinkBounds
from safe_sysid.identification.certificates.interval_dynamics.regressors import IntervalKinematics, columns_kernel
from safe_sysid.identification.certificates.log_view import LogSteps, LogView
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.intervals import iadd, imul, isub
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.unknowns import Unknowns

__all__ = ["BoxFacts", "SampleBounds", "StepBounds", "box_facts", "sample_bounds", "step_bounds"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BoxFacts:
    """A box of parameters and declared errors as the bounds need them.

    Attributes:
        theta: (10 n + M, 2) intervals of the rigid parameters and of the rotor inertias of M motors on moving links, or
            of the reactions of those whose ratio is not known, which come last.
        zero: (n,) by how much all positions of a joint may be off by the same. shifted: (D,) joints where it is not 0.
        coulomb, viscous, rotor: (n,) largest; zero at a link-side sensor. rotor_least: (n,).
        coulomb_interval, beta: (n,) of Fc, and of offset plus sensor bias.
        gamma: m/s^2, error of gravity.
    """

    theta: FloatArray
    zero: FloatArray
    shifted: NDArray[np.int64]
    links: LinkBounds
    coulomb: FloatArray
    viscous: FloatArray
    rotor: FloatArray
    rotor_least: FloatArray
    coulomb_interval: IntervalArray
    beta: IntervalArray
    gamma: float

    def held(self, kin: Kinematics, errors: MeasurementErrors) -> HeldTorque | None:
        """What is known of steps on which the motors' torque is held; None where it need not be, or H be above Ia.

        Args:
            kin: with all motors, those of unknown ratio too.
        """
        holds = errors.effort == "held" and errors.torque_source != "link"
        sharp = errors.torque_delay == 0.0 and errors.torque_jitter == 0.0
        plain = not len(kin.motors.joint) and not np.any(np.isfinite(kin.travel)) and np.all(self.rotor_least > 0.0)
        if not (holds and sharp and plain):
            return None
        return HeldTorque(self.links, self.coulomb, self.viscous, self.rotor_least, errors.gravity_relative)

    @property
    def columns(self) -> FloatArray:
        """(10 n + M + D, 2) intervals of what columns are of: theta, and the zeros."""
        off = self.zero[self.shifted]
        return np.concatenate([self.theta, np.stack([-off, off], axis=-1)])

    def farther(self, x: FloatArray) -> FloatArray:
        """Bounds (N, n) of distances from a position to where zeros may have moved what is within x of it."""
        return inflate(x + self.zero) if len(self.shifted) else x


def sensed_offset(box: ParameterBox, errors: MeasurementErrors) -> tuple[FloatArray, FloatArray]:
    """(n,), (n,) bounds of what equations call beta: the offset, or zero if the sensor does not see it, and the bias.

    Args:
        box: of the true parameters.
    """
    lower, upper = box.lower[box.layout.offset], box.upper[box.layout.offset]
    if errors.torque_source == "link":
        lower, upper = np.minimum(lower, 0.0), np.maximum(upper, 0.0)
    bias = exactly(errors.torque_bias + np.zeros(box.n))
    return (exactly(lower) - bias).lo, (exactly(upper) + bias).hi


def box_facts(kin: Kinematics, box: ParameterBox, errors: MeasurementErrors, unknowns: Unknowns) -> BoxFacts:
    """Prepare a box. ``box``: holds the true, physically consistent parameters."""
    layout, reaction = box.layout, np.asarray(unknowns.reaction)
    seen = 0.0 if errors.torque_source == "link" else 1.0
    big = seen * np.maximum(np.abs(box.lower), np.abs(box.upper))
    moving = layout.links_and_rotors(kin.motors.joint)
    norm = np.sqrt((np.asarray(kin.gravity) ** 2).sum())
    relative = errors.gravity_relative
    return BoxFacts(
        theta=np.concatenate([np.stack([box.lower[moving], box.upper[moving]], axis=-1), reaction]),
        zero=unknowns.zero,
        shifted=unknowns.shifted,
        links=LinkBounds(unknowns.applied(kin), box.lower, box.upper, seen > 0.0, reaction),
        coulomb=big[layout.coulomb],
        viscous=big[layout.viscous],
        rotor=big[layout.rotor_inertia],
        rotor_least=np.array(box.lower[layout.rotor_inertia]),
        coulomb_interval=IntervalArray(seen * box.lower[layout.coulomb], seen * box.upper[layout.coulomb]),
        beta=IntervalArray(*sensed_offset(box, errors)),
        gamma=float(inflate(norm * (relative + (1.0 + relative) * errors.gravity_angle))),
    )


@dataclass(frozen=True, eq=False)
class StepBounds:
    """Per step; (S, n) unless said otherwise. Without ramps what only they need is None.

    Attributes:
        rate_columns: (S, n, 10 n + M + D, 2) of W_c at (c, u), and its derivatives by the D joints whose zeros are not
            known; momentum_columns: of W_m at (c, delta/h).
        rate, slope, ramp, shift, twist, gravity, size, change: see the module's text.
    """

    rate_columns: FloatArray
    momentum_columns: FloatArray
    rate: FloatArray
    slope: FloatArray
    ramp: FloatArray
    shift: FloatArray
    twist: FloatArray
    gravity: FloatArray
    size: FloatArray
    change: FloatArray


def _along(matrix: FloatArray, direction: FloatArray) -> FloatArray:
    """``matrix @ direction`` of (S, n, n) and (S, n), all non-negative."""
    return np.einsum("sij,sj->si", matrix, direction)


def step_bounds(
    enclosed: IntervalKinematics, facts: BoxFacts, s: LogSteps, errors: MeasurementErrors, ramps: bool
) -> StepBounds:
    """Everything about some steps; ``change`` and ``twist`` only where the step before is the one before in ``s``.

    Args:
        s: steps, by increasing index.
        ramps: whether windows with ramps will need them.
    """
    count, n = s.rho.shape
    links, long, zeros = facts.links, s.longest, facts.zero
    centre, mean = s.centre.stacked(), s.mean.stacked()
    width = len(facts.theta)
    rate_columns, none = np.zeros((count, n, width, 2)), np.zeros((0, n, width, 2))
    columns_kernel(*enclosed, centre, mean, none, rate_columns)
    d = derivatives_at(enclosed, centre, mean, facts.theta, ramps, True, facts.gamma > 0.0)
    off = 0.5 * (s.off[:, 0] + s.off[:, 1])
    x = inflate(0.5 * s.speed * long + off)
    x1 = inflate(s.acceleration * long * long / 12.0 + off)
    far, u = links.over(s.speed, facts.farther(x), s.away), s.mean.size()
    # Physical consistency, which the box does not know, can make the bound over all configurations the smaller one.
    first_order = np.minimum(_along(d.f_q, x1) + _along(d.f_qd, s.rho), links.over(u, x1, s.rho).f1)
    zero = np.zeros((count, n))
    rate_columns, left = _with_slopes(enclosed, facts, centre, mean, rate_columns, True)
    momentum_columns = none
    slope = ramp = shift = twist = zero
    if ramps:
        momentum_columns = np.zeros((count, n, width, 2))
        columns_kernel(*enclosed, centre, (s.delta / s.h).stacked(), momentum_columns, none)
        first = _along(d.f_q, s.speed) + _along(d.f_qd, s.acceleration)
        first = np.minimum(first, links.over(u, s.speed, s.acceleration).f1)
        slope = first * long / 12.0 + far.f2 / 8.0
        velocity = (s.delta / s.h).stacked()
        momentum_columns, more = _with_slopes(enclosed, facts, centre, velocity, momentum_columns, False)
        ramp = np.minimum(_along(d.p_q, x1), links.over(u, x1, zero).p1) + 0.5 * far.p2 + more
        dq = np.maximum(s.off[:, 0], s.off[:, 1])
        shift = np.minimum(_along(d.p_qd, dq), links.over(u, zero, dq).p1) + facts.rotor * dq
        if len(facts.shifted):
            shift = shift + links.over(dq, zero + zeros, zero).p1
        if count > 1 and np.any(errors.position > 0.0):
            moved = (s.delta[1:] + s.delta[:-1]).halved().size()  # of the centres
            between = s.off[1:, 0]
            twist = np.concatenate([zero[:1], links.over(between, moved, zero[1:]).p1])
            if len(facts.shifted):
                # Along both directions: at most half of what there is along their sum.
                twist[1:] += 0.5 * links.over(between, inflate(moved + zeros), zero[1:]).p2
    gravity = zero
    if facts.gamma > 0.0:
        along = links.over(zero, facts.farther(x1), zero).b1
        steepest = np.sqrt((d.f_g * d.f_g).sum(axis=2)) + along + 0.5 * far.b2
        gravity = facts.gamma * np.minimum(far.b0, steepest)
    size, change = _sizes(facts, s, rate_columns, errors, left)
    return StepBounds(
        rate_columns,
        momentum_columns,
        inflate(first_order + 0.5 * far.f2 + left),
        *(inflate(y) for y in (slope, ramp, shift, twist, gravity, size, change)),
    )


def _with_slopes(
    enclosed: IntervalKinematics, facts: BoxFacts, q: FloatArray, qd: FloatArray, columns: FloatArray, rates: bool
) -> tuple[FloatArray, FloatArray]:
    """Columns of momentum, or of its rate, with those of the zeros behind; and what these leave open over the box."""
    joints = facts.shifted
    if not len(joints):
        return columns, np.zeros(columns.shape[:2])
    found = slopes_at(enclosed, q, qd, facts.theta, rates)
    slopes, left = (found.f_q, found.f_left) if rates else (found.p_q, found.p_left)
    return np.concatenate([columns, slopes[:, :, joints]], axis=2), inflate(_along(left, facts.zero + 0.0 * q[..., 0]))


def _sizes(
    facts: BoxFacts, s: LogSteps, columns: FloatArray, errors: MeasurementErrors, left: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Of X and of its changes; ``left`` (S, n): what columns of zeros leave open."""
    count, n = s.rho.shape
    value, step = np.zeros((count, n, 2)), np.zeros((count, n, 2))
    _values(columns, facts.columns, value, step)
    torque = s.torque
    if errors.torque_rate is not None:  # the mean torque is within this of the trapezoid of what was sampled
        late = errors.torque_delay + errors.torque_jitter
        loose = inflate(errors.torque_rate * (0.25 * s.longest + late))
        torque = IntervalArray((torque - exactly(loose)).lo, (torque + exactly(loose)).hi)
    rate = IntervalArray(value[..., 0], value[..., 1])
    sign = exactly(s.sign)
    unknown = np.where(s.sign == 0.0, facts.coulomb, 0.0)
    size = (torque + rate - sign * facts.coulomb_interval - facts.beta).size() + unknown + left
    change = np.zeros((count, n))
    if count > 1:
        jump = torque[1:] - torque[:-1] + IntervalArray(step[1:, :, 0], step[1:, :, 1])
        jump = jump - (sign[1:] - sign[:-1]) * facts.coulomb_interval
        change[1:] = jump.size() + unknown[1:] + unknown[:-1] + left[1:] + left[:-1]
    return size, change


@njit(cache=True)
def _values(columns: FloatArray, theta: FloatArray, value: FloatArray, step: FloatArray) -> None:
    """Intervals of ``columns . theta`` and of their differences from step to step, (S, n, 2)."""
    for k in range(columns.shape[0]):
        for i in range(columns.shape[1]):
            for c in range(PER_LINK * i, columns.shape[2]):
                a, t = columns[k, i, c], theta[c]
                lo, hi = imul(a[0], a[1], t[0], t[1])
                value[k, i, 0], value[k, i, 1] = iadd(value[k, i, 0], value[k, i, 1], lo, hi)
                if k > 0:
                    b = columns[k - 1, i, c]
                    lo, hi = isub(a[0], a[1], b[0], b[1])
                    lo, hi = imul(lo, hi, t[0], t[1])
                    step[k, i, 0], step[k, i, 1] = iadd(step[k, i, 0], step[k, i, 1], lo, hi)


@dataclass(frozen=True, eq=False)
class SampleBounds:
    """Per sample at an end of a window; (N, n) unless said otherwise.

    Attributes:
        index: (N,) samples, increasing.
        columns: (N, n, 10 n + M + D, 2) of W_m at the measured state, and its derivatives.
        end: error of the momentum there, rotor's included.
        momentum: bound of the true momentum, rotor's included.
    """

    index: NDArray[np.int64]
    columns: FloatArray
    end: FloatArray
    momentum: FloatArray


def sample_bounds(
    enclosed: IntervalKinematics,
    facts: BoxFacts,
    log: LogView,
    index: NDArray[np.int64],
    shift: FloatArray,
    off: FloatArray,
) -> SampleBounds:
    """Momentum at samples: Taylor from the measured to the true state, second derivatives along the way.

    Args:
        index: (N,) which, increasing.
        shift: (N, n) to the readings of positions; off: (N, n) error bounds then.
    """
    e, n = log.errors, len(facts.rotor)
    q, qd = log.positions(index, shift), exactly(log.data.qd[index])
    shape = q.lo.shape
    dq, dv = off, np.broadcast_to(e.velocity, shape)
    width = len(facts.theta)
    columns, none = np.zeros((len(index), n, width, 2)), np.zeros((0, n, width, 2))
    columns_kernel(*enclosed, q.stacked(), qd.stacked(), columns, none)
    columns, left = _with_slopes(enclosed, facts, q.stacked(), qd.stacked(), columns, False)
    end = np.zeros(shape)
    if np.any(e.position > 0.0) or np.any(e.velocity > 0.0) or len(facts.shifted):
        d = derivatives_at(enclosed, q.stacked(), qd.stacked(), facts.theta, True, False, False)
        first = np.minimum(_along(d.p_q, dq) + _along(d.p_qd, dv), facts.links.over(qd.size(), dq, dv).p1)
        second = facts.links.over(inflate(qd.size() + dv), facts.farther(dq), dv).p2
        end = inflate(first + 0.5 * second + facts.rotor * dv + left)
    value, step = np.zeros((*shape, 2)), np.zeros((*shape, 2))
    _values(columns, facts.columns, value, step)
    size = np.max(np.abs(value), axis=-1) + facts.rotor * qd.size() + end
    return SampleBounds(index, columns, end, inflate(size))
