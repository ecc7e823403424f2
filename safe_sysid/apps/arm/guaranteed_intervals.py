"""Guaranteed intervals of an identified arm's base parameters: from its logs to a certificate and a result's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safe_sysid.identification.arm.base_parameters import BaseParameters, parameter_units, parameter_words
from safe_sysid.identification.arm.bounds.control_box import ControlBox, control_box
from safe_sysid.identification.arm.bounds.intervals import ArmIntervals, ArmIntervalsError, arm_intervals
from safe_sysid.identification.arm.identify import ArmIdentification
from safe_sysid.identification.arm.logs.preparation import as_torque
from safe_sysid.identification.certificates.files.arm import write_arm_certificate
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.logs.log import Log
from safe_sysid.robot.model import RobotModel

__all__ = ["CERTIFICATE", "CONTROL_CERTIFICATE", "Bounding"]

CERTIFICATE, CONTROL_CERTIFICATE = "arm_certificate.json", "arm_certificate_of_box.json"


class Bounding:
    """Bounds what an estimate names, tells why it could not, and leaves the proof with the logs that it rests on.

    Attributes:
        control_box: for control laws, once :meth:`write` was called; None where nothing is proved.
    """

    def __init__(
        self,
        model: RobotModel | None,
        logs: Sequence[Log],
        torque_per_effort: Mapping[str, float],
        estimates_only: bool = False,
        progress: Callable[[float], None] | None = None,
        no_model: str = "",
        thorough: bool = False,
    ) -> None:
        """Take logs with torques in place of efforts.

        Args:
            model: of the arm; None where nothing is declared that could be proved from.
            torque_per_effort: of joints, what their efforts are multiplied by.
            estimates_only: whether nothing is bounded.
            progress: called with the share that is done.
            no_model: why there is none.
            thorough: whether all equations of long logs count.
        """
        self._model, self._logs, self._progress = model, logs, progress
        self._reason = "estimates only" if model is not None else no_model
        self._wanted, self._thorough = model is not None and not estimates_only, thorough
        names = () if model is None else model.joint_names
        self.control_box: ControlBox | None = None
        self._measured = [as_torque(x.measurements, names, torque_per_effort) for x in logs if self._wanted]

    def prove(self, base: BaseParameters) -> ArmIntervals | None:
        """Intervals of base parameters, or None and a reason."""
        if self._model is None or not self._wanted:
            return None
        errors = MeasurementErrors.from_model(self._model)
        try:
            return arm_intervals(
                self._model, errors, self._measured, base, progress=self._progress, thorough=self._thorough
            )
        except ArmIntervalsError as error:
            self._reason = str(error)
            return None

    def write(self, out: Path, found: ArmIdentification) -> dict[str, Any]:
        """Certificate and logs, and what ``--json`` says: ``proved``, ``reason``, ``equations``, ``certificate``.

        ``found``: with the intervals, if there are any.

        Raises:
            SafeSysIdError: a file cannot be written.
        """
        intervals, reason = found.intervals, self._reason
        if self._model is None or intervals is None:
            if self._wanted and found.columns:
                asked = "; ".join(column.words for column in found.columns)
                reason = f"held-out samples ask for what no equation has: {asked}"
            return {"proved": False, "reason": reason, "equations": 0, "certificate": None}
        law = self.control_box = control_box(intervals, self._model, found.theta)
        words = parameter_words(self._model.layout, self._model.joint_names)
        all_units = parameter_units(self._model.layout, self._model.kinematics.sliding)
        law_units = [all_units[p] for p in law.intervals.base.independent.tolist()]
        for file, proved, its_names, its_units in (
            (CERTIFICATE, intervals, found.names, found.units),
            (CONTROL_CERTIFICATE, law.intervals, law.intervals.base.names(words), law_units),
        ):
            write_arm_certificate(out / file, proved, its_names, its_units, self._model, self._measured)
        for k, (log, data) in enumerate(zip(self._logs, self._measured, strict=True)):
            write_log(out / f"log_{k + 1}.npz", self._model.joint_names, data, log.origin_ns)
        return {
            "proved": True, "reason": None, "equations": intervals.equations, "certificate": CERTIFICATE,
        }  # fmt: skip
