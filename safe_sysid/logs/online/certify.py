"""Certificates during an identification: one per update, with the log that they name.

They are taken back once no parameters agree with all measurements: an assumption that all of them rest on is false.
"""

from __future__ import annotations

import json
from pathlib import Path

from safe_sysid.identification.bounds.proof import UpdateProof
from safe_sysid.identification.certificates.files.update import CertificateContext, CertificateError, write_certificate
from safe_sysid.identification.digest import LogDigest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import UpdateResult, UpdateStatus
from safe_sysid.robot.model import RobotModel
from safe_sysid.whole_files import write_text

__all__ = ["WITHDRAWN", "CertificateWriter"]

#: Schema of what is left in place of certificates that were taken back, and how such files are called.
WITHDRAWN = "safe_sysid/withdrawn-certificates/1"

#: Certificates that are kept while none can be written; about 0.3 MB each.
_MOST_WAITING = 64


class CertificateWriter:
    """Follows an identifier: sees all samples that it sees, and writes what each update proves."""

    def __init__(
        self,
        directory: Path,
        model: RobotModel,
        errors: MeasurementErrors,
        method: str,
        tare: tuple[str, int] | None = None,
    ) -> None:
        """Start a chain. ``tare``: hash and number of samples of the tare's log, if its rows are used."""
        self._directory, self._model, self._errors, self._method = directory, model, errors, method
        self._tare = tare
        self._digest = LogDigest(model.joint_names)
        self.last: Path | None = None
        self.written = 0
        self._waiting: list[tuple[UpdateProof, CertificateContext]] = []
        self._lost = False
        self._paths: list[Path] = []
        self.withdrawn = ""

    @property
    def log_sha256(self) -> str:
        """Hash of the samples so far."""
        return self._digest.hexdigest()

    def add(self, measurements: Measurements) -> None:
        """Samples that the identifier is given, in the same order."""
        self._digest.update(measurements)

    def write(self, result: UpdateResult) -> None:
        """Certificate of an update, if it proved something; if the set is empty, all are taken back.

        ``result``: of the update that followed the samples so far.

        Raises:
            CertificateError: it cannot be written: it is kept, and written before the next one, as each certificate
                rests on the one before it. If too many wait, this epoch gets no more.
        """
        if result.status is UpdateStatus.EMPTY_SET:
            self.withdraw(result.box.epoch, result.message)
        if result.proof is None or self.withdrawn:
            return
        context = CertificateContext(
            model=self._model,
            errors=self._errors,
            epoch=result.box.epoch,
            seq=result.box.seq,
            log_sha256=self._digest.hexdigest(),
            samples=self._digest.count,
            method=self._method,
            tare_sha256=None if self._tare is None else self._tare[0],
            tare_samples=0 if self._tare is None else self._tare[1],
        )
        if self._lost or len(self._waiting) >= _MOST_WAITING:
            self._lost = True
            self.flush()
            raise CertificateError(
                f"{self._directory}: {_MOST_WAITING} certificates could not be written: later ones of epoch "
                f"{context.epoch} would rest on what is missing and are left out"
            )
        self._waiting.append((result.proof, context))
        self.flush()

    def flush(self) -> None:
        """Write what could not be written before, oldest first.

        Raises:
            CertificateError: it still cannot be.
        """
        while self._waiting:
            self.last = write_certificate(self._directory, *self._waiting[0], self.last)
            self._paths.append(self.last)
            self._waiting.pop(0)
            self.written += 1

    def withdraw(self, epoch: int, reason: str) -> None:
        """Remove what was written for this payload, say why in ``withdrawn_EPOCH.json``, and write nothing more.

        Raises:
            CertificateError: a file cannot be removed or written.
        """
        if self.withdrawn:
            return
        self.withdrawn, count = reason, len(self._paths) + len(self._waiting)
        self._waiting.clear()
        content = {
            "schema": WITHDRAWN,
            "epoch": epoch,
            "certificates": count,
            "log": {"sha256": self._digest.hexdigest(), "samples": self._digest.count},
            "reason": reason,
        }
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            write_text(self._directory / f"withdrawn_{epoch}.json", json.dumps(content, indent=1) + "\n")
            while self._paths:  # the last one first: at no time is there a gap in the chain
                path = self._paths.pop()
                path.unlink(missing_ok=True)
                path.with_suffix(".npz").unlink(missing_ok=True)
        except OSError as error:
            raise CertificateError(
                f"{self._directory}: certificates of epoch {epoch} cannot be withdrawn: {error.strerror or error}"
            ) from error
        self.last, self.written = None, 0
