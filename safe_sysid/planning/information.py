r"""Excitation costs that know what the data must *also* determine: the arm's own uncertain constants.

The identifier bounds theta_e over the joint set of (theta_e, theta_r). The Gaussian picture of that set: all 14 n
parameters start with the prior box's radii as their standard deviations, every momentum equation (one window, one
joint) adds ``y y^T / w^2`` with the error w that the identifier will allow it, and of the covariance that is left the
10 x 10 block of theta_e counts. Rotor inertia and viscous friction of the wrist, which to a joint that only turns one
way look like payload inertia, are so told apart on purpose and not by luck.

Kinds: ``information`` is the log of the block's determinant (the ellipsoid's volume), ``width`` the mean log of its
diagonal (the ten intervals, correlations ignored); both per parameter, so -1 is "e times narrower on average".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.errors import PlanError
from safe_sysid.planning.cost import check_horizon, midpoints
from safe_sysid.planning.excitation import regressor_gradient
from safe_sysid.planning.family import Sampler, TrajectoryFamily
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.robot.regressors import torque_regressor

__all__ = ["InformationCost"]

FloatArray = NDArray[np.float64]
#: Parameters known better than this still get a finite prior information.
_RADIUS_FLOOR = 1e-9
States = tuple[FloatArray, FloatArray, FloatArray]


# BLAS would start threads for matrices of this size; beside a controller on two cores it then waits for them ten times
# longer than these loops take (12 ms against 1 ms per cost with both cores busy).
@njit(cache=True)
def _solve_posterior(flat: FloatArray, total: FloatArray, columns: FloatArray) -> None:
    """``columns <- (total + flat^T flat)^-1 columns`` by Cholesky; ``total`` (P, P) is overwritten."""
    size, count = total.shape[0], columns.shape[1]
    for r in range(flat.shape[0]):
        for i in range(size):
            x = flat[r, i]
            if x != 0.0:
                for j in range(i, size):
                    total[i, j] += x * flat[r, j]
    # Upper triangle: total = U^T U, row by row.
    for i in range(size):
        pivot = np.sqrt(total[i, i])
        for j in range(i, size):
            total[i, j] /= pivot
        for k in range(i + 1, size):
            x = total[i, k]
            for j in range(k, size):
                total[k, j] -= x * total[i, j]
    for i in range(size):
        for c in range(count):
            columns[i, c] /= total[i, i]
        for k in range(i + 1, size):
            for c in range(count):
                columns[k, c] -= total[i, k] * columns[i, c]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            for c in range(count):
                columns[i, c] -= total[i, k] * columns[k, c]
        for c in range(count):
            columns[i, c] /= total[i, i]


@njit(cache=True)
def _back_to_rows(flat: FloatArray, columns: FloatArray, slope: FloatArray, out: FloatArray) -> None:
    """``out = flat columns slope columns^T`` (R, P)."""
    size, count = columns.shape
    left, middle = np.empty(count), np.empty(count)
    for r in range(flat.shape[0]):
        left[:] = 0.0
        for i in range(size):
            for c in range(count):
                left[c] += flat[r, i] * columns[i, c]
        middle[:] = 0.0
        for c in range(count):
            for d in range(count):
                middle[d] += left[c] * slope[c, d]
        for i in range(size):
            x = 0.0
            for c in range(count):
                x += middle[c] * columns[i, c]
            out[r, i] = x


@dataclass(frozen=True, eq=False)
class InformationCost:
    """Predicted size of the set of theta_e after a trajectory.

    Attributes:
        model: of the arm.
        family: the trajectories.
        box: what is known now; its middle fixes the torques and with them the errors allowed.
        prior: what was known before the data in ``executed``.
        executed: (14 n, 14 n) information of plans already executed; zero at the beginning.
        horizon: s, the part of the trajectory that will be executed.
        window: s, length of one momentum equation.
        samples: per window.
        kind: see the module's text.
        row_weight: information that one equation counts for; below 1 because errors are bounds, not noise: what is
            measured twice is known no better.
    """

    model: RobotModel
    family: TrajectoryFamily
    box: ParameterBox
    prior: ParameterBox
    executed: FloatArray
    horizon: float
    window: float = 0.1
    samples: int = 4
    kind: Literal["information", "width"] = "width"
    row_weight: float = 1.0
    windows: int = field(init=False)
    sampler: Sampler = field(init=False, repr=False)
    _scale: FloatArray = field(init=False, repr=False)
    _start: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate and precompute.

        Raises:
            PlanError: a setting that makes no sense.
        """
        check_horizon(self.horizon, self.family)
        if self.kind not in ("information", "width"):
            raise PlanError(f"cost kind {self.kind!r}: expected information or width")
        if not self.window > 0.0 or self.samples < 1:
            raise PlanError(
                f"{self.samples} samples per window of {self.window} s: expected positive numbers"
            )
        size = self.prior.size
        executed = frozen_array(self.executed, (size, size), "executed information")
        windows = max(1, round(self.horizon / self.window))
        scale = np.maximum(self.prior.rad, _RADIUS_FLOOR)
        values = {
            "executed": executed,
            "windows": windows,
            "sampler": self.family.sampler(midpoints(self.horizon, windows * self.samples)),
            "_scale": scale,
            # In parameters scaled by their radius the prior information is the identity.
            "_start": scale[:, None] * executed * scale + np.eye(size),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _rows(self, states: States) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows (windows, n, 14 n) over their allowed error w; 1 / w and dw / d(torque) / w, each (windows, n, 1)."""
        m, n = self.model.settings.measurement, self.model.n
        absolute, relative = per_joint(m.torque_abs, n), per_joint(m.torque_rel, n)
        regressor = torque_regressor(self.model.kinematics, *states)
        mean = regressor.reshape(self.windows, self.samples, n, -1).mean(axis=1)
        torque = mean @ self.box.mid
        error = np.maximum(absolute, 1e-6) + relative * np.abs(torque)
        inverse = np.sqrt(self.row_weight) / error[:, :, None]
        return mean * inverse, inverse, (relative * np.sign(torque) / error)[:, :, None]

    def information(self, k: FloatArray) -> FloatArray:
        """What the horizon of k will add, (14 n, 14 n)."""
        rows = self._rows(self.sampler(np.asarray(k, float)))[0].reshape(-1, self.prior.size)
        return rows.T @ rows

    def value(self, k: FloatArray) -> float:
        """The cost."""
        return self._evaluate(np.asarray(k, float), gradient=False)[0]

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        """The cost and its derivative (n,)."""
        return self._evaluate(np.asarray(k, float), gradient=True)

    def _evaluate(self, k: FloatArray, gradient: bool) -> tuple[float, FloatArray]:
        states = self.sampler(k)
        rows, inverse, by_torque = self._rows(states)
        flat = rows.reshape(-1, self.prior.size) * self._scale
        e = self.prior.payload_slice
        columns = np.zeros((self.prior.size, 10))
        columns[np.arange(e.start, e.stop), np.arange(10)] = 1.0
        _solve_posterior(flat, self._start.copy(), columns)
        covariance = columns[e]
        if self.kind == "width":
            variance = np.diag(covariance)
            value, slope = 0.5 * float(np.log(variance).mean()), np.diag(0.05 / variance)
        else:
            value = 0.05 * float(np.linalg.slogdet(covariance)[1])
            slope = np.asarray(0.05 * np.linalg.inv(covariance), dtype=np.float64)
        if not gradient:
            return float(value), np.empty(0)
        # d covariance = -covariance d(information) covariance, information = start + flat^T flat.
        by_flat = np.empty_like(flat)
        _back_to_rows(flat, columns, -2.0 * slope, by_flat)
        by_rows = (by_flat * self._scale).reshape(rows.shape)
        # A row is mean / w, and w grows with the torque mean . mid.
        by_error = -np.sum(by_rows * rows, axis=2, keepdims=True) * by_torque
        by_mean = by_rows * inverse + by_error * self.box.mid
        by_sample = np.repeat(by_mean / self.samples, self.samples, axis=0)
        by_state = regressor_gradient(self.model.kinematics, *states, by_sample)
        return float(value), self.sampler.pull_back(by_state)
