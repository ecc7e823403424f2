r"""The condition number of theta_e's regressor, as PSO (eq. 30) and most of the literature minimise it.

Columns are scaled by the box's radii (unscaled, it would compare kilograms with kg m^2 and mean nothing), and rows of
the plans already executed are counted in, so that a plan excites what is still weak. This cost ignores how large the
errors of a row are, and that the arm's own constants are uncertain; costs that do not ignore it are in
:mod:`safe_sysid.planning.costs.joint_set`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.planning.costs.base import check_horizon, midpoints
from safe_sysid.planning.costs.excitation import payload_regressor, payload_regressor_gradient
from safe_sysid.planning.costs.spectrum import log_condition
from safe_sysid.planning.optimiser.family import Sampler, TrajectoryFamily
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["ConditionCost", "payload_scale"]


def payload_scale(box: ParameterBox) -> FloatArray:
    """Column scale (10,): the box's radii of theta_e, with a floor so that a known parameter keeps a column."""
    radius = 0.5 * (box.payload_upper - box.payload_lower)
    return np.maximum(radius, 1e-6 * max(1.0, float(radius.max())))


@dataclass(frozen=True, eq=False)
class ConditionCost:
    """Log condition number of the regressor of theta_e at samples, or of its means over windows.

    For these ten columns the momentum regressor over a window *is* the torque regressor's integral, so ``window > 1``
    gives the matrix that the identifier inverts.
    """

    kinematics: Kinematics
    family: TrajectoryFamily
    scale: FloatArray  #: (10,) column scale, see :func:`payload_scale`
    executed: FloatArray  #: (10, 10) information from earlier plans, unscaled columns; zero at the beginning
    horizon: float  #: (s) data are taken from [0, horizon]: the part of the trajectory that will be executed
    samples: int = 128  #: number of samples in the horizon
    window: int = 1  #: samples per row
    sampler: Sampler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate, precompute the samples.

        Raises:
            PlanError: a setting that makes no sense.
        """
        check_horizon(self.horizon, self.family)
        if self.samples < 1 or self.window < 1 or self.samples % self.window:
            raise PlanError(f"{self.samples} samples in windows of {self.window}: expected a positive multiple")
        object.__setattr__(self, "scale", frozen_array(self.scale, (10,), "cost scale"))
        object.__setattr__(self, "executed", frozen_array(self.executed, (10, 10), "executed information"))
        object.__setattr__(self, "sampler", self.family.sampler(midpoints(self.horizon, self.samples)))

    def rows(self, k: FloatArray) -> FloatArray:
        """Rows (samples / window, n, 10), unscaled columns, times the square root of their time span."""
        return self._rows(payload_regressor(self.kinematics, *self.sampler(np.asarray(k, float))))

    def _rows(self, regressor: FloatArray) -> FloatArray:
        if self.window > 1:
            regressor = regressor.reshape(-1, self.window, *regressor.shape[1:]).mean(axis=1)
        return regressor * float(np.sqrt(self.horizon / len(regressor)))

    def information(self, k: FloatArray) -> FloatArray:
        """What the horizon of trajectory k will add, (10, 10), unscaled columns."""
        rows = self.rows(k).reshape(-1, 10)
        return rows.T @ rows

    def total(self, k: FloatArray) -> FloatArray:
        """Scaled information (10, 10) of k and of everything executed before."""
        return self.scale[:, None] * (self.information(k) + self.executed) * self.scale

    def condition(self, k: FloatArray) -> float:
        """Exact condition number of all rows in scaled columns."""
        eigenvalues = np.linalg.eigvalsh(self.total(k))
        return float(np.sqrt(eigenvalues[-1] / max(eigenvalues[0], 1e-30 * eigenvalues[-1])))

    def value(self, k: FloatArray) -> float:
        """Log condition number, extreme eigenvalues replaced by p-norms: smooth at repeated ones too."""
        return log_condition(self.total(k))[0]

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        """:meth:`value` and its derivative (n,)."""
        states = self.sampler(np.asarray(k, float))
        rows = self._rows(payload_regressor(self.kinematics, *states))
        flat = rows.reshape(-1, 10)
        value, by_gram = log_condition(self.scale[:, None] * (flat.T @ flat + self.executed) * self.scale)
        # d value = <by_gram, d gram>, gram = S (rows^T rows) S, and a row is a mean over its window.
        by_rows = 2.0 * rows @ (self.scale[:, None] * by_gram * self.scale)
        by_rows *= np.sqrt(self.horizon / len(rows)) / self.window
        if self.window > 1:
            by_rows = np.repeat(by_rows, self.window, axis=0)
        by_state = payload_regressor_gradient(self.kinematics, *states, np.ascontiguousarray(by_rows))
        return value, self.sampler.pull_back(by_state)

    def gauss_newton(self, k: FloatArray) -> None:
        """None: the terms without second derivatives of the rows are of both signs and no guide to curvature."""
