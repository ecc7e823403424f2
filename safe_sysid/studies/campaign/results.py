"""One file of results: a first line that says what the campaign is, then one line of JSON for each trial.

Lines are written whole, flushed and synchronised to disk; a last line that a crash cut off is taken for not written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from safe_sysid.errors import SafeSysIdError
from safe_sysid.input_limits import MAX_ARRAY_BYTES, read_regular

__all__ = ["CampaignError", "ResultFile", "read_results", "write_summary"]

SCHEMA = "safe_sysid campaign 1"


class CampaignError(SafeSysIdError):
    """A campaign cannot be run, or a file of results cannot be used, as asked."""


def read_results(path: str | Path) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """What a file of results holds. Returns what the campaign is, and its trials by index.

    Raises CampaignError: no such file, not a file of results, or a line other than the last that is damaged.
    """
    header, trials, _ = _parse(Path(path))
    return header, trials


def _parse(path: Path) -> tuple[dict[str, Any], dict[int, dict[str, Any]], int]:
    try:
        raw = read_regular(path, MAX_ARRAY_BYTES)
    except OSError as error:
        raise CampaignError(f"{path}: {error.strerror}: expected a file of campaign results") from error
    whole = raw.rfind(b"\n") + 1  # what follows was cut off while it was written
    trials: dict[int, dict[str, Any]] = {}
    header: dict[str, Any] | None = None
    for number, line in enumerate(raw[:whole].splitlines(), start=1):
        try:
            entry = json.loads(line)
            if header is None:
                header = entry if entry["schema"] == SCHEMA else None
                if header is None:
                    raise ValueError
            else:
                trials[int(entry["index"])] = entry
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            expected = f"schema {SCHEMA!r}" if header is None else "one trial as JSON"
            raise CampaignError(f"{path}, line {number}: {line[:60]!r}: expected {expected}") from error
    if header is None:
        raise CampaignError(f"{path}: no complete line: expected a first line with schema {SCHEMA!r}")
    return header, trials, whole


def _differences(given: dict[str, Any], found: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """What is asked for and what a file has instead, for every entry in which they differ."""
    for key in sorted({*found, *given}):
        ours, theirs = given.get(key), found.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            yield from _differences(ours, theirs, f"{prefix}{key}.")
        elif ours != theirs:
            yield f"{prefix}{key} = {ours!r}: expected {theirs!r}, as in the file"


class ResultFile:
    """Appends trials to a file. Use as a context manager."""

    def __init__(self, path: str | Path, header: dict[str, Any], resume: bool) -> None:
        """Open, or start, the file.

        Raises CampaignError: the file exists and is not to be continued, or is that of another campaign.

        Args:
            header: what the campaign is; a file that is continued must say the same.
            resume: continue a file that exists; without it such a file is refused, not overwritten.
        """
        self.path = Path(path)
        self.done: dict[int, dict[str, Any]] = {}
        header = {"schema": SCHEMA, **header}
        whole = 0
        if self.path.exists() and self.path.stat().st_size > 0:
            if not resume:
                raise CampaignError(f"{self.path} exists: expected a new file, or --resume to continue this one")
            found, self.done, whole = _parse(self.path)
            if others := list(_differences(header, found)):
                raise CampaignError(f"{self.path} is that of another campaign: {'; '.join(others)}")
        self._file: BinaryIO = self.path.open("r+b" if whole else "wb")
        self._file.truncate(whole)
        self._file.seek(whole)
        if not whole:
            self._write([header])

    def append(self, trials: Iterable[dict[str, Any]]) -> None:
        """Write trials; they are on disk when this returns."""
        trials = list(trials)
        self._write(trials)
        self.done |= {int(trial["index"]): trial for trial in trials}

    def _write(self, entries: list[dict[str, Any]]) -> None:
        self._file.write(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def write_summary(path: str | Path, summary: dict[str, Any]) -> None:
    """Write JSON; the file is either the old or the new one, never half of one.

    Raises CampaignError: the file cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CampaignError(f"{path}: {error.strerror}: expected a place to write the summary") from error
