"""Search for the best *certified* trajectory parameter: many quick local optimisations, few expensive certificates.

The optimiser's word is never taken: what it proposes is certified by rigorous code that it does not share, and only a
certified parameter is returned. What a certificate says about the margins calibrates the optimiser's limits, so a
second proposal usually hits them. Without a deadline the search depends on seed and budget alone, not on the machine's
speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

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
    certificate: object = None
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
    """

    cost: Cost
    constraints: FastConstraints
    starts: FloatArray
    keep: int = 6

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
        self.problem, self.budget = problem, budget
        self.iterations, self.certify_time = 0, 0.0
        self.slowest_certificate = 0.0
        self.attempts: list[Attempt] = []

    def exhausted(self) -> bool:
        return self.iterations >= self.budget.iterations or self.budget.stopped(self.slowest_certificate)

    def certify(self, certify: Callable[[FloatArray], Verdict], k: FloatArray, cost: float) -> Verdict:
        before = self.budget.clock()
        verdict = certify(k)
        spent = self.budget.clock() - before
        self.certify_time += spent
        self.slowest_certificate = max(self.slowest_certificate, spent)
        self.attempts.append(Attempt(k, cost, verdict))
        return verdict

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


def _screen(problem: PlanProblem, gentlest: FloatArray) -> list[tuple[float, FloatArray]]:
    """Every start, shortened towards the gentlest until the fast margins hold; by cost."""
    found = []
    for start in problem.starts:
        ks = gentlest + np.outer(_LADDER, np.clip(start, -1.0, 1.0) - gentlest)
        margins = problem.constraints.batch(ks).min(axis=1)
        good = np.flatnonzero(margins >= 0.0)
        k = ks[good[0]] if good.size else ks[-1]
        found.append((problem.cost.value(k) + (0.0 if good.size else 1e3), k))
    return sorted(found, key=lambda item: item[0])


def candidates(problem: PlanProblem, budget: Budget) -> Iterator[tuple[float, FloatArray]]:
    """Locally optimal (cost, k), best first, that keep the fast margins. Nothing is certified yet."""
    yield from _candidates(_Search(problem, budget), problem)


def _candidates(search: _Search, problem: PlanProblem) -> list[tuple[float, FloatArray]]:
    found: list[tuple[float, FloatArray]] = []
    for _, k in _screen(problem, _gentlest(problem))[: problem.keep]:
        # Two local solutions' worth of iterations stay for what the certificates will ask for.
        if found and (
            search.exhausted() or search.iterations + 2 * _LOCAL_ITERATIONS > search.budget.iterations
        ):
            break
        result = search.local(problem.constraints, k)
        if result is not None and not any(np.abs(result[1] - other).max() < 0.02 for _, other in found):
            found.append(result)
    return sorted(found, key=lambda item: item[0])


def solve(problem: PlanProblem, certify: Callable[[FloatArray], Verdict], budget: Budget) -> SearchResult:
    """Find a certified k of low cost.

    Candidates are certified best first. A failure calibrates the fast margins and sends the candidate back to the
    optimiser; three failures in a row halve the way to the gentlest trajectory. A success calibrates too: if that
    frees enough, a bolder candidate is tried while the budget lasts.
    """
    began = budget.clock()
    search = _Search(problem, budget)
    constraints = problem.constraints
    gentlest = _gentlest(problem)
    pool = _candidates(search, problem)
    best: Attempt | None = None
    proposal = pool[0] if pool else (problem.cost.value(gentlest), gentlest)
    failures = 0
    while len(search.attempts) < budget.certificates and not budget.stopped(search.slowest_certificate):
        cost, k = proposal
        verdict = search.certify(certify, k, cost)
        if verdict.certified:
            failures = 0
            if best is None or cost < best.cost:
                best = search.attempts[-1]
        else:
            failures += 1
        if verdict.margins:
            constraints = _calibrated(problem.constraints, k, verdict)
        if not pool:
            # The first guess of the reserves left nothing; with the certificate's own margins there may be room.
            pool = _candidates(search, replace(problem, constraints=constraints))
            improved = pool[0] if pool else None
        else:
            improved = _improve(search, constraints, [k, *(other for _, other in pool)], verdict.certified)
        if improved is not None and verdict.margins and (verdict.certified or failures < 3):
            proposal = improved
        elif verdict.certified:
            break
        else:
            # The margins do not lead out of it: half way back to what is known to be safer.
            anchor = gentlest if best is None else best.k
            k = anchor + 0.5 * (k - anchor)
            k = anchor.copy() if np.abs(k - anchor).max() < 1e-3 else k
            proposal = (problem.cost.value(k), k)
        if best is not None and proposal[0] >= best.cost - _WORTHWHILE:
            break
        if any(np.array_equal(proposal[1], attempt.k) for attempt in search.attempts):
            break
    total = budget.clock() - began
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


def _improve(
    search: _Search, constraints: FastConstraints, starts: list[FloatArray], certified: bool
) -> tuple[float, FloatArray] | None:
    """Best local solution under calibrated margins; after a failure one start is enough, after a success try three."""
    found = []
    for k in starts[: 3 if certified else 1]:
        if search.exhausted():
            break
        result = search.local(constraints, k)
        if result is not None:
            found.append(result)
    return min(found, key=lambda item: item[0]) if found else None


def _worst_family(constraints: FastConstraints, verdict: Verdict) -> str:
    """Family whose margin, in typical sizes, is the smallest."""
    scale = constraints.scale
    worst = {
        name: float(np.min(np.asarray(verdict.margins[name]) / scale[name]))
        for name in FAMILIES
        if name in verdict.margins
    }
    return min(worst, key=worst.__getitem__) if worst else ""
