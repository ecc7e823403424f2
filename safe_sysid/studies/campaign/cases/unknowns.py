"""Unknown constants of a drawn arm: ratios of motors that nobody knows, and joints whose zeros are off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.robot.kinematics import Kinematics, Motors
from safe_sysid.robot.unknowns import Unknowns

__all__ = ["TrueUnknowns", "draw_unknowns"]


@dataclass(frozen=True, eq=False)
class TrueUnknowns:
    """What is true of the constants, and what is declared of them."""

    offset: FloatArray  #: (n,) a joint is where it is measured plus this, rad or m
    zero: FloatArray  #: (n,) declared bound of it
    hidden: BoolArray  #: (M,) motors of which the ratio is not told
    kappa: FloatArray  #: (M,) their true reactions ``Ia / ratio``; those of the others too
    reaction: FloatArray  #: (M, 2) intervals that hold them

    @property
    def values(self) -> FloatArray:
        """(E,) true constants, in the order of :class:`Unknowns`."""
        return np.concatenate([self.kappa[self.hidden], self.offset[self.zero > 0.0]])

    def declared(self, kin: Kinematics) -> tuple[Kinematics, Unknowns]:
        """What the identifier is told: the arm with the motors whose ratio is known, and the rest. ``kin``: true."""
        known, other = (_some(kin.motors, which) for which in (~self.hidden, self.hidden))
        unknown = other._replace(gear=np.ones(len(other.joint)))
        return kin._replace(motors=known), Unknowns(self.zero, unknown, self.reaction[self.hidden])


def _some(motors: Motors, which: BoolArray) -> Motors:
    return Motors(motors.joint[which], motors.carrier[which], motors.gear[which], motors.axis[which])


def draw_unknowns(
    rng: np.random.Generator, kin: Kinematics, theta: FloatArray, ratios: bool, zero: float
) -> TrueUnknowns:
    """Intervals about what is true, of which it is an end or any number inside.

    Args:
        kin: true, with its motors.
        theta: (14 n,) true parameters.
        ratios: whether the ratios of some motors are not told.
        zero: largest bound of a zero, rad or m; 0: all are known exactly.
    """
    n, count = len(kin.axis), len(kin.motors.joint)
    bound = zero * rng.uniform(0.05, 1.0, n) * (rng.random(n) < 0.6)
    offset = bound * np.where(rng.random(n) < 0.7, rng.choice([-1.0, 1.0], n), rng.uniform(-1.0, 1.0, n))
    kappa = theta[ParameterLayout(n).rotor_inertia][kin.motors.joint] * kin.motors.gear
    width = np.abs(kappa) * rng.uniform(0.1, 4.0, count)
    at = np.where(rng.random(count) < 0.6, rng.integers(0, 2, count), rng.random(count))
    lower = np.minimum(kappa - at * width, kappa)
    upper = np.maximum(lower + width, kappa)
    hidden = (rng.random(count) < 0.7) & ratios
    return TrueUnknowns(offset, bound, hidden, kappa, np.stack([lower, upper], axis=1))
