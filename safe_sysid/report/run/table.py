"""The final tables, for a terminal: parameters with their bounds, and the safety record."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_sysid.decimals import at_least, at_most, share_at_most, width_at_most
from safe_sysid.report.run.summary import VIOLATION_KINDS, ParameterRow, Quantiles, Summary, Tracking, Use

__all__ = ["parameter_table", "print_report", "safety_rows", "safety_table"]


def parameter_table(rows: Iterable[ParameterRow], title: str) -> Table:
    """Truth, bounds and widths of the ten parameters."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold underline",
        box=None,  # it must fit into 80 columns
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("parameter", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for name in ("truth", "lower", "nominal", "upper", "width", "prior", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("holds", justify="center", no_wrap=True)
    for row in rows:
        truth = "?" if row.truth is None else _number(row.truth)
        holds = {True: Text("yes", style="green"), False: Text("NO", style="bold red"), None: Text("?")}[row.holds]
        share = row.width_share
        style = "green" if share < 0.25 else "yellow" if share < 0.6 else ""
        table.add_row(
            row.name,
            row.unit,
            truth,
            at_least(row.lower, places=4),
            _number(row.nominal),
            at_most(row.upper, places=4),
            width_at_most(row.lower, row.upper, places=4),
            width_at_most(row.prior_lower, row.prior_upper, places=4),
            Text(share_at_most(share, places=1), style=style),
            holds,
        )
    return table


def safety_table(summary: Summary) -> Table:
    """Worst uses of limits and proved bounds, violations, timing."""
    table = Table(
        title="safety record",
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        padding=(0, 2),
        collapse_padding=True,
        pad_edge=False,
    )

    table.add_column("what", no_wrap=True)
    table.add_column("worst", justify="right", no_wrap=True)
    table.add_column("where")
    for what, worst, where in safety_rows(summary):
        style = ("bold red" if summary.violations.total else "green") if what == "violations" else ""
        table.add_row(what, Text(worst, style=style), where)
    timing, loop = summary.timing, summary.timing.controller
    if summary.mode == "real-time":
        if loop.compute_us is not None:
            table.add_row("controller: arrival to departure", *_quantiles(loop.compute_us))
        for name, quantiles in (("period", loop.period_us), ("latency", loop.latency_us)):
            if quantiles is not None:
                table.add_row(f"1 kHz loop: {name}", *_quantiles(quantiles))
        if loop.long_periods is not None and loop.period_us is not None:
            share = 100.0 * loop.long_periods / max(loop.ticks, 1)
            under = f"; scheduling: {loop.scheduling}" if loop.scheduling else ""
            table.add_row("1 kHz loop: late", f"{loop.long_periods}", f"periods half too long ({share:.2f} %){under}")
        if loop.missed is not None:
            periods = summary.safety.evidence.ticks  # of the plant: the controller may not have seen them all
            share = 100.0 * loop.missed / max(periods, 1)
            table.add_row(
                "1 kHz loop: missed", f"{loop.missed}", f"of {periods} periods without a new command ({share:.2f} %)"
            )
    if timing.planning.count:
        most = f"{timing.planning.max_s:.2f} s" if timing.planning.max_s is not None else "-"
        table.add_row("longest planning", most, f"of {timing.planning.count}")
    speed = f"{timing.simulated_s / timing.run_s:.2f} times real time" if timing.run_s > 0.0 else "-"
    table.add_row("simulated", f"{timing.simulated_s:.2f} s", f"in {timing.run_s:.1f} s: {speed}")
    return table


def safety_rows(summary: Summary) -> list[tuple[str, str, str]]:
    """Worst uses of limits and of proved bounds: what, worst, where."""
    safety = summary.safety
    nearest = safety.clearance
    if nearest.smallest_m is None:
        looked = "nothing to hit" if safety.evidence.clearance_samples else "not measured"
        rows = [("smallest clearance", "-", looked)]
    else:
        certified = "" if nearest.certified_m is None else f", certified {_mm(nearest.certified_m)}"
        where = f"{' - '.join(nearest.pair)} at {nearest.time_s:.2f} s{certified}"
        rows = [("smallest clearance", _mm(nearest.smallest_m), where)]
    for kind in ("torque", "velocity", "position"):
        rows.append((f"largest {kind}", *_use(getattr(safety, kind))))
    for name, item in (
        ("largest tracking error", safety.tracking_position),
        ("largest velocity error", safety.tracking_velocity),
        ("largest energy V", safety.tracking_energy),
    ):
        rows.append((name, *_tracking(item)))
    if summary.goal is not None:
        goal = summary.goal
        error = "-" if goal.distance_rad is None else f"{1e3 * goal.distance_rad:.1f} mrad"
        when = "" if goal.end_s is None else f" at {goal.end_s:.2f} s"
        rows.append(("way to the goal", error, f"left after {goal.steps} certified steps{when}: {goal.text}"))
    counts, seen = summary.violations, summary.safety.evidence
    bad = ", ".join(f"{kind} {getattr(counts, kind)}" for kind in VIOLATION_KINDS if getattr(counts, kind))
    evidence = f"in {seen.ticks} ticks, {seen.clearance_samples} clearances, {seen.updates} updates, {seen.plans} plans"
    rows.append(("violations", str(counts.total), bad or evidence))
    return rows if summary.feed_forward is None else [*rows, summary.feed_forward.texts]


def print_report(console: Console, summary: Summary) -> None:
    """Both tables and every finding."""
    joint = f"last link, hand and payload ({summary.payload}), frame of the last joint of {summary.robot}"
    console.print()
    console.print(parameter_table(summary.parameters, joint))
    console.print()
    console.print(safety_table(summary))
    console.print()
    for finding in summary.safety.findings:
        console.print(Text(f"violation  {finding}", style="bold red"))
    for line in summary.safety.not_checked:
        console.print(Text(f"assumed  {line}", style="dim"))
    for warning in summary.warnings:
        console.print(Text(f"note  {warning}", style="yellow"), soft_wrap=True)


def _mm(metres: float) -> str:
    return f"{at_least(metres, scale=1000, places=1)} mm"


def _number(value: float) -> str:
    return f"{value:.4f}".replace("-0.0000", "0.0000")


def _use(use: Use | None) -> tuple[str, str]:
    if use is None:
        return "-", "nothing to use up"
    return f"{at_most(use.percent, places=1)} %", f"of the limit, {use.joint} at {use.time_s:.2f} s"


def _tracking(item: Tracking | None) -> tuple[str, str]:
    if item is None:
        return "-", "not measured"
    return (
        f"{at_most(item.percent, places=1)} %",
        f"of its proved bound: {at_most(item.value)} of {at_most(item.bound)} {item.unit}, {item.joint} at "
        f"{item.time_s:.2f} s",
    )


def _quantiles(quantiles: Quantiles) -> tuple[str, str]:
    return (
        f"{quantiles.p50 / 1e3:.3f} ms",
        f"median; 99 % below {quantiles.p99 / 1e3:.3f} ms, largest {quantiles.max / 1e3:.3f} ms",
    )
