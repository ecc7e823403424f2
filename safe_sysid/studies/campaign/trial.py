"""One trial: the identifier sees a log, and the truth judges its bounds; worst errors are aimed by what it answers."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.chain import ChainChecker
from safe_sysid.identification.certificates.files.update import CertificateContext, read_certificate, write_certificate
from safe_sysid.identification.certificates.row_check import LogBook, NamedLog
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier, UpdateResult
from safe_sysid.identification.tare.tare import Tare, TareError, make_tare
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.campaign.ascent import (
    RecordDynamics,
    aimed_direction,
    field_of_rows,
    signs_of_field,
    worst_gravity,
)
from safe_sysid.studies.campaign.cases.case import IdentificationCase, build_case
from safe_sysid.studies.campaign.cases.noise import Signs, draw_signs
from safe_sysid.studies.campaign.results import write_summary
from safe_sysid.studies.campaign.verdict import TruthViolations

__all__ = ["CertificateTrail", "aimed", "attack", "neutral", "pushed", "repeat_trial", "run_trial"]


class CertificateTrail:
    """Certificates of the updates of one log."""

    def __init__(self, model: RobotModel, log: Measurements, tare: Measurements | None) -> None:
        """Start with no update. ``tare``: all samples of the motion with the empty hand; None without."""
        self._model, self._log, self._tare = model, log, tare
        self._errors = MeasurementErrors.from_model(model)
        self._directory = tempfile.TemporaryDirectory(prefix="safe_sysid_campaign_")
        self._paths: list[Path] = []
        self._faults: list[str] = []

    def add(self, result: UpdateResult, samples: int) -> None:
        """Write the certificate of an update, if it published a box."""
        if result.proof is None:
            return
        names = self._model.joint_names
        context = CertificateContext(
            model=self._model,
            errors=self._errors,
            epoch=result.box.epoch,
            seq=result.box.seq,
            log_sha256=log_digest(names, self._log[:samples]),
            samples=samples,
            method="campaign",
            tare_sha256=None if self._tare is None else log_digest(names, self._tare),
            tare_samples=0 if self._tare is None else len(self._tare),
        )
        try:
            last = self._paths[-1] if self._paths else None
            self._paths.append(write_certificate(self._directory.name, result.proof, context, last))
        except SafeSysIdError as error:
            self._faults.append(f"certificate not written: {error}")

    def faults(self) -> list[str]:
        """What the checker refuses; the files are gone afterwards."""
        names = self._model.joint_names
        run = LogBook([NamedLog("log", names, self._log)])
        tare = LogBook([] if self._tare is None else [NamedLog("tare", names, self._tare)])
        try:
            checker = ChainChecker(self._model, run, tare_logs=tare)
            for verdict in checker.check([read_certificate(path) for path in self._paths]):
                if verdict.reason is not None:
                    self._faults.append(f"certificate refused: {verdict.reason}")
        except SafeSysIdError as error:
            self._faults.append(f"certificate not checked: {error}")
        finally:
            self._directory.cleanup()
        return self._faults


_ASCENTS = 2  # solves whose multipliers aim the next errors


def run_trial(seed: int, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """One trial from its number alone; everything but ``seconds`` is the same wherever it runs.

    ``options``: see :func:`~safe_sysid.studies.campaign.cases.case.build_case`.
    Returns plain data for JSON: ``index``, ``settings``, and what :class:`~.verdict.TruthViolations` says.
    """
    began = time.thread_time()
    case = build_case(seed, index, options)
    verdict, _, _ = attack(case)
    return _result(case, verdict, began)


def repeat_trial(
    seed: int, index: int, options: dict[str, Any], say: Callable[[str], None], log: Path | None
) -> dict[str, Any]:
    """One trial again, telling every update; optionally its last log, with the truth, in a file.

    Args:
        options: see :func:`~safe_sysid.studies.campaign.cases.case.build_case`.
        log: ``.npz`` file to write the log to; beside it, ending in ``.json``, the truth and the prior.

    Raises:
        LogError: the log cannot be written.
        CampaignError: the truth cannot be written.
    """
    began = time.thread_time()
    case = build_case(seed, index, options)
    verdict, model, data = attack(case, say)
    if log is not None:
        write_log(log, model.joint_names, data)
        truth = {"theta": case.theta, "prior_lower": model.arm_prior.lower, "prior_upper": model.arm_prior.upper}
        facts = {name: values.tolist() for name, values in truth.items()}
        write_summary(log.with_suffix(".json"), {"settings": case.settings.to_dict(), **facts})
    return _result(case, verdict, began)


def _result(case: IdentificationCase, verdict: TruthViolations, began: float) -> dict[str, Any]:
    return {
        "index": case.seeds[1],
        "settings": case.settings.to_dict(),
        **verdict.to_dict(),
        "seconds": round(time.thread_time() - began, 4),
    }


def attack(
    case: IdentificationCase, say: Callable[[str], None] | None = None
) -> tuple[TruthViolations, RobotModel, Measurements]:
    """Make the errors, let the identifier answer, judge; also what it was told and the log of the last answer."""
    s = case.settings
    verdict = TruthViolations(case.theta, s.component, s.side, say, case.unknowns)
    signs = draw_signs(case.rng(9), s.noise, case.record, case.torque(neutral(case)))
    place: FloatArray | None = None
    if s.noise in ("aimed", "ascent"):
        functional = s.side * np.eye(1, case.theta.size, case.arm.layout.payload.start + s.component)[0]
        case, signs, place, dynamics = aimed(case, signs, functional)
        for step in range(_ASCENTS if s.noise == "ascent" else 0):
            model = case.model(place)
            data, order = case.log(signs)
            answer = _identify(model, data, 1, case.row_theta(signs), verdict)
            proof = None if answer is None else getattr(answer, "proof", None)
            if proof is None or not len(proof.rows):
                break
            bound = verdict.nearest_bound(proof.lower, proof.upper, model) if step else _wanted(case)
            sign = 1.0 if bound >= 10 else -1.0
            field, rest = field_of_rows(
                proof.rows, sign * proof.row_multipliers[bound], data.stamps, order, len(case.record.times) - 1
            )
            rest[case.arm.layout.payload][bound % 10] += sign
            place = np.where(rest == 0.0, place, np.sign(rest))
            signs = pushed(case, field, place, dynamics, signs)
    model, data = case.model(place), case.log(signs)[0]
    tare = _tare(case, model, signs, verdict)
    trail = CertificateTrail(model, data, None if tare is None else case.tare_log()) if s.certified else None
    _identify(model, data, s.updates, case.row_theta(signs), verdict, tare, trail)
    if trail is not None:
        verdict.faults += trail.faults()
    return verdict, model, data


def neutral(case: IdentificationCase) -> Signs:
    """No errors at all."""
    count, n = len(case.record.times), case.arm.n
    shapes = ((count, n), (count, n), (count, n), (count,), (count, n), (n,))
    return Signs(*(np.zeros(shape) for shape in shapes))


def _wanted(case: IdentificationCase) -> int:
    return case.settings.component + (10 if case.settings.side > 0.0 else 0)


def aimed(
    case: IdentificationCase, before: Signs, functional: FloatArray
) -> tuple[IdentificationCase, Signs, FloatArray, RecordDynamics]:
    """The trial with errors and a prior that push an upper bound, before anybody answered.

    Args:
        before: errors where nothing pushes.
        functional: (14 n,) what the bound is of, as coefficients of parameters in half widths of their prior.
    """
    s, levels, record = case.settings, case.levels, case.record
    link = s.source == "link"
    dynamics = RecordDynamics.of(case.arm, record, s.transition, link, case.has_state_errors)
    torque = np.abs(case.torque(before))[1:]
    h = np.diff(record.times)[:, None]
    noise = levels.torque_abs + levels.drift + levels.torque_rel * torque + (0.0 if link else record.stuck[1:])
    half_width = h * (noise + 1e-6 * (1.0 + torque))
    if levels.stamp > 1e-9:
        half_width = half_width + 2.0 * levels.stamp * np.abs(dynamics.growth)
    if np.any(levels.velocity):
        half_width = half_width + 2.0 * np.einsum("kij,j->ki", np.abs(dynamics.inertia[1:]), levels.velocity)
    scale = case.model(None).arm_prior.rad
    field, place = aimed_direction(dynamics, half_width, scale, functional, s.ridge)
    if case.remake is not None and levels.angle + levels.relative > 0.0:
        gravity = worst_gravity(field, case.arm, record, levels.angle, levels.relative)
        case = replace(case, record=case.remake(gravity))
    return case, pushed(case, field, place, dynamics, before), place, dynamics


def pushed(
    case: IdentificationCase, field: FloatArray, place: FloatArray, dynamics: RecordDynamics, before: Signs
) -> Signs:
    """Errors on their bounds along multipliers of equations.

    Args:
        field: (N, n) multipliers.
        place: (14 n,) of the truth in the prior.
        before: errors where nothing pushes.
    """
    sampled = case.settings.effort == "sampled"
    return signs_of_field(field, place, dynamics, case.record, case.viscous, case.levels, sampled, before)


def _tare(case: IdentificationCase, model: RobotModel, signs: Signs, verdict: TruthViolations) -> Tare | None:
    """Equations of the motion with the empty hand, each judged by the truth of today."""
    log = case.tare_log()
    if log is None:
        return None
    try:
        tare = make_tare(model, MeasurementErrors.from_model(model), log)
    except TareError as error:
        if error.rows is not None:  # else nothing was learnt, which is no harm
            verdict.empty.append(str(error))
        return None
    theta = case.row_theta(signs)
    theta[case.arm.layout.payload] = case.arm.hand
    verdict.rows(tare.rows, theta)
    return tare


def _identify(
    model: RobotModel,
    data: Measurements,
    updates: int,
    row_theta: FloatArray,
    verdict: TruthViolations,
    tare: Tare | None = None,
    trail: CertificateTrail | None = None,
) -> Any:
    """Feed the log in batches; the last answer."""
    identifier = Identifier(model, **({} if tare is None else tare.options()))
    verdict.begin(model, data, row_theta)
    answer = None
    for part in np.array_split(np.arange(len(data)), updates):
        identifier.add(data[part])
        answer = identifier.update()
        verdict.update(answer)
        if trail is not None:
            trail.add(answer, int(part[-1]) + 1)
    return answer
