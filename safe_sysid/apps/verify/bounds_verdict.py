"""Output of ``verify`` for certificates of bounds: a table and a last line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from safe_sysid.decimals import bracketed, interval_text
from safe_sysid.identification.certificates.chain import ChainVerdict
from safe_sysid.identification.certificates.files.update import BoundsCertificate
from safe_sysid.robot.config import KEYS
from safe_sysid.robot.model import RobotModel

__all__ = ["print_bounds_verdict"]


def print_bounds_verdict(
    console: Console,
    model: RobotModel,
    certificates: Sequence[BoundsCertificate],
    verdicts: Sequence[ChainVerdict],
    wrong: str | None,
    condition: str | None = None,
) -> None:
    """Print the table, the bounds, what is assumed, and PASS, CONDITIONAL, or the first thing that is not proved.

    Args:
        model: trusted.
        certificates: that were checked, in order.
        verdicts: on them; fewer than these if one is not proved.
        wrong: what is published besides and not proved; None: nothing.
        condition: what was not looked at; None: nothing.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("certificate", "samples", "equations", "cuts", "result", "time, s", "log"):
        table.add_column(title, justify="left" if title in ("certificate", "result", "log") else "right")
    for v in verdicts:
        result = "proved" if v.passed else "NOT PROVED"
        counts = (str(v.samples), str(v.rows), str(v.cuts))
        table.add_row(v.identity, *counts, result, f"{v.seconds:.2f}", Path(v.log).name)
    console.print(table)
    last = verdicts[-1]
    if not last.passed:
        console.print(f"FAIL: {last.path.name}: {last.reason}", markup=False)
        return
    if wrong is not None:
        console.print(f"FAIL: {wrong}", markup=False)
        return
    final = certificates[len(verdicts) - 1]
    bounds = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("parameter", "lower", "upper", "unit"):
        bounds.add_column(title, justify="right" if title in ("lower", "upper") else "left")
    for bound in final.header["bounds"]:
        bounds.add_row(bound["name"], *interval_text(bound["lower"], bound["upper"], 4), bound["unit"])
    console.print(bounds)
    e = final.header["errors"]
    stated = ", ".join(
        f"{name} {max(value) if isinstance(value, list) else value}"
        for name, value in e.items()
        if name != "n" and not isinstance(value, bool) and value is not None
    )
    console.print(f"Declared, not proved (largest of the joints): {stated}", markup=False)
    for line in _assumed(model, verdicts):
        console.print(f"assumed: {line}", markup=False)
    word, end = ("PASS", "") if condition is None else ("CONDITIONAL", f", unless {condition}")
    console.print(
        f"{word}: {len(verdicts)} certificate{'s' if len(verdicts) > 1 else ''} of {model.name}: what the logs say and "
        f"what is declared imply these bounds of the last link with hand and payload{end}",
        markup=False,
    )


def _assumed(model: RobotModel, verdicts: Sequence[ChainVerdict]) -> list[str]:
    """What a PASS rests on besides the errors of measurement, in words."""
    payload, tare = model.settings.payload, model.settings.tare
    low, high = model.hand_prior
    # What identify-arm proved is of links that move as the arm's do: no scale would show this mass.
    moves = " (and of the link before: `proved`)" if model.proved_link(model.n - 1) is not None else ""
    lines = [
        f"one payload in one grasp throughout each epoch's log ({', '.join(dict.fromkeys(v.log for v in verdicts))})",
        "every parameter of the arm within the prior of the robot's file",
        *model.model_assumptions,
        *filter(None, [model.drive_note]),
        f"mass of last link and empty hand{moves} in {bracketed(low[0], high[0], 4)} kg (its nine others, too)",
        f"friction constant; its sign known outside of {model.friction_transition_velocity:g} "
        f"{KEYS['friction_transition_velocity'].unit_for(model.sliding)}",
    ]
    opening = [float(x) for x in payload.hand_opening]
    lines.append(f"opening the hand changes its parameters by at most {opening}")
    if payload.box is not None:
        lines.append(f"payload inside its box: {payload.box}")
    if payload.density is not None:
        lines.append(f"density of the payload: {payload.density} kg/m^3")
    for name in dict.fromkeys(v.tare_log for v in verdicts if v.tare_log):
        lines.append(f"hand empty in {name}")
        lines.append(f"drift of friction and offsets since the tare: {tare.drift}")
    return lines
