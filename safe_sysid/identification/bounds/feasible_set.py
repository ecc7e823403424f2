r"""The set of all parameters that agree with the rows so far and hold a real payload, and bounds over it.

Unknowns ``x = (theta, theta_h, d, f, z)`` of :class:`UnknownsLayout`: all parameters, the last link with the empty
hand, what the hand's opening changes, by how much friction was larger at the tare (only what may drift at all), and
constants of the arm that are no parameters. In scaled unknowns ``x = mid + rad z, |z| <= 1`` (prior) every row reads
``|a.z - t| <= 1``. The solver is only asked for multipliers; what they prove is evaluated by ``dual_bounds`` on the
unscaled rows. Any subset of rows and cuts gives valid bounds, so memory is bounded by forgetting rows that never
mattered.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.identification.bounds.drift import checked_drift, drifting
from safe_sysid.identification.bounds.dual_bounds import is_proved_empty, safe_lower, safe_upper
from safe_sysid.identification.bounds.joint_rows import LinearBounds, collect, culprit, sides, unscaled_rows
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.bounds.programs import Functionals, Program
from safe_sysid.identification.bounds.proof import MARGIN
from safe_sysid.identification.bounds.working_set import WorkingSet
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.unknowns import Unknowns

__all__ = ["FeasibleSet"]

# Simplex iterations of one update, and what starting the solver counts for: a budget that is the same on any machine.
_WORK = 12_000
_THOROUGH_IMPROVEMENT, _THOROUGH_ROUNDS, _THOROUGH_ROWS = 1e-5, 300, 100_000
_BATCH = 6  # broken rows that one program may bring in at once
_PATIENCE = {"lp": 4, "sdp": 12}  # rounds before a small improvement ends a program
_IMPROVEMENT = {"lp": 0.01, "sdp": 0.003}  # of an unknown's width: less is small
_OVERFULL = 12  # times the rows kept between updates: what may wait for an update
_WORKING = 200  # rows of the solver above which those that are nowhere active go
_UNKNOWN = 1e3  # gap, in slacks, of a row that was never compared with a vertex
_NOTHING = (np.zeros(0), np.zeros(0, np.int64))


class FeasibleSet:
    """Rows and cuts over a prior box. The solver holds those that matter and takes in others when they are broken."""

    def __init__(
        self,
        prior: ParameterBox,
        max_rows: int = 4000,
        payload_constraints: PayloadConstraints | None = None,
        method: str = "lp",
        tare_rows: MomentumRows | None = None,
        tare_drift: FloatArray | None = None,
        rounds: int = 14,
        improvement: float | None = None,
        tolerance: float = 1e-3,
        functionals: FloatArray | None = None,
        unknowns: Unknowns | None = None,
        thorough: bool = False,
    ) -> None:
        """Start with the prior alone.

        Args:
            prior: box of all 14 n parameters.
            max_rows: rows kept between updates, those of the solver and of the tare come on top.
            payload_constraints: of hand and payload; None for none at all: then no cut is ever used.
            method: "lp": rows and the knowledge that is linear; "sdp": physical consistency too.
            tare_rows: rows of theta_r and theta_h (log = 1).
            tare_drift: (3 n,) by how much friction may have changed since these rows; None for not at all.
            rounds: of taking in broken rows and cuts, per update.
            improvement: share of an unknown's width below which another round is not worth it; None for the usual.
            tolerance: in units of a row's slack: less is not worth a round. Of cuts a thousandth of it, relative.
            functionals: (F, 14 n) coefficients of combinations of theta that may be bounded, too; exact as they are.
            unknowns: constants that rows have columns for; None: there are none.
            thorough: every program to its end, over all rows that may matter: for minutes where seconds would do.

        Raises:
            ParameterError: a drift of another shape, or negative.
        """
        self.prior, self._max_rows, self._rounds = prior, max_rows, rounds
        self._improvement = _IMPROVEMENT[method] if improvement is None else improvement
        self._work: float = _WORK
        if thorough:
            self._work, self._improvement, self._rounds = np.inf, _THOROUGH_IMPROVEMENT, _THOROUGH_ROUNDS
            self._max_rows = max(max_rows, _THOROUGH_ROWS)
        self._payload_constraints, self._method, self._tolerance = payload_constraints, method, tolerance
        if payload_constraints is None:
            self._hand = (np.zeros(10), np.zeros(10), np.zeros(10))
            # Without knowledge the hand is no unknown, and rows of a tare could not be used.
        else:
            self._hand = (payload_constraints.hand_lower, payload_constraints.hand_upper, payload_constraints.opening)
        self._drifting, self._drift = np.zeros(0, np.int64), np.zeros(0)
        if tare_rows is not None and tare_drift is not None:
            self._drifting, self._drift = drifting(checked_drift(tare_drift, prior.layout), prior.layout)
        self._constants = (np.zeros(0), np.zeros(0)) if unknowns is None else (unknowns.lower, unknowns.upper)
        self._layout = UnknownsLayout(prior.layout, len(self._drifting), len(self._constants[0]))
        size = self._layout.size
        lower, upper = self._boxes(prior)
        self._mid, rad = 0.5 * (lower + upper), 0.5 * (upper - lower)
        self._free = rad > 0.0
        self._scale = np.where(self._free, rad, 1.0)
        self._width = np.where(self._free, 2.0 * rad, 0.0)
        self._z_lower, self._z_upper = -np.ones(size), np.ones(size)
        width = np.where(self._free, self._scale, 0.0)
        self._functionals = Functionals(functionals, prior.size, self._scale, width)
        self._solver = WorkingSet(self._mid, width, tolerance, self._layout, self._drifting, self._functionals.scaled)
        self.rows = MomentumRows.none(prior.size).with_constants(self._layout.further)
        # For screening only: what is broken is found in single precision, in half the time and memory.
        self._screen = np.empty((0, size), np.float32)
        self._target = np.empty(0, np.float32)
        self._gap = np.empty(0)  # smallest distance to a vertex found at the last update, in slacks
        self._is_working = np.empty(0, bool)
        self._vertices: dict[Program, FloatArray] = {}
        self._proved: dict[Program, float] = {}
        self._next = 0
        self._box = prior
        self._empty: LinearBounds | None = None  # found when nobody asked
        if tare_rows is not None:
            self.add(tare_rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unknowns(self) -> int:
        """Number of unknowns: the index of the first functional."""
        return self._layout.size

    def add(self, rows: MomentumRows) -> None:
        """Add rows, except those that no point of the latest box can break: nested boxes never will."""
        if not len(rows) or self._empty is not None:
            return
        size, mid, scale = self.prior.size, self._mid, np.where(self._free, self._scale, 0.0)
        good = np.isfinite(rows.slack) & (rows.slack > 0.0)
        rows = (rows if good.all() else rows.take(good)).with_constants(self._layout.further)
        target = rows.target - rows.matrix @ mid[:size]
        screen = np.zeros((len(rows), len(mid)), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # such rows are dropped below
            np.multiply(rows.matrix, scale[:size], out=screen[:, :size], casting="same_kind")
        more = np.flatnonzero((rows.log == 1) | (self._layout.further > 0))
        if more.size:
            matrix = unscaled_rows(rows.take(more), self._drifting)
            screen[more], target[more] = matrix * scale, rows.target[more] - matrix @ mid
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            screen /= rows.slack[:, None].astype(np.float32)
            target /= rows.slack
            useful = self._can_break(screen, target)
        self.rows = MomentumRows.concatenate([self.rows, rows.take(useful)])
        self._screen = np.concatenate([self._screen, screen[useful]])
        self._target = np.concatenate([self._target, target[useful].astype(np.float32)])
        count = int(useful.sum())
        self._gap = np.concatenate([self._gap, np.full(count, _UNKNOWN)])
        self._is_working = np.concatenate([self._is_working, np.zeros(count, bool)])
        if len(self) > _OVERFULL * self._max_rows:
            # Nobody asks for bounds, but memory has to stay bounded: ask, to learn which rows matter.
            payload = self._layout.arm.payload
            bounds = self.bound(np.arange(payload.start, payload.stop), self._box)
            self._empty = bounds if bounds.empty else None
            self.prune()

    def _can_break(self, screen: NDArray[np.float32], target: NDArray[np.floating]) -> BoolArray:
        """(M,) rows that some point of the latest box breaks, or nearly; those with numbers too large are dropped."""
        middle, half = 0.5 * (self._z_lower + self._z_upper), 0.5 * (self._z_upper - self._z_lower)
        reach = np.abs(screen) @ half.astype(np.float32)
        most = reach + np.abs(screen @ middle.astype(np.float32) - target)
        return (most > 1.0 - 1e-3) & np.isfinite(most)

    def largest_violation(self) -> float:
        """Largest violation, in slacks, of the last programs' vertices by rows that came since.

        Cheap: no program is solved. What does not pass the solver's tolerance changes no bound; infinite before there
        were any programs, or once the set is empty.
        """
        if not self._vertices or self._empty is not None:
            return np.inf
        new = self._gap >= _UNKNOWN
        if not new.any():
            return 0.0
        worst = float(self._distances(np.array(list(self._vertices.values())))[:, new].min())
        return -worst if worst < -self._tolerance else 0.0

    def prune(self) -> None:
        """Keep the rows nearest to a vertex of the last programs; a subset of the rows still bounds the truth."""
        if self._empty is not None:
            return
        self._shrink()
        self._solver.forget_cuts()
        keep = self._can_break(self._screen, self._target)
        if keep.sum() > self._max_rows:
            keep[:] = False
            keep[np.argsort(self._gap, kind="stable")[: self._max_rows]] = True
        keep |= self._is_working | (self.rows.log == 1)
        self._solver.renumber(np.cumsum(keep) - 1)
        self.rows = self.rows.take(keep)
        self._screen, self._target = self._screen[keep], self._target[keep]
        self._gap, self._is_working = self._gap[keep], self._is_working[keep]

    def bound(self, indices: IntArray, box: ParameterBox) -> LinearBounds:
        """Proved bounds of unknowns by index, over rows, cuts and a box that holds the truth (the latest one).

        ``indices``: (K,) into ``(theta, theta_h, d, f, z)``; beyond them into the functionals.
        """
        if self._empty is not None:
            return self._empty
        indices, self._box = np.asarray(indices), box
        count = len(indices)
        box_lower, box_upper = self._boxes(box)
        lower, upper = self._functionals.range(indices, box_lower, box_upper)
        if not len(self) and self._payload_constraints is None:
            return LinearBounds(lower, upper, 2 * count, False)
        self._set_bounds(box_lower, box_upper)
        programs = [(int(i), sign) for i in indices for sign in (1.0, -1.0)]
        # What the box already says of programs that were solved before.
        settled = {
            program
            for k, program in enumerate(programs)
            if program in self._proved
            and (lower[k // 2] >= self._proved[program] if program[1] > 0 else upper[k // 2] <= self._proved[program])
        }
        answers = self._solve(programs, settled)
        solved, proofs = 0, []
        for k, program in enumerate(programs):
            outcome, y, origin = answers.get(program, ("failed", *_NOTHING))
            if outcome == "failed":
                continue
            if outcome == "unchanged":
                solved += 1
                continue
            y, origin = y[y != 0.0], origin[: len(y)][y != 0.0]
            given = sides(self.rows, self._solver.cuts, origin, self._drifting)
            data = (*given, box_lower, box_upper)
            if outcome == "infeasible":
                if is_proved_empty(*data, y):
                    return LinearBounds(lower, upper, solved, True, *self._blame(origin, y))
                continue
            solved += 1
            index, at = program[0], k // 2
            c = self._functionals.coefficients(index)
            # HiGHS minimises; its row duals are the multipliers of the minimum.
            margin = MARGIN * float(np.abs(c) @ self._width)
            if program[1] > 0:
                value = self._proved[program] = safe_lower(c, *data, y) - margin
                if value > lower[at]:
                    lower[at] = value
                    proofs.append((at, y, origin))
            else:
                value = self._proved[program] = safe_upper(c, *data, -y) + margin
                if value < upper[at]:
                    upper[at] = value
                    proofs.append((count + at, -y, origin))
            if lower[at] > upper[at]:
                return LinearBounds(lower, upper, solved, True, *self._blame(origin, y))
        found = collect(count, len(self), self._solver.cuts, proofs)
        return LinearBounds(lower, upper, solved, False, -1, (), *found)

    def _blame(self, origin: IntArray, y: FloatArray) -> tuple[int, tuple[str, ...]]:
        return culprit(self.rows, self._solver.cuts, origin, y)

    def _solve(self, programs: list[Program], settled: set[Program]) -> dict[Program, tuple[str, FloatArray, IntArray]]:
        """Multipliers of unscaled rows and cuts for each program, and which these are."""
        answers: dict[Program, tuple[str, FloatArray, IntArray]] = {}
        self._gap[:] = np.inf
        solver, values = self._solver.programs, dict.fromkeys(programs, -np.inf)
        stop = solver.work + self._work
        first = self._next % len(programs)
        active = programs[first:] + programs[:first]
        old = [program for program in active if program in self._vertices]
        if old:
            # A vertex that nothing new breaks is still the best: the box was tightened by what these rows imply.
            broken = self._take_in_broken(np.array([self._vertices[program] for program in old]))
            unchanged = settled & {p for p, is_broken in zip(old, broken, strict=True) if not is_broken}
            answers.update((program, ("unchanged", *_NOTHING)) for program in unchanged)
            active = [program for program in active if program not in unchanged]
        for attempt in range(self._rounds):
            points = []
            for done, program in enumerate(active):
                if solver.work > stop:
                    self._next = programs.index(program)  # the next update begins with what this one left out
                    active = active[:done]
                    break
                found = solver.solve(program, program not in answers)
                if found.outcome == "failed":
                    continue
                y = self._solver.unscaled(found.y, self.rows.slack) * self._functionals.unit(program[0])
                answers[program] = (found.outcome, y, self._solver.origin.copy())
                if found.outcome == "infeasible":
                    return answers
                self._vertices[program] = found.z
                value, width = self._functionals.of_vertex(program, found.z, self._z_lower, self._z_upper)
                small = value - values[program] < self._improvement * width and attempt >= _PATIENCE[self._method]
                values[program] = value
                if not small:
                    points.append((program, found.z))
            if not points or attempt == self._rounds - 1 or solver.work > stop:
                break
            self._shrink()
            broken = self._take_in_broken(np.array([z for _, z in points]))
            active = [program for (program, _), is_broken in zip(points, broken, strict=True) if is_broken]
            if not active:
                break
        return answers

    def _take_in_broken(self, points: FloatArray) -> BoolArray:
        """Add the kept rows and cuts that scaled points (K, P) break; returns which points break any."""
        broken = np.zeros(len(points), bool)
        new: set[int] = set()
        if len(self):
            distance = self._distances(points)
            distance[:, self._is_working] = 1.0
            for k, row in enumerate(distance):
                bad = np.flatnonzero(row < -self._tolerance)
                if bad.size:
                    broken[k] = True
                    if bad.size > _BATCH:
                        bad = bad[np.argpartition(row[bad], _BATCH)[:_BATCH]]
                    new.update(int(i) for i in bad)
        if new:
            index = np.array(sorted(new))
            self._solver.take_in_rows(self.rows.take(index), index)
            self._is_working[index] = True
        if self._payload_constraints is not None:
            broken |= self._solver.take_in_cuts(points, self._payload_constraints, self._method == "sdp")
        return broken

    def _shrink(self) -> None:
        """Drop the solver's rows and cuts that are active at no vertex."""
        if self._solver.shrink(_WORKING):
            origin = self._solver.origin
            self._is_working[:] = False
            self._is_working[origin[origin >= 0]] = True

    def _distances(self, points: FloatArray) -> NDArray[np.float32]:
        """(K, M) by how much of its slack each point is inside each row; remembers the smallest gaps."""
        distance = np.abs(points.astype(np.float32) @ self._screen.T - self._target)
        np.subtract(1.0, distance, out=distance)
        np.minimum(self._gap, np.abs(distance).min(axis=0), out=self._gap)
        return distance

    def _boxes(self, box: ParameterBox) -> tuple[FloatArray, FloatArray]:
        hand_lower, hand_upper, opening = self._hand
        lower, upper = self._constants
        return np.concatenate([box.lower, hand_lower, -opening, -self._drift, lower]), np.concatenate(
            [box.upper, hand_upper, opening, self._drift, upper]
        )

    def _set_bounds(self, lower: FloatArray, upper: FloatArray) -> None:
        self._z_lower = np.clip((lower - self._mid) / self._scale - 1e-9, -1.0, 1.0)
        self._z_upper = np.clip((upper - self._mid) / self._scale + 1e-9, -1.0, 1.0)
        self._solver.programs.set_bounds(self._z_lower, self._z_upper)
