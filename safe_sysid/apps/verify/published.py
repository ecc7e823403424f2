"""Check of everything that ``identify`` publishes: recomputes each field from robot, log and proved box.

A number that is not recomputed can be forged. So every field of ``bounds.yaml``, ``result.json`` and ``payload.urdf``
is compared with what it must be, but for those in :data:`TOLD`, which claim nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.errors import SafeSysIdError, short
from safe_sysid.identification.certificates.files.update import BoundsCertificate
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.settings import METHODS
from safe_sysid.input_limits import MAX_JSON_BYTES, parse_json, read_regular_text
from safe_sysid.logs.bounds_file import bounds_of, bounds_text, read_bounds
from safe_sysid.logs.checks.checks import check_log
from safe_sysid.logs.log import Log
from safe_sysid.report.identification.output import declared_texts
from safe_sysid.report.identification.result import IdentificationResult, payload_alone
from safe_sysid.report.identification.urdf import payload_urdf
from safe_sysid.robot.identity import differences
from safe_sysid.robot.model import RobotModel

__all__ = ["TOLD", "CertificateChain", "published_problem", "refuted"]

#: Fields of ``result.json`` that a run tells of itself and that no claim rests on; ``[]`` stands for any entry. Nominal
#: values, which are estimates, are only asked to be the same everywhere and inside what is proved.
TOLD: Mapping[str, str] = {
    "version": "which program wrote it",
    "message": "of the identifier, for people",
    "log.path": "where the log was read from",
    "log.scaled": "how the recording was read; the log beside it is what was used",
    "tare": "when the tare was made; that one was used, and how many samples it has, is recomputed",
    "rejected": "how many samples and windows made no equation",
    "findings": "warnings about the recording; the log is checked for errors again",
    "diagnosis": "advice",
    "seconds": "how long it took",
    "errors_used": "how much of the declared errors the data use up, by a solver",
    "parameters[].standard_error": "statistical, of an estimate: no claim",
    "payload_mass_error": "statistical, of an estimate: no claim",
    "width_causes": "advice",
    "nominal_consistent": "of an estimate: whether some hand leaves a possible payload",
    "updates[].nominal": "an estimate of the time; the last one is the result's, all are inside their bounds",
    "updates[].seconds": "how long it took",
    "updates[].rows": "how many equations were kept; those that were used are in the certificate",
}
FILES = ("bounds.yaml", "payload.urdf", "result.json")
#: Another machine's linear algebra rounds the payload's numbers otherwise; they are published wider by 1e-12 of this.
_ROUNDING = 1e-13
#: What the payload's nominal, an estimate, may differ by on another machine.
_NEAR = 1e-9


@dataclass(frozen=True, eq=False)
class CertificateChain:
    """What was proved of a directory: all its certificates, of one epoch, and the log that they rest on."""

    model: RobotModel  #: trusted
    certificates: Sequence[BoundsCertificate]  #: in order, proved
    log: Log
    tare_samples: int | None  #: of the tare's log; None without one


class _DifferentError(Exception):
    """Text: field, what is there, and what was expected."""


def refuted(folder: Path) -> str | None:
    """Why a directory says of itself that nothing is guaranteed; None if it does not.

    ``folder``: with or without certificates.
    """
    for path in sorted(folder.glob("withdrawn_*.json")):
        content = _mapping(path)
        return (
            f"{path.name}: certificates of epoch {short(content.get('epoch'), 20)} were withdrawn: "
            f"{short(content.get('reason', 'no reason is given'), 300)}"
        )
    result = folder / "result.json"
    if result.is_file():
        content = _mapping(result)
        if "guaranteed" in content or "status" in content:
            for key, expected in (("status", "ok"), ("guaranteed", True)):
                if content.get(key) != expected:
                    return (
                        f"result.json: {key} = {short(content.get(key), 80)}: expected {expected!r}: nothing of this "
                        "run is guaranteed"
                    )
    identifier = folder / "identifier.json"
    updates = _mapping(identifier).get("updates") if identifier.is_file() else []
    if not isinstance(updates, list):
        return "identifier.json: no list of updates can be read: expected the identifier's: they say how the run ended"
    for update in updates:
        if isinstance(update, dict) and update.get("status") == "EMPTY_SET":
            return f"identifier.json: box {short(update.get('identity'), 20)}: {short(update.get('message'), 300)}"
    return None


def _mapping(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_regular_text(path, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        content = None
    return content if isinstance(content, dict) else {"status": "unreadable"}


def published_problem(folder: Path, chain: CertificateChain) -> str | None:
    """The first published field that is not what robot, log and proved box give; None if there is none.

    ``folder``: with the files; where none of :data:`FILES` is there, nothing is published.
    """
    there = [name for name in FILES if (folder / name).is_file()]
    if not there or (there == ["result.json"] and "parameters" not in _mapping(folder / "result.json")):
        return None
    for name in FILES:
        if name not in there:
            return f"{name}: missing, {there[0]} is there: expected {', '.join(FILES)} of one run"
    try:
        result = _result(folder / "result.json", chain)
        _bounds(folder / "bounds.yaml", result, chain)
        _payload(folder / "payload.urdf", result, chain)
        _log(chain)
    except _DifferentError as error:
        return str(error)
    except (OSError, ValueError, RecursionError, SafeSysIdError) as error:
        return f"{folder}: cannot be compared: {short(error, 300)}"
    return None


def _need(file: str, field: str, found: Any, expected: Any) -> None:
    if type(found) is not type(expected) or found != expected:
        raise _DifferentError(f"{file}: {field} = {short(found, 80)}: expected {short(expected, 80)}")


def _result(path: Path, chain: CertificateChain) -> IdentificationResult:
    """``result.json``, all but what is told recomputed."""
    content = parse_json(read_regular_text(path, MAX_JSON_BYTES))
    try:
        result = IdentificationResult.model_validate(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise _DifferentError(f"result.json: {field} = {short(first.get('input'), 80)}: {first['msg']}") from None
    for field, there, whole in differences(content, result.model_dump(mode="json")):  # what has a default, too
        raise _DifferentError(f"result.json: {field} = {short(there, 80)}: expected {short(whole, 80)}")
    for field, found, expected in _stated_fields(result, chain):
        _need("result.json", field, found, expected)
    model, last = chain.model, chain.certificates[-1]
    lower, upper = last.arrays["lower"], last.arrays["upper"]
    nominal = np.array([entry.nominal for entry in result.parameters])
    for name, low, value, high in zip(PAYLOAD_NAMES, lower, nominal, upper, strict=True):
        if not low <= value <= high:
            raise _DifferentError(f"result.json: {name}: nominal = {value!r}: expected it inside the bounds")
    alone = payload_alone(model, lower, nominal, upper)
    size = 1.0 + max(float(np.abs(np.array([alone.lower, alone.upper])).max()), 1.0)
    for name in fields_of(result.payload):
        found, expected = getattr(result.payload, name), getattr(alone, name)
        if name in ("lower", "nominal", "upper"):
            near = _NEAR if name == "nominal" else _ROUNDING
            for k, (value, right) in enumerate(zip(found, expected, strict=True)):
                if not abs(value - right) <= near * size:
                    raise _DifferentError(
                        f"result.json: payload.{name} of {PAYLOAD_NAMES[k]} = {value!r}: expected {right!r}"
                    )
        else:
            _need("result.json", f"payload.{name}", found, expected)
    return result


def fields_of(model: Any) -> tuple[str, ...]:
    """Names of the fields of a pydantic model or a dataclass."""
    return (
        tuple(type(model).model_fields)
        if hasattr(type(model), "model_fields")
        else tuple(field.name for field in fields(model))
    )


def _stated_fields(result: IdentificationResult, chain: CertificateChain) -> Iterator[tuple[str, Any, Any]]:
    """Field, what the file says, and what follows from robot, log and certificates."""
    model, last, prior = chain.model, chain.certificates[-1], chain.model.arm_prior
    log, m = chain.log, chain.log.measurements
    yield "schema_version", result.schema_version, 1
    yield "robot", result.robot, model.name
    yield "frame", result.frame, model.joint_names[-1]
    for certificate in chain.certificates:
        yield f"method ({certificate.path.name})", result.method, _method(certificate)
    yield "guaranteed", result.guaranteed, True
    yield "status", result.status, "ok"
    yield "exit_status", result.exit_status, 0
    yield "certificate", result.certificate, last.path.name
    yield "log.filtered_hz", result.log.filtered_hz, None
    yield "log.samples", result.log.samples, len(m)
    stamps = m.stamps[np.isfinite(m.stamps)]
    yield "log.start_s", result.log.start_s, float(stamps.min()) if stamps.size else 0.0
    yield "log.end_s", result.log.end_s, float(stamps.max()) if stamps.size else 0.0
    yield "log.origin_ns", result.log.origin_ns, log.origin_ns
    yield "log.sha256", result.log.sha256, log_digest(log.joint_names, m)
    tare = None if chain.tare_samples is None else f"{chain.tare_samples} samples of "
    yield "tare", None if result.tare is None else result.tare[: len(tare or "")], tare
    yield "declared", result.declared, declared_texts(model, tare is not None)
    for k, (entry, name, unit) in enumerate(zip(result.parameters, PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True)):
        where = f"parameters[{k}]"
        yield f"{where}.name", entry.name, name
        yield f"{where}.unit", entry.unit, unit
        yield f"lower of {name}", entry.lower, float(last.arrays["lower"][k])
        yield f"upper of {name}", entry.upper, float(last.arrays["upper"][k])
        yield f"prior_lower of {name}", entry.prior_lower, float(prior.payload_lower[k])
        yield f"prior_upper of {name}", entry.prior_upper, float(prior.payload_upper[k])
    yield from _updates(result, chain)
    wrong = [f.code for f in result.findings if f.level == "error"]
    yield "findings with level error", wrong, []


def _updates(result: IdentificationResult, chain: CertificateChain) -> Iterator[tuple[str, Any, Any]]:
    """One certificate for each update that published bounds; in the others the bounds before it stand."""
    prior, stamps = chain.model.arm_prior, chain.log.measurements.stamps
    proved = [update for update in result.updates if update.status == "OK"]
    yield "number of updates with status OK", len(proved), len(chain.certificates)
    lower, upper, done = prior.payload_lower.tolist(), prior.payload_upper.tolist(), 0
    nominal: list[float] | None = None
    for k, update in enumerate(result.updates):
        where = f"updates[{k}]"
        if update.status == "OK":
            certificate = chain.certificates[done]
            lower, upper = certificate.arrays["lower"].tolist(), certificate.arrays["upper"].tolist()
            past = stamps[: certificate.header["log"]["samples"]]
            past = past[np.isfinite(past)]
            yield f"{where}.time_s", update.time_s, float(past[-1]) if past.size else 0.0
            done, nominal = done + 1, update.nominal
        else:
            yield (f"{where}.status in NO_DATA, SOLVER_FAILED", update.status in ("NO_DATA", "SOLVER_FAILED"), True)
            yield f"{where}.time_s is a stamp", bool(np.any(stamps == update.time_s)), True
        yield f"{where}.lower", update.lower, lower
        yield f"{where}.upper", update.upper, upper
        inside = all(a <= x <= b for a, x, b in zip(lower, update.nominal, upper, strict=True))
        yield f"{where}.nominal inside", inside, True
        if update.status != "OK" and nominal is not None:
            yield f"{where}.nominal", update.nominal, nominal
    if result.updates:
        yield "updates[-1].nominal", result.updates[-1].nominal, [p.nominal for p in result.parameters]


def _method(last: BoundsCertificate) -> str:
    """As the certificate says; linear programs alone make no cuts of a body's consistency."""
    method = str(last.header["method"])
    if method not in METHODS or (method == "lp" and np.any(last.arrays["cut_kind"] == "semidefinite")):
        raise _DifferentError(
            f"{last.path.name}: method = {short(method, 80)}: expected one of {', '.join(METHODS)}, the one that "
            "its cuts are of"
        )
    return method


def _bounds(path: Path, result: IdentificationResult, chain: CertificateChain) -> None:
    """``bounds.yaml``: numbers of the last certificate, nominal of the result, assumptions of the robot."""
    last, found = chain.certificates[-1], read_bounds(path)
    nominal = np.array([entry.nominal for entry in result.parameters])
    expected = bounds_of(
        chain.model,
        (last.arrays["lower"], nominal, last.arrays["upper"]),
        (int(last.header["epoch"]), int(last.header["seq"])),
        result.method,
        True,
        last.path.name,
    )
    for field in fields(expected):
        mine, theirs = getattr(expected, field.name), getattr(found, field.name)
        if isinstance(mine, np.ndarray):
            for k, name in enumerate(PAYLOAD_NAMES):
                _need("bounds.yaml", f"{field.name} of {name}", float(theirs[k]), float(mine[k]))
        elif field.name == "assumed":
            _need("bounds.yaml", "assumed", dict(theirs), dict(mine))
        else:
            _need("bounds.yaml", field.name, theirs, mine)
    remarks = _remarks(read_regular_text(path, MAX_JSON_BYTES))
    _need("bounds.yaml", "comments", remarks, _remarks(bounds_text(expected)))


def _remarks(text: str) -> list[str]:
    return re.findall(r"#.*", text)


def _payload(path: Path, result: IdentificationResult, chain: CertificateChain) -> None:
    """``payload.urdf``: the payload of ``result.json`` as it is written, to the last character of what is claimed.

    Nominal numbers, outside of the comment, may be another machine's rounding.
    """
    text = read_regular_text(path, MAX_JSON_BYTES)
    expected = payload_urdf(result.payload, chain.model.name, True)
    for number, (mine, theirs) in enumerate(zip(expected.splitlines(), text.splitlines(), strict=False), 1):
        if not (mine.lstrip().startswith(("<origin", "<mass", "<inertia ")) and _nearly(mine, theirs)):
            _need("payload.urdf", f"line {number}", theirs, mine)
    _need("payload.urdf", "number of lines", len(text.splitlines()), len(expected.splitlines()))


_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


def _nearly(mine: str, theirs: str) -> bool:
    """The same text, its numbers the same but for rounding."""
    pairs = zip(_NUMBER.findall(mine), _NUMBER.findall(theirs), strict=False)
    near = all(abs(float(a) - float(b)) <= _ROUNDING * (1.0 + abs(float(a))) for a, b in pairs)
    return near and _NUMBER.sub("#", mine) == _NUMBER.sub("#", theirs)


def _log(chain: CertificateChain) -> None:
    """Bounds are not guaranteed of a log that the checks find errors in."""
    model = chain.model
    for finding in check_log(chain.log, model, MeasurementErrors.from_model(model)):
        if finding.level == "error":
            raise _DifferentError(f"log.npz: {finding.text}; only --force goes on with it, and guarantees nothing")
