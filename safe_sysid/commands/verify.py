"""``safe-sysid verify``: certificates re-checked from the logs on."""

from __future__ import annotations

import argparse
import sys

from safe_sysid.commands.shared.arguments import add_settings

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "re-check published bounds and plans from their certificates"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Believes nothing that a file claims, and prints PASS; or FAIL and the first thing that is not proved;
or CONDITIONAL and what it rests on that nothing there proves.

Certificates of bounds (of `identify`, or of a run): rebuilds every equation of the chain from the logs, in interval
arithmetic and without Pinocchio or a solver, evaluates what their multipliers prove, and walks from the prior to the
last bounds. In a directory: also that nothing was withdrawn, that the whole log is covered, and every field of
bounds.yaml, result.json and payload.urdf.

Intervals of an arm's own parameters (arm_certificate.json, of `identify-arm`): rebuilds and evaluates likewise, for
every combination of parameters that is bounded; in result.json beside it, every name and bound.

Plans (plan_NNNNN.json, of `plan`, or of a run): synthesises the controller's gains anew, encloses positions,
velocities, torques and distances along the motion again, for every instant, tracking error and parameter of the box,
and compares all margins with what is claimed. In a directory: also that all are of one robot, scene and timing, that
each begins where an earlier one leaves the arm, and that their boxes hold the bounds that the certificates beside them
prove; bounds that plans were made with by `--bounds` are proved by the directory of `identify` if it is named first.
What stands around the arm you say by --scene: the scene that plans name themselves is a condition.

Exit status: 0 everything is proved, 1 something is not, 2 it could not be checked (a log is missing, another robot or
scene than the packaged ones, wrong arguments), 3 proved but for conditions, such as a box without certificates.

examples:
  safe-sysid verify runs/20260504-identify-run
  safe-sysid verify runs/20260504-plan-six_boxes/plan_00002.json --scene six_boxes --lockstep
  safe-sysid verify runs/20260504-plan-cell --scene cell.yaml --robot my_arm.yaml
  safe-sysid verify runs/20260504-identify-run runs/20260504-plan-six_boxes --scene six_boxes --lockstep
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a certificate (.json; those before it are looked for beside it), a plan, or a directory with any of them",
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="LOG.npz",
        help="log of the run; may be given again (default: whatever .npz beside the certificates has the right digest)",
    )
    parser.add_argument(
        "--tare-log",
        action="append",
        default=[],
        metavar="LOG.npz",
        help="log of the tare, in which you know the hand to be empty (default: tare_log.npz beside the certificates)",
    )
    parser.add_argument(
        "--robot", metavar="NAME|FILE", help="trusted description (default: the packaged one of the same name)"
    )
    parser.add_argument(
        "--scene",
        metavar="NAME|FILE",
        help="trusted scene of the plans; `stated` to believe the obstacles that the plan itself states (default: the "
        "packaged one of the name that the plan states, as a condition)",
    )
    parser.add_argument(
        "--lockstep",
        action="store_true",
        help="the plans are for a simulation that waits for every command (of `plan`, or of a demo in lock-step), not "
        "for an arm with the timing that the robot's file declares",
    )
    add_settings(
        parser,
        "setting of the robot that was in force instead of its file's, as measurement.torque_abs=0.2; may be "
        "given again",
    )


def run(options: argparse.Namespace) -> int:
    """Check all files; the worst answer counts."""
    from rich.console import Console

    from safe_sysid.apps.verify.verification import Verification

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, soft_wrap=True)
    verification = Verification(
        console, options.robot, options.scene, options.lockstep, dict(options.set), options.log, options.tare_log
    )
    return int(verification.check(options.files))
