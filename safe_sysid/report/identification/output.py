"""What an identification leaves: a result, its files, a table and a last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from safe_sysid import __version__
from safe_sysid.decimals import bracketed, share_at_most
from safe_sysid.logs.bounds_file import bounds_of, write_bounds
from safe_sysid.logs.checks.findings import Finding
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.logs.log import Log
from safe_sysid.logs.online.certify import CertificateWriter
from safe_sysid.logs.run import LogRun, residuals
from safe_sysid.report.identification.html import identification_html
from safe_sysid.report.identification.result import (
    FindingEntry,
    IdentificationResult,
    LogEntry,
    ParameterEntry,
    ResultUpdate,
    payload_alone,
    write_result,
)
from safe_sysid.report.identification.urdf import write_urdf
from safe_sysid.robot.effective import with_units
from safe_sysid.robot.model import RobotModel
from safe_sysid.whole_files import write_text

__all__ = ["assemble_result", "declared_texts", "print_result", "verdict_line", "write_all", "write_published"]


def assemble_result(
    model: RobotModel,
    log: Log,
    run: LogRun,
    findings: Sequence[Finding],
    method: str,
    path: str,
    tare: str | None,
    guaranteed: bool,
    filtered_hz: float | None,
    certificates: CertificateWriter | None,
    seconds: Mapping[str, float],
    diagnosis: Sequence[str] = (),
    errors_used: float | None = None,
) -> IdentificationResult:
    """The result as a structure.

    Args:
        path: of the log's file, for people.
        tare: of the tare file; None without one.
        guaranteed: whether the method proves its intervals.
        filtered_hz: what it was low-passed at; None: not at all.
        certificates: that were written; None without.
        errors_used: share of the declared errors that the data use up; None where nothing is proved.
    """
    prior = model.arm_prior
    last = run.records[-1] if run.records else None
    middle = 0.5 * (prior.payload_lower + prior.payload_upper)
    lower = prior.payload_lower if last is None else last.lower
    upper = prior.payload_upper if last is None else last.upper
    nominal = np.clip(middle if last is None else last.nominal, lower, upper)
    # An update without new equations, or one that the solver did not finish, leaves the bounds found before.
    found = any(record.status in ("OK", "ESTIMATE") for record in run.records)
    status: Literal["ok", "empty_set", "no_data"] = "empty_set" if run.empty else "ok" if found else "no_data"
    stamps = log.measurements.stamps[np.isfinite(log.measurements.stamps)]
    written = certificates is not None and certificates.last is not None
    return IdentificationResult(
        version=__version__,
        robot=model.name,
        frame=model.joint_names[-1],
        method=method,
        guaranteed=guaranteed and status == "ok",
        status=status,
        message=run.message,
        exit_status=1 if run.empty else 0 if status == "ok" else 2,
        log=LogEntry(
            path=path,
            samples=len(log),
            start_s=float(stamps.min()) if stamps.size else 0.0,
            end_s=float(stamps.max()) if stamps.size else 0.0,
            origin_ns=log.origin_ns,
            scaled=list(log.columns.get("scaled", ())),
            filtered_hz=filtered_hz,
            sha256=certificates.log_sha256 if certificates is not None and not run.empty else None,
        ),
        tare=tare,
        declared=declared_texts(model, tare is not None),
        parameters=ParameterEntry.ten(
            lower=lower,
            nominal=nominal,
            upper=upper,
            prior_lower=prior.payload_lower,
            prior_upper=prior.payload_upper,
            standard_error=None if run.fit is None else run.fit.standard_error,
        ),
        nominal_consistent=run.fit.consistent
        if run.fit is not None
        else run.result is not None and run.result.nominal_consistent,
        errors_used=errors_used,
        payload_mass_error=None if run.fit is None else run.fit.payload_mass_error,
        width_causes=dict(run.causes),
        payload=payload_alone(model, lower, nominal, upper),
        updates=[
            ResultUpdate(
                time_s=record.time,
                status=record.status,
                lower=record.lower.tolist(),
                nominal=record.nominal.tolist(),
                upper=record.upper.tolist(),
                seconds=record.seconds,
                rows=record.rows,
            )
            for record in run.records
        ],
        rejected={key: int(value) for key, value in run.rejected.items()},
        findings=[FindingEntry.model_validate(finding, from_attributes=True) for finding in findings],
        diagnosis=list(diagnosis),
        certificate=certificates.last.name if written and certificates and certificates.last else None,
        seconds=dict(seconds),
    )


def declared_texts(model: RobotModel, with_tare: bool) -> dict[str, str | None]:
    """The assumptions that the intervals stand on, as texts with units; None: not declared.

    ``with_tare``: whether a tare was used.
    """
    settings, payload = model.settings, model.settings.payload
    out: dict[str, str | None] = {}
    if model.drive_note:
        out["drives"] = model.drive_note
    _flatten(out, "measurement", settings.measurement, model)
    _flatten(out, "identification.acceleration_bound", settings.identification.acceleration_bound, model)
    _flatten(out, "uncertainty", settings.uncertainty, model)
    _flatten(out, "friction_transition_velocity", model.friction_transition_velocity, model)
    for key in ("box", "density", "hand_opening"):
        _flatten(out, f"payload.{key}", getattr(payload, key), model)
    if with_tare:
        _flatten(out, "tare", settings.tare, model)
    return out


def _flatten(out: dict[str, str | None], key: str, value: object, model: RobotModel) -> None:
    """Add a setting, or all that it consists of."""
    if isinstance(value, BaseModel):
        for name, part in value:
            _flatten(out, f"{key}.{name}", part, model)
    elif value is None or isinstance(value, (str, bool)):
        out[key] = None if value is None else str(value)
    else:
        out[key] = with_units(key, np.asarray(value, float), model)


def write_all(
    out: Path, result: IdentificationResult, model: RobotModel, log: Log, run: LogRun, kind: str, command: str
) -> str:
    """Write every file and return the last line for the terminal.

    ``kind``: why the intervals are guaranteed or not, a key of ``GUARANTEES``.
    """
    from safe_sysid.report.identification.pictures import residuals_picture, slack_picture

    verdict = verdict_line(result, out / "report.html", kind)
    write_published(out, result, model, log, run)
    pictures: dict[str, bytes] = {}
    left = residuals(log, model, run.box)
    if left is not None:
        names = log.joint_names
        pictures["Residuals within the declared errors"] = residuals_picture(
            left.time, left.residual, left.bound, names, model.torque_units
        )
        pictures["What the errors are made of"] = slack_picture(left.parts, left.causes, names)
    write_text(out / "report.html", identification_html(result, verdict, pictures, command, kind))
    return verdict


def write_published(out: Path, result: IdentificationResult, model: RobotModel, log: Log, run: LogRun) -> None:
    """Write what programs read, and ``verify`` recomputes: result, and if there are any, bounds, payload and log."""
    if result.log.filtered_hz is None and (result.log.sha256 is not None or result.status == "empty_set"):
        write_log(out / "log.npz", log.joint_names, log.measurements, log.origin_ns)
    if result.status == "ok":
        found = {key: np.array([getattr(p, key) for p in result.parameters]) for key in ("lower", "nominal", "upper")}
        bounds = bounds_of(
            model,
            (found["lower"], found["nominal"], found["upper"]),
            (run.box.epoch, run.box.seq),
            result.method,
            result.guaranteed,
            result.certificate or "",
        )
        write_bounds(out / "bounds.yaml", bounds)
        write_urdf(out / "payload.urdf", result.payload, model.name, result.guaranteed)
    write_result(out / "result.json", result)


def verdict_line(result: IdentificationResult, report: Path, kind: str = "guaranteed") -> str:
    """The last line for the terminal. ``report``: where the page is; ``kind``: a key of ``GUARANTEES``."""
    mass, alone = result.parameters[0], result.payload
    if result.status == "empty_set":
        return f"CONTRADICTION: {result.message}; see {report}"
    if result.status == "no_data":
        return f"NOTHING FOUND: {result.message}; see {report}"
    first, word = ("OK", "guaranteed") if result.guaranteed else ("ESTIMATE", "not guaranteed")
    if kind == "sensor":
        declared = result.declared
        word = (
            f"guaranteed if torque errors are at most {declared.get('measurement.torque_abs')} + "
            f"{declared.get('measurement.torque_rel')} of the torque, as estimated from this log"
        )
    low, nominal, high = alone.texts[0]
    error = f" (standard error {result.payload_mass_error:.2g})" if result.payload_mass_error is not None else ""
    what = f"payload {nominal} kg{error}, in [{low}, {high}] kg"
    if not alone.possible:
        what = f"payload in [{low}, {high}] kg (no estimate: no possible body found inside all intervals)"
    return (
        f"{first}: {what}, with hand and last link in "
        f"{bracketed(mass.lower, mass.upper, 3)} kg, {word}"
        f"{_tested(result)}{_wide(result)}{_drives(result)}; see {report}"
    )


def _drives(result: IdentificationResult) -> str:
    note = result.declared.get("drives")
    return f"; {note}" if note else ""


def _wide(result: IdentificationResult) -> str:
    """What makes the mass's interval wide: the largest causes, and what was declared of the first."""
    if not result.guaranteed or not result.width_causes:
        return ""
    declared = result.declared
    said = {
        "torque error": f" declared as {declared.get('measurement.torque_abs')} + "
        f"{declared.get('measurement.torque_rel')} of the torque",
        "arm parameters": " as `uncertainty` says",
        "friction": " as `uncertainty.floor` says",
        "velocity and position errors": f" declared as {declared.get('measurement.velocity_error')}, "
        f"{declared.get('measurement.position_error')}",
        "sampling": ": acceleration_bound, rate",
        "excitation": ": hold more postures, move all joints",
    }
    first, *others = [(cause, share) for cause, share in result.width_causes.items() if share >= 0.15] or [
        next(iter(result.width_causes.items()))
    ]
    more = "".join(f", {cause} ({share:.0%})" for cause, share in others)
    return f"; wide because of {first[0]} ({first[1]:.0%}{said.get(first[0], '')}){more}"


def _tested(result: IdentificationResult) -> str:
    """How much of what is declared the log could have contradicted."""
    if not result.guaranteed or result.errors_used is None:
        return ""
    duration, updates = result.log.end_s - result.log.start_s, len(result.updates)
    return (
        f" as far as tested: {duration:.3g} s, {updates} update{'' if updates == 1 else 's'}, "
        f"{share_at_most(result.errors_used)} of the declared errors used by the data"
    )


def print_result(console: Console, result: IdentificationResult) -> None:
    """The ten intervals as a table, then what was left out and the diagnosis."""
    if result.status != "ok":
        _print_rest(console, result)
        return
    table = Table(title=f"Last link, hand and payload, in the frame of {result.frame}", title_justify="left")
    for column in ("parameter", "lower", "estimate", "upper", "unit", "prior", "of prior", "std. error"):
        table.add_column(column, justify="left" if column in ("parameter", "unit") else "right")
    for p in result.parameters:
        table.add_row(p.name, *p.texts, p.unit, p.prior_text.replace("[", "\\["), p.share_text, p.error_text)
    console.print(table)
    _print_rest(console, result)


def _print_rest(console: Console, result: IdentificationResult) -> None:
    if result.rejected:
        rejected = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in result.rejected.items())
        console.print(f"left out: {rejected}", markup=False)
    for line in result.diagnosis:
        console.print(f"diagnosis: {line}" if result.status == "empty_set" else line, markup=False, soft_wrap=True)
