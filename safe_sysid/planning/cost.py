r"""How much a trajectory will tell about the payload, as a number to minimise, with its exact gradient.

From rows of the regressor of theta_e the information ``G = sum_i dt W_i^T D_i W_i`` (10, 10) is formed, plus that of plans
already executed, in columns scaled by the box's radii (a condition number of unscaled columns compares kilograms with
kg m^2 and means nothing). Rows are those of the torque regressor at samples [PSO eq. 30], or of the momentum regressor over
windows, which is what gets inverted: for these ten columns it is the integral of the torque regressor over the window.
D is 1, or one over the squared error that the identifier will allow each row.

Kinds (all spectral functions of the scaled G, so the gradient exists at repeated eigenvalues too):

- ``condition``: log condition number of the rows; the optimiser sees it with the largest and smallest eigenvalue replaced
  by p-norms, which are smooth; :meth:`ExcitationCost.condition` is the exact number.
- ``information``: ``-log det G / 20``; the volume of the confidence ellipsoid.
- ``width``: mean log of the ten predicted standard deviations, ``log (G^-1)_ii / 20``, with the box as prior information.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import PlanError
from safe_sysid.planning.excitation import payload_regressor, payload_regressor_gradient
from safe_sysid.planning.family import Sampler, TrajectoryFamily
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import Kinematics, RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.robot.regressors import torque_regressor

__all__ = ["CostKind", "ExcitationCost", "payload_scale", "row_weights"]

FloatArray = NDArray[np.float64]
CostKind = Literal["condition", "information", "width"]
#: Exponent of the p-norms that stand for the extreme eigenvalues; 8 is within 33 % of the true ratio for ten.
_POWER = 8
#: Information floor relative to the mean: keeps a trajectory that excites nothing finite (and hopeless).
_FLOOR = 1e-10


def payload_scale(box: ParameterBox) -> FloatArray:
    """Column scale (10,): the box's radii of theta_e, with a floor so that a known parameter keeps a column."""
    radius = 0.5 * (box.payload_upper - box.payload_lower)
    return np.maximum(radius, 1e-6 * max(1.0, float(radius.max())))


def row_weights(model: RobotModel, box: ParameterBox, sampler: Sampler) -> FloatArray:
    """One over the squared torque error (N, n) that the identifier will allow, along k = 0 of a family.

    It allows ``torque_abs + torque_rel |tau|``; the arm's own uncertain parameters add to it, though less than their
    radius says, being constants that the same data determine: they count as independent errors here.
    """
    measurement, n = model.settings.measurement, model.n
    regressor = torque_regressor(model.kinematics, *sampler(np.zeros(n)), model.friction_transition_velocity)
    effort = np.abs(regressor @ box.mid)
    error = per_joint(measurement.torque_abs, n) + per_joint(measurement.torque_rel, n) * effort
    own = box.rad.copy()
    own[box.payload_slice] = 0.0
    return 1.0 / (error**2 + np.square(regressor) @ np.square(own) + 1e-12)


@dataclass(frozen=True, eq=False)
class ExcitationCost:
    """Cost of a trajectory parameter k.

    Attributes:
        kinematics: of the arm.
        family: the trajectories.
        scale: (10,) column scale, see :func:`payload_scale`.
        executed: (10, 10) information from earlier plans, unscaled columns; zero at the beginning.
        horizon: (s) data are taken from [0, horizon]; the part of the trajectory that will be executed.
        samples: number of samples in the horizon.
        window: samples per row: 1 for torque rows, else the momentum regressor over that many samples.
        weights: (samples, n) one over each torque's squared error, or None for 1; constants, not differentiated.
        kind: see the module's text.
    """

    kinematics: Kinematics
    family: TrajectoryFamily
    scale: FloatArray
    executed: FloatArray
    horizon: float
    samples: int = 128
    window: int = 1
    weights: FloatArray | None = None
    kind: CostKind = "condition"
    sampler: Sampler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate, precompute the samples.

        Raises:
            PlanError: a setting that makes no sense.
        """
        if self.kind not in ("condition", "information", "width"):
            raise PlanError(f"cost kind {self.kind!r}: expected condition, information or width")
        if not 0.0 < self.horizon <= self.family.duration:
            raise PlanError(f"cost horizon {self.horizon!r} s: expected (0, {self.family.duration}]")
        if self.samples < 1 or self.window < 1 or self.samples % self.window:
            raise PlanError(f"{self.samples} samples in windows of {self.window}: expected a positive multiple")
        object.__setattr__(self, "scale", frozen_array(self.scale, (10,), "cost scale"))
        object.__setattr__(self, "executed", frozen_array(self.executed, (10, 10), "executed information"))
        if self.weights is not None:
            shape = (self.samples, self.family.n)
            object.__setattr__(self, "weights", frozen_array(self.weights, shape, "cost weights"))
        object.__setattr__(self, "sampler", self.family.sampler(self.times))

    @property
    def times(self) -> FloatArray:
        """Sample times (samples,): midpoints of equal cells of the horizon, s."""
        return (np.arange(self.samples) + 0.5) * (self.horizon / self.samples)

    def weighted(self, weights: FloatArray) -> ExcitationCost:
        """The same with other weights (samples, n)."""
        return replace(self, weights=weights)

    def rows(self, k: FloatArray) -> FloatArray:
        """Weighted rows (samples / window, n, 10), unscaled columns, times the square root of their time span."""
        return self._rows(payload_regressor(self.kinematics, *self.sampler(k)))

    def _rows(self, regressor: FloatArray) -> FloatArray:
        rows = regressor
        if self.weights is not None:
            rows = rows * np.sqrt(self.weights)[:, :, None]
        if self.window > 1:
            rows = rows.reshape(-1, self.window, *rows.shape[1:]).mean(axis=1)
        return rows * np.sqrt(self.horizon / len(rows))

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
        """The cost."""
        return self._spectral(self.total(np.asarray(k, float)))[0]

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        """The cost and its derivative (n,)."""
        k = np.asarray(k, float)
        states = self.sampler(k)
        rows = self._rows(payload_regressor(self.kinematics, *states))
        flat = rows.reshape(-1, 10)
        gram = self.scale[:, None] * (flat.T @ flat + self.executed) * self.scale
        value, by_gram = self._spectral(gram)
        # d value = <by_gram, d gram>, gram = S (rows^T rows) S.
        by_rows = 2.0 * rows @ (self.scale[:, None] * by_gram * self.scale)
        by_rows *= np.sqrt(self.horizon / len(rows)) / self.window
        if self.window > 1:
            by_rows = np.repeat(by_rows, self.window, axis=0)
        if self.weights is not None:
            by_rows = by_rows * np.sqrt(self.weights)[:, :, None]
        by_state = payload_regressor_gradient(self.kinematics, *states, np.ascontiguousarray(by_rows))
        return value, self.sampler.pull_back(by_state)

    def _spectral(self, gram: FloatArray) -> tuple[float, FloatArray]:
        """Cost of a scaled information matrix and its derivative (10, 10), symmetric."""
        floor = _FLOOR * (np.trace(gram) / 10.0) + 1e-300
        if self.kind == "width":
            floor += 1.0  # the box itself: one unit of information per scaled parameter
        value, vectors = np.linalg.eigh(gram)
        value = np.maximum(value, 0.0) + floor
        if self.kind == "condition":
            # Normalised before powers are taken: no overflow whatever the units.
            high = (value / value[-1]) ** _POWER
            low = (value[0] / value) ** _POWER
            cost = 0.5 * (
                np.log(value[-1]) + np.log(high.sum()) / _POWER - np.log(value[0]) + np.log(low.sum()) / _POWER
            )
            slope = 0.5 * (high / high.sum() - low / low.sum()) / value
        elif self.kind == "information":
            cost = -np.log(value).sum() / 20.0
            slope = -1.0 / (20.0 * value)
        else:
            inverse = (vectors / value) @ vectors.T
            diagonal = np.diag(inverse)
            cost = np.log(diagonal).sum() / 20.0
            return float(cost), -(inverse / diagonal) @ inverse / 20.0
        return float(cost), (vectors * slope) @ vectors.T
