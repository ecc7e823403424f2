"""Effects in a simulated arm's joints besides rigid links: read from one file, scaled by one factor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ConfigError, ParameterError
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.scenes.scene import config_path
from safe_sysid.schema.fields import Name, NonNegative, Pose, Positive, StrictModel, as_tuple
from safe_sysid.simulation.flexible.kernel import JointEffects

__all__ = ["Effects", "read_effects"]

_TRANSITION = 0.02  # rad/s, velocity below which Coulomb friction without bristles fades

_Rows = Annotated[tuple[Pose, ...], BeforeValidator(as_tuple)]
_AtLeastOne = Annotated[float, Field(ge=1.0)]


class _Gear(StrictModel):
    ratio: Positive
    source: Name


class _Flexibility(StrictModel):
    stiffness: Pose
    damping: Pose
    source: Name


class _FrictionEffect(StrictModel):
    static_over_coulomb: _AtLeastOne
    stribeck_velocity: Positive
    bristle_deflection: Positive
    bristle_damping: Pose
    source: Name


class _RippleEffect(StrictModel):
    orders: Pose
    amplitude: Pose
    source: Name


class _JointWaves(StrictModel):
    orders: Pose
    amplitude: _Rows
    source: Name


class _SensorEffect(StrictModel):
    delay_s: NonNegative
    position_bits: Annotated[int, Field(ge=1, le=32)]
    velocity_filter_hz: Positive
    source: Name


class _EffectsFile(StrictModel):
    gear: _Gear
    flexibility: _Flexibility
    friction: _FrictionEffect
    gear_error: _RippleEffect
    torque_ripple: _RippleEffect
    cogging: _JointWaves
    sensor: _SensorEffect
    phase_seed: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects of an arm of n joints at one scale; at 0 joints are rigid, friction is Coulomb's and viscous."""

    #: factor of compliances, of static friction above Coulomb's, of the bristles' deflection, of all waves and of the
    #: sensors' errors
    scale: float
    joints: JointEffects
    delay_s: float  #: of measurements, s
    quantum: float  #: of measured positions, rad
    filter_s: float  #: time constant of the measured velocity, s


def read_effects(name_or_path: str | Path, theta: FloatArray, scale: float = 1.0) -> Effects:
    """Effects from a file.

    Args:
        name_or_path: name of a packaged file (``panda_effects``), or path.
        theta: (14 n,) parameters of the rigid arm: its rotors' inertia and friction are the motors'.
        scale: of the effects, 0 for none.

    Raises:
        ConfigError: the file is missing or malformed.
        ParameterError: a scale below zero; numbers for other joints.
    """
    path = config_path(name_or_path, "config/hybrid")
    try:
        file = _EffectsFile.model_validate(read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(str(path), key, str(first["input"])[:60], first["msg"]) from None
    layout = ParameterLayout.of_size(len(theta))
    if not (np.isfinite(scale) and scale >= 0.0):
        raise ParameterError(f"effects: scale = {scale!r}: expected >= 0")
    lists = (file.flexibility.stiffness, file.flexibility.damping, file.friction.bristle_damping)
    for numbers in (*lists, *file.cogging.amplitude):
        if len(numbers) != layout.n:
            raise ParameterError(
                f"{path}: {len(numbers)} numbers in a list: expected one for each of {layout.n} joints"
            )
    return _scaled(file, layout, theta, scale)


def _scaled(file: _EffectsFile, layout: ParameterLayout, theta: FloatArray, scale: float) -> Effects:
    n, rng = layout.n, np.random.default_rng(file.phase_seed)
    coulomb, viscous, rotor, _ = layout.by_term(np.array(theta))
    flexible = np.stack([file.flexibility.stiffness, file.flexibility.damping])
    f, one = file.friction, np.ones(n)
    friction = np.stack(
        [
            coulomb,
            coulomb * (1.0 + scale * (f.static_over_coulomb - 1.0)),
            f.stribeck_velocity * one,
            coulomb / f.bristle_deflection,
            np.array(f.bristle_damping),
            viscous,
        ]
    )
    if scale == 0.0:
        flexible[0], flexible[1] = np.inf, 0.0
        friction[2], friction[3], friction[4] = _TRANSITION, np.inf, 0.0
    else:
        flexible[0] /= scale
        friction[3] /= scale
    ratio = file.gear.ratio
    waves = [
        _waves(ratio, block.orders, scale * np.broadcast_to(np.transpose(amplitude), (n, len(block.orders))), rng)
        for block, amplitude in (
            (file.gear_error, file.gear_error.amplitude),
            (file.torque_ripple, file.torque_ripple.amplitude),
            (file.cogging, file.cogging.amplitude),
        )
    ]
    joints = JointEffects(flexible, np.array(rotor), friction, *waves)
    s = file.sensor
    return Effects(
        scale,
        joints,
        scale * s.delay_s,
        scale * 2.0 * np.pi / 2.0**s.position_bits,
        scale / (2.0 * np.pi * s.velocity_filter_hz),
    )


def _waves(ratio: float, orders: tuple[float, ...], amplitude: FloatArray, rng: np.random.Generator) -> FloatArray:
    """(m, n, 3) waves of amplitudes (n, m), their phases drawn."""
    out = np.empty((len(orders), len(amplitude), 3))
    out[:, :, 0] = ratio * np.array(orders)[:, None]
    out[:, :, 1] = amplitude.T
    out[:, :, 2] = rng.uniform(0.0, 2.0 * np.pi, out.shape[:2])
    return out
