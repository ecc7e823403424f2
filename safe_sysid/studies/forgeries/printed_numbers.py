"""Attack on printed numbers: intervals of random size through the real outputs, read back and compared exactly.

Named by :data:`safe_sysid.studies.campaign.runner.KINDS`, which imports it when a campaign of this kind is run.
"""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from html import unescape
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.report.identification.html import identification_html
from safe_sysid.report.identification.output import print_result, verdict_line
from safe_sysid.report.identification.result import IdentificationResult, LogEntry, ParameterEntry, PayloadAlone
from safe_sysid.report.identification.urdf import payload_urdf
from safe_sysid.report.run.logs import PlanEntry
from safe_sysid.report.run.summary import ParameterRow
from safe_sysid.report.run.table import parameter_table
from safe_sysid.report.run.tables import margin_table
from safe_sysid.robot.margin import Margin
from safe_sysid.studies.campaign.summary import ascending, count_table, finished, shown, totals
from safe_sysid.view.pieces import intervals, margins
from safe_sysid.view.snapshot import BoundsView, Snapshot

__all__ = ["as_json", "complaint", "is_sound", "run_trial", "summarise", "table"]

_NUMBER = r"[-\N{MINUS SIGN}]?[0-9][0-9.]*(?:e[-+][0-9]+)?"
#: What an output says: which, of what, whether it must be at most ("lower") or at least ("upper") the exact value.
PrintedNumber = tuple[str, str, Literal["lower", "upper"], str, Fraction]


def run_trial(seed: int, index: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """One trial: ten intervals, a payload and margins of random magnitude and width in every output.

    ``options``: ``break``: ``nearest`` has every number rounded to nearest instead, to as many places as were printed.
    """
    began = time.thread_time()
    rng = np.random.default_rng([seed, index])
    result = _result(rng)
    wrong, count = [], 0
    for where, name, side, text, exact in _printed_numbers(result, rng):
        shown, count = Fraction(text.replace("\N{MINUS SIGN}", "-")), count + 1
        if options.get("break") == "nearest":
            step = Fraction(10) ** int(Decimal(text.replace("\N{MINUS SIGN}", "-")).as_tuple().exponent)
            shown = round(exact / step) * step
        if (shown > exact) if side == "lower" else (shown < exact):
            wrong.append({"where": where, "what": name, "side": side, "text": text, "exact": float(exact)})
    return {
        "index": index,
        "numbers": count,
        "inward": len(wrong),
        "such": wrong[:3],
        "seconds": round(time.thread_time() - began, 4),
    }


def _interval(rng: np.random.Generator) -> tuple[float, float, float]:
    """Lower end, estimate, upper end: any magnitude, width and sign; some ends exact decimals, some of width zero."""
    size = 10.0 ** rng.uniform(-8.0, 5.0)
    middle = float(rng.choice([0.0, 1.0, -1.0])) * size * rng.uniform(0.1, 1.0)
    half = size * 10.0 ** rng.uniform(-7.0, 0.5) * float(rng.random() > 0.03)
    lower, upper = middle - half, middle + half
    if rng.random() < 0.3:  # just beside a decimal, where rounding to nearest goes wrong
        digits = int(rng.integers(0, 6))
        lower, upper = round(lower, digits), math.nextafter(round(upper, digits), math.inf)
        lower, upper = min(lower, upper), max(lower, upper)
    nominal = min(max(float(rng.uniform(lower, upper)), lower), upper)
    return lower, nominal, upper


def _result(rng: np.random.Generator) -> IdentificationResult:
    ends = [_interval(rng) for _ in range(10)]
    alone = [_interval(rng) for _ in range(10)]
    wider = [(low - (high - low), high + 3.0 * (high - low)) for low, _, high in ends]
    return IdentificationResult(
        version="0", robot="arm", frame="joint_7", method="lp", guaranteed=True, status="ok", message="",
        exit_status=0, tare=None, declared={}, nominal_consistent=True, updates=[], rejected={}, findings=[],
        diagnosis=[], certificate=None, seconds={}, errors_used=float(rng.uniform()),
        log=LogEntry(
            path="log", samples=3, start_s=0.0, end_s=1.0, origin_ns=0, scaled=[], filtered_hz=None, sha256=None
        ),
        parameters=ParameterEntry.ten(
            lower=[e[0] for e in ends], nominal=[e[1] for e in ends], upper=[e[2] for e in ends],
            prior_lower=[w[0] for w in wider], prior_upper=[w[1] for w in wider],
        ),
        payload=PayloadAlone(
            frame="tool", names=list(PAYLOAD_NAMES), units=list(PAYLOAD_UNITS), consistent=True, possible=True,
            lower=[e[0] for e in alone], nominal=[e[1] for e in alone], upper=[e[2] for e in alone],
        ),
    )  # fmt: skip


def _printed_numbers(result: IdentificationResult, rng: np.random.Generator) -> Iterator[PrintedNumber]:
    """Every number that the outputs print of this result, beside the exact value that it stands for."""
    payload = [*zip(result.payload.names, result.payload.lower, result.payload.upper, strict=True)]
    both = [(p.name, p.lower, p.upper) for p in result.parameters]
    verdict = verdict_line(result, Path("report.html"))
    found = re.findall(rf"\[({_NUMBER}), ({_NUMBER})\] kg", verdict)
    yield from _ends("verdict", found, [payload[0], both[0]])
    used = re.findall(rf"({_NUMBER}) % of the declared errors", verdict)
    yield "verdict", "errors used", "upper", used[0], 100 * Fraction(result.errors_used or 0.0)

    page = identification_html(result, verdict, {}, "", "guaranteed")
    cells = [
        re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    ]
    cells = [row for row in cells if row and row[0] in PAYLOAD_NAMES]
    yield from _ends("page", [(row[1], row[3]) for row in cells], [*both, *payload])
    yield from _shares("page", [unescape(row[6]) for row in cells[:10]], result.parameters)
    drawn = re.findall(rf'aria-label="\w+: ({_NUMBER}) to ({_NUMBER}), prior', page)
    yield from _ends("drawing", drawn, both)

    urdf = re.findall(rf"in \[({_NUMBER}), ({_NUMBER})\]", payload_urdf(result.payload, "arm", True))
    yield from _ends("payload.urdf", urdf, payload)

    console = Console(file=io.StringIO(), width=400, highlight=False)
    print_result(console, result)
    rows = _rows(console, "│")
    yield from _ends("terminal", [(row[1], row[3]) for row in rows], both)
    yield from _shares("terminal", [row[6] for row in rows], result.parameters)

    console = Console(file=io.StringIO(), width=400, highlight=False)
    fields = ("name", "unit", "lower", "nominal", "upper", "prior_lower", "prior_upper")
    console.print(
        parameter_table(
            [ParameterRow(truth=None, **{key: getattr(p, key) for key in fields}) for p in result.parameters], ""
        )
    )
    rows = _rows(console, None)
    yield from _ends("run's table", [(row[-8], row[-6]) for row in rows], both)

    yield from _view(result, both)
    yield from _margins(rng)


def _rows(console: Console, border: str | None) -> list[list[str]]:
    """Cells of a printed table's rows that begin with the name of a parameter."""
    out = []
    for line in console.file.getvalue().splitlines():  # type: ignore[attr-defined]
        cells = [cell.strip() for cell in line.strip(" │").split(border)] if border else line.split()
        if cells and cells[0] in PAYLOAD_NAMES:
            out.append(cells)
    return out


def _view(result: IdentificationResult, both: Sequence[tuple[str, float, float]]) -> Iterator[PrintedNumber]:
    def column(key: str) -> FloatArray:
        return np.array([getattr(p, key) for p in result.parameters])

    snapshot = Snapshot(
        bounds=BoundsView("0:1", column("lower"), column("nominal"), column("upper")),
        prior=(column("prior_lower"), column("prior_upper")),
    )
    text = intervals(snapshot)
    found = re.findall(rf'ss-num">({_NUMBER}) \.\. ({_NUMBER}) ', text)
    yield from _ends("view", found, both)
    yield from _shares("view", re.findall(rf'ss-dim">({_NUMBER} %)', text), result.parameters)


def _margins(rng: np.random.Generator) -> Iterator[PrintedNumber]:
    """A certificate's margin in words, in the view and in the report of a run (mm)."""
    value = _interval(rng)[0]
    exact = Fraction(value)
    margin = Margin("clearance", "a", "b", value, 1.0)
    told = str(margin)
    yield "margin", "clearance", "lower", re.findall(rf"clearance ({_NUMBER}) m", told)[0], exact
    seen = margins(Snapshot(margins=(margin,)))
    yield "view", "clearance", "lower", re.findall(rf"≥ ({_NUMBER}) m", seen)[0], exact
    rows = margin_table([PlanEntry(0, "ok", 0.0, end=1.0, margins={"clearance": margin})])
    cell = rows["rows"][0]["cells"][0]["text"] if rows else ""
    yield "report of a run", "clearance", "lower", cell.removesuffix(" mm"), 1000 * exact


def _ends(
    where: str, found: Sequence[tuple[str, str]], exact: Sequence[tuple[str, float, float]]
) -> Iterator[PrintedNumber]:
    for (low, high), (name, lower, upper) in zip(found, exact, strict=True):
        yield where, name, "lower", low, Fraction(lower)
        yield where, name, "upper", high, Fraction(upper)


def _shares(where: str, found: Sequence[str], rows: Sequence[ParameterEntry]) -> Iterator[PrintedNumber]:
    for text, p in zip(found, rows, strict=True):
        whole = Fraction(p.prior_upper) - Fraction(p.prior_lower)
        share = (Fraction(p.upper) - Fraction(p.lower)) / whole if whole else Fraction(1)
        yield where, f"share of {p.name}", "upper", text.removesuffix(" %"), 100 * share


# -- what a campaign asks of its kind ---------------------------------------------------------------------------------


def is_sound(trial: Mapping[str, Any]) -> bool:
    """Whether nothing is wrong with a trial."""
    return not (trial.get("error") or trial.get("inward"))


def complaint(trial: Mapping[str, Any]) -> dict[str, Any]:
    """What is wrong with a trial, in short."""
    return {key: trial[key] for key in ("error", "inward", "such") if key in trial}


def summarise(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts over trials. ``trials``: results.

    Returns:
        ``trials``; ``numbers``: that were printed, read back and compared; ``inward``: that say more than was proved;
        ``noticed``: trials with any; ``errors``: trials that raised; ``seconds``: of one core.
    """
    trials = list(trials)
    ran = finished(trials)
    return {
        **totals(trials),
        "numbers": sum(trial["numbers"] for trial in ran),
        "inward": sum(trial["inward"] for trial in ran),
        "noticed": sum(bool(trial["inward"]) for trial in ran),
    }


def as_json(header: Mapping[str, Any], trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Everything of a campaign: what it was, the counts, and all trials by index."""
    trials = ascending(trials)
    return {**header, **summarise(trials), "results": trials}


def table(trials: Iterable[dict[str, Any]], title: str) -> Table:
    """Counts of trials."""
    columns = {name: shown(name) for name in ("trials", "numbers", "inward", "noticed", "errors")}
    return count_table(title, trials, summarise, columns, {}, "")
