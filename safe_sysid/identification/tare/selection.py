r"""Row selection of a tare: keeps the equations that bind in linear programs like later ones.

Any subset is as true as the whole. Kept are rows with the largest share in the multipliers of two families of linear
programs: bounds of each unknown by the tare alone; and bounds of theta_e in joint sets
whose payload equations are invented (matrices of the tare's own windows, noise drawn within the declared bounds): there
the tare's multipliers say which combinations of the arm's parameters an identification asks for. Both within a budget
of solver iterations, which bounds the time on any data and is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.identification.bounds.drift import drifting
from safe_sysid.identification.bounds.feasible_set import FeasibleSet
from safe_sysid.identification.bounds.joint_rows import LinearBounds
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.diagnosis.elastic import ElasticProgram, scaled_rows
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["RowSelection", "select_rows"]

_DRAWS = 3  # invented payload runs
_INVENTED = 4000  # their equations
_LOUDER = 1.5  # their slack: a payload means more torque, and torque means noise
_WIDER = 1e-3  # of a row's slack
_BUDGET = 2e7  # of one invented run: simplex iterations times rows
# An identification stops where its bounds hardly improve, and goes on at its next update.
_UPDATES, _ROUNDS, _IMPROVEMENT = 4, 40, 0.0
_ALL = 10**9  # rows kept: a set must not ask itself which of them matter


@dataclass(frozen=True, eq=False)
class RowSelection:
    """Rows chosen by the linear programs over the whole log."""

    order: IntArray  #: (K,) rows with a share in some program, the most important first
    #: lower, upper: (14 n,) bounds of the unknowns, the last link's ten those of the empty hand: for reports
    lower: FloatArray
    upper: FloatArray
    margin: float  #: share of every slack that the data leave free, negative if nothing agrees with all rows
    multipliers: FloatArray  #: (M,) what shows it, in units of slack


def select_rows(
    rows: MomentumRows,
    box: ParameterBox,
    payload: tuple[FloatArray, FloatArray],
    drift: FloatArray,
    progress: Callable[[float], None] | None = None,
) -> RowSelection:
    """Solve the programs.

    Args:
        box: arm prior with the hand's prior in place of theta_e.
        payload: bounds (10,), (10,) of theta_e in later identifications.
        drift: (3 n,) by how much friction may change until then.
        progress: called with the share that is done, 0 to 1.
    """
    tell = progress or (lambda share: None)
    matrix, target = scaled_rows(rows, box)
    margin = ElasticProgram(matrix, target, np.ones((len(rows), 1)), lowest=np.array([-1.0]))
    centre = margin.minimise(elastic={0: 1.0})
    lower, upper = box.lower.copy(), box.upper.copy()
    if not centre.value < 0.0:
        empty = np.empty(0, np.int64)
        return RowSelection(empty, lower, upper, -centre.value, centre.multipliers)
    score = np.zeros(len(rows))
    # Numbered, to be found again among those that a set keeps.
    numbered = replace(rows, box_seq=np.arange(len(rows)))
    payload_constraints = PayloadConstraints(box.lower[box.layout.payload], box.upper[box.layout.payload])
    prior = box.with_payload(*payload)
    _bound_arm(score, lower, upper, numbered, prior, payload_constraints)
    tell(0.4)
    theta = box.mid + box.rad * centre.z
    theta[box.layout.payload] = prior.mid[box.layout.payload]
    for draw in range(_DRAWS):
        _score_invented(score, rows, box, prior, drift, theta, np.random.default_rng(draw))
        tell(0.4 + 0.6 * (draw + 1) / _DRAWS)
    active = np.flatnonzero(score > 0.0)
    order = active[np.argsort(-score[active], kind="stable")]
    return RowSelection(order, lower, upper, -centre.value, centre.multipliers)


def _bound_arm(
    score: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    rows: MomentumRows,
    prior: ParameterBox,
    payload_constraints: PayloadConstraints,
) -> None:
    """Bound each unknown by the tare alone; narrows ``lower`` and ``upper`` in place."""
    x = UnknownsLayout(prior.layout)
    everything = np.arange(x.size)
    joint = FeasibleSet(prior, _ALL, payload_constraints, "lp", rows, rounds=_ROUNDS, improvement=_IMPROVEMENT)
    # By groups: each call has a budget of its own.
    groups = [*(x.arm.link(j) for j in range(prior.n - 1)), x.arm.joint_terms]
    parts = [(everything[group], everything[group]) for group in groups]
    parts.insert(prior.n - 1, (everything[x.hand], everything[x.arm.payload]))
    for asked, place in _UPDATES * parts:
        bounds = joint.bound(asked, prior)
        _add_shares(score, joint, bounds)
        lower[place], upper[place] = (np.maximum(lower[place], bounds.lower), np.minimum(upper[place], bounds.upper))


def _add_shares(score: FloatArray, joint: FeasibleSet, bounds: LinearBounds) -> None:
    """Add the share of each row of the tare in each program's multipliers."""
    if bounds.rows is None or bounds.row_multipliers is None:
        return
    used = joint.rows.take(bounds.rows)
    parts = np.abs(bounds.row_multipliers) * used.slack
    total = parts.sum(axis=1, keepdims=True)
    parts = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0.0)
    tare = used.log == 1
    score[used.box_seq[tare]] += parts[:, tare].sum(axis=0)


def _score_invented(
    score: FloatArray,
    rows: MomentumRows,
    box: ParameterBox,
    prior: ParameterBox,
    drift: FloatArray,
    theta: FloatArray,
    rng: np.random.Generator,
) -> None:
    """Add the shares of the tare's rows in the twenty programs of one invented payload run."""
    x, size, last = UnknownsLayout(box.layout), box.size, box.layout.payload
    columns, moves = drifting(drift, box.layout)
    picked = rng.choice(len(rows), min(_INVENTED, len(rows)), replace=False)
    invented = rows.take(np.sort(picked))
    slack = _LOUDER * invented.slack
    target = invented.matrix @ theta + slack * rng.uniform(-1.0, 1.0, len(slack))
    run = np.zeros((len(slack), x.hand.stop + len(moves)))
    run[:, :size] = invented.matrix * prior.rad / slack[:, None]
    tare = np.zeros((len(rows), run.shape[1]))
    tare[:, :size], tare_target = scaled_rows(rows, box)
    tare[:, x.hand] = tare[:, last]
    tare[:, last] = 0.0
    tare[:, x.hand.stop :] = rows.matrix[:, columns] * moves / rows.slack[:, None]
    matrix = np.concatenate([tare, run])
    sides = np.concatenate([tare_target, (target - invented.matrix @ prior.mid) / slack])
    # Where noise sits on its bounds hundreds of rows meet in one vertex: each gives way by a little of its own.
    room = 1.0 + _WIDER * rng.uniform(0.5, 1.0, len(sides))
    matrix /= room[:, None]
    program = ElasticProgram(matrix, sides / room, budget=_BUDGET)
    cost = np.zeros(matrix.shape[1])
    for p in range(last.start, last.stop):
        for sign in (1.0, -1.0):
            if program.work < _BUDGET:
                cost[p] = sign
                parts = np.abs(program.minimise(cost).multipliers)
                if np.any(parts):
                    score += parts[: len(rows)] / parts.sum()
        cost[p] = 0.0
