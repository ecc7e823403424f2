"""All checks of a log, cheap ones first; each assumes that those before it found no error."""

from __future__ import annotations

from dataclasses import replace

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.logs.checks.effort_checks import check_efforts
from safe_sysid.logs.checks.findings import Finding
from safe_sysid.logs.checks.stamp_checks import check_stamps
from safe_sysid.logs.checks.state_checks import check_states
from safe_sysid.logs.formats.header import QUANTITIES
from safe_sysid.logs.log import Log
from safe_sysid.robot.model import RobotModel

__all__ = ["check_log"]


def check_log(log: Log, model: RobotModel, errors: MeasurementErrors) -> list[Finding]:
    """What is wrong, or may be, with a log; errors first. ``log``: of the robot's joints, in the robot's order."""
    out: list[Finding] = []
    if log.columns.get("order"):
        names = f"the names of the joints, {', '.join(log.joint_names)}"
        advice = "base to tip is assumed: say which is which with --column or --map"
        column = log.column("q", 0)
        out.append(Finding("warning", "order_assumed", column, "columns are told apart by number", names, advice))
    file = log.column("stamps", 0)
    if log.columns.get("cut"):
        value, expected = "the last line of the file has no end", "a line break after every sample"
        out.append(Finding("warning", "cut_off", file, value, expected, "it may have been cut off and is left out"))
    if log.columns.get("lacking"):
        count = int(log.columns["lacking"][0])
        value, expected = f"{count} messages without all joints of the robot", "all joints in one message"
        out.append(Finding("warning", "other_joints", file, value, expected, "they are left out", None, count))
    out += check_stamps(log, model.settings.measurement.rate_hz, errors.stamp)
    for check in (check_states, check_efforts):
        if any(finding.level == "error" for finding in out):
            break
        out += check(log, model, errors)
    out = _shared(log, _consequences_left_out(out))
    return sorted(out, key=lambda finding: finding.level != "error")


def _consequences_left_out(findings: list[Finding]) -> list[Finding]:
    """Without what a wrong unit brings with it: everything that moves is then too fast as well."""
    found = {finding.code for finding in findings}
    left_out = {"acceleration"} if found & {"degrees", "velocity_scale"} else set()
    left_out |= {"velocity_error"} if "degrees" in found else set()
    return [finding for finding in findings if finding.code not in left_out]


def _shared(log: Log, findings: list[Finding]) -> list[Finding]:
    """With one line instead of n where all joints have the same."""
    n = len(log.joint_names)
    out = list(findings)
    for quantity in QUANTITIES:
        columns = [log.column(quantity, j) for j in range(n)]
        for first in findings:
            same = [
                f
                for f in out
                if (f.level, f.code, f.suggestion) == (first.level, first.code, first.suggestion)
                and f.column in columns
            ]
            if n < 2 or len(same) != n or len({f.column for f in same}) != n:
                continue
            times = [f.time for f in same if f.time is not None]
            merged = replace(
                same[0],
                column=f"{columns[0]} .. {columns[-1]} (all {n} joints)",
                value=f"in {same[0].column} {same[0].value}",
                time=min(times) if times else None,
                count=sum(f.count for f in same),
            )
            out = [merged if f is same[0] else f for f in out if f is same[0] or f not in same]
    return out
