r"""Re-checks an arm's own intervals with nothing but the robot, the logs and interval arithmetic.

For the true theta in the prior with the hand's own parameters in the last link's place, every momentum equation of the
logs holds. Each is rebuilt from its log as an interval row; the dual expression of ``dual.py`` over these rows and the
prior bounds each combination ``c.theta``, for the floats c that the certificate states.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.archive import CertificateError
from safe_sysid.identification.certificates.arm_file import ArmCertificate
from safe_sysid.identification.certificates.dual import LARGEST_MULTIPLIER, combination_lower, combination_upper
from safe_sysid.identification.certificates.robot_identity import errors_from_json, robot_differences, smaller_errors
from safe_sysid.identification.certificates.row_check import CertificateRefusedError, LogBook, RowChecker, sensed_box
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ArmVerdict", "check_arm_certificate"]

FloatArray = NDArray[np.float64]
_ROWS = ("target", "slack", "matrix", "ramp", "first", "last", "joint", "box_seq", "log")


@dataclass(frozen=True, eq=False)
class ArmVerdict:
    """What became of a certificate.

    Attributes:
        reason: why it is not proved; None if it is.
        lower, upper: (K,) what was proved; NaN where it was not reached.
    """

    reason: str | None
    lower: FloatArray
    upper: FloatArray
    rows: int
    logs: tuple[str, ...]
    seconds: float


def check_arm_certificate(
    certificate: ArmCertificate, model: RobotModel, logs: LogBook, progress: Callable[[float], None] | None = None
) -> ArmVerdict:
    """Rebuild every equation and evaluate every bound.

    Args:
        model: trusted.
        logs: trusted to hold what the sensors said, of the arm with the empty hand.
        progress: called with the share that is done.

    Raises:
        CertificateError: another robot, or no log with a digest that is named.
    """
    start = time.perf_counter()
    count = len(certificate.arrays["lower"])
    lower, upper, names, reason = np.full(count, np.nan), np.full(count, np.nan), list[str](), None
    try:
        _check(certificate, model, logs, progress or (lambda share: None), lower, upper, names)
    except CertificateRefusedError as refusal:
        reason = str(refusal)
    return ArmVerdict(
        reason, lower, upper, len(certificate.arrays["target"]), tuple(names), time.perf_counter() - start
    )


def _check(
    certificate: ArmCertificate,
    model: RobotModel,
    book: LogBook,
    progress: Callable[[float], None],
    lower: FloatArray,
    upper: FloatArray,
    names: list[str],
) -> None:
    header, arrays, path = certificate.header, certificate.arrays, certificate.path
    different = robot_differences(header["robot"], model)
    if different:
        raise CertificateError(
            f"{path}: another robot than {model.name}: {different[0]}; settings that were in force instead of the "
            "file's are given with --set"
        )
    try:
        errors = errors_from_json(header.get("errors"))
    except SafeSysIdError as error:
        raise CertificateError(f"{path}: {error}") from None
    declared = MeasurementErrors.from_model(model)
    # A sensor's bias is constant in each log, not over all of them.
    wrong = smaller_errors(errors, declared.across_logs() if len(header["logs"]) > 1 else declared)
    if wrong:
        raise CertificateRefusedError(f"errors: smaller, or other, than the robot's configuration declares: {wrong[0]}")
    prior = model.arm_prior.with_payload(*model.hand_prior)
    box = ParameterBox(prior.lower, prior.upper)
    for side, ours in (("lower", box.lower), ("upper", box.upper)):
        theirs = arrays[f"box_{side}"]
        if not np.array_equal(theirs, ours):
            p = int(np.flatnonzero(theirs != ours)[0])
            raise CertificateRefusedError(
                f"prior: {side} bound of parameter {p} is {theirs[p]!r}, the robot with its empty hand has {ours[p]!r}"
            )
    rows, sides = _rows(certificate, model, errors, book, box, progress, names)
    wide = sensed_box(box, errors)
    edges = np.stack([wide.lower, wide.upper], axis=1)
    for kind in ("lower", "upper"):
        if not np.all(np.abs(arrays[f"{kind}_multipliers"]) < LARGEST_MULTIPLIER):  # NaN neither
            raise CertificateRefusedError(
                f"{kind} multipliers: expected finite ones below {LARGEST_MULTIPLIER:g} in magnitude"
            )
    for k, c in enumerate(arrays["combinations"]):
        what = header["parameters"][k]["name"]
        lower[k] = combination_lower(c, rows, sides, arrays["lower_multipliers"][k], edges)
        upper[k] = combination_upper(c, rows, sides, arrays["upper_multipliers"][k], edges)
        if not lower[k] <= upper[k]:
            raise CertificateRefusedError(
                f"{what}: proved >= {float(lower[k])!r} and <= {float(upper[k])!r}: what is assumed contradicts the "
                "logs, and a contradiction proves nothing"
            )
        low, high = float(arrays["lower"][k]), float(arrays["upper"][k])
        for side, published, proved, good in (
            ("lower", low, float(lower[k]), lower[k] >= low),
            ("upper", high, float(upper[k]), upper[k] <= high),
        ):
            if not good:
                raise CertificateRefusedError(
                    f"{side} bound of {what}: published {published!r}, proved {proved!r}: short by "
                    f"{abs(published - proved):.3e}"
                )


def _rows(
    certificate: ArmCertificate,
    model: RobotModel,
    errors: MeasurementErrors,
    book: LogBook,
    box: ParameterBox,
    progress: Callable[[float], None],
    names: list[str],
) -> tuple[FloatArray, FloatArray]:
    """Rows (M, P, 2) and sides (M, 2), each from the log that it names."""
    stated, arrays, size = certificate.header["logs"], certificate.arrays, box.size
    count = len(arrays["target"])
    rows, sides = np.zeros((count, size, 2)), np.empty((count, 2))
    outside = np.flatnonzero((arrays["log"] < 0) | (arrays["log"] >= len(stated)))
    if outside.size:
        i = int(outside[0])
        raise CertificateRefusedError(
            f"row {i}: log {int(arrays['log'][i])}, expected one of the {len(stated)} that are named"
        )
    checker = RowChecker(model)
    for number, one in enumerate(stated):
        log = book.find(one["sha256"], one["samples"], str(certificate.path))
        names.append(log.name)
        if len(log.measurements) != one["samples"]:
            raise CertificateRefusedError(
                f"log {log.name}: {len(log.measurements)} samples, of which the certificate covers {one['samples']}: "
                "the others may contradict it"
            )
        mine = np.flatnonzero(arrays["log"] == number)
        if not mine.size:
            continue
        part = {name: arrays[name][mine] for name in _ROWS} | {"log": np.zeros(mine.size, np.int64)}
        found, rows_sides = checker.check(
            part,
            errors,
            {0: (log, int(one["samples"]))},
            {0: box},
            lambda share, at=number: progress((at + share) / len(stated)),  # type: ignore[misc]
            one_log=False,
        )
        rows[mine], sides[mine] = found[:, :size], rows_sides
    return rows, sides
