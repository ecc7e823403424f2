"""Checks of time stamps and missing numbers."""

from __future__ import annotations

import math

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.identification.equations.measurements import GAP
from safe_sysid.logs.checks.findings import Finding
from safe_sysid.logs.formats.header import QUANTITIES
from safe_sysid.logs.log import Log

__all__ = ["check_stamps", "good_steps"]

#: Median step over the declared one below which the rate is declared too low.
_SLOWEST = 0.9
_PLACES = 5
_NEGLIGIBLE = 1e-12  # s; at 1000 rad/s the rounding of a position
_DIGIT = 1e-9  # s; the last one of stamps since 1970, as they are written
_ENOUGH = 20  # samples, for digits that are missing in all stamps to be no chance


def good_steps(log: Log) -> BoolArray:
    """(N,) whether a sample is finite and later than all finite ones before it."""
    m = log.measurements
    finite = np.isfinite(m.stamps)
    for values in (m.q, m.qd, m.effort):
        finite &= np.isfinite(values).all(axis=1)
    stamps = np.where(finite, m.stamps, -np.inf)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(stamps)[:-1]])
    return finite & (stamps > before)


def check_stamps(log: Log, rate_hz: float, error_s: float) -> list[Finding]:
    """Missing numbers, order, gaps, rate and resolution.

    ``log``: of the robot's joints; ``error_s``: declared error of a stamp, s.
    """
    m = log.measurements
    out = _missing(log)
    finite = np.isfinite(m.stamps)
    for values in (m.q, m.qd, m.effort):
        finite &= np.isfinite(values).all(axis=1)
    stamps = np.where(finite, m.stamps, -np.inf)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(stamps)[:-1]])
    column = log.column("stamps", 0) if log.columns.get("stamps") else "stamps"
    for code, bad, what in (
        ("duplicate_stamps", finite & (stamps == before), "samples with the stamp of the one before"),
        ("out_of_order", finite & (stamps < before), "samples older than one before them"),
    ):
        count = int(np.sum(bad))
        if count:
            many = count > 0.1 * len(log)
            out.append(
                Finding(
                    "error" if many else "warning",
                    code,
                    column,
                    f"{count} {what}{_places(m.stamps[bad])}",
                    "stamps that grow from sample to sample",
                    "two recordings merged into one? They are left out"
                    if many
                    else "they are left out, and no window spans them",
                    float(m.stamps[bad][0]),
                    count,
                )
            )
    good = finite & (stamps > before)
    if np.sum(good) < 3:
        out.append(Finding("error", "too_short", column, f"{int(np.sum(good))} usable samples", "at least 3", ""))
        return out
    rate = _rate(m.stamps[good], rate_hz, column)
    if any(finding.code == "stamp_unit" for finding in rate):
        return out + rate
    return out + _resolution(log, m.stamps[good], error_s, column) + rate


def _places(times: FloatArray) -> str:
    finite = times[np.isfinite(times)][:_PLACES]
    if not finite.size:
        return ""
    more = " .." if len(times) > _PLACES else ""
    return " at " + ", ".join(f"{t:.6g}" for t in finite) + more + " s"


def _missing(log: Log) -> list[Finding]:
    m = log.measurements
    out = []
    bad_stamp = ~np.isfinite(m.stamps)
    if np.any(bad_stamp):
        out.append(
            Finding(
                "warning",
                "not_finite",
                log.column("stamps", 0) if log.columns.get("stamps") else "stamps",
                f"{int(np.sum(bad_stamp))} stamps missing or not finite",
                "a time for every sample",
                "these samples are left out",
                None,
                int(np.sum(bad_stamp)),
            )
        )
    for name in QUANTITIES:
        bad = ~np.isfinite(getattr(m, name))
        for j in np.flatnonzero(bad.any(axis=0)):
            times = m.stamps[bad[:, j]]
            count = len(times)
            share = count / len(log)
            out.append(
                Finding(
                    "error" if share > 0.5 else "warning",
                    "not_finite",
                    log.column(name, int(j)),
                    f"{count} numbers missing or not finite ({100.0 * share:.3g} %){_places(times)}",
                    "a number in every sample",
                    "nothing is interpolated: record all quantities in one message"
                    if share > 0.01
                    else "these samples are left out",
                    float(times[0]) if np.isfinite(times[0]) else None,
                    count,
                )
            )
    return out


def _resolution(log: Log, stamps: FloatArray, error_s: float, column: str) -> list[Finding]:
    """Stamps that were rounded by more than their declared error."""
    rounding = max(log.stamp_rounding, 0.5 * float(np.spacing(np.max(np.abs(stamps)))))
    double = float(np.spacing(1e-9 * abs(log.origin_ns) + float(np.max(np.abs(stamps)))))
    # As many digits as one likes, of numbers that were floating point since 1970 before they were written.
    whole = np.rint(stamps / double)
    binary = np.all(np.abs(stamps / double - whole) <= _DIGIT / double) and np.any(whole % 64.0)  # no clock of 128 Hz
    if len(stamps) >= _ENOUGH and binary and 0.05 * double > _DIGIT:
        rounding = max(rounding, 0.5 * double)
    declared = max(error_s, _NEGLIGIBLE)
    if rounding > declared:
        largest = float(np.max(np.abs(stamps))) + 1e-9 * abs(log.origin_ns)
        return [
            Finding(
                "error",
                "stamp_resolution",
                column,
                f"numbers as large as {largest:.10g} s are rounded by up to {rounding:.2g} s",
                f"at most the declared stamp_error_s = {error_s:g}",
                "record whole nanoseconds, or subtract the first stamp before rounding to floating point, or "
                f"--set measurement.stamp_error_s={_rounded_up(rounding + error_s)}",
            )
        ]
    grid = _grid(stamps)
    if grid is None or 0.5 * grid <= declared:
        return []
    steps = np.rint(np.diff(stamps) / grid)
    usual = max(float(np.median(steps)), 1.0)
    if np.mean(np.abs(steps - usual * np.rint(steps / usual)) > 0.5) <= 0.01:
        return []  # a clock that ticks on the grid
    # Decimals as fine as floating point has them since 1970 may have come from there, which rounds more coarsely.
    rounding = 0.5 * max(grid, double if grid <= double else 0.0)
    return [
        Finding(
            "warning",
            "stamp_resolution",
            column,
            f"irregular steps, all of them multiples of {grid:g} s",
            f"digits down to the declared stamp_error_s = {error_s:g}",
            "write all digits; if the rest was rounded off, --set measurement.stamp_error_s="
            f"{_rounded_up(rounding + error_s)}",
        )
    ]


def _grid(stamps: FloatArray) -> float | None:
    """The coarsest power of ten, s, of which all stamps are multiples; None if there is none, or too few to tell."""
    if len(stamps) < _ENOUGH:
        return None
    noise = 2.0 * float(np.spacing(np.max(np.abs(stamps))))
    for digits in range(10):
        scale = 10.0**digits
        tolerance = max(1e-6, noise * scale)
        if tolerance > 0.01:
            return None
        scaled = stamps * scale
        if np.all(np.abs(scaled - np.rint(scaled)) <= tolerance):
            return 1.0 / scale
    return None


def _rounded_up(value: float) -> str:
    """At least ``value``, with two digits."""
    return f"{1.05 * value:.1e}"


def _rate(stamps: FloatArray, rate_hz: float, column: str) -> list[Finding]:
    """Median step against the declared rate, then gaps."""
    step = np.diff(stamps)
    median = float(np.median(step))
    ratio = median * rate_hz
    found = f"median step {median:.6g} s, {1.0 / median:.6g} Hz"
    expected = f"the declared rate_hz = {rate_hz:g}, a step of {1.0 / rate_hz:g} s"
    power = round(math.log10(ratio) / 3.0)
    if power and abs(math.log10(ratio) - 3.0 * power) < 0.3:
        units = {1: "ms", 2: "us", 3: "ns"}
        hint = (
            f"the stamps look like {units[power]}: --time-unit {units[power]}"
            if power in units
            else "the unit of the stamps is wrong: see --time-unit"
        )
        return [Finding("error", "stamp_unit", column, found, expected, hint)]
    if ratio > GAP:
        return [
            Finding(
                "error",
                "rate",
                column,
                found,
                expected,
                "every step is a gap: say --rate if the effort really is the mean (or held) torque over such a step; a "
                "log that was thinned out cannot be used, and nothing is resampled",
            )
        ]
    out = []
    if not _SLOWEST < ratio < 1.1:
        out.append(Finding("warning", "rate", column, found, expected, "correct rate_hz, or say --rate"))
    # As the equations do it: where two usual steps would pass for a declared one, the usual one counts.
    period = median if ratio < 0.5 * GAP else 1.0 / rate_hz
    gaps = step > GAP * period
    if np.any(gaps):
        count = int(np.sum(gaps))
        longest = float(np.max(step))
        out.append(
            Finding(
                "warning",
                "gaps",
                column,
                f"{count} gaps, the longest {longest:.4g} s{_places(stamps[:-1][gaps])}",
                f"steps of at most {GAP * period:g} s",
                "no window spans a gap; many gaps leave few equations",
                float(stamps[:-1][gaps][0]),
                count,
            )
        )
    return out
