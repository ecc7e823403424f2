r"""Proved error of each momentum equation, one function for each cause.

Notation: phi the test function, ``phi_k`` and ``s_k`` its mean and slope on step k of duration h; c the mid position
and u the estimated mean velocity at which a step is evaluated; A the declared acceleration bound: velocities have
Lipschitz constant A, positions a Lipschitz derivative; V bounds ``|qd|`` in the window. ``p`` and ``f`` are the
inertial parts of momentum and of its rate, see :mod:`safe_sysid.identification.remainders`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.identification.measurement_errors import MeasurementErrors, StepStates
from safe_sysid.identification.remainders import MotionBounds, Remainders
from safe_sysid.robot.magnitudes import link_norms
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ERROR_CAUSES", "WindowFacts", "row_errors"]

FloatArray = NDArray[np.float64]

#: Causes of the half width of a row, in the order of the last axis of :func:`row_errors`.
ERROR_CAUSES = ("torque", "coulomb", "quadrature", "momentum", "friction", "stamps", "rounding")
#: Rounding of regressors and sums, relative to the size of the terms (measured below 1e-13).
_ROUNDING = 1e-10


class WindowFacts:
    """What the error bounds need to know of each window, (W,) or (W, n), from padded arrays of its steps."""

    def __init__(
        self,
        index: NDArray[np.int64],
        inside: NDArray[np.bool_],
        phi: FloatArray,
        area: FloatArray,
        steps: StepStates,
        sign: FloatArray,
        torque: FloatArray,
        noise: FloatArray,
    ) -> None:
        """Measure windows.

        Args:
            index: (W, L) step numbers, padded.
            inside: (W, L) which of them are not padding.
            phi: (W, L+1) test function at the samples.
            area: (W, L) its integral over each step, zero on padding.
            steps: all steps of the run.
            sign: (m, n) sign of the velocity, 0 if not certain.
            torque: (m, n) middle of the torque interval, N m.
            noise: (m, n) its half width, N m.
        """
        h = np.where(inside, steps.h[index], 1.0)
        rise = np.where(inside, np.diff(phi, axis=1), 0.0)
        self.area = area.sum(axis=1)
        self.h, self.h_min = np.where(inside, h, 0.0).max(axis=1), np.where(inside, h, np.inf).min(axis=1)
        self.turn = np.abs(rise).sum(axis=1)
        self.ends = phi[:, 0] + phi[np.arange(len(phi)), inside.sum(axis=1)]
        self.slope_h2 = (np.abs(rise) * h).sum(axis=1)
        self.slope_h3 = (np.abs(rise) * h * h).sum(axis=1)
        # Total variation of slope and of mean height, ends included: Abel summation of position errors.
        self.slope_change = np.abs(np.diff(rise / h, axis=1, prepend=0.0, append=0.0)).sum(axis=1)
        self.mean_change = np.abs(np.diff(area / h, axis=1, prepend=0.0, append=0.0)).sum(axis=1)
        self.noise = _weighted(area, noise[index])
        self.noise_square = _weighted(area * area, noise[index] ** 2)
        self.unknown = _weighted(area, (sign == 0.0)[index])
        mask = inside[..., None]
        self.speed = np.where(mask, np.abs(steps.mean[index]), 0.0).max(axis=1)
        self.rho = np.where(mask, steps.rho[index], 0.0).max(axis=1)
        self.effort = np.where(mask, (np.abs(torque) + noise)[index], 0.0).max(axis=1)


def _weighted(area: FloatArray, values: NDArray) -> FloatArray:
    return np.einsum("wk,wkj->wj", area, values)


def row_errors(
    kin: Kinematics, box: ParameterBox, e: MeasurementErrors, s: WindowFacts, target: FloatArray
) -> FloatArray:
    """Bounds (W, n, causes) for the rows of W windows; ``target`` (W, n) is their right-hand side, N m s."""
    n = box.n
    big = np.maximum(np.abs(box.lower), np.abs(box.upper))
    fc, fv, ia, beta = (big[(10 + i) * n : (11 + i) * n] for i in range(4))
    if e.torque_source == "link":
        fc, fv, ia = (np.zeros(n),) * 3
    h = (s.h + 2.0 * e.stamp)[:, None]
    a = e.acceleration
    away = 0.5 * a * h + s.rho  # |qd(t) - u|
    v = s.speed + away  # V
    reach = 0.5 * v * h + e.position  # |q(t) - centre|
    remainders = Remainders(kin, link_norms(kin, box.lower, box.upper))
    near = remainders.bounds(v, a * h * h / 12.0 + e.position, s.rho)
    far = remainders.bounds(v, reach, away)
    # Between the true and the measured velocity of an end lie velocities up to V + dv.
    end = remainders.bounds(
        v + e.velocity, np.broadcast_to(e.position, v.shape), np.broadcast_to(e.velocity, v.shape)
    )

    parts = np.zeros((*v.shape, len(ERROR_CAUSES)))
    parts[..., 0] = s.noise  # half width of every step's torque interval, weighted by phi
    parts[..., 1] = (
        fc * s.unknown
    )  # |friction| <= Fc while the sign is not certain; the column holds the rest
    parts[..., 2] = _rate_quadrature(s, near, far)
    parts[..., 3] = _momentum_error(s, e, ia, near, far, end)
    parts[..., 4] = _viscous_error(s, e, fv)
    size = s.effort + far.f0 + fc + fv * v + beta
    parts[..., 5] = _stamp_error(s, e, ia, v, size)
    weight = (s.ends + s.turn)[:, None]
    parts[..., 6] = _ROUNDING * (s.area[:, None] * size + weight * (far.p0 + ia * v) + np.abs(target))
    return parts


def _rate_quadrature(s: WindowFacts, near: MotionBounds, far: MotionBounds) -> FloatArray:
    r"""Error of ``int phi f dt`` by ``phi_k h f(c, u)`` per step; second order in h although qdd may jump.

    Taylor at (c, u), c the mid position, u the mean velocity: the linear term integrates to ``f_q int (q - c) dt``
    and ``f_qd h (mean - u)``; ``|int (q - c) dt| <= A h^3/12`` (trapezoid rule, Lipschitz derivative) plus ``h dq``,
    and ``|mean - u| <= rho``: together h ``near.f1``. The second-order term is at most ``h/2 far.f2``, as
    ``|q - c| <= V h/2 + dq`` and ``|qd - u| <= A h/2 + rho``. Where phi has slope, ``|phi - phi_k| <= |slope| h/2`` and
    ``|f - f(c, u)| <= far.f1`` add ``|slope| h^2/2 far.f1``.
    """
    return s.area[:, None] * (near.f1 + 0.5 * far.f2) + 0.5 * s.slope_h2[:, None] * far.f1


def _momentum_error(
    s: WindowFacts,
    e: MeasurementErrors,
    ia: FloatArray,
    near: MotionBounds,
    far: MotionBounds,
    end: MotionBounds,
) -> FloatArray:
    """Error of the momentum terms.

    At an end with phi != 0: mean value theorem between true and measured state. On a ramp: ``int p dt`` per step as in
    :func:`_rate_quadrature`, weighted by the slope. Rotor inertia needs ``int qd dt``, a position difference: its
    error enters with the change of slope from step to step (Abel summation).
    """
    at_ends = s.ends[:, None] * (end.p1 + ia * e.velocity)
    on_ramps = s.turn[:, None] * (near.p1 + 0.5 * far.p2) + ia * e.position * s.slope_change[:, None]
    return at_ends + on_ramps


def _viscous_error(s: WindowFacts, e: MeasurementErrors, fv: FloatArray) -> FloatArray:
    """Error of ``Fv int phi qd dt`` by ``phi_k (q1 - q0)``: exact for level phi, up to the positions' errors.

    On a slope the rest is ``|slope| |int (t - mid) (qd - qd(mid)) dt| <= |slope| A h^3/12``.
    """
    return fv * (e.position * s.mean_change[:, None] + e.acceleration * s.slope_h3[:, None] / 12.0)


def _stamp_error(
    s: WindowFacts, e: MeasurementErrors, ia: FloatArray, v: FloatArray, size: FloatArray
) -> FloatArray:
    """Every step's duration is off by at most 2 stamp errors: as much of each integrand, over all steps.

    ``size`` bounds all torques together; on ramps the mean velocity of the rotor term is off in proportion.
    """
    share = 2.0 * e.stamp / np.maximum(s.h_min - 2.0 * e.stamp, 1e-12)[:, None]
    return share * (s.area[:, None] * size + s.turn[:, None] * ia * v)
