r"""Re-checks an arm's own intervals with nothing but the robot, the logs and interval arithmetic.

For the true theta in the prior with the hand's own parameters in the last link's place, every momentum equation of the
logs holds. Each is rebuilt from its log as an interval row; the dual expression of ``dual.py`` over these rows and the
prior bounds each combination ``c.theta``, for the floats c that the certificate states.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.dual import LARGEST_MULTIPLIER, combination_lower, combination_upper
from safe_sysid.identification.certificates.files.archive import CertificateError
from safe_sysid.identification.certificates.files.arm import ArmCertificate
from safe_sysid.identification.certificates.files.robot_identity import (
    errors_from_json,
    robot_differences,
    smaller_errors,
)
from safe_sysid.identification.certificates.interval_dynamics.regressors import (
    interval_momentum,
    interval_momentum_rate,
)
from safe_sysid.identification.certificates.row_check import CertificateRefusedError, LogBook, RowChecker, sensed_box
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ArmVerdict", "box_problem", "check_arm_certificate"]

_ROWS = ("target", "slack", "matrix", "ramp", "first", "last", "joint", "box_seq", "log")


@dataclass(frozen=True, eq=False)
class ArmVerdict:
    """Result of checking a certificate."""

    reason: str | None  #: why it is not proved; None if it is
    #: lower, upper: (K,) what was proved; NaN where it was not reached
    lower: FloatArray
    upper: FloatArray
    rows: int
    logs: tuple[str, ...]
    seconds: float


def check_arm_certificate(
    certificate: ArmCertificate, model: RobotModel, logs: LogBook, progress: Callable[[float], None] | None = None
) -> ArmVerdict:
    """Check a certificate: rebuild every equation and evaluate every bound.

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


def box_problem(certificate: ArmCertificate, model: RobotModel, lower: FloatArray, upper: FloatArray) -> str | None:
    """Explain why the box need not hold an arm with the true torques; None if it does.

    Entries i without a combination of their own have one number e. The stated combinations c_i have 1 at i and k_ip at
    such entries p; where torques depend on c alone, ``theta'_i = c_i theta - sum_p k_ip e_p`` and ``theta'_p = e_p`` do
    as theta does: then all is exact but that dependence, which is looked at in interval arithmetic at states.

    Args:
        certificate: that is proved.
        model: trusted.
        lower, upper: (14 n,) the last link's ten are those of the empty hand, at any opening.
    """
    layout, matrix = model.layout, certificate.arrays["combinations"]
    opening = dict(zip(range(layout.size)[layout.payload], model.settings.payload.hand_opening, strict=True))
    alone = (matrix != 0.0).sum(axis=0) == 1
    free = [
        max(np.flatnonzero((c == 1.0) & alone).tolist(), key=lambda p: upper[p] - lower[p], default=-1) for c in matrix
    ]
    if -1 in free or len(set(free)) < len(free):
        return "a combination has no entry of its own"
    rest = np.setdiff1d(np.arange(layout.size), np.array(free, np.int64))
    if not _same_motion(model, matrix, free, rest):
        return "momentum depends on more than the combinations"
    errors, drift = errors_from_json(certificate.header["errors"]), model.settings.tare.drift
    chosen = {int(p): (Fraction(float(lower[p])) + Fraction(float(upper[p]))) / 2 for p in rest}
    for p in chosen:
        if not Fraction(float(upper[p])) - Fraction(float(lower[p])) >= 2 * Fraction(opening.get(p, 0.0)):
            return f"parameter {p}: narrower than what opening the hand changes"
    for i, p in enumerate(free):
        constant = sum((Fraction(float(matrix[i, k])) * e for k, e in chosen.items() if matrix[i, k]), Fraction(0))
        low, high = (Fraction(float(certificate.arrays[side][i])) - constant for side in ("lower", "upper"))
        low, high = low - Fraction(opening.get(p, 0.0)), high + Fraction(opening.get(p, 0.0))
        if p >= layout.joint_terms.start:
            known = Fraction(float(model.arm_prior.lower[p])), Fraction(float(model.arm_prior.upper[p]))
            kind, joint = divmod(p - layout.joint_terms.start, model.n)
            size, bias = max(abs(known[0]), abs(known[1])), Fraction(float(errors.torque_bias[joint]))
            more = (Fraction(drift.coulomb) * size, Fraction(drift.viscous) * size, 0, Fraction(drift.offset) + bias)[
                kind
            ]
            low, high = max(known[0], low - more), min(known[1], high + more)
            if kind == 3 and errors.torque_source == "link":
                low, high = known
        if not (Fraction(float(lower[p])) <= low and high <= Fraction(float(upper[p]))):
            return (
                f"parameter {p} in [{float(lower[p])!r}, {float(upper[p])!r}], proved [{float(low)!r}, {float(high)!r}]"
            )
    return None


def _same_motion(model: RobotModel, matrix: FloatArray, free: list[int], rest: IntArray) -> bool:
    """Whether columns of momentum and its rate at ``rest`` are the combinations' shares of those at ``free``."""
    links = model.layout.links.stop
    entries = np.array(free, np.int64)
    own, others = np.flatnonzero(entries < links), np.flatnonzero(entries >= links)
    if not len(rest):
        return True
    if rest.max() >= links or matrix[others][:, rest].any():
        return False
    rng = np.random.default_rng(len(matrix))
    travel = np.where(model.kinematics.sliding, 0.2, np.pi)
    q, qd = rng.uniform(-1.0, 1.0, (6, model.n)) * travel, rng.normal(size=(6, model.n))
    shares, places = matrix[own][:, rest], entries[own]
    for lower, upper in (interval_momentum(model.kinematics, q, q, qd, qd),
                         interval_momentum_rate(model.kinematics, q, q, qd, qd)):  # fmt: skip
        middle, radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
        wrong = np.abs(middle[..., rest] - middle[..., places] @ shares)
        room = radius[..., rest] + radius[..., places] @ np.abs(shares)
        if np.any(wrong > 2.0 * room + 1e-12) or np.any(room > 1e-8 * (1.0 + np.abs(middle).max())):
            return False
    return True


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
            f"{path}: another robot than {model.name}: {different[0]}; give settings that replaced "
            "the file's with --set"
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
    prior = model.empty_handed_prior
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
                f"{what}: proved >= {float(lower[k])!r} and <= {float(upper[k])!r}: the assumptions contradict the "
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
    """Rows (M, P, 2) and sides (M, 2), rebuilt from the logs that the certificate names."""
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
