r"""Unknown constants of an arm that equations have besides its parameters: reactions of rotors, zeros of joints.

A motor on a moving link whose ratio is only known to lie in a range adds ``kappa (axis . omega) qd`` to the kinetic
energy, as :class:`~safe_sysid.robot.kinematics.Motors` says, with a ``kappa = Ia / ratio`` of which an interval is
known. A joint whose zero is not known exactly is at ``q + delta`` where ``q`` is measured, with a constant
``|delta| <= zero``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.kinematics import NO_MOTORS, Kinematics, Motors, frozen_motors
from safe_sysid.robot.parameters import frozen_array

__all__ = ["NO_UNKNOWNS", "Unknowns"]


@dataclass(frozen=True, eq=False)
class Unknowns:
    """E = U + D unknown constants: U reactions of rotors, then the zeros of D joints."""

    zero: FloatArray  #: (n,) bound of each joint's zero, rad, or m where it slides; 0: known exactly
    #: U motors on moving links of unknown ratio, with ``gear`` 1: their columns are per unit of kappa
    motors: Motors = NO_MOTORS
    reaction: FloatArray | None = None  #: (U, 2) intervals of kappa, kg m^2, or kg m where the joint slides

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            ModelError: a bound below zero, a gear that is not 1, an interval without lower <= upper, or bad motors.
        """
        n, motors = len(self.zero), self.motors
        zero = frozen_array(self.zero, (n,), "unknowns.zero")
        reaction = np.zeros((0, 2)) if self.reaction is None else self.reaction
        reaction = frozen_array(reaction, (len(motors.joint), 2), "unknowns.reaction")
        if np.any(zero < 0.0) or np.any(motors.gear != 1.0) or np.any(reaction[:, 0] > reaction[:, 1]):
            raise ModelError("unknowns: expected bounds of zeros >= 0, gears of 1, and lower <= upper")
        object.__setattr__(self, "zero", zero)
        object.__setattr__(self, "motors", frozen_motors(motors, n))
        object.__setattr__(self, "reaction", reaction)

    @property
    def count(self) -> int:
        """E."""
        return len(self.motors.joint) + len(self.shifted)

    @property
    def shifted(self) -> IntArray:
        """(D,) joints whose zeros are not known exactly."""
        return np.flatnonzero(self.zero > 0.0)

    @property
    def lower(self) -> FloatArray:
        """(E,) bounds of all, units as above."""
        return np.concatenate([self._reaction[:, 0], -self.zero[self.shifted]])

    @property
    def upper(self) -> FloatArray:
        """(E,) likewise."""
        return np.concatenate([self._reaction[:, 1], self.zero[self.shifted]])

    @property
    def largest_reaction(self) -> FloatArray:
        """(U,) bounds of |kappa|."""
        return np.asarray(np.abs(self._reaction).max(axis=1, initial=0.0))

    @property
    def _reaction(self) -> FloatArray:
        return np.zeros((0, 2)) if self.reaction is None else self.reaction

    def names(self, joint_names: Sequence[str]) -> list[str]:
        """Names of all E, for messages."""
        reactions = [f"{joint_names[j]}.kappa" for j in self.motors.joint]
        return reactions + [f"{joint_names[j]}.zero" for j in self.shifted]

    def applied(self, kin: Kinematics) -> Kinematics:
        """The arm with the motors of unknown ratio behind those of known ones; the same object where there are none."""
        if not len(self.motors.joint):
            return kin
        both: list[Any] = [np.concatenate([a, b]) for a, b in zip(kin.motors, self.motors, strict=True)]
        return kin._replace(motors=Motors(*both)).read_only


#: Of an arm of however many joints.
NO_UNKNOWNS = Unknowns(np.zeros(0))
