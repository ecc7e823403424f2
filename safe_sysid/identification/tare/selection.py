r"""Which equations of a motion with the empty hand are worth keeping: those that bind in programs like later ones.

Any subset is as true as the whole. Kept are rows with the largest share in the multipliers of two families of linear
programs: bounds of every single unknown of the tare, and bounds of theta_e in a joint set whose payload equations are
invented (matrices of the tare's own windows, noise drawn within the declared bounds): there the tare's multipliers say
which combinations of the arm's parameters an identification asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.identification.bounds.drift import friction_columns
from safe_sysid.identification.diagnosis.elastic import ElasticProgram, scaled_rows
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["Selection", "select_rows"]

FloatArray = NDArray[np.float64]
_DRAWS = 3  # invented payload runs
_INVENTED = 4000  # their equations
_LOUDER = 1.5  # their slack: a payload means more torque, and torque means noise


@dataclass(frozen=True, eq=False)
class Selection:
    """What the programs over the whole log say.

    Attributes:
        order: (K,) rows with a share in some program, the most important first.
        lower, upper: (14 n,) bounds of the unknowns, the last link's ten those of the empty hand; by the solver, not
            certified: for reports.
        margin: share of every slack that the data leave free, negative if nothing agrees with all rows.
        multipliers: (M,) what shows it, in units of slack.
    """

    order: NDArray[np.int64]
    lower: FloatArray
    upper: FloatArray
    margin: float
    multipliers: FloatArray


def select_rows(
    rows: MomentumRows,
    box: ParameterBox,
    payload: tuple[FloatArray, FloatArray],
    drift: FloatArray,
    progress: Callable[[float], None] | None = None,
) -> Selection:
    """Solve the programs.

    Args:
        rows: of the tare.
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
        return Selection(empty, lower, upper, -centre.value, centre.multipliers)
    score = np.zeros(len(rows))
    program = ElasticProgram(matrix, target)
    free = np.flatnonzero(box.rad > 0.0)
    for done, p in enumerate(free):
        cost = np.zeros(box.size)
        for sign in (1.0, -1.0):
            cost[p] = sign
            solution = program.minimise(cost)
            _add_share(score, solution.multipliers)
            if solution.feasible and solution.finished:
                bound = box.mid[p] + sign * solution.value * box.rad[p]
                if sign > 0.0:
                    lower[p] = max(lower[p], bound)
                else:
                    upper[p] = min(upper[p], bound)
        tell(0.5 * (done + 1) / free.size)
    theta = box.mid + box.rad * centre.z
    for draw in range(_DRAWS):
        _score_invented(score, rows, box, payload, drift, theta, np.random.default_rng(draw))
        tell(0.5 + 0.5 * (draw + 1) / _DRAWS)
    active = np.flatnonzero(score > 0.0)
    order = active[np.argsort(-score[active], kind="stable")]
    return Selection(order, lower, upper, -centre.value, centre.multipliers)


def _add_share(score: FloatArray, multipliers: FloatArray) -> None:
    total = np.abs(multipliers).sum()
    if total > 0.0:
        score += np.abs(multipliers) / total


def _score_invented(
    score: FloatArray,
    rows: MomentumRows,
    box: ParameterBox,
    payload: tuple[FloatArray, FloatArray],
    drift: FloatArray,
    theta: FloatArray,
    rng: np.random.Generator,
) -> None:
    """Add the shares of the tare's rows in the twenty programs of one invented payload run."""
    n, size = box.n, box.size
    last, friction = box.payload_slice, friction_columns(box.n)
    picked = rng.choice(len(rows), min(_INVENTED, len(rows)), replace=False)
    invented = rows.take(np.sort(picked))
    slack = _LOUDER * invented.slack
    truth = theta.copy()
    middle = 0.5 * (payload[0] + payload[1])
    truth[last] = middle
    target = invented.matrix @ truth + slack * rng.uniform(-1.0, 1.0, len(slack))
    radius = 0.5 * (payload[1] - payload[0])
    run = np.zeros((len(slack), size + 10 + 3 * n))
    run[:, :size] = invented.matrix * box.rad
    run[:, last] = invented.matrix[:, last] * radius
    run /= slack[:, None]
    about = box.mid.copy()
    about[last] = middle
    tare = np.zeros((len(rows), size + 10 + 3 * n))
    tare[:, :size], tare_target = scaled_rows(rows, box)
    tare[:, size : size + 10] = tare[:, last]
    tare[:, last] = 0.0
    tare[:, size + 10 :] = rows.matrix[:, friction] * drift / rows.slack[:, None]
    program = ElasticProgram(
        np.concatenate([tare, run]),
        np.concatenate([tare_target, (target - invented.matrix @ about) / slack]),
    )
    cost = np.zeros(tare.shape[1])
    for p in range(last.start, last.stop):
        for sign in (1.0, -1.0):
            cost[p] = sign
            _add_share(score, program.minimise(cost).multipliers[: len(rows)])
        cost[p] = 0.0
