"""Certificates beside an identification: one per update, and the log that they name, so that anyone can verify them."""

from __future__ import annotations

from pathlib import Path

from safe_sysid.identification.bounds.proof import UpdateProof
from safe_sysid.identification.certificates.file import (
    CertificateContext,
    CertificateError,
    write_certificate,
)
from safe_sysid.identification.digest import LogDigest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import UpdateResult
from safe_sysid.robot.model import RobotModel

__all__ = ["CertificateWriter"]


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
        """Start a chain.

        Args:
            directory: for the certificates.
            model: the arm.
            errors: declared bounds.
            method: in words.
            tare: hash and number of samples of the tare's log, if its rows are used.
        """
        self._directory, self._model, self._errors, self._method = directory, model, errors, method
        self._tare = tare
        self._digest = LogDigest(model.joint_names)
        self.last: Path | None = None
        self.written = 0
        self._waiting: list[tuple[UpdateProof, CertificateContext]] = []
        self._lost = False

    @property
    def log_sha256(self) -> str:
        """Hash of the samples so far."""
        return self._digest.hexdigest()

    def add(self, measurements: Measurements) -> None:
        """Samples that the identifier is given, in the same order.

        Args:
            measurements: the next ones.
        """
        self._digest.update(measurements)

    def write(self, result: UpdateResult) -> None:
        """Certificate of an update, if it proved something.

        Args:
            result: of the update that followed the samples so far.

        Raises:
            CertificateError: it cannot be written: it is kept, and written before the next one, as each certificate
                rests on the one before it. If too many wait, this epoch gets no more.
        """
        if result.proof is None:
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
            self._waiting.pop(0)
            self.written += 1
