"""Search for the best *certified* trajectory parameter: many quick local optimisations, few expensive certificates.

The optimiser's word is never taken: what it proposes is certified by rigorous code that it does not share, and only a
certified parameter is returned. What a certificate says about the margins calibrates the optimiser's limits, so a
second proposal usually hits them. Without a deadline the search depends on seed and budget alone, not on the machine's
speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from safe_sysid.planning.certificate import Certificate
from safe_sysid.planning.constraints import FAMILIES, FastConstraints, Margins
from safe_sysid.planning.cost import Cost

__all__ = ["Attempt", "Budget", "PlanProblem", "SearchResult", "Verdict", "candidates", "solve"]

FloatArray = NDArray[np.float64]
_T = TypeVar("_T")
#: Relative lengths at which a random direction is tried, longest first.
_LADDER = (1.0, 0.5, 0.25, 0.12, 0.06)
#: How much of a family's typical size is kept free beyond what the certificate asked for.
_CUSHION = 0.02
#: Scaled violation up to which the optimiser's fast margins count as kept (SLSQP's own tolerance is about 1e-6).
_FEASIBLE = -1e-3
#: A certified plan is only replaced by a candidate whose cost is lower by this much.
_WORTHWHILE = 0.02
_LOCAL_ITERATIONS = 12
#: Parameters closer than this are one candidate.
_SAME = 0.02


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a certifier says about one k.

    Attributes:
        certified: whether the trajectory may be driven. Nothing else decides.
        margins: worst margin per family (see :mod:`safe_sysid.planning.constraints`), as far as known.
        certificate: the full document, handed through.
        reasons: why not, for people.
    """

    certified: bool
    margins: Mapping[str, FloatArray] = field(default_factory=dict)
    certificate: Certificate | None = None
    reasons: tuple[str, ...] = ()


@dataclass
class Budget:
    """How long to search; whatever runs out first ends it.

    Attributes:
        iterations: local optimiser iterations in all.
        certificates: certificates in all.
        deadline: reading of ``clock`` at which to be done, s; None for none (then the search is deterministic).
        cancelled: asked often; True ends the search with what there is.
        clock: monotonic clock, s.
    """

    iterations: int = 60
    certificates: int = 4
    deadline: float | None = None
    cancelled: Callable[[], bool] | None = None
    clock: Callable[[], float] = time.monotonic

    def stopped(self, reserve: float = 0.0) -> bool:
        """Whether cancelled, or fewer than ``reserve`` seconds are left."""
        if self.cancelled is not None and self.cancelled():
            return True
        return self.deadline is not None and self.clock() + reserve >= self.deadline


@dataclass(frozen=True, eq=False)
class PlanProblem:
    """Everything about one search, open to inspection.

    Attributes:
        cost, constraints: to minimise; to keep >= 0.
        starts: (R, n) directions to begin from besides the gentlest; the first may be a warm start.
        keep: how many starts, best first, are optimised.
        calibrated: whether the constraints' reserves come from a certificate; if not, the gentlest trajectory is
            certified first, which calibrates them and gives something to fall back on.
    """

    cost: Cost
    constraints: FastConstraints
    starts: FloatArray
    keep: int = 6
    calibrated: bool = False

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.cost.family.n


@dataclass(frozen=True, eq=False)
class Attempt:
    """One certificate asked for: parameter, cost, and the verdict."""

    k: FloatArray
    cost: float
    verdict: Verdict


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Outcome of :func:`solve`.

    Attributes:
        best: the certified attempt of least cost, or None.
        attempts: every certificate that was asked for, in order.
        iterations: local optimiser iterations used.
        cancelled: whether the search was stopped from outside or by its deadline.
        optimise_time, certify_time: s of the budget's clock.
        worst: family of the worst margin at the last failed attempt, "" if unknown.
        reserve: what the certificates taught about the fast margins; a good first guess for the next plan.
    """

    best: Attempt | None
    attempts: tuple[Attempt, ...]
    iterations: int
    cancelled: bool
    optimise_time: float
    certify_time: float
    worst: str
    reserve: Margins


class _Stop(Exception):  # noqa: N818 - control flow out of scipy, not an error
    pass


def _memo(function: Callable[[FloatArray], _T]) -> Callable[[FloatArray], _T]:
    """Remember the last arguments: SLSQP and its callback ask for the same point several times."""
    known: dict[bytes, _T] = {}

    def remembered(x: FloatArray) -> _T:
        key = x.tobytes()
        if key not in known:
            if len(known) > 64:
                known.clear()
            known[key] = function(x.copy())
        return known[key]

    return remembered


class _Search:
    """Bookkeeping of one search: budget used, best iterate of the running local optimisation."""

    def __init__(self, problem: PlanProblem, budget: Budget) -> None:
        self.problem, self.budget, self.began = problem, budget, budget.clock()
        self.iterations, self.certify_time = 0, 0.0
        self.slowest_certificate = 0.0
        self.attempts: list[Attempt] = []

    def exhausted(self) -> bool:
        return self.iterations >= self.budget.iterations or self.budget.stopped(self.slowest_certificate)

    def exploration_ends(self) -> bool:
        """Two local solutions' worth of iterations, or half, and half of the time stay for after certificates."""
        deadline = self.budget.deadline
        kept = min(2 * _LOCAL_ITERATIONS, self.budget.iterations // 2)
        late = deadline is not None and self.budget.clock() > 0.5 * (self.began + deadline)
        return late or self.exhausted() or self.iterations + kept > self.budget.iterations

    def certify(self, certify: Callable[[FloatArray], Verdict], k: FloatArray, cost: float) -> Attempt:
        before = self.budget.clock()
        verdict = certify(k)
        spent = self.budget.clock() - before
        self.certify_time += spent
        self.slowest_certificate = max(self.slowest_certificate, spent)
        self.attempts.append(Attempt(k, cost, verdict))
        return self.attempts[-1]

    def improve(
        self, constraints: FastConstraints, starts: list[FloatArray], most: int
    ) -> tuple[float, FloatArray] | None:
        """Best local solution from the first ``most`` starts under new margins."""
        found = []
        for k in starts[:most]:
            if self.exhausted():
                break
            result = self.local(constraints, k)
            if result is not None:
                found.append(result)
        return min(found, key=lambda item: item[0]) if found else None

    def local(self, constraints: FastConstraints, k: FloatArray) -> tuple[float, FloatArray] | None:
        """SLSQP from k; the best iterate that keeps the fast margins, or None. Its status is not looked at."""
        cost = self.problem.cost
        values = _memo(constraints.values)
        best: tuple[float, FloatArray] | None = None

        def consider(x: FloatArray, value: float, margins: FloatArray) -> None:
            nonlocal best
            if np.isfinite(value) and margins.min() >= _FEASIBLE and (best is None or value < best[0]):
                best = (value, np.clip(x, -1.0, 1.0))

        objective = _memo(cost.value_and_gradient)

        def after(x: FloatArray) -> None:
            self.iterations += 1
            consider(x, objective(x)[0], values(x))
            if self.exhausted():
                raise _Stop

        consider(k, objective(k)[0], values(k))
        with suppress(_Stop):
            minimize(
                objective,
                k,
                jac=True,
                method="SLSQP",
                bounds=[(-1.0, 1.0)] * self.problem.n,
                constraints={
                    "type": "ineq",
                    "fun": values,
                    "jac": lambda x: constraints.values_and_jacobian(x)[1],
                },
                callback=after,
                options={"maxiter": _LOCAL_ITERATIONS, "ftol": 1e-3},
            )
        return best


def _gentlest(problem: PlanProblem) -> FloatArray:
    """Zero; if that breaks a fast margin, the nearest k found that does not, tried from a few starts."""
    constraints = problem.constraints
    tries = [np.zeros(problem.n)]
    margins = constraints.batch(problem.starts).min(axis=1)
    tries += [problem.starts[i] for i in np.argsort(-margins, kind="stable")[:3]]
    best, best_margin = tries[0], -np.inf
    for k in tries:
        restored = constraints.restore(k)
        margin = float(constraints.values(restored).min())
        if margin > best_margin:
            best, best_margin = restored, margin
        if margin >= 0.0:
            break
    return best


def _screen(problem: PlanProblem, gentlest: FloatArray, budget: Budget) -> list[FloatArray]:
    """Every start, shortened towards the gentlest until the fast margins hold; by cost, hopeless ones last."""
    feasible, hopeless = [], []
    for start in problem.starts:
        if budget.stopped():
            break
        for length in _LADDER:
            k = gentlest + length * (np.clip(start, -1.0, 1.0) - gentlest)
            if problem.constraints.values(k).min() >= 0.0:
                feasible.append((problem.cost.value(k), k))
                break
        else:
            hopeless.append(k)
    return [k for _, k in sorted(feasible, key=lambda item: item[0])] + hopeless


def candidates(problem: PlanProblem, budget: Budget) -> list[tuple[float, FloatArray]]:
    """Locally optimal (cost, k), best first, that keep the fast margins. Nothing is certified yet."""
    return _explore(_Search(problem, budget), problem.constraints, _gentlest(problem))


def _explore(
    search: _Search, constraints: FastConstraints, gentlest: FloatArray
) -> list[tuple[float, FloatArray]]:
    """Local solutions from the best starts, in half of the time and with what may be spent before certificates."""
    problem = replace(search.problem, constraints=constraints)
    found: list[tuple[float, FloatArray]] = []
    for k in _screen(problem, gentlest, search.budget)[: problem.keep]:
        if search.exploration_ends():
            break
        result = search.local(constraints, k)
        if result is not None and not any(np.abs(result[1] - other).max() < _SAME for _, other in found):
            found.append(result)
    return sorted(found, key=lambda item: item[0])


def solve(problem: PlanProblem, certify: Callable[[FloatArray], Verdict], budget: Budget) -> SearchResult:
    """Find a certified k of low cost.

    An uncalibrated problem's gentlest trajectory comes first, then candidates, best first. A failure calibrates the
    fast margins and sends the candidate back to the optimiser; if that does not help, it is moved to where the
    calibrated margins hold, and at last half way back to the gentlest. A success calibrates too: if that frees enough,
    a bolder candidate is tried while the budget lasts.
    """
    search = _Search(problem, budget)
    constraints = problem.constraints
    gentlest = _gentlest(problem)
    best: Attempt | None = None
    if not problem.calibrated and not budget.stopped():
        first = search.certify(certify, gentlest, problem.cost.value(gentlest))
        best = first if first.verdict.certified else None
        if first.verdict.margins:
            constraints = _calibrated(problem.constraints, gentlest, first.verdict)
            gentlest = constraints.restore(gentlest)
    pool = _explore(search, constraints, gentlest)
    proposal = pool[0] if pool else (problem.cost.value(gentlest), gentlest)
    failures = 0
    while (
        len(search.attempts) < budget.certificates
        and not budget.stopped(search.slowest_certificate)
        and not any(np.array_equal(proposal[1], old.k) for old in search.attempts)
        and (best is None or proposal[0] < best.cost - _WORTHWHILE)
    ):
        attempt = search.certify(certify, proposal[1], proposal[0])
        k, verdict = attempt.k, attempt.verdict
        if verdict.certified and (best is None or attempt.cost < best.cost):
            best = attempt
        failures = 0 if verdict.certified else failures + 1
        if verdict.margins:
            constraints = _calibrated(problem.constraints, k, verdict)
        if not pool:
            # The first guess of the reserves left nothing; with the certificate's own margins there may be room.
            pool = _explore(search, constraints, constraints.restore(k))
            improved = pool[0] if pool else None
        else:
            improved = search.improve(
                constraints, [k, *(other for _, other in pool)], 3 if verdict.certified else 2
            )
        following = _next_proposal(problem, constraints, attempt, improved, failures, gentlest, best)
        if following is None:
            break
        proposal = following
    total = budget.clock() - search.began
    failed = [attempt for attempt in search.attempts if not attempt.verdict.certified]
    return SearchResult(
        best=best,
        attempts=tuple(search.attempts),
        iterations=search.iterations,
        cancelled=budget.stopped(),
        optimise_time=total - search.certify_time,
        certify_time=search.certify_time,
        worst=_worst_family(constraints, failed[-1].verdict) if failed else "",
        reserve=constraints.reserve,
    )


def _next_proposal(
    problem: PlanProblem,
    constraints: FastConstraints,
    attempt: Attempt,
    improved: tuple[float, FloatArray] | None,
    failures: int,
    gentlest: FloatArray,
    best: Attempt | None,
) -> tuple[float, FloatArray] | None:
    """(cost, k) to certify next, or None: after a success only what is better, after failures ever gentler ones."""
    verdict, k = attempt.verdict, attempt.k
    if improved is not None and verdict.margins and failures < 3:
        return improved
    if verdict.certified:
        return None
    if verdict.margins and failures < 4:
        restored = constraints.restore(k)
        if np.abs(restored - k).max() > 0.0 and constraints.values(restored).min() >= 0.0:
            return problem.cost.value(restored), restored
    anchor = gentlest if best is None else best.k
    k = anchor + 0.5 * (k - anchor) if np.abs(k - anchor).max() > 2.0 * _SAME else anchor
    return problem.cost.value(k), k


def _calibrated(constraints: FastConstraints, k: FloatArray, verdict: Verdict) -> FastConstraints:
    calibrated = constraints.calibrate(k, verdict.margins)
    scale = calibrated.scale
    return calibrated.with_reserve(
        {
            name: value + _CUSHION * scale[name]
            for name, value in calibrated.reserve.items()
            if name in verdict.margins
        }
    )


def _worst_family(constraints: FastConstraints, verdict: Verdict) -> str:
    """Family whose margin, in typical sizes, is the smallest."""
    scale = constraints.scale
    worst = {
        name: float(np.min(np.asarray(verdict.margins[name]) / scale[name]))
        for name in FAMILIES
        if name in verdict.margins
    }
    return min(worst, key=worst.__getitem__) if worst else ""
