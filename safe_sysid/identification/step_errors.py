r"""What one step, and one sample, contributes to the errors of every row that it is in: rates, proved here.

Notation: ``h, sigma, c, u, rho, A`` of :class:`~safe_sysid.identification.step_states.StepStates`;
``H = h + 2 sigma``; dq, dv the errors of position and velocity; ``(q_a, qd_a)`` the measured state of the sample that
the step is linearised at (its *anchor*). On the step, for all t,

- ``|qd(t) - u| <= w = A H/2 + rho``, ``|qd(t)| <= V = |u| + w``, ``|q(t) - c| <= x = V H/2 + dq``;
- ``|int (q - c) dt| <= h x1``, ``x1 = A H^2/12 + dq``: trapezoid rule for a function with a Lipschitz derivative.

*First derivatives* at an evaluated state ``(c, u)`` along ``z = (x, y)``: the smaller, joint by joint, of the Leibniz
bound ``f1(z)`` at ``|qd| <= |u|`` and ``F_q x + F_qd y + f2(Delta, z)``: the bounds at the anchor plus their change
on the way, ``Delta = (|c - q_a|, |u - qd_a|)``, f2 at ``|qd| <= max(|u|, |qd_a|)``. This is ``Df(z)``; ``Dp(z)`` is
the same for p.

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
``|s_k - s_{k-1}| max(shift_k, shift_{k-1}) + min(|s_k|, |s_{k-1}|) twist_k`` with ``shift = Dp(0, dq) + Ia dq`` (the
rotor's term is the same with a constant Ia) and ``twist = p1`` of ``(|c_k - c_{k-1}|, 0)`` with V replaced by dq.

*Ends* (weight phi there): a momentum evaluated at a sample is off by
``end = Dp(dq, dv) + p2((dq, dv), (dq, dv))/2 + Ia dv``, p2 at ``|qd| + dv``.

*Gravity*: off by at most ``gamma = |g| (relative + (1 + relative) angle)``; ``df/dg = int d_i x dm``, at most
``|F_g| + b1(Delta_q)`` in norm. ``gravity = gamma (|F_g| + b1)`` or ``gamma b0`` if smaller; ``|g| b0``, ``|g| b1``
are f0 and f1 at rest.

*Stamps*: the torque less what f, Coulomb friction and offset make of it, ``X = tau + f(c, u) - Fc sign - beta``, is
multiplied by the duration; ``|X| <= size`` and ``|X_k - X_{k-1}| <= change`` by the row itself, over the box: mid
value plus half widths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.identification.linearisation import Anchors
from safe_sysid.identification.regressor_kernels import momentum_columns
from safe_sysid.identification.remainders import Magnitudes, motion_bounds
from safe_sysid.robot.model import Kinematics

__all__ = ["Limits", "StepErrors", "Steps", "step_kernel"]

FloatArray = NDArray[np.float64]


class Limits(NamedTuple):
    """What the box and the declared errors say, per joint (n,) or one number.

    Attributes:
        mid, rad: (10 n,) centre and half width of the inertial parameters.
        coulomb, viscous, rotor: largest magnitudes; zero at a link-side sensor, which sees none of them.
        coulomb_mid, coulomb_rad: interval of Fc.
        beta_mid, beta_rad: interval of the offset and the sensor's constant bias together.
        friction: 1.0 if rows hold friction and rotor inertia, else 0.0.
        position, velocity: error bounds, rad and rad/s.
        gravity: error bound, m/s^2.
        drift: N m. delay, jitter: s. rate: N m/s of a sampled torque.
        sampled: whether effort is sampled.
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
    position: FloatArray
    velocity: FloatArray
    gravity: float
    drift: FloatArray
    delay: float
    jitter: float
    rate: FloatArray
    sampled: bool


class Steps(NamedTuple):
    """Samples (m+1, ..) and the steps between them (m, ..).

    Attributes:
        stamps, q, qd: of the samples.
        h, sigma, centre, mean, rho, delta, acceleration: of
            :class:`~safe_sysid.identification.step_states.StepStates`.
        sign: of the friction.
        torque, noise: middle and half width of the mean torque, as far as noise goes, N m.
        loose: half width of the mean torque with all that is not known of it, N m.
    """

    stamps: FloatArray
    q: FloatArray
    qd: FloatArray
    h: FloatArray
    sigma: FloatArray
    centre: FloatArray
    mean: FloatArray
    rho: FloatArray
    delta: FloatArray
    acceleration: FloatArray
    sign: FloatArray
    torque: FloatArray
    noise: FloatArray
    loose: FloatArray


class StepErrors(NamedTuple):
    """Results for m steps and m + 1 samples; the names are those of the text above.

    Attributes:
        rate_columns, momentum_columns: (m, n, 10 n) of W_c and W_m at ``(c, u)``, of W_m at ``(c, delta/h)``
            precisely.
        end_columns: (m+1, n, 10 n) of W_m at the samples.
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
def step_kernel(
    kin: Kinematics,
    size: Magnitudes,
    limits: Limits,
    steps: Steps,
    anchors: Anchors,
    ramps: bool,
    out: StepErrors,
) -> None:
    """Fill ``out``.

    Args:
        kin: of the arm.
        size: magnitudes over the box.
        limits: of parameters and errors.
        steps: of the run.
        anchors: with their bounds.
        ramps: whether any window has slopes; if not, what only they need stays zero.
        out: results; ``momentum_columns`` may be of length 0 without ramps.
    """
    mid, rad, dq, dv = limits.mid, limits.rad, limits.position, limits.velocity
    q, qd, mean, centre = steps.q, steps.qd, steps.mean, steps.centre
    s_a, s_b, g, gravity = size.s_a, size.s_b, size.g, kin.gravity
    n, m = dq.size, steps.h.size
    one, zero = np.ones(n), np.zeros(n)
    now, far, way = np.empty((6, n)), np.empty((6, n)), np.empty((6, n))
    big_v, w, x, x1, du, dx = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    top, u_abs, end_v = np.empty(n), np.empty(n), np.empty(n)
    spare = np.zeros((n, 10 * n))
    moved = np.any(dq > 0.0)
    erring = moved or np.any(dv > 0.0)
    for k in range(m + 1):
        columns = out.end_columns[k]
        momentum_columns(kin, gravity, q[k], qd[k], columns, spare)
        a = anchors.which[k]
        bounds = anchors.bounds[a]
        for j in range(n):
            dx[j], du[j] = abs(q[k, j] - anchors.q[a, j]), abs(qd[k, j] - anchors.qd[a, j])
            u_abs[j], top[j] = abs(qd[k, j]), max(abs(qd[k, j]), abs(anchors.qd[a, j]))
            end_v[j] = u_abs[j] + dv[j]
        motion_bounds(s_a, s_b, g, end_v, dq, dv, dq, dv, far)
        if erring:
            motion_bounds(s_a, s_b, g, u_abs, dq, dv, dq, dv, now)
            motion_bounds(s_a, s_b, g, top, dx, du, dq, dv, way)
        for i in range(n):
            out.end[k, i] = 0.0
            if erring:
                first = _apply(bounds[0], dq, i) + _apply(bounds[1], dv, i) + way[2, i]
                out.end[k, i] = min(now[1, i], first) + 0.5 * far[2, i] + limits.rotor[i] * dv[i]
            value, spread = _interval(columns[i], mid, rad, 10 * i)
            out.momentum[k, i] = abs(value) + spread + limits.rotor[i] * abs(qd[k, i]) + out.end[k, i]
            out.momenta[k, i] = far[0, i] + limits.rotor[i] * end_v[i]

    for k in range(m):
        columns = out.rate_columns[k]
        spare_m = out.momentum_columns[k] if ramps else spare
        momentum_columns(kin, gravity, centre[k], mean[k], spare_m, columns)
        a = anchors.which[k]
        bounds = anchors.bounds[a]
        longest = steps.h[k] + 2.0 * steps.sigma[k]
        for j in range(n):
            acc = steps.acceleration[k, j]
            w[j] = 0.5 * acc * longest + steps.rho[k, j]
            u_abs[j] = abs(mean[k, j])
            big_v[j] = u_abs[j] + w[j]
            x[j] = 0.5 * big_v[j] * longest + dq[j]
            x1[j] = acc * longest * longest / 12.0 + dq[j]
            dx[j], du[j] = abs(centre[k, j] - anchors.q[a, j]), abs(mean[k, j] - anchors.qd[a, j])
            top[j] = max(u_abs[j], abs(anchors.qd[a, j]))
        motion_bounds(s_a, s_b, g, u_abs, x1, steps.rho[k], x1, steps.rho[k], now)
        motion_bounds(s_a, s_b, g, top, dx, du, x1, steps.rho[k], way)
        motion_bounds(s_a, s_b, g, big_v, x, w, x, w, far)
        for i in range(n):
            first = _apply(bounds[2], x1, i) + _apply(bounds[3], steps.rho[k], i) + way[5, i]
            out.rate[k, i] = min(now[4, i], first) + 0.5 * far[5, i]
            out.torques[k, i] = (
                abs(steps.torque[k, i]) + steps.loose[k, i] + far[3, i] + limits.coulomb[i]
                + limits.viscous[i] * big_v[i] + abs(limits.beta_mid[i]) + limits.beta_rad[i]
            )  # fmt: skip
        if ramps:
            for i in range(n):
                out.slope[k, i] = longest / 8.0 * far[5, i]
                out.ramp[k, i] = 0.5 * far[2, i]
            motion_bounds(s_a, s_b, g, u_abs, big_v, steps.acceleration[k], one, one, now)
            motion_bounds(s_a, s_b, g, top, dx, du, big_v, steps.acceleration[k], way)
            for i in range(n):
                first = _apply(bounds[2], big_v, i) + _apply(bounds[3], steps.acceleration[k], i) + way[5, i]
                out.slope[k, i] += longest * longest / 12.0 * min(now[4, i], first)
            motion_bounds(s_a, s_b, g, u_abs, x1, zero, x1, zero, now)
            motion_bounds(s_a, s_b, g, top, dx, du, x1, zero, way)
            for i in range(n):
                out.ramp[k, i] += min(now[1, i], _apply(bounds[0], x1, i) + way[2, i])
            momentum_columns(kin, gravity, centre[k], steps.delta[k] / steps.h[k], spare_m, spare)
        if ramps and moved:
            motion_bounds(s_a, s_b, g, u_abs, zero, dq, zero, dq, now)
            motion_bounds(s_a, s_b, g, top, dx, du, zero, dq, way)
            for i in range(n):
                first = min(now[1, i], _apply(bounds[1], dq, i) + way[2, i])
                out.shift[k, i] = first + limits.rotor[i] * dq[i]
                out.twist[k, i] = 0.0
            if k > 0:
                for j in range(n):
                    dx[j] = abs(centre[k, j] - centre[k - 1, j])
                motion_bounds(s_a, s_b, g, dq, dx, zero, dx, zero, now)
                for i in range(n):
                    out.twist[k, i] = now[1, i]
        if limits.gravity > 0.0:
            for j in range(n):
                dx[j] = abs(centre[k, j] - anchors.q[a, j])
            motion_bounds(s_a, s_b, 1.0, zero, dx, zero, dx, zero, now)
            for i in range(n):
                square = bounds[4, i, 0] ** 2 + bounds[4, i, 1] ** 2 + bounds[4, i, 2] ** 2
                out.gravity[k, i] = (
                    limits.gravity * min(now[3, i], np.sqrt(square) + now[4, i]) * (1.0 + 1e-11)
                )
        for i in range(n):
            value, spread = _interval(columns[i], mid, rad, 10 * i)
            s = steps.sign[k, i]
            unknown = limits.coulomb[i] if s == 0.0 else limits.coulomb_rad[i]
            value += steps.torque[k, i] - limits.beta_mid[i] - s * limits.coulomb_mid[i]
            out.size[k, i] = abs(value) + spread + steps.loose[k, i] + limits.beta_rad[i] + unknown
            out.change[k, i] = 0.0
            if k > 0:
                value, spread = (
                    steps.torque[k, i] - steps.torque[k - 1, i],
                    steps.loose[k, i] + steps.loose[k - 1, i],
                )
                for c in range(10 * i, mid.size):
                    step = columns[i, c] - out.rate_columns[k - 1, i, c]
                    value += step * mid[c]
                    spread += abs(step) * rad[c]
                before = steps.sign[k - 1, i]
                value -= (s - before) * limits.coulomb_mid[i]
                spread += abs(s - before) * limits.coulomb_rad[i]
                spread += ((s == 0.0) + (before == 0.0)) * limits.coulomb[i]
                out.change[k, i] = abs(value) + spread
