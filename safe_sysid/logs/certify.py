"""Certificates beside an identification: one per update, and the log that they name, so that anyone can verify them."""

from __future__ import annotations

from pathlib import Path

from safe_sysid.identification.certificates.file import CertificateContext, write_certificate
from safe_sysid.identification.digest import LogDigest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import UpdateResult
from safe_sysid.robot.model import RobotModel

__all__ = ["CertificateWriter"]


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
        self.last = write_certificate(self._directory, result.proof, context, self.last)
        self.written += 1
