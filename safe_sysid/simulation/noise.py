r"""Measurement errors inside their declared bounds: uniform, or sitting on the bounds where they hurt.

Torque: :math:`|\tau_m - \tau| \le a + b |\tau|`, with :math:`\tau` the torque that was applied. Position and velocity:
absolute bounds. The inequalities hold exactly for the rounded numbers that are sent, not to within rounding: an
identifier that is right must not be called wrong (nor a wrong one right) by a last digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.robot.config import Settings
from safe_sysid.robot.model import Kinematics

__all__ = ["NOISE_MODES", "PATTERNS", "NoiseModel", "NoiseStream", "error_bound", "perturb"]


NOISE_MODES = ("none", "uniform", "adversarial")
#: What the adversary does with the signs of the torque errors; drawn by seed.
PATTERNS = (
    "constant",  # one sign per joint for ever: an offset that looks like a parameter
    "with_torque",  # every torque read too large: a payload that looks heavier
    "against_torque",
    "with_velocity",  # looks like friction
    "against_velocity",
    "raise_parameter",  # sign of one parameter's regressor column: least squares errs upwards in it
    "lower_parameter",
    "square_wave",  # flips with the identifier's windows
)
_SHRINK = 1.0 - 2.0**-49  # covers the roundings of a + b |tau| and of this product


@njit(cache=True)
def perturb(value: FloatArray, absolute: FloatArray, relative: FloatArray, unit: FloatArray, out: FloatArray) -> None:
    """``out = value + unit (absolute + relative |value|)`` such that the bound holds exactly after rounding.

    Args:
        value: (n,) true values.
        absolute: (n,) absolute part of the bound, >= 0.
        relative: (n,) relative part, >= 0.
        unit: (n,) in [-1, 1].
        out: (n,) result.
    """
    for j in range(value.size):
        bound = (absolute[j] + relative[j] * abs(value[j])) * _SHRINK
        noisy = value[j] + unit[j] * bound
        while abs(noisy - value[j]) > bound:
            noisy = np.nextafter(noisy, value[j])
        out[j] = noisy


def error_bound(value: object, name: str, n: int) -> FloatArray:
    """Bound of an error as an array (n,), from a number or n numbers."""
    try:
        array = np.array(np.broadcast_to(np.asarray(value, float), (n,)))
    except ValueError:
        raise ParameterError(f"noise {name} = {value!r}: expected a number or {n} numbers") from None
    if not np.all(np.isfinite(array)) or np.any(array < 0.0):
        raise ParameterError(f"noise {name} = {array.tolist()}: expected finite numbers >= 0")
    return array


@dataclass(frozen=True)
class NoiseModel:
    """How measurements err. Numbers, or one number per joint."""

    mode: str = "uniform"  #: one of :data:`NOISE_MODES`
    torque_abs: float | Sequence[float] = 0.05  #: a, N m
    torque_rel: float | Sequence[float] = 0.025  #: b < 1, dimensionless, relative to the true torque
    position_error: float | Sequence[float] = 0.0  #: bound on |q_m - q|, rad
    velocity_error: float | Sequence[float] = 0.0  #: bound on |qd_m - qd|, rad/s
    pattern: str | None = None  #: of the adversary, one of :data:`PATTERNS`; None draws one
    #: index into the ten of theta_e that "raise_parameter" and "lower_parameter" aim at; None draws one
    parameter: int | None = None
    window_s: float = 0.1  #: period that "square_wave" works with, s
    #: how far a joint's zero may be off, the same for a whole run, rad; position_error comes on top
    zero_error: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        """Validate the choices; the bounds are validated once the number of joints is known."""
        if self.mode not in NOISE_MODES:
            raise ParameterError(f"noise mode = {self.mode!r}: expected one of {', '.join(NOISE_MODES)}")
        if self.pattern is not None and self.pattern not in PATTERNS:
            raise ParameterError(f"noise pattern = {self.pattern!r}: expected one of {', '.join(PATTERNS)}")
        if self.parameter is not None and not 0 <= self.parameter < 10:
            raise ParameterError(f"noise parameter = {self.parameter!r}: expected an index from 0 to 9")
        if not self.window_s > 0.0:
            raise ParameterError(f"noise window_s = {self.window_s!r}: expected a positive time")

    @classmethod
    def declared(cls, settings: Settings, mode: str, **options: Any) -> NoiseModel:
        """Errors as large as a robot's settings declare them; ``options`` replace fields."""
        declared = settings.measurement
        fields: dict[str, Any] = {
            "torque_abs": declared.torque_abs,
            "torque_rel": declared.torque_rel,
            "position_error": declared.position_error,
            "velocity_error": declared.velocity_error,
            "window_s": settings.identification.window_s,
            "zero_error": [joint.zero_error for joint in settings.joints.values()],
        }
        return cls(mode, **{**fields, **options})

    def stream(self, kinematics: Kinematics, rng: np.random.Generator) -> NoiseStream:
        """The errors of one run."""
        return NoiseStream(self, kinematics, rng)


class NoiseStream:
    """Errors of one run, sample by sample; same generator, same errors."""

    def __init__(self, noise: NoiseModel, kinematics: Kinematics, rng: np.random.Generator) -> None:
        """Draw what stays the same over the run."""
        n = len(kinematics.axis)
        self.mode = noise.mode
        self._kinematics = kinematics
        self._rng = rng
        self._a = error_bound(noise.torque_abs, "torque_abs", n)
        self._b = error_bound(noise.torque_rel, "torque_rel", n)
        if np.any(self._b >= 1.0):
            raise ParameterError(f"noise torque_rel = {self._b.tolist()}: expected numbers below 1")
        self._position = error_bound(noise.position_error, "position_error", n)
        self._velocity = error_bound(noise.velocity_error, "velocity_error", n)
        self._zero = np.zeros(n)
        self.pattern = noise.pattern or str(rng.choice(PATTERNS))
        self.parameter = int(rng.integers(10)) if noise.parameter is None else noise.parameter
        self._signs = rng.choice(np.array([-1.0, 1.0]), size=(3, n))  # torque, position, velocity
        self._window = noise.window_s
        self._shift = self._zero if noise.mode == "none" else self._draw_shift(noise)
        self._moving = bool(np.any([self._position, self._velocity, self._shift]))
        self._last: tuple[float, FloatArray] | None = None
        self._unit = np.zeros((3, n))

    def _draw_shift(self, noise: NoiseModel) -> FloatArray:
        """How far the zeros are off in this run, (n,) rad; on their bounds for the adversary."""
        bound = error_bound(noise.zero_error, "zero_error", len(self._zero))
        if not bound.any():
            return self._zero
        signs = self._rng.choice([-1.0, 1.0], len(bound))
        return np.asarray(bound * (signs if noise.mode == "adversarial" else self._rng.uniform(-1.0, 1.0, len(bound))))

    def measure(
        self, stamp: float, q: FloatArray, qd: FloatArray, torque: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Noisy (q, qd, torque), each (n,), of one sample.

        Args:
            stamp: time of the sample, s.
            q: (n,) true position, rad.
            qd: (n,) true velocity, rad/s.
            torque: (n,) torque that was applied until this sample, N m.
        """
        if self.mode == "none":
            return q.copy(), qd.copy(), torque.copy()
        unit = self._unit
        if self.mode == "uniform":
            unit[:] = self._rng.uniform(-1.0, 1.0, unit.shape)
        else:
            self._adversarial(stamp, q, qd, torque)
        out = np.empty((3, q.size))
        perturb(torque, self._a, self._b, unit[0], out[2])
        if self._moving:
            perturb(q + self._shift, self._position, self._zero, unit[1], out[0])
            perturb(qd, self._velocity, self._zero, unit[2], out[1])
        else:
            out[0], out[1] = q, qd
        return out[0], out[1], out[2]

    def _adversarial(self, stamp: float, q: FloatArray, qd: FloatArray, torque: FloatArray) -> None:
        """Signs of this sample's errors, all of them on their bounds."""
        constant, unit = self._signs, self._unit
        unit[:] = constant
        odd = int(np.floor(stamp / self._window + 1e-6)) % 2
        if odd:  # a momentum difference over a window then errs by twice the velocity error
            unit[1:] = -constant[1:]
        if self.pattern == "constant":
            return
        if self.pattern == "square_wave":
            unit[0] = -constant[0] if odd else constant[0]
            return
        if self.pattern.endswith("torque"):
            direction = torque
        elif self.pattern.endswith("velocity"):
            direction = qd
        else:
            direction = self._column(stamp, q, qd)
        flip = 1.0 if self.pattern.startswith(("with", "raise")) else -1.0
        np.copyto(unit[0], flip * np.sign(direction), where=direction != 0.0)

    def _column(self, stamp: float, q: FloatArray, qd: FloatArray) -> FloatArray:
        """Torque regressor's column (n,) of the parameter under attack, acceleration by differences."""
        acceleration = self._zero
        if self._last is not None and stamp > self._last[0]:
            acceleration = (qd - self._last[1]) / (stamp - self._last[0])
        self._last = (stamp, qd.copy())
        regressor = dynamics_of(self._kinematics).torque_regressor(q, qd, acceleration, 0.0)
        return regressor[:, 10 * (q.size - 1) + self.parameter]
