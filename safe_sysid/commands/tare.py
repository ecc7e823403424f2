"""``safe-sysid tare``: equations of a motion with the empty hand, kept for later identifications."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from safe_sysid.commands.shared.arguments import at_least, utc_time
from safe_sysid.decimals import at_most, share_at_most

if TYPE_CHECKING:
    from datetime import datetime

    from safe_sysid.core.arrays import FloatArray
    from safe_sysid.identification.tare.tare import Tare

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "keep what a motion with the empty hand says about the arm"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Reads a log of the arm moving with the EMPTY hand, finds the equations that bind its own parameters,
and writes them to a file. Name that file under `tare.file` in the robot's YAML file (or as parameter tare_file of the
identifier node, or --tare of identify), and every later identification on this arm starts from what is known already.
Best the same motions as with a payload, shortly before it, warm joints. Prints what the tare narrows.

In simulation: safe-sysid demo --payload none --out RUN, then safe-sysid tare RUN --out FILE (RUN/log.npz is what the
identifier was given). The identifier's services ~/tare_start and ~/tare_finish do the same while nodes run.

Exit status: 0 written; 2 wrong arguments, a log that cannot be used, or no arm with an empty hand agrees with it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("log", type=Path, metavar="LOG", help="log file, or a run directory with log.npz in it")
    parser.add_argument("--robot", default="kinova_gen3", metavar="NAME|FILE", help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to write the tare (.npz)")
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="C",
        help="degrees Celsius at the joints or in the room, to be compared with the run's later",
    )
    parser.add_argument(
        "--recorded",
        type=utc_time,
        metavar="TIME",
        help="UTC time of the recording, ISO 8601 as in 2026-05-01T14:00; its age counts from there (default: the "
        "log's own, else the file's modification time)",
    )
    parser.add_argument(
        "--rows", type=at_least(1), default=1000, metavar="N", help="equations to keep (default: %(default)s)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")


def run(options: argparse.Namespace) -> int:
    """Make a tare; returns the exit status."""
    import sys

    from safe_sysid.apps.progress import bar
    from safe_sysid.identification.diagnosis.rows import diagnose_rows, format_diagnosis
    from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
    from safe_sysid.identification.tare.file import write_tare
    from safe_sysid.identification.tare.tare import TareError, make_tare
    from safe_sysid.logs.checks.stamp_checks import check_stamps
    from safe_sysid.logs.checks.state_checks import check_states
    from safe_sysid.logs.formats.npz import write_log
    from safe_sysid.logs.formats.reading import load_log
    from safe_sysid.logs.log import LogError
    from safe_sysid.robot.loading import load_robot

    model = load_robot(options.robot)
    errors = MeasurementErrors.from_model(model)
    path = options.log / "log.npz" if (options.log / "log.npz").is_file() else options.log
    log = load_log(path, model.joint_names)
    # Efforts judge themselves: what contradicts an empty hand is diagnosed below.
    findings = check_stamps(log, model.settings.measurement.rate_hz, errors.stamp)
    if not any(finding.level == "error" for finding in findings):
        findings += check_states(log, model, errors)
    wrong = [finding for finding in findings if finding.level == "error"]
    if wrong:
        more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise LogError(f"{path}: {wrong[0].text}{more}")
    created = options.recorded or _recorded(path, log.origin_ns, log.measurements.stamps)
    try:
        with bar("equations of the empty arm", options.quiet) as progress:
            tare = make_tare(
                model,
                errors,
                log.measurements,
                created=created,
                temperature=options.temperature,
                max_rows=options.rows,
                progress=progress,
            )
    except TareError as error:
        if error.rows is not None:
            found = diagnose_rows(model, errors, error.rows, sensor_prior(model.empty_handed_prior, errors))
            print("\n".join(format_diagnosis(found)), file=sys.stderr)
        raise
    write_tare(options.out, tare)
    kept = options.out.with_name(f"{options.out.stem}_log.npz")
    if kept.resolve() != path.resolve():  # `safe-sysid verify` needs it, whatever the log was read from
        write_log(kept, model.joint_names, log.measurements, log.origin_ns)
    print(
        f"{options.out}: {len(tare.log_rows)} equations of {tare.samples} samples, "
        f"recorded {created:%Y-%m-%d %H:%M} UTC"
    )
    if not options.quiet:
        print("\n".join(_gained(tare)))
    return 0


def _recorded(path: Path, origin_ns: int, stamps: FloatArray) -> datetime:
    """UTC time of a recording, as its stamps say, else as its file says."""
    from datetime import datetime, timezone

    seconds = 1e-9 * origin_ns + (float(stamps[-1]) if len(stamps) else 0.0)
    if not 1e9 < seconds < 1e10:  # simulated time, or counted from a start
        seconds = path.stat().st_mtime
    return datetime.fromtimestamp(seconds, timezone.utc)


def _gained(tare: Tare) -> list[str]:
    """A table: what was known of the arm with its empty hand, and what is now."""
    from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS, ParameterLayout

    n = len(tare.joint_names)
    layout = ParameterLayout(n)
    names = layout.names(tare.joint_names)
    units = [*list(PAYLOAD_UNITS) * n, *["N m"] * n, *["N m s/rad"] * n, *["kg m^2"] * n, *["N m"] * n]
    for i, name in enumerate(PAYLOAD_NAMES):
        names[layout.payload.start + i] = f"{name} of {tare.joint_names[-1]}'s link with the empty hand"
    lines = ["known to, half width:          before      after"]
    narrowed = [p for p in range(layout.size) if tare.after[p] < 0.98 * tare.before[p]]
    for p in sorted(narrowed, key=lambda p: tare.after[p] / tare.before[p]):
        before, after = 0.5 * tare.before[p], 0.5 * tare.after[p]
        lines.append(
            f"  {names[p]:<26} {at_most(before, 4):>10} {at_most(after, 4):>10} {units[p]}  "
            f"({share_at_most(after / before, places=0)})"
        )
    lines.append(f"  {layout.size - len(narrowed)} further parameters alone no better; combinations of them are")
    return lines
