"""Structural explanations of a contradiction: a reversed sign, a changed payload, or something in the hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.identification.diagnosis.declared import payload_extent
from safe_sysid.identification.diagnosis.elastic import ElasticProgram, ElasticSolution, scaled_problem
from safe_sysid.identification.diagnosis.explanations import Explanation
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["TOLERANCE", "earlier", "held", "margin", "payload_change", "widest", "wrong_sign"]

TOLERANCE = 1e-6  # of slack: below it rows agree
_BISECTIONS = 8
_SPLIT_COST, _SIGN_COST = 0.05, 0.02  # what a change of payload, a wrong sign cost in mean slack


def widest(model: RobotModel, box: ParameterBox) -> ParameterBox:
    """The box, with theta_e's intervals widened to hold the prior's, too."""
    prior = model.arm_prior
    return box.with_payload(
        np.minimum(prior.payload_lower, box.payload_lower), np.maximum(prior.payload_upper, box.payload_upper)
    )


def margin(matrix: FloatArray, target: FloatArray) -> ElasticSolution:
    """The s >= -1 that all slacks must grow by, relatively, before some parameters agree with all rows.

    ``matrix``: (M, P) of :func:`.elastic.scaled_problem`; ``target``: (M,).
    """
    program = ElasticProgram(matrix, target, np.ones((len(target), 1)), lowest=np.array([-1.0]))
    return program.minimise(elastic={0: 1.0})


def wrong_sign(model: RobotModel, rows: MomentumRows, matrix: FloatArray, target: FloatArray) -> Iterator[Explanation]:
    """Find joints for which reversing the sign of the effort resolves the contradiction.

    Log checks and the check at rest ask of one window, or pose, whether any arm of the prior explains it; these are
    equations that one arm each explains, and no arm all of them.

    ``matrix``: (M, P) of :func:`.elastic.scaled_problem` for ``rows``; ``target``: (M,).
    """
    shift = (rows.target / rows.slack) * 2.0
    for j in range(model.n):
        mine = rows.joint == j
        if not np.any(mine) or np.median(np.abs(shift[mine])) < 2.0:
            continue
        flipped = target - np.where(mine, shift, 0.0)
        if margin(matrix, flipped).value <= TOLERANCE:
            yield Explanation(
                "sign",
                j,
                f"effort of {model.joint_names[j]} has the wrong sign: with the other one all equations agree",
                _SIGN_COST,
                _SIGN_COST,
            )


def payload_change(rows: MomentumRows, matrix: FloatArray, target: FloatArray) -> Iterator[Explanation]:
    """Test whether one change of theta_e at one time resolves the contradiction; arrays as in :func:`wrong_sign`."""
    run = rows.log == 0
    if not np.any(run):
        return
    start, end = float(rows.start[run].min()), float(rows.end[run].max())

    def agree(mask: BoolArray) -> bool:
        return bool(margin(matrix[mask], target[mask]).value <= TOLERANCE) if np.any(mask) else True

    # The longest beginning, and the longest end, that agree with themselves.
    low, high = start, end
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if agree(~run | (rows.end <= middle)) else (low, middle)
    first = low
    low, high = start, end
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if agree(~run | (rows.start >= middle)) else (middle, high)
    last = high
    edge = 0.1 * (end - start)
    if last > first or first < start + edge or last > end - edge:
        return
    middle = 0.5 * (first + last)
    payload = rows.layout.payload
    use = ~run | (rows.end <= middle) | (rows.start >= middle)
    after = run[use] & (rows.start[use] >= middle)
    both = np.concatenate([matrix[use], np.where(after[:, None], matrix[use][:, payload], 0.0)], axis=1)
    both[after, payload] = 0.0
    if margin(both, target[use]).value <= TOLERANCE:
        yield Explanation(
            "payload",
            None,
            f"the payload changed, or slipped, between {last:.2f} s and {first:.2f} s: what comes before and what "
            "comes after each agree with the declarations; identify the two parts apart",
            _SPLIT_COST,
            _SPLIT_COST,
        )


def held(model: RobotModel, errors: MeasurementErrors, rows: MomentumRows) -> list[Explanation]:
    """Test whether something in the hand explains the contradiction."""
    as_run = replace(rows, log=np.zeros_like(rows.log))
    box = sensor_prior(model.arm_prior, errors)
    matrix, target, _ = scaled_problem(model, errors, as_run, box)
    if margin(matrix, target).value > TOLERANCE:
        return []
    extent = payload_extent(model, errors, as_run, box)
    what = "something in it" if extent is None else f"a {extent.text(None)}"
    text = f"the hand was not empty: with {what}, all equations agree; record again with nothing in it"
    return [Explanation("held", None, text, 0.0, 0.0)]


def earlier(model: RobotModel, errors: MeasurementErrors, rows: MomentumRows, box: ParameterBox) -> list[Explanation]:
    """Test whether only earlier bounds contradict the equations."""
    wide = widest(model, box)
    if not (np.any(wide.payload_lower < box.payload_lower) or np.any(wide.payload_upper > box.payload_upper)):
        return []
    matrix, target, _ = scaled_problem(model, errors, rows, wide)
    if margin(matrix, target).value > TOLERANCE:
        return []
    text = (
        "the payload is another one than before, or slipped: the equations agree with each other, but not with the "
        "bounds known of this payload before"
    )
    return [Explanation("payload", None, text, 0.0, 0.0)]
