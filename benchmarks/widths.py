"""How narrow, how sound, how fast: half widths of theta_e by this package's methods and by PSO's Theorem 13.

Logs of 7.5 s at 1 kHz of random exciting quintics, arms drawn inside the declared 5 %, errors on every torque within
0.05 N m + 2.5 %, payload an 8 lb dumbbell. Medians over logs; "outside" counts logs whose truth is not in the box.
With --out every result is kept as a line of JSON, and an interrupted run goes on where it stopped.

    python benchmarks/widths.py --logs 50 --out widths.jsonl --json widths.json
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from payload_logs import NOISE, TrueLog, log_of, measured
from rich.console import Console
from rich.progress import track
from rich.table import Table

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.identification.baselines import estimate_with
from safe_sysid.identification.bounds.payload_constraints import PayloadBox, PayloadConstraints
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.identifier import Identifier
from safe_sysid.identification.tare.tare import make_tare
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel

FloatArray = NDArray[np.float64]
PEER = "theorem 13"
METHODS: dict[str, dict[str, Any]] = {
    PEER: {"baseline": {"variant": "paper"}},
    "theorem 13, eq. 16": {"baseline": {"variant": "paper", "factor": "UtU"}},
    "theorem 13, proved": {"baseline": {"variant": "linear"}},
    "lp": {"method": "lp"},
    "lp+sdp": {"method": "sdp"},
    "lp+sdp+box": {"method": "sdp", "box": True},
    "lp+sdp+tare": {"method": "sdp", "tare": True},
    "lp+sdp+tare+box": {"method": "sdp", "tare": True, "box": True},
}
BATCH = 1500  # samples of one update


def payload_constraints(model: RobotModel, box: bool) -> PayloadConstraints:
    """Of the hand; and of the payload's box, the configured envelope."""
    envelope = model.settings.payload.envelope
    shape = PayloadBox(np.array(envelope.center), np.array(envelope.size), *model.flange) if box else None
    return PayloadConstraints(*model.hand_prior, np.array(model.settings.payload.hand_opening), shape)


@functools.lru_cache(maxsize=2)
def tare_options(model: RobotModel, payload: str, seed: int, noise: str) -> dict[str, Any]:
    """The same motion with the empty hand, as `safe-sysid tare` keeps it."""
    errors = MeasurementErrors.from_model(model)
    log = log_of(model, payload, seed, empty=True)
    return make_tare(model, errors, measured(model, log, noise, seed + 10**6)).options()


def run_method(
    model: RobotModel, log: TrueLog, payload: str, seed: int, noise: str, name: str
) -> dict[str, Any]:
    """One log through one method."""
    how = METHODS[name]
    errors = MeasurementErrors.from_model(model)
    data = measured(model, log, noise, seed)
    tare = tare_options(model, payload, seed, noise) if how.get("tare") else {}
    truth = log.truth[model.arm_prior.layout.payload]
    began = time.perf_counter()
    updates: list[float] = []
    if "baseline" in how:
        result = estimate_with("sensitivity", model, errors, data, window=0.1, **how["baseline"])
        lower, upper, timings = result.lower, result.upper, dict(result.timings)
        extra: dict[str, Any] = {"guaranteed": result.guaranteed, "boundary": result.boundary}
    else:
        identifier = Identifier(
            model,
            errors,
            method=how["method"],
            payload_constraints=payload_constraints(model, bool(how.get("box"))),
            **tare,
        )
        timings, extra = {}, {"status": []}
        for first in range(0, len(data), BATCH):
            identifier.add(data[first : first + BATCH])
            start = time.perf_counter()
            update = identifier.update()
            updates.append(time.perf_counter() - start)
            extra["status"].append(update.status.name)
            for stage, seconds in update.timings.items():
                timings[stage] = timings.get(stage, 0.0) + seconds
        lower, upper = identifier.box.payload_lower, identifier.box.payload_upper
    return {
        "seed": seed,
        "payload": payload,
        "noise": noise,
        "method": name,
        "half_widths": (0.5 * (upper - lower)).tolist(),
        "inside": bool(np.all((lower <= truth) & (truth <= upper))),
        "seconds": time.perf_counter() - began,
        "updates": updates,
        "timings": timings,
        **extra,
    }


def summarise(model: RobotModel, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians by noise and method."""
    prior = model.arm_prior.rad[model.arm_prior.layout.payload]
    out: dict[str, Any] = {"prior_half_widths": prior.tolist(), "noise": {}}
    for noise in NOISE:
        peers = {
            r["seed"]: np.array(r["half_widths"])
            for r in records
            if r["noise"] == noise and r["method"] == PEER
        }
        table: dict[str, Any] = {}
        for name in METHODS:
            mine = [r for r in records if r["noise"] == noise and r["method"] == name]
            if not mine:
                continue
            widths = np.array([r["half_widths"] for r in mine])
            pairs = [np.array(r["half_widths"]) / peers[r["seed"]] for r in mine if r["seed"] in peers]
            table[name] = {
                "logs": len(mine),
                "outside": sum(not r["inside"] for r in mine),
                "half_widths": np.median(widths, axis=0).tolist(),
                "over_prior": np.median(widths / prior, axis=0).tolist(),
                "over_theorem_13": np.median(pairs, axis=0).tolist() if pairs else None,
                "median_over_theorem_13": float(np.median(pairs)) if pairs else None,
                "largest_inertia_half_width": float(np.max(np.median(widths, axis=0)[4:])),
                "seconds": float(np.median([r["seconds"] for r in mine])),
                "update_seconds": float(np.median([t for r in mine for t in r["updates"]] or [np.nan])),
            }
        if table:
            out["noise"][noise] = table
    return out


def show(summary: dict[str, Any], console: Console) -> None:
    """Tables for people."""
    for noise, methods in summary["noise"].items():
        for title, key in (("median half width", "half_widths"), ("median over the prior", "over_prior")):
            table = Table(title=f"{noise} noise: {title}")
            table.add_column("")
            for name in methods:
                table.add_column(name, justify="right")
            for i in range(10):
                table.add_row(
                    f"{PAYLOAD_NAMES[i]}, {PAYLOAD_UNITS[i]}" if key == "half_widths" else PAYLOAD_NAMES[i],
                    *(f"{entry[key][i]:.3g}" for entry in methods.values()),
                )
            if key == "half_widths":
                rows: dict[str, Callable[[dict[str, Any]], str]] = {
                    "truth outside": lambda e: f"{e['outside']} of {e['logs']}",
                    "over theorem 13": lambda e: (
                        f"{e['median_over_theorem_13']:.3g}" if e["median_over_theorem_13"] else "-"
                    ),
                    "seconds per log": lambda e: f"{e['seconds']:.2f}",
                    "seconds per update": lambda e: f"{e['update_seconds']:.2f}",
                }
                for label, text in rows.items():
                    table.add_row(label, *(text(entry) for entry in methods.values()))
            console.print(table)


def main() -> None:
    """Run what is missing, print and store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--payload", default="8lb")
    parser.add_argument("--logs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first log")
    parser.add_argument("--noise", nargs="+", choices=NOISE, default=list(NOISE))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--out", type=Path, help="JSON lines, one a result; continued if it exists")
    parser.add_argument("--json", type=Path, help="the summary")
    options = parser.parse_args()
    model = load_robot(options.robot)
    records: list[dict[str, Any]] = []
    if options.out and options.out.exists():
        records = [json.loads(line) for line in options.out.read_text().splitlines() if line.strip()]
        records = [r for r in records if r["payload"] == options.payload and r["method"] in METHODS]
    done = {(r["seed"], r["noise"], r["method"]) for r in records}
    seeds = range(options.seed, options.seed + options.logs)
    cases = [c for c in itertools.product(seeds, options.noise, options.methods) if c not in done]
    console = Console(stderr=True)
    for seed, noise, name in track(cases, "logs x methods", console=console, disable=not console.is_terminal):
        record = run_method(model, log_of(model, options.payload, seed), options.payload, seed, noise, name)
        records.append(record)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
    summary = summarise(model, records)
    show(summary, Console(width=180))
    if options.json:
        options.json.write_text(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
