r"""Costs that predict the joint set of (theta_e, theta_r) after a trajectory.

The identifier bounds theta_e over the set of all 14 n parameters that agree with the measurements, because the arm's
own constants are uncertain too. The Gaussian picture of that set: the prior box's radii are standard deviations, every
momentum equation (one window, one joint) adds ``y y^T / w^2`` with the error w that the identifier will allow it.
Rotor inertia and viscous friction of the wrist, which look like payload inertia to a joint that only turns one way,
are so told apart on purpose and not by luck. From the information matrix I of all parameters, in the prior's radii:

========================  ============================================================================================
``width``                 log of the root mean square of theta_e's ten standard deviations, each over its half width now
``information``           log determinant of theta_e's 10 x 10 block of I^-1, over 20: of its ellipsoid's mean axis
``log_determinant``       minus the log determinant of theta_e's block of I, over 20: as if theta_r were *known*
``smallest_eigenvalue``   minus half the log of the smallest eigenvalue of that block, in half widths of now (p-norm)
``arm``                   minus the log determinant of I over 20: of all parameters, the arm's own included
``arm_condition``         log condition number of the rows' columns of base parameters, each of length one
========================  ============================================================================================

All are in units of the log of a standard deviation: one less is "e times narrower". ``width`` asks of each interval how
wide it will be beside what is published now, and its mean square is ruled by those that a plan would leave wide; a mean
of logs would rather make narrow ones narrower still (measured: docs/understand/planning_costs.md). ``arm_condition``
knows no prior: rows are those of all plans, over their errors w.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import PlanError
from safe_sysid.identification.arm.base_parameters import excitable_columns, random_states
from safe_sysid.planning.costs.base import check_horizon, midpoints
from safe_sysid.planning.costs.condition import payload_scale
from safe_sysid.planning.costs.excitation import regressor_gradient
from safe_sysid.planning.costs.spectrum import log_condition, log_smallest, log_volume
from safe_sysid.planning.optimiser.family import Sampler, TrajectoryFamily
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["KINDS", "InformationCost", "back_to_rows", "solve_posterior"]


# BLAS would start threads for matrices of this size; beside a controller on two cores it then waits for them ten times
# longer than these loops take (12 ms against 1 ms per cost with both cores busy).
@njit(cache=True)
def solve_posterior(flat: FloatArray, total: FloatArray, columns: FloatArray) -> None:
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
def back_to_rows(flat: FloatArray, columns: FloatArray, slope: FloatArray, out: FloatArray) -> None:
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


States = tuple[FloatArray, FloatArray, FloatArray]
Kind = Literal["width", "information", "log_determinant", "smallest_eigenvalue", "arm", "arm_condition"]
KINDS = ("width", "information", "log_determinant", "smallest_eigenvalue", "arm", "arm_condition")
#: Parameters known better than this still get a finite prior information.
_RADIUS_FLOOR = 1e-9
#: Squared length of a column, of the sum of all, below which it is no longer scaled to one.
_SHORTEST = 1e-12


@dataclass(frozen=True, eq=False)
class InformationCost:
    """Predicted size of the set of theta_e after a trajectory."""

    model: RobotModel
    family: TrajectoryFamily
    #: what is known now: fixes the torques and with them the errors allowed, and what ``width`` compares with
    box: ParameterBox
    prior: ParameterBox  #: what was known before the data in ``executed``
    executed: FloatArray  #: (14 n, 14 n) information of plans already executed; zero at the beginning
    horizon: float  #: s, the part of the trajectory that will be executed
    window: float = 0.1  #: s, length of one momentum equation
    samples: int = 4  #: per window
    kind: Kind = "width"  #: see the module's text
    #: information that one equation counts for; below 1 because errors are bounds, not noise: what is measured twice is
    #: known no better
    row_weight: float = 1.0
    windows: int = field(init=False)
    sampler: Sampler = field(init=False, repr=False)
    _scale: FloatArray = field(init=False, repr=False)
    _start: FloatArray = field(init=False, repr=False)
    _base: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate and precompute.

        Raises:
            PlanError: a setting that makes no sense.
        """
        check_horizon(self.horizon, self.family)
        if self.kind not in KINDS:
            raise PlanError(f"cost kind {self.kind!r}: expected one of {', '.join(KINDS)}")
        if not self.window > 0.0 or self.samples < 1:
            raise PlanError(f"{self.samples} samples per window of {self.window} s: expected positive numbers")
        size = self.prior.size
        executed = frozen_array(self.executed, (size, size), "executed information")
        windows = max(1, round(self.horizon / self.window))
        scale = np.maximum(self.prior.rad, _RADIUS_FLOOR)
        regressor = dynamics_of(self.model.kinematics).torque_regressor
        by_condition = self.kind == "arm_condition"
        every = random_states(self.model.n, regressor) if by_condition else None
        values = {
            "_base": np.zeros(0, int) if every is None else excitable_columns(every),
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
        """Rows (windows, n, 14 n) over their allowed error w, and what their derivative needs.

        The error grows with the torque's size, and the torque is not known: taken at the box's middle alone it would
        vanish where that torque crosses zero, and the optimiser would go there for information that is not to be had.
        So the size is the root mean square over the box.

        Returns rows; 1 / w (windows, n, 1); dw / d(regressor) / w, (windows, samples, n, 14 n).
        """
        m, n = self.model.settings.measurement, self.model.n
        absolute, relative = per_joint(m.torque_abs, n), per_joint(m.torque_rel, n)
        regressor = dynamics_of(self.model.kinematics).torque_regressor(*states)
        regressor = regressor.reshape(self.windows, self.samples, n, -1)
        spread = self.box.rad**2 / 3.0
        torque = regressor @ self.box.mid
        size = np.sqrt(torque**2 + (regressor**2) @ spread + 1e-12)
        error = np.maximum(absolute, 1e-6) + relative * size.mean(axis=1)
        inverse = np.sqrt(self.row_weight) / error[:, :, None]
        by_size = (relative / (self.samples * error))[:, None, :] / size
        slope = by_size[..., None] * (torque[..., None] * self.box.mid + regressor * spread)
        return regressor.mean(axis=1) * inverse, inverse, slope

    def information(self, k: FloatArray) -> FloatArray:
        """What the horizon of k will add, (14 n, 14 n)."""
        rows = self._rows(self.sampler(np.asarray(k, float)))[0].reshape(-1, self.prior.size)
        return rows.T @ rows

    def value(self, k: FloatArray) -> float:
        """The cost."""
        rows = self._rows(self.sampler(np.asarray(k, float)))[0]
        return self._of_rows(rows.reshape(-1, self.prior.size) * self._scale, gradient=False)[0]

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        """The cost and its derivative (n,)."""
        states = self.sampler(np.asarray(k, float))
        rows, inverse, by_regressor = self._rows(states)
        value, by_flat = self._of_rows(rows.reshape(-1, self.prior.size) * self._scale, gradient=True)
        by_rows = (by_flat * self._scale).reshape(rows.shape)
        # A row is the regressor's mean over w.
        by_error = np.sum(by_rows * rows, axis=2)[:, None, :, None]
        by_sample = (by_rows * inverse / self.samples)[:, None] - by_error * by_regressor
        by_sample = np.ascontiguousarray(by_sample.reshape(-1, self.model.n, self.prior.size))
        by_state = regressor_gradient(self.model.kinematics, *states, by_sample)
        return value, self.sampler.pull_back(by_state)

    def _of_rows(self, flat: FloatArray, gradient: bool) -> tuple[float, FloatArray]:
        """The cost from scaled rows (R, 14 n), and its derivative by them."""
        if self.kind == "arm":
            value, by_gram = log_volume(self._start + flat.T @ flat)
            tens = 0.1 * self.prior.size  # as if each ten parameters were a payload
            return tens * value, 2.0 * tens * (flat @ by_gram)
        if self.kind == "arm_condition":
            return self._condition(flat)
        e = self.prior.layout.payload
        now = payload_scale(self.box) / self._scale[e]
        if self.kind in ("log_determinant", "smallest_eigenvalue"):
            # In units of the half widths now: a volume is the same in any, the weakest direction is not.
            mine = flat[:, e] * now
            function = log_volume if self.kind == "log_determinant" else log_smallest
            value, by_gram = function(now[:, None] * self._start[e, e] * now + mine.T @ mine)
            by_flat = np.zeros_like(flat)
            by_flat[:, e] = 2.0 * (mine @ by_gram) * now
            return value, by_flat
        columns = np.zeros((self.prior.size, 10))
        columns[np.arange(e.start, e.stop), np.arange(10)] = 1.0
        solve_posterior(flat, self._start.copy(), columns)
        covariance = columns[e]
        if self.kind == "width":
            ratio = np.diag(covariance) / now**2
            value, slope = 0.5 * float(np.log(ratio.mean())), np.diag(0.5 / (now**2 * ratio.sum()))
        else:
            value = 0.05 * float(np.linalg.slogdet(covariance)[1])
            slope = np.asarray(0.05 * np.linalg.inv(covariance), dtype=np.float64)
        by_flat = np.empty_like(flat)
        if gradient:
            # d covariance = -covariance d(information) covariance, information = start + flat^T flat.
            back_to_rows(flat, columns, -2.0 * slope, by_flat)
        return value, by_flat

    def _condition(self, flat: FloatArray) -> tuple[float, FloatArray]:
        """Log condition number of base columns of length one, those of plans before included, and its derivative."""
        # In the parameters' own units: a column of one that is thought to be known is as long as any.
        scale = self._scale[self._base]
        own = flat[:, self._base] / scale
        gram = self.executed[np.ix_(self._base, self._base)] + own.T @ own
        # What nothing excites yet keeps a length, so that the cost falls as soon as something does.
        size = np.diag(gram) + _SHORTEST * np.trace(gram) + 1e-300
        unit = 1.0 / np.sqrt(size)
        value, by_unit = log_condition(unit[:, None] * gram * unit)
        by_gram = unit[:, None] * by_unit * unit
        by_size = -np.sum(by_gram * gram, axis=1) / size
        by_gram = by_gram + np.diag(by_size + _SHORTEST * by_size.sum())
        by_flat = np.zeros_like(flat)
        by_flat[:, self._base] = 2.0 * (own @ by_gram) / scale
        return value, by_flat

    def gauss_newton(self, k: FloatArray) -> None:
        """None: the terms without second derivatives of the rows are of both signs and no guide to curvature."""
