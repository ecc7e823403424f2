"""Checks of an arm's logs: joints swapped, signs reversed, wrong units, no motion. Reports, corrects nothing.

Positions and velocities are compared with each other; no model of the arm is needed. What is wrong with torques shows
against a model: its torque explains theirs with a slope of one, and of another one here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.equations.measurements import Measurements

__all__ = ["DataFinding", "check_log", "check_torques", "without_equations"]

_UNIT = 20.0  # times a modelled torque: more is no friction
_ALIKE = 0.9  # correlation of signals that are the same but for scale
_STILL = 1e-3  # rad: less travel than this excites nothing
_SLOPES = {57.29578: "velocities in deg/s", 1.0 / 57.29578: "positions in deg", 9.549297: "velocities in rev/min"}


@dataclass(frozen=True)
class DataFinding:
    """A problem found in a log."""

    joint: str  #: that it is about
    kind: str  #: "still", "swapped", "reversed", "unit", "torque_sign", "torque_scale" or "columns"
    message: str  #: in words, with numbers


def check_log(log: Measurements, joint_names: Sequence[str]) -> list[DataFinding]:
    """Compare positions with velocities.

    ``log``: of joints with positions; velocities may be missing; ``joint_names``: n names.
    """
    good = np.isfinite(log.stamps) & np.all(np.isfinite(log.q), axis=1)
    log = log[good]
    found: list[DataFinding] = []
    travel = np.ptp(log.q, axis=0) if len(log) else np.zeros(log.n)
    still = travel < _STILL
    for j in np.flatnonzero(still).tolist():
        message = f"{joint_names[j]} moves by {travel[j]:.3g} rad: expected motion, else nothing can be said of it"
        found.append(DataFinding(joint_names[j], "still", message))
    if len(log) < 20 or not np.all(np.any(np.isfinite(log.qd) & (log.qd != 0.0), axis=0)):
        return found
    ours, theirs = _compared(log)
    for j in np.flatnonzero(~still).tolist():
        x = ours[:, j]
        like = [_correlation(x, theirs[:, k]) for k in range(log.n)]
        best = int(np.argmax(np.abs(like)))
        name = joint_names[j]
        if best != j and abs(like[best]) > _ALIKE and abs(like[j]) < 0.5:
            message = f"{name}: its positions move as the velocities of {joint_names[best]} say: swapped columns?"
            found.append(DataFinding(name, "swapped", message))
        elif like[j] < -_ALIKE:
            message = f"{name}: its velocities have the reversed sign of its positions' (correlation {like[j]:.2f})"
            found.append(DataFinding(name, "reversed", message))
        elif like[j] > _ALIKE:
            slope = float(x @ theirs[:, j] / (x @ x))
            if not 0.8 < slope < 1.25:
                hints = [word for unit, word in _SLOPES.items() if abs(slope / unit - 1.0) < 0.1]
                hint = f" ({hints[0]}?)" if hints else ""
                message = f"{name}: velocities are {slope:.3g} times its positions' rate{hint}: expected once"
                found.append(DataFinding(name, "unit", message))
    return found


def without_equations(logs: Sequence[Measurements], rate_hz: float) -> str:
    """Explain why logs have no momentum equations.

    ``logs``: all of them; ``rate_hz``: that the robot file declares.
    """
    if not any(np.any(np.isfinite(log.qd)) for log in logs):
        return "no momentum equations: the logs have no velocities, and measured ones are needed"
    found = [float(np.median(np.diff(log.stamps))) for log in logs if len(log) > 1]
    rates = sorted({round(1.0 / x) for x in found if x > 0.0})
    if rates and not any(0.9 < rate / rate_hz < 1.1 for rate in rates):
        told = ", ".join(f"{rate:g}" for rate in rates)
        return (
            f"no momentum equations: the robot file declares measurement.rate_hz = {rate_hz:g}, "
            f"the logs have {told} Hz; efforts must be those of every period in which the drives held them"
        )
    return "no momentum equations: expected logs at the declared rate, without gaps"


def _compared(log: Measurements) -> tuple[FloatArray, FloatArray]:
    """Changes of position over short windows, and the integrals of velocity over the same windows."""
    keep = np.concatenate([[True], np.diff(log.stamps) > 0.0]) & np.all(np.isfinite(log.qd), axis=1)
    stamps, q, qd = log.stamps[keep], log.q[keep], log.qd[keep]
    step = max(len(stamps) // 2000, 5)
    integral = np.concatenate(
        [np.zeros((1, q.shape[1])), np.cumsum(0.5 * (qd[1:] + qd[:-1]) * np.diff(stamps)[:, None], axis=0)]
    )
    return np.diff(q[::step], axis=0), np.diff(integral[::step], axis=0)


def _correlation(x: FloatArray, y: FloatArray) -> float:
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / size if size > 0.0 else 0.0


def check_torques(modelled: FloatArray, measured: FloatArray, joint_names: Sequence[str]) -> list[DataFinding]:
    """Compare measured torques with modelled ones: find reversed signs and wrong units.

    Friction of a drawing may be several times too large or small, and what links need may differ in sign where several
    of them pull against each other: only what neither explains is named.

    Args:
        modelled: (N, n_a) N m, with what is known of the arm before.
        measured: (N, n_a) N m.
        joint_names: n_a names.
    """
    found = []
    modelled, measured = modelled - modelled.mean(axis=0), measured - measured.mean(axis=0)
    for j, name in enumerate(joint_names):
        x, y = modelled[:, j], measured[:, j]
        like = _correlation(x, y)
        slope = float(x @ y / max(float(x @ x), 1e-300))
        if like < -_ALIKE:
            message = f"{name}: torques have the reversed sign of the model's (correlation {like:.2f})"
            found.append(DataFinding(name, "torque_sign", message))
        elif like > _ALIKE and not 1.0 / _UNIT < slope < _UNIT:
            message = f"{name}: torques are {slope:.3g} times the model's: gear ratio, torque constant or unit?"
            found.append(DataFinding(name, "torque_scale", message))
    return found
