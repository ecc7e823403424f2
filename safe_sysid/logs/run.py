"""Identification of a whole log: batches in, one record per update out, and diagnosis at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.diagnosis.excitation_words import WidthCauses
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.identification.estimates.best_fit import BestFit, best_fit
from safe_sysid.identification.identifier import Identifier, UpdateResult, UpdateStatus
from safe_sysid.logs.checks.effort_checks import sample_windows
from safe_sysid.logs.log import Log
from safe_sysid.logs.online.certify import CertificateWriter
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["LogRun", "Residuals", "UpdateRecord", "fit_log", "residuals", "run_log", "update_points", "with_best_fit"]

_BATCH = 2000  # samples taken in at once
_FIT_WINDOWS = 2000  # that do not overlap, spread over the log
_UPDATES = 40  # at most, if the user does not say how often


@dataclass(frozen=True, eq=False)
class UpdateRecord:
    """One update."""

    time: float  #: stamp of the last sample before it, s
    lower: FloatArray  #: (10,) of theta_e
    nominal: FloatArray  #: (10,) of theta_e
    upper: FloatArray  #: (10,) of theta_e
    status: str  #: name of the :class:`UpdateStatus`
    seconds: float
    rows: int


@dataclass(frozen=True, eq=False)
class LogRun:
    """What the identifier made of a log."""

    records: tuple[UpdateRecord, ...]
    result: UpdateResult | None  #: the last one; None if the log had no update
    box: ParameterBox
    samples: int
    seconds: float  #: of computing, without reading
    empty: bool
    message: str
    #: as it is after the last update, for what else it can tell; None for other methods
    identifier: Identifier | None = None
    rejected: Mapping[str, int] = field(default_factory=dict)
    fit: BestFit | None = None  #: that the last estimate comes from; None: from the identifier
    widths: WidthCauses | None = None  #: causes of the intervals' widths; None where nothing was proved

    @property
    def causes(self) -> Mapping[str, float]:
        """Shares of the width of the mass by cause; empty where nothing was proved."""
        return {} if self.widths is None else self.widths.shares()


def update_points(stamps: FloatArray, update_s: float) -> IntArray:
    """Numbers of samples after which an update is due; the last is all of them.

    ``stamps``: (N,) s, in order of arrival; ``update_s``: s between updates.
    """
    finite = np.where(np.isfinite(stamps), stamps, -np.inf)
    latest = np.maximum.accumulate(finite)
    usable = latest[np.isfinite(latest)]
    if not usable.size or not usable[-1] > usable[0]:
        return np.array([len(stamps)])
    count = max(1, int(np.ceil((usable[-1] - usable[0]) / update_s * (1.0 - 1e-9))))
    due = usable[0] + update_s * np.arange(1, count)
    points = np.searchsorted(latest, due, side="right")
    return np.unique(np.append(points, len(stamps)))


def run_log(
    log: Log,
    model: RobotModel,
    update_s: float | None = None,
    progress: Callable[[float], None] | None = None,
    certificates: CertificateWriter | None = None,
    **options: Any,
) -> LogRun:
    """Identify from a log.

    Args:
        log: of the robot's joints, in the robot's order.
        update_s: s of data between updates; None: the configured time, or longer if that were more than 40 updates.
        progress: called with the share that is done.
        certificates: are written for each update; None for none.
        options: of :class:`Identifier`.

    Raises:
        ParameterError: the log's joints are not the model's, or ``update_s`` is not positive.
    """
    if log.joint_names != model.joint_names:
        raise ParameterError(f"log of {list(log.joint_names)}: expected {list(model.joint_names)}")
    if update_s is not None and not update_s > 0.0:
        raise ParameterError(f"update_s = {update_s!r}: expected a time > 0 s")
    m = log.measurements
    begin = time.perf_counter()
    identifier = Identifier(model, **options)
    if update_s is None:
        finite = m.stamps[np.isfinite(m.stamps)]
        duration = float(np.ptp(finite)) if finite.size else 0.0
        update_s = max(model.settings.identification.update_s, duration / _UPDATES)
    records: list[UpdateRecord] = []
    result: UpdateResult | None = None
    causes, proved = WidthCauses(identifier.box), False
    done = 0
    for point in update_points(m.stamps, update_s):
        start = time.perf_counter()
        while done < point:
            end = min(done + _BATCH, int(point))
            batch = m[done:end]
            identifier.add(batch)
            if certificates is not None:
                certificates.add(batch)
            done = end
            if progress is not None:
                progress(done / len(m))
        latest = identifier.update(final=point == len(m))
        if latest.status is UpdateStatus.NO_DATA and result is not None:
            continue
        result = latest
        if latest.proof is not None:
            causes.add(latest.proof)
            proved = True
        if certificates is not None:
            certificates.write(latest)
        past = m.stamps[:done][np.isfinite(m.stamps[:done])]
        records.append(
            UpdateRecord(
                float(past[-1]) if past.size else 0.0,
                latest.box.payload_lower,
                latest.nominal,
                latest.box.payload_upper,
                latest.status.name,
                time.perf_counter() - start,
                latest.rows,
            )
        )
        if latest.status is UpdateStatus.EMPTY_SET:
            break
    return LogRun(
        records=tuple(records),
        result=result,
        box=identifier.box,
        samples=done,
        seconds=time.perf_counter() - begin,
        empty=result is not None and result.status is UpdateStatus.EMPTY_SET,
        message=result.message if result is not None else "no update",
        identifier=identifier,
        rejected=dict(result.rejected) if result is not None else {},
        widths=causes if proved else None,
    )


def with_best_fit(
    run: LogRun, log: Log, model: RobotModel, payload_constraints: PayloadConstraints | None = None
) -> LogRun:
    """The run with the log's best fit as its last estimate; as it was where nothing was proved, or the fit fails.

    Args:
        log: of the robot's joints.
        payload_constraints: of hand and payload; None for what the configuration declares.
    """
    proved = [k for k, record in enumerate(run.records) if record.status == "OK"]
    if not proved or run.empty:
        return run
    fit = fit_log(log, model, run.box, payload_constraints)
    if fit is None:
        return run
    records = [
        replace(record, nominal=fit.theta) if k >= proved[-1] else record for k, record in enumerate(run.records)
    ]
    return replace(run, records=tuple(records), fit=fit)


def fit_log(
    log: Log, model: RobotModel, box: ParameterBox, payload_constraints: PayloadConstraints | None = None
) -> BestFit | None:
    """The log's best fit; None if there is no window, or the fit fails: an estimate is no reason to lose bounds.

    Args:
        log: of the robot's joints.
        model: the arm.
        box: that it lies in, of all 14 n parameters.
        payload_constraints: of hand and payload; None for what the configuration declares.
    """
    errors = MeasurementErrors.from_model(model)
    sampled = sample_windows(log, model, errors, _FIT_WINDOWS)
    # Proved equations stand about the middle of all torques that a measurement may mean, not about the measured one.
    rows = None if sampled is None else sampled.rows(model, replace(errors, torque_rel=np.zeros(model.n)))
    if rows is None or not len(rows):
        return None
    try:
        return best_fit(
            rows,
            sensor_prior(model.arm_prior, errors),
            sensor_prior(box, errors),
            per_joint(model.settings.measurement.torque_rel, model.n),
            PayloadConstraints.from_model(model) if payload_constraints is None else payload_constraints,
        )
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return None


@dataclass(frozen=True, eq=False)
class Residuals:
    """Equations of windows all over the log, for one parameter vector inside the bounds that fits them well."""

    time: FloatArray  #: (W,) middle of each of the shortest windows, s
    residual: FloatArray  #: (W, n) what is left there, as a mean torque, N m
    bound: FloatArray  #: (W, n) half width of the equation, N m: what the declared errors allow
    parts: FloatArray  #: (n, causes) mean share of each cause in the half width of longer windows, N m
    causes: tuple[str, ...]


def residuals(log: Log, model: RobotModel, box: ParameterBox, count: int = 300) -> Residuals | None:
    """Residuals against the noise bound, for pictures: they prove nothing.

    ``log``: of the robot's joints; ``box``: the final one; the parameters are fitted inside it.
    Returns None if the log has no window without gap.
    """
    errors = MeasurementErrors.from_model(model)
    sampled = sample_windows(log, model, errors, count)
    rows = None if sampled is None else sampled.rows(model, errors)
    if sampled is None or rows is None or not len(rows):
        return None
    box = sensor_prior(box, errors)
    scale = np.where(box.rad > 0.0, box.rad, 1.0)
    weight = 1.0 / np.maximum(rows.slack, 1e-12)
    right = (rows.target - rows.matrix @ box.mid) * weight
    matrix = rows.matrix * (scale * weight[:, None])
    # A little of the prior keeps what the windows do not tell at the middle of the box.
    matrix = np.vstack([matrix, 0.1 * np.eye(box.size)])
    right = np.concatenate([right, np.zeros(box.size)])
    limit = np.where(box.rad > 0.0, 1.0, 1e-9)
    theta = box.mid + scale * lsq_linear(matrix, right, (-limit, limit), max_iter=200).x
    n = model.n
    short = sampled.shortest(model, errors)
    steps = short.rows(model, errors)
    if not len(steps):
        steps = rows
    length = steps.end - steps.start
    parts = rows.parts / (rows.end - rows.start)[:, None]
    return Residuals(
        time=(0.5 * (steps.start + steps.end)).reshape(-1, n)[:, 0],
        residual=((steps.matrix @ theta - steps.target) / length).reshape(-1, n),
        bound=(steps.slack / length).reshape(-1, n),
        parts=parts.reshape(-1, n, parts.shape[1]).mean(axis=0),
        causes=tuple(ERROR_CAUSES),
    )
