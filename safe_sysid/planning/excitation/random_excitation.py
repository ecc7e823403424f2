r"""Random certified plans: what exciting plans are compared with (PSO's "random", an ablation of its cost).

k is drawn uniformly from [-1, 1]^n until a draw is certified; nothing is optimised, and nothing but the certificate
decides. Draws that the optimiser's quick margins (calibrated by the certificates so far) call hopeless are not taken
to a certificate, which costs a thousand times as much; they count as draws all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.certification.verdicts import PlanVerdict
from safe_sysid.planning.optimiser.optimise import Attempt, Budget, PlanProblem, SearchResult
from safe_sysid.planning.planner import Planner

__all__ = ["DRAWS", "RandomPlanner", "first_certified"]

#: Given up after so many draws, or so many certificates, where there is no deadline.
DRAWS, CERTIFICATES = 4096, 64
#: Samples and pieces of time of the quick margins.
_TIMES = (24, 6)


def first_certified(
    problem: PlanProblem,
    certify: Callable[[FloatArray], PlanVerdict],
    budget: Budget,
    rng: np.random.Generator,
    draws: int = DRAWS,
    certificates: int = CERTIFICATES,
) -> SearchResult:
    """The first of a sequence of random k that is certified.

    ``iterations`` is the number of draws up to the certified one, or of all.

    Args:
        problem: its constraints screen the draws; its cost is told of the result and decides nothing.
        budget: its deadline and cancellation hold; its counts, which are an optimiser's, do not.
        rng: where draws come from.
        draws: given up after so many.
        certificates: and after so many certificates.
    """
    began = budget.clock()
    constraints = problem.constraints.resampled(*_TIMES)
    attempts: list[Attempt] = []
    spent, slowest, drawn, first = 0.0, budget.certificate_s, 0, float("nan")
    best: Attempt | None = None
    while best is None and drawn < draws and len(attempts) < certificates and not budget.stopped(slowest):
        k = rng.uniform(-1.0, 1.0, problem.n)
        drawn += 1
        if constraints.values(k).min() < 0.0:
            continue
        before = budget.clock()
        verdict = certify(k)
        now = budget.clock()
        spent, slowest = spent + now - before, max(slowest, now - before)
        attempts.append(Attempt(k, problem.cost.value(k), verdict))
        if verdict.margins:
            constraints = constraints.calibrate(k, verdict.margins)
        if verdict.certified:
            best, first = attempts[-1], now
    return SearchResult(
        best=best,
        attempts=tuple(attempts),
        iterations=drawn,
        cancelled=best is None and budget.stopped(slowest),
        optimise_time=budget.clock() - began - spent,
        certify_time=spent,
        worst="",
        reserve=constraints.reserve,
        first_certified=first,
        slowest_certificate=slowest,
    )


class RandomPlanner(Planner):
    """A planner whose plans are the first certified ones of random draws; ``iterations`` of a result counts draws.

    A drop-in for :class:`~safe_sysid.planning.planner.Planner`: the same start checks, certificates, connection of
    plans and calibration. From a moving start where no draw is certified the answer is that there is no plan; the arm
    then goes on along the certified rest of the last one.
    """

    def _search(
        self,
        problem: PlanProblem,
        certify: Callable[[FloatArray], PlanVerdict],
        budget: Budget,
        on_certified: Callable[[SearchResult], None],
        sequence: int,
    ) -> SearchResult:
        """As :func:`first_certified`, with draws that depend on the planner's seed and the plan's number only."""
        found = first_certified(problem, certify, budget, np.random.default_rng([self.seed, sequence, 1]))
        if found.best is not None:
            on_certified(found)
        return found
