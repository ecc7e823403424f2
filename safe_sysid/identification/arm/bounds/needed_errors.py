r"""Needed torque errors: how large they must be declared so that logs of the arm do not contradict its prior.

With a torque error of ``a_j + b |tau|`` every momentum equation reads ``|Y theta - T| <= w + a_j d``, where w is its
half width without a, and ``d = sum area_k / (1 + b)``: the interval of torques around a measured one reaches at least
``a / (1 + b)`` further on either side. The smallest ``sum_j a_j`` for which some theta in the prior satisfies all
equations is a linear program; equations come in as they are broken. What is then still missing is added to a, so that
the theta that is returned satisfies *every* equation with the a that is returned.

The a found is what the logs need, not what the next log needs: equations of other logs, with the same theta, tell that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.arm.logs.checks import without_equations
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["NeededErrors", "NeededErrorsError", "momentum_equations", "needed_errors", "torque_reach"]

_CHUNK = 2000  # samples whose equations are held at once
_WORST = 25  # broken equations of a joint that come in from each chunk and window
_ROUNDS = 25
_SMALL = 1e-3  # of a: what is missing less than this is added


class NeededErrorsError(SafeSysIdError):
    """No torque error makes the logs agree with the prior, or the logs have no equations."""


@dataclass(frozen=True, eq=False)
class NeededErrors:
    """Torque errors that the logs need."""

    relative: FloatArray  #: (n,) b that was taken as given
    absolute: FloatArray  #: (n,) a, N m, with which theta satisfies all equations of the logs
    validation: FloatArray  #: (n,) a that the validation logs' equations need with the same theta; zeros without any
    theta: FloatArray  #: (P,) parameters, offsets with the sensors' constant bias
    equations: int  #: of the logs, all of which theta satisfies
    worst: FloatArray  #: (n, 2) s, stamps of the equation that needs the largest a of its joint


def needed_errors(
    model: RobotModel,
    errors: MeasurementErrors,
    logs: Sequence[Measurements],
    validation: Sequence[Measurements] = (),
    box: ParameterBox | None = None,
) -> NeededErrors:
    """Find the smallest torque errors with which the logs agree with the prior.

    Args:
        model: of the arm, its prior the one that the online part uses.
        errors: declared; ``torque_abs`` and ``torque_drift`` are not used, all others are.
        logs: of the arm, nothing in its hand that the prior does not hold.
        validation: other logs.
        box: of the arm and what it holds in all logs; None for the model's prior.

    Raises:
        NeededErrorsError: no equations, or no parameters at all.
    """
    n, known = model.n, model.arm_prior if box is None else box
    box = sensor_prior(known, errors)
    bare = replace(errors, torque_abs=np.zeros(n), torque_drift=np.zeros(n))
    scale = np.where(box.rad > 0.0, box.rad, 0.0)
    theta, absolute = box.mid.copy(), np.zeros(n)
    kept: list[FloatArray] = []
    missing, worst, count = np.full(n, np.inf), np.zeros((n, 2)), 0
    for _ in range(_ROUNDS):
        missing, count = np.full(n, -np.inf), 0
        for rows in momentum_equations(model, bare, logs, known):
            count += len(rows)
            needed = _needed(rows, theta, errors.torque_rel)
            for j in range(n):
                mine = np.flatnonzero(rows.joint == j)
                if not len(mine):
                    continue
                order = mine[np.argsort(-needed[mine])[:_WORST]]
                if needed[order[0]] > missing[j]:
                    missing[j] = needed[order[0]]
                    worst[j] = rows.start[order[0]], rows.end[order[0]]
                broken = order[needed[order] > absolute[j] + 1e-9]
                kept.append(_sides(rows.take(broken), theta, box.mid, scale, errors.torque_rel))
        if not count:
            raise NeededErrorsError(without_equations(logs, model.settings.measurement.rate_hz))
        if np.all(missing <= absolute * (1.0 + _SMALL) + 1e-9):
            break
        theta, absolute = _program(np.concatenate(kept), box.mid, scale, n)
    else:
        missing = np.full(n, -np.inf)
        for rows in momentum_equations(model, bare, logs, known):
            np.maximum.at(missing, rows.joint, _needed(rows, theta, errors.torque_rel))
    checked = np.zeros(n)
    for rows in momentum_equations(model, bare, validation, known):
        np.maximum.at(checked, rows.joint, _needed(rows, theta, errors.torque_rel))
    return NeededErrors(errors.torque_rel, np.maximum(missing, 0.0), checked, theta, count, worst)


def momentum_equations(
    model: RobotModel, errors: MeasurementErrors, logs: Sequence[Measurements], box: ParameterBox
) -> Iterator[MomentumRows]:
    """Momentum equations of all window lengths of the identifier, in chunks of each log, for a theta in the box."""
    for log in logs:
        stream = MomentumStream(model, errors, default_windows(model, errors))
        for at in range(0, len(log), _CHUNK):
            rows = stream.push(log[at : at + _CHUNK], box)
            if rows is not None and len(rows):
                yield rows


def torque_reach(rows: MomentumRows, relative: FloatArray) -> FloatArray:
    """(M,) d of each equation: by how much its half width grows with a at least. It equals the offset's column."""
    area = rows.matrix[np.arange(len(rows)), rows.layout.offset.start + rows.joint]
    return np.asarray(area / (1.0 + relative[rows.joint]))


def _needed(rows: MomentumRows, theta: FloatArray, relative: FloatArray) -> FloatArray:
    """(M,) smallest a with which theta satisfies each equation."""
    return np.asarray((np.abs(rows.matrix @ theta - rows.target) - rows.slack) / torque_reach(rows, relative))


def _sides(
    rows: MomentumRows, theta: FloatArray, middle: FloatArray, scale: FloatArray, relative: FloatArray
) -> FloatArray:
    """(M, P + n + 1) the broken sides ``A z - d a_j <= c`` over ``theta = middle + scale z``, in units of d."""
    reach = torque_reach(rows, relative)
    sign = np.sign(rows.matrix @ theta - rows.target)
    matrix = sign[:, None] * rows.matrix * scale / reach[:, None]
    error = np.zeros((len(rows), len(relative)))
    error[np.arange(len(rows)), rows.joint] = -1.0
    right = (sign * (rows.target - rows.matrix @ middle) + rows.slack) / reach
    return np.column_stack([matrix, error, right])


def _program(sides: FloatArray, middle: FloatArray, scale: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Solve the linear program over the known sides; return theta and a."""
    size = len(middle)
    for method in ("highs", "highs-ipm", "highs-ds"):
        found = linprog(
            np.concatenate([np.zeros(size), np.ones(n)]),
            A_ub=sides[:, :-1],
            b_ub=sides[:, -1],
            bounds=[(-1.0, 1.0)] * size + [(0.0, None)] * n,
            method=method,
        )
        # Any point will do: what it breaks is looked for again, and what is missing at the end is added.
        if found.x is not None:
            return middle + scale * np.clip(found.x[:size], -1.0, 1.0), np.maximum(found.x[size:], 0.0)
    raise NeededErrorsError(f"linear program: {found.message}: expected an optimum")
