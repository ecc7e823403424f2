"""Identification session without ROS: identify, tare, certify, keep the log, explain problems.

Each thing that changes its state is one entry of a journal, so that a replay (``logs.online.replay``) can do the same
again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from safe_sysid.errors import ConfigError, SafeSysIdError
from safe_sysid.identification.certificates.files.update import CertificateError
from safe_sysid.identification.diagnosis.excitation_words import describe_excitation, weak_combinations
from safe_sysid.identification.diagnosis.log import check_velocities
from safe_sysid.identification.diagnosis.rows import diagnose_rows, format_diagnosis
from safe_sysid.identification.diagnosis.slack_watch import SlackWatch
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.identifier import Identifier, UpdateResult, UpdateStatus
from safe_sysid.identification.tare.file import load_tare, write_tare
from safe_sysid.identification.tare.tare import Tare, TareRecorder, gained
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.logs.online.certify import CertificateWriter
from safe_sysid.logs.online.journal import Journal
from safe_sysid.logs.online.known_bounds import AnnouncedBounds, KnownBounds
from safe_sysid.logs.online.rest_filter import RestFilter
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["IdentifierSession"]

IDENTIFYING, TARING, FINISHING, WAITING = (
    "identifying",
    "taring",
    "selecting the tare's equations",
    "waiting for start",
)


class IdentifierSession:
    """One identifier through epochs and tares. Called by one thread at a time; only :attr:`state` is read by others."""

    def __init__(
        self,
        model: RobotModel,
        method: str | None = None,
        tare_file: Path | None = None,
        certificates: Path | None = None,
        log_directory: Path | None = None,
        temperature: float | None = None,
        bounds_file: Path | None = None,
        tell: Callable[[str], None] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        rest_s: float | None = None,
        log_s: float | None = None,
    ) -> None:
        """Start with the prior, or with what a tare or earlier bounds say.

        Args:
            method: of bounding; None for the configuration's.
            tare_file: of a tare: read now if it exists, written by :meth:`finish_tare`; None for the configuration's.
            certificates: directory for one certificate per update; None for none.
            log_directory: where :meth:`close` writes the samples of each epoch; None for nowhere.
            temperature: degrees Celsius, None if not known.
            bounds_file: proved bounds of the payload that is in the hand at the start, None if there are none.
            tell: is given every entry of the journal, one text each; None for no journal.
            clock: UTC, which says how old a tare is.
            rest_s: of an arm that rests :meth:`take` takes so much in, s; None: everything.
            log_s: with a ``log_directory`` no epoch takes in more, s: its certificates name all samples; None: no end.

        Raises:
            TareError: a tare that cannot be read or must not be used.
            ConfigError: an unknown method, or a bounds file that does not fit.
        """
        self.model, self.errors = model, MeasurementErrors.from_model(model)
        self._method, self._temperature, self._clock = method, temperature, clock
        self._journal = Journal(tell, clock)
        self._certificates, self._log_directory = certificates, log_directory
        configured = model.settings.tare.file
        self.tare_file = tare_file or (Path(configured) if configured else None)
        self.tare: Tare | None = None
        if self.tare_file is not None and (tare_file is None or self.tare_file.exists()):
            self.tare = load_tare(self.tare_file, model, self.errors, clock(), temperature)
        self.tare_text = "none" if self.tare is None else f"{self.tare_file}: {gained(self.tare)}"
        self.state = IDENTIFYING
        self.known: KnownBounds | None = None if bounds_file is None else KnownBounds(bounds_file, model)
        self._last_seq = 0  # of what was published in this epoch
        self._recorder: TareRecorder | None = None
        self._rest_filter = None if rest_s is None else RestFilter(model, self.errors, rest_s)
        rate = model.settings.measurement.rate_hz
        self._most_samples = None if log_s is None or log_directory is None else int(log_s * rate)
        self._parts: list[Measurements] = []
        self.lines: list[str] = []
        self.slack, self._velocity = SlackWatch(model, self.errors), ""
        self._explained = False
        self._begin(0)
        read = self.tare_file if self.tare is not None else None
        self._journal.begin(method, temperature, self.tare_file, read, bounds_file)

    def _begin(self, epoch: int) -> None:
        if self.tare is not None:  # it has aged since the node started
            reason = self.tare.refusal(self.model, self.errors, self._clock(), self._temperature)
            if reason is not None:
                self.tare, self.tare_text = None, f"not used any more: {reason}"
        options: Mapping[str, Any] = {} if self.tare is None else self.tare.options()
        try:
            self.core = Identifier(self.model, self.errors, epoch=epoch, method=self._method, **options)
        except SafeSysIdError as error:
            raise ConfigError("identifier", "method", self._method, str(error)) from error
        self._writer = None
        if self._certificates is not None:
            named = None if self.tare is None else (self.tare.log_hash, self.tare.samples)
            method = self._method or self.model.settings.identification.method
            self._writer = CertificateWriter(self._certificates, self.model, self.errors, method, named)
        self._parts, self.samples = [], 0
        self.lines, self._velocity, self._explained = [], "", False
        self.slack.reset()
        if self._rest_filter is not None:
            self._rest_filter.forget()

    # -- identification ---------------------------------------------------------------------------------------------

    def take(self, measurements: Measurements, origin_ns: int = 0) -> None:
        """Take samples in, unless they are of a rest that has told all it has to tell, or the epoch's log is full.

        What is left out here is nowhere: neither in the journal nor in the log, so no proof rests on it.

        Args:
            measurements: in order of arrival.
            origin_ns: what stamp zero is on the clock of the messages, for the journal.
        """
        if self.state == IDENTIFYING and self._rest_filter is not None:
            if self.log_is_full or not self._rest_filter.is_new(measurements):
                return
        elif self.state == WAITING:
            return
        self.add(measurements, origin_ns)

    @property
    def log_is_full(self) -> bool:
        """Whether this epoch takes in nothing more."""
        return self._most_samples is not None and self.samples >= self._most_samples

    def add(self, measurements: Measurements, origin_ns: int = 0) -> None:
        """Take samples in, for whatever is going on.

        Args:
            measurements: in order of arrival.
            origin_ns: what stamp zero is on the clock of the messages, for the journal.
        """
        self._journal.samples(measurements, origin_ns)
        if self.state == TARING and self._recorder is not None:
            self._recorder.add(measurements)
        if self.state != IDENTIFYING or not len(measurements):
            return
        self.core.add(measurements)
        self.samples += len(measurements)
        if self._writer is not None:
            self._writer.add(measurements)
        if self._log_directory is not None:
            self._parts.append(measurements)
        contradictions = check_velocities(self.model, self.errors, measurements)
        if contradictions:
            self._velocity = contradictions[0]

    def update(self, batch: int | None = None) -> UpdateResult:
        """Bounds from all samples so far; their certificate, if there is one to write, or is to be taken back.

        ``batch``: its number, for the journal.

        Raises:
            CertificateError: it cannot be written; the bounds stand.
        """
        fresh = self.core.has_fresh_rows
        result = self.core.update()
        published = self.narrowed(result)
        if fresh:  # else it changed nothing, and a replay can do without it
            self._journal.update(batch, published)
        self._certify(result, published)
        return published

    def _certify(self, result: UpdateResult, published: UpdateResult) -> None:
        """What the identifier proved; or nothing any more, if that contradicts what else is known of the payload."""
        if self._writer is not None:
            self._writer.write(published if published.status is UpdateStatus.EMPTY_SET else result)

    def current_result(self) -> UpdateResult:
        """What stands without anything new."""
        return self.narrowed(self.core.update())

    def narrowed(self, result: UpdateResult) -> UpdateResult:
        """An update as it is to be published: within what was known of this payload before."""
        if self.known is not None:
            result = self.known.narrow(result)
        self._last_seq = max(self._last_seq, result.box.seq)
        return result

    def resume(self, box: ParameterBox) -> bool:
        """Go on from a box that is in force and that this identifier has not published; returns whether it was one."""
        if box.epoch != self.core.box.epoch or box.seq <= self._last_seq:
            return False
        self.known, self._last_seq = AnnouncedBounds(box), box.seq
        self._journal.resume(box)
        return True

    def explain(self, result: UpdateResult) -> None:
        """Say in :attr:`lines` what is wrong, or what is hardly excited; takes some tenths of a second."""
        rows, prior = self.rows, self.model.arm_prior
        lines = [self._velocity] if self._velocity else []
        if result.status is UpdateStatus.EMPTY_SET:
            if not self._explained:
                found = diagnose_rows(self.model, self.errors, rows, sensor_prior(prior, self.errors))
                if (
                    not found.empty
                ):  # what contradicts the equations that are left has been forgotten: its bounds have not
                    found = diagnose_rows(self.model, self.errors, rows, sensor_prior(result.box, self.errors))
                self.lines, self._explained = [*lines, *format_diagnosis(found)], True
            return
        if result.status is UpdateStatus.OK:
            self.slack.update(rows, prior)
            lines += describe_excitation(weak_combinations(self.model, self.errors, rows, result.box))
            self.lines = lines

    @property
    def rows(self) -> MomentumRows:
        """Equations that are kept."""
        return self.core.rows

    def reset(self, epoch: int) -> UpdateResult | None:
        """Another payload. ``epoch``: its number. Returns what the last equations of the one before proved, if any."""
        last = self._end_epoch()
        self._recorder = None
        self.state, self._last_seq = IDENTIFYING, 0
        self._journal.order("reset", epoch=epoch)
        self._begin(epoch)
        return last

    def start(self) -> None:
        """Identify from the next sample on."""
        self._journal.order("start")
        if self.state == WAITING:
            self.state = IDENTIFYING

    # -- tare -------------------------------------------------------------------------------------------------------

    def why_no_tare(self, starting: bool) -> str | None:
        """Why a tare can not be started, or finished, now; None if it can."""
        if starting:
            if self.tare_file is None:
                return "no tare_file is configured: expected a path where the tare is to be written"
            if self.state in (TARING, FINISHING):
                return f"refused while {self.state}: expected no tare under way"
            if self.samples:
                return (
                    f"refused in epoch {self.core.box.epoch}, which has {self.samples} samples of its payload already: "
                    "expected a new epoch (controller/reset_bounds), or start_on_activation false"
                )
        elif self.state != TARING:
            return f"refused while {self.state}: expected tare_start before"
        return None

    def start_tare(self) -> None:
        """From the next sample on the hand is empty."""
        self._journal.order("tare_start")
        self._recorder, self.state = TareRecorder(self.model, self.errors), TARING
        self.tare_text = "collecting"

    def finish_tare(self) -> None:
        """Make, write and use the tare of what was collected; takes seconds. Then wait for :meth:`start`.

        Raises:
            TareError: nothing usable was collected, or the file cannot be written.
        """
        recorder, self._recorder = self._recorder, None
        if recorder is None or self.tare_file is None:
            return  # another epoch began
        self._journal.order("tare_finish")
        self.state = WAITING
        try:
            tare = recorder.finish(self._temperature, self._clock())
            write_tare(self.tare_file, tare)
        except SafeSysIdError as error:
            self.tare_text = f"failed: {error}"
            raise
        if self._log_directory is not None:
            write_log(self._log_directory / "tare_log.npz", self.model.joint_names, recorder.log)
        self.tare, self.tare_text = tare, f"{self.tare_file}: {gained(tare)}"
        self._begin(self.core.box.epoch)

    # -- end --------------------------------------------------------------------------------------------------------

    def close(self, prove: bool = True) -> UpdateResult | None:
        """Write the samples of the epoch, so that its certificates can be verified, and certificates that wait.

        Returns the last update, which nobody has seen yet: it has a certificate, or contradicts all that were written.

        Args:
            prove: False if another thread is in the middle of an update: identifier and certificates are that thread's,
                and the log is written alone.
        """
        self._journal.order("end")
        return self._end_epoch(prove)

    def _end_epoch(self, prove: bool = True) -> UpdateResult | None:
        """Nothing of the log is left that no certificate covers: what came after the last update may contradict it."""
        published = None
        if self._writer is not None and prove:
            with contextlib.suppress(CertificateError):  # said when it was to be written first
                self._writer.flush()
                if self.samples:
                    result = self.core.update(final=True)
                    published = self.narrowed(result)
                    self._certify(result, published)
        self._save_log()
        return published

    def _save_log(self) -> None:
        if self._log_directory is None or not self._parts:
            return
        epoch = self.core.box.epoch
        name = "log.npz" if epoch == 0 else f"log_{epoch}.npz"
        write_log(self._log_directory / name, self.model.joint_names, Measurements.concatenate(self._parts))
        self._parts = []
