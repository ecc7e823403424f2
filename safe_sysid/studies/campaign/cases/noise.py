"""Declared bounds of the measurement errors, and errors within them, most of them on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.studies.campaign.cases.plant import TrueRecord

__all__ = ["NOISES", "Levels", "Signs", "draw_levels", "draw_signs", "measure"]


#: Patterns of the errors. "aimed" and "ascent" are worst directions, see :mod:`safe_sysid.studies.campaign.ascent`.
NOISES = (
    "uniform", "random_sign", "constant", "grow", "shrink", "alternate", "zero", "aimed", "ascent",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Levels:
    """What is declared, and true unless scaled beyond."""

    torque_abs: FloatArray  #: (n,) N m, and the share
    torque_rel: FloatArray  #: (n,) N m, and the share
    position: FloatArray  #: (n,) rad, rad/s
    velocity: FloatArray  #: (n,) rad, rad/s
    stamp: float  #: s
    #: bias, drift: (n,) of the torque sensor: constant, and slow, N m
    bias: FloatArray
    drift: FloatArray
    delay: float  #: of the torque, s
    jitter: float  #: of the torque, s
    #: angle, relative: cone of gravity, rad and a fraction
    angle: float
    relative: float

    def settings(self) -> dict[str, Any]:
        """As the configuration's section ``measurement`` declares them."""
        return {
            "torque_abs": self.torque_abs.tolist(),
            "torque_rel": self.torque_rel.tolist(),
            "position_error": self.position.tolist(),
            "velocity_error": self.velocity.tolist(),
            "stamp_error_s": self.stamp,
            "torque_bias": self.bias.tolist(),
            "torque_drift": self.drift.tolist(),
            "torque_delay_s": self.delay,
            "torque_jitter_s": self.jitter,
            "gravity_angle": self.angle,
            "gravity_relative": self.relative,
        }


@dataclass(frozen=True, eq=False)
class Signs:
    """Errors in units of their bounds, in [-1, 1]."""

    torque: FloatArray  #: (N+1, n) as reported with a sample
    position: FloatArray  #: (N+1, n)
    velocity: FloatArray  #: (N+1, n)
    stamp: FloatArray  #: (N+1,)
    stick: FloatArray  #: (N+1, n) of stuck friction in the period before a sample
    bias: FloatArray  #: (n,)


def draw_levels(rng: np.random.Generator, n: int, period: float, kind: str, effort: str) -> Levels:
    """Random bounds, unequal for all joints. Raises ParameterError: unknown kind.

    Args:
        period: of the samples, s.
        kind: "usual"; "tiny": torques nearly exact, so that the errors of the equations themselves are tested;
            "coarse": a large share of the torque; "states": errors of position, velocity and stamps too; "sensors":
            bias, drift, delay and a cone of gravity too; "clock": stamps only.
        effort: "held" if the torque is really constant over every period; "mean" if only its mean is known: position
            errors are then so large against those of velocity that no test function with ramps is used, which need the
            torque itself, and there is no delay; "sampled" for torques at instants.
    """
    absolute = {
        "usual": (1e-2, 0.3), "tiny": (1e-8, 1e-4), "coarse": (1e-3, 1.0), "states": (1e-4, 0.1),
        "sensors": (1e-3, 0.1), "clock": (1e-6, 1e-3),
    }  # fmt: skip
    if kind not in absolute:
        raise ParameterError(f"noise level = {kind!r}: expected one of {', '.join(absolute)}")
    low, high = np.log(absolute[kind])
    share = {"usual": 0.05, "tiny": 0.0, "coarse": 0.5, "states": 0.02, "sensors": 0.02, "clock": 0.0}[kind]
    states = kind == "states" or rng.random() < 0.15
    position = np.exp(rng.uniform(np.log(1e-7), np.log(1e-4), n)) if states and rng.random() < 0.7 else np.zeros(n)
    velocity = np.exp(rng.uniform(np.log(1e-5), np.log(1e-2), n)) if states and rng.random() < 0.7 else np.zeros(n)
    if effort == "mean" and np.any(velocity):
        longest = max(0.1, 20.0 * period)
        position = np.maximum(position, 0.51 * velocity.max() * longest / 3.0 * rng.uniform(0.5, 1.0, n))
        position[0] = max(position[0], 0.51 * velocity.max() * longest / 3.0)
    stamp = float(np.exp(rng.uniform(np.log(1e-7), np.log(0.2 * period)))) if states or kind == "clock" else 1e-9
    sensors = float(kind == "sensors")
    some = sensors * rng.integers(0, 2, 4)
    late = 0.0 if effort == "mean" else some[2] * period
    return Levels(
        torque_abs=np.exp(rng.uniform(low, high)) * rng.uniform(0.3, 1.0, n),
        torque_rel=share * rng.random(n),
        position=position,
        velocity=velocity,
        stamp=stamp,
        bias=some[0] * rng.uniform(0.0, 0.5, n),
        drift=some[1] * rng.uniform(0.0, 0.05, n),
        delay=float(late * rng.uniform(0.0, 1.5)),
        jitter=float(late * rng.choice([0.0, 0.1])),
        angle=float(some[3] * rng.uniform(0.0, 0.02)),
        relative=float(some[3] * rng.uniform(0.0, 0.005)),
    )


def draw_signs(rng: np.random.Generator, pattern: str, record: TrueRecord, torque: FloatArray) -> Signs:
    """Errors by a fixed pattern. Raises ParameterError: unknown pattern.

    Args:
        pattern: one of :data:`NOISES`, the worst directions apart (they start from random signs).
        torque: (N+1, n) true torques, N m.
    """
    if pattern not in NOISES:
        raise ParameterError(f"noise = {pattern!r}: expected one of {', '.join(NOISES)}")
    n = record.q.shape[1]
    count = len(record.times)

    def some(rows: int) -> FloatArray:
        if pattern == "uniform":
            return rng.uniform(-1.0, 1.0, (rows, n))
        if pattern == "zero":
            return np.zeros((rows, n))
        if pattern in ("constant", "grow", "shrink"):
            return np.tile(rng.choice([-1.0, 1.0], n), (rows, 1))
        if pattern == "alternate":
            return rng.choice([-1.0, 1.0], n) * (-1.0) ** np.arange(rows)[:, None]
        return rng.choice([-1.0, 1.0], (rows, n))

    signs = some(count)
    if pattern in ("grow", "shrink"):
        signs = np.sign(torque) * (1.0 if pattern == "grow" else -1.0)
    return Signs(signs, some(count), some(count), some(count)[:, 0], some(count), some(1)[0])


def measure(
    record: TrueRecord,
    torque: FloatArray,
    levels: Levels,
    signs: Signs,
    beyond: float,
    relative_to_measured: bool,
    continuous: BoolArray,
) -> Measurements:
    """What the sensors say.

    Args:
        torque: (N+1, n) true torques, N m.
        signs: errors in units of the bounds.
        beyond: factor on all errors; 1 keeps them within.
        relative_to_measured: whether the torque's relative error is of what is reported, as that of a command may be.
        continuous: (n,) joints whose position wraps to [-pi, pi).
    """
    a, b, s = beyond * (levels.torque_abs + levels.drift), beyond * levels.torque_rel, signs.torque
    if relative_to_measured:  # torque = effort + s (a + b |effort|), solved for the effort
        rest = torque - s * a
        effort = rest / (1.0 + s * b * np.sign(rest))
    else:
        effort = torque + s * (a + b * np.abs(torque))
    effort = effort + beyond * levels.bias * signs.bias
    q = record.q + beyond * levels.position * signs.position
    q = np.where(continuous, np.mod(q + np.pi, 2.0 * np.pi) - np.pi, q)
    # Not quite all of the stamp's bound: it is also rounded.
    stamps = record.times + (beyond * levels.stamp * (1.0 - 1e-6)) * signs.stamp
    return Measurements(stamps, q, record.qd + beyond * levels.velocity * signs.velocity, effort)
