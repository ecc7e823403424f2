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
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.robot.parameters import ParameterBox

if TYPE_CHECKING:  # a controller's digests come from here, and it starts 0.3 s later with an identifier
    from safe_sysid.identification.equations.measurements import Measurements
    from safe_sysid.identification.identifier import UpdateResult

__all__ = ["Journal", "JournalEntry", "JournalError", "bounds_digest", "file_digest", "read_entry", "samples_digest"]

_MOST_TEXT, _MOST_SAMPLES, _LARGEST = 4_000_000, 10_000_000, 2**62
Whole = Annotated[int, Field(gt=-_LARGEST, lt=_LARGEST)]
Count = Annotated[int, Field(ge=0, lt=_LARGEST)]
Identity = Annotated[str, Field(pattern=r"^[0-9]{1,9}:[0-9]{1,9}$")]


class JournalError(SafeSysIdError):
    """A text that is no entry of a journal."""


class Journal:
    """Writes entries; without anyone to tell it costs nothing."""

    def __init__(self, tell: Callable[[str], None] | None, clock: Callable[[], datetime]) -> None:
        """Start at number 0. ``tell``: is given each entry; None for nobody."""
        self._tell, self._clock = tell, clock
        self._number, self._last = 0, ""

    def order(self, job: str, **content: Any) -> None:
        """One entry: what was done, and with what; values that JSON knows."""
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
        """How a session begins: the tare's file, the same if it was read, and a file of bounds."""
        if self._tell is not None:
            tare = None if tare_file is None else {"path": str(tare_file), "sha256": read and file_digest(read)}
            known = None if bounds is None else {"path": str(bounds), "sha256": file_digest(bounds)}
            self.order("begin", method=method, temperature=temperature, tare=tare, bounds=known)

    def samples(self, measurements: Measurements, origin_ns: int) -> None:
        """A piece of samples in order of arrival, stamps in s from ``origin_ns`` on the clock of the messages."""
        if self._tell is None or not len(measurements):
            return
        stamps = origin_ns + np.rint(measurements.stamps * 1e9).astype(np.int64)
        self.order("samples", origin_ns=origin_ns, stamps=_packed(stamps), sha256=samples_digest(measurements))

    def update(self, batch: int | None, result: UpdateResult) -> None:
        """An update by the number of its batch, and what it published."""
        if self._tell is not None:
            self.order(
                "update", batch=batch, box=result.box.identity, status=result.status.name,
                rows=result.rows, sha256=bounds_digest(result.box, result.nominal),
            )  # fmt: skip

    def resume(self, box: ParameterBox) -> None:
        """Going on from a box of somebody else, as announced."""
        self.order("resume", box=box.identity, lower=box.lower.tolist(), upper=box.upper.tolist())


@dataclass(frozen=True, eq=False)
class JournalEntry:
    """One entry that was read, and its digest; ``before`` is that of the entry before it, "" for the first."""

    number: int
    before: str
    job: str
    utc: datetime
    content: Mapping[str, Any]
    digest: str

    @property
    def stamps(self) -> IntArray:
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


class _JournalFile(BaseModel):
    path: str
    sha256: str | None


class _JournalLine(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    number: Count
    before: str
    utc: AwareDatetime


class _Order(_JournalLine):
    job: Literal["start", "tare_start", "tare_finish", "end"]


class _Begin(_JournalLine):
    job: Literal["begin"]
    method: str | None
    temperature: float | None
    tare: _JournalFile | None
    bounds: _JournalFile | None


class _JournalSamples(_JournalLine):
    job: Literal["samples"]
    origin_ns: Whole
    stamps: tuple[Whole, list[tuple[Whole, Annotated[int, Field(gt=0, lt=_MOST_SAMPLES)]]]]
    sha256: str

    @field_validator("stamps")
    @classmethod
    def _few(cls, packed: Any) -> Any:
        if sum(count for _, count in packed[1]) >= _MOST_SAMPLES:
            raise ValueError(f"more than {_MOST_SAMPLES} samples")
        if sum(abs(step) * count for step, count in packed[1]) >= _LARGEST:
            raise ValueError("a span beyond 64 bits")
        return packed


class _JournalUpdate(_JournalLine):
    job: Literal["update"]
    batch: Whole | None
    box: Identity
    status: str
    sha256: str


class _Reset(_JournalLine):
    job: Literal["reset"]
    epoch: Count


class _Resume(_JournalLine):
    job: Literal["resume"]
    box: Identity
    lower: list[float]
    upper: list[float]


_ENTRY: TypeAdapter[Any] = TypeAdapter(
    Annotated[_Begin | _JournalSamples | _JournalUpdate | _Reset | _Resume | _Order, Field(discriminator="job")]
)


def read_entry(text: str) -> JournalEntry:
    """Read one entry, whoever wrote it.

    Raises:
        JournalError: field, and what is wrong with it.
    """
    if len(text) > _MOST_TEXT:
        raise JournalError(f"journal entry of {len(text)} characters: expected at most {_MOST_TEXT}")
    try:
        content = _ENTRY.validate_json(text.encode("utf-8", "replace")).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        raise JournalError(f"journal entry {text[:60]!r}: {place}: {first['msg']}") from None
    number, before, job, utc = (content.pop(key) for key in ("number", "before", "job", "utc"))
    return JournalEntry(number, before, job, utc, content, text_digest(text))


def _packed(stamps: IntArray) -> list[Any]:
    """First stamp, and runs of equal steps: ``[first, [[step, count], ...]]``."""
    steps = np.diff(stamps)
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(steps), 1), bool), np.diff(steps) != 0]))
    counts = np.diff(np.append(starts, len(steps)))
    return [int(stamps[0]), [[int(steps[i]), int(count)] for i, count in zip(starts, counts, strict=True)]]


def text_digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def samples_digest(measurements: Measurements) -> str:
    """SHA-256 of the bits of stamps, positions, velocities and efforts, in order of arrival."""
    return _digest("", measurements.stamps, measurements.q, measurements.qd, measurements.effort)


def bounds_digest(box: ParameterBox, nominal: FloatArray) -> str:
    """SHA-256 of the bits of a box and of its nominal payload, (10,)."""
    return _digest(box.identity, box.lower, nominal, box.upper)


def _digest(text: str, *arrays: FloatArray) -> str:
    state = hashlib.sha256(text.encode())
    for values in arrays:
        state.update(np.ascontiguousarray(values, "<f8").tobytes())
    return state.hexdigest()
