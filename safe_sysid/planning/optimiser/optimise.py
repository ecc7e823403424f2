"""Search for the best *certified* trajectory parameter: many quick local optimisations, few expensive certificates.

The optimiser is never trusted: rigorous code that shares nothing with it certifies each proposal, and only a certified
parameter is returned. The margins that a certificate finds calibrate the optimiser's limits, so the second proposal
usually meets them.

It can stop at any time: the gentlest trajectory is certified first, every better one is reported at once, and the
search goes on from other starts while that pays. Without a deadline it depends on seed and budget alone, not on the
machine's speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.certification.verdicts import PlanVerdict
from safe_sysid.planning.costs import Cost
from safe_sysid.planning.optimiser.constraints import FAMILIES, FastConstraints, Margins
from safe_sysid.planning.optimiser.sqp import Subproblem, minimise

__all__ = ["Attempt", "Budget", "PlanProblem", "SearchResult", "candidates", "solve"]


@dataclass
class Budget:
    """How long to search; whatever runs out first ends it."""

    iterations: int = 60
    certificates: int = 4
    #: reading of ``clock`` at which to be done, s; None for none (then the search is deterministic)
    deadline: float | None = None
    cancelled: Callable[[], bool] | None = None  #: asked often; True ends the search with what there is
    clock: Callable[[], float] = time.monotonic  #: monotonic clock, s
    certificate_s: float = 0.0  #: s that a certificate is expected to take before one was made
    reserve: float = 0.0  #: s before the deadline at which all is done: for what cannot be interrupted
    worthwhile: float = 0.04  #: a certified plan is only replaced by a candidate whose cost is lower by this much

    def stopped(self, needed: float = 0.0) -> bool:
        """Whether cancelled, or fewer than ``needed`` seconds are left before the reserve."""
        if self.cancelled is not None and self.cancelled():
            return True
        return self.deadline is not None and self.clock() + needed + self.reserve >= self.deadline


Certify = Callable[[FloatArray], PlanVerdict]
#: Relative lengths at which a random direction is tried, longest first.
_LADDER = (0.7, 0.3, 0.1)
#: How much of a family's typical size is kept free beyond what the certificate asked for.
_CUSHION = 0.02
#: A certificate may take this many times as long as the longest before it.
_CAUTION = 1.25
#: By so much a candidate's cost may fall when a certificate has told what the margins really are.
_HOPE = 0.1
#: Iterations of one local optimisation, and of one that only has to adapt to new reserves: many starts taken less far
#: find more than few taken to their ends.
_LOCAL, _REFINE = 10, 6
#: Samples and pieces of time before a certificate, while many starts are tried, and while they are compared.
_FINE, _COARSE, _SCREEN = (48, 12), (24, 6), (12, 6)
#: Parameters closer than this are one candidate.
_SAME = 0.02
#: Starts that are compared with each other.
_TOGETHER = 32
#: Candidates that failed in a row before the search goes half way back to what is certified.
_PATIENCE = 3


@dataclass(frozen=True, eq=False)
class PlanProblem:
    """Everything about one search, open to inspection."""

    cost: Cost  #: to minimise; to keep >= 0
    constraints: FastConstraints  #: to minimise; to keep >= 0
    starts: FloatArray  #: (R, n) directions to begin from besides the gentlest; the first may be a warm start
    keep: int = 5  #: how many starts, best first, are optimised before the first of their results is certified
    patience: int = 12  #: so many further starts in a row without improvement end the search

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.cost.family.n


@dataclass(frozen=True, eq=False)
class Attempt:
    """One certificate asked for: parameter, cost, and the verdict."""

    k: FloatArray
    cost: float
    verdict: PlanVerdict


@dataclass(frozen=True, eq=False)
class _PlanCandidate:
    """Something to certify: its expected cost, and how many certificates its margins knew of (-1: to be refined)."""

    cost: float
    k: FloatArray
    lessons: int


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Outcome of :func:`solve`."""

    best: Attempt | None  #: the certified attempt of least cost, or None
    attempts: tuple[Attempt, ...]  #: every certificate that was asked for, in order
    iterations: int
    cancelled: bool  #: whether the search was stopped from outside or by its deadline
    optimise_time: float  #: s of the budget's clock
    certify_time: float  #: s of the budget's clock
    worst: str  #: family of the worst margin at the last failed attempt, "" if unknown
    reserve: Margins  #: what the certificates taught about the fast margins; a good first guess for the next plan
    first_certified: float = float("nan")  #: reading of the clock when the first certificate was there; nan for none
    slowest_certificate: float = 0.0  #: s


class _PlanSearch:
    """One search: budget used, attempts made, what the certificates taught so far."""

    def __init__(
        self,
        problem: PlanProblem,
        certify: Certify,
        budget: Budget,
        on_certified: Callable[[SearchResult], None] | None,
    ) -> None:
        self.problem, self.budget, self._certify, self._tell = problem, budget, certify, on_certified
        self.fine, self.coarse = (problem.constraints.resampled(*times) for times in (_FINE, _COARSE))
        self.began = budget.clock()
        self.best: Attempt | None = None
        self.attempts: list[Attempt] = []
        self.pool: list[_PlanCandidate] = []
        self.iterations, self.failures, self.certify_time, self.lessons = 0, 0, 0.0, 0
        self.slowest, self.first = budget.certificate_s, float("nan")
        self.longest = 0.0
        self.subproblem = Subproblem(problem.n)

    # -- budget ---------------------------------------------------------------------------------------------------

    def may_certify(self) -> bool:
        """Whether another certificate is allowed and would be done in time."""
        expected = _CAUTION * self.slowest
        return len(self.attempts) < self.budget.certificates and not self.budget.stopped(expected)

    def over(self) -> bool:
        """Whether there is no point in optimising: what comes out could not be certified any more."""
        return self.iterations >= self.budget.iterations or not self.may_certify()

    def promising(self, cost: float) -> bool:
        """Whether a plan of this cost would replace the best one."""
        return self.best is None or cost < self.best.cost - self.budget.worthwhile

    # -- parts ----------------------------------------------------------------------------------------------------

    def certify(self, k: FloatArray, cost: float) -> Attempt:
        """Ask the certifier; learn from its answer."""
        before = self.budget.clock()
        verdict = self._certify(k)
        now = self.budget.clock()
        self.certify_time += now - before
        self.longest = max(self.longest, now - before)
        # What was expected counts until something was measured.
        self.slowest = self.longest
        attempt = Attempt(k, cost, verdict)
        self.attempts.append(attempt)
        self.failures = 0 if verdict.certified else self.failures + 1
        if verdict.margins:
            self.fine, self.coarse = (_calibrated(c, k, verdict) for c in (self.fine, self.coarse))
            self.lessons += 1
        if verdict.certified and (self.best is None or cost < self.best.cost):
            if self.best is None:
                self.first = now
            self.best = attempt
            if self._tell is not None:
                self._tell(self.result())
        return attempt

    def local(
        self, constraints: FastConstraints, k: FloatArray, iterations: int = _LOCAL
    ) -> tuple[float, FloatArray] | None:
        """Local minimum near k; the best iterate that keeps the fast margins, or None."""
        found = minimise(
            self.problem.cost, constraints, k, *constraints.bounds(), self.subproblem,
            min(iterations, self.budget.iterations - self.iterations), self.over,
        )  # fmt: skip
        self.iterations += found.iterations
        return found.best

    def explore(self, k: FloatArray) -> None:
        """Add the local minimum near k to the pool, if it is a new one and better than what is certified."""
        # Two refinements' worth, or half, stay for after certificates.
        left = self.budget.iterations - self.iterations - min(2 * _REFINE, self.budget.iterations // 2)
        if left <= 0 or self.over():
            return
        found = self.local(self.coarse, k, min(_LOCAL, left))
        if found is None or not self.promising(found[0]):
            return
        if not any(np.abs(found[1] - other.k).max() < _SAME for other in self.pool):
            self.pool.append(_PlanCandidate(*found, -1))

    def exploit(self, gentlest: FloatArray) -> None:
        """Certify the pool's best while it promises something; what fails is optimised again, wiser."""
        while self.pool and self.may_certify():
            candidate = min(self.pool, key=lambda item: item.cost)
            self.pool.remove(candidate)
            cost, k = candidate.cost, candidate.k
            stale = candidate.lessons != self.lessons
            if not self.promising(cost - (_HOPE if stale else 0.0)):
                continue
            if stale:
                refined = self.local(self.fine, k, _REFINE)
                if refined is None:
                    # No way found to keep what the certificates ask for: half of the motion may.
                    k = self.halfway(k, gentlest)
                    cost = self.problem.cost.value(k)
                else:
                    cost, k = refined
                if not self.promising(cost):
                    continue
            if self.seen(k):
                continue
            attempt = self.certify(k, cost)
            if attempt.verdict.certified:
                # What it freed may allow more.
                if attempt.verdict.margins:
                    self.pool.append(_PlanCandidate(cost, k, -1))
            elif self.failures < _PATIENCE and attempt.verdict.margins:
                self.pool.append(_PlanCandidate(cost, k, -1))
            else:
                half = self.halfway(k, gentlest)
                # Before anything bolder: there may not be many certificates left.
                self.pool = [_PlanCandidate(self.problem.cost.value(half), half, self.lessons)]

    def halfway(self, k: FloatArray, gentlest: FloatArray) -> FloatArray:
        """Half way back to what is certified; all the way if that is near."""
        anchor = gentlest if self.best is None else self.best.k
        return anchor + 0.5 * (k - anchor) if np.abs(k - anchor).max() > 2.0 * _SAME else anchor.copy()

    def seen(self, k: FloatArray) -> bool:
        """Whether a certificate for this k was asked for."""
        return any(np.array_equal(k, old.k) for old in self.attempts)

    def result(self) -> SearchResult:
        """What there is now."""
        total = self.budget.clock() - self.began
        failed = [attempt for attempt in self.attempts if not attempt.verdict.certified]
        return SearchResult(
            best=self.best,
            attempts=tuple(self.attempts),
            iterations=self.iterations,
            cancelled=self.budget.stopped(),
            optimise_time=total - self.certify_time,
            certify_time=self.certify_time,
            worst=_worst_family(self.fine, failed[-1].verdict) if failed else "",
            reserve=self.fine.reserve,
            first_certified=self.first,
            slowest_certificate=self.longest,
        )


def _gentlest(search: _PlanSearch) -> FloatArray:
    """Zero; if that is neither certified already nor keeps the fast margins, the nearest k found that does."""
    problem, constraints = search.problem, search.coarse
    zero = np.zeros(problem.n)
    family = problem.cost.family
    if family.tail is not None or not np.any(family.start[1:]) or constraints.values(zero).min() >= 0.0:
        return zero
    margins = constraints.batch(problem.starts).min(axis=1)
    best, best_margin = zero, -np.inf
    for k in (zero, *(problem.starts[i] for i in np.argsort(-margins, kind="stable")[:3])):
        restored = restore(constraints, k, search.subproblem)
        margin = float(constraints.values(restored).min())
        if margin > best_margin:
            best, best_margin = restored, margin
        if margin >= 0.0 or search.budget.stopped():
            break
    return best


def _screen(search: _PlanSearch, gentlest: FloatArray, starts: FloatArray) -> list[FloatArray]:
    """Every start, shortened towards the gentlest until the fast margins hold; by cost, hopeless ones last."""
    feasible: list[tuple[float, FloatArray]] = []
    hopeless: list[FloatArray] = []
    constraints = search.coarse.resampled(*_SCREEN)
    lower, upper = constraints.bounds()
    away = np.clip(starts, lower, upper) - gentlest
    left = np.arange(len(starts))
    for length in _LADDER:
        if not len(left) or search.budget.stopped():
            break
        tried = gentlest + length * away[left]
        held = constraints.batch(tried).min(axis=1) >= 0.0
        feasible += [(search.problem.cost.value(k), k) for k in tried[held]]
        left, hopeless = left[~held], list(tried[~held])
    return [k for _, k in sorted(feasible, key=lambda item: item[0])] + hopeless


def candidates(problem: PlanProblem, budget: Budget) -> list[tuple[float, FloatArray]]:
    """Locally optimal (cost, k), best first, that keep the fast margins. Nothing is certified yet."""
    search = _PlanSearch(problem, lambda k: PlanVerdict(False), budget, None)
    for k in _screen(search, _gentlest(search), problem.starts)[: problem.keep]:
        search.explore(k)
    return sorted(((item.cost, item.k) for item in search.pool), key=lambda item: item[0])


def solve(
    problem: PlanProblem, certify: Certify, budget: Budget, on_certified: Callable[[SearchResult], None] | None = None
) -> SearchResult:
    """Find a certified k of low cost.

    The gentlest trajectory comes first; it calibrates the fast margins and is there to fall back on. Then local minima
    from the best starts, the best of them certified; then one start after the other, while the budget lasts.

    ``budget``: how long to search; ``on_certified``: hears of every certified k that is better than the last one.
    """
    search = _PlanSearch(problem, certify, budget, on_certified)
    gentlest = _gentlest(search)
    if search.may_certify():
        search.certify(gentlest, problem.cost.value(gentlest))
    vain = 0
    for first in range(0, len(problem.starts), _TOGETHER):
        starts = _screen(search, gentlest, problem.starts[first : first + _TOGETHER])
        batch = problem.keep if first == 0 else 1
        while starts and vain < problem.patience and not search.over():
            before = search.best
            for k in starts[:batch]:
                search.explore(k)
            search.exploit(gentlest)
            vain = 0 if search.best is not before else vain + 1
            starts, batch = starts[batch:], 1
    return search.result()


def restore(constraints: FastConstraints, k: FloatArray, subproblem: Subproblem) -> FloatArray:
    """Move k until all fast margins hold, or as far as that goes."""
    return minimise(_ShortStepCost(k), constraints, k, *constraints.bounds(), subproblem, _LOCAL).k


@dataclass(frozen=True, eq=False)
class _ShortStepCost:
    """A cost that only asks not to go far."""

    centre: FloatArray

    def value_and_gradient(self, k: FloatArray) -> tuple[float, FloatArray]:
        return 0.005 * float(np.sum((k - self.centre) ** 2)), 0.01 * (k - self.centre)

    def gauss_newton(self, k: FloatArray) -> FloatArray:
        return 0.01 * np.eye(len(k))


def _calibrated(constraints: FastConstraints, k: FloatArray, verdict: PlanVerdict) -> FastConstraints:
    """The margins as the certificate sees them at k, less a cushion; what it passed stays feasible, though.

    All trajectories share their first instant: were the cushion there larger than the margin, none would be left.
    """
    calibrated = constraints.calibrate(k, verdict.margins)
    reserve: Margins = {}
    for name, margin in verdict.margins.items():
        if name in calibrated.reserve:
            cushion, margin = _CUSHION * calibrated.scale[name], np.asarray(margin, float)
            with np.errstate(invalid="ignore"):
                kept = np.where(margin >= 0.0, np.minimum(cushion, 0.5 * margin), cushion)
            reserve[name] = calibrated.reserve[name] + kept
    return calibrated.with_reserve(reserve)


def _worst_family(constraints: FastConstraints, verdict: PlanVerdict) -> str:
    """Family whose margin, in typical sizes, is the smallest."""
    scale = constraints.scale
    worst = {
        name: float(np.min(np.asarray(verdict.margins[name])) / np.min(scale[name]))
        for name in FAMILIES
        if name in verdict.margins
    }
    return min(worst, key=worst.__getitem__) if worst else ""
