r"""Linear programs over many rows, with slack or box made elastic; the solver only sees rows that bind.

Unknowns ``z`` (P, in the box of the parameters scaled to [-1, 1]) and ``s`` (K, each >= lowest):
``|A z - t| <= 1 + D s`` row by row, ``|z_p| <= 1 + s_k`` for parameters p that may leave their box. Rows are taken in
when a solution breaks them, so 50,000 rows of which 300 matter cost little more than those 300. Nothing here is
published as a bound: it explains data and chooses rows, it proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.identification.bounds.drift import drift_of, drifting
from safe_sysid.identification.bounds.joint_rows import unscaled_rows
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ElasticProgram", "ElasticSolution", "scaled_problem", "scaled_rows"]


def scaled_problem(
    model: RobotModel, errors: MeasurementErrors, rows: MomentumRows, box: ParameterBox
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scaled matrix (M, 14 n + 10 + D) and target (M,), and the radii (14 n + 10,) that scale theta and theta_h.

    The last D unknowns, zero without a tare, are the drift of friction since then.

    ``model``: gives the hand's prior and the drift; ``rows``: of the run, and of a tare where ``log`` is 1.
    """
    lower, upper = model.hand_prior
    middle = np.concatenate([box.mid, 0.5 * (lower + upper)])
    radius = np.concatenate([box.rad, 0.5 * (upper - lower)])
    columns, drift = drifting(drift_of(model, errors) * np.any(rows.log == 1), box.layout)
    x, matrix = UnknownsLayout(box.layout, len(columns)), unscaled_rows(rows, columns)
    moved = matrix[:, x.drift] * drift
    matrix = matrix[:, : x.hand.stop]
    target = (rows.target - matrix @ middle) / rows.slack
    return np.concatenate([matrix * radius, moved], axis=1) / rows.slack[:, None], target, radius


_BATCH = 150  # broken rows taken in at once
_ROUNDS = 60  # of taking in broken rows, per program
_TOLERANCE = 1e-7  # of a row's slack
_IPM_AFTER = 3000  # simplex iterations of one run


@dataclass(frozen=True, eq=False)
class ElasticSolution:
    """Solution of an elastic program."""

    value: float  #: of the cost; infinite if nothing satisfies the rows
    z: FloatArray  #: (P,) scaled parameters
    elastic: FloatArray  #: (K,) values of s
    multipliers: FloatArray  #: (M,) of the rows, in units of their slack; positive where the upper side binds
    finished: bool = True  #: False if rows were still broken when the rounds were used up, or the solver gave up

    @property
    def feasible(self) -> bool:
        """Whether there is a solution."""
        return bool(np.isfinite(self.value))


def scaled_rows(rows: MomentumRows, box: ParameterBox) -> tuple[FloatArray, FloatArray]:
    """Matrix (M, P) and target (M,) with parameters in units of the box's radii about its middle, rows of their slack.

    ``box``: what the parameters are scaled by; flat sides stay flat.
    """
    matrix = rows.matrix * box.rad
    matrix /= rows.slack[:, None]
    return matrix, (rows.target - rows.matrix @ box.mid) / rows.slack


class ElasticProgram:
    """Linear programs with different costs over the same rows. Rows that bind in one start the next."""

    def __init__(
        self,
        matrix: FloatArray,
        target: FloatArray,
        elastic: FloatArray | None = None,
        leaving: Sequence[tuple[int, int]] = (),
        lowest: FloatArray | None = None,
        budget: float = np.inf,
    ) -> None:
        """Start with no row in the solver.

        Args:
            matrix: (M, P) scaled rows.
            target: (M,) scaled.
            elastic: (M, E) >= 0, by how much one unit of each s widens each row; None for E = 0.
            leaving: parameters that may leave their box, each with the index of its s: one of the E of ``elastic``,
                which then does both, or a further one.
            lowest: (E,) smallest value of each s of ``elastic``, -1 or more; None for 0.
            budget: of all programs together, simplex iterations times rows in the solver; what is left is unfinished.
        """
        m, size = matrix.shape
        self._matrix, self._target = matrix, target
        self._widen = np.zeros((m, 0)) if elastic is None else elastic
        count = self._widen.shape[1]
        self._leaving = list(leaving)
        self._extra = max([count, *(k + 1 for _, k in self._leaving)])
        self._lowest = np.zeros(self._extra)
        if lowest is not None:
            self._lowest[:count] = lowest
        self._size, self._budget = size, budget
        self.work = 0.0  #: so far
        self._upper_in, self._lower_in = np.zeros(m, bool), np.zeros(m, bool)
        self._working: list[tuple[int, float]] = []
        self._solver = self._new_solver()

    @property
    def extra(self) -> int:
        """K, number of elastic unknowns."""
        return self._extra

    def _new_solver(self) -> highspy.Highs:
        solver = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("run_crossover", "on"),
            ("simplex_iteration_limit", _IPM_AFTER),
        ):
            solver.setOptionValue(option, value)
        size, total = self._size, self._size + self._extra
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = total, 0
        lp.col_cost_ = np.zeros(total)
        lower, upper = np.full(total, -1.0), np.full(total, 1.0)
        free = [p for p, _ in self._leaving]
        lower[free], upper[free] = -highspy.kHighsInf, highspy.kHighsInf
        lower[size:], upper[size:] = 0.0, 0.0
        lp.col_lower_, lp.col_upper_ = lower, upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.zeros(1, np.int32)
        solver.passModel(lp)
        for p, k in self._leaving:
            index = np.array([p, size + k], np.int32)
            solver.addRow(-highspy.kHighsInf, 1.0, 2, index, np.array([1.0, -1.0]))
            solver.addRow(-1.0, highspy.kHighsInf, 2, index, np.array([1.0, 1.0]))
        return solver

    def minimise(self, cost: FloatArray | None = None, elastic: Mapping[int, float] | None = None) -> ElasticSolution:
        """Minimise ``cost.z + sum weight_k s_k`` over the z and the s that are named; all others stay 0.

        ``cost``: (P,); None for zero; ``elastic``: weight (> 0) by index of the s that may move.
        """
        solver, size, elastic = self._solver, self._size, elastic or {}
        full = np.zeros(size + self._extra)
        if cost is not None:
            full[:size] = cost
        columns = np.arange(full.size, dtype=np.int32)
        lower, upper = np.zeros(self._extra), np.zeros(self._extra)
        for k, weight in elastic.items():
            full[size + k], lower[k], upper[k] = weight, self._lowest[k], highspy.kHighsInf
        solver.changeColsCost(full.size, columns, full)
        solver.changeColsBounds(self._extra, columns[size:], lower, upper)
        for round_ in range(_ROUNDS):
            status = self._run(4 if round_ == 0 else 1)
            if status == highspy.HighsModelStatus.kInfeasible:
                return self._nothing()
            if status != highspy.HighsModelStatus.kOptimal:
                return self._nothing(False)
            x = np.array(solver.getSolution().col_value)
            if not self._take_in(x):
                return self._solution(x, full, True)
            if self.work > self._budget:
                break
        return self._solution(x, full, False)

    def _run(self, strategy: int) -> highspy.HighsModelStatus:
        solver = self._solver
        solver.setOptionValue("solver", "simplex")
        solver.setOptionValue("simplex_strategy", strategy)
        solver.run()
        self.work += max(solver.getInfo().simplex_iteration_count, 0) * (len(self._working) + 1.0)
        status = solver.getModelStatus()
        if np.isfinite(self._budget) or status in (
            highspy.HighsModelStatus.kOptimal,
            highspy.HighsModelStatus.kInfeasible,
        ):
            return status
        solver.clearSolver()  # stalled where hundreds of rows meet in a point
        solver.setOptionValue("solver", "ipm")
        solver.run()
        return solver.getModelStatus()

    def _take_in(self, x: FloatArray) -> bool:
        z, s = x[: self._size], x[self._size : self._size + self._widen.shape[1]]
        residual = self._matrix @ z - self._target
        allowed = 1.0 + (self._widen @ s if s.size else 0.0)
        excess = np.abs(residual) - allowed
        above = residual > 0.0
        excess[np.where(above, self._upper_in, self._lower_in)] = 0.0
        broken = np.flatnonzero(excess > _TOLERANCE)
        if not broken.size:
            return False
        broken = broken[np.argsort(-excess[broken], kind="stable")[:_BATCH]]
        # sign (A z - t) - D s <= 1
        sign = np.where(above[broken], 1.0, -1.0)
        values = np.hstack([self._matrix[broken], -sign[:, None] * self._widen[broken]])
        row, column = np.nonzero(values)
        low = np.where(sign > 0.0, -highspy.kHighsInf, self._target[broken] - 1.0)
        high = np.where(sign > 0.0, self._target[broken] + 1.0, highspy.kHighsInf)
        start = np.searchsorted(row, np.arange(len(broken))).astype(np.int32)
        self._solver.addRows(len(broken), low, high, len(row), start, column.astype(np.int32), values[row, column])
        self._working.extend(zip(broken.tolist(), sign.tolist(), strict=True))
        self._upper_in[broken[above[broken]]] = True
        self._lower_in[broken[~above[broken]]] = True
        return True

    def _solution(self, x: FloatArray, cost: FloatArray, finished: bool) -> ElasticSolution:
        dual = np.array(self._solver.getSolution().row_dual)[2 * len(self._leaving) :]
        multipliers = np.zeros(len(self._target))
        # rows taken in after the last run have no multiplier yet
        for (i, _), y in zip(self._working, dual, strict=False):
            multipliers[i] -= y  # HiGHS: dual of a minimum, negative where an upper side binds
        return ElasticSolution(float(cost @ x), x[: self._size], x[self._size :], multipliers, finished)

    def _nothing(self, finished: bool = True) -> ElasticSolution:
        nan = np.full(self._size + self._extra, np.nan)
        return ElasticSolution(np.inf, nan[: self._size], nan[self._size :], np.zeros(len(self._target)), finished)
