r"""Smaller models: what contributes least over a task is left out, and how wrong that is [PSDM section 4.3].

Functions are ranked by their mean share of the torque (eq. 66) over random states of the task. Parameters of what is
kept are fitted again, by least squares of relative torque errors. Unless only inverse dynamics are wanted, all
functions with an acceleration are kept, with the parameters they had: the mass matrix is then the arm's own, and
positive definite where that is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_matrix

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics.generated.enclosure import proved_bound, rounding
from safe_sysid.dynamics.generated.model import PseudoSymbolicModel, accelerations
from safe_sysid.dynamics.generated.polynomials import DIGITS
from safe_sysid.errors import ParameterError

__all__ = [
    "Ranking",
    "Reduced",
    "Task",
    "accuracy",
    "difference",
    "evaluate",
    "fitted",
    "numeric_model",
    "rank",
    "reduce_to",
]


_RANKED, _JUDGED, _SEARCHED, _FITTED = 2000, 4000, 1000, 1500  # states
_NUMBERS = 4_000_000  # of functions times states at once
_LEVELS = 48
_MOST = 1e6  # rad/s, rad/s^2: the squares of larger ones drown every other term


@dataclass(frozen=True)
class Task:
    """Where a model is used."""

    q: FloatArray  #: (n, 2) rad or m
    qd: FloatArray  #: (n,) largest magnitude, rad/s or m/s
    qdd: FloatArray  #: (n,) largest magnitude, rad/s^2 or m/s^2

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            ParameterError: shapes that do not match, or ranges that are none.
        """
        n = len(self.qd)
        good = np.shape(self.q) == (n, 2) and np.shape(self.qdd) == (n,)
        if not (good and np.all(np.isfinite(self.q)) and np.all(self.q[:, 0] <= self.q[:, 1])):
            raise ParameterError(f"a task with positions {np.shape(self.q)}: expected ({n}, 2) lower and upper")
        for what, size in (("velocities", self.qd), ("accelerations", self.qdd)):
            if not np.all((size >= 0.0) & (size <= _MOST)):  # also what is not a number
                raise ParameterError(
                    f"a task's {what} = {np.asarray(size).tolist()}: expected magnitudes of at most {_MOST:g}"
                )

    def states(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Uniform states (count, n) each."""
        q, qd, qdd = (rng.uniform(-1.0, 1.0, (count, len(self.qd))) for _ in range(3))
        return self.q.mean(axis=1) + 0.5 * np.diff(self.q, axis=1)[:, 0] * q, qd * self.qd, qdd * self.qdd


@dataclass(frozen=True)
class Ranking:
    """A model over a task."""

    model: PseudoSymbolicModel  #: exact
    phi: FloatArray  #: (p, n) what each function is multiplied by, N m
    theta_b: FloatArray  #: (l,) of it
    task: Task
    share: FloatArray  #: (p,) mean of (66)
    median: FloatArray  #: (p,) of (66)
    largest: FloatArray  #: (p,) of (66)
    #: (p,) functions, the important ones first; if the mass matrix is kept, those with an acceleration before
    order: IntArray
    forced: int  #: how many of these are always kept


@dataclass(frozen=True)
class Reduced:
    """A smaller model."""

    model: PseudoSymbolicModel  #: of one base parameter, 1: the parameters are in its coefficients
    kept: tuple[int, int]  #: how many functions, and of how many
    #: {0.95: .., 0.999: ..} correct digits (67) that this share of sampled states has at least
    digits: dict[float, float]
    proved: FloatArray  #: (n,) N m, no torque of the task is off by more
    sampled: FloatArray  #: (n,) N m, the largest difference at random states


def _chunk(model: PseudoSymbolicModel) -> int:
    """States at once, whatever the size of a model."""
    return max(4, min(200, _NUMBERS // model.p))


def evaluate(
    model: PseudoSymbolicModel, states: tuple[FloatArray, FloatArray, FloatArray], which: IntArray
) -> FloatArray:
    """``y`` (N, len(which)) of some functions."""
    q, qd, qdd = states
    code, acceleration = model.code[which], model.acceleration[which]
    table = accelerations(model.n)
    factors = np.stack(
        [np.prod([(qd if len(f) == 2 else qdd)[:, i] for i in f], axis=0) * np.ones(len(q)) for f in table]
    )
    out = factors[acceleration].T
    for j in range(model.n):
        digit = code // DIGITS**j % DIGITS
        x = q[:, j]
        s, c = np.sin(x), np.cos(x)
        powers = [np.ones_like(x), x, x * x] if model.chain.sliding[j] else [np.ones_like(x), s, c, s * c, c * c]
        out = out * np.stack(powers, axis=1)[:, digit]
    return np.asarray(out)


def rank(
    model: PseudoSymbolicModel, theta_b: FloatArray, task: Task, inverse_only: bool = False, states: int = _RANKED
) -> Ranking:
    """Rank the functions of a model.

    Args:
        model: exact.
        theta_b: (l,) base parameters.
        inverse_only: functions with accelerations may go, too.
    """
    rng, phi = np.random.default_rng(7), model.coefficients(theta_b)
    size, everything = np.linalg.norm(phi, axis=1), np.arange(model.p)
    total, largest = np.zeros(model.p), np.zeros(model.p)
    some: list[FloatArray] = []
    drawn, chunk = task.states(states, rng), _chunk(model)
    for first in range(0, states, chunk):
        part = tuple(x[first : first + chunk] for x in drawn)
        y = evaluate(model, part, everything)  # type: ignore[arg-type]
        torque = np.linalg.norm(y @ phi, axis=1)
        shares = np.abs(y) * size / np.maximum(torque, 1e-12)[:, None]
        total += shares.sum(axis=0)
        largest = np.maximum(largest, shares.max(axis=0))
        some.append(shares[:: max(1, states // 1000)].astype(np.float32))
    accelerated = (model.acceleration > 0) & (model.acceleration <= model.n)
    first_kept = np.zeros(model.p, bool) if inverse_only else accelerated
    order = np.lexsort((-total, ~first_kept))
    median = np.median(np.concatenate(some), axis=0)
    return Ranking(model, phi, theta_b, task, total / states, median, largest, order, int(first_kept.sum()))


def fitted(ranking: Ranking, count: int) -> FloatArray:
    """Coefficients (count, n) of the first functions of the ranking."""
    model, kept = ranking.model, ranking.order[:count]
    phi = ranking.phi[kept].copy()
    free = np.arange(count) >= ranking.forced
    if not np.any(free) or count == model.p:
        return phi
    states = ranking.task.states(_FITTED, np.random.default_rng(23))
    left = np.zeros((_FITTED, model.n))
    rows = [np.zeros((_FITTED, model.l)) for _ in range(model.n)]
    size = np.zeros(_FITTED)
    chunk = _chunk(model)
    for first in range(0, _FITTED, chunk):
        part: tuple = tuple(x[first : first + chunk] for x in states)
        where = slice(first, first + chunk)
        y = evaluate(model, part, np.arange(model.p))
        torque = y @ ranking.phi
        size[where] = np.maximum(np.linalg.norm(torque, axis=1), 1e-12)
        left[where] = torque - y[:, kept[~free]] @ phi[~free]
        for j in range(model.n):
            rows[j][where] = (model.reduction[j][kept[free]].T @ y[:, kept[free]].T).T
    weighted = np.concatenate([row / size[:, None] for row in rows])
    goal = np.concatenate([left[:, j] / size for j in range(model.n)]) - weighted @ ranking.theta_b
    # What the task does not excite stays what it was.
    scale = np.maximum(np.linalg.norm(weighted, axis=0), 1e-300)
    step = np.linalg.lstsq(weighted / scale, goal, rcond=1e-6)[0] / scale
    for j in range(model.n):
        phi[free, j] = model.reduction[j][kept[free]] @ (ranking.theta_b + step)
    return phi


def difference(ranking: Ranking, count: int, phi: FloatArray) -> FloatArray:
    """(p, n): coefficients of exact minus reduced torque."""
    out = ranking.phi.copy()
    out[ranking.order[:count]] -= phi
    return out


def accuracy(
    ranking: Ranking, counts: list[int], fit: bool = True, states: int = _JUDGED
) -> list[tuple[dict[float, float], FloatArray]]:
    """Correct digits (67) at 95 and 99.9 % of random states, and the largest difference (n,), for several sizes.

    The largest difference is looked for at extreme velocities and accelerations, too.

    ``ranking``: of the exact model; ``fit``: parameters are fitted again.
    """
    phis = [fitted(ranking, c) if fit else ranking.phi[ranking.order[:c]] for c in counts]
    gaps = [difference(ranking, c, phi) for c, phi in zip(counts, phis, strict=True)]
    stacked, task, n = np.concatenate(gaps, axis=1), ranking.task, ranking.model.n
    drawn, everything = task.states(states, np.random.default_rng(99)), np.arange(ranking.model.p)
    errors, extremes, sizes = [], [], []
    chunk = _chunk(ranking.model)
    for first in range(0, states, chunk):
        q, qd, qdd = (x[first : first + chunk] for x in drawn)
        y = evaluate(ranking.model, (q, qd, qdd), everything)
        sizes.append(np.linalg.norm(y @ ranking.phi, axis=1))
        errors.append(y @ stacked)
        few = slice(None, None, 4)
        corner = (q[few], np.sign(qd[few]) * task.qd, np.sign(qdd[few]) * task.qdd)
        extremes.append(evaluate(ranking.model, corner, everything) @ stacked)
    size, error = np.concatenate(sizes), np.concatenate(errors)
    worst = np.abs(np.concatenate([*errors, *extremes])).max(axis=0)
    out = []
    for k in range(len(counts)):
        mine = slice(k * n, (k + 1) * n)
        ratio = np.linalg.norm(error[:, mine], axis=1) / np.maximum(size, 1e-300)
        digits = {level: float(-np.log10(max(np.quantile(ratio, level), 1e-16))) for level in (0.95, 0.999)}
        out.append((digits, worst[mine]))
    return out


def numeric_model(model: PseudoSymbolicModel, which: IntArray, phi: FloatArray) -> PseudoSymbolicModel:
    """Some functions of a model with numbers in place of base parameters: there is one, and it is 1."""
    lines = np.sort(which)
    place = np.argsort(which)
    return replace(
        model,
        acceleration=model.acceleration[lines],
        code=model.code[lines],
        reduction=tuple(csr_matrix(phi[place, j : j + 1]) for j in range(model.n)),
        selected=np.zeros(1, np.int64),
        base=model.base[:1],
    )


def reduce_to(ranking: Ranking, digits: float, level: float = 0.95) -> Reduced:
    """The smallest model, of 48 sizes, with enough correct digits.

    Args:
        ranking: of the exact one.
        digits: correct ones (67), in the 2-norm of the torque.
        level: share of random states that have them, 0.95 or 0.999.

    Raises:
        ParameterError: digits that are no positive number.
    """
    if not 0.0 < digits <= 15.0 or level not in (0.95, 0.999):
        raise ParameterError(f"{digits} digits at {level}: expected more than 0, at most 15, at 0.95 or 0.999")
    p = ranking.model.p
    free = p - ranking.forced
    counts = sorted({ranking.forced + (round(free ** (k / _LEVELS)) if k else 0) for k in range(_LEVELS + 1)})
    counts = [c for c in counts if c > 0]
    low, high = 0, len(counts) - 1
    while low < high:
        middle = (low + high) // 2
        good = accuracy(ranking, [counts[middle]], states=_SEARCHED)[0][0][level] >= digits
        low, high = (low, middle) if good else (middle + 1, high)
    reached, sampled = accuracy(ranking, [counts[high]])[0]
    while reached[level] < digits and high + 1 < len(counts):
        high += 1
        reached, sampled = accuracy(ranking, [counts[high]])[0]
    count = counts[high]
    phi = fitted(ranking, count)
    gap, model, task = difference(ranking, count, phi), ranking.model, ranking.task
    proved = [
        proved_bound(model.acceleration, model.code, gap[:, j], model.chain.sliding, task.q, task.qd, task.qdd)
        # Both torques are computed in floats: of nearly equal ones the difference is what rounding makes of either.
        + 2.0 * rounding(model.acceleration, ranking.phi[:, j], model.chain.sliding, task.q, task.qd, task.qdd)
        for j in range(model.n)
    ]
    small = numeric_model(model, ranking.order[:count], phi)
    return Reduced(small, (count, p), reached, np.array(proved), sampled)
