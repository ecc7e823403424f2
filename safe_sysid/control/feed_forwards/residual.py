"""A residual model as feed-forward, at the desired motion: no noise of measurements is fed forward."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.learning import make_residual_model
from safe_sysid.robot.model import RobotModel

__all__ = ["ResidualFeedForward"]

FloatArray = NDArray[np.float64]


class ResidualFeedForward:
    """``controller.feed_forward.residual`` at (q_d, qd_d, qdd_d)."""

    def __init__(self, model: RobotModel) -> None:
        """Load the residual model that the robot's file names; errors as :func:`make_residual_model`."""
        self._residual = make_residual_model(model)

    def __call__(
        self,
        q: FloatArray,
        qd: FloatArray,
        q_d: FloatArray,
        qd_d: FloatArray,
        qdd_d: FloatArray,
        t: float,
    ) -> tuple[FloatArray, float]:
        """See :class:`safe_sysid.control.feed_forward.FeedForward`."""
        return self._residual.predict(q_d, qd_d, qdd_d)
