"""Journal of an identifier: which samples it took in, when it updated, what it published.

With the samples themselves a journal is all that it takes to run an identification again, bit for bit, whatever
threads, clocks and lost messages there were: pieces of samples by their stamps and a digest, orders in the order of
execution, files by digest, the time that judged a tare's age. Entries are numbered, and each names the digest of the
one before it: one that is missing or changed is noticed. That is no signature: who writes a whole bag anew can write
what he likes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import UpdateResult
from safe_sysid.robot.parameters import ParameterBox

__all__ = [
    "Journal",
    "JournalEntry",
    "JournalError",
    "bounds_digest",
    "file_digest",
    "read_entry",
    "samples_digest",
]

_NS = 1e9
_JOBS = ("begin", "samples", "update", "reset", "resume", "start", "tare_start", "tare_finish", "end")
_MOST_TEXT, _MOST_SAMPLES = 4_000_000, 10_000_000


class JournalError(SafeSysIdError):
    """A text that is no entry of a journal."""


class Journal:
    """Writes entries; without anyone to tell it costs nothing."""

    def __init__(self, tell: Callable[[str], None] | None, clock: Callable[[], datetime]) -> None:
        """Start at number 0.

        Args:
            tell: is given each entry; None for nobody.
            clock: UTC.
        """
        self._tell, self._clock = tell, clock
        self._number, self._last = 0, ""

    def order(self, job: str, **content: Any) -> None:
        """One entry.

        Args:
            job: what was done.
            content: with what; values that JSON knows.
        """
        if self._tell is None:
            return
        entry = {"number": self._number, "before": self._last, "job": job, "utc": self._clock().isoformat()}
        text = json.dumps({**entry, **content}, separators=(",", ":"))
        self._number, self._last = self._number + 1, text_digest(text)
        self._tell(text)

    def begin(
        self,
        method: str | None,
        temperature: float | None,
        tare_file: Path | None,
        read: Path | None,
        bounds: Path | None,
    ) -> None:
        """How a session begins.

        Args:
            method: of bounding; None for the configuration's.
            temperature: degrees Celsius, None if not known.
            tare_file: where a tare is, or will be, written.
            read: the same, if a tare was read from it.
            bounds: file of bounds that were known before.
        """
        if self._tell is not None:
            tare = (
                None if tare_file is None else {"path": str(tare_file), "sha256": read and file_digest(read)}
            )
            known = None if bounds is None else {"path": str(bounds), "sha256": file_digest(bounds)}
            self.order("begin", method=method, temperature=temperature, tare=tare, bounds=known)

    def samples(self, measurements: Measurements, origin_ns: int) -> None:
        """A piece of samples, in order of arrival.

        Args:
            measurements: the piece; stamps in s from ``origin_ns``.
            origin_ns: on the clock of the messages.
        """
        if self._tell is None or not len(measurements):
            return
        stamps = origin_ns + np.rint(measurements.stamps * _NS).astype(np.int64)
        self.order(
            "samples", origin_ns=origin_ns, stamps=_packed(stamps), sha256=samples_digest(measurements)
        )

    def update(self, batch: int | None, result: UpdateResult) -> None:
        """An update, and what it published.

        Args:
            batch: its number.
            result: as it was published.
        """
        if self._tell is not None:
            self.order(
                "update", batch=batch, box=result.box.identity, status=result.status.name,
                rows=result.rows, sha256=bounds_digest(result.box, result.nominal),
            )  # fmt: skip

    def resume(self, box: ParameterBox) -> None:
        """Going on from a box of somebody else.

        Args:
            box: as announced.
        """
        self.order("resume", box=box.identity, lower=box.lower.tolist(), upper=box.upper.tolist())


@dataclass(frozen=True, eq=False)
class JournalEntry:
    """One entry that was read.

    Attributes:
        number: from 0, within one session.
        before: digest of the entry before it, "" for the first.
        job: what was done.
        utc: when.
        content: everything else, checked as far as its job says what there must be.
        digest: of this entry.
    """

    number: int
    before: str
    job: str
    utc: datetime
    content: Mapping[str, Any]
    digest: str

    @property
    def stamps(self) -> NDArray[np.int64]:
        """(N,) ns of the samples of a piece."""
        first, runs = self.content["stamps"]
        steps = np.repeat(
            np.array([step for step, _ in runs], np.int64), np.array([count for _, count in runs], np.int64)
        )
        return first + np.concatenate([np.zeros(1, np.int64), np.cumsum(steps)])

    @property
    def box(self) -> ParameterBox:
        """Of ``resume``."""
        epoch, _, seq = self.content["box"].partition(":")
        lower, upper = (np.array(self.content[key], float) for key in ("lower", "upper"))
        return ParameterBox(lower, upper, int(epoch), int(seq))


def read_entry(text: str) -> JournalEntry:
    """Read one entry, whoever wrote it.

    Args:
        text: of a message.

    Raises:
        JournalError: field, value and what was expected.
    """
    if len(text) > _MOST_TEXT:
        raise JournalError(f"journal entry of {len(text)} characters: expected at most {_MOST_TEXT}")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"journal entry {text[:60]!r}: {error}: expected JSON") from None
    if not isinstance(content, dict):
        raise JournalError(f"journal entry {text[:60]!r}: expected a JSON object")
    for key, good, expected in (
        ("number", lambda v: _whole(v) and v >= 0, "a whole number"),
        ("before", lambda v: isinstance(v, str), "a digest"),
        ("job", lambda v: v in _JOBS, f"one of {', '.join(_JOBS)}"),
        ("utc", _is_time, "a time with its zone"),
        *_CONTENT.get(str(content.get("job")), ()),
    ):
        if not good(content.get(key)):
            raise JournalError(
                f"journal entry {content.get('number')!r}: {key} = {str(content.get(key))[:60]!r}: expected {expected}"
            )
    rest = {key: value for key, value in content.items() if key not in ("number", "before", "job", "utc")}
    utc = datetime.fromisoformat(content["utc"])
    return JournalEntry(content["number"], content["before"], content["job"], utc, rest, text_digest(text))


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**62


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_file(value: Any) -> bool:
    if value is None:
        return True
    good = isinstance(value, dict) and isinstance(value.get("path"), str)
    return good and (value.get("sha256") is None or isinstance(value["sha256"], str))


def _is_packed(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 2 and _whole(value[0]) and isinstance(value[1], list)):
        return False
    runs = value[1]
    pairs = all(
        isinstance(r, list) and len(r) == 2 and _whole(r[0]) and _whole(r[1]) and r[1] > 0 for r in runs
    )
    return pairs and sum(r[1] for r in runs) < _MOST_SAMPLES and sum(abs(r[0]) * r[1] for r in runs) < 2**62


def _is_identity(value: Any) -> bool:
    epoch, colon, seq = value.partition(":") if isinstance(value, str) else ("", "", "")
    return all(part.isascii() and part.isdigit() and len(part) < 10 for part in (epoch, seq)) and bool(colon)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) in (int, float) and abs(v) < 1e300 for v in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_CONTENT: Mapping[str, tuple[tuple[str, Callable[[Any], bool], str], ...]] = {
    "begin": (
        ("method", lambda v: v is None or isinstance(v, str), "a text or null"),
        ("temperature", lambda v: v is None or type(v) in (int, float), "a number or null"),
        ("tare", _is_file, "path and sha256, or null"),
        ("bounds", _is_file, "path and sha256, or null"),
    ),
    "samples": (
        ("origin_ns", _whole, "ns"),
        ("stamps", _is_packed, "[first, [[step, count], ...]] in ns"),
        ("sha256", _is_text, "a digest"),
    ),
    "update": (
        ("batch", lambda v: v is None or _whole(v), "a whole number or null"),
        ("box", _is_identity, "epoch:seq"),
        ("status", _is_text, "a text"),
        ("sha256", _is_text, "a digest"),
    ),
    "reset": (("epoch", lambda v: _whole(v) and v >= 0, "a whole number"),),
    "resume": (
        ("box", _is_identity, "epoch:seq"),
        ("lower", _is_numbers, "numbers"),
        ("upper", _is_numbers, "numbers"),
    ),
}


def _packed(stamps: NDArray[np.int64]) -> list[Any]:
    """First stamp, and runs of equal steps: ``[first, [[step, count], ...]]``."""
    steps = np.diff(stamps)
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(steps), 1), bool), np.diff(steps) != 0]))
    counts = np.diff(np.append(starts, len(steps)))
    return [int(stamps[0]), [[int(steps[i]), int(count)] for i, count in zip(starts, counts, strict=True)]]


def text_digest(text: str) -> str:
    """SHA-256 of a text.

    Args:
        text: any.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Args:
        path: of the file.

    Raises:
        OSError: it cannot be read.
    """
    state = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def samples_digest(measurements: Measurements) -> str:
    """SHA-256 of the bits of stamps, positions, velocities and efforts, in order of arrival.

    Args:
        measurements: any number of them.
    """
    state = hashlib.sha256()
    for values in (measurements.stamps, measurements.q, measurements.qd, measurements.effort):
        state.update(np.ascontiguousarray(values, "<f8").tobytes())
    return state.hexdigest()


def bounds_digest(box: ParameterBox, nominal: NDArray[np.float64]) -> str:
    """SHA-256 of the bits of a box and its nominal.

    Args:
        box: all parameters.
        nominal: (10,) of the payload.
    """
    state = hashlib.sha256(box.identity.encode())
    for values in (box.lower, nominal, box.upper):
        state.update(np.ascontiguousarray(values, "<f8").tobytes())
    return state.hexdigest()
