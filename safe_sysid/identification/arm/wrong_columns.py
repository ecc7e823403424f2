"""Checks of a log's columns against the drawing: which single change of a column would explain the torques.

Positions and velocities that agree with each other may both be wrong: in degrees, of two joints exchanged, counted in
the other direction, or with another gear ratio. Then no arm like the drawing has these torques. Each change is tried:
how much of the torque of each joint is left when the drawing's rigid torque, and friction, rotor and offset of the
joint, each with any factor, are fitted to it. A change that leaves less than half is named. None is made.

A factor of the rigid torque far from one, where it alone explains the joint's torque, is a gear ratio, torque constant
or unit of efforts. Where factors are further from one, in the median of the joints, than links each 30 % off explain,
all efforts may be too large or too small alike: a warning, for the arm may be heavier as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.closed_chain import ClosureError, Mechanism
from safe_sysid.identification.arm.estimates.friction import at_rest
from safe_sysid.identification.arm.logs.checks import DataFinding
from safe_sysid.identification.arm.logs.preparation import ArmData

__all__ = ["check_columns", "common_scale"]

_SAMPLES, _FEWEST = 400, 60
#: Less than this is left: the drawing explains the torques. A change must leave less than _BETTER of what is left.
_EXPLAINED, _BETTER = 0.01, 0.5
#: Factors of the rigid torque that an arm other than drawn may have, where all but _ALONE of it is that torque; and
#: where half of it is.
_FACTOR, _ALONE = 1.6, 0.1
_GROSS, _HALF = 4.0, 0.5
#: Median of these factors that no arm has whose links are each at most 30 % off; and so many joints have to tell.
_COMMON, _TOLD = 1.35, 2
_DEGREE = np.pi / 180.0


def check_columns(mechanism: Mechanism, samples: ArmData) -> list[DataFinding]:
    """Check the columns of positions, velocities and efforts against the drawing.

    ``mechanism``: as drawn; ``samples``: of the joints with motors.
    """
    q, qd, qdd, torque = _used(samples)
    names, count = list(mechanism.actuated_names), len(mechanism.actuated)
    now, factors, alone = _left(mechanism, q, qd, qdd, torque)
    if now > _EXPLAINED:
        best, said = _BETTER * min(now, 1.0), ""
        for change, text in _changes(names):
            left, _, _ = _left(mechanism, q @ change.T, qd @ change.T, qdd @ change.T, torque)
            if left < best:
                best, said = left, text
        for j in range(count):
            for k in range(j):
                both = np.arange(count)
                both[[j, k]] = k, j
                for state, what in ((both, "all columns"), (slice(None), "efforts")):
                    left, _, _ = _left(mechanism, q[:, state], qd[:, state], qdd[:, state], torque[:, both])
                    if left < best:
                        best, said = left, f"{what} of {names[k]} and {names[j]} exchanged"
        if said:
            as_are = f"{100 * now:.2g} %" if np.isfinite(now) else "loops do not close"
            message = (
                f"with {said} the drawing leaves {100 * best:.2g} % of the torques unexplained, as they are {as_are}"
            )
            return [DataFinding(names[0], "columns", message)]
    return [
        DataFinding(
            names[j],
            "torque_scale",
            f"{names[j]}: torques of links are {factors[j]:.3g} times the drawing's: gear ratio, torque constant or "
            "unit?",
        )
        for j in range(count)
        if (alone[j] < _ALONE and not 1.0 / _FACTOR < factors[j] < _FACTOR)
        or (alone[j] < _HALF and not 1.0 / _GROSS < factors[j] < _GROSS)
    ]


def common_scale(mechanism: Mechanism, samples: ArmData) -> str:
    """Warn if all efforts may be too large or too small by the same factor; "" if not.

    ``mechanism``: as drawn; ``samples``: of the joints with motors.
    """
    _, factors, alone = _left(mechanism, *_used(samples))
    told = factors[alone < _ALONE]
    median = float(np.median(told)) if len(told) >= _TOLD else 1.0
    if 1.0 / _COMMON < median < _COMMON:
        return ""
    return (
        f"torques of links are {median:.3g} times the drawing's in the median of {len(told)} joints: efforts, if the "
        "drawing is right within 30 %; a known mass tells (--loaded LOG --known-mass KG)"
    )


def _used(samples: ArmData) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Positions, velocities, accelerations and torques of a selection of moving samples."""
    moving = np.flatnonzero(~at_rest(samples).any(axis=1))
    use = moving if len(moving) >= _FEWEST else np.arange(len(samples))
    use = use[np.linspace(0, len(use) - 1, min(_SAMPLES, len(use))).astype(int)]
    return samples.q[use], samples.qd[use], samples.qdd[use], samples.torque[use]


def _changes(names: list[str]) -> Iterator[tuple[FloatArray, str]]:
    """Candidate changes: a matrix for positions and velocities, and its meaning in words."""
    n = len(names)
    yield np.eye(n) * _DEGREE, "positions and velocities taken as degrees"
    for j, name in enumerate(names):
        for factor, text in (
            (_DEGREE, f"positions and velocities of {name} taken as degrees"),
            (-1.0, f"{name} counted in the other direction"),
            (0.5, f"positions and velocities of {name} halved (its gear ratio?)"),
            (2.0, f"positions and velocities of {name} doubled (its gear ratio?)"),
        ):
            change = np.eye(n)
            change[j, j] = factor
            yield change, text
        for k in range(j):
            change = np.eye(n)
            change[[j, k]] = change[[k, j]]
            yield change, f"positions and velocities of {names[k]} and {name} exchanged"


def _left(
    mechanism: Mechanism, q: FloatArray, qd: FloatArray, qdd: FloatArray, torque: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Share of the torques that the model leaves unexplained (root mean square, mean of the joints).

    Returns:
        That, infinite where loops do not close; factors (n_a,) of the rigid torques; (n_a,) what is left of what is
        left without them, squared.
    """
    layout, rigid, count = mechanism.layout, np.zeros(mechanism.layout.size), q.shape[1]
    rigid[layout.links] = mechanism.theta_nominal[layout.links]
    shares, factors, alone = [], np.ones(count), np.ones(count)
    try:
        drawn = mechanism.regressor(mechanism.motion(q, qd, qdd)) @ rigid
    except ClosureError:
        return np.inf, factors, alone
    for j in range(count):
        columns = np.column_stack([drawn[:, j], qdd[:, j], qd[:, j], np.sign(qd[:, j]), np.ones(len(q))])
        columns /= np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
        y = torque[:, j]
        values = np.linalg.lstsq(columns, y, rcond=1e-10)[0]
        left = float(np.sum((y - columns @ values) ** 2))
        others = columns[:, 1:]
        without = float(np.sum((y - others @ np.linalg.lstsq(others, y, rcond=1e-10)[0]) ** 2))
        shares.append(np.sqrt(left / max(float(np.sum((y - y.mean()) ** 2)), 1e-300)))
        factors[j] = values[0] / max(float(np.linalg.norm(drawn[:, j])), 1e-300)
        alone[j] = left / max(without, 1e-300)
    return float(np.mean(shares)), factors, alone
