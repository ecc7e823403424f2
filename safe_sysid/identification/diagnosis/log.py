"""Diagnosis of a whole log: the samples themselves, its equations, and the suggested changes tried out on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from safe_sysid.core.units import unit_for
from safe_sysid.identification.diagnosis.elastic import ElasticProgram, scaled_problem
from safe_sysid.identification.diagnosis.explanations import Explanation
from safe_sysid.identification.diagnosis.rows import Diagnosis, diagnose_rows, with_remarks
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.step_states import mean_velocities
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["check_velocities", "diagnose_log", "rows_of_log"]

_PIECE = 4000  # samples turned into equations at once
_MAX_ROWS = 150_000
_TRIED = 3  # explanations
_GROWTH = (1.0, 1.1, 1.3)  # of a change that turned out to be not enough
_LEAST_SAMPLES = 50
_MEDIAN = 0.6745  # of |x| over the standard deviation, of noise
_NOISY = 0.8  # of the declared bound: noise inside it has a smaller standard deviation
_WHITE = 0.2  # by how much estimates of noise may differ
_NAMED = 2  # joints
_PEAK = 1.2  # times the largest error that is seen for certain
_SLOPE = 0.01  # a scale error of velocities below which nothing is said


def diagnose_log(
    model: RobotModel,
    errors: MeasurementErrors,
    measurements: Measurements,
    tare_rows: MomentumRows | None = None,
    progress: Callable[[float], None] | None = None,
) -> Diagnosis:
    """Diagnose a log from its samples, and test the likeliest explanations on it.

    Args:
        measurements: samples in order of arrival.
        tare_rows: of a tare, as its log proves them, if the run uses one.
        progress: called with the share that is done.
    """
    tell = progress or (lambda share: None)
    box = model.arm_prior
    remarks = check_velocities(model, errors, measurements)
    rows = rows_of_log(model, errors, measurements, box)
    tell(0.3)
    if not len(rows):
        return with_remarks(
            Diagnosis(model.joint_names, False, 1.0), [*remarks, "no equation could be made of this log"]
        )
    everything = rows if tare_rows is None else MomentumRows.concatenate([rows, tare_rows])
    found = diagnose_rows(model, errors, everything, sensor_prior(box, errors))
    tell(0.7)
    scatter = _scatter(model, errors, measurements) if found.margin < 0.0 else []
    tried = [
        _try(model, errors, measurements, tare_rows, explanation) if i < _TRIED + len(scatter) else explanation
        for i, explanation in enumerate((*scatter, *found.explanations))
    ]
    tell(1.0)
    tried = [e for i, e in enumerate(tried) if i >= len(scatter) or e.checked]
    # What was tried and did not help stays in the list, behind what did or was not tried.
    tried.sort(key=lambda e: (e.checked is False, e.rank))
    return with_remarks(replace(found, explanations=tuple(tried)), remarks)


def rows_of_log(
    model: RobotModel, errors: MeasurementErrors, measurements: Measurements, box: ParameterBox
) -> MomentumRows:
    """Equations of a log; of a long one those of its longer windows only, so that memory stays bounded.

    ``measurements``: samples in order of arrival; ``box``: of the parameters, without sensor bias.
    """
    windows = default_windows(model, errors)
    rate = model.settings.measurement.rate_hz
    while len(windows) > 1 and _count(windows, rate, len(measurements), model.n) > _MAX_ROWS:
        windows = windows[:-1]  # the shortest are last
    stream = MomentumStream(model, errors, windows)
    parts = [MomentumRows.none(box.size)]
    for start in range(0, len(measurements), _PIECE):
        more = stream.push(measurements[start : start + _PIECE], box)
        if more is not None:
            parts.append(more)
    return MomentumRows.concatenate(parts)


def _count(windows: tuple[float, ...], rate: float, samples: int, n: int) -> float:
    return sum(n * samples / (rate * length) for length in windows)


def _try(
    model: RobotModel,
    errors: MeasurementErrors,
    measurements: Measurements,
    tare_rows: MomentumRows | None,
    explanation: Explanation,
) -> Explanation:
    """Test an explanation: rebuild the rows under the changed declaration, and set ``checked``."""
    if not explanation.errors and explanation.prior is None:
        return replace(explanation, checked=True) if explanation.kind in ("sign", "payload") else explanation
    size, resize = explanation.size, explanation.resize
    if resize is None:
        return explanation
    for growth in _GROWTH:
        larger = replace(resize(growth * size), size=growth * size, resize=resize)
        if (larger.errors or larger.prior is not None) and _agrees(model, errors, measurements, tare_rows, larger):
            return replace(larger, checked=True)
    return replace(explanation, checked=False)


def _agrees(
    model: RobotModel,
    errors: MeasurementErrors,
    measurements: Measurements,
    tare_rows: MomentumRows | None,
    explanation: Explanation,
) -> bool:
    box, changed = model.arm_prior, errors
    if explanation.prior is not None:
        p, low, high = explanation.prior
        lower, upper = box.lower.copy(), box.upper.copy()
        lower[p], upper[p] = min(low, lower[p]), max(high, upper[p])
        box = ParameterBox(lower, upper)
    else:
        changed = replace(errors, **explanation.errors)
    again = rows_of_log(model, changed, measurements, box)
    if tare_rows is not None:
        again = MomentumRows.concatenate([again, tare_rows])
    matrix, target, _ = scaled_problem(model, changed, again, sensor_prior(box, changed))
    return ElasticProgram(matrix, target).minimise().feasible


def _scatter(model: RobotModel, errors: MeasurementErrors, measurements: Measurements) -> list[Explanation]:
    """Whether velocities are noisier from sample to sample than declared, as differences of positions are.

    Differences of third and of fourth order give one and the same estimate of noise, but not of a smooth motion.
    """
    qd = measurements.qd[np.all(np.isfinite(measurements.qd), axis=1)]
    if len(qd) < _LEAST_SAMPLES:
        return []
    third, fourth = (np.median(np.abs(np.diff(qd, order, axis=0)), axis=0) for order in (3, 4))
    third, fourth = third / (_MEDIAN * np.sqrt(20.0)), fourth / (_MEDIAN * np.sqrt(70.0))
    peak = np.max(np.abs(np.diff(qd, 3, axis=0)), axis=0) / 8.0  # no error below it makes such a difference
    noisy = (
        (third > _NOISY * errors.velocity)
        & (peak > errors.velocity)
        & (np.abs(fourth - third) < _WHITE * third)
        & (third > 0.0)
    )
    if not np.any(noisy):
        return []

    def explain(size: float) -> Explanation:
        velocity = np.where(noisy, np.maximum(size * np.maximum(peak, third), errors.velocity), errors.velocity)
        joints = np.flatnonzero(noisy)
        unit = unit_for("rad/s or m/s", model.sliding[joints])
        parts = [
            f"{model.joint_names[j]} from {errors.velocity[j]:.3g} to {velocity[j]:.3g} {model.position_units[j]}/s"
            for j in joints
        ]
        if joints.size > _NAMED:
            parts = [f"{joints.size} joints to {np.min(velocity[joints]):.3g} .. {np.max(velocity[joints]):.3g} {unit}"]
        text = (
            f"velocity_error of {', '.join(parts)}: velocities scatter by {np.max(third[noisy]):.2g} {unit} from "
            "sample to sample; are they differences of positions?"
        )
        return Explanation("velocity", None, text, 0.0, 0.0, {"velocity": velocity})

    return [replace(explain(_PEAK), size=_PEAK, resize=explain)]


def check_velocities(model: RobotModel, errors: MeasurementErrors, measurements: Measurements) -> list[str]:
    """Lines about joints whose measured velocity contradicts the change of their measured position.

    Windows with such samples are left out, so nothing false is concluded from them; but little may be left.

    ``measurements``: samples in order of arrival.
    """
    m = measurements
    h = np.diff(m.stamps)
    with np.errstate(invalid="ignore"):
        good = np.isfinite(h) & (h > 0.0) & (h < 1.5 / model.settings.measurement.rate_hz)
        good &= np.all(
            np.isfinite(m.q[1:]) & np.isfinite(m.q[:-1]) & np.isfinite(m.qd[1:]) & np.isfinite(m.qd[:-1]), axis=1
        )
    lines: list[str] = []
    if not np.any(good):
        return lines
    turn = model.shortest_way(np.diff(m.q, axis=0)[good])
    by_q, by_v, rho_q, rho_v, *_ = mean_velocities(
        turn, m.qd[:-1][good], m.qd[1:][good], h[good], np.full(len(turn), errors.stamp), errors
    )
    excess = np.abs(by_q - by_v) - rho_q - rho_v + errors.velocity
    for j in range(model.n):
        broken = excess[:, j] > errors.velocity[j] * (1.0 + 1e-6) + 1e-9
        if not np.any(broken):
            continue
        text = (
            f"velocity of {model.joint_names[j]} contradicts its position in {100.0 * np.mean(broken):.2g} % of the "
            f"steps: velocity_error would have to be {excess[:, j].max():.3g} {model.position_units[j]}/s "
            f"(declared {errors.velocity[j]:.3g})"
        )
        fast = np.abs(by_q[:, j]) > 0.2 * np.abs(by_q[:, j]).max()
        slope = float(by_q[fast, j] @ by_v[fast, j] / (by_q[fast, j] @ by_q[fast, j]))
        rest = float(np.std(by_v[fast, j] - slope * by_q[fast, j]))
        if abs(slope - 1.0) > _SLOPE and rest < 0.5 * abs(slope - 1.0) * float(np.std(by_q[fast, j]) + 1e-12):
            text += f"; it reads {slope:.3f} times the rate of the position: wrong scale or unit of one of them"
        lines.append(text)
    return lines
