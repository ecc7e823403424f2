"""CSV logs: one line per sample, names in the first line. Missing cells stay missing."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TextIO

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.input_limits import open_regular
from safe_sysid.logs.formats.header import ANGLE_UNITS, QUANTITIES, TIME_UNITS, Columns, find_columns
from safe_sysid.logs.log import Log, LogError

__all__ = ["read_csv"]

_BLOCK = 4 << 20  # characters at once
_MAX_LINE = 1 << 20
_MAX_ROWS = 50_000_000
_LATEST = 10**12  # s; longer than stamps of any clock
_EXACT = 1e5  # s; beyond it a double resolves less than 0.01 ns: subtract the origin before rounding
_EMPTY = ("", "null", "none", "nan")


def read_csv(
    path: str | Path,
    joint_names: Sequence[str],
    explicit: Mapping[str, str] | None = None,
    angles: str | None = None,
    time_unit: str | None = None,
    progress: Callable[[float], None] | None = None,
    may_lack_velocity: bool = False,
) -> Log:
    """Read a table of joint states.

    Args:
        path: of the file: UTF-8, separated by commas, semicolons or tabs, one line of names, decimal points.
        joint_names: n names of the robot's joints.
        explicit: ``{"time": column, "joint_1.position": column, ...}``, overrides what names suggest.
        angles: "rad" or "deg", of positions and velocities; None: as the names say, else rad.
        time_unit: "s", "ms", "us" or "ns"; None: as the names say, else s.
        progress: called with the share of the file that is read.
        may_lack_velocity: whether a table without velocities will do; they are nan then.

    Raises:
        LogError: the file or its header cannot be used; names line, column, value and expectation.
    """
    path = Path(path)
    for value, known, what in ((angles, ANGLE_UNITS, "angles"), (time_unit, TIME_UNITS, "time unit")):
        if value is not None and value not in known:
            raise LogError(f"{what} = {value!r}: expected one of {', '.join(known)}")
    try:
        size = max(path.stat().st_size, 1)
        with open_regular(path) as binary, io.TextIOWrapper(binary, "utf-8-sig", newline="") as file:
            start = binary.read(_MAX_LINE)
            _check_text(path, start)
            binary.seek(0)
            table = _Table(path, file, joint_names, explicit or {}, time_unit, may_lack_velocity)
            while table.block():
                if progress is not None:
                    progress(min(1.0, table.characters / size))
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise LogError(f"{path}: byte {error.start} is not UTF-8: expected a text file") from None
    except (OSError, csv.Error) as error:
        raise LogError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    return table.log(angles)


def _check_text(path: Path, start: bytes) -> None:
    if not start:
        raise LogError(f"{path}: is empty: expected a line of column names and one line per sample")
    if b"\0" in start:
        raise LogError(f"{path}: holds zero bytes: expected a text file, UTF-8")
    if len(start) == _MAX_LINE and b"\n" not in start:
        raise LogError(f"{path}: first line of more than {_MAX_LINE} bytes: expected column names")


class _Table:
    """Reads blocks of lines into blocks of numbers."""

    def __init__(
        self,
        path: Path,
        file: TextIO,
        joint_names: Sequence[str],
        explicit: Mapping[str, str],
        time_unit: str | None,
        may_lack_velocity: bool,
    ) -> None:
        self.path, self._file, self._joints = path, file, tuple(joint_names)
        self._line, self._pending = 0, ""
        first = self._first_line(path, file)
        self._delimiter = max(",;\t", key=first.count)
        if not first.count(self._delimiter) and len(first.split()) > 3:
            self._delimiter, first = " ", " ".join(first.lstrip("#").split())  # as Universal Robots' recorder writes
        header = next(csv.reader([first.lstrip("#").strip("\r\n")], delimiter=self._delimiter))
        self._header = [name.strip() for name in header]
        if all(_is_number(name) for name in self._header):
            raise LogError(f"{path}: line {self._line} holds numbers: expected column names in the first line")
        where = f"{path}: line {self._line}"
        self._columns: Columns = find_columns(self._header, joint_names, explicit, where, may_lack_velocity)
        time = self._columns.time
        self._unit = time_unit or time.unit
        self.unit_given = time_unit is not None or time.unit_given
        used = [time.index, *(index for q in QUANTITIES for index in self._columns.joints[q])]
        if time.nanoseconds is not None:
            used.append(time.nanoseconds)
        self._used = used
        self._exact: bool | None = True if time.nanoseconds is not None else None
        self._origin: Decimal | None = None
        self._blocks: list[FloatArray] = []
        self._stamps: list[FloatArray] = []
        self.rows = 0
        self.characters = 0
        self.cut = False

    def _first_line(self, path: Path, file: TextIO) -> str:
        """The line of names: the first that is no comment, or the comment before the first numbers."""
        comment = ""
        while True:
            text = file.readline()
            if not text and not comment:
                raise LogError(f"{path}: is empty: expected a line of column names and one line per sample")
            if not text:
                return comment
            self._line += 1
            if not text.strip():  # some tools begin with an empty line
                continue
            if text.lstrip().startswith("#"):
                comment = text
                continue
            cells = text.strip("\r\n").split(max(",;\t", key=text.count))
            if comment and all(_is_number(cell) for cell in cells):
                self._line, self._pending = self._line - 1, text
                return comment
            return text

    def block(self) -> bool:
        """Read some more lines; false at the end of the file."""
        lines = self._file.readlines(_BLOCK)
        if self._pending:
            lines, self._pending = [self._pending, *lines], ""
        if not lines:
            return False
        if not lines[-1].endswith(("\n", "\r")):  # the end of the file: the last number may be cut off, too
            self.cut = bool(lines.pop().strip())
        self.characters += sum(map(len, lines))
        at = self._line
        self._line += len(lines)
        numbered = [(at + i + 1, line.rstrip("\r\n")) for i, line in enumerate(lines)]
        if self._delimiter == " ":
            numbered = [(number, " ".join(line.split())) for number, line in numbered]
        numbered = [(number, line) for number, line in numbered if line.strip()]
        if not numbered:
            return True
        values, times = self._parse(numbered)
        if len(values):
            self._stamps.append(self._seconds(values, times))
            self._blocks.append(values[:, 1 : 1 + sum(map(len, self._columns.joints.values()))])
            self.rows += len(values)
            if self.rows > _MAX_ROWS:
                raise LogError(f"{self.path}: more than {_MAX_ROWS} lines: expected a shorter log")
        return True

    def _parse(self, lines: Sequence[tuple[int, str]]) -> tuple[FloatArray, list[str] | None]:
        """Numbers of the used columns (L, 1 + 3 n [+ 1]), and the texts of the stamps where they may matter."""
        width, mark = len(self._header), self._delimiter
        texts = [line for _, line in lines]
        if all(line.count(mark) == width - 1 for line in texts) and not any('"' in line for line in texts):
            try:
                values = np.loadtxt(texts, delimiter=mark, comments=None, usecols=self._used, ndmin=2)
            except (ValueError, OverflowError):
                pass  # the slow way says where
            else:
                return values, self._times(texts, values)
        return self._parse_slowly(lines)

    def _times(self, texts: Sequence[str], values: FloatArray) -> list[str] | None:
        if self._exact is None:
            with np.errstate(invalid="ignore"):
                largest = np.nanmax(np.abs(values[:, 0]), initial=0.0) * TIME_UNITS[self._unit]
            self._exact = bool(largest > _EXACT)
        if not self._exact:
            return None
        index = self._columns.time.index
        return [text.split(self._delimiter, index + 1)[index] for text in texts]

    def _parse_slowly(self, lines: Sequence[tuple[int, str]]) -> tuple[FloatArray, list[str] | None]:
        rows: list[list[float]] = []
        times: list[str] = []
        reader = csv.reader([text for _, text in lines], delimiter=self._delimiter)
        for (number, _), cells in zip(lines, reader, strict=False):
            if len(cells) != len(self._header):
                raise LogError(
                    f"{self.path}: line {number} has {len(cells)} columns: expected {len(self._header)}, "
                    f"as the line of names"
                )
            row = [self._number(cells[index], number, index) for index in self._used]
            if all(math.isnan(value) for value in row[1:]):
                continue  # a line of another topic, merged into the table
            rows.append(row)
            times.append(cells[self._columns.time.index])
        values = np.array(rows, float).reshape(len(rows), len(self._used))
        self._times([], values) if self._exact is None and len(rows) else None
        return values, times if self._exact else None

    def _number(self, text: str, line: int, index: int) -> float:
        text = text.strip()
        if text.lower() in _EMPTY:
            return math.nan
        try:
            return float(text)
        except ValueError:
            hint = ", with a decimal point" if "," in text else ""
            raise LogError(
                f"{self.path}: line {line}, column {self._header[index]!r}: {text[:40]!r}: expected a number{hint}"
            ) from None

    def _seconds(self, values: FloatArray, times: list[str] | None) -> FloatArray:
        """Stamps in s; large ones relative to an origin that is subtracted before anything is rounded."""
        if times is None:
            return values[:, 0] * TIME_UNITS[self._unit]
        scale = {"s": 0, "ms": -3, "us": -6, "ns": -9}[self._unit]
        out = np.empty(len(times))
        nanoseconds = values[:, -1] if self._columns.time.nanoseconds is not None else np.zeros(len(times))
        for i, text in enumerate(times):
            try:
                value = Decimal(text.strip()).scaleb(scale)
                if abs(value) > _LATEST:  # 1e400000 is a whole number of 400001 digits
                    raise ValueError
                if self._origin is None:
                    self._origin = Decimal(int(value))
                out[i] = float(value - self._origin) + 1e-9 * nanoseconds[i]
            except (InvalidOperation, ArithmeticError, ValueError):
                out[i] = math.nan
        return out

    def log(self, angles: str | None) -> Log:
        """Everything read so far."""
        if not self.rows:
            raise LogError(f"{self.path}: no samples after the line of names: expected one line per sample")
        n = len(self._joints)
        stamps = np.concatenate(self._stamps)
        data = np.concatenate(self._blocks)
        self._blocks, self._stamps = [], []
        q, qd, effort = data[:, :n], data[:, n:-n], data[:, -n:]
        if not self._columns.joints["qd"]:
            qd = np.full_like(q, np.nan)
        if (angles or self._columns.angles) == "deg":
            q, qd = np.deg2rad(q), np.deg2rad(qd)
        names = {key: [self._header[i] for i in self._columns.joints[key]] for key in QUANTITIES}
        names["stamps"] = [self._header[self._columns.time.index]]
        if self._columns.by_index:
            names["order"] = ["assumed"]
        if self.cut:
            names["cut"] = ["last line"]
        origin = 0 if self._origin is None else int(self._origin) * 10**9
        return Log(self._joints, Measurements(stamps, q, qd, effort), origin, names)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return not text.strip()
    return True
