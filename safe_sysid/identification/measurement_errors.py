"""What is declared about the measurements, and what follows from it for one step between samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.identification.measurements import Measurements
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel

__all__ = [
    "TORQUE_SOURCES",
    "MeasurementErrors",
    "StepStates",
    "coulomb_sign",
    "step_states",
    "torque_interval",
]

FloatArray = NDArray[np.float64]

TORQUE_SOURCES = ("command", "motor", "link")


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
            raise ParameterError(
                f"torque_source = {self.torque_source!r}: expected one of {', '.join(TORQUE_SOURCES)}"
            )
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
        m = model.settings.measurement
        return cls(
            n=model.n,
            torque_source=m.torque_source,
            torque_abs=per_joint(m.torque_abs, model.n),
            torque_rel=per_joint(m.torque_rel, model.n),
            position=per_joint(m.position_error, model.n),
            velocity=per_joint(m.velocity_error, model.n),
            acceleration=per_joint(model.settings.identification.acceleration_bound, model.n),
            transition=model.friction_transition_velocity,
        )


@dataclass(frozen=True, eq=False)
class StepStates:
    """Per step between samples: a state to evaluate at, and what is known about it.

    Attributes:
        h: (m,) duration, s.
        centre: (m, n) mid position, rad.
        mean: (m, n) estimate u of the mean velocity, rad/s; rho: (m, n), ``|u - mean velocity| <= rho``.
        delta: (m, n) change of position as measured, rad.
        wrong: (m,) whether the measurements contradict the declared acceleration bound.
    """

    h: FloatArray
    centre: FloatArray
    mean: FloatArray
    rho: FloatArray
    delta: FloatArray
    wrong: NDArray[np.bool_]


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


def step_states(data: Measurements, e: MeasurementErrors) -> StepStates:
    """Mean velocity of each step from positions or from velocities, whichever has the smaller bound.

    From positions: ``(q1 - q0)/h`` *is* the mean velocity, off by ``2 dq/h`` and by the error of h. From velocities:
    the trapezoid of a function with Lipschitz constant A is off by at most ``A h/4``, plus the velocity error.
    """
    h = np.diff(data.stamps)
    delta = np.diff(data.q, axis=0)
    by_q, by_v = delta / h[:, None], 0.5 * (data.qd[1:] + data.qd[:-1])
    stamp = 2.0 * e.stamp / h[:, None]
    rho_q = 2.0 * e.position / h[:, None] + (np.abs(by_q) + 2.0 * e.position / h[:, None]) * stamp / (
        1.0 - stamp
    )
    rho_v = 0.25 * e.acceleration * (h[:, None] + 2.0 * e.stamp) + e.velocity
    use_q = rho_q <= rho_v
    jump = np.abs(np.diff(data.qd, axis=0))
    wrong = np.any(np.abs(by_q - by_v) > (rho_q + rho_v) * (1.0 + 1e-9) + 1e-12, axis=1) | np.any(
        jump > (e.acceleration * (h[:, None] + 2.0 * e.stamp) + 2.0 * e.velocity) * (1.0 + 1e-9) + 1e-12,
        axis=1,
    )
    return StepStates(
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
