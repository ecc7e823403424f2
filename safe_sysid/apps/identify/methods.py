"""Identification of one log by any method: what the command line and ``import safe_sysid`` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from safe_sysid.identification.baselines.methods import estimate_with
from safe_sysid.identification.diagnosis.excitation_words import describe_excitation, weak_combinations
from safe_sysid.identification.diagnosis.log import diagnose_log
from safe_sysid.identification.diagnosis.rows import format_diagnosis
from safe_sysid.identification.diagnosis.slack_watch import SlackWatch
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.tare.tare import Tare
from safe_sysid.logs.checks.findings import Finding
from safe_sysid.logs.log import Log
from safe_sysid.logs.online.certify import CertificateWriter
from safe_sysid.logs.run import LogRun, UpdateRecord, run_log, with_best_fit
from safe_sysid.report.identification.output import assemble_result
from safe_sysid.report.identification.result import IdentificationResult
from safe_sysid.robot.model import RobotModel

__all__ = ["PROVED", "Bars", "identify_log", "run_baseline"]


def run_baseline(log: Log, model: RobotModel, errors: MeasurementErrors, method: str) -> LogRun:
    """Estimate by another method. ``log``: of the robot's joints; ``method``: one of those of :func:`estimate_with`.

    Raises:
        ParameterError: an unknown method, or the log does not excite all parameters, or has no window.
    """
    begin = time.perf_counter()
    m = log.measurements
    answer = estimate_with(method, model, errors, m)
    seconds = time.perf_counter() - begin
    prior = model.arm_prior
    lower = np.where(np.isfinite(answer.lower), answer.lower, prior.payload_lower)
    upper = np.where(np.isfinite(answer.upper), answer.upper, prior.payload_upper)
    finite = m.stamps[np.isfinite(m.stamps)]
    end = float(np.max(finite)) if finite.size else 0.0
    nominal = np.clip(answer.estimate, lower, upper)
    record = UpdateRecord(end, lower, nominal, upper, "ESTIMATE", seconds, 0)
    return LogRun((record,), None, prior, len(m), seconds, False, answer.message)


#: Methods whose intervals are proved; the others are there to compare with.
PROVED = ("lp", "sdp")
#: What shows that something goes on: of a name, what is told the share that is done.
Bars = Callable[[str], AbstractContextManager[Callable[[float], None]]]


def identify_log(
    log: Log,
    model: RobotModel,
    errors: MeasurementErrors,
    method: str,
    kind: str,
    findings: Sequence[Finding],
    path: str,
    out: Path | None,
    update: float | None = None,
    tare: Tare | None = None,
    filtered_hz: float | None = None,
    thorough: bool = False,
    seconds: Mapping[str, float] | None = None,
    bars: Bars = lambda _: nullcontext(lambda _: None),
) -> tuple[LogRun, IdentificationResult]:
    """Intervals and best fit of a proved method, or the estimate of another; certificates are written as it goes.

    Args:
        log: of the arm's joints, in the arm's order.
        kind: why intervals are guaranteed or not, a key of ``GUARANTEES``; certificates are of ``guaranteed`` alone,
            as what is not must leave nothing that looks as if it were.
        findings: of the checks of the log.
        path: of the log, for people.
        out: existing folder of certificates; None: none are written, and nothing is diagnosed.
        update: s of data between updates; None: at most 40 of them.
        tare: of the empty hand.
        filtered_hz: what the log was low-passed at.
        thorough: narrower intervals of a proved method, for more time.
        seconds: that were spent before.

    Raises:
        ParameterError: the log's joints are not the arm's.
    """
    certificates = None
    if kind == "guaranteed" and out is not None:
        named = None if tare is None else (tare.log_hash, tare.samples)
        certificates = CertificateWriter(out, model, errors, method, named)
    with bars("identifying") as progress:
        if method in PROVED:
            known = {} if tare is None else tare.options()
            done = run_log(log, model, update, progress, certificates, method=method, thorough=thorough, **known)
            done = with_best_fit(done, log, model, known.get("payload_constraints"))
        else:
            done = run_baseline(log, model, errors, method)
    begin = time.perf_counter()
    diagnosis = [] if out is None else _diagnosis(log, model, errors, done, tare, bars)
    spent = {**(seconds or {}), "identify": done.seconds, "diagnosis": time.perf_counter() - begin}
    return done, assemble_result(
        model,
        log,
        done,
        findings,
        method,
        path=path,
        tare=None if tare is None else f"{tare.samples} samples of {tare.created:%Y-%m-%d %H:%M} UTC",
        guaranteed=kind == "guaranteed",
        filtered_hz=filtered_hz,
        certificates=certificates,
        seconds=spent,
        diagnosis=diagnosis,
        errors_used=_errors_used(model, errors, done),
    )


def _errors_used(model: RobotModel, errors: MeasurementErrors, done: LogRun) -> float | None:
    """Smallest factor of all half widths at which some parameters of the prior agree with every equation kept."""
    if done.identifier is None or done.empty or not len(done.identifier.rows):
        return None
    return max(0.0, 1.0 - SlackWatch(model, errors).update(done.identifier.rows, model.arm_prior))


def _diagnosis(
    log: Log, model: RobotModel, errors: MeasurementErrors, done: LogRun, tare: Tare | None, bars: Bars
) -> list[str]:
    """Why the data contradict what is declared; else what the motion has hardly shown."""
    if done.identifier is None or done.result is None:
        return []
    if not done.empty:
        return describe_excitation(weak_combinations(model, errors, done.identifier.rows, done.box), done.widths)
    rows = None if tare is None else tare.log_rows
    with bars("diagnosing") as progress:
        return format_diagnosis(diagnose_log(model, errors, log.measurements[: done.samples], rows, progress))
