"""Certificates of a trial: written as a user's identifier would, and walked by the independent checker."""

from __future__ import annotations

import tempfile
from pathlib import Path

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.chain import ChainChecker
from safe_sysid.identification.certificates.file import CertificateContext, read_certificate, write_certificate
from safe_sysid.identification.certificates.row_check import LogBook, NamedLog
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import UpdateResult
from safe_sysid.robot.model import RobotModel

__all__ = ["CertificateTrail"]


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
