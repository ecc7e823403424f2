"""Output of ``verify`` for plan files: a table and a last line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from safe_sysid.decimals import at_least, declared_text
from safe_sysid.planning.certification.certificate import FAMILIES
from safe_sysid.planning.plan_files.plan_check import PlanReport
from safe_sysid.robot.margin import UNITS, Margin

__all__ = ["margin_text", "over", "print_verdict"]


def over(family: str, clearance_margin: float) -> str:
    """What a family's margins are counted from if that is not the limit itself, as `` over 5 mm``; else empty.

    ``clearance_margin``: distance that the certificate asked for, m.
    """
    return f" over {declared_text(clearance_margin, 1000)} mm" if family in ("clearance", "self_clearance") else ""


def margin_text(margin: Margin, clearance_margin: float) -> str:
    """A margin for people: those of distances say which distance they are counted from.

    ``margin``: the smallest of a family; ``clearance_margin``: distance that the certificate asked for, m.
    """
    return margin.text(over(margin.family, clearance_margin))


def print_verdict(
    console: Console,
    reports: Sequence[PlanReport],
    wrong: str | None,
    assumed: Sequence[str],
    conditions: Sequence[str] = (),
) -> None:
    """Print all margins, what is assumed, and PASS, CONDITIONAL, or the first thing that is not proved.

    Args:
        reports: of the files, at least one.
        wrong: what they do not say together; None: nothing.
        assumed: what a PASS rests on besides what each report says; comes first.
        conditions: what the plans rest on that nothing proves and nobody has said.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("plan", no_wrap=True)
    for title in ("box", "cells"):
        table.add_column(title, justify="right")
    margins_required = {r.file.clearance_margin for r in reports if r.file is not None}
    required = margins_required.pop() if len(margins_required) == 1 else None
    for family in FAMILIES:
        unit = UNITS[family].removeprefix("of the ") + ("" if required is None else over(family, required))
        table.add_column(f"{family.replace('_clearance', '')}\n{unit}", justify="right", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("time\ns", justify="right")
    for report in reports:
        certificate = report.certificate
        margins = ["-"] * len(FAMILIES)
        if certificate is not None and certificate.families:
            values = [certificate.families[name].value for name in FAMILIES]
            margins = [at_least(value, 4) if not np.isposinf(value) else "-" for value in values]
        table.add_row(
            report.path.name,
            report.file.box.identity if report.file else "-",
            str(len(certificate.grid) - 1) if certificate is not None and len(certificate.grid) else "-",
            *margins,
            "proved" if report.passed else "NOT PROVED",
            f"{report.seconds:.2f}",
        )
    console.print(table)
    bad = next((report for report in reports if not report.passed), None)
    if bad is not None:
        console.print(f"FAIL: {bad.path.name}: {bad.reason}", markup=False)
        return
    if wrong is not None:
        console.print(f"FAIL: {wrong}", markup=False)
        return
    for family in FAMILIES:
        found = [(r.certificate.families[family], r) for r in reports if r.certificate is not None]
        margin, report = min(found, key=lambda item: item[0].value)
        name, file = report.path.name, report.file
        told = (margin_text(margin, file.clearance_margin) if file is not None else f"{margin}") + (
            f" in {name}" if len(reports) > 1 and np.isfinite(margin.value) else ""
        )
        console.print(f"smallest margin: {told}", markup=False)
    for line in dict.fromkeys([*assumed, *(line for report in reports for line in report.assumed)]):
        console.print(f"assumed: {line}", markup=False)
    scene, file = reports[0].scene, reports[0].file
    what = f"{len(reports)} plan{'s' if len(reports) > 1 else ''} of {file.robot_name if file else '?'}"
    started = [report.file.plan for report in reports if report.file is not None]
    first = min(started, key=lambda plan: (plan.start_time, plan.sequence))
    moving = ", if it begins in motion as assumed above" if np.any(first.trajectory.knots[0][1:]) else ""
    where = f"in scene {scene.name if scene else '?'}, {file.timing if file else '?'}{moving}"
    word, ifs = ("CONDITIONAL", f", if {'; and if '.join(conditions)}") if conditions else ("PASS", "")
    console.print(
        f"{word}: {what} {where}: every limit holds for every instant, tracking error and parameter{ifs}", markup=False
    )
