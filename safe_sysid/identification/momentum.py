r"""From samples to linear equations that the true parameters satisfy, with a proved error.

For a test function phi (:func:`safe_sysid.identification.windows.weights`), linear between samples, integration by
parts of ``d/dt W_m theta = tau + W_c theta`` gives, exactly,

``[phi W_m theta] - int phi' W_m theta dt - int phi W_c theta dt = int phi tau dt``.

Each step k of duration h contributes with ``phi_k`` its mean and ``s_k`` its slope of phi. What is not known exactly
is bounded, one function for each cause; the sum is the half width w of ``|Y theta_e + R theta_r - T| <= w``.
Assumed: ``|qdd| <= A`` almost everywhere, and the effort at a stamp is the mean torque over the step before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.identification.measurements import Measurements
from safe_sysid.identification.remainders import Remainders
from safe_sysid.identification.windows import weights
from safe_sysid.robot.magnitudes import link_norms
from safe_sysid.robot.model import Kinematics, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.regressors import momentum_rate_regressor, momentum_regressor

__all__ = [
    "ERROR_CAUSES",
    "MeasurementErrors",
    "MomentumRows",
    "momentum_rows",
    "torque_interval",
]

FloatArray = NDArray[np.float64]

#: Causes of w, in the order of ``MomentumRows.parts``.
ERROR_CAUSES = ("torque", "coulomb", "quadrature", "momentum", "friction", "stamps", "rounding")
TORQUE_SOURCES = ("command", "motor", "link")
#: Rounding of regressors and sums, relative to the size of the terms (measured below 1e-13).
_ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class MeasurementErrors:
    """What is declared about the measurements and the motion; per joint or one for all.

    Attributes:
        torque_source: "command", "motor" (both before friction and rotor) or "link" (after them).
        torque_abs, torque_rel: a (N m) and b < 1 of ``|tau_m - tau| <= a + b |tau|``.
        position, velocity: error bounds, rad and rad/s.
        acceleration: A, ``|qdd| <= A`` always, rad/s^2.
        transition: below this velocity (rad/s) the Coulomb torque is anything in [-Fc, Fc].
        stamp: error bound of a stamp, s.
    """

    n: int
    torque_source: str
    torque_abs: FloatArray
    torque_rel: FloatArray
    position: FloatArray
    velocity: FloatArray
    acceleration: FloatArray
    transition: float = 0.0
    stamp: float = 1e-9

    def __post_init__(self) -> None:
        """Broadcast and validate."""
        if self.torque_source not in TORQUE_SOURCES:
            raise ParameterError(f"torque_source = {self.torque_source!r}: expected one of {', '.join(TORQUE_SOURCES)}")
        for name in ("torque_abs", "torque_rel", "position", "velocity", "acceleration"):
            value = np.array(np.broadcast_to(np.asarray(getattr(self, name), float), (self.n,)))
            if not np.all(np.isfinite(value) & (value >= 0.0)):
                raise ParameterError(f"{name} = {value.tolist()}: expected finite numbers >= 0")
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        if np.any(self.torque_rel >= 1.0):
            raise ParameterError(f"torque_rel = {self.torque_rel.tolist()}: expected numbers below 1")
        for name in ("transition", "stamp"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise ParameterError(f"{name} = {getattr(self, name)!r}: expected a finite number >= 0")

    @classmethod
    def from_model(cls, model: RobotModel) -> MeasurementErrors:
        """From the robot's configuration."""
        m, s = model.settings.measurement, model.settings
        return cls(
            model.n,
            m.torque_source,
            m.torque_abs,
            m.torque_rel,
            m.position_error,
            m.velocity_error,
            s.identification.acceleration_bound,
            model.friction_transition_velocity,
        )


@dataclass(frozen=True, eq=False)
class MomentumRows:
    """Rows ``|matrix theta - target| <= slack`` that hold for the true theta.

    Attributes:
        matrix: (M, 14 n). target, slack: (M,), N m s.
        sigma: (M,) standard deviation if the errors were independent and uniform; for the nominal estimate only.
        parts: (M, 7) shares of slack by :data:`ERROR_CAUSES`.
        start, end: (M,) stamps of the window, s. joint: (M,) index.
    """

    matrix: FloatArray
    target: FloatArray
    slack: FloatArray
    sigma: FloatArray
    parts: FloatArray
    start: FloatArray
    end: FloatArray
    joint: NDArray[np.int64]
    rejected_acceleration: int = field(default=0)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.target)

    @classmethod
    def concatenate(cls, parts: list[MomentumRows]) -> MomentumRows:
        """All rows of several sets."""
        names = ("matrix", "target", "slack", "sigma", "parts", "start", "end", "joint")
        arrays = [np.concatenate([getattr(p, name) for p in parts]) for name in names]
        return cls(*arrays, rejected_acceleration=sum(p.rejected_acceleration for p in parts))


@dataclass(frozen=True, eq=False)
class _Steps:
    """Per step (m, n) or (m,): state to evaluate at, and what is known about it."""

    h: FloatArray
    centre: FloatArray  # mid position
    mean: FloatArray  # estimate u of the mean velocity
    rho: FloatArray  # |u - mean velocity| <= rho
    delta: FloatArray  # q_{k+1} - q_k as measured
    wrong: NDArray[np.bool_]  # contradicts the declared acceleration


def torque_interval(tau_m: ArrayLike, e: MeasurementErrors) -> tuple[FloatArray, FloatArray]:
    """All torques that a measured one may stand for, as midpoint and half width, N m.

    Solve ``|tau_m - tau| <= a + b |tau|`` for tau, case by case of its sign: from above ``(tau_m + a)/(1 - b)`` if
    that is >= 0, else ``(tau_m + a)/(1 + b)``; from below by symmetry. The usual ``(a + b |tau_m|)/(1 - b)`` about
    tau_m holds this interval; with b |tau_m| it would not. A commanded torque may have its error declared relative to
    the command: ``tau_m -+ (a + b |tau_m|)`` is then taken in.
    """
    tau_m = np.asarray(tau_m, float)
    a, b = e.torque_abs, e.torque_rel
    high, low = tau_m + a, tau_m - a
    upper = np.where(high >= 0.0, high / (1.0 - b), high / (1.0 + b))
    lower = np.where(low <= 0.0, low / (1.0 - b), low / (1.0 + b))
    if e.torque_source == "command":
        around = a + b * np.abs(tau_m)
        upper, lower = np.maximum(upper, tau_m + around), np.minimum(lower, tau_m - around)
    return 0.5 * (lower + upper), 0.5 * (upper - lower)


def _steps(data: Measurements, e: MeasurementErrors) -> _Steps:
    """Mean velocity of each step from positions or from velocities, whichever has the smaller bound.

    From positions: ``(q1 - q0)/h`` *is* the mean velocity, off by ``2 dq/h`` and by the error of h. From velocities:
    the trapezoid of a function with Lipschitz constant A is off by at most ``A h/4``, plus the velocity error.
    """
    h = np.diff(data.stamps)
    delta = np.diff(data.q, axis=0)
    by_q, by_v = delta / h[:, None], 0.5 * (data.qd[1:] + data.qd[:-1])
    stamp = 2.0 * e.stamp / h[:, None]
    rho_q = 2.0 * e.position / h[:, None] + (np.abs(by_q) + 2.0 * e.position / h[:, None]) * stamp / (1.0 - stamp)
    rho_v = 0.25 * e.acceleration * (h[:, None] + 2.0 * e.stamp) + e.velocity
    use_q = rho_q <= rho_v
    jump = np.abs(np.diff(data.qd, axis=0))
    wrong = np.any(np.abs(by_q - by_v) > (rho_q + rho_v) * (1.0 + 1e-9) + 1e-12, axis=1) | np.any(
        jump > (e.acceleration * (h[:, None] + 2.0 * e.stamp) + 2.0 * e.velocity) * (1.0 + 1e-9) + 1e-12, axis=1
    )
    return _Steps(
        h=h,
        centre=0.5 * (data.q[1:] + data.q[:-1]),
        mean=np.where(use_q, by_q, by_v),
        rho=np.where(use_q, rho_q, rho_v) * (1.0 + 1e-12),
        delta=delta,
        wrong=wrong,
    )


def coulomb_sign(mean: FloatArray, rho: FloatArray, h: FloatArray, e: MeasurementErrors) -> FloatArray:
    """Sign of the velocity over a whole step, 0 where it is not certain.

    ``|qd(t) - mean| <= A h/2`` on the step (the mean of a function with Lipschitz constant A), the estimate of the
    mean is off by at most rho, and beyond the transition velocity the friction is ``Fc sign(qd)``.
    """
    certain = np.abs(mean) - rho - 0.5 * e.acceleration * (h[:, None] + 2.0 * e.stamp) > e.transition
    return np.where(certain, np.sign(mean), 0.0)


def momentum_rows(
    model_kinematics: Kinematics,
    box: ParameterBox,
    errors: MeasurementErrors,
    data: Measurements,
    windows: list[tuple[int, int]],
    ramp: float = 0.0,
) -> MomentumRows:
    """Equations of some windows of one run.

    Args:
        model_kinematics: of the arm.
        box: holds the true, physically consistent parameters; sizes the remainders.
        errors: declared bounds.
        data: one run of :class:`Screen`: finite, increasing stamps, no gap, positions unwrapped.
        windows: first and last sample index of each.
        ramp: rise and fall time of the test function, s.

    Returns:
        n rows per window; windows that contradict the declared acceleration bound are left out and counted.
    """
    kin, n = model_kinematics, len(model_kinematics.axis)
    steps = _steps(data, errors)
    bad = np.concatenate([[0], np.cumsum(steps.wrong)])
    good = [(i, j) for i, j in windows if bad[j] == bad[i]]
    rejected = len(windows) - len(good)
    if not good:
        empty = np.empty(0)
        return MomentumRows(
            np.empty((0, 14 * n)), *(empty,) * 3, np.empty((0, 7)), empty, empty, np.empty(0, np.int64), rejected
        )
    rigid = slice(0, 10 * n)
    rate = momentum_rate_regressor(kin, steps.centre, steps.mean)[:, :, rigid]
    momentum_mid = momentum_regressor(kin, steps.centre, steps.mean)[:, :, rigid] if ramp > 0.0 else None
    ends = np.unique(np.array(good))
    momentum_end = dict(zip(ends.tolist(), momentum_regressor(kin, data.q[ends], data.qd[ends])[:, :, rigid], strict=True))
    sign = coulomb_sign(steps.mean, steps.rho, steps.h, errors)
    torque, noise = torque_interval(data.effort[1:], errors)
    link_side = errors.torque_source == "link"

    matrix, target = np.zeros((len(good), n, 14 * n)), np.zeros((len(good), n))
    shape = _Shapes(len(good), n)
    joint = np.arange(n)
    for w, (i, j) in enumerate(good):
        k = slice(i, j)
        phi = weights(data.stamps[i : j + 1], ramp)
        h = steps.h[k]
        area = 0.5 * (phi[1:] + phi[:-1]) * h
        rise = np.diff(phi)  # slope times h
        row = matrix[w]
        row[:, rigid] -= np.tensordot(area, rate[k], axes=1)
        if momentum_mid is not None:
            row[:, rigid] -= np.tensordot(rise, momentum_mid[k], axes=1)
        for index, value in ((j, phi[-1]), (i, -phi[0])):
            if value != 0.0:
                row[:, rigid] += value * momentum_end[index]
        row[joint, 13 * n + joint] = area.sum()
        if not link_side:
            row[joint, 10 * n + joint] = area @ sign[k]
            row[joint, 11 * n + joint] = (area / h) @ steps.delta[k]
            slope = rise / h
            row[joint, 12 * n + joint] = phi[-1] * data.qd[j] - phi[0] * data.qd[i] - slope @ steps.delta[k]
        target[w] = area @ torque[k]
        shape.add(w, torque, steps, sign, noise, slice(i, j), phi, area)
    parts = _slack(kin, box, errors, shape)
    parts[..., -1] += _ROUNDING * np.abs(target)
    slack = parts.sum(axis=-1) * (1.0 + 1e-12)
    sigma = np.sqrt((shape.noise_square + (slack - parts[..., 0]) ** 2) / 3.0) + 1e-12
    m = len(good) * n
    return MomentumRows(
        matrix.reshape(m, 14 * n),
        target.reshape(m),
        slack.reshape(m),
        sigma.reshape(m),
        parts.reshape(m, len(ERROR_CAUSES)),
        np.repeat(data.stamps[[i for i, _ in good]], n),
        np.repeat(data.stamps[[j for _, j in good]], n),
        np.tile(joint, len(good)),
        rejected,
    )


class _Shapes:
    """What the error bounds need to know of each window, (W,) or (W, n)."""

    def __init__(self, count: int, n: int) -> None:
        self.area, self.h, self.h_min, self.turn, self.ends = (np.zeros(count) for _ in range(5))
        self.slope_h2, self.slope_change, self.mean_change = (np.zeros(count) for _ in range(3))
        self.slope_h3 = np.zeros(count)
        self.noise, self.noise_square, self.unknown = (np.zeros((count, n)) for _ in range(3))
        self.speed, self.rho, self.effort = (np.zeros((count, n)) for _ in range(3))

    def add(
        self,
        w: int,
        torque: FloatArray,
        steps: _Steps,
        sign: FloatArray,
        noise: FloatArray,
        k: slice,
        phi: FloatArray,
        area: FloatArray,
    ) -> None:
        """Measure one window."""
        h = steps.h[k]
        rise = np.abs(np.diff(phi))
        slope = np.diff(phi) / h
        self.area[w] = area.sum()
        self.h[w], self.h_min[w] = h.max(), h.min()
        self.turn[w] = rise.sum()  # total variation of phi inside
        self.ends[w] = phi[0] + phi[-1]
        self.slope_h2[w] = rise @ h
        self.slope_h3[w] = rise @ (h * h)
        # Total variation of slope and of mean height, ends included: Abel summation of position errors.
        self.slope_change[w] = np.abs(np.diff(slope, prepend=0.0, append=0.0)).sum()
        self.mean_change[w] = np.abs(np.diff(area / h, prepend=0.0, append=0.0)).sum()
        self.noise[w] = area @ noise[k]
        self.noise_square[w] = (area * area) @ (noise[k] * noise[k])
        self.unknown[w] = area @ (sign[k] == 0.0)
        self.speed[w] = np.abs(steps.mean[k]).max(axis=0)
        self.rho[w] = steps.rho[k].max(axis=0)
        self.effort[w] = (np.abs(torque[k]) + noise[k]).max(axis=0)


def _slack(kin: Kinematics, box: ParameterBox, e: MeasurementErrors, s: _Shapes) -> FloatArray:
    """(W, n, causes) bounds. ``V`` below bounds |qd| in the window: mean + rho + A h/2."""
    n = box.n
    big = np.maximum(np.abs(box.lower), np.abs(box.upper))
    fc, fv, ia, beta = (big[(10 + i) * n : (11 + i) * n] for i in range(4))
    if e.torque_source == "link":
        fc, fv, ia = (np.zeros(n),) * 3
    h = (s.h + 2.0 * e.stamp)[:, None]
    a = e.acceleration
    away = 0.5 * a * h + s.rho  # |qd(t) - u|
    v = s.speed + away
    reach = 0.5 * v * h + e.position  # |q(t) - centre|
    remainders = Remainders(kin, link_norms(kin, box.lower, box.upper))
    near = remainders.bounds(v, a * h * h / 12.0 + e.position, s.rho)
    far = remainders.bounds(v, reach, away)
    end = remainders.bounds(v, np.broadcast_to(e.position, v.shape), np.broadcast_to(e.velocity, v.shape))

    parts = np.zeros((*v.shape, len(ERROR_CAUSES)))
    parts[..., 0] = s.noise
    parts[..., 1] = fc * s.unknown
    parts[..., 2] = _rate_quadrature(s, near, far)
    parts[..., 3] = _momentum_error(s, e, ia, near, far, end)
    parts[..., 4] = _viscous_error(s, e, fv)
    size = s.effort + far.f0 + fc + fv * v + beta
    parts[..., 5] = _stamp_error(s, e, ia, v, size)
    weight = (s.ends + s.turn)[:, None]
    parts[..., 6] = _ROUNDING * (s.area[:, None] * size + weight * (far.p0 + ia * v))
    return parts


def _rate_quadrature(s: _Shapes, near: object, far: object) -> FloatArray:
    r"""Error of ``int phi f dt`` by ``phi_k h f(c, u)`` per step; second order in h although qdd may jump.

    Taylor at (c, u), c the mid position, u the mean velocity: the linear term integrates to ``f_q int (q - c) dt``
    and ``f_qd h (mean - u)``; ``|int (q - c) dt| <= A h^3/12`` (trapezoid rule, Lipschitz derivative) plus ``h dq``,
    and ``|mean - u| <= rho``: together h ``near.f1``. The second-order term is at most ``h/2 far.f2``, as
    ``|q - c| <= V h/2 + dq`` and ``|qd - u| <= A h/2 + rho``. Where phi has slope, ``|phi - phi_k| <= |slope| h/2`` and
    ``|f - f(c, u)| <= far.f1`` add ``|slope| h^2/2 far.f1``.
    """
    return s.area[:, None] * (near.f1 + 0.5 * far.f2) + 0.5 * s.slope_h2[:, None] * far.f1


def _momentum_error(
    s: _Shapes, e: MeasurementErrors, ia: FloatArray, near: object, far: object, end: object
) -> FloatArray:
    """Error of the momentum terms.

    At an end with phi != 0: mean value theorem between true and measured state. On a ramp: ``int p dt`` per step as in
    :func:`_rate_quadrature`, weighted by the slope. Rotor inertia needs ``int qd dt``, a position difference: its
    error enters with the change of slope from step to step (Abel summation).
    """
    at_ends = s.ends[:, None] * (end.p1 + ia * e.velocity)
    on_ramps = s.turn[:, None] * (near.p1 + 0.5 * far.p2) + ia * e.position * s.slope_change[:, None]
    return at_ends + on_ramps


def _viscous_error(s: _Shapes, e: MeasurementErrors, fv: FloatArray) -> FloatArray:
    """Error of ``Fv int phi qd dt`` by ``phi_k (q1 - q0)``: exact for level phi, up to the positions' errors.

    On a slope the rest is ``|slope| |int (t - mid) (qd - qd(mid)) dt| <= |slope| A h^3/12``.
    """
    return fv * (e.position * s.mean_change[:, None] + e.acceleration * s.slope_h3[:, None] / 12.0)


def _stamp_error(s: _Shapes, e: MeasurementErrors, ia: FloatArray, v: FloatArray, size: FloatArray) -> FloatArray:
    """Every step's duration is off by at most 2 stamp errors: as much of each integrand, over all steps.

    ``size`` bounds all torques together; on ramps the mean velocity of the rotor term is off in proportion.
    """
    share = 2.0 * e.stamp / np.maximum(s.h_min - 2.0 * e.stamp, 1e-12)[:, None]
    return share * (s.area[:, None] * size + s.turn[:, None] * ia * v)
