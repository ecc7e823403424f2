r"""Guaranteed intervals of an arm's base parameters, from logs of its motions with the empty hand.

Every momentum equation of the logs holds for the true theta, and theta lies in the declared prior: each base parameter
``c.theta`` is bounded over the set that both leave, by linear programs whose multipliers are evaluated with outward
rounding over all parameters (``bounds.dual_bounds``). So the interval holds for the floats c as they stand, whether or
not they are exactly a combination that torques depend on: what they are not costs width, of the prior, and no truth.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.arm.base_parameters import BaseParameters, base_parameters, random_states
from safe_sysid.identification.arm.logs.checks import without_equations
from safe_sysid.identification.bounds.feasible_set import FeasibleSet
from safe_sysid.identification.bounds.proof import MARGIN
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ArmIntervals", "ArmIntervalsError", "arm_intervals", "base_of", "intervals_of_rows"]

_PIECE = 20_000  # samples of one piece of work, about
_PUSHED = 2000  # samples turned into rows at once
_MAX_ROWS = 6000
_MOST = 300_000  # equations of windows of one length, about
_MOST_STEPS = 250_000  # samples that equations are made of
_FULL = 30_000  # rows that wait for programs
_GROUP = 10  # functionals of one call: each has a budget of its own
_ROUNDS, _SMALL = 30, 1e-3
_LAST = 4  # times that all are bounded at the end


class ArmIntervalsError(SafeSysIdError):
    """There are no intervals: the logs gave no equations, or no arm of the prior agrees with them.

    Attributes:
        without_equations: whether the logs gave no equations.
    """

    def __init__(self, message: str, without_equations: bool = False) -> None:
        """Store the reason.

        Args:
            message: in one line.
            without_equations: the logs gave no equations; else what is declared is proved false.
        """
        super().__init__(message)
        self.without_equations = without_equations


@dataclass(frozen=True, eq=False)
class ArmIntervals:
    """Proved intervals of base parameters."""

    base: BaseParameters  #: which parameters they combine
    #: lower, upper: (nb,) of ``base.matrix @ theta``; of one log, offsets with the torque sensors' constant bias
    lower: FloatArray
    upper: FloatArray
    #: prior_lower, prior_upper: (nb,) what the prior alone says
    prior_lower: FloatArray
    prior_upper: FloatArray
    box: ParameterBox  #: of theta, the last link's ten those of the empty hand: what the proofs assume
    rows: MomentumRows  #: (M,) that take part in a proof; ``log`` is that of ``logs``, counted from 0
    multipliers: FloatArray  #: (2 nb, M) first of the lower bounds, then of the upper ones, as in ``bounds.proof``
    equations: int  #: of all logs
    #: that the equations allow for: those declared, of several logs with the bias as an error
    errors: MeasurementErrors


def base_of(model: RobotModel) -> BaseParameters:
    """Base parameters that some motion of the arm can identify. ``model``: of the arm."""
    dynamics = dynamics_of(model.kinematics)
    return base_parameters(random_states(model.n, dynamics.torque_regressor))


def arm_intervals(
    model: RobotModel,
    errors: MeasurementErrors,
    logs: Sequence[Measurements],
    base: BaseParameters | None = None,
    box: ParameterBox | None = None,
    progress: Callable[[float], None] | None = None,
    thorough: bool = False,
) -> ArmIntervals:
    """Bound every base parameter.

    Args:
        model: of the arm; friction is the same in all logs.
        errors: declared, of all logs.
        logs: samples in order of arrival, the hand empty.
        base: None for :func:`base_of`.
        box: holds the true theta; None for the prior of the arm with its empty hand.
        progress: called with the share that is done.
        thorough: all equations of long logs; else some, spread evenly over them.

    Raises:
        ArmIntervalsError: no equations, or it is proved that no arm of the prior agrees with them.
        ParameterError: the number of joints is not the arm's.
    """
    tell = progress or (lambda share: None)
    base = base_of(model) if base is None else base
    box = model.empty_handed_prior if box is None else box
    errors = errors.across_logs() if len(logs) > 1 else errors
    wide = sensor_prior(box, errors)
    found = _BoundSearch(wide, base)
    pieces = _pieces(logs, default_windows(model, errors), model, thorough)
    for done, rows in enumerate(_in_turn(lambda piece: piece.rows(model, errors, box), pieces)):
        for part in rows:
            found.add(part)
        tell(0.7 * (done + 1) / len(pieces))
    if not found.equations:
        raise ArmIntervalsError(without_equations(logs, model.settings.measurement.rate_hz), True)
    for turn in range(_LAST):
        found.bound()
        tell(0.7 + 0.3 * (turn + 1) / _LAST)
    return found.result(box, errors)


def intervals_of_rows(found: ArmIntervals, base: BaseParameters) -> ArmIntervals:
    """Bound other combinations with the equations that proved the first ones. ``base``: the combinations.

    Raises:
        ArmIntervalsError: it is proved that no arm of the prior agrees with the equations.
    """
    bounds = _BoundSearch(sensor_prior(found.box, found.errors), base)
    # Number 1 is that of a tare.
    bounds.add(replace(found.rows, log=np.where(found.rows.log > 0, found.rows.log + 1, 0)))
    for _ in range(2):
        bounds.bound()
    return replace(bounds.result(found.box, found.errors), equations=found.equations)


class _LogPart(NamedTuple):
    """Samples ``at`` to ``end`` of a log, and the windows that are cut from them, s."""

    log: Measurements
    number: int
    at: int
    end: int
    lengths: tuple[float, ...]

    def rows(self, model: RobotModel, errors: MeasurementErrors, box: ParameterBox) -> list[MomentumRows]:
        """Their equations, by places in the whole log."""
        # Number 1 is that of a tare, whose last link is another unknown.
        number = self.number if self.number == 0 else self.number + 1
        stream, found = MomentumStream(model, errors, self.lengths, log=number), []
        for at in range(self.at, self.end, _PUSHED):
            rows = stream.push(self.log[at : min(at + _PUSHED, self.end)], box)
            if rows is not None:
                found.append(replace(rows, first=rows.first + self.at, last=rows.last + self.at))
        return found


def _pieces(
    logs: Sequence[Measurements], lengths: Sequence[float], model: RobotModel, thorough: bool
) -> list[_LogPart]:
    """Cut all logs into pieces for the processors; a piece ends when its windows have given enough equations.

    Of a long log only a part is used unless `thorough`, spread evenly over it: any subset of the equations bounds the
    truth.
    """
    total = max(sum(len(log) for log in logs), 1)
    per_step = model.n / model.settings.measurement.rate_hz
    shares = [1.0 if thorough else min(1.0, _MOST_STEPS / total, _MOST * x / (total * per_step)) for x in lengths]
    found = []
    for number, log in enumerate(logs):
        edges = np.linspace(0, len(log), max(1, round(max(shares) * len(log) / _PIECE)) + 1).astype(int)
        for at, end in pairwise(edges.tolist()):
            ends = [at + int(np.ceil(share * (end - at))) for share in shares]
            for first, last in pairwise(sorted({at, *ends})):
                wanted = tuple(x for x, stop in zip(lengths, ends, strict=True) if stop >= last)
                found.append(_LogPart(log, number, first, last, wanted))
    return found


def _in_turn(
    make: Callable[[_LogPart], list[MomentumRows]], pieces: Sequence[_LogPart]
) -> Iterator[list[MomentumRows]]:
    """Results of the pieces, in order. Other processors work some pieces ahead, as kernels release Python's lock."""
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        ahead = deque(pool.submit(make, piece) for piece in pieces[: workers + 1])
        try:
            for piece in [*pieces[workers + 1 :], *[None] * len(ahead)]:
                yield ahead.popleft().result()
                if piece is not None:
                    ahead.append(pool.submit(make, piece))
        finally:
            for waiting in ahead:
                waiting.cancel()


class _BoundSearch:
    """Takes equations in, keeps those that matter, and remembers the best proof of each bound."""

    def __init__(self, prior: ParameterBox, base: BaseParameters) -> None:
        self.base, self.prior, self.equations = base, prior, 0
        matrix = base.matrix
        self._set = FeasibleSet(prior, _MAX_ROWS, None, "lp", rounds=_ROUNDS, improvement=_SMALL, functionals=matrix)
        self._first = self._set.unknowns
        nothing = FeasibleSet(prior, functionals=matrix)
        start = nothing.bound(self._first + np.arange(len(base)), prior)
        self._prior_lower, self._prior_upper = start.lower, start.upper
        margin = MARGIN * (np.abs(matrix) @ (prior.upper - prior.lower))  # for the rounding of a checker
        self.lower, self.upper = start.lower - margin, start.upper + margin
        self._proofs: list[tuple[MomentumRows, FloatArray]] = [
            (MomentumRows.none(prior.size), np.zeros(0)) for _ in range(2 * len(base))
        ]
        self._waiting = 0

    def add(self, rows: MomentumRows) -> None:
        """Take rows in."""
        self.equations += len(rows)
        before = len(self._set)
        self._set.add(rows)
        self._waiting += len(self._set) - before
        if self._waiting > _FULL:
            self.bound()

    def bound(self) -> None:
        """Bound every combination once, then drop the rows that are far from every vertex."""
        count = len(self.base)
        for start in range(0, count, _GROUP):
            asked = np.arange(start, min(start + _GROUP, count))
            bounds = self._set.bound(self._first + asked, self.prior)
            if bounds.empty:
                row = bounds.culprit
                where = (
                    ""
                    if row < 0
                    else f"; largest part: window {self._set.rows.start[row]:.4f} .. {self._set.rows.end[row]:.4f} s"
                )
                raise ArmIntervalsError(
                    "no arm of the prior with the empty hand agrees with all measurements: a declared assumption is "
                    f"false{where}"
                )
            for k, i in enumerate(asked.tolist()):
                for side, better in ((0, bounds.lower[k] > self.lower[i]), (1, bounds.upper[k] < self.upper[i])):
                    if not better or bounds.rows is None or bounds.row_multipliers is None:
                        continue
                    y = bounds.row_multipliers[k + side * len(asked)]
                    used = np.flatnonzero(y)
                    if used.size:  # else it is what the prior says, which stands already
                        self._proofs[i + side * count] = self._set.rows.take(bounds.rows[used]), y[used]
                        if side == 0:
                            self.lower[i] = bounds.lower[k]
                        else:
                            self.upper[i] = bounds.upper[k]
        self._set.prune()
        self._waiting = 0

    def result(self, box: ParameterBox, errors: MeasurementErrors) -> ArmIntervals:
        """The result, with each row once."""
        places: dict[tuple[int, ...], int] = {}
        parts, entries = [], []
        for which, (rows, y) in enumerate(self._proofs):
            for k in range(len(rows)):
                key = (int(rows.log[k]), int(rows.first[k]), int(rows.last[k]), int(rows.joint[k]))
                if key not in places:
                    places[key] = len(places)
                    parts.append(rows.take(np.array([k])))
                entries.append((which, places[key], float(y[k])))
        multipliers = np.zeros((len(self._proofs), len(places)))
        for which, place, value in entries:
            multipliers[which, place] = value
        rows = MomentumRows.concatenate(parts) if parts else MomentumRows.none(self.prior.size)
        rows = replace(rows, log=np.where(rows.log > 0, rows.log - 1, 0))
        return ArmIntervals(
            base=self.base,
            lower=self.lower,
            upper=self.upper,
            prior_lower=self._prior_lower,
            prior_upper=self._prior_upper,
            box=box,
            rows=rows,
            multipliers=multipliers,
            equations=self.equations,
            errors=errors,
        )
