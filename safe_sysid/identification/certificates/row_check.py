"""Check of a certificate's rows: finds logs by digest, rebuilds the rows and compares them with the stated ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.errors import ParameterError, SafeSysIdError
from safe_sysid.identification.certificates.files.robot_identity import errors_to_json
from safe_sysid.identification.certificates.files.update import CertificateError
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray, exactly, inflate
from safe_sysid.identification.certificates.interval_dynamics.step_bounds import sensed_offset
from safe_sysid.identification.certificates.log_view import LogView
from safe_sysid.identification.certificates.rebuild import RebuiltRow, RowRebuilder, Window
from safe_sysid.identification.digest import LogDigest, log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["CertificateRefusedError", "LogBook", "NamedLog", "RowChecker", "sensed_box", "tare_drift"]

_STEPS = 2_000  # of windows, prepared at once: bounds the memory


class CertificateRefusedError(SafeSysIdError):
    """A certificate does not prove what it publishes; the message says where and by how much."""


@dataclass(frozen=True, eq=False)
class NamedLog:
    """A log and what to call it. ``measurements``: all samples in order of arrival."""

    name: str
    joint_names: tuple[str, ...]
    measurements: Measurements

    @cached_property
    def sha256(self) -> str:
        """Digest of the whole log."""
        return log_digest(self.joint_names, self.measurements)

    @cached_property
    def readings(self) -> frozenset[bytes]:
        """Position, velocity and effort of every sample, without its stamp."""
        m = self.measurements
        table = np.ascontiguousarray(np.column_stack([m.q, m.qd, m.effort]), dtype="<f8")
        return frozenset(row.tobytes() for row in table)

    def shares(self, other: NamedLog) -> bool:
        """Whether one log is a copy or part of the other, whatever its stamps: it has most samples of the shorter."""
        least = min(len(self.readings), len(other.readings))
        return least > 0 and 2 * len(self.readings & other.readings) > least


def sensed_box(box: ParameterBox, errors: MeasurementErrors) -> ParameterBox:
    """The box of what rows are equations in: offsets, or none where a link-side sensor sees none, with its bias.

    ``box``: of the true parameters.
    """
    if errors.torque_source != "link" and not np.any(errors.torque_bias):
        return box
    beta = box.layout.offset
    lower, upper = box.lower.copy(), box.upper.copy()
    lower[beta], upper[beta] = sensed_offset(box, errors)
    return ParameterBox(lower, upper, box.epoch, box.seq)


def tare_drift(model: RobotModel, errors: MeasurementErrors, stated: FloatArray) -> FloatArray:
    """(3 n,) at least as large as any change of Fc, Fv and beta between tare and run that is declared possible.

    The constant bias of a sensor, which rows have in their offset, may go from one end to the other.

    ``model``: trusted; ``stated``: (3 n,) of the certificate.

    Raises:
        CertificateRefusedError: the certificate states less than is declared.
    """
    n, prior, declared = model.n, model.arm_prior, model.settings.tare.drift
    big = np.maximum(np.abs(prior.lower), np.abs(prior.upper))
    least = np.concatenate(
        [
            declared.coulomb * big[model.layout.coulomb],
            declared.viscous * big[model.layout.viscous],
            declared.offset + 2.0 * errors.torque_bias + np.zeros(n),
            np.zeros(len(model.layout.drifting) - 3 * n),  # of further terms, which are refused
        ]
    )
    if np.any(stated < least):
        p = int(np.argmax(stated < least))
        what = ("Coulomb friction", "viscous friction", "offset")[p // n]
        raise CertificateRefusedError(
            f"drift since the tare: {what} of {model.joint_names[p % n]} by {float(stated[p])!r}, the robot's "
            f"configuration declares {float(least[p])!r}"
        )
    return np.maximum(stated, inflate(least))


class LogBook:
    """Finds a log by the digest of its first samples."""

    def __init__(self, logs: Sequence[NamedLog]) -> None:
        """Keep logs. ``logs``: any number."""
        self._logs = tuple(logs)
        self._digests = [LogDigest(log.joint_names) for log in logs]
        self._known: list[dict[int, str]] = [{} for _ in logs]

    def find(self, sha256: str, samples: int, wanted_by: str) -> NamedLog:
        """Find the log whose first samples have this digest. ``samples``: how many.

        Raises:
            CertificateError: none has.
        """
        for i, log in enumerate(self._logs):
            if samples <= len(log.measurements) and self._digest(i, samples) == sha256:
                return log
        names = ", ".join(f"{log.name} ({len(log.measurements)} samples)" for log in self._logs) or "no log"
        raise CertificateError(
            f"{wanted_by}: needs a log whose first {samples} samples have sha256 {sha256}; looked at: {names}"
        )

    def prefix(self, log: NamedLog, samples: int) -> str | None:
        """Digest of a log's first samples; None if it has fewer, or is not in this book.

        ``log``: as :meth:`find` returned it; ``samples``: how many.
        """
        for i, mine in enumerate(self._logs):
            if mine is log and samples <= len(log.measurements):
                return self._digest(i, samples)
        return None

    def _digest(self, i: int, samples: int) -> str:
        known = self._known[i]
        if samples not in known:
            log, digest = self._logs[i], self._digests[i]
            if samples < digest.count:  # asked for out of order: from the start again
                digest = self._digests[i] = LogDigest(log.joint_names)
            digest.update(log.measurements[digest.count : samples])
            known[samples] = digest.hexdigest()
        return known[samples]


class RowChecker:
    """Rebuilds rows; keeps those of the last certificate, as the next one uses many of them again."""

    def __init__(self, model: RobotModel) -> None:
        """Start without rows. ``model``: trusted."""
        self._model = model
        self._rebuilt: dict[tuple[object, ...], RebuiltRow] = {}
        self._views: dict[tuple[str, int], LogView] = {}
        self._errors: dict[str, Any] = {}
        self._hand_box = model.empty_handed_prior

    def check(
        self,
        arrays: Mapping[str, Any],
        errors: MeasurementErrors,
        logs: Mapping[int, tuple[NamedLog, int]],
        boxes: Mapping[int, ParameterBox],
        progress: Callable[[float], None],
        one_log: bool = True,
    ) -> tuple[FloatArray, FloatArray]:
        """Rows (M, 17 n + 20 + E, 2) and sides (M, 2) that hold for the truth, rebuilt from the logs.

        Unknowns: theta of the run, theta_h, d, f, by how much Fc, Fv and beta were larger at the tare, and the arm's
        constants z. Those of a tare may have been others: its rows are widened by them.

        Args:
            logs: 0 the run's, 1 the tare's if there is one, each with the number of samples that may be used.
            boxes: proved so far, by sequence number.
            progress: called with the share that is done.
            one_log: whether rows of the run may share z; else all are widened, and what is stated of them is of theta
                alone.

        Raises:
            CertificateRefusedError: a row that the logs do not give, or that is stated with less slack than they give.
        """
        layout, count, prior = self._model.layout, len(arrays["target"]), self._model.arm_prior
        try:
            layout.require_compiled("the certificates' checker", prior.lower, prior.upper)
        except ParameterError as error:
            raise CertificateRefusedError(str(error)) from None
        self._check_fields(arrays, logs, boxes)
        kept: dict[tuple[object, ...], RebuiltRow] = {}
        views = {which: self._view(log, samples, errors) for which, (log, samples) in logs.items()}
        self._views = {(log.sha256, samples): views[which] for which, (log, samples) in logs.items()}
        names = {which: log.sha256 for which, (log, _) in logs.items()}
        for which, view in views.items():
            mine = np.flatnonzero(arrays["log"] == which)
            if mine.size:
                self._rebuild(arrays, mine, view, names, boxes, kept, progress)
        self._rebuilt = kept

        unknowns = self._model.unknowns
        x = UnknownsLayout(layout, len(layout.drifting), unknowns.count)
        constants = IntervalArray(unknowns.lower, unknowns.upper)
        rows, sides = np.zeros((count, x.size, 2)), np.empty((count, 2))
        for i in range(count):
            row = kept[_key(arrays, i, names)]
            box = sensed_box(self._hand_box if arrays["log"][i] else boxes[0], errors)
            self._compare(arrays, i, row, box, views[int(arrays["log"][i])])
            rows[i, : layout.size] = row.matrix[: layout.size].stacked()
            rows[i, x.constants] = row.matrix[layout.size :].stacked()
            sides[i] = row.lower, row.upper
            if arrays["log"][i]:
                rows[i, x.hand] = rows[i, layout.payload]
                rows[i, layout.payload] = 0.0
                # What the log gives is of the friction of then, theta + f.
                rows[i, x.drift] = rows[i, layout.drifting]
            if unknowns.count and (arrays["log"][i] or not one_log):
                rows[i, x.constants] = 0.0
                other = (row.matrix[layout.size :] * constants).total()[None]
                wider = IntervalArray(sides[i, :1], sides[i, 1:]) - other
                sides[i] = wider.lo[0], wider.hi[0]
        return rows, sides

    def _view(self, log: NamedLog, samples: int, errors: MeasurementErrors) -> LogView:
        """View of exactly the samples that the certificate names.

        Rows that fewer samples of a log gave are rows of more samples, too, and are kept; not the other way round.
        """
        if log.joint_names != self._model.joint_names:
            raise CertificateRefusedError(f"log {log.name}: joints {', '.join(log.joint_names)}, expected the robot's")
        if errors_to_json(errors) != self._errors:  # rows rebuilt with other errors are other rows
            self._errors, self._views, self._rebuilt = errors_to_json(errors), {}, {}
        if any(name == log.sha256 and samples < seen for name, seen in self._views):
            self._rebuilt = {}
        if (log.sha256, samples) in self._views:
            return self._views[log.sha256, samples]
        rate = self._model.settings.measurement.rate_hz
        return LogView(log.measurements[:samples], errors, self._model.continuous, rate)

    def _check_fields(
        self, arrays: Mapping[str, Any], logs: Mapping[int, tuple[NamedLog, int]], boxes: Mapping[int, ParameterBox]
    ) -> None:
        n = self._model.n
        for i in range(len(arrays["target"])):
            log, seq, ramp = int(arrays["log"][i]), int(arrays["box_seq"][i]), float(arrays["ramp"][i])
            if log not in logs:
                raise CertificateRefusedError(
                    f"row {i}: log {log}, expected 0 for the run's, or 1 for a tare's that is named"
                )
            if not 0 <= arrays["first"][i] < arrays["last"][i] < logs[log][1]:
                raise CertificateRefusedError(
                    f"row {i}: samples {arrays['first'][i]} to {arrays['last'][i]}, expected some of the first "
                    f"{logs[log][1]}"
                )
            if not 0 <= int(arrays["joint"][i]) < n:
                raise CertificateRefusedError(f"row {i}: joint {int(arrays['joint'][i])}, expected 0 to {n - 1}")
            if log == 0 and seq not in boxes:
                raise CertificateRefusedError(f"row {i}: sized by box {seq}, which the chain has not proved before")
            if not ramp >= 0.0:
                raise CertificateRefusedError(f"row {i}: ramp {ramp!r} s, expected >= 0")
            if not arrays["slack"][i] >= 0.0:
                raise CertificateRefusedError(f"row {i}: slack {float(arrays['slack'][i])!r}, expected >= 0")

    def _rebuild(
        self,
        arrays: Mapping[str, Any],
        mine: IntArray,
        view: LogView,
        names: Mapping[int, str],
        boxes: Mapping[int, ParameterBox],
        kept: dict[tuple[object, ...], RebuiltRow],
        progress: Callable[[float], None],
    ) -> None:
        which = int(arrays["log"][mine[0]])
        wanted: dict[int, dict[Window, list[int]]] = {}
        for i in (int(x) for x in mine):
            key = _key(arrays, i, names)
            if key in self._rebuilt:
                kept[key] = self._rebuilt[key]
                continue
            window = Window(int(arrays["first"][i]), int(arrays["last"][i]), float(arrays["ramp"][i]))
            why = view.refusal(window.first, window.last)
            if why is None and window.ramp > 0.0 and window.last - window.first < 2:
                why = "a ramp needs a sample in between"
            if why is None and _means_only(view.errors, window.ramp):
                why = "of a link-side torque only means over steps are known, which allow neither ramps nor delays"
            if why is not None:
                raise CertificateRefusedError(f"row {i}, {self._joint(arrays, i)}: {why}")
            wanted.setdefault(int(arrays["box_seq"][i]), {}).setdefault(window, []).append(i)
        total = sum(w.last - w.first for windows in wanted.values() for w in windows) or 1
        done = 0
        for seq, windows in sorted(wanted.items()):
            box = self._hand_box if which else boxes[seq]
            for batch in _batches(sorted(windows, key=lambda w: (w.first, w.last, w.ramp))):
                rebuilder = RowRebuilder(self._model.kinematics, view, box, batch, self._model.unknowns)
                for window in batch:
                    self._take(arrays, windows[window], rebuilder, window, kept, names)
                    done += window.last - window.first
                    progress(done / total)

    def _take(
        self,
        arrays: Mapping[str, Any],
        rows: list[int],
        rebuilder: RowRebuilder,
        window: Window,
        kept: dict[tuple[object, ...], RebuiltRow],
        names: Mapping[int, str],
    ) -> None:
        where = f"row {rows[0]}, {self._joint(arrays, rows[0])}"
        sample = rebuilder.contradiction(window)
        if sample is not None:
            raise CertificateRefusedError(f"{where}: sample {sample} contradicts the declared acceleration bound")
        sample = rebuilder.outside(window)
        if sample is not None:
            raise CertificateRefusedError(f"{where}: at sample {sample} a prismatic joint may be outside its travel")
        joints = np.array([int(arrays["joint"][i]) for i in rows])
        found = rebuilder.rows(window, joints)
        if found is None:
            raise CertificateRefusedError(
                f"{where}: the torque beside the window, which the declared delay asks for, is not known"
            )
        kept.update({_key(arrays, i, names): found[int(arrays["joint"][i])] for i in rows})

    def _joint(self, arrays: Mapping[str, Any], i: int) -> str:
        return self._model.joint_names[int(arrays["joint"][i])]

    def _compare(self, arrays: Mapping[str, Any], i: int, row: RebuiltRow, box: ParameterBox, view: LogView) -> None:
        """Whether the stated row follows from the rebuilt one for every theta in a box that holds the truth."""
        stated = np.zeros(len(row.matrix.lo))  # without columns for constants: their slack covers them
        stated[: arrays["matrix"].shape[1]] = arrays["matrix"][i]
        constants = self._model.unknowns
        apart = (exactly(stated) - row.matrix) * IntervalArray(
            np.concatenate([box.lower, constants.lower]), np.concatenate([box.upper, constants.upper])
        )
        both = IntervalArray(np.array([row.lower]), np.array([row.upper])) + apart.total()[None]
        target, slack = float(arrays["target"][i]), float(arrays["slack"][i])
        below, above = exactly(target) - exactly(slack), exactly(target) + exactly(slack)
        short = float(max(below.lo - both.lo[0], both.hi[0] - above.hi))
        if not short <= 0.0:
            stamps = view.data.stamps
            window = f"{stamps[arrays['first'][i]]:.6g} to {stamps[arrays['last'][i]]:.6g} s"
            worst = int(np.argmax(apart.size()))
            raise CertificateRefusedError(
                f"row {i}, {self._joint(arrays, i)}, window {window}: not what the log gives: its slack {slack:.6g} "
                f"is short by {short:.3e} (largest difference: parameter {worst}, {apart.size()[worst]:.1e})"
            )


def _means_only(e: MeasurementErrors, ramp: float) -> bool:
    """Whether a window needs the torque within steps although only their mean torques are known.

    Between motor and load the torque moves while the motor holds its own for a period.
    """
    mean = e.effort == "mean" or (e.effort == "held" and e.torque_source == "link")
    return mean and (ramp > 0.0 or e.torque_delay + e.torque_jitter > 0.0)


def _batches(windows: list[Window]) -> Iterator[list[Window]]:
    """Windows in groups that bound the memory."""
    batch: list[Window] = []
    steps = 0
    for window in windows:
        if batch and steps + window.last - window.first > _STEPS:
            yield batch
            batch, steps = [], 0
        batch.append(window)
        steps += window.last - window.first
    if batch:
        yield batch


def _key(arrays: Mapping[str, Any], i: int, names: Mapping[int, str]) -> tuple[object, ...]:
    """Key of a rebuilt row within an epoch; it has the digest, because two certificates may name two logs."""
    fields = ("log", "first", "last", "ramp", "box_seq", "joint")
    return (names[int(arrays["log"][i])], *(arrays[name][i].item() for name in fields))
