"""The certificate of an arm's own intervals: ``.json`` for people and identities, ``.npz`` for the arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid import __version__
from safe_sysid.identification.certificates.files.archive import (
    CertificateError,
    check_common,
    is_log,
    read_arrays,
    write_files,
)
from safe_sysid.identification.certificates.files.robot_identity import errors_to_json, robot_to_json
from safe_sysid.identification.certificates.files.update import ROW_ARRAYS, read_header
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.model import RobotModel

if TYPE_CHECKING:
    from safe_sysid.identification.arm.bounds.intervals import ArmIntervals

__all__ = ["ARM_SCHEMA", "ArmCertificate", "read_arm_certificate", "write_arm_certificate"]

ARM_SCHEMA = "safe_sysid/arm-certificate/1"
_MOST_LOGS = 1000

#: Arrays of the ``.npz``: kinds of dtype and shape; M rows, F combinations, P = 14 n parameters.
_ARRAYS: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    **ROW_ARRAYS,
    "matrix": ("f", ("M", "P")),
    "lower": ("f", ("K",)),
    "upper": ("f", ("K",)),
    "combinations": ("f", ("K", "P")),
    "lower_multipliers": ("f", ("K", "M")),
    "upper_multipliers": ("f", ("K", "M")),
    "box_lower": ("f", ("P",)),
    "box_upper": ("f", ("P",)),
}


@dataclass(frozen=True, eq=False)
class ArmCertificate:
    """Content of a certificate. Only shapes, types and sizes have been checked."""

    path: Path  #: of the ``.json``
    header: Mapping[str, Any]  #: content of the ``.json``
    arrays: Mapping[str, NDArray[Any]]  #: by the names of the ``.npz``


def write_arm_certificate(
    path: Path,
    found: ArmIntervals,
    names: Sequence[str],
    units: Sequence[str],
    model: RobotModel,
    logs: Sequence[Measurements],
) -> None:
    """Write the proof of an arm's intervals. ``path``: of the ``.json``; the arrays go beside it.

    Raises:
        CertificateError: a file cannot be written.
    """
    rows, count = found.rows, len(found.base)
    arrays: dict[str, Any] = {name: getattr(rows, name) for name in ("matrix", "target", "slack", "ramp")}
    for name in ("first", "last", "joint", "box_seq", "log"):
        arrays[name] = np.asarray(getattr(rows, name), np.int64)
    arrays |= {"lower": found.lower, "upper": found.upper, "combinations": found.base.matrix}
    arrays["lower_multipliers"] = found.multipliers[:count]
    arrays["upper_multipliers"] = found.multipliers[count:]
    arrays["box_lower"], arrays["box_upper"] = found.box.lower, found.box.upper
    ends = zip(names, units, found.lower.tolist(), found.upper.tolist(), strict=True)

    def header(digest: str) -> dict[str, Any]:
        return {
            "schema": ARM_SCHEMA,
            "written_by": f"safe_sysid {__version__}",
            "parameters": [{"name": a, "unit": b, "lower": low, "upper": high} for a, b, low, high in ends],
            "logs": [{"sha256": log_digest(model.joint_names, log), "samples": len(log)} for log in logs],
            "arrays": {"sha256": digest, "rows": len(rows)},
            "errors": errors_to_json(found.errors),
            "robot": robot_to_json(model),
        }

    write_files(path, arrays, header)


def read_arm_certificate(path: str | Path) -> ArmCertificate:
    """Read both files. ``path``: of the ``.json``.

    Raises:
        CertificateError: anything that makes it unreadable, inconsistent in itself or too large.
    """
    path = Path(path)
    header, _ = read_header(path)

    def need(good: bool, field: str, expected: str) -> None:
        if not good:
            raise CertificateError(f"{path}: {field}: expected {expected}")

    need(header.get("schema") == ARM_SCHEMA, "schema", ARM_SCHEMA)
    logs, stated = header.get("logs"), header.get("parameters")
    need(isinstance(logs, list) and 1 <= len(logs) <= _MOST_LOGS, "logs", f"1 to {_MOST_LOGS} logs")
    need(all(is_log(log) for log in logs or []), "logs", "sha256 and number of samples of each")
    need(isinstance(stated, list), "parameters", "a list")
    n = check_common(need, header)
    arrays = read_arrays(path.with_suffix(".npz"), header["arrays"]["sha256"], n, _ARRAYS)
    lower, upper = arrays["lower"].tolist(), arrays["upper"].tolist()
    need(len(stated or []) == len(lower), "parameters", f"{len(lower)}, as the arrays have")
    for i, (one, low, high) in enumerate(zip(stated or [], lower, upper, strict=True)):
        good = isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("name", "unit"))
        need(good, f"parameters[{i}]", "name and unit")
        good = all(type(one.get(key)) in (int, float) for key in ("lower", "upper"))
        need(good, f"parameters[{i}]", "numbers lower and upper")
        need(one["lower"] == low and one["upper"] == high, f"parameters[{i}]", f"{low!r} and {high!r}, the arrays'")
    return ArmCertificate(path, header, arrays)
