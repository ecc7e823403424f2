"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from safe_sysid import __version__
from safe_sysid.decimals import at_most, declared_text, estimate_text, interval_text, share_at_most
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.files.robot_identity import robot_differences
from safe_sysid.identification.inertia_shapes import payload_shapes
from safe_sysid.report.drawing.interval_cards import interval_card, narrowing_drawing, shares_of
from safe_sysid.report.drawing.page import printable, render_page
from safe_sysid.report.run.charts import (
    clearance_drawing,
    histogram_drawing,
    share_drawing,
    timeline_drawing,
    torque_drawing,
)
from safe_sysid.report.run.facts import NAMELESS, RunFacts
from safe_sysid.report.run.table import safety_rows, timing_rows
from safe_sysid.report.run.tables import end_of, events_of, margin_table, setting_rows, states_of, tiles_of
from safe_sysid.report.run.template import TEMPLATE
from safe_sysid.report.run.words import GUARANTEED, OPEN, RunVerdict, commands_of, verdict_of
from safe_sysid.robot.model import RobotModel
from safe_sysid.whole_files import write_text

__all__ = ["run_html", "write_run_report"]

_MOST_EVENTS, _MOST_LINES, _MOST_PLANS = 300, 60, 200


def write_run_report(
    facts: RunFacts, out: str | Path | None = None, model: RobotModel | None = None
) -> tuple[Path, RunVerdict]:
    """Write the page of a run. Returns where the page is, and its verdict. Raises OSError: the page cannot be written.

    Args:
        out: of the page; None: ``report.html`` in its directory.
        model: the arm of the run, which alone knows the hand; without it the payload alone is left out.
    """
    path = Path(out) if out is not None else facts.directory / "report.html"
    text, verdict = run_html(facts, model)
    write_text(path, text)
    return path, verdict


def run_html(facts: RunFacts, model: RobotModel | None = None) -> tuple[str, RunVerdict]:
    """The page, and its verdict. ``model``: the arm of the run, or None."""
    summary, events = facts.summary, events_of(facts)
    payload, payload_note = _payload(facts, model)
    verdict = verdict_of(facts, payload["shapes"].mass if payload is not None else None)
    held = f" with {summary.payload}" if summary is not None else ""
    values: dict[str, Any] = {
        "title": f"{facts.robot}{held}",
        "subtitle": _subtitle(facts),
        "verdict": verdict,
        "tiles": tiles_of(facts, payload),
        "findings": summary.safety.findings[:_MOST_LINES] if summary is not None else (),
        "frame": facts.joint_names[-1] if facts.joint_names else "the last joint",
        "cards": [interval_card(row, row.truth) for row in facts.rows],
        "numbers": _numbers(facts),
        "has_truth": any(row.truth is not None for row in facts.rows),
        "payload": payload,
        "payload_note": payload_note,
        "narrowing": _narrowing(facts),
        "timeline": _timeline(facts),
        "has_task": any(plan.purpose == "task" for plan in facts.logs.plans),
        "events": events[:_MOST_EVENTS],
        "bad_events": sum(event.level != "" for event in events),
        "left_out": max(len(events) - _MOST_EVENTS, 0),
        "warnings": [*(summary.warnings if summary is not None else ()), *facts.counts][:_MOST_LINES],
        "margins": margin_table(facts.logs.plans[:_MOST_PLANS]),
        "margin_note": _margin_note(facts),
        "safety": safety_rows(summary) if summary is not None else (),
        "shares": _shares(facts),
        "torques": _torques(facts),
        "torque_note": _torque_note(facts),
        "timing": _timing(facts),
        "guaranteed": GUARANTEED,
        "not_guaranteed": (*OPEN, *_not_checked(facts)),
        # A command that is cut short is no command.
        "commands": [(Markup(escape(printable(command))), what) for command, what in commands_of(facts)],
        "settings": setting_rows(facts),
        "missing": facts.missing[:_MOST_LINES],
        "footer": f"Made by safe_sysid {__version__} from what the nodes wrote down. No script, no network.",
    }
    return render_page(f"{values['title']}: {facts.directory.name}", TEMPLATE, values), verdict


def _not_checked(facts: RunFacts) -> list[str]:
    """What the plans' certificates take for granted of the arm's own shapes."""
    lines = facts.summary.safety.not_checked[:_MOST_LINES] if facts.summary is not None else []
    return [f"Assumed by every plan's certificate: {line}." for line in lines]


def _subtitle(facts: RunFacts) -> str:
    parts = []
    if facts.summary is not None:
        s = facts.summary
        parts = [f"scene {s.scene}", "lock-step" if s.mode == "lockstep" else "real time", f"seed {s.seed}"]
        parts.append("simulated arm")
    elif facts.logs.plant is not None:
        parts = ["simulated arm, not judged"]
    parts.append(f"{end_of(facts):.1f} s")
    return f"{', '.join(parts)}; {facts.directory.name}"


# -- intervals --------------------------------------------------------------------------------------------------------


def _numbers(facts: RunFacts) -> list[Mapping[str, Any]]:
    return [
        {
            "name": row.name,
            "unit": row.unit,
            **dict(
                zip(("lower", "nominal", "upper"), estimate_text(row.lower, row.nominal, row.upper, 4), strict=True)
            ),
            "truth": "?" if row.truth is None else estimate_text(row.lower, row.truth, row.upper, 4)[1],
            "holds": {True: "yes", False: "NO", None: "?"}[row.holds],
            "level": {True: "good", False: "bad", None: ""}[row.holds],
            "prior": " .. ".join(interval_text(row.prior_lower, row.prior_upper, 4)),
        }
        for row in facts.rows
    ]


def _payload(facts: RunFacts, model: RobotModel | None) -> tuple[Mapping[str, Any] | None, str]:
    """The payload alone, if the arm is known to be the one of the run."""
    if not facts.updates:
        return None, ""
    if model is None:
        return (
            None,
            "The payload alone is left out: the robot's file, which knows the hand, was not at hand (--robot).",
        )
    if facts.certified is not None:
        differ = [line for line in robot_differences(facts.certified.stated, model) if "measurement" not in line]
        if differ:
            return (None, f"The payload alone is left out: the robot's file is not that of the run ({differ[0]}).")
    elif facts.robot not in (model.name, NAMELESS):
        return (None, f"The payload alone is left out: the robot's file is of {model.name}, the run of {facts.robot}.")
    last = facts.updates[-1]
    if facts.summary is not None and any(
        row.lower != low or row.upper != high for row, low, high in zip(facts.rows, last.lower, last.upper, strict=True)
    ):
        return None, "The payload alone is left out: identifier.json has other bounds than summary.json."
    try:
        shapes = payload_shapes(model, last.lower, last.nominal, last.upper)
    except SafeSysIdError as error:
        return None, f"The payload alone is left out: {error}"
    pairs = [("mass", shapes.mass_text)]
    if shapes.outside_envelope:
        pairs.append(("centre of mass", "not inside the declared envelope, which is therefore false"))
    elif shapes.bounded:
        for axis, low, high in zip("xyz", shapes.centre_lower, shapes.centre_upper, strict=True):
            a, b = interval_text(float(low), float(high), scale=1000)
            pairs.append((f"centre of mass, {axis}", f"{a} .. {b} mm"))
    if shapes.ellipsoid is not None:
        full = " \N{MULTIPLICATION SIGN} ".join(f"{2e3 * a:.0f}" for a in shapes.ellipsoid[2])
        pairs.append(("nominal inertia is that of a solid ellipsoid of", f"{full} mm"))
    return {"frame": model.payload_link, "pairs": pairs, "shapes": shapes}, ""


def _narrowing(facts: RunFacts) -> Markup | None:
    if not facts.updates or not facts.rows:
        return None
    shares = shares_of(facts.rows, [update.upper - update.lower for update in facts.updates])
    return narrowing_drawing([update.time for update in facts.updates], shares, end_of(facts))


def _timeline(facts: RunFacts) -> Markup | None:
    states = states_of(facts.logs.controller)
    if not states and not facts.logs.plans and not facts.logs.updates:
        return None
    times = [update.time for update in facts.logs.updates]
    return timeline_drawing(facts.logs.plans[:_MOST_PLANS], states, times, end_of(facts))


# -- limits and timing ------------------------------------------------------------------------------------------------


def _margin_note(facts: RunFacts) -> str:
    margins = {file.clearance_margin for file in facts.plan_files}
    if len(margins) != 1:
        return ""
    return f"Clearances are counted from {declared_text(margins.pop(), 1000)} mm."


def _shares(facts: RunFacts) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    curves = facts.curves
    if curves is not None and np.any(np.isfinite(curves.clearance)):
        found.append(
            {
                "name": "Clearance, mm",
                "drawing": clearance_drawing(
                    curves.clearance_time, curves.clearance, curves.certified_time, curves.certified
                ),
                "caption": "Smallest distance between solids that must stay apart, measured by the physics engine "
                "with the true arm; larger ones are cut off.",
            }
        )
    label = "tracking error as a share of its proved bound, over time"
    if curves is not None and curves.position_time.size:
        lines = [
            ("worst joint", curves.position_time, curves.position_share),
            ("energy", curves.energy_time, curves.energy_share),
        ]
        found.append(
            {
                "name": "True tracking error",
                "drawing": share_drawing([line for line in lines if line[1].size], label),
                "caption": "As a share of its bound (100 %), proved or, of an arm that follows trajectories, measured; "
                "by the plant's own record.",
            }
        )
    elif facts.measured is not None:
        found.append(
            {
                "name": "Measured tracking error",
                "drawing": share_drawing([("worst joint", *facts.measured)], label),
                "caption": "As a share of the proved bound of the true one (100 %); with the errors of measurement.",
            }
        )
    return found


def _torques(facts: RunFacts) -> list[Mapping[str, Any]]:
    if facts.torques is None:
        return []
    time, torque = facts.torques
    found: list[Mapping[str, Any]] = []
    limits = facts.torque_limits
    for j in range(torque.shape[1]):
        name = facts.joint_names[j] if j < len(facts.joint_names) else f"joint {j + 1}"
        limit = float(limits[j]) if limits is not None and j < limits.size else None
        most = float(np.nanmax(np.abs(torque[:, j]), initial=0.0)) if np.any(np.isfinite(torque[:, j])) else 0.0
        use = f"at most {at_most(most)}" + (f" of {limit:g}, {share_at_most(most / limit, places=0)}" if limit else "")
        found.append({"name": name, "use": use, "drawing": torque_drawing(time, torque[:, j], limit, name)})
    return found


def _torque_note(facts: RunFacts) -> str:
    who = "Applied by the simulated drives" if facts.logs.plant is not None else "Commanded"
    known = "; dashed: the limits" if facts.torque_limits is not None else "; no plan file states the limits"
    return f"{who}, in N m (of sliding joints in N){known}."


def _timing(facts: RunFacts) -> Mapping[str, Any] | None:
    if facts.summary is None:
        return None
    timing, loop = facts.summary.timing, facts.summary.timing.controller
    speed = f"{timing.simulated_s / timing.run_s:.2f} times real time" if timing.run_s > 0.0 else "no time at all"
    if facts.summary.mode == "lockstep":
        text = f"Lock-step: simulated time waited for every command, so the clock says nothing of the proofs; {speed}."
        kinds: Sequence[tuple[str, Any]] = (("computing", loop.compute_histogram),)
    else:
        text = f"Real time: the 1 kHz loop ran on the wall clock; {speed}."
        kinds = (
            ("period", loop.period_histogram),
            ("measurement to command", loop.latency_histogram),
            ("computing", loop.compute_histogram),
        )
    drawings = [
        {"name": name, "drawing": histogram_drawing(histogram, f"how often each {name} time")}
        for name, histogram in kinds
        if histogram is not None
    ]
    return {
        "text": text,
        "rows": [(what, f"{worst} {more}") for what, worst, more in timing_rows(facts.summary)],
        "drawings": drawings,
    }
