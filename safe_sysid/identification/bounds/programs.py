r"""Linear programs that share their rows and differ in their objective: one persistent HiGHS model, a basis for each.

New rows leave the last basis of a program dual feasible, so a few steps of dual simplex mend it. Nothing here is
trusted: what a solution is good for is decided by :mod:`safe_sysid.identification.bounds.dual_bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.identification.bounds.dual_bounds import safe_lower, safe_upper

__all__ = ["Functionals", "Program", "Programs", "Solution"]


class Functionals:
    """Objectives of P unknowns and F combinations, in unscaled unknowns and in the solver's."""

    def __init__(self, given: FloatArray | None, theta: int, scale: FloatArray, width: FloatArray) -> None:
        """Take combinations as they are: exact floats.

        Args:
            given: (F, theta) coefficients of the first unknowns; None for no combination.
            theta: number of the parameters.
            scale: (P,) of all unknowns, what a scaled one is multiplied by.
            width: (P,) the same, zero where the prior leaves no room.
        """
        given = np.zeros((0, theta)) if given is None else np.asarray(given, float)
        self._scale, self._width = scale, width
        self._matrix = np.zeros((len(given), len(scale)))
        self._matrix[:, :theta] = given
        reach = np.abs(self._matrix * width).max(axis=1, initial=0.0)
        self._reach = np.where(reach > 0.0, reach, 1.0)
        #: (F, P) as the solver has them, in unscaled unknowns: numbers near 1 once these are scaled.
        self.scaled = self._matrix / self._reach[:, None]

    def coefficients(self, index: int) -> FloatArray:
        """(P,) of an objective. ``index``: of an unknown, or P plus that of a combination."""
        size = len(self._scale)
        return np.eye(1, size, index)[0] if index < size else self._matrix[index - size]

    def unit(self, index: int) -> float:
        """What the solver's objective is multiplied by to be the unscaled one."""
        size = len(self._scale)
        return float(self._scale[index] if index < size else self._reach[index - size])

    def of_vertex(self, program: Program, z: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[float, float]:
        """The solver's objective at a vertex, and by how much it varies in the box of scaled unknowns.

        Args:
            z: (P,) the vertex.
            lower: (P,) of the box.
            upper: (P,) likewise.
        """
        index, sign = program
        if index < len(self._scale):
            return sign * float(z[index]), float(upper[index] - lower[index])
        c = self.scaled[index - len(self._scale)] * self._width
        return sign * float(c @ z), float(np.abs(c) @ (upper - lower))

    def range(self, indices: IntArray, box_lower: FloatArray, box_upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(K,), (K,) proved bounds over a box alone.

        Args:
            indices: (K,) as above.
            box_lower: (P,) unscaled.
            box_upper: (P,) likewise.
        """
        single = np.minimum(indices, len(self._scale) - 1)
        lower, upper = box_lower[single].copy(), box_upper[single].copy()
        none = (np.zeros((0, len(self._scale))), np.zeros(0), np.zeros(0), box_lower, box_upper, np.zeros(0))
        for k in np.flatnonzero(indices >= len(self._scale)).tolist():
            c = self.coefficients(int(indices[k]))
            lower[k], upper[k] = safe_lower(c, *none), safe_upper(c, *none)
        return lower, upper


#: Index of the variable, or number of variables plus that of an objective; +1 to minimise it, -1 to maximise it.
Program = tuple[int, float]
_ITERATIONS = 1000  # of one run of the solver: not a clock, the same result on any machine
_START, _IPM_WORK = (15, 1000)  # what starting a run and one of the interior-point method count for, in iterations
_LARGEST = 1e12  # the solver refuses rows with larger numbers; it is not trusted anyway
_BASIC = highspy.HighsBasisStatus.kBasic


@dataclass(frozen=True, eq=False)
class Solution:
    """The solver's answer to one program."""

    outcome: str
    z: FloatArray  #: (P,) vertex; empty unless optimal
    y: FloatArray  #: (M,) multipliers of the rows (for "infeasible" a ray, of either sign); empty if failed


class Programs:
    """Minimise ``sign z_index`` over ``row_lower <= A z <= row_upper``, ``lower <= z <= upper``."""

    def __init__(self, size: int, objectives: FloatArray | None = None) -> None:
        """Start without rows.

        Args:
            size: number of variables, each in [-1, 1] until :meth:`set_bounds`.
            objectives: (F, size) further ones, ``sign objectives[index - size] . z``.
        """
        self._size, self._rows = size, 0
        self._objectives = np.zeros((0, size)) if objectives is None else objectives
        self.work = 0  #: so far, in simplex iterations
        # Of each program's last vertex: status of columns and rows, and which rows are active.
        self._bases: dict[Program, tuple[list, list, BoolArray]] = {}
        solver = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("run_crossover", "off"),
            # The rows are scaled already. HiGHS' own scaling makes simplex stall on them: 3 to 10 times the iterations.
            ("simplex_scale_strategy", 0),
            ("simplex_dual_edge_weight_strategy", 1),  # exact weights cost more than they save from a good basis
            ("dual_simplex_cost_perturbation_multiplier", 0.0),  # the caller perturbs the rows
            ("simplex_iteration_limit", _ITERATIONS),
        ):
            solver.setOptionValue(option, value)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = size, 0
        lp.col_cost_ = np.zeros(size)
        lp.col_lower_, lp.col_upper_ = -np.ones(size), np.ones(size)
        solver.passModel(lp)
        self._solver = solver

    def __len__(self) -> int:
        return self._rows

    def set_bounds(self, lower: FloatArray, upper: FloatArray) -> None:
        """Bounds (P,) of the variables."""
        self._solver.changeColsBounds(self._size, np.arange(self._size, dtype=np.int32), lower, upper)

    def add_rows(self, matrix: FloatArray, lower: FloatArray, upper: FloatArray) -> None:
        """Append rows (M, P) with sides (M,)."""
        matrix = np.clip(matrix, -_LARGEST, _LARGEST)
        count, used = len(lower), matrix != 0.0
        starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
        columns = np.nonzero(used)[1].astype(np.int32)
        self._solver.addRows(count, lower, upper, len(columns), starts[:-1], columns, matrix[used])
        self._rows += count

    def solve(self, program: Program, last_resort: bool) -> Solution:
        """Solve from the program's last basis; with ``last_resort`` by the interior-point method if simplex fails."""
        solver, (index, sign) = self._solver, program
        basis = self._bases.get(program)
        if basis is not None:
            start = highspy.HighsBasis()
            start.valid = True
            start.col_status = basis[0]
            start.row_status = basis[1] + [_BASIC] * (self._rows - len(basis[1]))
            solver.setBasis(start)
        self._set_cost(index, sign)
        # Without a basis of its own the last program's vertex is still primal feasible but for new rows.
        status = self._run("simplex", 1 if basis is not None else 4)
        if status == highspy.HighsModelStatus.kInfeasible and not solver.getDualRay()[1]:
            solver.clearSolver()  # not every route to this verdict leaves a proof behind
            status = self._run("simplex", 1)
        answer = Solution("failed", np.zeros(0), np.zeros(0))
        if status == highspy.HighsModelStatus.kInfeasible:
            ray = solver.getDualRay()
            if ray[1]:
                answer = Solution("infeasible", np.zeros(0), np.array(ray[2]))
        elif status == highspy.HighsModelStatus.kOptimal:
            found, basis_now = solver.getSolution(), solver.getBasis()
            answer = Solution("optimal", np.array(found.col_value), np.array(found.row_dual))
            rows = basis_now.row_status
            self._bases[program] = basis_now.col_status, rows, np.array([s != _BASIC for s in rows], bool)
        else:
            self._bases.pop(program, None)
            if last_resort and self._run("ipm", 1) == highspy.HighsModelStatus.kOptimal:
                found = solver.getSolution()
                answer = Solution("optimal", np.array(found.col_value), np.array(found.row_dual))
            solver.clearSolver()  # a basis of a stalled run or of the other method is no start for the next program
        self._set_cost(index, 0.0)  # invalidates status and solution: last
        return answer

    def _set_cost(self, index: int, sign: float) -> None:
        if index < self._size:
            self._solver.changeColCost(index, sign)
            return
        objective = self._objectives[index - self._size]
        for column in np.flatnonzero(objective).tolist():
            self._solver.changeColCost(column, sign * float(objective[column]))

    def _run(self, method: str, strategy: int) -> highspy.HighsModelStatus:
        solver = self._solver
        solver.setOptionValue("solver", method)
        solver.setOptionValue("simplex_strategy", strategy)
        solver.run()
        count = max(solver.getInfo().simplex_iteration_count, 0)
        self.work += _START + count if method == "simplex" else _IPM_WORK
        return solver.getModelStatus()

    def drop_idle(self, limit: int) -> BoolArray:
        """Delete the rows that are active at no program's last vertex, if there are more than ``limit`` rows.

        Returns (M,) which rows remain.
        """
        keep = np.ones(self._rows, bool)
        if self._rows <= limit:
            return keep
        keep[:] = False
        for _, _, active in self._bases.values():
            keep[: len(active)] |= active
        drop = np.flatnonzero(~keep)
        if drop.size:
            self._solver.deleteRows(len(drop), drop.astype(np.int32))
            for program, (columns, rows, active) in self._bases.items():
                left = keep[: len(rows)]
                self._bases[program] = columns, [rows[i] for i in np.flatnonzero(left)], active[left]
            self._rows -= len(drop)
        return keep
