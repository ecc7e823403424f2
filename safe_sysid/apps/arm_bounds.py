"""Guaranteed intervals of an identified arm's base parameters: from its logs to a certificate and a result's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safe_sysid.identification.arm.data import as_torque
from safe_sysid.identification.arm.identify import ArmIdentification
from safe_sysid.identification.arm.intervals import ArmIntervals, ArmIntervalsError, arm_intervals
from safe_sysid.identification.certificates.arm_file import write_arm_certificate
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.logs.log import Log
from safe_sysid.robot.model import RobotModel

__all__ = ["CERTIFICATE", "NO_INTERVALS", "bounded"]

CERTIFICATE = "arm_certificate.json"
#: What a result says of intervals where nobody asked for them.
NO_INTERVALS: Mapping[str, Any] = {
    "proved": False, "reason": "estimates only", "equations": 0, "certificate": None,
}  # fmt: skip


def bounded(
    model: RobotModel | None,
    found: ArmIdentification,
    logs: Sequence[Log],
    torque_per_effort: Mapping[str, float],
    out: Path,
    progress: Callable[[float], None] | None = None,
) -> tuple[ArmIntervals | None, dict[str, Any]]:
    """Bound what the estimate names, and leave the proof with the logs that it rests on.

    Args:
        model: of the arm; None where it has closed loops.
        found: estimates and names.
        logs: all of them, those held out too.
        torque_per_effort: of joints, what their efforts are multiplied by.
        out: directory for certificate and logs.
        progress: called with the share that is done.

    Returns:
        The intervals, and what ``--json`` says of them: ``proved``, ``reason``, ``equations``, ``certificate``.

    Raises:
        SafeSysIdError: a file cannot be written.
    """
    said = dict(NO_INTERVALS)
    if model is None:
        return None, said | {"reason": "arms with closed loops have estimates alone"}
    if found.columns:
        words = "; ".join(column.words for column in found.columns)
        return None, said | {"reason": f"held-out samples ask for what no equation has: {words}"}
    measured = [as_torque(log.measurements, model.joint_names, torque_per_effort) for log in logs]
    try:
        errors = MeasurementErrors.from_model(model)
        intervals = arm_intervals(model, errors, measured, found.estimate.base, progress=progress)
    except ArmIntervalsError as error:
        return None, said | {"reason": str(error)}
    out.mkdir(parents=True, exist_ok=True)
    write_arm_certificate(out / CERTIFICATE, intervals, found.names, found.units, model, measured)
    for k, (log, data) in enumerate(zip(logs, measured, strict=True)):
        write_log(out / f"log_{k + 1}.npz", model.joint_names, data, log.origin_ns)
    return intervals, said | {
        "proved": True, "reason": None, "equations": intervals.equations, "certificate": CERTIFICATE,
    }  # fmt: skip
