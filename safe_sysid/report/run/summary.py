"""The summary of a run as a validated structure; `summary.json` is this (docs/refer/summary_json.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, model_validator

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.report.interval_row import IntervalRow, Record
from safe_sysid.robot.margin import MarginRecord
from safe_sysid.whole_files import write_text

__all__ = [
    "VIOLATION_KINDS",
    "ClearanceSummary",
    "Durations",
    "Evidence",
    "Exit",
    "FeedForwardUse",
    "GoalSummary",
    "LimitUse",
    "LoopTiming",
    "Noise",
    "ParameterRow",
    "PlanRow",
    "Quantiles",
    "RunTiming",
    "Safety",
    "Summary",
    "TimeHistogram",
    "Tracking",
    "Violations",
    "write_summary",
]

Count = Annotated[int, Field(ge=0, lt=2**63)]
Time = FiniteFloat  # s since the first measurement of the run, on the plant's clock

VIOLATION_KINDS = ("position", "velocity", "torque", "clearance", "tracking", "contact", "bounds")


class ParameterRow(IntervalRow):
    """One of the ten parameters, with its truth where the plant told it."""

    truth: FiniteFloat | None

    @property
    def holds(self) -> bool | None:
        """Whether the truth lies inside; None if it is not known."""
        return None if self.truth is None else self.lower <= self.truth <= self.upper


class Violations(Record):
    """Counts: control ticks (clearance: samples looked at; bounds: updates) at which something was violated."""

    position: Count = 0
    velocity: Count = 0
    torque: Count = 0
    clearance: Count = 0
    tracking: Count = 0
    contact: Count = 0
    bounds: Count = 0

    @property
    def total(self) -> int:
        """Sum over all kinds."""
        return sum(getattr(self, kind) for kind in VIOLATION_KINDS)


class PlanRow(Record):
    """One answer of the planner: a certified plan, or the reason why there was none."""

    sequence: Count
    status: str
    start_s: Time
    hand_over_s: Time | None
    end_s: Time | None
    box: str
    k: list[FiniteFloat]
    cost: FiniteFloat | None
    planning_s: FiniteFloat | None
    margins: dict[str, MarginRecord]
    reasons: list[str]
    purpose: str = "excitation"


class GoalSummary(Record):
    """Where the arm was to go after the identification: largest error of a joint at the end of the run."""

    reached: bool
    distance_rad: FiniteFloat | None
    steps: Count
    end_s: Time | None
    text: str


class LimitUse(Record):
    """Largest use of a limit: 100 percent is the limit."""

    percent: FiniteFloat
    joint: str
    time_s: Time


class ClearanceSummary(Record):
    """Smallest distance between solids that must stay apart, by the engine, and what the certificates had promised."""

    smallest_m: FiniteFloat | None
    pair: list[str]
    time_s: Time | None
    certified_m: FiniteFloat | None


class Tracking(Record):
    """Largest true tracking error: share of its proved bound, the error itself, and where."""

    percent: FiniteFloat
    joint: str
    time_s: Time
    value: FiniteFloat
    bound: FiniteFloat
    unit: str


class Evidence(Record):
    """How much was looked at. A run without violations in nothing proves nothing."""

    ticks: Count
    tracking_ticks: Count
    clearance_samples: Count
    updates: Count
    plans: Count


class Safety(Record):
    """The safety record; null where there was nothing to look at."""

    clearance: ClearanceSummary
    position: LimitUse | None
    velocity: LimitUse | None
    torque: LimitUse | None
    tracking_position: Tracking | None
    tracking_velocity: Tracking | None
    tracking_energy: Tracking | None
    evidence: Evidence
    findings: list[str]
    not_checked: list[str] = Field(default_factory=list)


class Quantiles(Record):
    """Median, 99th percentile and maximum, in the unit of the field's name."""

    p50: FiniteFloat
    p99: FiniteFloat
    max: FiniteFloat


class TimeHistogram(Record):
    """Counts of times below each of ``upper_us`` and above the one before; the last count is of those above all."""

    upper_us: list[FiniteFloat]
    counts: list[Count]


class LoopTiming(Record):
    """The 1 kHz loop: in lock-step only the computing time means anything."""

    ticks: Count
    compute_us: Quantiles | None
    period_us: Quantiles | None
    latency_us: Quantiles | None
    missed: Count | None
    long_periods: Count | None = None
    period_histogram: TimeHistogram | None = None
    latency_histogram: TimeHistogram | None = None
    compute_histogram: TimeHistogram | None = None
    scheduling: str = ""


class Durations(Record):
    """How many times something was done, and for how long, in s."""

    count: Count
    median_s: FiniteFloat | None
    max_s: FiniteFloat | None


class RunTiming(Record):
    """Wall-clock times."""

    startup_s: FiniteFloat
    run_s: FiniteFloat
    simulated_s: FiniteFloat
    controller: LoopTiming
    planning: Durations
    identification: Durations


class Noise(Record):
    """Errors of the measurements: mode, and declared bounds (one number, or one per joint)."""

    mode: str
    torque_abs: FiniteFloat | list[FiniteFloat]
    torque_rel: FiniteFloat | list[FiniteFloat]
    position_error: FiniteFloat | list[FiniteFloat]
    velocity_error: FiniteFloat | list[FiniteFloat]


class FeedForwardUse(Record):
    """Added to the law's torque: in how many ticks the feed-forward was followed, and why not in the others."""

    name: str
    followed: Count
    not_followed: dict[str, Count]

    @property
    def texts(self) -> tuple[str, str, str]:
        """For tables: what, the share of ticks in which it was followed, and why not in the others."""
        ticks = self.followed + sum(self.not_followed.values())
        why = "".join(f"; {reason}: {count}" for reason, count in self.not_followed.items())
        share = f"{100.0 * self.followed / max(ticks, 1):.1f} %"
        return f"feed-forward {self.name}", share, f"followed in {self.followed} of {ticks} ticks{why}"


class Exit(Record):
    """Exit status of the command, and why it is not 0."""

    status: Annotated[int, Field(ge=0, le=255)]
    reason: str


class Summary(Record):
    """Everything that a run is judged by."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    parameters: Annotated[list[ParameterRow], Field(min_length=10, max_length=10)]
    violations: Violations
    plans: list[PlanRow]
    timing: RunTiming
    safety: Safety
    robot: str
    scene: str
    payload: str
    arm: str
    seed: int
    noise: Noise
    mode: Literal["lockstep", "real-time"]
    warnings: list[str]
    exit: Exit
    goal: GoalSummary | None = None
    feed_forward: FeedForwardUse | None = None

    @model_validator(mode="after")
    def _the_ten(self) -> Summary:
        names = tuple(row.name for row in self.parameters)
        units = tuple(row.unit for row in self.parameters)
        if names != PAYLOAD_NAMES or units != PAYLOAD_UNITS:
            raise ValueError(f"parameters {names} in {units}: expected {PAYLOAD_NAMES} in {PAYLOAD_UNITS}")
        return self

    def to_json(self) -> str:
        """As text, keys in the order of the fields."""
        return json.dumps(self.model_dump(by_alias=True), indent=2, allow_nan=False) + "\n"


def write_summary(path: str | Path, summary: Summary) -> None:
    """Write `summary.json`, whole or not at all."""
    write_text(path, summary.to_json())
