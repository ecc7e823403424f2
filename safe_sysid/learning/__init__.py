"""Residual models: the torque that the rigid-body model leaves, learned or measured. Nothing proved rests on them.

A control process needs `predict` alone; what trains a model stays out of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, cast

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.extensions import RESIDUAL_MODELS, chosen
from safe_sysid.robot.model import RobotModel

__all__ = ["ResidualModel", "make_residual_model"]


class ResidualModel(Protocol):
    """What the rigid model leaves of the torque along a motion.

    One with an attribute ``in_tick`` that is true is evaluated in the controller's tick, the others in a process of
    their own: it says that every evaluation takes the same few steps, whatever the motion and the file's numbers are.
    One with a memory of earlier ticks has a method ``reset()``, which is called where ticks are missing.
    """

    def predict(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> tuple[FloatArray, float]:
        """Torque that drives must add to the rigid model's, and how far to trust that.

        Returns (n,) N m or N, and a share from 0 (nothing is known there) to 1.

        Args:
            q: (n,) rad or m.
            qd: (n,) rad/s or m/s.
            qdd: (n,) rad/s^2 or m/s^2.
        """


def make_residual_model(model: RobotModel, name: str | None, file: str | None) -> ResidualModel:
    """A residual model by name. ``name``: in :data:`~safe_sysid.extensions.RESIDUAL_MODELS`.

    Raises:
        ParameterError: unknown name, or no file is named.
        SafeSysIdError: the file does not fit.
    """
    maker = chosen(RESIDUAL_MODELS, name, "controller.feed_forward.residual")
    if file is None:
        raise ParameterError(f"controller.feed_forward.file = None: expected the file of the residual model {name}")
    return cast(ResidualModel, maker(model, Path(file)))
