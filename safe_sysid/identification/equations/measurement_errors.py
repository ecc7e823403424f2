r"""Declared measurement errors, and what follows for a torque and for the identification's prior.

Sample k has the stamp ``s_k``, was taken at ``t_k`` with ``|t_k - s_k| <= stamp``, and reports
``q_k = q(t_k) + e``, ``|e| <= position``; ``qd_k = qd(t_k) + e'``, ``|e'| <= velocity``. Its effort is
``tau + bias + e''`` with a constant ``|bias| <= torque_bias`` and
``|e''| <= (torque_abs + torque_drift) + torque_rel |tau|``, where tau is

- held: the torque in force over ``(t_{k-1} + d, t_k + d]``, ``|d| <= torque_delay`` the same throughout a window;
  each of its switches may besides be off by ``torque_jitter``;
- mean: the mean of the torque over ``(t_{k-1}, t_k]``, however it changes in between (no delay is allowed for);
- sampled: the torque at an instant within ``torque_delay + torque_jitter`` of ``t_k``, of a torque with
  ``|d tau/dt| <= torque_rate``.

``|qdd| <= acceleration`` almost everywhere; with ``jerk``, qdd has this Lipschitz constant besides (a held torque
jumps, and the acceleration with it, so jerk is for sampled logs). Gravity lies in a cone: by at most
``gravity_angle`` turned, by at most ``gravity_relative`` of itself stronger or weaker.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["EFFORT_KINDS", "TORQUE_SOURCES", "MeasurementErrors", "sensor_prior", "torque_interval"]


TORQUE_SOURCES = ("command", "motor", "link")
EFFORT_KINDS = ("held", "mean", "sampled")


def _zero() -> FloatArray:
    return np.zeros(1)


@dataclass(frozen=True, eq=False)
class MeasurementErrors:
    """What is declared about the measurements and the motion; per joint or one for all."""

    n: int  #: number of joints
    torque_source: str  #: "command", "motor" (both before friction and rotor) or "link" (after them)
    #: torque_abs, torque_rel: a (N m) and b < 1 of ``|tau_m - tau| <= a + b |tau|``
    torque_abs: FloatArray
    torque_rel: FloatArray
    #: position, velocity: error bounds, rad and rad/s; an encoder's resolution is an error of half a step if it rounds,
    #: of a whole one if it cuts off
    position: FloatArray
    velocity: FloatArray
    acceleration: FloatArray  #: A, ``|qdd| <= A`` always, rad/s^2
    transition: float = 0.0  #: below this velocity (rad/s) the Coulomb torque is anything in [-Fc, Fc]
    stamp: float = 1e-9  #: error bound of a stamp, s; 0 where stamps are exact
    #: of a sensor error that is constant over the run, N m (an unknown, see :func:`sensor_prior`)
    torque_bias: FloatArray = field(default_factory=_zero)
    #: of one that changes slowly, so that it does not average out, N m
    torque_drift: FloatArray = field(default_factory=_zero)
    #: torque_delay, torque_jitter: of the torque against the state, s; the first the same throughout a window
    torque_delay: float = 0.0
    torque_jitter: float = 0.0
    #: gravity_angle, gravity_relative: cone of gravity, rad and a fraction
    gravity_angle: float = 0.0
    gravity_relative: float = 0.0
    effort: str = "held"
    torque_rate: FloatArray | None = None  #: bound of the torque's rate, N m/s; for sampled effort, and only for it
    jerk: FloatArray | None = None  #: bound of |qddd|, rad/s^3, or None; for sampled effort only

    def __post_init__(self) -> None:
        """Broadcast and validate.

        Raises:
            ParameterError: a value out of range, or a combination that no rule is sound for.
        """
        for name, known in (("torque_source", TORQUE_SOURCES), ("effort", EFFORT_KINDS)):
            if getattr(self, name) not in known:
                raise ParameterError(f"{name} = {getattr(self, name)!r}: expected one of {', '.join(known)}")
        for name in (
            "torque_abs", "torque_rel", "position", "velocity", "acceleration", "torque_bias", "torque_drift",
            "torque_rate", "jerk",
        ):  # fmt: skip
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._checked(name))
        if np.any(self.torque_rel >= 1.0):
            raise ParameterError(f"torque_rel = {self.torque_rel.tolist()}: expected numbers below 1")
        for name in ("transition", "stamp", "torque_delay", "torque_jitter", "gravity_angle", "gravity_relative"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise ParameterError(f"{name} = {getattr(self, name)!r}: expected a finite number >= 0")
        if self.effort == "sampled" and self.torque_rate is None:
            raise ParameterError("torque_rate = None: expected a bound in N m/s, as effort is sampled")
        if self.only_mean_torques and self.torque_delay + self.torque_jitter > 0.0:
            raise ParameterError(
                f"torque_delay + torque_jitter = {self.torque_delay + self.torque_jitter!r}: expected 0 for a mean "
                "torque, as a link-side one is, which says nothing of parts of a step; or effort = 'sampled'"
            )
        for name in ("torque_rate", "jerk"):
            if self.effort != "sampled" and getattr(self, name) is not None:
                raise ParameterError(f"{name}: expected none, as a held or mean torque jumps; or effort = 'sampled'")

    @property
    def only_mean_torques(self) -> bool:
        """Whether efforts are means over steps, which say nothing of parts of them.

        A motor may hold its torque for a period; behind gears it moves all the same.
        """
        return self.effort == "mean" or (self.effort == "held" and self.torque_source == "link")

    def _checked(self, name: str) -> FloatArray:
        try:
            value = np.array(np.broadcast_to(np.asarray(getattr(self, name), float), (self.n,)))
        except ValueError:
            raise ParameterError(f"{name}: expected one number, or {self.n}") from None
        if not np.all(np.isfinite(value) & (value >= 0.0)):
            raise ParameterError(f"{name} = {value.tolist()}: expected finite numbers >= 0")
        value.setflags(write=False)
        return value

    @classmethod
    def from_model(cls, model: RobotModel) -> MeasurementErrors:
        """Read the errors that the robot's configuration declares."""
        m = model.settings.measurement
        return cls(
            n=model.n,
            torque_source=m.torque_source,
            torque_abs=per_joint(m.torque_abs, model.n),
            torque_rel=per_joint(m.torque_rel, model.n),
            position=per_joint(m.position_error, model.n),
            velocity=per_joint(m.velocity_error, model.n),
            acceleration=model.acceleration_bound,
            transition=model.friction_transition_velocity,
            stamp=m.stamp_error_s,
            torque_bias=per_joint(m.torque_bias, model.n),
            torque_drift=per_joint(m.torque_drift, model.n),
            torque_delay=m.torque_delay_s,
            torque_jitter=m.torque_jitter_s,
            gravity_angle=m.gravity_angle,
            gravity_relative=m.gravity_relative,
            effort=m.effort,
            torque_rate=None if m.torque_rate is None else per_joint(m.torque_rate, model.n),
            jerk=None if m.jerk is None else per_joint(m.jerk, model.n),
        )

    def across_logs(self) -> MeasurementErrors:
        """The same for equations of several logs: a bias, constant in each alone, is an error as drift is.

        With ``|tau_m - bias - tau| <= a + b |tau|``, or of a command ``b |tau_m - bias|``, tau_m itself is off by at
        most ``a + (1 + b) |bias|`` and the share b.
        """
        if not np.any(self.torque_bias):
            return self
        more = (1.0 + self.torque_rel) * self.torque_bias
        return replace(self, torque_bias=np.zeros(self.n), torque_drift=(self.torque_drift + more) * (1.0 + 1e-14))

    def margin(self, period: float) -> int:
        """Samples that a window needs on both sides of it, because torque may belong to a time beside its stamp."""
        beside = self.torque_delay + self.torque_jitter
        return 0 if beside == 0.0 or self.effort == "sampled" else int(1.25 * beside / period) + 1


def sensor_prior(box: ParameterBox, errors: MeasurementErrors) -> ParameterBox:
    """The box that holds (theta, beta + bias): offsets widened by the sensors' constant bias.

    A sensor behind the friction may be one that the actuator's offset does not reach: zero then takes beta's place.

    A bias b that is constant over the run enters every equation as ``int phi b dt``, exactly as the actuator's offset
    beta does: rows are equations in ``beta + b``. Prior and polytope of the identification are therefore over this
    box; what is published and used by others, the arm's own beta, is not widened.

    ``box``: of the true parameters, 14 n.
    """
    link = errors.torque_source == "link"
    if not link and not np.any(errors.torque_bias):
        return box
    lower, upper = box.lower.copy(), box.upper.copy()
    beta = box.layout.offset
    if link:
        lower[beta], upper[beta] = np.minimum(lower[beta], 0.0), np.maximum(upper[beta], 0.0)
    lower[beta] = np.nextafter(lower[beta] - errors.torque_bias, -np.inf)
    upper[beta] = np.nextafter(upper[beta] + errors.torque_bias, np.inf)
    return replace(box, lower=lower, upper=upper)


def torque_interval(tau_m: ArrayLike, e: MeasurementErrors) -> tuple[FloatArray, FloatArray]:
    """Interval of ``tau + bias`` for a measured torque, as midpoint and half width, N m.

    Solve ``|tau_m - bias - tau| <= a + b |tau|`` (a with the drift) for tau, case by case of its sign: with
    ``x = tau_m - bias``, from above ``(x + a)/(1 - b)`` if ``x + a >= 0``, else ``(x + a)/(1 + b)``; from below by
    symmetry. The usual ``(a + b |tau_m|)/(1 - b)`` about tau_m holds this interval; with b |tau_m| it would not. A
    commanded torque may have its error declared relative to the command: ``x -+ (a + b |x|)`` is then taken in. The
    upper end plus bias is a convex function of the bias, the lower one concave: their extremes lie at its ends.

    ``tau_m``: (.., n) measured, N m. Returns midpoint and half width, each (.., n).
    """
    tau_m = np.asarray(tau_m, float)
    a, b = e.torque_abs + e.torque_drift, e.torque_rel
    lower, upper = np.full(tau_m.shape, np.inf), np.full(tau_m.shape, -np.inf)
    for bias in (-e.torque_bias, e.torque_bias) if np.any(e.torque_bias) else (np.zeros(e.n),):
        x = tau_m - bias
        high, low = x + a, x - a
        top = np.where(high >= 0.0, high / (1.0 - b), high / (1.0 + b))
        bottom = np.where(low <= 0.0, low / (1.0 - b), low / (1.0 + b))
        if e.torque_source == "command":
            around = a + b * np.abs(x)
            top, bottom = np.maximum(top, x + around), np.minimum(bottom, x - around)
        lower, upper = np.minimum(lower, bottom + bias), np.maximum(upper, top + bias)
    return 0.5 * (lower + upper), 0.5 * (upper - lower)
