"""The final tables, for a terminal: parameters with their bounds, and the safety record."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_sysid.decimals import at_least, at_most, estimate_text, share_at_most, width_at_most
from safe_sysid.report.run.summary import VIOLATION_KINDS, LimitUse, ParameterRow, Quantiles, Summary, Tracking

__all__ = ["parameter_table", "print_report", "safety_rows", "safety_table", "timing_rows"]


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
    table.add_column("", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for name in ("truth", "lower", "nominal", "upper", "width", "prior", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("holds", justify="center", no_wrap=True)
    for row in rows:
        lower, nominal, upper = estimate_text(row.lower, row.nominal, row.upper, 3)
        truth = "?" if row.truth is None else estimate_text(row.lower, row.truth, row.upper, 3)[1]
        holds = {True: Text("yes", style="green"), False: Text("NO", style="bold red"), None: Text("?")}[row.holds]
        share = row.width_share
        style = "green" if share < 0.25 else "yellow" if share < 0.6 else ""
        table.add_row(
            row.name,
            row.unit,
            truth,
            lower,
            nominal,
            upper,
            width_at_most(row.lower, row.upper),
            width_at_most(row.prior_lower, row.prior_upper, 4),
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
    for row in timing_rows(summary):
        table.add_row(*row)
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
    # Of a measured tube there is no energy.
    proved = safety.tracking_energy is not None or safety.tracking_position is None
    for name, item in (
        ("largest tracking error", safety.tracking_position),
        ("largest velocity error", safety.tracking_velocity),
        ("largest energy V", safety.tracking_energy),
    ):
        rows.append((name, *_tracking(item, "its proved bound" if proved else "the measured outer tube")))
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


def timing_rows(summary: Summary) -> list[tuple[str, str, str]]:
    """Times of the loop and of the nodes: what, worst, more of it."""
    timing, loop = summary.timing, summary.timing.controller
    rows = []
    if summary.mode == "real-time":
        for name, quantiles in (
            ("controller: arrival to departure", loop.compute_us),
            ("1 kHz loop: period", loop.period_us),
            ("1 kHz loop: latency", loop.latency_us),
        ):
            if quantiles is not None:
                rows.append((name, *_quantiles(quantiles)))
        if loop.long_periods is not None:
            share = 100.0 * loop.long_periods / max(loop.ticks, 1)
            under = f"; scheduling: {loop.scheduling}" if loop.scheduling else ""
            rows.append(("1 kHz loop: late", f"{loop.long_periods}", f"periods half too long ({share:.2f} %){under}"))
        if loop.missed is not None:
            periods = summary.safety.evidence.ticks  # of the plant: the controller may not have seen them all
            share = 100.0 * loop.missed / max(periods, 1)
            what = f"of {periods} periods without a new command ({share:.2f} %)"
            rows.append(("1 kHz loop: missed", f"{loop.missed}", what))
    for name, done in (("planning", timing.planning), ("identification", timing.identification)):
        if done.count and done.max_s is not None and done.median_s is not None:
            rows.append((f"longest {name}", f"{done.max_s:.2f} s", f"of {done.count}, median {done.median_s:.2f} s"))
    speed = f"{timing.simulated_s / timing.run_s:.2f} times real time" if timing.run_s > 0.0 else "-"
    start = f"; start of all nodes {timing.startup_s:.1f} s"
    rows.append(("simulated", f"{timing.simulated_s:.2f} s", f"in {timing.run_s:.1f} s: {speed}{start}"))
    return rows


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


def _use(use: LimitUse | None) -> tuple[str, str]:
    if use is None:
        return "-", "nothing to use up"
    return f"{at_most(use.percent, places=1)} %", f"of the limit, {use.joint} at {use.time_s:.2f} s"


def _tracking(item: Tracking | None, bound: str) -> tuple[str, str]:
    if item is None:
        return "-", "not measured"
    return (
        f"{at_most(item.percent, places=1)} %",
        f"of {bound}: {at_most(item.value)} of {at_most(item.bound)} {item.unit}, {item.joint} at {item.time_s:.2f} s",
    )


def _quantiles(quantiles: Quantiles) -> tuple[str, str]:
    return (
        f"{quantiles.p50 / 1e3:.3f} ms",
        f"median; 99 % below {quantiles.p99 / 1e3:.3f} ms, largest {quantiles.max / 1e3:.3f} ms",
    )
