"""Activation checks of an arm that follows trajectories by itself: what a measured tube rests on, seen at rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.control.checks.activation import ActivationChecks, StartCheck
from safe_sysid.control.trajectory import TrajectoryController
from safe_sysid.control.tube import MeasuredTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import RobotModel

__all__ = ["TubeActivationChecks"]


class TubeActivationChecks(ActivationChecks):
    """Rate, gaps and latency of the samples, frozen sensors, declared errors, efforts against gravity, the pose.

    When commands cease the arm comes to rest by itself, where its last message ends: nothing is asked of its driver.
    """

    def __init__(
        self,
        model: RobotModel,
        tube: MeasuredTube,
        start_check: StartCheck | None,
        lockstep: bool,
        simulated: bool = False,
    ) -> None:
        """No measurement yet; see :class:`~safe_sysid.control.checks.activation.ActivationChecks`."""
        self._remember(model, start_check, lockstep, simulated)
        self._tube = tube

    def _rest(self, q: FloatArray, qd: FloatArray) -> list[str]:
        return TrajectoryController(self.model, self._tube).start(0.0, q, qd)

    def _driver(self) -> list[str]:
        return []

    def _late(self, rows: NDArray[np.intp]) -> list[str]:
        return []

    def _delays_allowed(self, period: float, delays: FloatArray, ages: FloatArray, delay: float) -> list[str]:
        declared = self.model.settings.controller.tube
        latency = 0.0 if declared is None else declared.latency_s
        late = float(np.max(delays))
        if late <= latency:
            return []
        return [
            f"a measurement came {1e3 * late:.3f} ms after its stamp: expected at most controller.tube.latency_s = "
            f"{1e3 * latency:g} ms, which the outer tube leaves room for (are all clocks the same?)"
        ]
