r"""Excitation cost that knows what the data must *also* determine: the arm's own uncertain constants.

The identifier bounds theta_e over the joint set of (theta_e, theta_r). Its Gaussian picture: all 14 n parameters start
with the box as their standard deviation, every momentum equation (one window, one joint) adds
``y y^T / w^2`` with the error w that the identifier will allow it; what is left is the posterior covariance, and of that
the 10 x 10 block of theta_e counts. Rotor inertia and viscous friction of the wrist, alike to payload inertia to a
joint that only turns one way, are so told apart on purpose and not by luck.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import PlanError
from safe_sysid.planning.excitation import regressor_gradient
from safe_sysid.planning.family import Sampler, TrajectoryFamily
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.robot.regressors import torque_regressor

__all__ = ["JointInformationCost"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class JointInformationCost:
    """Mean log of the predicted standard deviations of theta_e ("width"), or of its ellipsoid's axes ("volume").

    Attributes:
        model, family: of the arm; trajectories.
        box: the current box; only fixes the errors allowed per row.
        prior: the epoch's first box: what the information starts from.
        executed: (14 n, 14 n) information of plans already executed, zero at the beginning.
        horizon: s, the part of the trajectory that will be executed.
        windows: number of momentum equations per joint in the horizon.
        samples: per window.
        kind: "width" or "volume".
    """

    model: RobotModel
    family: TrajectoryFamily
    box: ParameterBox
    prior: ParameterBox
    executed: FloatArray
    horizon: float
    windows: int = 15
    samples: int = 4
    kind: Literal["width", "volume"] = "width"
    sampler: Sampler = field(init=False, repr=False)
    start: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate and precompute."""
        size = self.prior.size
        object.__setattr__(self, "executed", frozen_array(self.executed, (size, size), "executed information"))
        count = self.windows * self.samples
        times = (np.arange(count) + 0.5) * (self.horizon / count)
        object.__setattr__(self, "sampler", self.family.sampler(times))
        scale = np.maximum(self.prior.rad, 1e-9)
        # Scaled parameters: prior information is the identity.
        start = scale[:, None] * self.executed * scale + np.eye(size)
        object.__setattr__(self, "start", start)

    def _rows(self, states: tuple[FloatArray, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows (windows, n, 14 n) over their allowed error w, 1 / w, and dw / d(torque), each (windows, n, 1)."""
        m, n = self.model.settings.measurement, self.model.n
        regressor = torque_regressor(self.model.kinematics, *states, 0.0)
        mean = regressor.reshape(self.windows, self.samples, n, -1).mean(axis=1)
        torque = mean @ self.box.mid
        error = np.maximum(per_joint(m.torque_abs, n), 1e-6) + per_joint(m.torque_rel, n) * np.abs(torque)
        inverse = 1.0 / error[:, :, None]
        return mean * inverse, inverse, (per_joint(m.torque_rel, n) * np.sign(torque))[:, :, None]

    def information(self, k: FloatArray) -> FloatArray:
        """(14 n, 14 n) what the horizon of k adds."""
        rows = self._rows(self.sampler(np.asarray(k, float)))[0].reshape(-1, self.prior.size)
        return rows.T @ rows

    def value(self, k: FloatArray) -> float:
        return self._evaluate(np.asarray(k, float), False)[0]

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        return self._evaluate(np.asarray(k, float), True)

    def _evaluate(self, k: FloatArray, gradient: bool) -> tuple[float, FloatArray]:
        states = self.sampler(k)
        rows, inverse, by_torque = self._rows(states)
        scale = np.maximum(self.prior.rad, 1e-9)
        flat = rows.reshape(-1, self.prior.size) * scale
        total = self.start + flat.T @ flat
        e = self.prior.payload_slice
        unit = np.zeros((self.prior.size, 10))
        unit[np.arange(e.start, e.stop), np.arange(10)] = 1.0
        columns = np.linalg.solve(total, unit)  # (14 n, 10) of the covariance
        cov = columns[e]
        if self.kind == "width":
            diag = np.diag(cov)
            value = 0.5 * np.log(diag).mean()
            slope = np.diag(0.05 / diag)
        else:
            sign, logdet = np.linalg.slogdet(cov)
            value = 0.05 * logdet
            slope = 0.05 * np.linalg.inv(cov)
        if not gradient:
            return float(value), np.empty(0)
        by_flat = -2.0 * ((flat @ columns) @ slope) @ columns.T
        n = self.model.n
        by_rows = (by_flat * scale).reshape(self.windows, n, -1)
        # A row is mean / w, and w grows with the torque mean . mid.
        by_error = -np.sum(by_rows * rows, axis=2, keepdims=True) * inverse * by_torque
        by_mean = by_rows * inverse + by_error * self.box.mid
        by_sample = np.repeat(by_mean / self.samples, self.samples, axis=0)
        return float(value), self.sampler.pull_back(regressor_gradient(self.model.kinematics, *states, by_sample))
