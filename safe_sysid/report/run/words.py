"""Sentences of a run's report: the verdict, what is guaranteed, how to check it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safe_sysid.decimals import interval_text
from safe_sysid.report.run.facts import RunFacts
from safe_sysid.report.run.robot import settings_of_run
from safe_sysid.report.run.summary import Summary
from safe_sysid.report.verify_command import plans_command

__all__ = ["GUARANTEED", "OPEN", "RunVerdict", "commands_of", "verdict_of"]

#: What the proofs say, if their assumptions are true.
GUARANTEED = (
    "Each interval holds the true value, and all ten hold together. Solver tolerances cannot make them too narrow: "
    "what is published is a bound that was verified afterwards in outward-rounded arithmetic.",
    "Every published plan keeps every joint, speed and torque limit and every clearance: for each instant, each "
    "tracking error within its proved bound, and each payload within the intervals. So does the way it brakes if "
    "nothing comes after it.",
    "With the control law `robust`, and until a fault, the tracking error stays within its bound while commands come "
    "as early as declared, or late ones are covered; after one that is not, it is not proved before the next start.",
)
#: And what they do not.
OPEN = (
    "The proofs rest on what is declared: errors of the measurements, the arm's own uncertainty, rigid links, "
    "geometry that covers the real one, obstacles that stand still, a payload that does not slip. An empty set of "
    "parameters is the notice that one of these is false when the data prove it; it need not come.",
    "The nominal values are a plausible point inside the intervals, nothing more.",
    "What was measured and drawn here is evidence, not proof. The proofs are in the certificates, and the commands "
    "below check them.",
)


@dataclass(frozen=True)
class RunVerdict:
    """One sentence, and its colour."""

    text: str
    level: Literal["", "weak", "bad"]


def verdict_of(facts: RunFacts, payload: tuple[float, float] | None = None) -> RunVerdict:
    """What became of the run. ``payload``: bounds of the mass of the payload alone, kg; None if not known."""
    summary, controller = facts.summary, facts.logs.controller
    mass = _mass(facts, payload)
    if summary is not None and (wrong := _wrong(summary)):
        return RunVerdict(f"Failed: {wrong}", "bad")
    if any(update.status == "EMPTY_SET" for update in facts.logs.updates):
        return RunVerdict(
            "The measurements contradict what is declared: no payload agrees with all of them, so an assumption is "
            "false and the intervals are not to be relied on.",
            "bad",
        )
    if summary is not None:
        if any(row.truth is None for row in summary.parameters) or not summary.safety.evidence.updates:
            return RunVerdict(
                "Nothing was violated, but no bound was compared with the truth: whether they hold was not judged.",
                "weak",
            )
        late = [note for note in summary.warnings if note.startswith("timing:")]
        held = "every bound held and nothing was violated."
        text = f"{mass[2].upper()}{mass[3:]}: {held}" if mass else held.capitalize()
        if late:
            return RunVerdict(f"{text} But commands came later than declared: what that means is said below.", "weak")
        return RunVerdict(text, "")
    if controller is not None and "fault" in controller.state:
        return RunVerdict("The controller went to fault: from there on nothing is guaranteed.", "bad")
    if controller is not None and controller.claim_lost:
        return RunVerdict(f"The tracking bound is not proved since {controller.claim_lost[0]}.", "weak")
    plans = len(facts.plan_files)
    bounds = facts.certified.count if facts.certified is not None else 0
    if not plans and not bounds:
        return RunVerdict(
            "Nothing here can be checked: the run left neither a plan file nor a certificate of bounds.", "weak"
        )
    why = (
        "Nobody here knows the true payload, so nothing could be compared with it"
        if facts.logs.plant is None
        else "The run was not judged, so nothing was compared with the truth"
    )
    return RunVerdict(
        f"The run left {_count(bounds, 'certificate')} of bounds and {_count(plans, 'certified plan')}{mass}. {why}; "
        "check the certificates as said below.",
        "weak",
    )


def _wrong(summary: Summary) -> str:
    """Why a judged run failed; empty if it did not. A judge that contradicts itself is not believed either."""
    if summary.exit.status != 0:
        return summary.exit.reason or f"exit status {summary.exit.status}"
    if summary.violations.total:
        return f"{summary.violations.total} violations, though summary.json has exit status 0"
    outside = [row.name for row in summary.parameters if row.holds is False]
    if outside:
        return f"the truth lies outside of the bounds of {', '.join(outside)}, though summary.json has exit status 0"
    return ""


def _mass(facts: RunFacts, payload: tuple[float, float] | None) -> str:
    """The first interval in words, if there was an update."""
    if not facts.updates or not facts.rows:
        return ""
    low, high = interval_text(facts.rows[0].lower, facts.rows[0].upper, 3)
    if payload is None:
        return f": last link, hand and payload together weigh {low} to {high} kg"
    light, heavy = interval_text(*payload, 3)
    return f": the payload weighs {light} to {heavy} kg, with hand and last link {low} to {high} kg"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def commands_of(facts: RunFacts) -> list[tuple[str, str]]:
    """Commands that check the run, each with what it does."""
    commands = []
    if facts.plan_files or facts.certified is not None:
        settings = settings_of_run(facts)
        scene = str(facts.parameters.get("scene") or "stated")
        robot = str(facts.parameters.get("robot") or facts.robot)
        command = plans_command(
            facts.directory, robot, scene, settings, lockstep=bool(facts.lockstep) and bool(facts.plan_files)
        )
        commands.append(
            (
                command,
                "recomputes every bound from the log and every plan's margins from its trajectory, with code that "
                "shares no solver with what made them; the robot's file is the one thing it trusts",
            )
        )
    for bag in _bags(facts.directory):
        commands.append(
            (
                shlex.join(["safe-sysid", "replay", str(bag)]),
                "runs the identification of the recording again and compares bit by bit",
            )
        )
    commands.append((shlex.join(["safe-sysid", "report", str(facts.directory)]), "makes this page again"))
    return commands


def _bags(directory: Path) -> list[Path]:
    return sorted({path.parent for pattern in ("bag/*.mcap", "rosbag2_*/*.mcap") for path in directory.glob(pattern)})[
        :5
    ]
