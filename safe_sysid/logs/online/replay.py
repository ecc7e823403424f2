"""Replay of an identification from a bag, by the identifier's journal and the messages on `joint_states`.

Nothing is left to timing: what was taken in, and when in the order of things, the journal says; so the result has to be
the same bit for bit on the same machine, whether the run was in lock-step or in real time. What is compared: digests of
every piece of samples, of every update, and every message on ``bounds``.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import UpdateResult, UpdateStatus
from safe_sysid.logs.bags.bag_bounds import PublishedBounds, compare_bounds
from safe_sysid.logs.log import LogError
from safe_sysid.logs.online.journal import JournalEntry, bounds_digest, file_digest, samples_digest
from safe_sysid.logs.online.session import IdentifierSession
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ReplayResult", "ReplayedUpdate", "Replayer"]

#: A sample that is this much older than the newest one of the bag will not come any more, ns; pieces are of 0.25 s.
_LATE = 5_000_000_000
#: Samples that are kept for journal entries to come: minutes, by which an identifier may lag behind.
_MOST_KEPT = 200_000
_MOST_TOLD = 1000


@dataclass(frozen=True, eq=False)
class ReplayedUpdate:
    """One update, as it came out again.

    Time (s) of its last sample, number of its batch, identity of its box, whether every bit is what the journal says,
    and the (10,) bounds of theta_e.
    """

    time: float
    batch: int | None
    box: str
    identical: bool
    lower: list[float]
    upper: list[float]


@dataclass
class ReplayResult:
    """One identifier, run again: samples and entries used, what differs, what the bag lacks, what else there is to say.

    ``identical``: everything that the identifier did is in the bag, and came out again bit for bit. ``problems`` are
    the first thousand of ``differences``; ``lockstep`` is None where the bag does not say.
    """

    node: str
    robot: str
    lockstep: bool | None = None
    identical: bool = False
    samples: int = 0
    entries: int = 0
    differences: int = 0
    problems: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    updates: list[ReplayedUpdate] = field(default_factory=list)

    def tell(self, problem: str) -> None:
        """Something is not as it was; one line."""
        self.differences += 1
        if len(self.problems) < _MOST_TOLD:
            self.problems.append(problem)


class Replayer:
    """Takes messages in, in the order of the bag, and does what the journal says as soon as its samples are there."""

    def __init__(
        self, models: Sequence[RobotModel], files: Mapping[str, Path | None], scratch: Path, node: str = ""
    ) -> None:
        """Begin with nothing.

        Args:
            models: of the sessions; those that follow go on with the last one.
            files: ``tare`` and ``bounds`` that stand for those of the run, whose paths may not exist here.
            scratch: directory for a tare that is made again.
        """
        self.model, self._models, self._files, self._scratch = models[0], list(models), files, scratch
        self.result, self.ended = ReplayResult(node, models[0].name), False
        self._published: list[PublishedBounds] = []  # what a run of this would have published, in order
        self._session: IdentifierSession | None = None
        self._waiting: deque[JournalEntry] = deque()
        self._stamps = np.zeros(0, np.int64)
        self._values = np.zeros((0, 3, self.model.n))
        self._last: JournalEntry | None = None
        self._first_stamp: int | None = None
        self._latest_stamp = 0
        self._newest = 0  # stamp of the bag's last joint state, ns
        self._utc: datetime | None = None
        self._broken = self._contradiction = False

    def add_samples(self, stamps: IntArray, values: FloatArray) -> None:
        """Joint states of the bag, in order of arrival.

        ``stamps``: (L,) ns; ``values``: (L, 3, n) positions, velocities, efforts.
        """
        if len(stamps):
            self._newest = int(stamps[-1])
            self._stamps = np.concatenate([self._stamps, stamps])
            self._values = np.concatenate([self._values, values])
        self._work(False)
        # An identifier that is stopped takes nothing in for hours.
        self._stamps, self._values = self._stamps[-_MOST_KEPT:], self._values[-_MOST_KEPT:]

    def add_entry(self, entry: JournalEntry) -> None:
        """The next entry of the journal, in the order of the bag."""
        self._waiting.append(entry)
        self._work(False)

    def finish(self, published: list[PublishedBounds]) -> None:
        """Nothing more comes: do what is left, and compare with the messages of the bag.

        ``published``: on ``bounds``, in the order of the bag.
        """
        self._work(True)
        expected = self._published
        if not self.ended and expected and expected[-1].name not in {message.name for message in published}:
            self.result.notes.append(f"{expected[-1].name} was being published when the recording ended")
            expected = expected[:-1]
        for line in compare_bounds(expected, published):
            self.result.tell(line)
        if not self.result.updates:
            self.result.gaps.append("no update is in the journal: nothing was compared")
        if not self.ended and self._newest > self._latest_stamp:
            seconds = 1e-9 * (self._newest - self._latest_stamp) if self._latest_stamp else None
            self.result.gaps.append(
                "the journal has no end and joint_states go on "
                + ("without an entry" if seconds is None else f"for {seconds:.3f} s after its last samples")
                + ": what the identifier did with them is not in the bag"
            )

    # -- in the order of the journal --------------------------------------------------------------------------------

    def _work(self, over: bool) -> None:
        while self._waiting:
            entry = self._waiting[0]
            if entry.job == "samples" and not self._broken and not over and not self._here(entry.stamps):
                return
            self._waiting.popleft()
            self._do(entry)

    def _here(self, stamps: IntArray) -> bool:
        """Whether all that the bag has of these has come."""
        if not len(self._stamps):
            return False
        return bool(np.any(self._stamps == stamps[-1])) or int(self._stamps[-1]) > int(stamps[-1]) + _LATE

    def _do(self, entry: JournalEntry) -> None:
        self.result.entries += 1
        self._follow(entry)
        self._utc = entry.utc
        self._last = entry
        if entry.job == "begin":
            self._broken = self.ended = False
            self._begin(entry)
        elif self._broken or self._session is None:
            return
        elif entry.job == "end":
            self.ended = True
        elif entry.job in ("start", "tare_start"):
            {"start": self._session.start, "tare_start": self._session.start_tare}[entry.job]()
        else:
            getattr(self, f"_do_{entry.job}")(entry, self._session)

    def _follow(self, entry: JournalEntry) -> None:
        """Is this the next one? After a gap nothing is right until a session begins anew."""
        last = self._last
        if entry.job == "begin":
            if last is not None and last.job != "end":
                self.result.gaps.append(
                    f"a session begins after entry {last.number} ({last.job}) of the one before, which has no end: "
                    "what it did after that is not in the bag (it was killed, or entries are missing)"
                )
            if entry.number:
                self.result.tell(f"journal: entry {entry.number} begins a session: expected number 0")
            return
        if last is None:
            self._stop(f"journal: begins with entry {entry.number}: the bag lacks those before it")
        elif entry.number != last.number + 1 and not self._broken:
            self._stop(
                f"journal: entry {last.number} is followed by {entry.number}: expected {last.number + 1}; "
                "entries are missing"
            )
        elif entry.before != last.digest and not self._broken:
            self._stop(
                f"journal: entry {last.number} ({last.job}) is not the one that entry {entry.number} follows: "
                "one of them was changed"
            )

    def _stop(self, problem: str) -> None:
        self.result.tell(f"{problem}; nothing of this session is run again from here on")
        self._broken = True

    def _begin(self, entry: JournalEntry) -> None:
        content = entry.content
        self.model = self._models.pop(0) if self._models else self.model
        try:
            tare = self._tare(content["tare"])
            bounds = None if content["bounds"] is None else self._file("bounds", content["bounds"])
            self._session = IdentifierSession(
                self.model, content["method"], tare, temperature=content["temperature"], bounds_file=bounds,
                clock=lambda: self._utc or entry.utc,
            )  # fmt: skip
        except SafeSysIdError as error:
            self._session = None
            self._stop(f"the session cannot be begun: {error}")
            return
        # What an identifier that has learnt nothing yet answers in lock-step.
        self._expect(self.model.arm_prior)
        if self._session.known is not None:
            self._publish(self._session.current_result(), None, sure=False)

    def _tare(self, stated: dict[str, Any] | None) -> Path | None:
        """A path of our own: a tare that is made again must not replace that of the run."""
        if stated is None:
            return None
        path = self._scratch / "tare.npz"
        path.unlink(missing_ok=True)
        if stated["sha256"] is not None:
            shutil.copyfile(self._file("tare", stated), path)
        return path

    def _file(self, name: str, stated: dict[str, Any]) -> Path:
        path = self._files.get(name) or Path(stated["path"])
        try:
            found = file_digest(path)
        except OSError as error:
            found = str(error.strerror)
        if found != stated["sha256"]:
            raise LogError(
                f"{path}: digest {found[:40]}: expected {str(stated['sha256'])[:40]}, that of the {name} of the run; "
                f"say --{name} FILE"
            )
        return path

    def _do_samples(self, entry: JournalEntry, session: IdentifierSession) -> None:
        wanted = entry.stamps
        index = _find(self._stamps, wanted)
        found = index[index >= 0]
        missing = len(wanted) - len(found)
        self._first_stamp = int(wanted[0]) if self._first_stamp is None else self._first_stamp
        self._latest_stamp = int(wanted[-1])
        origin = entry.content["origin_ns"]
        stamps, values = self._stamps[found], self._values[found]
        done = int(found[-1]) + 1 if len(found) else 0
        self._stamps, self._values = self._stamps[done:], self._values[done:]
        measurements = Measurements((stamps - origin) / 1e9, values[:, 0], values[:, 1], values[:, 2])
        if missing:
            first = int(wanted[np.flatnonzero(index < 0)[0]])
            self.result.tell(
                f"entry {entry.number}: {missing} of {len(wanted)} samples that the identifier took in are not in the "
                f"bag, the first with stamp {first} ns"
            )
        elif samples_digest(measurements) != entry.content["sha256"]:
            self.result.tell(
                f"entry {entry.number}: samples {wanted[0]} to {wanted[-1]} ns are not the numbers that the identifier "
                "took in: joint_states or the journal was changed"
            )
        self.result.samples += len(found)
        if len(measurements):
            session.add(measurements, origin)

    def _do_update(self, entry: JournalEntry, session: IdentifierSession) -> None:
        content = entry.content
        result = session.update()
        same = (
            result.box.identity == content["box"]
            and result.status.name == content["status"]
            and bounds_digest(result.box, result.nominal) == content["sha256"]
        )
        if not same:
            self.result.tell(
                f"entry {entry.number}: update of batch {content['batch']}: box {result.box.identity}, "
                f"{result.status.name}: expected {content['box']}, {content['status']}, the same bit for bit"
            )
        # In real time an update that found nothing new is not told, nor a contradiction that was told before.
        again = result.status is UpdateStatus.EMPTY_SET and self._contradiction
        self._contradiction = result.status is UpdateStatus.EMPTY_SET
        if result.status is not UpdateStatus.NO_DATA and not again:
            self._publish(result, content["batch"])
        time = 1e-9 * (self._latest_stamp - (self._first_stamp or 0))
        self.result.updates.append(
            ReplayedUpdate(
                time, content["batch"], result.box.identity, same,
                result.box.payload_lower.tolist(), result.box.payload_upper.tolist(),
            )
        )  # fmt: skip

    def _do_reset(self, entry: JournalEntry, session: IdentifierSession) -> None:
        session.reset(entry.content["epoch"])
        self._contradiction = False
        self._publish(session.current_result(), None)

    def _do_resume(self, entry: JournalEntry, session: IdentifierSession) -> None:
        try:
            box = entry.box
        except SafeSysIdError as error:
            self._stop(f"entry {entry.number}: {error}")
            return
        if box.size != self.model.arm_prior.size:
            self._stop(f"entry {entry.number}: {box.size} parameters: expected {self.model.arm_prior.size}")
        elif not session.resume(box):
            self.result.tell(f"entry {entry.number}: box {box.identity} is not newer: expected it to be")
        else:
            self._expect(box)

    def _do_tare_finish(self, entry: JournalEntry, session: IdentifierSession) -> None:
        try:
            session.finish_tare()
        except SafeSysIdError as error:  # so it was in the run, or the next update will tell
            self.result.notes.append(f"entry {entry.number}: no tare: {error}")

    def _expect(self, box: ParameterBox) -> None:
        """A box that may be told, with its centre, without an update of this session's."""
        values = np.stack([box.lower, box.mid, box.upper])
        self._published.append(PublishedBounds(box.identity, None, values, sure=False))

    def _publish(self, result: UpdateResult, batch: int | None, sure: bool = True) -> None:
        box = result.box
        nominal = box.mid.copy()
        nominal[box.layout.payload] = result.nominal
        self._published.append(PublishedBounds(box.identity, batch, np.stack([box.lower, nominal, box.upper]), sure))


def _find(stamps: IntArray, wanted: IntArray) -> IntArray:
    """Where each wanted stamp is, in this order, each place used once; -1 where there is none."""
    if np.array_equal(stamps[: len(wanted)], wanted):
        return np.arange(len(wanted))
    places: dict[int, list[int]] = {}
    for place, stamp in enumerate(stamps.tolist()):
        places.setdefault(stamp, []).append(place)
    index, last = np.full(len(wanted), -1), -1
    for k, stamp in enumerate(wanted.tolist()):
        index[k] = next((p for p in places.get(stamp, ()) if p > last), -1)
        last = max(last, int(index[k]))
    return index
