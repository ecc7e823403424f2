"""Starting values for friction and rotor inertia, which a URDF does not give. The user must measure them.

Nothing is silently zero: Coulomb and viscous friction are a share of the torque limit and may be anything from none to
twice that; the rotor's inertia is a multiple of the inertia that the joint moves, as drives are chosen (inertia
matching), and uncertain by a quarter. The multiple is the smallest for which a tracking bound exists
(:mod:`safe_sysid.new_arm.hypotheses`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["RELATIVE", "TRANSITION", "DriveGuess", "guess_drives"]

FloatArray = NDArray[np.float64]
#: Relative uncertainty of all parameters.
RELATIVE = 0.05
#: Shares of the torque limit: N m per N m, and N m s/rad per N m.
_COULOMB, _VISCOUS, _OFFSET = 0.005, 0.02, 0.001
#: Of the rotor's inertia, besides the relative uncertainty.
_ROTOR = 0.10
#: Below this speed Coulomb friction may be anything, rad/s or m/s.
TRANSITION = 0.005


@dataclass(frozen=True, eq=False)
class DriveGuess:
    """Friction and rotor inertia of every joint and how far they may be off besides `relative`; each (n,).

    Attributes:
        coulomb, coulomb_floor: N m.
        viscous, viscous_floor: N m s/rad.
        rotor, rotor_floor: kg m^2 at the joint.
        offset_floor: N m; the offset itself starts at zero.
        matching: rotor inertia over the inertia that the joint moves.
    """

    coulomb: FloatArray
    coulomb_floor: FloatArray
    viscous: FloatArray
    viscous_floor: FloatArray
    rotor: FloatArray
    rotor_floor: FloatArray
    offset_floor: FloatArray
    matching: float


def guess_drives(torque: FloatArray, load: FloatArray, matching: float) -> DriveGuess:
    """Starting values, rounded to three digits.

    Args:
        torque: (n,) limits, N m.
        load: (n,) inertia that each joint moves, largest payload included, kg m^2.
        matching: rotor inertia over that.
    """
    coulomb, viscous = _short(_COULOMB * torque), _short(_VISCOUS * torque)
    rotor = _short(matching * load)
    return DriveGuess(
        coulomb=coulomb,
        coulomb_floor=coulomb,
        viscous=viscous,
        viscous_floor=viscous,
        rotor=rotor,
        rotor_floor=_short(_ROTOR * rotor),
        offset_floor=_short(_OFFSET * torque),
        matching=matching,
    )


def _short(values: FloatArray) -> FloatArray:
    return np.array([float(f"{value:.3g}") for value in values])
