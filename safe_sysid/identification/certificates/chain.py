"""Re-checks a chain of certificates from the prior on, with nothing but the robot, the logs and interval arithmetic."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS, UnknownsLayout
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.cuts import CUT_KINDS, PayloadDeclaration, cut_coefficients, cut_refusal
from safe_sysid.identification.certificates.dual import LARGEST_MULTIPLIER, proved_lower, proved_upper
from safe_sysid.identification.certificates.files.robot_identity import (
    errors_from_json,
    robot_differences,
    smaller_errors,
)
from safe_sysid.identification.certificates.files.update import BoundsCertificate, CertificateError
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray
from safe_sysid.identification.certificates.row_check import (
    CertificateRefusedError,
    LogBook,
    NamedLog,
    RowChecker,
    sensed_box,
    tare_drift,
)
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ChainChecker", "ChainVerdict"]


@dataclass(frozen=True, eq=False)
class ChainVerdict:
    """Result of checking one certificate of the chain."""

    path: Path  #: of the certificate
    identity: str  #: of the certificate
    samples: int  #: what it rests on
    rows: int  #: what it rests on
    cuts: int  #: what it rests on
    reason: str | None  #: why it is not proved; None if it is
    #: proved_lower, proved_upper: (10,) what was proved; NaN where it was not reached
    proved_lower: FloatArray
    proved_upper: FloatArray
    spare: float  #: smallest distance of a published bound from the proved one, as a share of the prior's width
    seconds: float
    #: log, tare_log: names of the logs that it rests on; empty where none was found, or none is used
    log: str = ""
    tare_log: str = ""

    @property
    def passed(self) -> bool:
        """Whether every published bound is proved."""
        return self.reason is None


class ChainChecker:
    """Remembers what the chain has proved so far: the boxes, and the hash of the last certificate."""

    def __init__(
        self,
        model: RobotModel,
        logs: LogBook,
        progress: Callable[[float], None] | None = None,
        tare_logs: LogBook | None = None,
    ) -> None:
        """Start at the prior.

        Args:
            model: trusted.
            logs: trusted to hold what the sensors said.
            progress: called with the share of a certificate that is done.
            tare_logs: trusted to be of the empty hand. A certificate can not make a log of a run one of these.
        """
        self._model, self._logs = model, logs
        self._tare_logs = LogBook(()) if tare_logs is None else tare_logs
        self._seen: dict[str, dict[str, NamedLog]] = {"log": {}, "tare_log": {}}
        self._apart: set[tuple[str, str]] = set()
        self._before: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._progress = progress or (lambda share: None)
        self._declared = MeasurementErrors.from_model(model)
        self._payload = PayloadDeclaration.from_model(model)
        self._epoch: int | None = None
        self._boxes: dict[int, ParameterBox] = {}
        self._last_sha256: str | None = None
        self._checker: RowChecker | None = None

    def check(self, certificates: Sequence[BoundsCertificate]) -> Iterator[ChainVerdict]:
        """Check a chain of certificates; stop at the first that is not proved.

        ``certificates``: of one robot, in order of epoch and sequence number.

        Raises:
            CertificateError: another robot, or no log with the digest that is named.
        """
        for certificate in certificates:
            verdict = self.check_next(certificate)
            yield verdict
            if not verdict.passed:
                return

    def check_next(self, certificate: BoundsCertificate) -> ChainVerdict:
        """Check one certificate that follows on the last one, or starts an epoch.

        Raises:
            CertificateError: another robot, or no log with the digest that is named.
        """
        start = time.perf_counter()
        lower, upper = np.full(10, np.nan), np.full(10, np.nan)
        reason, spare, self._names = None, np.nan, {}
        try:
            box = self._follow(certificate)
            spare = self._prove(certificate, box, lower, upper)
            self._accept(certificate, box)
        except CertificateRefusedError as refusal:
            reason = f"certificate {certificate.identity}: {refusal}"
        return ChainVerdict(
            certificate.path,
            certificate.identity,
            int(certificate.header["log"]["samples"]),
            len(certificate.arrays["target"]),
            len(certificate.arrays["cut_kind"]),
            reason,
            lower,
            upper,
            spare,
            time.perf_counter() - start,
            **self._names,
        )

    def _follow(self, certificate: BoundsCertificate) -> ParameterBox:
        """Find the box that was proved before this certificate."""
        header, arrays = certificate.header, certificate.arrays
        different = robot_differences(header["robot"], self._model)
        if different:
            more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
            raise CertificateError(
                f"{certificate.path}: another robot than {self._model.name}: {different[0]}{more}; "
                "give settings that replaced the file's with --set"
            )
        previous = header["previous_sha256"]
        if header["epoch"] != self._epoch:
            if previous is not None:
                raise CertificateRefusedError(
                    f"chain: the certificate before it, {previous[:16]}.., is missing, and it starts no epoch"
                )
            prior = self._model.arm_prior
            box = ParameterBox(prior.lower, prior.upper, header["epoch"], 0)
            self._epoch, self._boxes, self._checker = header["epoch"], {0: box}, None
            self._before = {}
        elif previous is None:
            raise CertificateRefusedError("chain: starts an epoch that has begun already")
        elif previous != self._last_sha256:
            raise CertificateRefusedError(
                f"chain: follows on {previous[:16]}.., expected {str(self._last_sha256)[:16]}.., the one before it"
            )
        last = max(self._boxes)
        if header["seq"] != last + 1:
            raise CertificateRefusedError(f"chain: sequence number {header['seq']}, expected {last + 1}")
        box = self._boxes[last]
        for side, ours in (("lower", box.lower), ("upper", box.upper)):
            theirs = arrays[f"box_{side}"]
            if not np.array_equal(theirs, ours):
                p = int(np.flatnonzero(theirs != ours)[0])
                raise CertificateRefusedError(
                    f"box in force: {side} bound of parameter {p} is {theirs[p]!r}, the chain has {ours[p]!r}"
                )
        hand_lower, hand_upper = self._model.hand_prior
        opening = np.asarray(self._model.settings.payload.hand_opening, float)
        for name, ours in (("hand_lower", hand_lower), ("hand_upper", hand_upper), ("opening", opening)):
            if not np.array_equal(arrays[name], ours):
                p = int(np.flatnonzero(arrays[name] != ours)[0])
                raise CertificateRefusedError(
                    f"hand: {name} of {PAYLOAD_NAMES[p]} is {arrays[name][p]!r}, the robot has {ours[p]!r}"
                )
        return box

    def _errors(self, certificate: BoundsCertificate) -> MeasurementErrors:
        try:
            stated = errors_from_json(certificate.header.get("errors"))
        except SafeSysIdError as error:
            raise CertificateError(f"{certificate.path}: {error}") from None
        wrong = smaller_errors(stated, self._declared)
        if wrong:
            raise CertificateRefusedError(
                f"errors: smaller, or other, than the robot's configuration declares: {wrong[0]}"
            )
        return stated

    def _find(self, certificate: BoundsCertificate) -> dict[int, tuple[NamedLog, int]]:
        """Find the logs of run and tare. Within an epoch there is one growing log and one tare."""
        header, before, wanted_by = certificate.header, self._before, str(certificate.path)
        named, tare = header["log"], header["tare_log"]
        log = self._logs.find(named["sha256"], named["samples"], wanted_by)
        self._names["log"] = log.name
        if before:
            earlier = before["log"]
            if named["samples"] < earlier["samples"]:
                raise CertificateRefusedError(
                    f"log: {named['samples']} samples, the certificate before it has {earlier['samples']} of this epoch"
                )
            if self._logs.prefix(log, earlier["samples"]) != earlier["sha256"]:
                raise CertificateRefusedError(
                    f"log: {log.name} does not begin with the {earlier['samples']} samples that the certificate "
                    "before it rests on: expected one growing log in an epoch"
                )
            if tare != before["tare_log"]:
                raise CertificateRefusedError(
                    "tare_log: another than the certificate before it names: expected one in an epoch"
                )
        self._seen["log"][log.sha256] = log
        logs = {0: (log, int(named["samples"]))}
        if tare is not None:
            empty = self._tare_logs.find(tare["sha256"], tare["samples"], f"{wanted_by}: tare_log")
            self._names["tare_log"] = empty.name
            self._seen["tare_log"][empty.sha256] = empty
            logs[1] = (empty, int(tare["samples"]))
        for empty, run in itertools.product(self._seen["tare_log"].values(), self._seen["log"].values()):
            if (empty.sha256, run.sha256) in self._apart:
                continue
            if empty.shares(run):
                raise CertificateRefusedError(
                    f"tare_log: {empty.name} has the same samples as the run's log {run.name}: expected a log of its "
                    "own, of the empty hand"
                )
            self._apart.add((empty.sha256, run.sha256))
        return logs

    def _prove(self, certificate: BoundsCertificate, box: ParameterBox, lower: FloatArray, upper: FloatArray) -> float:
        header, arrays = certificate.header, certificate.arrays
        if np.any(~(arrays["lower"] <= arrays["upper"])):
            raise CertificateRefusedError("bounds: expected lower <= upper")
        errors = self._errors(certificate)
        logs = self._find(certificate)
        if self._checker is None:
            self._checker = RowChecker(self._model)
        rows, sides = self._checker.check(arrays, errors, logs, self._boxes, self._progress)
        cuts, constants = self._cuts(arrays)
        x = self._unknowns
        at, edges = x.arm.payload.start, np.zeros((x.size, 2))
        wide = sensed_box(box, errors)
        edges[: x.arm.size, 0], edges[: x.arm.size, 1] = wide.lower, wide.upper
        edges[x.hand, 0], edges[x.hand, 1] = arrays["hand_lower"], arrays["hand_upper"]
        edges[x.opening, 0], edges[x.opening, 1] = -arrays["opening"], arrays["opening"]
        if header["tare_log"] is not None:  # else no row is of a tare
            drift = tare_drift(self._model, errors, arrays["drift"])
            edges[x.drift, 0], edges[x.drift, 1] = -drift, drift
        unknowns = self._model.unknowns
        edges[x.constants, 0], edges[x.constants, 1] = unknowns.lower, unknowns.upper
        y, multipliers = arrays["row_multipliers"], arrays["cut_multipliers"]
        for kind, values in (("row", y), ("cut", multipliers)):
            if not np.all(np.abs(values) < LARGEST_MULTIPLIER):  # NaN neither
                raise CertificateRefusedError(
                    f"{kind} multipliers: expected finite ones below {LARGEST_MULTIPLIER:g} in magnitude"
                )
        prior = self._boxes[0]
        width = np.maximum(prior.payload_upper - prior.payload_lower, 1e-300)
        spare = np.inf
        for k in range(10):
            lower[k] = proved_lower(at + k, rows, sides, y[k], cuts, constants, multipliers[k], edges)
            upper[k] = proved_upper(at + k, rows, sides, y[10 + k], cuts, constants, multipliers[10 + k], edges)
            if not lower[k] <= upper[k]:
                raise CertificateRefusedError(
                    f"{PAYLOAD_NAMES[k]}: proved >= {float(lower[k])!r} and <= {float(upper[k])!r} {PAYLOAD_UNITS[k]}: "
                    "the assumptions contradict the logs, and a contradiction proves nothing"
                )
            low, high = float(arrays["lower"][k]), float(arrays["upper"][k])
            for side, short in (("lower", low - lower[k]), ("upper", upper[k] - high)):
                published, proved = (low, lower[k]) if side == "lower" else (high, upper[k])
                if not (proved >= published if side == "lower" else proved <= published):
                    y_side = y[k] if side == "lower" else y[10 + k]
                    raise CertificateRefusedError(
                        f"{side} bound of {PAYLOAD_NAMES[k]}: published {published!r}, proved {proved!r} "
                        f"{PAYLOAD_UNITS[k]}: short by {short:.3e}{self._blame(arrays, y_side)}"
                    )
            spare = min(spare, (lower[k] - low) / width[k], (high - upper[k]) / width[k])
        return float(spare)

    def _blame(self, arrays: Any, y: FloatArray) -> str:
        if not y.size or not np.any(y != 0.0):
            return "; no row takes part"
        i = int(np.argmax(np.abs(y) * arrays["slack"]))
        return f"; largest part: row {i}, {self._model.joint_names[int(arrays['joint'][i])]}"

    @property
    def _unknowns(self) -> UnknownsLayout:
        layout = self._model.layout
        return UnknownsLayout(layout, len(layout.drifting), self._model.unknowns.count)

    def _cuts(self, arrays: Any) -> tuple[FloatArray, FloatArray]:
        x, count = self._unknowns, len(arrays["cut_kind"])
        out = np.zeros((count, x.size, 2))
        if np.any(arrays["cut_multipliers"] < 0.0):
            k = int(np.argwhere(arrays["cut_multipliers"] < 0.0)[0][1])
            raise CertificateRefusedError(f"cut {k}: a multiplier is negative")
        for k in range(count):
            u, v = arrays["cut_u"][k], arrays["cut_v"][k]
            mass, constant = float(arrays["cut_mass"][k]), float(arrays["cut_constant"][k])
            kind = str(arrays["cut_kind"][k])
            if kind not in CUT_KINDS:
                raise CertificateRefusedError(f"cut {k}: kind {kind!r}, expected one of {', '.join(CUT_KINDS)}")
            why = cut_refusal(u, v, mass, constant, kind, self._payload)
            if why is not None:
                raise CertificateRefusedError(f"cut {k}: {why}")
            g: IntervalArray = cut_coefficients(u, v, mass)
            out[k, x.arm.payload] = g.stacked()
            out[k, x.hand] = out[k, x.opening] = (-g).stacked()
        return out, np.ascontiguousarray(arrays["cut_constant"])

    def _accept(self, certificate: BoundsCertificate, box: ParameterBox) -> None:
        """Accept the published bounds as proved; they become the next box."""
        arrays, seq = certificate.arrays, int(certificate.header["seq"])
        for side, inside in (
            ("lower", arrays["lower"] >= box.payload_lower),
            ("upper", arrays["upper"] <= box.payload_upper),
        ):
            if not np.all(inside):
                k = int(np.argmin(inside))
                raise CertificateRefusedError(f"{side} bound of {PAYLOAD_NAMES[k]}: outside the preceding box")
        self._boxes[seq] = dataclasses.replace(box.with_payload(arrays["lower"], arrays["upper"]), seq=seq)
        self._last_sha256 = certificate.sha256
        self._before = {name: certificate.header[name] for name in ("log", "tare_log")}
