"""Torque ripple: what cogging of motors and teeth of gears add, periodic in each joint's own position."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ConfigError
from safe_sysid.robot.files.yaml_file import read_yaml, validate
from safe_sysid.robot.model import RobotModel
from safe_sysid.schema.fields import Name, StrictModel

__all__ = ["TorqueRipple"]


class _Harmonic(StrictModel):
    """``cos * cos(2 pi q / period) + sin * sin(2 pi q / period)``: period in rad or m, the rest in N m or N."""

    period: Annotated[float, Field(gt=0.0)]
    cos: float = 0.0
    sin: float = 0.0


class _RippleFile(StrictModel):
    joints: dict[Name, list[_Harmonic]]


class TorqueRipple:
    """A :class:`safe_sysid.learning.ResidualModel`: per joint a sum of harmonics of its position."""

    def __init__(self, n: int, joint: IntArray, period: FloatArray, cos: FloatArray, sin: FloatArray) -> None:
        """K harmonics of an arm with n joints.

        Args:
            joint: (K,) that a harmonic belongs to.
            period: (K,) rad or m.
            cos: (K,) N m or N.
            sin: (K,) N m or N.
        """
        self._joint, self._wave, self._cos, self._sin = joint, 2.0 * np.pi / period, cos, sin
        self._torque = np.zeros(n)

    @classmethod
    def read(cls, model: RobotModel, path: Path) -> TorqueRipple:
        """From a file: ``joints: {<joint>: [{period: .., cos: .., sin: ..}, ..]}``; joints left out have none.

        Raises:
            ConfigError: malformed, or of another arm's joints.
        """
        joints = validate(str(path), read_yaml(path), _RippleFile).joints
        for name in joints:
            if name not in model.joint_names:
                raise ConfigError(str(path), "joints", name, f"one of {', '.join(model.joint_names)}")
        rows = [(model.joint_names.index(name), h) for name, parts in joints.items() for h in parts]
        values = np.array([(h.period, h.cos, h.sin) for _, h in rows], float).reshape(-1, 3)
        return cls(model.n, np.array([j for j, _ in rows], np.int64), *values.T)

    def predict(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> tuple[FloatArray, float]:
        """Torque (n,), the same array every time, trusted everywhere: it is periodic.

        Args:
            q: (n,) rad or m.
            qd: (n,) not used.
            qdd: (n,) not used.
        """
        angle = self._wave * q[self._joint]
        self._torque[:] = 0.0
        np.add.at(self._torque, self._joint, self._cos * np.cos(angle) + self._sin * np.sin(angle))
        return self._torque, 1.0
