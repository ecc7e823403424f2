"""Friction and rotor inertia, which a URDF does not give: unknown within wide intervals, measured, or simulated.

Unknown: intervals that hold the drives of most arms. A rotor with gear ratio r, whose motor reaches the joint's torque
limit T, weighs r T / alpha at the joint, alpha what that torque accelerates the bare motor with. Servo motors of arms
have 4,000 to 100,000 rad/s^2 (Panda 14,000 at 100 [DrakePanda], UR5e about 8,000 at 101), ratios of geared arms are 30
to 120: 0.0003 to 0.03 kg m^2 per N m where the ratio is not given. Coulomb friction is up to a tenth of the limit,
viscous friction up to a tenth of it per rad/s, the offset up to a fiftieth.

Simulated: what a tracking bound at 1 kHz needs. Rotor inertia is a multiple of the inertia that the joint moves, the
smallest for which a bound exists (:mod:`safe_sysid.new_arm.hypotheses`). No real arm has such drives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import RobotModel

__all__ = ["RELATIVE", "TRANSITION", "DriveGuess", "drives_of", "simulated_drives", "unknown_drives"]

#: Relative uncertainty of all parameters.
RELATIVE = 0.05
#: Below this speed Coulomb friction may be anything, rad/s or m/s.
TRANSITION = 0.005
#: Simulated: shares of the torque limit, N m per N m, and N m s/rad per N m; of the rotor besides `RELATIVE`.
_COULOMB, _VISCOUS, _OFFSET, _ROTOR = 0.005, 0.02, 0.001, 0.10
#: Unknown: gear ratios; rad/s^2 of a motor without load; largest friction and offset per N m of the torque limit.
_RATIOS, _ACCELERATIONS = (30.0, 120.0), (4e3, 1e5)
_MOST_COULOMB, _MOST_VISCOUS, _MOST_OFFSET = 0.1, 0.1, 0.02


@dataclass(frozen=True, eq=False)
class DriveGuess:
    """Friction and rotor inertia of every joint and how far they may be off besides `relative`; each (n,)."""

    coulomb: FloatArray  #: N m
    coulomb_floor: FloatArray  #: N m
    viscous: FloatArray  #: N m s/rad
    viscous_floor: FloatArray  #: N m s/rad
    rotor: FloatArray  #: kg m^2 at the joint
    rotor_floor: FloatArray  #: kg m^2 at the joint
    offset: FloatArray  #: N m
    offset_floor: FloatArray  #: N m
    origin: str  #: of the values, what a file says of `drives`
    words: str  #: where they come from


def _between(bounds: Mapping[str, tuple[FloatArray, FloatArray]], origin: str, words: str) -> DriveGuess:
    """Values and floors, rounded to three digits outwards, whose intervals hold (lower, upper) of each."""
    values = {}
    for name, (lower, upper) in bounds.items():
        middle = _short(0.5 * (lower + upper))
        half = np.maximum(upper - middle, middle - lower) - RELATIVE * np.abs(middle)
        values[name], values[f"{name}_floor"] = middle, _short(np.maximum(1.005 * half, 0.0))
    return DriveGuess(**values, origin=origin, words=words)


def simulated_drives(torque: FloatArray, load: FloatArray, matching: float) -> DriveGuess:
    """Of a simulation: drives matched to their load.

    ``torque``: (n,) limits, N m; ``load``: (n,) inertia that each joint moves, largest payload included, kg m^2.
    """
    coulomb, viscous, rotor = _short(_COULOMB * torque), _short(_VISCOUS * torque), _short(matching * load)
    return DriveGuess(
        coulomb=coulomb,
        coulomb_floor=coulomb,
        viscous=viscous,
        viscous_floor=viscous,
        rotor=rotor,
        rotor_floor=_short(_ROTOR * rotor),
        offset=np.zeros_like(torque),
        offset_floor=_short(_OFFSET * torque),
        origin="simulated",
        words=(
            "SIMULATED drives, true of no real arm: Coulomb friction 0.5 % and viscous friction 2 % (per rad/s) of the "
            f"torque limit, both uncertain by all of it; rotor inertia {matching:g} times the inertia that the joint "
            "moves with the largest payload near home, at least 0.007 kg m^2 per N m of torque limit, known to 15 %."
        ),
    )


def unknown_drives(torque: FloatArray, ratios: Mapping[int, float]) -> DriveGuess:
    """Of an arm whose drives nobody has measured. ``torque``: (n,) limits, N m."""
    low, high = (np.full(len(torque), ratio) for ratio in _RATIOS)
    for joint, ratio in ratios.items():
        low[joint] = high[joint] = ratio
    zero = np.zeros_like(torque)
    return _between(
        {
            "coulomb": (zero, _MOST_COULOMB * torque),
            "viscous": (zero, _MOST_VISCOUS * torque),
            "rotor": (low * torque / _ACCELERATIONS[1], high * torque / _ACCELERATIONS[0]),
            "offset": (-_MOST_OFFSET * torque, _MOST_OFFSET * torque),
        },
        "unknown",
        "UNKNOWN drives, IDENTIFY ONLY: intervals that hold the drives of most arms. Rotor inertia at the joint: gear "
        "ratio times torque limit over what that torque accelerates a bare servo motor with, 4,000 to 100,000 rad/s^2; "
        "gear ratio as given (--gear-ratio), else 30 to 120. Coulomb friction up to 10 % and viscous friction up to 10 "
        "% (per rad/s) of the torque limit, offset up to 2 %.",
    )


def drives_of(model: RobotModel, file: str) -> DriveGuess:
    """As a robot's file declares them."""
    box, layout = model.arm_prior, model.layout
    blocks = {
        "coulomb": layout.coulomb,
        "viscous": layout.viscous,
        "rotor": layout.rotor_inertia,
        "offset": layout.offset,
    }
    bounds = {name: (box.lower[block], box.upper[block]) for name, block in blocks.items()}
    return _between(bounds, "declared", f"As {file} declares them (--drives).")


def _short(values: FloatArray) -> FloatArray:
    return np.array([float(f"{value:.3g}") for value in values])
