r"""The polytope of all parameters that agree with the rows so far, and linear programs over it.

In scaled unknowns ``theta = mid + rad z, |z| <= 1`` (prior box) every row reads ``|a.z - t| <= 1``. The solver (HiGHS)
is only asked for multipliers; what they prove is evaluated by :mod:`safe_sysid.identification.dual_bounds` on the
unscaled rows. Any subset of the rows gives valid bounds, so memory is bounded by forgetting rows that never mattered.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from safe_sysid.identification.dual_bounds import is_proved_empty, safe_lower, safe_upper
from safe_sysid.identification.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["FeasibleSet", "LinearBounds"]

FloatArray = NDArray[np.float64]
_WIDER = 1e-3
_WORK = 12_000  # simplex iterations of one update: a budget that is the same on any machine
_IPM_WORK = 1000  # what a run of the interior-point method counts for
_ITERATIONS = 2000  # of one run of the solver
_IMPROVEMENT = 0.01  # of the parameter's width, below which another round is not worth it
_PATIENCE = 4  # rounds for a value that has not left the parameter's own bound
_BATCH = 120  # broken rows taken in at once


@dataclass(frozen=True, eq=False)
class LinearBounds:
    """Proved bounds of some parameters, and what became of the programs.

    Attributes:
        lower, upper: (K,) proved.
        solved: programs that the solver finished, of 2 K.
        empty: the set is *proved* empty.
        culprit: index of the row with the largest part in that proof, -1 without one.
    """

    lower: FloatArray
    upper: FloatArray
    solved: int
    empty: bool
    culprit: int = -1


class FeasibleSet:
    """Rows over a prior box. The solver holds a working set of rows and takes in others only when they are broken."""

    def __init__(
        self, prior: ParameterBox, max_rows: int = 6000, max_working: int = 700, rounds: int = 12
    ) -> None:
        """Start with the prior alone.

        Args:
            prior: box of all 14 n parameters.
            max_rows: rows kept between updates.
            max_working: rows of the solver's working set before it is rebuilt from the rows that matter.
            rounds: of taking in broken rows, per linear program.
        """
        self.prior = prior
        self._max_rows, self._max_working = max_rows, max_working
        self._rounds = rounds
        self._scale = np.where(prior.rad > 0.0, prior.rad, 1.0)
        self.rows = MomentumRows.none(prior.size)
        self._scaled = np.empty((0, prior.size))
        self._target = np.empty(0)
        self._gap = np.empty(0)  # smallest distance to a vertex found at the last update, in slacks
        self._working: list[int] = []
        self._is_working = np.empty(0, bool)
        self._highs: highspy.Highs | None = None
        self._random = np.random.default_rng(0)
        self._z_bounds = (np.zeros(0), np.zeros(0))
        self._work = 0
        self._next = 0

    def __len__(self) -> int:
        """Number of rows kept."""
        return len(self._target)

    def add(self, rows: MomentumRows) -> None:
        """Add rows, except those that no point of the prior box can break."""
        if not len(rows):
            return
        scaled = rows.matrix * self._scale / rows.slack[:, None]
        target = (rows.target - rows.matrix @ self.prior.mid) / rows.slack
        reach = np.abs(scaled) @ (self.prior.rad > 0.0)
        useful = reach + np.abs(target) > 1.0
        rows = rows.take(useful)
        self.rows = MomentumRows.concatenate([self.rows, rows])
        self._scaled = np.concatenate([self._scaled, scaled[useful]])
        self._target = np.concatenate([self._target, target[useful]])
        self._gap = np.concatenate([self._gap, np.zeros(len(rows))])
        self._is_working = np.concatenate([self._is_working, np.zeros(len(rows), bool)])

    def prune(self) -> None:
        """Keep the rows nearest to a vertex of the last programs; a subset of the rows still bounds the truth."""
        if len(self) <= self._max_rows:
            return
        keep = np.zeros(len(self), bool)
        keep[np.argsort(self._gap, kind="stable")[: self._max_rows]] = True
        keep[self._working] = True
        new_index = np.cumsum(keep) - 1
        self._working = [int(new_index[i]) for i in self._working]
        self.rows = self.rows.take(keep)
        self._scaled, self._target = self._scaled[keep], self._target[keep]
        self._gap, self._is_working = self._gap[keep], self._is_working[keep]

    def bound(self, indices: NDArray[np.int64], box: ParameterBox) -> LinearBounds:
        """Proved bounds of parameters by index, over rows and a box that holds the truth (the latest one)."""
        indices = np.asarray(indices)
        lower, upper = box.lower[indices].copy(), box.upper[indices].copy()
        if not len(self):
            return LinearBounds(lower, upper, 2 * len(indices), False)
        self._gap[:] = np.inf
        solver = self._solver(box)
        solved = 0
        self._work = 0
        programs = [(k, sign) for k in range(len(indices)) for sign in (1.0, -1.0)]
        first = self._next % len(programs)
        for done, (k, sign) in enumerate(programs[first:] + programs[:first]):
            if self._work > _WORK:
                self._next = first + done  # the next update begins with what this one left out
                break
            index = int(indices[k])
            outcome, y, working = self._minimise(solver, index, sign)
            if outcome == "failed":
                continue
            rows = self.rows.take(working)
            data = (rows.matrix, *_sides(rows), box.lower, box.upper)
            if outcome == "infeasible":
                if is_proved_empty(*data, y):
                    return LinearBounds(lower, upper, solved, True, _culprit(rows, working, y))
                continue
            solved += 1
            c = np.zeros(box.size)
            c[index] = 1.0
            # HiGHS minimises; its row duals are the multipliers of the minimum.
            y = y * self._scale[index]
            if sign > 0:
                lower[k] = max(lower[k], safe_lower(c, *data, y))
            else:
                upper[k] = min(upper[k], safe_upper(c, *data, -y))
            if lower[k] > upper[k]:
                return LinearBounds(lower, upper, solved, True, _culprit(rows, working, y))
        return LinearBounds(lower, upper, solved, False)

    def _minimise(
        self, solver: highspy.Highs, index: int, sign: float
    ) -> tuple[str, FloatArray, NDArray[np.int64]]:
        """Minimise ``sign z_index`` over all rows by taking in broken ones.

        Returns:
            Outcome, multipliers of unscaled rows per unit of z, and which rows these are.
        """
        if len(self._working) > self._max_working:
            self._shrink_working(solver)
        solver.changeColCost(index, sign)
        outcome, y, value = "failed", np.zeros(0), -np.inf
        start = self._z_bounds[0][index] if sign > 0 else -self._z_bounds[1][index]
        enough = _IMPROVEMENT * (self._z_bounds[1][index] - self._z_bounds[0][index])
        for attempt in range(self._rounds):
            # A new objective keeps the basis primal feasible, new rows keep it dual feasible.
            status = self._run(solver, "simplex", 4 if attempt == 0 else 1)
            if status == highspy.HighsModelStatus.kInfeasible:
                if not solver.getDualRay()[1]:  # not every route to this verdict leaves a proof behind
                    solver.clearSolver()
                    self._run(solver, "simplex", 1)
                found = solver.getDualRay()
                if found[1]:
                    outcome, y = "infeasible", np.array(found[2])
                break
            if status != highspy.HighsModelStatus.kOptimal:
                # Simplex stalls where noise that sits on its bounds makes hundreds of rows meet.
                status = self._run(solver, "ipm", 1)
                if status != highspy.HighsModelStatus.kOptimal:
                    break
            solution = solver.getSolution()
            outcome, y = "optimal", np.array(solution.row_dual)
            last, value = value, sign * solution.col_value[index]
            if value - last < enough and (value > start + enough or attempt >= _PATIENCE):
                break
            distance = 1.0 - np.abs(self._scaled @ np.array(solution.col_value) - self._target)
            np.minimum(self._gap, np.abs(distance), out=self._gap)
            broken = np.flatnonzero((distance < -1e-7) & ~self._is_working)
            if not broken.size or attempt == self._rounds - 1:
                break
            self._take_in(solver, broken[np.argsort(distance[broken])[:_BATCH]])
        working = np.array(self._working[: len(y)], dtype=np.int64)
        solver.changeColCost(index, 0.0)  # invalidates status and solution: last
        return outcome, y / self.rows.slack[working], working

    def _run(self, solver: highspy.Highs, method: str, strategy: int) -> highspy.HighsModelStatus:
        solver.setOptionValue("solver", method)
        solver.setOptionValue("simplex_strategy", strategy)
        solver.run()
        self._work += solver.getInfo().simplex_iteration_count if method == "simplex" else _IPM_WORK
        return solver.getModelStatus()

    def _solver(self, box: ParameterBox) -> highspy.Highs:
        """The persistent model, with variable bounds from the latest box."""
        size = self.prior.size
        if self._highs is None:
            solver = highspy.Highs()
            for option, value in (
                ("output_flag", False),
                ("threads", 1),
                ("presolve", "off"),
                ("run_crossover", "off"),
                ("simplex_iteration_limit", _ITERATIONS),  # not a clock: the same result on any machine
            ):
                solver.setOptionValue(option, value)
            lp = highspy.HighsLp()
            lp.num_col_, lp.num_row_ = size, 0
            lp.col_cost_ = np.zeros(size)
            lp.col_lower_, lp.col_upper_ = -np.ones(size), np.ones(size)
            solver.passModel(lp)
            self._highs = solver
        self._z_bounds = (
            np.clip((box.lower - self.prior.mid) / self._scale - 1e-9, -1.0, 1.0),
            np.clip((box.upper - self.prior.mid) / self._scale + 1e-9, -1.0, 1.0),
        )
        self._highs.changeColsBounds(size, np.arange(size, dtype=np.int32), *self._z_bounds)
        return self._highs

    def _take_in(self, solver: highspy.Highs, new: NDArray[np.int64]) -> None:
        block = self._scaled[new]
        size = block.shape[1]
        # Noise that sits on its bounds makes the truth a vertex where hundreds of rows meet, and simplex stall: the
        # solver gets rows wider by a little, each by another amount. What its multipliers prove is read off true rows.
        wider = 1.0 + _WIDER * self._random.uniform(0.5, 1.0, (2, len(new)))
        solver.addRows(
            len(new),
            self._target[new] - wider[0],
            self._target[new] + wider[1],
            block.size,
            np.arange(0, block.size, size, dtype=np.int32),
            np.tile(np.arange(size, dtype=np.int32), len(new)),
            block.ravel(),
        )
        self._working += [int(i) for i in new]
        self._is_working[new] = True

    def _shrink_working(self, solver: highspy.Highs) -> None:
        """Drop the working rows that are basic (inactive) in the solver's last basis and far from every vertex."""
        working = np.array(self._working)
        basis = solver.getBasis()
        basic = np.array([s == highspy.HighsBasisStatus.kBasic for s in basis.row_status], bool)
        if not basis.valid or len(basic) != len(working):  # as the interior-point method leaves it
            basic = np.ones(len(working), bool)
        order = np.argsort(np.where(basic, self._gap[working], -1.0), kind="stable")
        drop = np.sort(order[self._max_working // 2 :])
        drop = drop[basic[drop]]
        solver.deleteRows(len(drop), drop.astype(np.int32))
        keep = np.ones(len(working), bool)
        keep[drop] = False
        self._working = [int(i) for i in working[keep]]
        self._is_working[:] = False
        self._is_working[self._working] = True


def _culprit(rows: MomentumRows, working: NDArray[np.int64], y: FloatArray) -> int:
    return int(working[np.argmax(np.abs(y) * rows.slack)])


def _sides(rows: MomentumRows) -> tuple[FloatArray, FloatArray]:
    """(M,) lower and upper sides of unscaled rows, rounded outward."""
    return np.nextafter(rows.target - rows.slack, -np.inf), np.nextafter(rows.target + rows.slack, np.inf)
