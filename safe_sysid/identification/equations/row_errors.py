r"""Rows of windows: weighted sums over steps, and the proved error of each, by cause.

Samples i..f of a window, phi_k the test function at them; for step k (from sample k to k+1): ``p_k = (phi_k +
phi_{k+1})/2``, ``r_k = phi_{k+1} - phi_k``, slope ``s_k = r_k / h_k``, ``area_k = p_k h_k``. The true test function
has the *same slopes over the true durations*, so that no slope has an error; it then differs from phi by at most ``E
= sigma S``, S the total variation of the slope (from 0 to 0), also at the end, where it need not be quite zero. ``H_k
= h_k + 2 sigma``, ``wide_k = (p_k + E) H_k``, ``turn_k = |r_k| H_k / h_k``; sigma of the window's last sample, the
largest. All other names: :mod:`safe_sysid.identification.equations.step_errors`.

Row j: ``phi_f P_f - phi_i P_i - sum (area_k F_k + r_k P_k)`` in the inertial columns (P_f, P_i, P_k momentum at ends
and steps, F_k rate) and, with the columns of motors on moving links, in Ia of the joints that these drive (in kappa,
where the ratio is not known); in the zeros of joints, with derivatives of F and P by these. ``sum area_k sign_k`` for
Fc, ``sum p_k delta_k`` for Fv, ``phi_f qd_f - phi_i qd_i - sum s_k delta_k`` for its own Ia besides, ``sum area_k`` for
beta; right-hand side ``sum area_k tau_k``. For a held torque, tau_k and noise_k are middle and half width of the effort
at sample k+1; for a sampled one, the means of those at samples k and k+1.

Slack, in the order of :data:`ERROR_CAUSES`:

1. torque: ``sum area_k noise_k`` less the next.
2. drift: ``sum area_k torque_drift``; part of the interval above, named apart because it does not average out.
3. delay, held: with a constant delay d, ``int phi(t) tau(t) dt = int phi(t - d) m(t) dt``, m the torque as reported;
   the difference to ``int phi m`` is ``int (phi(t - d) - phi(t)) (m - c) dt`` for any constant c, at most ``|d|``
   times the total variation of phi times ``max |m - c|`` where ``|d|`` from a change of phi: ``torque_delay (T/2 + E)
   (max upper - min lower)`` over the torque intervals of the steps near, ``T = phi_i + phi_f + sum turn_k``. Near,
   without slopes: at most ``torque_delay + torque_jitter + 2 sigma`` from an end; with slopes: the window's and those
   beside it. Every switch of the torque may besides be off by ``torque_jitter``: that times ``(1 + E)
   sum |tau_k - tau_{k-1}| + noise_k + noise_{k-1}`` over the switches of the window and beside it. Sampled:
   ``sum wide_k torque_rate (torque_delay + torque_jitter)``.
4. coulomb: ``Fc sum area_k [sign_k = 0]``; and ``sum area_k unit_half_k`` times each further term, whose column is
   ``sum area_k unit_k``: its torque per unit is within unit_half of unit all through the step.
5. quadrature: ``sum wide_k rate_k + turn_k slope_k``; sampled effort adds
   ``sum torque_rate (wide_k H_k/4 + turn_k H_k^2/12)`` (trapezoid of a function with that Lipschitz constant; its
   moment).
6. momentum: ``phi_i end_i + phi_f end_f + sum turn_k ramp_k`` and the Abel sum of ``shift`` and ``twist`` over
   samples i..f (slopes zero outside).
7. friction: ``Fv int phi qd`` is evaluated as ``Fv p_k delta_k``: ``Fv (sum dq_k |p_k - p_{k-1}| + sum turn_k A_k
   H_k^2/12)``, samples i..f, p zero outside (Abel). Without slopes, and joint by joint where that is less, as ``Fv p_k
   ride_k``, the changes of position by velocities: ``Fv sum p_k ride_off_k``.
8. gravity: ``sum wide_k gravity_k``.
9. stamps: durations are ``h_k + e_{k+1} - e_k``; by Abel
   ``sigma sum_{k=i..f} |p_k - p_{k-1}| max(size_k, size_{k-1}) + min(p_k, p_{k-1}) change_k`` (p zero outside); the
   test function's own deviation: ``E (sum H_k size_k + Fv (|delta_k| + 2 dq) + momentum_f)``.
10. rounding: ``1e-10 (sum area_k torques_k + phi_i momenta_i + phi_f momenta_f + sum turn_k (momenta_k +
    momenta_{k+1}) + |right-hand side|)``.

The sum of the ten, times ``1 + 1e-12``, is the slack.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS
from safe_sysid.identification.equations.step_errors import Limits, StepErrors, StepTable
from safe_sysid.identification.equations.windows import weights

__all__ = ["ERROR_CAUSES", "WindowRows", "window_kernel"]


#: Causes of the half width of a row, in the order of :attr:`MomentumRows.parts`.
ERROR_CAUSES = (
    "torque", "drift", "delay", "coulomb", "quadrature", "momentum", "friction", "gravity", "stamps", "rounding",
)  # fmt: skip
#: Rounding of regressors and sums, relative to the size of the terms (measured below 1e-13).
_ROUNDING = 1e-10


class WindowRows(NamedTuple):
    """Results for W windows: (W, n, 14 n + E), (W, n) twice, (W, n, causes), and which have what they need."""

    matrix: FloatArray
    target: FloatArray
    noise_square: FloatArray
    parts: FloatArray
    valid: BoolArray


@njit(cache=True)
def _delay(
    steps: StepTable,
    limits: Limits,
    first: int,
    last: int,
    ramp: float,
    variation: float,
    deviation: float,
    parts: FloatArray,
) -> bool:
    """Third part, of a held torque; False if the torques near the window's ends are not known.

    Args:
        ramp: s.
        parts: (n, causes) result.
    """
    need = limits.delay + limits.jitter + 2.0 * steps.sigma[last - 1]
    low, high = first, last
    while low > 0 and steps.stamps[first] - steps.stamps[low] < need:
        low -= 1
    while high < steps.h.size and steps.stamps[high] - steps.stamps[last] < need:
        high += 1
    if steps.stamps[first] - steps.stamps[low] < need or steps.stamps[high] - steps.stamps[last] < need:
        return False
    inner_low, inner_high = last, first  # steps between them are near neither end
    if ramp <= 0.0:
        while inner_high < last and steps.stamps[inner_high] - steps.stamps[first] < need:
            inner_high += 1
        while inner_low > first and steps.stamps[last] - steps.stamps[inner_low] < need:
            inner_low -= 1
    else:
        inner_high, inner_low = last, first
    for j in range(parts.shape[0]):
        bottom, top, jumps = np.inf, -np.inf, 0.0
        for k in range(low, high):
            if k < inner_high or k >= inner_low:
                bottom = min(bottom, steps.torque[k, j] - steps.noise[k, j])
                top = max(top, steps.torque[k, j] + steps.noise[k, j])
            if k > low:
                jumps += abs(steps.torque[k, j] - steps.torque[k - 1, j]) + steps.noise[k, j] + steps.noise[k - 1, j]
        parts[j, 2] = limits.delay * (0.5 * variation + deviation) * (top - bottom)
        parts[j, 2] += limits.jitter * (1.0 + deviation) * jumps
    return True


@njit(cache=True)
def window_kernel(
    windows: IntArray,
    ramp: float,
    motors: IntArray,
    steps: StepTable,
    errors: StepErrors,
    limits: Limits,
    out: WindowRows,
) -> None:
    """Fill ``out`` for windows (W, 2), first and last sample; the formulas are those of the text above.

    Args:
        windows: indices of samples.
        ramp: rise time of the test function, s.
        motors: (M,) columns of the rotor inertias of motors on moving links, and of the unknown constants.
        out: results, zero at the start.
    """
    n = steps.qd.shape[1]
    longest_window = 0
    for w in range(len(windows)):
        longest_window = max(longest_window, windows[w, 1] - windows[w, 0])
    nodes = np.empty(longest_window + 1)
    for w in range(len(windows)):
        first, last = windows[w, 0], windows[w, 1]
        count = last - first
        phi = nodes[: count + 1]
        weights(steps.stamps[first : last + 1], ramp, phi)
        sigma = steps.sigma[last - 1]
        change, before = 0.0, 0.0
        for k in range(count + 1):
            slope = (phi[k + 1] - phi[k]) / steps.h[first + k] if k < count else 0.0
            change += abs(slope - before)
            before = slope
        deviation = sigma * change  # E
        matrix, target, square, parts = out.matrix[w], out.target[w], out.noise_square[w], out.parts[w]
        variation = phi[0] + phi[count]
        by_velocities = np.zeros(n, np.bool_)
        if ramp <= 0.0:  # phi is 1
            for j in range(n):
                ride_off = 0.0
                for k in range(first, last):
                    ride_off += steps.ride_off[k, j]
                by_velocities[j] = ride_off < steps.off[first, j] + steps.off[last, j]
        before_p, before_s = 0.0, 0.0
        for k in range(first, last + 1):
            at = k - first
            p, rise, h, area, s = 0.0, 0.0, 1.0, 0.0, 0.0
            if k < last:
                p, rise, h = 0.5 * (phi[at] + phi[at + 1]), phi[at + 1] - phi[at], steps.h[k]
                area, s = p * h, rise / h
            longest = h + 2.0 * sigma
            wide, turn = (p + deviation) * longest, abs(rise) * longest / h
            variation += turn
            step_p, least_p = abs(p - before_p), min(p, before_p)
            step_s, least_s = abs(s - before_s), min(abs(s), abs(before_s))
            inside, inside_before = min(k, last - 1), max(k - 1, first)
            for j in range(n):
                size = max(errors.size[inside, j], errors.size[inside_before, j])
                parts[j, 8] += sigma * step_p * size
                if not by_velocities[j]:
                    parts[j, 6] += limits.viscous[j] * steps.off[k, j] * step_p
                if ramp > 0.0:
                    parts[j, 5] += step_s * max(errors.shift[inside, j], errors.shift[inside_before, j])
                if first < k < last:
                    parts[j, 8] += sigma * least_p * errors.change[k, j]
                    if ramp > 0.0:
                        parts[j, 5] += least_s * errors.twist[k, j]
                if k == last:
                    continue
                noise = steps.noise[k, j]
                target[j] += area * steps.torque[k, j]
                square[j] += (area * noise) ** 2
                parts[j, 0] += area * (noise - limits.drift[j])
                parts[j, 1] += area * limits.drift[j]
                if steps.sign[k, j] == 0.0:
                    parts[j, 3] += limits.coulomb[j] * area
                parts[j, 4] += wide * errors.rate[k, j]
                parts[j, 7] += wide * errors.gravity[k, j]
                parts[j, 9] += area * errors.torques[k, j]
                if limits.sampled:
                    rate = limits.rate[j]
                    parts[j, 4] += rate * (0.25 * wide * longest + turn * longest * longest / 12.0)
                    parts[j, 2] += wide * rate * (limits.delay + limits.jitter)
                if ramp > 0.0:
                    parts[j, 4] += turn * errors.slope[k, j]
                    parts[j, 5] += turn * errors.ramp[k, j]
                    parts[j, 6] += limits.viscous[j] * turn * steps.acceleration[k, j] * longest * longest / 12.0
                    moved = abs(steps.delta[k, j]) + steps.off[k, j] + steps.off[k + 1, j]
                    parts[j, 8] += deviation * (longest * errors.size[k, j] + limits.viscous[j] * moved)
                    parts[j, 9] += turn * (errors.momenta[k, j] + errors.momenta[k + 1, j])
                for c in range(PER_LINK * j, PER_LINK * n):
                    matrix[j, c] -= area * errors.rate_columns[k, j, c]
                for m in range(motors.size):
                    matrix[j, motors[m]] -= area * errors.rate_columns[k, j, PER_LINK * n + m]
                if rise != 0.0:
                    for c in range(PER_LINK * j, PER_LINK * n):
                        matrix[j, c] -= rise * errors.momentum_columns[k, j, c]
                    for m in range(motors.size):
                        matrix[j, motors[m]] -= rise * errors.momentum_columns[k, j, PER_LINK * n + m]
                matrix[j, OFFSET * n + j] += area
                matrix[j, COULOMB * n + j] += limits.friction * area * steps.sign[k, j]
                if by_velocities[j]:
                    matrix[j, VISCOUS * n + j] += limits.friction * p * steps.ride[k, j]
                    parts[j, 6] += limits.viscous[j] * p * steps.ride_off[k, j]
                else:
                    matrix[j, VISCOUS * n + j] += limits.friction * p * steps.delta[k, j]
                matrix[j, ROTOR * n + j] -= limits.friction * s * steps.delta[k, j]
                for f in range(steps.unit.shape[0]):
                    matrix[j, (OFFSET + 1 + f) * n + j] += limits.friction * area * steps.unit[f, k, j]
                    parts[j, 3] += limits.further[f, j] * area * steps.unit_half[f, k, j]
            before_p, before_s = p, s
        for j in range(n):
            parts[j, 8] += deviation * errors.momentum[last, j]
            for end in range(2):
                at, value = (last, phi[count]) if end == 0 else (first, phi[0])
                if value == 0.0:
                    continue
                sign = value if end == 0 else -value
                for c in range(PER_LINK * j, PER_LINK * n):
                    matrix[j, c] += sign * errors.end_columns[at, j, c]
                for m in range(motors.size):
                    matrix[j, motors[m]] += sign * errors.end_columns[at, j, PER_LINK * n + m]
                matrix[j, ROTOR * n + j] += limits.friction * sign * steps.qd[at, j]
                parts[j, 5] += value * errors.end[at, j]
                parts[j, 9] += value * errors.momenta[at, j]
            parts[j, 9] = _ROUNDING * (parts[j, 9] + abs(target[j]))
        out.valid[w] = True
        if not limits.sampled and limits.delay + limits.jitter > 0.0:
            out.valid[w] = _delay(steps, limits, first, last, ramp, variation, deviation, parts)
