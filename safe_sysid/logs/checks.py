"""All checks of a log, from the cheap to the telling; each presumes that the ones before found no error."""

from __future__ import annotations

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.logs.effort_checks import check_efforts
from safe_sysid.logs.findings import Finding
from safe_sysid.logs.log import Log
from safe_sysid.logs.stamp_checks import check_stamps
from safe_sysid.logs.state_checks import check_states
from safe_sysid.robot.model import RobotModel

__all__ = ["check_log"]


def check_log(log: Log, model: RobotModel, errors: MeasurementErrors) -> list[Finding]:
    """What is wrong, or may be, with a log; errors first.

    Args:
        log: of the robot's joints, in the robot's order.
        model: the arm.
        errors: declared bounds.
    """
    out: list[Finding] = []
    if log.columns.get("order"):
        out.append(
            Finding(
                "warning",
                "order_assumed",
                log.column("q", 0),
                "columns are told apart by number",
                f"the names of the joints, {', '.join(log.joint_names)}",
                "base to tip is assumed: say which is which with --column or --map",
            )
        )
    if log.columns.get("lacking"):
        count = int(log.columns["lacking"][0])
        out.append(
            Finding(
                "warning",
                "other_joints",
                log.column("stamps", 0),
                f"{count} messages without all joints of the robot",
                "all joints in one message",
                "they are left out",
                None,
                count,
            )
        )
    out += check_stamps(log, model.settings.measurement.rate_hz)
    for check in (check_states, check_efforts):
        if any(finding.level == "error" for finding in out):
            break
        out += check(log, model, errors)
    return sorted(out, key=lambda finding: finding.level != "error")
