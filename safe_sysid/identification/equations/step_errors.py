r"""Step errors: what one step and one sample contribute to the error of each row, with proofs.

Notation: ``h, sigma, c, u, rho, A`` of :class:`~safe_sysid.identification.equations.step_states.StepStates`;
``H = h + 2 sigma``; dq, dv the errors of position (of a sample; of a step the mean of its two) and of velocity. On the
step, for all t,

- ``|qd(t) - u| <= w = A H/2 + rho``, ``|qd(t)| <= V = |u| + w``, ``|q(t) - c| <= x = V H/2 + dq``;
- ``|int (q - c) dt| <= h x1``, ``x1 = A H^2/12 + dq``: trapezoid rule for a function with a Lipschitz derivative.

*First derivatives* at an evaluated state ``(c, u)`` along ``z = (x, y)``: the smaller, joint by joint, of the Leibniz
bound ``f1(z)`` at ``|qd| <= |u|`` (it alone knows that links are physically consistent) and ``F_q x + F_qd y``, the
bounds of :mod:`~safe_sysid.identification.equations.linearisation` at this very state. This is ``Df(z)``; ``Dp(z)`` is
the same for p. They are those that the certificates' checker sizes rows by: what is carried over from another state
is larger, and then logs may contradict the checker's rows that do not contradict these.

*Rate* (weight ``phi h``): ``int phi f dt`` is evaluated as ``phi_k h f(c, u)``. Taylor: the linear term integrates to
``f_q int (q - c) dt + f_qd h (mean - u)``, at most ``h Df(x1, rho)``; the second-order one to at most ``h f2(x,
w)/2`` at V. ``rate = Df(x1, rho) + f2((x, w), (x, w))/2``.

*Rate on slopes* (weight ``|rise|``): with phi' = s the rest is ``s int (t - mid)(f - f(c, u)) dt``. Linear term:
``q(t) - c`` is ``q(t) - q(mid)`` plus a constant that integrates to zero against ``t - mid``, so
``|int (t - mid)(q - c) dt| <= V H^3/12``, likewise ``A H^3/12`` for qd; second-order term: ``f2/2`` times
``int |t - mid| dt = H^2/4``. ``slope = H^2/12 Df(V, A) + H/8 f2((x, w), (x, w))``.

*Momentum on slopes*: ``s int p dt`` is evaluated as ``s H(c) (q1 - q0)``, whatever the step lasted. Besides the
position errors (below), ``int (H(q) - H(c)) qd dt``: ``H'(c)[q - c] u`` integrates to at most ``h Dp(x1, 0)``, all
other terms to ``h p2(x, w)/2`` at V. ``ramp = Dp(x1, 0) + p2((x, w), (x, w))/2``.

*Position errors on slopes*: ``sum_k s_k H(c_k) (e_{k+1} - e_k)``, by Abel
``-sum_k e_k (s_k H(c_k) - s_{k-1} H(c_{k-1}))``; each term is at most
``|s_k - s_{k-1}| max(shift_k, shift_{k-1}) + min(|s_k|, |s_{k-1}|) twist_k`` with ``shift = Dp(0, dq) + Ia dq`` (dq
the larger of the step's two; the rotor's term is the same with a constant Ia) and ``twist = p1`` of
``(|c_k - c_{k-1}|, 0)`` with V replaced by dq.

*Ends* (weight phi there): a momentum evaluated at a sample is off by
``end = Dp(dq, dv) + p2((dq, dv), (dq, dv))/2 + Ia dv``, p2 at ``|qd| + dv``.

*Zeros*: where a joint is at ``q + delta``, ``|delta| <= zero``, all of the above is of q as it would be measured
without noise. Taylor from the evaluated state to the true one then has ``x + zero`` in the second-order terms, and two
more first-order ones: the derivative along delta at mid parameters, which is a column of the row (``f_q`` at
``(c, u)``, ``p_q`` at ``(c, delta/h)`` and at samples), and what the parameters of the box make of it besides, at most
``zero`` times ``|D| rad``: in rate, ramp, end, size and change. On slopes a constant integrates to zero against
``t - mid``.
Momentum on slopes is ``s (H(c) + H'(c)[delta]) (q1 - q0)``, q1 - q0 the true change, delta or not; so shift gains
``p1`` of ``(zero, 0)`` and twist ``p2(z, z')``, ``z = (|c_k - c_{k-1}|, 0)``, ``z' = (zero, 0)``, at most half of
``p2(z + z', z + z')``, with V replaced by dq. The derivative of f by g is taken ``x1 + zero`` and ``x + zero`` away.

*Gravity*: off by at most ``gamma = |g| (relative + (1 + relative) angle)``; ``df/dg = int d_i x dm`` is, by Taylor, in
the mean over the step at most ``|F_g| + b1(x1) + b2(x, x)/2`` in norm. ``gravity = gamma`` times that or ``gamma b0``
if smaller; ``|g| b0``, ``|g| b1``, ``|g| b2`` are f0, f1, f2 at rest.

*Stamps*: the torque less what f, Coulomb friction and offset make of it, ``X = tau + f(c, u) - Fc sign - beta`` (and
each further term as Fc, ``unit`` in place of sign), is multiplied by the duration; ``|X| <= size`` and
``|X_k - X_{k-1}| <= change`` by the row itself, over the box: mid value plus half widths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.momentum_columns import column_space, columns_from
from safe_sysid.identification.equations.linearisation import DERIVATIVES, derivative_bounds
from safe_sysid.identification.equations.remainders import Magnitudes, motion_bounds
from safe_sysid.robot.model import Kinematics

__all__ = ["Limits", "StepErrors", "StepTable", "step_kernel"]

FloatArray = NDArray[np.float64]
_KINDS = len(DERIVATIVES)


class Limits(NamedTuple):
    """What the box and the declared errors say, per joint (n,) or one number.

    Attributes:
        mid, rad: (K + D,) centre and half width of the inertial parameters, and of the rotor inertias (reactions, where
            the ratio is not known) of the M motors on moving links, K = 10 n + M; then of the zeros of D joints.
        coulomb, viscous, rotor: largest magnitudes; zero at a link-side sensor, which sees none of them.
        coulomb_mid, coulomb_rad: interval of Fc.
        beta_mid, beta_rad: interval of the offset and the sensor's constant bias together.
        friction: 1.0 if rows hold friction and rotor inertia, else 0.0.
        velocity: error bounds, rad/s.
        gravity: error bound, m/s^2.
        drift: N m. delay, jitter: s. rate: N m/s of a sampled torque.
        sampled: whether effort is sampled.
        further, further_mid, further_rad: (F, n) largest magnitude and interval of each further term of the layout.
        shifted: (D,) joints whose zeros are not known. zero: (n,) by how much they may be off, rad.
    """

    mid: FloatArray
    rad: FloatArray
    coulomb: FloatArray
    viscous: FloatArray
    rotor: FloatArray
    coulomb_mid: FloatArray
    coulomb_rad: FloatArray
    beta_mid: FloatArray
    beta_rad: FloatArray
    friction: float
    velocity: FloatArray
    gravity: float
    drift: FloatArray
    delay: float
    jitter: float
    rate: FloatArray
    sampled: bool
    further: FloatArray
    further_mid: FloatArray
    further_rad: FloatArray
    shifted: NDArray[np.int64]
    zero: FloatArray


class StepTable(NamedTuple):
    """Samples (m+1, ..) and the steps between them (m, ..).

    Attributes:
        stamps, q, off, qd: of the samples; off: error bounds of q, rad.
        h, sigma, centre, mean, rho, delta, ride, ride_off, acceleration: of
            :class:`~safe_sysid.identification.equations.step_states.StepStates`.
        torque, noise: middle and half width of the mean torque, as far as noise goes, N m.
        loose: half width of the mean torque with all that is not known of it, N m: that of a sampled one besides by
            ``torque_rate (H/4 + torque_delay + torque_jitter)``.
        unit, unit_half: (F, m, n) middle and half width of each further term's torque per unit, at all times.
    """

    stamps: FloatArray
    q: FloatArray
    off: FloatArray
    qd: FloatArray
    h: FloatArray
    sigma: FloatArray
    centre: FloatArray
    mean: FloatArray
    rho: FloatArray
    delta: FloatArray
    ride: FloatArray
    ride_off: FloatArray
    acceleration: FloatArray
    sign: FloatArray
    torque: FloatArray
    noise: FloatArray
    loose: FloatArray
    unit: FloatArray
    unit_half: FloatArray


class StepErrors(NamedTuple):
    """Results for m steps and m + 1 samples; the names are those of the text above.

    Attributes:
        rate_columns, momentum_columns: (m, n, K + D) of W_c and W_m at ``(c, u)``, of W_m at ``(c, delta/h)``
            precisely; the last D are derivatives by the joints whose zeros are not known, at mid parameters.
        end_columns: (m+1, n, K + D) of W_m at the samples.
        rate, slope, ramp, shift, twist, gravity, size, change: (m, n).
        end, momentum: (m+1, n); momentum bounds ``|p + Ia qd|`` of the true state.
        torques, momenta: (m, n), (m+1, n) sums of the magnitudes of all terms, which rounding errors are relative to:
            ``|tau| + f0 + Fc + Fv V + |beta|`` at V and ``p0 + Ia |qd|`` at ``|qd| + dv``.
    """

    rate_columns: FloatArray
    momentum_columns: FloatArray
    end_columns: FloatArray
    rate: FloatArray
    slope: FloatArray
    ramp: FloatArray
    shift: FloatArray
    twist: FloatArray
    gravity: FloatArray
    size: FloatArray
    change: FloatArray
    end: FloatArray
    momentum: FloatArray
    torques: FloatArray
    momenta: FloatArray


@njit(cache=True)
def _apply(matrix: FloatArray, x: FloatArray, i: int) -> float:
    total = 0.0
    for j in range(x.size):
        total += matrix[i, j] * x[j]
    return total


@njit(cache=True)
def _interval(row: FloatArray, mid: FloatArray, rad: FloatArray, start: int) -> tuple[float, float]:
    """Value at mid and half width over the box."""
    value, spread = 0.0, 0.0
    for c in range(start, mid.size):
        value += row[c] * mid[c]
        spread += abs(row[c]) * rad[c]
    return value, spread


@njit(cache=True)
def _put_slopes(limits: Limits, slopes: FloatArray, kind: int, columns: FloatArray, left: FloatArray) -> None:
    """Columns (n, K + D) of the zeros, and what is left of them over the box, at most (n,)."""
    first = limits.mid.size - limits.shifted.size
    for i in range(left.size):
        left[i] = 0.0
        for d in range(limits.shifted.size):
            j = limits.shifted[d]
            columns[i, first + d] = slopes[0, kind, i, j]
            left[i] += slopes[1, kind, i, j] * limits.zero[j]


@njit(cache=True)
def _samples(kin: Kinematics, size: Magnitudes, limits: Limits, steps: StepTable, out: StepErrors) -> None:
    """What belongs to samples: momentum columns, their errors and sizes."""
    dv, rotor = limits.velocity, limits.rotor
    n = dv.size
    now, far, bounds = np.empty((6, n)), np.empty((6, n)), np.empty((_KINDS, n, max(n, 3)))
    speed, fastest, away, left = np.empty(n), np.empty(n), np.empty(n), np.zeros(n)
    gravity = kin.gravity.copy()
    size_known, shifted = limits.mid.size - limits.shifted.size, limits.shifted.size > 0
    mid, rad, slopes = limits.mid[:size_known], limits.rad[:size_known], np.zeros((2, _KINDS, n, max(n, 3)))
    rest = np.empty((n, size_known))  # what nobody asks for: one function for all calls is compiled once
    first, turned, no = np.int64(0), np.bool_(True), np.bool_(False)  # literals would be compiled anew, each
    erring = np.any(steps.off > 0.0) or np.any(dv > 0.0) or shifted
    for k in range(steps.q.shape[0]):
        q, dq, qd, columns = steps.q[k], steps.off[k], steps.qd[k], out.end_columns[k]
        columns_from(kin, gravity, qd, limits.friction, first, turned, column_space(kin, q), columns, rest)
        for j in range(n):
            speed[j] = abs(qd[j])
            fastest[j] = speed[j] + dv[j]
            away[j] = dq[j] + limits.zero[j]
        motion_bounds(size, fastest, away, dv, away, dv, far)
        if erring:
            derivative_bounds(kin, mid, rad, limits.friction, no, no, q, qd, bounds, slopes)
            motion_bounds(size, speed, dq, dv, dq, dv, now)
        if shifted:
            _put_slopes(limits, slopes, first, columns, left)
        for i in range(n):
            if erring:
                most = _apply(bounds[0], dq, i) + _apply(bounds[1], dv, i)
                out.end[k, i] = min(now[1, i], most) + 0.5 * far[2, i] + rotor[i] * dv[i] + left[i]
            value, spread = _interval(columns[i], limits.mid, limits.rad, PER_LINK * i)
            out.momentum[k, i] = abs(value) + spread + rotor[i] * speed[i] + out.end[k, i]
            out.momenta[k, i] = far[0, i] + rotor[i] * fastest[i]
            if shifted:
                out.momenta[k, i] += far[1, i]


@njit(cache=True)
def _stamps(
    limits: Limits, steps: StepTable, k: int, left: FloatArray, left_before: FloatArray, out: StepErrors
) -> None:
    """``size`` and ``change`` of step k; ``left`` (n,) is of :func:`_put_slopes`, of this step and the one before."""
    mid, rad = limits.mid, limits.rad
    for i in range(limits.velocity.size):
        columns = out.rate_columns[k, i]
        value, spread = _interval(columns, mid, rad, PER_LINK * i)
        s = steps.sign[k, i]
        unknown = limits.coulomb[i] if s == 0.0 else limits.coulomb_rad[i]
        value += steps.torque[k, i] - limits.beta_mid[i] - s * limits.coulomb_mid[i]
        for f in range(steps.unit.shape[0]):
            value -= steps.unit[f, k, i] * limits.further_mid[f, i]
            spread += abs(steps.unit[f, k, i]) * limits.further_rad[f, i]
            spread += steps.unit_half[f, k, i] * limits.further[f, i]
        out.size[k, i] = abs(value) + spread + steps.loose[k, i] + limits.beta_rad[i] + unknown + left[i]
        if k == 0:
            continue
        before = steps.sign[k - 1, i]
        value = steps.torque[k, i] - steps.torque[k - 1, i] - (s - before) * limits.coulomb_mid[i]
        spread = steps.loose[k, i] + steps.loose[k - 1, i] + abs(s - before) * limits.coulomb_rad[i]
        spread += ((s == 0.0) + (before == 0.0)) * limits.coulomb[i]
        for f in range(steps.unit.shape[0]):
            step = steps.unit[f, k, i] - steps.unit[f, k - 1, i]
            value -= step * limits.further_mid[f, i]
            spread += abs(step) * limits.further_rad[f, i]
            spread += (steps.unit_half[f, k, i] + steps.unit_half[f, k - 1, i]) * limits.further[f, i]
        for c in range(PER_LINK * i, mid.size):
            step = columns[c] - out.rate_columns[k - 1, i, c]
            value += step * mid[c]
            spread += abs(step) * rad[c]
        out.change[k, i] = abs(value) + spread + (left[i] + left_before[i])


@njit(cache=True, nogil=True)
def step_kernel(
    kin: Kinematics, size: Magnitudes, limits: Limits, steps: StepTable, ramps: bool, out: StepErrors
) -> None:
    """Fill ``out``.

    Args:
        ramps: whether any window has slopes; if not, what only they need stays zero.
        out: results; ``momentum_columns`` may be of length 0 without ramps.
    """
    _samples(kin, size, limits, steps, out)
    n = limits.velocity.size
    gravity, own = kin.gravity.copy(), limits.friction
    unit = Magnitudes(size.s_a, size.s_b, 1.0, size.motors, size.kappa, size.shares, size.own)
    one, zero = np.ones(n), np.zeros(n)
    now, far, bounds = np.empty((6, n)), np.empty((6, n)), np.empty((_KINDS, n, max(n, 3)))
    speed, jump = np.empty(n), np.empty(n)
    big_v, w, x, x1, rho, acc = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    dq, moved = np.empty(n), np.any(steps.off > 0.0)
    size_known, shifted = limits.mid.size - limits.shifted.size, limits.shifted.size > 0
    mid, rad, slopes = limits.mid[:size_known], limits.rad[:size_known], np.zeros((2, _KINDS, n, max(n, 3)))
    rest = np.empty((n, size_known))
    start, rates, yes, no = np.int64(0), np.int64(2), np.bool_(True), np.bool_(False)  # as in _samples
    left, left_before, away, still = np.zeros(n), np.zeros(n), np.empty(n), limits.zero
    for k in range(steps.h.size):
        centre, mean = steps.centre[k], steps.mean[k]
        columns_from(kin, gravity, mean, own, start, yes, column_space(kin, centre), rest, out.rate_columns[k])
        derivative_bounds(kin, mid, rad, own, yes, limits.gravity > 0.0, centre, mean, bounds, slopes)
        if shifted:
            left, left_before = left_before, left
            _put_slopes(limits, slopes, rates, out.rate_columns[k], left)
        longest = steps.h[k] + 2.0 * steps.sigma[k]
        for j in range(n):
            rho[j], acc[j], speed[j] = steps.rho[k, j], steps.acceleration[k, j], abs(mean[j])
            w[j] = 0.5 * acc[j] * longest + rho[j]
            big_v[j] = speed[j] + w[j]
            dq[j] = 0.5 * (steps.off[k, j] + steps.off[k + 1, j])
            x[j] = 0.5 * big_v[j] * longest + dq[j]
            x1[j] = acc[j] * longest * longest / 12.0 + dq[j]
            away[j] = x[j] + still[j]
        motion_bounds(size, speed, x1, rho, x1, rho, now)
        motion_bounds(size, big_v, away, w, away, w, far)
        for i in range(n):
            first = _apply(bounds[2], x1, i) + _apply(bounds[3], rho, i)
            out.rate[k, i] = min(now[4, i], first) + 0.5 * far[5, i] + left[i]
            out.torques[k, i] = (
                abs(steps.torque[k, i]) + steps.loose[k, i] + far[3, i] + limits.coulomb[i]
                + limits.viscous[i] * big_v[i] + abs(limits.beta_mid[i]) + limits.beta_rad[i]
            )  # fmt: skip
            for f in range(steps.unit.shape[0]):
                out.torques[k, i] += (abs(steps.unit[f, k, i]) + steps.unit_half[f, k, i]) * limits.further[f, i]
            if shifted:
                out.torques[k, i] += far[4, i]
        _stamps(limits, steps, k, left, left_before, out)
        if ramps:
            for j in range(n):
                w[j] = steps.delta[k, j] / steps.h[k]
            columns_from(kin, gravity, w, own, start, yes, column_space(kin, centre), out.momentum_columns[k], rest)
            for i in range(n):
                out.slope[k, i], out.ramp[k, i] = longest / 8.0 * far[5, i], 0.5 * far[2, i]
            motion_bounds(size, speed, big_v, acc, one, one, now)
            for i in range(n):
                first = _apply(bounds[2], big_v, i) + _apply(bounds[3], acc, i)
                out.slope[k, i] += longest * longest / 12.0 * min(now[4, i], first)
            motion_bounds(size, speed, x1, zero, x1, zero, now)
            for i in range(n):
                out.ramp[k, i] += min(now[1, i], _apply(bounds[0], x1, i))
            if shifted:
                for j in range(n):
                    w[j] = steps.delta[k, j] / steps.h[k]
                derivative_bounds(kin, mid, rad, own, no, no, centre, w, bounds, slopes)
                _put_slopes(limits, slopes, start, out.momentum_columns[k], away)
                for i in range(n):
                    out.ramp[k, i] += away[i]
                    out.momenta[k, i] += far[1, i]
        if ramps and moved:
            for j in range(n):
                dq[j] = max(steps.off[k, j], steps.off[k + 1, j])
            motion_bounds(size, speed, zero, dq, zero, dq, now)
            if shifted:
                motion_bounds(size, dq, still, zero, still, zero, far)
            for i in range(n):
                first = min(now[1, i], _apply(bounds[1], dq, i))
                out.shift[k, i] = first + limits.rotor[i] * dq[i]
                if shifted:
                    out.shift[k, i] += far[1, i]
            if k > 0:
                for j in range(n):
                    dq[j] = steps.off[k, j]
                    jump[j] = abs(centre[j] - steps.centre[k - 1, j])
                motion_bounds(size, dq, jump, zero, jump, zero, now)
                if shifted:
                    for j in range(n):
                        jump[j] += still[j]
                    motion_bounds(size, dq, jump, zero, jump, zero, far)
                for i in range(n):
                    out.twist[k, i] = now[1, i]
                    if shifted:
                        out.twist[k, i] += 0.5 * far[2, i]
        if limits.gravity > 0.0:
            for j in range(n):
                x1[j] += still[j]
                x[j] += still[j]
            motion_bounds(unit, zero, x1, zero, x, zero, now)
            motion_bounds(unit, zero, x, zero, x, zero, far)
            for i in range(n):
                square = bounds[4, i, 0] ** 2 + bounds[4, i, 1] ** 2 + bounds[4, i, 2] ** 2
                most = min(now[3, i], np.sqrt(square) + now[4, i] + 0.5 * far[5, i])
                out.gravity[k, i] = limits.gravity * most * (1.0 + 1e-11)
