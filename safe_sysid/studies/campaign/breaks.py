"""Broken assumptions, on purpose: a working attack must notice each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.model import NO_MOTORS
from safe_sysid.robot.parameters import transform_inertial
from safe_sysid.studies.campaign.cases.arms import TrueArm
from safe_sysid.studies.campaign.cases.noise import Levels

__all__ = ["BREAKS", "Break"]


#: What is broken, and by how much.
BREAKS = {
    "bias": "torque sensors are off by once more the declared error, always to the same side",
    "coulomb": "Coulomb friction is 30 % and 0.3 N m above its true value in the prior's middle",
    "slip": "half-way through, the payload slips by 30 mm in the hand",
    "exchange": "half-way through, the hand lets go of the payload",
    "wear": "half-way through, Coulomb friction grows by 30 % and 0.3 N m",
    "acceleration": "accelerations are twice the declared bound",
    "delay": "positions and velocities are one sample older than the torque",
    "gravity": "the base is tilted by 2 degrees",
    "inertia": "rotors are 30 % heavier than the prior allows for",
    "reaction": "rotors turn in moving links, of which nothing is declared",
    "zero": "the zero of every second joint is off by 10 mrad (10 mm), of which nothing is declared",
}


@dataclass(frozen=True)
class Break:
    """One broken assumption, or none."""

    name: str = "none"  #: key of :data:`BREAKS`, or "none"
    acceleration: float = 1.0  #: factor on the declared bound
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def named(cls, name: str | None) -> Break:
        """By name; None breaks nothing. Raises ParameterError: no such assumption."""
        if name is None:
            return cls()
        if name not in BREAKS:
            raise ParameterError(f"break = {name!r}: expected one of {', '.join(BREAKS)}")
        settings: dict[str, Any] = {"simulated": False}
        if name in ("coulomb", "inertia", "wear"):
            settings["source"] = "motor"
        if name == "reaction":
            settings["geared"] = True
        if name == "zero":
            settings["zero"] = 0.0
        if name == "acceleration":
            return cls(name, 0.5, settings | {"margin": 1e-9})
        return cls(name, 1.0, settings)

    def offset(self, n: int) -> FloatArray:
        """(n,) what zeros are off by, besides what is declared, rad or m."""
        return 0.01 * (np.arange(n) % 2 == 1) * float(self.name == "zero")

    def theta(self, theta: FloatArray, layout: ParameterLayout) -> FloatArray:
        """What the parameters (14 n,) really are."""
        true = theta.copy()
        if self.name == "coulomb":
            true[layout.coulomb] = 1.3 * true[layout.coulomb] + 0.3
        if self.name == "inertia":
            true[layout.rotor_inertia] *= 1.3
        return true

    def declared(self, arm: TrueArm) -> TrueArm:
        """What the identifier is told of the arm, as far as this is broken."""
        if self.name != "reaction":
            return arm
        return replace(arm, kinematics=arm.kinematics._replace(motors=NO_MOTORS))

    def later(self, arm: TrueArm) -> FloatArray | None:
        """Parameters (14 n,) of the second half, if they differ."""
        if self.name not in ("slip", "exchange", "wear"):
            return None
        theta = arm.theta.copy()
        if self.name == "exchange":
            theta[arm.layout.payload] = arm.hand
            return theta
        if self.name == "wear":
            theta[arm.layout.coulomb] = 1.3 * theta[arm.layout.coulomb] + 0.3
            return theta
        rotation, translation = arm.flange
        shift = np.array([0.03, 0.0, 0.0])
        change = transform_inertial(rotation, translation + shift, arm.payload.theta)
        theta[arm.layout.payload] += change - transform_inertial(rotation, translation, arm.payload.theta)
        return theta

    def gravity(self, gravity: FloatArray) -> FloatArray:
        """What gravity (3,) really is."""
        if self.name != "gravity":
            return gravity
        size = np.linalg.norm(gravity)
        across = np.cross(gravity, np.eye(3)[np.argmin(np.abs(gravity))])
        tilted = gravity + np.tan(np.deg2rad(2.0)) * size * across / np.linalg.norm(across)
        return tilted * size / np.linalg.norm(tilted)

    def measurements(self, data: Measurements, levels: Levels) -> Measurements:
        """What the sensors really say."""
        if self.name == "bias":
            bias = levels.torque_abs + levels.torque_rel * np.abs(data.effort)
            return Measurements(data.stamps, data.q, data.qd, data.effort + bias)
        if self.name == "delay":
            old = np.maximum(np.arange(len(data)) - 1, 0)
            return Measurements(data.stamps, data.q[old], data.qd[old], data.effort)
        return data
